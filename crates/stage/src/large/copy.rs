//! A copy's course: which chunk is at which step, and what is to be done next.
//!
//! Every slot is at one step of one chunk ([`Step`]). Chunks are begun in ascending order. Up to half of the slots read
//! back what is durable, before others begin new chunks, so that verification keeps up with writing and does not pile
//! up at the end; when nothing is left to copy, all of them do.
//!
//! Groups: `written` collects chunks whose writes have completed; `syncing` is the one that the fdatasync(2) under way vouches
//! for, which began after all of its writes had ended; `unverified` are chunks to be read back, each with its group, and
//! a group is reported when its last chunk was right.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use storage::transfer::{Op, RequestError};

use super::holes::Holes;
use super::port::{Completion, Port, is_refusal};
use super::side::{PAGE, Side};
use super::{LaneConfig, LargeFile, Sealed, Zeros, broken, chunk, compare, failed};
use crate::calls;
use crate::digest::Digest;
use crate::error::{StageError, shown};
use crate::pace::{Pace, Progress, Stop};

/// A group is synced when it has this many bytes and its first chunk was written this long ago. Its size is how far the
/// reading back lags behind the writing, which is what a copy takes longer than its writes where a tier is limited to one
/// rate both ways; the time keeps a fast drive from being told to flush all the time.
const LEAST_GROUP: u64 = 16 << 20;
const LEAST_TIME: Duration = Duration::from_millis(100);
/// Chunks in a group at most: holes cost nothing and are reported in bounded pieces all the same.
const MOST_CHUNKS: usize = 8192;

/// Where a slot's chunk is.
#[derive(Debug)]
enum Step {
    Idle,
    /// Being read from the source; `pieces` is its data, where it has holes.
    Read {
        index: u64,
        pieces: Option<VecDeque<Range<u64>>>,
    },
    /// Its first piece is being written.
    Write {
        index: u64,
        digest: Digest,
        pieces: VecDeque<Range<u64>>,
    },
    /// Being read back.
    Verify {
        item: Item,
        group: u64,
    },
}

/// A chunk that was written.
#[derive(Debug, Clone, Copy)]
struct Item {
    index: u64,
    digest: Digest,
    /// Nothing was written: it is a hole, or should be.
    hole: bool,
}

/// Chunks that are made durable together.
#[derive(Debug, Default)]
struct Group {
    items: Vec<Item>,
    /// Bytes that were really written.
    bytes: u64,
    /// When the first chunk came.
    since: Option<Instant>,
}

/// Chunks that are durable and not all read back.
#[derive(Debug)]
struct Durable {
    chunks: Vec<(u64, Digest)>,
    unverified: usize,
}

/// See the module's argument.
pub(super) struct Copying<'c, 'a> {
    port: &'c mut Port,
    config: &'c LaneConfig,
    file: &'c LargeFile<'a>,
    done: &'c BTreeMap<u64, Digest>,
    source: Side<'a>,
    pub destination: Side<'a>,
    pace: &'c dyn Pace,
    stop: &'c Stop,
    progress: &'c Progress,
    /// The source's holes, where they are to be kept and there are any.
    holes: Option<Holes<'a>>,
    /// Chunks with holes that are written whole all the same: the destination has something there that it cannot let
    /// go of.
    whole: BTreeSet<u64>,
    digests: Vec<Option<Digest>>,
    steps: Vec<Step>,
    idle: Vec<u32>,
    /// The next chunk to begin.
    next: u64,
    copying: u32,
    verifying: u32,
    written: Group,
    syncing: Option<Group>,
    unverified: VecDeque<(Item, u64)>,
    durable: BTreeMap<u64, Durable>,
    groups: u64,
    /// The destination's holes, as they are since the last sync.
    kept: Holes<'a>,
    /// The last chunk, where its write went beyond the file's end, which is cut when no other write is under way.
    overhanging: Option<Item>,
    overhangs: bool,
    zeros: Zeros,
}

impl<'c, 'a> Copying<'c, 'a> {
    /// Gives the destination its length, and its room where it is not to have holes.
    #[allow(clippy::too_many_arguments, reason = "each has another owner")]
    pub fn new(
        port: &'c mut Port,
        config: &'c LaneConfig,
        file: &'c LargeFile<'a>,
        done: &'c BTreeMap<u64, Digest>,
        source: Side<'a>,
        destination: Side<'a>,
        pace: &'c dyn Pace,
        stop: &'c Stop,
        progress: &'c Progress,
    ) -> Result<Self, StageError> {
        let count = file.bytes.div_ceil(config.chunk_bytes);
        let slots = port.slots();
        let mut copying = Self {
            port,
            config,
            file,
            done,
            source,
            destination,
            pace,
            stop,
            progress,
            holes: None,
            whole: BTreeSet::new(),
            digests: (0..count).map(|index| done.get(&index).copied()).collect(),
            steps: (0..slots).map(|_| Step::Idle).collect(),
            idle: (0..slots).rev().collect(),
            next: 0,
            copying: 0,
            verifying: 0,
            written: Group::default(),
            syncing: None,
            unverified: VecDeque::new(),
            durable: BTreeMap::new(),
            groups: 0,
            kept: Holes::new(file.destination_path, file.bytes),
            overhanging: None,
            overhangs: false,
            zeros: Zeros::default(),
        };
        copying.prepare()?;
        Ok(copying)
    }

    fn prepare(&mut self) -> Result<(), StageError> {
        let bytes = self.file.bytes;
        if self.file.preserve_sparse {
            let mut holes = Holes::new(self.file.source_path, bytes);
            if bytes > 0 && !holes.has_none(self.source.fd())? {
                self.holes = Some(holes);
            }
        }
        let (path, fd) = (self.destination.path, self.destination.fd());
        if self.holes.is_none() {
            calls::reserve(fd, bytes).map_err(|error| StageError::io("reserve room for", path, error))?;
        }
        let size = calls::stat(fd).map_err(|error| StageError::io("stat", path, error))?.stx_size;
        if size != bytes {
            calls::truncate(fd, bytes).map_err(|error| StageError::io("set the length of", path, error))?;
        }
        for index in self.done.keys().filter(|index| **index < self.digests.len() as u64) {
            let range = self.chunk(*index);
            self.progress.bytes_written.fetch_add(range.end - range.start, Relaxed);
            self.progress.bytes_verified.fetch_add(range.end - range.start, Relaxed);
        }
        // A file that was empty has nothing but holes, whether or not its file system tells of them.
        if size > 0 { self.clear_holes() } else { Ok(()) }
    }

    /// Takes away what an earlier attempt has left in chunks that are copied anew, where the source has holes. It is not
    /// looked for: it was not synced, and unsynced data may be reported as a hole.
    fn clear_holes(&mut self) -> Result<(), StageError> {
        if self.holes.is_none() {
            return Ok(());
        }
        let count = self.digests.len() as u64;
        let mut index = 0;
        while index < count {
            let first = index;
            while index < count && !self.done.contains_key(&index) {
                index += 1;
            }
            if first < index {
                let run = self.chunk(first).start..self.chunk(index - 1).end;
                if !self.destination.punch(&run)? {
                    self.whole.extend(first..index);
                }
            }
            index += 1;
        }
        Ok(())
    }

    fn chunk(&self, index: u64) -> Range<u64> {
        chunk(index, self.config.chunk_bytes, self.file.bytes)
    }

    /// Copies all of it.
    pub fn run(
        &mut self,
        sealed: &mut Sealed<'_>,
        written: &mut dyn FnMut(),
    ) -> Result<Vec<Digest>, StageError> {
        let mut writing = true;
        loop {
            self.stop.check()?;
            while let Some(completion) =
                self.port.poll().map_err(|error| broken(self.destination.path, error))?
            {
                self.complete(completion, sealed)?;
            }
            self.sync_if_due()?;
            if writing && self.all_is_written() {
                writing = false;
                written();
            }
            if self.begin(sealed)? {
                continue;
            }
            match self.port.next().map_err(|error| broken(self.destination.path, error))? {
                Some(completion) => self.complete(completion, sealed)?,
                None => break,
            }
        }
        self.conclude()
    }

    /// Everything has been done, or something was forgotten.
    fn conclude(&mut self) -> Result<Vec<Digest>, StageError> {
        assert!(
            self.next == self.digests.len() as u64
                && self.written.items.is_empty()
                && self.syncing.is_none()
                && self.unverified.is_empty()
                && self.durable.is_empty()
                && self.overhanging.is_none(),
            "a copy ends when every chunk has been reported"
        );
        let (path, fd) = (self.destination.path, self.destination.fd());
        let size = calls::stat(fd).map_err(|error| StageError::io("stat", path, error))?.stx_size;
        if size != self.file.bytes {
            let why = format!("it is {size} bytes long, and {} were copied", self.file.bytes);
            return Err(StageError::io("keep the length of", path, io::Error::other(why)));
        }
        Ok(self.digests.iter().map(|digest| digest.expect("every chunk was copied")).collect())
    }

    /// Begins one thing, if there is one that can be begun.
    fn begin(&mut self, sealed: &mut Sealed<'_>) -> Result<bool, StageError> {
        while self.next < self.digests.len() as u64 && self.done.contains_key(&self.next) {
            self.next += 1;
        }
        let more = self.next < self.digests.len() as u64;
        if let Some((item, group)) = self.unverified.front().copied() {
            let range = self.chunk(item.index);
            if item.hole && self.kept.is_hole(self.destination.fd(), &range)? {
                self.unverified.pop_front();
                self.verified(item, group, sealed)?;
                return Ok(true);
            }
            let share = (self.steps.len() as u32 / 2).max(1);
            if (self.verifying < share || !more)
                && let Some(slot) = self.idle.pop()
            {
                self.unverified.pop_front();
                self.verifying += 1;
                self.steps[slot as usize] = Step::Verify { item, group };
                self.launch(slot)?;
                return Ok(true);
            }
        }
        if more { self.begin_chunk() } else { Ok(false) }
    }

    /// Begins the next chunk.
    fn begin_chunk(&mut self) -> Result<bool, StageError> {
        let index = self.next;
        let range = self.chunk(index);
        let length = range.end - range.start;
        let mut pieces = None;
        if let Some(holes) = &mut self.holes
            && !self.whole.contains(&index)
        {
            if holes.is_hole(self.source.fd(), &range)? {
                if self.syncing.is_some() && self.written.items.len() >= MOST_CHUNKS {
                    return Ok(false);
                }
                let digest = self.zeros.of(self.file.algorithm, length);
                self.next += 1;
                self.progress.bytes_written.fetch_add(length, Relaxed);
                self.collect(Item { index, digest, hole: true }, 0);
                return Ok(true);
            }
            if self.idle.is_empty() {
                return Ok(false);
            }
            let grain = u64::from(self.destination.alignment()).max(PAGE);
            pieces = Some(VecDeque::from(holes.data_in(self.source.fd(), &range, grain)?));
        }
        let Some(slot) = self.idle.pop() else { return Ok(false) };
        // A read and a write.
        self.pace.admit(length, 2, self.stop);
        self.stop.check()?;
        self.next += 1;
        self.copying += 1;
        self.steps[slot as usize] = Step::Read { index, pieces };
        self.launch(slot)?;
        Ok(true)
    }

    /// Makes the request of the step that a slot is at.
    fn launch(&mut self, slot: u32) -> Result<(), StageError> {
        loop {
            let (op, index, piece) = match &self.steps[slot as usize] {
                Step::Idle => return Ok(()),
                Step::Read { index, .. } => (Op::Read, *index, self.chunk(*index)),
                Step::Write { index, pieces, .. } => {
                    (Op::Write, *index, pieces.front().cloned().expect("there is something to write"))
                }
                Step::Verify { item, .. } => (Op::Read, item.index, self.chunk(item.index)),
            };
            let side = match &self.steps[slot as usize] {
                Step::Read { .. } => &self.source,
                _ => &self.destination,
            };
            if matches!(self.steps[slot as usize], Step::Verify { .. }) {
                side.forget(&piece);
            }
            let (within, direct) = ((piece.start - self.chunk(index).start) as u32, side.is_direct());
            if op == Op::Write && piece.end.next_multiple_of(u64::from(side.alignment())) > self.file.bytes {
                self.overhangs = true;
            }
            match self.port.start(side, op, slot, within, &piece) {
                Ok(()) => return Ok(()),
                Err(error) => self.refused(slot, direct, RequestError::Os(error.into()))?,
            }
        }
    }

    /// A request failed. Where direct ones are refused, the next goes through the page cache; otherwise the copy ends.
    fn refused(&mut self, slot: u32, direct: bool, error: RequestError) -> Result<(), StageError> {
        let side = match &self.steps[slot as usize] {
            Step::Read { .. } => &mut self.source,
            _ => &mut self.destination,
        };
        if direct && is_refusal(&error) {
            side.give_up_direct();
            return Ok(());
        }
        match &self.steps[slot as usize] {
            Step::Read { index, .. } => {
                let offset = index * self.config.chunk_bytes;
                match error {
                    RequestError::Short { transferred } => {
                        let how = format!(
                            "it ends at {}, and {} bytes were expected",
                            offset + transferred,
                            self.file.bytes
                        );
                        Err(StageError::SourceChanged { path: shown(self.file.source_path), how })
                    }
                    error => Err(failed("read", self.file.source_path, offset, error)),
                }
            }
            Step::Write { index, pieces, .. } => {
                let offset = pieces.front().map_or(index * self.config.chunk_bytes, |piece| piece.start);
                Err(failed("write", self.file.destination_path, offset, error))
            }
            Step::Verify { item, .. } => {
                let offset = item.index * self.config.chunk_bytes;
                Err(failed("read back", self.file.destination_path, offset, error))
            }
            Step::Idle => unreachable!("an idle slot has no request"),
        }
    }

    /// A request has completed.
    fn complete(&mut self, completion: Completion, sealed: &mut Sealed<'_>) -> Result<(), StageError> {
        match completion {
            Completion::Sync(result) => {
                let path = self.destination.path;
                result.map_err(|error| StageError::sync("fdatasync", path, error))?;
                self.synced();
                Ok(())
            }
            Completion::Slot(slot, direct, Err(error)) => {
                self.refused(slot, direct, error)?;
                self.launch(slot)
            }
            Completion::Slot(slot, _, Ok(_)) => {
                match std::mem::replace(&mut self.steps[slot as usize], Step::Idle) {
                    Step::Idle => unreachable!("an idle slot has no request"),
                    Step::Read { index, pieces } => self.write(slot, index, pieces),
                    Step::Write { index, digest, mut pieces } => {
                        pieces.pop_front();
                        if !pieces.is_empty() {
                            self.steps[slot as usize] = Step::Write { index, digest, pieces };
                            return self.launch(slot);
                        }
                        self.idle.push(slot);
                        self.copying -= 1;
                        self.was_written(Item { index, digest, hole: false });
                        Ok(())
                    }
                    Step::Verify { item, group } => {
                        let range = self.chunk(item.index);
                        let bytes = &self.port.buffer(slot)[..(range.end - range.start) as usize];
                        let found = self.file.algorithm.of(bytes);
                        self.idle.push(slot);
                        self.verifying -= 1;
                        if !self.destination.is_direct() {
                            self.destination.forget(&range);
                        }
                        let path = self.file.destination_path;
                        compare(path, self.file.algorithm, range.start, item.digest, found)?;
                        self.verified(item, group, sealed)
                    }
                }
            }
        }
    }

    /// A chunk has been read: digests it and begins to write it.
    fn write(
        &mut self,
        slot: u32,
        index: u64,
        pieces: Option<VecDeque<Range<u64>>>,
    ) -> Result<(), StageError> {
        let range = self.chunk(index);
        let length = (range.end - range.start) as usize;
        let padded = length.next_multiple_of(self.destination.alignment() as usize);
        let buffer = self.port.buffer_mut(slot);
        buffer[length..padded].fill(0);
        let digest = self.file.algorithm.of(&buffer[..length]);
        let pieces = pieces.unwrap_or_else(|| VecDeque::from([range]));
        self.steps[slot as usize] = Step::Write { index, digest, pieces };
        self.launch(slot)
    }

    /// All of a chunk has been written.
    fn was_written(&mut self, item: Item) {
        let range = self.chunk(item.index);
        self.progress.bytes_written.fetch_add(range.end - range.start, Relaxed);
        if !self.destination.is_direct() {
            // So that the sync finds little to do.
            calls::begin_writeback(self.destination.fd());
        }
        if self.overhangs && range.end == self.file.bytes {
            self.overhanging = Some(item);
        } else {
            self.collect(item, range.end - range.start);
        }
    }

    fn collect(&mut self, item: Item, bytes: u64) {
        self.digests[item.index as usize] = Some(item.digest);
        self.written.items.push(item);
        self.written.bytes += bytes;
        self.written.since.get_or_insert_with(Instant::now);
    }

    fn all_is_written(&self) -> bool {
        self.next == self.digests.len() as u64 && self.copying == 0
    }

    /// Begins to make a group durable, if it is time to.
    fn sync_if_due(&mut self) -> Result<(), StageError> {
        if self.syncing.is_some() {
            return Ok(());
        }
        let last = self.all_is_written();
        if last && let Some(item) = self.overhanging.take() {
            // No write of ours is under way: a file's length is set when its direct writes have completed, and some kernels
            // (6.6) have this very thread end them.
            let (path, fd) = (self.destination.path, self.destination.fd());
            calls::truncate(fd, self.file.bytes)
                .map_err(|error| StageError::io("set the length of", path, error))?;
            self.collect(item, 0);
        }
        let group = &self.written;
        let Some(since) = group.since else { return Ok(()) };
        let (bytes, age) = (group.bytes, since.elapsed());
        let due = last
            || bytes >= self.config.group_bytes
            || (bytes >= LEAST_GROUP && age >= LEAST_TIME)
            || group.items.len() >= MOST_CHUNKS
            || age >= self.config.group_time;
        if due {
            let path = self.destination.path;
            let started = self.port.start_sync(&self.destination);
            let started = started.map_err(|error| StageError::sync("fdatasync", path, error))?;
            self.syncing = Some(std::mem::take(&mut self.written));
            if !started {
                self.synced();
            }
        }
        Ok(())
    }

    /// A group is durable; now it is read back.
    fn synced(&mut self) {
        let Some(mut group) = self.syncing.take() else { return };
        group.items.sort_unstable_by_key(|item| item.index);
        let number = self.groups;
        self.groups += 1;
        let chunks = group.items.iter().map(|item| (item.index, item.digest)).collect();
        self.durable.insert(number, Durable { chunks, unverified: group.items.len() });
        self.unverified.extend(group.items.into_iter().map(|item| (item, number)));
        self.kept = Holes::new(self.file.destination_path, self.file.bytes);
    }

    /// A chunk is right. With the last of its group the group is reported.
    fn verified(&mut self, item: Item, group: u64, sealed: &mut Sealed<'_>) -> Result<(), StageError> {
        let range = self.chunk(item.index);
        self.progress.bytes_verified.fetch_add(range.end - range.start, Relaxed);
        let durable = self.durable.get_mut(&group).expect("its group is not reported yet");
        durable.unverified -= 1;
        if durable.unverified == 0
            && let Some(durable) = self.durable.remove(&group)
        {
            sealed(&durable.chunks)?;
        }
        Ok(())
    }
}
