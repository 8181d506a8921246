//! Fetches that were cut short, and what the next run makes of what they left.

use super::*;

/// A directory that several runs fetch into, with their notes.
struct Place {
    directory: tempfile::TempDir,
    notes: Forgetful,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), notes: Forgetful::default() }
    }

    fn fetch(&self, set: &ObjectSet, resumed: bool, stop: &Stop) -> std::result::Result<(), StageError> {
        let root = fs::File::open(self.directory.path()).unwrap();
        let manifest = set.manifest(&Stop::new()).unwrap();
        let options = FetchOptions { resumed, ..FetchOptions::default() };
        let path = self.directory.path();
        set.fetch_into(
            &manifest,
            root.as_fd(),
            path,
            &options,
            &self.notes,
            &Unlimited,
            stop,
            &Progress::default(),
        )
    }

    fn fetch_from(
        &self,
        scene: &Scene,
        faulty: &Arc<Faulty>,
        resumed: bool,
    ) -> std::result::Result<(), StageError> {
        self.fetch(&scene.set(Arc::new(Arc::clone(faulty))), resumed, &Stop::new())
    }
}

/// Gets of files' bytes, by key.
fn gets(faulty: &Faulty) -> Vec<String> {
    let log = faulty.log.lock().unwrap();
    let of_files = log.iter().filter(|(op, key)| *op == Op::Get && !key.ends_with(".flashwright-manifest"));
    of_files.map(|(_, key)| key.clone()).collect()
}

#[test]
fn whatever_request_of_a_fetch_fails_the_next_run_brings_the_rest() {
    let scene = Scene::usual();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let counting = Faulty::new(&scene.memory, vec![]);
    Place::new().fetch_from(&scene, &counting, false).unwrap();
    let all = gets(&counting).len();
    for nth in 1..counting.count(Op::Get) {
        for effect in [Effect::Fail, Effect::Corrupt] {
            let place = Place::new();
            let first = Faulty::new(&scene.memory, vec![(Op::Get, nth, effect)]);
            // An empty object has no byte to change.
            let failed = place.fetch_from(&scene, &first, false).is_err();
            let second = Faulty::new(&scene.memory, vec![]);
            place.fetch_from(&scene, &second, true).unwrap();
            assert_same(&scene.source, place.directory.path());
            assert!(gets(&second).len() <= all);
            assert!(failed || gets(&second).is_empty(), "{nth}: what was there was fetched again");
        }
    }
}

#[test]
fn files_and_chunks_that_are_noted_are_not_fetched_again() {
    const CHUNKS: usize = 14;
    let scene = Scene::new();
    fs::write(scene.source.join("large"), pattern(CHUNKS as u64 * CHUNK_BYTES, 5)).unwrap();
    fs::write(scene.source.join("small"), b"small").unwrap();
    fs::hard_link(scene.source.join("small"), scene.source.join("twin")).unwrap();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let place = Place::new();
    // The last request of all: one of the large file's.
    let first = Faulty::new(&scene.memory, vec![(Op::Get, CHUNKS + 1, Effect::Fail)]);
    place.fetch_from(&scene, &first, false).unwrap_err();
    let noted: usize = (0..)
        .map_while(|nth| place.notes.load(&format!("object/fetch/large/{nth}")).unwrap())
        .map(|piece| {
            serde_json::from_slice::<serde_json::Value>(&piece).unwrap()["chunks"].as_array().unwrap().len()
        })
        .sum();
    assert!(noted >= 4, "{noted}");
    let small = |faulty: &Faulty| gets(faulty).iter().filter(|key| key.ends_with("small")).count();
    let second = Faulty::new(&scene.memory, vec![]);
    place.fetch_from(&scene, &second, true).unwrap();
    assert_eq!(gets(&second).len() - small(&second), CHUNKS - noted);
    assert_eq!(small(&first) + small(&second), 1);
    assert_same(&scene.source, place.directory.path());
    // All of it is there.
    let third = Faulty::new(&scene.memory, vec![]);
    place.fetch_from(&scene, &third, true).unwrap();
    assert_eq!(gets(&third), Vec::<String>::new());
    assert_same(&scene.source, place.directory.path());
}

#[test]
fn what_is_not_what_was_fetched_is_fetched_again() {
    let scene = Scene::new();
    fs::write(scene.source.join("large"), pattern(6 * CHUNK_BYTES, 5)).unwrap();
    fs::write(scene.source.join("written"), b"right").unwrap();
    fs::write(scene.source.join("replaced"), b"right").unwrap();
    fs::write(scene.source.join("removed"), b"right").unwrap();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let place = Place::new();
    place.fetch(&scene.plain(), false, &Stop::new()).unwrap();
    let at = |name: &str| place.directory.path().join(name);
    fs::write(at("written"), b"wrong").unwrap();
    fs::remove_file(at("replaced")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("replaced")).unwrap();
    fs::remove_file(at("removed")).unwrap();
    // A chunk that was noted has rotted, which its file's own time does not tell: the copy is begun again.
    let large = fs::File::options().write(true).open(at("large")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&large, b"rot", 100).unwrap();
    drop(large);
    let error = place.fetch(&scene.plain(), true, &Stop::new()).unwrap_err();
    assert!(matches!(error, StageError::Corrupt { .. }), "{error}");
    place.fetch(&scene.plain(), true, &Stop::new()).unwrap();
    assert_same(&scene.source, place.directory.path());
    assert!(fs::read_to_string("/etc/passwd").unwrap().contains("root"));
}
