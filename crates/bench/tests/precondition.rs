//! Preparing targets and saturating them: on files, on memory, and on a loop device that is made to slow
//! down where the machine allows that.

use std::cell::RefCell;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[path = "../../storage/tests/lab/loop_device.rs"]
mod loop_device;

use bench::precondition::{self, Plan, Step, Watch};
use bench::problem::{ErrorClass, PreconditionError, Problem};
use bench::saturation;
use bench::target::{BenchTarget, TargetOptions};
use bench::{RunOptions, scratch};
use loop_device::LoopDevice;
use measure::precondition::{Precondition, PurgeMethod};
use measure::saturation::{Ended, Saturation};
use measure::workload::{Rw, Workload};
use measure::{RunRecord, WarningCode};

const MIB: u64 = 1 << 20;

/// A directory beside the build, because /tmp may be memory.
fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn writes() -> Workload {
    Workload {
        rw: Rw::RandWrite,
        iodepth: 8,
        direct: false,
        runtime: Some(Duration::from_millis(100)),
        time_based: true,
        ..Workload::default()
    }
}

fn target(spec: &str) -> BenchTarget {
    BenchTarget::new(spec, TargetOptions::default()).expect("a spec")
}

fn file_of(directory: &Path, mebibytes: u64) -> PathBuf {
    let path = directory.join("target");
    let mut made = target(&format!("file:{}?size={mebibytes}m", path.display()));
    let lay = Workload { rw: Rw::Write, bs: MIB, direct: false, ..Workload::default() };
    made.run_once(&lay, RunOptions::default()).expect("lays");
    path
}

fn prepare(target: &mut BenchTarget, workload: &Workload, plan: &Plan) -> Result<Vec<Step>, Problem> {
    let steps = RefCell::new(Vec::new());
    let tell = |step| steps.borrow_mut().push(step);
    precondition::run(target, workload, plan, Watch { stop: &AtomicBool::new(false), tell: &tell })?;
    Ok(steps.into_inner())
}

fn run(target: &mut BenchTarget, workload: &Workload) -> RunRecord {
    target.run_once(workload, RunOptions::default()).expect("runs").records.remove(0)
}

#[test]
fn a_fill_writes_its_region_twice_and_later_records_say_so() {
    let directory = place();
    let path = file_of(directory.path(), 8);
    let mut target = target(path.to_str().expect("a name"));
    let workload = Workload { offset: MIB, size: Some(4 * MIB), ..writes() };
    let plan = Plan { how: Precondition::Fill, ..Plan::default() };
    let before = std::fs::read(&path).expect("reads");
    let steps = prepare(&mut target, &workload, &plan).expect("fills");
    assert_eq!(steps.last(), Some(&Step::Filling(8 * MIB, 8 * MIB)));
    let after = std::fs::read(&path).expect("reads");
    let inside = MIB as usize..5 * MIB as usize;
    assert!(before[..inside.start] == after[..inside.start] && before[inside.end..] == after[inside.end..]);
    let same = before[inside.clone()].chunks(512).zip(after[inside].chunks(512)).filter(|(a, b)| a == b);
    assert_eq!(same.count(), 0, "every sector was written anew");
    let done = run(&mut target, &workload).precondition.expect("is in the record");
    assert_eq!((done.offset, done.region_bytes, done.asked), (MIB, 4 * MIB, Precondition::Fill));
    let fill = done.fill.expect("a fill");
    assert_eq!((fill.passes, fill.written_bytes), (2, 8 * MIB));
    assert!(fill.proved_bytes() <= 8 * MIB && done.rounds.is_none() && done.purge.is_none());
}

#[test]
fn rounds_end_when_steady_or_with_a_warning() {
    let mut target = target("mem:16m");
    let round = Duration::from_millis(100);
    let plan = Plan { how: Precondition::Steady, round, max_rounds: 7, ..Plan::default() };
    let steps = prepare(&mut target, &writes(), &plan).expect("runs");
    let record = run(&mut target, &writes());
    let rounds = record.precondition.as_ref().and_then(|done| done.rounds.clone()).expect("rounds");
    let told = steps.iter().filter(|step| matches!(step, Step::Round(..))).count();
    assert_eq!(told, rounds.iops.len());
    assert!((5..=7).contains(&told) && rounds.most == 7, "{rounds:?}");
    assert!(rounds.iops.iter().all(|iops| *iops > 0.0));
    assert!(rounds.written_bytes > 0);
    assert_eq!(record.has_warning(WarningCode::NotSteady), !rounds.steadiness.is_steady());
    assert_eq!(told < 7, rounds.steadiness.is_steady() && told < 7, "an early end is a steady one");
}

#[test]
fn too_few_rounds_to_judge_are_not_steady() {
    let mut target = target("mem:16m");
    let round = Duration::from_millis(50);
    let plan = Plan { how: Precondition::Steady, round, max_rounds: 2, ..Plan::default() };
    prepare(&mut target, &writes(), &plan).expect("runs");
    let record = run(&mut target, &writes());
    assert!(record.has_warning(WarningCode::NotSteady), "{:?}", record.warnings);
}

#[test]
fn what_cannot_be_prepared_is_refused_before_anything_is_written() {
    let steady = Plan { how: Precondition::Steady, ..Plan::default() };
    let reads = Workload { rw: Rw::RandRead, ..writes() };
    let error = prepare(&mut target("mem:16m"), &reads, &steady).expect_err("has no writes");
    assert_eq!(error.class(), ErrorClass::Invalid);
    assert!(error.to_string().contains("rw=randread writes nothing") && error.hint().is_some(), "{error}");
    let purge = Plan { purge: true, ..Plan::default() };
    let error = prepare(&mut target("mem:16m"), &writes(), &purge).expect_err("is no flash");
    assert!(matches!(error, Problem::Precondition(PreconditionError::Memory { .. })), "{error}");
}

#[test]
fn a_file_is_punched_and_written_again_which_is_called_no_purge() {
    let directory = place();
    let path = file_of(directory.path(), 8);
    let mut target = target(path.to_str().expect("a name"));
    let plan = Plan { purge: true, ..Plan::default() };
    match prepare(&mut target, &writes(), &plan) {
        Ok(_) => {}
        Err(Problem::Precondition(PreconditionError::Discard { source, .. })) => {
            return eprintln!("SKIP a purge of a file: this file system punches no holes ({source})");
        }
        Err(error) => panic!("{error}"),
    }
    let written = std::fs::metadata(&path).expect("is there").blocks() * 512;
    assert!(written >= 8 * MIB, "no hole is left: {written} bytes");
    let done = run(&mut target, &writes()).precondition.expect("is in the record");
    let purge = done.purge.expect("a purge");
    assert_eq!((purge.method, purge.bytes), (PurgeMethod::PunchedAndRewritten, 8 * MIB));
}

#[test]
fn a_wish_to_stop_ends_the_preparation_as_an_interruption() {
    let mut target = target("mem:16m");
    let stop = AtomicBool::new(false);
    let tell = |step| {
        if matches!(step, Step::Round(1, ..)) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let round = Duration::from_millis(50);
    let plan = Plan { how: Precondition::Steady, round, ..Plan::default() };
    let watch = Watch { stop: &stop, tell: &tell };
    let error = precondition::run(&mut target, &writes(), &plan, watch).expect_err("is stopped");
    assert_eq!(error.class(), ErrorClass::Interrupted);
}

#[test]
fn a_saturation_of_a_plain_file_writes_what_was_asked_and_has_a_curve() {
    let directory = place();
    let path = file_of(directory.path(), 16);
    let mut target = target(path.to_str().expect("a name"));
    let plan = saturation::Plan { until_steady: false, ..saturation::Plan::default() };
    let workload = Workload { direct: false, bs: 65536, ..saturation::workload() };
    let (record, curve) =
        saturation::run(&mut target, &workload, &plan, None, &AtomicBool::new(false), &|_| {}).expect("runs");
    assert_eq!((curve.region_bytes, curve.ended), (16 * MIB, Ended::Capacity));
    assert!(record.total.write_bytes >= 64 * MIB, "{}", record.total.write_bytes);
    assert_eq!(curve.points.last().map(|p| p.written_bytes), Some(curve.written_bytes));
    assert!(curve.points.windows(2).all(|pair| pair[0].written_bytes <= pair[1].written_bytes));
}

/// A loop device over a written file beside the build, detached when dropped; none, said aloud, where there
/// is none to be had.
struct Loop {
    path: PathBuf,
    throttle: PathBuf,
    _device: LoopDevice,
    _directory: tempfile::TempDir,
}

impl Loop {
    fn new(mebibytes: u64) -> Option<Self> {
        let directory = place();
        let image = file_of(directory.path(), mebibytes);
        let device = LoopDevice::attach(&image, &["--direct-io=on"]);
        let device = device.inspect_err(|reason| eprintln!("SKIP a loop device: {reason}")).ok()?;
        let throttle = PathBuf::from("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device");
        Some(Self { path: device.path.clone(), throttle, _device: device, _directory: directory })
    }

    fn spec(&self) -> &str {
        self.path.to_str().expect("a name")
    }

    /// Limits what is written, bytes a second; 0 lifts the limit. False where the kernel has no such limit.
    fn limit(&self, bytes_per_s: u64) -> bool {
        let number = std::fs::metadata(&self.path).expect("is there").rdev();
        let (major, minor) = ((number >> 8) & 0xfff, number & 0xff);
        std::fs::write(&self.throttle, format!("{major}:{minor} {bytes_per_s}")).is_ok()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.limit(0);
    }
}

#[test]
fn a_block_device_forgets_and_a_full_preconditioning_is_proved_by_its_own_counters() {
    let Some(device) = Loop::new(16) else { return };
    assert!(std::fs::metadata(&device.path).expect("is there").file_type().is_block_device());
    let mut target = target(device.spec());
    let workload = Workload { direct: true, ..writes() };
    let plan = Plan { purge: true, how: Precondition::Fill, ..Plan::default() };
    match prepare(&mut target, &workload, &plan) {
        Ok(_) => {}
        Err(Problem::Precondition(PreconditionError::Discard { source, .. })) => {
            return eprintln!("SKIP a purge: the loop device takes no discard ({source})");
        }
        Err(error) => panic!("{error}"),
    }
    let done = run(&mut target, &workload).precondition.expect("is in the record");
    assert_eq!(done.purge.map(|purge| (purge.method, purge.bytes)), Some((PurgeMethod::Discard, 16 * MIB)));
    let fill = done.fill.expect("a fill");
    assert_eq!(fill.written_bytes, 32 * MIB);
    let counted: u64 = fill.drives.iter().map(|drive| drive.bytes).sum();
    assert!(fill.drives.is_empty() || counted >= 32 * MIB, "{fill:?}");
}

const FRESH: u64 = 20_000_000;
const WORN: u64 = 4_000_000;

/// The planted drive: a limit that is lowered to a fifth on the way is a cliff.
#[test]
fn a_drive_that_slows_down_for_good_shows_its_cliff_where_it_was_made() {
    let Some(device) = Loop::new(8) else { return };
    if !device.limit(FRESH) {
        return eprintln!("SKIP a drive that slows down: no cgroup-v1 blkio limits");
    }
    for _ in 0..5 {
        assert!(device.limit(FRESH));
        let (before, curve) = slowed_down(&device);
        // Another's work on this machine stops the writes for a while, and makes steps of its own; or who makes the drive slow, which
        // then comes late, with few points before it.
        let is_disturbed = before as f64 > 1.2 * CLIFF as f64
            || curve.points.iter().any(|point| {
                let limit = if point.written_bytes <= before { FRESH } else { WORN };
                point.bandwidth_bytes_per_s < 0.6 * limit as f64
            });
        if is_disturbed {
            continue;
        }
        let cliff = curve.cliff.unwrap_or_else(|| panic!("{:?}", curve.shape));
        let there = cliff.written_bytes as f64 / before as f64;
        assert!((0.75..1.35).contains(&there), "made after {before} bytes, found {cliff:?}");
        assert!(cliff.after_bytes_per_s < 0.5 * cliff.before_bytes_per_s, "{cliff:?}");
        return;
    }
    eprintln!("SKIP the cliff: in five attempts the machine itself never let the writes go on undisturbed");
}

/// After so many bytes the drive is made slow.
const CLIFF: u64 = 25_000_000;

/// The bytes after which the drive was made slow, and what was seen of it.
fn slowed_down(device: &Loop) -> (u64, Saturation) {
    let mut target = target(device.spec());
    let workload = Workload { bs: 65536, iodepth: 4, ..saturation::workload() };
    let plan = saturation::Plan { capacities: 8, until_steady: false, ..saturation::Plan::default() };
    let fallen_at = std::cell::Cell::new(0);
    let tell = |seen: &saturation::Seen| {
        if fallen_at.get() == 0 && seen.written_bytes >= CLIFF {
            fallen_at.set(seen.written_bytes);
            assert!(device.limit(WORN));
        }
    };
    let stop = AtomicBool::new(false);
    let (_, curve) = saturation::run(&mut target, &workload, &plan, None, &stop, &tell).expect("runs");
    (fallen_at.get(), curve)
}

#[test]
fn laid_regions_hold_what_was_laid_beside_them() {
    let directory = place();
    let path = file_of(directory.path(), 4);
    let before = std::fs::read(&path).expect("reads");
    let options = storage::device::OpenOptions { direct: false, ..storage::device::OpenOptions::writing() };
    let spec = storage::device::DeviceSpec::from(path.as_path());
    let device = storage::device::open(&spec, &options).expect("opens");
    scratch::fill(&device, MIB..2 * MIB, &AtomicBool::new(false), &|_, _| {}).expect("fills");
    let after = std::fs::read(&path).expect("reads");
    let middle = MIB as usize..2 * MIB as usize;
    assert!(before[..middle.start] == after[..middle.start] && before[middle.end..] == after[middle.end..]);
    assert_ne!(before[middle.clone()], after[middle]);
}
