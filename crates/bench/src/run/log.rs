//! What a thread notes of each request, or of each window of time: fio's logs.
//!
//! A log begins with the measured interval. A request belongs to the window in which it completes. Notes stay in memory
//! until the run is over, 40 bytes each, so that writing them disturbs nothing.

use std::io::{self, Write};
use std::time::Duration;

use storage::usage::IoPriority;

use super::requests::Settled;

/// How a thread logs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogPlan {
    /// The length of a window (`log_avg_msec`); None to note each request.
    pub window: Option<Duration>,
    /// A window's latency is its largest, and not the mean (`log_max_value`).
    pub largest: bool,
    /// Offsets are noted (`log_offset`).
    pub offsets: bool,
    /// Priorities are written in full (`log_prio`).
    pub priorities: bool,
    /// That of requests which have none of their own.
    pub priority: Option<IoPriority>,
}

/// What a line of a log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Kilobytes a second of a request, KiB a second of a window.
    Bandwidth,
    /// Requests a second of a window; 1 of a request.
    Requests,
    /// Nanoseconds from submission, or from the intended start, to completion.
    Latency,
}

/// A request that completed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    pub request: Settled,
    pub latency_ns: u64,
}

/// A line of a log: a request, or one direction of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Entry {
    /// When it ended, nanoseconds since the log began.
    end_ns: u64,
    bytes: u64,
    /// The latency of a request; of a window the sum, or the largest.
    latency_ns: u64,
    /// The offset of a request; the requests of a window.
    offset_or_ios: u64,
    direction: u8,
    priority: u16,
}

/// What one thread noted.
#[derive(Debug)]
pub struct Log {
    plan: LogPlan,
    entries: Vec<Entry>,
    /// Of the last window, where the end cut it short: its length, nanoseconds.
    rest_ns: u64,
}

impl Log {
    /// Writes the lines of one quantity: `milliseconds, value, direction, bytes, [offset,] priority`. Directions are 0 for
    /// reads, 1 for writes and 2 for discards. A priority is the kernel's number where that was asked for, else 1 for the
    /// real-time class and 0 for others. Bytes, offset and priority of a window are 0.
    ///
    /// A last window of which less than half was measured has a latency, and no rate.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, quantity: Quantity, out: &mut impl Write) -> io::Result<()> {
        let window_ns = self.plan.window.map(|window| window.as_nanos() as u64);
        let last = self.entries.last().map_or(0, |entry| entry.end_ns);
        for entry in &self.entries {
            let is_rest = self.rest_ns > 0 && entry.end_ns == last;
            let (value, bytes, offset) = match window_ns {
                None => (entry.of_request(quantity), entry.bytes, entry.offset_or_ios),
                Some(window) if is_rest && quantity != Quantity::Latency && self.rest_ns < window / 2 => {
                    continue;
                }
                Some(window) => {
                    let length = if is_rest { self.rest_ns } else { window };
                    (entry.of_window(quantity, length, self.plan.largest), 0, 0)
                }
            };
            let (time, direction) = (entry.end_ns / 1_000_000, entry.direction);
            write!(out, "{time}, {value}, {direction}, {bytes}, ")?;
            if self.plan.offsets {
                write!(out, "{offset}, ")?;
            }
            if self.plan.priorities {
                writeln!(out, "{:#06x}", entry.priority)?;
            } else {
                writeln!(out, "{}", u8::from(entry.priority >> 13 == 1))?;
            }
        }
        Ok(())
    }
}

impl Entry {
    fn of_request(&self, quantity: Quantity) -> u64 {
        match quantity {
            Quantity::Bandwidth => {
                (u128::from(self.bytes) * 1_000_000 / u128::from(self.latency_ns.max(1))) as u64
            }
            Quantity::Requests => 1,
            Quantity::Latency => self.latency_ns,
        }
    }

    fn of_window(&self, quantity: Quantity, length_ns: u64, largest: bool) -> u64 {
        let per_second = |n: u64| (u128::from(n) * 1_000_000_000 / u128::from(length_ns.max(1))) as u64;
        match quantity {
            Quantity::Bandwidth => per_second(self.bytes) / 1024,
            Quantity::Requests => per_second(self.offset_or_ios),
            Quantity::Latency if largest => self.latency_ns,
            Quantity::Latency => self.latency_ns / self.offset_or_ios.max(1),
        }
    }
}

/// A log being written.
#[derive(Debug)]
pub(super) struct Logger {
    log: Log,
    /// The window under way, by direction, and when it ends.
    open: [Entry; 3],
    window_end_ns: u64,
}

impl Logger {
    pub fn new(plan: LogPlan) -> Self {
        let mut logger = Self {
            log: Log { plan, entries: Vec::new(), rest_ns: 0 },
            open: [Entry::default(); 3],
            window_end_ns: 0,
        };
        logger.restart();
        logger
    }

    /// Forgets what was noted: the interval begins.
    pub fn restart(&mut self) {
        self.log.entries.clear();
        self.open = [Entry::default(); 3];
        self.window_end_ns = self.log.plan.window.map_or(0, |window| window.as_nanos() as u64);
    }

    /// Notes a request that completed `now_ns` after the log began.
    pub fn add(&mut self, now_ns: u64, done: Completion) {
        let Completion { request: Settled { direction, bytes, offset, priority, .. }, latency_ns } = done;
        let direction = direction as u8;
        let Some(window) = self.log.plan.window else {
            let own = Some(priority).filter(|priority| *priority != IoPriority::UNSET);
            let priority = own.or(self.log.plan.priority).map_or(0, IoPriority::number);
            let entry =
                Entry { end_ns: now_ns, bytes, latency_ns, offset_or_ios: offset, direction, priority };
            self.log.entries.push(entry);
            return;
        };
        if now_ns >= self.window_end_ns {
            self.close_window(self.window_end_ns);
            let window_ns = window.as_nanos() as u64;
            self.window_end_ns = (now_ns / window_ns + 1) * window_ns;
        }
        let open = &mut self.open[direction as usize];
        open.bytes += bytes;
        open.offset_or_ios += 1;
        open.latency_ns = match self.log.plan.largest {
            true => open.latency_ns.max(latency_ns),
            false => open.latency_ns + latency_ns,
        };
    }

    /// Directions without a request in the window have no line.
    fn close_window(&mut self, end_ns: u64) {
        for (direction, open) in (0..).zip(&mut self.open) {
            let entry = std::mem::take(open);
            if entry.offset_or_ios > 0 {
                self.log.entries.push(Entry { end_ns, direction, priority: 0, ..entry });
            }
        }
    }

    /// The log, which ends `now_ns` after it began.
    pub fn close(mut self, now_ns: u64) -> Log {
        if let Some(window) = self.log.plan.window {
            let window_ns = window.as_nanos() as u64;
            let begin = self.window_end_ns - window_ns;
            let is_cut = now_ns < self.window_end_ns;
            let before = self.log.entries.len();
            self.close_window(if is_cut { now_ns } else { self.window_end_ns });
            if is_cut && self.log.entries.len() > before {
                self.log.rest_ns = now_ns.saturating_sub(begin).max(1);
            }
        }
        self.log
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tally::Direction;
    use storage::usage::IoClass;

    const MS: u64 = 1_000_000;

    fn done(direction: Direction, latency_ns: u64) -> Completion {
        let priority = IoPriority::UNSET;
        let request = Settled { direction, bytes: 4096, offset: 8192, priority, counts: true };
        Completion { request, latency_ns }
    }

    fn lines(log: &Log, quantity: Quantity) -> String {
        let mut out = Vec::new();
        log.write(quantity, &mut out).expect("writes to memory");
        String::from_utf8(out).expect("is text")
    }

    #[test]
    fn each_request_is_a_line_as_fio_has_it() {
        let mut logger = Logger::new(LogPlan::default());
        logger.add(5 * MS, done(Direction::Write, 9));
        logger.restart();
        logger.add(MS, done(Direction::Read, 100_000));
        logger.add(3 * MS / 2, done(Direction::Write, 50_000));
        let log = logger.close(2 * MS);
        assert_eq!(lines(&log, Quantity::Latency), "1, 100000, 0, 4096, 0\n1, 50000, 1, 4096, 0\n");
        assert_eq!(lines(&log, Quantity::Bandwidth), "1, 40960, 0, 4096, 0\n1, 81920, 1, 4096, 0\n");
        assert_eq!(lines(&log, Quantity::Requests), "1, 1, 0, 4096, 0\n1, 1, 1, 4096, 0\n");
    }

    #[test]
    fn offsets_stand_before_the_priority() {
        let mut logger = Logger::new(LogPlan { offsets: true, ..LogPlan::default() });
        logger.add(MS, done(Direction::Read, 100_000));
        assert_eq!(lines(&logger.close(2 * MS), Quantity::Latency), "1, 100000, 0, 4096, 8192, 0\n");
    }

    #[test]
    fn a_priority_is_the_requests_own_or_else_its_threads() {
        let of = |class, level| IoPriority::new(class, level, 0);
        let lines = |priorities| {
            let plan = LogPlan { priorities, priority: of(IoClass::Idle, 0), ..LogPlan::default() };
            let mut logger = Logger::new(plan);
            let own = of(IoClass::RealTime, 4).expect("in range");
            let done = done(Direction::Read, 1000);
            logger.add(MS, Completion { request: Settled { priority: own, ..done.request }, ..done });
            logger.add(MS, done);
            lines(&logger.close(2 * MS), Quantity::Latency)
        };
        assert_eq!(lines(true), "1, 1000, 0, 4096, 0x2004\n1, 1000, 0, 4096, 0x6000\n");
        assert_eq!(lines(false), "1, 1000, 0, 4096, 1\n1, 1000, 0, 4096, 0\n");
    }

    #[test]
    fn windows_have_means_or_the_largest_and_empty_ones_no_line() {
        let window = Some(Duration::from_millis(100));
        let log = |largest| {
            let mut logger = Logger::new(LogPlan { window, largest, ..LogPlan::default() });
            logger.add(10 * MS, done(Direction::Read, 1000));
            logger.add(20 * MS, done(Direction::Read, 3000));
            logger.add(99 * MS, done(Direction::Write, 7000));
            logger.add(320 * MS, done(Direction::Read, 5000));
            logger.close(330 * MS)
        };
        assert_eq!(
            lines(&log(false), Quantity::Latency),
            "100, 2000, 0, 0, 0\n100, 7000, 1, 0, 0\n330, 5000, 0, 0, 0\n"
        );
        assert_eq!(
            lines(&log(true), Quantity::Latency),
            "100, 3000, 0, 0, 0\n100, 7000, 1, 0, 0\n330, 5000, 0, 0, 0\n"
        );
        assert_eq!(lines(&log(false), Quantity::Requests), "100, 20, 0, 0, 0\n100, 10, 1, 0, 0\n");
        assert_eq!(lines(&log(false), Quantity::Bandwidth), "100, 80, 0, 0, 0\n100, 40, 1, 0, 0\n");
    }

    #[test]
    fn a_last_window_of_more_than_half_its_length_has_a_rate_over_what_it_has() {
        let window = Some(Duration::from_millis(100));
        let mut logger = Logger::new(LogPlan { window, ..LogPlan::default() });
        (0..80).for_each(|_| logger.add(70 * MS, done(Direction::Read, 1000)));
        assert_eq!(lines(&logger.close(80 * MS), Quantity::Requests), "80, 1000, 0, 0, 0\n");
    }
}
