//! How often to checkpoint, and what it costs.
//!
//! The model: failures come with a mean time `M` between them. The application computes, and every *period* a checkpoint
//! takes `C` seconds, in which computing goes on at the share ω of its speed (0: it waits). A failure costs a down time,
//! a restart, and all work since the start of the last checkpoint that was completed. *Waste* is the share of the wall
//! time that is not useful work. With exponential failures the expected time of a period has a closed form
//! ([`Machine::waste`]); the rules of Young, Daly and Aupy approximate the period that minimises it.
//!
//! 1. [`Machine`] has the rules, their first-order waste and the exact one.
//! 2. [`levels`] adds a second level that survives failures which lose the first.
//! 3. [`simulate`] draws failures, exponential or Weibull, and runs the model.
//! 4. [`due`] says whether a checkpoint is worth its cost now, from what was measured.
//! 5. [`hybrid`] prices flash for bandwidth in front of disk for capacity.

pub mod due;
pub mod hybrid;
pub mod levels;
pub mod simulate;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Formula, PlanError};

/// How the periods and wastes are computed.
pub const FORMULAS: [Formula; 5] = [
    Formula {
        gives: "Young's interval",
        formula: "t = sqrt(2 d M); d = (1-w) C: the time that a checkpoint blocks",
        source: "Young, CACM 17(9), 1974",
    },
    Formula {
        gives: "Daly's interval",
        formula: "t = sqrt(2 d M) (1 + sqrt(d/2M)/3 + (d/2M)/9) - d for d < 2M, else M",
        source: "Daly, FGCS 22(3), 2006, eq. 37",
    },
    Formula {
        gives: "Aupy's period",
        formula: "T = sqrt(2 (1-w) C (M - (D + R + wC)))",
        source: "Aupy et al., \"Optimal checkpointing period: time vs. energy\", PMBS 2013",
    },
    Formula {
        gives: "first-order waste",
        formula: "1 - (1 - (1-w)C/T) (1 - (D + R + wC + T/2)/M)",
        source: "Aupy et al., PMBS 2013",
    },
    Formula {
        gives: "exact waste of exponential failures",
        formula: "1 - (T - (1-w)C) / (M (1 - e^(-T/M)) e^((D + R + wC + T)/M))",
        source: "Daly, 2006, eq. 20, with overlap; the exact period minimises it",
    },
];

/// A machine that checkpoints. All times are seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Machine {
    /// Mean time between failures.
    pub mtbf_s: f64,
    /// Time that a checkpoint takes.
    pub write_s: f64,
    /// Time to read one back and go on.
    pub restart_s: f64,
    /// Time before a restart begins.
    pub downtime_s: f64,
    /// Share of its speed that the application keeps while a checkpoint is written.
    pub overlap: f64,
}

/// A rule for the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Young, 1974.
    Young,
    /// Daly, 2006.
    Daly,
    /// Aupy et al., 2013.
    Aupy,
    /// The minimum of the exact waste.
    Exact,
    /// The period that was asked for.
    Given,
}

impl Rule {
    /// Its name.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Young => "Young",
            Self::Daly => "Daly",
            Self::Aupy => "Aupy",
            Self::Exact => "exact",
            Self::Given => "given",
        }
    }
}

impl Machine {
    /// Fails if a time is not above zero (restart and down time may be zero), the overlap is not a share below 1, or
    /// checkpoints cannot keep up with failures.
    ///
    /// # Errors
    /// [`PlanError::Invalid`], and [`PlanError::Impossible`] if the time between failures is too short for any progress
    /// worth the name: more than 99 % is lost at the best period.
    pub fn check(&self) -> Result<(), PlanError> {
        crate::positive("mtbf", self.mtbf_s)?;
        crate::positive("write-time", self.write_s)?;
        for (name, value) in [("restart", self.restart_s), ("downtime", self.downtime_s)] {
            if !value.is_finite() || value < 0.0 {
                return Err(PlanError::invalid(format!("{name}={value}"), "is no time", "a time in seconds"));
            }
        }
        crate::share("overlap", self.overlap)?;
        let best = self.waste(self.exact_period());
        if best <= 0.99 {
            return Ok(());
        }
        let enough = self.mtbf_for(0.5);
        Err(PlanError::impossible(
            format!("mtbf={}", time(self.mtbf_s)),
            format!(
                "with checkpoints of {} and restarts of {} the machine fails too often: more than 99 % of its time is lost",
                time(self.write_s),
                time(self.restart_s + self.downtime_s)
            ),
            format!(
                "half of the time is left from an MTBF of {} on, or with checkpoints and restarts {:.0} times as fast",
                time(enough),
                (enough / self.mtbf_s).ceil()
            ),
        ))
    }

    /// The shortest time between failures at which the best period wastes at most `waste`.
    #[must_use]
    pub fn mtbf_for(&self, waste: f64) -> f64 {
        let waste_at = |mtbf_s: f64| {
            let machine = Self { mtbf_s, ..*self };
            machine.waste(machine.exact_period())
        };
        let mut high = self.mtbf_s;
        while waste_at(high) > waste && high < 1e18 {
            high *= 2.0;
        }
        bisect(self.mtbf_s, high, |mtbf| waste_at(mtbf) <= waste)
    }

    /// Seconds for which a checkpoint keeps the application from computing: δ.
    #[must_use]
    pub fn blocked_s(&self) -> f64 {
        (1.0 - self.overlap) * self.write_s
    }

    /// Work of a period, in seconds at full speed.
    #[must_use]
    pub fn work_s(&self, period_s: f64) -> f64 {
        period_s - self.blocked_s()
    }

    /// What a failure costs beyond the period in which it comes: down time, restart, and the work that was done while
    /// the last checkpoint was written.
    #[must_use]
    pub fn recovery_s(&self) -> f64 {
        self.downtime_s + self.restart_s + self.overlap * self.write_s
    }

    /// The period that a rule gives, from the start of one checkpoint to the start of the next; at least as long as a
    /// checkpoint takes. None for Aupy's rule if failures are as frequent as recoveries take, and for a period that
    /// was given.
    #[must_use]
    pub fn period(&self, rule: Rule) -> Option<f64> {
        let (blocked, mtbf) = (self.blocked_s(), self.mtbf_s);
        let period = match rule {
            Rule::Young => young(blocked, mtbf) + blocked,
            Rule::Daly => daly(blocked, mtbf) + blocked,
            Rule::Aupy => {
                let left = mtbf - self.recovery_s();
                (left > 0.0).then(|| (2.0 * blocked * left).sqrt())?
            }
            Rule::Exact => self.exact_period(),
            Rule::Given => return None,
        };
        Some(period.max(self.write_s))
    }

    /// Waste of a period to first order, which holds where checkpoint, recovery and period are short against the time
    /// between failures; 1 at most.
    #[must_use]
    pub fn first_order_waste(&self, period_s: f64) -> f64 {
        let fault_free = 1.0 - self.blocked_s() / period_s;
        let faults = 1.0 - (self.recovery_s() + period_s / 2.0) / self.mtbf_s;
        1.0 - fault_free.max(0.0) * faults.max(0.0)
    }

    /// Waste of a period with exponential failures, which may also come during down time and restart.
    #[must_use]
    pub fn waste(&self, period_s: f64) -> f64 {
        let scaled = period_s / self.mtbf_s;
        let expected = self.mtbf_s * -libm::expm1(-scaled) * (self.recovery_s() / self.mtbf_s + scaled).exp();
        1.0 - self.work_s(period_s) / expected
    }

    /// The period of the least [`Machine::waste`].
    #[must_use]
    pub fn exact_period(&self) -> f64 {
        // The waste has one minimum over the period: above it failures cost more, below it checkpoints do.
        let upper = self.write_s + 10.0 * (self.mtbf_s + (self.write_s * self.mtbf_s).sqrt());
        golden_section(self.write_s.ln(), upper.ln(), |period| self.waste(period.exp())).exp()
    }

    /// Whether the first-order waste holds: it is within 2 % of the exact one.
    #[must_use]
    pub fn is_first_order(&self, period_s: f64) -> bool {
        let exact = self.waste(period_s);
        (self.first_order_waste(period_s) - exact).abs() <= 0.02 * exact
    }
}

/// Young's interval: seconds of computing between checkpoints that block for `blocked_s`.
#[must_use]
pub fn young(blocked_s: f64, mtbf_s: f64) -> f64 {
    (2.0 * blocked_s * mtbf_s).sqrt()
}

/// Daly's interval of higher order.
#[must_use]
pub fn daly(blocked_s: f64, mtbf_s: f64) -> f64 {
    if blocked_s >= 2.0 * mtbf_s {
        return mtbf_s;
    }
    let ratio = blocked_s / (2.0 * mtbf_s);
    young(blocked_s, mtbf_s) * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - blocked_s
}

/// Where a function of one minimum between two bounds has it, by golden sections, to a relative 10⁻⁷ or better.
pub(crate) fn golden_section(mut low: f64, mut high: f64, of: impl Fn(f64) -> f64) -> f64 {
    let ratio = (5f64.sqrt() - 1.0) / 2.0;
    let (mut a, mut b) = (high - ratio * (high - low), low + ratio * (high - low));
    let (mut at_a, mut at_b) = (of(a), of(b));
    for _ in 0..100 {
        if at_a <= at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - ratio * (high - low);
            at_a = of(a);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + ratio * (high - low);
            at_b = of(b);
        }
    }
    (low + high) / 2.0
}

/// The least value between two bounds from which on `holds`, which it does at `high`; in ratios, both above zero.
pub(crate) fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    if holds(low) {
        return low;
    }
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

/// Seconds for people: `5 min 00 s`, `3.2 d`.
#[must_use]
pub fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "–".to_owned(),
        s if s < 1.0 => units::nanoseconds(s * 1e9),
        s if s < 2.0 * 86_400.0 => units::seconds(std::time::Duration::from_secs_f64(s.max(0.0))),
        s if s < 2.0 * 31_557_600.0 => format!("{:.1} d", s / 86_400.0),
        s => format!("{:.1} years", s / 31_557_600.0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: f64 = 60.0;

    fn blocking(write_s: f64, mtbf_s: f64) -> Machine {
        Machine { mtbf_s, write_s, restart_s: write_s, downtime_s: 0.0, overlap: 0.0 }
    }

    #[test]
    fn dalys_intervals_are_those_of_his_paper() {
        for (mtbf_h, minutes, printed) in [(24.0, 116.7, 117.0), (6.0, 56.7, 57.0), (0.25, 9.14, 9.1)] {
            let interval = daly(5.0 * MINUTE, mtbf_h * 3600.0) / MINUTE;
            assert!((interval - minutes).abs() < 0.05, "{interval}");
            let digits = if printed < 10.0 { 0.05 } else { 0.5 };
            assert!((interval - printed).abs() <= digits, "{interval} {printed}");
        }
        assert_eq!(daly(100.0, 50.0), 50.0);
        assert!((young(5.0 * MINUTE, 86_400.0) - 7200.0).abs() < 1e-9);
    }

    #[test]
    fn without_overlap_the_exact_waste_is_dalys_complete_model() {
        let machine = Machine { downtime_s: 0.0, ..blocking(300.0, 6.0 * 3600.0) };
        let (m, tau, d, r) = (machine.mtbf_s, 3000.0, 300.0, 300.0f64);
        let daly = 1.0 - tau / (m * (r / m).exp() * (((tau + d) / m).exp() - 1.0));
        assert!((machine.waste(tau + d) - daly).abs() < 1e-12);
    }

    #[test]
    fn a_machine_that_fails_faster_than_it_recovers_is_told_what_would_help() {
        let error = blocking(600.0, 60.0).check().unwrap_err();
        assert!(matches!(error, PlanError::Impossible { .. }));
        assert!(error.to_string().starts_with("mtbf=1 min 00 s: with checkpoints of 10 min 00 s"), "{error}");
        assert!(error.hint().starts_with("half of the time is left from an MTBF of 1 h"), "{}", error.hint());
        for (machine, words) in [
            (blocking(0.0, 60.0), "write-time=0"),
            (blocking(1.0, f64::NAN), "mtbf=NaN"),
            (Machine { overlap: 1.5, ..blocking(1.0, 60.0) }, "overlap=1.5"),
            (Machine { restart_s: -1.0, ..blocking(1.0, 60.0) }, "restart=-1"),
        ] {
            assert!(machine.check().unwrap_err().to_string().starts_with(words));
        }
    }

    proptest! {
        #[test]
        fn the_exact_period_wastes_least_and_first_order_rules_come_close(
            write in 1.0f64..100.0, factor in 1e3f64..1e6, overlap in 0.0f64..0.9,
            restart_s in 0.0f64..100.0, downtime_s in 0.0f64..100.0,
        ) {
            let machine = Machine { overlap, restart_s, downtime_s, ..blocking(write, write * factor) };
            let exact = machine.exact_period();
            for rule in [Rule::Young, Rule::Daly, Rule::Aupy] {
                let period = machine.period(rule).unwrap();
                prop_assert!(machine.waste(exact) <= machine.waste(period) * (1.0 + 1e-9));
                prop_assert!(machine.waste(period) <= machine.waste(exact) * 1.05);
            }
            let rare = Machine { mtbf_s: machine.mtbf_s * 1e3, ..machine };
            prop_assert!(rare.is_first_order(rare.exact_period()));
        }

        #[test]
        fn waste_grows_with_every_cost_and_falls_with_the_time_between_failures(
            write in 1.0f64..100.0, factor in 20.0f64..1e5, more in 1.01f64..3.0,
        ) {
            let machine = blocking(write, write * factor);
            let best = |machine: Machine| machine.waste(machine.exact_period());
            let waste = best(machine);
            prop_assert!((0.0..1.0).contains(&waste));
            for dearer in [
                Machine { write_s: write * more, ..machine },
                Machine { restart_s: write * more, ..machine },
                Machine { downtime_s: write, ..machine },
            ] {
                prop_assert!(best(dearer) > waste);
            }
            for cheaper in [
                Machine { mtbf_s: machine.mtbf_s * more, ..machine },
                Machine { overlap: 0.5, ..machine },
            ] {
                prop_assert!(best(cheaper) < waste);
            }
        }
    }
}
