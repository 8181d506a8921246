//! Lies about the machine that made the requests.

use measure::WarningCode::*;

use crate::case::{Case, SECOND, SECONDS, healthy};

pub(super) fn cpu_bound() -> Case {
    let mut case = healthy();
    case.record.jobs[0].system_ns = 4_600_000_000;
    case
}

#[test]
fn a_busy_thread_is_named_with_its_share() {
    let message = cpu_bound().message(CpuBound);
    assert_eq!(message, "1 of 1 jobs kept their threads at least 95.0 % busy; the busiest 98.0 %");
}

#[test]
fn psync_jobs_are_judged_by_all_their_threads_and_by_all_cpus() {
    let mut case = cpu_bound();
    case.record.engine.used = "psync".into();
    assert_eq!(case.codes(), [], "98 % of one CPU over 32 threads is idle");
    case.record.process.system_ns = 2 * SECONDS * SECOND;
    assert_eq!(case.codes(), [CpuBound]);
}

pub(super) fn stolen() -> Case {
    let mut case = healthy();
    case.record.cpus[0].steal_ms = 500;
    case.record.cpus[0].idle_ms -= 500;
    case
}

#[test]
fn two_ticks_of_steal_are_noise_and_the_jobs_own_cpu_counts_more() {
    let mut case = healthy();
    case.record.cpus.iter_mut().for_each(|cpu| cpu.idle_ms = 0);
    case.record.cpus[0].steal_ms = 20;
    assert_eq!(case.codes(), []);
    let mut case = healthy();
    for n in 2..64 {
        let idle = measure::record::CpuCounts { cpu: n, idle_ms: 5000, ..Default::default() };
        case.record.cpus.push(idle);
    }
    case.record.cpus[0].steal_ms = 400;
    assert_eq!(case.codes(), [Steal], "little of 64 CPUs, much of the one that ran the job");
}

pub(super) fn governor() -> Case {
    let mut case = healthy();
    case.record.host.governor = Some("schedutil".into());
    case
}

pub(super) fn far_node() -> Case {
    let mut case = healthy();
    case.record.jobs[0].cpu = Some(1);
    case
}

#[test]
fn an_unbound_job_or_an_unknown_node_is_no_finding() {
    let mut case = far_node();
    case.record.jobs[0].cpu = None;
    assert_eq!(case.codes(), []);
    let mut case = far_node();
    case.drive().numa_node = None;
    assert_eq!(case.codes(), []);
}
