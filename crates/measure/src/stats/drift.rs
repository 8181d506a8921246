//! Did the machine change while it was measured?
//!
//! A sweep repeats one control point throughout. If nothing but noise moved, its figures scatter
//! about one level. Two things can be wrong, and each has its own test:
//!
//! - **a trend** (heat, a filling SLC cache, wear levelling catching up): the least-squares slope
//!   over time, with its t interval, leaves 0 out *and* moves by [`DriftRules::trend_limit`] across
//!   the sweep;
//! - **a jump** (a backup started, a neighbour woke up): one control run lies further than
//!   [`DriftRules::deviation_limit`] from the median, whatever the slope.
//!
//! The limits are flashwright's own: half of what SNIA allows within a window of one steady measurement (10 %
//! of slope, 20 % of range), since a sweep compares figures from its two ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::describe::{finite, median};
use super::fit::linear_fit;
use super::special::{t_multiplier, t_two_sided};
use super::{DEFAULT_LEVEL, Interval, Method, is_level};

/// When a movement of the control point counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriftRules {
    /// Level of the slope's interval; strictly between 0 and 1.
    pub level: f64,
    /// Change along the line from the first to the last control run that counts, by the mean.
    pub trend_limit: f64,
    /// Distance of a single control run from the median that counts, by the median.
    pub deviation_limit: f64,
}

impl Default for DriftRules {
    fn default() -> Self {
        Self { level: DEFAULT_LEVEL, trend_limit: 0.05, deviation_limit: 0.10 }
    }
}

/// What the control point says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriftVerdict {
    /// No movement beyond the limits.
    NoDrift,
    /// A trend.
    Drifting,
    /// No trend, but single control runs lie far off.
    Jumping,
    /// Fewer than three control runs, all at one moment, or figures that are not finite numbers
    /// above 0.
    NotEnoughData,
}

impl DriftVerdict {
    /// The verdict in a report's words.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NoDrift => "no drift",
            Self::Drifting => "drifting",
            Self::Jumping => "jumping",
            Self::NotEnoughData => "not enough data",
        }
    }
}

/// One control run's distance from the median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deviation {
    /// Which of the points handed in, from 0.
    pub index: usize,
    /// Its position or time, as handed in.
    pub x: f64,
    /// Figure by median, minus 1: −0.3 is 30 % below.
    pub ratio: f64,
}

/// The control point over a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Control runs.
    pub n: usize,
    /// What they say.
    pub verdict: DriftVerdict,
    /// Change of the figure for each unit of x, by the mean.
    pub slope_ratio: Option<f64>,
    /// Change along the line from the smallest x to the largest, by the mean: −0.08 is a loss of 8 %.
    pub trend_ratio: Option<f64>,
    /// Its t interval, n − 2 degrees of freedom, the mean taken as known.
    pub interval: Option<Interval>,
    /// Two-sided p-value of there being no trend.
    pub p_value: Option<f64>,
    /// The control run furthest from the median.
    pub largest_deviation: Option<Deviation>,
}

/// Judges the control runs: `points` are (x, figure), x being the position in the sweep or the time
/// in any unit. The order does not matter.
#[must_use]
pub fn drift(points: &[(f64, f64)], rules: &DriftRules) -> Drift {
    let mut result = Drift {
        n: points.len(),
        verdict: DriftVerdict::NotEnoughData,
        slope_ratio: None,
        trend_ratio: None,
        interval: None,
        p_value: None,
        largest_deviation: None,
    };
    if points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite() || *y <= 0.0) {
        return result;
    }
    result.largest_deviation = largest_deviation(points);
    if let Some(trend) = Trend::of(points, rules.level) {
        result.slope_ratio = Some(trend.slope);
        result.trend_ratio = Some(trend.change);
        result.interval = Some(trend.interval);
        result.p_value = Some(trend.p_value);
        let is_trend = !trend.interval.contains(0.0) && trend.change.abs() >= rules.trend_limit;
        let is_jump = result.largest_deviation.is_some_and(|d| d.ratio.abs() >= rules.deviation_limit);
        result.verdict = match (is_trend, is_jump) {
            (true, _) => DriftVerdict::Drifting,
            (false, true) => DriftVerdict::Jumping,
            (false, false) => DriftVerdict::NoDrift,
        };
    }
    result
}

fn largest_deviation(points: &[(f64, f64)]) -> Option<Deviation> {
    let figures: Vec<f64> = points.iter().map(|p| p.1).collect();
    let median = median(&figures)?;
    let away = |(index, &(x, y)): (usize, &(f64, f64))| {
        Some(Deviation { index, x, ratio: finite(y / median - 1.0)? })
    };
    points.iter().enumerate().filter_map(away).max_by(|a, b| a.ratio.abs().total_cmp(&b.ratio.abs()))
}

/// The line through three points or more, by the mean figure.
struct Trend {
    slope: f64,
    change: f64,
    interval: Interval,
    p_value: f64,
}

impl Trend {
    fn of(points: &[(f64, f64)], level: f64) -> Option<Self> {
        let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
        let fit = linear_fit(&x, &y)?;
        let se = fit.slope_se.filter(|_| is_level(level))?;
        let (first, last) = x.iter().fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
        let df = (fit.n - 2) as f64;
        let scale = (last - first) / fit.mean_y;
        let (change, half) = (fit.slope * scale, t_multiplier(level, df) * se * scale);
        let p_value = match (fit.slope == 0.0, se == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => t_two_sided(fit.slope / se, df),
        };
        Some(Self {
            slope: finite(fit.slope / fit.mean_y)?,
            change: finite(change)?,
            interval: Interval::new(change - half, change + half, level, Method::StudentT)?,
            p_value,
        })
    }
}
