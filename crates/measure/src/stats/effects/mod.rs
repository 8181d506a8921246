//! What each dimension of a factorial sweep does, all others held equal.
//!
//! **Matched, not pooled.** The papers' Figs 8–14 average everything that shares a value. That
//! compares like with like only if every combination was run. Here the effect of a dimension is
//! taken within *blocks*, the sets of configurations that differ in nothing else, and then averaged
//! over the blocks; configurations without a match do not bend the figure, and are counted. Ratios
//! are of geometric means, so that a class of 4 KB requests weighs as much as one of 4 MB.
//!
//! For each dimension, in this order:
//!
//! 1. **Each value against the reference**: the geometric mean of the dimension's values in each
//!    block that has all of them, or a named baseline value.
//! 2. **Every pair of values**, over the blocks that have both, tested against the noise of the passes
//!    (Welch–Satterthwaite over the cells), Holm-corrected over *all* pairs. The best value is chosen
//!    by looking at the data; correcting for all the pairs that might have been chosen is what keeps
//!    that honest.
//! 3. **The best against the rest**, taken from 2. Those that are not beyond noise *and*
//!    [`EffectRules::min_effect`] behind it are listed as tied with it.
//!
//! **Two intervals, for two questions.** [`RatioEstimate::noise`] asks whether the difference seen
//! at these very settings is more than scatter; verdicts rest on it.
//! [`RatioEstimate::across_blocks`] asks whether it would be the same at other settings; it is wide
//! where a dimension helps here and hurts there, which is what [`Interaction`] then shows.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compare::{CompareRules, Direction, Verdict, holm};
use super::{DEFAULT_LEVEL, is_level};

mod interactions;
mod ratio;
mod table;

pub use interactions::{Interaction, InteractionCell};
use ratio::LogRatio;
pub use ratio::RatioEstimate;
use table::{Block, Table};

/// One configuration and its figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// The value of each dimension, by name.
    pub settings: BTreeMap<String, String>,
    /// The passes that count, all above 0.
    pub samples: Vec<f64>,
}

/// How to judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EffectRules {
    /// Level of intervals and, as 1 − level, of tests; strictly between 0 and 1.
    pub level: f64,
    /// The smallest difference that matters: 0.02 is 2 %.
    pub min_effect: f64,
    /// Which way is good.
    pub direction: Direction,
    /// By dimension, the value that the others are set against; the dimension's geometric mean
    /// where none is named.
    pub baselines: BTreeMap<String, String>,
    /// Whether to look at pairs of dimensions too.
    pub interactions: bool,
}

impl Default for EffectRules {
    fn default() -> Self {
        let CompareRules { level, min_effect, direction, .. } = CompareRules::default();
        Self { level, min_effect, direction, baselines: BTreeMap::new(), interactions: true }
    }
}

/// Why nothing could be analysed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EffectsError {
    /// A level that is none.
    #[error("level={0}: an interval's level lies between 0 and 1, such as {DEFAULT_LEVEL}")]
    BadLevel(f64),
    /// A baseline that no observation has.
    #[error("baseline {dimension}={value}: no run has that value (there are: {known})")]
    NoSuchBaseline {
        /// The dimension.
        dimension: String,
        /// The value asked for.
        value: String,
        /// The values that there are.
        known: String,
    },
}

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
    /// At least two of its values differ beyond noise and by enough to matter.
    Matters,
    /// No two do.
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
    /// The value that ratios are against; none for the geometric mean of all values.
    pub baseline: Option<String>,
    /// Blocks: sets of configurations that differ in this dimension only.
    pub blocks: usize,
    /// Of these, blocks that have every value.
    pub complete_blocks: usize,
    /// Each value, in the order of the observations.
    pub values: Vec<ValueEffect>,
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

/// One value of a dimension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValueEffect {
    /// The value.
    pub value: String,
    /// Configurations that have it.
    pub configurations: usize,
    /// Against the reference; none where no block allows it.
    pub effect: Option<RatioEstimate>,
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
    /// The p-value corrected (Holm) for all pairs of this dimension's values.
    pub p_adjusted: Option<f64>,
    /// What that says of the value.
    pub verdict: Verdict,
}

/// Analyses a sweep. Observations with equal settings are pooled. One without some dimension is
/// matched only with others without it.
///
/// # Errors
/// [`EffectsError`] for a level outside (0, 1) or a baseline that no observation has.
pub fn effects(observations: &[Observation], rules: &EffectRules) -> Result<Effects, EffectsError> {
    if !is_level(rules.level) {
        return Err(EffectsError::BadLevel(rules.level));
    }
    let table = Table::of(observations);
    check_baselines(&table, rules)?;
    let varied: Vec<usize> =
        (0..table.dimensions.len()).filter(|d| table.dimensions[*d].values.len() >= 2).collect();
    let mut dimensions: Vec<_> = varied.iter().map(|d| one_dimension(&table, *d, rules)).collect();
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
    fn compare_rules(&self) -> CompareRules {
        let Self { level, min_effect, direction, .. } = *self;
        CompareRules { level, min_effect, direction, ..CompareRules::default() }
    }

    /// A log ratio such that more is better.
    fn gain(&self, log: f64) -> f64 {
        match self.direction {
            Direction::HigherIsBetter => log,
            Direction::LowerIsBetter => -log,
        }
    }
}

fn check_baselines(table: &Table, rules: &EffectRules) -> Result<(), EffectsError> {
    for (name, value) in &rules.baselines {
        let known = table.dimensions.iter().find(|d| d.name == *name).map_or(&[][..], |d| &d.values);
        if !known.contains(value) {
            return Err(EffectsError::NoSuchBaseline {
                dimension: name.clone(),
                value: value.clone(),
                known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
            });
        }
    }
    Ok(())
}

fn one_dimension(table: &Table, dimension: usize, rules: &EffectRules) -> DimensionEffect {
    let named = &table.dimensions[dimension];
    let blocks = table.blocks(dimension);
    let baseline = rules.baselines.get(&named.name);
    let baseline_number = baseline.and_then(|b| named.values.iter().position(|v| v == b));
    let values = named.values.iter().enumerate().map(|(number, value)| ValueEffect {
        value: value.clone(),
        configurations: table.count(dimension, number),
        effect: against_reference(&blocks, number, baseline_number, named.values.len()).estimate(rules.level),
    });
    let values = values.collect();
    let values_count = named.values.len();
    let pairs = if values_count <= ALL_PAIRS {
        Pairs::of(&blocks, rules)
    } else {
        Pairs::of_best(&blocks, values_count, rules)
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
        verdict: pairs.verdict(rules),
        baseline: baseline.cloned(),
        complete_blocks: blocks.iter().filter(|b| b.len() == named.values.len()).count(),
        blocks: blocks.len(),
        values,
        best: best.map(|number| named.values[number].clone()),
        spread_ratio: against_best
            .iter()
            .filter_map(|a| a.effect.map(|e| e.ratio.max(1.0 / e.ratio)))
            .reduce(f64::max),
        tied_with_best: against_best.iter().filter(tied).map(|a| a.value.clone()).collect(),
        against_best,
    }
}

/// A value against the baseline over the blocks that have both, or against all values over the
/// complete blocks.
fn against_reference(blocks: &[Block<'_>], value: usize, baseline: Option<usize>, values: usize) -> LogRatio {
    let mut ratio = LogRatio::default();
    for block in blocks {
        let Some(cell) = block.get(&value) else { continue };
        match baseline {
            Some(baseline) if baseline == value => {}
            Some(baseline) => {
                if let Some(other) = block.get(&baseline) {
                    ratio.add([(1.0, *cell), (-1.0, *other)]);
                }
            }
            None if block.len() == values => {
                let share = 1.0 / values as f64;
                let weight = |v: usize| if v == value { 1.0 - share } else { -share };
                ratio.add(block.iter().map(|(v, cell)| (weight(*v), *cell)));
            }
            None => {}
        }
    }
    ratio
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
    p_adjusted: Option<f64>,
}

impl Pairs {
    fn of(blocks: &[Block<'_>], rules: &EffectRules) -> Self {
        let mut collected: BTreeMap<(usize, usize), LogRatio> = BTreeMap::new();
        for block in blocks {
            for (first, a) in block {
                for (second, b) in block.range(first + 1..) {
                    collected.entry((*first, *second)).or_default().add([(1.0, *a), (-1.0, *b)]);
                }
            }
        }
        Self::tested(collected, rules)
    }

    /// Estimates and Holm's correction for what was collected.
    fn tested(collected: BTreeMap<(usize, usize), LogRatio>, rules: &EffectRules) -> Self {
        let mut ratios: BTreeMap<_, _> = collected
            .into_iter()
            .map(|(key, ratio)| {
                let estimate = ratio.estimate(rules.level);
                (key, Pair { ratio, estimate, p_adjusted: None })
            })
            .collect();
        let p_values: Vec<_> = ratios.values().map(|p| p.estimate.and_then(|e| e.p_value)).collect();
        for (pair, adjusted) in ratios.values_mut().zip(holm(&p_values)) {
            pair.p_adjusted = adjusted;
        }
        Self { ratios, scores: None }
    }

    /// The pairs of the best value with each other one, corrected for all the pairs that might have been chosen: with n
    /// values these are n/2 times as many.
    fn of_best(blocks: &[Block<'_>], values: usize, rules: &EffectRules) -> Self {
        let scores = block_scores(blocks, values);
        let Some(best) = best_of(&scores, rules) else {
            return Self { ratios: BTreeMap::new(), scores: Some(scores) };
        };
        let with_best: Vec<Block<'_>> = blocks.iter().filter(|b| b.contains_key(&best)).cloned().collect();
        let mut collected: BTreeMap<(usize, usize), LogRatio> = BTreeMap::new();
        for block in &with_best {
            for (other, cell) in block.iter().filter(|(value, _)| **value != best) {
                let (first, second) =
                    if best < *other { (block[&best], *cell) } else { (*cell, block[&best]) };
                let key = (best.min(*other), best.max(*other));
                collected.entry(key).or_default().add([(1.0, first), (-1.0, second)]);
            }
        }
        let mut pairs = Self::tested(collected, rules);
        for pair in pairs.ratios.values_mut() {
            pair.p_adjusted = pair.p_adjusted.map(|p| (p * values as f64 / 2.0).min(1.0));
        }
        Self { scores: Some(scores), ..pairs }
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

    fn verdict(&self, rules: &EffectRules) -> DimensionVerdict {
        let judge = rules.compare_rules();
        let verdicts = self
            .ratios
            .values()
            .filter_map(|pair| Some(judge.verdict(pair.estimate?.ratio, pair.p_adjusted?)));
        verdicts.fold(DimensionVerdict::NotEnoughData, |so_far, verdict| match (so_far, verdict) {
            (DimensionVerdict::Matters, _) | (_, Verdict::Better | Verdict::Worse) => {
                DimensionVerdict::Matters
            }
            _ => DimensionVerdict::NoDifference,
        })
    }

    /// `value` by `best`, turned round where the pair is stored the other way.
    fn against(&self, value: usize, best: usize, name: &str, rules: &EffectRules) -> AgainstBest {
        let pair = self.ratios.get(&(value.min(best), value.max(best)));
        let turned = value > best;
        let effect = pair.and_then(|p| p.estimate).map(|e| if turned { e.reciprocal() } else { e });
        let p_adjusted = pair.and_then(|p| p.p_adjusted);
        let behind = |log: &&f64| rules.gain(if turned { -**log } else { **log }) < 0.0;
        AgainstBest {
            value: name.to_owned(),
            blocks_behind: pair.map_or(0, |p| p.ratio.logs.iter().filter(behind).count()),
            verdict: match (effect, p_adjusted) {
                (Some(effect), Some(p)) => rules.compare_rules().verdict(effect.ratio, p),
                _ => Verdict::NotEnoughData,
            },
            effect,
            p_adjusted,
        }
    }
}
