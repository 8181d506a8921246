//! Whole runs on real files and on memory: what is counted, what is checked, what ends a run.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench::problem::{ErrorClass, Problem};
use bench::run::BenchError;
use bench::run::cohorts::{Arranged, Arrangement, Ends, run_arranged};
use bench::target::{BenchTarget, TargetOptions};
use bench::{Outcome, RunOptions};
use measure::WarningCode;
use measure::record::RunRecord;
use measure::workload::{
    IoEngine, LatencyClock, RandomDistribution, Rw, SizeShare, Verify, Workload, WriteSync,
};

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
    let engines = [IoEngine::IoUring, IoEngine::Libaio, IoEngine::Psync, IoEngine::Auto];
    for ioengine in engines.into_iter().chain([IoEngine::Posixaio, IoEngine::Mmap]) {
        for rw in [Rw::Write, Rw::RandWrite, Rw::Read, Rw::RandRead] {
            let scratch = if rw.reads() { Scratch::laid() } else { Scratch::new() };
            // Loads and stores are made one after the other.
            let iodepth = if ioengine == IoEngine::Mmap { 1 } else { 8 };
            let asked = Workload { ioengine, iodepth, ..workload(rw) };
            let record = match run(&mut scratch.target(), &asked) {
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
fn a_mapped_file_that_is_cut_within_its_last_page_is_no_success() {
    for (rw, fdatasync) in [(Rw::Read, 0), (Rw::RandRead, 0), (Rw::Write, 0), (Rw::Write, 1024)] {
        let scratch = Scratch::laid();
        let mut target = scratch.target();
        let asked =
            Workload { ioengine: IoEngine::Mmap, iodepth: 1, fdatasync, verify: None, ..workload(rw) };
        let job = target.job(&asked).expect("opens");
        let file = std::fs::OpenOptions::new().write(true).open(&scratch.path).expect("opens");
        file.set_len(4 * MIB - 100).expect("is cut");
        let error = bench::run::run(std::slice::from_ref(&job), RunOptions::default()).expect_err("is cut");
        let mut causes = String::new();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            causes.push_str(&format!("{error}; "));
            cause = error.source();
        }
        assert!(causes.contains("was cut short to 4194204 of 4194304 bytes"), "{causes}");
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

#[test]
fn each_kind_of_verification_finds_what_it_wrote_and_a_spoiled_byte() {
    for verify in Verify::ALL {
        let pattern =
            matches!(verify, Verify::Meta | Verify::Pattern).then(|| "0xdeadface".parse().expect("one"));
        let interval = (verify != Verify::Pattern).then_some(1024);
        let w = Workload {
            verify: Some(verify),
            verify_interval: interval,
            verify_pattern: pattern,
            ..workload(Rw::RandWrite)
        };
        let scratch = Scratch::new();
        let record = run(&mut scratch.target(), &w).expect("writes and verifies");
        assert_eq!(record.verified_blocks, 1024, "{verify:?}");
        let reread = Workload { rw: Rw::Read, ..w };
        let record = run(&mut scratch.target(), &reread).expect("reads");
        assert_eq!(record.verified_blocks, 1024, "{verify:?}");
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&scratch.path).expect("opens");
        let mut byte = [0];
        file.read_exact_at(&mut byte, 40_960 + 2000).expect("reads");
        file.write_all_at(&[byte[0] ^ 1], 40_960 + 2000).expect("writes");
        let problem = run(&mut scratch.target(), &reread).expect_err("is noticed");
        assert!(matches!(problem, Problem::Run(BenchError::Verify { .. })), "{verify:?}: {problem:?}");
    }
}

#[test]
fn a_stepping_job_finds_again_what_it_wrote_over_several_passes() {
    for (loops, step) in [(1, 4096), (3, 4096), (2, 28 << 10)] {
        let w = Workload {
            verify: Some(Verify::Crc32c),
            rw_step: step,
            // Blocks of a pass: every second or eighth of 1024, and a part of the last pass.
            io_size: Some(if step == 4096 { 500 * 4096 } else { 100 * 4096 }),
            loops,
            ..workload(Rw::Write)
        };
        let record = run(&mut Scratch::new().target(), &w).expect("writes and verifies");
        let of_a_pass = 4 * MIB / (4096 + step as u64);
        let written = u64::from(loops) * w.io_size.unwrap_or_default() / 4096;
        assert_eq!(record.verified_blocks, written.min(of_a_pass), "{loops} times, step {step}");
    }
}

#[test]
fn a_backlog_is_read_back_while_the_job_writes_and_counts_as_reads() {
    for (backlog, rw, iodepth) in
        [(1, Rw::Write, 1), (16, Rw::RandWrite, 8), (1000, Rw::Write, 4), (5000, Rw::Write, 1)]
    {
        let verify = Some(Verify::Crc32c);
        let w = Workload { verify, verify_backlog: backlog, iodepth, ..workload(rw) };
        let record = run(&mut Scratch::new().target(), &w).expect("writes and verifies");
        assert_eq!((record.total.write_bytes, record.verified_blocks), (4 * MIB, 1024), "{backlog}");
        // What is left at the end is read after it.
        let least = 1024_u64.saturating_sub(2 * u64::from(backlog)) * 4096;
        let read = record.total.read_bytes;
        assert!(read >= least && read <= 4 * MIB && (backlog < 1024) == (read > 0), "{backlog}: {read}");
        assert!(!record.has_warning(WarningCode::VerifyPartial), "{:?}", record.warnings);
    }
    // Over several passes, in which blocks are written again before they were read back.
    let w = Workload { verify: Some(Verify::Xxh3), verify_backlog: 700, ..for_time(Rw::RandWrite, 100) };
    let record = run(&mut Scratch::new().target(), &w).expect("writes and verifies");
    assert!(record.verified_blocks > 0 && !record.has_warning(WarningCode::VerifyPartial));
}

#[test]
fn a_mix_finds_again_what_it_wrote_and_so_does_a_job_that_repeats_blocks() {
    for rw in [Rw::Rw, Rw::RandRw] {
        let w = Workload { verify: Some(Verify::Crc32c), ..workload(rw) };
        let record = run(&mut Scratch::laid().target(), &w).expect("writes and verifies");
        assert_eq!(record.verified_blocks * 4096, record.total.write_bytes, "each block is written once");
    }
    let verify = Some(Verify::Crc32c);
    let often = Workload { norandommap: true, verify, verify_backlog: 50, ..workload(Rw::RandWrite) };
    let skewed = Workload { random_distribution: RandomDistribution::Zipf(1.2), ..often.clone() };
    let mixed = Workload { rw: Rw::RandRw, verify_backlog: 0, loops: 8, ..often.clone() };
    for w in [often, skewed, mixed] {
        let record = run(&mut Scratch::laid().target(), &w).expect("writes and verifies");
        let written = record.total.write_bytes / 4096;
        assert!((1..written).contains(&record.verified_blocks), "{} of {written}", record.verified_blocks);
        assert!(!record.has_warning(WarningCode::VerifyPartial), "{:?}", record.warnings);
    }
}

#[test]
fn a_backlog_notices_what_another_writes_there_meanwhile() {
    let scratch = Scratch::new();
    let verify = Some(Verify::Crc32c);
    let w = Workload { verify, verify_backlog: 1024, iodepth: 1, ..for_time(Rw::Write, 60_000) };
    let path = scratch.path.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let spoiler = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Relaxed) {
                if let Ok(file) = std::fs::OpenOptions::new().write(true).open(&path) {
                    let _ = file.write_all_at(&[0; 64], 8 * 4096);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let result = run(&mut scratch.target(), &w);
    stop.store(true, Ordering::Relaxed);
    spoiler.join().expect("ends");
    let problem = result.expect_err("is noticed long before the end");
    assert!(matches!(problem, Problem::Run(BenchError::Verify { .. })), "{problem:?}");
}

#[test]
fn each_block_is_discarded_and_then_written() {
    for (rw, bs) in [(Rw::TrimWrite, 4096), (Rw::RandTrimWrite, 64 << 10), (Rw::RandTrimWrite, 1 << 20)] {
        let mut target = BenchTarget::new("mem:4m", TargetOptions::default()).expect("a spec");
        let record = run(&mut target, &Workload { bs, ..workload(rw) }).expect("runs");
        assert_eq!((record.total.trim_bytes, record.total.write_bytes), (4 * MIB, 4 * MIB), "{rw:?} {bs}");
        // Had a block been discarded after it was written, it would hold zeros.
        let device = target.job(&workload(Rw::Read)).expect("a job").device;
        let mut data = vec![0; 4 * MIB as usize];
        device.read_at(&mut data, 0).expect("reads");
        assert!(data.chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)), "{rw:?} {bs}");
        let half = Workload { bs, io_size: Some(2 * MIB), ..workload(rw) };
        let record = run(&mut target, &half).expect("runs");
        assert_eq!((record.total.trim_bytes, record.total.write_bytes), (2 * MIB, 2 * MIB), "{rw:?} {bs}");
    }
}

#[test]
fn the_writes_of_a_mix_may_have_sizes_of_their_own() {
    let writes = vec![SizeShare { bs: 16 << 10, percent: 50 }, SizeShare { bs: 64 << 10, percent: 50 }];
    for rw in [Rw::Rw, Rw::RandRw] {
        let w = Workload { write_bssplit: writes.clone(), io_size: Some(4 * MIB), ..workload(rw) };
        let record = run(&mut Scratch::laid().target(), &w).expect("runs");
        let (read, write) = (&record.total.read_bytes, &record.total.write_bytes);
        assert!(*read > 0 && *write > 0 && write % (16 << 10) == 0, "{read} {write}");
        // Half of the requests write, of 40 KiB on average, where reads have 4 KiB.
        assert!(*write > 4 * read, "{read} {write}");
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
    let w = Workload { fsync: 16, sync: WriteSync::Dsync, ..workload(Rw::Write) };
    run(&mut Scratch::laid().target(), &w).expect("fsyncs");
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

#[test]
fn sections_that_walk_the_same_offsets_are_warned_and_sections_with_parts_of_their_own_are_not() {
    let scratch = Scratch::laid();
    let mut target = scratch.target();
    let mut warned = |first: Workload, second: Workload| {
        let jobs = [first, second].map(|w| target.job(&w).expect("a job"));
        let plain = [Arrangement::default(), Arrangement::default()];
        let arranged = run_arranged(&jobs, &plain, RunOptions::default()).expect("runs");
        let records = arranged.records.into_iter().map(|record| record.expect("a record"));
        records.map(|record| record.has_warning(WarningCode::SameOffsets)).collect::<Vec<_>>()
    };
    let half = |offset| Workload { offset, size: Some(2 * MIB), ..workload(Rw::Read) };
    assert_eq!(warned(workload(Rw::Read), workload(Rw::Read)), [true, true]);
    assert_eq!(warned(workload(Rw::Read), half(2 * MIB)), [true, true]);
    assert_eq!(warned(workload(Rw::Read), workload(Rw::RandRead)), [false, false]);
    assert_eq!(warned(half(0), half(2 * MIB)), [false, false]);
}

#[test]
fn a_job_does_as_many_requests_and_bytes_as_it_was_told() {
    let mut target = BenchTarget::new("mem:4m", TargetOptions::default()).expect("a spec");
    for (w, ios) in [
        (Workload { number_ios: Some(100), ..workload(Rw::RandRead) }, 100),
        (Workload { number_ios: Some(100), ..for_time(Rw::RandWrite, 60_000) }, 100),
        (Workload { loops: 3, ..workload(Rw::Read) }, 3 * 1024),
        (Workload { io_size: Some(MIB), loops: 2, ..workload(Rw::RandWrite) }, 512),
        (Workload { rw_step: 4096, ..workload(Rw::Read) }, 1024),
        (Workload { rw_step: -8192, ..workload(Rw::Write) }, 1024),
        (Workload { percentage_random: 40, ..workload(Rw::RandRead) }, 1024),
        (Workload { blockalign: Some(8192), ..workload(Rw::RandRead) }, 1024),
    ] {
        assert_eq!(run(&mut target, &w).expect("runs").total.ios, ios, "{}", w.summary());
    }
}

#[test]
fn a_job_rests_between_groups_of_requests() {
    let mut target = BenchTarget::new("mem:4m", TargetOptions::default()).expect("a spec");
    let thinktime = Duration::from_millis(20);
    for iodepth in [1, 8] {
        let w = Workload {
            thinktime,
            thinktime_blocks: 10,
            number_ios: Some(60),
            iodepth,
            ..workload(Rw::RandRead)
        };
        let record = run(&mut target, &w).expect("runs");
        assert_eq!(record.total.ios, 60);
        // Five rests lie between six groups, and a sixth may follow the last one.
        let rests = Duration::from_nanos(record.total.elapsed_ns).as_secs_f64() / thinktime.as_secs_f64();
        assert!(rests >= 5.0, "{rests} rests at depth {iodepth}");
    }
}

/// Runs jobs on memory of their own, each when its arrangement says so.
fn arranged(jobs: &[(Workload, Arrangement)]) -> Arranged {
    let mut targets: Vec<BenchTarget> =
        jobs.iter().map(|_| BenchTarget::new("mem:4m", TargetOptions::default()).expect("a spec")).collect();
    let prepared: Vec<_> =
        targets.iter_mut().zip(jobs).map(|(target, (w, _))| target.job(w).expect("opens")).collect();
    let arrangements: Vec<_> = jobs.iter().map(|(_, arrangement)| arrangement.clone()).collect();
    run_arranged(&prepared, &arrangements, RunOptions::default()).expect("runs")
}

fn began_ns(arranged: &Arranged, job: usize) -> u64 {
    arranged.records[job].as_ref().expect("a record").started_unix_ns
}

#[test]
fn a_job_begins_after_its_delay_and_after_the_jobs_that_it_waits_for() {
    let first = for_time(Rw::RandRead, 200);
    let late = Arrangement { delay: Duration::from_millis(150), ..Arrangement::default() };
    let after = Arrangement { after: vec![0], ..Arrangement::default() };
    let short = Workload { number_ios: Some(10), ..workload(Rw::RandRead) };
    // The first job itself may begin late, where others have the CPUs.
    let asked = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    let came = arranged(&[(first, Arrangement::default()), (short.clone(), late), (short, after)]);
    assert!(!came.interrupted && !came.ends_everything);
    assert!(u128::from(began_ns(&came, 1)) >= asked.as_nanos() + 149_000_000, "it is late by its delay");
    assert!(began_ns(&came, 2) >= began_ns(&came, 0) + 200_000_000, "it waits for the first job's end");
    let ios: Vec<u64> = came.records.iter().flatten().map(|record| record.total.ios).collect();
    assert_eq!(ios[1..], [10, 10]);
}

#[test]
fn the_end_of_a_job_ends_those_that_it_says_and_no_others() {
    let long = for_time(Rw::RandRead, 60_000);
    let short = for_time(Rw::RandRead, 100);
    let ending = |ends, group| Arrangement { ends, group, ..Arrangement::default() };
    let never = Arrangement { delay: Duration::from_secs(600), ..Arrangement::default() };
    for (ends, is_everything) in [(Ends::Running, false), (Ends::Everything, true)] {
        let came = arranged(&[
            (short.clone(), ending(ends, 0)),
            (long.clone(), Arrangement::default()),
            (long.clone(), never.clone()),
        ]);
        assert_eq!(came.ends_everything, is_everything);
        assert!(!came.interrupted);
        let begun: Vec<bool> = came.records.iter().map(Option::is_some).collect();
        assert_eq!(begun, [true, true, false]);
    }
    // Of the same cohort, of another one of the group, and of another group.
    let bounded = Workload { number_ios: Some(5_000_000), ..long.clone() };
    let other = Workload { thinktime: Duration::from_millis(20), number_ios: Some(30), ..long.clone() };
    let came = arranged(&[
        (short, ending(Ends::Group, 1)),
        (long, ending(Ends::Group, 1)),
        (bounded, ending(Ends::Nothing, 1)),
        (other, ending(Ends::Nothing, 2)),
    ]);
    let ios: Vec<u64> = came.records.iter().flatten().map(|record| record.total.ios).collect();
    assert_eq!(ios.len(), 4);
    assert!(ios[2] < 5_000_000);
    assert_eq!(ios[3], 30, "another group goes on");
}

#[test]
fn a_writing_job_opens_its_target_as_synchronous_as_it_was_told() {
    use std::os::fd::AsRawFd;
    // O_DSYNC and O_SYNC of x86-64 and 64-bit ARM.
    let scratch = Scratch::laid();
    let mut target = scratch.target();
    let mut flags = |w: &Workload| {
        let device = target.job(w).expect("opens").device;
        let info =
            std::fs::read_to_string(format!("/proc/self/fdinfo/{}", device.fd().as_raw_fd())).expect("reads");
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("has flags");
        i32::from_str_radix(flags.trim(), 8).expect("octal") & 0o4_010_000
    };
    for (sync, expected) in
        [(WriteSync::None, 0), (WriteSync::Dsync, 0o10_000), (WriteSync::Sync, 0o4_010_000)]
    {
        assert_eq!(flags(&Workload { sync, ..workload(Rw::Write) }), expected, "{sync:?}");
    }
    assert_eq!(
        flags(&Workload { sync: WriteSync::Sync, ..workload(Rw::Read) }),
        0,
        "reads have nothing to sync"
    );
}
