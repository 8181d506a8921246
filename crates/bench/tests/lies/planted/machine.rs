//! Lies about the machine that made the requests.

use measure::WarningCode::*;

use bench::observe::idle::IdleState;
use measure::record::Throttle;

use crate::case::{Case, IOPS, SECOND, SECONDS, healthy};

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
fn psync_is_bound_by_the_thread_that_hands_out_its_requests_and_by_all_cpus() {
    let mut case = cpu_bound();
    case.record.engine.used = "psync".into();
    assert_eq!(case.codes(), [CpuBound], "98 % of the thread that all requests go through");
    let mut case = healthy();
    case.record.engine.used = "psync".into();
    assert_eq!(case.codes(), []);
    case.record.process.system_ns = 2 * SECONDS * SECOND;
    assert_eq!(case.codes(), [CpuBound]);
}

#[test]
fn the_cpu_time_of_the_process_is_not_divided_by_an_interval_that_it_is_not_of() {
    let mut case = healthy();
    let busy = |case: &Case| case.codes().contains(&CpuBound);
    case.record.jobs[0].interval_ns = 500_000;
    (case.record.jobs[0].user_ns, case.record.jobs[0].system_ns) = (0, 0);
    // Starting threads and reading counters took all CPUs 4 ms, of which half a millisecond was the interval.
    case.record.process.user_ns = 0;
    (case.record.interval_ns, case.record.process.system_ns) = (500_000, 8_000_000);
    case.observed.window_ns = 4_000_000;
    assert!(!busy(&case), "{:?}", case.codes());
    // A longer one is judged by the window in which the time was read.
    (case.record.interval_ns, case.observed.window_ns) = (10_000_000, 20_000_000);
    case.record.process.system_ns = 30_000_000;
    assert!(!busy(&case), "three quarters of two CPUs: {:?}", case.codes());
    case.record.process.system_ns = 39_000_000;
    assert!(busy(&case), "{:?}", case.codes());
}

#[test]
fn requests_that_wait_for_psyncs_threads_and_not_for_the_drive_are_told() {
    let mut case = healthy();
    case.record.engine.used = "psync".into();
    for layer in &mut case.stack.layers {
        layer.device.queue.as_mut().expect("a queue").nr_requests = Some(256);
    }
    // Each request takes 160 µs: of these 20 in the drive.
    let in_drive = |case: &mut Case, us: u64| {
        for drive in &mut case.observed.drives {
            drive.in_flight_ms = drive.read_ios * us / 1000;
        }
    };
    in_drive(&mut case, 20);
    assert_eq!(case.codes(), [CpuBound]);
    let message = case.message(CpuBound);
    assert!(message.contains("of which 20.0 µs in nvme0n1p2") && message.contains("87.5 %"), "{message}");
    let mut ring = case.clone();
    ring.record.engine.used = "io_uring".into();
    assert_eq!(ring.codes(), [], "it has no such queue");
    let mut deep = case.clone();
    deep.workload().iodepth = 512;
    assert_eq!(deep.codes(), [], "the drive's queue is full");
    let is_found = |case: &Case| case.codes().contains(&CpuBound);
    let mut rated = case.clone();
    rated.workload().rate_iops = Some(IOPS);
    assert!(!is_found(&rated), "latency counts from when a request was due");
    let mut throttled = case.clone();
    throttled.record.bounds.throttles.push(Throttle {
        device: "nvme0n1".into(),
        what: "read_iops".into(),
        per_second: IOPS,
        source: "/sys/fs/cgroup/io.max".into(),
    });
    assert!(!is_found(&throttled), "the control group holds requests back");
    let mut crowded = case.clone();
    crowded.record.cpus.iter_mut().for_each(|cpu| cpu.idle_ms = 0);
    assert!(!is_found(&crowded), "threads wait for CPUs");
    let mut split = case.clone();
    for drive in &mut split.observed.drives {
        (drive.read_ios, drive.in_flight_ms) = (drive.read_ios * 8, drive.in_flight_ms * 8);
    }
    assert!(is_found(&split), "256 parts are in flight");
    split.workload().iodepth = 33;
    assert!(!is_found(&split), "264 parts are in flight, and the queue takes 256");
    in_drive(&mut case, 140);
    assert_eq!(case.codes(), []);
}

/// Four fifths of what a thread makes where a device answers at once.
pub(super) fn as_fast_as_the_generator() -> Case {
    let mut case = healthy();
    case.observed.generator_iops = Some(IOPS as f64 * 1.25);
    case
}

#[test]
fn a_figure_above_half_of_what_the_generator_makes_is_told_and_one_below_is_not() {
    let message = as_fast_as_the_generator().message(Generator);
    assert_eq!(
        message,
        "a job made 200k IOPS; where a device answers at once this machine makes 250k IOPS of this depth and size, so \
         80.0 % of the job's time went into making requests (limit 50.0 %)"
    );
    let mut case = healthy();
    for (times, codes) in [(1.99, vec![Generator]), (2.01, vec![]), (100.0, vec![])] {
        case.observed.generator_iops = Some(IOPS as f64 * times);
        assert_eq!(case.codes(), codes, "{times} times the figure");
    }
    // Two jobs that make half of it each: what one thread makes is compared with what one thread can.
    case.observed.generator_iops = Some(IOPS as f64 * 1.25);
    case.record.jobs[0].ios /= 2;
    case.record.jobs.push(case.record.jobs[0].clone());
    assert_eq!(case.codes(), []);
    case.record.jobs[1].interval_ns = 0;
    assert_eq!(case.codes(), [], "a job without an interval has no rate");
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

/// Requests of 160 µs each, on a CPU that sleeps meanwhile.
pub(super) fn deep_sleep() -> Case {
    let mut case = healthy();
    (case.record.cpus[0].system_ms, case.record.cpus[0].idle_ms) = (600, 3890);
    let state = |name: &str, exit_latency_us, residency_us| IdleState {
        name: name.into(),
        exit_latency_us,
        residency_us,
    };
    case.observed.idle_states = vec![state("C1", 2, 2), state("C6", 133, 150), state("C10", 890, 5000)];
    case
}

#[test]
fn a_state_that_is_left_fast_or_not_entered_a_busy_cpu_and_a_polling_job_are_no_finding() {
    let message = deep_sleep().message(IdleStates);
    assert!(
        message.starts_with("CPUs may sleep in C6, which they leave in 133 µs; a request took 160 µs"),
        "{message}"
    );
    let mut shallow = deep_sleep();
    shallow.observed.idle_states.truncate(1);
    assert_eq!(shallow.codes(), []);
    let mut too_deep = deep_sleep();
    too_deep.observed.idle_states.remove(1);
    assert_eq!(too_deep.codes(), [], "the next state takes longer to pay off than a request takes");
    let mut busy = deep_sleep();
    (busy.record.cpus[0].user_ms, busy.record.cpus[0].idle_ms) = (3190, 1000);
    assert_eq!(busy.codes(), [], "another program keeps the job's CPU awake");
    let mut polling = deep_sleep();
    polling.workload().hipri = true;
    polling.queue().io_poll = Some(true);
    assert_eq!(polling.codes(), []);
    let mut memory = deep_sleep();
    memory.stack.layers.clear();
    assert!(!memory.codes().contains(&IdleStates), "no drive wakes a CPU");
}

pub(super) fn far_node() -> Case {
    let mut case = healthy();
    case.record.jobs[0].cpu = Some(1);
    case
}

#[test]
fn a_job_that_was_bound_by_node_or_merely_ran_there_is_found() {
    let mut bound = healthy();
    bound.record.jobs[0].cpu = None;
    bound.workload().numa_cpu_nodes = Some("1".parse().expect("a list"));
    assert_eq!(bound.codes(), [Numa]);
    let mut near = healthy();
    near.record.jobs[0].cpu = None;
    near.workload().numa_cpu_nodes = Some("0".parse().expect("a list"));
    assert_eq!(near.codes(), []);
    let mut ran = healthy();
    (ran.record.jobs[0].cpu, ran.record.jobs[0].seen_on) = (None, vec![0, 1]);
    assert!(
        ran.message(Numa).contains("nvme0n1 is on node 0, but jobs ran on CPU 1"),
        "{}",
        ran.message(Numa)
    );
}

#[test]
fn a_job_that_was_seen_on_the_drives_node_only_or_an_unknown_node_is_no_finding() {
    let mut case = far_node();
    case.record.jobs[0].cpu = None;
    assert_eq!(case.codes(), []);
    let mut case = far_node();
    case.drive().numa_node = None;
    assert_eq!(case.codes(), []);
}
