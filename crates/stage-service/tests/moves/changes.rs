//! Sources that change, and requests that come again.

use super::*;

#[test]
fn files_that_change_behind_and_before_the_copy_are_published_as_one_state() {
    let bench = Bench::new();
    bench.many("fast");
    let (id, copied, open) = bench.half_way(Options::default());
    bench.rewrite(&copied);
    bench.rewrite(&open);
    fs::write(bench.at("fast/new"), "new").unwrap();
    let status = bench.mover.wait(id, Level::Durable, None).unwrap();
    assert_eq!(status.state, State::Done, "{status:?}");
    assert_eq!(
        snapshot(&bench.at("slow/ckpt")),
        snapshot(&bench.at("fast")),
        "{copied:?} and {open:?} were rewritten"
    );
    assert_eq!(status.files_done, 601);
}

#[test]
fn names_that_go_or_become_directories_while_others_are_copied_are_not_in_the_copy() {
    let bench = Bench::new();
    bench.many("fast");
    let (id, copied, open) = bench.half_way(Options::default());
    fs::remove_file(bench.at("fast").join(&open)).unwrap();
    fs::remove_file(bench.at("fast").join(&copied)).unwrap();
    fs::create_dir(bench.at("fast").join(&copied)).unwrap();
    fs::write(bench.at("fast").join(&copied).join("in it"), "x").unwrap();
    let status = bench.mover.wait(id, Level::Durable, None).unwrap();
    assert_eq!(status.state, State::Done, "{status:?}");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), snapshot(&bench.at("fast")));
}

#[test]
fn a_request_that_comes_again_is_answered_for_the_bytes_that_are_there_then() {
    let bench = Bench::new();
    bench.many("fast");
    let (_, copied, _) = bench.half_way(Options::default());
    bench.rewrite(&copied);
    let again = bench.mover.submit(bench.spec(Verb::Copy, "fast", "slow/ckpt", Options::default())).unwrap();
    let status = bench.mover.wait(again, Level::Durable, None).unwrap();
    assert_eq!((status.state, status.level), (State::Done, Level::Durable), "{status:?}");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), snapshot(&bench.at("fast")));
    assert_eq!(
        status.source,
        stage::runner::fingerprint_of(&status.spec, &stage::tier::Tiers::default()).unwrap()
    );
    bench.rewrite(&copied);
    assert_ne!(
        status.source,
        stage::runner::fingerprint_of(&status.spec, &stage::tier::Tiers::default()).unwrap()
    );
}

#[test]
fn a_request_for_other_files_of_a_source_is_a_job_of_its_own_that_begins_when_the_first_has_ended() {
    let bench = Bench::new();
    bench.many("fast");
    let (first, ..) = bench.half_way(Options::default());
    let expected =
        |path: &str| stage::spec::Expected { path: PathText(path.into()), size: None, digest: None };
    let some = Options { expected: vec![expected("001"), expected("no such")], ..Options::default() };
    let second = bench.mover.submit(bench.spec(Verb::Copy, "fast", "slow/ckpt", some)).unwrap();
    assert_ne!(first, second);
    std::thread::sleep(Duration::from_millis(300));
    let states: Vec<State> = bench.mover.status(None).unwrap().iter().map(|job| job.state).collect();
    assert_eq!(states, [State::Running, State::Queued], "two jobs are free, and one destination is not");
    let status = bench.mover.wait(second, Level::Durable, None).unwrap();
    assert_eq!(status.state, State::Failed, "durable was said of a file that is not there: {status:?}");
    assert_eq!(bench.mover.status(Some(first)).unwrap()[0].state, State::Done);
}

#[test]
fn what_failed_behind_its_commit_is_gone_on_with_only_for_the_source_that_it_copied() {
    let bench = Bench::new();
    bench.tree("fast");
    // A semaphore that cannot be removed, because it is a directory.
    fs::create_dir(bench.at("semaphore")).unwrap();
    let options =
        Options { semaphore: Some(Semaphore::at(bench.at("semaphore")).unwrap()), ..Options::default() };
    let spec = bench.spec(Verb::Copy, "fast", "slow/ckpt", options);
    let run = || {
        let id = bench.submit_or_retry(spec.clone()).unwrap();
        bench.mover.wait(id, Level::Durable, None).unwrap()
    };
    let first = run();
    assert_eq!((first.state, first.level), (State::Failed, Level::Durable), "{first:?}");
    assert_eq!(run().id, first.id);
    bench.rewrite("a/b/page");
    fs::remove_dir(bench.at("semaphore")).unwrap();
    let second = run();
    assert_ne!(second.id, first.id, "durable was said of the bytes from before");
    let why = second.error.unwrap().message;
    assert!(second.state == State::Failed && why.contains("is something else"), "{why}");
}
