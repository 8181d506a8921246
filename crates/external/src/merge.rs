//! Merging: one thread gathers batches, others sort them, the caller takes them in order.
//!
//! Batch *k* goes to thread *k* mod *threads* and comes back from there, so the order needs no bookkeeping. The number of
//! batches bounds the memory: a batch that the caller is done with is gathered into again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::gather::{Batch, Gatherer};
use crate::record::Same;
use crate::{ExternalError, Record, radix};

/// What goes to and comes from a sorting thread.
enum Message<T> {
    Batch(Batch<T>),
    End,
    Failed(ExternalError),
    Panicked(Box<dyn Any + Send>),
}

/// The sorted union of runs.
#[derive(Debug)]
pub(crate) struct Merge<T: Record> {
    outputs: Vec<Receiver<Message<T>>>,
    used: Option<Sender<Batch<T>>>,
    threads: Vec<JoinHandle<()>>,
    turn: usize,
    current: Batch<T>,
    position: usize,
    is_over: bool,
    same: Option<Same<T>>,
}

impl<T: Record> Merge<T> {
    /// Sorts, on `threads` threads, what `open` gathers, in batches of `batch` records. An engine stays on the thread that
    /// made it, so the gatherer is opened there.
    pub fn start(
        open: impl FnOnce() -> Result<Gatherer<T>, ExternalError> + Send + 'static,
        threads: usize,
        batch: usize,
        same: Option<Same<T>>,
    ) -> Result<Self, ExternalError> {
        let (used, free) = channel();
        // One for each thread, one that is gathered, one that waits; the caller's own is `current`.
        for _ in 0..threads + 2 {
            let _ = used.send(Batch { records: Vec::with_capacity(batch), ends: Vec::new() });
        }
        let mut merge = Self {
            outputs: Vec::new(),
            used: Some(used),
            threads: Vec::new(),
            turn: 0,
            current: Batch { records: Vec::with_capacity(batch), ends: Vec::new() },
            position: 0,
            is_over: false,
            same,
        };
        let mut inputs = Vec::new();
        for _ in 0..threads {
            let (input, batches) = channel();
            let (sorted, output) = channel();
            merge.spawn(move || sort_batches(&batches, &sorted, same))?;
            inputs.push(input);
            merge.outputs.push(output);
        }
        merge.spawn(move || gather_batches(open, &free, &inputs))?;
        Ok(merge)
    }

    fn spawn(&mut self, work: impl FnOnce() + Send + 'static) -> Result<(), ExternalError> {
        let builder = std::thread::Builder::new().name("external-merge".to_owned());
        let thread =
            builder.spawn(work).map_err(|source| ExternalError::Thread { what: "merging", source })?;
        self.threads.push(thread);
        Ok(())
    }

    #[inline]
    pub fn fill(&mut self) -> Result<&[T], ExternalError> {
        while self.position == self.current.records.len() && !self.is_over {
            self.advance()?;
        }
        Ok(&self.current.records[self.position..])
    }

    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.position += count;
    }

    fn advance(&mut self) -> Result<(), ExternalError> {
        let last = self.current.records.last().copied();
        let used = std::mem::take(&mut self.current);
        self.position = 0;
        if let Some(sender) = &self.used {
            // Without a receiver the gathering thread has ended, and said why.
            let _ = sender.send(used);
        }
        let message = self.outputs[self.turn].recv();
        self.turn = (self.turn + 1) % self.outputs.len();
        match message {
            Ok(Message::Batch(batch)) => self.current = batch,
            Ok(Message::End) => self.is_over = true,
            // Nothing follows, so later calls find the channels closed.
            Ok(Message::Failed(error)) => return Err(error),
            Ok(Message::Panicked(panic)) => resume_unwind(panic),
            Err(_) => return Err(ExternalError::Poisoned { what: "merging" }),
        }
        // A batch may begin with records that are the same as the last of the one before.
        if let (Some(same), Some(last)) = (self.same, last) {
            self.position = self.current.records.iter().take_while(|record| same(&last, record)).count();
        }
        Ok(())
    }
}

impl<T: Record> Drop for Merge<T> {
    fn drop(&mut self) {
        self.used = None;
        self.outputs.clear();
        for thread in self.threads.drain(..) {
            // A panic of the thread was caught, and came as a message.
            let _ = thread.join();
        }
    }
}

fn gather_batches<T: Record>(
    open: impl FnOnce() -> Result<Gatherer<T>, ExternalError>,
    free: &Receiver<Batch<T>>,
    threads: &[Sender<Message<T>>],
) {
    let mut open = Some(open);
    let mut gatherer = None;
    for thread in threads.iter().cycle() {
        let Ok(mut batch) = free.recv() else { return };
        let gathered = catch_unwind(AssertUnwindSafe(|| {
            if let Some(open) = open.take() {
                gatherer = Some(open()?);
            }
            gatherer.as_mut().map_or(Ok(false), |gatherer| gatherer.gather(&mut batch))
        }));
        let (message, is_last) = match gathered {
            Ok(Ok(true)) => (Message::Batch(batch), false),
            Ok(Ok(false)) => (Message::End, true),
            Ok(Err(error)) => (Message::Failed(error), true),
            Err(panic) => (Message::Panicked(panic), true),
        };
        if thread.send(message).is_err() || is_last {
            return;
        }
    }
}

fn sort_batches<T: Record>(
    batches: &Receiver<Message<T>>,
    sorted: &Sender<Message<T>>,
    same: Option<Same<T>>,
) {
    let mut scratch = Vec::new();
    while let Ok(message) = batches.recv() {
        let message = match message {
            Message::Batch(mut batch) => {
                let sort = AssertUnwindSafe(|| {
                    sort_batch(&mut batch, &mut scratch);
                    if let Some(same) = same {
                        radix::deduplicate(&mut batch.records, same);
                    }
                });
                catch_unwind(sort).map_or_else(Message::Panicked, |()| Message::Batch(batch))
            }
            other => other,
        };
        if sorted.send(message).is_err() {
            return;
        }
    }
}

/// Sorts a batch by the cheaper of two ways: a pass of distribution for each digit, or a pass of merging for each doubling of
/// the runs' length. A pass of merging costs about twice one of distribution.
fn sort_batch<T: Record>(batch: &mut Batch<T>, scratch: &mut Vec<T>) {
    let levels = batch.ends.len().next_power_of_two().trailing_zeros() as usize;
    if levels * 2 > radix::passes(&batch.records) {
        radix::sort(&mut batch.records, scratch);
        return;
    }
    scratch.resize(batch.records.len(), T::default());
    while batch.ends.len() > 1 {
        let mut start = 0;
        for pair in batch.ends.chunks(2) {
            let (middle, end) = (pair[0], *pair.last().unwrap_or(&pair[0]));
            merge_two(&batch.records[start..middle], &batch.records[middle..end], &mut scratch[start..end]);
            start = end;
        }
        let mut index = 0;
        let count = batch.ends.len();
        batch.ends.retain(|_| {
            index += 1;
            index % 2 == 0 || index == count
        });
        std::mem::swap(&mut batch.records, scratch);
    }
}

/// Merges two sorted slices into `to`, which is as long as both.
fn merge_two<T: Record>(left: &[T], right: &[T], to: &mut [T]) {
    let (mut i, mut j) = (0, 0);
    let mut to = to.iter_mut();
    while i < left.len() && j < right.len() {
        let Some(slot) = to.next() else { return };
        let take_right = right[j] < left[i];
        *slot = if take_right { right[j] } else { left[i] };
        i += usize::from(!take_right);
        j += usize::from(take_right);
    }
    let rest = to.into_slice();
    let (left, right) = (&left[i..], &right[j..]);
    rest[..left.len()].copy_from_slice(left);
    rest[left.len()..].copy_from_slice(right);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_batch_of_any_runs_is_sorted(
            runs in prop::collection::vec(prop::collection::vec(any::<u64>(), 1..40), 1..20),
            shift in 0..64_u32,
        ) {
            let mut batch = Batch::default();
            for mut run in runs {
                run.iter_mut().for_each(|record| *record >>= shift);
                run.sort_unstable();
                batch.records.extend(run);
                batch.ends.push(batch.records.len());
            }
            let mut expected = batch.records.clone();
            expected.sort_unstable();
            sort_batch(&mut batch, &mut Vec::new());
            prop_assert_eq!(batch.records, expected);
        }
    }
}
