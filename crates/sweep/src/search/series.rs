//! Effects from runs on a machine that drifts and has slow moments.
//!
//! A run's ln figure is the sum of its effects, of the machine's drift at that time, and of something of its own: a small
//! scatter in most runs, and in some that the machine was slower for a part of the run. On a shared virtual machine the first is
//! a few percent and the others are ten. Least squares takes all of it for one scatter and weighs all runs alike. Here the
//! drift is a random effect that successive runs of a block share, what is a run's own is a mixture of two normal
//! distributions, and all parts of the noise are estimated with the effects (expectation and maximisation, Dempster, Laird and
//! Rubin 1977), each from an expectation that weighs as a few runs, so that without drift or slow moments little is lost.

use super::additive::{Additive, dot, inverse};

/// What a run has in common with the next one's drift.
const KEPT: f64 = 0.85;
/// The runs as which what is expected of the noise weighs.
const EXPECTED: f64 = 4.0;
/// Rounds of estimation at most, and the change of the usual scatter, as a part of it, at which they end.
const ROUNDS: (usize, f64) = (30, 0.002);

/// What the noise of runs is made of, ln; variances but for `share` and `slower`.
#[derive(Debug, Clone, Copy)]
struct Noise {
    /// Of what is a run's own, in the machine's usual moments.
    usual: f64,
    /// The part of the runs that met a slow moment.
    share: f64,
    /// By how much these are slower.
    slower: f64,
    /// Of what is their own.
    slow: f64,
    /// Of the drift.
    drift: f64,
}

impl Noise {
    const EXPECTED: Self =
        Self { usual: 0.035 * 0.035, share: 0.25, slower: 0.1, slow: 0.1 * 0.1, drift: 0.05 * 0.05 };

    /// The chance that a run met a slow moment whose own part of the noise is `own` with variance `variance`.
    fn is_slow(&self, own: f64, variance: f64) -> f64 {
        let exponent = |own: f64, of: f64| -(own * own + variance) / (2.0 * of);
        let odds = (exponent(own, self.usual) - exponent(own + self.slower, self.slow)).exp()
            * (self.slow / self.usual).sqrt()
            * (1.0 - self.share)
            / self.share;
        1.0 / (1.0 + odds)
    }

    /// Mean and variance of what is the own of a run that met a slow moment with this chance.
    fn own(&self, is_slow: f64) -> (f64, f64) {
        let variance = 1.0 / ((1.0 - is_slow) / self.usual + is_slow / self.slow);
        (-self.slower * is_slow / self.slow * variance, variance)
    }

    /// Estimated anew from each run's own part of the noise, its drift, and the chance that it met a slow moment.
    fn estimated(runs: &[Parts]) -> Self {
        let sum = |of: &dyn Fn(&Parts) -> f64| runs.iter().map(of).sum::<f64>();
        let expected = Self::EXPECTED;
        let shrunk = |sum: f64, count: f64, expected: f64| (sum + EXPECTED * expected) / (count + EXPECTED);
        let slow = sum(&|run| run.is_slow);
        let count = runs.len() as f64;
        let slower = shrunk(sum(&|run| -run.is_slow * run.own), slow, expected.slower).max(0.0);
        let usual = shrunk(
            sum(&|run| (1.0 - run.is_slow) * (run.own * run.own + run.variance)),
            count - slow,
            expected.usual,
        );
        let of_slow = |run: &Parts| run.is_slow * ((run.own + slower).powi(2) + run.variance);
        Self {
            usual,
            share: shrunk(slow, count, expected.share),
            slower,
            // Not the narrower of the two: they would change places.
            slow: shrunk(sum(&of_slow), slow, expected.slow).max(1.5 * usual),
            drift: shrunk(sum(&|run| run.drift * run.drift + run.drift_variance), count, expected.drift),
        }
    }
}

/// A run's noise.
#[derive(Debug, Clone, Copy, Default)]
struct Parts {
    drift: f64,
    drift_variance: f64,
    own: f64,
    /// Of both estimates: of the drift and of the effects.
    variance: f64,
    is_slow: f64,
}

/// Fits `y`, ln figures less what is expected of them, by the features `x` of each, whose effects have the SDs `prior`. Runs follow
/// one another in blocks of these `lengths`, within which they share a drift.
#[must_use]
pub fn fit(x: &[Vec<f64>], y: &[f64], prior: &[f64], lengths: &[usize]) -> Additive {
    let x: Vec<Vec<(usize, f64)>> = x.iter().map(|x| sparse(x)).collect();
    let mut noise = Noise::EXPECTED;
    let mut runs = vec![Parts { is_slow: noise.share, ..Parts::default() }; y.len()];
    let mut round = 0;
    loop {
        let fitted = step(&x, y, prior, lengths, &noise, &mut runs);
        let before = noise.usual;
        noise = Noise::estimated(&runs);
        round += 1;
        if round >= ROUNDS.0 || (noise.usual / before - 1.0).abs() < ROUNDS.1 {
            return fitted;
        }
    }
}

/// The effects by this noise, and the parts of each run's noise by these effects.
fn step(
    x: &[Vec<(usize, f64)>],
    y: &[f64],
    prior: &[f64],
    lengths: &[usize],
    noise: &Noise,
    runs: &mut [Parts],
) -> Additive {
    let size = prior.len();
    let mut precision = vec![vec![0.0; size]; size];
    precision.iter_mut().enumerate().for_each(|(i, row)| row[i] = prior[i].powi(-2));
    let mut moment = vec![0.0; size];
    let own: Vec<(f64, f64)> = runs.iter().map(|run| noise.own(run.is_slow)).collect();
    let mut weights = Vec::with_capacity(lengths.len());
    let mut first = 0;
    for length in lengths {
        let block = first..first + length;
        let covariance = block.clone().map(|i| {
            let of = |j: usize| shared(noise, i, j) + if i == j { own[i].1 } else { 0.0 };
            block.clone().map(of).collect()
        });
        let weight = inverse(covariance.collect());
        for i in block.clone() {
            for j in block.clone() {
                let w = weight[i - first][j - first];
                for (f, a) in &x[i] {
                    moment[*f] += w * a * (y[j] - own[j].0);
                    x[j].iter().for_each(|(g, b)| precision[*f][*g] += w * a * b);
                }
            }
        }
        weights.push(weight);
        first += length;
    }
    let fitted = Additive::of(precision, &moment);
    let mut first = 0;
    for (length, weight) in lengths.iter().zip(&weights) {
        let block = first..first + length;
        let apart: Vec<f64> = block.clone().map(|i| y[i] - own[i].0 - fitted.predict_sparse(&x[i])).collect();
        let pulls: Vec<f64> = weight.iter().map(|row| dot(row, &apart)).collect();
        for i in block.clone() {
            let with: Vec<f64> = block.clone().map(|j| shared(noise, i, j)).collect();
            let explained: Vec<f64> = weight.iter().map(|row| dot(row, &with)).collect();
            let run = &mut runs[i];
            run.drift = dot(&with, &pulls);
            run.drift_variance = (noise.drift - dot(&with, &explained)).max(0.0);
            run.own = y[i] - fitted.predict_sparse(&x[i]) - run.drift;
            run.variance = run.drift_variance + fitted.variance_sparse(&x[i]);
            run.is_slow = noise.is_slow(run.own, run.variance);
        }
        first += length;
    }
    fitted
}

/// What the drifts of two runs of a block have in common.
fn shared(noise: &Noise, i: usize, j: usize) -> f64 {
    noise.drift * KEPT.powi(i32::try_from(i.abs_diff(j)).unwrap_or(i32::MAX))
}

fn sparse(x: &[f64]) -> Vec<(usize, f64)> {
    x.iter().copied().enumerate().filter(|(_, value)| *value != 0.0).collect()
}

#[cfg(test)]
mod tests {
    use measure::simulation::machine::{Machine, World};

    use super::super::additive::indicators;
    use super::*;

    /// Two settings in turn on a machine with slow moments and a drift, in blocks of a dozen runs: the estimate of their
    /// difference errs less than by least squares. On a machine without either it errs about as much.
    #[test]
    fn slow_moments_and_drift_are_told_from_the_scatter_of_runs() {
        let errors = |world| {
            let (mut plain, mut series) = (0.0, 0.0);
            for seed in 0..240 {
                let mut machine = Machine::new(world, &[0.0, 0.1], seed);
                let (mut x, mut y) = (Vec::new(), Vec::new());
                for run in 0..96 {
                    if run % 12 == 0 {
                        machine.wait_until(machine.now() + 300.0);
                    }
                    let block: Vec<f64> = (0..8).map(|b| f64::from(u8::from(b == run / 12))).collect();
                    x.push([indicators(&[run % 2], &[2]), block].concat());
                    y.push(machine.run(run % 2, 10.0).ln());
                }
                let prior = [vec![0.4; 2], vec![10.0; 8]].concat();
                let error = |fitted: &Additive| (fitted.predict(&x[1]) - fitted.predict(&x[0]) - 0.1).powi(2);
                plain += error(&Additive::fit(&x, &y, &prior));
                series += error(&fit(&x, &y, &prior, &[12; 8]));
            }
            series / plain
        };
        let vm = errors(World::Vm);
        assert!(vm < 0.9, "{vm} of the squared error");
        let normal = errors(World::Normal);
        assert!(normal < 1.15, "{normal} of the squared error");
    }
}
