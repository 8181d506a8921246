//! Fetches that were cut short, and what the next run makes of what they left.

use super::*;

fn fetch_from(to: &Fetched, scene: &Scene, faulty: &Arc<Faulty>) -> std::result::Result<Notes, StageError> {
    to.fetch(&scene.set(Arc::new(Arc::clone(faulty))))
}

/// Gets of files' bytes, by key.
fn gets(faulty: &Faulty) -> Vec<String> {
    let log = faulty.log.lock().unwrap();
    let of_files = log.iter().filter(|(op, key)| *op == Op::Get && !key.ends_with(".flashwright-manifest"));
    of_files.map(|(_, key)| key.clone()).collect()
}

/// Chunks of the file `large` that are noted, in the order in which they came.
fn noted_of_large(place: &Fetched) -> Vec<u64> {
    let pieces =
        (0..).map_while(|nth| place.scratch.ledger().load(&format!("object/fetch/large/{nth}")).unwrap());
    let chunks =
        |piece: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&piece).unwrap()["chunks"].take();
    pieces.flat_map(|piece| serde_json::from_value::<Vec<u64>>(chunks(piece)).unwrap()).collect()
}

#[test]
fn whatever_request_of_a_fetch_fails_the_next_run_brings_the_rest() {
    let scene = Scene::usual();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let counting = Faulty::new(&scene.memory, vec![]);
    fetch_from(&Fetched::new(), &scene, &counting).unwrap();
    let all = gets(&counting).len();
    for nth in 1..counting.count(Op::Get) {
        for effect in [Effect::Fail, Effect::Corrupt] {
            let place = Fetched::new();
            let first = Faulty::new(&scene.memory, vec![(Op::Get, nth, effect)]);
            // An empty object has no byte to change.
            let failed = fetch_from(&place, &scene, &first).is_err();
            let second = Faulty::new(&scene.memory, vec![]);
            fetch_from(&place, &scene, &second).unwrap();
            assert_same(&scene.source, &place.path());
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
    let place = Fetched::new();
    // The last request of all: one of the large file's.
    let first = Faulty::new(&scene.memory, vec![(Op::Get, CHUNKS + 1, Effect::Fail)]);
    fetch_from(&place, &scene, &first).unwrap_err();
    let noted = noted_of_large(&place).len();
    assert!(noted >= 4, "{noted}");
    let small = |faulty: &Faulty| gets(faulty).iter().filter(|key| key.ends_with("small")).count();
    let second = Faulty::new(&scene.memory, vec![]);
    fetch_from(&place, &scene, &second).unwrap();
    assert_eq!(gets(&second).len() - small(&second), CHUNKS - noted);
    assert_eq!(small(&first) + small(&second), 1);
    assert_same(&scene.source, &place.path());
}

#[test]
fn what_is_not_what_was_fetched_is_fetched_again() {
    let scene = Scene::new();
    fs::write(scene.source.join("large"), pattern(6 * CHUNK_BYTES, 5)).unwrap();
    fs::write(scene.source.join("written"), b"right").unwrap();
    fs::write(scene.source.join("replaced"), b"right").unwrap();
    fs::write(scene.source.join("removed"), b"right").unwrap();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let counting = Faulty::new(&scene.memory, vec![]);
    fetch_from(&Fetched::new(), &scene, &counting).unwrap();
    let place = Fetched::new();
    // The last request is for the manifest, when all was fetched.
    let last = Faulty::new(&scene.memory, vec![(Op::Get, counting.count(Op::Get) - 1, Effect::Fail)]);
    fetch_from(&place, &scene, &last).unwrap_err();
    let at = |name: &str| place.part().join(name);
    fs::write(at("written"), b"wrong").unwrap();
    fs::remove_file(at("replaced")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("replaced")).unwrap();
    fs::remove_file(at("removed")).unwrap();
    // A chunk that was noted has rotted, which its file's own time does not tell: the copy is begun again.
    let large = fs::File::options().write(true).open(at("large")).unwrap();
    let noted = noted_of_large(&place)[0];
    std::os::unix::fs::FileExt::write_all_at(&large, b"rot", noted * CHUNK_BYTES + 100).unwrap();
    drop(large);
    let error = place.fetch(&scene.plain()).unwrap_err();
    assert!(matches!(error, StageError::Corrupt { .. }), "{error}");
    place.fetch(&scene.plain()).unwrap();
    assert_same(&scene.source, &place.path());
    assert!(fs::read_to_string("/etc/passwd").unwrap().contains("root"));
}
