//! Was the machine that made the requests the limit, or was it disturbed?

use std::collections::BTreeSet;

use measure::record::JobCounts;
use measure::{Warning, WarningCode};

use super::{Evidence, about};

/// A thread that is this busy has no time left to wait for the drive.
const BUSY_LIMIT: f64 = 0.95;
/// Part of the CPUs' time given to others by the hypervisor, over all CPUs.
const STEAL_LIMIT: f64 = 0.02;
/// The same on one CPU: a job that is bound to it loses as much.
pub(crate) const STEAL_LIMIT_ONE_CPU: f64 = 0.05;
/// `/proc/stat` ticks every 10 ms and rounds; fewer ticks than three are no finding.
pub(crate) const STEAL_FLOOR_MS: u64 = 30;

/// `W-CPU-BOUND`, `W-STEAL`, `W-GOVERNOR`, `W-NUMA`.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Vec<Warning> {
    [cpu_bound(evidence), steal(evidence), governor(evidence), numa(evidence)].into_iter().flatten().collect()
}

/// Busy time of a job over its interval: CPUs' worth, so 1 is one thread that never slept.
fn busy(job: &JobCounts) -> f64 {
    if job.interval_ns == 0 { 0.0 } else { (job.user_ns + job.system_ns) as f64 / job.interval_ns as f64 }
}

/// Each job by itself; and, since psync divides a job over many threads, the process against all CPUs.
///
/// A thread that polls is busy by design, so with `hipri` in use nothing follows from it.
fn cpu_bound(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let polls = record.workload.hipri && super::device::poll_unavailable(evidence).is_none();
    if polls || record.interval_ns == 0 {
        return None;
    }
    // psync has a thread for each unit of depth, and a job's time is the sum of theirs.
    let threads =
        |place| if record.engine.used == "psync" { f64::from(record.depth_of_job(place)) } else { 1.0 };
    let of_its_threads: Vec<f64> =
        record.jobs.iter().enumerate().map(|(place, job)| busy(job) / threads(place)).collect();
    let bound = of_its_threads.iter().filter(|busy| **busy >= BUSY_LIMIT).count();
    let worst = of_its_threads.iter().copied().fold(0.0, f64::max);
    let limit = units::percent(BUSY_LIMIT);
    if bound > 0 {
        let message = format!(
            "{bound} of {} jobs kept their threads at least {limit} busy; the busiest {}",
            record.jobs.len(),
            units::percent(worst),
        );
        return Some(Warning::new(WarningCode::CpuBound, message));
    }
    let cpus = f64::from(record.host.cpus.max(1));
    let process = (record.process.user_ns + record.process.system_ns) as f64 / record.interval_ns as f64;
    (process >= BUSY_LIMIT * cpus).then(|| {
        let share = units::percent(process / cpus);
        let message = format!("the jobs together used {share} of all {cpus} CPUs (limit {limit})");
        Warning::new(WarningCode::CpuBound, message)
    })
}

fn steal(evidence: &Evidence<'_>) -> Option<Warning> {
    let cpus = &evidence.record.cpus;
    let time = |c: &measure::record::CpuCounts| c.user_ms + c.system_ms + c.irq_ms + c.idle_ms + c.steal_ms;
    let (stolen, all): (u64, u64) = (cpus.iter().map(|c| c.steal_ms).sum(), cpus.iter().map(time).sum());
    let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    if stolen >= STEAL_FLOOR_MS && ratio(stolen, all) >= STEAL_LIMIT {
        let message = format!(
            "{stolen} ms of {all} ms of CPU time were stolen ({}; limit {})",
            units::percent(ratio(stolen, all)),
            units::percent(STEAL_LIMIT),
        );
        return Some(Warning::new(WarningCode::Steal, message));
    }
    let jobs_on: BTreeSet<u32> = evidence.record.jobs.iter().filter_map(|job| job.cpu).collect();
    let worst = cpus
        .iter()
        .filter(|c| jobs_on.contains(&c.cpu))
        .find(|c| c.steal_ms >= STEAL_FLOOR_MS && ratio(c.steal_ms, time(c)) >= STEAL_LIMIT_ONE_CPU)?;
    let message = format!(
        "{} ms of {} ms of CPU {}, which ran a job, were stolen (limit {})",
        worst.steal_ms,
        time(worst),
        worst.cpu,
        units::percent(STEAL_LIMIT_ONE_CPU),
    );
    Some(Warning::new(WarningCode::Steal, message))
}

/// A machine without frequency scaling, or without a word about it, has no governor to warn of.
fn governor(evidence: &Evidence<'_>) -> Option<Warning> {
    let governor = evidence.record.host.governor.as_deref().filter(|governor| *governor != "performance")?;
    Some(Warning::new(WarningCode::Governor, format!("the frequency governor is {governor}")))
}

/// Only jobs that were bound to a CPU and drives whose node is known can be told apart.
fn numa(evidence: &Evidence<'_>) -> Option<Warning> {
    let jobs_on: BTreeSet<u32> = evidence.record.jobs.iter().filter_map(|job| job.cpu).collect();
    let findings: Vec<String> = evidence
        .stack
        .drives()
        .filter_map(|drive| {
            let node = drive.device.numa_node?;
            let far = |cpu: &&u32| evidence.stack.node_of_cpu.get(cpu).is_some_and(|of| *of != node);
            let cpus: Vec<String> = jobs_on.iter().filter(far).map(u32::to_string).collect();
            (!cpus.is_empty()).then(|| {
                format!(
                    "{} is on node {node}, but jobs ran on CPU {} of another node",
                    drive.name(),
                    cpus.join(", ")
                )
            })
        })
        .collect();
    about(WarningCode::Numa, &findings)
}
