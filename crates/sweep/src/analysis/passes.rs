//! Mean by pass, relative to the point's own mean: what Figs. 4 and 5 of the papers show.
//!
//! A point's bandwidth in each pass is divided by the mean of its kept runs, so that fast and slow points
//! weigh the same; a figure of 0.9 for pass 1 says that the first pass ran 10 % below what followed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::statistics;
use super::{Direction, Fate, Interval, JudgedRun, PointSummary, SweepMeta};

/// How the passes of all points of one direction compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassTrend {
    /// The direction.
    pub direction: Direction,
    /// Pass by pass.
    pub passes: Vec<PassMean>,
}

/// One pass over all points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassMean {
    /// The pass, from 1.
    pub pass: u32,
    /// Mean over the points of bandwidth divided by the point's mean.
    pub relative: f64,
    /// Its interval over the points.
    pub interval: Option<Interval>,
    /// Points with a run in this pass that is not void.
    pub points: u64,
    /// Whether this pass is set aside.
    pub set_aside: bool,
}

/// The trend of each direction that occurs.
#[must_use]
pub fn trends(meta: &SweepMeta, points: &[PointSummary], runs: &[JudgedRun]) -> Vec<PassTrend> {
    let means: BTreeMap<u32, (Direction, f64)> = points
        .iter()
        .filter_map(|p| Some((p.point, (p.class().direction, p.bandwidth?.mean))))
        .filter(|(_, (_, mean))| *mean > 0.0)
        .collect();
    let mut relative: BTreeMap<(Direction, u32), Vec<(u32, f64)>> = BTreeMap::new();
    for judged in runs.iter().filter(|run| run.fate != Fate::Void) {
        if let Some((direction, mean)) = means.get(&judged.run.point) {
            let share = judged.run.bandwidth_bytes_per_s / mean;
            relative.entry((*direction, judged.run.pass)).or_default().push((judged.run.point, share));
        }
    }
    let mut trends: BTreeMap<Direction, Vec<PassMean>> = BTreeMap::new();
    for ((direction, pass), mut shares) in relative {
        // Summed in the order of the points, so that the last digit does not depend on run order.
        shares.sort_unstable_by_key(|(point, _)| *point);
        let shares: Vec<f64> = shares.into_iter().map(|(_, share)| share).collect();
        let Some(estimate) = statistics::estimate(&shares) else { continue };
        trends.entry(direction).or_default().push(PassMean {
            pass,
            relative: estimate.mean,
            interval: estimate.interval,
            points: shares.len() as u64,
            set_aside: meta.discard_first && pass == 1,
        });
    }
    trends.into_iter().map(|(direction, passes)| PassTrend { direction, passes }).collect()
}
