//! Common ways of comparing settings, on the same simulated machines and with the same time.
//!
//! Each of them may claim that one setting is the best. *In turn* means that all runs of a setting are made before
//! those of the next.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Machine, World};
use super::trial::{self, Question, Truth};
use crate::pattern::{Rng, split_mix};
use crate::stats::cleaning::{CleaningRules, clean};
use crate::stats::compare::{CompareRules, compare_family};
use crate::stats::describe::{mean, sample_sd};
use crate::stats::special::normal_two_sided;

/// Time between two runs of a program that is started for each of them, seconds.
const OVERHEAD_S: f64 = 0.013;

/// A way of comparing settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Practice {
    /// Five runs of each setting in turn; the highest mean is the best.
    FioHighest,
    /// The same, if it lies more than 5 % above the second.
    FioAboveFivePercent,
    /// Ten runs of each in turn; the best by the second, less the SD of that ratio, is above 1 (hyperfine).
    Hyperfine,
    /// Ten runs of each in turn; the best differs from the second by the U test at 5 % (benchstat).
    BenchstatInTurn,
    /// The same with runs interleaved.
    BenchstatInterleaved,
    /// Five passes in random order, the first set aside, Chauvenet's criterion, Welch's test of the best against
    /// each other setting with Holm's correction (DASH-IO §3.2).
    Dash,
    /// Races of [`crate::decide`].
    Race,
}

impl Practice {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::FioHighest,
        Self::FioAboveFivePercent,
        Self::Hyperfine,
        Self::BenchstatInTurn,
        Self::BenchstatInterleaved,
        Self::Dash,
        Self::Race,
    ];

    /// Its name in tables.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::FioHighest => "fio, five runs in turn, highest mean",
            Self::FioAboveFivePercent => "the same, if above 5 %",
            Self::Hyperfine => "hyperfine, ten runs in turn, ratio - SD > 1",
            Self::BenchstatInTurn => "benchstat, ten runs in turn",
            Self::BenchstatInterleaved => "benchstat, ten runs interleaved",
            Self::Dash => "DASH protocol, Welch and Holm",
            Self::Race => "race",
        }
    }

    fn runs(self) -> usize {
        match self {
            Self::FioHighest | Self::FioAboveFivePercent | Self::Dash => 5,
            _ => 10,
        }
    }

    fn is_interleaved(self) -> bool {
        matches!(self, Self::BenchstatInterleaved | Self::Dash)
    }
}

/// How often a practice claims a best setting, and how often rightly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claims {
    /// The practice.
    pub practice: Practice,
    /// The noise.
    pub world: World,
    /// Number of settings.
    pub settings: usize,
    /// Time that each repetition has, seconds.
    pub seconds: f64,
    /// Part of the repetitions in which a best setting is claimed although all are equal.
    pub any_when_equal: f64,
    /// Part in which the best is claimed, being 1.1 times better.
    pub right_at_1_1: f64,
    /// Part in which another one is claimed.
    pub wrong_at_1_1: f64,
    /// Part in which the best is claimed, being 1.2 times better.
    pub right_at_1_2: f64,
    /// Part in which another one is claimed.
    pub wrong_at_1_2: f64,
}

/// What each practice claims of `settings` settings, 2 or more, in `seconds`.
#[must_use]
pub fn claims(world: World, settings: usize, seconds: f64, repetitions: usize, seed: u64) -> Vec<Claims> {
    let truths = [1.0, 1.1, 1.2];
    let of_one = |practice: Practice| {
        let parts = truths.map(|ratio| {
            let results = trial::on_all_cpus(repetitions, |repetition| {
                // Every practice meets the same machines.
                claim(practice, world, settings, ratio, seconds, trial::seed_of(seed, 0, repetition))
            });
            let part = |is_right| {
                results.iter().filter(|r| **r == Some(is_right)).count() as f64 / repetitions as f64
            };
            (part(true), part(false))
        });
        Claims {
            practice,
            world,
            settings,
            seconds,
            any_when_equal: parts[0].0 + parts[0].1,
            right_at_1_1: parts[1].0,
            wrong_at_1_1: parts[1].1,
            right_at_1_2: parts[2].0,
            wrong_at_1_2: parts[2].1,
        }
    };
    Practice::ALL.into_iter().map(of_one).collect()
}

/// Whether a best setting is claimed, and whether it is the best.
fn claim(
    practice: Practice,
    world: World,
    settings: usize,
    ratio: f64,
    seconds: f64,
    seed: u64,
) -> Option<bool> {
    if practice == Practice::Race {
        let per_block = settings as f64 * (trial::RUN_S + OVERHEAD_S);
        let question = Question {
            max_blocks: (seconds / per_block) as usize,
            ..Question::new(world, settings, Truth::Best(ratio))
        };
        let trial = trial::trial(&question, seed);
        return (trial.is_right_better || trial.is_false_better).then_some(trial.is_right_better);
    }
    let mut seed = seed;
    let mut random = Rng::new(split_mix(&mut seed));
    let levels = Truth::Best(ratio).levels(settings, &mut random);
    let mut machine = Machine::new(world, &levels, split_mix(&mut seed));
    let figures = measure(practice, &mut machine, settings, seconds);
    let claimed = judge(practice, &figures)?;
    Some(levels.iter().enumerate().all(|(i, level)| i == claimed || *level < levels[claimed]))
}

/// The figures of each setting, in the order in which they were measured.
fn measure(practice: Practice, machine: &mut Machine, settings: usize, seconds: f64) -> Vec<Vec<f64>> {
    let mut figures = vec![Vec::new(); settings];
    let length = seconds / (practice.runs() * settings) as f64 - OVERHEAD_S;
    let all: Vec<usize> = (0..settings).collect();
    if practice.is_interleaved() {
        for _ in 0..practice.runs() {
            for setting in machine.shuffled(&all) {
                figures[setting].push(machine.run(setting, length));
            }
        }
    } else {
        for setting in all {
            figures[setting].extend((0..practice.runs()).map(|_| machine.run(setting, length)));
        }
    }
    figures
}

/// The setting that is claimed to be the best.
fn judge(practice: Practice, figures: &[Vec<f64>]) -> Option<usize> {
    let kept: Vec<Vec<f64>> = match practice {
        Practice::Dash => figures.iter().map(|f| clean(f, &CleaningRules::default()).retained).collect(),
        _ => figures.to_vec(),
    };
    let mut order: Vec<(f64, usize)> =
        kept.iter().enumerate().filter_map(|(i, f)| Some((mean(f)?, i))).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (&(first_mean, first), &(second_mean, second)) = (order.first()?, order.get(1)?);
    let ratio = first_mean / second_mean;
    let is_claimed = match practice {
        Practice::FioHighest => true,
        Practice::FioAboveFivePercent => ratio > 1.05,
        Practice::Hyperfine => {
            let relative = |i: usize, mean: f64| sample_sd(&kept[i]).map_or(f64::INFINITY, |sd| sd / mean);
            ratio - ratio * relative(first, first_mean).hypot(relative(second, second_mean)) > 1.0
        }
        Practice::BenchstatInTurn | Practice::BenchstatInterleaved => {
            differ_by_ranks(&kept[first], &kept[second])
        }
        Practice::Dash => {
            let others = order[1..].iter().map(|(_, i)| (kept[*i].as_slice(), kept[first].as_slice()));
            let family = compare_family(&others.collect::<Vec<_>>(), &CompareRules::default());
            family.iter().all(|c| c.verdict == crate::stats::Verdict::Better)
        }
        Practice::Race => false,
    };
    is_claimed.then_some(first)
}

/// Mann and Whitney's U test at 5 %, by the normal approximation with its correction for continuity.
fn differ_by_ranks(first: &[f64], second: &[f64]) -> bool {
    let wins: f64 = first
        .iter()
        .flat_map(|a| second.iter().map(move |b| if a > b { 1.0 } else { 0.5 * f64::from(a == b) }))
        .sum();
    let (m, n) = (first.len() as f64, second.len() as f64);
    let distance = (wins - m * n / 2.0).abs() - 0.5;
    distance / (m * n * (m + n + 1.0) / 12.0).sqrt() > normal_two_sided(0.05)
}
