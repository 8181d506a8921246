//! Whole runs on real files and on memory: what is counted, what is checked, what ends a run.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::problem::{ErrorClass, Problem};
use bench::run::BenchError;
use bench::target::{BenchTarget, TargetOptions};
use bench::{Outcome, RunOptions};
use measure::WarningCode;
use measure::record::RunRecord;
use measure::workload::{IoEngine, LatencyClock, RandomDistribution, Rw, SizeShare, Verify, Workload};

const MIB: u64 = 1 << 20;

/// Buffered, so that the tests run on every file system; small, so that they are quick.
fn workload(rw: Rw) -> Workload {
    Workload { rw, bs: 4096, iodepth: 8, direct: false, size: Some(4 * MIB), ..Workload::default() }
}

fn for_time(rw: Rw, milliseconds: u64) -> Workload {
    Workload { runtime: Some(Duration::from_millis(milliseconds)), time_based: true, ..workload(rw) }
}

struct Scratch {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("target");
        Self { _directory: directory, path }
    }

    /// A spec that makes the file when it is first written.
    fn spec(&self) -> String {
        format!("file:{}?size=4m", self.path.display())
    }

    fn target(&self) -> BenchTarget {
        BenchTarget::new(&self.spec(), TargetOptions::default()).expect("a spec")
    }

    /// A file that was written throughout.
    fn laid() -> Self {
        let scratch = Self::new();
        run(&mut scratch.target(), &workload(Rw::Write)).expect("lays");
        scratch
    }
}

fn run(target: &mut BenchTarget, workload: &Workload) -> Result<RunRecord, Problem> {
    let Outcome { records, interrupted, .. } = target.run_once(workload, RunOptions::default())?;
    assert!(!interrupted);
    assert_eq!(records.len(), 1);
    let record = records.into_iter().next().expect("one record");
    assert_consistent(&record);
    Ok(record)
}

/// What must hold for the counts of any record.
fn assert_consistent(record: &RunRecord) {
    for counts in [&record.read, &record.write, &record.trim] {
        assert_eq!(counts.ios, counts.latency.count(), "every request has one latency");
        assert_eq!(counts.ios == 0, counts.bytes == 0);
    }
    assert_eq!(record.jobs.iter().map(|job| job.ios).sum::<u64>(), record.ios());
    assert_eq!(record.jobs.iter().map(|job| job.bytes).sum::<u64>(), record.bytes());
    assert_eq!(record.jobs.len(), record.workload.numjobs as usize);
    assert!(record.total.ios >= record.ios());
    let sampled: u64 = record.samples.iter().map(|s| s.read_bytes + s.write_bytes).sum();
    let drift = sampled.abs_diff(record.bytes());
    assert!(record.samples.is_empty() || drift <= record.samples.len() as u64, "samples lose {drift} bytes");
}

#[test]
fn a_run_by_size_moves_exactly_that_many_bytes_on_every_engine() {
    for ioengine in [IoEngine::IoUring, IoEngine::Libaio, IoEngine::Psync, IoEngine::Auto] {
        for rw in [Rw::Write, Rw::RandWrite, Rw::Read, Rw::RandRead] {
            let scratch = if rw.reads() { Scratch::laid() } else { Scratch::new() };
            let record = match run(&mut scratch.target(), &Workload { ioengine, ..workload(rw) }) {
                Ok(record) => record,
                Err(problem) if ioengine == IoEngine::IoUring || ioengine == IoEngine::Libaio => {
                    eprintln!("SKIP {}: {problem:?}", ioengine.word());
                    continue;
                }
                Err(problem) => panic!("{problem:?}"),
            };
            assert_eq!(record.total.read_bytes + record.total.write_bytes, 4 * MIB, "{ioengine:?} {rw:?}");
            assert_eq!(record.total.ios, 1024);
        }
    }
}

#[test]
fn memory_runs_without_the_kernel_and_with_every_engine() {
    for ioengine in [IoEngine::Auto, IoEngine::Psync] {
        let mut target = BenchTarget::new("mem:4m", TargetOptions::default()).expect("a spec");
        let write = run(&mut target, &Workload { ioengine, ..workload(Rw::Write) }).expect("writes");
        assert_eq!(write.total.write_bytes, 4 * MIB);
        let read = run(&mut target, &Workload { ioengine, ..for_time(Rw::RandRead, 50) }).expect("reads");
        assert!(read.read.ios > 0);
        let used = if ioengine == IoEngine::Auto { "memory" } else { "psync" };
        assert_eq!(read.engine.used, used);
    }
}

#[test]
fn a_random_run_by_size_visits_every_block_once() {
    let scratch = Scratch::laid();
    // Zero the file, overwrite every block at random, and see that no zero is left.
    let file = std::fs::OpenOptions::new().write(true).open(&scratch.path).expect("opens");
    file.write_all_at(&vec![0; 4 * MIB as usize], 0).expect("zeroes");
    run(&mut scratch.target(), &workload(Rw::RandWrite)).expect("writes");
    let contents = std::fs::read(&scratch.path).expect("reads");
    assert!(contents.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
}

#[test]
fn jobs_divide_the_region_and_their_counts_add_up() {
    let scratch = Scratch::laid();
    let record = run(&mut scratch.target(), &Workload { numjobs: 4, ..workload(Rw::Read) }).expect("reads");
    assert_eq!(record.total.read_bytes, 4 * MIB);
    let record =
        run(&mut scratch.target(), &Workload { numjobs: 3, ..for_time(Rw::RandRead, 100) }).expect("reads");
    assert!(record.jobs.iter().all(|job| job.ios > 0 && job.interval_ns > 0));
}

#[test]
fn a_mix_keeps_its_proportions() {
    let scratch = Scratch::laid();
    let mix = Workload {
        rwmixread: 70,
        bssplit: vec![SizeShare { bs: 4096, percent: 75 }, SizeShare { bs: 16384, percent: 25 }],
        ..for_time(Rw::RandRw, 200)
    };
    let record = run(&mut scratch.target(), &mix).expect("runs");
    let reads = record.read.ios as f64 / record.ios() as f64;
    assert!((reads - 0.7).abs() < 0.1, "{reads} of the requests are reads");
    let mean = record.bytes() as f64 / record.ios() as f64;
    assert!((mean / 7168.0 - 1.0).abs() < 0.15, "{mean} bytes a request");
}

#[test]
fn skewed_and_uniform_draws_run() {
    let scratch = Scratch::laid();
    for random_distribution in
        [RandomDistribution::Zipf(1.2), RandomDistribution::Pareto(0.2), RandomDistribution::Random]
    {
        let w = Workload { random_distribution, norandommap: true, ..for_time(Rw::RandRead, 30) };
        assert!(run(&mut scratch.target(), &w).expect("runs").read.ios > 0);
    }
}

#[test]
fn the_per_request_clock_counts_every_request_too() {
    let scratch = Scratch::laid();
    let w = Workload { latency_clock: LatencyClock::Each, ..for_time(Rw::RandRead, 50) };
    let record = run(&mut scratch.target(), &w).expect("runs");
    assert_eq!(record.engine.latency_clock, LatencyClock::Each);
    assert!(record.read.ios > 0);
}

#[test]
fn a_rate_is_kept_and_latency_counts_from_the_intended_start() {
    let mut target = BenchTarget::new("mem:4m", TargetOptions::default()).expect("a spec");
    run(&mut target, &workload(Rw::Write)).expect("lays");
    let w = Workload { rate_iops: Some(2000), ..for_time(Rw::RandRead, 500) };
    let record = run(&mut target, &w).expect("runs");
    // An open loop makes up for every delay, so only what is cut off at the ends can differ.
    assert!((record.iops() / 2000.0 - 1.0).abs() < 0.3, "{} IOPS", record.iops());
    assert!(!record.has_warning(WarningCode::ClosedLoop));
    // Far more than one thread can do: the backlog shows as latency, and as a warning.
    let w = Workload { rate_iops: Some(500_000_000), ..for_time(Rw::RandRead, 200) };
    let record = run(&mut target, &w).expect("runs");
    assert!(record.has_warning(WarningCode::RateMissed), "{:?}", record.warnings);
    assert!(record.latency().percentile(50.0) > 1_000_000, "half of the requests started late by over 1 ms");
}

#[test]
fn what_verify_wrote_it_finds_again_over_several_passes_and_jobs() {
    for (verify, rw) in
        [(Verify::Crc32c, Rw::Write), (Verify::Xxh3, Rw::RandWrite), (Verify::Crc32c, Rw::RandWrite)]
    {
        let scratch = Scratch::new();
        let w = Workload { verify: Some(verify), numjobs: 2, ..workload(rw) };
        let record = run(&mut scratch.target(), &w).expect("writes and verifies");
        assert_eq!(record.verified_blocks, 1024);
        // By time, the region is overwritten many times and left in the middle of a pass.
        let w = Workload { verify: Some(verify), ..for_time(rw, 60) };
        let record = run(&mut scratch.target(), &w).expect("writes and verifies");
        assert!(record.verified_blocks > 0);
        let reread = Workload { rw: if rw.is_random() { Rw::RandRead } else { Rw::Read }, ..w };
        let record = run(&mut scratch.target(), &Workload { time_based: false, ..reread }).expect("reads");
        assert_eq!(record.verified_blocks, record.total.ios);
    }
}

/// Writes verified blocks, spoils the file, and returns what a verifying read says.
fn spoiled(spoil: impl Fn(&std::fs::File)) -> String {
    let scratch = Scratch::new();
    let w = Workload { verify: Some(Verify::Crc32c), ..workload(Rw::Write) };
    run(&mut scratch.target(), &w).expect("writes");
    spoil(&std::fs::OpenOptions::new().read(true).write(true).open(&scratch.path).expect("opens"));
    let problem = run(&mut scratch.target(), &Workload { rw: Rw::Read, ..w }).expect_err("is noticed");
    let Problem::Run(BenchError::Verify { source, .. }) = &problem else { panic!("{problem:?}") };
    assert_eq!(problem.class(), ErrorClass::Failed);
    source.to_string()
}

#[test]
fn a_flipped_bit_a_misplaced_block_and_a_wiped_one_are_each_named() {
    let corrupt = spoiled(|file| {
        file.write_all_at(&[0xff, 0x00, 0xff], 40_960 + 2000).expect("writes");
    });
    assert!(corrupt.contains("offset 40960") && corrupt.contains("corrupt"), "{corrupt}");
    let misplaced = spoiled(|file| {
        let mut block = [0; 4096];
        file.read_exact_at(&mut block, 8192).expect("reads");
        file.write_all_at(&block, 81_920).expect("writes");
    });
    assert!(misplaced.contains("offset 81920 belongs at offset 8192"), "{misplaced}");
    let wiped = spoiled(|file| file.write_all_at(&[0; 4096], 4096).expect("writes"));
    assert!(wiped.contains("offset 4096 has no header"), "{wiped}");
}

#[test]
fn a_file_cut_short_during_the_run_fails_it() {
    let scratch = Scratch::laid();
    let path = scratch.path.clone();
    let cutter = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        std::fs::OpenOptions::new().write(true).open(path).expect("opens").set_len(8192).expect("cuts");
    });
    let result = scratch.target().run_once(&for_time(Rw::RandRead, 10_000), RunOptions::default());
    cutter.join().expect("cuts");
    let problem = result.expect_err("a short read is no success");
    assert!(matches!(problem, Problem::Run(BenchError::Request(_))), "{problem:?}");
}

#[test]
fn a_wish_to_stop_ends_the_run_with_what_was_measured() {
    let scratch = Scratch::laid();
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            std::thread::sleep(Duration::from_secs(1));
            stop.store(true, Ordering::Relaxed);
        }
    });
    let options = RunOptions { stop: Some(&stop), ..RunOptions::default() };
    let outcome = scratch.target().run_once(&for_time(Rw::RandRead, 3_600_000), options).expect("ends");
    stopper.join().expect("stops");
    assert!(outcome.interrupted);
    assert!(outcome.records[0].total.ios > 0);
}

#[test]
fn no_thread_starts_before_the_agreed_moment() {
    let scratch = Scratch::laid();
    // Later than the target takes to be opened and the threads to start.
    let start = Instant::now() + Duration::from_millis(700);
    let options = RunOptions { start: Some(start), ..RunOptions::default() };
    let outcome = scratch.target().run_once(&workload(Rw::RandRead), options).expect("runs");
    assert!(outcome.span.start >= start, "{:?} too early", start - outcome.span.start);
    let over = RunOptions { start: Some(start), ..RunOptions::default() };
    scratch.target().run_once(&workload(Rw::RandRead), over).expect("a moment that is over is no hindrance");
}

#[test]
fn discards_flushes_and_syncs_run() {
    let scratch = Scratch::laid();
    let record = run(&mut scratch.target(), &workload(Rw::Trim)).expect("punches holes");
    assert_eq!(record.total.trim_bytes, 4 * MIB);
    let problem = run(&mut scratch.target(), &workload(Rw::Read)).expect_err("holes are refused");
    assert_eq!(problem.class(), ErrorClass::Refused);
    let w = Workload { fdatasync: 16, end_fsync: true, ..workload(Rw::Write) };
    let record = run(&mut scratch.target(), &w).expect("writes durably");
    assert_eq!(record.total.write_bytes, 4 * MIB);
}

#[test]
fn requests_that_make_no_sense_here_are_refused_before_anything_is_touched() {
    let scratch = Scratch::laid();
    let before = std::fs::read(&scratch.path).expect("reads");
    let cases = [
        Workload { size: Some(1 << 30), ..workload(Rw::Write) },
        Workload { offset: 1 << 30, ..workload(Rw::Write) },
        Workload { numjobs: 4096, ..workload(Rw::Write) },
        Workload { iodepth: 0, ..workload(Rw::Write) },
        Workload { numjobs: 2, offset_increment: Some(0), verify: Some(Verify::Xxh3), ..workload(Rw::Write) },
    ];
    for case in cases {
        let problem = run(&mut scratch.target(), &case).expect_err("makes no sense");
        assert_eq!(problem.class(), ErrorClass::Invalid, "{problem:?}");
    }
    assert_eq!(std::fs::read(&scratch.path).expect("reads"), before);
    let missing = Path::new("/nowhere/at/all");
    let mut target =
        BenchTarget::new(&missing.display().to_string(), TargetOptions::default()).expect("a spec");
    assert_eq!(run(&mut target, &workload(Rw::Read)).expect_err("is missing").class(), ErrorClass::Invalid);
}

#[test]
fn several_jobs_at_once_each_have_a_record() {
    let scratch = Scratch::laid();
    let mut target = scratch.target();
    let jobs = [
        target.job(&for_time(Rw::RandRead, 100)).expect("a job"),
        target.job(&workload(Rw::Read)).expect("a job"),
    ];
    let outcome = bench::run::run(&jobs, RunOptions::default()).expect("run");
    assert_eq!(outcome.records.len(), 2);
    outcome.records.iter().for_each(assert_consistent);
    assert_eq!(outcome.records[1].total.read_bytes, 4 * MIB);
    assert!(outcome.records[0].interval_ns > 50_000_000);
}
