//! What fails, rots, changes or stops on the way of a drain, and what the next run makes of it.

use super::*;

#[test]
fn a_set_comes_back_as_it_was() {
    let scene = Scene::usual();
    assert_eq!(scene.drain_to(&scene.plain(), &Stop::new()).unwrap(), Notes::new());
    assert_same(&scene.source, &scene.fetched().path());
    let verified = scene.plain().verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
    assert_eq!((verified.files, verified.faults.len()), (5, 0));
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
                    let verified =
                        scene.plain().verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
                    assert!(verified.faults.is_empty(), "{op:?} {nth}: a manifest without its objects");
                }
                scene
                    .drain(&Faulty::new(&scene.memory, vec![]))
                    .unwrap_or_else(|error| panic!("{op:?} {nth}: {error}"));
                assert_eq!(contents(&scene.manifest().unwrap()), expected);
                let verified = scene.plain().verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
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
    let mut times: HashMap<String, usize> = HashMap::new();
    let log = counting.log.lock().unwrap().clone();
    for (_, key) in log.into_iter().filter(|one| one.0 == Op::Get) {
        let nth = *times.entry(key.clone()).and_modify(|nth| *nth += 1).or_default();
        let scene = Scene::usual();
        let faulty = Faulty::corrupting(&scene.memory, &key, nth);
        match scene.drain(&faulty) {
            Err(StageError::Corrupt { .. }) => {
                corrupt += 1;
                assert!(scene.manifest().is_none(), "{key} {nth}");
            }
            // The manifest's own reading back; or an object without a byte to change.
            Err(StageError::Manifest { .. }) => {}
            Err(error) => panic!("{key} {nth}: {error}"),
            Ok(_) => {
                let bare = ["nothing", ".flashwright-manifest"].iter().any(|name| key.ends_with(name));
                assert!(bare, "{key} {nth} went unnoticed");
            }
        }
        scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
        assert_same(&scene.source, &scene.fetched().path());
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
    assert_same(&scene.source, &scene.fetched().path());
}

#[test]
fn an_upload_that_the_store_has_forgotten_is_begun_again() {
    let scene = Scene::new();
    fs::write(scene.source.join("large"), pattern(3 * CHUNK_BYTES, 5)).unwrap();
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::Part, 2, Effect::Fail)])).unwrap_err();
    // Another store: it has neither the upload nor the parts.
    let scene = Scene { memory: Arc::default(), ..scene };
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert_same(&scene.source, &scene.fetched().path());
}

#[test]
fn a_source_that_changes_on_the_way_is_stored_as_one_state() {
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
                // What changed was stored again.
                Ok(_) => assert_same(&scene.source, &scene.fetched().path()),
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
            scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
            assert_same(&scene.source, &scene.fetched().path());
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
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let first = scene.manifest().unwrap().digest;
    // As from somebody who knows nothing of the first.
    let scene = scene.anew();
    let faulty = Faulty::new(&scene.memory, vec![]);
    let notes = scene.drain(&faulty).unwrap();
    assert!(notes[0].contains("was there already"), "{notes:?}");
    assert_eq!(scene.manifest().unwrap().digest, first);
    let log = faulty.log.lock().unwrap().clone();
    assert!(log.iter().all(|(op, key)| *op != Op::Put || key.ends_with(".flashwright-claim")), "{log:?}");
    let scene = scene.anew();
    fs::write(scene.source.join("a-b"), b"other").unwrap();
    let error = scene.drain_to(&scene.plain(), &Stop::new()).unwrap_err();
    assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
    assert_eq!(scene.manifest().unwrap().digest, first, "nothing was overwritten");
    let verified = scene.plain().verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
    assert!(verified.faults.is_empty());
}

#[test]
fn a_set_that_lost_an_object_is_not_vouched_for_again() {
    let scene = Scene::usual();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    let store = Remote::new(Arc::clone(&scene.memory));
    store.delete(vec![Key::from("run/step-7/a-b")]).now_or_never().unwrap().unwrap();
    let scene = scene.anew();
    let error = scene.drain_to(&scene.plain(), &Stop::new()).unwrap_err();
    assert!(matches!(error, StageError::Corrupt { .. }), "{error}");
    let verified = scene.plain().verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
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
        let verified = scene.plain().verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
        assert!(matches!(verified.faults[..], [StageError::Corrupt { .. }]), "{verified:?}");
        let fetched = Fetched::new().fetch(&scene.plain());
        assert!(matches!(fetched, Err(StageError::Corrupt { .. })), "{fetched:?}");
    }
}

#[test]
fn who_stops_a_drain_can_go_on_with_it_or_give_it_up() {
    // While a part is on its way, and when the upload is completed already and nobody has noted it.
    for (op, give_up) in [(Op::Part, false), (Op::Part, true), (Op::Complete, false), (Op::Complete, true)] {
        let scene = Scene::usual();
        let stop = Stop::new();
        let asker = stop.clone();
        let hook = Effect::Hook(Arc::new(move || asker.ask()));
        let faulty = Faulty::new(&scene.memory, vec![(op, 0, hook)]);
        let error = scene.drain_to(&scene.set(Arc::new(faulty)), &stop).unwrap_err();
        assert_eq!(error.class(), stage::ErrorClass::Interrupted, "{error}");
        if give_up {
            scene.give_up();
            let left = Remote::new(Arc::clone(&scene.memory))
                .list(Key::ROOT)
                .collect::<Vec<_>>()
                .now_or_never()
                .unwrap();
            assert!(left.is_empty(), "{left:?}");
        } else {
            scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
            assert_same(&scene.source, &scene.fetched().path());
        }
    }
}

#[test]
fn a_set_that_is_committed_is_not_given_up() {
    let scene = Scene::usual();
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    scene.give_up();
    assert_same(&scene.source, &scene.fetched().path());
}

#[test]
fn notes_that_make_no_sense_cost_an_upload_and_nothing_else() {
    let scene = Scene::usual();
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::Complete, 0, Effect::Fail)])).unwrap_err();
    for key in ["object/upload/run/step-7/large", "object/upload/run/step-7/large/0"] {
        scene.scratch.ledger().save(key, b"{\"id\":3}").unwrap();
    }
    scene.drain_to(&scene.plain(), &Stop::new()).unwrap();
    assert_same(&scene.source, &scene.fetched().path());
}

#[test]
fn objects_of_files_that_the_source_has_no_longer_go() {
    let scene = Scene::usual();
    scene.drain(&Faulty::new(&scene.memory, vec![(Op::List, 1, Effect::Fail)])).unwrap_err();
    fs::remove_file(scene.source.join("a-b")).unwrap();
    assert_eq!(scene.drain_to(&scene.plain(), &Stop::new()).unwrap(), Notes::new());
    let manifest = scene.manifest().unwrap();
    assert_eq!(scene.plain().strangers(&manifest, &Stop::new()).unwrap(), Vec::<String>::new());
    assert_same(&scene.source, &scene.fetched().path());
}
