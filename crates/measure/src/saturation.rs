//! A drive's write rate from fresh to steady: the write-saturation curve, and what it says.
//!
//! SNIA's *write saturation* test (WSAT) purges a drive and writes it at random, 4 KiB at a time, for
//! several times its capacity; Figure 1 of the Cray paper on flash file systems is such a curve. [`analyse`]
//! takes the record of that one long run and says how much was written before the rate fell for good
//! ([`crate::stats::knee`]), and whether a steady state came after ([`mod@crate::stats::steady`]). It is a pure
//! function of the record, so a curve that was stored can be judged again.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::precondition::Purged;
use crate::record::RunRecord;
use crate::stats::knee::{Curve, FEWEST_POINTS, curve};
use crate::stats::steady::{Steadiness, WINDOW, steady};

/// SNIA's round.
pub const ROUND: Duration = Duration::from_secs(60);
/// SNIA's most rounds.
pub const MOST_ROUNDS: u32 = 25;
/// A round shorter than this shows the scheduler.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);

/// Why the writing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// As many bytes were written as were asked for.
    Capacity,
    /// Five rounds obeyed SNIA's rule, after twice the region had been written.
    Steady,
    /// The time was up.
    Time,
    /// Somebody asked to stop.
    Interrupted,
}

/// A point of the curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// End of the step, nanoseconds after the start.
    pub end_ns: u64,
    /// Bytes written from the start to here.
    pub written_bytes: u64,
    /// Bytes a second in the step.
    pub bandwidth_bytes_per_s: f64,
    /// Requests a second in the step.
    pub iops: f64,
}

/// The fall for good, in a user's terms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cliff {
    /// Bytes written before it.
    pub written_bytes: u64,
    /// The same as a multiple of the region.
    pub of_region: f64,
    /// Nanoseconds after the start.
    pub at_ns: u64,
    /// Bytes a second before it.
    pub before_bytes_per_s: f64,
    /// Bytes a second in the lowest part after it.
    pub bottom_bytes_per_s: f64,
    /// Bytes a second in all that came after it.
    pub after_bytes_per_s: f64,
}

/// A write-saturation curve and what it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// The part of the target that was written, bytes.
    pub region_bytes: u64,
    /// The purge before, where there was one.
    pub purge: Option<Purged>,
    /// Why it ended.
    pub ended: Ended,
    /// Bytes written, as far as the curve goes.
    pub written_bytes: u64,
    /// How long the curve is, nanoseconds.
    pub elapsed_ns: u64,
    /// The curve, in steps of equal length.
    pub points: Vec<Point>,
    /// Its segments and the step of its knee.
    pub shape: Curve,
    /// The fall for good; none where the rate never fell so.
    pub cliff: Option<Cliff>,
    /// Length of the rounds that the steady state is judged by, nanoseconds.
    pub round_ns: u64,
    /// SNIA's rule over the rounds after the cliff, or over all where there is none.
    pub steadiness: Steadiness,
    /// Bytes a second in the steady window, where there is one.
    pub steady_bytes_per_s: Option<f64>,
    /// Requests a second there.
    pub steady_iops: Option<f64>,
}

impl Saturation {
    /// Whether the curve is long enough to have a shape at all.
    #[must_use]
    pub fn has_shape(&self) -> bool {
        self.shape.points >= FEWEST_POINTS && !self.shape.segments.is_empty()
    }
}

/// Judges the curve in `record`, of a run that wrote a region of `region_bytes`, in rounds of `round`, or of
/// a 25th of the run where that is shorter.
#[must_use]
pub fn analyse(
    record: &RunRecord,
    region_bytes: u64,
    purge: Option<Purged>,
    ended: Ended,
    round: Duration,
) -> Saturation {
    let points = points(record);
    let (written_bytes, elapsed_ns) = points.last().map_or((0, 0), |p| (p.written_bytes, p.end_ns));
    let rates: Vec<f64> = points.iter().map(|p| p.bandwidth_bytes_per_s).collect();
    let shape = curve(&rates);
    let cliff = shape.knee.map(|knee| {
        // `at` is the first step after the knee, and there is one before it.
        let last = points[knee.at - 1];
        Cliff {
            written_bytes: last.written_bytes,
            of_region: last.written_bytes as f64 / region_bytes.max(1) as f64,
            at_ns: last.end_ns,
            before_bytes_per_s: knee.before,
            bottom_bytes_per_s: knee.bottom,
            after_bytes_per_s: knee.after,
        }
    });
    let round = round.min(Duration::from_nanos(elapsed_ns) / MOST_ROUNDS).max(SHORTEST_ROUND);
    let round_ns = u64::try_from(round.as_nanos()).unwrap_or(u64::MAX);
    let first = shape.knee.map_or(0, |knee| knee.at);
    let rounds = by_round(&points[first..], first.checked_sub(1).map(|at| points[at]), round_ns);
    let steadiness = steady(&rounds.iter().map(|r| r.0).collect::<Vec<_>>());
    let window = rounds.iter().skip(steadiness.window_first).take(WINDOW);
    let steady_iops = window.map(|r| r.1).sum::<f64>() / WINDOW as f64;
    Saturation {
        region_bytes,
        purge,
        ended,
        written_bytes,
        elapsed_ns,
        shape,
        cliff,
        round_ns,
        steadiness,
        steady_bytes_per_s: steadiness.mean.filter(|_| steadiness.is_steady()),
        steady_iops: steadiness.is_steady().then_some(steady_iops),
        points,
    }
}

/// The record's samples as rates. A last step that the run's end cut to less than half belongs to none.
fn points(record: &RunRecord) -> Vec<Point> {
    let first_ns = record.samples.first().map_or(0, |sample| sample.end_ns);
    let (mut start_ns, mut written_bytes) = (0, 0);
    let mut points = Vec::with_capacity(record.samples.len());
    for sample in &record.samples {
        let length_ns = sample.end_ns.saturating_sub(start_ns);
        start_ns = sample.end_ns;
        if length_ns == 0 || length_ns < first_ns / 2 {
            continue;
        }
        written_bytes += sample.write_bytes;
        let seconds = length_ns as f64 / 1e9;
        points.push(Point {
            end_ns: sample.end_ns,
            written_bytes,
            bandwidth_bytes_per_s: sample.write_bytes as f64 / seconds,
            iops: sample.ios as f64 / seconds,
        });
    }
    points
}

/// Mean bytes and requests a second in each whole round of `round_ns`, the steps of which end in it.
fn by_round(points: &[Point], before: Option<Point>, round_ns: u64) -> Vec<(f64, f64)> {
    let begun = before.map_or(0, |p| p.end_ns);
    let mut rounds = Vec::new();
    let (mut start, mut last) = (begun, begun);
    let (mut bytes, mut ios) = (0.0, 0.0);
    for point in points {
        let seconds = (point.end_ns - last) as f64 / 1e9;
        bytes += point.bandwidth_bytes_per_s * seconds;
        ios += point.iops * seconds;
        last = point.end_ns;
        if last - start >= round_ns {
            let length = (last - start) as f64 / 1e9;
            rounds.push((bytes / length, ios / length));
            (start, bytes, ios) = (last, 0.0, 0.0);
        }
    }
    rounds
}
