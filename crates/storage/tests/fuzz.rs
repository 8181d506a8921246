//! Replies under the fuzzer, for a stated number of executions:
//! `cargo run --release -p flashwright-storage --example fuzz_replies` runs as many as one likes.

mod fuzzing;

use fuzzing::Fuzzer;

const EXECUTIONS: u64 = 5_000;
const SEED: u64 = 0x7265_706c_6965_7321;

#[test]
fn no_server_makes_a_client_write_elsewhere_believe_what_is_wrong_or_hold_more_than_the_limit() {
    let outcomes = Fuzzer::new().run(SEED, 0, EXECUTIONS).unwrap();
    println!("seed {SEED:#x}: {outcomes:?}");
    // The fuzzer is worth its time only if it gets everywhere.
    for word in ["broke the protocol", "ended between replies", "ended in the middle"] {
        assert!(outcomes.get(word).is_some_and(|count| *count > EXECUTIONS / 100), "{word}: {outcomes:?}");
    }
    assert!(outcomes["requests over"] > EXECUTIONS, "{outcomes:?}");
}

#[test]
fn the_fuzzer_finds_a_limit_that_is_too_low() {
    let mut fuzzer = Fuzzer::new();
    fuzzer.limit = Some(1000);
    let finding = fuzzer.run(SEED, 0, 10).unwrap_err();
    assert!(finding.what.contains("above the limit of 1000"), "{finding:?}");
    // The same execution alone finds it again.
    assert_eq!(fuzzer.run(SEED, finding.execution, finding.execution + 1).unwrap_err(), finding);
}
