//! Blocks until a decision: which points compete, and in which order a block runs.
//!
//! The points of one *work* on one construction are a [`Contest`]: alternatives of which one is to be recommended. A
//! block is one run of each alternative that can still win, back to back, in random order, so that what the machine
//! does to all of them within a second or two is not taken for a difference between them. Contests on the same
//! construction take turns; a construction is built once, and its contests are finished before the next is built, so
//! that points on different constructions share no block (a split-plot design).
//!
//! 1. The order of a block depends on the seed, the work, the construction and the block's number. Alternatives that
//!    have lost are left out of it, and the others keep their order.
//! 2. A block is written into the plan as a whole before its first run. Positions of each shard come from a range of
//!    its own, so that shards can be put together.
//! 3. A block is *whole* where each of its runs is stored or failed. One that a kill or an interruption cut short is
//!    never continued and is not analysed; the next block has the next number.

use std::collections::{BTreeMap, BTreeSet};

use measure::decide::Rules as RaceRules;
use xxhash_rust::xxh3::xxh3_64;

use super::{Margin, PlannedRun, Protocol, Rules, groups, permutation};
use crate::contest::Contest;
use crate::model::{Point, SIDE};

/// The members of a block in the order in which they would run if all of them were in it.
#[must_use]
pub fn order(contest: &Contest, seed: u64, block: u32) -> Vec<u32> {
    let count = u32::try_from(contest.members.len()).expect("the space bounds its points");
    let mut written = contest.members.clone();
    written.sort_unstable();
    let name = format!("{} {}", contest.construction.as_deref().unwrap_or_default(), contest.work.label());
    let shuffled = permutation(count, seed ^ xxh3_64(name.as_bytes()), block);
    shuffled.into_iter().map(|i| written[i as usize]).collect()
}

/// Contests that take turns: all on one construction, or all that need none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The machine that measures them, from 1.
    pub shard: u32,
    /// The contests, in the order of their first points.
    pub contests: Vec<Contest>,
    /// The point that is repeated as a control.
    pub control: Option<u32>,
}

/// The stages of a sweep in the order of time.
#[must_use]
pub fn stages(points: &[Point], rules: &Rules) -> Vec<Stage> {
    let stage = |group: groups::Group| Stage {
        shard: group.shard,
        contests: Contest::all(group.members.iter().map(|id| &points[*id as usize])),
        control: group.control,
    };
    groups::groups(points, rules).into_iter().map(stage).collect()
}

/// The first position of a shard's own range.
#[must_use]
pub fn first_position(shard: u32, shards: u32) -> u32 {
    (shard - 1) * (u32::MAX / shards.max(1))
}

/// The runs of blocks that were cut short: they are in the plan with a run that was neither stored nor failed.
/// `settled` are the positions of those that were.
#[must_use]
pub fn cut(points: &[Point], planned: &[PlannedRun], settled: &BTreeSet<u32>) -> BTreeSet<PlannedRun> {
    let mut of: BTreeMap<u32, usize> = BTreeMap::new();
    for (number, contest) in Contest::all(points).iter().enumerate() {
        of.extend(contest.members.iter().map(|point| (*point, number)));
    }
    let key = |run: &PlannedRun| (of[&run.point], run.pass);
    let open: BTreeSet<(usize, u32)> =
        planned.iter().filter(|run| !settled.contains(&run.position)).map(key).collect();
    planned.iter().filter(|run| open.contains(&key(run))).copied().collect()
}

/// How a contest is decided in a sweep over `points`: with `passes` blocks, or where that is 0 by as many as it takes. A
/// recommendation needs no more than a sufficient setting; what compares sides, constructions or screened points does.
#[must_use]
pub fn race_rules(
    contest: &Contest,
    points: &[Point],
    protocol: Protocol,
    passes: u32,
    equivalence: Margin,
) -> RaceRules {
    let is_in_blocks = !protocol.is_planned_ahead();
    let is_recommended = is_in_blocks && !protocol.is_screened() && contest.construction.is_none();
    RaceRules {
        stops: is_in_blocks && passes == 0,
        ends_at_sufficient: is_recommended && points.iter().all(|point| !point.settings.contains_key(SIDE)),
        equivalence: equivalence.part(),
        ..RaceRules::default()
    }
}
