//! Which points are measured together: those that one construction serves, and those that one machine
//! measures.
//!
//! Points are dealt in *units*: the points of one construction, or, where nothing is built, single
//! points. The units are put in a random order and dealt round to the shards. A group is then a unit of
//! constructed points, or all that a shard got of the others; without layouts and shards that is one
//! group of everything, as it always was.

use std::collections::BTreeMap;

use measure::Workload;
use measure::workload::Rw;
use xxhash_rust::xxh3::xxh3_64;

use super::{Order, Protocol, Rules, permutation};
use crate::model::Point;
use crate::work::Work;

/// Points that are measured between two constructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// The machine that measures them, from 1.
    pub shard: u32,
    /// What is built for them.
    pub construction: Option<String>,
    /// The points in written order.
    pub members: Vec<u32>,
    /// The point repeated as a control.
    pub control: Option<u32>,
    /// What the orders of its blocks are drawn from.
    seed: u64,
}

impl Group {
    /// The points of one block, in the order in which they run.
    pub fn block(&self, pass: u32, order: Order) -> Vec<u32> {
        let count = u32::try_from(self.members.len()).expect("the space bounds its points");
        match order {
            Order::Given => self.members.clone(),
            Order::Random => {
                let shuffled = permutation(count, self.seed, pass);
                shuffled.into_iter().map(|i| self.members[i as usize]).collect()
            }
        }
    }
}

/// What is dealt to machines: constructions, or where nothing is built points (works, whose points compete in blocks).
pub(super) fn units(points: &[Point], protocol: Protocol) -> u32 {
    u32::try_from(in_units(points, protocol).len()).expect("the space bounds its points")
}

/// The groups of a plan in the order of time: shard after shard.
pub(super) fn groups(points: &[Point], rules: &Rules) -> Vec<Group> {
    let units = in_units(points, rules.protocol);
    let count = u32::try_from(units.len()).expect("the space bounds its points");
    let order = match rules.order {
        Order::Given => (0..count).collect(),
        // Blocks count from 1; 0 is the stream of the units.
        Order::Random => permutation(count, rules.seed, 0),
    };
    let mut groups = Vec::new();
    for shard in 1..=rules.shards {
        let dealt = order.iter().skip(shard as usize - 1).step_by(rules.shards as usize);
        let dealt: Vec<&(Option<String>, Vec<u32>)> = dealt.map(|unit| &units[*unit as usize]).collect();
        groups.extend(of_shard(&dealt, shard, points, rules));
    }
    groups
}

/// The points in units, in the order of each unit's first point.
fn in_units(points: &[Point], protocol: Protocol) -> Vec<(Option<String>, Vec<u32>)> {
    let mut units: Vec<(Option<String>, Vec<u32>)> = Vec::new();
    let mut known: BTreeMap<(Option<String>, Option<Work>), usize> = BTreeMap::new();
    for point in points {
        let construction = point.construction();
        if construction.is_none() && protocol.is_planned_ahead() {
            units.push((None, vec![point.id]));
            continue;
        }
        // A screened sweep is never shared, and its works take turns.
        let has_own_unit = construction.is_none() && !protocol.is_screened();
        let work = has_own_unit.then(|| Work::of(point));
        let unit = *known.entry((construction.clone(), work)).or_insert(units.len());
        match units.get_mut(unit) {
            Some((_, members)) => members.push(point.id),
            None => units.push((construction, vec![point.id])),
        }
    }
    units
}

fn of_shard(
    dealt: &[&(Option<String>, Vec<u32>)],
    shard: u32,
    points: &[Point],
    rules: &Rules,
) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut unbuilt: Vec<u32> = Vec::new();
    for (construction, members) in dealt {
        match construction {
            None => unbuilt.extend(members),
            Some(construction) => groups.push(Group {
                shard,
                construction: Some(construction.clone()),
                members: members.clone(),
                control: rules.control.and_then(|control| stand_in(points, control, members)),
                // By what is built and not by its number: a further construction changes no other's order.
                seed: rules.seed ^ xxh3_64(construction.as_bytes()),
            }),
        }
    }
    if !unbuilt.is_empty() {
        unbuilt.sort_unstable();
        let own = if rules.shards > 1 { xxh3_64(&shard.to_le_bytes()) } else { 0 };
        // The control itself, whoever was dealt it: drift is to be seen on every machine.
        let (control, seed) = (rules.control, rules.seed ^ own);
        let group = Group { shard, construction: None, members: unbuilt, control, seed };
        groups.insert(0, group);
    }
    groups
}

/// The member that stands for the control in its group: of those with its workload the one that shares most of
/// its settings; where none has that workload, what would be chosen if the group were alone.
fn stand_in(points: &[Point], control: u32, members: &[u32]) -> Option<u32> {
    if members.contains(&control) {
        return Some(control);
    }
    let wanted = &points[control as usize];
    let nameless = |w: &Workload| Workload { name: String::new(), ..w.clone() };
    let work = nameless(&wanted.workload);
    let shared = |point: &Point| {
        point.settings.iter().filter(|(name, value)| wanted.settings.get(*name) == Some(value)).count()
    };
    let of_group = || members.iter().map(|id| &points[*id as usize]);
    let alike = of_group().filter(|point| nameless(&point.workload) == work);
    // The last of equals is what max_by_key keeps; the first is wanted.
    let nearest = alike.rev().max_by_key(|point| shared(point)).map(|point| point.id);
    nearest.or_else(|| default_control(of_group()))
}

/// The first 4 KiB random read; failing that the first random read, the first reading point, the
/// first point. Reads come before writes because a control must not wear out what it watches.
pub fn default_control<'p>(points: impl Iterator<Item = &'p Point> + Clone) -> Option<u32> {
    let first = |fits: &dyn Fn(&Workload) -> bool| points.clone().find(|p| fits(&p.workload));
    first(&|w| w.rw == Rw::RandRead && w.bs == 4096 && w.bssplit.is_empty())
        .or_else(|| first(&|w| w.rw == Rw::RandRead))
        .or_else(|| first(&|w| !w.rw.modifies()))
        .or_else(|| first(&|_| true))
        .map(|point| point.id)
}
