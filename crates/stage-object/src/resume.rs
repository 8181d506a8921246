//! What a drain or a fetch records in the journal, so that one that was killed resumes.
//!
//! A file that is stored, or fetched, and was read back is an entry of the job, as a copied file of a directory's move is.
//! An entry of a drain has the ETag of its object ([`Done::object`]); one of a fetch has the identity of the copy.
//!
//! Of large files under way there are notes, which are only ever added, so that ten thousand parts cost as many bytes of
//! journal as there are of them, and not the square of it:
//!
//! - `object/upload/KEY`: that a file is being uploaded by parts, under which identifier, in parts of which size;
//! - `object/upload/KEY/N`: parts that the store has taken, with what it calls them and the digests of their chunks;
//! - `object/fetch/KEY`: that a large file is being fetched, into which inode;
//! - `object/fetch/KEY/N`: chunks of it that came as the manifest has them, were written and synced.
//!
//! A note that cannot be read counts as absent: the file is uploaded or fetched again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use stage::digest::Digest;
use stage::error::StageError;
use stage::journal::{Done, Entries, Identity, Journal};
use stage::tier::Run;

/// The journal's records of one job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ledger<'a> {
    journal: &'a Journal,
    of: Entries,
}

impl<'a> Ledger<'a> {
    pub fn new(journal: &'a Journal, of: impl Into<Entries>) -> Self {
        Self { journal, of: of.into() }
    }

    pub fn of(run: &Run<'a>) -> Self {
        Self::new(run.journal, run.entries())
    }

    /// The note with this key.
    pub fn load(&self, key: &str) -> Result<Option<Vec<u8>>, StageError> {
        self.journal.note(self.of.job, key)
    }

    /// Replaces the note with this key, durably.
    pub fn save(&self, key: &str, value: &[u8]) -> Result<(), StageError> {
        self.journal.keep_note(self.of.job, key, value)
    }

    /// What is recorded of a path.
    pub fn entry(&self, path: &Path) -> Result<Option<Done>, StageError> {
        self.journal.entry(self.of, path)
    }

    /// Calls `see` with every entry.
    pub fn each(&self, see: &mut dyn FnMut(Done) -> Result<(), StageError>) -> Result<(), StageError> {
        self.journal.every_entry(self.of).try_for_each(|done| see(done?))
    }

    /// Records entries, durably.
    pub fn record(&self, done: &[Done]) -> Result<(), StageError> {
        self.journal.record(self.of, done)
    }
}

/// Files are recorded when there are this many, or when the first of them has waited for [`RECORDED_EVERY`].
const RECORDED_AT_ONCE: usize = 256;
/// See [`RECORDED_AT_ONCE`].
const RECORDED_EVERY: Duration = Duration::from_secs(5);

/// Files on their way into the journal, from several threads.
pub(super) struct Recorder<'a> {
    ledger: Ledger<'a>,
    /// Files that are not recorded yet, and since when there are any.
    waiting: Mutex<(Vec<Done>, Instant)>,
}

impl<'a> Recorder<'a> {
    pub fn new(ledger: Ledger<'a>) -> Self {
        Self { ledger, waiting: Mutex::new((Vec::new(), Instant::now())) }
    }

    /// Adds a file. It is durable after [`Self::flush`] at the latest.
    pub fn add(&self, done: Done) -> Result<(), StageError> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (files, since) = &mut *waiting;
        if files.is_empty() {
            *since = Instant::now();
        }
        files.push(done);
        if files.len() >= RECORDED_AT_ONCE || since.elapsed() >= RECORDED_EVERY {
            self.ledger.record(&std::mem::take(files))?;
        }
        Ok(())
    }

    /// Records all that was added.
    pub fn flush(&self) -> Result<(), StageError> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.ledger.record(&std::mem::take(&mut waiting.0))
    }
}

/// An upload by parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Upload {
    /// What the store calls it; empty for one that was given up.
    pub id: String,
    pub identity: Identity,
    pub part_bytes: u64,
}

/// A part that the store has taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub number: u64,
    pub content_id: String,
    pub chunks: Vec<Digest>,
}

#[derive(Serialize, Deserialize)]
struct Parts {
    id: String,
    parts: Vec<Part>,
}

/// The notes of one upload.
pub(super) struct UploadLog<'a> {
    ledger: Ledger<'a>,
    key: String,
    next: u64,
}

impl<'a> UploadLog<'a> {
    /// `key` is the object's, beneath the set.
    pub fn new(ledger: Ledger<'a>, key: &str) -> Self {
        Self { ledger, key: format!("object/upload/{key}"), next: 0 }
    }

    /// The upload that was under way, with the parts that it has.
    pub fn load(&mut self) -> Result<Option<(Upload, Vec<Part>)>, StageError> {
        let Some(upload) = self.ledger.load(&self.key)? else { return Ok(None) };
        let Ok(upload) = serde_json::from_slice::<Upload>(&upload) else { return Ok(None) };
        if upload.id.is_empty() {
            return Ok(None);
        }
        let mut parts = Vec::new();
        self.next = 0;
        // Pieces of an upload that was given up may follow: they have its identifier.
        while let Some(piece) = self.ledger.load(&format!("{}/{}", self.key, self.next))? {
            match serde_json::from_slice::<Parts>(&piece) {
                Ok(piece) if piece.id == upload.id => parts.extend(piece.parts),
                _ => break,
            }
            self.next += 1;
        }
        Ok(Some((upload, parts)))
    }

    /// A new upload, in place of any that was.
    pub fn begin(&mut self, upload: &Upload) -> Result<(), StageError> {
        self.next = 0;
        self.ledger.save(&self.key, &json(upload))
    }

    /// More parts.
    pub fn add(&mut self, id: &str, parts: Vec<Part>) -> Result<(), StageError> {
        if parts.is_empty() {
            return Ok(());
        }
        self.ledger
            .save(&format!("{}/{}", self.key, self.next), &json(&Parts { id: id.to_owned(), parts }))?;
        self.next += 1;
        Ok(())
    }

    /// There is no such upload any more.
    pub fn forget(&mut self, upload: &Upload) -> Result<(), StageError> {
        self.ledger.save(&self.key, &json(&Upload { id: String::new(), ..upload.clone() }))
    }
}

/// A file that is being fetched.
#[derive(Serialize, Deserialize)]
struct Fetching {
    /// This copy's, so that what was noted of another, in an inode of the same number, is not taken for it.
    id: String,
    /// Where it is.
    ino: u64,
}

#[derive(Serialize, Deserialize)]
struct Chunks {
    id: String,
    chunks: Vec<u64>,
}

/// The notes of one large file that is being fetched.
pub(super) struct ChunkLog<'a> {
    ledger: Ledger<'a>,
    key: String,
    id: String,
    next: u64,
}

impl<'a> ChunkLog<'a> {
    /// `path` is the file's in the set.
    pub fn new(ledger: Ledger<'a>, path: &std::path::Path) -> Self {
        let key = format!("object/fetch/{}", stage::keys::of_path(path));
        Self { ledger, key, id: String::new(), next: 0 }
    }

    /// The chunks that are in the file with this inode.
    pub fn load(&mut self, ino: u64) -> Result<BTreeSet<u64>, StageError> {
        let mut have = BTreeSet::new();
        let Some(begun) = self.ledger.load(&self.key)? else { return Ok(have) };
        let Ok(begun) = serde_json::from_slice::<Fetching>(&begun) else { return Ok(have) };
        if begun.id.is_empty() || begun.ino != ino {
            return Ok(have);
        }
        (self.id, self.next) = (begun.id, 0);
        while let Some(piece) = self.ledger.load(&format!("{}/{}", self.key, self.next))? {
            match serde_json::from_slice::<Chunks>(&piece) {
                Ok(piece) if piece.id == self.id => have.extend(piece.chunks),
                _ => break,
            }
            self.next += 1;
        }
        Ok(have)
    }

    /// A new copy, in this inode, in place of any that was.
    pub fn begin(&mut self, id: String, ino: u64) -> Result<(), StageError> {
        (self.id, self.next) = (id.clone(), 0);
        self.ledger.save(&self.key, &json(&Fetching { id, ino }))
    }

    /// More chunks.
    pub fn add(&mut self, chunks: Vec<u64>) -> Result<(), StageError> {
        if chunks.is_empty() {
            return Ok(());
        }
        let piece = Chunks { id: self.id.clone(), chunks };
        self.ledger.save(&format!("{}/{}", self.key, self.next), &json(&piece))?;
        self.next += 1;
        Ok(())
    }

    /// What was noted is not true.
    pub fn forget(&mut self) -> Result<(), StageError> {
        self.ledger.save(&self.key, &json(&Fetching { id: String::new(), ino: 0 }))
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these have no keys but strings, and no floats")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Scratch;
    use stage::digest::Algorithm;

    fn upload(id: &str) -> Upload {
        let identity = Identity { ino: 7, size: 9, mtime: (1, 2), ctime: (3, 4), nlink: 1 };
        Upload { id: id.to_owned(), identity, part_bytes: 8 << 20 }
    }

    fn part(number: u64) -> Part {
        Part { number, content_id: format!("tag{number}"), chunks: vec![Algorithm::Xxh3.of(&[number as u8])] }
    }

    #[test]
    fn parts_of_an_upload_that_was_given_up_are_not_those_of_the_next() {
        let journal = Scratch::new();
        let notes = journal.ledger();
        let mut log = UploadLog::new(notes, "k");
        log.begin(&upload("one")).unwrap();
        log.add("one", vec![part(0)]).unwrap();
        log.add("one", vec![part(1), part(2)]).unwrap();
        assert_eq!(UploadLog::new(notes, "k").load().unwrap().unwrap().1, [part(0), part(1), part(2)]);
        log.begin(&upload("two")).unwrap();
        assert_eq!(UploadLog::new(notes, "k").load().unwrap().unwrap(), (upload("two"), vec![]));
        log.add("two", vec![part(5)]).unwrap();
        assert_eq!(UploadLog::new(notes, "k").load().unwrap().unwrap(), (upload("two"), vec![part(5)]));
        log.forget(&upload("two")).unwrap();
        assert_eq!(UploadLog::new(notes, "k").load().unwrap(), None);
    }

    #[test]
    fn chunks_of_a_copy_that_is_gone_are_not_those_of_the_next_in_the_same_inode() {
        let journal = Scratch::new();
        let notes = journal.ledger();
        let path = std::path::Path::new("a/b");
        let mut log = ChunkLog::new(notes, path);
        log.begin("one".to_owned(), 7).unwrap();
        log.add(vec![0, 1]).unwrap();
        log.add(vec![5]).unwrap();
        let load = |ino| ChunkLog::new(notes, path).load(ino).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!((load(7), load(8)), (vec![0, 1, 5], vec![]));
        log.begin("two".to_owned(), 7).unwrap();
        log.add(vec![3]).unwrap();
        assert_eq!(load(7), [3], "a piece of the first one follows");
        log.forget().unwrap();
        assert_eq!(load(7), Vec::<u64>::new());
    }
}
