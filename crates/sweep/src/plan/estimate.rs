//! How long a plan will take, before it has run.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::Point;
use crate::plan::Plan;

/// Time between the measured parts of two runs, before any has been measured: opening the engine,
/// filling the queue, draining it, reading the counters, and committing the record durably. Once
/// runs are stored their own figures take its place ([`crate::store::Store::overhead`]).
pub const OVERHEAD_PER_RUN: Duration = Duration::from_millis(150);

/// How long the steps of a plan will take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Sum over the steps whose length is known from their `runtime` and `ramp_time`.
    pub time: Duration,
    /// Steps that end when their `size` has been moved, so that nobody can know how long they take;
    /// only their overhead is in `time`.
    pub unbounded: usize,
}

impl Estimate {
    /// The time that runs of these points take one after the other.
    pub fn of<'a>(points: impl IntoIterator<Item = &'a Point>, overhead: Duration) -> Self {
        let mut estimate = Self { time: Duration::ZERO, unbounded: 0 };
        for point in points {
            let measured = match point.workload.runtime {
                Some(runtime) => runtime,
                None => {
                    estimate.unbounded += 1;
                    Duration::ZERO
                }
            };
            let one = measured.saturating_add(point.workload.ramp_time).saturating_add(overhead);
            estimate.time = estimate.time.saturating_add(one);
        }
        estimate
    }
}

/// What a plan changes below its points.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Times that something is built: arrays, file systems, data on them.
    pub constructions: usize,
    /// Times that only settings change between two steps, which takes milliseconds.
    pub cheap: usize,
}

impl Plan {
    /// What changes between the steps; nothing where no point has a layout. Their time is in no estimate: what
    /// making a file system and laying data takes is known to the drives only.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        if !self.rules.protocol.is_planned_ahead() {
            let members = self.members.iter().map(|id| &self.points[*id as usize]);
            let built: BTreeSet<String> = members.filter_map(Point::construction).collect();
            return Changes { constructions: built.len(), ..changes };
        }
        let mut before: Option<&Point> = None;
        for step in self.steps() {
            let point = &self.points[step.planned.point as usize];
            match before.filter(|_| !point.layout.is_empty()) {
                None => changes.constructions += usize::from(!point.layout.is_empty()),
                Some(before) if before.construction() != point.construction() => changes.constructions += 1,
                Some(before) => changes.cheap += usize::from(before.layout != point.layout),
            }
            before = Some(point);
        }
        changes
    }

    /// Time in which the runs of the space measure, ramps and controls not counted.
    #[must_use]
    pub fn measuring(&self) -> Duration {
        let runs = self.runs.iter().map(|planned| &self.points[planned.point as usize]);
        runs.filter_map(|point| point.workload.runtime).sum()
    }

    /// How long the whole plan takes, controls included, with `overhead` between two runs; where no plan is drawn ahead
    /// how long one block of each work takes, without pauses.
    #[must_use]
    pub fn estimate(&self, overhead: Duration) -> Estimate {
        if !self.rules.protocol.is_planned_ahead() {
            return Estimate::of(self.members.iter().map(|id| &self.points[*id as usize]), overhead);
        }
        let all = self.runs.iter().chain(&self.controls);
        Estimate::of(all.map(|planned| &self.points[planned.point as usize]), overhead)
    }
}
