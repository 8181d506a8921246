//! Bandwidth and latency over queue depth: Figs. 13 and 14 of the papers.
//!
//! A curve holds everything but `iodepth` fixed. Where a sweep has more curves of a class than a
//! figure can hold, those of the same direction and request size are averaged over the other
//! dimensions, as the papers average theirs; the curve says over how many points.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::Point;

use super::{Class, Estimate, PointSummary};

/// Curves of one class that a figure still shows legibly.
const LEGIBLE: usize = 6;

/// Bandwidth over depth, everything else fixed or averaged over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DepthCurve {
    /// The class.
    pub class: Class,
    /// What it holds fixed, for people: `randread 4k`.
    pub label: String,
    /// By ascending depth; at least two.
    pub steps: Vec<DepthStep>,
}

/// One depth of a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DepthStep {
    /// Requests in flight of each job.
    pub iodepth: u32,
    /// Bytes per second; without interval where it is a mean over several points.
    pub bandwidth: Estimate,
    /// Requests per second.
    pub iops: f64,
    /// 99th percentile, nanoseconds.
    pub latency_ns_p99: f64,
    /// The points averaged.
    pub points: Vec<u32>,
}

/// What stays fixed along a curve: the workload's word and size, the target, and the settings that do not
/// speak of depth.
pub(crate) type Fixed = (Class, String, String, u32, String, BTreeMap<String, String>);

/// Everything about a point except its depth.
pub(crate) fn fixed(point: &PointSummary) -> Fixed {
    let mut settings = point.settings.clone();
    for depth in ["iodepth", "test_type", "rw", "bs", "numjobs", "target"] {
        settings.remove(depth);
    }
    let (rw, request) = (point.rw.clone(), point.request.clone());
    (point.class(), rw, request, point.numjobs, point.target.clone(), settings)
}

/// The curves of a sweep; none where depth does not vary.
#[must_use]
pub fn curves(points: &[Point], summaries: &[PointSummary]) -> Vec<DepthCurve> {
    debug_assert_eq!(points.len(), summaries.len());
    let mut groups: BTreeMap<Fixed, Vec<&PointSummary>> = BTreeMap::new();
    for summary in summaries.iter().filter(|s| s.bandwidth.is_some()) {
        groups.entry(fixed(summary)).or_default().push(summary);
    }
    groups.retain(|_, members| depths(members) > 1);
    let mut in_class: BTreeMap<Class, usize> = BTreeMap::new();
    for key in groups.keys() {
        *in_class.entry(key.0).or_default() += 1;
    }
    let mut curves: BTreeMap<(Class, String), Vec<&PointSummary>> = BTreeMap::new();
    for (key, members) in groups {
        let full = in_class[&key.0] <= LEGIBLE;
        curves.entry((key.0, curve_label(&key, full))).or_default().extend(members);
    }
    curves
        .into_iter()
        .map(|((class, label), members)| DepthCurve { class, label, steps: steps(&members) })
        .collect()
}

fn depths(members: &[&PointSummary]) -> usize {
    let mut depths: Vec<u32> = members.iter().map(|m| m.iodepth).collect();
    depths.sort_unstable();
    depths.dedup();
    depths.len()
}

fn curve_label(key: &Fixed, full: bool) -> String {
    let (_, rw, request, jobs, target, settings) = key;
    let mut label = format!("{rw} {request}");
    if full {
        if *jobs > 1 {
            label.push_str(&format!(", {jobs} jobs"));
        }
        if target != crate::model::SCRATCH {
            label.push_str(&format!(" · {target}"));
        }
        for (name, value) in settings {
            label.push_str(&format!(" · {name}={value}"));
        }
    }
    label
}

/// The steps of one curve, each the mean of its points.
fn steps(members: &[&PointSummary]) -> Vec<DepthStep> {
    let mut by_depth: BTreeMap<u32, Vec<&PointSummary>> = BTreeMap::new();
    for member in members {
        by_depth.entry(member.iodepth).or_default().push(member);
    }
    let mut steps = Vec::with_capacity(by_depth.len());
    for (iodepth, mut at) in by_depth {
        at.sort_unstable_by_key(|p| p.point);
        let mean = |figure: &dyn Fn(&PointSummary) -> Option<f64>| {
            at.iter().filter_map(|p| figure(p)).sum::<f64>() / at.len() as f64
        };
        let bandwidth = match at.as_slice() {
            [only] => only.bandwidth,
            _ => Some(Estimate { mean: mean(&|p| Some(p.bandwidth?.mean)), interval: None }),
        };
        let Some(bandwidth) = bandwidth else { continue };
        steps.push(DepthStep {
            iodepth,
            bandwidth,
            iops: mean(&|p| Some(p.iops?.mean)),
            latency_ns_p99: mean(&|p| p.latency_ns_p99),
            points: at.iter().map(|p| p.point).collect(),
        });
    }
    steps
}
