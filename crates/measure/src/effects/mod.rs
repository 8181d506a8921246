//! What each dimension of a factorial sweep does, all others held equal.
//!
//! **Matched, not pooled.** The papers' Figs 8–14 average everything that shares a value. That
//! compares like with like only if every combination was run. Here the effect of a dimension is
//! taken within *blocks*, the sets of configurations that differ in nothing else, and then averaged
//! over the blocks; configurations without a match do not bend the figure, and are counted. Ratios
//! are of geometric means, so that a class of 4 KB requests weighs as much as one of 4 MB.
//!
//! For each dimension values are compared over the blocks that have both, and the best value is set against the
//! rest. Those that are not beyond noise *and* [`EffectRules::min_effect`] behind it are listed as tied with it, and so are those
//! whose configurations were all shown to be equivalent in their race ([`Observation::is_equivalent`]).
//!
//! **Two intervals, for two questions.** [`RatioEstimate::noise`] asks whether the difference seen
//! at these very settings is more than scatter; verdicts rest on it. It is that of [`crate::decide`]: the configurations of one block share
//! its noise, weights and memory, and where blocks were run until it was decided the critical value holds at all numbers
//! of blocks together, corrected for all other values of all dimensions, as the race is for all other settings. With a
//! fixed number of blocks it is Student's t, corrected for all pairs of values of all dimensions. Where values lie on different constructions, these are the
//! observations, and their number gives the degrees of freedom.
//! [`RatioEstimate::across_blocks`] asks whether it would be the same at other settings; it is wide
//! where a dimension helps here and hurts there, which is what [`Interaction`] then shows.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decide::{Answer, Outcome, Standing};
use crate::stats::compare::{CompareRules, Direction, Verdict};
use crate::stats::{DEFAULT_LEVEL, is_level};

mod interactions;
mod ratio;
mod table;

pub use interactions::{Interaction, InteractionCell};
pub use ratio::RatioEstimate;
use ratio::{Family, LogRatio, estimates};
use table::{Block, Table};

/// One configuration and its figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// The value of each dimension, by name.
    pub settings: BTreeMap<String, String>,
    /// The figures that count.
    pub samples: Vec<Sample>,
    /// What it was measured on: configurations of one construction share its level and its blocks.
    pub construction: u32,
    /// The correlation of successive blocks of that construction, 0 to 0.7.
    pub memory: f64,
    /// Whether its race showed it to be equivalent to the cheapest.
    pub is_equivalent: bool,
}

/// A figure and the block that it was measured in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// The figure, above 0.
    pub figure: f64,
    /// The number of the block, or the pass.
    pub block: u32,
    /// The block's weight, at most 1. A sample with 0 or less counts for nothing.
    pub weight: f64,
}

impl Sample {
    /// The passes of a configuration, in order, all of weight 1.
    pub fn passes(figures: &[f64]) -> Vec<Self> {
        (0..).zip(figures).map(|(block, figure)| Self { figure: *figure, block, weight: 1.0 }).collect()
    }
}

impl Observation {
    /// A setting's figures in a race, each with the number of its block from 0; without settings.
    #[must_use]
    pub fn of_race(race: &Outcome, setting: usize, figures: impl Iterator<Item = (u32, f64)>) -> Self {
        // Without an analysis no block has a weight, and a block after the decision has none either.
        let is_weighed = race.block_weights.iter().any(|weight| *weight > 0.0);
        let weight_of = |block: u32| race.block_weights.get(block as usize).copied().unwrap_or(0.0);
        let weight = |block: u32| if is_weighed { weight_of(block) } else { 1.0 };
        let sample = |(block, figure)| Sample { figure, block, weight: weight(block) };
        let is_alive = race.settings[setting].standing == Standing::Alive;
        Self {
            samples: figures.map(sample).filter(|sample| sample.weight > 0.0).collect(),
            memory: race.memory,
            is_equivalent: is_alive && matches!(race.answer, Answer::Equivalent { .. }),
            ..Self::default()
        }
    }
}

/// How to judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EffectRules {
    /// Level of all intervals of dimensions together, and of those of interactions; strictly between 0 and 1.
    pub level: f64,
    /// The smallest difference that matters: 0.02 is 2 %.
    pub min_effect: f64,
    /// Which way is good.
    pub direction: Direction,
    /// Whether blocks were run until it was decided, so that intervals must hold at all numbers of blocks together.
    pub every_block: bool,
    /// Whether to look at pairs of dimensions too.
    pub interactions: bool,
}

impl Default for EffectRules {
    fn default() -> Self {
        let CompareRules { level, min_effect, direction, .. } = CompareRules::default();
        Self { level, min_effect, direction, every_block: false, interactions: true }
    }
}

/// A level that is none.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("level={0}: an interval's level lies between 0 and 1, such as {DEFAULT_LEVEL}")]
pub struct BadLevel(f64);

/// Why an observation was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExcludedWhy {
    /// No pass of it counts.
    NoSamples,
    /// A figure is not a finite number.
    NotFinite,
    /// A figure is 0 or less, which has no ratio.
    NotPositive,
}

/// An observation that was left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Excluded {
    /// Which of those handed in, from 0.
    pub index: usize,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// Why.
    pub why: ExcludedWhy,
}

/// What every dimension does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effects {
    /// Distinct configurations analysed.
    pub configurations: usize,
    /// What was left out.
    pub excluded: Vec<Excluded>,
    /// Each dimension with at least two values, the one with the largest spread first.
    pub dimensions: Vec<DimensionEffect>,
    /// Each pair of those that was run in full combination at least once, the strongest first.
    pub interactions: Vec<Interaction>,
}

/// Whether a dimension matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DimensionVerdict {
    /// A value differs from the best one beyond noise and by enough to matter.
    Matters,
    /// None was shown to.
    NoDifference,
    /// No two values could be tested: no matched configurations, or one pass each in a single block.
    NotEnoughData,
}

/// What one dimension does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DimensionEffect {
    /// Its name.
    pub dimension: String,
    /// Whether it matters.
    pub verdict: DimensionVerdict,
    /// Blocks: sets of configurations that differ in this dimension only.
    pub blocks: usize,
    /// Of these, blocks that have every value.
    pub complete_blocks: usize,
    /// The best value by the mean log ratio against all others it can be matched with; none where
    /// nothing can.
    pub best: Option<String>,
    /// Largest ratio among matched values: best by worst.
    pub spread_ratio: Option<f64>,
    /// Every other value against the best.
    pub against_best: Vec<AgainstBest>,
    /// Values that cannot be told from the best.
    pub tied_with_best: Vec<String>,
}

/// A value against the best one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgainstBest {
    /// The value.
    pub value: String,
    /// Value by best; none where no block has both.
    pub effect: Option<RatioEstimate>,
    /// Blocks in which it is behind the best.
    pub blocks_behind: usize,
    /// What its interval says of the value.
    pub verdict: Verdict,
}

/// Analyses a sweep. Observations with equal settings are pooled. One without some dimension is
/// matched only with others without it.
///
/// # Errors
/// [`BadLevel`] for a level outside (0, 1).
pub fn effects(observations: &[Observation], rules: &EffectRules) -> Result<Effects, BadLevel> {
    if !is_level(rules.level) {
        return Err(BadLevel(rules.level));
    }
    let table = Table::of(observations);
    let varied: Vec<usize> =
        (0..table.dimensions.len()).filter(|d| table.dimensions[*d].values.len() >= 2).collect();
    let values = || varied.iter().map(|d| table.dimensions[*d].values.len() as f64);
    let family =
        rules.family(values().map(|v| v - 1.0).sum(), values().map(|v| v * (v - 1.0) / 2.0).sum::<f64>());
    let mut dimensions: Vec<_> = varied.iter().map(|d| one_dimension(&table, *d, rules, &family)).collect();
    let spread = |d: &DimensionEffect| d.spread_ratio.unwrap_or(0.0);
    dimensions.sort_by(|a, b| spread(b).total_cmp(&spread(a)));
    Ok(Effects {
        configurations: table.configurations(),
        dimensions,
        interactions: if rules.interactions { interactions::all(&table, &varied, rules) } else { Vec::new() },
        excluded: table.excluded,
    })
}

impl EffectRules {
    fn family(&self, with_best: f64, pairs: f64) -> Family {
        Family { alpha: 1.0 - self.level, every_block: self.every_block, with_best, pairs }
    }

    /// Whether a ratio is far enough from 1 to matter.
    fn is_enough(&self, ratio: f64) -> bool {
        ratio.max(1.0 / ratio) >= 1.0 + self.min_effect.max(0.0)
    }

    /// A log ratio such that more is better.
    fn gain(&self, log: f64) -> f64 {
        match self.direction {
            Direction::HigherIsBetter => log,
            Direction::LowerIsBetter => -log,
        }
    }
}

fn one_dimension(table: &Table, dimension: usize, rules: &EffectRules, family: &Family) -> DimensionEffect {
    let named = &table.dimensions[dimension];
    let blocks = table.blocks(dimension);
    let values_count = named.values.len();
    let pairs = if values_count <= ALL_PAIRS {
        Pairs::of(&blocks, values_count, family)
    } else {
        Pairs::of_best(&blocks, values_count, rules, family)
    };
    let scores = pairs.scores(values_count);
    let best = best_of(&scores, rules);
    let against_best: Vec<AgainstBest> = best.map_or_else(Vec::new, |best| {
        let others = (0..named.values.len()).filter(|v| *v != best);
        others.map(|other| pairs.against(other, best, &named.values[other], rules)).collect()
    });
    let tied = |a: &&AgainstBest| matches!(a.verdict, Verdict::NoDifference | Verdict::Better);
    DimensionEffect {
        dimension: named.name.clone(),
        verdict: dimension_verdict(&against_best),
        complete_blocks: blocks.iter().filter(|b| b.len() == named.values.len()).count(),
        blocks: blocks.len(),
        best: best.map(|number| named.values[number].clone()),
        spread_ratio: against_best
            .iter()
            .filter_map(|a| a.effect.map(|e| e.ratio.max(1.0 / e.ratio)))
            .reduce(f64::max),
        tied_with_best: against_best.iter().filter(tied).map(|a| a.value.clone()).collect(),
        against_best,
    }
}

/// A dimension matters if a value is not the best: for as many comparisons its intervals are corrected.
fn dimension_verdict(against_best: &[AgainstBest]) -> DimensionVerdict {
    let has = |wanted: &dyn Fn(Verdict) -> bool| against_best.iter().any(|a| wanted(a.verdict));
    if has(&|v| matches!(v, Verdict::Better | Verdict::Worse)) {
        DimensionVerdict::Matters
    } else if has(&|v| v == Verdict::NoDifference) {
        DimensionVerdict::NoDifference
    } else {
        DimensionVerdict::NotEnoughData
    }
}

/// Of the values that have a score, the one with the best.
fn best_of(scores: &[Option<f64>], rules: &EffectRules) -> Option<usize> {
    let scored = scores.iter().enumerate().filter_map(|(value, score)| Some((value, rules.gain((*score)?))));
    // The first of equals, so that the order of the observations decides.
    scored.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(value, _)| value)
}

/// By value, the mean over its blocks of its log against the block's mean; none for a value that is alone everywhere.
fn block_scores(blocks: &[Block<'_>], values: usize) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0u32); values];
    for block in blocks.iter().filter(|block| block.len() > 1) {
        let mean = block.values().map(|cell| cell.log_mean).sum::<f64>() / block.len() as f64;
        for (value, cell) in block {
            sums[*value] = (sums[*value].0 + cell.log_mean - mean, sums[*value].1 + 1);
        }
    }
    sums.into_iter().map(|(sum, n)| (n > 0).then(|| sum / f64::from(n))).collect()
}

/// Values of a dimension up to which every pair is tested; their number is quadratic. Beyond, the best value is
/// found by its mean distance from its blocks, and compared with each other one.
const ALL_PAIRS: usize = 64;

/// Pairs of values over the blocks that have both.
struct Pairs {
    /// Log ratio of the first by the second, first < second.
    ratios: BTreeMap<(usize, usize), Pair>,
    /// By value, the mean log ratio against its blocks, where not every pair was looked at.
    scores: Option<Vec<Option<f64>>>,
}

struct Pair {
    ratio: LogRatio,
    estimate: Option<RatioEstimate>,
}

impl Pair {
    fn verdict(&self, rules: &EffectRules) -> Verdict {
        let Some((ratio, differs)) = self.estimate.and_then(|e| Some((e.ratio, e.differs()?))) else {
            return Verdict::NotEnoughData;
        };
        match (ratio > 1.0) == (rules.direction == Direction::HigherIsBetter) {
            _ if !differs || !rules.is_enough(ratio) || self.ratio.is_equivalent() => Verdict::NoDifference,
            true => Verdict::Better,
            false => Verdict::Worse,
        }
    }
}

impl Pairs {
    fn of(blocks: &[Block<'_>], values: usize, family: &Family) -> Self {
        let mut collected: BTreeMap<(usize, usize), LogRatio> = BTreeMap::new();
        for block in blocks {
            for (first, a) in block {
                for (second, b) in block.range(first + 1..) {
                    collected.entry((*first, *second)).or_default().add([(1.0, *a), (-1.0, *b)]);
                }
            }
        }
        Self::tested(collected, values, family)
    }

    fn tested(collected: BTreeMap<(usize, usize), LogRatio>, values: usize, family: &Family) -> Self {
        let estimates = estimates(&collected.values().collect::<Vec<_>>(), values, family);
        let pairs = collected.into_iter().zip(estimates);
        let ratios = pairs.map(|((key, ratio), estimate)| (key, Pair { ratio, estimate })).collect();
        Self { ratios, scores: None }
    }

    /// The pairs of the best value with each other one.
    fn of_best(blocks: &[Block<'_>], values: usize, rules: &EffectRules, family: &Family) -> Self {
        let scores = block_scores(blocks, values);
        let Some(best) = best_of(&scores, rules) else {
            return Self { ratios: BTreeMap::new(), scores: Some(scores) };
        };
        let mut collected: BTreeMap<(usize, usize), LogRatio> = BTreeMap::new();
        for block in blocks.iter().filter(|b| b.contains_key(&best)) {
            for (other, cell) in block.iter().filter(|(value, _)| **value != best) {
                let (first, second) =
                    if best < *other { (block[&best], *cell) } else { (*cell, block[&best]) };
                let key = (best.min(*other), best.max(*other));
                collected.entry(key).or_default().add([(1.0, first), (-1.0, second)]);
            }
        }
        Self { scores: Some(scores), ..Self::tested(collected, values, family) }
    }

    /// By value, the mean log ratio against all others that it can be matched with.
    fn scores(&self, values: usize) -> Vec<Option<f64>> {
        if let Some(scores) = &self.scores {
            return scores.clone();
        }
        let mut sums = vec![(0.0, 0u32); values];
        for ((first, second), pair) in &self.ratios {
            if let Some(log) = pair.ratio.log() {
                sums[*first] = (sums[*first].0 + log, sums[*first].1 + 1);
                sums[*second] = (sums[*second].0 - log, sums[*second].1 + 1);
            }
        }
        sums.into_iter().map(|(sum, n)| (n > 0).then(|| sum / f64::from(n))).collect()
    }

    /// `value` by `best`, turned round where the pair is stored the other way.
    fn against(&self, value: usize, best: usize, name: &str, rules: &EffectRules) -> AgainstBest {
        let pair = self.ratios.get(&(value.min(best), value.max(best)));
        let turned = value > best;
        let verdict = pair.map_or(Verdict::NotEnoughData, |pair| pair.verdict(rules));
        let behind = |log: &&f64| rules.gain(if turned { -**log } else { **log }) < 0.0;
        AgainstBest {
            value: name.to_owned(),
            blocks_behind: pair.map_or(0, |p| p.ratio.logs.iter().filter(behind).count()),
            verdict: match verdict {
                Verdict::Better if turned => Verdict::Worse,
                Verdict::Worse if turned => Verdict::Better,
                verdict => verdict,
            },
            effect: pair.and_then(|p| p.estimate).map(|e| if turned { e.reciprocal() } else { e }),
        }
    }
}
