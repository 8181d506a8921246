//! One planted case for each limit, and what must not be taken for it.

use measure::limit::{Context, Limit, Verdict, judge};
use measure::record::{Link, Throttle};
use measure::{RunRecord, Warning, WarningCode};

use crate::system::{SECOND, System};

fn alone(record: &RunRecord) -> Verdict {
    judge(record, &Context::default())
}

/// Eight drives of 100 µs and 8 requests at once, kept busy.
fn array() -> System {
    System::alike(8, 8, 100_000.0, 256)
}

fn single() -> System {
    System::alike(1, 8, 100_000.0, 64)
}

#[test]
fn busy_drives_with_deep_queues_are_the_limit_themselves() {
    for system in [single(), array()] {
        let verdict = alone(&system.record());
        assert_eq!(verdict.limit, Limit::Drives, "{verdict:?}");
        assert!(verdict.evidence.contains("limit 90.0 %"), "{}", verdict.evidence);
        assert_eq!(verdict.others, [], "{verdict:?}");
    }
}

#[test]
fn a_shallow_run_alone_does_not_say_whether_more_would_be_faster() {
    let verdict = alone(&System { depth: 4, ..single() }.record());
    assert_eq!(verdict.limit, Limit::Unknown);
    assert!(verdict.evidence.contains("deeper run"), "{}", verdict.evidence);
}

#[test]
fn fewer_requests_than_drives_are_too_few_by_counting() {
    let verdict = alone(&System { depth: 4, ..array() }.record());
    assert_eq!(verdict.limit, Limit::QueueDepth);
    assert_eq!(verdict.evidence, "4 in flight over 8 drives: at any time some have nothing to do");
}

#[test]
fn a_drive_that_waits_for_the_host_at_small_depth_lacks_requests() {
    let verdict = alone(&System { depth: 1, host_ns: 60_000.0, ..single() }.record());
    assert_eq!(verdict.limit, Limit::QueueDepth, "{verdict:?}");
    assert!(verdict.evidence.contains("nvme0n1 had requests"), "{}", verdict.evidence);
}

#[test]
fn the_same_drive_behind_a_flush_or_the_page_cache_is_not_judged_by_its_idle_time() {
    let mut record = System { depth: 1, host_ns: 60_000.0, ..single() }.record();
    record.workload.fdatasync = 1;
    assert_eq!(alone(&record).limit, Limit::Unknown);
    record.workload.fdatasync = 0;
    record.workload.direct = false;
    assert_eq!(alone(&record).limit, Limit::Unknown);
}

#[test]
fn a_rate_that_was_kept_is_the_limit_and_one_that_was_missed_is_not() {
    let mut record = array().record();
    record.workload.rate_iops = Some(1000);
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::Rate);
    record.warnings.push(Warning::new(WarningCode::RateMissed, "800 of 1000"));
    assert_eq!(alone(&record).limit, Limit::Drives);
}

fn throttled(device: &str, what: &str, per_second: u64) -> Throttle {
    Throttle { device: device.into(), what: what.into(), per_second, source: "/cg/io.max".into() }
}

#[test]
fn a_rate_at_what_a_control_group_allows_is_a_throttle() {
    let mut record = array().record();
    let iops = record.drives[0].read_ios;
    record.bounds.throttles = vec![throttled("md0", "read_iops", iops)];
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::Throttle);
    assert!(
        verdict.evidence.contains("md0") && verdict.evidence.contains("/cg/io.max"),
        "{}",
        verdict.evidence
    );
    for far in [iops / 2, iops * 2] {
        record.bounds.throttles = vec![throttled("md0", "read_iops", far)];
        assert_eq!(alone(&record).limit, Limit::Drives, "not at {far}");
    }
    record.bounds.throttles = vec![throttled("md1", "read_iops", iops)];
    assert_eq!(alone(&record).limit, Limit::Throttle, "a layer that never counts, by what was asked of it");
    record.bounds.throttles = vec![throttled("md0", "write_bps", 1)];
    assert_eq!(alone(&record).limit, Limit::Drives, "reads are not bounded by a limit on writes");
}

#[test]
fn a_throttle_on_every_member_is_a_throttle_and_one_on_a_single_member_an_imbalance() {
    let mut record = array().record();
    let limits = |record: &RunRecord| -> Vec<Throttle> {
        record.drives[1..].iter().map(|d| throttled(&d.name, "read_bps", d.read_bytes)).collect()
    };
    record.bounds.throttles = limits(&record);
    assert_eq!(alone(&record).limit, Limit::Throttle);
    record.bounds.throttles.truncate(1);
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::UnbalancedDrives);
    assert!(
        verdict.evidence.starts_with("1 of 8 drives ran against a throttle: nvme0n1"),
        "{}",
        verdict.evidence
    );
    assert_eq!(verdict.others[0].limit, Limit::Throttle);
    // Drives used separately, each at its own throttle, of which one is lower.
    record.drives[1].read_bytes /= 4;
    record.bounds.throttles = limits(&record);
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::UnbalancedDrives);
    assert!(
        verdict.evidence.starts_with("the throttles of the 8 drives differ: nvme0n1"),
        "{}",
        verdict.evidence
    );
}

#[test]
fn a_hot_drive_whose_rate_fell_is_throttled_and_a_hot_one_that_kept_it_is_not() {
    let mut record = single().record();
    record.warnings.push(Warning::new(WarningCode::Heat, "nvme0n1 had 84 °C (limit 82 °C)"));
    assert_eq!(alone(&record).limit, Limit::Drives);
    record.warnings.push(Warning::new(WarningCode::Unsteady, "range 60 %"));
    let sample = |n: u64, read_bytes| measure::record::Sample {
        end_ns: n * SECOND / 4,
        read_bytes,
        ..measure::record::Sample::default()
    };
    record.samples = vec![sample(1, 900), sample(2, 900), sample(3, 400), sample(4, 300)];
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::Throttle);
    assert!(verdict.evidence.contains("84 °C"));
    record.samples.reverse();
    assert_eq!(alone(&record).limit, Limit::Drives, "a rate that rose");
}

#[test]
fn a_rate_at_what_a_shared_link_carries_is_the_links() {
    let mut record = array().record();
    let all = record.drives[0].read_bytes as f64;
    let devices: Vec<String> = record.drives[1..].iter().map(|d| d.name.clone()).collect();
    let link = |bytes_per_s| Link {
        address: "0000:01:00.0".into(),
        kind: "PCIe 8 GT/s x4".into(),
        bytes_per_s,
        devices: devices.clone(),
    };
    record.bounds.links = vec![link(all / 0.9)];
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::Link);
    assert!(
        verdict.evidence.contains("8 drives through 0000:01:00.0 (PCIe 8 GT/s x4)"),
        "{}",
        verdict.evidence
    );
    record.host.virtualization = Some("kvm".into());
    assert_eq!(alone(&record).limit, Limit::Drives, "an emulated link carries nothing");
    record.host.virtualization = None;
    for other in [all / 0.5, all / 1.5] {
        record.bounds.links = vec![link(other)];
        assert_eq!(alone(&record).limit, Limit::Drives, "neither half nor more than it carries");
    }
}

/// All interrupts on CPU 1, which is full.
fn interrupts_on_one_cpu() -> RunRecord {
    let mut record = array().record();
    let all: u64 = record.cpus.iter().map(|c| c.drive_interrupts).sum();
    for cpu in &mut record.cpus {
        cpu.drive_interrupts = 0;
        cpu.block_softirqs = 0;
    }
    let cpu = &mut record.cpus[1];
    cpu.drive_interrupts = all;
    (cpu.user_ms, cpu.system_ms, cpu.irq_ms, cpu.idle_ms) = (0, 500, 490, 10);
    record
}

#[test]
fn all_interrupts_on_one_full_cpu_are_the_limit() {
    let verdict = alone(&interrupts_on_one_cpu());
    assert_eq!(verdict.limit, Limit::OneCpu);
    assert!(verdict.evidence.starts_with("CPU 1 was 99.0 % busy"), "{}", verdict.evidence);
    assert!(verdict.evidence.contains("took 100 % of the drives' interrupts"), "{}", verdict.evidence);
}

#[test]
fn soft_interrupts_tell_where_the_drives_interrupts_are_unknown() {
    let mut record = interrupts_on_one_cpu();
    for cpu in &mut record.cpus {
        std::mem::swap(&mut cpu.block_softirqs, &mut cpu.drive_interrupts);
    }
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::OneCpu);
    assert!(verdict.evidence.contains("soft interrupts"), "{}", verdict.evidence);
}

#[test]
fn a_thread_that_shares_its_cpu_with_all_interrupts_is_not_blamed_for_them() {
    let mut record = interrupts_on_one_cpu();
    record.jobs[0].system_ns = record.interval_ns * 97 / 100;
    record.jobs[0].seen_on = vec![1];
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::OneCpu);
    assert_eq!(verdict.others[0].limit, Limit::LoadGenerator);
    // Without time in interrupts it is the thread that fills it.
    (record.cpus[1].system_ms, record.cpus[1].irq_ms) = (960, 30);
    assert_eq!(alone(&record).limit, Limit::LoadGenerator);
}

#[test]
fn one_full_cpu_is_no_limit_where_interrupts_are_spread_or_few_or_a_program_fills_it() {
    let mut spread = interrupts_on_one_cpu();
    spread.cpus.iter_mut().for_each(|cpu| cpu.drive_interrupts = 10_000);
    assert_eq!(alone(&spread).limit, Limit::Drives);
    let mut few = interrupts_on_one_cpu();
    few.cpus[1].drive_interrupts = 500;
    assert_eq!(alone(&few).limit, Limit::Drives);
    let mut program = interrupts_on_one_cpu();
    (program.cpus[1].user_ms, program.cpus[1].system_ms, program.cpus[1].irq_ms) = (880, 60, 50);
    assert_eq!(alone(&program).limit, Limit::Drives);
    let mut all_full = interrupts_on_one_cpu();
    for cpu in &mut all_full.cpus {
        (cpu.system_ms, cpu.idle_ms) = (990, 10);
    }
    assert_ne!(alone(&all_full).limit, Limit::OneCpu);
    let mut only = interrupts_on_one_cpu();
    only.cpus.remove(0);
    only.cpus.truncate(1);
    assert_ne!(alone(&only).limit, Limit::OneCpu, "a machine of one CPU has no other");
}

#[test]
fn jobs_that_are_all_pinned_to_one_cpu_are_limited_by_it() {
    let mut record = array().record();
    let job = measure::record::JobCounts {
        system_ns: record.interval_ns * 24 / 100,
        cpu: Some(2),
        seen_on: vec![2],
        ..record.jobs[0].clone()
    };
    record.jobs = vec![job; 4];
    record.workload.numjobs = 4;
    let cpu = &mut record.cpus[2];
    (cpu.user_ms, cpu.system_ms, cpu.irq_ms, cpu.idle_ms) = (300, 680, 10, 10);
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::OneCpu);
    assert!(verdict.evidence.contains("all 4 jobs ran on it"), "{}", verdict.evidence);
    record.jobs.iter_mut().for_each(|job| job.cpu = None);
    record.jobs[1].seen_on = vec![3];
    assert_eq!(alone(&record).limit, Limit::Drives);
}

#[test]
fn threads_without_idle_time_are_the_limit_unless_they_poll() {
    let mut record = single().record();
    record.jobs[0].system_ns = record.interval_ns * 98 / 100;
    assert_eq!(alone(&record).limit, Limit::LoadGenerator);
    record.workload.hipri = true;
    assert_eq!(alone(&record).limit, Limit::Drives);
    record.workload.hipri = false;
    record.workload.sqthread_poll = true;
    assert_eq!(alone(&record).limit, Limit::Drives);
}

#[test]
fn the_thread_that_hands_out_psyncs_requests_is_a_limit_and_one_busy_job_of_many_is_not() {
    let mut record = single().record();
    record.engine.used = "psync".into();
    record.jobs[0].system_ns = record.interval_ns * 98 / 100;
    assert_eq!(alone(&record).limit, Limit::LoadGenerator, "all requests go through it");
    let mut record = single().record();
    record.jobs = vec![record.jobs[0].clone(); 4];
    record.jobs[0].system_ns = record.interval_ns;
    assert_eq!(alone(&record).limit, Limit::Drives);
}

/// The array's drives as separate devices, 16 jobs on each, psync, each job this part of one CPU busy.
fn separate_by_psync(iodepth: u32, busy: f64) -> RunRecord {
    let mut record = array().record();
    record.target.kind = "separate".into();
    record.layout.insert("width".into(), record.drives.len().to_string());
    record.engine.used = "psync".into();
    (record.workload.iodepth, record.workload.numjobs) = (iodepth, 16);
    let mut job = record.jobs[0].clone();
    (job.user_ns, job.system_ns) = (0, (job.interval_ns as f64 * busy) as u64);
    record.jobs = vec![job; 16 * record.drives.len()];
    record
}

#[test]
fn separate_drives_have_one_request_each_in_flight_and_the_depth_is_shared() {
    let record = separate_by_psync(1, 0.0);
    let drives = record.drives.len() as u32;
    assert_eq!(record.in_flight(), u64::from(drives) * 16);

    let record = separate_by_psync(drives + 1, 0.0);
    assert_eq!(record.in_flight(), u64::from(drives + 1) * 16);
}

#[test]
fn threads_on_separate_drives_are_each_judged_by_their_own_time() {
    let drives = array().record().drives.len() as u32;
    for depth in [drives, 2 * drives] {
        assert_eq!(alone(&separate_by_psync(depth, 0.98)).limit, Limit::LoadGenerator);
        assert_ne!(alone(&separate_by_psync(depth, 0.49)).limit, Limit::LoadGenerator);
    }
}

#[test]
fn cpus_that_are_busy_with_others_work_leave_no_verdict() {
    let mut record = single().record();
    for cpu in &mut record.cpus {
        (cpu.user_ms, cpu.idle_ms) = (980, 10);
    }
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::Unknown);
    assert!(verdict.evidence.contains("others' work"), "{}", verdict.evidence);
}

#[test]
fn one_slow_member_of_several_is_named() {
    for (members, slowed) in [(2, 2.0), (4, 1.6), (8, 2.0), (16, 3.0)] {
        let mut system = System::alike(members, 1, 200_000.0, 16 * members as u32);
        system.drives[1].service_ns *= slowed;
        let verdict = alone(&system.record());
        assert_eq!(verdict.limit, Limit::UnbalancedDrives, "{members}: {verdict:?}");
        assert!(verdict.evidence.contains("nvme1n1"), "{}", verdict.evidence);
    }
}

#[test]
fn a_slow_member_among_drives_that_serve_many_at_once_is_named_by_the_waiting() {
    let mut system = System { service: crate::system::Service::Fixed, ..array() };
    system.drives[5].service_ns *= 2.0;
    let verdict = alone(&system.record());
    assert_eq!(verdict.limit, Limit::UnbalancedDrives, "{verdict:?}");
    assert!(verdict.evidence.contains("nvme5n1"), "{}", verdict.evidence);
}

#[test]
fn a_member_with_more_to_do_is_named() {
    let mut record = System { depth: 16, ..array() }.record();
    for drive in &mut record.drives[2..] {
        drive.busy_ms /= 2;
        drive.in_flight_ms /= 2;
    }
    record.drives[1].read_ios *= 3;
    record.drives[1].read_bytes *= 3;
    record.drives[1].busy_ms = 1000;
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::UnbalancedDrives, "{verdict:?}");
    assert!(verdict.evidence.contains("its peers' bytes"), "{}", verdict.evidence);
}

#[test]
fn requests_that_wait_above_idle_drives_leave_no_verdict_but_where_they_wait() {
    let mut record = array().record();
    for drive in &mut record.drives {
        drive.in_flight_ms /= 4;
    }
    let verdict = alone(&record);
    assert_eq!(verdict.limit, Limit::Unknown);
    assert!(verdict.evidence.contains("the rest above"), "{}", verdict.evidence);
}

#[test]
fn what_was_not_counted_is_not_guessed() {
    let mut record = array().record();
    record.drives.clear();
    assert_eq!(alone(&record).evidence, "the drives below were not counted");
    let mut old = single().record();
    old.observed_ns = 0;
    old.drives[0].in_flight_ms = 0;
    assert!(alone(&old).evidence.contains("did not say how long"), "{}", alone(&old).evidence);
    let mut empty = single().record();
    empty.interval_ns = 0;
    assert_eq!(alone(&empty).limit, Limit::Unknown);
}
