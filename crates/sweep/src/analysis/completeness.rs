//! Which planned runs are missing. Nothing is concluded about work whose points are not all there:
//! the missing one might have been the best.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SweepData;

/// Planned against done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Completeness {
    /// Runs planned: points times passes; in a sweep of blocks those that were made and those that are owed.
    pub planned: u64,
    /// Runs done, of those planned.
    pub done: u64,
    /// Points with runs missing, in order.
    pub missing: Vec<MissingRuns>,
}

/// The passes that one point lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingRuns {
    /// [`crate::model::Point::id`].
    pub point: u32,
    /// The passes that are not there.
    pub passes: Vec<u32>,
}

impl Completeness {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether any run of `point` is missing.
    #[must_use]
    pub fn lacks(&self, point: u32) -> bool {
        self.missing.binary_search_by_key(&point, |missing| missing.point).is_ok()
    }
}

/// Compares what is there with what was planned.
#[must_use]
pub fn check(data: &SweepData) -> Completeness {
    let SweepData { meta, points, runs, .. } = data;
    if !meta.protocol.is_planned_ahead() {
        let (done, missing) = (runs.len() as u64, data.missing.clone());
        let owed: usize = missing.iter().map(|missing| missing.passes.len()).sum();
        return Completeness { planned: done + owed as u64, done, missing };
    }
    let mut done: BTreeMap<u32, Vec<u32>> = points.iter().map(|p| (p.id, Vec::new())).collect();
    for run in runs.iter().filter(|run| (1..=meta.passes).contains(&run.pass)) {
        if let Some(passes) = done.get_mut(&run.point) {
            passes.push(run.pass);
        }
    }
    let mut result =
        Completeness { planned: points.len() as u64 * u64::from(meta.passes), ..Completeness::default() };
    for (point, mut passes) in done {
        passes.sort_unstable();
        passes.dedup();
        result.done += passes.len() as u64;
        let missing: Vec<u32> =
            (1..=meta.passes).filter(|pass| passes.binary_search(pass).is_err()).collect();
        if !missing.is_empty() {
            result.missing.push(MissingRuns { point, passes: missing });
        }
    }
    result
}
