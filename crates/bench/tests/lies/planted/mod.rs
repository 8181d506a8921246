//! One planted case for each code, and the healthy runs beside them.

mod cache;
mod device;
mod machine;
mod workload;

use measure::WarningCode::{self, *};

use crate::case::{Case, IOPS, SECOND, healthy};

type Plant = fn() -> Case;

/// A case in which the code, and no other but what is named beside it, is drawn.
const PLANTED: &[(WarningCode, Plant, &[WarningCode])] = &[
    (Unwritten, cache::file_with_holes, &[]),
    (Cached, cache::buffered_and_cached, &[]),
    (DirectBuffered, cache::direct_but_cached, &[]),
    (Unwatched, cache::iostats_off, &[]),
    (SmallSet, cache::small_set, &[]),
    (Compressible, cache::btrfs_compress, &[]),
    (RepeatedData, cache::zeros, &[]),
    (VolatileCache, device::volatile_cache, &[]),
    (SlcCache, device::cache_used_up, &[Unsteady]),
    (Heat, device::hot, &[]),
    (Merged, device::merged, &[]),
    (Split, device::split, &[]),
    (Chunk, device::small_chunks, &[]),
    (Virtual, device::virtio, &[]),
    (Misaligned, device::misaligned, &[]),
    (PollUnavailable, device::no_polled_queues, &[]),
    (CpuBound, machine::cpu_bound, &[]),
    (Generator, machine::as_fast_as_the_generator, &[]),
    (Steal, machine::stolen, &[]),
    (Governor, machine::governor, &[]),
    (IdleStates, machine::deep_sleep, &[]),
    (Numa, machine::far_node, &[]),
    (LinkDegraded, device::degraded_link, &[]),
    (BackgroundWork, device::resync, &[]),
    (SettingsDrift, device::drift, &[]),
    (OtherTraffic, device::neighbour, &[]),
    (SameOffsets, workload::same_offsets, &[]),
    (ClosedLoop, healthy, &[]),
    (RateMissed, workload::rate_missed, &[]),
    (EngineFallback, workload::fallback, &[]),
    (Unsteady, workload::falling, &[]),
    (ShortRun, workload::short, &[]),
    (Unpreconditioned, device::fresh, &[]),
    (NotSteady, workload::never_settled, &[]),
    (FewBlocks, workload::few_blocks, &[SmallSet]),
    (VerifyPartial, workload::half_verified, &[]),
    (FailedRequests, workload::lived_with, &[]),
    (Zones, workload::without_a_zone, &[]),
];

#[test]
fn every_code_has_a_planted_case_that_draws_it_and_nothing_else() {
    for (code, plant, beside) in PLANTED {
        let case = plant();
        case.message(*code);
        let mut expected = beside.to_vec();
        expected.extend((*code != ClosedLoop).then_some(*code));
        expected.sort();
        assert_eq!(case.codes(), expected, "{code}: {:#?}", case.warnings());
    }
}

#[test]
fn no_code_is_without_a_planted_case() {
    let planted: Vec<_> = PLANTED.iter().map(|(code, ..)| *code).collect();
    for code in WarningCode::ALL {
        assert!(planted.contains(code), "{code} has no planted case");
    }
}

#[test]
fn every_message_but_a_label_carries_a_figure_or_a_name() {
    for (code, plant, _) in PLANTED {
        let message = plant().message(*code);
        let named = ["btrfs", "schedutil", "seccomp", "virtio"].iter().any(|name| message.contains(name));
        assert!(named || message.chars().any(|c| c.is_ascii_digit()), "{code}: {message}");
    }
}

#[test]
fn a_healthy_run_draws_only_the_label_of_a_closed_loop() {
    let codes: Vec<_> = healthy().warnings().into_iter().map(|warning| warning.code).collect();
    assert_eq!(codes, [ClosedLoop]);
}

#[test]
fn a_healthy_open_loop_draws_nothing_at_all() {
    let mut case = healthy();
    case.workload().rate_iops = Some(IOPS);
    assert_eq!(case.warnings(), []);
}

#[test]
fn a_healthy_write_of_a_preconditioned_drive_that_flushes_draws_nothing() {
    let mut case = healthy().writing();
    case.queue().write_cache = Some("write back".into());
    case.workload().fdatasync = 1;
    assert_eq!(case.codes(), []);
}

#[test]
fn the_edges_of_the_window_are_no_finding() {
    let mut case = healthy();
    // A full queue at either end that the drive's counters missed, and a window a tenth longer.
    case.observed.window_ns += case.observed.window_ns / 20;
    assert_eq!(case.codes(), []);
}

#[test]
fn a_window_that_reaches_beyond_the_interval_into_idle_time_is_no_shortfall() {
    let mut case = healthy();
    case.observed.window_ns += case.observed.window_ns / 2;
    assert_eq!(case.codes(), []);
    // And one that holds all of ramp and tail is compared with all that the run moved.
    let mut all = healthy();
    all.observed.window_ns = 10 * SECOND;
    for drive in &mut all.observed.drives {
        drive.read_bytes = all.record.total.read_bytes;
        drive.read_ios = all.record.total.ios;
    }
    assert_eq!(all.codes(), []);
}

#[test]
fn an_empty_record_draws_no_more_than_that_it_is_short() {
    let mut case = healthy();
    case.record.interval_ns = 0;
    case.record.read = measure::record::DirectionCounts::default();
    case.record.jobs.clear();
    case.record.samples.clear();
    case.record.cpus.clear();
    case.observed.window_ns = 0;
    assert_eq!(case.codes(), [ShortRun]);
}

#[test]
fn warnings_stand_in_the_order_of_the_documentation_and_each_code_once() {
    let mut case = device::volatile_cache();
    case.record.host.governor = Some("powersave".into());
    case.known.written_before_bytes = 0;
    case.observed.settings_after.set("nvme0n1", "nomerges", "2");
    case.observed.settings_after.set("nvme0n1", "scheduler", "bfq");
    let codes: Vec<_> = case.warnings().into_iter().map(|warning| warning.code).collect();
    assert_eq!(codes, [VolatileCache, Governor, SettingsDrift, ClosedLoop, Unpreconditioned]);
}
