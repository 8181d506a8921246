//! One job's entry, and one direction's within it.

use measure::record::JobCounts;
use measure::workload::{IoEngine, LatencyClock};
use measure::{Histogram, RunRecord};
use storage::device::DeviceKind;

use super::common::{OrderedMap, Way};
use super::latency::{self, Latency};
use super::steady::SteadyState;
use super::{GlobalInfo, JobResult, samples};

/// `read`, `write` or `trim` of a job.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Direction {
    /// Bytes moved.
    pub io_bytes: u64,
    /// KiB moved.
    pub io_kbytes: u64,
    /// Bytes per second.
    pub bw_bytes: u64,
    /// KiB per second.
    pub bw: u64,
    /// Requests per second.
    pub iops: f64,
    /// Measured time, milliseconds; 0 where nothing was done.
    pub runtime: u64,
    /// Requests completed.
    pub total_ios: u64,
    /// Always 0: a short request fails the run.
    pub short_ios: u64,
    /// Always 0, likewise.
    pub drop_ios: u64,
    /// Not measured apart: `N` is 0.
    pub slat_ns: Latency,
    /// From before submission, or from the intended start under a rate, to completion.
    pub clat_ns: Latency,
    /// The same.
    pub lat_ns: Latency,
    /// By priority, where requests had several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prios: Vec<OfPriority>,
    /// Smallest sample, KiB per second.
    pub bw_min: u64,
    /// Largest sample, KiB per second.
    pub bw_max: u64,
    /// Percentage of the group's bandwidth.
    pub bw_agg: f64,
    /// Mean of the samples, KiB per second.
    pub bw_mean: f64,
    /// Their standard deviation, KiB per second.
    pub bw_dev: f64,
    /// How many there are.
    pub bw_samples: u64,
    /// Smallest sample of requests per second.
    pub iops_min: u64,
    /// Largest.
    pub iops_max: u64,
    /// Their mean.
    pub iops_mean: f64,
    /// Their standard deviation.
    pub iops_stddev: f64,
    /// How many there are.
    pub iops_samples: u64,
}

/// The requests of one priority.
#[derive(Debug, Clone, serde::Serialize)]
pub struct OfPriority {
    /// 1 real time, 2 best effort, 3 idle; 0 none.
    pub prioclass: u16,
    /// The level in it, with the hint.
    pub prio: u16,
    /// As that of all requests.
    pub clat_ns: Latency,
}

/// Syncs of a job: not counted, so 0.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Sync {
    /// Not counted: 0.
    pub total_ios: u64,
    /// Not counted: `N` is 0.
    pub lat_ns: Latency,
}

/// One entry of `jobs`.
#[derive(Debug, Clone, serde::Serialize)]
pub struct JobReport {
    /// The job's name.
    pub jobname: String,
    /// The reporting group.
    pub groupid: u32,
    /// When it started, milliseconds since 1970-01-01 UTC.
    pub job_start: u64,
    /// The first error that the job went on with; else 0, because a job that failed has no record.
    pub error: i32,
    /// Seconds left: 0.
    pub eta: u64,
    /// Seconds from the start of the whole run to the end of this job, rounded up.
    pub elapsed: u64,
    /// As written.
    #[serde(rename = "job options")]
    pub job_options: OrderedMap<String>,
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Discards.
    pub trim: Direction,
    /// Not counted.
    pub sync: Sync,
    /// Measured time, the threads' added up, milliseconds.
    pub job_runtime: u64,
    /// CPU time of the threads in user mode, percent of `job_runtime`.
    pub usr_cpu: f64,
    /// CPU time of the threads in the kernel, percent of `job_runtime`.
    pub sys_cpu: f64,
    /// Context switches of the process in the interval.
    pub ctx: u64,
    /// Major page faults of the process in the interval.
    pub majf: u64,
    /// Not counted: 0.
    pub minf: u64,
    /// Percent of requests by depth.
    pub iodepth_level: OrderedMap<f64>,
    /// Percent of submissions by size.
    pub iodepth_submit: OrderedMap<f64>,
    /// Percent of reapings by size.
    pub iodepth_complete: OrderedMap<f64>,
    /// Percent of requests by latency, below a microsecond.
    pub latency_ns: OrderedMap<f64>,
    /// Below a millisecond.
    pub latency_us: OrderedMap<f64>,
    /// The rest.
    pub latency_ms: OrderedMap<f64>,
    /// The depth; where it was searched, the one that was found.
    pub latency_depth: u32,
    /// Nanoseconds; 0 where there is none.
    pub latency_target: u64,
    /// The same, under the name that later versions have for it.
    pub latency_target_ns: u64,
    /// How many requests may take no longer; fio's default where there is no target.
    pub latency_percentile: f64,
    /// Microseconds; 0 where there is no target.
    pub latency_window: u64,
    /// The same.
    pub latency_window_us: u64,
    /// How many requests failed, of a job that goes on with that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_err: Option<u64>,
    /// The error of the first of them; 0 where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<i32>,
    /// Where the job was to end once it was steady.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steadystate: Option<SteadyState>,
    /// The description, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desc: Option<String>,
}

/// Bytes and requests per second of one direction: its share of the record's rates, so that all three
/// together are what `--json` prints.
fn rates(record: &RunRecord, way: Way) -> (f64, f64) {
    let counts = way.of(record);
    let share = |part: u64, all: u64, rate: f64, fallback: f64| match (part, all) {
        (0, _) | (_, 0) => 0.0,
        _ if rate > 0.0 => rate * (part as f64 / all as f64),
        _ => fallback,
    };
    let per_second = |n: u64| {
        if record.interval_ns == 0 { 0.0 } else { n as f64 * 1e9 / record.interval_ns as f64 }
    };
    (
        share(counts.bytes, record.bytes(), record.bandwidth_bytes_per_s(), per_second(counts.bytes)),
        share(counts.ios, record.ios(), record.iops(), per_second(counts.ios)),
    )
}

/// Bandwidth of each group and direction, KiB per second.
pub(super) fn group_bandwidths(results: &[JobResult<'_>]) -> Vec<(u32, [f64; 3])> {
    let mut groups: Vec<(u32, [f64; 3])> = Vec::new();
    for result in results {
        let own = Way::ALL.map(|way| rates(result.record, way).0 / 1024.0);
        match groups.iter_mut().find(|(id, _)| *id == result.group_id) {
            Some((_, sum)) => sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own),
            None => groups.push((result.group_id, own)),
        }
    }
    groups
}

fn direction(result: &JobResult<'_>, way: Way, group_kib: f64, plus: bool) -> Direction {
    let record = result.record;
    let counts = way.of(record);
    let reporting = &result.reporting;
    let (bytes_per_s, iops) = rates(record, way);
    let (bandwidth_samples, iops_samples) = samples::series(record, way);
    let latency = |spelled_out: bool| {
        if spelled_out {
            latency::full(&counts.latency, &reporting.percentile_list, plus)
        } else {
            latency::moments(&counts.latency)
        }
    };
    let of_priority = |(priority, histogram): (&u16, &Histogram)| OfPriority {
        prioclass: priority >> 13,
        prio: priority & 0x1fff,
        clat_ns: latency::full(histogram, &reporting.percentile_list, plus),
    };
    // As in fio, one priority says no more than all requests do.
    let prios = result.by_priority[way as usize].iter().map(of_priority);
    let prios = if prios.len() > 1 { prios.collect() } else { Vec::new() };
    let aggregate = if bandwidth_samples.samples > 0 && group_kib > 0.0 {
        (bandwidth_samples.mean * 100.0 / group_kib).min(100.0)
    } else {
        0.0
    };
    Direction {
        io_bytes: counts.bytes,
        io_kbytes: counts.bytes / 1024,
        bw_bytes: bytes_per_s as u64,
        bw: (bytes_per_s / 1024.0) as u64,
        iops,
        runtime: if counts.ios == 0 { 0 } else { milliseconds(record.interval_ns) },
        total_ios: counts.ios,
        short_ios: 0,
        drop_ios: 0,
        slat_ns: Latency::default(),
        clat_ns: latency(reporting.clat_percentiles),
        lat_ns: latency(reporting.lat_percentiles),
        prios,
        bw_min: bandwidth_samples.min,
        bw_max: bandwidth_samples.max,
        bw_agg: aggregate,
        bw_mean: bandwidth_samples.mean,
        bw_dev: bandwidth_samples.stddev,
        bw_samples: bandwidth_samples.samples,
        iops_min: iops_samples.min,
        iops_max: iops_samples.max,
        iops_mean: iops_samples.mean,
        iops_stddev: iops_samples.stddev,
        iops_samples: iops_samples.samples,
    }
}

pub(super) fn job(result: &JobResult<'_>, info: &GlobalInfo, groups: &[(u32, [f64; 3])]) -> JobReport {
    let record = result.record;
    let group = groups.iter().find(|(id, _)| *id == result.group_id).map_or([0.0; 3], |(_, sum)| *sum);
    let way = |way: Way, index: usize| direction(result, way, group[index], info.plus);
    let (runtime_ns, user_ns, system_ns) = threads(record);
    let [level, submit, complete] = depths(record, result.search.is_some());
    let (goal, depth) = result.search.unzip();
    let target_ns = goal.map_or(0, |goal| goal.target.as_nanos() as u64);
    let window_us = goal.map_or(0, |goal| goal.window.as_micros() as u64);
    let [latency_ns, latency_us, latency_ms] = latency::coarse(&record.latency());
    let first_error = result.is_tolerant.then(|| record.failed.first().map_or(0, |kind| kind.errno));
    let length_ns = record.ramp_ns.saturating_add(record.interval_ns).saturating_add(record.tail_ns);
    let ended_ns = record.started_unix_ns.saturating_add(length_ns);
    JobReport {
        jobname: result.name.clone(),
        groupid: result.group_id,
        job_start: milliseconds(record.started_unix_ns),
        error: first_error.unwrap_or(0),
        eta: 0,
        elapsed: ended_ns.saturating_sub(info.started_unix_ns).div_ceil(1_000_000_000),
        job_options: OrderedMap(result.options.clone()),
        read: way(Way::Read, 0),
        write: way(Way::Write, 1),
        trim: way(Way::Trim, 2),
        sync: Sync::default(),
        job_runtime: milliseconds(runtime_ns),
        usr_cpu: latency::percent(user_ns, runtime_ns),
        sys_cpu: latency::percent(system_ns, runtime_ns),
        ctx: record.process.voluntary_context_switches + record.process.involuntary_context_switches,
        majf: record.process.major_faults,
        minf: 0,
        iodepth_level: level,
        iodepth_submit: submit,
        iodepth_complete: complete,
        latency_ns,
        latency_us,
        latency_ms,
        // Where none was found there is none.
        latency_depth: depth.map_or(record.workload.iodepth, Option::unwrap_or_default),
        latency_target: target_ns,
        latency_target_ns: target_ns,
        latency_percentile: goal.map_or(100.0, |goal| goal.percentile),
        latency_window: window_us,
        latency_window_us: window_us,
        total_err: first_error.map(|_| record.failed.iter().map(|kind| kind.count).sum()),
        first_error,
        steadystate: result.steadiness.map(SteadyState::of),
        desc: result.description.clone(),
    }
}

fn milliseconds(ns: u64) -> u64 {
    (ns + 500_000) / 1_000_000
}

/// Measured time and CPU times of all threads, nanoseconds.
fn threads(record: &RunRecord) -> (u64, u64, u64) {
    let sum = |of: fn(&JobCounts) -> u64| record.jobs.iter().map(of).sum::<u64>();
    if record.jobs.is_empty() {
        return (record.interval_ns, 0, 0);
    }
    (sum(|job| job.interval_ns), sum(|job| job.user_ns), sum(|job| job.system_ns))
}

/// `iodepth_level`, `iodepth_submit`, `iodepth_complete`, as far as the workload settles them.
///
/// In a closed loop that waits for one completion at a time the queue is full throughout the interval,
/// so every request met the depth asked for. How many requests one call submitted or reaped is not
/// recorded; it is known where it cannot have been more than four, which is fio's smallest class. What
/// is not known is left at 0 in all classes.
fn depths(record: &RunRecord, is_searched: bool) -> [OrderedMap<f64>; 3] {
    let workload = &record.workload;
    let any = record.ios() > 0;
    // Operations, and loads and stores, are done when they have been handed over, and only then are others.
    let is_engine = |has: fn(IoEngine) -> bool| record.engine.engine().is_some_and(has);
    let is_one_by_one =
        record.target.kind == DeviceKind::Operations.word() || is_engine(IoEngine::is_mapping);
    let depth = match is_one_by_one {
        true => workload.iodepth_batch.clamp(1, workload.iodepth),
        false => workload.iodepth,
    };
    // One request a call, by the clock that was asked for or by the system call itself.
    let is_synchronous = is_engine(IoEngine::is_synchronous);
    let each = record.engine.latency_clock == LatencyClock::Each || is_synchronous;
    let waits_for_one = workload.iodepth_batch_complete_min <= 1;
    let is_full = !is_searched && !workload.is_open_loop() && !workload.rests() && waits_for_one;
    let level = (any && is_full && depth > 0).then(|| (depth.ilog2() as usize).min(6));
    let batch = if workload.iodepth_batch == 0 { depth } else { workload.iodepth_batch.min(depth) };
    let submit = (any && (each || batch <= 4)).then_some(1);
    let complete = (any && (depth <= 4 || is_synchronous)).then_some(1);
    let classes = |names: [&str; 7], class: Option<usize>| {
        let percent = |index| if class == Some(index) { 100.0 } else { 0.0 };
        OrderedMap(names.iter().enumerate().map(|(i, name)| ((*name).to_owned(), percent(i))).collect())
    };
    let sizes = ["0", "4", "8", "16", "32", "64", ">=64"];
    [
        classes(["1", "2", "4", "8", "16", "32", ">=64"], level),
        classes(sizes, submit),
        classes(sizes, complete),
    ]
}
