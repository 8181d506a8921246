//! A priority queue larger than memory: the lowest record first.
//!
//! 1. New records go to a heap in memory. When it is full, its records are written as a sorted run.
//! 2. Of each run two blocks are in memory, and its first record is in a second heap. The lowest of both heaps is the lowest
//!    of all.
//! 3. When there are as many runs as the budget has blocks for, the shorter half of them is merged into one.
//!
//! A record is written once for each merge that it takes part in, which is the logarithm of the number of runs at most.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::stream::{Source, Stream, StreamReader, StreamWriter};
use crate::{ExternalError, Record, Space};

/// Blocks of a run that are in memory.
const RUN_BUFFERS: u32 = 2;
/// Blocks that a writer of a run takes.
const WRITE_BUFFERS: u32 = 3;
/// The fewest runs that are worth merging.
const MIN_RUNS: u64 = 4;

/// Records of which the lowest comes first. See the module's argument.
#[derive(Debug)]
pub struct PriorityQueue<T: Record> {
    space: Space,
    /// Records in memory, and how many there may be.
    heap: BinaryHeap<Reverse<T>>,
    capacity: usize,
    runs: Vec<OpenRun<T>>,
    max_runs: usize,
    /// The first record of each run that is not empty, with the run's place.
    heads: BinaryHeap<Reverse<(T, usize)>>,
    len: u64,
    has_failed: bool,
}

#[derive(Debug)]
struct OpenRun<T: Record> {
    reader: StreamReader<'static, T>,
    left: u64,
}

impl<T: Record> PriorityQueue<T> {
    /// An empty queue that takes at most `memory` bytes.
    ///
    /// # Errors
    /// [`ExternalError::TooLittleMemory`].
    pub fn new(space: &Space, memory: u64) -> Result<Self, ExternalError> {
        let block = space.block_bytes() as u64;
        let fixed = u64::from(WRITE_BUFFERS) * block;
        let needed = 2 * (fixed + MIN_RUNS * u64::from(RUN_BUFFERS) * block);
        if memory < needed {
            return Err(ExternalError::TooLittleMemory { what: "a priority queue", needed, given: memory });
        }
        let head = size_of::<Reverse<(T, usize)>>() as u64;
        let for_runs = memory / 2 - fixed;
        let capacity = (memory / 2 / size_of::<T>() as u64) as usize;
        let max_runs = for_runs / (u64::from(RUN_BUFFERS) * block + head + 256);
        Ok(Self {
            space: space.clone(),
            // Pages of it that are not used yet take no memory; a heap that grows would be copied, and take more.
            heap: BinaryHeap::with_capacity(capacity),
            capacity,
            runs: Vec::new(),
            max_runs: max_runs.max(MIN_RUNS) as usize,
            heads: BinaryHeap::new(),
            len: 0,
            has_failed: false,
        })
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a record.
    ///
    /// # Errors
    /// A failed read or write, after which the queue cannot be used; [`ExternalError::Full`].
    pub fn push(&mut self, record: T) -> Result<(), ExternalError> {
        if self.heap.len() >= self.capacity {
            self.guarded(Self::spill)?;
        }
        self.heap.push(Reverse(record));
        self.len += 1;
        Ok(())
    }

    /// The lowest record, which stays; none where there is none.
    #[must_use]
    pub fn peek(&self) -> Option<T> {
        let in_memory = self.heap.peek().map(|Reverse(record)| *record);
        let outside = self.heads.peek().map(|Reverse((record, _))| *record);
        in_memory.into_iter().chain(outside).min()
    }

    /// Takes the lowest record; none where there is none.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn pop(&mut self) -> Result<Option<T>, ExternalError> {
        let outside = self.heads.peek().map(|Reverse(head)| *head);
        let in_memory = self.heap.peek().map(|Reverse(record)| *record);
        let lowest = match (in_memory, outside) {
            (None, None) => return Ok(None),
            (in_memory, Some((record, run))) if in_memory.is_none_or(|other| record < other) => {
                self.heads.pop();
                self.guarded(|queue| queue.advance(run))?;
                record
            }
            (_, _) => match self.heap.pop() {
                Some(Reverse(record)) => record,
                None => return Ok(None),
            },
        };
        self.len -= 1;
        Ok(Some(lowest))
    }

    /// Runs `work` unless an earlier one failed, which leaves records nowhere.
    fn guarded(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), ExternalError>,
    ) -> Result<(), ExternalError> {
        if self.has_failed {
            return Err(ExternalError::Poisoned { what: "a priority queue" });
        }
        self.has_failed = true;
        work(self)?;
        self.has_failed = false;
        Ok(())
    }

    /// Puts the next record of a run among the heads.
    fn advance(&mut self, run: usize) -> Result<(), ExternalError> {
        let open = &mut self.runs[run];
        if let Some(record) = open.reader.next_record()? {
            open.left -= 1;
            self.heads.push(Reverse((record, run)));
        }
        Ok(())
    }

    /// Writes the records in memory as a run.
    fn spill(&mut self) -> Result<(), ExternalError> {
        if self.runs.len() >= self.max_runs {
            self.merge_shorter_half()?;
        }
        let mut records = std::mem::take(&mut self.heap).into_vec();
        // Greatest first by `Reverse`, so in ascending order of records.
        records.sort_unstable_by(|a, b| b.cmp(a));
        let mut writer = StreamWriter::new(&self.space, WRITE_BUFFERS);
        for Reverse(record) in &records {
            writer.push(*record)?;
        }
        records.clear();
        self.heap = records.into();
        self.open(writer.finish()?)
    }

    fn open(&mut self, stream: Stream<T>) -> Result<(), ExternalError> {
        let left = stream.len();
        self.runs.push(OpenRun { reader: stream.into_reader(RUN_BUFFERS), left });
        self.advance(self.runs.len() - 1)
    }

    /// Makes one run of the runs with the fewest records left.
    fn merge_shorter_half(&mut self) -> Result<(), ExternalError> {
        let mut heads = vec![None; self.runs.len()];
        for Reverse((record, run)) in std::mem::take(&mut self.heads) {
            heads[run] = Some(record);
        }
        let mut open: Vec<_> = std::mem::take(&mut self.runs).into_iter().zip(heads).collect();
        // A run whose head is gone has no record.
        open.retain(|(_, head)| head.is_some());
        open.sort_by_key(|(run, _)| Reverse(run.left));
        let shorter = open.split_off(open.len() / 2);
        for (place, (run, head)) in open.into_iter().enumerate() {
            self.runs.push(run);
            self.heads.extend(head.map(|record| Reverse((record, place))));
        }
        let merged = merge(&self.space, shorter)?;
        self.open(merged)
    }
}

fn merge<T: Record>(
    space: &Space,
    mut runs: Vec<(OpenRun<T>, Option<T>)>,
) -> Result<Stream<T>, ExternalError> {
    let mut heads: BinaryHeap<_> = runs
        .iter()
        .enumerate()
        .filter_map(|(place, (_, head))| head.map(|record| Reverse((record, place))))
        .collect();
    let mut writer = StreamWriter::new(space, WRITE_BUFFERS);
    while let Some(Reverse((record, place))) = heads.pop() {
        writer.push(record)?;
        if let Some(next) = runs[place].0.reader.next_record()? {
            heads.push(Reverse((next, place)));
        }
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::memory_space;

    #[test]
    fn any_sequence_of_pushes_and_pops_is_that_of_a_heap_in_memory() {
        let space = memory_space(4 << 20, 4096);
        let mut queue = PriorityQueue::new(&space, 96 << 10).expect("has memory");
        let mut expected = BinaryHeap::new();
        let mut state = 2009_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 40
        };
        for round in 0..6 {
            for _ in 0..50_000 {
                let record = next();
                queue.push(record).expect("fits");
                expected.push(Reverse(record));
                // More is pushed than popped in even rounds, the other way round in odd ones.
                for _ in 0..(if round % 2 == 0 { next() % 2 } else { next() % 4 }) {
                    assert_eq!(queue.peek(), expected.peek().map(|Reverse(record)| *record));
                    assert_eq!(queue.pop().expect("reads"), expected.pop().map(|Reverse(record)| record));
                }
            }
            assert_eq!(queue.len(), expected.len() as u64);
        }
        while let Some(Reverse(record)) = expected.pop() {
            assert_eq!(queue.pop().expect("reads"), Some(record));
        }
        assert_eq!(queue.pop().expect("reads"), None);
        assert!(space.usage().bytes_written > 1 << 19, "{:?}", space.usage());
    }

    #[test]
    fn runs_are_merged_when_there_are_too_many() {
        let space = memory_space(8 << 20, 4096);
        let mut queue = PriorityQueue::new(&space, 96 << 10).expect("has memory");
        for record in (0..400_000_u64).rev() {
            queue.push(record).expect("fits");
        }
        assert!(space.usage().bytes_written > 6_400_000 / 2, "{:?}", space.usage());
        assert!(queue.runs.len() <= queue.max_runs);
        for record in 0..400_000 {
            assert_eq!(queue.pop().expect("reads"), Some(record));
        }
        drop(queue);
        assert_eq!(space.usage().bytes_in_use, 0);
    }

    #[test]
    fn after_a_full_device_the_queue_says_that_records_are_missing() {
        let space = memory_space(256 << 10, 4096);
        let mut queue = PriorityQueue::new(&space, 96 << 10).expect("has memory");
        let error = (0..200_000_u64).find_map(|record| queue.push(record).err()).expect("is full");
        assert!(matches!(error, ExternalError::Full { .. }), "{error:?}");
        let later = (0..200_000_u64).find_map(|record| queue.push(record).err()).expect("stays so");
        assert!(matches!(later, ExternalError::Poisoned { .. }), "{later:?}");
        let error = PriorityQueue::<u64>::new(&space, 1000).expect_err("is too little");
        assert_eq!(
            error.to_string(),
            "a priority queue needs at least 88 KiB of memory, and was given 1000 B"
        );
    }
}
