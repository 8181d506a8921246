//! A drive that stops answering fails the run within the time that was said, with its name, and keeps nobody waiting.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bench::lies::Known;
use bench::observe::{Observer, Subject};
use bench::run::conduct::Conduct;
use bench::run::{BenchError, run};
use bench::zones::Zones;
use bench::{Job, RunOptions};
use measure::Workload;
use measure::workload::Rw;
use storage::device::{Device, DeviceKind, Geometry};
use storage::sysfs::Sysfs;

/// A device of its own calls that answers so many reads, and then none, or all but one. It takes writes, and flushes as
/// slowly as it is told.
#[derive(Debug)]
struct Hanging {
    null: File,
    direct: bool,
    flush_time: Duration,
    answered: AtomicU64,
    answers: u64,
    /// Only one read is not answered.
    once: bool,
    released: Mutex<bool>,
    release: Condvar,
}

impl Hanging {
    fn new(answers: u64, once: bool) -> Arc<Self> {
        let null = File::open("/dev/null").expect("opens");
        let answered = AtomicU64::new(0);
        Arc::new(Self {
            null,
            direct: true,
            flush_time: Duration::ZERO,
            answered,
            answers,
            once,
            released: Mutex::new(false),
            release: Condvar::new(),
        })
    }

    fn flushing(direct: bool, flush_time: Duration) -> Arc<Self> {
        let device = Arc::into_inner(Self::new(u64::MAX, false)).expect("has one owner");
        Arc::new(Self { direct, flush_time, ..device })
    }

    fn let_go(&self) {
        *self.released.lock().expect("not poisoned") = true;
        self.release.notify_all();
    }
}

impl Device for Hanging {
    fn spec(&self) -> &str {
        "/dev/hanging"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::File
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        64 << 20
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 512, physical_block: 4096, memory_alignment: 512 }
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }

    fn verifies(&self) -> bool {
        true
    }

    fn read_at(&self, buffer: &mut [u8], _offset: u64) -> io::Result<()> {
        let number = self.answered.fetch_add(1, Ordering::Relaxed);
        if if self.once { number == self.answers } else { number >= self.answers } {
            let mut released = self.released.lock().expect("not poisoned");
            while !*released {
                released = self.release.wait(released).expect("not poisoned");
            }
        }
        std::thread::sleep(Duration::from_millis(1));
        buffer.fill(1);
        Ok(())
    }

    fn write_at(&self, _buffer: &[u8], _offset: u64) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        std::thread::sleep(self.flush_time);
        Ok(())
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn workload(iodepth: u32) -> Workload {
    Workload {
        iodepth,
        runtime: Some(Duration::from_secs(60)),
        time_based: true,
        request_timeout: Duration::from_millis(500),
        ..Workload::default()
    }
}

fn job(device: &Arc<Hanging>, workload: Workload) -> Job {
    let nothing = tempfile::tempdir().expect("a directory");
    let observer = Observer::new(Sysfs::at(nothing.path()), Subject::default());
    Job {
        device: Arc::clone(device) as Arc<dyn Device>,
        workload,
        observer,
        known: Known::default(),
        conduct: Conduct::default(),
        zones: Zones::default(),
    }
}

#[track_caller]
fn assert_unanswered(operation: &str, result: Result<bench::Outcome, BenchError>, began: Instant) {
    let error = result.expect_err("the drive does not answer");
    assert_eq!(error.to_string(), "/dev/hanging has not answered a request for 500 ms");
    let BenchError::Unanswered(request) = &error else { panic!("{error:?}") };
    let named = (request.operation.as_deref(), request.target.as_str(), request.seconds);
    assert_eq!(named, (Some(operation), "/dev/hanging", 0.5));
    match operation {
        "fsync" | "fdatasync" => assert_eq!(request.offset, None, "it has no place"),
        _ => assert!(
            request.offset.is_some_and(|offset| offset < 64 << 20 && offset.is_multiple_of(4096)),
            "{request:?}"
        ),
    }
    assert!(error.hint().is_some_and(|hint| hint.contains("--request_timeout")));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}

#[test]
fn a_drive_that_stops_answering_fails_the_run_with_its_name() {
    for depth in [1, 4] {
        let device = Hanging::new(20, false);
        let began = Instant::now();
        let result = run(&[job(&device, workload(depth))], RunOptions::default());
        assert_unanswered("read", result, began);
        device.let_go();
    }
}

#[test]
fn a_drive_that_never_answered_fails_the_run_too() {
    let device = Hanging::new(0, false);
    let began = Instant::now();
    assert_unanswered("read", run(&[job(&device, workload(1))], RunOptions::default()), began);
    device.let_go();
}

#[test]
fn one_request_that_is_not_answered_fails_the_run_while_others_are() {
    let device = Hanging::new(20, true);
    let began = Instant::now();
    assert_unanswered("read", run(&[job(&device, workload(4))], RunOptions::default()), began);
    device.let_go();
}

#[test]
fn a_job_on_another_drive_ends_with_the_one_that_hangs() {
    let (hanging, answering) = (Hanging::new(20, false), Hanging::new(u64::MAX, false));
    let began = Instant::now();
    let result = run(&[job(&answering, workload(2)), job(&hanging, workload(2))], RunOptions::default());
    assert_unanswered("read", result, began);
    let answered = answering.answered.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(200));
    assert!(answering.answered.load(Ordering::Relaxed) <= answered + 2, "its thread has ended");
    hanging.let_go();
}

#[test]
fn a_drive_that_is_slow_for_less_than_the_limit_is_measured() {
    let device = Hanging::new(20, true);
    let slow = Arc::clone(&device);
    let release = std::thread::spawn(move || {
        while slow.answered.load(Ordering::Relaxed) <= slow.answers {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_secs(1));
        slow.let_go();
    });
    let limit = Duration::from_secs(20);
    let patient = Workload { request_timeout: limit, runtime: Some(Duration::from_secs(2)), ..workload(1) };
    let outcome = run(&[job(&device, patient)], RunOptions::default()).expect("is measured");
    assert!(outcome.records[0].read.latency.max() >= 1_000_000_000);
    release.join().expect("released");
}

#[test]
fn flushes_of_buffered_writes_take_their_time_and_flushes_of_direct_ones_do_not() {
    for depth in [1, 4] {
        let writes = Workload {
            rw: Rw::Write,
            fdatasync: 16,
            runtime: Some(Duration::from_secs(8)),
            ..workload(depth)
        };
        let slow = Duration::from_secs(4);
        let buffered = Hanging::flushing(false, slow);
        let outcome = run(&[job(&buffered, writes.clone())], RunOptions::default()).expect("is measured");
        assert!(outcome.records[0].write.ios > 16);
        let direct = Hanging::flushing(true, slow);
        assert_unanswered("fdatasync", run(&[job(&direct, writes)], RunOptions::default()), Instant::now());
    }
}
