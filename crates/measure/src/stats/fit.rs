//! The straight line through a series, by least squares.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::describe::{finite, mean, sum};

/// y = `mean_y` + `slope` · (x − `mean_x`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinearFit {
    /// Points.
    pub n: usize,
    /// Mean of the x.
    pub mean_x: f64,
    /// Mean of the y, which is the line's height there.
    pub mean_y: f64,
    /// Change of y for each unit of x.
    pub slope: f64,
    /// Standard error of the slope, from the residuals with n − 2 degrees of freedom; none for two
    /// points.
    pub slope_se: Option<f64>,
}

impl LinearFit {
    /// The line's height at `x`.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        self.mean_y + self.slope * (x - self.mean_x)
    }
}

/// The least-squares line; `None` for fewer than two points, for points all at one x, or where a
/// coordinate is not a finite number.
#[must_use]
pub fn linear_fit(x: &[f64], y: &[f64]) -> Option<LinearFit> {
    if x.len() != y.len() || x.len() < 2 {
        return None;
    }
    let (mean_x, mean_y) = (mean(x)?, mean(y)?);
    let around = |values: &[f64], centre: f64| values.iter().map(|v| v - centre).collect::<Vec<_>>();
    let (dx, dy) = (around(x, mean_x), around(y, mean_y));
    // In units of the largest distance, so that squares neither overflow nor vanish.
    let span = dx.iter().fold(0.0f64, |most, d| most.max(d.abs()));
    if span == 0.0 || !span.is_finite() {
        return None;
    }
    let units: Vec<f64> = dx.iter().map(|d| d / span).collect();
    let sxx = sum(units.iter().map(|u| u * u));
    let per_span = sum(units.iter().zip(&dy).map(|(u, d)| u * d)) / sxx;
    let residual_squares = sum(units.iter().zip(&dy).map(|(u, d)| (d - per_span * u).powi(2)));
    let slope_se =
        (x.len() > 2).then(|| (residual_squares / (x.len() - 2) as f64 / sxx).sqrt() / span).and_then(finite);
    Some(LinearFit { n: x.len(), mean_x, mean_y, slope: finite(per_span / span)?, slope_se })
}
