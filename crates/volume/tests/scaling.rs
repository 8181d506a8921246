//! A stripe is as fast as its members together. Each is a loop device that the kernel holds to a rate, so that the
//! machine's own speed, and its other work, have no say: alone in this binary, so that nothing runs beside it.

mod rig;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rig::{KIB, Loop, MIB, config, open, pattern};
use storage::device::OpenOptions;
use storage::engine::{Engine, IoUring, Op};

/// Reads a second that each member is held to: far below what one core makes of them.
const RATE: u64 = 250;
/// The limiter lets about a hundred requests of each device through at once after idle time.
const BURST: u64 = 200;

/// A limit of cgroup v1, lifted when dropped.
struct Throttle {
    file: PathBuf,
    device: String,
}

impl Throttle {
    /// Holds a device to `RATE` reads a second for this process. None, said aloud, where that cannot be had.
    fn reads(device: &str) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let line = groups
            .lines()
            .find(|line| line.split(':').nth(1).is_some_and(|c| c.split(',').any(|c| c == "blkio")));
        let Some(group) = line.and_then(|line| line.split(':').nth(2)) else {
            eprintln!("SKIP throttling: no blkio controller of cgroup v1");
            return None;
        };
        let file = Path::new("/sys/fs/cgroup/blkio").join(group.trim_start_matches('/'));
        let file = file.join("blkio.throttle.read_iops_device");
        let name = Path::new(device).file_name()?.to_str()?;
        let device = fs::read_to_string(Path::new("/sys/class/block").join(name).join("dev")).ok()?;
        let throttle = Self { file, device: device.trim().to_owned() };
        match fs::write(&throttle.file, format!("{} {RATE}\n", throttle.device)) {
            Ok(()) => Some(throttle),
            Err(error) => {
                eprintln!("SKIP throttling: {}: {error}", throttle.file.display());
                None
            }
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, format!("{} 0\n", self.device));
    }
}

/// Reads a second of a volume, 4 KiB at random with 32 in flight for each member, once what bursts is over.
fn reads_per_second(spec: &str, members: u64) -> f64 {
    let options = OpenOptions { allow_unwritten: true, ..OpenOptions::reading() };
    let volume = open(spec, &options).expect("opens");
    let blocks = volume.size() / (4 * KIB);
    let mut engine = IoUring::new(volume, &config(32 * members as u32, 4 * KIB)).expect("a ring");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut idle: Vec<u32> = (0..engine.depth()).collect();
    let (mut reads, mut begun) = (0_u64, None::<Instant>);
    loop {
        while let Some(slot) = idle.pop() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            engine.prepare(slot, Op::Read, random % blocks * 4 * KIB, 4 * KIB as u32);
        }
        engine.submit(1, None).expect("the engine goes on");
        reads += u64::from(engine.reap(|slot, ending| {
            ending.expect("reads");
            idle.push(slot);
        }));
        match begun {
            None if reads >= BURST * members => (begun, reads) = (Some(Instant::now()), 0),
            Some(begun) if begun.elapsed() >= Duration::from_secs(4) => {
                return reads as f64 / begun.elapsed().as_secs_f64();
            }
            _ => {}
        }
    }
}

#[test]
fn a_stripe_gives_what_its_members_give_together() {
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    let folder = place.expect("a directory");
    let mut loops = Vec::new();
    for n in 0..4 {
        let image = folder.path().join(format!("image{n}"));
        fs::write(&image, pattern(n, 8 * MIB as usize)).expect("writes");
        let Some(looped) = Loop::over(&image, &[]) else { return };
        loops.push(looped);
    }
    let limits: Option<Vec<Throttle>> = loops.iter().map(|looped| Throttle::reads(&looped.path)).collect();
    let Some(_limits) = limits else { return };
    let names: Vec<&str> = loops.iter().map(|looped| looped.path.as_str()).collect();
    let alone = reads_per_second(names[0], 1);
    for width in [2, 4] {
        let striped =
            reads_per_second(&format!("stripe(chunk=16k):{}", names[..width].join(",")), width as u64);
        eprintln!("one gives {alone:.0}, a stripe of {width} {striped:.0}");
        assert!(striped >= 0.9 * width as f64 * alone, "a stripe of {width}: {striped:.0}, one: {alone:.0}");
    }
}
