//! What a race says: its answer, and each setting's place with an interval that agrees with the answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Rules;
use super::race::{Decision, Enough, Known, Race, pair_index};

/// Blocks from which on the number of further blocks can be foretold.
const FORECAST_MIN_BLOCKS: usize = 6;
/// Further blocks beyond which nothing is foretold.
const FORECAST_MAX_BLOCKS: usize = 10_000;
/// Blocks for which a race goes on after a setting is sufficient, if they are likely to show that it is better than all others:
/// by how much is worth knowing, and settings that are dropped cost no runs.
const NEAR_BETTER: f64 = 12.0;
/// The same if they are likely to show that all are equivalent.
const NEAR_EQUIVALENT: f64 = 6.0;
/// In simulations the further blocks that were needed had a median of 0.6 of the forecast.
const FORECAST_MEDIAN: f64 = 0.6;
/// Their 10th percentile.
const FORECAST_LOW: f64 = 0.2;
/// Their 90th percentile.
const FORECAST_HIGH: f64 = 2.0;

/// A ratio of two figures with its interval; above 1 is better, for latencies too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// The estimate.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Bounds {
    /// From logarithms; None if an end is infinite.
    pub(super) fn of_ln(estimate: f64, low: f64, high: f64) -> Option<Self> {
        let bounds = Self { ratio: estimate.exp(), low: low.exp(), high: high.exp() };
        (bounds.low.is_normal() && bounds.high.is_finite()).then_some(bounds)
    }

    /// The same the other way round.
    fn reciprocal(self) -> Self {
        Self { ratio: self.ratio.recip(), low: self.high.recip(), high: self.low.recip() }
    }
}

/// What is known of a pair of settings, ln: the first minus the second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Difference {
    estimate: f64,
    /// Half of the interval by which settings are dropped.
    half: f64,
}

/// By how much the best setting is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gain {
    /// The closest of the other settings.
    pub over: usize,
    /// The best setting by this one. The interval holds for the gain over every other setting; its lower end is at
    /// least 1.
    pub bounds: Bounds,
}

/// How many more blocks would decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoreBlocks {
    /// One race in ten needs fewer.
    pub low: usize,
    /// Half of the races need fewer.
    pub likely: usize,
    /// One race in ten needs more.
    pub high: usize,
}

/// What a race concludes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// One setting is better than every other that was not struck.
    Better {
        /// The best setting.
        winner: usize,
        /// By how much; none if figures are missing so that no other setting can be compared with it.
        gain: Option<Gain>,
    },
    /// The living settings differ from the cheapest of them by less than the margin.
    Equivalent {
        /// The cheapest of them, which is recommended.
        reference: usize,
        /// The certificates' intervals together: each living setting by the reference. The ratio is that of the
        /// setting with the highest estimate.
        within: Option<Bounds>,
    },
    /// No other living setting is better than this one by more than the margin. Whether they are equivalent to it, or worse, is
    /// open.
    Sufficient {
        /// The setting, which is recommended: the cheapest living one of which it is shown, if not the one with the highest
        /// estimate.
        reference: usize,
        /// No other living setting is more than this many times better; at least 1.
        at_most: f64,
        /// How many more blocks would tell the rest; none where no number is in sight.
        more_blocks: Option<MoreBlocks>,
    },
    /// The blocks do not suffice for any of these.
    Undecided {
        /// The cheapest living setting.
        reference: usize,
        /// The living setting with the highest estimate.
        leader: usize,
        /// Another living setting could be up to this many times better than the reference; none before an
        /// interval exists.
        could_be: Option<f64>,
        /// How many more blocks would tell; none below six blocks or where no number is in sight.
        more_blocks: Option<MoreBlocks>,
    },
    /// One setting has figures, and there is nothing to compare it with.
    Single {
        /// That setting.
        setting: usize,
    },
    /// No setting has figures.
    Nothing,
}

/// Where a setting stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// It may still be the best.
    Alive,
    /// Another setting is better.
    Dropped {
        /// Blocks after which it was dropped.
        after_blocks: usize,
    },
    /// None of its runs gave a figure.
    Failed,
    /// The caller ran it no further, for reasons of its own: nothing is concluded of it.
    Struck {
        /// Blocks after which it was struck.
        after_blocks: usize,
    },
}

/// One setting's place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contrast {
    /// Its number.
    pub setting: usize,
    /// Whether it may still be the best.
    pub standing: Standing,
    /// Its figure by that of the best setting that was not struck, at most 1. The intervals of all settings hold together. The interval
    /// of a dropped setting is the one that it was dropped with, and of a struck one the last. None before an interval exists.
    pub of_best: Option<Bounds>,
    /// Its figure by that of the cheapest living setting, as its certificate of equivalence was granted; none
    /// without a certificate.
    pub equivalence: Option<Bounds>,
}

/// What the blocks of a race say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// How it was decided.
    pub rules: Rules,
    /// Blocks given.
    pub blocks: usize,
    /// The answer.
    pub answer: Answer,
    /// Every setting, in order.
    pub settings: Vec<Contrast>,
    /// The correlation of successive blocks that variances were corrected for, 0 to 0.7.
    pub memory: f64,
    /// The weight of each block in the last analysis, above 0 and at most 1; 0 for a block with fewer than two
    /// figures of living settings. A block below 1 was unsteady.
    pub block_weights: Vec<f64>,
    /// By pair of settings, (0,1), (0,2), …, (1,2), …, as last analysed with both alive; none before an interval exists. Not stored,
    /// because a replay of the blocks gives it.
    #[serde(skip)]
    pairs: Vec<Option<Difference>>,
}

impl Outcome {
    pub(super) fn of(race: &Race) -> Self {
        let mut block_weights = vec![0.0; race.blocks.len()];
        let analysis = race.analysis.as_ref();
        for (block, weight) in analysis.iter().flat_map(|a| &a.weights) {
            block_weights[*block] = *weight;
        }
        let best = leader(race);
        Self {
            rules: race.rules,
            blocks: race.blocks.len(),
            answer: answer(race),
            settings: (0..race.settings).map(|setting| contrast(race, setting, best)).collect(),
            memory: analysis.map_or(0.0, |a| a.memory),
            block_weights,
            pairs: differences(race),
        }
    }

    /// How many times better `a` is than `b` in the blocks that had both. The intervals of one setting against all others hold together,
    /// and agree with the answer: 1 is in that of two settings that may both be the best, a certificate of equivalence is given as it was
    /// granted, no setting is above a sufficient one by more than the answer says, and none that was not struck is above the winner. None before an
    /// interval exists.
    #[must_use]
    pub fn between(&self, a: usize, b: usize) -> Option<Bounds> {
        if a > b {
            return self.between(b, a).map(Bounds::reciprocal);
        }
        if a == b || b >= self.settings.len() {
            return None;
        }
        let known = (*self.pairs.get(pair_index(self.settings.len(), a, b))?)?;
        let (mut estimate, mut low, mut high) =
            (known.estimate, known.estimate - known.half, known.estimate + known.half);
        let is_alive = |setting: usize| self.settings[setting].standing == Standing::Alive;
        let is_struck = |setting: usize| matches!(self.settings[setting].standing, Standing::Struck { .. });
        if is_alive(a) && is_alive(b) {
            (low, high) = (low.min(0.0), high.max(0.0));
            // Certificates are relative to the cheapest living setting.
            let cheapest = (0..self.settings.len()).find(|setting| is_alive(*setting))?;
            let certificate = self.settings[if cheapest == a { b } else { a }].equivalence;
            let certificate = certificate.filter(|_| cheapest == a || cheapest == b);
            let certificate = certificate.map(|of| if cheapest == a { of.reciprocal() } else { of });
            match (self.answer, certificate) {
                (Answer::Sufficient { reference, at_most, .. }, _) if [a, b].contains(&reference) => {
                    if let Some(of) = certificate {
                        (estimate, low, high) = (of.ratio.ln(), of.low.ln(), of.high.ln());
                    }
                    if reference == a {
                        low = low.max(-at_most.ln());
                    } else {
                        high = high.min(at_most.ln());
                    }
                    estimate = estimate.clamp(low, high);
                }
                (_, Some(granted)) => return Some(granted),
                _ => {}
            }
        } else if let Answer::Better { winner, .. } = self.answer
            && ![a, b].into_iter().any(is_struck)
        {
            // A setting that a third one dropped may have an interval around 0.
            if winner == a {
                (estimate, low, high) = (estimate.max(0.0), low.max(0.0), high.max(0.0));
            } else if winner == b {
                (estimate, low, high) = (estimate.min(0.0), low.min(0.0), high.min(0.0));
            }
        }
        Bounds::of_ln(estimate, low, high)
    }

    /// The setting to use: the winner, the sufficient one, or the cheapest living one. None if no setting has figures.
    #[must_use]
    pub fn recommended(&self) -> Option<usize> {
        match self.answer {
            Answer::Better { winner, .. } => Some(winner),
            Answer::Equivalent { reference, .. }
            | Answer::Sufficient { reference, .. }
            | Answer::Undecided { reference, .. } => Some(reference),
            Answer::Single { setting } => Some(setting),
            Answer::Nothing => None,
        }
    }

    /// Of a race between two settings with these names, the answer in words; none where not both have figures.
    #[must_use]
    pub fn words_of_two(&self, names: [&str; 2]) -> Option<String> {
        let more = |more: Option<MoreBlocks>| {
            more.map_or_else(String::new, |m| {
                format!(", about {} more blocks ({} to {}) would tell", m.likely, m.low, m.high)
            })
        };
        Some(match self.answer {
            Answer::Better { winner, .. } => format!("{} is better", names[winner]),
            Answer::Equivalent { .. } => {
                format!("equivalent, within ± {}", units::percent(self.rules.equivalence))
            }
            Answer::Sufficient { reference, at_most, more_blocks } => format!(
                "undecided: {} could be better by at most {}{}",
                names[1 - reference],
                units::percent(at_most - 1.0),
                more(more_blocks)
            ),
            Answer::Undecided { more_blocks, .. } => format!("undecided{}", more(more_blocks)),
            Answer::Single { .. } | Answer::Nothing => return None,
        })
    }

    /// Of a race between two settings, the figure of `b` by that of `a`, with an interval that agrees with the answer. None before there
    /// is one.
    #[must_use]
    pub fn b_by_a(&self, a: usize, b: usize) -> Option<Bounds> {
        let turned = |of: Bounds, setting: usize| match setting == b {
            true => of,
            false => of.reciprocal(),
        };
        match self.answer {
            Answer::Better { winner, gain } => Some(turned(gain?.bounds, winner)),
            Answer::Equivalent { reference, .. } => {
                let other = if reference == a { b } else { a };
                Some(turned(self.settings[other].equivalence?, other))
            }
            Answer::Sufficient { reference, at_most, .. } => {
                let other = if reference == a { b } else { a };
                let (own, others) = (self.settings[reference].of_best?, self.settings[other].of_best?);
                let (low, high) = (others.low, own.low.recip().min(at_most));
                Some(turned(Bounds { ratio: (others.ratio / own.ratio).clamp(low, high), low, high }, other))
            }
            Answer::Undecided { .. } => {
                let (a, b) = (self.settings[a].of_best?, self.settings[b].of_best?);
                Some(Bounds { ratio: b.ratio / a.ratio, low: b.low, high: a.low.recip() })
            }
            Answer::Single { .. } | Answer::Nothing => None,
        }
    }
}

/// What is known of each pair after blocks enough for a verdict.
fn differences(race: &Race) -> Vec<Option<Difference>> {
    let pairs = (0..race.settings).flat_map(|i| (i + 1..race.settings).map(move |j| (i, j)));
    let difference = |(i, j): (usize, usize)| {
        let known = race.known(i, j).filter(|known| known.blocks >= race.rules.min_blocks)?;
        let found = Difference { estimate: known.difference, half: known.half_of_best };
        found.half.is_finite().then_some(found)
    };
    pairs.map(difference).collect()
}

fn answer(race: &Race) -> Answer {
    let Some(reference) = race.reference() else { return Answer::Nothing };
    match race.decided() {
        Some(Decision::Better) => Answer::Better { winner: reference, gain: gain(race, reference) },
        Some(Decision::Equivalent) => Answer::Equivalent { reference, within: within(race, reference) },
        Some(Decision::Single) => Answer::Single { setting: reference },
        Some(Decision::Nothing) => Answer::Nothing,
        None if race.alive.len() == 1 => Answer::Single { setting: reference },
        Some(Decision::Sufficient) | None => match race.enough() {
            Some(Enough { setting, at_most }) => {
                Answer::Sufficient { reference: setting, at_most, more_blocks: more_blocks(race) }
            }
            None => Answer::Undecided {
                reference,
                leader: leader(race).unwrap_or(reference),
                could_be: could_be(race, reference),
                more_blocks: more_blocks(race),
            },
        },
    }
}

/// The living setting with the highest estimate: the one that no other living setting has a positive difference to,
/// or the cheapest of several.
fn leader(race: &Race) -> Option<usize> {
    let deficit = |j: usize| {
        let rivals = race.alive.iter().filter_map(|i| race.known(*i, j));
        rivals.map(|known| known.difference).fold(0.0, f64::max)
    };
    race.alive.iter().copied().min_by(|a, b| deficit(*a).total_cmp(&deficit(*b)))
}

/// The winner's gain over every other setting.
fn gain(race: &Race, winner: usize) -> Option<Gain> {
    let others = (0..race.settings).filter_map(|j| Some((j, race.known(winner, j)?)));
    let others: Vec<(usize, Known)> =
        others.filter(|(j, _)| matches!(race.standings[*j], super::Standing::Dropped { .. })).collect();
    let (over, closest) = others.iter().min_by(|a, b| a.1.difference.total_cmp(&b.1.difference))?;
    let ends = |sign: f64| {
        let ends = others.iter().map(|(_, known)| known.difference + sign * known.half_of_best);
        // A setting that a third one dropped may have an interval around 0; the winner is not worse than it.
        ends.fold(f64::INFINITY, f64::min).max(0.0)
    };
    let bounds = Bounds::of_ln(closest.difference.max(0.0), ends(-1.0), ends(1.0))?;
    Some(Gain { over: *over, bounds })
}

/// The hull of the certificates' intervals.
fn within(race: &Race, reference: usize) -> Option<Bounds> {
    let others = race.alive.iter().filter(|i| **i != reference);
    let certificates: Option<Vec<Known>> = others.map(|i| race.certificates[*i]).collect();
    let hull = certificates?.into_iter().fold((0.0f64, 0.0f64, 0.0f64), |(estimate, low, high), known| {
        (
            estimate.max(known.difference),
            low.min(known.difference - known.half_of_equivalence),
            high.max(known.difference + known.half_of_equivalence),
        )
    });
    Bounds::of_ln(hull.0, hull.1, hull.2)
}

fn contrast(race: &Race, setting: usize, best: Option<usize>) -> Contrast {
    let equivalence = race.certificates[setting].filter(|_| race.standings[setting] == Standing::Alive);
    Contrast {
        setting,
        standing: race.standings[setting],
        of_best: of_best(race, setting, best),
        equivalence: equivalence.and_then(|known| {
            let (e, half) = (known.difference, known.half_of_equivalence);
            Bounds::of_ln(e, (e - half).min(0.0), (e + half).max(0.0))
        }),
    }
}

/// The hull of the differences from each living setting, capped at 0; `best` is the leader.
fn of_best(race: &Race, setting: usize, best: Option<usize>) -> Option<Bounds> {
    let is_alive = race.standings[setting] == Standing::Alive;
    if race.standings[setting] == Standing::Failed {
        return None;
    }
    let rivals = race.alive.iter().copied().filter(|i| *i != setting);
    let known: Option<Vec<Known>> = rivals.map(|i| race.known(setting, i)).collect();
    // A living setting may be the best itself: its difference is then 0.
    let start = if is_alive { 0.0 } else { f64::NEG_INFINITY };
    let low = |known: &Known| known.difference - known.half_of_best;
    let high = |known: &Known| known.difference + known.half_of_best;
    let known = known?;
    let lowest = known.iter().map(low).fold(if is_alive { 0.0 } else { f64::INFINITY }, f64::min);
    let highest = known.iter().map(high).fold(start, f64::max);
    let estimate = best.filter(|best| *best != setting).and_then(|best| race.known(setting, best));
    let estimate = estimate.map_or(0.0, |known| known.difference).min(0.0);
    Bounds::of_ln(estimate, lowest.min(0.0), highest.min(0.0))
}

/// The cheapest living setting that is sufficient. The first of all is asked with the error chance of equivalence. Any other one is
/// chosen by its figures, which flatters it: half of that for the one with the highest estimate keeps false answers of up to 40
/// settings in their limit. One that is cheaper must be as sure, and against that one share the chance with all.
pub(super) fn enough(race: &Race) -> Option<Enough> {
    let leader = leader(race).filter(|_| race.alive.len() > 1)?;
    let alpha = race.rules.alpha;
    let sufficient = |(place, setting): (usize, usize)| {
        let level = |other: usize| match place {
            0 => race.rules.alpha_of_equivalence(),
            _ if other == leader => alpha / race.alive.len() as f64,
            _ => alpha,
        };
        Some(Enough { setting, at_most: at_most(race, setting, &level)? })
    };
    race.alive.iter().copied().enumerate().take_while(|(_, setting)| *setting <= leader).find_map(sufficient)
}

/// How many times better than `setting` any other living one is at most, if that is within the margin, at the error chance for each of
/// them. That one is better by more is refuted for each by itself, and the answer is false only if all refutations are that
/// should not be: no correction for their number is due (Berger 1982), as with certificates of equivalence.
fn at_most(race: &Race, setting: usize, level: &dyn Fn(usize) -> f64) -> Option<f64> {
    let is_cheapest = Some(setting) == race.reference();
    let highest = |other: &usize| {
        let certified = race.certificates[*other].filter(|_| is_cheapest);
        let known = certified.or_else(|| race.known(*other, setting))?;
        let half = race.rules.half(level(*other), known.variance, known.freedom, known.blocks);
        (known.blocks >= race.rules.min_blocks).then_some(known.difference + half)
    };
    let others = race.alive.iter().filter(|other| **other != setting);
    let highest = others.map(highest).try_fold(0.0, |most, next| Some(f64::max(most, next?)))?;
    (highest <= race.rules.equivalence.ln_1p()).then(|| highest.exp())
}

/// Whether a race is likely to end soon in more than *sufficient*, or too short for a forecast.
pub(super) fn is_nearly_decided(race: &Race) -> bool {
    let after = |likely: f64| decided_after(race, (likely / FORECAST_MEDIAN).round() as usize);
    race.blocks.len() < FORECAST_MIN_BLOCKS
        || after(NEAR_BETTER) == Some(Decision::Better)
        || after(NEAR_EQUIVALENT).is_some()
}

/// How many times better than the reference another living setting could be.
fn could_be(race: &Race, reference: usize) -> Option<f64> {
    let most = race.alive.iter().filter(|i| **i != reference).map(|i| {
        let upper = race.known(*i, reference).map_or(f64::INFINITY, |k| k.difference + k.half_of_best);
        race.certificates[*i].map_or(upper, |c| upper.min(c.difference + c.half_of_equivalence))
    });
    let ratio = most.fold(0.0, f64::max).exp();
    ratio.is_finite().then_some(ratio)
}

/// The smallest number of blocks at which the race is decided if differences and scatter stay what they are now,
/// scaled by how such forecasts came true in simulations.
fn more_blocks(race: &Race) -> Option<MoreBlocks> {
    let blocks = race.blocks.len();
    if blocks < FORECAST_MIN_BLOCKS {
        return None;
    }
    let mut more = 1;
    while decided_after(race, more).is_none() {
        // The forecast is rough: steps of 3 % spare most of the work.
        more += 1 + more / 32;
        if more > FORECAST_MAX_BLOCKS {
            return None;
        }
    }
    let part = |factor: f64| ((more as f64 * factor).round() as usize).max(1);
    Some(MoreBlocks { low: part(FORECAST_LOW), likely: part(FORECAST_MEDIAN), high: part(FORECAST_HIGH) })
}

/// How the race is decided after `more` blocks in which differences and scatter stay the same: *better* or *equivalent*.
fn decided_after(race: &Race, more: usize) -> Option<Decision> {
    let half = |known: &Known, alpha: f64| {
        let blocks = known.blocks + more;
        let variance = known.variance * known.blocks as f64 / blocks as f64;
        race.rules.half(alpha, variance, known.freedom + more as f64, blocks)
    };
    let of_best = race.rules.alpha_of_best(race.settings);
    let is_beaten = |j: &usize| {
        let rivals = race.alive.iter().filter_map(|i| race.known(*i, *j));
        rivals.into_iter().any(|known| known.difference > half(&known, of_best))
    };
    let left: Vec<usize> = race.alive.iter().copied().filter(|j| !is_beaten(j)).collect();
    let (reference, others) = match left.split_first() {
        None | Some((_, [])) => return Some(Decision::Better),
        Some(split) => split,
    };
    let margin = race.rules.equivalence.ln_1p();
    let is_certified = |i: &usize| {
        let is_granted = race.reference() == Some(*reference) && race.certificates[*i].is_some();
        let fits =
            |known: Known| known.difference.abs() + half(&known, race.rules.alpha_of_equivalence()) <= margin;
        is_granted || race.known(*i, *reference).is_some_and(fits)
    };
    others.iter().all(is_certified).then_some(Decision::Equivalent)
}
