//! Drains and fetches against stores that fail on demand: the store, and the scene in which runs follow one another.

mod faults;
mod fetch;
#[path = "../../../../formats/fixture.rs"]
mod fixture;
mod parts;
mod sets;
mod tier;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{Error, GetResult, GetResultPayload, ObjectMeta, PutPayload, Result};

use super::moves::{SetThatIs, SetToBe};
use super::resume::Ledger;
use super::source::Source;
use super::store::{Answer, Remote, Store};
use super::{Environment, Manifest, ObjectSet};
use stage::address::Address;
use stage::digest::{Algorithm, CHUNK_BYTES};
use stage::error::StageError;
use stage::job::JobId;
use stage::journal::{Accepted, Journal};
use stage::manifest::{Entry, Kind, Writer};
use stage::names::PathText;
use stage::pace::{Pace, Progress, Stop, Unlimited};
use stage::spec::{self, JobSpec, Options, Verb};
use stage::tier::{Destination, Notes, Objects, Run, Tier, Tiers};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Op {
    Put,
    Get,
    Begin,
    Part,
    Complete,
    List,
    Delete,
}

const OPS: [Op; 7] = [Op::Put, Op::Get, Op::Begin, Op::Part, Op::Complete, Op::List, Op::Delete];

#[derive(Clone)]
enum Effect {
    /// Nothing is done, and an error is answered.
    Fail,
    /// It is done, and the answer is lost.
    FailAfter,
    /// The bytes that are answered are not those that are stored.
    Corrupt,
    /// Something else happens first.
    Hook(Arc<dyn Fn() + Send + Sync>),
}

/// A store that strikes the nth request of a kind, or the nth that reads an object: which requests come before others is
/// chance, as several are under way.
struct Faulty {
    store: Remote<InMemory>,
    faults: Mutex<Vec<(Op, usize, Effect)>>,
    corrupt: Option<(String, usize)>,
    seen: Mutex<HashMap<Op, usize>>,
    log: Mutex<Vec<(Op, String)>>,
}

impl Faulty {
    fn new(memory: &Arc<InMemory>, faults: Vec<(Op, usize, Effect)>) -> Arc<Self> {
        Arc::new(Self {
            store: Remote::new(Arc::clone(memory)),
            faults: Mutex::new(faults),
            corrupt: None,
            seen: Mutex::default(),
            log: Mutex::default(),
        })
    }

    /// Answers the nth request that reads this object with other bytes.
    fn corrupting(memory: &Arc<InMemory>, key: &str, nth: usize) -> Arc<Self> {
        let mut faulty = Self::new(memory, vec![]);
        Arc::get_mut(&mut faulty).unwrap().corrupt = Some((key.to_owned(), nth));
        faulty
    }

    fn strike(&self, op: Op, key: String) -> Option<Effect> {
        let nth = {
            let mut seen = self.seen.lock().unwrap();
            let nth = seen.entry(op).or_default();
            *nth += 1;
            *nth - 1
        };
        let corrupt = {
            let mut log = self.log.lock().unwrap();
            let before = log.iter().filter(|one| one.0 == Op::Get && one.1 == key).count();
            let struck =
                op == Op::Get && self.corrupt.as_ref().is_some_and(|at| *at == (key.clone(), before));
            log.push((op, key));
            struck
        };
        if corrupt {
            return Some(Effect::Corrupt);
        }
        let faults = self.faults.lock().unwrap();
        let effect = faults.iter().find(|fault| fault.0 == op && fault.1 == nth).map(|fault| fault.2.clone());
        drop(faults);
        if let Some(Effect::Hook(hook)) = &effect {
            hook();
        }
        effect
    }

    fn count(&self, op: Op) -> usize {
        self.seen.lock().unwrap().get(&op).copied().unwrap_or(0)
    }

    fn through<'a, T: Send + 'a>(&'a self, op: Op, key: String, made: Answer<'a, T>) -> Answer<'a, T> {
        async move {
            match self.strike(op, key) {
                Some(Effect::Fail) => Err(injected()),
                Some(Effect::FailAfter) => {
                    made.await?;
                    Err(injected())
                }
                Some(Effect::Corrupt | Effect::Hook(_)) | None => made.await,
            }
        }
        .boxed()
    }
}

fn injected() -> Error {
    Error::Generic { store: "faulty", source: "injected\nfault".into() }
}

impl Store for Arc<Faulty> {
    fn objects(&self) -> &dyn object_store::ObjectStore {
        self.store.objects()
    }

    fn put(&self, key: Key, body: PutPayload, create: bool) -> Answer<'_, ()> {
        self.through(Op::Put, key.to_string(), self.store.put(key, body, create))
    }

    fn replace(&self, key: Key, body: PutPayload, e_tag: String) -> Answer<'_, ()> {
        self.through(Op::Put, key.to_string(), self.store.replace(key, body, e_tag))
    }

    fn get(&self, key: Key, range: Option<Range<u64>>) -> Answer<'_, GetResult> {
        async move {
            match self.strike(Op::Get, key.to_string()) {
                Some(Effect::Fail | Effect::FailAfter) => Err(injected()),
                Some(Effect::Corrupt) => {
                    let GetResult { meta, range, attributes, extensions, payload } =
                        self.store.get(key, range).await?;
                    let whole = GetResult {
                        meta: meta.clone(),
                        range: range.clone(),
                        attributes,
                        extensions,
                        payload,
                    };
                    let attributes = whole.attributes.clone();
                    let mut bytes = whole.bytes().await?.to_vec();
                    if let Some(byte) = bytes.last_mut() {
                        *byte ^= 1;
                    }
                    let stream = futures_util::stream::iter([Ok(Bytes::from(bytes))]).boxed();
                    let payload = GetResultPayload::Stream(stream);
                    Ok(GetResult { meta, range, attributes, extensions: Default::default(), payload })
                }
                Some(Effect::Hook(_)) | None => self.store.get(key, range).await,
            }
        }
        .boxed()
    }

    fn begin(&self, key: Key) -> Answer<'_, String> {
        self.through(Op::Begin, key.to_string(), self.store.begin(key))
    }

    fn part(&self, key: Key, upload: String, number: usize, body: PutPayload) -> Answer<'_, String> {
        self.through(Op::Part, format!("{key}#{number}"), self.store.part(key, upload, number, body))
    }

    fn complete(&self, key: Key, upload: String, parts: Vec<String>) -> Answer<'_, ()> {
        self.through(Op::Complete, key.to_string(), self.store.complete(key, upload, parts))
    }

    fn abort(&self, key: Key, upload: String) -> Answer<'_, ()> {
        self.store.abort(key, upload)
    }

    fn list(&self, prefix: Key) -> BoxStream<'_, Result<ObjectMeta>> {
        match self.strike(Op::List, prefix.to_string()) {
            Some(Effect::Fail | Effect::FailAfter) => futures_util::stream::iter([Err(injected())]).boxed(),
            Some(Effect::Corrupt | Effect::Hook(_)) | None => self.store.list(prefix),
        }
    }

    fn children(&self, prefix: Key) -> Answer<'_, Vec<Key>> {
        self.store.children(prefix)
    }

    fn delete(&self, keys: Vec<Key>) -> Answer<'_, ()> {
        self.through(
            Op::Delete,
            keys.first().map(Key::to_string).unwrap_or_default(),
            self.store.delete(keys),
        )
    }
}

/// A folder in memory, where a sync costs nothing.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// A journal of one job.
pub(crate) struct Scratch {
    journal: Journal,
    _folder: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        let folder = folder();
        Self { journal: Journal::open(folder.path()).unwrap(), _folder: folder }
    }

    pub fn ledger(&self) -> Ledger<'_> {
        Ledger::new(&self.journal, 1)
    }

    /// Runs the job that copies between these places, one of which is `set`, as far as it comes.
    fn copy(
        &self,
        [source, destination]: [spec::Place; 2],
        set: &ObjectSet,
        pace: &dyn Pace,
        stop: &Stop,
        progress: &Progress,
    ) -> std::result::Result<Notes, StageError> {
        let spec = JobSpec { verb: Verb::Copy, source, destination, options: Options::default() };
        let id: JobId = match self.journal.accept(&spec, 0, None)? {
            Accepted::New(id) | Accepted::Same(id, _) => id,
            Accepted::Judge(row) => row.id,
        };
        let tiers = &Tiers::with(Arc::new(Only(set.elsewhere(set.prefix.clone()))));
        Run {
            journal: &self.journal,
            id,
            compares: false,
            spec: &spec,
            tiers,
            pace,
            stop,
            progress,
            threads: 2,
            crew: None,
        }
        .run()
        .map(|ended| ended.notes)
    }
}

/// The one set that URLs name.
struct Only(ObjectSet);

impl Only {
    fn set(&self) -> ObjectSet {
        self.0.elsewhere(self.0.prefix.clone())
    }
}

impl Objects for Only {
    fn tier(&self, url: &str, _: &Stop) -> std::result::Result<Box<dyn Tier>, StageError> {
        unreachable!("{url}: no retention was asked for")
    }

    fn destination(&self, _: &str) -> std::result::Result<Box<dyn Destination>, StageError> {
        Ok(Box::new(SetToBe::of(self.set())))
    }

    fn source(&self, _: &str) -> std::result::Result<Box<dyn stage::tier::Source>, StageError> {
        Ok(Box::new(SetThatIs::of(self.set())))
    }

    fn digest(&self, _: &str) -> std::result::Result<Option<stage::Digest>, StageError> {
        self.set().digest(&Stop::new())
    }
}

fn url() -> spec::Place {
    spec::Place::of_name("s3://memory/run/step-7").unwrap()
}

fn place_of(path: &Path) -> spec::Place {
    spec::Place::Path(path.into())
}

/// A source, a journal and a store, through which several runs go.
struct Scene {
    _directory: tempfile::TempDir,
    source: PathBuf,
    memory: Arc<InMemory>,
    scratch: Scratch,
}

impl Scene {
    fn new() -> Self {
        let directory = folder();
        let source = directory.path().join("set");
        fs::create_dir(&source).unwrap();
        Self { _directory: directory, source, memory: Arc::default(), scratch: Scratch::new() }
    }

    /// The same, where the journal was lost.
    fn anew(self) -> Self {
        Self { scratch: Scratch::new(), ..self }
    }

    /// A tree with what is likely to go wrong.
    fn usual() -> Self {
        let scene = Self::new();
        let root = &scene.source;
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        fs::write(root.join("a/b/deep"), b"deep").unwrap();
        fs::write(root.join("a-b"), b"between").unwrap();
        fs::write(root.join("nothing"), b"").unwrap();
        fs::write(root.join(OsStr::from_bytes(b"new\nline \xff%")), b"named").unwrap();
        fs::write(root.join("large"), pattern(CHUNK_BYTES + 12345, 3)).unwrap();
        fs::hard_link(root.join("a/b/deep"), root.join("z")).unwrap();
        std::os::unix::fs::symlink("../nowhere", root.join("a/link")).unwrap();
        fs::set_permissions(root.join("a-b"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o750)).unwrap();
        scene
    }

    fn set(&self, store: Arc<dyn Store>) -> ObjectSet {
        ObjectSet::with(Address::parse("s3://memory/run/step-7").unwrap(), store).unwrap()
    }

    fn plain(&self) -> ObjectSet {
        self.set(Arc::new(Remote::new(Arc::clone(&self.memory))))
    }

    fn drain_to(&self, set: &ObjectSet, stop: &Stop) -> std::result::Result<Notes, StageError> {
        let places = [place_of(&self.source), url()];
        self.scratch.copy(places, set, &Unlimited, stop, &Progress::default())
    }

    fn drain(&self, faulty: &Arc<Faulty>) -> std::result::Result<Notes, StageError> {
        self.drain_to(&self.set(Arc::new(Arc::clone(faulty))), &Stop::new())
    }

    /// Gives up what was stored.
    fn give_up(&self) {
        let root = fs::File::open(&self.source).unwrap();
        let source = Source::directory(root.as_fd(), &self.source);
        self.plain().abandon(Some(&source), self.scratch.ledger(), &Stop::new()).unwrap();
    }

    fn manifest(&self) -> Option<Manifest> {
        match self.plain().manifest(&Stop::new()) {
            Ok(manifest) => Some(manifest),
            Err(StageError::Invalid { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn fetched(&self) -> Fetched {
        let fetched = Fetched::new();
        fetched.fetch(&self.plain()).unwrap();
        fetched
    }
}

/// Where a set is fetched to, with a journal.
struct Fetched {
    folder: tempfile::TempDir,
    scratch: Scratch,
}

impl Fetched {
    fn new() -> Self {
        Self { folder: folder(), scratch: Scratch::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("back")
    }

    /// What is under way.
    fn part(&self) -> PathBuf {
        fs::read_dir(self.folder.path()).unwrap().next().unwrap().unwrap().path()
    }

    fn fetch(&self, set: &ObjectSet) -> std::result::Result<Notes, StageError> {
        self.fetch_at(set, &Unlimited)
    }

    fn fetch_at(&self, set: &ObjectSet, pace: &dyn Pace) -> std::result::Result<Notes, StageError> {
        let places = [url(), place_of(&self.path())];
        self.scratch.copy(places, set, pace, &Stop::new(), &Progress::default())
    }
}

fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut all = vec![0; bytes as usize];
    for word in all.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    all
}

/// Path, mode, times, content and number of names.
type Node = (PathBuf, u32, (i64, i64), Vec<u8>, u64);

/// Everything about a tree that a set keeps.
fn tree(root: &Path) -> Vec<Node> {
    let mut all = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_symlink() {
            fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let links = if meta.is_dir() { 0 } else { meta.nlink() };
        let relative = path.strip_prefix(root).unwrap().to_owned();
        if relative == Path::new(stage::manifest::NAME) {
            continue;
        }
        all.push((relative, meta.mode(), (meta.mtime(), meta.mtime_nsec()), content, links));
    }
    all.sort();
    all
}

fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (tree(a), tree(b));
    assert_eq!(a.iter().map(|x| &x.0).collect::<Vec<_>>(), b.iter().map(|x| &x.0).collect::<Vec<_>>());
    for (a, b) in a.iter().zip(&b) {
        assert!(a == b, "{:?}: mode {:o} {:o}, times {:?} {:?}", a.0, a.1, b.1, a.2, b.2);
    }
}

/// What a manifest says of bytes and names.
fn contents(manifest: &Manifest) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    let entries = manifest.entries.clone().into_iter();
    entries
        .map(|entry| (entry.path, entry.kind, entry.size, entry.digest, entry.target, entry.link_to))
        .collect()
}
