//! How long the rest will take.

use std::time::Duration;

use crate::model::Point;
use crate::plan::{OVERHEAD_PER_RUN, Plan};

/// Time still to be measured, and what a step costs beyond it: of this session as soon as it has
/// finished a step, of earlier ones before that, a guess before any.
pub(super) struct Pace {
    nominal_left: Duration,
    steps_left: u32,
    /// Steps left whose length is not known beforehand.
    unbounded_left: u32,
    finished: u32,
    /// Sum over the finished steps of what they took beyond `runtime` and `ramp_time`.
    beyond: Duration,
    overhead_before: Duration,
    /// The time that is left at most, where blocks run until a decision.
    at_most: Option<Duration>,
}

impl Pace {
    /// `missing` are the points of the runs that are left.
    pub fn new(plan: &Plan, missing: &[u32], overhead: Option<Duration>) -> Self {
        let mut pace = Self {
            nominal_left: Duration::ZERO,
            steps_left: 0,
            unbounded_left: 0,
            finished: 0,
            beyond: Duration::ZERO,
            overhead_before: overhead.unwrap_or(OVERHEAD_PER_RUN),
            at_most: None,
        };
        for point in missing {
            let point = &plan.points[*point as usize];
            pace.nominal_left += nominal(point);
            pace.unbounded_left += u32::from(point.workload.runtime.is_none());
            pace.steps_left += 1;
        }
        pace
    }

    /// Says how much time is left at most, in the place of an estimate.
    pub fn set_time_left(&mut self, left: Duration) {
        self.at_most = Some(left);
    }

    /// A step was stored, and took this long from its announcement until then.
    pub fn finished(&mut self, point: &Point, took: Duration) {
        self.skipped(point);
        self.finished += 1;
        self.beyond += took.saturating_sub(nominal(point));
    }

    /// A step will not be made in this session, or failed.
    pub fn skipped(&mut self, point: &Point) {
        self.nominal_left = self.nominal_left.saturating_sub(nominal(point));
        self.unbounded_left = self.unbounded_left.saturating_sub(u32::from(point.workload.runtime.is_none()));
        self.steps_left = self.steps_left.saturating_sub(1);
    }

    /// The estimate; none while it would rest on nothing.
    pub fn time_left(&self) -> Option<Duration> {
        if let Some(left) = self.at_most {
            return Some(left);
        }
        if self.finished == 0 && self.unbounded_left > 0 {
            return None;
        }
        let overhead = match self.finished {
            0 => self.overhead_before,
            finished => self.beyond / finished,
        };
        Some(self.nominal_left.saturating_add(overhead.saturating_mul(self.steps_left)))
    }
}

fn nominal(point: &Point) -> Duration {
    point.workload.runtime.unwrap_or_default().saturating_add(point.workload.ramp_time)
}
