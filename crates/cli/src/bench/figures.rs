//! The result of `bench` for programs: `flashwright.bench/1`.
//!
//! Every figure here is derived from the records beside it and from nothing else.

use measure::record::{EngineFacts, LatencySummary};
use measure::remedy::OptionsBy;
use measure::warning::Severity;
use measure::{Histogram, RunRecord, Warning, WarningCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run::{Done, Run};

/// The name of the format.
pub const SCHEMA: &str = "flashwright.bench/1";

/// What a bench came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchReport {
    /// `flashwright.bench/1`.
    pub schema: String,
    /// Whether it was stopped before its end; the figures are then of the time before.
    pub interrupted: bool,
    /// All jobs together. Jobs that ran at the same time add up; of groups that ran one after the other
    /// it is the mean over the time that each took.
    #[serde(flatten)]
    pub figures: Figures,
    /// The warnings of all jobs, each code once.
    pub warnings: Vec<BenchWarning>,
    /// The whole record, where one job ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<RunRecord>,
    /// Each job, where several ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<BenchJob>,
}

/// One of several jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchJob {
    /// Its name.
    pub name: String,
    /// Its group, from 0: jobs of one group ran at the same time.
    pub group: usize,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Its warnings.
    pub warnings: Vec<BenchWarning>,
    /// Its whole record.
    pub record: RunRecord,
}

/// The figures that programs ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Requests completed a second.
    pub iops: f64,
    /// Bytes moved a second.
    pub bandwidth_bytes_per_s: f64,
    /// Requests completed in the measured interval.
    pub ios: u64,
    /// Bytes moved in it.
    pub bytes: u64,
    /// Length of the measured interval, nanoseconds.
    pub interval_ns: u64,
    /// Latency of all requests, nanoseconds.
    pub latency_ns: LatencySummary,
    /// The reads among them.
    pub read: Option<DirectionFigures>,
    /// The writes among them.
    pub write: Option<DirectionFigures>,
    /// The discards among them.
    pub trim: Option<DirectionFigures>,
    /// CPU time of this process for each request.
    pub cpu_ns_per_io: CpuPerIo,
    /// How requests were made.
    pub engine: EngineFacts,
}

/// The figures of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionFigures {
    /// Requests completed a second.
    pub iops: f64,
    /// Bytes moved a second.
    pub bandwidth_bytes_per_s: f64,
    /// Requests completed in the measured interval.
    pub ios: u64,
    /// Bytes moved in it.
    pub bytes: u64,
    /// Latency, nanoseconds.
    pub latency_ns: LatencySummary,
}

/// CPU time for each request, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuPerIo {
    /// In user mode.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
}

/// A warning with what to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchWarning {
    /// The stable code.
    pub code: WarningCode,
    /// What it does to the figure.
    pub severity: Severity,
    /// What was seen.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl BenchWarning {
    /// A warning with what its code means.
    pub fn of(warning: &Warning) -> Self {
        let explanation = warning.code.explain();
        Self {
            code: warning.code,
            severity: explanation.severity,
            message: warning.message.clone(),
            remedy: explanation.remedy.to_owned(),
        }
    }

    /// A warning of this run, with what to do beyond what the run does already.
    fn in_run(warning: &Warning, record: &RunRecord, by: OptionsBy) -> Self {
        Self { remedy: warning.code.remedy_by(record, by), ..Self::of(warning) }
    }
}

impl BenchReport {
    /// The document of a run in which at least one job ran.
    pub fn new(run: &Run<'_>) -> Self {
        let single = run.done.len() == 1;
        Self {
            schema: SCHEMA.to_owned(),
            interrupted: run.interrupted,
            figures: Figures::of_all(&run.done),
            warnings: warnings_of(&run.done),
            record: run.done.first().filter(|_| single).map(|done| done.record.clone()),
            jobs: if single { Vec::new() } else { run.done.iter().map(BenchJob::new).collect() },
        }
    }
}

impl BenchJob {
    fn new(done: &Done<'_>) -> Self {
        Self {
            name: done.job.name.clone(),
            group: done.group,
            figures: Figures::of(&[&done.record]),
            warnings: warnings_of(std::slice::from_ref(done)),
            record: done.record.clone(),
        }
    }
}

impl Figures {
    /// Figures of all groups.
    pub fn of_all(done: &[Done<'_>]) -> Self {
        let last = done.iter().map(|d| d.group).max().unwrap_or(0);
        let groups: Vec<Self> = (0..=last)
            .map(|g| Self::of(&done.iter().filter(|d| d.group == g).map(|d| &d.record).collect::<Vec<_>>()))
            .collect();
        match <[Self; 1]>::try_from(groups) {
            Ok([only]) => only,
            Err(groups) => Self::one_after_the_other(&groups, done),
        }
    }

    /// Figures of jobs that ran at the same time.
    pub fn of(records: &[&RunRecord]) -> Self {
        let ios: u64 = records.iter().map(|r| r.ios()).sum();
        // Each record of a group carries the counts of the whole process.
        let process = records.first().map(|r| r.process.clone()).unwrap_or_default();
        let each = |ns: u64| if ios == 0 { 0.0 } else { ns as f64 / ios as f64 };
        let direction = |of: fn(&RunRecord) -> &measure::record::DirectionCounts| {
            let counted: Vec<(&RunRecord, _)> = records.iter().map(|r| (*r, of(r))).collect();
            DirectionFigures::of(&counted)
        };
        Self {
            iops: records.iter().map(|r| r.iops()).sum(),
            bandwidth_bytes_per_s: records.iter().map(|r| r.bandwidth_bytes_per_s()).sum(),
            ios,
            bytes: records.iter().map(|r| r.bytes()).sum(),
            interval_ns: records.iter().map(|r| r.interval_ns).max().unwrap_or(0),
            latency_ns: latency(records),
            read: direction(|r| &r.read),
            write: direction(|r| &r.write),
            trim: direction(|r| &r.trim),
            cpu_ns_per_io: CpuPerIo { user: each(process.user_ns), system: each(process.system_ns) },
            engine: records.first().map(|r| r.engine.clone()).unwrap_or_default(),
        }
    }

    fn one_after_the_other(groups: &[Self], done: &[Done<'_>]) -> Self {
        let records: Vec<&RunRecord> = done.iter().map(|d| &d.record).collect();
        let all = Self::of(&records);
        let seconds = groups.iter().map(|g| g.interval_ns).sum::<u64>().max(1) as f64 / 1e9;
        let mean = |of: fn(&Self) -> f64| {
            groups.iter().map(|g| of(g) * (g.interval_ns as f64 / 1e9)).sum::<f64>() / seconds
        };
        let direction = |of: fn(&Self) -> Option<&DirectionFigures>, all: Option<DirectionFigures>| {
            let rate = |figure: fn(&DirectionFigures) -> f64| {
                let moved = |g: &Self| of(g).map_or(0.0, |d| figure(d) * (g.interval_ns as f64 / 1e9));
                groups.iter().map(moved).sum::<f64>() / seconds
            };
            all.map(|all| DirectionFigures {
                iops: rate(|d| d.iops),
                bandwidth_bytes_per_s: rate(|d| d.bandwidth_bytes_per_s),
                ..all
            })
        };
        let weighed = |of: fn(&CpuPerIo) -> f64| {
            groups.iter().map(|g| of(&g.cpu_ns_per_io) * g.ios as f64).sum::<f64>() / (all.ios.max(1) as f64)
        };
        Self {
            iops: mean(|g| g.iops),
            bandwidth_bytes_per_s: mean(|g| g.bandwidth_bytes_per_s),
            interval_ns: groups.iter().map(|g| g.interval_ns).sum(),
            read: direction(|g| g.read.as_ref(), all.read.clone()),
            write: direction(|g| g.write.as_ref(), all.write.clone()),
            trim: direction(|g| g.trim.as_ref(), all.trim.clone()),
            cpu_ns_per_io: CpuPerIo { user: weighed(|c| c.user), system: weighed(|c| c.system) },
            ..all
        }
    }
}

impl DirectionFigures {
    /// None where nothing went that way.
    fn of(counted: &[(&RunRecord, &measure::record::DirectionCounts)]) -> Option<Self> {
        let mut latency = Histogram::new();
        let (mut ios, mut bytes, mut iops, mut bandwidth) = (0, 0, 0.0, 0.0);
        for (record, counts) in counted {
            latency.merge(&counts.latency);
            ios += counts.ios;
            bytes += counts.bytes;
            // A direction has its share of the record's rate, which knows each job's own interval.
            iops += record.iops() * share(counts.ios, record.ios());
            bandwidth += record.bandwidth_bytes_per_s() * share(counts.bytes, record.bytes());
        }
        (ios > 0).then(|| Self {
            iops,
            bandwidth_bytes_per_s: bandwidth,
            ios,
            bytes,
            latency_ns: LatencySummary::from(&latency),
        })
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn latency(records: &[&RunRecord]) -> LatencySummary {
    let mut all = Histogram::new();
    records.iter().for_each(|r| all.merge(&r.latency()));
    LatencySummary::from(&all)
}

/// The warnings of what was done, each code once with its first message.
pub fn warnings_of(done: &[Done<'_>]) -> Vec<BenchWarning> {
    let is_job_file = done.iter().any(|done| done.job.fio.is_some());
    let by = if is_job_file { OptionsBy::JobFile } else { OptionsBy::Flags };
    warnings(done.iter().map(|done| &done.record), by)
}

/// The warnings of records, each code once with its first message.
pub fn warnings<'a>(records: impl Iterator<Item = &'a RunRecord>, by: OptionsBy) -> Vec<BenchWarning> {
    let mut all: Vec<BenchWarning> = Vec::new();
    for (record, warning) in records.flat_map(|r| r.warnings.iter().map(move |warning| (r, warning))) {
        if all.iter().all(|known| known.code != warning.code) {
            all.push(BenchWarning::in_run(warning, record, by));
        }
    }
    all.sort_by_key(|warning| (std::cmp::Reverse(warning.severity), warning.code));
    all
}
