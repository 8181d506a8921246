//! What a run shows: counts from the first steady instant to the last, and when enough was seen.
//!
//! The first requests fill queues and buffers, so they do not count, nor does what ends within the workload's `ramp_time`. What follows is cut into batches of equal numbers of
//! requests. A run is steady when the rate is known to within [`Stop::precision`] by the batches' scatter (95 %, Student's t: the method
//! of batch means; Law, *Simulation Modeling and Analysis*, ch. 9), its halves agree to within twice that, and it has lasted
//! [`Stop::min_interval_ns`].

use measure::Histogram;
use measure::record::Sample;

use crate::device::{Operation, Time};

/// When a run has shown enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stop {
    /// Half the width of the rate's 95 % interval by the rate at which a run is steady; 0 for a run that uses its whole time.
    pub precision: f64,
    /// The shortest interval, nanoseconds.
    pub min_interval_ns: Time,
    /// The longest, where the workload names no runtime, nanoseconds.
    pub max_interval_ns: Time,
}

impl Default for Stop {
    /// To a hundredth, from a quarter of a second, which gives the counters of CPUs (in milliseconds) a meaning, to ten seconds, as long as the
    /// papers' runs were.
    fn default() -> Self {
        Self { precision: 0.01, min_interval_ns: 250_000_000, max_interval_ns: 10_000_000_000 }
    }
}

/// Batches before a run may be steady.
const MIN_BATCHES: usize = 10;
/// Batches that are kept; beyond, pairs are joined.
const MAX_BATCHES: usize = 400;

/// Requests of one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Direction {
    pub ios: u64,
    pub bytes: u64,
    pub latency: Histogram,
}

/// The counts of a run.
#[derive(Debug)]
pub(crate) struct Meter {
    stop: Stop,
    /// Requests that are not counted yet.
    skip: u64,
    /// The interval does not begin earlier.
    ramp_end: Time,
    has_begun: bool,
    pub begin: Time,
    pub end: Time,
    /// Reads, writes, discards.
    pub directions: [Direction; 3],
    /// Requests and bytes of each stream.
    pub streams: Vec<(u64, u64)>,
    /// Everything, the first requests included: reads, writes, discards.
    pub total_bytes: [u64; 3],
    pub total_ios: u64,
    batch: u64,
    pub batches: Vec<Sample>,
    open: Sample,
    is_done: bool,
}

impl Meter {
    /// A meter of streams that have `in_flight` requests of `bytes` in flight. With `skips`, the first requests are not counted.
    pub fn new(stop: Stop, streams: usize, in_flight: u64, bytes: u64, skips: bool) -> Self {
        let small = if bytes >= 1 << 20 { 16 } else { 256 };
        let batch = small.max(in_flight);
        Self {
            stop,
            skip: if skips { 2 * batch } else { 0 },
            ramp_end: 0,
            has_begun: !skips,
            begin: 0,
            end: 0,
            directions: Default::default(),
            streams: vec![(0, 0); streams],
            total_bytes: [0; 3],
            total_ios: 0,
            batch,
            batches: Vec::new(),
            open: Sample::default(),
            is_done: false,
        }
    }

    /// Counts no request that ends before this time, either.
    pub fn begin_after(&mut self, ramp_end: Time) {
        self.ramp_end = ramp_end;
        self.has_begun &= ramp_end == 0;
    }

    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Counts a request that ended. True when the interval begins with it.
    #[inline]
    pub fn complete(
        &mut self,
        now: Time,
        stream: u32,
        operation: Operation,
        bytes: u32,
        latency: Time,
    ) -> bool {
        let direction = match operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Trim | Operation::Flush => 2,
        };
        let bytes = u64::from(bytes);
        self.total_bytes[direction] += bytes;
        self.total_ios += 1;
        self.end = now;
        if !self.has_begun {
            self.skip = self.skip.saturating_sub(1);
            self.begin = now;
            self.has_begun = self.skip == 0 && now >= self.ramp_end;
            return self.has_begun;
        }
        let counts = &mut self.directions[direction];
        counts.ios += 1;
        counts.bytes += bytes;
        counts.latency.record(latency);
        let own = &mut self.streams[stream as usize];
        own.0 += 1;
        own.1 += bytes;
        self.open.ios += 1;
        match direction {
            0 => self.open.read_bytes += bytes,
            1 => self.open.write_bytes += bytes,
            _ => {}
        }
        if self.open.ios >= self.batch {
            self.close_batch(now);
        }
        false
    }

    fn close_batch(&mut self, now: Time) {
        self.open.end_ns = now - self.begin;
        self.batches.push(self.open);
        self.open = Sample::default();
        let interval = now - self.begin;
        let lasts = interval >= self.stop.max_interval_ns;
        self.is_done = lasts || (interval >= self.stop.min_interval_ns && self.is_steady());
        if self.batches.len() >= MAX_BATCHES {
            self.batch *= 2;
            self.batches = self
                .batches
                .chunks(2)
                .map(|pair| pair.iter().copied().reduce(joined).unwrap_or_default())
                .collect();
        }
    }

    /// Whether the rate is known.
    fn is_steady(&self) -> bool {
        let n = self.batches.len();
        if n < MIN_BATCHES || self.stop.precision <= 0.0 {
            return false;
        }
        let mut last = 0;
        let times: Vec<f64> = self
            .batches
            .iter()
            .map(|batch| {
                let time = batch.end_ns - last;
                last = batch.end_ns;
                time as f64
            })
            .collect();
        let mean = times.iter().sum::<f64>() / n as f64;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
        // Student's t at 97.5 % is 2.26 for ten batches and falls to 1.96.
        let half_width = (1.96 + 2.7 / (n as f64 - 1.0)) * (variance / n as f64).sqrt();
        let halves: [f64; 2] = [times[..n / 2].iter().sum::<f64>() / (n / 2) as f64, {
            times[n - n / 2..].iter().sum::<f64>() / (n / 2) as f64
        }];
        half_width <= self.stop.precision * mean
            && (halves[0] - halves[1]).abs() <= 2.0 * self.stop.precision * mean
    }

    /// The interval, nanoseconds.
    pub fn interval_ns(&self) -> Time {
        self.end - self.begin
    }
}

/// Two batches in a row as one.
fn joined(a: Sample, b: Sample) -> Sample {
    Sample {
        end_ns: b.end_ns,
        read_bytes: a.read_bytes + b.read_bytes,
        write_bytes: a.write_bytes + b.write_bytes,
        ios: a.ios + b.ios,
    }
}
