//! What the passes say: cleaning, intervals, comparisons, effects, steady state, drift.
//!
//! Pure functions over slices; nothing here reads a clock, a file or a global seed, so the same
//! figures always give the same verdicts. Three rules hold throughout:
//!
//! 1. **A figure that cannot be had is `None`, never a NaN.** A sample that is not a finite number
//!    voids the statistic it would enter, except in [`clean`], whose work is to set it aside and show
//!    it. Every number in a result is finite, so every result survives JSON.
//! 2. **A figure comes with what it rests on:** sample counts, the interval with its level and method,
//!    and everything that was left out, by name.
//! 3. **The default method is the one whose coverage holds with five passes**, which is what a sweep
//!    retains. `tests/stats_coverage.rs` simulates it: with five samples a 95 % t interval covers the mean
//!    in 95 % of normal data; a bootstrap interval would in 84 %. So means get t, Welch or Fieller
//!    intervals ([`intervals`]), and medians order statistics.
//!
//! | question | module |
//! |---|---|
//! | which passes count, and why not the others? | [`mod@cleaning`] |
//! | where do the samples lie? | [`mod@describe`] |
//! | how well is a figure known? | [`mod@intervals`] |
//! | is this one better than that one? | [`mod@compare`] |
//! | and if they were measured one after the other? | [`mod@apart`] |
//! | had the drive settled? | [`mod@steady`] |
//! | where did a drive's write rate fall for good? | [`mod@knee`] |
//! | did the machine change while it was measured? | [`mod@drift`] |

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod apart;
pub mod cleaning;
pub mod compare;
pub mod describe;
pub mod drift;
pub mod fit;
pub mod intervals;
pub mod knee;
pub(crate) mod special;
pub mod steady;

pub use apart::{Movement, compare_apart, compare_family_apart};
pub use cleaning::{Cleaned, CleaningRules, clean};
pub use compare::{CompareRules, Comparison, Direction, Verdict, compare, compare_family, compare_with};
pub use describe::{Description, describe};
pub use drift::{Drift, DriftRules, drift};
pub use intervals::{mean_estimate, median_estimate};
pub use knee::{Curve, Knee, curve};
pub use special::normal_cdf;
pub use steady::{Steadiness, steady, within_run};

/// How sure an interval is meant to be where nobody says otherwise.
pub const DEFAULT_LEVEL: f64 = 0.95;

/// How an interval was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Student's t over independent samples.
    StudentT,
    /// Student's t with the degrees of freedom of Welch and Satterthwaite, for unequal variances.
    Welch,
    /// Fieller's interval for the ratio of two means, with Welch–Satterthwaite degrees of freedom.
    Fieller,
    /// Over blocks, by the critical value that a race is decided with ([`crate::decide`]) or Student's t.
    Blocks,
    /// Student's t over sets of constructions.
    Constructions,
    /// Between two of the sorted samples; exact for the median of any continuous distribution.
    OrderStatistics,
}

/// A range that holds the true value in `level` of all repetitions of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The coverage aimed at, 0 to 1; for order statistics, the coverage reached.
    pub level: f64,
    /// How it was made.
    pub method: Method,
}

impl Interval {
    /// An interval, unless an end is not a finite number.
    pub(crate) fn new(low: f64, high: f64, level: f64, method: Method) -> Option<Self> {
        (low.is_finite() && high.is_finite()).then_some(Self { low, high, level, method })
    }

    /// Whether `value` lies in it, ends included.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Half its width as a part of `estimate`: the `± 3 %` of a table. `None` where `estimate` is 0.
    #[must_use]
    pub fn relative_half_width(&self, estimate: f64) -> Option<f64> {
        let ratio = (self.high / 2.0 - self.low / 2.0) / estimate.abs();
        ratio.is_finite().then_some(ratio)
    }

    /// Both ends through `f`, which must not decrease.
    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> Option<Self> {
        Self::new(f(self.low), f(self.high), self.level, self.method)
    }
}

/// A figure, how many samples it rests on, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Samples that it was computed from.
    pub samples: usize,
    /// Its interval; none where the samples do not suffice for one.
    pub interval: Option<Interval>,
}

/// Whether `level` can be the level of an interval: strictly between 0 and 1.
pub(crate) fn is_level(level: f64) -> bool {
    level > 0.0 && level < 1.0
}
