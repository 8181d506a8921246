//! Lies planted on this machine: files, memory, and, as root, loop and zram devices.
//!
//! What else the machine is (virtual, busy, its drive fresh) is not up to these tests, so each asks for
//! the code that it planted, and for the absence of those that would be false.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[path = "../../../storage/tests/lab/loop_device.rs"]
mod loop_device;

use bench::lies::{Known, blocks};
use bench::observe::{Observer, Subject};
use bench::run::conduct::Conduct;
use bench::zones::Zones;
use bench::{Job, RunOptions};
use loop_device::LoopDevice;
use measure::WarningCode::{self, *};
use measure::record::{DriveCounts, RunRecord};
use measure::workload::Rw;
use measure::{Workload, warning::Severity};
use storage::device::{Device, DeviceKind, DeviceSpec, Geometry, OpenOptions, check_written, open};
use storage::sysfs::Sysfs;

use crate::case::{KIB, MIB};

/// A file of random blocks in a folder of its own, synced so that nobody writes it back during a run.
struct Scratch {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Scratch {
    fn new(bytes: u64, fill: impl Fn(u64) -> u64) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let path = folder.path().join("data");
        let mut file = File::create(&path).expect("a file");
        for block in 0..bytes / MIB {
            let words = (0..MIB / 8).flat_map(|n| fill(block * MIB / 8 + n).to_le_bytes());
            file.write_all(&words.collect::<Vec<u8>>()).expect("room for the file");
        }
        file.sync_all().expect("a medium that takes it");
        Self { folder, file: path }
    }

    fn random(bytes: u64) -> Self {
        // An odd multiplier permutes 64-bit words; the shifts spread what it does to the low bits.
        Self::new(bytes, |n| {
            let x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (x >> 32)
        })
    }
}

fn opened(path: &Path, direct: bool) -> Arc<dyn Device> {
    let spec: DeviceSpec = path.display().to_string().parse().expect("a path is a spec");
    open(&spec, &OpenOptions { direct, allow_unwritten: true, ..OpenOptions::default() })
        .expect("a readable file")
}

fn reads() -> Workload {
    Workload {
        iodepth: 4,
        runtime: Some(Duration::from_millis(300)),
        time_based: true,
        ..Workload::default()
    }
}

/// The tests share the machine's drive, and what one of them reads would pass for another's reads: one
/// run at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn run_knowing(device: Arc<dyn Device>, workload: Workload, known: Known) -> RunRecord {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let observer = Observer::of(&*device).expect("an open device");
    let job = Job { device, workload, observer, known, conduct: Conduct::default(), zones: Zones::default() };
    bench::run::run(&[job], RunOptions::default()).expect("a run").records.remove(0)
}

fn run(path: &Path, workload: Workload) -> RunRecord {
    run_knowing(opened(path, workload.direct), workload, Known::default())
}

fn message(record: &RunRecord, code: WarningCode) -> &str {
    let found = record.warnings.iter().find(|warning| warning.code == code);
    &found.unwrap_or_else(|| panic!("{code} is not among {:#?}", record.warnings)).message
}

/// Whether the kernel counts what is below a file here; where not, the reason is said aloud.
fn is_watched(record: &RunRecord) -> bool {
    let watched = !record.has_warning(Unwatched);
    if !watched {
        eprintln!("not judged here: {}", message(record, Unwatched));
    }
    watched
}

#[test]
fn a_page_cached_read_is_cached_and_a_small_set() {
    let scratch = Scratch::random(16 * MIB);
    let path = scratch.file.as_path();
    std::fs::read(path).expect("the file, into the page cache");
    let record = run(path, Workload { direct: false, ..reads() });
    assert!(message(&record, SmallSet).contains("the run visits 16 MiB"));
    assert!(!record.has_warning(DirectBuffered));
    if is_watched(&record) {
        message(&record, Cached);
    }
}

#[test]
fn a_direct_read_of_a_written_file_is_neither_cached_nor_void() {
    let scratch = Scratch::random(32 * MIB);
    let device = opened(&scratch.file, true);
    let written = check_written(&*device, 0..device.size(), false).expect("a written file");
    let sampled =
        blocks::sample(&*device, 0, device.size(), blocks::SAMPLE_COUNT, 7).expect("readable blocks");
    let known = Known { written: Some(written), sampled: Some(sampled), ..Known::default() };
    let record = run_knowing(device, reads(), known);
    for code in [Unwritten, Cached, DirectBuffered, RepeatedData, Merged, Split, SettingsDrift, RateMissed] {
        assert!(!record.has_warning(code), "{code} among {:#?}", record.warnings);
    }
    assert!(record.target.filesystem.is_some() && record.host.cpus > 0);
    if is_watched(&record) {
        assert!(!record.drives.is_empty() && !record.layout.is_empty());
    }
}

#[test]
fn a_sparse_file_is_unwritten() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("sparse");
    File::create(&path).and_then(|file| file.set_len(8 * MIB)).expect("a sparse file");
    let device = opened(&path, true);
    let written = check_written(&*device, 0..device.size(), true).expect("an answer");
    let sampled = blocks::sample(&*device, 0, device.size(), 16, 1).expect("readable blocks");
    assert_eq!((sampled.blocks, sampled.zero), (16, 16));
    let known = Known { written: Some(written), sampled: Some(sampled), ..Known::default() };
    let record = run_knowing(device, reads(), known);
    assert!(message(&record, Unwritten).starts_with("8 MiB (holes) of 8 MiB were never written"));
    assert!(message(&record, RepeatedData).contains("100 % are zeros"));
    assert!(!record.has_warning(DirectBuffered), "the holes explain what the drive did not do");
}

#[test]
fn a_file_of_one_block_again_and_again_repeats() {
    let scratch = Scratch::new(MIB, |n| (n % 512).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let device = opened(&scratch.file, false);
    let sampled =
        blocks::sample(&*device, 0, device.size(), blocks::SAMPLE_COUNT, 7).expect("readable blocks");
    let known = Known { sampled: Some(sampled), ..Known::default() };
    let record = run_knowing(device, Workload { direct: false, ..reads() }, known);
    assert!(message(&record, RepeatedData).contains("98.4 % repeat another"));
}

#[test]
fn jobs_without_a_part_of_their_own_walk_the_same_offsets() {
    let scratch = Scratch::random(8 * MIB);
    let overlapping =
        Workload { rw: Rw::Read, numjobs: 2, offset_increment: Some(0), bs: 64 * KIB, ..reads() };
    message(&run(&scratch.file, overlapping.clone()), SameOffsets);
    let divided = Workload { offset_increment: None, ..overlapping };
    assert!(!run(&scratch.file, divided).has_warning(SameOffsets));
}

#[test]
fn a_rate_beyond_any_machine_is_missed_and_an_easy_one_is_met() {
    let scratch = Scratch::random(8 * MIB);
    let paced = |rate| Workload { direct: false, rate_iops: Some(rate), ..reads() };
    let record = run(&scratch.file, paced(1_000_000_000));
    message(&record, RateMissed);
    assert!(!record.has_warning(ClosedLoop));
    assert!(!run(&scratch.file, paced(500)).has_warning(RateMissed));
}

#[test]
fn memory_is_virtual_and_not_called_buffered() {
    let spec: DeviceSpec = "mem:8m".parse().expect("a spec");
    let device = open(&spec, &OpenOptions::writing()).expect("memory");
    let record = run_knowing(device, reads(), Known::default());
    assert!(message(&record, Virtual).starts_with("the target is this process's memory"));
    for code in [Cached, DirectBuffered, Unwatched, SmallSet, Unpreconditioned] {
        assert!(!record.has_warning(code), "{code} among {:#?}", record.warnings);
    }
}

#[test]
fn a_few_requests_are_a_short_run() {
    let scratch = Scratch::random(MIB);
    let few = Workload { time_based: false, runtime: None, size: Some(64 * KIB), ..reads() };
    message(&run(&scratch.file, few), ShortRun);
}

/// A device that is taken down when the test ends, however it ends.
struct Temporary {
    path: PathBuf,
    take_down: Box<dyn Fn()>,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        (self.take_down)();
    }
}

#[test]
fn a_loop_device_is_virtual_and_its_file_is_read_from_the_page_cache() {
    let scratch = Scratch::random(16 * MIB);
    let Ok(device) = LoopDevice::attach(&scratch.file, &["--read-only"]) else {
        eprintln!("skipped: losetup cannot make a loop device here");
        return;
    };
    // Twice over the whole device, so that the second time is answered from the page cache.
    run(&device.path, reads());
    let record = run(&device.path, reads());
    assert!(message(&record, Virtual).contains("is a loop device"));
    assert!(
        !record.has_warning(DirectBuffered),
        "the loop device itself saw everything: {:#?}",
        record.warnings
    );
    // Somebody else's reads of the same drive pass for this run's, and then nothing is missing below.
    let asked = record.read.bytes;
    let quiet = |drive: &DriveCounts| drive.read_bytes < asked / 2;
    if record.drives.len() > 1 && record.drives[1..].iter().all(quiet) && is_watched(&record) {
        assert!(message(&record, Cached).starts_with("below loop"));
    } else {
        eprintln!("not judged here: no drive below, or others read from it: {:?}", record.drives);
    }
    drop(scratch.folder);
}

/// A zram device of `bytes`, or none where this machine or user may not have one.
fn zram(bytes: u64) -> Option<Temporary> {
    let control = Path::new("/sys/class/zram-control");
    let number = std::fs::read_to_string(control.join("hot_add")).ok()?.trim().to_owned();
    let name = format!("zram{number}");
    let device = Temporary {
        path: Path::new("/dev").join(&name),
        take_down: Box::new(move || {
            let control = control.join("hot_remove");
            // Refused as long as somebody, udev for one, has it open.
            for _ in 0..50 {
                if std::fs::write(&control, &number).is_ok() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            eprintln!("could not remove zram{number}");
        }),
    };
    std::fs::write(Path::new("/sys/block").join(&name).join("disksize"), bytes.to_string()).ok()?;
    device.path.exists().then_some(device)
}

#[test]
fn a_zram_device_is_compressible_virtual_and_reads_as_zeros() {
    let Some(device) = zram(16 * MIB) else {
        eprintln!("skipped: zram devices cannot be made here");
        return;
    };
    let opened = opened(&device.path, true);
    let sampled = blocks::sample(&*opened, 0, opened.size(), 16, 1).expect("readable blocks");
    let known = Known { sampled: Some(sampled), ..Known::default() };
    let record = run_knowing(opened, reads(), known);
    message(&record, Compressible);
    message(&record, Virtual);
    assert!(message(&record, RepeatedData).contains("100 % are zeros"));
    let void = record.warnings.iter().find(|warning| warning.code.explain().severity == Severity::Void);
    assert_eq!(void, None, "iostats may be off, but nothing here is void");
}

#[test]
fn a_block_that_straddles_two_pages_is_read_over_nothing_else() {
    let Some(device) = zram(16 * MIB) else {
        eprintln!("skipped: zram devices cannot be made here");
        return;
    };
    let opened = opened(&device.path, true);
    let mut memory = vec![0xa5_u8; 16 << 10];
    // Where the kernel's own word on alignment (512) is kept, and a page's is not.
    let start = memory.as_ptr().align_offset(4096) + 4096 + 512;
    opened.read_at(&mut memory[start..start + 4096], 0).expect("reads");
    let (before, rest) = memory.split_at(start);
    let (block, after) = rest.split_at(4096);
    assert!(block.iter().all(|byte| *byte == 0), "a drive that was never written holds zeros");
    assert!(before.iter().chain(after).all(|byte| *byte == 0xa5), "and they are the block's alone");
}

#[test]
fn looking_loses_nothing_however_often() {
    let scratch = Scratch::random(MIB);
    let device = opened(&scratch.file, false);
    let observer = Observer::of(&*device).expect("an open device");
    let mut costs: Vec<u64> = (0..20)
        .map(|_| {
            let observed = observer.prepare().begin().end().conclude();
            assert!(observed.lost.is_empty() && !observed.cpus.is_empty());
            observed.snapshot_ns / 2
        })
        .collect();
    costs.sort_unstable();
    // Said, not judged: how long it takes is the machine's affair.
    let median = costs[costs.len() / 2];
    eprintln!("a reading of the counters takes {} (median of 20)", units::nanoseconds(median as f64));
}

/// A device of its own calls, each of which computes for so long.
#[derive(Debug)]
struct Computing {
    null: File,
    takes: Duration,
}

impl Device for Computing {
    fn spec(&self) -> &str {
        "computing"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::File
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        64 * MIB
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 512, physical_block: 4096, memory_alignment: 512 }
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }

    fn verifies(&self) -> bool {
        true
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        if !self.takes.is_zero() {
            let began = Instant::now();
            while began.elapsed() < self.takes {}
        }
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn a_device_that_answers_at_once_shows_the_generator_and_a_slow_one_does_not() {
    let run_on = |takes: Duration, change: fn(&mut Workload)| {
        let null = File::open("/dev/null").expect("opens");
        let mut workload = Workload { iodepth: 1, runtime: Some(Duration::from_millis(4)), ..reads() };
        change(&mut workload);
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let job = Job {
            device: Arc::new(Computing { null, takes }),
            workload,
            observer: Observer::new(Sysfs::at("/dev/null"), Subject::default()),
            known: Known::default(),
            conduct: Conduct::default(),
            zones: Zones::default(),
        };
        bench::run::run(&[job], RunOptions::default()).expect("a run").records.remove(0)
    };
    // Other programs may have the CPU for most of one run. They do not have it for most of each: a run is about as long
    // as the scheduler lets a thread go on.
    let mut runs = (0..1000).map(|_| run_on(Duration::ZERO, |_| ()));
    let record = runs.find(|record| record.has_warning(Generator)).expect("the device takes no time");
    assert!(message(&record, Generator).contains("of this depth and size"), "{:#?}", record.warnings);
    // A busy thread as well, and hundreds of times what a request takes to make.
    let slow = run_on(Duration::from_micros(200), |_| ());
    assert!(!slow.has_warning(Generator), "{:#?}", slow.warnings);
    // A rate is what was asked for, and no figure of the generator.
    let paced = run_on(Duration::ZERO, |workload| workload.rate_iops = Some(1 << 30));
    assert!(!paced.has_warning(Generator), "{:#?}", paced.warnings);
}
