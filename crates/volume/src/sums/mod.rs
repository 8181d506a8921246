//! Checksums of a volume's data: kept with each write, verified on each read.
//!
//! 1. A **write** of whole blocks of 4 KiB holds their range, marks its regions ([`marks`]), writes the data, and then
//!    changes the checksums in memory ([`cache`]), which are written at the next sync at the latest. Of a block that is
//!    written in part, the rest is read and verified first.
//! 2. A **read** is made without holding anything, and compared with the checksums. What does not fit may have been read
//!    while it was written, so it is read again while its range is held. Then it fits or is an error, with the place in
//!    the volume and on the member, and both checksums.
//! 3. A **sync** writes all changed checksums, and then syncs all members. So what was synced fits after a crash.
//! 4. After a **crash** a block of a marked region may be at odds with its checksum because the one was written and the
//!    other was not. It is then *torn*: before the first write of the next session all blocks of marked regions are read,
//!    those that do not fit are given new checksums, are counted, and then the marks are taken away. Until then, and
//!    by a session that only reads, they are read as they are. A block of any other region that does not fit is *rotten*: an
//!    error for every reader, until all of it is written again.
//! 5. A block that was never written, or was discarded, has no checksum and is not verified.
//!
//! What cannot be found: a fault of a drive within a region that was marked when a session ended by a crash, and a block
//! that its drive has put back to an earlier state *together with* its block of sums, which lies on the next member (on
//! the same one, in a volume of one member).

mod area;
mod cache;
mod lock;
mod marks;
mod reseal;
mod scrub;
mod store;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use storage::device::{AlignedBuffer, Device, Spread, piece_of};

use self::area::{Area, LOST_SUM, NO_SUM};
use self::cache::Cache;
use self::lock::RangeLock;
use self::marks::Marks;
use self::reseal::Resealed;
pub(crate) use self::scrub::scrub;
pub use self::scrub::{DataFinding, FindingKind, Progress};
use self::store::Store;
use crate::device::with_member_context;
use crate::label::Label;
pub use crate::sums_layout::{BLOCK, SumsLayout};

/// Bytes of the volume that are read or written at once.
const STEP: u64 = 1 << 20;

/// How much memory checksums may take, and how many regions may be marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SumsLimits {
    /// Blocks of sums that are kept in memory, each for [`SumsLayout::group_blocks`] blocks of data.
    pub cached_blocks: usize,
    /// Regions that may be marked at the same time.
    pub marked_regions: usize,
}

impl Default for SumsLimits {
    /// 64 MiB of memory, which is 63.75 GiB of data; and 256 regions, which is 4 GiB of each member.
    fn default() -> Self {
        Self { cached_blocks: 16_384, marked_regions: 256 }
    }
}

/// A block that does not fit its checksum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The contents are not what was written.
    #[error(
        "the block at offset {volume_offset} of the volume, at {member_offset} of {member}, does not fit its checksum: \
         expected {expected:08x}, found {found:08x}"
    )]
    Data {
        /// Where it lies in the volume, bytes.
        volume_offset: u64,
        /// The member's spec.
        member: String,
        /// Where it lies on the member, bytes.
        member_offset: u64,
        /// The checksum that was stored.
        expected: u32,
        /// That of what was read.
        found: u32,
    },
    /// The block of sums that has its checksum is damaged.
    #[error(
        "the block at offset {volume_offset} of the volume, at {member_offset} of {member}, cannot be verified: the block \
         of checksums at {sums_offset} of {holder} is damaged"
    )]
    Sums {
        /// Where the block lies in the volume, bytes.
        volume_offset: u64,
        /// The member's spec.
        member: String,
        /// Where it lies on the member, bytes.
        member_offset: u64,
        /// The spec of the member with the block of sums.
        holder: String,
        /// Where that lies there, bytes.
        sums_offset: u64,
    },
}

/// See the module's argument.
#[derive(Debug)]
pub(crate) struct Sums {
    store: Store,
    spread: Arc<dyn Spread>,
    is_writable: bool,
    cache: Cache,
    marks: Marks,
    lock: RangeLock,
    /// Whether nothing is left of a session that was not closed.
    is_ready: AtomicBool,
    resealing: Mutex<reseal::Stage>,
    /// Whether a write or a sync failed, so that what is on the members may not fit.
    is_spoilt: AtomicBool,
}

/// A run of whole blocks on one member.
#[derive(Debug, Clone, Copy)]
struct Run {
    member: u32,
    /// The first block of the member's data.
    first: u64,
    /// Where it begins in the request, bytes, and how long it is.
    start: usize,
    length: usize,
}

impl Sums {
    /// Reads the map of a volume that keeps checksums; none for one that keeps none.
    pub fn open(
        label: &Label,
        members: &[Arc<dyn Device>],
        spread: &Arc<dyn Spread>,
        limits: SumsLimits,
    ) -> io::Result<Option<Self>> {
        let Some(area) = Area::of(label) else { return Ok(None) };
        let store = Store { area, members: members.to_vec() };
        let marks = Marks::read(&store, limits.marked_regions)?;
        Ok(Some(Self {
            store,
            spread: Arc::clone(spread),
            is_writable: members.iter().all(|member| member.is_writable()),
            cache: Cache::new(limits.cached_blocks),
            marks,
            lock: RangeLock::default(),
            is_ready: AtomicBool::new(false),
            resealing: Mutex::default(),
            is_spoilt: AtomicBool::new(false),
        }))
    }

    /// What is to be done before the first write: blocks that a crash has torn get new checksums.
    ///
    /// # Errors
    /// What kept it from that, now or the first time.
    #[inline]
    pub fn begin(&self) -> io::Result<()> {
        if self.is_ready.load(Ordering::Acquire) { Ok(()) } else { self.begin_first() }
    }

    #[cold]
    fn begin_first(&self) -> io::Result<()> {
        let mut stage = self.resealing.lock().unwrap_or_else(PoisonError::into_inner);
        stage.run(&self.store, &self.cache, &self.marks).inspect_err(|_| self.spoil())?;
        self.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    /// What was given new checksums after a crash, by this session.
    pub fn resealed(&self) -> Resealed {
        self.resealing.lock().unwrap_or_else(PoisonError::into_inner).resealed()
    }

    /// Whether a write or a sync failed, so that what is on the members may not fit. A request that was refused because
    /// the rest of a block does not fit has written nothing.
    pub fn is_spoilt(&self) -> bool {
        self.is_spoilt.load(Ordering::Relaxed)
    }

    fn spoil(&self) {
        self.is_spoilt.store(true, Ordering::Relaxed);
    }

    /// Writes all checksums, syncs all members, and takes the marks of this session away.
    ///
    /// # Errors
    /// A member's; what a crash has torn was not resealed. The marks stay then.
    pub fn end(&self) -> io::Result<()> {
        if !self.is_ready.load(Ordering::Acquire) {
            return Err(io::Error::other("what a crash has torn has no new checksums yet"));
        }
        self.cache.write_back(&self.store, |_| true)?;
        self.store.sync_all()?;
        self.marks.close(&self.store)
    }

    /// The runs of a range of whole blocks of the volume.
    fn runs(&self, offset: u64, length: usize) -> io::Result<Vec<Run>> {
        let (width, mut done) = (self.store.area.width(), 0);
        let mut runs = Vec::new();
        while done < length {
            let left = (length - done) as u64;
            let piece = piece_of(&*self.spread, width, offset + done as u64, left)
                .map_err(|wrong| io::Error::new(io::ErrorKind::InvalidData, wrong))?;
            let first = (piece.offset - self.store.area.data_start) / BLOCK;
            let length = piece.length as usize;
            runs.push(Run { member: piece.member, first, start: done, length });
            done += length;
        }
        Ok(runs)
    }

    /// Where a run begins on its member, bytes.
    fn place(&self, run: Run) -> u64 {
        self.store.area.data_start + run.first * BLOCK
    }

    /// Reads and verifies; the range lies in the volume.
    ///
    /// # Errors
    /// A member's, and [`Mismatch`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        for (part, at, whole) in steps(offset, buffer.len()) {
            let part = &mut buffer[part];
            if whole == (at..at + part.len() as u64) {
                self.read_blocks(part, at)?;
                continue;
            }
            let mut blocks = AlignedBuffer::zeroed((whole.end - whole.start) as usize, BLOCK as usize);
            self.read_blocks(&mut blocks, whole.start)?;
            let skip = (at - whole.start) as usize;
            part.copy_from_slice(&blocks[skip..skip + part.len()]);
        }
        Ok(())
    }

    fn read_blocks(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        for run in self.runs(offset, buffer.len())? {
            let part = &mut buffer[run.start..run.start + run.length];
            self.store.read(run.member, part, self.place(run))?;
            if self.first_mismatch(run, part)?.is_none() {
                continue;
            }
            // It may be written at this moment.
            let first = offset / BLOCK + run.start as u64 / BLOCK;
            let _held = self.lock.hold(first..first + part.len() as u64 / BLOCK);
            if !self.is_writable {
                self.take_over(run)?;
            }
            self.store.read(run.member, part, self.place(run))?;
            self.verify(run, part)?;
        }
        Ok(())
    }

    /// Has a reader see what a writer beside it has done meanwhile.
    fn take_over(&self, run: Run) -> io::Result<()> {
        let area = &self.store.area;
        let end = run.first + run.length as u64 / BLOCK;
        let groups = area.group_of(run.first)..=area.group_of(end - 1);
        self.cache.forget(|(member, group)| member == run.member && groups.contains(&group));
        self.marks.refresh(&self.store)
    }

    /// The first block of a run that does not fit: its number in the run, its checksum, and that of `bytes`.
    fn first_mismatch(&self, run: Run, bytes: &[u8]) -> io::Result<Option<(u64, u32, u32)>> {
        for (group, blocks) in self.by_group(run) {
            if !self.marks.has_sums(self.store.area.region_of(group)) {
                continue;
            }
            let found = self.sums_of(run, &blocks, bytes);
            let skip = (blocks.start - group * self.store.area.group_blocks()) as usize;
            let mismatch = self.cache.read(&self.store, (run.member, group), |stored| {
                let pairs = stored[skip..].iter().zip(&found);
                let fits = |stored: u32, found: u32| stored == NO_SUM || stored == found;
                pairs
                    .enumerate()
                    .find(|(_, (stored, found))| !fits(**stored, **found))
                    .map(|(at, (stored, found))| (blocks.start - run.first + at as u64, *stored, *found))
            })?;
            if mismatch.is_some() {
                return Ok(mismatch);
            }
        }
        Ok(None)
    }

    /// The groups of a run, and its blocks in each.
    fn by_group(&self, run: Run) -> impl Iterator<Item = (u64, Range<u64>)> {
        let (each, end) = (self.store.area.group_blocks(), run.first + run.length as u64 / BLOCK);
        let groups = run.first / each..(end - 1) / each + 1;
        groups.map(move |group| (group, run.first.max(group * each)..end.min((group + 1) * each)))
    }

    /// The checksums of some blocks of a run that holds `bytes`.
    fn sums_of(&self, run: Run, blocks: &Range<u64>, bytes: &[u8]) -> Vec<u32> {
        let range = |block: u64| {
            let at = ((block - run.first) * BLOCK) as usize;
            at..at + BLOCK as usize
        };
        blocks.clone().map(|block| self.store.area.sum(run.member, block, &bytes[range(block)])).collect()
    }

    /// Verifies a run whose range is held.
    fn verify(&self, run: Run, bytes: &[u8]) -> io::Result<()> {
        let (mut from, area) = (0, &self.store.area);
        loop {
            let rest = Run { first: run.first + from, length: run.length - (from * BLOCK) as usize, ..run };
            if rest.length == 0 {
                return Ok(());
            }
            let rest_bytes = &bytes[(from * BLOCK) as usize..];
            let Some((at, expected, found)) = self.first_mismatch(rest, rest_bytes)? else { return Ok(()) };
            let block = rest.first + at;
            if !self.marks.is_suspect(area.region_of(area.group_of(block))) {
                let mismatch = self.mismatch(run.member, block, expected, found);
                return Err(io::Error::other(mismatch));
            }
            from += at + 1;
        }
    }

    fn mismatch(&self, member: u32, block: u64, expected: u32, found: u32) -> Mismatch {
        let area = &self.store.area;
        let volume_offset = area.volume_offset(member, block * BLOCK);
        let member_offset = area.data_start + block * BLOCK;
        let (holder, sums_offset) = area.sums_place(member, area.group_of(block));
        let spec = |member: u32| self.store.member(member).spec().to_owned();
        let (member, holder) = (spec(member), spec(holder));
        match expected {
            LOST_SUM => Mismatch::Sums { volume_offset, member, member_offset, holder, sums_offset },
            _ => Mismatch::Data { volume_offset, member, member_offset, expected, found },
        }
    }

    /// Writes, and keeps the checksums; the range lies in the volume.
    ///
    /// # Errors
    /// A member's; and [`Mismatch`] where a block is written in part whose rest does not fit.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        for (part, at, whole) in steps(offset, buffer.len()) {
            let part = &buffer[part];
            let _held = self.lock.hold(whole.start / BLOCK..whole.end / BLOCK);
            if whole == (at..at + part.len() as u64) {
                self.write_blocks(part, at).inspect_err(|_| self.spoil())?;
                continue;
            }
            let mut blocks = AlignedBuffer::zeroed((whole.end - whole.start) as usize, BLOCK as usize);
            let end = at + part.len() as u64;
            let last = whole.end - BLOCK;
            if at != whole.start {
                self.read_held(&mut blocks[..BLOCK as usize], whole.start)?;
            }
            if end != whole.end && (last != whole.start || at == whole.start) {
                let start = (last - whole.start) as usize;
                self.read_held(&mut blocks[start..start + BLOCK as usize], last)?;
            }
            let skip = (at - whole.start) as usize;
            blocks[skip..skip + part.len()].copy_from_slice(part);
            let blocks = &blocks[..(whole.end - whole.start) as usize];
            self.write_blocks(blocks, whole.start).inspect_err(|_| self.spoil())?;
        }
        Ok(())
    }

    /// Reads and verifies blocks whose range is held.
    fn read_held(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        for run in self.runs(offset, buffer.len())? {
            let part = &mut buffer[run.start..run.start + run.length];
            self.store.read(run.member, part, self.place(run))?;
            self.verify(run, part)?;
        }
        Ok(())
    }

    /// Writes blocks whose range is held.
    fn write_blocks(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let runs = self.runs(offset, bytes.len())?;
        let area = &self.store.area;
        let region = |block: u64| area.region_of(area.group_of(block));
        let first = runs.iter().map(|run| region(run.first)).min().unwrap_or(0);
        let last = runs.iter().map(|run| region(run.first + run.length as u64 / BLOCK - 1)).max();
        let marked = self.marks.enter(&self.store, &self.cache, first..last.unwrap_or(first) + 1)?;
        let written = runs.into_iter().try_for_each(|run| self.write_run(run, bytes));
        if written.is_err() {
            // Data and checksums may be at odds: the regions stay marked until the volume is opened anew.
            std::mem::forget(marked);
        }
        written
    }

    fn write_run(&self, run: Run, bytes: &[u8]) -> io::Result<()> {
        let part = &bytes[run.start..run.start + run.length];
        self.store.write(run.member, part, self.place(run))?;
        for (group, blocks) in self.by_group(run) {
            let sums = self.sums_of(run, &blocks, part);
            self.change(run.member, group, &blocks, |at| sums[at])?;
        }
        Ok(())
    }

    /// Sets the checksums of blocks of a group, each by its number in `blocks`.
    fn change(
        &self,
        member: u32,
        group: u64,
        blocks: &Range<u64>,
        sum: impl Fn(usize) -> u32,
    ) -> io::Result<()> {
        let skip = (blocks.start - group * self.store.area.group_blocks()) as usize;
        let count = (blocks.end - blocks.start) as usize;
        self.cache.change(&self.store, (member, group), |stored| {
            let changed = stored[skip..skip + count].iter_mut().enumerate();
            changed.for_each(|(at, stored)| *stored = sum(at));
        })
    }

    /// Writes all changed checksums, and makes them and all completed writes durable.
    pub fn sync(&self) -> io::Result<()> {
        let written = self.cache.write_back(&self.store, |_| true);
        written.and(self.store.sync_all()).inspect_err(|_| self.spoil())
    }

    /// Writes zeros.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        let zeros = AlignedBuffer::zeroed(STEP.min(length) as usize, BLOCK as usize);
        let mut done = 0;
        while done < length {
            // Up to a boundary of the steps, so that all others are whole blocks.
            let part = (STEP - (offset + done) % STEP).min(length - done).min(zeros.len() as u64);
            self.write_at(&zeros[..part as usize], offset + done)?;
            done += part;
        }
        Ok(())
    }

    /// Gives a range back to the members' media; its blocks have no checksum afterwards. Parts of a block are zeroed.
    ///
    /// Regions that lie in the range with all members lose their blocks of sums, which costs a write of the map and none of
    /// checksums. The first of them is discarded like any part of a region, so that a member that cannot discard says
    /// so before any region has lost them.
    ///
    /// # Errors
    /// A member's. After a discard that failed the contents of the range, and whether they are verified, are undefined.
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset + length;
        let whole = offset.next_multiple_of(BLOCK)..end - end % BLOCK;
        if whole.is_empty() {
            return self.write_zeroes(offset, length);
        }
        self.discard_blocks(whole.clone())?;
        self.write_zeroes(offset, whole.start - offset)?;
        self.write_zeroes(whole.end, end - whole.end)
    }

    fn discard_blocks(&self, range: Range<u64>) -> io::Result<()> {
        let area = &self.store.area;
        let _held = self.lock.hold(range.start / BLOCK..range.end / BLOCK);
        let extents = self.spread.extents(range).into_iter();
        let data = |part: Range<u64>| part.start - area.data_start..part.end - area.data_start;
        let parts: Vec<(u32, Range<u64>)> = extents.map(|(member, part)| (member, data(part))).collect();
        let each = area.region_bytes();
        let all_of_it = |end: u64| if end == area.data_bytes { area.regions() } else { end / each };
        let first = parts.iter().map(|(_, part)| part.start.div_ceil(each)).max().unwrap_or(0);
        let last = parts.iter().map(|(_, part)| all_of_it(part.end)).min().unwrap_or(0);
        let reset = match parts.len() as u32 == area.width() && first + 1 < last {
            true => first + 1..last,
            false => 0..0,
        };
        for (member, part) in &parts {
            for region in part.start / each..(part.end - 1) / each + 1 {
                if !reset.contains(&region) {
                    let part = part.start.max(region * each)..part.end.min((region + 1) * each);
                    self.discard_part(*member, region, part)?;
                }
            }
        }
        if reset.is_empty() {
            return Ok(());
        }
        if reset.clone().any(|region| self.marks.has_sums(region)) {
            self.marks.reset(&self.store, &self.cache, reset.clone())?;
        }
        for (member, part) in parts {
            let part = part.start.max(reset.start * each)..part.end.min(reset.end * each);
            self.discard_on(member, &part)?;
        }
        Ok(())
    }

    /// Discards a part of a region on one member.
    fn discard_part(&self, member: u32, region: u64, part: Range<u64>) -> io::Result<()> {
        if !self.marks.has_sums(region) {
            return self.discard_on(member, &part);
        }
        let _marked = self.marks.enter(&self.store, &self.cache, region..region + 1)?;
        self.discard_on(member, &part)?;
        let (first, length) = (part.start / BLOCK, (part.end - part.start) as usize);
        for (group, blocks) in self.by_group(Run { member, first, start: 0, length }) {
            self.change(member, group, &blocks, |_| NO_SUM)?;
        }
        Ok(())
    }

    fn discard_on(&self, member: u32, part: &Range<u64>) -> io::Result<()> {
        let (device, length) = (self.store.member(member), part.end - part.start);
        let at = self.store.area.data_start + part.start;
        device.discard(at, length).map_err(|e| with_member_context("discard", device, at, length, e))
    }
}

/// Writes an empty map, from which a volume begins; durable after the members' next sync.
pub(crate) fn write_empty_map(label: &Label, members: &[Arc<dyn Device>]) -> io::Result<()> {
    let Some(area) = Area::of(label) else { return Ok(()) };
    for index in 0..area.map_blocks() {
        let regions = area.regions_of(index);
        let entries = vec![0; (regions.end - regions.start) as usize];
        for generation in [1, 2] {
            let map = area::MapBlock { generation, resealed: 0, entries: entries.clone() };
            let (holder, at) = area.map_place(index, generation % 2);
            members[holder as usize].write_at(&area.encode_map(index, &map), at)?;
        }
    }
    Ok(())
}

/// A request in steps: the part of its buffer, where that begins in the volume, and the whole blocks around it.
fn steps(offset: u64, length: usize) -> impl Iterator<Item = (Range<usize>, u64, Range<u64>)> {
    let end = offset + length as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let (from, to) = (at, end.min(at - at % STEP + STEP));
        at = to;
        let whole = from - from % BLOCK..to.next_multiple_of(BLOCK);
        Some(((from - offset) as usize..(to - offset) as usize, from, whole))
    })
}
