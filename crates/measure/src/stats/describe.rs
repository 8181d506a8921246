//! Where samples lie: mean, spread and quantiles.
//!
//! Throughputs repeat to a part in ten thousand, so the differences that matter sit in the last
//! digits. Sums are therefore compensated (Neumaier 1974), and the spread is taken from deviations
//! whose own mean has been removed once more (the corrected two-pass algorithm; Chan, Golub and
//! LeVeque 1983), scaled by the largest so that squares neither overflow nor vanish. Every function
//! returns `None` where a sample is not a finite number, where there are too few, or where the
//! result itself exceeds an `f64`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a set of samples lies, in the samples' own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Description {
    /// How many.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (divisor n − 1); none for a single sample.
    pub sd: Option<f64>,
    /// Coefficient of variation, sd by |mean|; none where the mean is 0.
    pub cv: Option<f64>,
    /// Smallest.
    pub min: f64,
    /// Lower quartile (type 7).
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Upper quartile (type 7).
    pub q3: f64,
    /// 90th percentile (type 7).
    pub p90: f64,
    /// 99th percentile (type 7).
    pub p99: f64,
    /// Largest.
    pub max: f64,
    /// Median absolute deviation from the median, unscaled.
    pub mad: f64,
}

/// All of the above; `None` for no samples, or where one is not a finite number.
#[must_use]
pub fn describe(samples: &[f64]) -> Option<Description> {
    let sorted = sorted(samples)?;
    let (&min, &max) = (sorted.first()?, sorted.last()?);
    let median = quantile_of_sorted(&sorted, 0.5);
    Some(Description {
        n: samples.len(),
        mean: mean(samples)?,
        sd: sample_sd(samples),
        cv: cv(samples),
        min,
        q1: quantile_of_sorted(&sorted, 0.25),
        median,
        q3: quantile_of_sorted(&sorted, 0.75),
        p90: quantile_of_sorted(&sorted, 0.90),
        p99: quantile_of_sorted(&sorted, 0.99),
        max,
        mad: mad_around(samples, median)?,
    })
}

/// The arithmetic mean, within a rounding or two of the exact one.
#[must_use]
pub fn mean(samples: &[f64]) -> Option<f64> {
    centred(samples).map(|c| c.mean)
}

/// The sample standard deviation (divisor n − 1), of two samples or more.
#[must_use]
pub fn sample_sd(samples: &[f64]) -> Option<f64> {
    centred_moments(samples).map(|(_, sd)| sd)
}

/// Mean and sample sd together, of two samples or more.
pub(crate) fn centred_moments(samples: &[f64]) -> Option<(f64, f64)> {
    let centred = centred(samples)?;
    Some((centred.mean, finite(centred.unit_sd()? * centred.largest)?))
}

/// The coefficient of variation: sample sd by |mean|; `None` where the mean is 0.
#[must_use]
pub fn cv(samples: &[f64]) -> Option<f64> {
    let (mean, sd) = centred_moments(samples)?;
    finite(sd / mean.abs())
}

/// The quantile at `p` (0 to 1) by linear interpolation between order statistics at (n − 1)p: type 7 of
/// Hyndman and Fan (1996), the default of R and NumPy.
#[must_use]
pub fn quantile(samples: &[f64], p: f64) -> Option<f64> {
    let sorted = sorted(samples)?;
    ((0.0..=1.0).contains(&p) && !sorted.is_empty()).then(|| quantile_of_sorted(&sorted, p))
}

/// The median.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// The median absolute deviation from the median, unscaled: of normal samples, 0.6745 of their sd.
#[must_use]
pub fn mad(samples: &[f64]) -> Option<f64> {
    mad_around(samples, median(samples)?)
}

/// The median of |x − `centre`|.
pub(crate) fn mad_around(samples: &[f64], centre: f64) -> Option<f64> {
    let distances: Vec<f64> = samples.iter().map(|x| (x - centre).abs()).collect();
    median(&distances)
}

/// Each sample's distance from the mean in sample standard deviations, with its sign; zeros where all
/// samples are equal; `None` for fewer than two.
#[must_use]
pub fn z_scores(samples: &[f64]) -> Option<Vec<f64>> {
    let centred = centred(samples)?;
    let sd = centred.unit_sd()?;
    let divisor = if sd == 0.0 { 1.0 } else { sd };
    Some(centred.units.iter().map(|unit| unit / divisor).collect())
}

/// Samples around their mean: x = mean + unit · largest, |unit| ≤ 1.
struct Centred {
    mean: f64,
    largest: f64,
    units: Vec<f64>,
}

impl Centred {
    /// The sample sd in units of the largest deviation.
    fn unit_sd(&self) -> Option<f64> {
        let n = self.units.len();
        (n >= 2).then(|| (sum(self.units.iter().map(|u| u * u)) / (n - 1) as f64).sqrt())
    }
}

fn centred(samples: &[f64]) -> Option<Centred> {
    if samples.is_empty() || samples.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let scale = exact_scale(samples);
    let n = samples.len() as f64;
    let mut units: Vec<f64> = samples.iter().map(|x| x * scale).collect();
    let mean = sum(units.iter().copied()) / n;
    units.iter_mut().for_each(|x| *x -= mean);
    let left = sum(units.iter().copied()) / n;
    units.iter_mut().for_each(|d| *d -= left);
    let largest = units.iter().fold(0.0f64, |most, d| most.max(d.abs()));
    if largest > 0.0 {
        units.iter_mut().for_each(|d| *d /= largest);
    }
    Some(Centred { mean: finite((mean + left) / scale)?, largest: largest / scale, units })
}

/// A power of two by which to multiply, so that near the ends of f64's range neither a sum
/// overflows nor a mean falls between two subnormal numbers. 1 everywhere else.
fn exact_scale(samples: &[f64]) -> f64 {
    let largest = samples.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    if largest > f64::MAX * 2f64.powi(-64) {
        2f64.powi(-66)
    } else if largest < 2f64.powi(-900) {
        2f64.powi(600)
    } else {
        1.0
    }
}

/// Neumaier's compensated sum.
pub(crate) fn sum(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0f64, 0.0f64);
    for term in terms {
        let next = total + term;
        lost += if total.abs() >= term.abs() { (total - next) + term } else { (term - next) + total };
        total = next;
    }
    total + lost
}

/// The samples in ascending order; `None` where one is not a finite number.
pub(crate) fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// Type 7 of a slice that is sorted, finite and not empty.
pub(crate) fn quantile_of_sorted(sorted: &[f64], p: f64) -> f64 {
    let rank = p * (sorted.len() - 1) as f64;
    let below = rank.floor() as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(sorted.len() - 1)]);
    let part = rank - below as f64;
    let width = high - low;
    if width.is_finite() { low + part * width } else { low * (1.0 - part) + high * part }
}

pub(crate) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
