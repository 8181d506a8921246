//! The claim, which keeps two drains from one name, and the commit point: the manifest, put last and only where there
//! is none.
//!
//! A claim is an object, `.flashwright-claim`, put only where there is none, with a number that the drain's notes hold.
//! Whoever finds another's leaves the name alone: its objects would be overwritten, file by file, by those of a set
//! that is refused in the end. It goes after the commit; one that a drain which never came back has left goes with
//! [`ObjectSet::delete`].

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{Error, PutPayload};
use serde::{Deserialize, Serialize};

use super::lanes::{Halt, over};
use super::resume::{Resume, Stored};
use super::source::Found;
use super::upload::Work;
use super::{LANES, Manifest, ObjectSet, digest_of, keys, short};
use stage::calls;
use stage::digest::{CHUNK_BYTES, Digest};
use stage::error::StageError;
use stage::manifest::Writer;
use stage::names::PathText;
use stage::pace::Stop;

/// An ETag without what only some stores put around it.
fn bare(e_tag: &str) -> &str {
    e_tag.trim_start_matches("W/").trim_matches('"')
}

/// What a claim consists of.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    format: String,
    /// The drain's own.
    id: String,
    /// When it began, seconds since 1970.
    since: u64,
    /// It is a deletion that has begun, and no drain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deletion: bool,
}

/// The word in a claim.
const CLAIM_FORMAT: &str = "flashwright.claim/1";
/// Where a drain's notes have its claim.
const CLAIM_NOTE: &str = "object/claim";

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl ObjectSet {
    pub(super) fn claim_key(&self) -> Key {
        self.below(keys::CLAIM)
    }

    /// The claim of whoever has these notes; a new one where they have none.
    fn own_claim(&self, resume: &dyn Resume) -> Result<Claim, StageError> {
        let noted = resume.load(CLAIM_NOTE)?;
        if let Some(claim) = noted.and_then(|noted| serde_json::from_slice(&noted).ok()) {
            return Ok(claim);
        }
        let id = storage::uuid::Uuid::random().map_err(|source| StageError::Io {
            operation: "get a number that nobody has".to_owned(),
            path: self.shown(&self.prefix),
            offset: None,
            source,
        })?;
        let claim = Claim {
            format: CLAIM_FORMAT.to_owned(),
            id: stage::names::hex(&id.0),
            since: now(),
            deletion: false,
        };
        // Before it is put: a drain that dies in between must know it again.
        resume.save(CLAIM_NOTE, &serde_json::to_vec(&claim).unwrap_or_default())?;
        Ok(claim)
    }

    /// Refuses a name beneath which objects are that this drain would overwrite and has not put: somebody's, who knows
    /// nothing of sets. A drain that was here before has its claim in its notes, and put what is there.
    pub(super) fn check_free(
        &self,
        found: &[Found],
        resume: &dyn Resume,
        halt: &Halt<'_>,
    ) -> Result<(), StageError> {
        if resume.load(CLAIM_NOTE)?.is_some() || self.manifest_if_any(halt)?.is_some() {
            return Ok(());
        }
        let keys: Result<HashSet<Key>, StageError> =
            found.iter().filter(|found| found.has_bytes()).map(|found| self.key(&found.path)).collect();
        let (keys, claim) = (keys?, self.claim_key());
        let mut listing = self.store.list(self.prefix.clone());
        let there = self.ask(&self.prefix, "list what is there", halt, async {
            let mut there = None;
            while let Some(object) = listing.try_next().await? {
                if object.location == claim {
                    // Whose it is will be told.
                    return Ok(None);
                }
                if keys.contains(&object.location) {
                    there.get_or_insert(object.location);
                }
            }
            Ok(there)
        })?;
        match there {
            None => Ok(()),
            Some(key) => Err(StageError::Exists {
                what: format!(
                    "{}: an object is there that belongs to no set, and would be overwritten",
                    self.shown(&key)
                ),
                hint: "give the set another name, or delete what is there".to_owned(),
            }),
        }
    }

    /// Claims the name. None where it is this drain's now; otherwise the refusal, for those whom another's claim
    /// concerns.
    pub(super) fn claim(
        &self,
        resume: &dyn Resume,
        halt: &Halt<'_>,
    ) -> Result<Option<StageError>, StageError> {
        let claim = self.own_claim(resume)?;
        let key = self.claim_key();
        let body = PutPayload::from(serde_json::to_vec(&claim).unwrap_or_default());
        match self.wait(halt, self.store.put(key.clone(), body.clone(), true))? {
            Ok(()) => return Ok(None),
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                if self.claim_there(&key, halt)?.is_none() {
                    self.ask(&key, "claim the name", halt, self.store.put(key.clone(), body, false))?;
                }
            }
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            // The answer may have been lost.
            Err(error) => match self.claim_there(&key, halt) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Err(self.failed(&key, "claim the name", &error)),
            },
        }
        let since = match self.claim_there(&key, halt)? {
            Some(there) if there.id == claim.id => return Ok(None),
            Some(there) if there.deletion => {
                return Ok(Some(StageError::refused(
                    format!("{}: what had this name is being deleted", self.shown(&self.prefix)),
                    "wait until it is; if nothing is at work there any more, delete what is left (aws s3 rm --recursive)",
                )));
            }
            Some(there) => format!("begun {} s after 1970", there.since),
            None => "just ended".to_owned(),
        };
        Ok(Some(StageError::refused(
            format!("{}: another drain has claimed this name ({since})", self.shown(&self.prefix)),
            "let it finish; if nothing is at work there any more, delete what it left, claim and all \
             (aws s3 rm --recursive)",
        )))
    }

    /// Is a drain at work under this name, or was?
    pub(super) fn is_claimed(&self, halt: &Halt<'_>) -> Result<bool, StageError> {
        Ok(self.claim_there(&self.claim_key(), halt)?.is_some())
    }

    /// Has somebody begun to delete what is under this name?
    pub(super) fn is_half_gone(&self, halt: &Halt<'_>) -> Result<bool, StageError> {
        Ok(self.claim_there(&self.claim_key(), halt)?.is_some_and(|claim| claim.deletion))
    }

    /// Says that a deletion has begun, so that half of one is told from half a drain.
    pub(super) fn mark_deletion(&self, halt: &Halt<'_>) -> Result<(), StageError> {
        let key = self.claim_key();
        let claim =
            Claim { format: CLAIM_FORMAT.to_owned(), id: String::new(), since: now(), deletion: true };
        let body = PutPayload::from(serde_json::to_vec(&claim).unwrap_or_default());
        self.ask(&key, "mark what is deleted", halt, self.store.put(key.clone(), body, false))
    }

    fn claim_there(&self, key: &Key, halt: &Halt<'_>) -> Result<Option<Claim>, StageError> {
        let read =
            self.wait(halt, async { self.store.get(key.clone(), Some(0..4096)).await?.bytes().await })?;
        match read {
            Ok(text) => {
                let unknown =
                    || Claim { format: String::new(), id: String::new(), since: 0, deletion: false };
                Ok(Some(serde_json::from_slice(&text).unwrap_or_else(|_| unknown())))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(key, "read the claim", &error)),
        }
    }

    /// Gives the name back. A claim that stays is in nobody's way once the set is there.
    pub(super) fn unclaim(&self) {
        let stop = Stop::new();
        let key = self.claim_key();
        if let Ok(Err(error)) = self.wait(&Halt::new(&stop), self.store.delete(vec![key.clone()])) {
            tracing::warn!(key = %self.shown(&key), %error, "a claim could not be deleted");
        }
    }

    /// Puts the manifest and reads it back. Returns what tells it from another, of which `note` was told before.
    pub(super) fn commit(
        &self,
        work: &Work<'_>,
        found: &[Found],
        created: u64,
        note: &dyn Fn(Digest) -> Result<(), StageError>,
        halt: &Halt<'_>,
    ) -> Result<Digest, StageError> {
        let key = self.manifest_key();
        let (text, digest) = self.text(work, found, created)?;
        note(digest)?;
        let text = Bytes::from(text);
        halt.check()?;
        // From here on nobody stops it: the answer to the one request that matters is waited for.
        let stop = Stop::new();
        let halt = &Halt::new(&stop);
        let body = PutPayload::from(text.clone());
        let put = self.wait(halt, self.store.put(key.clone(), body.clone(), true))?;
        let lost = match put {
            Ok(()) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => None,
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                if self.manifest_if_any(halt)?.is_none() {
                    self.ask(&key, "put the manifest", halt, self.store.put(key.clone(), body, false))?;
                }
                None
            }
            // Perhaps it is the answer that was lost: what is there tells.
            Err(error) => Some(self.failed(&key, "put the manifest", &error)),
        };
        match self.manifest_text(halt) {
            Ok(Some(there)) if there == text => Ok(digest),
            Ok(Some(there)) => {
                let there = self.parsed(&key, there)?;
                self.same_or_refused(&there, work, found)?;
                note(there.digest)?;
                Ok(there.digest)
            }
            Ok(None) => Err(lost.unwrap_or_else(|| StageError::Peer {
                peer: self.shown(&key),
                what: "the manifest was put, and is not there".to_owned(),
            })),
            Err(error) => Err(lost.unwrap_or(error)),
        }
    }

    fn text(&self, work: &Work<'_>, found: &[Found], created: u64) -> Result<(Vec<u8>, Digest), StageError> {
        let failed = |source| StageError::Io {
            operation: "write the manifest".to_owned(),
            path: self.shown(&self.manifest_key()),
            offset: None,
            source,
        };
        let name = Path::new(self.prefix.filename().unwrap_or(""));
        let mut writer = Writer::new(Vec::new(), work.algorithm, name, created).map_err(failed)?;
        for found in found {
            writer.entry(&work.entry(found)?).map_err(failed)?;
        }
        writer.finish().map_err(failed)
    }

    /// Is the manifest that is there that of what was found?
    pub(super) fn same_or_refused(
        &self,
        there: &Manifest,
        work: &Work<'_>,
        found: &[Found],
    ) -> Result<(), StageError> {
        let mut differs = None;
        for (theirs, ours) in there.entries.iter().zip(found) {
            if *theirs != work.entry(ours)? {
                differs = Some(theirs);
                break;
            }
        }
        let how = match differs {
            Some(theirs) => format!("it differs at {:?}", stage::error::shown(&theirs.path.0)),
            None if there.entries.len() != found.len() => {
                format!("it has {} entries, and the source has {}", there.entries.len(), found.len())
            }
            None if there.header.algorithm != work.algorithm => {
                format!("its digests are of {}", there.header.algorithm.word())
            }
            None => return Ok(()),
        };
        Err(StageError::Exists {
            what: format!("{}: another set is there ({how})", self.shown(&self.prefix)),
            hint: "give the set another name, or delete the one that is there: nothing is overwritten"
                .to_owned(),
        })
    }

    /// Compares a listing of the store with what was stored: whoever deleted or replaced an object since it was read
    /// back is found out before the set is committed. Returns how many objects are there that are none of the set's.
    pub(super) fn check_listing(
        &self,
        work: &Work<'_>,
        found: &[Found],
        halt: &Halt<'_>,
    ) -> Result<u64, StageError> {
        let tag = |e_tag: &str| digest_of(bare(e_tag).as_bytes());
        let mut expected: HashMap<u128, (u64, Option<u128>)> = HashMap::new();
        for file in found.iter().filter(|found| found.has_bytes()) {
            let e_tag = work.log.e_tag(&file.path, tag);
            expected.insert(short(&self.key(&file.path)?), (file.identity.size, e_tag));
        }
        let claim = self.claim_key();
        let mut strangers = 0;
        let mut wrong = None;
        let mut listing = self.store.list(self.prefix.clone());
        let listed = self.wait(halt, async {
            while let Some(object) = listing.try_next().await? {
                match expected.remove(&short(&object.location)) {
                    None => strangers += u64::from(object.location != claim),
                    Some((size, e_tag)) => {
                        let tags = e_tag.zip(object.e_tag.as_deref().map(tag));
                        if object.size != size || tags.is_some_and(|(was, is)| was != is) {
                            wrong.get_or_insert(object.location);
                        }
                    }
                }
            }
            Ok(())
        })?;
        listed.map_err(|error| self.failed(&self.prefix, "list what was stored", &error))?;
        if let Some(key) = wrong {
            let what = "it was replaced after it had been read back".to_owned();
            return Err(StageError::Peer { peer: self.shown(&key), what });
        }
        if expected.is_empty() {
            return Ok(strangers);
        }
        for file in found.iter().filter(|found| found.has_bytes()) {
            let key = self.key(&file.path)?;
            if expected.contains_key(&short(&key)) {
                let what = "it is gone after it had been read back".to_owned();
                return Err(StageError::Peer { peer: self.shown(&key), what });
            }
        }
        Ok(strangers)
    }
}

impl Work<'_> {
    /// Digests files whose digests are not known: a set of this name is there, and may be this one.
    pub(super) fn digest_what_is_not_stored(&self, found: &[Found], stop: &Stop) -> Result<(), StageError> {
        let files: Vec<&Found> = found.iter().filter(|found| found.has_bytes()).collect();
        over(&files, LANES, stop, &|found, halt| {
            use std::os::fd::AsFd;
            if self.log.get(&found.path).is_some_and(|stored| stored.identity == found.identity) {
                return Ok(());
            }
            let file = self.source.open(found)?;
            let size = found.identity.size;
            let mut chunks = Vec::new();
            let mut offset = 0;
            while offset < size || chunks.is_empty() {
                let bytes = (size - offset).min(CHUNK_BYTES);
                let _share = self.set.budget.take(bytes, halt)?;
                self.pace.admit(bytes, 1, halt.stop);
                halt.check()?;
                let mut chunk = vec![0; bytes as usize];
                let read = calls::read_at(file.as_fd(), &mut chunk, offset).map_err(|error| {
                    StageError::io_at("read", &self.source.path_of(&found.path), offset, error)
                })?;
                if (read as u64) < bytes {
                    return Err(self.source.changed(&found.path, "it became shorter"));
                }
                chunks.push(self.algorithm.of(&chunk));
                offset += bytes;
            }
            self.source.check(found, file.as_fd())?;
            self.log.know(Stored {
                path: PathText(found.path.clone()),
                identity: found.identity,
                e_tag: None,
                chunks,
            });
            Ok(())
        })
    }
}
