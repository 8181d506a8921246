//! Where more depth stops paying.
//!
//! Along the depths that differ from the recommended setting in nothing else, the knee is the smallest
//! depth that reaches [`NEAR_BEST`] of the best by the estimates. Depth beyond it buys little
//! bandwidth and costs latency in proportion (Little's law), so both are given. It describes the curve; which depth to
//! use is decided by the blocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analysis::depth::fixed;
use crate::analysis::{ContestSummary, PointSummary};

/// Part of the best bandwidth that counts as reaching it.
pub const NEAR_BEST: f64 = 0.95;

/// Where more depth stops paying.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// The smallest depth near the best.
    pub at: DepthPoint,
    /// The depth with the most bandwidth.
    pub best: DepthPoint,
    /// The smallest depth measured.
    pub lowest: DepthPoint,
    /// Bandwidth at the knee divided by the best.
    pub of_best: f64,
}

/// One depth on the way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DepthPoint {
    /// The point.
    pub point: u32,
    /// Requests in flight of each job.
    pub iodepth: u32,
    /// Mean bandwidth, bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// 99th percentile of latency, nanoseconds.
    pub latency_ns_p99: f64,
}

impl DepthPoint {
    fn of(point: &PointSummary) -> Option<Self> {
        Some(Self {
            point: point.point,
            iodepth: point.iodepth,
            bandwidth_bytes_per_s: point.bandwidth?.mean,
            latency_ns_p99: point.latency_ns_p99?,
        })
    }
}

/// The knee of the depths around `recommended`; none where there are fewer than two.
pub(super) fn knee(
    recommended: &PointSummary,
    candidates: &[&PointSummary],
    contest: Option<&ContestSummary>,
) -> Option<Knee> {
    let along = fixed(recommended);
    let mut ladder: Vec<&PointSummary> =
        candidates.iter().copied().filter(|p| fixed(p) == along && p.bandwidth.is_some()).collect();
    ladder.sort_by_key(|p| (p.iodepth, p.point));
    if ladder.first()?.iodepth == ladder.last()?.iodepth {
        return None;
    }
    // Settings that lost early ran in other blocks than the rest, so they are compared within those.
    let of_best = |p: &PointSummary| contest?.bandwidth.settings[contest?.setting(p.point)?].of_best;
    let is_compared = ladder.iter().all(|p| of_best(p).is_some());
    let mean = |p: &PointSummary| match of_best(p).filter(|_| is_compared) {
        Some(bounds) => bounds.ratio,
        None => p.bandwidth.map_or(0.0, |b| b.mean),
    };
    let best = ladder.iter().copied().reduce(|a, b| if mean(b) > mean(a) { b } else { a })?;
    let near = |p: &&PointSummary| mean(p) >= NEAR_BEST * mean(best);
    let at = ladder.iter().copied().find(near)?;
    Some(Knee {
        at: DepthPoint::of(at)?,
        best: DepthPoint::of(best)?,
        lowest: DepthPoint::of(ladder[0])?,
        of_best: mean(at) / mean(best),
    })
}
