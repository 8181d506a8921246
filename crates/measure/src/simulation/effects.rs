//! Effects of dimensions on simulated machines: how often their intervals contain the truth, and how often an effect is claimed that
//! there is not.
//!
//! Two kinds of sweep. In the one three depths of two kinds of seeking race in the same blocks until it is decided. In the other
//! four chunks are built with one to eight widths, each construction has a level of its own besides ([`CONSTRUCTION_SD`]), and
//! three depths are measured on each in six blocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Machine, World, normal};
use super::trial::{RUN_S, SPACING_S, on_all_cpus, seed_of};
use crate::decide::{Race, Rules};
use crate::effects::{DimensionVerdict, EffectRules, Observation, effects};
use crate::pattern::{Rng, split_mix};

/// SD of the level of a construction that is in no setting, ln.
pub const CONSTRUCTION_SD: f64 = 0.10;
/// Blocks of a race at most.
const BLOCKS_MAX: usize = 40;
/// Blocks of a construction.
const BLOCKS_OF_CONSTRUCTION: usize = 6;
const DEPTHS: usize = 3;
const SEEKS: usize = 2;
const CHUNKS: usize = 4;

/// A sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Factorial {
    /// The noise.
    pub world: World,
    /// With how many widths each chunk is built; none where all points share blocks, which are run until it is decided.
    pub widths: Option<usize>,
    /// The first depth, or chunk, is this many times better than the others, which are equal.
    pub ratio: f64,
}

/// What came of sweeps of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EffectLine {
    /// The kind.
    pub factorial: Factorial,
    /// Part of the sweeps in which the intervals of all dimensions contain the truth.
    pub coverage: f64,
    /// Part in which a dimension without effect is said to matter, however little.
    pub false_effects: f64,
    /// The same of the dependence of dimensions, which there is not.
    pub false_interactions: f64,
    /// Part in which the dimension with an effect is said to matter.
    pub found: f64,
}

/// Tries each kind of sweep `repetitions` times.
#[must_use]
pub fn tried(repetitions: usize, seed: u64) -> Vec<EffectLine> {
    let mut all = Vec::new();
    for world in World::ALL {
        all.extend([1.0, 1.1].map(|ratio| Factorial { world, widths: None, ratio }));
    }
    for widths in [1, 2, 4, 8] {
        let world = World::Normal;
        all.extend([1.0, 1.5].map(|ratio| Factorial { world, widths: Some(widths), ratio }));
    }
    let found = on_all_cpus(all.len() * repetitions, |job| {
        let (at, repetition) = (job / repetitions, job % repetitions);
        judged(&all[at], seed_of(seed, at, repetition))
    });
    let line = |(factorial, judged): (&Factorial, &[[bool; 4]])| {
        let part = |which: usize| judged.iter().filter(|j| j[which]).count() as f64 / repetitions as f64;
        let [coverage, false_effects, false_interactions, found] = [0, 1, 2, 3].map(part);
        EffectLine { factorial: *factorial, coverage, false_effects, false_interactions, found }
    };
    all.iter().zip(found.chunks(repetitions.max(1))).map(line).collect()
}

/// Of one sweep: whether all intervals contain the truth, whether an effect and a dependence is claimed that there is not, and
/// whether that which there is is found.
fn judged(factorial: &Factorial, seed: u64) -> [bool; 4] {
    let mut seed = seed;
    let (dimension, observations) = match factorial.widths {
        None => ("iodepth", raced(factorial, &mut seed)),
        Some(widths) => ("chunk", constructed(factorial, widths, &mut seed)),
    };
    let rules =
        EffectRules { min_effect: 0.0, every_block: factorial.widths.is_none(), ..EffectRules::default() };
    let Ok(found) = effects(&observations, &rules) else { return [false; 4] };
    let level = |name: &str, value: &str| match value {
        "0" if name == dimension => factorial.ratio,
        _ => 1.0,
    };
    let (mut is_covered, mut is_false, mut is_found) = (true, false, false);
    for of in &found.dimensions {
        let best = level(&of.dimension, of.best.as_deref().unwrap_or_default());
        for value in &of.against_best {
            let truth = level(&of.dimension, &value.value) / best;
            is_covered &= value.effect.and_then(|e| e.noise).is_none_or(|noise| noise.contains(truth));
        }
        let (has, matters) =
            (of.dimension == dimension && factorial.ratio > 1.0, of.verdict == DimensionVerdict::Matters);
        is_false |= matters && !has;
        is_found |= matters && has;
    }
    let depends = found.interactions.iter().any(|i| i.verdict == DimensionVerdict::Matters);
    [is_covered, is_false, depends, is_found]
}

fn settings<const N: usize>(of: [(&str, usize); N]) -> std::collections::BTreeMap<String, String> {
    of.map(|(name, value)| (name.to_owned(), value.to_string())).into()
}

/// Blocks of `levels`, ln, on a machine: until it is decided, or as many as `fixed` says. The observations have no settings yet.
fn measured(world: World, levels: &[f64], fixed: Option<usize>, seed: &mut u64) -> Vec<Observation> {
    let mut machine = Machine::new(world, levels, split_mix(seed));
    let mut race = Race::new(levels.len(), Rules { stops: fixed.is_none(), ..Rules::default() });
    let mut runs: Vec<(usize, u32, f64)> = Vec::new();
    while race.decided().is_none() && race.blocks() < fixed.unwrap_or(BLOCKS_MAX) {
        let (start, number) = (machine.now(), race.blocks() as u32);
        let order = machine.shuffled(race.alive());
        let block: Vec<(usize, f64)> = order.into_iter().map(|i| (i, machine.run(i, RUN_S))).collect();
        runs.extend(block.iter().map(|(setting, figure)| (*setting, number, *figure)));
        race.block(&block);
        machine.wait_until(start + SPACING_S);
    }
    let outcome = race.outcome();
    let of = |setting: usize| {
        let own = runs.iter().filter(|run| run.0 == setting).map(|(_, number, figure)| (*number, *figure));
        Observation::of_race(&outcome, setting, own)
    };
    (0..levels.len()).map(of).collect()
}

fn raced(factorial: &Factorial, seed: &mut u64) -> Vec<Observation> {
    let level = |i: usize| if i / SEEKS == 0 { factorial.ratio.ln() } else { 0.0 };
    let levels: Vec<f64> = (0..DEPTHS * SEEKS).map(level).collect();
    let measured = measured(factorial.world, &levels, None, seed).into_iter().enumerate();
    measured
        .map(|(i, observation)| Observation {
            settings: settings([("iodepth", i / SEEKS), ("rw", i % SEEKS)]),
            ..observation
        })
        .collect()
}

fn constructed(factorial: &Factorial, widths: usize, seed: &mut u64) -> Vec<Observation> {
    let mut random = Rng::new(split_mix(seed));
    let mut all = Vec::new();
    for chunk in 0..CHUNKS {
        for width in 0..widths {
            let own = CONSTRUCTION_SD * normal(&mut random);
            let level = own + if chunk == 0 { factorial.ratio.ln() } else { 0.0 };
            let construction = (chunk * widths + width) as u32;
            let measured = measured(factorial.world, &[level; DEPTHS], Some(BLOCKS_OF_CONSTRUCTION), seed);
            all.extend(measured.into_iter().enumerate().map(|(depth, observation)| Observation {
                settings: settings([("chunk", chunk), ("width", width), ("iodepth", depth)]),
                construction,
                ..observation
            }));
        }
    }
    all
}
