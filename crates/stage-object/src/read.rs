//! Reading objects back: all of one, range by range, several ranges at once, each digested as it comes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path as Key;

use super::lanes::{Halt, STOP_CHECK_INTERVAL, Share};
use super::store::Store;
use super::{ObjectSet, StoreError, WINDOW};
use stage::digest::{Algorithm, Digest, Hasher};
use stage::error::StageError;
use stage::pace::Pace;

/// An object that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    pub chunks: Vec<Digest>,
    pub e_tag: Option<String>,
}

/// What takes a chunk: its offset, its bytes' number, and the bytes in pieces.
pub(super) type Sink<'a> = dyn FnMut(u64, u64, &[Bytes]) -> Result<(), StageError> + 'a;

/// An object, and what of it is to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub key: &'a Key,
    pub size: u64,
    pub chunk_bytes: u64,
    pub algorithm: Algorithm,
    /// Chunks that are not read.
    pub have: Option<&'a BTreeSet<u64>>,
}

impl Wanted<'_> {
    /// Where a chunk is.
    fn range(&self, number: u64) -> Range<u64> {
        let start = number * self.chunk_bytes;
        start..self.size.min(start + self.chunk_bytes)
    }
}

/// One range, read.
struct Piece {
    digest: Digest,
    e_tag: Option<String>,
    /// Bytes of the whole object, as the store says.
    size: u64,
    /// Empty where only the digest is wanted.
    bytes: Vec<Bytes>,
    _share: Option<Share>,
}

/// Tasks that are ended when this is dropped.
pub(super) struct Tasks(Vec<tokio::task::AbortHandle>);

impl Tasks {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// One more. Those that have ended are let go of, for a handle keeps its task's memory.
    pub fn push(&mut self, task: tokio::task::AbortHandle) {
        if self.0.len() >= 2 * WINDOW {
            self.0.retain(|task| !task.is_finished());
        }
        self.0.push(task);
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// The next message of a task, or an error if it is time to stop.
pub(super) fn receive<T>(from: &Receiver<T>, halt: &Halt<'_>) -> Result<T, StageError> {
    loop {
        match from.recv_timeout(STOP_CHECK_INTERVAL) {
            Ok(message) => return Ok(message),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => halt.check()?,
            // Each task sends, or panics, which is told where it happens.
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                return Err(StageError::Stopped { what: "a request ended without an answer".to_owned() });
            }
        }
    }
}

async fn fetch(
    store: &dyn Store,
    key: Key,
    range: Option<Range<u64>>,
    algorithm: Algorithm,
    share: Option<Share>,
) -> object_store::Result<Piece> {
    let most = range.as_ref().map(|range| range.end - range.start);
    let answer = store.get(key, range).await?;
    let (e_tag, size) = (answer.meta.e_tag.clone(), answer.meta.size);
    let most = most.unwrap_or(size);
    let mut stream = answer.into_stream();
    let (mut hasher, mut bytes, mut read) = (Hasher::new(algorithm), Vec::new(), 0);
    while let Some(piece) = stream.try_next().await? {
        read += piece.len() as u64;
        if read > most {
            // Its digest will not be right, and no more of it is taken into memory.
            break;
        }
        hasher.update(&piece);
        if share.is_some() {
            bytes.push(piece);
        }
    }
    Ok(Piece { digest: hasher.finish(), e_tag, size, bytes, _share: share })
}

impl ObjectSet {
    /// Reads an object and returns its digests. Its size must be the one that is expected; `expected` digests, where
    /// there are any, must be those that are found.
    pub(super) fn read_back(
        &self,
        wanted: &Wanted<'_>,
        expected: Option<&[Digest]>,
        pace: &dyn Pace,
        halt: &Halt<'_>,
        seen: &dyn Fn(u64),
    ) -> Result<Read, StageError> {
        self.read(wanted, expected, halt, pace, false, &mut |_, bytes, _| {
            seen(bytes);
            Ok(())
        })
    }

    /// Reads an object and hands its chunks on, in any order, with their offsets, once their digests are right; with
    /// `keep`, their bytes as well. Every chunk is asked for at `pace` first.
    #[allow(clippy::too_many_arguments, reason = "what a reading consists of")]
    pub(super) fn read(
        &self,
        wanted: &Wanted<'_>,
        expected: Option<&[Digest]>,
        halt: &Halt<'_>,
        pace: &dyn Pace,
        keep: bool,
        sink: &mut Sink<'_>,
    ) -> Result<Read, StageError> {
        let count = wanted.size.div_ceil(wanted.chunk_bytes).max(1) as usize;
        let mut chunks = vec![Digest([0; 32]); count];
        let mut e_tag: Option<Option<String>> = None;
        let (send, receive_from) = channel();
        let mut tasks = Tasks::new();
        let (mut next, mut under_way) = (0, 0);
        let is_had = |number: usize| wanted.have.is_some_and(|have| have.contains(&(number as u64)));
        loop {
            while next < count && is_had(next) {
                next += 1;
            }
            if next >= count && under_way == 0 {
                break;
            }
            if next < count && under_way < WINDOW {
                halt.check()?;
                let range = wanted.range(next as u64);
                let bytes = range.end - range.start;
                // A reader that holds pieces in memory takes them before it waits for more room.
                let share = match keep {
                    false => Some(None),
                    true if under_way == 0 => Some(Some(self.budget.take(bytes, halt)?)),
                    true => self.budget.try_take(bytes).map(Some),
                };
                if let Some(share) = share {
                    pace.admit(bytes, 1, halt.stop);
                    halt.check()?;
                    tasks.push(self.request(wanted, next as u64, share, &send));
                    next += 1;
                    under_way += 1;
                    continue;
                }
            }
            let (number, piece): (u64, object_store::Result<Piece>) = receive(&receive_from, halt)?;
            under_way -= 1;
            let piece = match piece {
                Ok(piece) => piece,
                Err(object_store::Error::NotFound { .. }) => {
                    return Err(self.misfit(wanted, "no object".to_owned()));
                }
                Err(error) => return Err(self.failed(wanted.key, "read", &error)),
            };
            self.check(wanted, number, &piece, expected, &mut e_tag)?;
            chunks[number as usize] = piece.digest;
            let range = wanted.range(number);
            sink(range.start, range.end - range.start, &piece.bytes)?;
        }
        Ok(Read { chunks, e_tag: e_tag.flatten() })
    }

    /// Asks for a chunk; the answer is sent. Its bytes are kept where they have a share of the memory.
    fn request(
        &self,
        wanted: &Wanted<'_>,
        number: u64,
        share: Option<Share>,
        send: &Sender<(u64, object_store::Result<Piece>)>,
    ) -> tokio::task::AbortHandle {
        // A range of nothing is an error to servers, and one that is everything need not be said.
        let range = (wanted.size > wanted.chunk_bytes).then(|| wanted.range(number));
        let (store, key, algorithm) =
            (std::sync::Arc::clone(&self.store), wanted.key.clone(), wanted.algorithm);
        let send = send.clone();
        let task = self.runtime().spawn(async move {
            let piece = fetch(&*store, key, range, algorithm, share).await;
            // The receiver is gone if the read has failed elsewhere.
            let _ = send.send((number, piece));
        });
        task.abort_handle()
    }

    fn check(
        &self,
        wanted: &Wanted<'_>,
        number: u64,
        piece: &Piece,
        expected: Option<&[Digest]>,
        e_tag: &mut Option<Option<String>>,
    ) -> Result<(), StageError> {
        let peer = || self.shown(wanted.key);
        if piece.size != wanted.size {
            return Err(self.misfit(wanted, format!("{} bytes", piece.size)));
        }
        if *e_tag.get_or_insert_with(|| piece.e_tag.clone()) != piece.e_tag {
            let what = "it was replaced while it was read (its ETag is another)".to_owned();
            return Err(StoreError { object: peer(), what, hint: None }.into());
        }
        let Some(expected) = expected else { return Ok(()) };
        let right = expected.get(number as usize).copied().unwrap_or(Digest([0; 32]));
        if right != piece.digest {
            return Err(StageError::Corrupt {
                path: peer(),
                offset: number * wanted.chunk_bytes,
                expected: right.text(wanted.algorithm),
                found: piece.digest.text(wanted.algorithm),
            });
        }
        Ok(())
    }

    /// The object is not there, or of another size.
    fn misfit(&self, wanted: &Wanted<'_>, found: String) -> StageError {
        let expected = format!("{} bytes", wanted.size);
        StageError::Corrupt { path: self.shown(wanted.key), offset: 0, expected, found }
    }
}
