//! Two levels of checkpoints: a fast one that most failures leave alone, and a slow one that survives them all.
//!
//! A failure loses the fast level with a given share; then work goes on from the last checkpoint of the slow level.
//! Benoit et al. (IEEE TC 66(7), 2017) show that to first order each level has an interval of its own, as if it were
//! alone with the failures that need it, and that the overheads add up.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Formula, PlanError};

/// How the intervals are computed.
pub const FORMULA: Formula = Formula {
    gives: "intervals of two levels",
    formula: "t_l = sqrt(2 C_l / r_l), which costs sum of sqrt(2 r_l C_l); r_l: failures a second that need level l",
    source: "Benoit et al., \"Towards optimal multi-level checkpointing\", IEEE TC 66(7), 2017",
};

/// Two levels. All times are seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Levels {
    /// Mean time between failures of all kinds.
    pub mtbf_s: f64,
    /// Share of failures that lose the fast level.
    pub slow_share: f64,
    /// Time that a checkpoint to the fast level blocks.
    pub fast_write_s: f64,
    /// Time that taking it to the slow level blocks besides.
    pub slow_write_s: f64,
    /// Time to restart from the fast level.
    pub fast_restart_s: f64,
    /// Time to restart from the slow level.
    pub slow_restart_s: f64,
    /// Time before a restart begins.
    pub downtime_s: f64,
}

/// How often each level is written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Schedule {
    /// Seconds of work between checkpoints.
    pub fast_interval_s: f64,
    /// Seconds of work between those that go to the slow level.
    pub slow_interval_s: f64,
    /// One in so many goes to the slow level.
    pub slow_every: u32,
    /// Waste by the first-order formula.
    pub waste: f64,
    /// Whether its assumptions hold.
    pub is_first_order: bool,
}

impl Levels {
    /// The best schedule to first order, the fast interval fitted so that a whole number makes the slow one.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] unless the share lies between 0 and 1 and all times are above zero.
    pub fn schedule(&self) -> Result<Schedule, PlanError> {
        if !(self.slow_share > 0.0 && self.slow_share < 1.0) {
            let hint = "the share of failures that lose the fast tier lies above 0 and below 1";
            let parameter = format!("slow-failures={}", self.slow_share);
            return Err(PlanError::invalid(parameter, "is not between 0 and 1", hint));
        }
        crate::positive("mtbf", self.mtbf_s)?;
        crate::positive("write time of the fast tier", self.fast_write_s)?;
        crate::positive("write time of the slow tier", self.slow_write_s)?;
        let interval = |write: f64, share: f64| (2.0 * write * self.mtbf_s / share).sqrt();
        let fast = interval(self.fast_write_s, 1.0 - self.slow_share);
        let slow = interval(self.slow_write_s, self.slow_share);
        let slow_every = (slow / fast).round().clamp(1.0, 1e6);
        let schedule = Schedule {
            fast_interval_s: slow.max(fast) / slow_every,
            slow_interval_s: slow.max(fast),
            slow_every: slow_every as u32,
            waste: 0.0,
            is_first_order: false,
        };
        Ok(Schedule {
            waste: self.waste(&schedule),
            is_first_order: self.is_first_order(&schedule),
            ..schedule
        })
    }

    /// Wall time that a failure costs on average: half of the interval that it loses, down time and restart.
    fn lost_s(&self, schedule: &Schedule) -> f64 {
        let fast_period = schedule.fast_interval_s + self.fast_write_s;
        let slow_period = f64::from(schedule.slow_every) * fast_period + self.slow_write_s;
        (1.0 - self.slow_share) * (fast_period / 2.0 + self.fast_restart_s)
            + self.slow_share * (slow_period / 2.0 + self.slow_restart_s)
            + self.downtime_s
    }

    /// Waste of a schedule to first order, as [`super::Machine::first_order_waste`] has it for one level; 1 at most.
    #[must_use]
    pub fn waste(&self, schedule: &Schedule) -> f64 {
        let checkpoints =
            self.fast_write_s / schedule.fast_interval_s + self.slow_write_s / schedule.slow_interval_s;
        1.0 - (1.0 - self.lost_s(schedule) / self.mtbf_s).max(0.0) / (1.0 + checkpoints)
    }

    /// Whether the first-order formula holds: a failure loses at most a twentieth of the time to the next.
    #[must_use]
    pub fn is_first_order(&self, schedule: &Schedule) -> bool {
        self.lost_s(schedule) <= self.mtbf_s / 20.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: Levels = Levels {
        mtbf_s: 1e6,
        slow_share: 0.1,
        fast_write_s: 10.0,
        slow_write_s: 100.0,
        fast_restart_s: 0.0,
        slow_restart_s: 0.0,
        downtime_s: 0.0,
    };

    #[test]
    fn each_level_has_the_interval_of_the_failures_that_need_it() {
        let schedule = LEVELS.schedule().unwrap();
        assert!((schedule.slow_interval_s - (2.0 * 100.0 * 1e6 / 0.1f64).sqrt()).abs() < 1e-6);
        assert_eq!(schedule.slow_every, 9);
        let overhead = (2.0 * 0.9e-6 * 10.0f64).sqrt() + (2.0 * 0.1e-6 * 100.0f64).sqrt();
        let formula = overhead / (1.0 + overhead);
        assert!((schedule.waste - formula).abs() < 0.01 * formula, "{} {formula}", schedule.waste);
    }

    #[test]
    fn a_slow_level_that_is_cheaper_than_the_fast_one_is_always_written() {
        let schedule = Levels { slow_write_s: 0.01, slow_share: 0.5, ..LEVELS }.schedule().unwrap();
        assert_eq!(schedule.slow_every, 1);
        assert!(Levels { slow_share: 0.0, ..LEVELS }.schedule().is_err());
        assert!(Levels { slow_share: 1.0, ..LEVELS }.schedule().is_err());
    }
}
