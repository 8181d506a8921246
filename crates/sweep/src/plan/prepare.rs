//! What is done to a target before its first run, and over which part of it.
//!
//! The figures of a drive depend on what was written to it before (SNIA's Performance Test Specification), so a
//! space can ask for a state: `precondition` and `purge` under `[sweep]`. It is brought about once for each
//! construction, or for each target where nothing is built, with all that the points there use, so that no
//! point meets a part of another age than the next one does.

use std::collections::BTreeMap;

use measure::Workload;
use measure::precondition::Precondition;
use serde::{Deserialize, Serialize};

use super::Plan;
use crate::model::Point;

/// What a space asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Prepare {
    /// How far to go.
    pub how: Precondition,
    /// Whether the medium is made to forget first.
    pub purge: bool,
}

impl Prepare {
    /// Whether targets are measured as they stand.
    #[must_use]
    // By reference, as serde asks.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A target, or a construction, that is prepared as one.
#[derive(Debug, Clone, PartialEq)]
pub struct Preparation {
    /// The construction, or the device spec of the target.
    pub what: String,
    /// What is done to it: without a writing point, no more than a fill.
    pub prepare: Prepare,
    /// The work of its first writing point, else of its first, over all that its points use.
    pub workload: Workload,
    /// Whether a steady state was asked for and there is no writing point to reach it by.
    pub lacks_writes: bool,
}

impl Preparation {
    /// For points that share one construction or target; none where there is nothing to do, or no point.
    #[must_use]
    pub fn of(prepare: Prepare, points: &[&Point]) -> Option<Self> {
        let first = points.first().filter(|_| !prepare.is_nothing())?;
        let writer = points.iter().find(|point| point.workload.rw.writes());
        let lacks_writes = prepare.how == Precondition::Steady && writer.is_none();
        let how = if lacks_writes { Precondition::Fill } else { prepare.how };
        let workload = Workload {
            offset: 0,
            offset_increment: None,
            size: bytes_used(points.iter().copied()),
            ..writer.unwrap_or(first).workload.clone()
        };
        Some(Self { what: unit(first), prepare: Prepare { how, ..prepare }, workload, lacks_writes })
    }
}

/// What a point shares its preparation with others by.
fn unit(point: &Point) -> String {
    point.construction().unwrap_or_else(|| point.target.clone())
}

/// Bytes from the start of their target that these points use together; none where one of them uses all of it.
#[must_use]
pub fn bytes_used<'p>(points: impl IntoIterator<Item = &'p Point>) -> Option<u64> {
    let used = |point: &Point| {
        let w = &point.workload;
        let steps = w.offset_increment.unwrap_or(0).saturating_mul(u64::from(w.numjobs.saturating_sub(1)));
        w.size.map(|size| w.offset.saturating_add(size).saturating_add(steps))
    };
    let sizes: Option<Vec<u64>> = points.into_iter().map(used).collect();
    sizes?.into_iter().max()
}

/// Points by what is prepared as one, in the order of their ids.
#[must_use]
pub fn units<'p>(points: impl IntoIterator<Item = &'p Point>) -> BTreeMap<String, Vec<&'p Point>> {
    let mut units: BTreeMap<String, Vec<&Point>> = BTreeMap::new();
    for point in points {
        units.entry(unit(point)).or_default().push(point);
    }
    units
}

impl Plan {
    /// What is prepared before the runs of this plan; empty where the space asks for nothing.
    #[must_use]
    pub fn preparations(&self) -> Vec<Preparation> {
        let points = self.members.iter().map(|id| &self.points[*id as usize]);
        units(points).values().filter_map(|points| Preparation::of(self.rules.prepare, points)).collect()
    }
}
