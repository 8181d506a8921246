//! Writes an array as a checkpoint to a volume, in as many requests at once as its drives take, and reads it back.
//!
//! ```text
//! flashwright volume create --chunk 1m 'file:/scratch1/a?size=2g,file:/scratch2/b?size=2g'
//! cargo run --release -p flashwright-volume --example checkpoint -- volume:/scratch1/a,/scratch2/b
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use volume::{DeviceSpec, OpenOptions, QueueOptions, Volume};

/// Bytes of one request.
const PART: usize = 4 << 20;

fn main() -> ExitCode {
    let Some(spec) = std::env::args().nth(1) else {
        eprintln!("usage: checkpoint SPEC");
        return ExitCode::from(2);
    };
    let Err(error) = run(&spec) else { return ExitCode::SUCCESS };
    // Messages do not repeat their sources, so the whole chain is printed.
    eprint!("checkpoint: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprint!(": {cause}");
        source = cause.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

fn run(spec: &str) -> Result<(), Box<dyn Error>> {
    let volume = Volume::open(&DeviceSpec::parse(spec)?, &OpenOptions::writing())?;
    let bytes = (volume.size().min(1 << 30) as usize) / PART * PART;
    println!(
        "{}: {} members, {bytes} of {} bytes",
        volume.device().spec(),
        volume.members().len(),
        volume.size()
    );
    let state: Vec<f64> = (0..bytes / 8).map(|n| (n as f64).sqrt()).collect();

    let mut queue = volume.queue(&QueueOptions::default())?;
    let started = Instant::now();
    for (number, part) in state.chunks(PART / 8).enumerate() {
        let part = part.iter().flat_map(|value| value.to_le_bytes()).collect();
        queue.write((number * PART) as u64, part)?;
        // What is done meanwhile is taken back, so that no more is held than is under way.
        while let Some(done) = queue.poll()? {
            done.result?;
        }
    }
    while let Some(done) = queue.wait()? {
        done.result?;
    }
    // Durable only now.
    volume.sync()?;
    tell("written", bytes, started);

    let started = Instant::now();
    for number in 0..bytes / PART {
        queue.read((number * PART) as u64, vec![0; PART])?;
    }
    while let Some(done) = queue.wait()? {
        done.result?;
        let first = done.offset as usize / 8;
        for (value, expected) in done.buffer.chunks_exact(8).zip(&state[first..]) {
            if value != expected.to_le_bytes() {
                return Err(format!("the part at {} is not what was written", done.offset).into());
            }
        }
    }
    tell("read and compared", bytes, started);
    Ok(())
}

fn tell(what: &str, bytes: usize, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    println!("{what}: {:.0} MB/s", bytes as f64 / seconds / 1e6);
}
