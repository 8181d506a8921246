//! Every system call of a large file's copy, struck in turn: it ends with an error or with the right bytes, and what it
//! told of is right in either case. The plan is the process's, so that the tests of this binary take turns.

mod large_rig;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use large_rig::{Copy, config, contents, digests, methods, pattern};
use rustix::io::Errno;
use stage::StageError;
use stage::fault::{Call, Effect, Fault, Plan, fired, install};
use stage::large::{Lane, LaneConfig};
use storage::transfer::Method;

/// Chunks, of which there are hundreds of copies made.
const SMALL: u64 = 64 << 10;

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Data, a chunk and more of hole, and data that ends in the middle of a block.
fn source() -> (File, Vec<u8>) {
    let mut expected = pattern(1, 3 * SMALL);
    expected.resize((4 * SMALL + SMALL / 2) as usize, 0);
    expected.extend_from_slice(&pattern(2, SMALL + 1234));
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&expected[..(3 * SMALL) as usize], 0).unwrap();
    let second = (4 * SMALL + SMALL / 2) as usize;
    file.write_all_at(&expected[second..], second as u64).unwrap();
    file.sync_all().unwrap();
    (file, expected)
}

fn lane(method: Method, depth: u32) -> Lane {
    let small = LaneConfig { chunk_bytes: SMALL, group_bytes: 2 * SMALL, ..config(depth, method) };
    Lane::new(&LaneConfig { reflink: true, ..small }).unwrap()
}

/// The calls that a copy makes.
fn calls(lane: &mut Lane, from: &File, bytes: u64, sparse: bool) -> Vec<Call> {
    let to = tempfile::tempfile().unwrap();
    install(Some(Plan::recording()));
    let mut copy = Copy::new(from, &to, bytes);
    copy.sparse = sparse;
    copy.run(lane).unwrap();
    install(None).and_then(|plan| plan.calls).unwrap()
}

/// Copies under a plan with one fault. What was told of is right; what ended well is right throughout. The error.
fn struck(lane: &mut Lane, from: &File, expected: &[u8], sparse: bool, fault: Fault) -> Option<StageError> {
    let to = tempfile::tempfile().unwrap();
    let mut copy = Copy::new(from, &to, expected.len() as u64);
    copy.sparse = sparse;
    install(Some(Plan::new([fault])));
    let result = copy.run(lane);
    let struck = fired();
    install(None);
    assert!(struck > 0, "{fault:?} never struck");
    match result {
        Ok(copied) => {
            copy.check(&copied, SMALL);
            assert_eq!(copied, digests(expected, SMALL), "{fault:?}");
            assert!(contents(&to) == expected, "{fault:?}: said to be right");
            None
        }
        Err(error) => {
            copy.check_told(SMALL);
            // And it can be gone on with, unless a sync failed.
            let done = copy.sealed.iter().copied().collect();
            let mut again = Copy::new(from, &to, expected.len() as u64);
            (again.sparse, again.done) = (sparse, done);
            let copied = again.run(lane).unwrap();
            again.check(&copied, SMALL);
            assert!(contents(&to) == expected, "{fault:?}: gone on with");
            Some(error)
        }
    }
}

fn each_call_of_a_copy(mut strike: impl FnMut(&mut Lane, &File, &[u8], bool, Call, u64)) {
    let (from, expected) = source();
    for method in methods() {
        let mut lane = lane(method, 2);
        for sparse in [false, true] {
            let made = calls(&mut lane, &from, expected.len() as u64, sparse);
            for wanted in [Call::Read, Call::Write, Call::Fdatasync] {
                assert!(made.contains(&wanted), "{made:?}");
            }
            let mut seen: Vec<Call> = Vec::new();
            for call in made {
                let after = seen.iter().filter(|earlier| **earlier == call).count() as u64;
                seen.push(call);
                // How many calls ask the source for its holes, and how many syncs there are between the first and the
                // last, depends on what else is under way.
                let sure = match call {
                    Call::Lseek => 4,
                    Call::Fdatasync => 2,
                    _ => u64::MAX,
                };
                if after < sure {
                    strike(&mut lane, &from, &expected, sparse, call, after);
                }
            }
        }
    }
}

#[test]
fn whatever_call_fails_there_is_an_error_or_the_right_bytes() {
    let _turn = turn();
    for errno in [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::STALE, Errno::INVAL, Errno::INTR] {
        let number = errno.raw_os_error();
        each_call_of_a_copy(|lane, from, expected, sparse, call, after| {
            let fault = Fault { call: Some(call), after, times: 1, effect: Effect::Errno(number) };
            let error = struck(lane, from, expected, sparse, fault);
            let passes = match call {
                // Without them there is no direct I/O, or no sharing, and all the same a copy.
                Call::Openat | Call::Statx => true,
                Call::Ficlone | Call::SyncFileRange => true,
                Call::Read | Call::Write => [Errno::INTR, Errno::INVAL].contains(&errno),
                Call::Lseek => true,
                _ => false,
            };
            match error {
                None => assert!(passes, "{call:?} number {after}: {errno:?} is passed over"),
                Some(StageError::Io { source, .. } | StageError::Sync { source, .. }) => {
                    assert_eq!(source.raw_os_error(), Some(number));
                }
                Some(other) => panic!("{call:?} number {after}: {other}"),
            }
        });
    }
}

#[test]
fn whatever_is_moved_in_part_is_moved_whole_or_fails() {
    let _turn = turn();
    for short in [0, 1, 4096, 5000] {
        each_call_of_a_copy(|lane, from, expected, sparse, call, after| {
            if !matches!(call, Call::Read | Call::Write) {
                return;
            }
            let fault = Fault { call: Some(call), after, times: 1, effect: Effect::Short(short) };
            match struck(lane, from, expected, sparse, fault) {
                None => assert_ne!(short, 0, "{call:?} number {after} moved nothing and is passed over"),
                Some(error) => assert_eq!(short, 0, "{call:?} number {after}: {error}"),
            }
        });
    }
}

#[test]
fn a_sync_that_fails_once_is_the_end_and_is_not_made_again() {
    let _turn = turn();
    let (from, expected) = source();
    for method in methods() {
        for errno in [Errno::IO, Errno::INTR, Errno::AGAIN, Errno::NOSPC] {
            let effect = Effect::Errno(errno.raw_os_error());
            let mut plan = Plan::new([Fault { call: Some(Call::Fdatasync), after: 0, times: 1, effect }]);
            plan.calls = Some(Vec::new());
            let to = tempfile::tempfile().unwrap();
            let mut copy = Copy::new(&from, &to, expected.len() as u64);
            let mut lane = lane(method, 2);
            install(Some(plan));
            let error = copy.run(&mut lane).unwrap_err();
            let made = install(None).and_then(|plan| plan.calls).unwrap();
            assert_eq!(error.errno(), Some(errno.raw_os_error()));
            assert!(error.to_string().contains("fdatasync"), "{error}");
            assert_eq!(made.iter().filter(|call| **call == Call::Fdatasync).count(), 1);
            assert!(copy.sealed.is_empty());
        }
    }
}

#[test]
fn direct_requests_that_are_refused_go_through_the_page_cache_and_it_is_said() {
    let _turn = turn();
    let (from, expected) = source();
    for method in methods() {
        for call in [Call::Read, Call::Write] {
            let mut lane = lane(method, 3);
            let to = tempfile::tempfile().unwrap();
            Copy::new(&from, &to, expected.len() as u64).run(&mut lane).unwrap();
            if !lane.notes().is_empty() {
                return eprintln!("SKIP refused direct requests: there are none here");
            }
            for after in 0..4 {
                let effect = Effect::Errno(Errno::INVAL.raw_os_error());
                let fault = Fault { call: Some(call), after, times: 1, effect };
                assert!(struck(&mut lane, &from, &expected, false, fault).is_none());
            }
            if call == Call::Write {
                let notes = lane.notes();
                assert!(
                    notes.iter().all(|note| note.contains("page cache")) && notes.len() == 4,
                    "{notes:?}"
                );
            }
        }
    }
}
