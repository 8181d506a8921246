//! Effects of dimensions that add up in ln figures, by Bayesian linear regression.
//!
//! Every effect has a normal prior, so that a fraction of the points suffices, an effect that was not told keeps its prior's
//! width, and the posterior says how sure each prediction is. The noise is estimated with the effects.

/// What is known of the effects.
#[derive(Debug, Clone)]
pub struct Additive {
    mean: Vec<f64>,
    covariance: Vec<Vec<f64>>,
}

/// The noise that is expected before any figure is seen, ln, and the figures that this expectation weighs as.
const NOISE: (f64, f64) = (0.05, 4.0);
/// Rounds in which noise and effects are estimated in turn.
const ROUNDS: usize = 8;

impl Additive {
    /// Fits `y`, ln figures less what is expected of them, by the features `x` of each; `prior` has the SD of each effect.
    #[must_use]
    pub fn fit(x: &[Vec<f64>], y: &[f64], prior: &[f64]) -> Self {
        let mut fitted = Self { mean: Vec::new(), covariance: Vec::new() };
        let mut noise = NOISE.0;
        for _ in 0..ROUNDS {
            let weight = f64::powi(noise, -2);
            let product = |i: usize, j: usize| weight * x.iter().map(|x| x[i] * x[j]).sum::<f64>();
            let precision = |i: usize, j: usize| product(i, j) + if i == j { prior[i].powi(-2) } else { 0.0 };
            let size = 0..prior.len();
            let matrix = size.clone().map(|i| size.clone().map(|j| precision(i, j)).collect()).collect();
            let moment: Vec<f64> =
                size.clone().map(|i| weight * x.iter().zip(y).map(|(x, y)| x[i] * y).sum::<f64>()).collect();
            fitted = Self::of(matrix, &moment);
            let residuals = x.iter().zip(y).map(|(x, y)| (y - dot(&fitted.mean, x)).powi(2));
            // Effects that the figures have told, as against the prior.
            let told: f64 = size.map(|i| 1.0 - fitted.covariance[i][i] / prior[i].powi(2)).sum();
            let freedom = (y.len() as f64 - told).max(0.0) + NOISE.1;
            noise = ((residuals.sum::<f64>() + NOISE.1 * NOISE.0.powi(2)) / freedom).sqrt();
        }
        fitted
    }

    /// What this precision of the effects, and these weighted sums of figures, say of them.
    pub(super) fn of(precision: Vec<Vec<f64>>, moment: &[f64]) -> Self {
        let covariance = inverse(precision);
        let mean = covariance.iter().map(|row| dot(row, moment)).collect();
        Self { mean, covariance }
    }

    /// The prediction for features `x`, of which only those are given that are not 0, with their numbers.
    pub(super) fn predict_sparse(&self, x: &[(usize, f64)]) -> f64 {
        x.iter().map(|(f, value)| self.mean[*f] * value).sum()
    }

    /// The variance of that prediction.
    pub(super) fn variance_sparse(&self, x: &[(usize, f64)]) -> f64 {
        x.iter().map(|(f, a)| x.iter().map(|(g, b)| a * b * self.covariance[*f][*g]).sum::<f64>()).sum()
    }

    /// The prediction for features `x`.
    #[must_use]
    pub fn predict(&self, x: &[f64]) -> f64 {
        dot(&self.mean, x)
    }

    /// SD of the difference of two predictions.
    #[must_use]
    pub fn sd(&self, x: &[f64], other: &[f64]) -> f64 {
        let d: Vec<f64> = x.iter().zip(other).map(|(a, b)| a - b).collect();
        let product: Vec<f64> = self.covariance.iter().map(|row| dot(row, &d)).collect();
        dot(&product, &d).max(0.0).sqrt()
    }
}

/// Features of a row of levels: one for each value of each dimension.
#[must_use]
pub fn indicators(row: &[usize], levels: &[usize]) -> Vec<f64> {
    let of = |(level, levels): (&usize, &usize)| {
        (0..*levels).map(|l| f64::from(u8::from(l == *level))).collect::<Vec<f64>>()
    };
    row.iter().zip(levels).flat_map(of).collect()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The inverse of a positive definite matrix, which needs no pivots (Gauss and Jordan).
pub(super) fn inverse(mut a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let n = a.len();
    for (i, row) in a.iter_mut().enumerate() {
        row.extend((0..n).map(|j| f64::from(u8::from(i == j))));
    }
    for i in 0..n {
        // Its row has zeros before these by now, and still has them behind.
        let used = i..=n + i;
        let pivot = a[i][i];
        a[i][used.clone()].iter_mut().for_each(|value| *value /= pivot);
        let row = a[i][used.clone()].to_vec();
        for (_, other) in a.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let factor = other[i];
            other[used.clone()].iter_mut().zip(&row).for_each(|(value, own)| *value -= factor * own);
        }
    }
    a.into_iter().map(|row| row[n..].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_that_add_up_are_found_and_what_was_not_seen_stays_as_wide_as_its_prior() {
        let rows = [[0, 0], [0, 1], [1, 0], [1, 1], [0, 0], [1, 1]];
        let x: Vec<Vec<f64>> = rows.iter().map(|row| indicators(row, &[2, 3])).collect();
        let y: Vec<f64> = rows.iter().map(|row| 0.5 * row[0] as f64 - 0.3 * row[1] as f64).collect();
        let fitted = Additive::fit(&x, &y, &[1.0; 5]);
        let at = |row: [usize; 2]| indicators(&row, &[2, 3]);
        let difference = fitted.predict(&at([1, 0])) - fitted.predict(&at([0, 1]));
        assert!((difference - 0.8).abs() < 0.02, "{difference}");
        assert!(fitted.sd(&at([1, 0]), &at([0, 0])) < 0.05);
        assert!(fitted.sd(&at([0, 2]), &at([0, 0])) > 0.9);
    }
}
