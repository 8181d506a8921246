//! Where the contests of a sweep stand: their whole blocks so far, what these decide, and which contest owes another.
//!
//! A board is made from what is stored and nothing else, so that a resumed sweep goes on as the one that was
//! stopped would have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use measure::decide::{Race, Rules as RaceRules};

use crate::contest::Contest;
use crate::model::RunRow;
use crate::plan::blocks::{Stage, stages};
use crate::plan::{Plan, PlannedRun};

/// Blocks of a work that has one setting only: nothing is decided, and its figure gets an interval.
pub const BLOCKS_OF_ONE: u32 = 5;

/// All contests that are measured here.
#[derive(Debug, Clone)]
pub struct Board {
    /// In the order of time.
    pub stages: Vec<BoardStage>,
    /// The longest that a shard measures; none where the number of blocks is fixed.
    budget: Option<Duration>,
    /// The number of blocks; 0 where they are as many as a decision takes.
    fixed: u32,
}

/// Contests that take turns.
#[derive(Debug, Clone)]
pub struct BoardStage {
    /// The machine that measures them, from 1.
    pub shard: u32,
    /// The contests.
    pub entries: Vec<Entry>,
    /// The point that is repeated as a control.
    pub control: Option<u32>,
}

/// A contest with its blocks.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The alternatives.
    pub contest: Contest,
    /// The number of the last block that was begun; 0 before the first.
    pub last_block: u32,
    /// Blocks that are whole.
    pub whole: u32,
    /// What they decide.
    pub race: Race,
    /// The points with a stored run in a whole block.
    measured: BTreeSet<u32>,
}

impl Entry {
    fn new(contest: Contest, fixed: u32) -> Self {
        let rules = RaceRules { stops: fixed == 0, ..RaceRules::default() };
        let race = Race::new(contest.members.len(), rules);
        Self { contest, last_block: 0, whole: 0, race, measured: BTreeSet::new() }
    }

    /// Takes a whole block: its runs in the order in which they ran.
    pub fn block<'r>(&mut self, number: u32, runs: impl IntoIterator<Item = &'r RunRow>) {
        let runs: Vec<&RunRow> = runs.into_iter().collect();
        self.measured.extend(runs.iter().map(|run| run.point));
        let counting = self.contest.counting(runs);
        let figures: Vec<(usize, f64)> =
            counting.iter().map(|(setting, run)| (*setting, run.bandwidth_bytes_per_s)).collect();
        self.race.block(&figures);
        self.whole += 1;
        self.last_block = self.last_block.max(number);
    }

    /// The points that may still win.
    pub fn alive(&self) -> impl Iterator<Item = u32> + '_ {
        self.race.alive().iter().map(|setting| self.contest.members[*setting])
    }

    /// The points that may still win and have no run yet.
    pub fn unmeasured(&self) -> impl Iterator<Item = u32> + '_ {
        self.alive().filter(|point| !self.measured.contains(point))
    }
}

impl Board {
    /// The contests of the shards `parts`, with what is stored of them. `cut` are the runs of blocks that were cut
    /// short.
    #[must_use]
    pub fn new(
        plan: &Plan,
        parts: &[u32],
        budget: Option<Duration>,
        runs: &[RunRow],
        cut: &BTreeSet<PlannedRun>,
    ) -> Self {
        let fixed = plan.rules.passes;
        let here = stages(&plan.points, &plan.rules).into_iter().filter(|stage| parts.contains(&stage.shard));
        let stages: Vec<BoardStage> = here.map(|stage| BoardStage::new(stage, fixed)).collect();
        let mut board = Self { stages, budget, fixed };
        let rows: BTreeMap<u32, &RunRow> = runs.iter().map(|run| (run.position, run)).collect();
        let mut of: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for (stage, entries) in board.stages.iter().map(|stage| &stage.entries).enumerate() {
            for (entry, Entry { contest, .. }) in entries.iter().enumerate() {
                of.extend(contest.members.iter().map(|point| (*point, (stage, entry))));
            }
        }
        // By contest and number; each with its positions, in order.
        let mut blocks: BTreeMap<((usize, usize), u32), BTreeSet<u32>> = BTreeMap::new();
        for run in &plan.runs {
            if let Some(place) = of.get(&run.point) {
                blocks.entry((*place, run.pass)).or_default().insert(run.position);
            }
        }
        let cut: BTreeSet<u32> = cut.iter().map(|run| run.position).collect();
        for (((stage, entry), number), positions) in blocks {
            let entry = &mut board.stages[stage].entries[entry];
            if positions.is_disjoint(&cut) {
                entry.block(number, positions.iter().filter_map(|position| rows.get(position).copied()));
            }
            entry.last_block = entry.last_block.max(number);
        }
        board
    }

    /// The longest that a shard measures; none where the number of blocks is fixed.
    #[must_use]
    pub fn budget(&self) -> Option<Duration> {
        self.budget
    }

    /// Whether a contest owes another block, given the time that its stage may take and has taken. Points in `given_up`
    /// are not waited for.
    #[must_use]
    pub fn is_open(
        &self,
        entry: &Entry,
        used: Duration,
        end: Option<Duration>,
        given_up: &dyn Fn(u32) -> bool,
    ) -> bool {
        let enough = match (self.fixed, entry.contest.members.len()) {
            (0, 1) => entry.whole >= BLOCKS_OF_ONE || end.is_some_and(|end| used >= end),
            (0, _) => entry.race.decided().is_some() || end.is_some_and(|end| used >= end),
            (fixed, _) => entry.whole >= fixed,
        };
        // Each point is measured once, whatever the budget.
        !enough || entry.unmeasured().any(|point| !given_up(point))
    }

    /// When a stage has to end: it gets its share of what is left of its shard's budget, given the time that the
    /// shard has used.
    #[must_use]
    pub fn end_of(&self, stage: usize, used: Duration) -> Option<Duration> {
        let budget = self.budget?;
        let shard = self.stages[stage].shard;
        let is_open = |stage: &&BoardStage| {
            stage.shard == shard
                && stage.entries.iter().any(|entry| self.is_open(entry, used, Some(budget), &|_| false))
        };
        let left = self.stages[stage..].iter().filter(is_open).count().max(1);
        Some(used + budget.saturating_sub(used) / u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Contests that owe another block.
    #[must_use]
    pub fn open_works(&self, used: &BTreeMap<u32, Duration>) -> u32 {
        let open = self.stages.iter().flat_map(|stage| {
            let used = used.get(&stage.shard).copied().unwrap_or_default();
            stage.entries.iter().filter(move |entry| self.is_open(entry, used, self.budget, &|_| false))
        });
        u32::try_from(open.count()).unwrap_or(u32::MAX)
    }

    /// The points that lack runs, with the blocks that they lack: of a fixed number those that are left, else the first
    /// one of a point that has no run.
    #[must_use]
    pub fn missing(&self) -> Vec<(u32, Vec<u32>)> {
        let mut missing = Vec::new();
        for entry in self.stages.iter().flat_map(|stage| &stage.entries) {
            let next = entry.last_block + 1;
            let left = self.fixed.saturating_sub(entry.whole);
            if left > 0 {
                let blocks: Vec<u32> = (next..next + left).collect();
                missing.extend(entry.contest.members.iter().map(|point| (*point, blocks.clone())));
            } else {
                missing.extend(entry.unmeasured().map(|point| (point, vec![next])));
            }
        }
        missing.sort_unstable();
        missing
    }

    /// Runs that are left at most, of all contests that are open: of a fixed number of blocks; none where nobody knows.
    #[must_use]
    pub fn runs_left(&self) -> Option<Vec<u32>> {
        if self.fixed == 0 {
            return None;
        }
        let entries = self.stages.iter().flat_map(|stage| &stage.entries);
        let left = entries.flat_map(|entry| {
            let blocks = self.fixed.saturating_sub(entry.whole) as usize;
            entry.contest.members.iter().flat_map(move |point| std::iter::repeat_n(*point, blocks))
        });
        Some(left.collect())
    }
}

impl BoardStage {
    fn new(stage: Stage, fixed: u32) -> Self {
        let entries = stage.contests.into_iter().map(|contest| Entry::new(contest, fixed)).collect();
        Self { shard: stage.shard, entries, control: stage.control }
    }
}
