//! The document of `flashwright flashio`.

use ::flashio::figures::{self, Contest, DrainFigures, RestartFigures, WayFigures};
use ::flashio::record::{Leg, Work};
use ::flashio::room::TierRoom;
use ::flashio::run::Measured;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stage::names::PathText;

use super::args::FlashioArgs;

/// The format's name.
pub const SCHEMA: &str = "flashwright.flashio/2";

/// What was run and measured: what a stored document has that is not computed from it.
#[derive(Debug, Deserialize)]
pub struct Facts {
    tasks: u32,
    cpus: usize,
    work: Work,
    wanted_compute_s: Option<f64>,
    checkpoints: u32,
    fast: TierRoom,
    slow: TierRoom,
    notes: Vec<String>,
    ended: Option<String>,
    kept: Option<[PathText; 2]>,
    legs: Vec<Leg>,
}

/// `flashio --json` (`flashwright.flashio/2`). Times are seconds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlashioDocument {
    /// `flashwright.flashio/2`.
    pub schema: &'static str,
    /// Processes that computed and wrote.
    pub tasks: u32,
    /// CPUs that they could run on.
    pub cpus: usize,
    /// The work between two checkpoints.
    pub work: Work,
    /// Time of computing that it was calibrated to; None where the number of multiplications was given.
    pub wanted_compute_s: Option<f64>,
    /// Checkpoints of a leg.
    pub checkpoints: u32,
    /// Blocks with all three ways.
    pub blocks: usize,
    /// The fast tier.
    pub fast: TierRoom,
    /// The slow tier.
    pub slow: TierRoom,
    /// Each way, medians over its legs.
    pub ways: Vec<WayFigures>,
    /// Comparisons within blocks.
    pub contests: [Contest; 3],
    /// The drain.
    pub drain: Option<DrainFigures>,
    /// Tasks that were killed and started again.
    pub restart: Option<RestartFigures>,
    /// What bears on the figures.
    pub notes: Vec<String>,
    /// Why it ended early.
    pub ended: Option<String>,
    /// Directories of checkpoints that were kept: fast, slow.
    pub kept: Option<[PathText; 2]>,
    /// Every leg that came to its end.
    pub legs: Vec<Leg>,
}

impl Facts {
    /// Of a run.
    pub fn of(args: &FlashioArgs, tasks: u32, measured: &Measured) -> Self {
        let tiers = &measured.tiers;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut notes = tiers.notes.clone();
        if tasks as usize >= cpus {
            notes.push(format!(
                "{tasks} tasks and the drain share {cpus} CPUs: a slow-down of computing is of CPU time as well"
            ));
        }
        Self {
            tasks,
            cpus,
            work: measured.work,
            wanted_compute_s: args.multiplications.is_none().then_some(args.compute.as_secs_f64()),
            checkpoints: args.checkpoints,
            fast: tiers.fast.clone(),
            slow: tiers.slow.clone(),
            notes,
            ended: measured.ended.as_ref().map(|error| base::with_causes(error)),
            kept: measured.kept.clone().map(|kept| kept.map(PathText)),
            legs: measured.legs.clone(),
        }
    }
}

impl From<Facts> for FlashioDocument {
    fn from(facts: Facts) -> Self {
        let legs = facts.legs;
        let contests = figures::contests(&legs);
        Self {
            schema: SCHEMA,
            tasks: facts.tasks,
            cpus: facts.cpus,
            work: facts.work,
            wanted_compute_s: facts.wanted_compute_s,
            checkpoints: facts.checkpoints,
            blocks: contests[0].blocks,
            fast: facts.fast,
            slow: facts.slow,
            ways: figures::ways(&legs, u64::from(facts.tasks) * facts.work.checkpoint_bytes),
            contests,
            drain: figures::drain(&legs),
            restart: figures::restart(&legs),
            notes: facts.notes,
            ended: facts.ended,
            kept: facts.kept,
            legs,
        }
    }
}
