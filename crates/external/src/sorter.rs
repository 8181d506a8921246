//! Sorting more than memory holds.
//!
//! 1. Records are collected in chunks, which threads sort and write as runs ([`crate::runs`]). What fits one chunk stays in
//!    memory, without I/O and without threads.
//! 2. Where there are more runs than one merge can take, the shortest are merged into longer ones first, no more of them
//!    than necessary.
//! 3. The last merge is not written: the caller takes its records as they come ([`crate::merge`]).
//!
//! So data up to fan-in times a chunk are written once and read once.

use crate::blocks::BlockIo;
use crate::gather::Gatherer;
use crate::merge::Merge;
use crate::plan::Plan;
use crate::record::Same;
use crate::runs::{Run, RunFormer};
use crate::stream::block_records;
use crate::{ExternalError, Record, Source, Space, radix};

/// How a sorter works.
#[derive(Debug, Clone)]
pub struct SorterOptions<T> {
    /// Bytes of memory for everything: chunks, buffers, tables.
    pub memory: u64,
    /// Threads that sort, beside the caller's.
    pub threads: usize,
    /// Drops records that are the same as the one before them. It must not depend on more than a prefix of the key, so that
    /// all that are the same lie together. Duplicates are removed as early as they meet, which saves their I/O.
    pub unique: Option<Same<T>>,
}

impl<T> SorterOptions<T> {
    /// Sorts within `memory` bytes, with a thread for each CPU that this process may use.
    #[must_use]
    pub fn new(memory: u64) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { memory, threads, unique: None }
    }

    /// The same, keeping only the first of those that are the same.
    #[must_use]
    pub fn unique(self, same: Same<T>) -> Self {
        Self { unique: Some(same), ..self }
    }
}

/// Collects records to be sorted. See the module's argument.
#[derive(Debug)]
pub struct Sorter<T: Record> {
    space: Space,
    plan: Plan,
    same: Option<Same<T>>,
    chunk: Vec<T>,
    former: Option<RunFormer<T>>,
    len: u64,
    has_failed: bool,
}

impl<T: Record> Sorter<T> {
    /// A sorter without records, which has taken no memory yet.
    ///
    /// # Errors
    /// [`ExternalError::TooLittleMemory`] where the budget does not hold the buffers of a merge.
    pub fn new(space: &Space, options: &SorterOptions<T>) -> Result<Self, ExternalError> {
        let plan = Plan::new(options.memory, options.threads, size_of::<T>(), space.block_bytes())?;
        Ok(Self {
            space: space.clone(),
            plan,
            same: options.unique,
            chunk: Vec::new(),
            former: None,
            len: 0,
            has_failed: false,
        })
    }

    /// How many records were pushed.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether none was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The failure of a write, also of earlier records; [`ExternalError::Full`].
    #[inline]
    pub fn push(&mut self, record: T) -> Result<(), ExternalError> {
        if self.chunk.len() == self.plan.chunk {
            self.spill()?;
        }
        self.chunk.push(record);
        self.len += 1;
        Ok(())
    }

    /// Adds records.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_slice(&mut self, mut records: &[T]) -> Result<(), ExternalError> {
        while !records.is_empty() {
            if self.chunk.len() == self.plan.chunk {
                self.spill()?;
            }
            let (now, later) = records.split_at(records.len().min(self.plan.chunk - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            self.len += now.len() as u64;
            records = later;
        }
        Ok(())
    }

    /// Sorts what was pushed. Only the last merge's memory is held afterwards, until the result is dropped.
    ///
    /// # Errors
    /// The failure of a read or write; [`ExternalError::Full`].
    pub fn finish(mut self) -> Result<Sorted<T>, ExternalError> {
        self.check()?;
        let chunk = std::mem::take(&mut self.chunk);
        let Some(former) = self.former.take() else {
            return Ok(Sorted { content: Content::Memory(self.sort_in_memory(chunk), 0) });
        };
        let mut runs = former.finish(chunk)?;
        while runs.len() > self.plan.fan_in() {
            self.merge_shortest(&mut runs)?;
        }
        let merge = self.merge(runs, self.plan.read_buffers)?;
        Ok(Sorted { content: Content::Merge(merge) })
    }

    fn sort_in_memory(&self, mut chunk: Vec<T>) -> Vec<T> {
        radix::sort(&mut chunk, &mut Vec::new());
        if let Some(same) = self.same {
            radix::deduplicate(&mut chunk, same);
        }
        chunk
    }

    #[cold]
    fn spill(&mut self) -> Result<(), ExternalError> {
        self.check()?;
        let former = match &mut self.former {
            Some(former) => former,
            none => none.insert(RunFormer::start(&self.space, &self.plan, self.same)?),
        };
        let chunk = std::mem::take(&mut self.chunk);
        self.has_failed = true;
        self.chunk = former.exchange(chunk)?;
        self.has_failed = false;
        Ok(())
    }

    fn check(&self) -> Result<(), ExternalError> {
        if self.has_failed { Err(ExternalError::Poisoned { what: "sorting" }) } else { Ok(()) }
    }

    /// Makes one run of the shortest ones: as many as bring their number down to what the last merge takes, or as one merge
    /// takes.
    fn merge_shortest(&self, runs: &mut Vec<Run<T>>) -> Result<(), ExternalError> {
        let buffers = self.plan.inner_read_buffers();
        let most = (buffers - self.plan.ahead) as usize;
        let count = (runs.len() - self.plan.fan_in() + 1).min(most);
        runs.sort_by_key(|run| std::cmp::Reverse(run.stream.len()));
        let shortest = runs.split_off(runs.len() - count);
        let mut merge = self.merge(shortest, buffers)?;
        let mut io = BlockIo::open(&self.space, 2)?;
        let mut merged = Run::empty(&self.space);
        let block = block_records::<T>(&self.space);
        let mut pending: Vec<T> = Vec::with_capacity(block);
        loop {
            let records = merge.fill()?;
            let now = records.len().min(block - pending.len());
            if now == 0 {
                break;
            }
            pending.extend_from_slice(&records[..now]);
            merge.consume(now);
            if pending.len() == block {
                merged.append(&mut io, &pending)?;
                pending.clear();
            }
        }
        merged.append(&mut io, &pending)?;
        io.drain()?;
        runs.push(merged);
        Ok(())
    }

    fn merge(&self, runs: Vec<Run<T>>, buffers: u32) -> Result<Merge<T>, ExternalError> {
        let (space, plan) = (self.space.clone(), self.plan);
        let open = move || Gatherer::new(&space, runs, buffers, plan.ahead, plan.batch);
        Merge::start(open, plan.threads, plan.batch, self.same)
    }
}

/// Records in order, as they come out of a sorter.
#[derive(Debug)]
pub struct Sorted<T: Record> {
    content: Content<T>,
}

#[derive(Debug)]
enum Content<T: Record> {
    /// All of it, and how much was consumed.
    Memory(Vec<T>, usize),
    Merge(Merge<T>),
}

impl<T: Record> Sorted<T> {
    /// Whether everything fitted in memory, so that no I/O was done.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self.content, Content::Memory(..))
    }
}

impl<T: Record> Source<T> for Sorted<T> {
    #[inline]
    fn fill(&mut self) -> Result<&[T], ExternalError> {
        match &mut self.content {
            Content::Memory(records, position) => Ok(&records[*position..]),
            Content::Merge(merge) => merge.fill(),
        }
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        match &mut self.content {
            Content::Memory(_, position) => *position += count,
            Content::Merge(merge) => merge.consume(count),
        }
    }
}

impl<T: Record> Iterator for Sorted<T> {
    type Item = Result<T, ExternalError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}
