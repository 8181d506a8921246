//! Forming sorted runs: the caller fills chunks, threads sort and write them.
//!
//! A thread that has sorted a chunk copies it, block by block, to buffers that the device then writes, and goes on with the
//! next chunk while the last blocks are still under way. So sorting, writing and the caller's own work overlap.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::blocks::BlockIo;
use crate::plan::Plan;
use crate::record::Same;
use crate::stream::{Stream, block_records};
use crate::{ExternalError, Record, Space, radix};

/// A sorted stream, and of each of its blocks the last record.
#[derive(Debug)]
pub(crate) struct Run<T: Record> {
    pub stream: Stream<T>,
    pub lasts: Vec<T>,
}

impl<T: Record> Run<T> {
    pub fn empty(space: &Space) -> Self {
        Self { stream: Stream::empty(space), lasts: Vec::new() }
    }

    /// Writes the next block of the run. All blocks but the last are full.
    pub fn append(&mut self, io: &mut BlockIo, records: &[T]) -> Result<(), ExternalError> {
        let Some(last) = records.last() else { return Ok(()) };
        let entry = io.write_records(records)?;
        self.stream.append(entry, records.len());
        self.lasts.push(*last);
        Ok(())
    }
}

/// What a thread has to say.
enum Report<T: Record> {
    /// A chunk is a run now, and its buffer empty.
    Formed(Run<T>, Vec<T>),
    /// All writes of this thread are done.
    Finished,
    Failed(ExternalError),
    Panicked(Box<dyn Any + Send>),
}

/// The threads that form runs.
#[derive(Debug)]
pub(crate) struct RunFormer<T: Record> {
    chunks: Option<Sender<Vec<T>>>,
    reports: Receiver<Report<T>>,
    threads: Vec<JoinHandle<()>>,
    runs: Vec<Run<T>>,
    /// Chunk buffers that are not made yet.
    unmade: usize,
    chunk: usize,
}

impl<T: Record> RunFormer<T> {
    pub fn start(space: &Space, plan: &Plan, same: Option<Same<T>>) -> Result<Self, ExternalError> {
        let (chunks, queue) = channel();
        let (reporter, reports) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for _ in 0..plan.threads {
            let (space, queue, reporter) = (space.clone(), Arc::clone(&queue), reporter.clone());
            let buffers = plan.write_buffers;
            let work = move || {
                let form = || form_runs(&space, &queue, buffers, same, &reporter);
                let report = match catch_unwind(AssertUnwindSafe(form)) {
                    Ok(Ok(())) => Report::Finished,
                    Ok(Err(error)) => Report::Failed(error),
                    Err(panic) => Report::Panicked(panic),
                };
                // Without a receiver the sorter was dropped, and its runs with it.
                let _ = reporter.send(report);
            };
            let thread = std::thread::Builder::new()
                .name("external-sort".to_owned())
                .spawn(work)
                .map_err(|source| ExternalError::Thread { what: "sorting", source })?;
            threads.push(thread);
        }
        // Of the chunks, one is the caller's, one for each thread, and one waits.
        let unmade = plan.threads + 1;
        Ok(Self { chunks: Some(chunks), reports, threads, runs: Vec::new(), unmade, chunk: plan.chunk })
    }

    /// Hands a full chunk over, and returns an empty one.
    pub fn exchange(&mut self, chunk: Vec<T>) -> Result<Vec<T>, ExternalError> {
        self.hand_over(chunk);
        if self.unmade > 0 {
            self.unmade -= 1;
            return Ok(Vec::with_capacity(self.chunk));
        }
        loop {
            if let Some(chunk) = self.take_report()? {
                return Ok(chunk);
            }
        }
    }

    /// Hands the last chunk over, and waits for all runs. The threads and their memory are gone afterwards.
    pub fn finish(mut self, chunk: Vec<T>) -> Result<Vec<Run<T>>, ExternalError> {
        self.hand_over(chunk);
        self.chunks = None;
        let mut finished = 0;
        while finished < self.threads.len() {
            if self.take_report()?.is_none() {
                finished += 1;
            }
        }
        Ok(std::mem::take(&mut self.runs))
    }

    fn hand_over(&self, chunk: Vec<T>) {
        if let Some(chunks) = self.chunks.as_ref().filter(|_| !chunk.is_empty()) {
            // The receiver lives as long as a thread does, and a thread that ends early has reported why.
            let _ = chunks.send(chunk);
        }
    }

    /// Waits for a report: a free chunk, or none where a thread is finished.
    fn take_report(&mut self) -> Result<Option<Vec<T>>, ExternalError> {
        match self.reports.recv() {
            Ok(Report::Formed(run, chunk)) => {
                self.runs.push(run);
                Ok(Some(chunk))
            }
            Ok(Report::Finished) => Ok(None),
            Ok(Report::Failed(error)) => Err(error),
            Ok(Report::Panicked(panic)) => resume_unwind(panic),
            Err(_) => Err(ExternalError::Poisoned { what: "sorting" }),
        }
    }
}

impl<T: Record> Drop for RunFormer<T> {
    fn drop(&mut self) {
        self.chunks = None;
        for thread in self.threads.drain(..) {
            // A panic of the thread was caught, and came as a report.
            let _ = thread.join();
        }
    }
}

/// One thread's work.
fn form_runs<T: Record>(
    space: &Space,
    queue: &Mutex<Receiver<Vec<T>>>,
    buffers: u32,
    same: Option<Same<T>>,
    reporter: &Sender<Report<T>>,
) -> Result<(), ExternalError> {
    let mut io = None;
    let mut scratch = Vec::new();
    loop {
        let received = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut chunk) = received else { break };
        radix::sort(&mut chunk, &mut scratch);
        if let Some(same) = same {
            radix::deduplicate(&mut chunk, same);
        }
        let io = match &mut io {
            Some(io) => io,
            none => none.insert(BlockIo::open(space, buffers)?),
        };
        let mut run = Run::empty(space);
        for records in chunk.chunks(block_records::<T>(space)) {
            run.append(io, records)?;
        }
        chunk.clear();
        if reporter.send(Report::Formed(run, chunk)).is_err() {
            break;
        }
    }
    io.map_or(Ok(()), |mut io| io.drain())
}
