//! Properties of a plan, for any space, seed and settings.

use std::collections::BTreeSet;

use measure::Workload;
use measure::precondition::Precondition;
use measure::workload::Rw;
use proptest::prelude::*;
use sweep::model::Point;
use sweep::plan::{Margin, Order, Plan, Prepare, Protocol, Rules, StepKind};

fn points(count: u32) -> Vec<Point> {
    let point = |id: u32| Point {
        id,
        settings: [("iodepth".to_owned(), (id + 1).to_string())].into(),
        test_type: None,
        target: "scratch".into(),
        layout: std::collections::BTreeMap::new(),
        workload: Workload { iodepth: id + 1, ..Workload::default() },
    };
    (0..count).map(point).collect()
}

fn rules(passes: u32, seed: u64, control_every: u32) -> Rules {
    Rules {
        passes,
        order: Order::Random,
        control: Some(0),
        control_every,
        seed,
        shards: 1,
        prepare: Prepare::default(),
        protocol: Protocol::Dash,
        equivalence: Margin::default(),
        spacing: std::time::Duration::ZERO,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_point_runs_once_in_each_block(count in 1u32..60, passes in 1u32..8, seed: u64, every in 0u32..30) {
        let plan = Plan::new(points(count), rules(passes, seed, every));
        prop_assert_eq!(plan.runs.len() as u32, count * passes);
        for (block, runs) in plan.runs.chunks(count as usize).enumerate() {
            prop_assert!(runs.iter().all(|r| r.pass == block as u32 + 1));
            let seen: BTreeSet<u32> = runs.iter().map(|r| r.point).collect();
            prop_assert_eq!(seen.len() as u32, count);
        }
        let positions: Vec<u32> = plan.steps().iter().map(|s| s.planned.position).collect();
        prop_assert_eq!(positions, (0..plan.steps().len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn controls_open_the_sweep_close_each_block_and_are_never_too_far_apart(
        count in 1u32..60, passes in 1u32..8, seed: u64, every in 0u32..30,
    ) {
        let plan = Plan::new(points(count), rules(passes, seed, every));
        let steps = plan.steps();
        prop_assert_eq!(steps[0].kind, StepKind::Control);
        let mut since = 0;
        let mut before = None;
        for step in &steps {
            match step.kind {
                StepKind::Control => {
                    prop_assert!(before != Some(StepKind::Control), "two controls in a row");
                    since = 0;
                }
                StepKind::Run => {
                    since += 1;
                    prop_assert!(every == 0 || since <= every);
                }
            }
            before = Some(step.kind);
        }
        for block in 1..=passes {
            let last = plan.runs.iter().rfind(|r| r.pass == block).unwrap();
            prop_assert_eq!(steps[last.position as usize + 1].kind, StepKind::Control);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_a_further_pass_only_adds(count in 1u32..60, passes in 1u32..6, seed: u64) {
        let plan = Plan::new(points(count), rules(passes, seed, 5));
        prop_assert_eq!(&plan, &Plan::new(points(count), rules(passes, seed, 5)));
        prop_assert_eq!(plan.digest(), Plan::new(points(count), rules(passes, seed, 5)).digest());
        let longer = Plan::new(points(count), rules(passes + 1, seed, 5));
        prop_assert_eq!(&longer.runs[..plan.runs.len()], &plan.runs[..]);
    }

    #[test]
    fn blocks_and_seeds_have_orders_of_their_own(seed: u64) {
        // By chance two orders of 30 are equal once in 30! ≈ 10^32.
        let order = |plan: &Plan, pass: u32| -> Vec<u32> {
            plan.runs.iter().filter(|r| r.pass == pass).map(|r| r.point).collect()
        };
        let plan = Plan::new(points(30), rules(3, seed, 0));
        prop_assert_ne!(order(&plan, 1), order(&plan, 2));
        prop_assert_ne!(order(&plan, 2), order(&plan, 3));
        let other = Plan::new(points(30), rules(3, seed ^ 1, 0));
        prop_assert_ne!(order(&plan, 1), order(&other, 1));
        prop_assert_ne!(plan.digest(), other.digest());
    }
}

#[test]
fn a_given_order_is_the_written_one_in_each_block() {
    let rules = Rules { order: Order::Given, control: None, ..rules(2, 9, 0) };
    let plan = Plan::new(points(5), rules);
    let order: Vec<u32> = plan.runs.iter().map(|r| r.point).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    assert!(plan.controls.is_empty());
}

#[test]
fn any_change_of_a_point_changes_the_digest() {
    let plan = Plan::new(points(3), rules(2, 9, 0));
    let mut other = points(3);
    other[1].workload.bs = 8192;
    assert_ne!(plan.digest(), Plan::new(other, rules(2, 9, 0)).digest());
    let mut other = points(3);
    other[2].target = "/dev/sdb".into();
    assert_ne!(plan.digest(), Plan::new(other, rules(2, 9, 0)).digest());
}

#[test]
fn what_is_prepared_is_part_of_the_digest_only_where_something_is() {
    let plain = rules(2, 9, 0);
    let text = serde_json::to_string(&plain).unwrap();
    assert!(!text.contains("prepare"), "sweeps of before have the digests that they had: {text}");
    let prepare = Prepare { how: Precondition::Fill, purge: false };
    let filled = Plan::new(points(3), Rules { prepare, ..plain });
    assert_ne!(Plan::new(points(3), plain).digest(), filled.digest());
    let purged = Plan::new(points(3), Rules { prepare: Prepare { purge: true, ..prepare }, ..plain });
    assert_ne!(filled.digest(), purged.digest());
}

#[test]
fn a_target_is_prepared_once_by_its_first_writing_point_over_all_that_is_used() {
    let prepare = Prepare { how: Precondition::Steady, purge: false };
    let mut all = points(4);
    for (point, (size, rw)) in
        all.iter_mut().zip([(8, Rw::RandRead), (4, Rw::RandWrite), (2, Rw::Write), (1, Rw::RandRead)])
    {
        (point.workload.size, point.workload.rw, point.workload.offset) = (Some(size << 20), rw, 1 << 20);
    }
    all[3].target = "/dev/sdb".into();
    let rules = Rules { prepare, control: None, ..rules(2, 9, 0) };
    let prepared = Plan::new(all.clone(), rules).preparations();
    let [sdb, scratch] = prepared.as_slice() else { panic!("{prepared:#?}") };
    assert_eq!(
        (scratch.what.as_str(), scratch.workload.iodepth, scratch.lacks_writes),
        ("scratch", 2, false)
    );
    assert_eq!((scratch.workload.offset, scratch.workload.size), (0, Some(9 << 20)));
    assert_eq!((scratch.prepare.how, scratch.workload.rw), (Precondition::Steady, Rw::RandWrite));
    // Nobody writes there, so there is nothing to be steady with.
    assert_eq!(
        (sdb.what.as_str(), sdb.prepare.how, sdb.lacks_writes),
        ("/dev/sdb", Precondition::Fill, true)
    );

    all[0].workload.size = None;
    assert_eq!(Plan::new(all.clone(), rules).preparations()[1].workload.size, None);
    assert!(Plan::new(all, Rules { prepare: Prepare::default(), ..rules }).preparations().is_empty());
}
