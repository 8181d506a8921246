//! Writes a target until it has lost its freshness: SNIA's write-saturation test.
//!
//! One run, without a gap, of the workload given; it ends when enough was written, when the time is up, or
//! when the drive is steady. Steady at the start it always is, on its pre-erased blocks, so the rule of five
//! rounds is asked only after twice the region has been written. What the curve says is for
//! [`measure::saturation`] to judge, from the record alone.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use measure::precondition::Purged;
use measure::saturation::{Ended, ROUND, Saturation, analyse};
use measure::stats::steady::{WINDOW, steady_over};
use measure::workload::Rw;
use measure::{RunRecord, Workload};

use crate::problem::Problem;
use crate::run::{Progress, RunOptions};
use crate::target::BenchTarget;

/// The region has been written so often before a steady state is believed.
const BEFORE_STEADY: u64 = 2;

/// How long to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Write this many times the region, SNIA: 4.
    pub capacities: u32,
    /// But no longer than this, SNIA: a day.
    pub time: Duration,
    /// End before that, once it is steady.
    pub until_steady: bool,
    /// Length of a round, SNIA: a minute.
    pub round: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self { capacities: 4, time: Duration::from_secs(86_400), until_steady: true, round: ROUND }
    }
}

/// How it goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// What happened in the last second.
    pub progress: Progress,
    /// Bytes written so far.
    pub written_bytes: u64,
    /// Bytes after which it ends.
    pub until_bytes: u64,
}

/// SNIA's workload where nothing else is asked for: 4 KiB writes at offsets drawn afresh, depth 32.
#[must_use]
pub fn workload() -> Workload {
    Workload { rw: Rw::RandWrite, bs: 4096, iodepth: 32, norandommap: true, ..Workload::default() }
}

/// Runs it. `purge` is what was done before, for the result.
///
/// # Errors
/// [`Problem`]; a wish to stop is none, but ends the curve.
pub fn run(
    target: &mut BenchTarget,
    workload: &Workload,
    plan: &Plan,
    purge: Option<Purged>,
    stop: &AtomicBool,
    tell: &dyn Fn(&Seen),
) -> Result<(RunRecord, Saturation), Problem> {
    let region_bytes = target.region_bytes(workload)?;
    let workload = Workload { runtime: Some(plan.time), time_based: true, ..workload.clone() };
    let meter = Meter::new(plan, region_bytes);
    let enough = AtomicBool::new(false);
    let progress = |progress: &Progress| {
        tell(&meter.take(progress));
        if stop.load(Ordering::Relaxed) {
            meter.ended.set(Ended::Interrupted);
        } else if let Some(ended) = meter.reason() {
            meter.ended.set(ended);
        } else {
            return;
        }
        enough.store(true, Ordering::Relaxed);
    };
    let options =
        RunOptions { stop: Some(&enough), progress: Some(&progress), pass: 1, ..RunOptions::default() };
    let outcome = target.run_once(&workload, options)?;
    let record = outcome.records.into_iter().next().expect("one job gives one record");
    let saturation = analyse(&record, region_bytes, purge, meter.ended.get(), plan.round);
    Ok((record, saturation))
}

/// What was written so far, and whether that is enough.
struct Meter {
    until_bytes: u64,
    steady_from: Option<u64>,
    round: Duration,
    written: Cell<u64>,
    /// Time and bytes of the round under way.
    open: Cell<(Duration, u64)>,
    /// Bytes a second of the rounds that are over.
    rounds: RefCell<Vec<f64>>,
    ended: Cell<Ended>,
}

impl Meter {
    fn new(plan: &Plan, region_bytes: u64) -> Self {
        Self {
            until_bytes: region_bytes.saturating_mul(u64::from(plan.capacities.max(1))),
            steady_from: plan.until_steady.then(|| region_bytes.saturating_mul(BEFORE_STEADY)),
            round: plan.round,
            written: Cell::new(0),
            open: Cell::new((Duration::ZERO, 0)),
            rounds: RefCell::new(Vec::new()),
            ended: Cell::new(Ended::Time),
        }
    }

    fn take(&self, progress: &Progress) -> Seen {
        self.written.set(self.written.get() + progress.bytes);
        let (time, bytes) = self.open.get();
        let (time, bytes) = (time + progress.step, bytes + progress.bytes);
        if time >= self.round {
            self.rounds.borrow_mut().push(bytes as f64 / time.as_secs_f64().max(1e-9));
            self.open.set((Duration::ZERO, 0));
        } else {
            self.open.set((time, bytes));
        }
        Seen { progress: *progress, written_bytes: self.written.get(), until_bytes: self.until_bytes }
    }

    /// Why it is enough, if it is.
    fn reason(&self) -> Option<Ended> {
        let written = self.written.get();
        if written >= self.until_bytes {
            return Some(Ended::Capacity);
        }
        let rounds = self.rounds.borrow();
        let window = rounds.len().checked_sub(WINDOW).map(|first| &rounds[first..])?;
        let late = self.steady_from.is_some_and(|from| written >= from);
        (late && steady_over(window).is_steady()).then_some(Ended::Steady)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Second by second, at these rates, until it is enough; the seconds that it took, and why.
    fn watched(plan: &Plan, region: u64, rate: impl Fn(u64) -> u64) -> (u64, Option<Ended>) {
        let meter = Meter::new(plan, region);
        for second in 0..1000 {
            let step = Duration::from_secs(1);
            meter.take(&Progress { measuring: None, step, bytes: rate(second), ios: 1 });
            if let Some(ended) = meter.reason() {
                return (second + 1, Some(ended));
            }
        }
        (1000, None)
    }

    #[test]
    fn it_ends_with_the_bytes_asked_for_or_once_steady_after_two_regions() {
        let plan = Plan { round: Duration::from_secs(10), ..Plan::default() };
        let falling = |second: u64| 1000 - second.min(900);
        // Never steady: four regions of 10,000 are over when 40,000 are written.
        let (seconds, ended) = watched(&plan, 10_000, falling);
        assert_eq!(ended, Some(Ended::Capacity));
        assert!((40..50).contains(&seconds), "{seconds}");
        // Steady throughout, but believed only after 200,000.
        let (seconds, ended) = watched(&plan, 100_000, |_| 1000);
        assert_eq!((seconds, ended), (200, Some(Ended::Steady)));
        let whole = Plan { until_steady: false, ..plan };
        assert_eq!(watched(&whole, 100_000, |_| 1000), (400, Some(Ended::Capacity)));
        assert_eq!(watched(&plan, 1 << 40, |_| 1000), (1000, None));
    }
}
