//! Sorts random 64-bit numbers on temporary space and prints the figures as a line of JSON, for comparisons.
//!
//!     sorting SPEC COUNT MEMORY [THREADS]
//!
//! SPEC is a directory for a scratch file, or a device spec; MEMORY is in bytes.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use external::{Sorter, SorterOptions, Source, Space, SpaceOptions};
use storage::device::{DeviceSpec, OpenOptions};

/// SplitMix64's function: different numbers for different `index`es.
fn mixed(index: u64) -> u64 {
    let mut z = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [spec, count, memory, rest @ ..] = &arguments[..] else {
        return Err("sorting SPEC COUNT MEMORY [THREADS]".into());
    };
    let (count, memory): (u64, u64) = (count.parse()?, memory.parse()?);
    let bytes = count * 8 * 17 / 16 + (64 << 20);
    let space = if Path::new(spec).is_dir() {
        Space::scratch(Path::new(spec), bytes, &SpaceOptions::default())?
    } else {
        let device = volume::open(&DeviceSpec::parse(spec)?, &OpenOptions::writing())?;
        Space::on(device, &SpaceOptions::default())?
    };
    let mut options = SorterOptions::<u64>::new(memory);
    if let Some(threads) = rest.first() {
        options.threads = threads.parse()?;
    }

    let start = Instant::now();
    let mut sorter = Sorter::new(&space, &options)?;
    for index in 1..=count {
        sorter.push(mixed(index))?;
    }
    let pushed = start.elapsed();
    let mut sorted = sorter.finish()?;
    let (mut last, mut seen, mut sum, mut is_sorted) = (0, 0, 0_u64, true);
    loop {
        let records = sorted.fill()?;
        let taken = records.len();
        if taken == 0 {
            break;
        }
        for record in records {
            is_sorted &= last <= *record;
            last = *record;
            sum = sum.wrapping_add(last);
        }
        seen += taken as u64;
        sorted.consume(taken);
    }
    let seconds = start.elapsed().as_secs_f64();
    let usage = space.usage();
    println!(
        "{{\"seconds\": {seconds:.4}, \"pushing\": {:.4}, \"is_sorted\": {}, \"sum\": {sum}, \"bytes_read\": {}, \
         \"bytes_written\": {}}}",
        pushed.as_secs_f64(),
        is_sorted && seen == count,
        usage.bytes_read,
        usage.bytes_written
    );
    if is_sorted && seen == count { Ok(()) } else { Err("the order is wrong".into()) }
}
