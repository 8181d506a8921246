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
