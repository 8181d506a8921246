//! Is this one better than that one?
//!
//! A comparison answers with three things: the ratio of the means, Fieller's interval for it
//! ([`intervals`](super::intervals)), and a verdict. Better or worse is said only where both hold:
//!
//! - the difference is beyond noise: the p-value, after Holm's correction for all comparisons made
//!   together, lies below 1 − level;
//! - it is large enough to matter: the ratio lies outside [1/(1 + m), 1 + m], m being
//!   [`CompareRules::min_effect`].
//!
//! "No difference" therefore means that none was seen with these samples, never that there is none; how
//! small a difference could have been seen is the interval's width.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::describe::mean;
use super::intervals::ratio_of_means;
use super::{DEFAULT_LEVEL, Interval};

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Bandwidth, IOPS.
    #[default]
    HigherIsBetter,
    /// Latency.
    LowerIsBetter,
}

/// What came of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The candidate is better, beyond noise and by enough to matter.
    Better,
    /// It is worse, likewise.
    Worse,
    /// No difference beyond noise, or one too small to matter.
    NoDifference,
    /// Too few samples, a sample that is not a finite number, a mean that is not above 0, or too
    /// much noise for any interval.
    NotEnoughData,
}

impl Verdict {
    /// The verdict in a report's words.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference beyond noise",
            Self::NotEnoughData => "not enough data",
        }
    }
}

/// When a difference counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareRules {
    /// Level of the interval and, as 1 − level, of the test; strictly between 0 and 1.
    pub level: f64,
    /// The smallest difference that matters, as a part of the smaller mean; the default of 0.02, 2 %, is
    /// flashwright's own choice.
    pub min_effect: f64,
    /// Fewer samples than this on either side give [`Verdict::NotEnoughData`]; at least 2.
    pub min_samples: usize,
    /// Which way is good.
    pub direction: Direction,
}

impl Default for CompareRules {
    fn default() -> Self {
        Self { level: DEFAULT_LEVEL, min_effect: 0.02, min_samples: 3, direction: Direction::default() }
    }
}

impl CompareRules {
    /// The verdict on a `ratio` of candidate to baseline with its (corrected) `p_value`.
    pub(crate) fn verdict(&self, ratio: f64, p_value: f64) -> Verdict {
        let claimed = self.claims(ratio, p_value);
        match (claimed, (ratio > 1.0) == (self.direction == Direction::HigherIsBetter)) {
            (false, _) => Verdict::NoDifference,
            (true, true) => Verdict::Better,
            (true, false) => Verdict::Worse,
        }
    }

    /// Whether a `ratio` is beyond noise and far enough from 1 to matter. Written so that a figure
    /// which is no number, or a rule that is nonsense, never makes a claim.
    pub(crate) fn claims(&self, ratio: f64, p_value: f64) -> bool {
        p_value < 1.0 - self.level && ratio.max(1.0 / ratio) >= 1.0 + self.min_effect.max(0.0)
    }
}

/// A candidate against a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Samples of the baseline.
    pub baseline_samples: usize,
    /// Their mean.
    pub baseline_mean: Option<f64>,
    /// Samples of the candidate.
    pub candidate_samples: usize,
    /// Their mean.
    pub candidate_mean: Option<f64>,
    /// Mean of the candidate by mean of the baseline.
    pub ratio: Option<f64>,
    /// Fieller's interval of the ratio, for this comparison alone.
    pub interval: Option<Interval>,
    /// Two-sided p-value of equal means, for this comparison alone.
    pub p_value: Option<f64>,
    /// The same, corrected (Holm) for all comparisons made together; the verdict's.
    pub p_adjusted: Option<f64>,
    /// What came of it.
    pub verdict: Verdict,
}

/// Compares `candidate` with `baseline` under the default rules: higher is better, 95 %,
/// differences of at least 2 %, three samples on either side. The ratio is candidate by baseline.
#[must_use]
pub fn compare(baseline: &[f64], candidate: &[f64]) -> Comparison {
    compare_with(baseline, candidate, &CompareRules::default())
}

/// Compares `candidate` with `baseline`.
#[must_use]
pub fn compare_with(baseline: &[f64], candidate: &[f64], rules: &CompareRules) -> Comparison {
    let enough = baseline.len().min(candidate.len()) >= rules.min_samples.max(2);
    let ratio = enough.then(|| ratio_of_means(candidate, baseline, rules.level)).flatten();
    Comparison {
        baseline_samples: baseline.len(),
        baseline_mean: mean(baseline),
        candidate_samples: candidate.len(),
        candidate_mean: mean(candidate),
        ratio: ratio.map(|r| r.value),
        interval: ratio.map(|r| r.interval),
        p_value: ratio.map(|r| r.p_value),
        p_adjusted: ratio.map(|r| r.p_value),
        verdict: ratio.map_or(Verdict::NotEnoughData, |r| rules.verdict(r.value, r.p_value)),
    }
}

/// Compares each `(baseline, candidate)` of a family, as the points of two sweeps are, with the
/// p-values corrected for their number. Without that, one point in twenty of two equal sweeps would
/// differ.
#[must_use]
pub fn compare_family(pairs: &[(&[f64], &[f64])], rules: &CompareRules) -> Vec<Comparison> {
    corrected(pairs.iter().map(|(a, b)| compare_with(a, b, rules)).collect(), rules)
}

/// Comparisons that are made together, corrected for their number (Holm).
pub(super) fn corrected(mut all: Vec<Comparison>, rules: &CompareRules) -> Vec<Comparison> {
    let p_values: Vec<_> = all.iter().map(|c| c.p_value).collect();
    for (comparison, adjusted) in all.iter_mut().zip(holm(&p_values)) {
        comparison.p_adjusted = adjusted;
        if let (Some(ratio), Some(p)) = (comparison.ratio, adjusted) {
            comparison.verdict = rules.verdict(ratio, p);
        }
    }
    all
}

/// Holm's step-down correction (Scandinavian Journal of Statistics 6, 1979): with m tests, the i-th
/// smallest p-value is multiplied by m − i + 1, never falls below its predecessor and never exceeds one.
/// Rejecting where the result is below α keeps the chance of any false claim below α, whatever
/// the dependence between the tests. Tests that could not be made (`None`) do not count.
#[must_use]
pub fn holm(p_values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> =
        p_values.iter().enumerate().filter_map(|(i, p)| Some((i, (*p)?))).filter(|p| !p.1.is_nan()).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![None; p_values.len()];
    let (tests, mut floor) = (order.len(), 0.0f64);
    for (rank, (index, p)) in order.into_iter().enumerate() {
        floor = floor.max((p * (tests - rank) as f64).min(1.0));
        adjusted[index] = Some(floor);
    }
    adjusted
}
