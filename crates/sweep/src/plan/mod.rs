//! What runs when: every point once in each block, in a random order that anybody can repeat.
//!
//! A sweep that walks its space in order confounds the dimensions with time: a drive that warms up,
//! fills its cache or starts to collect garbage makes the settings measured last look bad. So the
//! passes are *blocks* (a randomised complete block design): inside a block each point runs exactly
//! once, in an order drawn from the recorded seed. What changes slowly then falls on all points
//! alike, and the variation within a block is not taken for an effect.
//!
//! Writes are not held back until the reads are done. In a random order a read may follow a write or
//! another read, and over several passes each point meets both; an order "reads first" would give
//! all reads a fresh drive and all writes a used one.
//!
//! Where points say what is to be built below them ([`Point::layout`]), building is costly: an array,
//! a file system, data on it. Then the plan is a *split-plot* design (Box, Hunter, Hunter, "Statistics
//! for Experimenters", 2nd ed., ch. 9): the outer *groups* are the constructions, in a random order,
//! each built once; inside a group the blocks are as above, over the points that this construction
//! serves. So the cheap settings are compared free of time, and the costly ones over an order that at
//! least nobody chose.
//!
//! Between the runs a *control point* is repeated: at the start, after every `control_every` runs,
//! and at the end of each block. Its figures say whether the machine drifted while the space was
//! measured. A group cannot repeat a point that needs another construction; it repeats its own point
//! with the control's workload. Controls are no runs: they are planned, stored and counted apart.
//!
//! Several machines of one kind can share a sweep. The groups (points, where nothing is built) are dealt
//! out in random order; each machine's part, its *shard*, is planned as if it were alone, and the parts
//! stand one after the other in the whole plan. So parts that were measured apart are parts of one
//! sweep, and can be put together.
//!
//! All this is the plan of a protocol that [plans ahead](Protocol::is_planned_ahead). Under the others a block has the points of
//! one *work* only, and those that have lost are left out, so that there is no plan before the runs: [`blocks`].
//!
//! Invariants of a plan of passes, checked by property tests:
//!
//! 1. There are points × passes runs, and each (point, pass) occurs once.
//! 2. Positions number runs and controls of the whole together, from 0 and without a gap, in the order
//!    of time.
//! 3. The same points, seed and settings give the same plan, on every machine.
//! 4. The order of a block depends on the seed, the construction (or shard) and the block's number only:
//!    a further pass adds a block to each group and changes the order of none.
//! 5. Each construction is built once: its steps follow one another without a foreign one among them.
//! 6. Each group opens with a control and closes each block with one, on its own construction.
//! 7. Shards have no step in common, together they are the whole, and none splits a construction.

pub mod blocks;
mod estimate;
mod groups;
mod margin;
mod prepare;
mod shuffle;

use std::time::Duration;

use measure::Workload;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::model::Point;

pub use estimate::{Changes, Estimate, OVERHEAD_PER_RUN};
pub use groups::default_control;
pub use margin::Margin;
pub use prepare::{Preparation, Prepare, bytes_used, units};
pub use shuffle::{SplitMix64, fresh_seed, permutation, run_seed};

base::words! {
    /// How the runs of a sweep are chosen.
    #[derive(Default)]
    pub enum Protocol {
        /// Blocks of one work each, drawn while the sweep runs, until the work is decided.
        #[default]
        Blocks = "blocks",
        /// The papers': passes over all points, drawn before anything runs.
        Dash = "dash",
        /// Blocks of the few points, on the few constructions, that the search finds worth it.
        Screen = "screen",
    }
}

// What depends on the protocol asks one of these questions, rather than which protocol it is, so that a further one answers them
// here.
impl Protocol {
    /// Whether the plan is drawn before anything runs: passes over all points. Otherwise it grows by a block of one work when that
    /// begins.
    #[must_use]
    pub const fn is_planned_ahead(self) -> bool {
        match self {
            Self::Dash => true,
            Self::Blocks | Self::Screen => false,
        }
    }

    /// Whether the papers' rules hold: the first pass is set aside, means go without what Chauvenet's criterion rejects, and
    /// figures can be set beside theirs.
    #[must_use]
    pub const fn is_papers(self) -> bool {
        match self {
            Self::Dash => true,
            Self::Blocks | Self::Screen => false,
        }
    }

    /// Whether points and constructions are left out by what [`crate::search`] predicts of them, so that what runs next depends on
    /// all that has run.
    #[must_use]
    pub const fn is_screened(self) -> bool {
        match self {
            Self::Screen => true,
            Self::Blocks | Self::Dash => false,
        }
    }

    /// The word of `search`, which says the same by what becomes of points that cannot win.
    #[must_use]
    pub const fn search_word(self) -> &'static str {
        match self {
            Self::Blocks => "race",
            Self::Dash => "exhaustive",
            Self::Screen => "screen",
        }
    }

    /// The meaning of a word of `search`.
    #[must_use]
    pub fn from_search(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.search_word() == word)
    }

    /// The protocol of sweeps that do not name one: those of before there were two.
    #[must_use]
    pub const fn unnamed() -> Self {
        Self::Dash
    }

    // By reference, as serde asks.
    fn is_unnamed(&self) -> bool {
        *self == Self::unnamed()
    }
}

fn is_zero(time: &Duration) -> bool {
    time.is_zero()
}

base::words! {
    /// The order of the points inside a block.
    #[derive(Default)]
    pub enum Order {
        /// Drawn from the seed, afresh for each block.
        #[default]
        Random = "random",
        /// As the dimensions are written, in each block alike. Time and settings are then confounded.
        Given = "given",
    }
}

/// One run that the sweep owes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Place in the order of time, from 0, counted over runs and controls together.
    pub position: u32,
    /// [`Point::id`].
    pub point: u32,
    /// Block, and so repetition, from 1.
    pub pass: u32,
}

/// Whether a step measures the space or watches the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// A run of the space; it goes into the table `runs`.
    Run,
    /// A repetition of the control point; it goes into the table `controls`.
    Control,
}

/// One thing to do, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Step {
    /// What is run, and where it stands.
    pub planned: PlannedRun,
    /// What it is for.
    pub kind: StepKind,
}

/// How a plan is made from points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Blocks: how often each point runs; 0 for as often as a decision takes, which no protocol that plans ahead knows.
    pub passes: u32,
    /// The order inside a block.
    pub order: Order,
    /// The point that is repeated as a control, by its id; none for no controls.
    pub control: Option<u32>,
    /// Runs after which the control is repeated inside a block; 0 for only at the blocks' ends.
    pub control_every: u32,
    /// What every random choice of the sweep is drawn from.
    pub seed: u64,
    /// Machines that share the sweep, 1 or more.
    // Left out at 1, so that the digests of sweeps that nobody shares stay what they were.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub shards: u32,
    /// What is done to targets before their first run.
    // Left out where it is nothing, for the same reason.
    #[serde(default, skip_serializing_if = "Prepare::is_nothing")]
    pub prepare: Prepare,
    /// How the runs are chosen.
    // Left out where sweeps did not name it, so that the digests of earlier sweeps stay what they were.
    #[serde(default = "Protocol::unnamed", skip_serializing_if = "Protocol::is_unnamed")]
    pub protocol: Protocol,
    /// Time between the starts of two blocks of one work, at least.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spacing: Duration,
    /// How far apart settings may lie that count as equally good.
    // Left out where it is the default, for the same reason.
    #[serde(default, skip_serializing_if = "Margin::is_default")]
    pub equivalence: Margin,
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

/// The whole of a sweep, before anything has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The points, by id.
    pub points: Vec<Point>,
    /// What the runs were drawn by.
    pub rules: Rules,
    /// The runs in the order of time: points × passes of them, or those of the blocks that have begun, where no plan is
    /// drawn ahead.
    pub runs: Vec<PlannedRun>,
    /// The repetitions of the control point in the order of time.
    pub controls: Vec<PlannedRun>,
    /// The points that are measured here, ascending: all of them, or those of some shards.
    pub members: Vec<u32>,
}

impl Plan {
    /// The plan for these points. `points[i].id` must be `i`, as a space hands them out.
    ///
    /// # Panics
    /// Where ids are not 0, 1, 2, …, or the control is not one of them: whoever made the points is
    /// then wrong, not the user.
    #[must_use]
    pub fn new(points: Vec<Point>, rules: Rules) -> Self {
        Self::of_shards(points, rules, |_| true)
    }

    /// The steps of some of the shards, 1 to `rules.shards`, at their positions in the whole plan. All
    /// points are kept.
    ///
    /// # Panics
    /// As [`Plan::new`].
    #[must_use]
    pub fn of_shards(points: Vec<Point>, rules: Rules, wanted: impl Fn(u32) -> bool) -> Self {
        assert!(points.iter().zip(0..).all(|(p, i)| p.id == i), "points are numbered in order");
        assert!(rules.control.is_none_or(|c| (c as usize) < points.len()), "control is a point");
        assert!(rules.shards > 0, "somebody runs the sweep");
        let mut lines = Lines::new(rules.control_every);
        let mut members = Vec::new();
        for group in groups::groups(&points, &rules) {
            if wanted(group.shard) {
                members.extend(&group.members);
            }
            // By name, so that the compiler asks what runs a further protocol plans ahead.
            match rules.protocol {
                Protocol::Dash => {}
                Protocol::Blocks | Protocol::Screen => continue,
            }
            lines.begin_group(&group, wanted(group.shard));
            for pass in 1..=rules.passes {
                for point in group.block(pass, rules.order) {
                    lines.run(point, pass);
                }
                lines.end_block(pass);
            }
        }
        members.sort_unstable();
        Self { points, rules, runs: lines.runs, controls: lines.controls, members }
    }

    /// The most shards that can share these points: constructions where something is built, else points, or works
    /// where no plan is drawn ahead.
    #[must_use]
    pub fn most_shards(points: &[Point], protocol: Protocol) -> u32 {
        groups::units(points, protocol)
    }

    /// Runs and controls together, in the order of time.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let runs = self.runs.iter().map(|p| Step { planned: *p, kind: StepKind::Run });
        let controls = self.controls.iter().map(|p| Step { planned: *p, kind: StepKind::Control });
        let mut steps: Vec<Step> = runs.chain(controls).collect();
        steps.sort_unstable_by_key(|step| step.planned.position);
        steps
    }

    /// A digest of everything that decides what runs when: two plans with the same one are the same.
    /// Of each workload it covers what differs from the default, so that an option which a later
    /// version adds changes no digest.
    ///
    /// # Panics
    /// Never: the types of a plan always serialise.
    #[must_use]
    pub fn digest(&self) -> String {
        let default = fields(&Workload::default());
        let mut text =
            serde_json::to_vec(&(&self.rules, &self.runs, &self.controls)).expect("a plan serialises");
        for point in &self.points {
            let mut workload = fields(&point.workload);
            workload.retain(|name, value| default.get(name) != Some(value));
            let part = (&point.settings, point.test_type, &point.target, workload);
            text.extend(serde_json::to_vec(&part).expect("a point serialises"));
            if !point.layout.is_empty() {
                text.extend(serde_json::to_vec(&point.layout).expect("a layout serialises"));
            }
        }
        format!("{:032x}", xxh3_128(&text))
    }
}

/// A workload's options by name.
fn fields(workload: &Workload) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(workload) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => unreachable!("a workload is an object"),
    }
}

/// Puts runs and controls one after the other, and keeps those that are wanted.
struct Lines {
    runs: Vec<PlannedRun>,
    controls: Vec<PlannedRun>,
    every: u32,
    control: Option<u32>,
    wanted: bool,
    since_control: u32,
    position: u32,
}

impl Lines {
    fn new(every: u32) -> Self {
        Self {
            runs: Vec::new(),
            controls: Vec::new(),
            every,
            control: None,
            wanted: true,
            since_control: 0,
            position: 0,
        }
    }

    fn begin_group(&mut self, group: &groups::Group, wanted: bool) {
        (self.control, self.wanted) = (group.control, wanted);
        self.control(1);
    }

    fn next_position(&mut self) -> u32 {
        let position = self.position;
        self.position = position.checked_add(1).expect("the space bounds its runs");
        position
    }

    fn control(&mut self, pass: u32) {
        if let Some(point) = self.control {
            let position = self.next_position();
            if self.wanted {
                self.controls.push(PlannedRun { position, point, pass });
            }
            self.since_control = 0;
        }
    }

    fn run(&mut self, point: u32, pass: u32) {
        // Before the run, not after it: at a block's end two controls would else follow each other.
        if self.every > 0 && self.since_control >= self.every {
            self.control(pass);
        }
        let position = self.next_position();
        if self.wanted {
            self.runs.push(PlannedRun { position, point, pass });
        }
        self.since_control += 1;
    }

    fn end_block(&mut self, pass: u32) {
        if self.since_control > 0 {
            self.control(pass);
        }
    }
}
