//! A ratio of geometric means over matched configurations, with its intervals.
//!
//! A *contrast* is a weighted sum of ln figures whose weights sum to 0. Where they also sum to 0 within each construction, the
//! level of a construction is in none of the differences: the contrast is taken within the blocks that have all of its
//! configurations, with the weights of the race, and its variance comes from its scatter over blocks, all matched pairs of one block together,
//! because they share its noise. Otherwise the noise of a construction is in all pairs that lie on it: these are one
//! observation, and the variance is that between sets of constructions.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::table::Cell;
use crate::decide::analysis::{Pair, pool};
use crate::decide::critical;
use crate::stats::describe::{finite, mean, sample_sd};
use crate::stats::intervals::t_interval;
use crate::stats::special::t_multiplier;
use crate::stats::{Interval, Method};

/// A ratio of geometric means over matched configurations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioEstimate {
    /// The ratio: the exp of the mean log ratio over the matched configurations.
    pub ratio: f64,
    /// Sets of matched configurations that it rests on.
    pub blocks: usize,
    /// Would it hold at other settings? A t interval over the sets' log ratios; wide where the ratio
    /// depends on the other dimensions. None for a single set.
    pub across_blocks: Option<Interval>,
    /// Is it more than noise at these settings? From the scatter over blocks, or over constructions, corrected for all
    /// values compared. None where these are too few.
    pub noise: Option<Interval>,
    /// Sets of constructions that `noise` rests on: two are needed. 0 where what is compared shares constructions.
    pub constructions: usize,
}

/// For how many comparisons an interval is corrected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    /// 1 − level of all intervals together.
    pub(super) alpha: f64,
    /// Whether blocks were run until it was decided.
    pub(super) every_block: bool,
    /// Comparisons with the best values: each other value once.
    pub(super) with_best: f64,
    /// All pairs that might have been compared.
    pub(super) pairs: f64,
}

/// Collects a log ratio, one set of matched configurations after the other.
#[derive(Default)]
pub(super) struct LogRatio {
    pub(super) logs: Vec<f64>,
    /// By construction, the noise of differences within it.
    within: BTreeMap<u32, Within>,
    /// By set of constructions, the logs of those contrasts that contain their levels.
    between: BTreeMap<BTreeSet<u32>, Vec<f64>>,
    /// Whether a figure was not shown to be equivalent to that of its race's reference.
    is_open: bool,
}

/// The noise of differences within one construction.
struct Within {
    /// By block, its share in the sum of the logs less what is expected of it.
    by_block: BTreeMap<u32, f64>,
    /// The least number of blocks that a difference rests on.
    blocks: usize,
    /// By what the squares' sum is multiplied, the largest: few blocks, uneven weights and memory.
    factor: f64,
}

impl LogRatio {
    /// Adds Σ cᵢ·ln(figure of configuration i); nothing if no block has all of them where one is needed.
    pub(super) fn add<'a>(&mut self, terms: impl IntoIterator<Item = (f64, &'a Cell)>) {
        let mut by_construction: BTreeMap<u32, Vec<(f64, &Cell)>> = BTreeMap::new();
        for (coefficient, cell) in terms {
            self.is_open |= !cell.is_equivalent;
            by_construction.entry(cell.construction).or_default().push((coefficient, cell));
        }
        let cancels = |terms: &Vec<(f64, &Cell)>| terms.iter().map(|(c, _)| c).sum::<f64>().abs() < 1e-9;
        if by_construction.values().all(cancels) {
            let differences = by_construction.iter().map(|(c, terms)| Some((*c, Differences::of(terms)?)));
            let Some(differences) = differences.collect::<Option<Vec<_>>>() else { return };
            self.logs.push(differences.iter().map(|(_, d)| d.mean).sum());
            for (construction, found) in differences {
                let new = || Within { by_block: BTreeMap::new(), blocks: usize::MAX, factor: 0.0 };
                let within = self.within.entry(construction).or_insert_with(new);
                within.blocks = within.blocks.min(found.shares.len());
                within.factor = within.factor.max(found.factor);
                found.shares.into_iter().for_each(|(block, share)| {
                    *within.by_block.entry(block).or_default() += share;
                });
            }
        } else {
            let log = by_construction.values().flatten().map(|(c, cell)| c * cell.log_mean).sum();
            self.logs.push(log);
            self.between.entry(by_construction.into_keys().collect()).or_default().push(log);
        }
    }

    /// The mean log ratio; `None` before the first set.
    pub(super) fn log(&self) -> Option<f64> {
        mean(&self.logs)
    }

    /// Whether all figures were shown to be equivalent to that of their race's reference.
    pub(super) fn is_equivalent(&self) -> bool {
        !self.is_open
    }

    /// The mean log ratio with its variance; `None` where nothing tells of that.
    fn known(&self) -> Option<Pair> {
        let difference = self.log()?;
        let count = self.logs.len() as f64;
        if !self.between.is_empty() {
            // A difference within a construction stands for itself.
            let within = self.logs.len() - self.between.values().map(Vec::len).sum::<usize>();
            let groups = self.between.len();
            let share = |logs: &Vec<f64>| logs.iter().map(|log| (log - difference) / count).sum::<f64>();
            let squares: f64 = self.between.values().map(|logs| share(logs).powi(2)).sum();
            let freedom = groups as f64 - 1.0;
            let variance = squares * groups as f64 / freedom;
            return (groups > 1 && within == 0).then_some(Pair {
                difference,
                variance,
                freedom,
                blocks: groups,
            });
        }
        if self.within.values().any(|within| within.blocks < 2) {
            // One pass: what is known is how the sets of configurations scatter.
            let variance = sample_sd(&self.logs)?.powi(2) / count;
            return Some(Pair { difference, variance, freedom: count - 1.0, blocks: self.logs.len() });
        }
        let (mut variance, mut by_freedom, mut all) = (0.0, 0.0, 0.0);
        for within in self.within.values() {
            let squares: f64 = within.by_block.values().map(|share| (share / count).powi(2)).sum();
            let (own, freedom) = (within.factor * squares, within.blocks as f64 - 1.0);
            variance += own;
            by_freedom += own * own / freedom;
            all += freedom;
        }
        // Squares of less than this vanish from an f64: passes equal to the last bit, as simulated ones are.
        let freedom = Some(variance * variance / by_freedom).filter(|f| f.is_finite()).unwrap_or(all);
        Some(Pair { difference, variance, freedom, blocks: freedom as usize + 1 })
    }

    /// The ratio; `None` before the first set, or where it or its reciprocal exceeds an `f64`.
    fn estimate(&self, known: Option<Pair>, family: &Family) -> Option<RatioEstimate> {
        let log = self.log()?;
        let level = 1.0 - family.alpha;
        let noise = known.and_then(|known| {
            let critical = if family.every_block && self.between.is_empty() {
                critical::at_every_block(family.alpha / family.with_best, known.freedom, known.blocks)
            } else {
                t_multiplier(1.0 - family.alpha / family.pairs, known.freedom)
            };
            let half = if critical.is_finite() { critical * known.variance.sqrt() } else { f64::INFINITY };
            let method = if self.between.is_empty() { Method::Blocks } else { Method::Constructions };
            Interval::new((log - half).exp(), (log + half).exp(), level, method)
        });
        Some(RatioEstimate {
            ratio: finite(log.exp()).filter(|r| (1.0 / r).is_finite())?,
            blocks: self.logs.len(),
            across_blocks: t_interval(&self.logs, level).and_then(|i| i.map(f64::exp)),
            noise: noise.filter(|interval| interval.low > 0.0),
            constructions: self.between.len(),
        })
    }
}

/// The estimates of contrasts of one kind between `values` values. Within constructions their variances borrow from each other as
/// those of a race do.
pub(super) fn estimates(ratios: &[&LogRatio], values: usize, family: &Family) -> Vec<Option<RatioEstimate>> {
    let mut known: Vec<Option<Pair>> = ratios.iter().map(|ratio| ratio.known()).collect();
    if ratios.iter().all(|ratio| ratio.between.is_empty()) {
        pool(&mut known, values);
    }
    ratios.iter().zip(known).map(|(ratio, known)| ratio.estimate(known, family)).collect()
}

/// A contrast within the blocks of one construction.
struct Differences {
    mean: f64,
    /// By block, its share in the mean less what is expected of it.
    shares: Vec<(u32, f64)>,
    factor: f64,
}

impl Differences {
    /// None if no block has all configurations.
    fn of(terms: &[(f64, &Cell)]) -> Option<Self> {
        let (_, first) = terms.first()?;
        let in_block = |(block, run): (&u32, &super::table::Run)| {
            let sum = terms.iter().map(|(c, cell)| Some(c * cell.runs.get(block)?.y));
            Some((*block, run.weight, sum.sum::<Option<f64>>()?))
        };
        let blocks: Vec<(u32, f64, f64)> = first.runs.iter().filter_map(in_block).collect();
        let weights: f64 = blocks.iter().map(|(_, w, _)| w).sum();
        let squares: f64 = blocks.iter().map(|(_, w, _)| w * w).sum();
        if weights <= 0.0 {
            return None;
        }
        let mean = blocks.iter().map(|(_, w, d)| w * d).sum::<f64>() / weights;
        let n = blocks.len() as f64;
        let memory = (1.0 + first.memory) / (1.0 - first.memory);
        Some(Self {
            mean,
            shares: blocks.iter().map(|(block, w, d)| (*block, w * (d - mean) / weights)).collect(),
            factor: n / (n - 1.0) * n * squares / (weights * weights) * memory,
        })
    }
}

impl RatioEstimate {
    /// The same the other way round.
    pub(super) fn reciprocal(&self) -> Self {
        let turn = |interval: Option<Interval>| {
            interval.and_then(|i| Interval::new(1.0 / i.high, 1.0 / i.low, i.level, i.method))
        };
        Self {
            ratio: 1.0 / self.ratio,
            across_blocks: turn(self.across_blocks),
            noise: turn(self.noise),
            ..*self
        }
    }

    /// Whether it differs from 1 beyond noise; none without an interval.
    pub(super) fn differs(&self) -> Option<bool> {
        // Ratios that differ from 1 by rounding only have no scatter either.
        self.noise.map(|noise| !noise.contains(1.0) && self.ratio.ln().abs() > 1e-12)
    }
}
