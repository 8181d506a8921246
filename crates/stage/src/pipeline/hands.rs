//! Tasks for the hands of a crew: names out of the same queue as those of the threads here, and ranges of large files.
//!
//! Each hand has a thread here that waits for it, for names, and one for large files; what a thread gives away is what a copier or a lane
//! would have taken. A file of at least [`SPLIT_MIN`] is copied by all hands and the lane here at once.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};

use super::{Batch, LargeItem, Pipeline, Shared, put, take};
use crate::calls;
use crate::crew::{self, Copied, Task, copy_range};
use crate::digest::Digest;
use crate::error::StageError;
use crate::journal::{Done, Identity};
use crate::large::{Lane, LargeFile};
use crate::names::PathText;
use crate::owned::FileId;

/// Batches of names in a task: what one sync of a hand is worth.
const BATCHES: usize = 8;

/// Bytes of a range of a large file: the work that is lost with a hand, and how evenly the end of a file is shared.
const RANGE_BYTES: u64 = 256 << 20;

/// From this size on a file is divided.
const SPLIT_MIN: u64 = 2 * RANGE_BYTES;

/// By what a large file is copied.
pub enum By<'a> {
    /// A lane of this process.
    Lane(&'a mut Lane),
    /// A hand.
    Hand(usize),
}

/// Gives names to a hand, as long as there are any.
pub(super) fn give_names(
    shared: &Shared<'_>,
    hand: usize,
    batches: &Mutex<Receiver<Batch>>,
    large: &SyncSender<LargeItem>,
    verified: &SyncSender<Vec<Done>>,
) -> Result<(), StageError> {
    let pipeline = shared.of;
    let Some((crew, errand)) = &pipeline.crew else { return Ok(()) };
    while let Some(first) = take(batches) {
        let more = || batches.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok();
        let (mut directories, mut names) = (Vec::new(), Vec::new());
        for batch in std::iter::once(first).chain(std::iter::from_fn(more)).take(BATCHES) {
            let (wanted, done) = pipeline.wanted(&batch.directory, batch.names)?;
            if !done.is_empty() {
                let _ = verified.send(done);
            }
            if !wanted.is_empty() {
                let text = |path: &Path| PathText(path.to_owned());
                names.push((
                    text(&batch.directory.path),
                    wanted.iter().map(|name| text(name.as_ref())).collect(),
                ));
                directories.push(batch.directory);
            }
        }
        if shared.gone() {
            return Ok(());
        }
        pipeline.terms.stop.check()?;
        if names.is_empty() {
            continue;
        }
        let Copied::Names { done, large: found, linked, not_preserved } =
            crew.work(hand, errand, Task::Names(names))?
        else {
            return Err(crew::out_of_step());
        };
        let at = |number: usize| directories.get(number).ok_or_else(crew::out_of_step);
        for (number, name, size) in found {
            shared.large(at(number)?, name.0.as_os_str(), size, large);
        }
        for (number, name, ino) in linked {
            let directory = at(number)?;
            let stat = calls::stat(directory.source.as_fd())
                .map_err(|error| StageError::io("look at", pipeline.terms.source, error))?;
            // A walk stays on one file system, whose number may be another on the hand's node.
            let inode = (stat.stx_dev_major, stat.stx_dev_minor, ino);
            shared.linked(inode, directory.path.join(&name.0));
        }
        pipeline.count(&done, not_preserved);
        let done: Vec<Done> = done.into_iter().map(|(entry, source)| Done::new(entry, source)).collect();
        if put(verified, done).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// A large file whose chunks are copied by several.
pub(super) struct Divided<'a> {
    pub file: &'a LargeFile<'a>,
    pub path: &'a Path,
    pub source: &'a Identity,
    pub done: BTreeMap<u64, Digest>,
}

impl Pipeline<'_> {
    /// Counts what a hand has copied.
    fn count(&self, done: &[(crate::manifest::Entry, Identity)], not_preserved: u64) {
        let (progress, files) = (self.terms.progress, done.len() as u64);
        let bytes = done.iter().map(|(entry, _)| entry.size).sum();
        for (counter, more) in [
            (&progress.files_total, files),
            (&progress.files_done, files),
            (&progress.bytes_total, bytes),
            (&progress.bytes_written, bytes),
            (&progress.bytes_verified, bytes),
            (&progress.not_preserved, not_preserved),
        ] {
            counter.fetch_add(more, Relaxed);
        }
    }

    /// Is a file of so many bytes for hands?
    pub(super) fn is_for_hands(&self, by: &By<'_>, bytes: u64) -> bool {
        matches!(by, By::Hand(_))
            || self.crew.as_ref().is_some_and(|(crew, _)| crew.hands() > 0) && bytes >= SPLIT_MIN
    }

    /// Copies what is left of a file by hands, and by the lane if there is one; the digests of all chunks, in order.
    pub(super) fn copy_divided(
        &self,
        by: By<'_>,
        chunk_bytes: u64,
        divided: Divided<'_>,
    ) -> Result<Vec<Digest>, StageError> {
        let Some((crew, errand)) = &self.crew else { return Err(crew::out_of_step()) };
        let Divided { file, path, source, done } = divided;
        let copy = FileId::of(file.destination)
            .map_err(|error| StageError::io("look at", file.destination_path, error))?;
        let count = file.bytes.div_ceil(chunk_bytes);
        let bytes = |index: u64| (file.bytes - index * chunk_bytes).min(chunk_bytes);
        let add = |indices: &mut dyn Iterator<Item = u64>| {
            let more: u64 = indices.map(bytes).sum();
            self.terms.progress.bytes_written.fetch_add(more, Relaxed);
            self.terms.progress.bytes_verified.fetch_add(more, Relaxed);
        };
        add(&mut done.keys().copied());
        let ranges = Mutex::new(ranges(count, (RANGE_BYTES / chunk_bytes).max(1), &done));
        let done = Mutex::new(done);
        let next = || ranges.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let sealed = |chunks: Vec<(u64, Digest)>| {
            self.journal.seal(self.id, path, &chunks)?;
            add(&mut chunks.iter().map(|(index, _)| *index));
            done.lock().unwrap_or_else(PoisonError::into_inner).extend(chunks);
            Ok::<_, StageError>(())
        };
        let by_hand = |hand: usize| -> Result<(), StageError> {
            while let Some(chunks) = next() {
                self.terms.stop.check()?;
                let task = Task::Chunks { path: PathText(path.to_owned()), source: *source, copy, chunks };
                let Copied::Chunks(chunks) = crew.work(hand, errand, task)? else {
                    return Err(crew::out_of_step());
                };
                sealed(chunks)?;
            }
            Ok(())
        };
        let result = match by {
            By::Hand(hand) if file.bytes < SPLIT_MIN => by_hand(hand),
            by => std::thread::scope(|scope| {
                let by_hand = &by_hand;
                let hands: Vec<_> =
                    (0..crew.hands()).map(|hand| scope.spawn(move || by_hand(hand))).collect();
                let mut here = Ok(());
                if let By::Lane(lane) = by {
                    while let (Ok(()), Some(chunks)) = (&here, next()) {
                        let copied = copy_range(lane, file, chunks, self.terms.pace, self.terms.stop);
                        here = copied.and_then(&sealed);
                    }
                }
                let joined = hands
                    .into_iter()
                    .map(|hand| hand.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                joined.fold(here, Result::and)
            }),
        };
        result?;
        let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        let digests: Vec<Digest> = (0..count).map_while(|index| done.get(&index).copied()).collect();
        if digests.len() as u64 == count { Ok(digests) } else { Err(crew::out_of_step()) }
    }
}

/// What is left of `count` chunks, in ranges of at most `most`.
fn ranges(count: u64, most: u64, done: &BTreeMap<u64, Digest>) -> VecDeque<std::ops::Range<u64>> {
    let mut ranges: VecDeque<std::ops::Range<u64>> = VecDeque::new();
    for index in (0..count).filter(|index| !done.contains_key(index)) {
        match ranges.back_mut() {
            Some(range) if range.end == index && index - range.start < most => range.end += 1,
            _ => ranges.push_back(index..index + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_leave_out_what_is_done_and_are_no_longer_than_asked_for() {
        let done = [2, 3].into_iter().map(|index| (index, Digest([0; 32]))).collect();
        assert_eq!(ranges(9, 3, &done), [0..2, 4..7, 7..9]);
        assert!(ranges(0, 3, &BTreeMap::new()).is_empty());
    }
}
