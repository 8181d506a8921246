//! Each point's passes: cleaned, judged and summarised.
//!
//! A run has one [`Fate`]. A void run is taken out first, because it does not measure what was asked; then
//! the first pass is set aside by its *number* (a sweep whose first pass is void has no other "first"), then
//! Chauvenet's criterion judges the rest, once. The MAD verdict stands beside and removes nothing.

use std::collections::BTreeMap;

use measure::limit::Verdict;
use measure::options::{self, OptionClass, WorkloadOption};
use measure::workload::full_queues;
use measure::{TestType, WarningCode, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Point, RunRow};
use crate::work::request_word;

use super::statistics::{self, Cleaned};
use super::warnings::is_void;
use super::{Class, Estimate, SweepData, Work};

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It counts.
    Kept,
    /// Set aside as the point's first pass (DASH-IO §3.2).
    FirstPass,
    /// Rejected by Chauvenet's criterion.
    Chauvenet,
    /// A warning voids it.
    Void,
    /// Its block was cut short, so that there is nothing to compare it with.
    Cut,
}

impl Fate {
    /// One or two words for a table.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::FirstPass => "first pass",
            Self::Chauvenet => "rejected",
            Self::Void => "void",
            Self::Cut => "cut block",
        }
    }
}

/// A run and its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgedRun {
    /// The run.
    #[serde(flatten)]
    pub run: RunRow,
    /// What became of it.
    pub fate: Fate,
    /// How many sample deviations it lies from the mean of those that Chauvenet's criterion judged
    /// together; none for a run that was not judged.
    pub deviations: Option<f64>,
    /// Whether it lies more than 14.826 MAD from their median. Removes nothing.
    pub mad_outlier: bool,
    /// Whether it is a void attempt that was made again; the sweep has another run in its place.
    pub repeated: bool,
}

/// How many runs of a point have which fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunCounts {
    /// Runs that count.
    pub kept: u32,
    /// Set aside as first pass.
    pub first_pass: u32,
    /// Rejected by Chauvenet's criterion.
    pub rejected: u32,
    /// Void.
    pub void: u32,
    /// Of a block that was cut short.
    #[serde(default)]
    pub cut: u32,
}

impl RunCounts {
    /// All runs.
    #[must_use]
    pub fn total(self) -> u32 {
        self.kept + self.first_pass + self.rejected + self.void + self.cut
    }

    fn add(&mut self, fate: Fate) {
        match fate {
            Fate::Kept => self.kept += 1,
            Fate::FirstPass => self.first_pass += 1,
            Fate::Chauvenet => self.rejected += 1,
            Fate::Void => self.void += 1,
            Fate::Cut => self.cut += 1,
        }
    }
}

/// A point with its figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointSummary {
    /// [`Point::id`].
    pub point: u32,
    /// One line for people.
    pub label: String,
    /// The value of each dimension that varies.
    pub settings: BTreeMap<String, String>,
    /// The layout that it ran on ([`Point::layout`]); empty where the space names none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layout: BTreeMap<String, String>,
    /// The paper's number, where there is one.
    pub test_type: Option<TestType>,
    /// Device spec of the target.
    pub target: String,
    /// What its application asks for.
    pub work: Work,
    /// Direction and order, in fio's word.
    pub rw: String,
    /// Request size as typed.
    pub request: String,
    /// Requests in flight of each job.
    pub iodepth: u32,
    /// Jobs.
    pub numjobs: u32,
    /// What else it demands or chooses that is not at its default, whether it varies or not, as it would be typed:
    /// `ioengine=psync`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// How many of its runs have which fate.
    pub runs: RunCounts,
    /// Bandwidth in bytes per second over the kept runs; none where no run was kept.
    pub bandwidth: Option<Estimate>,
    /// Requests per second over the kept runs.
    pub iops: Option<Estimate>,
    /// Coefficient of variation of the bandwidth before cleaning: all runs that are not void.
    pub cv_before: Option<f64>,
    /// The same of the kept runs.
    pub cv_after: Option<f64>,
    /// Median over the kept runs of the run's median latency, nanoseconds.
    pub latency_ns_p50: Option<f64>,
    /// Median over the kept runs of the run's 99th percentile, nanoseconds.
    pub latency_ns_p99: Option<f64>,
    /// Median over the kept runs of the run's 99.9th percentile, nanoseconds; none where a run has fewer than 1000 requests.
    pub latency_ns_p99_9: Option<f64>,
    /// Codes on its kept runs, each once.
    pub warnings: Vec<WarningCode>,
    /// What limits it, judged with its siblings; none where no record had a verdict.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// What orders settings by cost ([`Point::cost`]).
    #[serde(skip)]
    pub cost: (u64, u32, bool, u32),
    /// Bandwidth of the kept runs, bytes per second, by pass.
    #[serde(skip)]
    pub kept: Vec<f64>,
    /// What comparisons without pairs are made with, bytes per second by pass: of all runs but void ones, first passes and cut
    /// blocks.
    #[serde(skip)]
    pub compared: Vec<f64>,
}

impl PointSummary {
    /// The class of its work.
    #[must_use]
    pub fn class(&self) -> Class {
        self.work.class
    }

    /// Requests in flight over all jobs.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let setting = |name: &str| self.layout.get(name).or_else(|| self.settings.get(name));
        in_flight(self.iodepth, self.numjobs, |name| setting(name).map(String::as_str))
    }
}

/// Drives that a point uses, by its settings and its layout's: its width, the drives that it names, or one.
pub(super) fn drives<'a>(setting: impl Fn(&str) -> Option<&'a str>) -> u32 {
    if setting("layout") == Some("single") {
        return 1;
    }
    let named = || setting("drives").map(|drives| drives.split(',').count() as u32);
    setting("width").and_then(|width| width.parse().ok()).or_else(named).unwrap_or(1).max(1)
}

/// Requests in flight over all jobs of a point with these settings: of separate drives each has at least one for each job.
pub(super) fn in_flight<'a>(iodepth: u32, numjobs: u32, setting: impl Fn(&str) -> Option<&'a str>) -> u64 {
    let separate = if setting("layout") == Some("separate") { drives(&setting) } else { 1 };
    full_queues(iodepth, numjobs, separate)
}

fn always() -> bool {
    true
}

/// What cleaning did to the whole sweep.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CleaningSummary {
    /// Runs with each fate.
    pub runs: RunCounts,
    /// Whether runs are set aside by these rules at all; in a sweep of blocks they are not.
    #[serde(default = "always")]
    pub is_applied: bool,
    /// Whether the first pass was set aside.
    pub discard_first: bool,
    /// Passes of a point that Chauvenet's criterion judged together, where no run was void.
    pub judged_passes: u32,
    /// Its limit for that number, in sample deviations.
    pub limit: f64,
    /// The largest deviation that so many samples can have, in sample deviations.
    pub largest_possible: f64,
    /// Whether the criterion can reject anything at all with that number.
    pub can_fire: bool,
    /// Runs that it would have rejected had the first pass been kept (the papers: 1155 of 16,800).
    pub rejected_with_first_pass: u64,
    /// Runs that lie more than 14.826 MAD from the median of those judged together.
    pub mad_outliers: u64,
    /// Coefficients of variation before cleaning, over all points.
    pub cv_before: Option<Spread>,
    /// The same after.
    pub cv_after: Option<Spread>,
}

/// How a figure is spread over the points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Largest.
    pub max: f64,
}

/// One line for people: `4 KiB random read, depth 32 · ioengine=libaio`.
#[must_use]
pub fn label(point: &Point) -> String {
    // What the first half of the line already says.
    let said: &[&str] = match point.test_type {
        Some(_) => &["test_type", "rw", "bs", "iodepth"],
        None => &["rw", "bs", "iodepth", "numjobs", "direct"],
    };
    let mut label = match point.test_type {
        Some(test_type) => test_type.label(),
        None => point.workload.summary(),
    };
    for (name, value) in &point.settings {
        if !said.contains(&name.as_str()) {
            label.push_str(" · ");
            label.push_str(name);
            label.push('=');
            label.push_str(value);
        }
    }
    label
}

/// Cleans and summarises every point. The points come back by id, the runs in the order they ran.
pub(crate) fn judge(data: &SweepData) -> (Vec<PointSummary>, Vec<JudgedRun>, CleaningSummary) {
    let mut by_point: BTreeMap<u32, Vec<&RunRow>> = BTreeMap::new();
    for run in &data.runs {
        by_point.entry(run.point).or_default().push(run);
    }
    let discard_first = data.meta.discard_first;
    let judged_passes = data.meta.passes.saturating_sub(u32::from(discard_first));
    let mut cleaning = CleaningSummary {
        is_applied: data.meta.protocol.is_papers(),
        discard_first,
        judged_passes,
        limit: statistics::limit(judged_passes),
        largest_possible: statistics::largest_possible(judged_passes),
        can_fire: statistics::can_fire(judged_passes),
        ..CleaningSummary::default()
    };
    let mut summaries = Vec::with_capacity(data.points.len());
    let mut judged = Vec::with_capacity(data.runs.len());
    for (id, point) in super::by_id(&data.points) {
        let mut runs = by_point.remove(&id).unwrap_or_default();
        runs.sort_unstable_by_key(|run| (run.pass, run.id));
        let (mut verdicts, mut cleaned, rejected_with_first) = judge_point(&runs, discard_first);
        if !data.meta.protocol.is_papers() {
            let is_cut = |run: &RunRow| data.cut.contains(&(run.point, run.pass));
            verdicts.iter_mut().for_each(|judged| judged.fate = in_blocks(judged, is_cut(&judged.run)));
            cleaned.cv_after = None;
        }
        cleaning.rejected_with_first_pass += rejected_with_first;
        summaries.push(summarise(point, &verdicts, &cleaned));
        judged.extend(verdicts);
    }
    judged.extend(data.voided.iter().map(|run| JudgedRun {
        run: run.clone(),
        fate: Fate::Void,
        deviations: None,
        mad_outlier: false,
        repeated: true,
    }));
    judged.sort_unstable_by_key(|j| (j.run.position, !j.repeated, j.run.id));
    for run in &judged {
        cleaning.runs.add(run.fate);
        cleaning.mad_outliers += u64::from(run.mad_outlier);
    }
    cleaning.cv_before = spread(summaries.iter().filter_map(|s| s.cv_before).collect());
    cleaning.cv_after = spread(summaries.iter().filter_map(|s| s.cv_after).collect());
    (summaries, judged, cleaning)
}

/// What becomes of a run where nothing is removed before conclusions are drawn.
fn in_blocks(judged: &JudgedRun, is_cut: bool) -> Fate {
    match judged.fate {
        Fate::Void => Fate::Void,
        _ if is_cut => Fate::Cut,
        _ => Fate::Kept,
    }
}

/// The verdicts on one point's runs, what cleaning found, and how many runs Chauvenet's criterion
/// would reject with the first pass among them.
fn judge_point(runs: &[&RunRow], discard_first: bool) -> (Vec<JudgedRun>, Cleaned, u64) {
    let valid: Vec<&RunRow> = runs.iter().copied().filter(|r| !is_void(&r.warnings)).collect();
    let bandwidth: Vec<f64> = valid.iter().map(|run| run.bandwidth_bytes_per_s).collect();
    let has_first = discard_first && valid.first().is_some_and(|run| run.pass == 1);
    let cleaned = statistics::clean(&bandwidth, has_first);
    let rejected_with_first = cleaned.rejected_with_first;
    let mut verdicts = cleaned.verdicts.iter();
    let judged = runs
        .iter()
        .map(|run| {
            let verdict = if is_void(&run.warnings) { None } else { verdicts.next() };
            JudgedRun {
                run: (*run).clone(),
                fate: verdict.map_or(Fate::Void, |v| v.fate),
                deviations: verdict.and_then(|v| v.deviations),
                mad_outlier: verdict.is_some_and(|v| v.mad_outlier),
                repeated: false,
            }
        })
        .collect();
    (judged, cleaned, rejected_with_first)
}

/// What a workload demands or chooses beyond what a summary has fields for, where that is not at its default.
fn further_options(workload: &Workload) -> Vec<String> {
    const FIELDS: [&str; 5] = ["rw", "bs", "bssplit", "iodepth", "numjobs"];
    let is_further =
        |option: &&WorkloadOption| option.class != OptionClass::Condition && !FIELDS.contains(&option.name);
    let further = options::differing(workload).filter(is_further);
    further.filter_map(|option| Some(format!("{}={}", option.name, option.text(workload)?))).collect()
}

fn summarise(point: &Point, runs: &[JudgedRun], cleaned: &Cleaned) -> PointSummary {
    let mut counts = RunCounts::default();
    runs.iter().for_each(|run| counts.add(run.fate));
    let kept: Vec<&RunRow> = runs.iter().filter(|r| r.fate == Fate::Kept).map(|r| &r.run).collect();
    let bandwidth: Vec<f64> = kept.iter().map(|run| run.bandwidth_bytes_per_s).collect();
    // The criterion describes; nothing is removed by it from what is compared.
    let compared = runs.iter().filter(|r| matches!(r.fate, Fate::Kept | Fate::Chauvenet));
    let compared: Vec<f64> = compared.map(|r| r.run.bandwidth_bytes_per_s).collect();
    let iops: Vec<f64> = kept.iter().map(|run| run.iops).collect();
    let median = |figure: fn(&RunRow) -> u64| {
        statistics::median(&kept.iter().map(|run| figure(run) as f64).collect::<Vec<_>>())
    };
    let mut warnings: Vec<WarningCode> = kept.iter().flat_map(|r| r.warnings.clone()).collect();
    warnings.sort_unstable();
    warnings.dedup();
    PointSummary {
        point: point.id,
        label: label(point),
        settings: point.settings.clone(),
        layout: point.layout.clone(),
        test_type: point.test_type,
        target: point.target.clone(),
        work: Work::of(point),
        rw: point.workload.rw.word().to_owned(),
        request: request_word(&point.workload),
        iodepth: point.workload.iodepth,
        numjobs: point.workload.numjobs,
        options: further_options(&point.workload),
        runs: counts,
        bandwidth: statistics::estimate(&bandwidth),
        iops: statistics::estimate(&iops),
        cv_before: cleaned.cv_before,
        cv_after: cleaned.cv_after,
        latency_ns_p50: median(|run| run.latency_ns_p50),
        latency_ns_p99: median(|run| run.latency_ns_p99),
        // One request in a thousand is the slowest one alone where a run has no thousand.
        latency_ns_p99_9: median(|run| run.latency_ns_p99_9)
            .filter(|_| kept.iter().all(|run| run.ios >= 1000)),
        warnings,
        verdict: None,
        cost: point.cost(),
        compared,
        kept: bandwidth,
    }
}

fn spread(values: Vec<f64>) -> Option<Spread> {
    Some(Spread {
        median: statistics::quantile(&values, 0.5)?,
        p90: statistics::quantile(&values, 0.9)?,
        max: statistics::quantile(&values, 1.0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separate_drives_have_a_request_each_whatever_the_depth() {
        let settings = |layout: &'static str, width: &'static str| {
            move |name: &str| match name {
                "layout" => Some(layout),
                "width" => Some(width),
                _ => None,
            }
        };
        assert_eq!(in_flight(1, 2, settings("separate", "4")), 8);
        assert_eq!(in_flight(32, 2, settings("separate", "4")), 64);
        assert_eq!(in_flight(1, 2, settings("stripe", "4")), 2);
        assert_eq!(
            in_flight(1, 1, |name| [("layout", "separate"), ("drives", "/dev/a,/dev/b")]
                .iter()
                .find(|s| s.0 == name)
                .map(|s| s.1)),
            2
        );
        assert_eq!(in_flight(4, 3, |_| None), 12);
    }
}
