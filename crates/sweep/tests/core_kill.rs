//! `kill -9` at random moments, through a real process and a real file.
//!
//! The test starts itself again as a child that runs a sweep over a fake target, and kills it: after it has told of so many
//! runs that it has stored, and some time after that, so that a kill comes in the middle on any machine. What
//! must hold afterwards: the file reads at once, no run is there twice, no run is there that was not
//! planned, and the last resumption ends with exactly the plan.

mod fake;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;

use fake::{Fakes, identity};
use sweep::plan::{SplitMix64, StepKind};
use sweep::run::{Ended, Observer, RunFinished, Runner, begin};
use sweep::space::Space;
use sweep::status::Status;
use sweep::store::{Store, StoreError};

const DIRECTORY: &str = "FLASHWRIGHT_CHILD_KILL_DIRECTORY";

/// 14 points × 40 passes of 4 ms: more than ten kills after at most eight runs each, and a while, come to.
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

const STORED: &str = "a run is stored";

/// Tells of each run that is stored.
struct Telling;

impl Observer for Telling {
    fn run_finished(&mut self, finished: &RunFinished<'_>) {
        if matches!(finished.kind, StepKind::Run) {
            println!("{STORED}");
        }
    }
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
    Runner::new(&mut store, &identity(), &mut fakes, &mut Telling, &stop).run().unwrap().ended
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
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Has a child sweep, and kills it a while after it has stored so many runs. False if it ended before.
fn is_killed(directory: &Path, runs: u64, later: Duration) -> bool {
    let mut child = spawn(directory);
    // Kept until the child is dead, which could not print otherwise.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.by_ref().map_while(Result::ok).filter(|line| line.ends_with(STORED));
    let stored = told.take(runs as usize).count() as u64;
    sleep(later);
    child.kill().unwrap();
    let end = child.wait().unwrap();
    assert!(end.success() || end.signal() == Some(9) && stored == runs, "the child failed: {end}");
    !end.success()
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
    // Every third comes at whatever the child does by then.
    for kill in 0..15 {
        let (new, later) = if kill % 3 == 0 { (0, 150_000) } else { (1 + random.below(8), 6_000) };
        let is_killed = is_killed(directory.path(), new, Duration::from_micros(random.below(later)));
        assert!(is_killed, "the sweep ended before it was killed");
        let runs = check(directory.path());
        assert!(runs >= before + new as usize, "committed runs were lost: {before} and {new} → {runs}");
        before = runs;
    }
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
    let mut before = 0;
    for _ in 0..5 {
        let new = 1 + random.below(8);
        let is_killed = is_killed(&directory, new, Duration::from_micros(random.below(6_000)));
        assert!(is_killed, "the sweep ended before it was killed");
        let runs = check(&directory);
        assert!(runs >= before + new as usize, "committed runs were lost: {before} and {new} → {runs}");
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
    while kills < 5 && is_killed(&directory, 1 + random.below(8), Duration::from_micros(random.below(6_000)))
    {
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
