//! A prefix with sets beside each other, as retention sees it ([`stage::retention`]): what a directory has by renames,
//! links and locks, a store has thus.
//!
//! - **Durable** is a set whose manifest is whole and whose objects a listing shows, each in its size.
//! - **Removed** is a set once its manifest is deleted. Before that a mark is put, a claim that says so, so that whoever
//!   comes next knows half a deletion from half a drain and takes it to its end, and so that no drain begins there.
//! - **`latest`** is an object, `flashwright.latest/1`, a line of JSON with the set's name. It is put only in place of
//!   the one that was read (If-Match), so that of two who move it none takes it back.
//! - There is no lock between hosts, and none is needed: deleting twice is deleting, and the newest durable sets are
//!   nobody's to delete. Within a process one works on a prefix at a time, which saves requests.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{Error, PutPayload};
use serde::{Deserialize, Serialize};

use super::lanes::{Halt, for_each};
use super::{Environment, LANES, Manifest, ObjectSet, StoreError, short};
use stage::address::{Address, Scheme};
use stage::error::StageError;
use stage::existing;
use stage::fault::Barrier;
use stage::pace::{Progress, Stop, Unlimited};
use stage::series::{LATEST, SeriesPosition, place};
use stage::tier::directory::Directory;
use stage::tier::{Lock, Tier};
use stage::{set, spec};

/// The word in what `latest` holds.
const LATEST_FORMAT: &str = "flashwright.latest/1";
/// Bytes of such an object that are read.
const LATEST_BYTES: u64 = 4096;
/// Attempts to move `latest`, which another process may move in between.
const TRIES: u32 = 8;

/// What `latest` holds.
#[derive(Debug, Serialize, Deserialize)]
struct Latest {
    format: String,
    name: String,
}

/// A prefix in a store, with sets right beneath it.
#[derive(Debug)]
pub struct ObjectTier {
    root: ObjectSet,
    /// Ends what is under way.
    stop: Stop,
    /// Manifests of sets that were found durable, or not, since this was opened.
    looked_at: Mutex<HashMap<OsString, Option<set::Manifest>>>,
    /// Sets that are half deleted, as the last look at all of them found.
    half_gone: Mutex<Vec<String>>,
}

/// What is right beneath a prefix.
enum State {
    Set,
    HalfGone,
    Nothing,
}

impl ObjectTier {
    /// Takes the URL of a prefix apart; no request is made.
    ///
    /// # Errors
    /// A URL or a setting that makes no sense.
    pub fn open(url: &str) -> Result<Self, StageError> {
        Ok(Self::of(ObjectSet::open(url, &Environment::of_process())?))
    }

    /// The same, with a request to stop.
    #[must_use]
    pub fn until(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    pub(super) fn of(root: ObjectSet) -> Self {
        Self { root, stop: Stop::new(), looked_at: Mutex::default(), half_gone: Mutex::default() }
    }

    /// The directory that a store of the scheme `file` is.
    fn directory(&self) -> Option<PathBuf> {
        let address = &self.root.address;
        (*address.scheme() == Scheme::File).then(|| Path::new("/").join(address.prefix()))
    }

    /// The address of a set of this name. A name that no set has gets one that no set has.
    fn address(&self, name: &str) -> Address {
        let key = self.key(name).or_else(|| self.key(&stage::keys::encode(name.as_bytes())));
        self.root.address.sibling(key.as_ref().map_or("", Key::as_ref))
    }

    /// The set of this name, there or not.
    ///
    /// # Errors
    /// A name that no store takes.
    pub fn set(&self, name: &str) -> Result<ObjectSet, StageError> {
        let key = self.key(name).ok_or_else(|| {
            StageError::invalid(
                format!("{:?}: no set in a store has this name", stage::names::shown(name.as_bytes())),
                "UTF-8 without control characters and slashes",
            )
        })?;
        Ok(self.root.elsewhere(key))
    }

    fn key(&self, name: &str) -> Option<Key> {
        if name.is_empty() || name.contains('/') {
            return None;
        }
        let prefix = &self.root.prefix;
        Key::parse(if prefix.is_root() { name.to_owned() } else { format!("{prefix}/{name}") }).ok()
    }

    /// The names of the sets here for which `wanted` is true, in their order.
    pub fn names(&self, wanted: &(dyn Fn(&str) -> bool + Sync)) -> Result<Vec<String>, StageError> {
        let (root, stop) = (&self.root, &self.stop);
        let listing = root.store.children(root.prefix.clone());
        let mut children = root.ask(&root.prefix, "list", &Halt::new(stop), listing)?;
        children.retain(|child| child.filename().is_some_and(wanted));
        let (sets, half_gone) = (Mutex::new(BTreeSet::new()), Mutex::new(Vec::new()));
        for_each(&children, LANES, stop, &|child, halt| {
            let name = child.filename().unwrap_or_default().to_owned();
            match root.elsewhere(child.clone()).state(halt)? {
                State::Set => {
                    sets.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
                }
                State::HalfGone => half_gone.lock().unwrap_or_else(PoisonError::into_inner).push(name),
                State::Nothing => {}
            }
            Ok(())
        })?;
        *self.half_gone.lock().unwrap_or_else(PoisonError::into_inner) =
            half_gone.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(sets.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect())
    }

    /// Gives a set of parts its manifest, put where there is none, and reads it back. False if it has the same already.
    fn put_manifest(&self, name: &str, text: &[u8]) -> Result<bool, StageError> {
        let (set, halt) = (self.set(name)?, Halt::new(&self.stop));
        let key = set.manifest_key();
        let body = PutPayload::from(text.to_vec());
        let put = set.wait(&halt, set.store.put(key.clone(), body.clone(), true))?;
        let mut made = put.is_ok();
        // What is there tells what an error leaves open: another process was first, or the answer was lost.
        let mut there = set.manifest_text(&halt)?;
        if there.is_none() && matches!(put, Err(Error::NotImplemented { .. } | Error::NotSupported { .. })) {
            // Of two processes either may be last: they put the same.
            set.ask(&key, "put the manifest", &halt, set.store.put(key.clone(), body, false))?;
            made = true;
            there = set.manifest_text(&halt)?;
        }
        match (there, put) {
            (Some(there), _) if there == text => Ok(made),
            (None, Err(error)) => Err(set.failed(&key, "put the manifest", &error)),
            _ => Err(StageError::refused(
                format!("{}: is not the record of the parts beside it", set.shown(&key)),
                "a part was replaced after the set was complete; `stage verify` names it",
            )),
        }
    }

    /// Is a set of this name there?
    pub fn has(&self, name: &str) -> Result<bool, StageError> {
        let Ok(set) = self.set(name) else { return Ok(false) };
        Ok(matches!(set.state(&Halt::new(&self.stop))?, State::Set))
    }

    /// The manifest of a set; none where there is no set, or one whose manifest says nothing that can be used.
    pub fn manifest(&self, name: &str) -> Result<Option<set::Manifest>, StageError> {
        let Ok(set) = self.set(name) else { return Ok(None) };
        Ok(set.usable(&self.stop)?.map(|(_, manifest)| manifest))
    }

    /// What `latest` names, and what tells this object from the next.
    fn pointer(&self) -> Result<Option<(OsString, Option<String>)>, StageError> {
        let (root, key) = (&self.root, self.root.below(LATEST));
        let read = root.wait(&Halt::new(&self.stop), async {
            let answer = root.store.get(key.clone(), Some(0..LATEST_BYTES)).await?;
            let e_tag = answer.meta.e_tag.clone();
            Ok((answer.bytes().await?, e_tag))
        })?;
        let (text, e_tag) = match read {
            Ok(read) => read,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(root.failed(&key, "read it", &error)),
        };
        match serde_json::from_slice::<Latest>(&text) {
            Ok(latest) if latest.format == LATEST_FORMAT => Ok(Some((latest.name.into(), e_tag))),
            _ => Err(StageError::refused(
                format!("{} names no set, and is left as it is", root.shown(&key)),
                "give it another name, then the next set that is durable has `latest` name it",
            )),
        }
    }

    /// Puts `latest` in place of what was read. False if another process was first.
    fn point(&self, name: &str, instead_of: Option<Option<String>>) -> Result<bool, StageError> {
        let (root, key) = (&self.root, self.root.below(LATEST));
        let latest = Latest { format: LATEST_FORMAT.to_owned(), name: name.to_owned() };
        let mut text = serde_json::to_vec(&latest).unwrap_or_default();
        text.push(b'\n');
        let body = PutPayload::from(text);
        let halt = Halt::new(&self.stop);
        let put = match instead_of {
            None => root.wait(&halt, root.store.put(key.clone(), body.clone(), true))?,
            Some(Some(e_tag)) => root.wait(&halt, root.store.replace(key.clone(), body.clone(), e_tag))?,
            Some(None) => root.wait(&halt, root.store.put(key.clone(), body.clone(), false))?,
        };
        match put {
            Ok(()) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                root.ask(&key, "put it", &halt, root.store.put(key.clone(), body, false))?;
                Ok(true)
            }
            Err(error) => Err(root.failed(&key, "put it", &error)),
        }
    }
}

impl ObjectSet {
    /// What is under this set's name.
    fn state(&self, halt: &Halt<'_>) -> Result<State, StageError> {
        let key = self.manifest_key();
        match self.wait(halt, self.store.get(key.clone(), Some(0..1)))? {
            Ok(_) => return Ok(State::Set),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(self.failed(&key, "look for the manifest", &error)),
        }
        Ok(if self.is_half_gone(halt)? { State::HalfGone } else { State::Nothing })
    }

    /// The set's manifest, twice: as objects are read by it, and as directories are compared with it. None where there
    /// is none that can be used.
    fn usable(&self, stop: &Stop) -> Result<Option<(Manifest, set::Manifest)>, StageError> {
        let key = self.manifest_key();
        let Some(text) = self.manifest_text(&Halt::new(stop))? else { return Ok(None) };
        let Ok(found) = self.parsed(&key, text) else { return Ok(None) };
        let shown = self.shown(&key);
        let manifest = set::Manifest::of_text(&found.text, Path::new(&shown))?;
        Ok(Some((found, manifest)))
    }

    /// The first object that a set lacks, or that has another size, in words; none: all are there. Nothing is read.
    pub fn lacks(&self, manifest: &Manifest, stop: &Stop) -> Result<Option<String>, StageError> {
        let halt = Halt::new(stop);
        let mut expected: HashMap<u128, u64> = HashMap::new();
        for file in manifest.files() {
            expected.insert(short(&self.key(&file.path.0)?), file.size);
        }
        let mut wrong = None;
        let mut listing = self.store.list(self.prefix.clone());
        self.ask(&self.prefix, "list", &halt, async {
            while let Some(object) = listing.try_next().await? {
                let size = expected.remove(&short(&object.location));
                if size.is_some_and(|size| size != object.size) {
                    wrong.get_or_insert(object.location);
                }
            }
            Ok(())
        })?;
        if let Some(key) = wrong {
            return Ok(Some(format!("{} has another size", self.shown(&key))));
        }
        if expected.is_empty() {
            return Ok(None);
        }
        for file in manifest.files() {
            let key = self.key(&file.path.0)?;
            if expected.contains_key(&short(&key)) {
                return Ok(Some(format!("{} is not there", self.shown(&key))));
            }
        }
        Ok(None)
    }
}

impl Tier for ObjectTier {
    fn place(&self, name: &OsStr) -> spec::Place {
        spec::Place::Object(self.address(&name.to_string_lossy()))
    }

    fn lock(&self, stop: &Stop) -> Result<Box<dyn Lock + '_>, StageError> {
        Ok(Box::new(Alone::on(self.root.shown(&self.root.prefix), stop)?))
    }

    fn is(&self, _: &Directory) -> Result<bool, StageError> {
        Ok(false)
    }

    fn shows(&self, name: &OsStr, probe: &OsStr) -> Result<bool, StageError> {
        let Some(path) = self.directory().map(|path| path.join(name)) else { return Ok(false) };
        match stage::calls::open_directory(&path) {
            Ok(directory) => stage::distinct::has(directory.as_fd(), probe),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StageError::io("open the directory", &path, error)),
        }
    }

    fn make_durable(&self, name: &OsStr, purpose: Barrier) -> Result<(), StageError> {
        match self.directory().map(|directory| directory.join(name)) {
            Some(set) if set.symlink_metadata().is_ok() => {
                existing::make_durable(&set, Some(purpose), &self.stop)
            }
            _ => Ok(()),
        }
    }

    fn names(&self, wanted: &(dyn Fn(&OsStr) -> bool + Sync)) -> Result<Vec<OsString>, StageError> {
        let names = self.names(&|name| wanted(OsStr::new(name)))?;
        Ok(names.into_iter().map(OsString::from).collect())
    }

    fn children(&self, wanted: &(dyn Fn(&OsStr) -> bool + Sync)) -> Result<Vec<OsString>, StageError> {
        let root = &self.root;
        let listing = root.store.children(root.prefix.clone());
        let found = root.ask(&root.prefix, "list", &Halt::new(&self.stop), listing)?;
        let names = found.iter().filter_map(|child| child.filename()).map(OsString::from);
        let mut names: Vec<OsString> = names.filter(|name| wanted(name)).collect();
        names.sort();
        Ok(names)
    }

    fn within(&self, name: &OsStr) -> Result<Option<Box<dyn Tier>>, StageError> {
        let Some(Ok(set)) = name.to_str().map(|name| self.set(name)) else { return Ok(None) };
        Ok(Some(Box::new(Self::of(set).until(&self.stop))))
    }

    fn put_record(
        &self,
        name: &OsStr,
        text: &[u8],
        _: &dyn stage::owned::Record,
    ) -> Result<bool, StageError> {
        let made = self.put_manifest(&name.to_string_lossy(), text)?;
        self.looked_at.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(made)
    }

    fn has(&self, name: &OsStr) -> Result<bool, StageError> {
        name.to_str().map_or(Ok(false), |name| self.has(name))
    }

    fn manifest(&self, name: &OsStr) -> Result<Option<set::Manifest>, StageError> {
        name.to_str().map_or(Ok(None), |name| self.manifest(name))
    }

    fn durable(&self, name: &OsStr) -> Result<Option<set::Manifest>, StageError> {
        if let Some(known) = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return known.as_ref().map(set::Manifest::try_clone).transpose();
        }
        let Some(Ok(set)) = name.to_str().map(|name| self.set(name)) else { return Ok(None) };
        let manifest = match set.usable(&self.stop)? {
            Some((found, manifest)) if set.lacks(&found, &self.stop)?.is_none() => Some(manifest),
            _ => None,
        };
        let kept = manifest.as_ref().map(set::Manifest::try_clone).transpose()?;
        self.looked_at.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), manifest);
        Ok(kept)
    }

    fn reads_back(&self, name: &OsStr, _: &set::Manifest) -> Result<bool, StageError> {
        let Some(Ok(set)) = name.to_str().map(|name| self.set(name)) else { return Ok(false) };
        let found = set.verify(&Unlimited, &self.stop, &Progress::default())?;
        Ok(found.faults.is_empty())
    }

    fn latest(&self) -> Result<Option<OsString>, StageError> {
        Ok(self.pointer()?.map(|(name, _)| name))
    }

    fn move_latest(
        &self,
        name: &OsStr,
        own: &SeriesPosition<'_>,
        _: &dyn stage::owned::Record,
    ) -> Result<Option<OsString>, StageError> {
        let (Some(text), true) = (name.to_str(), self.durable(name)?.is_some()) else { return Ok(None) };
        for _ in 0..TRIES {
            let current = self.pointer()?;
            if let Some((current, _)) = &current {
                let newer = place(current)
                    .is_some_and(|current| current.is_beside(own) && current.order(own) == Ordering::Greater);
                if current == name || (newer && self.has(&current.to_string_lossy())?) {
                    return Ok(None);
                }
            }
            if self.point(text, current.map(|(_, e_tag)| e_tag))? {
                return Ok(Some(name.to_owned()));
            }
        }
        let key = self.root.shown(&self.root.below(LATEST));
        let what = "another program moves it each time".to_owned();
        Err(StoreError { object: key, what, hint: None }.into())
    }

    fn remove(&self, name: &OsStr, _: &dyn stage::owned::Record) -> Result<(), StageError> {
        let Some(Ok(set)) = name.to_str().map(|name| self.set(name)) else { return Ok(()) };
        self.looked_at.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        set.delete(&self.stop).map(drop)
    }

    fn sweep(&self, _: &dyn stage::owned::Record) -> Result<(), StageError> {
        let left = std::mem::take(&mut *self.half_gone.lock().unwrap_or_else(PoisonError::into_inner));
        for name in left {
            self.set(&name)?.delete(&self.stop)?;
        }
        Ok(())
    }
}

/// Prefixes that this process works on.
static BUSY: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static FREED: Condvar = Condvar::new();

struct Alone(String);

impl Alone {
    /// Only jobs of this process have it, whose requests all have an end.
    fn on(prefix: String, stop: &Stop) -> Result<Self, StageError> {
        const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
        let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        while !busy.insert(prefix.clone()) {
            stop.check()?;
            busy = FREED.wait_timeout(busy, STOP_CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(Self(prefix))
    }
}

impl Lock for Alone {}

impl Drop for Alone {
    fn drop(&mut self) {
        BUSY.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        FREED.notify_all();
    }
}
