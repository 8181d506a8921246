//! The fuzzer of what takes a server's replies apart, as long as one likes:
//!
//! ```text
//! cargo run --release -p flashwright-storage --example fuzz_replies -- 1000000 [SEED [FIRST]]
//! ```
//!
//! runs a million executions from execution FIRST of SEED on, and prints how they ended. A finding ends it with the number
//! that runs it again; a panic does so too.

#[path = "../tests/fuzzing/mod.rs"]
mod fuzzing;

use std::process::ExitCode;
use std::time::Instant;

use fuzzing::{Fuzzer, Outcomes};

/// Executions between two lines of progress.
const ROUND: u64 = 1_000_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let mut number = |default| arguments.next().unwrap_or(Ok(default));
    let (Ok(executions), Ok(seed), Ok(first)) = (number(1_000_000), number(1), number(0)) else {
        eprintln!("error: three numbers at most: executions, seed, first execution");
        return ExitCode::from(2);
    };
    let mut fuzzer = Fuzzer::new();
    let (begun, end, mut total) = (Instant::now(), first + executions, Outcomes::new());
    for from in (first..end).step_by(ROUND as usize) {
        let to = (from + ROUND).min(end);
        eprintln!("executions {from} to {to} of seed {seed}");
        match fuzzer.run(seed, from, to) {
            Ok(outcomes) => {
                for (word, count) in outcomes {
                    *total.entry(word).or_default() += count;
                }
            }
            Err(finding) => {
                eprintln!("seed {seed}, {finding:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{executions} executions of seed {seed}, nothing found; they ended as {total:?}");
    println!("{:.0} s", begun.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}
