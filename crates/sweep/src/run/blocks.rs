//! A session of blocks: which block runs next, and when the session ends.
//!
//! Within a stage the contest whose last block began longest ago has the next block, and not before
//! [`crate::plan::Rules::spacing`] after that: the machine's slow moments last for seconds, and blocks within one of
//! them say the same. A contest is finished when it is decided, has its number of blocks, or the time is up; the
//! stage with its last contest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Advance, Ended, Live, RunError, Runner};
use crate::board::{Board, BoardStage, Entry};
use crate::plan::blocks::first_position;
use crate::plan::{Plan, PlannedRun, Rules, Step, StepKind};

/// The state of a session of blocks.
struct Turns {
    /// Of each shard: the time used by earlier sessions, and when this session began on it.
    used_before: BTreeMap<u32, Duration>,
    began: BTreeMap<u32, Duration>,
    /// The next free position of each shard.
    next: BTreeMap<u32, u32>,
    /// Runs since the last control of the stage; none before its first.
    since_control: Option<u32>,
}

impl Turns {
    fn new(plan: &Plan, used_before: BTreeMap<u32, Duration>) -> Self {
        let mut next = BTreeMap::new();
        for step in plan.steps() {
            let position = step.planned.position;
            let range = u32::MAX / plan.rules.shards.max(1);
            next.insert(position / range + 1, position + 1);
        }
        Self { used_before, began: BTreeMap::new(), next, since_control: None }
    }

    /// Time that a shard has used, all sessions together.
    fn used(&mut self, shard: u32, now: Duration) -> Duration {
        let began = *self.began.entry(shard).or_insert(now);
        self.used_before.get(&shard).copied().unwrap_or_default() + (now - began)
    }

    fn position(&mut self, shard: u32, rules: &Rules) -> u32 {
        let next = self.next.entry(shard).or_insert_with(|| first_position(shard, rules.shards));
        let position = *next;
        *next += 1;
        position
    }

    /// A block of these points, with the controls that are due.
    fn steps(&mut self, stage: &BoardStage, rules: &Rules, number: u32, points: &[u32]) -> Vec<Step> {
        let is_due = match self.since_control {
            None => true,
            Some(since) => rules.control_every > 0 && since >= rules.control_every,
        };
        let mut steps = Vec::with_capacity(points.len() + 1);
        let control = stage.control.filter(|_| is_due).map(|point| (point, StepKind::Control));
        for (point, kind) in control.into_iter().chain(points.iter().map(|point| (*point, StepKind::Run))) {
            let planned = PlannedRun { position: self.position(stage.shard, rules), point, pass: number };
            steps.push(Step { planned, kind });
        }
        let since = if is_due { 0 } else { self.since_control.unwrap_or_default() };
        self.since_control = Some(since.saturating_add(u32::try_from(points.len()).unwrap_or(u32::MAX)));
        steps
    }
}

/// What a stage does next.
enum Next {
    /// A block of this contest, after a pause.
    Block(usize, Duration),
    Finished,
}

impl Runner<'_> {
    /// Runs blocks until nothing is owed.
    pub(super) fn blocks(
        &mut self,
        plan: &Plan,
        mut board: Board,
        live: &mut Live,
    ) -> Result<Option<Ended>, RunError> {
        let mut turns = Turns::new(plan, self.store.time_used()?);
        let mut passed = BTreeSet::new();
        let mut turn = 0;
        while let Some(stage) = board.stage(turn, &passed) {
            turn += 1;
            passed.insert(stage);
            let given_up = |point: u32| live.tally.given_up(point);
            let used = turns.used(board.stages[stage].shard, self.time());
            let is_open = |entry: &Entry| board.is_open(stage, entry, used, board.budget(), &given_up);
            if !board.stages[stage].entries.iter().any(is_open) {
                continue;
            }
            turns.since_control = None;
            let shard = board.stages[stage].shard;
            let used = turns.used(shard, self.time());
            let end = board.end_of(stage, used);
            let ended = self.stage(plan, &mut board, stage, end, &mut turns, live);
            let used = turns.used(shard, self.time());
            // The session's error, if there is one, is the one to report.
            let noted = self.store.set_time_used(shard, used);
            if let Some(ended) = ended? {
                return Ok(Some(ended));
            }
            noted?;
        }
        Ok(None)
    }

    /// Time of the session without what opening targets takes: no budget is to be used by building an array.
    fn time(&self) -> Duration {
        self.timer.now() - self.opening
    }

    fn stage(
        &mut self,
        plan: &Plan,
        board: &mut Board,
        stage: usize,
        end: Option<Duration>,
        turns: &mut Turns,
        live: &mut Live,
    ) -> Result<Option<Ended>, RunError> {
        let shard = board.stages[stage].shard;
        let mut began: Vec<Option<Duration>> = vec![None; board.stages[stage].entries.len()];
        loop {
            let now = self.time();
            let used = turns.used(shard, now);
            live.spent = board.budget().map(|budget| (used.min(budget), budget));
            if let Some(end) = end {
                live.pace.set_time_left(end.saturating_sub(used));
            }
            let contest = match next(board, stage, &began, plan, used, now, end, live) {
                Next::Finished => return Ok(None),
                Next::Block(contest, pause) if pause.is_zero() => contest,
                Next::Block(_, pause) => {
                    self.timer.wait(pause, self.stop);
                    if self.stop.load(std::sync::atomic::Ordering::Relaxed) {
                        return Ok(Some(Ended::Interrupted));
                    }
                    continue;
                }
            };
            began[contest] = Some(now);
            let entry = &board.stages[stage].entries[contest];
            let (number, points) = (entry.last_block + 1, points(entry, plan, live));
            let steps = turns.steps(&board.stages[stage], &plan.rules, number, &points);
            self.store.insert_block(&steps, shard, used)?;
            self.ahead(plan, &steps, live.seed);
            let mut rows = Vec::with_capacity(points.len());
            for step in &steps {
                match self.advance(step, &plan.points[step.planned.point as usize], live)? {
                    Advance::Ended(ended) => return Ok(Some(ended)),
                    Advance::Stored(row) if step.kind == StepKind::Run => rows.push(row),
                    Advance::Stored(_) | Advance::Passed => {}
                }
            }
            board.stages[stage].entries[contest].block(number, &rows);
        }
    }
}

/// The points of the next block, in the order in which they run.
fn points(entry: &Entry, plan: &Plan, live: &Live) -> Vec<u32> {
    entry.ordered(plan.rules.seed, &|point| live.tally.given_up(point))
}

#[expect(clippy::too_many_arguments, reason = "each is a different thing that the choice depends on")]
fn next(
    board: &Board,
    stage: usize,
    began: &[Option<Duration>],
    plan: &Plan,
    used: Duration,
    now: Duration,
    end: Option<Duration>,
    live: &Live,
) -> Next {
    let given_up = |point: u32| live.tally.given_up(point);
    let entries = &board.stages[stage].entries;
    let is_open = |(_, entry): &(usize, &Entry)| {
        // A block of one alternative tells nothing, unless it is the only one, or has no figure yet.
        let points = points(entry, plan, live);
        let fewest =
            if entry.contest.members.len() == 1 || entry.unmeasured().any(|p| !given_up(p)) { 1 } else { 2 };
        points.len() >= fewest && board.is_open(stage, entry, used, end, &given_up)
    };
    let open = entries.iter().enumerate().filter(is_open);
    let Some((contest, entry)) = open.min_by_key(|(contest, _)| began[*contest]) else {
        return Next::Finished;
    };
    let spacing = if entry.contest.members.len() > 1 { plan.rules.spacing } else { Duration::ZERO };
    let ready = began[contest].map_or(Duration::ZERO, |began| began + spacing);
    // A pause does not outlast the budget.
    let left = end.map(|end| end.saturating_sub(used)).filter(|left| !left.is_zero());
    Next::Block(contest, ready.saturating_sub(now).min(left.unwrap_or(Duration::MAX)))
}
