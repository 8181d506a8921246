//! Which construction is built next.
//!
//! What is known of a construction are the levels of its best points, one for each work. [`Additive`] predicts the others
//! from these by their costly dimensions, and the next one is that of which most is to be expected: the sum over the works of the
//! expected improvement on the best so far (Mockus 1975; Jones, Schonlau and Welch 1998). Only one dimension changes at a
//! time, so that what a construction shows belongs to it.
//!
//! Three things are expected beforehand, as `EXPECTED` and `RAW` say: more drives are faster, larger chunks make fewer
//! requests, and a file system adds work. They decide what is built first and what is worth a look, and never what is
//! recommended of constructions that measurements tell apart.

use std::collections::{BTreeMap, BTreeSet};

use measure::stats::normal_cdf as normal;

use super::additive::{Additive, indicators};
use super::design::Factors;

/// Dimensions of which more is expected to be faster, by how much for each doubling, ln, and the SD of that.
const EXPECTED: [(&str, f64, f64); 2] = [("width", 0.35, 0.25), ("chunk", 0.03, 0.1)];
/// By how much targets without a file system are expected to be faster than others, ln, and the SD of that.
const RAW: (&str, f64, f64) = ("raw", 0.05, 0.15);
/// SD of the effect of a number over the range of its values, ln.
const RANGE: f64 = 0.4;
/// SD of what a value of a number adds to its trend, ln.
const DEPARTURE: f64 = 0.1;
/// SD of the effect of a word, ln.
const WORD: f64 = 0.3;
/// Above this chance of being better by `GAIN`, a construction is worth building; the chances of all others together.
const ALPHA: f64 = 0.05;
/// A gain that matters, ln.
const GAIN: f64 = 0.02;

/// The constructions of a space and what is known of them.
#[derive(Debug, Clone)]
pub struct Constructions {
    factors: Factors,
    expected: Vec<f64>,
    x: Vec<Vec<f64>>,
    prior: Vec<f64>,
}

/// What is known: by work, the level of the best point of each construction that was built, ln.
pub type Levels = BTreeMap<usize, BTreeMap<usize, f64>>;

impl Constructions {
    /// The constructions with these options.
    #[must_use]
    pub fn new(options: &[BTreeMap<String, String>]) -> Self {
        let factors = Factors::of_maps(options);
        let count = options.len();
        let (mut x, mut prior, mut expected) = (vec![Vec::new(); count], Vec::new(), vec![0.0; count]);
        for (f, name) in factors.names.iter().enumerate() {
            let numbers: Option<Vec<f64>> = factors.values[f].iter().map(|text| logarithm(text)).collect();
            let least = numbers.iter().flatten().copied().fold(f64::INFINITY, f64::min);
            let most = numbers.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
            let known = EXPECTED.iter().find(|(known, ..)| known == name);
            let (slope, sd) = known.map_or((0.0, RANGE / (most - least)), |(_, slope, sd)| (*slope, *sd));
            let is_filesystem = factors.values[f].iter().any(|value| value == RAW.0);
            prior.extend(numbers.is_some().then_some(sd));
            let of_value = match (numbers.is_some(), is_filesystem) {
                (true, _) => DEPARTURE,
                (false, true) => RAW.2,
                (false, false) => WORD,
            };
            prior.extend(factors.values[f].iter().map(|_| of_value));
            for (c, row) in factors.rows.iter().enumerate() {
                if let Some(numbers) = &numbers {
                    x[c].push(numbers[row[f]] - least);
                    expected[c] += slope * (numbers[row[f]] - least);
                }
                expected[c] += if factors.values[f][row[f]] == RAW.0 { RAW.1 } else { 0.0 };
                x[c].extend(indicators(&[row[f]], &[factors.values[f].len()]));
            }
        }
        // The level of all of them, of which nothing is known.
        prior.push(10.0);
        x.iter_mut().for_each(|x| x.push(1.0));
        Self { factors, expected, x, prior }
    }

    /// The construction to build next; none where it is not likely that any is better. `begun` are those that were built.
    #[must_use]
    pub fn next(&self, begun: &BTreeSet<usize>, levels: &Levels) -> Option<usize> {
        let all = || (0..self.x.len()).filter(|c| !begun.contains(c));
        if levels.values().all(BTreeMap::is_empty) {
            // The first one that was written, of those of which most is expected.
            return all().max_by(|a, b| self.expected[*a].total_cmp(&self.expected[*b]).then(b.cmp(a)));
        }
        if self.chance(begun, levels) < ALPHA {
            return None;
        }
        let fitted: Vec<(Additive, usize)> = levels.values().filter_map(|levels| self.fit(levels)).collect();
        let is_near = |c: &usize| fitted.iter().any(|(_, best)| self.distance(*c, *best) == 1);
        let gain = |c: usize| -> f64 {
            fitted.iter().map(|(fitted, best)| improvement(self.ahead(fitted, c, *best), 0.0)).sum()
        };
        let near = all().filter(is_near).max_by(|a, b| gain(*a).total_cmp(&gain(*b)).then(b.cmp(a)));
        near.or_else(|| all().max_by(|a, b| gain(*a).total_cmp(&gain(*b)).then(b.cmp(a))))
    }

    /// The chance that one that was not built is better by `GAIN` for a work, as far as dimensions act independently: the
    /// largest of all of them and of all works.
    #[must_use]
    pub fn chance(&self, begun: &BTreeSet<usize>, levels: &Levels) -> f64 {
        let fitted = levels.values().filter_map(|levels| self.fit(levels));
        let chances = fitted.flat_map(|(fitted, best)| {
            let rest = (0..self.x.len()).filter(|c| !begun.contains(c));
            rest.map(|c| {
                let (mean, sd) = self.ahead(&fitted, c, best);
                normal((mean - GAIN) / sd.max(1e-9))
            })
            .collect::<Vec<f64>>()
        });
        chances.fold(0.0, f64::max)
    }

    /// Values of dimensions that no construction among `begun` has: `width=1`.
    #[must_use]
    pub fn never_built(&self, begun: &BTreeSet<usize>) -> Vec<String> {
        let dimensions = self.factors.names.iter().zip(&self.factors.values).enumerate();
        let of = |(f, (name, values)): (usize, (&String, &Vec<String>))| {
            let is_missing = |level: &usize| begun.iter().all(|c| self.factors.rows[*c][f] != *level);
            let missing = (0..values.len()).filter(is_missing);
            missing.map(|level| format!("{name}={}", values[level])).collect::<Vec<String>>()
        };
        dimensions.flat_map(of).collect()
    }

    /// What the levels of one work say, and which construction is best for it.
    fn fit(&self, levels: &BTreeMap<usize, f64>) -> Option<(Additive, usize)> {
        let best = levels.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(c, _)| *c)?;
        let mean = levels.values().sum::<f64>() / levels.len() as f64;
        let x: Vec<Vec<f64>> = levels.keys().map(|c| self.x[*c].clone()).collect();
        let y: Vec<f64> = levels.iter().map(|(c, y)| y - mean - self.expected[*c]).collect();
        Some((Additive::fit(&x, &y, &self.prior), best))
    }

    /// By how much a construction is predicted to be ahead of another one, with the SD of that, ln.
    fn ahead(&self, fitted: &Additive, c: usize, best: usize) -> (f64, f64) {
        let mean = fitted.predict(&self.x[c]) - fitted.predict(&self.x[best]);
        (mean + self.expected[c] - self.expected[best], fitted.sd(&self.x[c], &self.x[best]))
    }

    fn distance(&self, a: usize, b: usize) -> usize {
        self.factors.rows[a].iter().zip(&self.factors.rows[b]).filter(|(a, b)| a != b).count()
    }
}

/// log2 of a number or a size; none of a word.
fn logarithm(text: &str) -> Option<f64> {
    let number = units::size(text).ok().filter(|n| *n > 0)?;
    Some((number as f64).log2())
}

/// The expected improvement over `least` of a normal figure.
fn improvement((mean, sd): (f64, f64), least: f64) -> f64 {
    if sd <= 0.0 {
        return (mean - least).max(0.0);
    }
    let z = (mean - least) / sd;
    (mean - least) * normal(z) + sd * (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt()
}
