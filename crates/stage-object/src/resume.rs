//! What a drain or a fetch remembers, so that one that died goes on where it was.
//!
//! Small pieces that are only ever added, so that a million files or ten thousand parts cost as many bytes of journal
//! as there are of them, and not the square of it:
//!
//! - `object/done/N`: files that are stored and were read back, with the state of the source they were read in, the
//!   digests of their chunks, and the ETag of what was read back;
//! - `object/upload/KEY`: that a file is being uploaded by parts, under which identifier, in parts of which size;
//! - `object/upload/KEY/N`: parts that the store has taken, with what it calls them and the digests of their chunks;
//! - `object/got/N`: files that were fetched, synced and read back, with the state of the copy when that was done;
//! - `object/fetch/KEY`: that a large file is being fetched, into which inode;
//! - `object/fetch/KEY/N`: chunks of it that came as the manifest has them, were written and synced.
//!
//! A piece that cannot be read is a piece that is not there: the file is uploaded again.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use stage::digest::Digest;
use stage::error::StageError;
use stage::journal::Identity;
use stage::names::PathText;

/// Where a drain keeps what it remembers: notes by a key, of one job.
pub trait Resume: Send + Sync {
    /// What was saved under this key, if anything was.
    ///
    /// # Errors
    /// The journal's.
    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, StageError>;

    /// Saves it, durably when this returns, in place of what was there.
    ///
    /// # Errors
    /// The journal's.
    fn save(&self, key: &str, value: &[u8]) -> Result<(), StageError>;
}

/// Notes in memory, for those who need no resuming.
#[derive(Debug, Default)]
pub struct Forgetful(Mutex<HashMap<String, Vec<u8>>>);

impl Resume for Forgetful {
    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, StageError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned())
    }

    fn save(&self, key: &str, value: &[u8]) -> Result<(), StageError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), value.to_vec());
        Ok(())
    }
}

/// A file that is stored and was read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub path: PathText,
    /// The source, when it was read.
    pub identity: Identity,
    /// Of the object that was read back; none where the store has none.
    pub e_tag: Option<String>,
    pub chunks: Vec<Digest>,
}

/// Files are noted when there are this many, or when the first of them has waited for [`NOTED_EVERY`].
const NOTED_AT_ONCE: usize = 256;
/// See [`NOTED_AT_ONCE`].
const NOTED_EVERY: Duration = Duration::from_secs(5);

/// Where a drain's files are noted.
pub(super) const STORED: &str = "object/done";
/// Where a fetch's are.
pub(super) const GOT: &str = "object/got";

/// The log of files that are done.
pub(super) struct Log<'a> {
    resume: &'a dyn Resume,
    key: &'static str,
    state: Mutex<LogState>,
}

struct LogState {
    done: HashMap<PathBuf, Stored>,
    waiting: Vec<Stored>,
    since: Instant,
    next: u64,
}

impl<'a> Log<'a> {
    /// What was done before.
    pub fn load(resume: &'a dyn Resume, key: &'static str) -> Result<Self, StageError> {
        let mut done = HashMap::new();
        let mut next = 0;
        while let Some(piece) = resume.load(&format!("{key}/{next}"))? {
            let stored: Vec<Stored> = serde_json::from_slice(&piece).unwrap_or_default();
            done.extend(stored.into_iter().map(|stored| (stored.path.0.clone(), stored)));
            next += 1;
        }
        let state = LogState { done, waiting: Vec::new(), since: Instant::now(), next };
        Ok(Self { resume, key, state: Mutex::new(state) })
    }

    /// The file, if it is done.
    pub fn get(&self, path: &std::path::Path) -> Option<Stored> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).done.get(path).cloned()
    }

    /// What `of` makes of the ETag of a file that is done.
    pub fn e_tag<T>(&self, path: &std::path::Path, of: impl FnOnce(&str) -> T) -> Option<T> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done.get(path)?.e_tag.as_deref().map(of)
    }

    /// The paths of all that was ever done.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).done.keys().cloned().collect()
    }

    /// A file whose digests are known, without having been stored by this drain: nothing is noted.
    pub fn know(&self, stored: Stored) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).done.insert(stored.path.0.clone(), stored);
    }

    /// One more.
    pub fn add(&self, stored: Stored) -> Result<(), StageError> {
        self.know(stored.clone());
        self.note(stored)
    }

    /// One more, which nobody will ask for but the next run.
    pub fn note(&self, stored: Stored) -> Result<(), StageError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.waiting.is_empty() {
            state.since = Instant::now();
        }
        state.waiting.push(stored);
        if state.waiting.len() >= NOTED_AT_ONCE || state.since.elapsed() >= NOTED_EVERY {
            state.flush(self.resume, self.key)?;
        }
        Ok(())
    }

    /// Makes all of it durable.
    pub fn flush(&self) -> Result<(), StageError> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).flush(self.resume, self.key)
    }
}

impl LogState {
    fn flush(&mut self, resume: &dyn Resume, key: &str) -> Result<(), StageError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        resume.save(&format!("{key}/{}", self.next), &json(&self.waiting))?;
        self.next += 1;
        self.waiting.clear();
        Ok(())
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
    resume: &'a dyn Resume,
    key: String,
    next: u64,
}

impl<'a> UploadLog<'a> {
    /// `key` is the object's, beneath the set.
    pub fn new(resume: &'a dyn Resume, key: &str) -> Self {
        Self { resume, key: format!("object/upload/{key}"), next: 0 }
    }

    /// The upload that was under way, with the parts that it has.
    pub fn load(&mut self) -> Result<Option<(Upload, Vec<Part>)>, StageError> {
        let Some(upload) = self.resume.load(&self.key)? else { return Ok(None) };
        let Ok(upload) = serde_json::from_slice::<Upload>(&upload) else { return Ok(None) };
        if upload.id.is_empty() {
            return Ok(None);
        }
        let mut parts = Vec::new();
        self.next = 0;
        // Pieces of an upload that was given up may follow: they have its identifier.
        while let Some(piece) = self.resume.load(&format!("{}/{}", self.key, self.next))? {
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
        self.resume.save(&self.key, &json(upload))
    }

    /// More parts.
    pub fn add(&mut self, id: &str, parts: Vec<Part>) -> Result<(), StageError> {
        if parts.is_empty() {
            return Ok(());
        }
        self.resume
            .save(&format!("{}/{}", self.key, self.next), &json(&Parts { id: id.to_owned(), parts }))?;
        self.next += 1;
        Ok(())
    }

    /// There is no such upload any more.
    pub fn forget(&mut self, upload: &Upload) -> Result<(), StageError> {
        self.resume.save(&self.key, &json(&Upload { id: String::new(), ..upload.clone() }))
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
    resume: &'a dyn Resume,
    key: String,
    id: String,
    next: u64,
}

impl<'a> ChunkLog<'a> {
    /// `path` is the file's in the set.
    pub fn new(resume: &'a dyn Resume, path: &std::path::Path) -> Self {
        let key = format!("object/fetch/{}", stage::keys::of_path(path));
        Self { resume, key, id: String::new(), next: 0 }
    }

    /// The chunks that are in the file with this inode.
    pub fn load(&mut self, ino: u64) -> Result<BTreeSet<u64>, StageError> {
        let mut have = BTreeSet::new();
        let Some(begun) = self.resume.load(&self.key)? else { return Ok(have) };
        let Ok(begun) = serde_json::from_slice::<Fetching>(&begun) else { return Ok(have) };
        if begun.id.is_empty() || begun.ino != ino {
            return Ok(have);
        }
        (self.id, self.next) = (begun.id, 0);
        while let Some(piece) = self.resume.load(&format!("{}/{}", self.key, self.next))? {
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
        self.resume.save(&self.key, &json(&Fetching { id, ino }))
    }

    /// More chunks.
    pub fn add(&mut self, chunks: Vec<u64>) -> Result<(), StageError> {
        if chunks.is_empty() {
            return Ok(());
        }
        let piece = Chunks { id: self.id.clone(), chunks };
        self.resume.save(&format!("{}/{}", self.key, self.next), &json(&piece))?;
        self.next += 1;
        Ok(())
    }

    /// What was noted is not true.
    pub fn forget(&mut self) -> Result<(), StageError> {
        self.resume.save(&self.key, &json(&Fetching { id: String::new(), ino: 0 }))
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these have no keys but strings, and no floats")
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let notes = Forgetful::default();
        let mut log = UploadLog::new(&notes, "k");
        log.begin(&upload("one")).unwrap();
        log.add("one", vec![part(0)]).unwrap();
        log.add("one", vec![part(1), part(2)]).unwrap();
        assert_eq!(UploadLog::new(&notes, "k").load().unwrap().unwrap().1, [part(0), part(1), part(2)]);
        log.begin(&upload("two")).unwrap();
        assert_eq!(UploadLog::new(&notes, "k").load().unwrap().unwrap(), (upload("two"), vec![]));
        log.add("two", vec![part(5)]).unwrap();
        assert_eq!(UploadLog::new(&notes, "k").load().unwrap().unwrap(), (upload("two"), vec![part(5)]));
        log.forget(&upload("two")).unwrap();
        assert_eq!(UploadLog::new(&notes, "k").load().unwrap(), None);
    }

    #[test]
    fn chunks_of_a_copy_that_is_gone_are_not_those_of_the_next_in_the_same_inode() {
        let notes = Forgetful::default();
        let path = std::path::Path::new("a/b");
        let mut log = ChunkLog::new(&notes, path);
        log.begin("one".to_owned(), 7).unwrap();
        log.add(vec![0, 1]).unwrap();
        log.add(vec![5]).unwrap();
        let load = |ino| ChunkLog::new(&notes, path).load(ino).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!((load(7), load(8)), (vec![0, 1, 5], vec![]));
        log.begin("two".to_owned(), 7).unwrap();
        log.add(vec![3]).unwrap();
        assert_eq!(load(7), [3], "a piece of the first one follows");
        log.forget().unwrap();
        assert_eq!(load(7), Vec::<u64>::new());
    }

    #[test]
    fn files_that_are_done_are_known_to_the_next_who_looks() {
        let notes = Forgetful::default();
        let stored = |n: usize| Stored {
            path: PathText(format!("f{n}").into()),
            identity: upload("").identity,
            e_tag: None,
            chunks: part(0).chunks,
        };
        let log = Log::load(&notes, STORED).unwrap();
        for n in 0..NOTED_AT_ONCE + 3 {
            log.add(stored(n)).unwrap();
        }
        let before = Log::load(&notes, STORED).unwrap();
        assert!(before.get(std::path::Path::new("f3")).is_some(), "a full piece is noted at once");
        log.flush().unwrap();
        let after = Log::load(&notes, STORED).unwrap();
        assert_eq!(after.get(std::path::Path::new("f258")), Some(stored(258)));
    }
}
