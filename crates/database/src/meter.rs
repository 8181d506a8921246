//! What the kernel counts of a thread: bytes read, CPU time, time in the run queue.
//!
//! `/proc/thread-self/io` counts what the thread asked for (`rchar`) and what devices delivered for it (`read_bytes`, read-ahead
//! included); `/proc/thread-self/schedstat` has its time on a CPU and its time waiting for one, nanoseconds. A thread that only queries
//! waits for nothing else than reads, so time less both of them is I/O time.

use std::time::Instant;

use crate::engine::Cost;

/// Readings at the beginning of a statement.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    begun: Instant,
    io: Option<Io>,
    scheduled: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Io {
    asked_bytes: u64,
    device_bytes: u64,
}

impl Meter {
    /// Begins to count for the calling thread.
    #[must_use]
    pub fn start() -> Self {
        let (io, scheduled) = (io(), scheduled());
        Self { begun: Instant::now(), io, scheduled }
    }

    /// What the calling thread spent since, in blocks of so many bytes. The reading of the counters is less than a block.
    #[must_use]
    pub fn stop(self, block_bytes: u32) -> Cost {
        let elapsed_ns = self.begun.elapsed().as_nanos() as u64;
        let (io, scheduled) = (io(), scheduled());
        let of_io = self.io.zip(io);
        let times =
            self.scheduled.zip(scheduled).map(|(before, after)| (after.0 - before.0, after.1 - before.1));
        Cost {
            elapsed_ns,
            cpu_ns: times.map(|(cpu, _)| cpu),
            io_ns: times.map(|(cpu, queued)| elapsed_ns.saturating_sub(cpu + queued)),
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

fn scheduled() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_whitespace().map(str::parse);
    Some((fields.next()?.ok()?, fields.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

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
