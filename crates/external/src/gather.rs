//! Reading runs in the order in which a merge needs their blocks, and cutting them into batches.
//!
//! 1. A block is needed when the block before it in its run is used up, so its *trigger* is that block's last record. All
//!    blocks, sorted by trigger, are the order of reading ([`Gatherer::order`]). It is known before the first read: last
//!    records are kept in memory.
//! 2. Blocks are asked for in that order, as many as there are buffers, and *land* in that order.
//! 3. Every record at or below the trigger of the first block that has not landed is at hand. Those records, from all runs,
//!    are a *batch*. What comes later is not below them, so batches can be sorted independently and by several threads.
//! 4. Where a batch would be too long, it ends at a record chosen so that no run gives more than its share; of records that
//!    equal this one, as many are taken as fit, which is correct because equal records are identical.
//!
//! After all records up to a trigger are taken, each run has at most one block in memory that is partly used. So one buffer
//! for each run and one more suffice to go on; the others read ahead.

use std::collections::VecDeque;

use crate::blocks::{BlockIo, Entry};
use crate::runs::Run;
use crate::{ExternalError, Record, Space};

/// Records of several runs, each sorted in itself.
#[derive(Debug, Default)]
pub(crate) struct Batch<T> {
    pub records: Vec<T>,
    /// Where each run's part ends.
    pub ends: Vec<usize>,
}

/// One run of a merge.
#[derive(Debug)]
struct Cursor<T: Record> {
    run: Run<T>,
    /// Slots and entries of the blocks that were asked for and did not land.
    under_way: VecDeque<(u32, Entry)>,
    /// Slots and lengths of the blocks that landed.
    landed: VecDeque<(u32, u32)>,
    /// Records of the first of those that are taken.
    position: usize,
    /// The next block to ask for.
    next: usize,
}

/// Up to which record the records at hand are complete.
enum Bound<T> {
    /// A run's first block has not landed, so nothing is known of it.
    Nothing,
    UpTo(T),
    Everything,
}

/// Makes batches of runs.
#[derive(Debug)]
pub(crate) struct Gatherer<T: Record> {
    // Dropped first: its requests are over before the runs' blocks return to the space.
    io: BlockIo,
    cursors: Vec<Cursor<T>>,
    /// For each block, in the order of triggers, the run that it belongs to.
    order: Vec<u32>,
    /// How many of these were asked for, and have landed.
    asked: usize,
    landed: usize,
    /// How many blocks are waited for at a time.
    step: usize,
    batch: usize,
    /// Records of each run that a batch may take; kept for its memory.
    counts: Vec<usize>,
}

impl<T: Record> Gatherer<T> {
    /// Merges `runs` with `buffers` blocks of memory, into batches of at most `batch` records.
    pub fn new(
        space: &Space,
        runs: Vec<Run<T>>,
        buffers: u32,
        ahead: u32,
        batch: usize,
    ) -> Result<Self, ExternalError> {
        assert!(runs.len() < buffers as usize, "there is a buffer for each run and one more");
        let order = order(&runs);
        let buffers = buffers.min(order.len().max(2) as u32);
        let new =
            |run| Cursor { run, under_way: VecDeque::new(), landed: VecDeque::new(), position: 0, next: 0 };
        Ok(Self {
            io: BlockIo::open(space, buffers)?,
            cursors: runs.into_iter().map(new).collect(),
            order,
            asked: 0,
            landed: 0,
            step: (ahead as usize / 8).max(1),
            batch,
            counts: Vec::new(),
        })
    }

    /// Fills `batch` with the next records; false at the end.
    pub fn gather(&mut self, batch: &mut Batch<T>) -> Result<bool, ExternalError> {
        batch.records.clear();
        batch.ends.clear();
        let total = loop {
            self.ask()?;
            let total = match self.bound() {
                Bound::Nothing => 0,
                Bound::UpTo(bound) => self.count(|record| *record <= bound),
                Bound::Everything => self.count(|_| true),
            };
            let may_wait = self.landed < self.asked;
            if total >= self.batch / 2 || !may_wait {
                break total;
            }
            self.land()?;
        };
        if total == 0 {
            assert!(self.landed == self.order.len(), "what is at hand is never empty before the end");
            return Ok(false);
        }
        if total > self.batch {
            self.shorten();
        }
        self.take(batch);
        Ok(true)
    }

    /// Asks for blocks as long as there are buffers.
    fn ask(&mut self) -> Result<(), ExternalError> {
        let mut is_new = false;
        while self.asked < self.order.len() {
            let Some(slot) = self.io.try_hold() else { break };
            let cursor = &mut self.cursors[self.order[self.asked] as usize];
            let entry = cursor.run.stream.entries()[cursor.next];
            self.io.read(slot, &entry);
            cursor.under_way.push_back((slot, entry));
            cursor.next += 1;
            self.asked += 1;
            is_new = true;
        }
        if is_new { self.io.submit() } else { Ok(()) }
    }

    /// Waits for the next blocks.
    fn land(&mut self) -> Result<(), ExternalError> {
        let until = (self.landed + self.step).min(self.asked);
        while self.landed < until {
            let cursor = &mut self.cursors[self.order[self.landed] as usize];
            let (slot, entry) = cursor.under_way.pop_front().expect("what is asked for is under way");
            self.io.wait(slot, &entry)?;
            let index = cursor.next - cursor.under_way.len() - 1;
            cursor.run.stream.return_block(index);
            cursor.landed.push_back((slot, entry.length));
            self.landed += 1;
        }
        Ok(())
    }

    /// How far the records at hand are complete.
    fn bound(&self) -> Bound<T> {
        let Some(&run) = self.order.get(self.landed) else { return Bound::Everything };
        let cursor = &self.cursors[run as usize];
        match cursor.next - cursor.under_way.len() {
            0 => Bound::Nothing,
            index => Bound::UpTo(cursor.run.lasts[index - 1]),
        }
    }

    /// Counts, for each run, the records at hand that `take` holds for, a prefix of them.
    fn count(&mut self, take: impl Fn(&T) -> bool) -> usize {
        self.counts.clear();
        self.counts.extend(self.cursors.iter().map(|cursor| cursor.count(&self.io, &take)));
        self.counts.iter().sum()
    }

    /// Reduces the counts to what a batch holds.
    fn shorten(&mut self) {
        let active = self.counts.iter().filter(|count| **count > 0).count();
        let share = (self.batch / active).max(1);
        let nth = |(cursor, count): (&Cursor<T>, &usize)| {
            (*count >= share).then(|| cursor.nth(&self.io, share - 1))
        };
        let limit = self.cursors.iter().zip(&self.counts).filter_map(nth).min();
        let limit = limit.expect("more than a batch has a run with more than its share");
        let at_most: Vec<usize> =
            self.cursors.iter().map(|cursor| cursor.count(&self.io, &|record| *record <= limit)).collect();
        let below = self.count(|record| *record < limit);
        let mut room = self.batch.saturating_sub(below).max(1);
        for (count, at_most) in self.counts.iter_mut().zip(at_most) {
            let equal = (at_most - *count).min(room);
            *count += equal;
            room -= equal;
        }
    }

    /// Moves the counted records to `batch`, and frees the buffers that are used up.
    fn take(&mut self, batch: &mut Batch<T>) {
        for (cursor, &count) in self.cursors.iter_mut().zip(&self.counts) {
            if count == 0 {
                continue;
            }
            let mut left = count;
            while left > 0 {
                let (slot, length) = *cursor.landed.front().expect("counted records are at hand");
                let records = &self.io.records::<T>(slot, length)[cursor.position..];
                let now = left.min(records.len());
                batch.records.extend_from_slice(&records[..now]);
                left -= now;
                cursor.position += now;
                if now == records.len() {
                    self.io.release(slot);
                    cursor.landed.pop_front();
                    cursor.position = 0;
                }
            }
            batch.ends.push(batch.records.len());
        }
    }
}

impl<T: Record> Cursor<T> {
    /// The blocks at hand, less what is taken.
    fn at_hand<'a>(&'a self, io: &'a BlockIo) -> impl Iterator<Item = &'a [T]> {
        self.landed.iter().enumerate().map(move |(index, &(slot, length))| {
            &io.records::<T>(slot, length)[if index == 0 { self.position } else { 0 }..]
        })
    }

    fn count(&self, io: &BlockIo, take: &impl Fn(&T) -> bool) -> usize {
        let mut count = 0;
        for records in self.at_hand(io) {
            if records.last().is_some_and(take) {
                count += records.len();
            } else {
                return count + records.partition_point(take);
            }
        }
        count
    }

    /// Record `index` of those at hand.
    fn nth(&self, io: &BlockIo, mut index: usize) -> T {
        for records in self.at_hand(io) {
            match records.get(index) {
                Some(record) => return *record,
                None => index -= records.len(),
            }
        }
        unreachable!("the caller counted the records at hand")
    }
}

/// The runs of all blocks, by trigger.
fn order<T: Record>(runs: &[Run<T>]) -> Vec<u32> {
    let mut triggers: Vec<(Option<T>, u32)> = Vec::new();
    for (number, run) in (0..).zip(runs) {
        let before = std::iter::once(None).chain(run.lasts.iter().copied().map(Some));
        triggers.extend(before.take(run.lasts.len()).map(|trigger| (trigger, number)));
    }
    triggers.sort_unstable();
    triggers.into_iter().map(|(_, run)| run).collect()
}
