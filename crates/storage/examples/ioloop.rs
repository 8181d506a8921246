//! The engine's interface in one loop: 4 KiB random reads of a file or block device for three seconds.
//!
//! ```text
//! cargo run --release -p flashwright-storage --example ioloop -- /dev/nvme0n1
//! ```
//!
//! A queue of 32 is kept full. Each turn prepares a read in every idle slot, hands all of them over and
//! waits for at least one in a single call, and takes back what is done. `flashwright bench` measures; this
//! only shows how.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use storage::device::{DeviceSpec, OpenOptions, open};
use storage::engine::{self, Engine, EngineConfig, IoEngine, Op};

const BLOCK: u32 = 4096;
const DEPTH: u32 = 32;

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: ioloop PATH");
        return ExitCode::from(2);
    };
    let Err(error) = run(&path) else { return ExitCode::SUCCESS };
    // Messages do not repeat their sources, so the whole chain is printed.
    eprint!("ioloop: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprint!(": {cause}");
        source = cause.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

fn run(path: &str) -> Result<(), Box<dyn Error>> {
    let device = open(&DeviceSpec::parse(path)?, &OpenOptions::reading())?;
    let config = EngineConfig { depth: DEPTH, slot_bytes: BLOCK as usize, ..EngineConfig::default() };
    let (engine, fallback) = engine::open(IoEngine::Auto, &device, &config)?;
    if let Some(reason) = fallback {
        println!("fell back: {reason}");
    }
    // Dispatched once, so that the loop is compiled for each engine by itself.
    storage::on_engine!(engine, engine => read_randomly(engine))
}

fn read_randomly<E: Engine>(mut engine: E) -> Result<(), Box<dyn Error>> {
    println!("{} over {}: {}", engine.name(), engine.device().spec(), engine.features().join(", "));
    let blocks = engine.device().size() / u64::from(BLOCK);
    if blocks == 0 {
        return Err(format!("{} holds no block of {BLOCK} bytes", engine.device().spec()).into());
    }
    let mut idle: Vec<u32> = (0..engine.depth()).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut reads = 0_u64;
    let mut failure = None;
    let started = Instant::now();
    let end = started + Duration::from_secs(3);
    while Instant::now() < end && failure.is_none() {
        while let Some(slot) = idle.pop() {
            random = xorshift(random);
            // From here until it is reaped the slot's buffer is the kernel's: touching it panics.
            engine.prepare(slot, Op::Read, random % blocks * u64::from(BLOCK), BLOCK);
        }
        engine.submit(1, None)?;
        engine.reap(|slot, result| {
            // Idle again, whatever became of it; on success `engine.buffer(slot)` now holds the block.
            idle.push(slot);
            match result {
                Ok(()) => reads += 1,
                Err(error) => failure = Some(error),
            }
        });
    }
    let seconds = started.elapsed().as_secs_f64();
    // What is still in flight is waited for when the engine is dropped.
    drop(engine);
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    println!("{reads} reads in {seconds:.2} s: {:.0} IOPS", reads as f64 / seconds);
    Ok(())
}

/// The next number of G. Marsaglia's generator (Xorshift RNGs, 2003).
fn xorshift(mut x: u64) -> u64 {
    x ^= x << 13;
    x ^= x >> 7;
    x ^ (x << 17)
}
