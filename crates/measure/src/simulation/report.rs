//! The tables of `sweep check-statistics`: how often races answer rightly, and what common practices claim.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::constructions::{self, SeriesLine};
use super::effects::{self, EffectLine};
use super::machine::World;
use super::practices::{self, Claims};
use super::sessions::{self, SessionsLine};
use super::trial::{self, Characteristics, Question, Truth};

/// The name of the format.
pub const SCHEMA: &str = "flashwright.statistics/1";
/// The least part of races whose intervals must all contain the truth.
pub const COVERAGE_FLOOR: f64 = 0.94;
/// The largest part of races that may end in a false *better*, in a false *equivalent*, and in a false *sufficient*.
pub const FALSE_CEILING: f64 = 0.05;
/// Standard errors of a part that the limits are widened by. The largest of 400 normal deviates exceeds them once
/// in ten checks.
const ALLOWANCE: f64 = 3.5;
/// True ratios of the best setting to the equal others. The second is just beyond the margin of equivalence.
const RATIOS: [f64; 5] = [1.0, 1.0501, 1.1, 1.2, 1.5];
/// Settings and seconds that practices are compared with.
const PRACTICES: (usize, f64) = (4, 45.0);

/// What was tried, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Statistics {
    /// `flashwright.statistics/1`.
    pub schema: String,
    /// What all figures follow from.
    pub seed: u64,
    /// Repetitions of each line.
    pub repetitions: usize,
    /// Whether coverage and false answers keep their limits in each line, within the error of the repetitions.
    pub holds: bool,
    /// Races by world, number of settings and truth.
    pub races: Vec<Characteristics>,
    /// Effects of dimensions.
    pub effects: Vec<EffectLine>,
    /// Verdicts over constructions that are built one after the other.
    pub constructions: Vec<SeriesLine>,
    /// Two sessions compared by their contrasts.
    pub sessions: Vec<SessionsLine>,
    /// What practices claim on the machine of [`World::Vm`].
    pub practices: Vec<Claims>,
}

/// Tries races between as many settings as `settings` says, in every world, with `repetitions` of 1 or more.
#[must_use]
pub fn statistics(settings: &[usize], repetitions: usize, seed: u64) -> Statistics {
    let truths: Vec<Truth> = RATIOS.into_iter().map(Truth::Best).chain([Truth::Graded]).collect();
    let mut questions = Vec::new();
    for world in World::ALL {
        for settings in settings {
            questions.extend(truths.iter().map(|truth| Question::new(world, *settings, *truth)));
        }
    }
    let races = trial::characteristics(&questions, repetitions, seed);
    let effects = effects::tried(repetitions, seed);
    let constructions = constructions::tried(repetitions, seed);
    let (of_practices, seconds) = PRACTICES;
    Statistics {
        schema: SCHEMA.into(),
        seed,
        repetitions,
        holds: races.iter().all(holds)
            && effects.iter().all(|line| effects_hold(line, repetitions))
            && constructions.iter().all(|line| constructions_hold(line, repetitions)),
        races,
        effects,
        constructions,
        sessions: sessions::tried(repetitions, seed),
        practices: practices::claims(World::Vm, of_practices, seconds, repetitions, seed),
    }
}

/// Whether a line keeps the limits, within the error of its repetitions.
#[must_use]
pub fn holds(line: &Characteristics) -> bool {
    let (floor, ceiling) = limits(line.repetitions);
    line.coverage >= floor
        && line.false_better <= ceiling
        && line.false_equivalent <= ceiling
        && line.false_sufficient <= ceiling
}

/// The same of effects.
#[must_use]
pub fn effects_hold(line: &EffectLine, repetitions: usize) -> bool {
    let (floor, ceiling) = limits(repetitions);
    line.coverage >= floor && line.false_effects <= ceiling && line.false_interactions <= ceiling
}

/// The same of verdicts over constructions.
#[must_use]
pub fn constructions_hold(line: &SeriesLine, repetitions: usize) -> bool {
    let (_, ceiling) = limits(repetitions);
    line.false_better <= ceiling && line.wrong <= ceiling
}

/// The least coverage and the largest part of false answers, widened by the error of the repetitions.
fn limits(repetitions: usize) -> (f64, f64) {
    let allowance = |part: f64| ALLOWANCE * (part * (1.0 - part) / repetitions as f64).sqrt();
    (COVERAGE_FLOOR - allowance(COVERAGE_FLOOR), FALSE_CEILING + allowance(FALSE_CEILING))
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Worst of {} worlds ({} races a line, seed {})\n",
            World::ALL.len(),
            self.repetitions,
            self.seed
        )?;
        writeln!(f, "| settings | coverage | false better | false equivalent | false sufficient |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        let mut numbers: Vec<usize> = self.races.iter().map(|line| line.question.settings).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for settings in &numbers {
            let lines = || self.races.iter().filter(|line| line.question.settings == *settings);
            let worst = |part: fn(&Characteristics) -> f64| lines().map(part).fold(0.0, f64::max);
            let coverage = lines().map(|line| line.coverage).fold(1.0, f64::min);
            let (better, equivalent) = (worst(|line| line.false_better), worst(|line| line.false_equivalent));
            let sufficient = worst(|line| line.false_sufficient);
            writeln!(f, "| {settings} | {coverage:.3} | {better:.3} | {equivalent:.3} | {sufficient:.3} |")?;
        }
        self.write_over_settings(f, &numbers, "Blocks on *vm*", &|line| {
            let reached = if line.blocks_median >= line.question.max_blocks as f64 { "+" } else { "" };
            let [by_20, by_30, by_60] = [line.decided_by_20, line.decided_by_30, line.decided_by_60];
            format!("{:.0}{reached} ({by_20:.2}/{by_30:.2}/{by_60:.2})", line.blocks_median)
        })?;
        self.write_over_settings(
            f,
            &numbers,
            "Right answers on *vm*: better/equivalent/sufficient",
            &|line| {
                format!("{:.2}/{:.2}/{:.2}", line.right_better, line.right_equivalent, line.right_sufficient)
            },
        )?;
        self.write_effects(f)?;
        self.write_constructions(f)?;
        self.write_sessions(f)?;
        self.write_practices(f)?;
        for world in World::ALL {
            self.write_world(f, world)?;
        }
        let verdict = if self.holds { "All lines keep" } else { "NOT all lines keep" };
        writeln!(
            f,
            "\n{verdict} coverage ≥ {COVERAGE_FLOOR} and false answers ≤ {FALSE_CEILING}, within {ALLOWANCE} standard errors."
        )
    }
}

impl Statistics {
    fn write_world(&self, f: &mut fmt::Formatter<'_>, world: World) -> fmt::Result {
        writeln!(
            f,
            "\n{world}: blocks (share decided by 20/30/60); decided or sufficient by 20/30; right better/equivalent; false better/equivalent/sufficient; coverage; runs\n"
        )?;
        writeln!(f, "| settings | true ratio | blocks | sufficient | right | false | coverage | runs |")?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        for line in self.races.iter().filter(|line| line.question.world == world) {
            let max_blocks = line.question.max_blocks as f64;
            let reached = if line.blocks_median >= max_blocks { "+" } else { "" };
            writeln!(
                f,
                "| {} | {} | {:.0}{reached} ({:.2}/{:.2}/{:.2}) | {:.2}/{:.2} | {:.2}/{:.2} | {:.3}/{:.3}/{:.3} | {:.3} | {:.0} |",
                line.question.settings,
                line.question.truth,
                line.blocks_median,
                line.decided_by_20,
                line.decided_by_30,
                line.decided_by_60,
                line.sufficient_by_20,
                line.sufficient_by_30,
                line.right_better,
                line.right_equivalent,
                line.false_better,
                line.false_equivalent,
                line.false_sufficient,
                line.coverage,
                line.runs_mean
            )?;
        }
        Ok(())
    }

    /// Of each true ratio on *vm* a row, with a cell for each number of settings.
    fn write_over_settings(
        &self,
        f: &mut fmt::Formatter<'_>,
        numbers: &[usize],
        title: &str,
        cell: &dyn Fn(&Characteristics) -> String,
    ) -> fmt::Result {
        let names: Vec<String> = numbers.iter().map(|number| format!(" k = {number} |")).collect();
        writeln!(f, "\n{title}\n\n| true ratio |{}\n|---|{}", names.concat(), "---|".repeat(numbers.len()))?;
        let of_vm = || self.races.iter().filter(|line| line.question.world == World::Vm);
        for truth in RATIOS.into_iter().map(Truth::Best).chain([Truth::Graded]) {
            let name = match truth {
                Truth::Best(1.0) => "all equal".to_owned(),
                Truth::Best(ratio) => ratio.to_string(),
                Truth::Graded => "graded over a factor of 2".to_owned(),
            };
            let cells =
                of_vm().filter(|line| line.question.truth == truth).map(|line| format!(" {} |", cell(line)));
            writeln!(f, "| {name} |{}", cells.collect::<String>())?;
        }
        Ok(())
    }

    /// Of sweeps whose points share blocks the worst over the worlds, and of each number of constructions.
    fn write_effects(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nEffects of dimensions\n")?;
        writeln!(f, "| sweep | coverage | false effect | false dependence | found |\n|---|---|---|---|---|")?;
        let mut kinds: Vec<Option<usize>> = self.effects.iter().map(|line| line.factorial.widths).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let of = || self.effects.iter().filter(move |line| line.factorial.widths == kind);
            let most = |part: fn(&EffectLine) -> f64| of().map(part).fold(0.0, f64::max);
            let least = |part: fn(&EffectLine) -> f64| of().map(part).fold(1.0, f64::min);
            let with = || of().filter(|line| line.factorial.ratio > 1.0);
            let found = with().map(|line| line.found);
            let (low, high) = found.fold((1.0, 0.0), |(low, high), f| (f64::min(low, f), f64::max(high, f)));
            let ratio = with().map(|line| line.factorial.ratio).fold(1.0, f64::max);
            let sweep = match kind {
                None => {
                    format!("blocks shared by 3 depths and 2 ways of seeking, until decided; found: {ratio}")
                }
                Some(1) => format!("4 chunks, 1 construction each, 3 depths; found: {ratio}"),
                Some(n) => format!("4 chunks, {n} constructions each, 3 depths; found: {ratio}"),
            };
            let found = if low == high { format!("{low:.2}") } else { format!("{low:.2} to {high:.2}") };
            writeln!(
                f,
                "| {sweep} | {:.3} | {:.3} | {:.3} | {found} |",
                least(|line| line.coverage),
                most(|line| line.false_effects),
                most(|line| line.false_interactions)
            )?;
        }
        Ok(())
    }

    fn write_sessions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nTwo sweeps\n")?;
        writeln!(
            f,
            "| passes | any false difference | the same without τ | one setting 1.1 times better is found | 1.2 times |"
        )?;
        writeln!(f, "|---|---|---|---|---|")?;
        for line in &self.sessions {
            let [any, without] =
                [line.any_when_equal, line.without_tau].map(|part| format!("{:.1} %", part * 100.0));
            let [small, large] =
                [line.found_at_1_1, line.found_at_1_2].map(|part| format!("{:.0} %", part * 100.0));
            writeln!(f, "| {} | {any} | {without} | {small} | {large} |", line.passes)?;
        }
        Ok(())
    }

    /// Of each world and number of constructions: the worst over the numbers of blocks.
    fn write_constructions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nConstructions, built one after the other\n")?;
        writeln!(
            f,
            "| world | constructions | blocks | false better | the same without movement | 1.2 found | 1.5 | 2 |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        for line in &self.constructions {
            let [small, large, double] = line.found;
            writeln!(
                f,
                "| {} | {} | {} | {:.3} | {:.3} | {small:.2} | {large:.2} | {double:.2} |",
                line.series.world,
                line.series.constructions,
                line.series.blocks,
                line.false_better,
                line.without_movement,
            )?;
        }
        Ok(())
    }

    fn write_practices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.practices.first() else { return Ok(()) };
        writeln!(
            f,
            "\n{}, {} settings, {} s: a best one is claimed\n",
            first.world, first.settings, first.seconds
        )?;
        writeln!(f, "| | all equal | 1.1: right/wrong | 1.2: right/wrong |")?;
        writeln!(f, "|---|---|---|---|")?;
        for line in &self.practices {
            writeln!(
                f,
                "| {} | {:.2} | {:.2}/{:.2} | {:.2}/{:.2} |",
                line.practice.words(),
                line.any_when_equal,
                line.right_at_1_1,
                line.wrong_at_1_1,
                line.right_at_1_2,
                line.wrong_at_1_2
            )?;
        }
        Ok(())
    }
}
