//! What semaphores vouch for, and when they go.

use super::*;

#[test]
fn what_a_semaphore_promises_must_be_there() {
    let bench = Bench::new();
    bench.tree("fast");
    let digest = stage::Algorithm::Xxh3.of(&fs::read(bench.at("fast/large")).unwrap());
    let expected = |path: &str, size, digest| stage::spec::Expected {
        path: stage::names::PathText(path.into()),
        size,
        digest,
    };
    let wrong = Options { expected: vec![expected("one", Some(2), None)], ..Options::default() };
    assert_eq!(bench.run(Verb::Copy, "fast", "slow/a", wrong).state, State::Failed);
    let missing = Options { expected: vec![expected("two", None, None)], ..Options::default() };
    assert_eq!(bench.run(Verb::Copy, "fast", "slow/b", missing).state, State::Failed);
    let right = vec![expected("large", Some(9 << 20), Some(digest)), expected("a/b/page", Some(4096), None)];
    let status = bench.run(Verb::Copy, "fast", "slow/c", Options { expected: right, ..Options::default() });
    assert_eq!(status.state, State::Done, "{status:?}");
    assert_eq!(names(&bench.at("slow/c")), [".flashwright-manifest", "a", "large"]);
    assert_eq!(names(&bench.at("slow/c/a")), ["b"]);
}

#[test]
fn a_semaphore_does_not_ask_for_a_copy_in_memory() {
    let bench = Bench::new();
    let is_in_memory =
        |path: &Path| stage::mounts::Mount::nearest(path).is_some_and(|mount| mount.is_in_memory());
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        println!("SKIP a copy in memory: there is no /dev/shm");
        return;
    };
    if !is_in_memory(memory.path()) {
        println!("SKIP a copy in memory: /dev/shm is not");
        return;
    }
    fs::write(bench.at("fast"), "bytes").unwrap();
    fs::write(bench.at("fast.done"), "").unwrap();
    let semaphore = Some(Semaphore::at(bench.at("fast.done")).unwrap());
    let destination = Place::of_path(&memory.path().join("fast")).unwrap();
    let mut spec = bench.spec(Verb::Copy, "fast", "slow/a", Options { semaphore, ..Options::default() });
    spec.destination = destination;
    let error = bench.mover.submit(spec.clone()).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused, "{error}");
    assert!(error.to_string().ends_with(", and a semaphore asks for a durable copy"), "{error}");
    spec.options.semaphore = None;
    let id = bench.mover.submit(spec).unwrap();
    let status = bench.mover.wait(id, Level::Durable, None).unwrap();
    assert_eq!((status.state, status.level), (State::Done, Level::InMemory), "{status:?}");
    assert_eq!(names(memory.path()), ["fast"]);
}

#[test]
fn no_link_is_followed_for_the_digest_of_a_listed_file() {
    let bench = Bench::new();
    bench.tree("fast");
    fs::write(bench.at("outside"), "of another").unwrap();
    symlink(bench.at("outside"), bench.at("fast/leads out")).unwrap();
    let path = PathText("leads out".into());
    let digest = Some(stage::Algorithm::Xxh3.of(b""));
    let expected = vec![stage::spec::Expected { path, size: None, digest }];
    let status = bench.run(Verb::Copy, "fast", "slow/a", Options { expected, ..Options::default() });
    assert_eq!(status.state, State::Failed, "{status:?}");
}

#[test]
fn a_semaphore_that_was_replaced_while_its_job_ran_is_left_and_one_that_asks_for_the_same_goes() {
    let bench = Bench::new();
    bench.tree("fast");
    let at = bench.at("fast.done");
    let read = |contents: &str| {
        let made = bench.at("made");
        fs::write(&made, contents).unwrap();
        fs::rename(&made, &at).unwrap();
        Semaphore::at(at.clone()).unwrap()
    };
    let first = read("");
    read("another");
    let options = Options { semaphore: Some(first), ..Options::default() };
    let status = bench.run(Verb::Copy, "fast", "slow/a", options);
    assert_eq!(status.state, State::Done, "{status:?}");
    assert!(status.notes.iter().any(|note| note.contains("was replaced")), "{status:?}");
    assert_eq!(fs::read(&at).unwrap(), b"another");
    // At work for half a second or more.
    let submit = |semaphore| {
        let options = Options { semaphore: Some(semaphore), bwlimit: Some(18 << 20), ..Options::default() };
        let (source, destination) = (bench.at("fast"), bench.at("slow/b"));
        let [source, destination] = [source, destination].map(|path| Place::of_path(&path).unwrap());
        bench.mover.submit(JobSpec { verb: Verb::Copy, source, destination, options }).unwrap()
    };
    let id = submit(read("x"));
    assert_eq!(submit(read("y")), id);
    let status = bench.mover.wait(id, Level::Durable, None).unwrap();
    assert_eq!((status.state, status.notes.len()), (State::Done, 0), "{status:?}");
    assert!(!at.exists());
}

/// Whoever may write to a directory that another user's mover watches can put a link where a job's source was to be.
#[test]
fn no_link_below_the_watched_directory_leads_to_a_source() {
    let bench = Bench::new();
    for directory in ["fast", "fast/sub", "others", "others/sub"] {
        fs::create_dir(bench.at(directory)).unwrap();
    }
    fs::write(bench.at("fast/sub/a"), "mine").unwrap();
    fs::write(bench.at("others/sub/a"), "secret").unwrap();
    fs::write(bench.at("x.done"), "").unwrap();
    let options = || {
        let semaphore = Semaphore::at(bench.at("x.done")).unwrap();
        let watched = Some(PathText(bench.at("fast")));
        Options { semaphore: Some(Semaphore { watched, stays: true, ..semaphore }), ..Options::default() }
    };
    fs::rename(bench.at("fast/sub"), bench.at("kept")).unwrap();
    for leads_out in ["others/sub", "kept"] {
        symlink(bench.at(leads_out), bench.at("fast/sub")).unwrap();
        let status = bench.run(Verb::Move, "fast/sub/a", "slow/a", options());
        assert_eq!(status.state, State::Failed, "{status:?}");
        fs::remove_file(bench.at("fast/sub")).unwrap();
    }
    assert_eq!(fs::read(bench.at("others/sub/a")).unwrap(), b"secret");
    assert!(bench.at("kept/a").exists() && names(&bench.at("slow")).is_empty());
    fs::rename(bench.at("kept"), bench.at("fast/sub")).unwrap();
    let status = bench.run(Verb::Move, "fast/sub/a", "slow/a", options());
    assert_eq!(status.state, State::Done, "{status:?}");
    assert_eq!(fs::read(bench.at("slow/a")).unwrap(), b"mine");
    assert!(bench.at("x.done").exists() && !bench.at("fast/sub/a").exists());
}

#[test]
fn a_semaphore_that_stays_and_lies_in_its_source_is_moved_with_it() {
    let bench = Bench::new();
    bench.tree("fast");
    fs::write(bench.at("fast/a/DONE"), "").unwrap();
    let semaphore = Semaphore { stays: true, ..Semaphore::at(bench.at("fast/a/DONE")).unwrap() };
    let options = Options { semaphore: Some(semaphore), ..Options::default() };
    let status = bench.run(Verb::Move, "fast", "slow/a", options);
    assert_eq!((status.state, status.notes.len()), (State::Done, 0), "{status:?}");
    assert!(!bench.at("fast").exists() && bench.at("slow/a/a/DONE").exists());
}

/// What removes its semaphore may be about to, and then the new one would go with it.
#[test]
fn a_committed_job_is_that_of_a_semaphore_which_replaces_its_own_only_if_that_stays() {
    let folder = TempDir::new().unwrap();
    let journal = Journal::open(&folder.path().join("state")).unwrap();
    for stays in [true, false] {
        let spec = |ino| {
            let identity = Identity { ino, ..Identity::default() };
            let path = PathText("/fast/x.done".into());
            let semaphore = Some(Semaphore { path, identity, watched: None, stays });
            let [source, destination] = ["/fast/a", "/slow/a"].map(|path| Place::of_name(path).unwrap());
            let options = Options { semaphore, ..Options::default() };
            JobSpec { verb: Verb::Move, source, destination, options }
        };
        let Ok(Accepted::New(id)) = journal.accept(&spec(1), 0, None) else { panic!() };
        // Who asks for the same without one leaves the job its own.
        let alone = JobSpec { options: Options::default(), ..spec(1) };
        if stays {
            assert!(matches!(journal.accept(&alone, 0, None), Ok(Accepted::Same(same, _)) if same == id));
            assert_eq!(journal.job(id).unwrap().unwrap().spec, spec(1));
        }
        journal.begin(id).unwrap();
        journal.commit(id, 0).unwrap();
        let came = journal.accept(&spec(2), 0, None).unwrap();
        assert_eq!(matches!(came, Accepted::Same(same, State::Committed) if same == id), stays, "{came:?}");
        assert_eq!(journal.job(id).unwrap().unwrap().spec == spec(2), stays);
        let end = || {
            for row in journal.jobs().unwrap() {
                journal.settle(row.id, State::Cancelled, 0, None, &[]).unwrap();
            }
        };
        end();
        // One without a semaphore would leave the new one behind.
        let Ok(Accepted::New(id)) = journal.accept(&alone, 0, None) else { panic!() };
        journal.begin(id).unwrap();
        journal.commit(id, 0).unwrap();
        let came = journal.accept(&spec(2), 0, None).unwrap();
        assert_eq!(matches!(came, Accepted::Same(same, State::Committed) if same == id), stays, "{came:?}");
        end();
    }
}

/// A semaphore knows its jobs by the journal when the watch begins anew.
#[test]
fn of_two_semaphores_that_ask_for_the_same_the_first_keeps_the_job() {
    for (again, is_renewed) in [("y.done", false), ("x.done", true)] {
        for state in [State::Running, State::Failed] {
            let folder = TempDir::new().unwrap();
            let journal = Journal::open(&folder.path().join("state")).unwrap();
            let asked_for_by = |name: &str, ino| {
                let (path, identity) = (PathText(name.into()), Identity { ino, ..Identity::default() });
                let semaphore = Some(Semaphore { path, identity, watched: None, stays: true });
                let [source, destination] = ["/fast/a", "/slow/a"].map(|path| Place::of_name(path).unwrap());
                let options = Options { semaphore, ..Options::default() };
                JobSpec { verb: Verb::Move, source, destination, options }
            };
            let (first, second) = (asked_for_by("x.done", 1), asked_for_by(again, 2));
            let Ok(Accepted::New(id)) = journal.accept(&first, 0, None) else { panic!() };
            journal.settle(id, state, 0, None, &[]).unwrap();
            let came = journal.accept(&second, 0, None).unwrap();
            assert!(matches!(came, Accepted::Same(same, _) if same == id), "{came:?}");
            assert_eq!(journal.job(id).unwrap().unwrap().spec, if is_renewed { second } else { first });
        }
    }
}

#[test]
fn a_move_whose_copy_goes_before_its_source_says_that_it_left_the_source() {
    let bench = Bench::new();
    fs::write(bench.at("file"), "bytes").unwrap();
    let held = fs::File::open(bench.at("file")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockShared).unwrap();
    let failed = bench.run(Verb::Move, "file", "slow/file", Options::default());
    assert_eq!((failed.state, failed.level), (State::Failed, Level::Durable), "{failed:?}");
    fs::remove_file(bench.at("slow/file")).unwrap();
    drop(held);
    bench.mover.retry(failed.id).unwrap();
    // It was durable before.
    let now = || bench.mover.status(Some(failed.id)).unwrap().remove(0);
    let ended =
        std::iter::repeat_with(now).inspect(|_| std::thread::yield_now()).find(|job| job.state.is_final());
    let ended = ended.unwrap();
    assert!(ended.state == State::Done && ended.has_left_its_source(), "{ended:?}");
    assert_eq!(fs::read(bench.at("file")).unwrap(), b"bytes");
}
