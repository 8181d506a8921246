//! Makes a results file of as many runs as asked, with figures that no drive has produced:
//! `cargo run --release -p flashwright-sweep --example synthetic_sweep -- DIRECTORY RUNS`.
//!
//! It goes through the very runner and store that a sweep uses, over the target that the tests use, so
//! that what a report costs can be measured for sweeps that would take days (`python3 tools/ratios drives report`).
//! Each run is committed durably before the next; a directory in memory (/dev/shm) makes that quick.

#[path = "../tests/fake/mod.rs"]
mod fake;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use fake::{Fakes, identity};
use sweep::run::{Quiet, Runner, begin};
use sweep::space::Space;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("name a directory")?);
    let runs: u32 = arguments.next().ok_or("say how many runs")?.parse()?;
    // 14 test types in 120 configurations; the rest is passes.
    let text = format!(
        "[sweep]\nname = 'synthetic'\nprotocol = 'dash'\npasses = {}\nseed = 1\ncontrol = false\n\
         [space]\ntest_type = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]\n\
         numjobs = [1, 2, 4, 8, 16]\nioengine = ['io_uring', 'libaio', 'psync']\n\
         direct = [true, false]\nnorandommap = [true, false]\nlatency_clock = ['batch', 'each']\n",
        runs.div_ceil(14 * 120).max(2)
    );
    let space = Space::parse("synthetic.toml", &text)?;
    let mut store = begin(&directory.join("results.db"), &space, &identity())?.store;
    let stop = AtomicBool::new(false);
    let mut fakes = Fakes::new();
    let outcome = Runner::new(&mut store, &identity(), &mut fakes, &mut Quiet, &stop).run()?;
    println!("{:?}: {} runs in {}", outcome.ended, store.runs()?.len(), directory.display());
    Ok(())
}
