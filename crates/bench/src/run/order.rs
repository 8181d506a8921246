//! The order in which blocks are visited, decided at run time.

use measure::dealing::Region;
use measure::pattern::{
    Blocks, Cover, Given, Pareto, Rng, Sequential, Steady, Strided, Uniform, Zipf, Zoned,
};
use measure::workload::{RandomDistribution, Workload};

/// The order in which blocks are visited, decided at run time.
#[derive(Debug)]
pub(super) enum Order {
    Sequential(Sequential),
    Uniform(Uniform),
    Cover(Cover),
    Zipf(Zipf),
    Pareto(Pareto),
    Zoned(Zoned),
    Given(Given),
    Strided(Strided),
    Partly(Box<Partly>),
    Steady(Box<Steady>),
}

impl Order {
    /// The order that a workload asks for over `blocks` blocks.
    pub fn new(workload: &Workload, blocks: u64, seed: u64) -> Self {
        if let Some(size) = workload.strided_bytes() {
            let in_blocks = |bytes: u64| bytes / workload.bs;
            let range = in_blocks(workload.zonerange.unwrap_or(size)).min(blocks);
            let order = workload.rw.is_random().then_some((seed, workload.norandommap));
            return Self::Strided(Strided::new(
                blocks,
                in_blocks(size),
                range,
                in_blocks(workload.zoneskip),
                order,
            ));
        }
        if !workload.rw.is_random() {
            return Self::Sequential(Sequential::new(blocks));
        }
        let random = match &workload.random_distribution {
            RandomDistribution::Zipf(theta) => Self::Zipf(Zipf::new(blocks, *theta, seed)),
            RandomDistribution::Pareto(h) => Self::Pareto(Pareto::new(blocks, *h, seed)),
            RandomDistribution::Zoned(zones) => Self::Zoned(Zoned::new(blocks, zones, seed)),
            RandomDistribution::Sequence(sequence) => Self::Given(Given::new(blocks, sequence)),
            RandomDistribution::Random if workload.norandommap => Self::Uniform(Uniform::new(blocks, seed)),
            RandomDistribution::Random => Self::Cover(Cover::new(blocks, seed)),
        };
        match workload.percentage_random {
            100 => random,
            percent => Self::Partly(Box::new(Partly {
                random,
                percent: u64::from(percent),
                rng: Rng::new(seed ^ 0x0070_6172_746c_7900),
                last: blocks - 1,
                blocks,
            })),
        }
    }
}

impl Blocks for Order {
    #[inline]
    fn next_block(&mut self) -> u64 {
        match self {
            Self::Sequential(order) => order.next_block(),
            Self::Uniform(order) => order.next_block(),
            Self::Cover(order) => order.next_block(),
            Self::Zipf(order) => order.next_block(),
            Self::Pareto(order) => order.next_block(),
            Self::Zoned(order) => order.next_block(),
            Self::Given(order) => order.next_block(),
            Self::Strided(order) => order.next_block(),
            Self::Partly(order) => order.next_block(),
            Self::Steady(order) => order.next_block(),
        }
    }
}

/// Some requests at random blocks, the others at the block after the last one: fio's `percentage_random`.
#[derive(Debug)]
pub(super) struct Partly {
    random: Order,
    percent: u64,
    rng: Rng,
    last: u64,
    blocks: u64,
}

impl Blocks for Partly {
    fn next_block(&mut self) -> u64 {
        let is_random = self.rng.below(100) < self.percent;
        self.last = if is_random { self.random.next_block() } else { (self.last + 1) % self.blocks };
        self.last
    }
}

/// Where sequential requests go that do not all have the same size, or do not follow each other: relative to the region,
/// from its start again after its end.
#[derive(Debug)]
pub(super) struct Cursor {
    next: i64,
    /// Bytes between the end of a request and the start of the next one; below zero it goes backwards.
    step: i64,
    room: i64,
}

impl Cursor {
    pub fn new(workload: &Workload, region: &Region) -> Self {
        let unit = workload.min_bs();
        let room = (region.length / unit * unit) as i64;
        let step = workload.rw_step;
        let mut cursor = Self { next: 0, step, room };
        if step < 0 {
            cursor.next = cursor.last();
        }
        cursor
    }

    /// Where a walk backwards begins, which is where fio's does: a step before the end.
    fn last(&self) -> i64 {
        (self.room + self.step).max(0)
    }

    /// The offset of the next request, which has `bytes` bytes, at most those of the region.
    pub fn advance(&mut self, bytes: u64) -> u64 {
        let bytes = bytes as i64;
        if self.next < 0 {
            self.next = self.last();
        }
        if self.next + bytes > self.room {
            self.next = if self.step < 0 { self.room - bytes } else { 0 };
        }
        let at = self.next;
        self.next = at.saturating_add(bytes).saturating_add(self.step);
        at as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::workload::Rw;

    fn offsets(workload: &Workload, blocks: u64, count: usize) -> Vec<u64> {
        let region = Region { start: 0, length: blocks * 4096, job: 0 };
        let mut cursor = Cursor::new(workload, &region);
        (0..count).map(|_| cursor.advance(4096) / 4096).collect()
    }

    #[test]
    fn a_step_skips_forwards_or_goes_backwards_as_in_fio() {
        let stepping = |rw_step| Workload { rw: Rw::Read, rw_step, ..Workload::default() };
        assert_eq!(offsets(&stepping(4096), 7, 6), [0, 2, 4, 6, 0, 2]);
        assert_eq!(offsets(&stepping(-8192), 5, 7), [3, 2, 1, 0, 3, 2, 1]);
        assert_eq!(offsets(&stepping(1 << 40), 5, 3), [0, 0, 0]);
        assert_eq!(offsets(&stepping(-(1 << 40)), 5, 3), [0, 0, 0]);
    }

    #[test]
    fn some_requests_are_random_and_the_others_follow_the_last() {
        let workload = Workload { percentage_random: 30, norandommap: true, ..Workload::default() };
        let mut order = Order::new(&workload, 1 << 40, 7);
        let mut last = order.next_block();
        let mut following = 0;
        for _ in 0..10_000 {
            let next = order.next_block();
            following += u32::from(next == last + 1);
            last = next;
        }
        assert!((6800..7200).contains(&following), "{following} of 10000 follow");
    }
}
