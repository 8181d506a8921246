//! Opens a device spec and reads it: the first bytes by the plain path, then 4 KiB random reads, for three seconds or
//! as many as asked (with how many in flight on each member), through one engine that keeps every member's queue full.
//!
//! ```text
//! cargo run --release -p flashwright-volume --example stripe -- 'stripe(chunk=64k):/dev/nvme0n1,/dev/nvme1n1'
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use storage::engine::{Engine, EngineConfig, IoUring, Op};
use volume::{DeviceSpec, OpenOptions};

const BLOCK: u32 = 4096;
/// For each member, where nothing else is said.
const DEPTH: u32 = 32;

fn main() -> ExitCode {
    let Some(spec) = std::env::args().nth(1) else {
        eprintln!("usage: stripe SPEC [READS [DEPTH]]");
        return ExitCode::from(2);
    };
    let number = |at| std::env::args().nth(at).and_then(|text| text.parse::<u32>().ok());
    let Err(error) = run(&spec, number(2).map(u64::from), number(3).unwrap_or(DEPTH)) else {
        return ExitCode::SUCCESS;
    };
    // Messages do not repeat their sources, so the whole chain is printed.
    eprint!("stripe: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprint!(": {cause}");
        source = cause.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

fn run(spec: &str, most: Option<u64>, depth: u32) -> Result<(), Box<dyn Error>> {
    let volume = volume::open(&DeviceSpec::parse(spec)?, &OpenOptions::reading())?;
    let mut first = [0; 16];
    volume.read_at(&mut first, 0)?;
    println!("{}: {} bytes, beginning with {first:02x?}", volume.spec(), volume.size());

    let members = storage::device::leaves(&volume).len() as u32;
    let config =
        EngineConfig { depth: depth * members, slot_bytes: BLOCK as usize, ..EngineConfig::default() };
    let mut engine = IoUring::new(volume, &config)?;
    println!("{}", engine.features().join(", "));
    let blocks = engine.device().size() / u64::from(BLOCK);
    let mut idle: Vec<u32> = (0..engine.depth()).collect();
    let (mut random, mut reads, mut failure) = (0x9e37_79b9_7f4a_7c15_u64, 0_u64, None);
    let started = Instant::now();
    let goes_on = |reads: u64| match most {
        Some(most) => reads < most,
        None => started.elapsed() < Duration::from_secs(3),
    };
    while goes_on(reads) && failure.is_none() {
        while let Some(slot) = idle.pop() {
            // Marsaglia's xorshift (2003).
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            engine.prepare(slot, Op::Read, random % blocks * u64::from(BLOCK), BLOCK);
        }
        engine.submit(1, None)?;
        engine.reap(|slot, result| {
            idle.push(slot);
            match result {
                Ok(()) => reads += 1,
                Err(error) => failure = Some(error),
            }
        });
    }
    let seconds = started.elapsed().as_secs_f64();
    drop(engine);
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    println!("{reads} reads in {seconds:.2} s: {:.0} IOPS", reads as f64 / seconds);
    Ok(())
}
