//! Both parsers under the fuzzer, for a stated number of executions: `cargo run --release -p flashwright-nbd --example fuzz`
//! runs as many as one likes.

mod fuzzing;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fuzzing::{Fuzzer, Side};

/// Executions of each side.
const EXECUTIONS: u64 = 200_000;
const SEED: u64 = 0x666c_6173_6877_7267;

/// Allocations are counted for all of the process, so one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn no_client_makes_the_server_panic_hang_or_keep_more_than_the_limit() {
    let _alone = alone();
    let outcomes = Fuzzer::new().run(Side::Server, SEED, 0, EXECUTIONS).unwrap();
    println!("seed {SEED:#x}: {outcomes:?}");
    // The fuzzer is worth its time only if it gets everywhere.
    for word in [
        "agreed",
        "Aborted",
        "Closed",
        "UnknownExport",
        "WithoutTls",
        "Flags",
        "NotFixed",
        "TooLong",
        "TooMany",
        "Wire",
        "Tls",
        "Io",
    ] {
        assert!(outcomes.get(word).is_some_and(|count| *count > 50), "{word}: {outcomes:?}");
    }
}

#[test]
fn no_server_makes_the_client_panic_hang_or_keep_more_than_the_limit() {
    let _alone = alone();
    let outcomes = Fuzzer::new().run(Side::Client, SEED, 0, EXECUTIONS).unwrap();
    println!("seed {SEED:#x}: {outcomes:?}");
    for word in [
        "agreed",
        "listed",
        "Closed",
        "ClosedOnName",
        "NotNbd",
        "Wire",
        "Unexpected",
        "NoExport",
        "Refused",
        "TlsRequired",
        "NoTls",
        "Tls",
    ] {
        assert!(outcomes.get(word).is_some_and(|count| *count > 50), "{word}: {outcomes:?}");
    }
}

#[test]
fn the_fuzzer_finds_a_limit_that_is_too_low() {
    let _alone = alone();
    for side in [Side::Server, Side::Client] {
        let mut fuzzer = Fuzzer::new();
        fuzzer.limit = Some(1000);
        let finding = fuzzer.run(side, SEED, 0, EXECUTIONS).unwrap_err();
        assert!(finding.what.contains("above the limit of 1000"), "{finding:?}");
        // The same execution alone finds it again.
        let again = fuzzer.run(side, SEED, finding.execution, finding.execution + 1).unwrap_err();
        assert_eq!(again, finding);
    }
}
