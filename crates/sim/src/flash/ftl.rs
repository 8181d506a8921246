//! The translation layer without time: which physical page holds a logical one, which blocks are free, and which block is
//! collected next.
//!
//! Invariants:
//! - `map[l] == p` if and only if `back[p] == l` and `p` is valid; a block's `valid` counts its valid pages. `back[p]` of a page that is not
//!   valid is what it held: a write then touches one bit of its former page, which the processor's cache has, and not the
//!   memory of `back`, which it has not.
//! - A block is in exactly one of: the free list of its plane, one of the two open blocks of its plane, the list of closed
//!   blocks of its plane with as many valid pages, or collection.
//! - Data of the host and data that collection moves go to different open blocks, because moved data is colder.

use std::collections::VecDeque;

use measure::pattern::Rng;

use super::divisor::Divisor;
use super::spec::{FlashSpec, Placement, Preconditioning};

/// No page, no block.
pub const NONE: u32 = u32::MAX;

/// Pages between two looks at whether a drive that is filled is still wanted.
pub const PAGES_BETWEEN_LOOKS: usize = 1 << 16;

/// Whether what is being made is not wanted any more.
pub type Stopped<'a> = &'a dyn Fn() -> bool;

/// Who writes a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The host, or the map.
    New = 0,
    /// Collection.
    Moved = 1,
}

/// A block.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Pages that hold current data.
    valid: u32,
    /// Whether it is in a list of closed blocks.
    closed: bool,
    /// Its neighbours in that list.
    prev: u32,
    next: u32,
}

/// A block being filled.
#[derive(Debug, Clone, Copy)]
struct Open {
    block: u32,
    page: u32,
}

/// A plane.
#[derive(Debug)]
struct Plane {
    free: VecDeque<u32>,
    open: [Open; 2],
    /// First closed block with so many valid pages.
    closed: Vec<u32>,
    /// No closed block has fewer valid pages.
    fewest: u32,
    /// Blocks in collection.
    collected: u32,
}

/// The state of a drive's flash.
#[derive(Debug)]
pub struct Ftl {
    blocks_per_plane: u32,
    pages_per_block: u32,
    /// Divide by these two.
    plane_of: Divisor,
    block_of: Divisor,
    map: Vec<u32>,
    back: Vec<u32>,
    /// A bit for each physical page: whether it holds current data.
    is_valid: Vec<u64>,
    blocks: Vec<Block>,
    planes: Vec<Plane>,
    /// Planes in the order of addresses.
    stripe: Vec<u32>,
    placement: Placement,
    cursor: usize,
    start_blocks: u32,
    reserve_blocks: u32,
    sample_blocks: u32,
}

impl Ftl {
    /// The flash of `spec` in its state before the run. Filling a large drive takes seconds: once `stopped` says so, what is left is not
    /// filled, and the drive is of no use.
    #[must_use]
    pub fn new(spec: &FlashSpec, rng: &mut Rng, stopped: Stopped<'_>) -> Self {
        let planes = spec.planes();
        let data = spec.data_pages() as u32;
        let mapping = spec.entries_per_mapping_page().map_or(0, |entries| data.div_ceil(entries));
        let blocks = planes * spec.blocks_per_plane;
        let empty = Block { valid: 0, closed: false, prev: NONE, next: NONE };
        let mut ftl = Self {
            blocks_per_plane: spec.blocks_per_plane,
            pages_per_block: spec.pages_per_block,
            plane_of: Divisor::new(spec.blocks_per_plane),
            block_of: Divisor::new(spec.pages_per_block),
            map: vec![NONE; (data + mapping) as usize],
            back: vec![NONE; blocks as usize * spec.pages_per_block as usize],
            is_valid: vec![0; (blocks as usize * spec.pages_per_block as usize).div_ceil(64)],
            blocks: vec![empty; blocks as usize],
            planes: Vec::with_capacity(planes as usize),
            stripe: stripe(spec),
            placement: spec.placement,
            cursor: 0,
            start_blocks: spec.gc_start_blocks(),
            reserve_blocks: spec.gc_reserve_blocks,
            sample_blocks: spec.gc_sample_blocks,
        };
        for plane in 0..planes {
            let first = plane * spec.blocks_per_plane;
            let mut free: VecDeque<u32> = (first..first + spec.blocks_per_plane).collect();
            let open =
                [(); 2].map(|()| Open { block: free.pop_front().expect("a plane has blocks"), page: 0 });
            let closed = vec![NONE; spec.pages_per_block as usize + 1];
            ftl.planes.push(Plane { free, open, closed, fewest: 0, collected: 0 });
        }
        ftl.precondition(spec, data, mapping, rng, stopped);
        ftl
    }

    /// Writes what the drive holds before the run: the map's pages always, data by `spec.state`.
    fn precondition(
        &mut self,
        spec: &FlashSpec,
        data: u32,
        mapping: u32,
        rng: &mut Rng,
        stopped: Stopped<'_>,
    ) {
        let planes = self.planes.len();
        let occupied = match spec.state {
            Preconditioning::Empty => 0,
            Preconditioning::Full | Preconditioning::Steady => (f64::from(data) * spec.occupied) as u32,
        };
        for position in 0..planes {
            if stopped() {
                return;
            }
            let of = |first: u32, end: u32| {
                let skip = (position + planes - first as usize % planes) % planes;
                (first..end).skip(skip).step_by(planes)
            };
            let pages: Vec<u32> = of(0, occupied).chain(of(data, data + mapping)).collect();
            let plane = self.stripe[position];
            if spec.state == Preconditioning::Steady {
                self.age(plane, pages, rng, stopped);
            } else {
                for (n, page) in pages.into_iter().enumerate() {
                    if n % PAGES_BETWEEN_LOOKS == 0 && stopped() {
                        return;
                    }
                    self.write_to(page, plane, Stream::New);
                }
            }
        }
    }

    /// Gives `plane` the state that uniform random writes of `pages` leave in the long run: the blocks' shares of valid pages
    /// fall exponentially with their age, from 1 for the youngest, at the rate at which all pages have room. (The derivation of
    /// the amplification α/(α + W(−αe^−α)): Desnoyers, Analytic Models of SSD Write Performance, 2014.)
    fn age(&mut self, plane: u32, mut pages: Vec<u32>, rng: &mut Rng, stopped: Stopped<'_>) {
        for i in (1..pages.len()).rev() {
            if i % PAGES_BETWEEN_LOOKS == 0 && stopped() {
                return;
            }
            pages.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let blocks = self.planes[plane as usize].free.len() as u32 - self.start_blocks;
        let rate = decay(f64::from(blocks) * f64::from(self.pages_per_block) / pages.len().max(1) as f64);
        let blocks_between_looks = (PAGES_BETWEEN_LOOKS as u32 / self.pages_per_block).max(1);
        let (mut placed, mut expected) = (0, 0.0);
        for age in 0..blocks {
            if age % blocks_between_looks == 0 && stopped() {
                return;
            }
            expected +=
                f64::from(self.pages_per_block) * (-rate * (f64::from(age) + 0.5) / f64::from(blocks)).exp();
            let end =
                if age + 1 == blocks { pages.len() } else { (expected.round() as usize).min(pages.len()) };
            let valid = (end - placed).min(self.pages_per_block as usize);
            self.fill_partly(plane, &pages[placed..placed + valid], rng);
            placed += valid;
        }
        for page in pages.split_off(placed) {
            self.write_to(page, plane, Stream::New);
        }
    }

    /// Closes a free block with `pages` at random places in it.
    fn fill_partly(&mut self, plane: u32, pages: &[u32], rng: &mut Rng) {
        let block =
            self.planes[plane as usize].free.pop_front().expect("fewer blocks are filled than are free");
        let mut rest = pages.iter();
        for offset in 0..self.pages_per_block {
            if rng.below(u64::from(self.pages_per_block - offset)) < rest.len() as u64 {
                let logical = *rest.next().expect("the draw fails when none is left");
                let physical = block * self.pages_per_block + offset;
                self.enter(logical, physical);
            }
        }
        self.blocks[block as usize].valid = pages.len() as u32;
        self.close(block);
    }

    /// The physical page of `logical`.
    #[inline]
    pub fn find(&self, logical: u32) -> Option<u32> {
        Some(self.map[logical as usize]).filter(|page| *page != NONE)
    }

    /// The plane of physical page `page`.
    #[inline]
    pub fn plane_of_page(&self, page: u32) -> u32 {
        self.plane_of_block(self.block_of.quotient(page))
    }

    /// The plane of a block.
    #[inline]
    pub fn plane_of_block(&self, block: u32) -> u32 {
        self.plane_of.quotient(block)
    }

    /// The place of a physical page in its block.
    #[inline]
    pub fn offset(&self, page: u32) -> u32 {
        self.block_of.remainder(page)
    }

    /// The plane that `logical` has by its address.
    #[inline]
    pub fn home(&self, logical: u32) -> u32 {
        self.stripe[logical as usize % self.stripe.len()]
    }

    /// The plane to which `logical` goes next; `Err` with the plane for which it must wait, if it has no room.
    pub fn choose(&mut self, logical: u32) -> Result<u32, u32> {
        if self.placement == Placement::Static {
            let plane = self.home(logical);
            return if self.has_room(plane) { Ok(plane) } else { Err(plane) };
        }
        for _ in 0..self.stripe.len() {
            let plane = self.stripe[self.cursor];
            self.cursor = (self.cursor + 1) % self.stripe.len();
            if self.has_room(plane) {
                return Ok(plane);
            }
        }
        Err(self.stripe[self.cursor])
    }

    /// Whether new data may go to `plane`.
    #[inline]
    fn has_room(&self, plane: u32) -> bool {
        let plane = &self.planes[plane as usize];
        plane.free.len() as u32 >= self.reserve_blocks && plane.open[Stream::New as usize].block != NONE
    }

    /// Free blocks of `plane` are below its reserve.
    #[inline]
    pub fn is_short(&self, plane: u32) -> bool {
        (self.planes[plane as usize].free.len() as u32) < self.reserve_blocks
    }

    /// Puts `logical` on a page of `plane`, which has room, and returns that page. Its former page is no longer valid.
    pub fn write_to(&mut self, logical: u32, plane: u32, stream: Stream) -> u32 {
        self.discard(logical);
        self.put(logical, plane, stream)
    }

    /// Moves `logical` from the valid page `from` of a block in collection to a page of the same plane, and returns that. That it is on
    /// `from` is known, so that the map is written and need not be read.
    pub fn relocate(&mut self, logical: u32, from: u32) -> u32 {
        let block = self.block_of.quotient(from);
        debug_assert!(self.map[logical as usize] == from && !self.blocks[block as usize].closed);
        self.is_valid[from as usize / 64] &= !(1 << (from % 64));
        self.blocks[block as usize].valid -= 1;
        self.put(logical, self.plane_of_block(block), Stream::Moved)
    }

    /// Puts `logical`, which is on no page, on one of `plane`.
    fn put(&mut self, logical: u32, plane: u32, stream: Stream) -> u32 {
        let open = &mut self.planes[plane as usize].open[stream as usize];
        assert_ne!(open.block, NONE, "plane {plane} has no room for a page: collection starts too late");
        let (block, offset) = (open.block, open.page);
        open.page += 1;
        let physical = block * self.pages_per_block + offset;
        self.enter(logical, physical);
        self.blocks[block as usize].valid += 1;
        if offset + 1 == self.pages_per_block {
            self.close(block);
            let plane = &mut self.planes[plane as usize];
            plane.open[stream as usize] = Open { block: plane.free.pop_front().unwrap_or(NONE), page: 0 };
        }
        physical
    }

    /// Notes that `logical` is on `physical`.
    #[inline]
    fn enter(&mut self, logical: u32, physical: u32) {
        self.map[logical as usize] = physical;
        self.back[physical as usize] = logical;
        self.is_valid[physical as usize / 64] |= 1 << (physical % 64);
    }

    /// `logical` holds no data any more.
    pub fn discard(&mut self, logical: u32) {
        let page = std::mem::replace(&mut self.map[logical as usize], NONE);
        if page == NONE {
            return;
        }
        self.is_valid[page as usize / 64] &= !(1 << (page % 64));
        let block = self.block_of.quotient(page);
        let closed = self.blocks[block as usize].closed;
        if closed {
            self.unlink(block);
        }
        self.blocks[block as usize].valid -= 1;
        if closed {
            self.close(block);
        }
    }

    /// Adds `block` to the closed blocks of its plane.
    fn close(&mut self, block: u32) {
        let plane = &mut self.planes[self.plane_of.quotient(block) as usize];
        let valid = self.blocks[block as usize].valid;
        let next = std::mem::replace(&mut plane.closed[valid as usize], block);
        plane.fewest = plane.fewest.min(valid);
        self.blocks[block as usize] = Block { valid, closed: true, prev: NONE, next };
        if next != NONE {
            self.blocks[next as usize].prev = block;
        }
    }

    /// Takes `block` from the closed blocks of its plane.
    fn unlink(&mut self, block: u32) {
        let Block { valid, prev, next, .. } = self.blocks[block as usize];
        if prev == NONE {
            self.planes[self.plane_of.quotient(block) as usize].closed[valid as usize] = next;
        } else {
            self.blocks[prev as usize].next = next;
        }
        if next != NONE {
            self.blocks[next as usize].prev = prev;
        }
        self.blocks[block as usize].closed = false;
    }

    /// Whether `plane` is short of free blocks and may collect one more at a time.
    #[inline]
    pub fn wants_collection(&self, plane: u32) -> bool {
        let plane = &self.planes[plane as usize];
        (plane.free.len() as u32) < self.start_blocks && plane.collected + 1 < self.reserve_blocks
    }

    /// Whether a block of `plane` is in collection.
    #[inline]
    pub fn is_collecting(&self, plane: u32) -> bool {
        self.planes[plane as usize].collected > 0
    }

    /// Takes a block of `plane` into collection: the one with the fewest valid pages of all or of the sample. None if no
    /// closed block has a page to gain.
    pub fn collect(&mut self, plane: u32, rng: &mut Rng) -> Option<u32> {
        let sampled = (self.sample_blocks > 0).then(|| self.emptiest_of_sample(plane, rng)).flatten();
        let gains = |block: &u32| self.blocks[*block as usize].valid < self.pages_per_block;
        let block = match sampled.filter(gains) {
            Some(block) => block,
            None => self
                .emptiest(plane)
                .filter(|block| self.blocks[*block as usize].valid < self.pages_per_block)?,
        };
        self.unlink(block);
        self.planes[plane as usize].collected += 1;
        Some(block)
    }

    /// The closed block with the fewest valid pages.
    fn emptiest(&mut self, plane: u32) -> Option<u32> {
        let plane = &mut self.planes[plane as usize];
        while plane.closed[plane.fewest as usize] == NONE {
            if plane.fewest == self.pages_per_block {
                return None;
            }
            plane.fewest += 1;
        }
        Some(plane.closed[plane.fewest as usize])
    }

    /// The closed block with the fewest valid pages of a random sample without repetition.
    fn emptiest_of_sample(&self, plane: u32, rng: &mut Rng) -> Option<u32> {
        let first = plane * self.blocks_per_plane;
        let mut sample = Vec::with_capacity(self.sample_blocks as usize);
        while sample.len() < self.sample_blocks.min(self.blocks_per_plane) as usize {
            let block = first + rng.below(u64::from(self.blocks_per_plane)) as u32;
            if !sample.contains(&block) {
                sample.push(block);
            }
        }
        let closed = sample.into_iter().filter(|block| self.blocks[*block as usize].closed);
        closed.min_by_key(|block| self.blocks[*block as usize].valid)
    }

    /// The valid pages of `block`: each with what it holds.
    pub fn valid_pages(&self, block: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let first = block * self.pages_per_block;
        let pages = (first..first + self.pages_per_block).filter(|page| self.is_valid(*page));
        pages.map(|page| (page, self.back[page as usize]))
    }

    /// Whether physical page `page` holds current data. In a block in collection that is what it held when this began.
    #[inline]
    pub fn is_valid(&self, page: u32) -> bool {
        self.is_valid[page as usize / 64] & 1 << (page % 64) != 0
    }

    /// `block`, which was in collection, is erased.
    pub fn erased(&mut self, block: u32) {
        assert_eq!(self.blocks[block as usize].valid, 0, "block {block} is erased with data in it");
        let plane = &mut self.planes[self.plane_of.quotient(block) as usize];
        plane.collected -= 1;
        plane.free.push_back(block);
        for open in &mut plane.open {
            if open.block == NONE {
                *open = Open { block: plane.free.pop_front().unwrap_or(NONE), page: 0 };
            }
        }
    }
}

#[cfg(test)]
impl Ftl {
    /// Panics unless the invariants hold.
    pub fn verify(&self) {
        let mut valid = vec![0; self.blocks.len()];
        for (page, logical) in self.back.iter().enumerate().filter(|(page, _)| self.is_valid(*page as u32)) {
            assert_eq!(self.map[*logical as usize], page as u32, "the map does not lead to page {page}");
            valid[page / self.pages_per_block as usize] += 1;
        }
        let mapped = self.map.iter().filter(|page| **page != NONE).count();
        assert_eq!(mapped, valid.iter().sum::<usize>(), "a logical page is on no physical page");
        for (index, block) in self.blocks.iter().enumerate() {
            assert_eq!(block.valid as usize, valid[index], "block {index}");
        }
        for (number, plane) in self.planes.iter().enumerate() {
            let first = number * self.blocks_per_plane as usize;
            let closed = (first..first + self.blocks_per_plane as usize)
                .filter(|block| self.blocks[*block].closed)
                .count();
            let open = plane.open.iter().filter(|open| open.block != NONE).count();
            let known = plane.free.len() + closed + open + plane.collected as usize;
            assert_eq!(known, self.blocks_per_plane as usize, "plane {number} has lost a block");
        }
    }
}

/// Planes in the order of addresses: channels first, then chips, dies and planes. A plane's number counts the other way round,
/// so that planes of a die, a chip and a channel are neighbours.
fn stripe(spec: &FlashSpec) -> Vec<u32> {
    let mut order = Vec::with_capacity(spec.planes() as usize);
    for plane in 0..spec.planes_per_die {
        for die in 0..spec.dies_per_chip {
            for chip in 0..spec.chips_per_channel {
                for channel in 0..spec.channels {
                    let chip = channel * spec.chips_per_channel + chip;
                    order.push((chip * spec.dies_per_chip + die) * spec.planes_per_die + plane);
                }
            }
        }
    }
    order
}

/// The λ for which shares of valid pages that fall as e^−λx, x from 0 to 1, average 1/α.
pub fn decay(alpha: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 700.0);
    for _ in 0..80 {
        let rate: f64 = f64::midpoint(low, high);
        if rate / -(-rate).exp_m1() < alpha {
            low = rate;
        } else {
            high = rate;
        }
    }
    high
}
