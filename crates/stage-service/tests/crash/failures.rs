//! Every call of a move failing, or moving fewer bytes than asked; and syncs, of which a failure is final.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use stage::fault::Call;
use stage::{State, Verb};

use crate::child::{Change, Ended, Hit, Order, Report, Strike, call, run};
use crate::kills::{chosen, go_on, record};
use crate::sample::{self, Random, Struck};
use crate::world::{Scenario, World};

const ERRORS: [Errno; 6] = [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::INTR, Errno::STALE, Errno::ACCESS];

/// A job that a fault met: done right, or failed with everything that a person needs to know and nothing lost.
pub fn check_outcome(world: &World, done: &str, report: &Report, errno: Option<Errno>) -> bool {
    if let Some(why) = &report.refused {
        assert!(!why.message.is_empty(), "{done}: refused without a word");
        world.must(done, world.check_between());
        return false;
    }
    let job = report.job();
    match job.state {
        State::Done if job.error.is_none() => {
            world.must(done, world.check_end());
            true
        }
        // Done, and something is left that could not be finished behind it: a source that would not go, `latest`.
        State::Done | State::Failed => {
            let why = job.error.as_ref().unwrap_or_else(|| panic!("{done}: failed without a reason"));
            if let Some(errno) = errno {
                let text = std::io::Error::from(errno).to_string();
                assert!(
                    why.errno == Some(errno.raw_os_error()) || why.message.contains(&text),
                    "{done}: the error does not say {text:?}: {why:?}"
                );
            }
            assert!(
                why.message.contains('/') || why.message.contains("ckpt-7"),
                "{done}: the error names no path: {why:?}"
            );
            world.must(&format!("{done}: {why:?}"), world.check_between());
            false
        }
        state => panic!("{done}: ended as {state:?}"),
    }
}

/// After a failure: the same again, as somebody does who types `retry`.
fn retry(world: &World, done: &str) {
    let mut order = Order::to(&world.state, &world.spec);
    order.retry = true;
    let report = run(&order).told();
    assert_eq!(report.refused, None, "{done}, retried");
    let job = report.job();
    assert_eq!((job.state, &job.error), (State::Done, &None), "{done}, retried: {job:?}");
    world.must(&format!("{done}, and retried"), world.check_end());
}

fn fail_everywhere(scenario: Scenario, verb: Verb, most: usize) {
    fail_threads_everywhere(1, scenario, verb, most);
}

fn fail_threads_everywhere(threads: usize, scenario: Scenario, verb: Verb, most: usize) {
    let name = format!("fail {scenario:?} {verb:?}");
    let mut struck = Struck::of(&name);
    let calls = record(scenario, verb).calls;
    let mut random = Random::of(&name);
    for n in chosen(&name, &calls, most) {
        let first = random.below(ERRORS.len() as u64) as usize;
        // A full run has every error at every call; a sample has one at each call that was drawn.
        let errors = if sample::full() { &ERRORS[..] } else { &ERRORS[first..=first] };
        for errno in errors {
            let world = World::new(scenario, verb);
            let done = format!("{errno:?} from call {n} of {}, {}", calls.len(), calls[n as usize]);
            let order = Order::to(&world.state, &world.spec).threads(threads);
            let report = run(&order.strike([Strike::nth(n, Hit::Errno(errno.raw_os_error()))])).told();
            struck.case(report.fired > 0);
            if check_outcome(&world, &done, &report, Some(*errno)) {
                continue;
            }
            retry(&world, &done);
        }
    }
}

#[test]
fn any_call_of_a_small_move_may_fail() {
    fail_everywhere(Scenario::Small, Verb::Move, 24);
}

#[test]
fn any_call_of_a_copy_by_chunks_may_fail() {
    fail_everywhere(Scenario::Chunked, Verb::Copy, 16);
}

#[test]
fn any_call_of_a_tree_that_moves_may_fail() {
    fail_everywhere(Scenario::Tree, Verb::Move, 40);
}

#[test]
fn any_call_of_a_checkpoint_may_fail() {
    fail_everywhere(Scenario::Checkpoint, Verb::Move, 16);
}

#[test]
fn any_call_of_a_tree_that_three_threads_move_may_fail() {
    fail_threads_everywhere(3, Scenario::Tree, Verb::Move, 20);
}

#[test]
fn an_error_that_stays_is_reported_and_a_retry_after_it_succeeds() {
    for (call, errno) in [
        (Call::Write, Errno::NOSPC),
        (Call::Read, Errno::IO),
        (Call::Fsync, Errno::IO),
        (Call::Mkdirat, Errno::DQUOT),
        (Call::Renameat, Errno::STALE),
        (Call::Openat, Errno::ACCESS),
    ] {
        let world = World::new(Scenario::Tree, Verb::Move);
        let done = format!("{errno:?} from every {call:?}");
        let always = Strike { times: u64::MAX, ..Strike::nth_of(call, 0, Hit::Errno(errno.raw_os_error())) };
        let report = run(&Order::to(&world.state, &world.spec).strike([always])).told();
        assert!(report.fired > 0, "{done}: nothing was struck");
        assert!(!check_outcome(&world, &done, &report, Some(errno)), "{done}: and yet it is done");
        retry(&world, &done);
    }
}

#[test]
fn an_error_that_may_pass_is_tried_again_at_once_and_one_that_does_not_is_reported() {
    for (errno, may_pass) in [
        (Errno::IO, true),
        (Errno::STALE, true),
        (Errno::INTR, true),
        (Errno::NOSPC, false),
        (Errno::DQUOT, false),
        (Errno::ACCESS, false),
    ] {
        let world = World::new(Scenario::Small, Verb::Move);
        let done = format!("{errno:?} from the first write");
        let once = Strike::nth_of(Call::Write, 0, Hit::Errno(errno.raw_os_error()));
        let report = run(&Order::to(&world.state, &world.spec).strike([once])).told();
        assert_eq!(report.fired, 1, "{done}");
        assert_eq!(check_outcome(&world, &done, &report, Some(errno)), may_pass, "{done}: {:?}", report.jobs);
    }
}

#[test]
fn transfers_that_move_fewer_bytes_than_asked_are_gone_on_with() {
    // AXL takes a short read for the end of the file; VeloC loops for ever where a read returns nothing.
    for scenario in [Scenario::Tree, Scenario::Chunked] {
        for kind in [Call::Read, Call::Write] {
            for (bytes, times) in [(1, 3), (511, 40), (4095, 40), (4096, u64::MAX), (1 << 20, u64::MAX)] {
                let world = World::new(scenario, Verb::Move);
                let done = format!("{times} calls of {kind:?} moving {bytes} bytes at most, {scenario:?}");
                let short = Strike { times, ..Strike::nth_of(kind, 0, Hit::Short(bytes)) };
                let report = run(&Order::to(&world.state, &world.spec).strike([short])).told();
                assert!(report.fired > 0, "{done}: nothing was struck");
                let job = report.job();
                assert_eq!((job.state, &job.error), (State::Done, &None), "{done}: {job:?}");
                world.must(&done, world.check_end());
            }
        }
    }
}

#[test]
fn a_failed_sync_of_a_file_is_final_and_its_copy_is_discarded() {
    // mpiFileUtils tries fsync again after EIO, and the kernel, which has dropped the pages, says that all is well.
    for scenario in [Scenario::Small, Scenario::Chunked, Scenario::Tree, Scenario::Checkpoint] {
        if scenario == Scenario::Checkpoint && !crate::LIKE_NFS {
            // Its files have no sync of their own: the file system's vouches for them.
            continue;
        }
        let calls = record(scenario, Verb::Move).calls;
        let mut struck = Struck::of(format!("a failed sync of {scenario:?}"));
        for kind in [Call::Fsync, Call::Fdatasync] {
            let count = calls.iter().filter(|name| call(name) == kind).count() as u64;
            for n in sample::points(&format!("{scenario:?} {kind:?}"), count, sample::share(15)) {
                let world = World::new(scenario, Verb::Move);
                let done = format!("{kind:?} {n} of {count} failing once, {scenario:?}");
                let fault = Strike::nth_of(kind, n, Hit::Errno(Errno::IO.raw_os_error()));
                let report = run(&Order::to(&world.state, &world.spec).strike([fault])).told();
                assert_eq!(report.fired, 1, "{done}");
                struck.case(!report.failed_syncs.is_empty());
                assert_eq!(
                    report.synced_again,
                    [],
                    "{done}: a file was synced again after its sync had failed"
                );
                if check_outcome(&world, &done, &report, Some(Errno::IO)) {
                    none_survive(&world, &done, &report.failed_syncs, &|_| true);
                } else {
                    retry(&world, &done);
                }
            }
        }
    }
}

#[test]
fn a_failed_sync_of_a_copied_directory_discards_the_part_where_syncfs_does_not_vouch() {
    for scenario in [Scenario::Tree, Scenario::Checkpoint] {
        let world = World::new(scenario, Verb::Move);
        let calls = run(&Order::to(&world.state, &world.spec).distrustful()).told().calls;
        let count = calls.iter().filter(|name| call(name) == Call::Fsync).count() as u64;
        for n in sample::points(&format!("distrusted {scenario:?}"), count, sample::share(30).max(8)) {
            let world = World::new(scenario, Verb::Move);
            let done = format!("fsync {n} of {count} failing once, distrusted, {scenario:?}");
            let fault = Strike::nth_of(Call::Fsync, n, Hit::Errno(Errno::IO.raw_os_error()));
            let report = run(&Order::to(&world.state, &world.spec).distrustful().strike([fault])).told();
            assert_eq!(report.fired, 1, "{done}");
            assert_eq!(
                report.synced_again,
                [],
                "{done}: an inode was synced again after its sync had failed"
            );
            if check_outcome(&world, &done, &report, Some(Errno::IO)) {
                none_survive(&world, &done, &report.failed_syncs, &|_| true);
            } else {
                retry(&world, &done);
            }
        }
    }
}

#[test]
fn data_that_was_not_synced_is_never_taken_for_a_hole() {
    // openzfs/zfs#15526: SEEK_DATA passes over what is on its way to the medium.
    for scenario in [Scenario::Tree, Scenario::Chunked] {
        for strikes in
            [vec![], vec![Strike::nth_of(Call::Fdatasync, 1, Hit::Errno(Errno::IO.raw_os_error()))]]
        {
            let world = World::new(scenario, Verb::Move);
            let done = format!("unsynced data is hidden, {scenario:?}, {strikes:?}");
            let mut order = Order::to(&world.state, &world.spec).distrustful().strike(strikes);
            order.hide = true;
            let report = run(&order).told();
            assert!(
                report.calls.iter().any(|name| call(name) == Call::Lseek),
                "{done}: nothing was looked for"
            );
            assert_eq!(report.job().state, State::Done, "{done}: {:?}", report.jobs);
            world.must(&done, world.check_end());
        }
    }
}

#[test]
fn a_failed_sync_of_the_file_system_discards_every_copy_that_it_was_to_vouch_for() {
    if crate::LIKE_NFS {
        println!("SKIP a failed sync of the file system: syncfs is not relied on here");
        return;
    }
    let mut struck = Struck::of("a failed sync of the file system");
    for scenario in [Scenario::Small, Scenario::Tree, Scenario::Checkpoint] {
        let calls = record(scenario, Verb::Copy).calls;
        let count = calls.iter().filter(|name| call(name) == Call::Syncfs).count() as u64;
        for n in 0..count {
            let world = World::new(scenario, Verb::Copy);
            let done = format!("syncfs {n} of {count} failing once, {scenario:?}");
            let faults = [Hit::Meanwhile, Hit::Errno(Errno::IO.raw_os_error())];
            let report = run(&Order::to(&world.state, &world.spec)
                .strike(faults.map(|hit| Strike::nth_of(Call::Syncfs, n, hit)))
                .meanwhile([Change::Hold { path: world.slow().into() }]))
            .told();
            assert_eq!(report.fired, 2, "{done}");
            struck.case(!report.held.is_empty());
            if check_outcome(&world, &done, &report, Some(Errno::IO)) {
                // What an earlier syncfs has vouched for is not in doubt; nor is what goes by the chunk, and has syncs of
                // its own.
                if n == 0 {
                    none_survive(&world, &done, &report.held, &|file| !goes_by_the_chunk(file));
                }
            } else {
                retry(&world, &done);
            }
        }
    }
}

/// Is it large, or does it have holes?
fn goes_by_the_chunk(file: &Metadata) -> bool {
    !file.is_file() || file.len() >= 4 << 20 || file.blocks() * 512 < file.len()
}

/// None of these inodes that is `meant`, which were held open so that their numbers were not given to others, has a name now.
fn none_survive(world: &World, done: &str, inodes: &[(u64, u64)], meant: &dyn Fn(&Metadata) -> bool) {
    let mut directories = vec![world.destination.clone()];
    while let Some(path) = directories.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            directories.extend(std::fs::read_dir(&path).unwrap().map(|one| one.unwrap().path()));
        }
        assert!(
            !meant(&metadata) || !inodes.contains(&(metadata.dev(), metadata.ino())),
            "{done}: {path:?} is the inode whose sync failed"
        );
    }
}

#[test]
fn a_kill_right_after_a_failed_sync_leaves_nothing_that_is_trusted() {
    let calls = record(Scenario::Chunked, Verb::Move).calls;
    let mut struck = Struck::of("a kill right after a failed sync");
    for kind in [Call::Fsync, Call::Fdatasync] {
        let count = calls.iter().filter(|name| call(name) == kind).count() as u64;
        for n in sample::points(&format!("{kind:?} and kill"), count, 4) {
            let world = World::new(Scenario::Chunked, Verb::Move);
            let done = format!("{kind:?} {n} failing, and a kill at the call after it");
            let at = calls.iter().enumerate().filter(|(_, name)| call(name) == kind).nth(n as usize);
            let at = at.expect("it was counted").0 as u64;
            let fault = Strike::nth(at, Hit::Errno(Errno::IO.raw_os_error()));
            let order = Order::to(&world.state, &world.spec);
            let ended = run(&order.strike([fault, Strike::nth(at + 1, Hit::Kill)]));
            struck.case(matches!(ended, Ended::Killed));
            world.must(&done, world.check_between());
            go_on(&world, &done);
        }
    }
}

#[test]
fn a_full_disk_that_shows_only_when_data_is_synced_fails_the_move() {
    // Lustre and NFS reserve late: write(2) succeeds, and ENOSPC comes with fsync(2).
    let mut struck = Struck::of("a full disk that shows late");
    for (scenario, kind) in [
        (Scenario::Chunked, Call::Fdatasync),
        (Scenario::Chunked, Call::Fsync),
        (Scenario::Small, Call::Fsync),
        (Scenario::Checkpoint, Call::Syncfs),
    ] {
        let world = World::new(scenario, Verb::Move);
        let done = format!("ENOSPC from every {kind:?}, {scenario:?}");
        let errno = Errno::NOSPC;
        let always = Strike { times: u64::MAX, ..Strike::nth_of(kind, 0, Hit::Errno(errno.raw_os_error())) };
        let report = run(&Order::to(&world.state, &world.spec).strike([always])).told();
        if !struck.case(report.fired > 0) {
            // This mover syncs by another call here; `any_call_…_may_fail` strikes that one.
            continue;
        }
        assert!(!check_outcome(&world, &done, &report, Some(errno)), "{done}: and yet it is done");
        retry(&world, &done);
    }
}
