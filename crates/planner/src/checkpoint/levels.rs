//! Two levels of checkpoints: a fast one that most failures leave alone, and a slow one that survives them all.
//!
//! A failure loses the fast level with a given share; then work goes on from the last checkpoint of the slow level.
//! Benoit et al. (IEEE TC 66(7), 2017) show that to first order each level has an interval of its own, as if it were
//! alone with the failures that need it, and that the overheads add up. One interval has to be a whole number of the
//! other, so both are chosen together, by the first-order waste of the pair.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Formula, PlanError};

/// How the intervals are computed.
pub const FORMULA: Formula = Formula {
    gives: "intervals of two levels",
    formula: "one in n = sqrt(C_s (1-s) / (C_f s)) to the slow level, W = sqrt(2 (C_f + C_s/n) M / ((1-s) + n s)); \
              n and W are then refined by the waste",
    source: "Benoit et al., \"Towards optimal multi-level checkpointing\", IEEE TC 66(7), 2017",
};

/// The rarest checkpoint on the slow level that is considered: one in so many.
const MOST_SLOW_EVERY: f64 = 1e6;

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
    /// Mean time from one checkpoint to the next, with its part of those that go to the slow level, seconds.
    pub period_s: f64,
    /// Waste by the first-order formula.
    pub waste: f64,
    /// Whether its assumptions hold.
    pub is_first_order: bool,
}

impl Levels {
    /// The schedule of the least first-order waste; of a mean period from one checkpoint to the next, if one is given.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] unless the share lies between 0 and 1, all times are above zero and the period is longer
    /// than a fast checkpoint; [`PlanError::Impossible`] if more than 99 % of the time is lost.
    pub fn schedule(&self, period_s: Option<f64>) -> Result<Schedule, PlanError> {
        if !(self.slow_share > 0.0 && self.slow_share < 1.0) {
            let hint = "the share of failures that lose the fast tier lies above 0 and below 1";
            let parameter = format!("slow-failures={}", self.slow_share);
            return Err(PlanError::invalid(parameter, "is not between 0 and 1", hint));
        }
        crate::positive("mtbf", self.mtbf_s)?;
        crate::positive("write time of the fast tier", self.fast_write_s)?;
        crate::positive("write time of the slow tier", self.slow_write_s)?;
        let between_s = period_s.map(|period| crate::positive("interval", period - self.fast_write_s));
        let best = match period_s.zip(between_s.transpose()?) {
            None => {
                let (fast, slow) = (1.0 - self.slow_share, self.slow_share);
                let ratio = (self.slow_write_s / slow / (self.fast_write_s / fast)).sqrt();
                self.best_of(1.0, ratio, |slow_every| self.best_with(slow_every))
            }
            Some((period, between)) => {
                let least = (self.slow_write_s / between).floor() + 1.0;
                let ratio = (2.0 * self.slow_write_s * self.mtbf_s / self.slow_share).sqrt() / period;
                self.best_of(least, ratio, |n| self.with(n, between - self.slow_write_s / f64::from(n)))
            }
        };
        if best.waste <= 0.99 {
            return Ok(best);
        }
        Err(PlanError::impossible(
            format!("mtbf={}", super::time(self.mtbf_s)),
            "with two levels more than 99 % of the time is lost",
            "a longer --mtbf, a faster --slow, a larger --drain-overlap, or fewer --slow-failures",
        ))
    }

    /// The best of what `of` gives for one in so many, from a first guess on, at least `least`.
    fn best_of(&self, least: f64, guess: f64, of: impl Fn(u32) -> Schedule) -> Schedule {
        let least = least.clamp(1.0, MOST_SLOW_EVERY) as u32;
        let mut best = of(guess.round().clamp(f64::from(least), MOST_SLOW_EVERY) as u32);
        loop {
            let n = best.slow_every;
            let neighbours = [n - 1, n + 1].map(|n| of(n.clamp(least, MOST_SLOW_EVERY as u32)));
            match neighbours.into_iter().find(|other| other.waste < best.waste) {
                Some(better) => best = better,
                None => return best,
            }
        }
    }

    /// The best schedule with one in so many on the slow level. The first guess is where the derivative of the overhead
    /// (C_f + C_s/n) / W + W ((1 - s) + n s) / 2M is zero.
    fn best_with(&self, slow_every: u32) -> Schedule {
        let n = f64::from(slow_every);
        let rate = (1.0 - self.slow_share + n * self.slow_share) / self.mtbf_s;
        let guess = (2.0 * (self.fast_write_s + self.slow_write_s / n) / rate).sqrt().ln();
        let waste = |ln: f64| self.with(slow_every, ln.exp()).waste;
        self.with(slow_every, super::golden_section(guess - 4.0, guess + 4.0, waste).exp())
    }

    /// The schedule of so much work between checkpoints.
    fn with(&self, slow_every: u32, fast_interval_s: f64) -> Schedule {
        let schedule = Schedule {
            fast_interval_s,
            slow_interval_s: f64::from(slow_every) * fast_interval_s,
            slow_every,
            period_s: fast_interval_s + self.fast_write_s + self.slow_write_s / f64::from(slow_every),
            waste: 0.0,
            is_first_order: false,
        };
        let waste = self.waste(&schedule);
        Schedule { waste, is_first_order: self.is_first_order(&schedule, waste), ..schedule }
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

    /// Whether the first-order formula holds to within 2 %: what it leaves out is half the square of the share of the
    /// time that a failure loses.
    fn is_first_order(&self, schedule: &Schedule, waste: f64) -> bool {
        (self.lost_s(schedule) / self.mtbf_s).powi(2) / 2.0 <= 0.02 * waste
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let schedule = LEVELS.schedule(None).unwrap();
        let alone = (2.0 * 100.0 * 1e6 / 0.1f64).sqrt();
        assert!((schedule.slow_interval_s / alone - 1.0).abs() < 0.05, "{schedule:?} {alone}");
        assert_eq!(schedule.slow_every, 9);
        let overhead = (2.0 * 0.9e-6 * 10.0f64).sqrt() + (2.0 * 0.1e-6 * 100.0f64).sqrt();
        let formula = overhead / (1.0 + overhead);
        assert!((schedule.waste - formula).abs() < 0.01 * formula, "{} {formula}", schedule.waste);
    }

    #[test]
    fn a_slow_level_that_is_cheaper_than_the_fast_one_is_always_written() {
        let schedule = Levels { slow_write_s: 0.01, slow_share: 0.5, ..LEVELS }.schedule(None).unwrap();
        assert_eq!(schedule.slow_every, 1);
        assert!(Levels { slow_share: 0.0, ..LEVELS }.schedule(None).is_err());
        assert!(Levels { slow_share: 1.0, ..LEVELS }.schedule(None).is_err());
        assert!(
            Levels { slow_restart_s: 2e7, ..LEVELS }.schedule(None).is_err(),
            "restarts take all the time"
        );
        assert!(LEVELS.schedule(Some(10.0)).is_err());
        let given = LEVELS.schedule(Some(5000.0)).unwrap();
        assert!((given.period_s - 5000.0).abs() < 1e-9 && given.slow_every > 1, "{given:?}");
    }

    proptest! {
        #[test]
        fn no_neighbour_wastes_less(
            slow_share in 0.001f64..0.999, fast_write_s in 1.0f64..100.0, slower in 0.1f64..100.0, factor in 1e3f64..1e6,
            work in 0.3f64..3.0, more in 0u32..4, fewer in 0u32..4,
        ) {
            let slow_write_s = fast_write_s * slower;
            let levels =
                Levels { mtbf_s: slow_write_s.max(fast_write_s) * factor, slow_share, fast_write_s, slow_write_s, ..LEVELS };
            let best = levels.schedule(None).unwrap();
            let n = (best.slow_every + more).saturating_sub(fewer).max(1);
            prop_assert!(best.waste <= levels.with(n, best.fast_interval_s * work).waste * (1.0 + 1e-9), "{best:?}");
            let longer = levels.schedule(Some(best.period_s * (1.0 + work))).unwrap();
            prop_assert!(best.waste <= longer.waste * (1.0 + 1e-9) && longer.fast_interval_s > 0.0, "{longer:?}");
        }
    }
}
