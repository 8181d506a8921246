//! Races on simulated machines: how often their answers are right, and after how many blocks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Machine, World};
use crate::decide::{Answer, Decision, Race, Rules, Standing};
use crate::pattern::{Rng, split_mix};
use crate::stats::describe::quantile;

/// Length of a run, seconds.
pub const RUN_S: f64 = 0.25;
/// Least time from the start of a block to that of the next, seconds.
pub const SPACING_S: f64 = crate::decide::SPACING.as_secs() as f64;
/// Blocks after which a caller with a budget looks what a race says.
pub const LOOKS: [usize; 2] = [20, 30];
/// Differences of levels below this are rounding.
const ROUNDING: f64 = 1e-9;

/// The levels that settings truly have.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Truth {
    /// One setting is this many times better than the others, which are equal; 1.0 for all equal.
    Best(f64),
    /// The settings go down to half of the best in equal steps.
    Graded,
}

impl Truth {
    /// Levels of the settings, ln, in random order.
    pub(super) fn levels(self, settings: usize, random: &mut Rng) -> Vec<f64> {
        let mut levels: Vec<f64> = match self {
            Self::Best(ratio) => (0..settings).map(|i| if i == 0 { ratio.ln() } else { 0.0 }).collect(),
            Self::Graded => {
                let steps = (settings as f64 - 1.0).max(1.0);
                (0..settings).map(|i| -std::f64::consts::LN_2 * i as f64 / steps).collect()
            }
        };
        for last in (1..settings).rev() {
            levels.swap(last, random.below(last as u64 + 1) as usize);
        }
        levels
    }
}

impl std::fmt::Display for Truth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Best(ratio) => f.pad(&format!("{ratio}")),
            Self::Graded => f.pad("graded"),
        }
    }
}

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// The noise.
    pub world: World,
    /// Number of settings.
    pub settings: usize,
    /// Their levels.
    pub truth: Truth,
    /// How races are decided.
    pub rules: Rules,
    /// Blocks after which an open race ends undecided.
    pub max_blocks: usize,
    /// Least time from the start of a block to that of the next, seconds.
    pub spacing_s: f64,
}

impl Question {
    /// A question with the default rules, at most 60 blocks and the default spacing.
    #[must_use]
    pub fn new(world: World, settings: usize, truth: Truth) -> Self {
        let rules = Rules { ends_at_sufficient: true, ..Rules::default() };
        Self { world, settings, truth, rules, max_blocks: 60, spacing_s: SPACING_S }
    }
}

/// How one race ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Blocks it took.
    pub blocks: usize,
    /// Runs it took.
    pub runs: usize,
    /// Whether it ended by itself, *better*, *equivalent* or *sufficient*.
    pub is_decided: bool,
    /// *Equivalent*, and right.
    pub is_right_equivalent: bool,
    /// It ended *sufficient*, and is right.
    pub is_right_sufficient: bool,
    /// *Better*, and the winner is truly better than every other setting.
    pub is_right_better: bool,
    /// *Better*, and the winner is not.
    pub is_false_better: bool,
    /// *Equivalent*, although a living setting lies outside of the margin around the reference.
    pub is_false_equivalent: bool,
    /// By which of [`LOOKS`] it is decided or *sufficient*.
    pub is_sufficient_by: [bool; LOOKS.len()],
    /// *Sufficient* at a look or at the end, although a setting is better than the reference by more than the margin.
    pub is_false_sufficient: bool,
    /// Whether every interval against the best contains the truth.
    pub is_covered: bool,
}

/// How often the answers to a question are right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Characteristics {
    /// The question.
    pub question: Question,
    /// Races.
    pub repetitions: usize,
    /// Part of the races in which all intervals against the best contain the truth when the race stops.
    pub coverage: f64,
    /// Part that ends *better* and names a setting that is not the one best.
    pub false_better: f64,
    /// Part that ends *equivalent* although settings differ by more than the margin.
    pub false_equivalent: f64,
    /// Part that ends *sufficient* although a setting is better than the recommended one by more than the margin.
    pub false_sufficient: f64,
    /// Part that ends *better* and names the best.
    pub right_better: f64,
    /// Part that ends *equivalent* and is right.
    pub right_equivalent: f64,
    /// Part that ends *sufficient* by itself and is right.
    pub right_sufficient: f64,
    /// Median of the blocks, where an undecided race counts with all its blocks.
    pub blocks_median: f64,
    /// Part decided within 20 blocks.
    pub decided_by_20: f64,
    /// Part decided within 30 blocks.
    pub decided_by_30: f64,
    /// Part decided within 60 blocks.
    pub decided_by_60: f64,
    /// Part that is decided or *sufficient* after 20 blocks.
    pub sufficient_by_20: f64,
    /// Part that is decided or *sufficient* after 30 blocks.
    pub sufficient_by_30: f64,
    /// Mean number of runs.
    pub runs_mean: f64,
}

/// Runs one race.
#[must_use]
pub fn trial(question: &Question, seed: u64) -> Trial {
    let mut seed = seed;
    let mut random = Rng::new(split_mix(&mut seed));
    let levels = question.truth.levels(question.settings, &mut random);
    let mut machine = Machine::new(question.world, &levels, split_mix(&mut seed));
    let mut race = Race::new(question.settings, question.rules);
    let mut runs = 0;
    let (mut is_sufficient_by, mut is_false_sufficient) = ([true; LOOKS.len()], false);
    while race.decided().is_none() && race.blocks() < question.max_blocks {
        let start = machine.now();
        let order = machine.shuffled(race.alive());
        runs += order.len();
        let figures: Vec<(usize, f64)> = order.into_iter().map(|i| (i, machine.run(i, RUN_S))).collect();
        race.block(&figures);
        machine.wait_until(start + question.spacing_s);
        // After every block, because the caller may stop after any.
        let is_right = is_right_sufficient(&race, &levels);
        is_false_sufficient |= is_right == Some(false);
        if let Some(look) = LOOKS.iter().position(|blocks| *blocks == race.blocks()) {
            is_sufficient_by[look] = is_right.is_some() || race.decided().is_some();
        }
    }
    Trial { is_sufficient_by, is_false_sufficient, ..judge(&race, &levels, runs) }
}

/// Of a race that is *sufficient*, whether no setting is better than the recommended one by more than the margin. Where the race
/// is decided otherwise, that counts.
fn is_right_sufficient(race: &Race, levels: &[f64]) -> Option<bool> {
    if matches!(race.decided(), Some(decision) if decision != Decision::Sufficient) {
        return None;
    }
    let enough = race.enough()?.setting;
    Some(levels.iter().all(|level| level - levels[enough] <= margin(race)))
}

/// The largest difference of equivalent levels, ln.
fn margin(race: &Race) -> f64 {
    race.rules().equivalence.ln_1p() + ROUNDING
}

fn judge(race: &Race, levels: &[f64], runs: usize) -> Trial {
    let outcome = race.outcome();
    let best = levels.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut is_covered = outcome.settings.iter().all(|contrast| {
        let truth = (levels[contrast.setting] - best).exp();
        contrast.of_best.is_none_or(|b| b.low - ROUNDING <= truth && truth <= b.high + ROUNDING)
    });
    let (mut is_right_better, mut is_false_better, mut is_false_equivalent) = (false, false, false);

    match outcome.answer {
        Answer::Better { winner, gain } => {
            let others = levels.iter().enumerate().filter(|(i, _)| *i != winner).map(|(_, level)| *level);
            let next = others.fold(f64::NEG_INFINITY, f64::max);
            is_right_better = levels[winner] > next + ROUNDING;
            is_false_better = !is_right_better;
            let truth = (levels[winner] - next).exp();
            is_covered &= gain.is_none_or(|gain| gain.bounds.low <= truth && truth <= gain.bounds.high);
        }
        Answer::Equivalent { reference, .. } => {
            let living = outcome.settings.iter().filter(|c| c.standing == Standing::Alive);
            let mut distances = living.map(|c| (levels[c.setting] - levels[reference]).abs());
            is_false_equivalent = distances.any(|distance| distance > margin(race));
        }
        _ => {}
    }
    Trial {
        blocks: race.blocks(),
        runs,
        is_decided: race.decided().is_some(),
        is_right_sufficient: race.decided() == Some(Decision::Sufficient)
            && is_right_sufficient(race, levels) == Some(true),
        is_right_equivalent: matches!(outcome.answer, Answer::Equivalent { .. }) && !is_false_equivalent,
        is_right_better,
        is_false_better,
        is_false_equivalent,
        is_sufficient_by: [false; LOOKS.len()],
        is_false_sufficient: false,
        is_covered,
    }
}

/// Runs `repetitions` races of each question on all CPUs. The result follows from `seed`, whatever their number.
#[must_use]
pub fn characteristics(questions: &[Question], repetitions: usize, seed: u64) -> Vec<Characteristics> {
    let all = on_all_cpus(questions.len() * repetitions, |job| {
        let (at, repetition) = (job / repetitions, job % repetitions);
        trial(&questions[at], seed_of(seed, at, repetition))
    });
    let by_question = all.chunks(repetitions.max(1));
    questions.iter().zip(by_question).map(|(question, trials)| summarise(question, trials)).collect()
}

/// A seed for each repetition of each question.
pub(super) fn seed_of(seed: u64, question: usize, repetition: usize) -> u64 {
    let mut state = seed ^ (question as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mut state = split_mix(&mut state) ^ repetition as u64;
    split_mix(&mut state)
}

/// The results of `work` for 0 to `jobs` − 1, in this order.
pub fn on_all_cpus<T: Send>(jobs: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<T>> = (0..jobs).map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    // The receiver outlives the threads.
                    if job >= jobs || sender.send((job, work(job))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (job, result) in receiver {
            results[job] = Some(result);
        }
    });
    results.into_iter().map(|result| result.expect("every job was done")).collect()
}

fn summarise(question: &Question, trials: &[Trial]) -> Characteristics {
    let part = |holds: &dyn Fn(&Trial) -> bool| {
        trials.iter().filter(|t| holds(t)).count() as f64 / trials.len() as f64
    };
    let decided_by = |blocks: usize| part(&|t| t.is_decided && t.blocks <= blocks);
    let blocks: Vec<f64> = trials.iter().map(|t| t.blocks as f64).collect();
    let right_better = part(&|t| t.is_right_better);
    let false_equivalent = part(&|t| t.is_false_equivalent);
    let false_better = part(&|t| t.is_false_better);
    Characteristics {
        question: *question,
        repetitions: trials.len(),
        coverage: part(&|t| t.is_covered),
        false_better,
        false_equivalent,
        false_sufficient: part(&|t| t.is_false_sufficient),
        right_better,
        right_equivalent: part(&|t| t.is_right_equivalent),
        right_sufficient: part(&|t| t.is_right_sufficient),
        blocks_median: quantile(&blocks, 0.5).unwrap_or(0.0),
        decided_by_20: decided_by(20),
        decided_by_30: decided_by(30),
        decided_by_60: decided_by(60),
        sufficient_by_20: part(&|t| t.is_sufficient_by[0]),
        sufficient_by_30: part(&|t| t.is_sufficient_by[1]),
        runs_mean: trials.iter().map(|t| t.runs as f64).sum::<f64>() / trials.len() as f64,
    }
}
