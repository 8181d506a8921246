//! What checksums cost: the same loads on a volume without and on one with them, in turns, each for a second.
//!
//! Both volumes are written throughout first. The volume without checksums is driven by the engine that `auto` takes and
//! by psync, which is the only one that a volume with checksums takes.
//!
//! ```text
//! cargo run --release -p flashwright-volume --example checksums -- volume:a,b volume:c,d [ROUNDS]
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use storage::engine::IoEngine;
use volume::{DeviceSpec, OpenOptions, QueueOptions, Volume};

const ROUND: Duration = Duration::from_secs(1);
const DEPTH: u32 = 16;
/// The loads: name, bytes of a request, whether they write, whether they go in order.
const LOADS: [(&str, u64, bool, bool); 4] = [
    ("sequential reads of 128 KiB", 128 << 10, false, true),
    ("sequential writes of 128 KiB", 128 << 10, true, true),
    ("random reads of 4 KiB", 4 << 10, false, false),
    ("random writes of 4 KiB", 4 << 10, true, false),
];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [plain, checked, rest @ ..] = &arguments[..] else {
        return Err("usage: checksums PLAIN CHECKED [ROUNDS]".into());
    };
    let rounds: usize = rest.first().map_or(Ok(5), |text| text.parse())?;
    let open = |spec: &str| -> Result<Volume, Box<dyn Error>> {
        Ok(Volume::open(&DeviceSpec::parse(spec)?, &OpenOptions::writing())?)
    };
    let (plain, checked) = (open(plain)?, open(checked)?);
    let size = plain.size().min(checked.size());
    for volume in [&plain, &checked] {
        run(volume, IoEngine::Auto, LOADS[1], size, Duration::MAX)?;
        volume.sync()?;
    }
    println!(
        "| load | without, auto | without, psync | with | with / without, auto | with / without, psync |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    for load in LOADS {
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds {
            let targets = [(&plain, IoEngine::Auto), (&plain, IoEngine::Psync), (&checked, IoEngine::Auto)];
            for ((volume, engine), rates) in targets.into_iter().zip(&mut rates) {
                rates.push(run(volume, engine, load, size, ROUND)?);
            }
        }
        let [auto, psync, with] = &rates;
        let ratio =
            |others: &[f64]| median(with.iter().zip(others).map(|(with, other)| with / other).collect());
        let shown = |rates: &[f64]| {
            let rate = median(rates.to_vec());
            if load.3 { format!("{:.0} MB/s", rate * load.1 as f64 / 1e6) } else { format!("{rate:.0} IOPS") }
        };
        println!(
            "| {} | {} | {} | {} | {:.2} | {:.2} |",
            load.0,
            shown(auto),
            shown(psync),
            shown(with),
            ratio(auto),
            ratio(psync)
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Requests a second, with a sync at the end where they write. A run that goes in order ends with the volume at the
/// latest where it has no other end.
fn run(
    volume: &Volume,
    engine: IoEngine,
    (_, bytes, writes, in_order): (&str, u64, bool, bool),
    size: u64,
    longest: Duration,
) -> Result<f64, Box<dyn Error>> {
    let options = QueueOptions { depth: DEPTH, part_bytes: Some(bytes as usize), engine };
    let mut queue = volume.queue(&options)?;
    let (places, started) = (size / bytes, Instant::now());
    let (mut begun, mut ended, mut random) = (0, 0, 0x9e37_79b9_7f4a_7c15_u64);
    let in_flight = u64::from(DEPTH) * volume.members().len() as u64;
    let mut buffers: Vec<Vec<u8>> = (0..in_flight).map(|_| vec![7; bytes as usize]).collect();
    let goes_on = |begun: u64| match longest {
        Duration::MAX => begun < places,
        longest => started.elapsed() < longest,
    };
    while goes_on(begun) || begun > ended {
        while goes_on(begun)
            && let Some(buffer) = buffers.pop()
        {
            // Marsaglia's xorshift (2003).
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = if in_order { begun } else { random } % places * bytes;
            let _ = if writes { queue.write(place, buffer)? } else { queue.read(place, buffer)? };
            begun += 1;
        }
        if let Some(done) = queue.wait()? {
            done.result?;
            buffers.push(done.buffer);
            ended += 1;
        }
    }
    if writes {
        volume.sync()?;
    }
    Ok(ended as f64 / started.elapsed().as_secs_f64())
}
