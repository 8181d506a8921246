//! Healthy runs of many kinds: at most one in a hundred draws a warning.

use bench::lies::blocks::Sampled;
use bench::lies::{Traffic, beside};
use measure::WarningCode;
use measure::pattern::Rng;
use measure::record::DriveCounts;
use measure::workload::{IoEngine, Rw, Verify};

use crate::case::{Case, GIB, KIB, MIB, SECOND, healthy, layer};

/// Runs of which the false alarms are counted.
const RUNS: u64 = 200;
/// Part of the mean by which a healthy drive's steps scatter, as a standard deviation.
const SCATTER: f64 = 0.08;
/// How much of a step's deviation the next one keeps: a drive's housekeeping comes in waves.
const WAVE: f64 = 0.5;

/// A normal deviate, from the sum of twelve uniform ones.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>() - 6.0
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// A run of random direction, size, depth and length on the healthy machine, with the noise that belongs to it.
fn any_healthy(seed: u64) -> Case {
    let mut rng = Rng::new(seed);
    let mut case = healthy();
    let bs = pick(&mut rng, &[4 * KIB, 16 * KIB, 128 * KIB, MIB]);
    let iodepth = pick(&mut rng, &[1u32, 4, 32, 128]);
    let step_ns = SECOND / 100;
    let interval_ns = pick(&mut rng, &[SECOND / 4, SECOND / 2, SECOND, 5 * SECOND, 30 * SECOND]);
    // Bytes a second: 0.5 to 4 GB/s.
    let rate = (500 + rng.below(3500)) as f64 * 1e6;
    let mut deviation = 0.0;
    let mut samples = Vec::new();
    for step in 1..=interval_ns / step_ns {
        deviation = WAVE * deviation + SCATTER * (1.0 - WAVE * WAVE).sqrt() * normal(&mut rng);
        let ios = (rate * (1.0 + deviation) * step_ns as f64 / 1e9 / bs as f64).round().max(1.0) as u64;
        samples.push((step * step_ns, ios));
    }
    let ios: u64 = samples.iter().map(|(_, ios)| ios).sum();
    let record = &mut case.record;
    (record.workload.bs, record.workload.iodepth) = (bs, iodepth);
    record.workload.rw = pick(&mut rng, &[Rw::Read, Rw::RandRead]);
    record.samples = samples
        .iter()
        .map(|(end_ns, ios)| measure::record::Sample {
            end_ns: *end_ns,
            read_bytes: ios * bs,
            write_bytes: 0,
            ios: *ios,
        })
        .collect();
    record.interval_ns = interval_ns;
    (record.read.ios, record.read.bytes) = (ios, ios * bs);
    record.read.latency = measure::Histogram::default();
    record.read.latency.record_n(u64::from(iodepth) * interval_ns / ios, ios);
    (record.jobs[0].ios, record.jobs[0].bytes, record.jobs[0].interval_ns) = (ios, ios * bs, interval_ns);
    let busy = interval_ns * (10 + rng.below(80)) / 100;
    (record.jobs[0].user_ns, record.jobs[0].system_ns) = (busy / 10, busy / 10 * 9);
    (record.process.user_ns, record.process.system_ns) = (busy / 10, busy / 10 * 9);
    record.total.elapsed_ns = interval_ns + SECOND;
    (record.total.read_bytes, record.total.ios) = (ios * bs, ios);
    for cpu in &mut record.cpus {
        (cpu.idle_ms, cpu.steal_ms) = (interval_ns / 1_000_000, rng.below(2) * 10);
    }
    // The counters are read a moment beside the interval, with a queue that is not empty.
    let window_ns = interval_ns + 200_000 + rng.below(2_000_000);
    let beside = ios as f64 * (window_ns - interval_ns) as f64 / interval_ns as f64;
    let done = (ios as f64 + beside) as u64 + rng.below(u64::from(iodepth));
    // Journals and logs of a quiet system.
    let quiet = rng.below(20) * (interval_ns / SECOND).max(1);
    for drive in &mut case.observed.drives {
        (drive.read_ios, drive.read_bytes) = (done, done * bs);
        (drive.write_ios, drive.write_bytes) = (quiet, quiet * 16 * KIB);
    }
    case.observed.window_ns = window_ns;
    case.observed.cpus.clone_from(&case.record.cpus);
    case.record.drives.clone_from(&case.observed.drives);
    case.record.observed_ns = window_ns;
    for layer in &mut case.stack.layers {
        layer.device.queue.as_mut().expect("a queue").nr_requests = Some(1023);
    }
    case.record.target.size_bytes = 64 * GIB;
    case.workload().size = Some(64 * GIB);
    if rng.below(2) == 0 {
        case = case.writing();
        case.workload().rw = pick(&mut rng, &[Rw::Write, Rw::RandWrite]);
        std::mem::swap(&mut case.record.total.read_bytes, &mut case.record.total.write_bytes);
    }
    case
}

/// A run of another kind, by its number: psync, several drives, verified writes, and one of two sections of a job file.
fn any_of_other_kinds(seed: u64) -> Case {
    let mut case = any_healthy(seed);
    let drives = 2 + (seed / 4 % 3) as u32 * 2;
    match seed % 4 {
        0 => {
            case.workload().ioengine = IoEngine::Psync;
            case.workload().iodepth = 1;
            case.record.engine.used = "psync".into();
        }
        1 => case = on_several_drives(case, drives),
        2 if case.record.workload.rw.writes() => {
            case.workload().verify = Some(Verify::Xxh3);
            case.record.verified_blocks = case.record.write.ios;
            case.known.verify_expected_blocks = Some(case.record.write.ios);
        }
        2 => case.known.sampled = Some(Sampled { blocks: 64, compressed_ratio: 0.999, ..Sampled::default() }),
        _ => case = beside_another_section(case),
    }
    case
}

/// The same run on a stripe with chunks of 1 MiB, whose drives have equal parts of the load.
fn on_several_drives(mut case: Case, drives: u32) -> Case {
    let counted = case.observed.drives[1].clone();
    let names: Vec<String> = (0..drives).map(|number| format!("nvme{number}n1")).collect();
    case = case.on(names.iter().map(|name| layer(0, name, "nvme", &[])).collect());
    let each = u64::from(drives);
    let part = |name: &String| DriveCounts {
        name: name.clone(),
        read_ios: counted.read_ios / each,
        read_bytes: counted.read_bytes / each,
        write_ios: counted.write_ios / each,
        write_bytes: counted.write_bytes / each,
        ..counted.clone()
    };
    case.observed.drives = names.iter().map(part).collect();
    case.record.target.kind = "stripe".into();
    (case.stack.members, case.stack.chunk) = (drives, Some(MIB));
    case
}

/// The same run in the first half of the target, while another section did as much in the second half.
fn beside_another_section(mut case: Case) -> Case {
    case.workload().size = Some(32 * GIB);
    let mut other = case.record.clone();
    other.workload.offset = 32 * GIB;
    case.known.beside = Traffic::beside(&[case.record.clone(), other.clone()], 0);
    for drive in &mut case.observed.drives {
        drive.read_ios += case.known.beside.read_ios;
        drive.read_bytes += case.known.beside.read_bytes;
        drive.write_ios += case.known.beside.write_ios;
        drive.write_bytes += case.known.beside.write_bytes;
    }
    let together = beside::same_offsets(&[Some(&case.record), Some(&other)]);
    assert_eq!(together, [None, None], "{}", case.record.workload.summary());
    case
}

/// At most one in a hundred of the runs may draw a warning.
fn assert_quiet(runs: u64, of: fn(u64) -> Case) {
    let alarm = |seed| {
        let case = of(seed);
        let said = || format!("{seed}: {}: {:?}", case.record.workload.summary(), case.warnings());
        (!case.codes().is_empty()).then(said)
    };
    let alarms: Vec<String> = (1..=runs).filter_map(alarm).collect();
    eprintln!("{} of {runs} healthy runs drew a warning: {alarms:#?}", alarms.len());
    assert!(alarms.len() as u64 <= runs / 100, "{alarms:#?}");
}

#[test]
fn of_200_healthy_runs_at_most_two_draw_a_warning() {
    assert_quiet(RUNS, any_healthy);
}

#[test]
fn of_400_healthy_runs_of_other_kinds_at_most_four_draw_a_warning() {
    assert_quiet(2 * RUNS, any_of_other_kinds);
}

#[test]
fn a_disk_that_is_written_from_its_outer_tracks_to_its_inner_ones_is_healthy() {
    let mut case = healthy().writing();
    case.workload().rw = Rw::Write;
    case.queue().rotational = Some(true);
    // A 7200 rpm disk writes the last track at half the rate of the first.
    let steps = case.record.samples.len() as u64;
    for (sample, step) in case.record.samples.iter_mut().zip(0..) {
        sample.write_bytes -= sample.write_bytes / 2 * step / steps;
    }
    let codes = case.codes();
    assert!(!codes.contains(&WarningCode::SlcCache), "{codes:?}");
}
