//! The layout of fio's `--output-format=json` and `json+`, filled from run records.
//!
//! The layout is that of fio 3.33 (`stat.c`, `show_thread_status_json`), with the keys that fio 3.42
//! adds (`job_start`, `latency_target_ns`, `latency_window_us`, sectors in `disk_util`). A test compares
//! it, key by key and type by type, with what the installed fio prints.
//!
//! **No figure is made up.** Where fio has a place for something that a [`RunRecord`] does not hold, the
//! place holds fio's own sign for "nothing counted": `N`, `samples` or the value itself is 0. These are:
//! `slat_ns` (submission is not timed apart: the clock is read before it, so `clat_ns` contains it and
//! errs upwards), `sync`, `minf`, the `ticks` and `in_queue` of drives, and those depth distributions
//! that do not follow from the workload.
//!
//! A job's copies (`numjobs`) are one entry, as under fio's `group_reporting`; so are the jobs of a group that say so
//! (`groups`). Bandwidth and IOPS are the
//! record's, so that this output and `--json` agree. Times are UTC.

mod clock;
mod common;
mod drives;
mod groups;
mod latency;
mod parts;
mod samples;
mod steady;

use measure::RunRecord;
use serde::Serialize;

use super::draft::Reporting;
use bench::run::conduct::ByPriority;
use bench::run::search::LatencyGoal;
use bench::run::steady::Steadiness;
pub use common::OrderedMap;
pub use drives::DiskUtil;
pub use latency::Latency;
pub use parts::{Direction, JobReport, OfPriority, Sync};
pub use steady::SteadyState;

/// The version string: the layout's version first, for programs that look for one.
pub const VERSION: &str = concat!("fio-3.33-flashwright-", env!("CARGO_PKG_VERSION"));

/// One job's result and what fio says about a job beside it.
#[derive(Debug, Clone)]
pub struct JobResult<'a> {
    /// The job's name.
    pub name: String,
    /// fio's number of the reporting group, from 0.
    pub group_id: u32,
    /// `job options`: as written in a job file, or [`options_of`](super::options_of) the workload.
    pub options: Vec<(String, String)>,
    /// `desc`.
    pub description: Option<String>,
    /// What is spelled out.
    pub reporting: Reporting,
    /// Whether it shares an entry with others of its reporting group that say so too: fio's `group_reporting`.
    pub is_grouped: bool,
    /// What was seen.
    pub record: &'a RunRecord,
    /// How steady it was, where that was to end it.
    pub steadiness: Option<&'a Steadiness>,
    /// What its depth was searched for, and the depth that was found, if one was.
    pub search: Option<(LatencyGoal, Option<u32>)>,
    /// Its latencies by priority, of reads, writes and discards, where requests had priorities of their own.
    pub by_priority: [ByPriority; 3],
    /// Whether the job goes on with some failures.
    pub is_tolerant: bool,
}

impl<'a> JobResult<'a> {
    /// The result of a workload that came from flags or a TOML file.
    #[must_use]
    pub fn of_workload(record: &'a RunRecord) -> Self {
        let name = if record.workload.name.is_empty() { "bench" } else { &record.workload.name };
        Self {
            name: name.to_owned(),
            group_id: 0,
            options: super::options_of(&record.workload),
            description: None,
            reporting: Reporting::default(),
            is_grouped: false,
            record,
            steadiness: None,
            search: None,
            by_priority: Default::default(),
            is_tolerant: false,
        }
    }

    /// The result of a job of a job file.
    #[must_use]
    pub fn of_job(job: &super::Job, record: &'a RunRecord) -> Self {
        Self {
            name: job.name.clone(),
            group_id: job.group_id,
            options: job.options.clone(),
            description: job.description.clone(),
            reporting: job.reporting.clone(),
            is_grouped: job.is_grouped,
            record,
            steadiness: None,
            search: None,
            by_priority: Default::default(),
            is_tolerant: job.conduct.tolerance.is_some(),
        }
    }

    /// The same with how steady it was.
    #[must_use]
    pub fn with_steadiness(self, steadiness: Option<&'a Steadiness>) -> Self {
        Self { steadiness, ..self }
    }

    /// The same with its latencies by priority.
    #[must_use]
    pub fn with_priorities(self, by_priority: [ByPriority; 3]) -> Self {
        Self { by_priority, ..self }
    }

    /// The same with the depth that was found.
    #[must_use]
    pub fn with_depth(self, goal: Option<LatencyGoal>, depth: Option<u32>) -> Self {
        Self { search: goal.map(|goal| (goal, depth)), ..self }
    }
}

/// What fio says about a whole run.
#[derive(Debug, Clone, Default)]
pub struct GlobalInfo {
    /// When the first job began to be prepared, nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// When the last job was done, likewise.
    pub finished_unix_ns: u64,
    /// `global options`: those of the job file's global sections.
    pub options: Vec<(String, String)>,
    /// `json+`: with the bins of each histogram.
    pub plus: bool,
}

/// fio's JSON document. Serialises in fio's order of keys.
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    /// [`VERSION`].
    #[serde(rename = "fio version")]
    pub version: &'static str,
    /// When the output was made, seconds since 1970-01-01 UTC.
    pub timestamp: u64,
    /// Likewise in milliseconds.
    pub timestamp_ms: u64,
    /// Likewise as ctime(3) prints it, in UTC.
    pub time: String,
    /// Absent where there are none, as in fio.
    #[serde(rename = "global options", skip_serializing_if = "OrderedMap::is_empty")]
    pub global_options: OrderedMap<String>,
    /// One for each job, or for each reporting group that wants one.
    pub jobs: Vec<JobReport>,
    /// One for each block device below the targets.
    pub disk_util: Vec<DiskUtil>,
}

/// The results of a run in fio's layout.
#[must_use]
pub fn document(results: &[JobResult<'_>], info: &GlobalInfo) -> Document {
    let timestamp_ms = info.finished_unix_ns / 1_000_000;
    let entries = groups::entries(results);
    let sums: Vec<Option<RunRecord>> = entries.iter().map(|entry| groups::sum(entry)).collect();
    let reported: Vec<JobResult<'_>> = entries
        .iter()
        .zip(&sums)
        .map(|(entry, sum)| JobResult {
            record: sum.as_ref().unwrap_or(entry[0].record),
            by_priority: groups::by_priority(entry),
            ..entry[0].clone()
        })
        .collect();
    let totals = parts::group_bandwidths(&reported);
    Document {
        version: VERSION,
        timestamp: timestamp_ms / 1000,
        timestamp_ms,
        time: clock::ctime(timestamp_ms / 1000),
        global_options: OrderedMap(info.options.clone()),
        jobs: reported.iter().map(|result| parts::job(result, info, &totals)).collect(),
        disk_util: drives::disk_util(results.iter().map(|result| result.record)),
    }
}
