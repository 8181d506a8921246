//! What siblings add to a record's own verdict.

use std::sync::OnceLock;

use measure::RunRecord;
use measure::limit::{Context, DrivesAlone, Limit, Sibling, Verdict, judge};
use measure::record::Throttle;
use proptest::prelude::*;

use crate::system::System;

fn sibling(name: &str, bandwidth_bytes_per_s: f64) -> Sibling {
    Sibling { name: name.into(), bandwidth_bytes_per_s, noise: 0.02 }
}

fn alone_sum(sum: f64, drives: u32) -> DrivesAlone {
    DrivesAlone { sum, each: Vec::new(), drives, as_shallow: None }
}

/// Verdict on eight busy drives, with a context made from what they reached.
fn on_array(context: impl Fn(f64) -> Context) -> Verdict {
    static RECORD: OnceLock<RunRecord> = OnceLock::new();
    let record = RECORD.get_or_init(|| System::alike(8, 8, 100_000.0, 256).record());
    judge(record, &context(record.bandwidth_bytes_per_s()))
}

#[test]
fn the_same_drives_faster_separately_accuse_the_raid_layer() {
    let with = |times: f64| {
        on_array(|own| Context {
            same_drives_separate: Some(sibling("separate", own * times)),
            ..Context::default()
        })
    };
    let verdict = with(1.8);
    assert_eq!(verdict.limit, Limit::RaidLayer);
    assert!(verdict.evidence.contains("1.80× as much"), "{}", verdict.evidence);
    assert_eq!(with(1.05).limit, Limit::Drives, "within ten percent");
    assert_eq!(with(0.5).limit, Limit::Drives);
}

#[test]
fn noise_excuses_a_layer() {
    let verdict = on_array(|own| Context {
        same_drives_separate: Some(Sibling { noise: 0.3, ..sibling("separate", own * 1.2) }),
        ..Context::default()
    });
    assert_eq!(verdict.limit, Limit::Drives);
}

#[test]
fn of_two_layers_the_one_that_costs_more_comes_first() {
    let both = |raid: f64, file_system: f64| {
        on_array(|own| Context {
            same_drives_separate: Some(sibling("separate", own * raid)),
            raw_below: Some(sibling("raw", own * file_system)),
            ..Context::default()
        })
    };
    assert_eq!(both(1.3, 2.0).limit, Limit::FileSystem);
    let verdict = both(2.0, 1.3);
    assert_eq!(verdict.limit, Limit::RaidLayer);
    assert_eq!(verdict.others[0].limit, Limit::FileSystem);
}

#[test]
fn a_throttle_that_only_the_layer_has_is_the_layers_ceiling() {
    let mut record = System::alike(8, 8, 100_000.0, 256).record();
    let per_second = record.drives[0].read_ios;
    let source = "/cg/io.max".to_owned();
    record.bounds.throttles =
        vec![Throttle { device: "md0".into(), what: "read_iops".into(), per_second, source }];
    let own = record.bandwidth_bytes_per_s();
    let separate = |times| Context {
        same_drives_separate: Some(sibling("separate", own * times)),
        ..Context::default()
    };
    let verdict = judge(&record, &separate(2.0));
    assert_eq!(verdict.limit, Limit::RaidLayer);
    assert!(verdict.evidence.contains("its throttle: md0"), "{}", verdict.evidence);
    assert_eq!(verdict.others[0].limit, Limit::Throttle);
    assert_eq!(judge(&record, &separate(1.0)).limit, Limit::Throttle);
}

#[test]
fn a_busy_cpu_comes_before_the_layer_that_keeps_it_busy() {
    let mut record = System::alike(8, 8, 100_000.0, 256).record();
    record.jobs[0].system_ns = record.interval_ns;
    let own = record.bandwidth_bytes_per_s();
    let context =
        Context { same_drives_separate: Some(sibling("separate", own * 2.0)), ..Context::default() };
    let verdict = judge(&record, &context);
    assert_eq!(verdict.limit, Limit::LoadGenerator);
    assert_eq!(verdict.others[0].limit, Limit::RaidLayer);
}

#[test]
fn a_deeper_sibling_that_is_faster_shows_that_depth_was_too_small() {
    let depths = |deeper: f64| {
        on_array(|own| Context { depths: vec![(512, sibling("512", own * deeper))], ..Context::default() })
    };
    let verdict = depths(1.5);
    assert_eq!(verdict.limit, Limit::QueueDepth);
    assert!(verdict.evidence.contains("1.50× as much as 256"), "{}", verdict.evidence);
    let verdict = depths(1.03);
    assert_eq!(verdict.limit, Limit::Drives);
    assert!(verdict.evidence.contains("come no faster"), "{}", verdict.evidence);
}

#[test]
fn a_shallow_run_as_fast_as_a_deep_one_is_at_the_drives_ceiling() {
    let record = System::alike(1, 1, 100_000.0, 4).record();
    assert_eq!(judge(&record, &Context::default()).limit, Limit::Unknown);
    let own = record.bandwidth_bytes_per_s();
    let context = Context { depths: vec![(64, sibling("64", own * 1.01))], ..Context::default() };
    assert_eq!(judge(&record, &context).limit, Limit::Drives);
}

#[test]
fn what_the_drives_gave_alone_is_what_an_array_is_measured_by() {
    let share = |part: f64| {
        on_array(|own| Context { drives_alone: Some(alone_sum(own / part, 8)), ..Context::default() })
    };
    let verdict = share(0.97);
    assert_eq!((verdict.limit, verdict.short().as_str()), (Limit::Drives, "drives at 97 %"));
    let verdict = share(0.5);
    assert_eq!(verdict.limit, Limit::Unknown, "busy or not, they can do more");
    assert!((verdict.at_percent_of_drives.unwrap() - 50.0).abs() < 1e-9);
}

#[test]
fn drives_that_alone_give_no_more_with_as_few_requests_each_want_a_deeper_queue() {
    let verdict = on_array(|own| Context {
        drives_alone: Some(DrivesAlone { as_shallow: Some((4, own * 1.02)), ..alone_sum(own * 3.0, 8) }),
        ..Context::default()
    });
    assert_eq!(verdict.limit, Limit::QueueDepth);
    assert!(verdict.evidence.contains("are 4 for each drive"), "{}", verdict.evidence);
}

#[test]
fn an_array_at_the_pace_of_its_slowest_drive_is_unbalanced() {
    let each = |slowest: f64, own: f64| {
        let mut each: Vec<(String, f64)> = (0..8).map(|n| (format!("nvme{n}n1"), own / 4.0)).collect();
        each[3].1 = slowest;
        each
    };
    let verdict = on_array(|own| {
        let each = each(own / 8.0, own);
        let sum = each.iter().map(|(_, figure)| figure).sum();
        let alone = DrivesAlone { sum, each, drives: 8, as_shallow: None };
        Context { drives_alone: Some(alone), ..Context::default() }
    });
    assert_eq!(verdict.limit, Limit::UnbalancedDrives);
    assert!(verdict.evidence.starts_with("nvme3n1 alone gave"), "{}", verdict.evidence);
}

proptest! {
    /// Siblings of a healthy system scatter; none of them accuses anything.
    #[test]
    fn siblings_that_differ_by_noise_accuse_nothing(
        separate in 0.92f64..1.08, raw in 0.92f64..1.08, deeper in 0.95f64..1.05, sum in 0.9f64..1.1,
    ) {
        let verdict = on_array(|own| Context {
            drives_alone: Some(alone_sum(own * sum, 8)),
            same_drives_separate: Some(sibling("separate", own * separate)),
            raw_below: Some(sibling("raw", own * raw)),
            depths: vec![(512, sibling("512", own * deeper)), (64, sibling("64", own * 0.8))],
        });
        prop_assert_eq!(verdict.limit, Limit::Drives);
        prop_assert!(verdict.others.is_empty(), "{:?}", verdict);
    }
}
