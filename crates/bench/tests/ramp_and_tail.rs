//! Ramp and tail are made and not counted: planted on a device whose speed is known at every moment.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::lies::Known;
use bench::observe::{Observer, Subject};
use bench::run::conduct::Conduct;
use bench::run::run;
use bench::zones::Zones;
use bench::{Job, RunOptions};
use measure::Workload;
use measure::record::RunRecord;
use measure::workload::Rw;
use storage::device::{Device, DeviceKind, Geometry};
use storage::sysfs::Sysfs;

const SIZE: u64 = 1 << 20;
const SLOW: Duration = Duration::from_millis(20);

/// A device of its own calls, in which a read takes as long as its plan says.
#[derive(Debug)]
struct Planned {
    null: File,
    began: Instant,
    /// Whether a read at this time and offset is slow.
    is_slow: fn(Duration, u64) -> bool,
}

impl Device for Planned {
    fn spec(&self) -> &str {
        "planned"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::File
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        SIZE
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

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if (self.is_slow)(self.began.elapsed(), offset) {
            std::thread::sleep(SLOW);
        }
        buffer.fill(1);
        Ok(())
    }

    fn write_at(&self, _buffer: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn record(workload: Workload, is_slow: fn(Duration, u64) -> bool) -> RunRecord {
    let null = File::open("/dev/null").expect("opens");
    let device = Arc::new(Planned { null, began: Instant::now(), is_slow });
    let nothing = tempfile::tempdir().expect("a directory");
    let observer = Observer::new(Sysfs::at(nothing.path()), Subject::default());
    let job = Job {
        device,
        workload,
        observer,
        known: Known::default(),
        conduct: Conduct::default(),
        zones: Zones::default(),
    };
    run(&[job], RunOptions::default()).expect("is measured").records.remove(0)
}

#[test]
fn a_slow_ramp_is_not_counted() {
    let workload = Workload {
        runtime: Some(Duration::from_millis(300)),
        ramp_time: Duration::from_millis(600),
        time_based: true,
        ..Workload::default()
    };
    let record = record(workload, |time, _| time < Duration::from_millis(400));
    assert!(record.ramp_ns >= 600_000_000, "{}", record.ramp_ns);
    assert!(record.total.ios >= record.ios() + 10, "the ramp's requests are made");
    // A slow read takes 20 ms, so that of those before the interval none is in its histogram's middle.
    let p90 = record.latency().percentile(90.0);
    assert!(p90 < SLOW.as_nanos() as u64 / 2, "p90 {p90} ns");
    assert_eq!(record.latency().count(), record.ios());
}

#[test]
fn a_long_tail_is_not_counted() {
    // Two jobs read a half each, once; the second one's half is slow, so that the first is done long before it.
    let workload = Workload { rw: Rw::Read, numjobs: 2, ..Workload::default() };
    let record = record(workload, |_, offset| offset >= SIZE / 2 || offset % (16 << 10) == 0);
    assert_eq!(record.total.read_bytes, SIZE, "all is read");
    assert!(record.bytes() < SIZE * 9 / 10, "{} of {SIZE} bytes were in the interval", record.bytes());
    assert!(record.tail_ns > record.interval_ns / 2, "{} {}", record.tail_ns, record.interval_ns);
    let slow = &record.jobs[1];
    assert!(slow.bytes < SIZE / 2, "what the second job did alone is not in its figure");
    assert!(slow.interval_ns <= record.interval_ns + record.tail_ns / 2, "{slow:?}");
}
