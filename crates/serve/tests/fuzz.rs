//! The transmission phase under the fuzzer, for a stated number of executions:
//! `cargo run --release -p flashwright-serve --example fuzz_requests` runs as many as one likes.

mod fuzzing;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fuzzing::{Fuzzer, Way};

const SEED: u64 = 0x7472_616e_736d_6974;

/// Allocations are counted for all of the process, so one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs executions, and sees that they came everywhere.
fn runs(way: Way, executions: u64) {
    let _alone = alone();
    let outcomes = Fuzzer::new(way).run(SEED, 0, executions).unwrap();
    println!("seed {SEED:#x}: {outcomes:?}");
    for word in ["Disconnected", "Closed", "Protocol", "vanished"] {
        assert!(outcomes.get(word).is_some_and(|count| *count > executions / 100), "{word}: {outcomes:?}");
    }
    assert!(outcomes["requests answered"] > executions, "{outcomes:?}");
}

#[test]
fn no_client_of_memory_gets_what_is_not_there_or_keeps_more_than_the_limit() {
    runs(Way::Memory, 2_000);
}

#[test]
fn no_client_of_a_device_gets_what_is_not_there_or_keeps_more_than_the_limit() {
    runs(Way::Engine, 300);
}

#[test]
fn no_client_of_a_file_gets_what_is_not_there_or_keeps_more_than_the_limit() {
    runs(Way::File, 100);
}

#[test]
fn answers_that_nobody_takes_are_held_up_to_the_limit() {
    let _alone = alone();
    let mut fuzzer = Fuzzer::new(Way::Engine);
    fuzzer.rarely = 1;
    let outcomes = fuzzer.run(SEED, 0, 6).unwrap();
    println!("seed {SEED:#x}: {outcomes:?}");
}

#[test]
fn the_fuzzer_finds_a_limit_that_is_too_low() {
    let _alone = alone();
    let mut fuzzer = Fuzzer::new(Way::Memory);
    fuzzer.limit = Some(100_000);
    let finding = fuzzer.run(SEED, 0, 10).unwrap_err();
    assert!(finding.what.contains("above the limit of 100000"), "{finding:?}");
    // The same execution alone finds it again.
    let again = fuzzer.run(SEED, finding.execution, finding.execution + 1).unwrap_err();
    assert!(again.what.contains("above the limit of 100000"), "{again:?}");
}
