//! What one thread counts, and when.

use measure::Histogram;
use measure::record::Sample;
use storage::clock::Clock;
use storage::usage::{self, Usage};

use super::conduct::{ByPriority, Conduct, FloorWatch, TooSlow, merge_priorities};
use super::log::{Completion, Log, Logger};
use super::steady::Seen;

/// A direction, as an index into counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Read = 0,
    Write = 1,
    Trim = 2,
}

/// Bytes, requests and latencies of one direction.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub bytes: u64,
    pub ios: u64,
    pub latency: Histogram,
    /// The latencies once more, by the priority of the requests, where some have one of their own.
    pub by_priority: ByPriority,
}

/// The steps of a thread's progress, in time of the measured interval.
#[derive(Debug)]
struct Steps {
    length: u64,
    origin: u64,
    next: u64,
    at_last: [u64; 3],
    /// Steps that make a sample: one, and twice as many each time that the samples become too many. The
    /// steps themselves stay as they are, because the live view lives on them.
    per_sample: u32,
    /// Steps that are in the sample being made.
    in_open: u32,
    open: Sample,
    samples: Vec<Sample>,
}

/// Counts of the three directions.
pub(super) type Directions = [Counts; 3];

fn add(total: &mut Directions, part: &Directions) {
    for (total, part) in total.iter_mut().zip(part) {
        total.bytes += part.bytes;
        total.ios += part.ios;
        total.latency.merge(&part.latency);
        merge_priorities(&mut total.by_priority, &part.by_priority);
    }
}

/// Everything that one thread counted.
#[derive(Debug)]
pub(super) struct Tally {
    clock: Clock,
    /// Of the phase under way.
    pub current: Directions,
    /// Of the measured interval, once it is over.
    measured: Option<Directions>,
    /// Of what came before the interval.
    before: Directions,
    steps: Steps,
    started: u64,
    began: Option<u64>,
    ended: Option<u64>,
    usage_at_first: Usage,
    usage_at_start: Usage,
    usage: Usage,
    /// CPUs on which the thread was at the interval's ends.
    seen_on: Vec<u32>,
    /// The log being written, until the interval ends.
    logger: Option<Box<Logger>>,
    log: Option<Log>,
    floor: Option<Box<FloorWatch>>,
    has_restarted: bool,
}

/// One thread's counts, when all is over.
#[derive(Debug)]
pub(super) struct Summary {
    /// Of the measured interval; of the whole run where there was none.
    pub measured: Directions,
    /// Of the whole run.
    pub total: Directions,
    /// Ticks at which the thread began and ended.
    pub started: u64,
    pub closed: u64,
    /// Ticks at which the measured counts begin and end.
    pub began: u64,
    pub ended: u64,
    /// CPU time in the measured interval.
    pub usage: Usage,
    /// Likewise in the whole run.
    pub usage_of_all: Usage,
    /// CPUs on which the thread was at the interval's ends.
    pub seen_on: Vec<u32>,
    pub samples: Vec<Sample>,
    /// Where one was asked for: of the measured interval; of the whole run where there was none.
    pub log: Option<Log>,
    /// The interval is the thread's own: it began later than what was seen beside.
    pub has_restarted: bool,
}

impl Summary {
    /// Counts the whole run in the place of the interval.
    pub fn count_whole(&mut self, clock: Clock) {
        self.measured = self.total.clone();
        self.usage = self.usage_of_all;
        self.samples = vec![whole(&self.total, clock.nanoseconds(self.closed.saturating_sub(self.started)))];
        (self.began, self.ended) = (self.started, self.closed);
    }
}

/// All that was done as one sample.
fn whole(done: &Directions, end_ns: u64) -> Sample {
    Sample {
        end_ns,
        read_bytes: done[0].bytes,
        write_bytes: done[1].bytes + done[2].bytes,
        ios: done.iter().map(|counts| counts.ios).sum(),
    }
}

/// At most this many samples a run.
const MAX_SAMPLES: u64 = 1000;

impl Tally {
    /// For a thread that `started` at these ticks and runs for about `expected_ns`. A step is at least 10 ms, so that
    /// looking costs nothing, and at most 100 ms, so that a run of hours is seen to go on, and has its shape if it ends
    /// early.
    pub fn new(clock: Clock, started: u64, expected_ns: u64) -> Self {
        let step_ns = (expected_ns / MAX_SAMPLES).clamp(10_000_000, 100_000_000);
        Self {
            clock,
            current: Directions::default(),
            measured: None,
            before: Directions::default(),
            steps: Steps {
                length: clock.ticks(std::time::Duration::from_nanos(step_ns)).max(1),
                origin: 0,
                next: u64::MAX,
                at_last: [0; 3],
                per_sample: 1,
                in_open: 0,
                open: Sample::default(),
                samples: Vec::new(),
            },
            started,
            began: None,
            ended: None,
            usage_at_first: usage::thread(),
            usage_at_start: usage::thread(),
            usage: Usage::default(),
            seen_on: Vec::new(),
            logger: None,
            log: None,
            floor: None,
            has_restarted: false,
        }
    }

    /// With what a job is to do beside its workload.
    pub fn with(mut self, conduct: &Conduct) -> Self {
        self.logger = conduct.log.map(|plan| Box::new(Logger::new(plan)));
        self.floor = conduct.floor.map(|floor| Box::new(FloorWatch::new(floor)));
        self
    }

    /// Whether requests are noted.
    #[inline]
    pub fn logs(&self) -> bool {
        self.logger.is_some()
    }

    /// Notes a request that completed at `now`.
    #[inline(never)]
    pub fn log(&mut self, now: u64, done: Completion) {
        let now_ns = self.clock.nanoseconds(now.saturating_sub(self.began.unwrap_or(self.started)));
        if let Some(logger) = &mut self.logger {
            logger.add(now_ns, done);
        }
    }

    /// The rate that the thread has fallen below, if there is one.
    #[inline]
    pub fn broken_floor(&mut self, now: u64) -> Option<TooSlow> {
        let (Some(floor), Some(began), None) = (&mut self.floor, self.began, self.ended) else { return None };
        floor.look(self.clock.nanoseconds(now.saturating_sub(began)), &self.current)
    }

    /// What the thread has done up to now.
    pub fn seen(&self, now: u64) -> Seen {
        let sum = |counts: &Counts| counts.latency.mean() * counts.latency.count() as f64;
        Seen {
            at_ns: self.clock.nanoseconds(now.saturating_sub(self.started)),
            bytes: self.current.iter().map(|counts| counts.bytes).sum(),
            ios: self.current.iter().map(|counts| counts.ios).sum(),
            latency_ns: self.current.iter().map(sum).sum(),
        }
    }

    /// Whether the measured interval is under way.
    pub fn is_measuring(&self) -> bool {
        self.began.is_some() && self.ended.is_none()
    }

    /// The measured interval begins for this thread.
    #[cold]
    pub fn begin(&mut self, now: u64) {
        self.before = std::mem::take(&mut self.current);
        self.steps.origin = now;
        self.steps.next = now + self.steps.length;
        self.began = Some(now);
        if let Some(logger) = &mut self.logger {
            logger.restart();
        }
        self.seen_on.extend(usage::current_cpu());
        self.usage_at_start = usage::thread();
    }

    /// The measured interval begins again for this thread: what was counted in it so far belongs to the time before.
    #[cold]
    pub fn restart(&mut self, now: u64) {
        let counted = std::mem::take(&mut self.current);
        add(&mut self.before, &counted);
        let steps = &mut self.steps;
        (steps.origin, steps.next, steps.at_last) = (now, now + steps.length, [0; 3]);
        (steps.per_sample, steps.in_open, steps.open) = (1, 0, Sample::default());
        steps.samples.clear();
        (self.began, self.has_restarted) = (Some(now), true);
        if let Some(logger) = &mut self.logger {
            logger.restart();
        }
        if let Some(floor) = &mut self.floor {
            floor.restart();
        }
        self.usage_at_start = usage::thread();
    }

    /// The measured interval ends for this thread.
    #[cold]
    pub fn end(&mut self, now: u64) {
        self.usage = usage::thread().since(self.usage_at_start);
        self.seen_on.extend(usage::current_cpu());
        self.seen_on.dedup();
        self.ended = Some(now);
        self.close_log(now);
        self.step(now);
        self.close_sample();
        self.steps.next = u64::MAX;
        self.measured = Some(std::mem::take(&mut self.current));
    }

    fn close_log(&mut self, now: u64) {
        let now_ns = self.clock.nanoseconds(now.saturating_sub(self.began.unwrap_or(self.started)));
        if let Some(logger) = self.logger.take() {
            self.log = Some(logger.close(now_ns));
        }
    }

    /// Whether a step is over.
    #[inline]
    pub fn step_is_due(&self, now: u64) -> bool {
        now >= self.steps.next
    }

    /// Closes the step that ends now and returns bytes and requests in it.
    #[cold]
    pub fn step(&mut self, now: u64) -> (u64, u64) {
        let ios: u64 = self.current.iter().map(|c| c.ios).sum();
        let reads = self.current[0].bytes;
        let writes = self.current[1].bytes + self.current[2].bytes;
        let [last_reads, last_writes, last_ios] = self.steps.at_last;
        let sample = Sample {
            end_ns: self.clock.nanoseconds(now - self.steps.origin),
            read_bytes: reads - last_reads,
            write_bytes: writes - last_writes,
            ios: ios - last_ios,
        };
        let steps = &mut self.steps;
        steps.at_last = [reads, writes, ios];
        steps.open = Sample {
            end_ns: sample.end_ns,
            read_bytes: steps.open.read_bytes + sample.read_bytes,
            write_bytes: steps.open.write_bytes + sample.write_bytes,
            ios: steps.open.ios + sample.ios,
        };
        steps.in_open += 1;
        steps.next = now + steps.length;
        if steps.in_open >= steps.per_sample {
            self.close_sample();
        }
        (sample.read_bytes + sample.write_bytes, sample.ios)
    }

    /// Puts the sample being made to the others, if there is anything in it.
    fn close_sample(&mut self) {
        if self.steps.in_open == 0 {
            return;
        }
        self.steps.samples.push(std::mem::take(&mut self.steps.open));
        self.steps.in_open = 0;
        if self.steps.samples.len() as u64 >= 2 * MAX_SAMPLES {
            self.halve();
        }
    }

    /// Joins neighbouring samples, for runs that last longer than expected.
    fn halve(&mut self) {
        let joined = self.steps.samples.chunks(2).map(|pair| Sample {
            end_ns: pair[pair.len() - 1].end_ns,
            read_bytes: pair.iter().map(|s| s.read_bytes).sum(),
            write_bytes: pair.iter().map(|s| s.write_bytes).sum(),
            ios: pair.iter().map(|s| s.ios).sum(),
        });
        self.steps.samples = joined.collect();
        self.steps.per_sample = self.steps.per_sample.saturating_mul(2);
    }

    /// Closes the books at `now`. A run too short to have an interval of its own is counted whole.
    pub fn close(mut self, now: u64) -> Summary {
        if self.is_measuring() {
            self.end(now);
        }
        self.close_log(now);
        let mut total = std::mem::take(&mut self.before);
        add(&mut total, &self.current);
        let usage_of_all = usage::thread().since(self.usage_at_first);
        let (Some(measured), Some(began), Some(ended)) = (self.measured, self.began, self.ended) else {
            let usage = usage_of_all;
            let measured = self.current;
            // A thread that was done before the interval opened still shows when it did its share.
            let whole = whole(&measured, self.clock.nanoseconds(now.saturating_sub(self.started)));
            return Summary {
                measured,
                total,
                started: self.started,
                closed: now,
                began: self.started,
                ended: now,
                usage,
                usage_of_all,
                seen_on: self.seen_on,
                samples: vec![whole],
                log: self.log,
                has_restarted: self.has_restarted,
            };
        };
        add(&mut total, &measured);
        Summary {
            measured,
            total,
            started: self.started,
            closed: now,
            began,
            ended,
            usage: self.usage,
            usage_of_all,
            seen_on: self.seen_on,
            samples: self.steps.samples,
            log: self.log,
            has_restarted: self.has_restarted,
        }
    }
}

/// The samples of several threads on one grid of equal steps: each thread's counts are spread evenly
/// over the time that they cover.
pub(super) fn merge_samples(threads: &[&[Sample]], interval_ns: u64) -> Vec<Sample> {
    let longest = threads.iter().map(|t| t.len()).max().unwrap_or(0) as u64;
    let steps = longest.min(MAX_SAMPLES);
    if steps == 0 || interval_ns == 0 {
        return Vec::new();
    }
    let width = interval_ns as f64 / steps as f64;
    let mut grid = vec![[0.0_f64; 3]; steps as usize];
    for samples in threads {
        let mut start = 0.0;
        for sample in *samples {
            let end = sample.end_ns as f64;
            spread(&mut grid, width, start, end, sample);
            start = end;
        }
    }
    grid.iter()
        .enumerate()
        .map(|(i, [reads, writes, ios])| Sample {
            end_ns: ((i + 1) as f64 * width) as u64,
            read_bytes: reads.round() as u64,
            write_bytes: writes.round() as u64,
            ios: ios.round() as u64,
        })
        .collect()
}

fn spread(grid: &mut [[f64; 3]], width: f64, start: f64, end: f64, sample: &Sample) {
    let values = [sample.read_bytes as f64, sample.write_bytes as f64, sample.ios as f64];
    let last = grid.len() - 1;
    let length = end - start;
    let first_cell = ((start / width) as usize).min(last);
    if length <= 0.0 {
        // A step shorter than the clock resolves still has its bytes.
        grid[first_cell].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        return;
    }
    let last_cell = ((end / width) as usize).min(last);
    for (cell, sums) in grid.iter_mut().enumerate().take(last_cell + 1).skip(first_cell) {
        let from = start.max(cell as f64 * width);
        // What a thread did after the common interval falls into the last cell.
        let to = if cell == last { end } else { end.min((cell + 1) as f64 * width) };
        let part = ((to - from) / length).max(0.0);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value * part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_samples_keep_every_byte() {
        let step = |end_ns, read_bytes| Sample { end_ns, read_bytes, write_bytes: 0, ios: 1 };
        let a = [step(10, 100), step(20, 100), step(35, 150)];
        let b = [step(12, 120), step(30, 180)];
        let merged = merge_samples(&[&a, &b], 30);
        assert_eq!(merged.iter().map(|s| s.read_bytes).sum::<u64>(), 650);
        assert_eq!(merged.last().map(|s| s.end_ns), Some(30));
        // Both moved 10 bytes a nanosecond, so every cell but the overhanging last one holds 200.
        assert_eq!(merged[0].read_bytes, 200);
    }

    #[test]
    fn a_step_without_length_keeps_its_bytes() {
        let step = |end_ns, read_bytes| Sample { end_ns, read_bytes, write_bytes: 0, ios: 1 };
        let merged = merge_samples(&[&[step(0, 7), step(20, 100)], &[step(20, 100), step(20, 5)]], 20);
        assert_eq!(merged.iter().map(|s| s.read_bytes).sum::<u64>(), 212);
    }

    #[test]
    fn a_thread_that_was_done_before_the_interval_opened_has_a_sample() {
        let mut tally = Tally::new(Clock::get(), Clock::get().now(), 1_000_000);
        tally.current[0].bytes = 4096;
        tally.current[0].ios = 1;
        let summary = tally.close(Clock::get().now());
        assert_eq!(summary.measured[0].bytes, 4096);
        assert_eq!(summary.samples.iter().map(|s| s.read_bytes).sum::<u64>(), 4096);
    }

    #[test]
    fn what_came_before_an_interval_in_which_nothing_was_done_can_be_counted() {
        let mut tally = Tally::new(Clock::get(), Clock::get().now(), 1_000_000);
        tally.current[1] = Counts { bytes: 8192, ios: 2, ..Counts::default() };
        tally.begin(Clock::get().now());
        tally.end(Clock::get().now());
        let mut summary = tally.close(Clock::get().now());
        assert_eq!((summary.measured[1].ios, summary.total[1].ios), (0, 2));
        summary.count_whole(Clock::get());
        assert_eq!((summary.measured[1].ios, summary.measured[1].bytes), (2, 8192));
        assert_eq!((summary.began, summary.ended), (summary.started, summary.closed));
        assert_eq!(summary.samples.iter().map(|sample| sample.write_bytes).sum::<u64>(), 8192);
    }

    #[test]
    fn a_run_much_longer_than_expected_keeps_its_bytes_in_no_more_than_twice_the_samples() {
        let mut tally = Tally::new(Clock::get(), Clock::get().now(), 1);
        tally.begin(0);
        let (steps, length) = (40 * MAX_SAMPLES, tally.steps.length);
        for step in 1..=steps {
            tally.current[1].bytes += 4096;
            assert_eq!(tally.step(step * length), (4096, 0), "each step is told");
        }
        tally.end((steps + 1) * length);
        let samples = &tally.steps.samples;
        assert_eq!(samples.iter().map(|s| s.write_bytes).sum::<u64>(), steps * 4096);
        assert!((MAX_SAMPLES..2 * MAX_SAMPLES).contains(&(samples.len() as u64)), "{}", samples.len());
        assert!(samples.windows(2).all(|pair| pair[0].end_ns < pair[1].end_ns));
    }

    #[test]
    fn no_samples_merge_to_none() {
        assert!(merge_samples(&[&[], &[]], 100).is_empty());
    }
}
