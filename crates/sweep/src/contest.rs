//! Alternatives that compete for one recommendation: the points of one work on one construction.

use std::collections::BTreeMap;

use measure::WarningCode;

use crate::model::{Point, RunRow};
use crate::work::Work;

/// Alternatives that compete for one recommendation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contest {
    /// What is built for them; none where nothing is.
    pub construction: Option<String>,
    /// What each of them does.
    pub work: Work,
    /// The points, from the cheapest setting to the dearest ([`Point::cost`]).
    pub members: Vec<u32>,
}

impl Contest {
    /// The contests of some points, in the order of their first points.
    #[must_use]
    pub fn all<'p>(points: impl IntoIterator<Item = &'p Point>) -> Vec<Self> {
        let mut found: BTreeMap<(Option<String>, Work), Vec<&Point>> = BTreeMap::new();
        for point in points {
            found.entry((point.construction(), Work::of(point))).or_default().push(point);
        }
        let contest = |((construction, work), mut points): (_, Vec<&Point>)| {
            points.sort_by_key(|point| point.cost());
            Self { construction, work, members: points.iter().map(|point| point.id).collect() }
        };
        let mut contests: Vec<Self> = found.into_iter().map(contest).collect();
        contests.sort_by_key(|contest| contest.members.iter().min().copied());
        contests
    }

    /// The runs of one block that count, in their order, each with its setting's number: those that are not void.
    /// What memory answered does not count beside what the flash answered.
    pub fn counting<'r>(&self, block: impl IntoIterator<Item = &'r RunRow>) -> Vec<(usize, &'r RunRow)> {
        let of = |run: &RunRow| self.members.iter().position(|id| *id == run.point);
        let runs = block.into_iter().filter(|run| !run.is_void());
        let mut runs: Vec<(usize, &RunRow)> = runs.filter_map(|run| Some((of(run)?, run))).collect();
        let is_cached = |run: &RunRow| run.warnings.contains(&WarningCode::Cached);
        if runs.iter().any(|(_, run)| !is_cached(run)) {
            runs.retain(|(_, run)| !is_cached(run));
        }
        runs
    }
}
