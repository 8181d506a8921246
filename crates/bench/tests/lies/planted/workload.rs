//! Lies that lie in the request itself.

use bench::lies::beside;
use measure::WarningCode::*;
use measure::precondition::{Precondition, Preconditioned, Rounds};
use measure::record::{RunRecord, Sample};
use measure::workload::Rw;

use crate::case::{Case, GIB, IOPS, KIB, MIB, SECOND, SECONDS, healthy};

pub(super) fn same_offsets() -> Case {
    let mut case = healthy();
    let job = case.record.jobs[0].clone();
    case.record.jobs = vec![job; 2];
    case.workload().rw = Rw::Read;
    case.workload().numjobs = 2;
    case.workload().offset_increment = Some(0);
    case
}

#[test]
fn jobs_that_begin_farther_apart_than_they_get_do_not_overlap() {
    let mut case = same_offsets();
    case.workload().offset_increment = Some(8 * GIB);
    assert_eq!(case.codes(), []);
    case.workload().offset_increment = Some(GIB);
    assert_eq!(case.codes(), [SameOffsets]);
    case.workload().offset_increment = None;
    assert_eq!(case.codes(), [], "the region is divided");
}

#[test]
fn jobs_of_one_run_that_walk_the_same_offsets_at_one_time_are_told() {
    let reader = || {
        let mut record = healthy().record;
        (record.workload.rw, record.workload.size) = (Rw::Read, Some(8 * GIB));
        record.total.read_bytes = 2 * GIB;
        record
    };
    let told = |others: &dyn Fn(&mut RunRecord)| {
        let (first, mut second) = (reader(), reader());
        others(&mut second);
        let warnings = beside::same_offsets(&[Some(&first), None, Some(&second)]);
        assert!(warnings[1].is_none());
        assert_eq!(warnings[0].is_some(), warnings[2].is_some(), "{warnings:?}");
        warnings[2].as_ref().map(|warning| warning.message.clone())
    };
    let message =
        "jobs 3 and 1 walked the same 2 GiB at the same time, 100 % of what job 3 walked (limit 5.0 %)";
    assert_eq!(told(&|_| {}).as_deref(), Some(message));
    assert!(
        told(&|r| r.workload.offset = GIB)
            .is_some_and(|m| m.contains("the same 1 GiB at the same time, 50.0 %"))
    );
    assert!(told(&|r| r.workload.rw = Rw::Rw).is_some());
    assert_eq!(told(&|r| r.workload.offset = 2 * GIB), None, "begins where the other ends");
    assert_eq!(told(&|r| r.workload.offset = 2 * GIB - 64 * MIB), None, "a thirty-second");
    assert_eq!(told(&|r| r.workload.rw = Rw::RandRead), None);
    assert_eq!(told(&|r| r.workload.rw = Rw::Trim), None);
    assert_eq!(told(&|r| r.workload.rw_step = 4096), None);
    assert_eq!(told(&|r| r.target.path = Some("/scratch/other".into())), None);
    assert_eq!(told(&|r| r.started_unix_ns += r.total.elapsed_ns), None, "begins when the other has ended");
    assert!(told(&|r| r.started_unix_ns += r.total.elapsed_ns - 1).is_some());
}

pub(super) fn rate_missed() -> Case {
    let mut case = healthy();
    case.workload().rate_iops = Some(2 * IOPS);
    case
}

#[test]
fn a_rate_is_judged_in_its_own_unit_and_the_scatter_of_few_arrivals_is_allowed() {
    assert_eq!(rate_missed().message(RateMissed), "200k IOPS of 400k IOPS asked for (50.0 %; limit 95.0 %)");
    let mut bytes = healthy();
    bytes.workload().rate = Some(IOPS * 8192);
    assert_eq!(bytes.message(RateMissed), "819 MB/s of 1.64 GB/s asked for (50.0 %; limit 95.0 %)");
    let mut few = healthy();
    // 100 asked for and 90 done in five seconds: within four roots of 500, and a queue.
    few.workload().rate_iops = Some(100);
    few.record.jobs[0].ios = 450;
    few.record.read.ios = 450;
    assert!(!few.codes().contains(&RateMissed));
}

pub(super) fn fallback() -> Case {
    let mut case = healthy();
    case.record.engine.used = "libaio".into();
    case.record.engine.fallback = Some("io_uring is denied by seccomp".into());
    case
}

pub(super) fn falling() -> Case {
    let mut case = healthy();
    for (n, sample) in case.record.samples.iter_mut().enumerate() {
        sample.read_bytes = sample.read_bytes * (100 - n as u64) / 100;
    }
    case
}

#[test]
fn a_run_is_judged_by_snias_two_rules_and_not_where_it_is_too_short_or_paced() {
    let message = falling().message(Unsteady);
    assert!(message.contains("(limit 20 %)") && message.contains("(limit 10 %)"), "{message}");
    let mut half_second = falling();
    half_second.record.interval_ns = SECOND / 2;
    assert!(half_second.message(Unsteady).contains("(limit 20 % below one second)"));
    let mut tenth = falling();
    tenth.record.interval_ns = SECOND / 10;
    assert!(!tenth.codes().contains(&Unsteady));
    let mut deep = falling();
    deep.workload().iodepth = 16_384;
    assert!(!deep.codes().contains(&Unsteady), "a queue is a sixtieth of the run");
    let mut paced = falling();
    paced.workload().rate_iops = Some(IOPS);
    assert_eq!(paced.codes(), []);
}

#[test]
fn a_last_step_cut_short_is_no_drop() {
    let mut case = healthy();
    let end_ns = SECONDS * SECOND + 1_000_000;
    case.record.samples.push(Sample { end_ns, read_bytes: 0, write_bytes: 0, ios: 0 });
    assert_eq!(case.codes(), []);
}

pub(super) fn short() -> Case {
    let mut case = healthy();
    case.workload().bs = 4 * MIB;
    case.workload().iodepth = 1;
    case.record.read.ios = 20;
    case.record.read.bytes = 20 * 4 * MIB;
    for drive in &mut case.observed.drives {
        (drive.read_ios, drive.read_bytes) = (20, 20 * 4 * MIB);
    }
    case
}

#[test]
fn a_few_milliseconds_are_short_however_many_requests_they_hold() {
    let mut case = healthy();
    case.record.interval_ns = 20_000_000;
    case.observed.window_ns = 20_000_000;
    assert!(case.message(ShortRun).contains("an interval of 20.0 ms (limit 50.0 ms)"));
}

pub(super) fn never_settled() -> Case {
    let iops: Vec<f64> = (0..25).map(|round| 90_000.0 * 0.9f64.powi(round)).collect();
    let mut case = healthy();
    case.record.precondition = Some(Preconditioned {
        asked: Precondition::Steady,
        offset: 0,
        region_bytes: 16 * GIB,
        purge: None,
        fill: None,
        rounds: Some(Rounds {
            round_ns: 60 * SECOND,
            most: 25,
            written_bytes: 0,
            steadiness: measure::stats::steady(&iops),
            iops,
        }),
    });
    case
}

#[test]
fn rounds_are_told_with_their_number_and_settled_ones_not_at_all() {
    let message = never_settled().message(NotSteady);
    assert!(message.contains("25 rounds of 60.0 s") && message.contains("limit 10 %"), "{message}");
    let mut settled = never_settled();
    let rounds = settled.record.precondition.as_mut().and_then(|done| done.rounds.as_mut()).expect("rounds");
    rounds.steadiness = measure::stats::steady(&[100.0; 5]);
    assert_eq!(settled.codes(), []);
}

pub(super) fn few_blocks() -> Case {
    let mut case = healthy();
    case.workload().iodepth = 512;
    case.workload().size = Some(4095 * 4 * KIB);
    case
}

#[test]
fn sequential_requests_need_only_as_many_blocks_as_are_in_flight() {
    let mut case = few_blocks();
    case.workload().rw = Rw::Read;
    assert_eq!(case.codes(), [SmallSet]);
    case.workload().size = Some(511 * 4 * KIB);
    assert_eq!(case.codes(), [SmallSet, FewBlocks]);
    case.workload().rw = Rw::RandRead;
    case.workload().iodepth = 1;
    case.workload().size = Some(4 * KIB);
    assert_eq!(case.codes(), [SmallSet], "one request at a time meets nobody");
}

pub(super) fn lived_with() -> Case {
    let failed = |operation: &str, count| measure::record::FailedRequests {
        operation: operation.to_owned(),
        errno: 5,
        error: "Input/output error".to_owned(),
        count,
        first: format!("{operation} of 4096 bytes at offset 0 of d"),
    };
    let mut case = healthy();
    case.record.failed = vec![failed("read", 3), failed("write", 1)];
    case
}

#[test]
fn failures_that_a_job_lived_with_are_told_by_kind() {
    assert_eq!(
        lived_with().message(FailedRequests),
        "4 requests failed: 3 of read (Input/output error; the first: read of 4096 bytes at offset 0 of d), \
         1 of write (Input/output error; the first: write of 4096 bytes at offset 0 of d)"
    );
}

pub(super) fn without_a_zone() -> Case {
    let mut case = healthy();
    case.record.zones = Some(measure::record::ZoneCounts { resets: 7, finished: 1, ended_early: 1 });
    case
}

#[test]
fn resets_of_zones_are_no_finding() {
    let mut case = without_a_zone();
    assert_eq!(case.message(Zones), "1 of 1 threads ended early: there was no zone for the next request");
    case.record.zones = Some(measure::record::ZoneCounts { resets: 7, finished: 1, ended_early: 0 });
    assert_eq!(case.codes(), []);
}

pub(super) fn half_verified() -> Case {
    let mut case = healthy();
    case.known.verify_expected_blocks = Some(1000);
    case.record.verified_blocks = 400;
    case
}
