//! One contest, screened: which blocks of its design are owed, and which points are the finalists.

use super::ScreenedEffect;
use super::additive::{Additive, indicators};
use super::design::{self, Factors};
use super::series;

/// A contest with no more points is not screened: all of them race.
const FEW: usize = 6;
/// The fewest and the most points that race, if as many may be the best.
const FINALISTS: (usize, usize) = (4, 32);
/// Blocks of the race that there should be runs for, if all finalists stayed in it.
const RACE_BLOCKS: usize = 4;
/// Runs in a block of a design: they should lie within a second or two.
const BLOCK: usize = 8;
/// Runs of each value of a dimension, at least.
const RUNS_OF_A_VALUE: usize = 4;
/// Runs by the number of effects.
const RUNS_OF_AN_EFFECT: usize = 2;
/// SD of effects, ln: a value makes figures half as large again, as a rule.
const EFFECT: f64 = 0.4;
/// SD of what a finalist departs from the sum of its effects by, ln.
const DEPARTURE: f64 = 0.015;
/// SD of levels of blocks, ln.
const LEVEL: f64 = 10.0;
/// A point races, and is worth further runs of the race, if it is at most this many SDs of the difference behind the highest
/// prediction.
const MAY_WIN: f64 = 3.0;
/// A dimension matters if its best and its worst value differ by more than this many SDs.
const MATTERS: f64 = 2.0;

/// A contest's screening.
#[derive(Debug, Clone)]
pub struct Screen {
    factors: Factors,
    design: Vec<Vec<usize>>,
    /// The most points that race.
    most: usize,
    /// Of each block of the design, then of the race, the settings that ran with the ln of their figures.
    blocks: Vec<Vec<(usize, f64)>>,
    finalists: Vec<usize>,
}

impl Screen {
    /// The screening of a contest whose settings have these factors, where about `share` runs may be made; none where all of them may
    /// race. `order` puts the settings in random order, for each block.
    #[must_use]
    pub fn new(factors: Factors, share: usize, order: impl Fn(usize) -> Vec<usize>) -> Option<Self> {
        let settings = factors.rows.len();
        if settings <= FEW {
            return None;
        }
        let (levels, effects) = factors.size();
        let runs = (RUNS_OF_A_VALUE * levels).max(RUNS_OF_AN_EFFECT * (effects + 1));
        let design = design::blocks(&factors.rows, runs.div_ceil(BLOCK), BLOCK, order);
        let left = share.saturating_sub(design.iter().map(Vec::len).sum());
        let most = (left / RACE_BLOCKS).clamp(FINALISTS.0, FINALISTS.1);
        Some(Self { factors, design, most, blocks: Vec::new(), finalists: Vec::new() })
    }

    /// The settings of the block of the design that is owed; none where all of them were run.
    #[must_use]
    pub fn owed(&self) -> Option<&[usize]> {
        self.design.get(self.blocks.len()).map(Vec::as_slice)
    }

    /// Takes the figures of a block that was owed, or later of one of the race, in the order in which they ran.
    pub fn block(&mut self, figures: &[(usize, f64)]) {
        let ln = figures.iter().map(|(setting, figure)| (*setting, figure.ln()));
        self.blocks.push(ln.filter(|(_, y)| y.is_finite()).collect());
        if self.blocks.len() == self.design.len() {
            self.finalists = self.choose();
        }
    }

    /// The settings that race, ascending; none before the design is complete.
    #[must_use]
    pub fn finalists(&self) -> &[usize] {
        &self.finalists
    }

    /// The settings that may be the best by the sum of their effects. Of too many a fraction that has all of their values about
    /// equally often, that with the highest prediction among them: the few runs of the design must not decide between values
    /// that are close, which the runs of the race, of which each tells something of every dimension, can tell.
    fn choose(&self) -> Vec<usize> {
        let (fitted, levels) = self.fit();
        let x = |setting: usize| self.features(setting, None, &levels);
        let settings = self.factors.rows.len();
        let mut ranked: Vec<(usize, f64)> = (0..settings).map(|s| (s, fitted.predict(&x(s)))).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let (best, top) = ranked[0];
        // By how many SDs of its difference a setting is behind the best.
        let behind = |(s, y): &(usize, f64)| {
            let sd = fitted.sd(&x(best), &x(*s));
            if *s == best { 0.0 } else { (top - y) / sd.max(f64::MIN_POSITIVE) }
        };
        let mut may_win: Vec<(usize, f64)> = ranked.iter().map(|one| (one.0, behind(one))).collect();
        may_win.retain(|(_, behind)| *behind <= MAY_WIN);
        let rows: Vec<Vec<usize>> = may_win.iter().map(|(s, _)| self.factors.rows[*s].clone()).collect();
        let fraction = design::blocks(&rows, 1, self.most, |_| (0..rows.len()).collect());
        let mut finalists: Vec<usize> = fraction.into_iter().flatten().map(|n| may_win[n].0).collect();
        finalists.sort_unstable();
        finalists
    }

    /// Those of these settings that may be the best by the sum of effects over all runs so far: only they are worth further
    /// runs. At least two, if there are two, because no model decides a race.
    #[must_use]
    pub fn may_win(&self, settings: &[usize]) -> Vec<usize> {
        if settings.len() <= 2 {
            return settings.to_vec();
        }
        let (fitted, levels) = self.fit();
        let predicted = |setting: &usize| {
            let x = self.features(*setting, None, &levels);
            (*setting, fitted.predict(&x), x)
        };
        let mut ranked: Vec<(usize, f64, Vec<f64>)> = settings.iter().map(predicted).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let (_, top, best) = ranked[0].clone();
        let is_near = |(_, y, x): &(usize, f64, Vec<f64>)| top - y <= MAY_WIN * fitted.sd(&best, x);
        let near = ranked.iter().enumerate().filter(|(place, one)| *place < 2 || is_near(one));
        let mut may_win: Vec<usize> = near.map(|(_, one)| one.0).collect();
        may_win.sort_unstable();
        may_win
    }

    /// The same settings in an order in which each has as few values of the one before it as can be. Of equally good ones the
    /// first comes first, so that the order is as random as the one that is given. A machine's speed in one run resembles that in the next, so
    /// values that alternate are compared under the same conditions. What resembles all others comes late, so the caller has to
    /// turn the order around as often as not.
    #[must_use]
    pub fn alternating(&self, mut settings: Vec<usize>) -> Vec<usize> {
        let rows = &self.factors.rows;
        let agreement = |a: usize, b: usize| rows[a].iter().zip(&rows[b]).filter(|(a, b)| a == b).count();
        for at in 1..settings.len() {
            let before = settings[at - 1];
            let next = (at..settings.len()).min_by_key(|n| agreement(before, settings[*n])).unwrap_or(at);
            settings[at..=next].rotate_right(1);
        }
        settings
    }

    /// Of each dimension its number, the figure of its best value by that of its worst, and whether these differ.
    fn effects_of(&self, fitted: &Additive, levels: &[usize]) -> Vec<(usize, f64, bool)> {
        let features = self.finalists.len() + self.blocks.len();
        let of = move |f: usize| {
            let at = |level: usize| {
                let row: Vec<usize> = (0..levels.len()).map(|g| if g == f { level } else { 0 }).collect();
                let mut x = indicators(&row, levels);
                x.resize(x.len() + features, 0.0);
                x
            };
            let mut values: Vec<(usize, f64)> = (0..levels[f]).map(|l| (l, fitted.predict(&at(l)))).collect();
            values.sort_by(|a, b| a.1.total_cmp(&b.1));
            let (worst, best) = (values[0], values[values.len() - 1]);
            (f, (best.1 - worst.1).exp(), best.1 - worst.1 > MATTERS * fitted.sd(&at(best.0), &at(worst.0)))
        };
        (0..levels.len()).map(of).collect()
    }

    fn fit(&self) -> (Additive, Vec<usize>) {
        let levels: Vec<usize> = self.factors.values.iter().map(Vec::len).collect();
        let runs =
            || self.blocks.iter().enumerate().flat_map(|(b, block)| block.iter().map(move |run| (b, run)));
        let x: Vec<Vec<f64>> = runs().map(|(b, (s, _))| self.features(*s, Some(b), &levels)).collect();
        let y: Vec<f64> = runs().map(|(_, (_, y))| *y).collect();
        let mean = y.iter().sum::<f64>() / y.len().max(1) as f64;
        let y: Vec<f64> = y.iter().map(|y| y - mean).collect();
        let effects = std::iter::repeat_n(EFFECT, levels.iter().sum());
        let departures = self.finalists.iter().map(|_| DEPARTURE);
        let prior: Vec<f64> = effects.chain(departures).chain(self.blocks.iter().map(|_| LEVEL)).collect();
        let lengths: Vec<usize> = self.blocks.iter().map(Vec::len).collect();
        (series::fit(&x, &y, &prior, &lengths), levels)
    }

    /// A setting's features: its values, which finalist it is, and the block where it is a run.
    fn features(&self, setting: usize, block: Option<usize>, levels: &[usize]) -> Vec<f64> {
        let mut x = indicators(&self.factors.rows[setting], levels);
        x.extend(self.finalists.iter().map(|finalist| f64::from(u8::from(*finalist == setting))));
        x.extend((0..self.blocks.len()).map(|b| f64::from(u8::from(Some(b) == block))));
        x
    }

    /// By finalist, its figure by that of the best one, as estimated from all runs of the contest together: equal values
    /// of a dimension share what is known of them, so that this errs less than the means of single points.
    #[must_use]
    pub fn estimates(&self) -> Vec<f64> {
        let (fitted, levels) = self.fit();
        let of = |setting: &usize| fitted.predict(&self.features(*setting, None, &levels));
        let predicted: Vec<f64> = self.finalists.iter().map(of).collect();
        let best = predicted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        predicted.into_iter().map(|y| (y - best).exp()).collect()
    }

    /// What was found of each dimension, once the design is complete.
    #[must_use]
    pub fn effects(&self) -> Vec<ScreenedEffect> {
        if self.finalists.is_empty() {
            return Vec::new();
        }
        let (fitted, levels) = self.fit();
        let effect = |(f, ratio, matters): (usize, f64, bool)| {
            let mut kept: Vec<usize> = self.finalists.iter().map(|s| self.factors.rows[*s][f]).collect();
            kept.sort_unstable();
            kept.dedup();
            let value = |level: usize| self.factors.values[f][level].clone();
            ScreenedEffect {
                name: self.factors.names[f].clone(),
                ratio,
                matters,
                kept: kept.iter().copied().map(value).collect(),
                left_out: (0..levels[f]).filter(|level| !kept.contains(level)).map(value).collect(),
            }
        };
        self.effects_of(&fitted, &levels).into_iter().map(effect).collect()
    }
}
