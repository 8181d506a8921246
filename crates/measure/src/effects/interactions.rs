//! Does the effect of one dimension depend on another?
//!
//! If two dimensions act independently, every combination's figure is the product of its two
//! effects. The departure from that product, averaged over the blocks that have all combinations,
//! is the interaction: r_ab = l_ab − l_a· − l_·b + l_··, l being log means. The largest one names
//! the combination that behaves unlike the rest, and is tested against noise,
//! corrected for having been chosen as the largest and for the number of pairs of dimensions (Bonferroni over all combinations of all
//! pairs).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ratio::{Family, LogRatio, RatioEstimate, estimates};
use super::table::{Block, Table};
use super::{DimensionVerdict, EffectRules, best_of};

/// How two dimensions act together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interaction {
    /// One dimension.
    pub first: String,
    /// The other.
    pub second: String,
    /// Blocks that have every combination of the two.
    pub complete_blocks: usize,
    /// Every combination, by first value, then second.
    pub cells: Vec<InteractionCell>,
    /// The combination that departs most from the product of its two effects.
    pub largest: InteractionCell,
    /// By how much.
    pub effect: RatioEstimate,
    /// Whether the departure is beyond noise and large enough to matter.
    pub verdict: DimensionVerdict,
    /// The best value of `first` at each value of `second`.
    pub best_first: BTreeMap<String, String>,
    /// The best value of `second` at each value of `first`.
    pub best_second: BTreeMap<String, String>,
}

impl Interaction {
    /// Whether the interaction matters and the best value of one dimension is not the same
    /// throughout the other.
    #[must_use]
    pub fn changes_the_best(&self) -> bool {
        let differs = |best: &BTreeMap<String, String>| {
            best.values().zip(best.values().skip(1)).any(|(one, next)| one != next)
        };
        self.verdict == DimensionVerdict::Matters && (differs(&self.best_first) || differs(&self.best_second))
    }
}

/// One combination of two values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InteractionCell {
    /// Value of the first dimension.
    pub first: String,
    /// Value of the second.
    pub second: String,
    /// Its figure by the product of the two effects; 1 where they act independently.
    pub ratio: f64,
    /// Its figure by the geometric mean over all combinations: what one would plot.
    pub level: f64,
}

/// Every pair of the `varied` dimensions that was run in full combination, the strongest first.
pub(super) fn all(table: &Table, varied: &[usize], rules: &EffectRules) -> Vec<Interaction> {
    let pairs = varied
        .iter()
        .enumerate()
        .flat_map(|(i, first)| varied[i + 1..].iter().map(move |second| (*first, *second)));
    let complete: Vec<_> = pairs.filter_map(|pair| Some((pair, complete_blocks(table, pair)?))).collect();
    let combinations = |(first, second): &(usize, usize)| {
        (table.dimensions[*first].values.len() * table.dimensions[*second].values.len()) as f64
    };
    let tests = complete.iter().map(|(pair, _)| combinations(pair)).sum();
    let family = Family { with_best: tests, pairs: tests, ..rules.family(0.0, 0.0) };
    let found = complete.iter().filter_map(|(pair, blocks)| one(table, *pair, blocks, rules, &family));
    let mut found: Vec<Interaction> = found.collect();
    let strength = |i: &Interaction| i.effect.ratio.ln().abs();
    found.sort_by(|a, b| strength(b).total_cmp(&strength(a)));
    found
}

/// The blocks that have every combination of two dimensions; `None` without any.
fn complete_blocks(table: &Table, (first, second): (usize, usize)) -> Option<Vec<Block<'_>>> {
    let values = |dimension: usize| table.dimensions[dimension].values.len();
    let combinations = values(first).checked_mul(values(second))?;
    if combinations > table.configurations() {
        return None;
    }
    let mut blocks = table.blocks_of_two(first, second);
    blocks.retain(|block| block.len() == combinations);
    (!blocks.is_empty()).then_some(blocks)
}

fn one(
    table: &Table,
    (first, second): (usize, usize),
    blocks: &[Block<'_>],
    rules: &EffectRules,
    family: &Family,
) -> Option<Interaction> {
    let (a, b) = (&table.dimensions[first], &table.dimensions[second]);
    let combinations = a.values.len() * b.values.len();
    let logs = mean_logs(blocks, combinations);
    let grid = Grid::new(logs, b.values.len());
    let cell = |number: usize| InteractionCell {
        first: a.values[number / grid.width].clone(),
        second: b.values[number % grid.width].clone(),
        ratio: grid.departure(number).exp(),
        level: grid.level(number).exp(),
    };
    let largest =
        (0..combinations).max_by(|x, y| grid.departure(*x).abs().total_cmp(&grid.departure(*y).abs()))?;
    let mut ratio = LogRatio::default();
    for block in blocks {
        ratio.add(block.iter().map(|(number, cell)| (grid.weight(largest, *number), *cell)));
    }
    let effect = estimates(&[&ratio], 2, family).remove(0)?;
    let best_first = (0..b.values.len()).filter_map(|column| {
        let best = best_of(&grid.column(column), rules)?;
        Some((b.values[column].clone(), a.values[best].clone()))
    });
    let best_second = (0..a.values.len()).filter_map(|row| {
        let best = best_of(&grid.row(row), rules)?;
        Some((a.values[row].clone(), b.values[best].clone()))
    });
    Some(Interaction {
        first: a.name.clone(),
        second: b.name.clone(),
        complete_blocks: blocks.len(),
        cells: (0..combinations).map(cell).collect(),
        largest: cell(largest),
        verdict: match effect.differs() {
            Some(true) if rules.is_enough(effect.ratio) && !ratio.is_equivalent() => {
                DimensionVerdict::Matters
            }
            Some(_) => DimensionVerdict::NoDifference,
            None => DimensionVerdict::NotEnoughData,
        },
        effect,
        best_first: best_first.collect(),
        best_second: best_second.collect(),
    })
}

/// By combination, the log mean averaged over the complete blocks.
fn mean_logs(blocks: &[Block<'_>], combinations: usize) -> Vec<f64> {
    let mut logs = vec![0.0; combinations];
    for block in blocks {
        for (number, cell) in block {
            logs[*number] += cell.log_mean / blocks.len() as f64;
        }
    }
    logs
}

/// The log means of all combinations, row by row.
struct Grid {
    logs: Vec<f64>,
    width: usize,
    /// Mean of each row, of each column, and of all.
    means: (Vec<f64>, Vec<f64>, f64),
}

impl Grid {
    fn new(logs: Vec<f64>, width: usize) -> Self {
        let height = logs.len() / width;
        let mut means = (vec![0.0; height], vec![0.0; width], 0.0);
        for (number, log) in logs.iter().enumerate() {
            means.0[number / width] += log / width as f64;
            means.1[number % width] += log / height as f64;
            means.2 += log / logs.len() as f64;
        }
        Self { logs, width, means }
    }

    fn height(&self) -> usize {
        self.logs.len() / self.width
    }

    fn row(&self, row: usize) -> Vec<Option<f64>> {
        self.logs[row * self.width..][..self.width].iter().copied().map(Some).collect()
    }

    fn column(&self, column: usize) -> Vec<Option<f64>> {
        self.logs.iter().skip(column).step_by(self.width).copied().map(Some).collect()
    }

    /// The coefficient of combination `of` in the departure of combination `at`: (δ_row −
    /// 1/h)(δ_column − 1/w).
    fn weight(&self, at: usize, of: usize) -> f64 {
        let same = |x: usize, y: usize| if x == y { 1.0 } else { 0.0 };
        (same(at / self.width, of / self.width) - 1.0 / self.height() as f64)
            * (same(at % self.width, of % self.width) - 1.0 / self.width as f64)
    }

    fn level(&self, at: usize) -> f64 {
        self.logs[at] - self.means.2
    }

    fn departure(&self, at: usize) -> f64 {
        self.logs[at] - self.means.0[at / self.width] - self.means.1[at % self.width] + self.means.2
    }
}
