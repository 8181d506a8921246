//! What changed between two sweeps: `flashwright.diff/1`.
//!
//! Points are matched by what they run: two points are the same where their workloads agree in all
//! that makes a configuration, whatever the dimensions were called and whichever of them varied. Not
//! part of that are the *conditions* (length, region, seed) and the target, for comparing two drives
//! is what this is for; they count only where a sweep varies them. Conditions that differ are listed.
//!
//! Each matched point is compared by its passes as analysis would keep them: void runs, first passes
//! (where the sweep sets them aside) and what Chauvenet rejects take no part. All points together
//! make one family, so the verdicts are corrected for their number (Holm); otherwise one point in
//! twenty of two equal sweeps would seem to differ. An incomplete sweep is compared as far as it goes,
//! and says so.

mod conditions;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use measure::options::{OPTIONS, OptionClass};
use measure::stats::cleaning::{CleaningRules, clean};
use measure::stats::compare::{CompareRules, Comparison, Direction, Verdict, compare_family};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use conditions::Change;

use crate::model::{Point, RunRow};
use crate::store::{Completeness, Meta, Store, StoreError};

/// The name of the format.
pub const SCHEMA: &str = "flashwright.diff/1";

/// The names of the options of a workload that are circumstances of its measurement.
fn conditions() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().filter(|option| option.class == OptionClass::Condition).map(|option| option.name)
}

/// What changed from sweep `a` to sweep `b`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// `flashwright.diff/1`.
    pub schema: String,
    /// The baseline.
    pub a: Side,
    /// What is compared with it.
    pub b: Side,
    /// What differs besides the figures: machine, drive, settings, how it was measured.
    pub conditions: Vec<Change>,
    /// The points of both, in the order of `a`.
    pub points: Vec<PointDiff>,
    /// Points of `a` that `b` lacks, in words.
    pub only_in_a: Vec<String>,
    /// Points of `b` that `a` lacks, in words.
    pub only_in_b: Vec<String>,
    /// Points whose bandwidth is better in `b`.
    pub better: u32,
    /// Points whose bandwidth is worse in `b`.
    pub worse: u32,
    /// Points without a difference beyond noise.
    pub no_difference: u32,
    /// Points with too few passes on a side.
    pub not_enough_data: u32,
}

/// One of the two sweeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// The results file.
    pub path: String,
    /// Name of the sweep.
    pub name: String,
    /// When it began, nanoseconds since 1970-01-01 UTC.
    pub created_unix_ns: u64,
    /// Where.
    pub hostname: String,
    /// Runs in the plan.
    pub planned: u32,
    /// Runs stored.
    pub done: u32,
    /// Stored runs that are void.
    pub void: u32,
}

/// One point in both sweeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointDiff {
    /// Its id in `a`.
    pub point_a: u32,
    /// Its id in `b`.
    pub point_b: u32,
    /// In words.
    pub label: String,
    /// Its settings in `a`.
    pub settings: BTreeMap<String, String>,
    /// Bandwidth in bytes per second, `b` by `a`.
    pub bandwidth: Comparison,
    /// 99th percentile of latency in nanoseconds, `b` by `a`; below 1 is better.
    pub latency_p99: Comparison,
    /// How this point was measured differently.
    pub conditions: Vec<Change>,
}

/// Compares two sweeps, `a` being the baseline.
///
/// # Errors
/// [`StoreError`] where one of them does not read.
pub fn diff(a: &Store, b: &Store) -> Result<Diff, StoreError> {
    let (a, b) = (Sweep::read(a)?, Sweep::read(b)?);
    let matching = Matching::of(&a.points, &b.points);
    let comparisons = compare_all(&a, &b, &matching.pairs);
    let points: Vec<PointDiff> = matching
        .pairs
        .iter()
        .zip(comparisons)
        .map(|((of_a, of_b), (bandwidth, latency_p99))| PointDiff {
            point_a: of_a.id,
            point_b: of_b.id,
            label: of_a.label(),
            settings: of_a.settings.clone(),
            bandwidth,
            latency_p99,
            conditions: conditions::of_points(of_a, of_b),
        })
        .collect();
    let count = |verdict| points.iter().filter(|p| p.bandwidth.verdict == verdict).count() as u32;
    Ok(Diff {
        schema: SCHEMA.into(),
        conditions: conditions::of_sweeps(&a, &b)?,
        better: count(Verdict::Better),
        worse: count(Verdict::Worse),
        no_difference: count(Verdict::NoDifference),
        not_enough_data: count(Verdict::NotEnoughData),
        points,
        only_in_a: matching.only_in_a.iter().map(|p| p.label()).collect(),
        only_in_b: matching.only_in_b.iter().map(|p| p.label()).collect(),
        a: a.side(),
        b: b.side(),
    })
}

/// All of a store that a comparison needs.
struct Sweep<'s> {
    store: &'s Store,
    meta: Meta,
    points: Vec<Point>,
    /// By point, in the order of passes.
    runs: BTreeMap<u32, Vec<RunRow>>,
    completeness: Completeness,
}

impl<'s> Sweep<'s> {
    fn read(store: &'s Store) -> Result<Self, StoreError> {
        let mut runs: BTreeMap<u32, Vec<RunRow>> = BTreeMap::new();
        for run in store.runs()? {
            runs.entry(run.point).or_default().push(run);
        }
        for passes in runs.values_mut() {
            passes.sort_by_key(|run| run.pass);
        }
        let (meta, points) = (store.meta()?, store.points()?);
        Ok(Self { store, meta, points, runs, completeness: store.completeness()? })
    }

    fn side(&self) -> Side {
        Side {
            path: self.store.path().display().to_string(),
            name: self.meta.name.clone(),
            created_unix_ns: self.meta.created_unix_ns,
            hostname: self.meta.machine.hostname.clone(),
            planned: self.completeness.planned,
            done: self.completeness.done,
            void: self.completeness.void,
        }
    }

    /// Bandwidths and 99th percentiles of the passes that count.
    fn kept(&self, point: &Point) -> (Vec<f64>, Vec<f64>) {
        // By number, not by place: where pass 1 is void or missing, pass 2 is not the first.
        let first_counts = !self.meta.discard_first;
        let runs = self.runs.get(&point.id).map(Vec::as_slice).unwrap_or_default();
        let runs: Vec<&RunRow> =
            runs.iter().filter(|run| !run.is_void() && (first_counts || run.pass > 1)).collect();
        let bandwidths: Vec<f64> = runs.iter().map(|run| run.bandwidth_bytes_per_s).collect();
        let rules = CleaningRules { discard_first: 0, ..CleaningRules::default() };
        let cleaned = clean(&bandwidths, &rules);
        let kept = runs.iter().zip(&cleaned.passes).filter(|(_, verdict)| verdict.set_aside.is_none());
        kept.map(|(run, _)| (run.bandwidth_bytes_per_s, run.latency_ns_p99 as f64)).unzip()
    }
}

/// Bandwidth and latency of each pair, each a family of its own.
fn compare_all(a: &Sweep<'_>, b: &Sweep<'_>, pairs: &[(&Point, &Point)]) -> Vec<(Comparison, Comparison)> {
    let kept: Vec<_> = pairs.iter().map(|(of_a, of_b)| (a.kept(of_a), b.kept(of_b))).collect();
    let bandwidths: Vec<(&[f64], &[f64])> =
        kept.iter().map(|(a, b)| (a.0.as_slice(), b.0.as_slice())).collect();
    let latencies: Vec<(&[f64], &[f64])> =
        kept.iter().map(|(a, b)| (a.1.as_slice(), b.1.as_slice())).collect();
    let lower = CompareRules { direction: Direction::LowerIsBetter, ..CompareRules::default() };
    let bandwidths = compare_family(&bandwidths, &CompareRules::default());
    bandwidths.into_iter().zip(compare_family(&latencies, &lower)).collect()
}

/// Which point of one sweep is which of the other.
struct Matching<'p> {
    pairs: Vec<(&'p Point, &'p Point)>,
    only_in_a: Vec<&'p Point>,
    only_in_b: Vec<&'p Point>,
}

impl<'p> Matching<'p> {
    fn of(a: &'p [Point], b: &'p [Point]) -> Self {
        let names = a.iter().chain(b).flat_map(|point| point.settings.keys());
        let varied: BTreeSet<&str> = names.map(String::as_str).collect();
        let mut waiting: BTreeMap<String, Vec<&Point>> = BTreeMap::new();
        for point in b.iter().rev() {
            waiting.entry(identity(point, &varied)).or_default().push(point);
        }
        let mut matching = Self { pairs: Vec::new(), only_in_a: Vec::new(), only_in_b: Vec::new() };
        for point in a {
            match waiting.get_mut(&identity(point, &varied)).and_then(Vec::pop) {
                Some(other) => matching.pairs.push((point, other)),
                None => matching.only_in_a.push(point),
            }
        }
        matching.only_in_b = waiting.into_values().flatten().collect();
        matching.only_in_b.sort_by_key(|point| point.id);
        matching
    }
}

/// What makes a point the point it is, as text that can be compared.
fn identity(point: &Point, varied: &BTreeSet<&str>) -> String {
    let mut fields = workload_fields(point);
    fields
        .retain(|name, _| conditions().all(|condition| condition != name) || varied.contains(name.as_str()));
    if varied.contains("target") {
        fields.insert("target".into(), point.target.clone().into());
    }
    serde_json::Value::Object(fields).to_string()
}

/// A workload's options by name.
fn workload_fields(point: &Point) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(&point.workload) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => unreachable!("a workload is an object"),
    }
}
