//! Drains and fetches against stores that fail on demand.

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

use super::address::Address;
use super::store::{Answer, Remote, Store};
use super::{DrainOptions, Drained, Environment, Forgetful, Manifest, ObjectSet, Resume, Source};
use crate::digest::{Algorithm, CHUNK_BYTES};
use crate::error::StageError;
use crate::manifest::{Entry, Kind, Writer};
use crate::names::PathText;
use crate::pace::{Pace, Progress, Stop, Unlimited};
use crate::spec::Preserve;

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

/// A store that strikes the nth request of a kind.
struct Faulty {
    store: Remote<InMemory>,
    faults: Mutex<Vec<(Op, usize, Effect)>>,
    seen: Mutex<HashMap<Op, usize>>,
    log: Mutex<Vec<(Op, String)>>,
}

impl Faulty {
    fn new(memory: &Arc<InMemory>, faults: Vec<(Op, usize, Effect)>) -> Arc<Self> {
        Arc::new(Self {
            store: Remote::new(Arc::clone(memory)),
            faults: Mutex::new(faults),
            seen: Mutex::default(),
            log: Mutex::default(),
        })
    }

    fn strike(&self, op: Op, key: String) -> Option<Effect> {
        let nth = {
            let mut seen = self.seen.lock().unwrap();
            let nth = seen.entry(op).or_default();
            *nth += 1;
            *nth - 1
        };
        self.log.lock().unwrap().push((op, key));
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
    fn put(&self, key: Key, body: PutPayload, create: bool) -> Answer<'_, ()> {
        self.through(Op::Put, key.to_string(), self.store.put(key, body, create))
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

/// A source, notes and a store, through which several runs go.
struct Scene {
    _directory: tempfile::TempDir,
    source: PathBuf,
    memory: Arc<InMemory>,
    notes: Forgetful,
    options: DrainOptions,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("set");
        fs::create_dir(&source).unwrap();
        let (memory, notes) = (Arc::default(), Forgetful::default());
        Self { _directory: directory, source, memory, notes, options: DrainOptions::default() }
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
        ObjectSet::with(Address::parse("memory:///run/step-7").unwrap(), store).unwrap()
    }

    fn plain(&self) -> ObjectSet {
        self.set(Arc::new(Remote::new(Arc::clone(&self.memory))))
    }

    fn drain_to(&self, set: &ObjectSet, stop: &Stop) -> std::result::Result<Drained, StageError> {
        let root = fs::File::open(&self.source).unwrap();
        let source = Source::directory(root.as_fd(), &self.source);
        set.drain(&source, &self.options, &self.notes, &Unlimited, stop, &Progress::default())
    }

    fn drain(&self, faulty: &Arc<Faulty>) -> std::result::Result<Drained, StageError> {
        self.drain_to(&self.set(Arc::new(Arc::clone(faulty))), &Stop::new())
    }

    fn manifest(&self) -> Option<Manifest> {
        match self.plain().manifest(&Stop::new()) {
            Ok(manifest) => Some(manifest),
            Err(StageError::Invalid { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn fetched(&self) -> tempfile::TempDir {
        let set = self.plain();
        let directory = tempfile::tempdir().unwrap();
        let root = fs::File::open(directory.path()).unwrap();
        let manifest = set.manifest(&Stop::new()).unwrap();
        let progress = Progress::default();
        set.fetch_into(
            &manifest,
            root.as_fd(),
            directory.path(),
            &Preserve::USUAL,
            &Unlimited,
            &Stop::new(),
            &progress,
        )
        .unwrap();
        directory
    }
}

fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..bytes.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(bytes as usize).collect()
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

#[test]
fn a_set_comes_back_as_it_was() {
    let scene = Scene::usual();
    let drained = scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert_eq!((drained.files, drained.already, drained.strangers), (5, false, 0));
    assert_same(&scene.source, scene.fetched().path());
    let verified = scene.plain().verify(&Stop::new(), &Progress::default()).unwrap();
    assert_eq!((verified.files, verified.bytes, verified.faults.len()), (5, drained.bytes, 0));
}

#[test]
fn whatever_request_fails_the_next_run_ends_as_one_without_faults() {
    let clean = Scene::usual();
    let counting = Faulty::new(&clean.memory, vec![]);
    clean.drain(&counting).unwrap();
    let expected = contents(&clean.manifest().unwrap());
    let mut failed = 0;
    for op in OPS {
        let count = counting.count(op);
        assert!(count > 0, "{op:?} is never used");
        for nth in 0..count {
            for effect in [Effect::Fail, Effect::FailAfter] {
                let scene = Scene::usual();
                let first = scene.drain(&Faulty::new(&scene.memory, vec![(op, nth, effect)]));
                failed += u32::from(first.is_err());
                if first.is_err() && scene.manifest().is_some() {
                    // It was the answer to the commit that was lost, or what came after it.
                    let verified = scene.plain().verify(&Stop::new(), &Progress::default()).unwrap();
                    assert!(verified.faults.is_empty(), "{op:?} {nth}: a manifest without its objects");
                }
                let again = scene
                    .drain(&Faulty::new(&scene.memory, vec![]))
                    .unwrap_or_else(|error| panic!("{op:?} {nth}: {error}"));
                assert_eq!(again.files, 5);
                assert_eq!(contents(&scene.manifest().unwrap()), expected);
                let verified = scene.plain().verify(&Stop::new(), &Progress::default()).unwrap();
                assert!(verified.faults.is_empty(), "{op:?} {nth}: {verified:?}");
            }
        }
    }
    assert!(failed > 10, "only {failed} of the faults were noticed");
}

#[test]
fn bytes_that_read_back_other_than_written_are_never_committed() {
    let clean = Scene::usual();
    let counting = Faulty::new(&clean.memory, vec![]);
    clean.drain(&counting).unwrap();
    let mut corrupt = 0;
    for nth in 0..counting.count(Op::Get) {
        let scene = Scene::usual();
        let faulty = Faulty::new(&scene.memory, vec![(Op::Get, nth, Effect::Corrupt)]);
        match scene.drain(&faulty) {
            Err(StageError::Corrupt { .. }) => {
                corrupt += 1;
                assert!(scene.manifest().is_none(), "get {nth}");
            }
            // The manifest's own reading back; or an object without a byte to change.
            Err(StageError::Peer { what, .. }) => assert!(what.contains("manifest"), "{what}"),
            Err(error) => panic!("get {nth}: {error}"),
            Ok(_) => {
                let log = faulty.log.lock().unwrap();
                let struck = log.iter().filter(|(op, _)| *op == Op::Get).nth(nth).unwrap();
                let bare = ["nothing", ".flashwright-manifest"].iter().any(|name| struck.1.ends_with(name));
                assert!(bare, "{struck:?} went unnoticed");
            }
        }
        scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
        assert_same(&scene.source, scene.fetched().path());
    }
    // Three small files with bytes, and two chunks of the large one.
    assert!(corrupt >= 5, "{corrupt}");
}

#[test]
fn parts_and_files_that_the_store_has_are_not_uploaded_again() {
    let scene = Scene::new();
    fs::write(scene.source.join("large"), pattern(12 * CHUNK_BYTES, 5)).unwrap();
    fs::write(scene.source.join("small"), b"small").unwrap();
    let first = Faulty::new(&scene.memory, vec![(Op::Part, 9, Effect::Fail)]);
    let error = scene.drain(&first).unwrap_err();
    assert!(error.to_string().contains("run/step-7/large"), "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
    let second = Faulty::new(&scene.memory, vec![]);
    scene.drain(&second).unwrap();
    let parts = |faulty: &Faulty| {
        let log = faulty.log.lock().unwrap();
        log.iter().filter(|(op, _)| *op == Op::Part).map(|(_, key)| key.clone()).collect::<Vec<_>>()
    };
    let sent = parts(&first);
    assert!(sent.len() >= 10);
    assert_eq!(parts(&second).len(), 12 - (sent.len() - 1), "{sent:?} then {:?}", parts(&second));
    assert_eq!(second.count(Op::Begin), 0);
    let small = |faulty: &Faulty| {
        faulty.log.lock().unwrap().iter().filter(|(op, key)| *op == Op::Put && key.ends_with("small")).count()
    };
    assert_eq!(small(&first) + small(&second), 1);
    assert_same(&scene.source, scene.fetched().path());
}

#[test]
fn an_upload_that_the_store_has_forgotten_is_begun_again() {
    let scene = Scene::new();
    fs::write(scene.source.join("large"), pattern(3 * CHUNK_BYTES, 5)).unwrap();
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::Part, 2, Effect::Fail)])).unwrap_err();
    // Another store: it has neither the upload nor the parts.
    let scene = Scene { memory: Arc::default(), ..scene };
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert_same(&scene.source, scene.fetched().path());
}

#[test]
fn a_source_that_changes_on_the_way_is_never_committed() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 7] = [
        ("written", |root| fs::write(root.join("a-b"), b"BETWEEN").unwrap()),
        ("truncated", |root| {
            fs::File::options().write(true).open(root.join("large")).unwrap().set_len(5).unwrap()
        }),
        ("deleted", |root| fs::remove_file(root.join("a-b")).unwrap()),
        ("added", |root| fs::write(root.join("a/b/more"), b"x").unwrap()),
        ("replaced", |root| {
            fs::write(root.join("new"), b"between").unwrap();
            fs::rename(root.join("new"), root.join("a-b")).unwrap();
        }),
        ("retargeted", |root| {
            fs::remove_file(root.join("a/link")).unwrap();
            std::os::unix::fs::symlink("elsewhere", root.join("a/link")).unwrap();
        }),
        ("swapped for a link", |root| {
            fs::rename(root.join("a/b"), root.join("c")).unwrap();
            std::os::unix::fs::symlink("/etc", root.join("a/b")).unwrap();
        }),
    ];
    for (name, change) in changes {
        // While the first object is put, the second part is under way, and before what is stored is listed.
        for (op, nth) in [(Op::Put, 1), (Op::Part, 1), (Op::Complete, 0)] {
            let scene = Scene::usual();
            let root = scene.source.clone();
            let hook = Effect::Hook(Arc::new(move || change(&root)));
            match scene.drain(&Faulty::new(&scene.memory, vec![(op, nth, hook)])) {
                Err(StageError::SourceChanged { .. }) => {}
                // What a symbolic link has taken the place of is not followed.
                Err(StageError::Io { source, .. }) if name == "swapped for a link" => {
                    let errno = source.raw_os_error();
                    assert!(
                        errno == Some(rustix::io::Errno::LOOP.raw_os_error()) || errno == Some(20),
                        "{source}"
                    );
                }
                other => panic!("{name} at {op:?} {nth}: {other:?}"),
            }
            assert!(scene.manifest().is_none(), "{name}");
            scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
            assert_same(&scene.source, scene.fetched().path());
        }
    }
}

#[test]
fn an_object_that_goes_or_is_replaced_before_the_commit_is_found_out() {
    for replace in [false, true] {
        let scene = Scene::usual();
        let memory = Arc::clone(&scene.memory);
        let hook = Effect::Hook(Arc::new(move || {
            let store = Remote::new(Arc::clone(&memory));
            let key = Key::from("run/step-7/a-b");
            let done = async {
                match replace {
                    true => store.put(key, PutPayload::from_static(b"BETWEEN"), false).await,
                    false => store.delete(vec![key]).await,
                }
            };
            futures_util::FutureExt::now_or_never(done).unwrap().unwrap();
        }));
        let error = scene.drain(&Faulty::new(&scene.memory, vec![(Op::List, 1, hook)])).unwrap_err();
        assert!(error.to_string().contains("run/step-7/a-b"), "{error}");
        assert!(scene.manifest().is_none());
    }
}

#[test]
fn the_same_set_again_is_a_success_and_another_is_refused() {
    let scene = Scene::usual();
    let first = scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    // As after a crash between the commit and the journal, and as from somebody who knows nothing of the first.
    let scene = Scene { notes: Forgetful::default(), ..scene };
    for _ in 0..2 {
        let faulty = Faulty::new(&scene.memory, vec![]);
        let again = scene.drain(&faulty).unwrap();
        assert!(again.already);
        assert_eq!(again.digest, first.digest);
        let log = faulty.log.lock().unwrap();
        assert!(log.iter().all(|(op, key)| *op != Op::Put || key.ends_with(".flashwright-claim")), "{log:?}");
    }
    fs::write(scene.source.join("a-b"), b"other").unwrap();
    let error = scene.drain_to(&scene.plain(), &Stop::new()).unwrap_err();
    assert_eq!(error.class(), crate::ErrorClass::Refused, "{error}");
    assert_eq!(scene.manifest().unwrap().digest, first.digest, "nothing was overwritten");
    let verified = scene.plain().verify(&Stop::new(), &Progress::default()).unwrap();
    assert!(verified.faults.is_empty());
}

#[test]
fn a_set_that_lost_an_object_is_not_vouched_for_again() {
    let scene = Scene::usual();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let store = Remote::new(Arc::clone(&scene.memory));
    store.delete(vec![Key::from("run/step-7/a-b")]).now_or_never().unwrap().unwrap();
    let error = scene.drain_to(&scene.plain(), &Stop::new()).unwrap_err();
    assert!(matches!(error, StageError::Corrupt { .. }), "{error}");
    let verified = scene.plain().verify(&Stop::new(), &Progress::default()).unwrap();
    assert_eq!(verified.faults.len(), 1);
}

#[test]
fn rot_and_loss_are_found_by_verify_and_by_fetch() {
    for key in ["run/step-7/a-b", "run/step-7/large"] {
        let scene = Scene::usual();
        scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
        let store = Remote::new(Arc::clone(&scene.memory));
        let bytes = store
            .get(Key::from(key), None)
            .now_or_never()
            .unwrap()
            .unwrap()
            .bytes()
            .now_or_never()
            .unwrap()
            .unwrap();
        let mut bytes = bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 0x80;
        store.put(Key::from(key), bytes.into(), false).now_or_never().unwrap().unwrap();
        let verified = scene.plain().verify(&Stop::new(), &Progress::default()).unwrap();
        assert!(matches!(verified.faults[..], [StageError::Corrupt { .. }]), "{verified:?}");
        let directory = tempfile::tempdir().unwrap();
        let root = fs::File::open(directory.path()).unwrap();
        let set = scene.plain();
        let manifest = set.manifest(&Stop::new()).unwrap();
        let fetched = set.fetch_into(
            &manifest,
            root.as_fd(),
            directory.path(),
            &Preserve::USUAL,
            &Unlimited,
            &Stop::new(),
            &Progress::default(),
        );
        assert!(matches!(fetched, Err(StageError::Corrupt { .. })), "{fetched:?}");
    }
}

#[test]
fn who_stops_a_drain_can_go_on_with_it_or_give_it_up() {
    for give_up in [false, true] {
        let scene = Scene::usual();
        let stop = Stop::new();
        let asker = stop.clone();
        let hook = Effect::Hook(Arc::new(move || asker.ask()));
        let faulty = Faulty::new(&scene.memory, vec![(Op::Part, 0, hook)]);
        let error = scene.drain_to(&scene.set(Arc::new(faulty)), &stop).unwrap_err();
        assert_eq!(error.class(), crate::ErrorClass::Interrupted, "{error}");
        if give_up {
            let root = fs::File::open(&scene.source).unwrap();
            let source = Source::directory(root.as_fd(), &scene.source);
            scene.plain().abandon(&source, &scene.notes, &Stop::new()).unwrap();
            let left = Remote::new(Arc::clone(&scene.memory))
                .list(Key::ROOT)
                .collect::<Vec<_>>()
                .now_or_never()
                .unwrap();
            assert!(left.is_empty(), "{left:?}");
        } else {
            scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
            assert_same(&scene.source, scene.fetched().path());
        }
    }
}

#[test]
fn a_set_that_is_committed_is_not_given_up() {
    let scene = Scene::usual();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let root = fs::File::open(&scene.source).unwrap();
    scene
        .plain()
        .abandon(&Source::directory(root.as_fd(), &scene.source), &scene.notes, &Stop::new())
        .unwrap();
    assert_same(&scene.source, scene.fetched().path());
}

#[test]
fn sets_are_listed_and_half_a_deletion_leaves_no_set() {
    let scene = Scene::usual();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let store = || Arc::new(Remote::new(Arc::clone(&scene.memory)));
    store()
        .put(Key::from("run/leftover/x"), PutPayload::from_static(b"x"), false)
        .now_or_never()
        .unwrap()
        .unwrap();
    let parent = ObjectSet::with(Address::parse("memory:///run").unwrap(), store()).unwrap();
    let names = || parent.list(&Stop::new()).unwrap().into_iter().map(|set| set.url).collect::<Vec<_>>();
    assert_eq!(names(), ["memory:///run/step-7"]);
    // The objects' deletion fails: the manifest is gone already.
    let faulty = Faulty::new(&scene.memory, vec![(Op::Delete, 1, Effect::Fail)]);
    scene.set(Arc::new(faulty)).delete(&Stop::new()).unwrap_err();
    assert!(scene.manifest().is_none());
    assert_eq!(names(), Vec::<String>::new());
    assert_eq!(scene.plain().delete(&Stop::new()).unwrap(), 5);
    assert_eq!(scene.plain().delete(&Stop::new()).unwrap(), 0);
    let left = store().list(Key::ROOT).collect::<Vec<_>>().now_or_never().unwrap();
    assert_eq!(left.len(), 1, "what is not the set's stays");
}

#[test]
fn a_name_that_another_drain_has_claimed_is_left_alone() {
    let scene = Scene::usual();
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::Part, 0, Effect::Fail)])).unwrap_err();
    let rival = Scene { memory: Arc::clone(&scene.memory), ..Scene::usual() };
    fs::write(rival.source.join("a-b"), b"other").unwrap();
    let faulty = Faulty::new(&rival.memory, vec![]);
    let error = rival.drain(&faulty).unwrap_err();
    assert_eq!(error.class(), crate::ErrorClass::Refused, "{error}");
    assert_eq!(faulty.count(Op::Put), 1, "the claim alone was tried");
    let root = fs::File::open(&rival.source).unwrap();
    rival
        .plain()
        .abandon(&Source::directory(root.as_fd(), &rival.source), &rival.notes, &Stop::new())
        .unwrap();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert_same(&scene.source, scene.fetched().path());
}

#[test]
fn a_claim_that_nobody_comes_back_to_goes_with_what_was_left() {
    let scene = Scene::usual();
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::Part, 0, Effect::Fail)])).unwrap_err();
    let later = Scene { notes: Forgetful::default(), ..scene };
    assert_eq!(later.drain_to(&later.plain(), &Stop::new()).unwrap_err().class(), crate::ErrorClass::Refused);
    later.plain().delete(&Stop::new()).unwrap();
    later.drain_to(&later.plain(), &Stop::new()).unwrap();
    assert_same(&later.source, later.fetched().path());
}

#[test]
fn leftovers_of_a_set_go_without_the_sets_further_down() {
    let scene = Scene::new();
    let store = Remote::new(Arc::clone(&scene.memory));
    for key in ["run/step-7/x", "run/step-7/sub/.flashwright-manifest", "run/step-7/sub/y", "run/step-77/z"] {
        store.put(Key::from(key), PutPayload::from_static(b"x"), false).now_or_never().unwrap().unwrap();
    }
    assert_eq!(scene.plain().delete(&Stop::new()).unwrap(), 1);
    let left = store.list(Key::ROOT).collect::<Vec<_>>().now_or_never().unwrap();
    assert_eq!(left.len(), 3);
}

#[test]
fn one_file_is_a_set_of_one() {
    for size in [0, 5, CHUNK_BYTES, CHUNK_BYTES + 1] {
        let scene = Scene::new();
        let path = scene.source.join("model");
        fs::write(&path, pattern(size, 9)).unwrap();
        let root = fs::File::open(&scene.source).unwrap();
        let source = Source::file(root.as_fd(), OsStr::new("model"), &path);
        let set = scene.plain();
        set.drain(&source, &scene.options, &scene.notes, &Unlimited, &Stop::new(), &Progress::default())
            .unwrap();
        let manifest = set.manifest(&Stop::new()).unwrap();
        assert!(manifest.is_file());
        let object = Remote::new(Arc::clone(&scene.memory))
            .get(Key::from("run/step-7/step-7"), None)
            .now_or_never()
            .unwrap();
        assert_eq!(object.unwrap().meta.size, size);
        let back = tempfile::tempfile().unwrap();
        let progress = Progress::default();
        set.fetch_file(&manifest, back.as_fd(), &path, &Preserve::USUAL, &Unlimited, &Stop::new(), &progress)
            .unwrap();
        let mut bytes = vec![0; size as usize];
        assert_eq!(crate::calls::read_at(back.as_fd(), &mut bytes, 0).unwrap() as u64, size);
        assert!(bytes == fs::read(&path).unwrap());
        assert_eq!(back.metadata().unwrap().len(), size);
    }
}

#[test]
fn a_directory_stands_in_for_a_store() {
    let scene = Scene::usual();
    let store = tempfile::tempdir().unwrap();
    let url = format!("file://{}/run/step-7", store.path().display());
    let set = ObjectSet::open(&url, &Environment::default()).unwrap();
    let drained = scene.drain_to(&set, &Stop::new()).unwrap();
    assert_eq!(drained.strangers, 0);
    assert!(scene.drain_to(&set, &Stop::new()).unwrap().already);
    let back = tempfile::tempdir().unwrap();
    let root = fs::File::open(back.path()).unwrap();
    let manifest = set.manifest(&Stop::new()).unwrap();
    set.fetch_into(
        &manifest,
        root.as_fd(),
        back.path(),
        &Preserve::USUAL,
        &Unlimited,
        &Stop::new(),
        &Progress::default(),
    )
    .unwrap();
    assert_same(&scene.source, back.path());
    let parent = format!("file://{}/run", store.path().display());
    let sets = super::list(&parent, &Environment::default(), &Stop::new()).unwrap();
    assert_eq!(sets.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), ["step-7"]);
    set.delete(&Stop::new()).unwrap();
    assert!(set.manifest(&Stop::new()).is_err());
}

#[test]
fn what_no_object_can_hold_is_refused_before_anything_is_stored() {
    let scene = Scene::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scene.source.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let faulty = Faulty::new(&scene.memory, vec![]);
    assert_eq!(scene.drain(&faulty).unwrap_err().class(), crate::ErrorClass::Refused);
    assert_eq!(faulty.count(Op::Put), 0);
}

#[test]
fn only_the_set_that_was_fetched_is_deleted() {
    let scene = Scene::usual();
    let drained = scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let other = Algorithm::Xxh3.of(b"another");
    assert_eq!(
        scene.plain().delete_only(other, &Stop::new()).unwrap_err().class(),
        crate::ErrorClass::Refused
    );
    assert_same(&scene.source, scene.fetched().path());
    assert_eq!(scene.plain().delete_only(drained.digest, &Stop::new()).unwrap(), 5);
    assert_eq!(scene.plain().delete_only(drained.digest, &Stop::new()).unwrap(), 0);
    // Somebody stores another set there.
    let scene = Scene { notes: Forgetful::default(), ..scene };
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::List, 1, Effect::Fail)])).unwrap_err();
    assert_eq!(scene.plain().delete_only(drained.digest, &Stop::new()).unwrap(), 0);
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert_same(&scene.source, scene.fetched().path());
}

#[test]
fn objects_that_belong_to_no_set_are_not_overwritten() {
    let scene = Scene::usual();
    let store = Remote::new(Arc::clone(&scene.memory));
    let put = |key: &str| {
        store.put(Key::from(key), PutPayload::from_static(b"theirs"), false).now_or_never().unwrap().unwrap()
    };
    put("run/step-7/elsewhere");
    put("run/step-7/a-b");
    for _ in 0..2 {
        let error = scene.drain_to(&scene.plain(), &Stop::new()).unwrap_err();
        assert_eq!(error.class(), crate::ErrorClass::Refused, "{error}");
        assert!(error.to_string().contains("a-b"), "{error}");
    }
    assert_eq!(store.list(Key::ROOT).collect::<Vec<_>>().now_or_never().unwrap().len(), 2);
    store.delete(vec![Key::from("run/step-7/a-b")]).now_or_never().unwrap().unwrap();
    assert_eq!(scene.drain_to(&scene.plain(), &Stop::new()).unwrap().strangers, 1);
    assert_same(&scene.source, scene.fetched().path());
}

#[test]
fn a_file_that_has_the_name_of_the_claim_is_refused() {
    let scene = Scene::usual();
    fs::write(scene.source.join(".flashwright-claim"), b"").unwrap();
    assert_eq!(scene.drain_to(&scene.plain(), &Stop::new()).unwrap_err().class(), crate::ErrorClass::Refused);
}

#[test]
fn pace_is_asked_for_every_byte_once_in_each_direction() {
    #[derive(Default)]
    struct Counting(std::sync::atomic::AtomicU64);
    impl Pace for Counting {
        fn admit(&self, bytes: u64, _: u64, _: &Stop) {
            self.0.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let scene = Scene::usual();
    let root = fs::File::open(&scene.source).unwrap();
    let source = Source::directory(root.as_fd(), &scene.source);
    let (up, down, progress) = (Counting::default(), Counting::default(), Progress::default());
    let set = scene.plain();
    let drained = set.drain(&source, &scene.options, &scene.notes, &up, &Stop::new(), &progress).unwrap();
    let counted = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(counted(&up.0), drained.bytes);
    assert_eq!(counted(&progress.bytes_total), drained.bytes);
    assert_eq!(counted(&progress.bytes_written), drained.bytes);
    assert_eq!(counted(&progress.bytes_verified), drained.bytes);
    let back = tempfile::tempdir().unwrap();
    let root = fs::File::open(back.path()).unwrap();
    let manifest = set.manifest(&Stop::new()).unwrap();
    set.fetch_into(
        &manifest,
        root.as_fd(),
        back.path(),
        &Preserve::NONE,
        &down,
        &Stop::new(),
        &Progress::default(),
    )
    .unwrap();
    assert_eq!(counted(&down.0), drained.bytes);
}

fn entry(path: &str, kind: Kind) -> Entry {
    Entry {
        path: PathText(path.into()),
        kind,
        size: 0,
        mode: 0o6755,
        uid: 0,
        gid: 0,
        mtime_s: 0,
        mtime_ns: 0,
        digest: (kind == Kind::File).then(|| Algorithm::Xxh3.of(b"")),
        chunks: Vec::new(),
        target: (kind == Kind::Symlink).then(|| PathText("/etc".into())),
        link_to: None,
    }
}

fn plant(scene: &Scene, entries: &[Entry]) {
    let mut writer = Writer::new(Vec::new(), Algorithm::Xxh3, Path::new("x"), 0).unwrap();
    for entry in entries {
        writer.entry(entry).unwrap();
    }
    let text = writer.finish().unwrap().0;
    let key = Key::from("run/step-7/.flashwright-manifest");
    Remote::new(Arc::clone(&scene.memory)).put(key, text.into(), false).now_or_never().unwrap().unwrap();
}

#[test]
fn hostile_manifests_are_not_followed() {
    let root = entry("", Kind::Directory);
    let link =
        |to: &str| Entry { digest: None, link_to: Some(PathText(to.into())), ..entry("z", Kind::File) };
    let huge = |path: &str| Entry { kind: Kind::Symlink, size: 1 << 62, ..entry(path, Kind::Symlink) };
    let hostile: Vec<Vec<Entry>> = vec![
        vec![],
        vec![entry("a", Kind::File)],
        vec![root.clone(), entry("../x", Kind::File)],
        vec![root.clone(), entry("/etc/x", Kind::File)],
        vec![root.clone(), entry("a", Kind::File), entry("a", Kind::File)],
        vec![root.clone(), entry("a", Kind::Symlink), entry("a/passwd", Kind::File)],
        vec![root.clone(), entry(".flashwright-manifest", Kind::File)],
        vec![root.clone(), entry("a", Kind::Symlink), link("a")],
        vec![root.clone(), entry("a", Kind::Directory), link("a")],
        vec![root.clone(), link("nowhere")],
        vec![entry("", Kind::Symlink)],
        vec![entry("", Kind::File), entry("a", Kind::File)],
        vec![root.clone(), huge("a"), huge("b"), huge("c")],
        vec![root.clone(), Entry { size: 1 << 60, ..entry("a", Kind::File) }],
    ];
    for entries in hostile {
        let scene = Scene::new();
        plant(&scene, &entries);
        let error = scene.plain().manifest(&Stop::new()).map(drop).expect_err(&format!("{entries:?}"));
        assert!(matches!(error, StageError::Peer { .. }), "{error}");
    }
}

#[test]
fn an_object_larger_than_its_manifest_says_is_not_taken_and_programs_lose_their_setuid_bit() {
    let scene = Scene::new();
    plant(&scene, &[entry("", Kind::Directory), entry("a", Kind::File)]);
    let store = Remote::new(Arc::clone(&scene.memory));
    let fetch = || {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::File::open(directory.path()).unwrap();
        let set = scene.plain();
        let manifest = set.manifest(&Stop::new()).unwrap();
        set.fetch_into(
            &manifest,
            root.as_fd(),
            directory.path(),
            &Preserve::USUAL,
            &Unlimited,
            &Stop::new(),
            &Progress::default(),
        )
        .map(|()| directory)
    };
    store
        .put(Key::from("run/step-7/a"), PutPayload::from_static(b"much"), false)
        .now_or_never()
        .unwrap()
        .unwrap();
    assert!(matches!(fetch(), Err(StageError::Corrupt { .. })));
    store
        .put(Key::from("run/step-7/a"), PutPayload::from_static(b""), false)
        .now_or_never()
        .unwrap()
        .unwrap();
    let directory = fetch().unwrap();
    assert_eq!(fs::metadata(directory.path().join("a")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn notes_that_make_no_sense_cost_an_upload_and_nothing_else() {
    let scene = Scene::usual();
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::Complete, 0, Effect::Fail)])).unwrap_err();
    for key in ["object/done/0", "object/upload/run/step-7/large", "object/upload/run/step-7/large/0"] {
        scene.notes.save(key, b"{\"id\":3}").unwrap();
    }
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert_same(&scene.source, scene.fetched().path());
}
