//! From the runs of a sweep to figures that can be believed.
//!
//! [`analyse`] is a pure function of [`SweepData`]; it neither reads a store nor prints. In this order:
//!
//! 1. [`completeness`]: which planned runs are missing. Checked before anything is concluded.
//! 2. [`points`]: each point's passes are cleaned as the papers clean them (DASH-IO §3.2: the first
//!    pass set aside, Chauvenet's criterion on the rest), with a robust verdict beside. A void run takes no
//!    part. Every run keeps its verdict and stays visible.
//!    In a sweep of blocks nothing is removed: the criterion is shown and not applied.
//! 3. [`contests`]: which setting is best for each work, decided by blocks; a pass is a block over all points.
//!    [`passes`]: mean by pass, relative to the point's own mean (Figs. 4 and 5).
//! 4. [`depth`]: bandwidth and latency over queue depth (Figs. 13 and 14).
//! 5. [`by_setting`] and [`scaling`]: each workload by the values of one setting (Figs. 8, 11 and 12), and figures
//!    over the number of drives (Figs. 9 and 10).
//! 6. [`effects`]: what each dimension does, other settings held, and which depend on each other; and the control
//!    point's drift.
//! 7. [`limits`]: what kept each configuration from being faster.
//! 8. [`warnings`]: the codes that the records carry, counted, with what to do.
//!
//! The result does not depend on the order in which the runs are handed over, and the time taken grows
//! linearly with their number.

pub mod by_setting;
pub(crate) mod choices;
pub mod completeness;
pub mod contests;
pub mod depth;
pub mod effects;
pub mod limits;
pub mod passes;
pub mod points;
pub mod scaling;
pub(crate) mod statistics;
pub mod warnings;

use std::collections::{BTreeMap, BTreeSet};

use measure::limit::Verdict;
use measure::record::{EngineFacts, HostFacts, TargetFacts};
use measure::stats::Movement;
use measure::{Histogram, WarningCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Point, RunRow};
use crate::plan::{Margin, Protocol};
use crate::search::SearchSummary;

pub use by_setting::{BySetting, SettingBar};
pub(crate) use choices::further;
pub use completeness::{Completeness, MissingRuns};
pub use contests::{ContestSummary, SlowBlock};
pub use depth::{DepthCurve, DepthStep};
pub use effects::{Drift, Effect, EffectOfValue, Interaction};
pub use limits::LimitSummary;
pub use measure::effects::InteractionCell;
pub use passes::{PassMean, PassTrend};
pub use points::{CleaningSummary, Fate, JudgedRun, PointSummary, RunCounts, Spread};
pub use scaling::{Metric, Scaling, ScalingCurve, ScalingStep};
pub use warnings::WarningSummary;

pub use crate::work::{Access, Class, Direction, Work};

/// All that is known about a sweep, in memory. Nothing in it is derived.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepData {
    /// How the sweep was made.
    pub meta: SweepMeta,
    /// The points of the space.
    pub points: Vec<Point>,
    /// The finished runs, in any order; at most one for each point and pass.
    pub runs: Vec<RunRow>,
    /// Point and number of the runs of blocks that were cut short.
    pub cut: BTreeSet<(u32, u32)>,
    /// What a screened sweep has looked at; its `points` are those with a run.
    pub search: Option<SearchSummary>,
    /// What a sweep of blocks still owes before anything can be concluded.
    pub missing: Vec<MissingRuns>,
    /// The runs of the control point, which belong to no pass.
    pub controls: Vec<RunRow>,
    /// Void attempts that were made again. They count for nothing and stay visible.
    pub voided: Vec<RunRow>,
    /// Attempts that ended without a record.
    pub failures: Vec<Failure>,
    /// The machine, as the first record saw it.
    pub host: Option<HostFacts>,
    /// What was measured, one entry for each target.
    pub targets: Vec<TargetSeen>,
    /// For each code, the message of one record that carries it.
    pub messages: BTreeMap<WarningCode, String>,
    /// Latencies by point, all kept passes merged; of those points whose records were read.
    pub latencies: BTreeMap<u32, Histogram>,
    /// What limited each point, by the verdict of the record of its middle run.
    pub verdicts: BTreeMap<u32, Verdict>,
}

/// How a sweep was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepMeta {
    /// Its name in the space file.
    pub name: String,
    /// flashwright's version at the time.
    pub version: String,
    /// Seed of the run order.
    pub seed: u64,
    /// How runs were ordered, in words: `random within each pass`.
    pub order: String,
    /// How the runs were chosen.
    #[serde(default = "Protocol::unnamed")]
    pub protocol: Protocol,
    /// The longest that blocks are run, seconds; none where `passes` says how often.
    #[serde(default)]
    pub budget_s: Option<f64>,
    /// How far apart settings may lie that count as equally good, as a part of one.
    #[serde(default)]
    pub equivalence: Margin,
    /// Passes, or blocks, planned for each point; 0 for as many as a decision takes.
    pub passes: u32,
    /// Whether the first pass is set aside, as in the papers.
    pub discard_first: bool,
    /// When the first run began, nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: Option<u64>,
    /// When the last run ended, nanoseconds since 1970-01-01 UTC.
    pub finished_unix_ns: Option<u64>,
    /// The space as it was written, TOML; empty where unknown.
    pub space: String,
    /// The machine's name; empty where unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// The directory in which the sweep began; empty where unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// What the space calls the baseline (`[sweep] baseline`), by setting.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub baseline: BTreeMap<String, String>,
}

impl SweepMeta {
    /// Whether blocks are run until it is decided.
    pub(crate) fn stops(&self) -> bool {
        !self.protocol.is_planned_ahead() && self.passes == 0
    }
}

/// An attempt that ended without a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// [`Point::id`].
    pub point: u32,
    /// The pass it was made for.
    pub pass: u32,
    /// When, nanoseconds since 1970-01-01 UTC.
    pub at_unix_ns: u64,
    /// What went wrong.
    pub error: String,
}

/// A target and the settings around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetSeen {
    /// [`Point::target`].
    pub target: String,
    /// What it is.
    pub facts: TargetFacts,
    /// Settings in force around it.
    pub layout: BTreeMap<String, String>,
    /// How requests were made.
    pub engine: EngineFacts,
}

/// A mean with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its interval; none with fewer than two values.
    pub interval: Option<Interval>,
}

/// A confidence interval, at 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What [`analyse`] finds.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// Whether all that was planned is there.
    pub completeness: Completeness,
    /// Each point, in order of its id.
    pub points: Vec<PointSummary>,
    /// Each run with its verdict, in the order in which they ran.
    pub runs: Vec<JudgedRun>,
    /// What the blocks of each work say.
    pub contests: Vec<ContestSummary>,
    /// How far the machine moved, for each work that is spread over several constructions.
    pub movements: BTreeMap<Work, Movement>,
    /// What a screened sweep has looked at.
    pub search: Option<SearchSummary>,
    /// What cleaning did to the sweep as a whole.
    pub cleaning: CleaningSummary,
    /// Mean by pass, for each direction that occurs.
    pub passes: Vec<PassTrend>,
    /// Bandwidth and latency over queue depth.
    pub depth: Vec<DepthCurve>,
    /// Each workload by the values of one setting.
    pub by_setting: Vec<BySetting>,
    /// Figures over the number of drives.
    pub scaling: Vec<Scaling>,
    /// What each dimension does.
    pub effects: Vec<Effect>,
    /// Which dimensions depend on each other, strongest first.
    pub interactions: Vec<Interaction>,
    /// What the ladder starts from, where the space says so: settings by name.
    pub baseline: BTreeMap<String, String>,
    /// Whether the control point drifted; none without control runs enough to tell.
    pub drift: Option<Drift>,
    /// What limits the points, most frequent first.
    pub limits: Vec<LimitSummary>,
    /// The warnings, most severe first.
    pub warnings: Vec<WarningSummary>,
}

/// Data that contradict themselves, so that nothing can be concluded from them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AnalysisError {
    /// Two points have the same id.
    #[error("point {point} occurs twice in the sweep's points")]
    PointTwice {
        /// Its id.
        point: u32,
    },
    /// A run of a point that the space does not have.
    #[error("run {run} belongs to point {point}, which the sweep does not have")]
    UnknownPoint {
        /// [`RunRow::id`].
        run: i64,
        /// The point it names.
        point: u32,
    },
    /// Two runs of the same point and pass.
    #[error("point {point} has pass {pass} twice (run {run})")]
    RunTwice {
        /// [`RunRow::id`] of one of them.
        run: i64,
        /// The point.
        point: u32,
        /// The pass.
        pass: u32,
    },
    /// A figure that is no figure.
    #[error("run {run}: {figure} is {value}, which no run can have")]
    NotAFigure {
        /// [`RunRow::id`].
        run: i64,
        /// Which.
        figure: &'static str,
        /// Its value.
        value: f64,
    },
}

/// Cleans, summarises and judges a sweep.
///
/// # Errors
/// [`AnalysisError`] where the data contradict themselves.
pub fn analyse(data: &SweepData) -> Result<Analysis, AnalysisError> {
    check(data)?;
    let completeness = completeness::check(data);
    let (mut points, runs, cleaning) = points::judge(data);
    let contests = contests::summarise(data);
    let limits = limits::judge(data, &mut points);
    let (effects, interactions) = effects::effects(data, &contests, &points);
    Ok(Analysis {
        limits,
        movements: contests::movements(data, &contests),
        contests,
        search: data.search.clone(),
        passes: if data.meta.protocol.is_planned_ahead() {
            passes::trends(&data.meta, &points, &runs)
        } else {
            Vec::new()
        },
        depth: depth::curves(&data.points, &points),
        by_setting: by_setting::by_setting(&points),
        scaling: scaling::scaling(&points),
        effects,
        interactions,
        baseline: data.meta.baseline.clone(),
        drift: effects::drift(&data.controls),
        warnings: warnings::summarise(data, &points),
        completeness,
        points,
        runs,
        cleaning,
    })
}

fn check(data: &SweepData) -> Result<(), AnalysisError> {
    let mut ids = BTreeSet::new();
    for point in &data.points {
        if !ids.insert(point.id) {
            return Err(AnalysisError::PointTwice { point: point.id });
        }
    }
    let mut seen = std::collections::HashSet::with_capacity(data.runs.len());
    for run in data.runs.iter().chain(&data.voided) {
        if !ids.contains(&run.point) {
            return Err(AnalysisError::UnknownPoint { run: run.id, point: run.point });
        }
    }
    for run in &data.runs {
        if !seen.insert((run.point, run.pass)) {
            return Err(AnalysisError::RunTwice { run: run.id, point: run.point, pass: run.pass });
        }
    }
    for run in data.runs.iter().chain(&data.controls).chain(&data.voided) {
        for (figure, value) in [
            ("bandwidth_bytes_per_s", run.bandwidth_bytes_per_s),
            ("iops", run.iops),
            ("latency_ns_mean", run.latency_ns_mean),
        ] {
            if !value.is_finite() || value < 0.0 {
                return Err(AnalysisError::NotAFigure { run: run.id, figure, value });
            }
        }
    }
    Ok(())
}

/// The points, by id.
pub(crate) fn by_id(points: &[Point]) -> BTreeMap<u32, &Point> {
    points.iter().map(|point| (point.id, point)).collect()
}
