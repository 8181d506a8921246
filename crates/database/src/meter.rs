//! What the kernel counts of a thread: bytes read, CPU time, time in the run queue.
//!
//! `/proc/thread-self/io` counts what the thread asked for (`rchar`) and what devices delivered for it (`read_bytes`, read-ahead
//! included); `/proc/thread-self/schedstat` has its time waiting for a CPU, nanoseconds, and `CLOCK_THREAD_CPUTIME_ID` its time on one, which
//! schedstat has only as of the last tick. A thread that only queries waits for nothing else than reads, so time less both of them is I/O time.

use std::time::Instant;

use nix::time::{ClockId, clock_gettime};

use crate::engine::Cost;

/// Readings at the beginning of a statement.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    begun: Instant,
    io: Option<Io>,
    times: Option<Times>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Io {
    asked_bytes: u64,
    device_bytes: u64,
}

/// Of a thread, nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    cpu_ns: u64,
    queued_ns: u64,
}

impl Meter {
    /// Begins to count for the calling thread.
    #[must_use]
    pub fn start() -> Self {
        let (io, times) = (io(), times());
        Self { begun: Instant::now(), io, times }
    }

    /// What the calling thread spent since, in blocks of so many bytes. The reading of the counters is less than a block.
    #[must_use]
    pub fn stop(self, block_bytes: u32) -> Cost {
        let elapsed_ns = self.begun.elapsed().as_nanos() as u64;
        let (times, io) = (times(), io());
        let of_io = self.io.zip(io);
        let times = self.times.zip(times).map(|(before, after)| Times {
            cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
            queued_ns: after.queued_ns.saturating_sub(before.queued_ns),
        });
        Cost {
            elapsed_ns,
            cpu_ns: times.map(|of| of.cpu_ns.min(elapsed_ns)),
            io_ns: times.map(|of| elapsed_ns.saturating_sub(of.cpu_ns + of.queued_ns)),
            blocks_read: of_io
                .map(|(before, after)| (after.asked_bytes - before.asked_bytes) / u64::from(block_bytes)),
            blocks_hit: None,
            block_bytes,
            device_bytes: of_io.map(|(before, after)| after.device_bytes - before.device_bytes),
        }
    }
}

fn io() -> Option<Io> {
    parse_io(&std::fs::read_to_string("/proc/thread-self/io").ok()?)
}

fn parse_io(text: &str) -> Option<Io> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(Io { asked_bytes: field("rchar:")?, device_bytes: field("read_bytes:")? })
}

fn times() -> Option<Times> {
    // The clock brings the kernel's other figures of the thread up to date.
    let cpu = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    let cpu_ns = cpu.tv_sec().unsigned_abs() * 1_000_000_000 + cpu.tv_nsec().unsigned_abs();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let queued_ns = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Times { cpu_ns, queued_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_less_than_a_tick_is_time_on_the_cpu_and_not_time_of_reads() {
        let mut cpu_ns = 0;
        for _ in 0..20 {
            let meter = Meter::start();
            let begun = Instant::now();
            while begun.elapsed() < std::time::Duration::from_micros(100) {}
            let Some(of_turn) = meter.stop(4096).cpu_ns else {
                return eprintln!("skipped: this kernel counts no time of threads");
            };
            assert!(of_turn > 0, "a turn without CPU time");
            cpu_ns += of_turn;
        }
        assert!(cpu_ns >= 100_000, "{cpu_ns} ns");
    }

    #[test]
    fn bytes_that_are_read_are_counted_in_blocks() {
        let text = "rchar: 100\nwchar: 7\nsyscr: 1\nread_bytes: 4096\ncancelled_write_bytes: 0\n";
        assert_eq!(parse_io(text), Some(Io { asked_bytes: 100, device_bytes: 4096 }));
        assert_eq!(parse_io("rchar: 100\n"), None);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 20 * 4096]).unwrap();
        let meter = Meter::start();
        let read = std::fs::read(file.path()).unwrap();
        let cost = meter.stop(4096);
        if cost.blocks_read.is_none() {
            return eprintln!("skipped: this kernel counts no I/O of threads");
        }
        assert_eq!((read.len(), cost.blocks_read), (20 * 4096, Some(20)));
        assert_eq!(Meter::start().stop(4096).blocks_read, Some(0), "the reading of the counters counts");
    }
}
