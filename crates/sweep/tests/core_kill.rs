//! `kill -9` at random moments, through a real process and a real file.
//!
//! The test starts itself again as a child that runs a sweep over a fake target, and kills it. What
//! must hold afterwards: the file reads at once, no run is there twice, no run is there that was not
//! planned, and the last resumption ends with exactly the plan.

mod fake;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;

use fake::{Fakes, identity};
use sweep::plan::SplitMix64;
use sweep::run::{Ended, Runner, begin};
use sweep::space::Space;
use sweep::status::Status;
use sweep::store::{Store, StoreError};

const DIRECTORY: &str = "FLASHWRIGHT_CHILD_KILL_DIRECTORY";

/// 14 points × 40 passes of 4 ms: ten kills after at most 150 ms each leave some of it, on any disk.
fn space() -> Space {
    Space::parse(
        "killed.toml",
        "[sweep]\nprotocol = 'dash'\npasses = 40\nseed = 11\n[space]\ntest_type = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]",
    )
    .unwrap()
}

/// Four works, ten blocks of each without pauses.
fn blocks() -> Space {
    Space::parse(
        "killed.toml",
        "[sweep]\npasses = 10\nblock_spacing = '0s'\nseed = 11\n\
         [space]\ntest_type = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]",
    )
    .unwrap()
}

/// Two works of 24 points, screened.
fn screened() -> Space {
    Space::parse(
        "killed.toml",
        "[sweep]\nsearch = 'screen'\nblock_spacing = '0s'\nseed = 11\n[space]\nrw = ['randread', 'randwrite']\n\
         iodepth = [1, 4, 16, 64]\nnumjobs = [1, 2, 4]\ndirect = [false, true]",
    )
    .unwrap()
}

fn sweep_in(directory: &Path) -> Ended {
    let space = match directory.file_name().and_then(|name| name.to_str()) {
        Some("blocks") => blocks(),
        Some("screened") => screened(),
        _ => space(),
    };
    let mut store = begin(&directory.join("results.db"), &space, &identity()).unwrap().store;
    let mut fakes = Fakes { delay: Duration::from_millis(4), ..Fakes::new() };
    let stop = AtomicBool::new(false);
    Runner::new(&mut store, &identity(), &mut fakes, &mut sweep::run::Quiet, &stop).run().unwrap().ended
}

/// What the child process does; nothing in the test proper.
#[test]
fn child() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        assert_eq!(sweep_in(Path::new(&directory)), Ended::Complete);
    }
}

fn spawn(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Checks the file as a killed process left it, and returns how many runs it holds.
fn check(directory: &Path) -> usize {
    let store = match Store::open_read_only(directory) {
        Ok(store) => store,
        // Killed before the plan was committed.
        Err(StoreError::Missing { .. } | StoreError::Unbegun { .. }) => return 0,
        Err(error) => panic!("{error}"),
    };
    let planned: BTreeSet<(u32, u32, u32)> =
        store.plan().unwrap().runs.iter().map(|r| (r.position, r.point, r.pass)).collect();
    let runs = store.runs().unwrap();
    let stored: BTreeSet<(u32, u32, u32)> = runs.iter().map(|r| (r.position, r.point, r.pass)).collect();
    assert_eq!(stored.len(), runs.len(), "a run is there twice");
    assert!(stored.is_subset(&planned), "a run is there that was not planned");
    if let Some(last) = runs.last() {
        assert_eq!(store.record(last.id).unwrap().bytes(), last.bytes);
    }
    assert_eq!(Status::of(&store).unwrap().running, None);
    runs.len()
}

#[test]
fn a_sweep_killed_at_ten_and_more_random_moments_ends_with_exactly_the_plan() {
    let seed = match std::env::var("FLASHWRIGHT_TEST_SEED") {
        Ok(seed) => seed.parse().expect("FLASHWRIGHT_TEST_SEED is a number"),
        Err(_) => sweep::plan::fresh_seed(),
    };
    println!("FLASHWRIGHT_TEST_SEED={seed}");
    let mut random = SplitMix64::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut before = 0;
    let mut in_the_middle = 0;
    let mut kills = 0;
    while in_the_middle < 10 {
        let mut child = spawn(directory.path());
        sleep(Duration::from_micros(random.below(150_000)));
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "the sweep ended before it was killed");
        let runs = check(directory.path());
        assert!(runs >= before, "committed runs were lost: {before} → {runs}");
        in_the_middle += u32::from(runs > before);
        before = runs;
        kills += 1;
        assert!(kills < 200, "ten kills in the middle of a sweep did not come about");
    }
    println!("killed {kills} times, {in_the_middle} of them after new runs; {before} runs stored");
    assert_eq!(sweep_in(directory.path()), Ended::Complete);
    assert_eq!(check(directory.path()), 14 * 40);
    let store = Store::open_read_only(directory.path()).unwrap();
    let plan = store.plan().unwrap();
    assert_eq!(store.controls().unwrap().len(), plan.controls.len());
    let sessions = store.sessions().unwrap();
    assert_eq!(sessions.last().unwrap().outcome.as_deref(), Some("complete"));
    assert!(sessions.iter().rev().skip(1).all(|s| s.outcome.is_none()), "the killed said no farewell");
    drop(store);
    let size = std::fs::metadata(directory.path().join("results.db")).unwrap().len();
    assert_eq!(sweep_in(directory.path()), Ended::Complete);
    assert_eq!(std::fs::metadata(directory.path().join("results.db")).unwrap().len(), size);
}

#[test]
fn blocks_that_a_kill_cut_short_are_not_judged_and_others_take_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("blocks");
    std::fs::create_dir(&directory).unwrap();
    let mut random = SplitMix64::new(5);
    let (mut before, mut in_the_middle) = (0, 0);
    while in_the_middle < 5 {
        let mut child = spawn(&directory);
        sleep(Duration::from_micros(30_000 + random.below(120_000)));
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "the sweep ended before it was killed");
        let runs = check(&directory);
        assert!(runs >= before, "committed runs were lost: {before} → {runs}");
        in_the_middle += u32::from(runs > before);
        before = runs;
    }
    assert_eq!(sweep_in(&directory), Ended::Complete);
    let store = Store::open_read_only(&directory).unwrap();
    let cut = store.cut().unwrap();
    let runs = store.runs().unwrap();
    for entry in store.board().unwrap().stages.iter().flat_map(|stage| &stage.entries) {
        assert_eq!((entry.whole, entry.race.blocks()), (10, 10));
        for point in &entry.contest.members {
            let is_cut = |pass: u32| cut.iter().any(|run| (run.point, run.pass) == (*point, pass));
            let judged = runs.iter().filter(|run| run.point == *point && !is_cut(run.pass));
            assert_eq!(judged.count(), 10, "point {point}");
        }
    }
    println!("{} runs of cut blocks are in the plan", cut.len());
    let done = runs.len();
    drop(store);
    assert_eq!(sweep_in(&directory), Ended::Complete);
    assert_eq!(check(&directory), done, "a finished sweep runs nothing");
}

#[test]
fn a_search_that_was_killed_goes_on_by_what_is_stored_and_by_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("screened");
    std::fs::create_dir(&directory).unwrap();
    let mut random = SplitMix64::new(6);
    let mut kills = 0;
    while kills < 5 {
        let mut child = spawn(&directory);
        sleep(Duration::from_micros(20_000 + random.below(100_000)));
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            break;
        }
        check(&directory);
        kills += 1;
    }
    assert!(kills > 1, "the sweep ended before it was killed twice");
    assert_eq!(sweep_in(&directory), Ended::Complete);
    let store = Store::open_read_only(&directory).unwrap();
    fake::check_that_blocks_follow_from_what_was_stored(&store);
    let runs = store.runs().unwrap().len();
    drop(store);
    assert_eq!(sweep_in(&directory), Ended::Complete);
    assert_eq!(check(&directory), runs, "a finished search runs nothing");
}

#[test]
fn a_second_process_is_refused_while_the_first_runs_and_not_after_it_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = spawn(directory.path());
    let refused = loop {
        assert!(child.try_wait().unwrap().is_none(), "the child ended first");
        match Store::open(directory.path()) {
            Err(error @ StoreError::Locked { .. }) => break error,
            // Not there yet. Had we got the lock, the child would fail; so never try before the plan is in.
            Err(_) | Ok(_) => sleep(Duration::from_millis(5)),
        }
    };
    assert!(refused.to_string().contains(&format!("process {}", child.id())), "{refused}");
    let status = Status::read(directory.path()).unwrap();
    assert!(status.running.unwrap().contains(&child.id().to_string()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(directory.path().join("results.db.lock").exists(), "the killed leaves its lock file");
    let store = Store::open(directory.path()).unwrap();
    drop(store);
    assert!(!directory.path().join("results.db.lock").exists());
}
