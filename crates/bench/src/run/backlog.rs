//! Which of the blocks that a job has written it reads back next: fio's `verify_backlog`, and the log of a mix.
//!
//! 1. A block is in the backlog once its write has completed.
//! 2. When so many are in it as `verify_backlog` says, the next requests read back a batch of them, oldest first.
//! 3. What is left when the job ends is read back then; of a mix without `verify_backlog` all.
//!
//! A block that is written again before it was read back is not checked for its first write: what a read finds then is of
//! either write. Where copies of a job write the same blocks, the generation of a block says nothing, because another copy's
//! writes have others. A block takes some sixty bytes of memory from its first write to the end of the run.

use std::collections::{HashMap, VecDeque};

use measure::Workload;

use crate::verify::Header;

/// See the module's argument.
#[derive(Debug)]
pub(super) struct Backlog {
    most: usize,
    batch: usize,
    /// Offsets of the blocks in `headers`, in the order in which they came there.
    order: VecDeque<u64>,
    /// None for a block that is being written again.
    headers: HashMap<u64, Option<Header>>,
    /// How many of them are some.
    owed: usize,
    /// How many are to be read before the next write.
    due: usize,
    any_generation: bool,
    /// Blocks that were added, without those that will not be read back.
    expected: u64,
}

impl Backlog {
    /// None where what is written is read back at the end. A batch of 0 is all of the backlog. With `any_generation` a
    /// block may be of any write, as it may where copies of the job write the same blocks.
    pub fn new(workload: &Workload, batch: u32, any_generation: bool) -> Option<Self> {
        let most = match workload.verify_backlog {
            0 => usize::MAX,
            blocks => blocks as usize,
        };
        workload.verifies_by_log().then(|| Self {
            most,
            batch: if batch == 0 { most } else { batch as usize },
            order: VecDeque::new(),
            headers: HashMap::new(),
            owed: 0,
            due: 0,
            any_generation: any_generation || workload.regions_overlap(),
            expected: 0,
        })
    }

    /// A write has completed.
    pub fn add(&mut self, header: Header) {
        let generation = if self.any_generation { Header::ANY } else { header.generation };
        let before = self.headers.insert(header.offset, Some(Header { generation, ..header }));
        if before.is_none() {
            self.order.push_back(header.offset);
        }
        self.owed += 1;
        self.expected += 1;
    }

    /// The block at `offset` is written again.
    pub fn forget(&mut self, offset: u64) {
        if let Some(header) = self.headers.get_mut(&offset)
            && header.take().is_some()
        {
            self.owed -= 1;
            self.give_up();
        }
    }

    /// A block that was to be checked is not.
    pub fn give_up(&mut self) {
        self.expected -= 1;
    }

    /// The block that is to be read back before the next write; None where there is none.
    pub fn next_due(&mut self) -> Option<Header> {
        if self.due == 0 && self.owed >= self.most {
            self.due = self.batch;
        }
        if self.due == 0 {
            return None;
        }
        let next = self.next();
        self.due = if next.is_some() { self.due - 1 } else { 0 };
        next
    }

    /// How many blocks are to be checked all in all, and those that are left.
    pub fn close(mut self) -> (u64, Vec<Header>) {
        let left = std::iter::from_fn(|| self.next()).collect();
        (self.expected, left)
    }

    /// Takes the oldest block.
    fn next(&mut self) -> Option<Header> {
        while let Some(offset) = self.order.pop_front() {
            if let Some(header) = self.headers.remove(&offset).flatten() {
                self.owed -= 1;
                return Some(header);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::workload::{Rw, Verify};

    fn backlog(most: u32, batch: u32) -> Backlog {
        let verify = Some(Verify::Crc32c);
        let workload = Workload { rw: Rw::Write, verify, verify_backlog: most, ..Workload::default() };
        Backlog::new(&workload, batch, false).expect("it has one")
    }

    fn header(offset: u64, generation: u64) -> Header {
        Header { generation, offset, length: 4096 }
    }

    fn due(backlog: &mut Backlog) -> Vec<u64> {
        std::iter::from_fn(|| backlog.next_due()).map(|header| header.offset).collect()
    }

    #[test]
    fn blocks_are_due_once_there_are_enough_and_a_batch_at_a_time() {
        let mut all = backlog(3, 0);
        (0..2).for_each(|offset| all.add(header(offset, 1)));
        assert!(due(&mut all).is_empty());
        all.add(header(2, 1));
        assert_eq!(due(&mut all), [0, 1, 2]);
        let mut some = backlog(3, 2);
        (0..4).for_each(|offset| some.add(header(offset, 1)));
        assert_eq!(due(&mut some), [0, 1]);
        some.add(header(4, 1));
        assert_eq!(due(&mut some), [2, 3]);
        let (expected, left) = some.close();
        assert_eq!((expected, left), (5, vec![header(4, 1)]));
    }

    #[test]
    fn a_block_that_is_written_again_is_checked_for_its_last_write_only() {
        let mut backlog = backlog(2, 0);
        backlog.add(header(7, 1));
        backlog.forget(7);
        assert!(due(&mut backlog).is_empty());
        backlog.add(header(7, 2));
        backlog.add(header(8, 2));
        // However often it is written.
        for generation in 3..100 {
            backlog.forget(7);
            backlog.add(header(7, generation));
        }
        assert_eq!((backlog.order.len(), backlog.headers.len()), (2, 2));
        let (expected, left) = backlog.close();
        assert_eq!((expected, left), (2, vec![header(7, 99), header(8, 2)]));
    }

    #[test]
    fn where_any_write_will_do_blocks_are_of_any_generation() {
        let verify = Some(Verify::Crc32c);
        let workload = Workload { rw: Rw::Write, verify, verify_backlog: 1, ..Workload::default() };
        let mut any = Backlog::new(&workload, 0, true).expect("it has one");
        any.add(header(0, 1));
        assert_eq!(any.next_due(), Some(header(0, Header::ANY)));
    }

    #[test]
    fn a_job_that_reads_has_none_and_a_mix_reads_all_at_its_end() {
        let verify = Some(Verify::Crc32c);
        let reads = Workload { rw: Rw::Read, verify, verify_backlog: 8, ..Workload::default() };
        assert!(Backlog::new(&reads, 0, false).is_none());
        let late = Workload { rw: Rw::Write, verify, ..Workload::default() };
        assert!(Backlog::new(&late, 0, false).is_none());
        let mix = Workload { rw: Rw::RandRw, verify, ..Workload::default() };
        let mut all = Backlog::new(&mix, 0, false).expect("a mix has one");
        (0..1000).for_each(|offset| all.add(header(offset, 1)));
        assert!(due(&mut all).is_empty());
        assert_eq!(all.close().1.len(), 1000);
    }
}
