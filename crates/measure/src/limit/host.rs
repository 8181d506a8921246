//! The side that makes the requests: the rate asked for, the threads, the CPUs.

use super::evidence::{Seen, ratio};
use super::{Finding, Limit};
use crate::WarningCode;
use crate::record::{CpuCounts, JobCounts};

/// A CPU or thread that is this busy has no time left.
const FULL: f64 = 0.95;
/// The other CPUs together are this busy at most, or it is not one CPU that limits.
const OTHERS: f64 = 0.80;
/// Part of the drives' interrupts that come to one CPU where they are not spread.
const MOST_INTERRUPTS: f64 = 0.80;
/// Fewer interrupts than these a second do not fill a CPU: at 1 to 5 µs each, half a percent at most.
const LEAST_INTERRUPTS_PER_S: f64 = 1000.0;
/// Part of the CPU's time in the kernel and its interrupts; otherwise it is busy with somebody's program.
const IN_KERNEL: f64 = 0.50;
/// Part of the CPU's time in interrupts by which they take away from a thread that runs on it.
const IN_INTERRUPTS: f64 = 0.20;
/// Part of the interval that the jobs on one CPU must have run to fill it.
const JOBS_FILL: f64 = 0.70;
/// Fewer ticks than these of 10 ms give no figure of a CPU.
const LEAST_TICKS_MS: u64 = 200;

/// An open loop that kept its rate.
pub(super) fn rate(seen: &Seen<'_>) -> Option<Finding> {
    let record = seen.record;
    if record.has_warning(WarningCode::RateMissed) {
        return None;
    }
    let jobs = f64::from(record.workload.numjobs);
    let (asked, done, figure): (f64, f64, fn(f64) -> String) =
        match (record.workload.rate_iops, record.workload.rate) {
            (Some(iops), _) => (iops as f64 * jobs, record.iops(), units::iops),
            (None, Some(bytes)) => (bytes as f64 * jobs, record.bandwidth_bytes_per_s(), units::bandwidth),
            (None, None) => return None,
        };
    let evidence =
        format!("{} of {} asked for ({})", figure(done), figure(asked), units::percent(ratio(done, asked)));
    Some(Finding::new(Limit::Rate, evidence))
}

/// Part of a CPU's time that was not idle: what the hypervisor took was no time to work in either.
fn used(cpu: &CpuCounts) -> f64 {
    ratio((cpu.time_ms() - cpu.idle_ms) as f64, cpu.time_ms() as f64)
}

/// One CPU without idle time to which the drives' interrupts, or all jobs, come.
pub(super) fn one_cpu(seen: &Seen<'_>) -> Option<Finding> {
    let cpus = &seen.record.cpus;
    if cpus.len() < 2 || cpus.iter().any(|cpu| cpu.time_ms() < LEAST_TICKS_MS) {
        return None;
    }
    let full = cpus.iter().max_by(|a, b| used(a).total_cmp(&used(b)))?;
    let others = cpus.iter().filter(|cpu| cpu.cpu != full.cpu);
    let others = ratio(others.map(used).sum(), (cpus.len() - 1) as f64);
    if used(full) < FULL || others > OTHERS {
        return None;
    }
    let why = interrupts(seen, full).or_else(|| submissions(seen, full))?;
    let evidence = format!(
        "CPU {} was {} busy (limit {}), the other {} {} on average, and {why}",
        full.cpu,
        units::percent(used(full)),
        units::percent(FULL),
        cpus.len() - 1,
        units::percent(others),
    );
    Some(Finding::new(Limit::OneCpu, evidence))
}

/// Whether the CPU is full because the drives' interrupts come to it: it takes most of them, works mostly
/// in the kernel, and either they take a good part of its time, or no thread of ours accounts for it.
fn interrupts(seen: &Seen<'_>, cpu: &CpuCounts) -> Option<String> {
    let count =
        |of: fn(&CpuCounts) -> u64| (of(cpu) as f64, seen.record.cpus.iter().map(of).sum::<u64>() as f64);
    let hard = count(|c| c.drive_interrupts);
    let soft = count(|c| c.block_softirqs);
    let enough = |(_, all): (f64, f64)| ratio(all, seen.window_s) >= LEAST_INTERRUPTS_PER_S;
    let ((own, all), what) = match (enough(hard), enough(soft)) {
        (true, _) => (hard, "the drives' interrupts"),
        (false, true) => (soft, "the block layer's soft interrupts"),
        (false, false) => return None,
    };
    let all_time = cpu.time_ms() as f64;
    let in_kernel = ratio((cpu.system_ms + cpu.irq_ms) as f64, all_time);
    let in_interrupts = ratio(cpu.irq_ms as f64, all_time);
    let ours = seen.record.jobs.iter().any(|job| job.busy() >= FULL);
    let fills = in_interrupts >= IN_INTERRUPTS || (in_kernel >= IN_KERNEL && !ours);
    (ratio(own, all) >= MOST_INTERRUPTS && fills).then(|| {
        format!(
            "took {} of {what} (limit {}), which came {} a second",
            units::percent(ratio(own, all)),
            units::percent(MOST_INTERRUPTS),
            units::count(ratio(all, seen.window_s)),
        )
    })
}

/// Whether all of several jobs run on this CPU and fill it.
fn submissions(seen: &Seen<'_>, cpu: &CpuCounts) -> Option<String> {
    let jobs = &seen.record.jobs;
    let here = |job: &JobCounts| match (job.cpu, job.seen_on.as_slice()) {
        (Some(bound), _) => bound == cpu.cpu,
        (None, []) => false,
        (None, seen_on) => seen_on.iter().all(|on| *on == cpu.cpu),
    };
    let filled: f64 = jobs.iter().map(JobCounts::busy).sum();
    (jobs.len() > 1 && !seen.polls() && jobs.iter().all(here) && filled >= JOBS_FILL).then(|| {
        format!("all {} jobs ran on it and took {} of its time", jobs.len(), units::percent(filled.min(1.0)))
    })
}

/// Threads without time left: at least half of the jobs, or the process on all CPUs. A thread that polls
/// is busy by design.
pub(super) fn load_generator(seen: &Seen<'_>) -> Option<Finding> {
    let record = seen.record;
    if seen.polls() || record.interval_ns == 0 || record.jobs.is_empty() {
        return None;
    }
    // A job's time is that of the thread that makes its requests; psync's threads above depth 1 are in the process's.
    let full = record.jobs.iter().filter(|job| job.busy() >= FULL).count();
    let jobs = record.jobs.len();
    if full * 2 >= jobs {
        let mean = ratio(record.jobs.iter().map(JobCounts::busy).sum(), jobs as f64);
        let whose = if jobs == 1 {
            "the job's thread was".to_owned()
        } else {
            format!("{full} of {jobs} jobs' threads were")
        };
        let evidence = format!(
            "{whose} without idle time ({} busy on average; limit {})",
            units::percent(mean),
            units::percent(FULL)
        );
        return Some(Finding::new(Limit::LoadGenerator, evidence));
    }
    let cpus = f64::from(record.host.cpus.max(1));
    let process = (record.process.user_ns + record.process.system_ns) as f64 / record.interval_ns as f64;
    (process >= FULL * cpus).then(|| {
        let share = units::percent(process / cpus);
        let evidence =
            format!("the jobs together used {share} of all {cpus} CPUs (limit {})", units::percent(FULL));
        Finding::new(Limit::LoadGenerator, evidence)
    })
}

/// How busy all CPUs together were, where that leaves no time for anybody.
pub(super) fn no_cpu_left(seen: &Seen<'_>) -> Option<f64> {
    let cpus = &seen.record.cpus;
    let mean = ratio(cpus.iter().map(used).sum(), cpus.len() as f64);
    (mean >= FULL && !seen.polls()).then_some(mean)
}
