//! Verdicts over constructions on simulated machines: each construction is measured in blocks of its own, one after the other, while
//! the machine moves; how often one is said to be the best that is not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Machine, World};
use super::trial::{RUN_S, SPACING_S, on_all_cpus, seed_of};
use crate::pattern::split_mix;
use crate::stats::Verdict;
use crate::stats::apart::{Movement, compare_family_apart};
use crate::stats::compare::CompareRules;
use crate::stats::describe::mean;

/// Time in which a construction is taken down and the next one made, seconds.
const BUILDING_S: f64 = 20.0;
/// Settings that are measured on each construction; the verdict is on the first one.
const DEPTHS: usize = 3;
/// Constructions of a sweep. Two are the worst case: of more, the best must be told from all others.
const CONSTRUCTIONS: [usize; 2] = [2, 4];
/// Blocks of each construction.
const BLOCKS: [usize; 3] = [4, 6, 12];
/// By how much the first construction is better.
pub const RATIOS: [f64; 4] = [1.0, 1.2, 1.5, 2.0];

/// A kind of sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// The noise.
    pub world: World,
    /// How many are built, one after the other.
    pub constructions: usize,
    /// Blocks of each of them.
    pub blocks: usize,
}

/// What came of such sweeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesLine {
    /// The kind.
    pub series: Series,
    /// Part of the sweeps over equal constructions in which one is said to be better than all others.
    pub false_better: f64,
    /// The same by their means and scatter alone (Welch, Holm).
    pub without_movement: f64,
    /// Part in which a construction that is 1.2, 1.5 and 2 times better is said to be so.
    pub found: [f64; 3],
    /// Part of all sweeps in which a worse one is said to be better.
    pub wrong: f64,
}

/// Tries each kind of sweep `repetitions` times with each ratio.
#[must_use]
pub fn tried(repetitions: usize, seed: u64) -> Vec<SeriesLine> {
    let mut all = Vec::new();
    for world in World::ALL {
        for constructions in CONSTRUCTIONS {
            all.extend(BLOCKS.map(|blocks| Series { world, constructions, blocks }));
        }
    }
    let claims = on_all_cpus(all.len() * repetitions, |job| {
        let (at, repetition) = (job / repetitions, job % repetitions);
        RATIOS.map(|ratio| claimed(&all[at], ratio, seed_of(seed, at, repetition)))
    });
    let line = |(series, claims): (&Series, &[[Claimed; 4]])| {
        let part = |holds: &dyn Fn(&[Claimed; 4]) -> bool| {
            claims.iter().filter(|claim| holds(claim)).count() as f64 / repetitions as f64
        };
        SeriesLine {
            series: *series,
            false_better: part(&|of| of[0].best.is_some()),
            without_movement: part(&|of| of[0].without_movement.is_some()),
            found: [1, 2, 3].map(|ratio| part(&|of| of[ratio].best == Some(0))),
            wrong: [1, 2, 3]
                .map(|ratio| part(&|of| of[ratio].best.is_some_and(|best| best != 0)))
                .iter()
                .sum::<f64>()
                / 3.0,
        }
    };
    all.iter().zip(claims.chunks(repetitions.max(1))).map(line).collect()
}

/// Which construction is said to be better than all others, if one is.
#[derive(Debug, Clone, Copy)]
struct Claimed {
    best: Option<usize>,
    without_movement: Option<usize>,
}

fn claimed(series: &Series, ratio: f64, seed: u64) -> Claimed {
    let mut seed = seed;
    let levels: Vec<f64> = (0..series.constructions * DEPTHS)
        .map(|setting| if setting < DEPTHS { ratio.ln() } else { 0.0 })
        .collect();
    let mut machine = Machine::new(series.world, &levels, split_mix(&mut seed));
    let (mut stretches, mut figures) = (Vec::new(), vec![Vec::new(); series.constructions]);
    let order = machine.shuffled(&(0..series.constructions).collect::<Vec<_>>());
    for construction in order {
        let blocks: Vec<Vec<(usize, f64)>> = (0..series.blocks)
            .map(|_| {
                let start = machine.now();
                let order = machine.shuffled(&(0..DEPTHS).collect::<Vec<_>>());
                let runs =
                    order.into_iter().map(|depth| (depth, machine.run(construction * DEPTHS + depth, RUN_S)));
                let block: Vec<(usize, f64)> = runs.collect();
                machine.wait_until(start + SPACING_S);
                block
            })
            .collect();
        figures[construction] = blocks.iter().flatten().filter(|run| run.0 == 0).map(|run| run.1).collect();
        stretches.push(
            blocks.into_iter().map(|b| b.into_iter().map(|(i, figure)| (i, figure.ln())).collect()).collect(),
        );
        machine.wait_until(machine.now() + BUILDING_S);
    }
    Claimed { best: best(&figures, Some(Movement::of(&stretches))), without_movement: best(&figures, None) }
}

/// The construction that is better than each other one, as a recommendation tells it.
fn best(figures: &[Vec<f64>], movement: Option<Movement>) -> Option<usize> {
    let level = |of: &usize| mean(&figures[*of]).unwrap_or(0.0);
    let highest = (0..figures.len()).max_by(|a, b| level(a).total_cmp(&level(b)))?;
    let others = (0..figures.len()).filter(|other| *other != highest);
    let pairs: Vec<_> = others.map(|other| (&figures[other][..], &figures[highest][..], movement)).collect();
    let compared = compare_family_apart(&pairs, &CompareRules::default());
    compared.iter().all(|c| c.verdict == Verdict::Better).then_some(highest)
}
