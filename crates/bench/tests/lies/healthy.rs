//! Healthy runs of many kinds: at most one in a hundred draws a warning.

use measure::WarningCode;
use measure::pattern::Rng;
use measure::workload::Rw;

use crate::case::{Case, GIB, KIB, MIB, SECOND, healthy};

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

#[test]
fn of_200_healthy_runs_at_most_two_draw_a_warning() {
    let alarms: Vec<String> = (0..RUNS)
        .filter_map(|seed| {
            let case = any_healthy(seed + 1);
            let codes = case.codes();
            let said = || format!("{}: {:?}", case.record.workload.summary(), case.warnings());
            (!codes.is_empty()).then(said)
        })
        .collect();
    eprintln!("{} of {RUNS} healthy runs drew a warning: {alarms:#?}", alarms.len());
    assert!(alarms.len() as u64 <= RUNS / 100, "{alarms:#?}");
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
