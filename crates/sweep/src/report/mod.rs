//! A sweep's report: what to do, why, and everything that it rests on.
//!
//! [`Report`] (`flashwright.report/2`) holds all that any of the forms shows, so that each of them is a
//! pure function of it and the same data give the same bytes:
//!
//! | form | function | for |
//! |---|---|---|
//! | HTML | [`html()`] | a person with five minutes; one file, opens offline |
//! | SVG | [`svg()`] | the answer and its first figures as one picture |
//! | Markdown | [`markdown()`] | a ticket or a wiki |
//! | CSV | [`csv()`] | a spreadsheet: every run, with its verdict |
//! | CSV | [`figures_csv()`] | the same: the numbers of every figure |
//! | JSON | [`json()`] | programs: the report itself |
//! | text | [`table()`] | the terminal |
//!
//! Names in a report (targets, settings, error texts) come from outside. Every form escapes them for
//! where they stand.

mod csv;
mod facts;
mod figures_csv;
mod html;
mod limits;
mod markdown;
mod papers;
mod sheet;
mod sheets;
mod sides;
mod table;
mod time;

use measure::Histogram;
use measure::record::{HostFacts, LatencySummary};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analysis::{
    AnalysisError, BySetting, CleaningSummary, Completeness, ContestSummary, DepthCurve, Drift, Effect,
    Failure, Interaction, JudgedRun, LimitSummary, PassTrend, PointSummary, Scaling, SweepData, SweepMeta,
    TargetSeen, WarningSummary, analyse,
};
use crate::model::RunRow;
use crate::recommend::{Compromise, Ladder, Recommendation, compromise, headline, ladders, recommend};
use crate::search::SearchSummary;

pub use csv::{csv, push_row};
pub use figures_csv::figures_csv;
pub use html::{
    Page, PageChart, PageMark, PageTable, SaturationPage, html, ladder, page, page_svg, saturation, svg,
};
pub use markdown::{markdown, page_markdown};
pub use table::{Line, Span, Style, table};
pub use time::utc;

/// The name of the format, in each report's `schema`.
pub const SCHEMA: &str = "flashwright.report/2";

/// A sweep, analysed and judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// `flashwright.report/2`.
    pub schema: String,
    /// How the sweep was made.
    pub meta: SweepMeta,
    /// The answer in one sentence.
    pub headline: String,
    /// Whether all that was planned is there.
    pub completeness: Completeness,
    /// What to use for each kind of work.
    pub recommendations: Vec<Recommendation>,
    /// The one layout that serves all kinds of work best.
    #[serde(default)]
    pub compromise: Option<Compromise>,
    /// From the baseline to the best, one setting at a time, for each kind of work.
    #[serde(default)]
    pub ladders: Vec<Ladder>,
    /// Each point with its figures.
    pub points: Vec<PointSummary>,
    /// What the blocks of each work say.
    #[serde(default)]
    pub contests: Vec<ContestSummary>,
    /// What a screened sweep has looked at, and what it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchSummary>,
    /// What cleaning did.
    pub cleaning: CleaningSummary,
    /// Mean by pass, for each direction.
    pub passes: Vec<PassTrend>,
    /// Bandwidth and latency over queue depth.
    pub depth: Vec<DepthCurve>,
    /// Each workload by the values of one setting.
    #[serde(default)]
    pub by_setting: Vec<BySetting>,
    /// Figures over the number of drives.
    #[serde(default)]
    pub scaling: Vec<Scaling>,
    /// What each dimension does.
    pub effects: Vec<Effect>,
    /// Which dimensions depend on each other, strongest first.
    #[serde(default)]
    pub interactions: Vec<Interaction>,
    /// Whether the control point drifted.
    pub drift: Option<Drift>,
    /// Latency percentiles of those points whose records were read.
    pub latency: Vec<LatencyCurve>,
    /// What limits the points, most frequent first.
    #[serde(default)]
    pub limits: Vec<LimitSummary>,
    /// The warnings, most severe first.
    pub warnings: Vec<WarningSummary>,
    /// Attempts that ended without a record.
    pub failures: Vec<Failure>,
    /// The machine.
    pub host: Option<HostFacts>,
    /// What was measured.
    pub targets: Vec<TargetSeen>,
    /// The runs of the control point, in the order in which they ran.
    pub controls: Vec<RunRow>,
    /// Every run with its verdict, in the order in which they ran.
    pub runs: Vec<JudgedRun>,
}

/// The distribution of one point's latencies, all kept passes merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyCurve {
    /// The point.
    pub point: u32,
    /// Requests counted.
    pub requests: u64,
    /// The usual figures.
    pub summary: LatencySummary,
    /// Percentiles, as far into the tail as there are requests to tell.
    pub percentiles: Vec<LatencyStep>,
}

/// One percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyStep {
    /// In percent, 0 to 100.
    pub percentile: f64,
    /// The latency that so many percent of the requests did not exceed, nanoseconds.
    pub ns: u64,
}

/// Percentiles drawn. Between 90 and 100 each step is a constant ratio of what is left.
const PERCENTILES: [f64; 27] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.5, 98.0, 99.0,
    99.25, 99.5, 99.75, 99.8, 99.9, 99.95, 99.98, 99.99, 99.995, 99.999,
];

impl LatencyCurve {
    fn of(point: u32, histogram: &Histogram) -> Self {
        let requests = histogram.count();
        // A percentile with less than one request above it is the maximum under another name.
        let known = |p: &f64| (100.0 - p) / 100.0 * requests as f64 >= 1.0;
        Self {
            point,
            requests,
            summary: LatencySummary::from(histogram),
            percentiles: PERCENTILES
                .into_iter()
                .filter(known)
                .map(|percentile| LatencyStep { percentile, ns: histogram.percentile(percentile) })
                .collect(),
        }
    }
}

impl Report {
    /// Analyses and judges a sweep.
    ///
    /// # Errors
    /// [`AnalysisError`] where the data contradict themselves.
    pub fn new(data: &SweepData) -> Result<Self, AnalysisError> {
        let analysis = analyse(data)?;
        let recommendations = recommend(&analysis);
        let (compromise, ladders) = (compromise(&analysis), ladders(&analysis));
        let mut failures = data.failures.clone();
        failures.sort_by_key(|failure| (failure.at_unix_ns, failure.point, failure.pass));
        let mut controls = data.controls.clone();
        controls.sort_by_key(|run| (run.position, run.id));
        let mut targets = data.targets.clone();
        targets.sort_by(|a, b| a.target.cmp(&b.target));
        Ok(Self {
            schema: SCHEMA.to_owned(),
            meta: data.meta.clone(),
            headline: in_memory(&targets)
                + &headline(&analysis, &recommendations, compromise.as_ref(), &ladders),
            recommendations,
            compromise,
            ladders,
            completeness: analysis.completeness,
            points: analysis.points,
            contests: analysis.contests,
            search: analysis.search,
            cleaning: analysis.cleaning,
            passes: analysis.passes,
            depth: analysis.depth,
            by_setting: analysis.by_setting,
            scaling: analysis.scaling,
            effects: analysis.effects,
            interactions: analysis.interactions,
            drift: analysis.drift,
            latency: data
                .latencies
                .iter()
                .filter(|(_, histogram)| histogram.count() > 0)
                .map(|(point, histogram)| LatencyCurve::of(*point, histogram))
                .collect(),
            limits: analysis.limits,
            warnings: analysis.warnings,
            failures,
            host: data.host.clone(),
            targets,
            controls,
            runs: analysis.runs,
        })
    }

    /// The summary of a point.
    #[must_use]
    pub fn point(&self, id: u32) -> Option<&PointSummary> {
        self.points.binary_search_by_key(&id, |p| p.point).ok().map(|i| &self.points[i])
    }

    /// Whether it is of the papers' protocol, whose figures can be set beside theirs.
    #[must_use]
    pub fn is_papers(&self) -> bool {
        self.meta.protocol.is_papers()
    }

    /// The report's title: the sweep's name, and what it ran on where that has a name.
    #[must_use]
    pub fn title(&self) -> String {
        let name = if self.meta.name.is_empty() { "sweep" } else { &self.meta.name };
        let mut models: Vec<&str> = self.targets.iter().filter_map(|t| t.facts.model.as_deref()).collect();
        models.dedup();
        match models.as_slice() {
            [] => name.to_owned(),
            [model] => format!("{name} on {}", model.trim()),
            [first, rest @ ..] => format!("{name} on {} and {} more", first.trim(), rest.len()),
        }
    }
}

/// `This measured memory (tmpfs), no drive. `, where a target lies in memory; nothing otherwise.
fn in_memory(targets: &[TargetSeen]) -> String {
    let Some(seen) = targets.iter().find(|seen| seen.facts.is_file_in_memory()) else { return String::new() };
    let filesystem = seen.facts.filesystem.as_deref().unwrap_or_default();
    match targets {
        [_] => format!("This measured memory ({filesystem}), no drive. "),
        _ => format!("{} is memory ({filesystem}), no drive. ", seen.target),
    }
}

/// The report as one JSON document (`flashwright.report/2`), ending in a newline.
///
/// # Panics
/// Never: every figure in a report is finite and every key is a string.
#[must_use]
pub fn json(report: &Report) -> String {
    let mut text = serde_json::to_string(report).expect("a report has string keys and no failing types");
    text.push('\n');
    text
}

/// The JSON Schema of [`json()`], generated from the types.
#[must_use]
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(Report).to_value()
}
