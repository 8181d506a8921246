//! What changed between two sweeps: `flashwright.diff/2`.
//!
//! Points are matched by what they run: two points are the same where their workloads agree in all
//! that makes a configuration, whatever the dimensions were called and whichever of them varied. Not
//! part of that are the *conditions* (length, region, seed) and the target, for comparing two drives
//! is what this is for; they count only where a sweep varies them. Conditions that differ are listed.
//!
//! From one session to the next a machine's levels move far more than figures scatter within a session, so the
//! change of a *level* is shown without a verdict. Verdicts are on *contrasts*: the points of one work (the same
//! direction, order and request size) on one construction are taken relative to a reference, the first of them with enough passes, within
//! each sweep; what contrasts move by themselves from session to session, τ, is part of the interval
//! ([`measure::decide::sessions`]). All contrasts of bandwidth make one family, and all of latency another, so the
//! chance of any false difference stays at 5 %. τ is estimated from further sweeps of the baseline's kind where there
//! are two or more.
//!
//! Void runs and first passes (where the sweep sets them aside) take no part; nothing else is removed. An
//! incomplete sweep is compared as far as it goes, and says so.

mod conditions;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use measure::decide::Rules;
use measure::decide::sessions::{self, Block, Shift, ShiftVerdict, Tau};
use measure::options::{OPTIONS, OptionClass};
use measure::stats::Direction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use conditions::Change;

use crate::model::{Point, RunRow};
use crate::store::{Completeness, Meta, Store, StoreError};
use crate::work::Work;

/// The name of the format.
pub const SCHEMA: &str = "flashwright.diff/2";

/// The names of the options of a workload that are circumstances of its measurement.
fn conditions() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().filter(|option| option.class == OptionClass::Condition).map(|option| option.name)
}

/// What changed from sweep `a` to sweep `b`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// `flashwright.diff/2`.
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
    /// How far contrasts move from session to session.
    pub tau: Tau,
    /// Verdicts on the contrasts of p99 latency; the five counts below are of bandwidth.
    #[serde(default)]
    pub latency_p99: Verdicts,
    /// Points whose contrast of bandwidth is better in `b`.
    pub better: u32,
    /// Points whose contrast is worse in `b`.
    pub worse: u32,
    /// Points whose contrast is equivalent, within ± 5 %.
    pub equivalent: u32,
    /// Points of which neither is shown.
    pub undecided: u32,
    /// Points with fewer than three passes that have the reference too.
    pub not_enough_data: u32,
}

/// How many contrasts have which verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdicts {
    /// Better in `b`.
    pub better: u32,
    /// Worse in `b`.
    pub worse: u32,
    /// Equivalent, within ± 5 %.
    pub equivalent: u32,
    /// Neither is shown.
    pub undecided: u32,
    /// Fewer than three passes that have the reference too.
    pub not_enough_data: u32,
}

impl Verdicts {
    fn of(contrasts: impl Iterator<Item = Shift>) -> Self {
        let mut counts = Self::default();
        for contrast in contrasts {
            *match contrast.verdict {
                ShiftVerdict::Better => &mut counts.better,
                ShiftVerdict::Worse => &mut counts.worse,
                ShiftVerdict::Equivalent => &mut counts.equivalent,
                ShiftVerdict::Undecided => &mut counts.undecided,
                ShiftVerdict::NotEnoughData => &mut counts.not_enough_data,
            } += 1;
        }
        counts
    }
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
    /// The point of `a` that its contrasts are relative to; none for a reference itself.
    pub reference: Option<u32>,
    /// Bandwidth in bytes per second.
    pub bandwidth: FigureDiff,
    /// 99th percentile of latency in nanoseconds; a ratio below 1 is better.
    pub latency_p99: FigureDiff,
    /// How this point was measured differently.
    pub conditions: Vec<Change>,
}

/// A figure of one point in both sweeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureDiff {
    /// Passes of `a` that count.
    pub passes_a: u32,
    /// Passes of `b` that count.
    pub passes_b: u32,
    /// Geometric mean in `a`; none without passes.
    pub mean_a: Option<f64>,
    /// Geometric mean in `b`.
    pub mean_b: Option<f64>,
    /// `mean_b` by `mean_a`. A level moves from session to session, so this has no verdict.
    pub ratio: Option<f64>,
    /// The change relative to the reference; none for a reference itself.
    pub contrast: Option<Shift>,
}

/// Compares two sweeps, `a` being the baseline. `alike` are further sweeps of the same kind as `a` on the same
/// machine, from which the movement of contrasts between sessions is estimated, with `a`, if there are two or more.
///
/// # Errors
/// [`StoreError`] where one of them does not read.
pub fn diff(a: &Store, b: &Store, alike: &[Store]) -> Result<Diff, StoreError> {
    let (a, b) = (Sweep::read(a)?, Sweep::read(b)?);
    let alike = alike.iter().map(Sweep::read).collect::<Result<Vec<_>, _>>()?;
    let matching = Matching::of(&a.points, &b.points);
    let works = Works::of(&a, &b, &matching.pairs);
    let tau = works.tau(&a, &alike);
    let [bandwidths, latencies] = FIGURES.map(|figure| works.compare(&a, &b, &figure, &tau));
    let points: Vec<PointDiff> = matching
        .pairs
        .iter()
        .zip(bandwidths.into_iter().zip(latencies))
        .enumerate()
        .map(|(at, ((of_a, of_b), (bandwidth, latency_p99)))| PointDiff {
            point_a: of_a.id,
            point_b: of_b.id,
            label: of_a.label(),
            settings: of_a.settings.clone(),
            reference: works.reference_of(at),
            bandwidth,
            latency_p99,
            conditions: conditions::of_points(of_a, of_b),
        })
        .collect();
    let of_bandwidth = Verdicts::of(points.iter().filter_map(|point| point.bandwidth.contrast));
    Ok(Diff {
        schema: SCHEMA.into(),
        conditions: conditions::of_sweeps(&a, &b)?,
        tau,
        latency_p99: Verdicts::of(points.iter().filter_map(|point| point.latency_p99.contrast)),
        better: of_bandwidth.better,
        worse: of_bandwidth.worse,
        equivalent: of_bandwidth.equivalent,
        undecided: of_bandwidth.undecided,
        not_enough_data: of_bandwidth.not_enough_data,
        points,
        only_in_a: matching.only_in_a.iter().map(|p| p.label()).collect(),
        only_in_b: matching.only_in_b.iter().map(|p| p.label()).collect(),
        a: a.side(),
        b: b.side(),
    })
}

/// A figure of a run that is compared.
struct Figure {
    of: fn(&RunRow) -> f64,
    direction: Direction,
}

const FIGURES: [Figure; 2] = [
    Figure { of: |run| run.bandwidth_bytes_per_s, direction: Direction::HigherIsBetter },
    Figure { of: |run| run.latency_ns_p99 as f64, direction: Direction::LowerIsBetter },
];

impl Figure {
    fn rules(&self) -> Rules {
        Rules { direction: self.direction, ..Rules::default() }
    }
}

/// The pairs of points by work and construction, each with its reference: points on different constructions were measured at
/// different times.
struct Works<'p> {
    pairs: &'p [(&'p Point, &'p Point)],
    works: Vec<WorkPairs>,
}

/// The pairs of one work.
struct WorkPairs {
    /// Positions among all pairs, ascending.
    members: Vec<usize>,
    /// The position of the reference among the members.
    reference: usize,
}

/// Passes that a point needs on both sides to be a reference.
const REFERENCE_MIN_PASSES: usize = 3;

impl<'p> Works<'p> {
    fn of(a: &Sweep<'_>, b: &Sweep<'_>, pairs: &'p [(&'p Point, &'p Point)]) -> Self {
        let mut by_work: BTreeMap<(Option<String>, Option<String>, Work), Vec<usize>> = BTreeMap::new();
        for (at, (of_a, of_b)) in pairs.iter().enumerate() {
            let together = (of_a.construction(), of_b.construction(), Work::of(of_a));
            by_work.entry(together).or_default().push(at);
        }
        let is_measured = |at: &usize| {
            let (of_a, of_b) = pairs[*at];
            a.counting(of_a).count().min(b.counting(of_b).count()) >= REFERENCE_MIN_PASSES
        };
        let works = by_work.into_values().map(|members| {
            let reference = members.iter().position(is_measured).unwrap_or(0);
            WorkPairs { members, reference }
        });
        Self { pairs, works: works.collect() }
    }

    /// The point of `a` that a pair is relative to.
    fn reference_of(&self, pair: usize) -> Option<u32> {
        let work = self.works.iter().find(|work| work.members.binary_search(&pair).is_ok())?;
        let reference = work.members[work.reference];
        (reference != pair).then(|| self.pairs[reference].0.id)
    }

    fn compare(&self, a: &Sweep<'_>, b: &Sweep<'_>, figure: &Figure, tau: &Tau) -> Vec<FigureDiff> {
        let family = self.pairs.len().saturating_sub(self.works.len());
        let mut diffs: Vec<FigureDiff> = self
            .pairs
            .iter()
            .map(|(of_a, of_b)| FigureDiff::of_levels(&a.figures(of_a, figure), &b.figures(of_b, figure)))
            .collect();
        for work in &self.works {
            let (count, reference) = (work.members.len(), work.reference);
            let of_a: Vec<&Point> = work.members.iter().map(|at| self.pairs[*at].0).collect();
            let of_b: Vec<&Point> = work.members.iter().map(|at| self.pairs[*at].1).collect();
            let blocks = [a.blocks(&of_a, figure), b.blocks(&of_b, figure)];
            let blocks = [blocks[0].as_slice(), blocks[1].as_slice()];
            let shifts = sessions::compare(count, reference, blocks, &figure.rules(), tau, family);
            for (at, shift) in shifts.into_iter().enumerate().filter(|(at, _)| *at != reference) {
                diffs[work.members[at]].contrast = Some(shift);
            }
        }
        diffs
    }

    /// How far contrasts of bandwidth move from session to session: estimated if the sessions suffice, else the
    /// default.
    fn tau(&self, a: &Sweep<'_>, alike: &[Sweep<'_>]) -> Tau {
        let figure = &FIGURES[0];
        let of_sweep = |sweep: &Sweep<'_>| {
            let matching = Matching::of(&a.points, &sweep.points);
            let by_id: BTreeMap<u32, &Point> =
                matching.pairs.iter().map(|(a, other)| (a.id, *other)).collect();
            let works = self.works.iter().map(|work| {
                let points: Vec<Option<&Point>> =
                    work.members.iter().map(|at| by_id.get(&self.pairs[*at].0.id).copied()).collect();
                (points.len(), work.reference, sweep.blocks_of(&points, figure))
            });
            works.collect::<Vec<_>>()
        };
        let sessions: Vec<_> = std::iter::once(a).chain(alike).map(of_sweep).collect();
        sessions::estimate_tau(&sessions, &figure.rules()).unwrap_or_default()
    }
}

impl FigureDiff {
    /// The levels alone.
    fn of_levels(a: &[f64], b: &[f64]) -> Self {
        let mean = |figures: &[f64]| {
            let logarithms: Vec<f64> = figures.iter().map(|figure| figure.ln()).collect();
            measure::stats::describe::mean(&logarithms).map(f64::exp)
        };
        let (mean_a, mean_b) = (mean(a), mean(b));
        Self {
            passes_a: a.len() as u32,
            passes_b: b.len() as u32,
            mean_a,
            mean_b,
            ratio: mean_a.zip(mean_b).map(|(a, b)| b / a),
            contrast: None,
        }
    }
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
        // Blocks that were cut short are shown and not judged.
        let cut: BTreeSet<u32> = store.cut()?.iter().map(|run| run.position).collect();
        for run in store.runs()?.into_iter().filter(|run| !cut.contains(&run.position)) {
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

    /// The runs of a point that count, in the order of passes.
    fn counting(&self, point: &Point) -> impl Iterator<Item = &RunRow> {
        // By number, not by place: where pass 1 is void or missing, pass 2 is not the first.
        let first_counts = !self.meta.discard_first;
        let runs = self.runs.get(&point.id).map(Vec::as_slice).unwrap_or_default();
        runs.iter().filter(move |run| !run.is_void() && (first_counts || run.pass > 1))
    }

    /// The figures of a point that are above 0.
    fn figures(&self, point: &Point, figure: &Figure) -> Vec<f64> {
        self.counting(point).map(figure.of).filter(|figure| *figure > 0.0).collect()
    }

    /// The passes as blocks: in each the points, by position among `points`, in the order in which they ran.
    fn blocks(&self, points: &[&Point], figure: &Figure) -> Vec<Block> {
        self.blocks_of(&points.iter().copied().map(Some).collect::<Vec<_>>(), figure)
    }

    /// The same where this sweep lacks some points.
    fn blocks_of(&self, points: &[Option<&Point>], figure: &Figure) -> Vec<Block> {
        let mut passes: BTreeMap<u32, Vec<(u32, usize, f64)>> = BTreeMap::new();
        for (at, point) in points.iter().enumerate() {
            for run in point.iter().flat_map(|point| self.counting(point)) {
                passes.entry(run.pass).or_default().push((run.position, at, (figure.of)(run)));
            }
        }
        let in_order = |mut runs: Vec<(u32, usize, f64)>| {
            runs.sort_unstable_by_key(|(position, ..)| *position);
            runs.into_iter().map(|(_, at, figure)| (at, figure)).collect()
        };
        passes.into_values().map(in_order).collect()
    }
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
