//! How well a figure is known from a few passes: intervals by formula.
//!
//! These are the defaults (see the [module above](super) for why): Student's t for a mean, Welch
//! for the difference of two, Fieller for their ratio, order statistics for a median. All contain
//! their estimate, and none assumes that two sets vary equally. With five passes a side the
//! intervals for two means cover 95 % (simulated in `tests/stats_coverage.rs`); with three noisy
//! ones against eight quiet ones, 93 %.
//!
//! **The ratio.** The ratio ρ of two means is what a report says ("1.4 times as fast"). Fieller
//! (1954) takes all ρ for which a t test does not reject mean(a) − ρ·mean(b) = 0, that is
//! (ā − ρb̄)² ≤ t²(sₐ²/nₐ + ρ²s_b²/n_b). The degrees of freedom are Welch–Satterthwaite's, taken at the
//! estimate ā/b̄, so that the interval scales with its samples' unit and that exchanging the sets
//! gives the reciprocal. Where b̄ itself is not surely different from 0 the set of ρ is not an
//! interval, and there is none.

use super::describe::{centred_moments, finite, mean, median, sorted};
use super::special::{fair_coin_cdf, t_multiplier, t_two_sided};
use super::{Estimate, Interval, Method, is_level};

/// The mean with its t interval: the default for a point's passes, 3 as well as 300. `None` where
/// there is no mean; no interval for a single sample.
#[must_use]
pub fn mean_estimate(samples: &[f64], level: f64) -> Option<Estimate> {
    let value = mean(samples)?;
    Some(Estimate { value, samples: samples.len(), interval: t_interval(samples, level) })
}

/// The median with its interval between order statistics. `None` where there is no median; no interval for a
/// single sample.
#[must_use]
pub fn median_estimate(samples: &[f64], level: f64) -> Option<Estimate> {
    let value = median(samples)?;
    Some(Estimate { value, samples: samples.len(), interval: median_interval(samples, level) })
}

/// Student's t interval for the mean, of two samples or more.
#[must_use]
pub fn t_interval(samples: &[f64], level: f64) -> Option<Interval> {
    if !is_level(level) {
        return None;
    }
    let Moments { mean, variance_of_mean, df } = Moments::of(samples)?;
    let half = t_multiplier(level, df) * variance_of_mean.sqrt();
    Interval::new(mean - half, mean + half, level, Method::StudentT)
}

/// The mean of the means of several sets, as where a figure is averaged over the other dimensions of a
/// sweep. Each set weighs the same. The interval is about these very sets, from the scatter within each
/// (Welch–Satterthwaite over the sets); none where a set has a single sample. `None` where there is no
/// set or one has no mean.
#[must_use]
pub fn mean_of_means(sets: &[&[f64]], level: f64) -> Option<Estimate> {
    let means = sets.iter().map(|set| mean(set)).collect::<Option<Vec<f64>>>()?;
    let interval = || {
        if !is_level(level) {
            return None;
        }
        let moments = sets.iter().map(|set| Moments::of(set)).collect::<Option<Vec<_>>>()?;
        // The variance of each set's mean, divided among the sets.
        let share = (sets.len() as f64).powi(2);
        let terms: Vec<(f64, f64)> = moments.iter().map(|m| (m.variance_of_mean / share, m.df)).collect();
        let se = terms.iter().map(|(variance, _)| variance).sum::<f64>().sqrt();
        let half = satterthwaite(&terms).map_or(0.0, |df| t_multiplier(level, df) * se);
        let value = mean(&means)?;
        Interval::new(value - half, value + half, level, Method::Welch)
    };
    let samples = sets.iter().map(|set| set.len()).sum();
    Some(Estimate { value: mean(&means)?, samples, interval: interval() })
}

/// An interval for the median between two order statistics, as far apart as `level` needs and alike
/// from either end (Conover, *Practical Nonparametric Statistics*, §3.2). Its `level` is the
/// coverage reached, which is exact for any continuous distribution. Below six samples no pair
/// reaches 95 %: then it is the whole range, with what that covers (five: 93.75 %; three: 75 %).
#[must_use]
pub fn median_interval(samples: &[f64], level: f64) -> Option<Interval> {
    let sorted = sorted(samples)?;
    let n = sorted.len();
    if n < 2 || !is_level(level) {
        return None;
    }
    let coverage = |left_out: usize| 1.0 - 2.0 * fair_coin_cdf(n, left_out);
    // The most that can be left out at each end with the level still reached; coverage falls with it.
    let (mut low, mut high) = (0, n / 2);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if coverage(middle) >= level { low = middle } else { high = middle }
    }
    Interval::new(sorted[low], sorted[n - 1 - low], coverage(low), Method::OrderStatistics)
}

/// Fieller's interval for mean(a) / mean(b), and the p-value of the ratio being 1, which is below 1
/// − level exactly where the interval leaves 1 out. Both means must be above 0. `None` also where
/// the interval is unbounded.
#[must_use]
pub fn ratio_of_means(a: &[f64], b: &[f64], level: f64) -> Option<Ratio> {
    let (a, b) = (Moments::of(a)?, Moments::of(b)?);
    if !is_level(level) || a.mean <= 0.0 || b.mean <= 0.0 {
        return None;
    }
    let value = finite(a.mean / b.mean)?;
    // Everything by the means: relative variances, and a quadratic in r = ρ/value around 1.
    let (va, vb) = (a.variance_of_mean / a.mean / a.mean, b.variance_of_mean / b.mean / b.mean);
    let Some(df) = satterthwaite(&[(va, a.df), (vb, b.df)]) else {
        let differs = (value - 1.0).abs() > 16.0 * f64::EPSILON;
        let interval = Interval::new(value, value, level, Method::Fieller)?;
        return Some(Ratio { value, interval, p_value: if differs { 0.0 } else { 1.0 } });
    };
    let t2 = t_multiplier(level, df).powi(2);
    // (1 − r)² = t²(va + r²vb)  ⇔  r²(1 − t²vb) − 2r + (1 − t²va) = 0
    let (lead, tail) = (1.0 - t2 * vb, 1.0 - t2 * va);
    let root = (t2 * (va + vb - t2 * va * vb)).max(0.0).sqrt();
    if lead <= 0.0 {
        return None;
    }
    // The smaller root from the product of both, because 1 − root would cancel.
    let (low, high) = (tail / (1.0 + root), (1.0 + root) / lead);
    let interval = Interval::new(value * low.min(1.0), value * high.max(1.0), level, Method::Fieller)?;
    // At ρ = 1, which is r = 1/value.
    let r = 1.0 / value;
    let t = (1.0 - r) / (va + r * r * vb).sqrt();
    Some(Ratio { value, interval, p_value: finite(t_two_sided(t, df))? })
}

/// A ratio of two means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// First by second.
    pub value: f64,
    /// Fieller's interval.
    pub interval: Interval,
    /// Two-sided p-value of the two means being equal.
    pub p_value: f64,
}

/// What an interval needs of two samples or more.
struct Moments {
    mean: f64,
    variance_of_mean: f64,
    df: f64,
}

impl Moments {
    fn of(samples: &[f64]) -> Option<Self> {
        let (mean, sd) = centred_moments(samples)?;
        let n = samples.len() as f64;
        let variance_of_mean = finite((sd / n.sqrt()).powi(2))?;
        Some(Self { mean, variance_of_mean, df: n - 1.0 })
    }
}

/// Degrees of freedom of a sum of independent variances, each with its own (Satterthwaite 1946);
/// `None` where all are 0.
pub(crate) fn satterthwaite(terms: &[(f64, f64)]) -> Option<f64> {
    let total: f64 = terms.iter().map(|(variance, _)| variance).sum();
    if total <= 0.0 {
        return None;
    }
    let spread: f64 = terms.iter().map(|(variance, df)| (variance / total).powi(2) / df).sum();
    finite(1.0 / spread)
}
