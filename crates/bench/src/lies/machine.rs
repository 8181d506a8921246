//! Was the machine that made the requests the limit, or was it disturbed?

use std::collections::BTreeSet;

use measure::limit::no_cpu_left;
use measure::record::{CpuCounts, JobCounts, RunRecord};
use measure::workload::IoEngine;
use measure::{Warning, WarningCode};

use super::device::REQUEST_TOLERANCE;
use super::{Evidence, about};
use crate::observe::idle::IdleState;

/// A thread that is this busy has no time left to wait for the drive.
const BUSY_LIMIT: f64 = 0.95;
/// Of a shorter interval the CPU time of the process says nothing.
const SHORTEST_PROCESS_NS: u64 = 10_000_000;
/// Part of a request's time on the way to psync's threads and back. A drive of 80 µs and a queue of 10 µs come to 11 %.
const HAND_OVER_LIMIT: f64 = 0.5;
/// Part of a thread's time that making the requests takes by itself: half of a figure is the drive's then.
pub(crate) const GENERATOR_LIMIT: f64 = 0.5;
/// A CPU that is idle for a smaller part of the time is awake when most completions come.
const MOSTLY_IDLE: f64 = 0.5;
/// Part of a request's time by which waking up would change it: as much as settings may differ in.
const EXIT_SHARE_LIMIT: f64 = 0.1;
/// Part of the CPUs' time given to others by the hypervisor, over all CPUs.
const STEAL_LIMIT: f64 = 0.02;
/// The same on one CPU: a job that is bound to it loses as much.
pub(crate) const STEAL_LIMIT_ONE_CPU: f64 = 0.05;
/// `/proc/stat` ticks every 10 ms and rounds; fewer ticks than three are no finding.
pub(crate) const STEAL_FLOOR_MS: u64 = 30;

/// `W-CPU-BOUND`, `W-GENERATOR`, `W-STEAL`, `W-GOVERNOR`, `W-IDLE-STATES`, `W-NUMA`.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Vec<Warning> {
    [
        cpu_bound(evidence),
        generator(evidence),
        steal(evidence),
        governor(evidence),
        idle_states(evidence),
        numa(evidence),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Each job's thread by itself; the process against all CPUs; and of psync, whose threads wait for each other, the way to
/// them.
///
/// A thread that polls is busy by design, so with `hipri` in use nothing follows from it.
fn cpu_bound(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let polls = record.workload.hipri && super::device::poll_unavailable(evidence).is_none();
    if polls || record.interval_ns == 0 {
        return None;
    }
    // A job's time is that of the thread that makes its requests. psync's threads above depth 1 are in the process's.
    let bound = record.jobs.iter().filter(|job| job.busy() >= BUSY_LIMIT).count();
    let worst = record.jobs.iter().map(JobCounts::busy).fold(0.0, f64::max);
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
    // The process's time is read where the counters are, a moment beside the interval. Beside a very short one there is more
    // than in it.
    let seen_ns = evidence.observed.window_ns.max(record.interval_ns);
    let process = (record.process.user_ns + record.process.system_ns) as f64 / seen_ns as f64;
    if record.interval_ns >= SHORTEST_PROCESS_NS && process >= BUSY_LIMIT * cpus {
        let share = units::percent(process / cpus);
        let message = format!("the jobs together used {share} of all {cpus} CPUs (limit {limit})");
        return Some(Warning::new(WarningCode::CpuBound, message));
    }
    hand_over_bound(evidence).map(|message| Warning::new(WarningCode::CpuBound, message))
}

/// Above depth 1 psync hands each request to a thread, through a queue with a lock, and takes it back the same way. No
/// thread need be busy for that to be the limit: they wait for the lock, and to be woken. It shows where a request takes
/// much longer than it was in the drive.
///
/// Time outside the drive is not psync's where something else holds a request back before the drive's counters see it: a
/// queue of the drive that takes fewer requests, or parts of requests, than are in flight; a control group's limit; CPUs
/// without time for any thread; and an open loop, whose latency counts from when a request was due.
fn hand_over_bound(evidence: &Evidence<'_>) -> Option<String> {
    let record = evidence.record;
    if record.engine.engine() != Some(IoEngine::Psync)
        || record.workload.iodepth < 2
        || !record.workload.direct
    {
        return None;
    }
    if record.workload.is_open_loop() || !record.bounds.throttles.is_empty() || no_cpu_left(record).is_some()
    {
        return None;
    }
    let mut top = evidence.stack.top();
    let layer = top.next().filter(|_| top.next().is_none())?;
    let room = layer.device.queue.as_ref().and_then(|queue| queue.nr_requests)?;
    let counts = evidence.observed.counted(layer)?;
    let done = counts.read_ios + counts.write_ios;
    if done == 0 || counts.in_flight_ms == 0 {
        return None;
    }
    let made = evidence.asked(&record.read)?.most_ios + evidence.asked(&record.write)?.most_ios;
    let parts = (done as f64 / (made * (1.0 + REQUEST_TOLERANCE))).ceil().max(1.0);
    if evidence.in_flight() as f64 * parts > room as f64 {
        return None;
    }
    let in_drive_ns = counts.in_flight_ms as f64 * 1e6 / done as f64;
    let whole_ns = record.latency().mean();
    let elsewhere = 1.0 - in_drive_ns / whole_ns;
    (elsewhere >= HAND_OVER_LIMIT).then(|| {
        format!(
            "a request took {}, of which {} in {}: psync's queue of threads took {} (limit {})",
            units::nanoseconds(whole_ns),
            units::nanoseconds(in_drive_ns),
            layer.name(),
            units::percent(elsewhere),
            units::percent(HAND_OVER_LIMIT),
        )
    })
}

/// The job that came nearest to what a thread makes of its shape where a device answers at once.
///
/// A thread need not be busy all the time for that: at depth 1 it makes a request, sleeps, and makes the next one, and each request is
/// longer by what making it took.
fn generator(evidence: &Evidence<'_>) -> Option<Warning> {
    let most = evidence.observed.generator_iops.filter(|most| *most > 0.0)?;
    let fastest = evidence.record.jobs.iter().map(JobCounts::iops).max_by(f64::total_cmp)?;
    let share = fastest / most;
    // A job that outran its calibration shows that the machine was disturbed while it was made: nothing is known then.
    (GENERATOR_LIMIT..=1.0).contains(&share).then(|| {
        let message = format!(
            "a job made {}; where a device answers at once this machine makes {} of this depth and size, so {} of the job's \
             time went into making requests (limit {})",
            units::iops(fastest),
            units::iops(most),
            units::percent(share),
            units::percent(GENERATOR_LIMIT),
        );
        Warning::new(WarningCode::Generator, message)
    })
}

fn steal(evidence: &Evidence<'_>) -> Option<Warning> {
    let cpus = &evidence.record.cpus;
    let (stolen, all): (u64, u64) =
        (cpus.iter().map(|c| c.steal_ms).sum(), cpus.iter().map(CpuCounts::time_ms).sum());
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
        .find(|c| c.steal_ms >= STEAL_FLOOR_MS && ratio(c.steal_ms, c.time_ms()) >= STEAL_LIMIT_ONE_CPU)?;
    let message = format!(
        "{} ms of {} ms of CPU {}, which ran a job, were stolen (limit {})",
        worst.steal_ms,
        worst.time_ms(),
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

/// A CPU that is mostly idle sleeps between completions, and the time that it takes to wake up is in each latency. It enters
/// no state whose target residency is longer than it has nothing to do, which is at most as long as a request takes. Without
/// a drive below, no completion wakes a CPU.
fn idle_states(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    evidence.stack.drives().next()?;
    let request_ns = record.latency().mean();
    let is_entered = |state: &&IdleState| state.residency_us as f64 * 1e3 <= request_ns;
    let entered = evidence.observed.idle_states.iter().filter(is_entered);
    let state = entered.max_by_key(|state| state.exit_latency_us)?;
    let exit_ns = state.exit_latency_us as f64 * 1e3;
    let sleeps = !record.workload.hipri && idle_of_a_jobs_cpus(record)? >= MOSTLY_IDLE;
    (sleeps && request_ns > 0.0 && exit_ns >= EXIT_SHARE_LIMIT * request_ns).then(|| {
        let message = format!(
            "CPUs may sleep in {}, which they leave in {}; a request took {} (limit {} of it)",
            state.name,
            units::nanoseconds(exit_ns),
            units::nanoseconds(request_ns),
            units::percent(EXIT_SHARE_LIMIT),
        );
        Warning::new(WarningCode::IdleStates, message)
    })
}

/// Idle part of the time of the CPUs that a job ran on, of the job for which it is largest. A job that is not bound and was
/// not seen on any CPU may have run on all. None where no CPU was counted.
fn idle_of_a_jobs_cpus(record: &RunRecord) -> Option<f64> {
    let idle_of = |job: &JobCounts| {
        let ran_on = |cpu: &&CpuCounts| match job.cpu {
            Some(bound) => cpu.cpu == bound,
            None => job.seen_on.is_empty() || job.seen_on.contains(&cpu.cpu),
        };
        let cpus = || record.cpus.iter().filter(ran_on);
        let all: u64 = cpus().map(CpuCounts::time_ms).sum();
        (all > 0).then(|| cpus().map(|cpu| cpu.idle_ms).sum::<u64>() as f64 / all as f64)
    };
    record.jobs.iter().filter_map(idle_of).max_by(f64::total_cmp)
}

/// The CPUs that jobs were bound to, by number or by node, and those on which the others were seen. Of drives, those whose
/// node is known.
fn numa(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let of_nodes = |(cpu, node): (&u32, &u32)| {
        let nodes = record.workload.numa_cpu_nodes.as_ref()?;
        nodes.numbers().contains(node).then_some(*cpu)
    };
    let mut jobs_on: BTreeSet<u32> = evidence.stack.node_of_cpu.iter().filter_map(of_nodes).collect();
    for job in &record.jobs {
        match job.cpu {
            Some(bound) => jobs_on.extend([bound]),
            None => jobs_on.extend(&job.seen_on),
        }
    }
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
