//! From the figures of all blocks to the difference of each pair of living settings and its variance.

use super::Steps;
use crate::stats::describe::median;

/// Blocks with more runs than this are long enough for the machine to change within them.
const LARGE_BLOCK_RUNS: usize = 8;
/// Runs on each side of a run that count as its neighbours.
const NEIGHBOURS_EACH_SIDE: usize = 2;
/// Rounds in which the levels of settings and the levels around runs are computed from each other.
const NEIGHBOUR_ROUNDS: usize = 6;
/// Rounds in which block weights and residuals are computed from each other.
const WEIGHT_ROUNDS: usize = 6;
/// Rounds in which setting and block levels are computed from each other where figures are missing.
const FIT_ROUNDS: usize = 12;
/// Degrees of freedom that pooling lends at most.
const POOLED_FREEDOM_MAX: f64 = 4.0;
/// The largest correlation of successive blocks that variances are corrected for.
const MEMORY_MAX: f64 = 0.7;

/// A setting's figure in a block: y = ln figure, larger is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Run {
    pub setting: usize,
    pub y: f64,
}

/// What is known of the difference of two settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pair {
    /// First minus second, ln.
    pub difference: f64,
    /// Its variance.
    pub variance: f64,
    /// Degrees of freedom of the variance.
    pub freedom: f64,
    /// Blocks that have both.
    pub blocks: usize,
}

/// The analysis of all blocks so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Analysis {
    /// For each block that has figures of two living settings, its position among all blocks and its weight.
    pub weights: Vec<(usize, f64)>,
    /// Correlation of successive blocks.
    pub memory: f64,
    /// Levels of the living settings, ln, in their order; only differences have a meaning.
    pub levels: Vec<f64>,
    /// The [`Pairs`] that were asked for, in their order; none for fewer than two blocks in common.
    pub pairs: Vec<Option<Pair>>,
}

/// Pairs of positions among the living settings, the smaller one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pairs {
    /// (0,1), (0,2), …, (1,2), ….
    All,
    /// Those with this position: with 0, with 1, ….
    With(usize),
}

impl Pairs {
    fn of(self, columns: usize) -> Vec<(usize, usize)> {
        match self {
            Self::All => (0..columns).flat_map(|i| (i + 1..columns).map(move |j| (i, j))).collect(),
            Self::With(one) => {
                let others = (0..columns).filter(|other| *other != one);
                others.map(|other| (one.min(other), one.max(other))).collect()
            }
        }
    }
}

/// Analyses `blocks` for the settings that are `alive`, two or more; `settings` is their number at the start.
/// None if no two of them ran in one block.
pub(super) fn analyse(
    blocks: &[Vec<Run>],
    settings: usize,
    alive: &[usize],
    pairs: Pairs,
    steps: Steps,
) -> Option<Analysis> {
    let adjusted = if steps.neighbours { relative_to_neighbours(blocks, settings) } else { Vec::new() };
    let mut position = vec![None; settings];
    alive.iter().enumerate().for_each(|(i, setting)| position[*setting] = Some(i));
    let mut table = Table { columns: alive.len(), cells: Vec::new(), blocks: Vec::new() };
    for (number, block) in blocks.iter().enumerate() {
        let values = adjusted.get(number).filter(|values| !values.is_empty());
        let mut row = vec![f64::NAN; alive.len()];
        for (at, run) in block.iter().enumerate() {
            if let Some(i) = position[run.setting] {
                row[i] = values.map_or(run.y, |values| values[at]);
            }
        }
        if row.iter().filter(|y| !y.is_nan()).count() >= 2 {
            table.cells.extend(row);
            table.blocks.push(number);
        }
    }
    (!table.blocks.is_empty()).then(|| table.analyse(pairs, steps))
}

/// For each large block the figures relative to the level of the runs around them; an empty list for a small one.
///
/// v = y − mean(y − θ) over the neighbours, with θ = mean v of each setting, in turn.
fn relative_to_neighbours(blocks: &[Vec<Run>], settings: usize) -> Vec<Vec<f64>> {
    let is_large = |block: &&Vec<Run>| block.len() > LARGE_BLOCK_RUNS;
    let mut levels = vec![0.0; settings];
    let mut relative: Vec<Vec<f64>> = Vec::new();
    if !blocks.iter().any(|block| is_large(&block)) {
        return relative;
    }
    for round in 0..=NEIGHBOUR_ROUNDS {
        relative = blocks
            .iter()
            .map(|block| match (is_large(&block), round) {
                (false, _) => Vec::new(),
                // The first levels are relative to the whole block.
                (true, 0) => relative_to(block, &levels, block.len()),
                (true, _) => relative_to(block, &levels, NEIGHBOURS_EACH_SIDE),
            })
            .collect();
        let (mut sums, mut counts) = (vec![0.0; settings], vec![0.0; settings]);
        for (block, values) in blocks.iter().zip(&relative) {
            for (run, v) in block.iter().zip(values) {
                sums[run.setting] += v;
                counts[run.setting] += 1.0;
            }
        }
        for (level, (sum, count)) in levels.iter_mut().zip(sums.iter().zip(&counts)) {
            *level = if *count > 0.0 { sum / count } else { 0.0 };
        }
    }
    relative
}

/// Each figure less the mean residual of at most `reach` runs before and after it.
fn relative_to(block: &[Run], levels: &[f64], reach: usize) -> Vec<f64> {
    let residual = |run: &Run| run.y - levels[run.setting];
    let mut sums = Vec::with_capacity(block.len() + 1);
    sums.push(0.0);
    for run in block {
        sums.push(sums[sums.len() - 1] + residual(run));
    }
    let around = |at: usize| {
        let (first, end) = (at.saturating_sub(reach), (at + reach + 1).min(block.len()));
        (sums[end] - sums[first] - residual(&block[at])) / (end - first - 1) as f64
    };
    block.iter().enumerate().map(|(at, run)| run.y - around(at)).collect()
}

/// Figures by block (row) and living setting (column); NaN for a missing one.
struct Table {
    columns: usize,
    cells: Vec<f64>,
    /// The position of each row among all blocks.
    blocks: Vec<usize>,
}

impl Table {
    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.cells.chunks_exact(self.columns)
    }

    fn analyse(&self, pairs: Pairs, steps: Steps) -> Analysis {
        let mut weights = vec![1.0; self.blocks.len()];
        let (mut levels, mut residuals) = self.fit(&weights);
        if steps.block_weights {
            for _ in 0..WEIGHT_ROUNDS {
                weights = self.weights(&residuals);
                (levels, residuals) = self.fit(&weights);
            }
        }
        let memory = if steps.memory { self.memory(&weights, &residuals) } else { 0.0 };
        let mut pairs = self.pairs(pairs, &weights);
        if steps.pooling {
            pool(&mut pairs, self.columns);
        }
        for pair in pairs.iter_mut().flatten() {
            pair.variance *= (1.0 + memory) / (1.0 - memory);
        }
        Analysis { weights: self.blocks.iter().copied().zip(weights).collect(), memory, levels, pairs }
    }

    /// Levels of the settings, and the residuals of setting + block by weighted least squares.
    fn fit(&self, weights: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut levels = vec![0.0; self.columns];
        let is_complete = self.cells.iter().all(|y| !y.is_nan());
        for _ in 0..if is_complete { 1 } else { FIT_ROUNDS } {
            let (mut sums, mut counts) = (vec![0.0; self.columns], vec![0.0; self.columns]);
            for (row, w) in self.rows().zip(weights) {
                let block = block_level(row, &levels);
                for (i, y) in row.iter().enumerate().filter(|(_, y)| !y.is_nan()) {
                    sums[i] += w * (y - block);
                    counts[i] += w;
                }
            }
            for (level, (sum, count)) in levels.iter_mut().zip(sums.iter().zip(&counts)) {
                *level = if *count > 0.0 { sum / count } else { 0.0 };
            }
        }
        let residuals = self.rows().flat_map(|row| {
            let block = block_level(row, &levels);
            row.iter().zip(&levels).map(move |(y, level)| y - block - level).collect::<Vec<_>>()
        });
        let residuals = residuals.collect();
        (levels, residuals)
    }

    /// The weight of each block: 1, or less where its residuals exceed what chance explains. The scale is the
    /// median over the blocks; the limit is the 95th percentile by Wilson and Hilferty's approximation.
    fn weights(&self, residuals: &[f64]) -> Vec<f64> {
        let n = self.blocks.len() as f64;
        let scatter = |row: &[f64]| {
            let present = row.iter().filter(|r| !r.is_nan());
            let (count, sum) = present.fold((0.0, 0.0), |(count, sum), r| (count + 1.0, sum + r * r));
            let freedom: f64 = count - 1.0;
            ((sum / freedom).sqrt(), 2.0 / (9.0 * freedom))
        };
        let scatters: Vec<(f64, f64)> = residuals.chunks_exact(self.columns).map(scatter).collect();
        // Each block's scatter relative to the median of its chi distribution.
        let relative: Vec<f64> =
            scatters.iter().map(|(rms, spread)| rms / (1.0 - spread).powf(1.5)).collect();
        let scale = median(&relative).unwrap_or(0.0) * n / (n - 0.8);
        let weight = |(rms, spread): &(f64, f64)| {
            let limit = (1.0 - spread + 1.645 * spread.sqrt()).powf(1.5) * scale;
            // Without a scale (more than half of the blocks fit exactly) no block is called unsteady.
            if *rms > limit && scale > 0.0 { limit / rms } else { 1.0 }
        };
        scatters.iter().map(weight).collect()
    }

    /// The correlation of the weighted residuals of successive blocks, over all settings, with the bias of a
    /// fitted mean taken out.
    fn memory(&self, weights: &[f64], residuals: &[f64]) -> f64 {
        let at = |row: usize, i: usize| weights[row] * residuals[row * self.columns + i];
        let (mut products, mut squares) = (0.0, 0.0);
        for row in 0..weights.len() {
            for i in 0..self.columns {
                let now = at(row, i);
                if now.is_nan() {
                    continue;
                }
                squares += now * now;
                if row > 0 && !at(row - 1, i).is_nan() {
                    products += now * at(row - 1, i);
                }
            }
        }
        let correlation = if squares > 0.0 { products / squares } else { 0.0 };
        (correlation + 1.0 / weights.len() as f64).clamp(0.0, MEMORY_MAX)
    }

    /// Each pair's weighted mean difference within blocks and its variance.
    fn pairs(&self, pairs: Pairs, weights: &[f64]) -> Vec<Option<Pair>> {
        let columns: Vec<Vec<f64>> =
            (0..self.columns).map(|i| self.rows().map(|row| row[i]).collect()).collect();
        let pairs = pairs.of(self.columns).into_iter();
        pairs.map(|(first, second)| pair(&columns[first], &columns[second], weights)).collect()
    }
}

/// The mean of a block's figures less the settings' levels.
fn block_level(row: &[f64], levels: &[f64]) -> f64 {
    let present = row.iter().zip(levels).filter(|(y, _)| !y.is_nan());
    let (sum, count) = present.fold((0.0, 0.0), |(sum, count), (y, level)| (sum + y - level, count + 1.0));
    sum / count
}

fn pair(first: &[f64], second: &[f64], weights: &[f64]) -> Option<Pair> {
    let differences =
        || first.iter().zip(second).zip(weights).map(|((a, b), w)| (a - b, *w)).filter(|(d, _)| !d.is_nan());
    let (mut n, mut sum, mut of_weights, mut of_squares) = (0, 0.0, 0.0, 0.0);
    for (d, w) in differences() {
        n += 1;
        sum += w * d;
        of_weights += w;
        of_squares += w * w;
    }
    if n < 2 {
        return None;
    }
    let difference = sum / of_weights;
    let scatter: f64 = differences().map(|(d, w)| (w * (d - difference)).powi(2)).sum();
    let count = n as f64;
    let effective = of_weights * of_weights / of_squares;
    let variance = count / (count - 1.0) * count / effective * scatter / (of_weights * of_weights);
    Some(Pair { difference, variance, freedom: count - 1.0, blocks: n })
}

/// Draws the variances of all pairs of `columns` settings towards their mean. A pair with missing figures is
/// compared by its variance per block.
pub(crate) fn pool(pairs: &mut [Option<Pair>], columns: usize) {
    let lent = POOLED_FREEDOM_MAX.min(2.0 * (columns as f64 - 2.0));
    let per_block = |pair: &Pair| pair.variance * pair.blocks as f64;
    let known = pairs.iter().flatten().count();
    if lent <= 0.0 || known == 0 {
        return;
    }
    let mean = pairs.iter().flatten().map(per_block).sum::<f64>() / known as f64;
    for pair in pairs.iter_mut().flatten() {
        let own = per_block(pair);
        let freedom = pair.freedom + lent;
        pair.variance = (lent * mean + pair.freedom * own) / freedom / pair.blocks as f64;
        pair.freedom = freedom;
    }
}
