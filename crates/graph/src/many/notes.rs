//! What searches find, on temporary space while they run: which vertex was found from which, by which of them.
//!
//! ```text
//! ALL_ONES 0 SEARCHES          a round begins in which these searches take part
//! VERTEX FROM SEARCHES         found by these searches in this round
//! ```
//!
//! Records of 16 bytes. The level of a vertex in a search is the number of rounds until then in which the search took part. Threads
//! collect records in batches; one thread writes them, for an engine stays on the thread that made it. A round's batches are handed
//! over before the next begins.

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use external::{ExternalError, Space, Stream, StreamWriter};

use super::MOST_SOURCES;
use crate::GraphError;

/// Vertex, the vertex it was found from, and the searches' lower and upper bits.
pub(super) type Note = [u32; 4];

/// The vertex that begins a round. No graph that is searched has one of this number.
const ROUND: u32 = u32::MAX;
/// Records of a batch.
const BATCH: usize = 4096;
/// Batches that wait to be written.
const WAITING: usize = 2;
/// Blocks of the stream: one that is filled, two that are being written.
const WRITE_BLOCKS: u32 = 3;

/// Bytes of memory while `threads` threads search.
pub(super) fn memory_bytes(threads: usize, space_block: u64) -> u64 {
    let batches = (threads + WAITING + 1) as u64 * (BATCH * size_of::<Note>()) as u64;
    batches + u64::from(WRITE_BLOCKS) * space_block
}

fn split(searches: u64) -> [u32; 2] {
    [searches as u32, (searches >> 32) as u32]
}

/// The searches of a record.
fn joined(note: &Note) -> u64 {
    u64::from(note[2]) | u64::from(note[3]) << 32
}

/// Takes batches from all threads.
#[derive(Debug)]
pub(super) struct Recorder(SyncSender<Vec<Note>>);

impl Recorder {
    /// A round begins in which `searches` take part.
    pub fn begin_round(&self, searches: u64) -> Result<(), GraphError> {
        let [low, high] = split(searches);
        self.send(vec![[ROUND, 0, low, high]])
    }

    fn send(&self, batch: Vec<Note>) -> Result<(), GraphError> {
        // The writer has ended, and says why: that is told in place of this.
        self.0.send(batch).map_err(|_| ExternalError::Poisoned { what: "recording what is found" }.into())
    }
}

/// Runs `work` with a recorder on `space`; what was recorded.
pub(super) fn record<T>(
    space: &Space,
    work: impl FnOnce(&Recorder) -> Result<T, GraphError>,
) -> Result<(T, Stream<Note>), GraphError> {
    let (sender, batches) = sync_channel(WAITING);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(space, batches));
        let result = work(&Recorder(sender));
        let written = writer.join().expect("a writing thread does not panic");
        // Where both failed, the writer's failure is the cause.
        let stream = written?;
        Ok((result?, stream))
    })
}

fn write(space: &Space, batches: Receiver<Vec<Note>>) -> Result<Stream<Note>, ExternalError> {
    let mut writer = StreamWriter::new(space, WRITE_BLOCKS);
    for batch in batches {
        writer.push_slice(&batch)?;
    }
    writer.finish()
}

/// One thread's notes of a round; without a recorder nothing is noted.
#[derive(Debug)]
pub(super) struct Notes<'a> {
    recorder: Option<&'a Recorder>,
    batch: RefCell<Vec<Note>>,
    has_failed: Cell<bool>,
}

impl<'a> Notes<'a> {
    pub fn to(recorder: Option<&'a Recorder>) -> Self {
        Self { recorder, batch: RefCell::default(), has_failed: Cell::new(false) }
    }

    /// `searches` have found `vertex` from `from`.
    #[inline]
    pub fn add(&self, vertex: u32, from: u32, searches: u64) {
        if searches != 0
            && let Some(recorder) = self.recorder
        {
            self.push(recorder, vertex, from, searches);
        }
    }

    fn push(&self, recorder: &Recorder, vertex: u32, from: u32, searches: u64) {
        let mut batch = self.batch.borrow_mut();
        if batch.capacity() == 0 {
            batch.reserve_exact(BATCH);
        }
        let [low, high] = split(searches);
        batch.push([vertex, from, low, high]);
        if batch.len() == BATCH && recorder.send(std::mem::take(&mut *batch)).is_err() {
            self.has_failed.set(true);
        }
    }

    /// Hands over what is left.
    pub fn finish(self) -> Result<(), GraphError> {
        let batch = self.batch.into_inner();
        match self.recorder {
            _ if self.has_failed.get() => {
                Err(ExternalError::Poisoned { what: "recording what is found" }.into())
            }
            Some(recorder) if !batch.is_empty() => recorder.send(batch),
            _ => Ok(()),
        }
    }
}

/// Follows the records: how many rounds each search has taken part in.
#[derive(Debug)]
pub(super) struct Rounds([u32; MOST_SOURCES]);

impl Rounds {
    pub fn new() -> Self {
        Self([0; MOST_SOURCES])
    }

    /// The searches of a record, if it is of a vertex; the levels are then those of [`level`](Self::level).
    #[inline]
    pub fn next(&mut self, note: &Note) -> Option<u64> {
        let searches = joined(note);
        if note[0] != ROUND {
            return Some(searches);
        }
        super::ones(searches).for_each(|search| self.0[search] += 1);
        None
    }

    /// The level of what a search finds in this round.
    #[inline]
    pub fn level(&self, search: usize) -> u32 {
        self.0[search]
    }
}
