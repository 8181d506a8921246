//! Names, claims, deletions, and manifests from anywhere.

use super::fixture::fixture;
use super::*;
use crate::ObjectTier;

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
    let parent =
        ObjectTier::of(ObjectSet::with(Address::parse("s3://memory/run").unwrap(), store()).unwrap());
    let names = || parent.names(&|_| true).unwrap();
    assert_eq!(names(), ["step-7"]);
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
    assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
    assert_eq!(faulty.count(Op::Put), 1, "the claim alone was tried");
    rival.give_up();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert_same(&scene.source, &scene.fetched().path());
}

#[test]
fn claims_are_read_for_ever() {
    for (name, deletion) in [("claim-1.json", false), ("claim-1-deletion.json", true)] {
        let scene = Scene::usual();
        let set = scene.plain();
        let stop = Stop::new();
        let halt = crate::lanes::Halt::new(&stop);
        let text: &[u8] = if deletion {
            br#"{"format":"flashwright.claim/1","id":"","since":1750000000,"deletion":true}"#
        } else {
            br#"{"format":"flashwright.claim/1","id":"00112233445566778899aabbccddeeff","since":1750000000}"#
        };
        let kept = fixture(name, || text.to_vec());
        let put = PutPayload::from(kept);
        let store = Remote::new(Arc::clone(&scene.memory));
        store.put(set.claim_key(), put, false).now_or_never().unwrap().unwrap();
        assert!(set.is_claimed(&halt).unwrap());
        assert_eq!(set.is_half_gone(&halt).unwrap(), deletion, "{name}");
        let error = scene.drain_to(&set, &stop).unwrap_err().to_string();
        let said = if deletion { "is being deleted" } else { "begun 1750000000 s after 1970" };
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_claim_that_nobody_comes_back_to_goes_with_what_was_left() {
    let scene = Scene::usual();
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::Part, 0, Effect::Fail)])).unwrap_err();
    let later = scene.anew();
    assert_eq!(later.drain_to(&later.plain(), &Stop::new()).unwrap_err().class(), stage::ErrorClass::Refused);
    later.plain().delete(&Stop::new()).unwrap();
    later.drain_to(&later.plain(), &Stop::new()).unwrap();
    assert_same(&later.source, &later.fetched().path());
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
        let scene = Scene { source: path, ..scene };
        scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
        assert!(scene.manifest().unwrap().is_file());
        let object = Remote::new(Arc::clone(&scene.memory))
            .get(Key::from("run/step-7/step-7"), None)
            .now_or_never()
            .unwrap();
        assert_eq!(object.unwrap().meta.size, size);
        assert!(fs::read(scene.fetched().path()).unwrap() == fs::read(&scene.source).unwrap());
    }
}

#[test]
fn a_directory_stands_in_for_a_store() {
    let scene = Scene::usual();
    let store = tempfile::tempdir().unwrap();
    let url = format!("file://{}/run/step-7", store.path().display());
    let set = ObjectSet::open(&url, &Environment::default()).unwrap();
    assert_eq!(scene.drain_to(&set, &Stop::new()).unwrap(), Notes::new());
    let back = Fetched::new();
    back.fetch(&set).unwrap();
    assert_same(&scene.source, &back.path());
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
    assert_eq!(scene.drain(&faulty).unwrap_err().class(), stage::ErrorClass::Refused);
    assert_eq!(faulty.count(Op::Put), 0);
}

#[test]
fn only_the_set_that_was_fetched_is_deleted() {
    let scene = Scene::usual();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let digest = scene.manifest().unwrap().digest;
    let other = Algorithm::Xxh3.of(b"another");
    assert_eq!(
        scene.plain().delete_only(other, &Stop::new()).unwrap_err().class(),
        stage::ErrorClass::Refused
    );
    assert_same(&scene.source, &scene.fetched().path());
    assert_eq!(scene.plain().delete_only(digest, &Stop::new()).unwrap(), 5);
    assert_eq!(scene.plain().delete_only(digest, &Stop::new()).unwrap(), 0);
    // Somebody stores another set there.
    let scene = scene.anew();
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::List, 1, Effect::Fail)])).unwrap_err();
    assert_eq!(scene.plain().delete_only(digest, &Stop::new()).unwrap(), 0);
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert_same(&scene.source, &scene.fetched().path());
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
        assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
        assert!(error.to_string().contains("a-b"), "{error}");
    }
    assert_eq!(store.list(Key::ROOT).collect::<Vec<_>>().now_or_never().unwrap().len(), 2);
    store.delete(vec![Key::from("run/step-7/a-b")]).now_or_never().unwrap().unwrap();
    let notes = scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert!(notes[0].starts_with("1 objects beneath it"), "{notes:?}");
    assert_same(&scene.source, &scene.fetched().path());
}

#[test]
fn a_file_that_has_the_name_of_the_claim_is_refused() {
    let scene = Scene::usual();
    fs::write(scene.source.join(".flashwright-claim"), b"").unwrap();
    assert_eq!(scene.drain_to(&scene.plain(), &Stop::new()).unwrap_err().class(), stage::ErrorClass::Refused);
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
    let (up, down, progress) = (Counting::default(), Counting::default(), Progress::default());
    let (set, places) = (scene.plain(), [place_of(&scene.source), url()]);
    scene.scratch.copy(places, &set, &up, &Stop::new(), &progress).unwrap();
    let counted = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let bytes = scene.manifest().unwrap().files().map(|file| file.size).sum::<u64>();
    for counter in [&up.0, &progress.bytes_total, &progress.bytes_written, &progress.bytes_verified] {
        assert_eq!(counted(counter), bytes);
    }
    Fetched::new().fetch_at(&set, &down).unwrap();
    assert_eq!(counted(&down.0), bytes);
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
    let mut writer =
        Writer::new(Vec::new(), &stage::manifest::Header::new(Algorithm::Xxh3, Path::new("x"), 0)).unwrap();
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
        assert!(matches!(error, StageError::Manifest { .. }), "{error}");
    }
}

#[test]
fn an_object_larger_than_its_manifest_says_is_not_taken_and_programs_lose_their_setuid_bit() {
    let scene = Scene::new();
    plant(&scene, &[entry("", Kind::Directory), entry("a", Kind::File)]);
    let store = Remote::new(Arc::clone(&scene.memory));
    let fetch = || {
        let fetched = Fetched::new();
        fetched.fetch(&scene.plain()).map(|_| fetched)
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
