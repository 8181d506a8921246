//! The fuzzer of the server's transmission phase, as long as one likes:
//!
//! ```text
//! cargo run --release -p flashwright-serve --example fuzz_requests -- memory|engine|file 1000000 [SEED [FIRST]]
//! ```
//!
//! runs a million executions from execution FIRST of SEED on, and prints how they ended. A finding ends it with the number
//! that runs it again.

#[path = "../tests/fuzzing/mod.rs"]
mod fuzzing;

use std::process::ExitCode;
use std::time::Instant;

use fuzzing::{Fuzzer, Outcomes, Way};

/// Executions between two lines of progress.
const ROUND: u64 = 50_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let way = match arguments.next().as_deref() {
        Some("memory") => Way::Memory,
        Some("engine") => Way::Engine,
        Some("file") => Way::File,
        _ => return wrong(),
    };
    let mut arguments = arguments.map(|word| word.parse::<u64>());
    let mut number = |default| arguments.next().unwrap_or(Ok(default));
    let (Ok(executions), Ok(seed), Ok(first)) = (number(1_000_000), number(1), number(0)) else {
        return wrong();
    };
    let mut fuzzer = Fuzzer::new(way);
    let (begun, end, mut total) = (Instant::now(), first + executions, Outcomes::new());
    for from in (first..end).step_by(ROUND as usize) {
        let to = (from + ROUND).min(end);
        eprintln!("{way:?}: executions {from} to {to} of seed {seed}");
        match fuzzer.run(seed, from, to) {
            Ok(outcomes) => {
                for (word, count) in outcomes {
                    *total.entry(word).or_default() += count;
                }
            }
            Err(finding) => {
                eprintln!("{way:?}: seed {seed}, {finding:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{way:?}: {executions} executions of seed {seed}, nothing found; they ended as {total:?}");
    println!("{:.0} s", begun.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

fn wrong() -> ExitCode {
    eprintln!(
        "error: what is exported (memory, engine or file), then three numbers at most: executions, seed, first execution"
    );
    ExitCode::from(2)
}
