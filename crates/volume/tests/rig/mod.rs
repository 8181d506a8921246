//! Volumes of every kind, and an independent idea of where their bytes lie.
#![allow(dead_code)] // each test binary uses a part of it

pub mod disk;
pub mod random;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[path = "../../../storage/tests/lab/loop_device.rs"]
mod loop_device;

use loop_device::LoopDevice;
use storage::device::{Device, DeviceSpec, OpenOptions};
use storage::engine::{Engine, EngineConfig, RequestFailure};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
/// Far beyond what any of this takes on the slowest machine.
const LONG: Duration = Duration::from_secs(120);

pub fn open(spec: &str, options: &OpenOptions) -> Result<Arc<dyn Device>, volume::VolumeError> {
    volume::open(&DeviceSpec::parse(spec).expect("a spec"), options)
}

/// Options to write, directly or not.
pub fn writing(direct: bool) -> OpenOptions {
    OpenOptions { direct, ..OpenOptions::writing() }
}

/// A volume to write to. None, said aloud, where its file system has no direct I/O.
pub fn written(spec: &str, direct: bool) -> Option<Arc<dyn Device>> {
    match open(spec, &writing(direct)) {
        Ok(volume) => Some(volume),
        Err(volume::VolumeError::Open(error @ storage::device::OpenError::DirectUnsupported { .. })) => {
            eprintln!("SKIP {spec}: {error}");
            None
        }
        Err(error) => panic!("{spec}: {error}"),
    }
}

/// `file:…` specs of `count` files of `size` bytes in a directory, joined by commas.
pub fn files(directory: &Path, count: usize, size: u64) -> String {
    let spec = |n| format!("file:{}/member{n}?size={size}", directory.display());
    (0..count).map(spec).collect::<Vec<_>>().join(",")
}

pub fn config(depth: u32, slot_bytes: u64) -> EngineConfig {
    EngineConfig { depth, slot_bytes: slot_bytes as usize, ..EngineConfig::default() }
}

/// Where RAID-0 puts a byte: member and offset.
pub fn raid0(chunk: u64, width: u64, byte: u64) -> (usize, u64) {
    let (number, within) = (byte / chunk, byte % chunk);
    ((number % width) as usize, number / width * chunk + within)
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// How a request ended.
pub type Ending = Result<(), RequestFailure>;

/// Drives the engine until nothing is in flight, and returns how each slot's request ended. Fails where
/// a slot comes back twice, or not at all.
pub fn finish<E: Engine>(engine: &mut E) -> Vec<Option<Ending>> {
    let started = Instant::now();
    let mut endings: Vec<Option<Ending>> = (0..engine.depth()).map(|_| None).collect();
    while engine.in_flight() > 0 {
        assert!(started.elapsed() < LONG, "{} requests are stuck", engine.in_flight());
        engine.submit(1, Some(Duration::from_secs(1))).expect("the engine goes on");
        engine.reap(|slot, ending| {
            assert!(endings[slot as usize].is_none(), "slot {slot} comes back once");
            endings[slot as usize] = Some(ending);
        });
    }
    endings
}

/// A seed for this run, or that of a run to be repeated: `FLASHWRIGHT_TEST_SEED=… cargo test …`.
pub fn seed() -> u64 {
    let given = std::env::var("FLASHWRIGHT_TEST_SEED").ok().map(|text| text.parse().expect("it is a number"));
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("a clock after 1970").as_nanos() as u64
    });
    println!("FLASHWRIGHT_TEST_SEED={seed}");
    seed
}

/// Runs a command; its standard output, or why it failed.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let shown = format!("{program} {}", arguments.join(" "));
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(format!("{shown}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// A loop device over a file; detached when dropped.
#[derive(Debug)]
pub struct Loop {
    pub path: String,
    _device: LoopDevice,
}

impl Loop {
    /// Over `image`, an existing file. None, said aloud, where there are no loop devices to be had.
    pub fn over(image: &Path, options: &[&str]) -> Option<Self> {
        match LoopDevice::attach(image, options) {
            Ok(device) => Some(Self { path: device.text().to_owned(), _device: device }),
            Err(reason) => {
                eprintln!("SKIP loop devices: {reason}");
                None
            }
        }
    }

    /// `count` of them, of `size` zero bytes each, over files in `directory`.
    pub fn several(directory: &Path, count: usize, size: u64) -> Option<Vec<Self>> {
        let make = |n| {
            let image = directory.join(format!("image{n}"));
            let file = std::fs::File::create(&image).expect("a file");
            file.set_len(size).expect("it grows");
            Self::over(&image, &[])
        };
        (0..count).map(make).collect()
    }
}
