//! The claim, which keeps two drains from one name, and the commit point: the manifest, put last and only where there
//! is none.
//!
//! A claim is an object, `.flashwright-claim`, put only where there is none, with a number that the drain's notes hold.
//! A drain that finds another's leaves the name alone: its objects would be overwritten, file by file, by those of a set
//! that is refused in the end. It goes after the commit; one that a drain which never came back has left goes with
//! [`ObjectSet::delete`].

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{Error, PutPayload};
use serde::{Deserialize, Serialize};

use super::drain::Drain;
use super::lanes::{Halt, for_each};
use super::resume::Ledger;
use super::source::Found;
use super::{LANES, Manifest, ObjectSet, StoreError, digest_of, keys, short};
use stage::digest::{CHUNK_BYTES, Digest};
use stage::error::StageError;
use stage::manifest::{Header, Writer};
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

    /// Has the drain with these notes put anything, or might it have? Its claim is noted before all else.
    pub(super) fn is_begun(ledger: Ledger<'_>) -> Result<bool, StageError> {
        Ok(ledger.load(CLAIM_NOTE)?.is_some())
    }

    /// The claim of the drain with these notes; a new one if they have none.
    fn own_claim(&self, ledger: Ledger<'_>) -> Result<Claim, StageError> {
        let noted = ledger.load(CLAIM_NOTE)?;
        if let Some(claim) = noted.and_then(|noted| serde_json::from_slice(&noted).ok()) {
            return Ok(claim);
        }
        let id = storage::uuid::Uuid::random().map_err(|source| StageError::Io {
            operation: "get a random number".to_owned(),
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
        ledger.save(CLAIM_NOTE, &serde_json::to_vec(&claim).unwrap_or_default())?;
        Ok(claim)
    }

    /// Claims the name. None where it is this drain's now; otherwise the refusal, for those whom another's claim
    /// concerns.
    pub(super) fn claim(
        &self,
        ledger: Ledger<'_>,
        halt: &Halt<'_>,
    ) -> Result<Option<StageError>, StageError> {
        let claim = self.own_claim(ledger)?;
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

    /// Was a deletion of what is under this name begun?
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

    /// Gives the name back. A claim that stays does no harm once the set is there.
    pub(super) fn unclaim(&self) {
        let stop = Stop::new();
        let key = self.claim_key();
        if let Ok(Err(error)) = self.wait(&Halt::new(&stop), self.store.delete(vec![key.clone()])) {
            tracing::warn!(key = %self.shown(&key), %error, "a claim could not be deleted");
        }
    }
}

impl Drain<'_> {
    /// Refuses a name beneath which objects are that this drain would overwrite and has not put: somebody's, who knows
    /// nothing of sets. A drain that was here before has its claim in its notes, and put what is there.
    pub(super) fn check_free(&self, halt: &Halt<'_>) -> Result<(), StageError> {
        if ObjectSet::is_begun(self.ledger)? || self.set.manifest_if_any(halt)?.is_some() {
            return Ok(());
        }
        let keys: Result<HashSet<Key>, StageError> =
            self.files().map(|found| self.set.key(&found.path)).collect();
        let (keys, claim) = (keys?, self.set.claim_key());
        let mut listing = self.set.store.list(self.set.prefix.clone());
        let there = self.set.ask(&self.set.prefix, "list what is there", halt, async {
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
                    self.set.shown(&key)
                ),
                hint: "give the set another name, or delete what is there".to_owned(),
            }),
        }
    }

    /// Puts the manifest and reads it back. `note` gets its digest before.
    pub(super) fn commit(
        &self,
        created: u64,
        note: &dyn Fn(Digest) -> Result<(), StageError>,
        halt: &Halt<'_>,
    ) -> Result<Digest, StageError> {
        let key = self.set.manifest_key();
        let (text, digest) = self.text(created)?;
        note(digest)?;
        let text = Bytes::from(text);
        halt.check()?;
        // From here on a stop is not heeded: the answer to this one request is waited for.
        let stop = Stop::new();
        let halt = &Halt::new(&stop);
        let body = PutPayload::from(text.clone());
        let put = self.set.wait(halt, self.set.store.put(key.clone(), body.clone(), true))?;
        let lost = match put {
            Ok(()) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => None,
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                if self.set.manifest_if_any(halt)?.is_none() {
                    self.set.ask(
                        &key,
                        "put the manifest",
                        halt,
                        self.set.store.put(key.clone(), body, false),
                    )?;
                }
                None
            }
            // Perhaps it is the answer that was lost: what is there tells.
            Err(error) => Some(self.set.failed(&key, "put the manifest", &error)),
        };
        match self.set.manifest_text(halt) {
            Ok(Some(there)) if there == text => Ok(digest),
            Ok(Some(there)) => {
                let there = self.set.parsed(&key, there)?;
                self.same_or_refused(&there)?;
                note(there.digest)?;
                Ok(there.digest)
            }
            Ok(None) => Err(lost.unwrap_or_else(|| {
                let what = "the manifest was put, and is not there".to_owned();
                StoreError { object: self.set.shown(&key), what, hint: None }.into()
            })),
            Err(error) => Err(lost.unwrap_or(error)),
        }
    }

    fn text(&self, created: u64) -> Result<(Vec<u8>, Digest), StageError> {
        let failed = |source| StageError::Io {
            operation: "write the manifest".to_owned(),
            path: self.set.shown(&self.set.manifest_key()),
            offset: None,
            source,
        };
        let name = Path::new(self.set.prefix.filename().unwrap_or(""));
        let mut header = Header::new(self.algorithm(), name, created);
        header.part.clone_from(&self.run.spec.options.part);
        let mut writer = Writer::new(Vec::new(), &header).map_err(failed)?;
        for found in self.found {
            writer.entry(&self.entry(found)?).map_err(failed)?;
        }
        writer.finish().map_err(failed)
    }

    /// Is the manifest that is there that of what was found?
    pub(super) fn same_or_refused(&self, there: &Manifest) -> Result<(), StageError> {
        let mut differs = None;
        for (theirs, ours) in there.entries.iter().zip(self.found) {
            if *theirs != self.entry(ours)? {
                differs = Some(theirs);
                break;
            }
        }
        let how = match differs {
            Some(theirs) => format!("it differs at {:?}", stage::error::shown(&theirs.path.0)),
            None if there.entries.len() != self.found.len() => {
                format!("it has {} entries, and the source has {}", there.entries.len(), self.found.len())
            }
            None if there.header.algorithm != self.algorithm() => {
                format!("its digests are of {}", there.header.algorithm.word())
            }
            None => return Ok(()),
        };
        Err(StageError::Exists {
            what: format!("{}: another set is there ({how})", self.set.shown(&self.set.prefix)),
            hint: "give the set another name, or delete the one that is there: nothing is overwritten"
                .to_owned(),
        })
    }

    /// Compares a listing of the store with what was stored: an object that was deleted or replaced since it was read
    /// back is found out before the set is committed. Returns how many objects are there that are none of the set's.
    pub(super) fn check_listing(&self, halt: &Halt<'_>) -> Result<u64, StageError> {
        let tag = |e_tag: &str| digest_of(bare(e_tag).as_bytes());
        let mut expected: HashMap<u128, (u64, Option<u128>)> = HashMap::new();
        for file in self.files() {
            let done = self.recorded(file)?.and_then(|done| done.object);
            let object = done.ok_or_else(|| self.source.changed(&file.path, "it was not stored"))?;
            let e_tag = (!object.is_empty()).then(|| tag(&object));
            expected.insert(short(&self.set.key(&file.path)?), (file.identity.size, e_tag));
        }
        let claim = self.set.claim_key();
        let mut strangers = 0;
        let mut wrong = None;
        let mut listing = self.set.store.list(self.set.prefix.clone());
        let listed = self.set.wait(halt, async {
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
        listed.map_err(|error| self.set.failed(&self.set.prefix, "list what was stored", &error))?;
        if let Some(key) = wrong {
            let what = "it was replaced after it had been read back".to_owned();
            return Err(StoreError { object: self.set.shown(&key), what, hint: None }.into());
        }
        if expected.is_empty() {
            return Ok(strangers);
        }
        for file in self.files() {
            let key = self.set.key(&file.path)?;
            if expected.contains_key(&short(&key)) {
                let what = "it is gone after it had been read back".to_owned();
                return Err(StoreError { object: self.set.shown(&key), what, hint: None }.into());
            }
        }
        Ok(strangers)
    }

    /// Digests the files that are not recorded: the name is taken by a set that may be this one.
    pub(super) fn digest_what_is_not_recorded(&self) -> Result<(), StageError> {
        let files: Vec<&Found> = self.files().collect();
        for_each(&files, LANES, self.run.stop, &|found, halt| {
            if self.recorded(found)?.is_some() {
                return Ok(());
            }
            let file = self.source.open(found)?;
            let (size, mut chunks) = (found.identity.size, Vec::new());
            while chunks.len() as u64 * CHUNK_BYTES < size || chunks.is_empty() {
                let offset = chunks.len() as u64 * CHUNK_BYTES;
                let bytes = (size - offset).min(CHUNK_BYTES);
                let _share = self.set.budget.take(bytes, halt)?;
                self.run.pace.admit(bytes, 1, halt.stop);
                halt.check()?;
                chunks.extend(self.bytes(found, file.as_fd(), offset, bytes)?.1);
            }
            self.source.check(found, file.as_fd())?;
            self.record(found, chunks, None)
        })
    }
}
