//! What the blocks of each work say: which setting is best, that all are equivalent, or that it is not decided.
//!
//! In a sweep of passes a pass is a block over all points. The first one is left out where the sweep sets it aside,
//! which was decided before any figure was seen; what Chauvenet's criterion rejects is not, because removing by it and
//! then judging claims too much.
//!
//! Where the bandwidths of several settings are equivalent, their 99th percentiles are compared by the same rules, over
//! the same blocks.

use std::collections::BTreeMap;

use measure::WarningCode;
use measure::decide::{Answer, Outcome, Race, Rules, SETTINGS_MAX, Standing};
use measure::effects::Observation;
use measure::stats::{Direction, Movement};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contest::Contest;
use crate::model::{Point, RunRow};
use crate::plan::blocks::race_rules;
use crate::search::{ScreenedContest, StruckPoint};

use super::{SweepData, SweepMeta, Work, statistics};

/// Blocks from which on their effects can be taken out of the figures.
const LEAST_BLOCKS: usize = 2;

/// One work on one construction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContestSummary {
    /// The work.
    pub work: Work,
    /// What is built for its points; none where nothing is.
    pub construction: Option<String>,
    /// The points, from the cheapest setting to the dearest. The numbers of settings below are positions in this list.
    pub points: Vec<u32>,
    /// What the blocks say of their bandwidths.
    pub bandwidth: Outcome,
    /// What the same blocks say of the 99th percentiles of latency of the settings with equivalent bandwidths; none
    /// where bandwidth is not equivalent.
    pub latency_ns_p99: Option<Outcome>,
    /// Blocks in which all settings were slower than usual.
    pub slow_blocks: Vec<SlowBlock>,
}

/// A block in which all settings were slower than usual. It counts like the others, because differences are taken within it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowBlock {
    /// The number of the block, or the pass.
    pub number: u32,
    /// Its level by that of the median block.
    pub level: f64,
    /// The control point's bandwidth beside it, by the control's median; none where no control ran beside it.
    pub control: Option<f64>,
    /// Whether one of its runs lost CPU time to the hypervisor (`W-STEAL`).
    pub stolen: bool,
}

impl SlowBlock {
    /// `no. 3 at 65 %, the control point too`.
    #[must_use]
    pub fn words(&self) -> String {
        let mut text = format!("no. {} at {}", self.number, units::percent(self.level));
        if self.control.is_some_and(|level| level < SLOW_CONTROL) {
            text += ", the control point too";
        }
        if self.stolen {
            text += ", with CPU time stolen";
        }
        text
    }
}

/// A block below this part of the median block's level is named.
const SLOW: f64 = 0.8;
/// And each of its runs is below this part of its setting's usual figure.
const SLOW_RUN: f64 = 0.9;
/// A control below this part of its median was slow as well.
const SLOW_CONTROL: f64 = 0.9;

impl ContestSummary {
    /// The points of which the answer speaks: the winner, or those that are equivalent, or those that may still be the
    /// best.
    pub fn alive(&self) -> impl Iterator<Item = u32> + '_ {
        let alive = self.bandwidth.settings.iter().filter(|s| s.standing == Standing::Alive);
        alive.map(|s| self.points[s.setting])
    }

    fn contest(&self) -> Contest {
        let Self { construction, work, points, .. } = self.clone();
        Contest { construction, work, members: points }
    }

    /// The number of a point.
    #[must_use]
    pub fn setting(&self, point: u32) -> Option<usize> {
        self.points.iter().position(|id| *id == point)
    }
}

/// The number of a block, and its runs that count, each with its setting, in the order in which they ran.
type Block<'d> = (u32, Vec<(usize, &'d RunRow)>);

fn blocks<'d>(data: &'d SweepData, contest: &Contest) -> Vec<Block<'d>> {
    let mut blocks: BTreeMap<u32, Vec<&RunRow>> = BTreeMap::new();
    for run in data.runs.iter().filter(|run| contest.members.contains(&run.point)) {
        let is_first = (data.meta.discard_first && run.pass == 1) || run.pass <= screened(data, contest);
        if !is_first && !data.cut.contains(&(run.point, run.pass)) {
            blocks.entry(run.pass).or_default().push(run);
        }
    }
    let counting = |mut block: Vec<&'d RunRow>| {
        block.sort_by_key(|run| (run.position, run.id));
        contest.counting(block)
    };
    blocks.into_iter().map(|(number, block)| (number, counting(block))).collect()
}

/// The number of the last block that screened a contest; 0 where it was not screened.
fn screened(data: &SweepData, contest: &Contest) -> u32 {
    screening(data, contest).map_or(0, |c| c.last_screened)
}

/// How a contest was screened; none where it was not.
fn screening<'d>(data: &'d SweepData, contest: &Contest) -> Option<&'d ScreenedContest> {
    let mut found = data.search.iter().flat_map(|search| &search.contests);
    found.find(|c| c.work == contest.work && c.construction == contest.construction)
}

/// The settings of a contest that were struck, each with the number of the last block that it could run in.
fn struck(data: &SweepData, contest: &Contest) -> Vec<(u32, usize)> {
    let of = |struck: &StruckPoint| {
        let setting = contest.members.iter().position(|point| *point == struck.point)?;
        Some((struck.last_block, setting))
    };
    screening(data, contest).into_iter().flat_map(|c| &c.struck).filter_map(of).collect()
}

fn race(members: usize, rules: Rules, blocks: &[Vec<(usize, f64)>]) -> Outcome {
    let mut race = Race::new(members, rules);
    blocks.iter().for_each(|block| race.block(block));
    race.outcome()
}

/// Each contest of a sweep, in the order of its first points; without those of more settings than a race can have.
#[must_use]
pub fn summarise(data: &SweepData) -> Vec<ContestSummary> {
    let races = |point: &&Point| data.search.as_ref().is_none_or(|search| search.races(point.id));
    let contests = Contest::all(super::by_id(&data.points).into_values().filter(races)).into_iter();
    contests.filter(|contest| contest.members.len() <= SETTINGS_MAX).map(|c| one(data, c)).collect()
}

fn one(data: &SweepData, contest: Contest) -> ContestSummary {
    let SweepMeta { protocol, passes, equivalence, .. } = data.meta;
    // Blocks that are there all tell, also those from before a race ended at *sufficient*.
    let rules = Rules {
        ends_at_sufficient: false,
        ..race_rules(&contest, &data.points, protocol, passes, equivalence)
    };
    let blocks = blocks(data, &contest);
    let figures = |figure: &dyn Fn(&RunRow) -> f64, of: &dyn Fn(usize) -> Option<usize>| {
        let figures = |(_, block): &Block<'_>| {
            block.iter().filter_map(|(setting, run)| Some((of(*setting)?, figure(run)))).collect()
        };
        blocks.iter().map(figures).collect::<Vec<Vec<(usize, f64)>>>()
    };
    let mut bandwidth = Race::new(contest.members.len(), rules);
    let struck = struck(data, &contest);
    let struck_before = |number: u32| {
        let before = struck.iter().filter(|(last_block, _)| *last_block < number);
        before.map(|(_, setting)| *setting).collect::<Vec<usize>>()
    };
    for ((number, _), block) in blocks.iter().zip(figures(&|run| run.bandwidth_bytes_per_s, &Some)) {
        bandwidth.strike(&struck_before(*number));
        bandwidth.block(&block);
    }
    bandwidth.strike(&struck_before(u32::MAX));
    let bandwidth = bandwidth.outcome();
    let is_equivalent = matches!(bandwidth.answer, Answer::Equivalent { .. });
    let latency = is_equivalent.then(|| {
        let is_alive = |setting: usize| bandwidth.settings[setting].standing == Standing::Alive;
        let of = |setting: usize| is_alive(setting).then_some(setting);
        let rules = Rules { direction: Direction::LowerIsBetter, ..rules };
        race(contest.members.len(), rules, &figures(&|run| run.latency_ns_p99 as f64, &of))
    });
    let settings = contest.members.len();
    ContestSummary {
        work: contest.work,
        construction: contest.construction,
        points: contest.members,
        bandwidth,
        latency_ns_p99: latency,
        slow_blocks: slow_blocks(data, &blocks, settings),
    }
}

/// The figures of each point of a contest without the effects of its blocks, with the weights of the race.
pub(super) fn observations(data: &SweepData, summary: &ContestSummary) -> Vec<(u32, Observation)> {
    let blocks = blocks(data, &summary.contest());
    let mut effects = vec![0.0; blocks.len()];
    if let Some(fit) = Fit::of(&blocks, summary.points.len()) {
        fit.blocks.iter().zip(&fit.effects).for_each(|(at, effect)| effects[*at] = *effect);
    }
    let figures = |setting: usize| {
        let of = |(at, block): (usize, &Block<'_>)| {
            let y = logarithms(block).into_iter().find(|(own, _)| *own == setting)?.1;
            Some((at as u32, (y - effects[at]).exp()))
        };
        Observation::of_race(&summary.bandwidth, setting, blocks.iter().enumerate().filter_map(of))
    };
    summary.points.iter().enumerate().map(|(setting, point)| (*point, figures(setting))).collect()
}

/// The blocks of one construction: setting and ln figure of each run.
type Stretch = Vec<Vec<(usize, f64)>>;

/// How far the machine moved from block to block while one construction stood, for each work that is spread over several.
pub(super) fn movements(data: &SweepData, contests: &[ContestSummary]) -> BTreeMap<Work, Movement> {
    let mut stretches: BTreeMap<&Work, Vec<Stretch>> = BTreeMap::new();
    for contest in contests {
        let blocks = blocks(data, &contest.contest());
        stretches.entry(&contest.work).or_default().push(blocks.iter().map(logarithms).collect());
    }
    let spread = stretches.into_iter().filter(|(_, stretches)| stretches.len() > 1);
    spread.map(|(work, stretches)| (work.clone(), Movement::of(&stretches))).collect()
}

/// The blocks that were slow for all settings.
fn slow_blocks(data: &SweepData, blocks: &[Block<'_>], settings: usize) -> Vec<SlowBlock> {
    let Some(fit) = Fit::of(blocks, settings) else { return Vec::new() };
    let Some(usual) = statistics::median(&fit.effects) else { return Vec::new() };
    let controls: Vec<f64> = data.controls.iter().map(|run| run.bandwidth_bytes_per_s).collect();
    // Constructions have controls of their own, which are not compared with each other.
    let is_one_point = data.controls.iter().all(|run| run.point == data.controls[0].point);
    let control = statistics::median(&controls).filter(|median| *median > 0.0 && is_one_point);
    let beside = |block: &[(usize, &RunRow)]| {
        let positions = || block.iter().map(|(_, run)| run.position);
        let (first, last) = (positions().min()?.saturating_sub(1), positions().max()? + 1);
        let beside = data.controls.iter().find(|run| (first..=last).contains(&run.position))?;
        Some(beside.bandwidth_bytes_per_s / control?)
    };
    let slow = fit.blocks.iter().zip(&fit.effects).filter_map(|(at, effect)| {
        let (number, runs) = &blocks[*at];
        let level = (effect - usual).exp();
        let stolen = runs.iter().any(|(_, run)| run.warnings.contains(&WarningCode::Steal));
        let is_slower = |(setting, y): &(usize, f64)| y - fit.levels[*setting] - usual < SLOW_RUN.ln();
        let all = logarithms(&blocks[*at]).iter().all(is_slower);
        (level < SLOW && all).then(|| SlowBlock { number: *number, level, control: beside(runs), stolen })
    });
    slow.collect()
}

/// An additive model of ln bandwidth: setting + block.
struct Fit {
    /// The blocks that take part: those with two figures at least.
    blocks: Vec<usize>,
    /// By setting.
    levels: Vec<f64>,
    /// By block that takes part.
    effects: Vec<f64>,
}

impl Fit {
    fn of(blocks: &[Block<'_>], settings: usize) -> Option<Self> {
        let taking_part = (0..blocks.len()).filter(|at| logarithms(&blocks[*at]).len() > 1);
        let taking_part: Vec<usize> = taking_part.collect();
        if taking_part.len() < LEAST_BLOCKS {
            return None;
        }
        let logarithms: Vec<Vec<(usize, f64)>> =
            taking_part.iter().map(|at| logarithms(&blocks[*at])).collect();
        let (mut levels, mut effects) = (vec![0.0; settings], vec![0.0; logarithms.len()]);
        // Alternating least squares; with every setting in every block one round is exact.
        for _ in 0..50 {
            let (mut sum, mut count) = (vec![0.0; settings], vec![0.0; settings]);
            for (block, effect) in logarithms.iter().zip(&effects) {
                for (setting, y) in block {
                    sum[*setting] += y - effect;
                    count[*setting] += 1.0;
                }
            }
            for (level, (sum, count)) in levels.iter_mut().zip(sum.iter().zip(&count)) {
                *level = if *count > 0.0 { sum / count } else { 0.0 };
            }
            for (block, effect) in logarithms.iter().zip(&mut effects) {
                let rests = block.iter().map(|(setting, y)| y - levels[*setting]);
                *effect = rests.sum::<f64>() / block.len() as f64;
            }
        }
        Some(Self { blocks: taking_part, levels, effects })
    }
}

/// The figures of a block that have a logarithm.
fn logarithms((_, block): &Block<'_>) -> Vec<(usize, f64)> {
    let all = block.iter().map(|(setting, run)| (*setting, run.bandwidth_bytes_per_s.ln()));
    all.filter(|(_, y)| y.is_finite()).collect()
}
