//! What is recommended, and when nothing is.

mod report_data;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use report_data::{fourteen, meta, point, run};
use sweep::analysis::{AnalysisError, Fate, SweepData};
use sweep::model::RunRow;
use sweep::recommend::{Outcome, Recommendation};
use sweep::report::{Report, json, table};

use measure::WarningCode;
use measure::workload::IoEngine;

/// Random reads at depths 32, 128 and 512 (test types 9, 11, 13) with given MB/s for each pass, the first
/// pass set aside.
fn random_reads(megabytes: [&[f64]; 3]) -> SweepData {
    let points = vec![point(0, 9), point(1, 11), point(2, 13)];
    let mut runs = Vec::new();
    for (point, passes) in points.iter().zip(megabytes) {
        for (pass, mb) in (1u32..).zip(passes) {
            let position = (pass - 1) * 3 + point.id;
            runs.push(RunRow { warnings: Vec::new(), ..run(point, pass, position, *mb) });
        }
    }
    SweepData { meta: meta(megabytes[0].len() as u32, runs.len()), points, runs, ..SweepData::default() }
}

/// Depth 128 is twice depth 32; depth 512 adds nothing.
fn saturating() -> SweepData {
    random_reads([
        &[90.0, 100.0, 101.0, 99.0, 100.0, 100.0, 101.0, 99.0, 100.0, 100.0],
        &[170.0, 200.0, 201.0, 199.0, 202.0, 198.0, 200.0, 201.0, 199.0, 200.0],
        &[180.0, 201.0, 200.0, 203.0, 199.0, 202.0, 202.0, 200.0, 201.0, 201.0],
    ])
}

fn only(data: &SweepData) -> (Report, Recommendation) {
    let report = Report::new(data).unwrap();
    assert_eq!(report.recommendations.len(), 1);
    let recommendation = report.recommendations[0].clone();
    (report, recommendation)
}

#[test]
fn of_settings_with_equivalent_bandwidth_the_one_with_the_lower_p99_is_recommended() {
    let (report, r) = only(&saturating());
    assert_eq!(r.outcome, Outcome::Equivalent, "{}", r.sentence);
    assert_eq!(r.tail.as_ref().map(|tail| tail.outcome), Some(Outcome::Better), "{}", r.sentence);
    assert_eq!((r.point, r.fastest, r.tied.as_slice()), (Some(1), Some(2), &[1, 2][..]));
    assert_eq!(r.setting.as_deref(), Some("depth 128"));
    assert_eq!(r.flags.as_deref(), Some("--rw=randread --bs=4k --iodepth=128"));
    let gain = r.over_cheapest.unwrap();
    assert_eq!((gain.over, gain.beyond_noise), (0, true));
    let interval = gain.interval.unwrap();
    assert!(
        interval.low > 1.85 && interval.low < 2.0 && interval.high > 2.0 && interval.high < 2.15,
        "{interval:?}"
    );
    assert_eq!(
        report.headline,
        "For random reads, use depth 128 – 2.00× the bandwidth of depth 32 for random reads."
    );
}

#[test]
fn what_the_p99_has_dropped_is_not_recommended_although_it_is_the_cheapest() {
    let equal: &[f64] = &[200.0, 201.0, 199.0, 202.0, 198.0, 200.0, 201.0, 199.0, 200.0, 201.0];
    let mut data = random_reads([equal, equal, equal]);
    for run in &mut data.runs {
        let wobble = 1.0 + 0.003 * f64::from((run.pass * 7 + run.point) % 5);
        run.bandwidth_bytes_per_s *= 1.0 + 0.001 * f64::from((run.pass * 3 + run.point) % 4);
        run.latency_ns_p99 = (if run.point == 0 { 2e6 } else { 1e6 } * wobble) as u64;
    }
    let (_, r) = only(&data);
    assert_eq!((r.outcome, r.point, r.tied.len()), (Outcome::Equivalent, Some(1), 3), "{}", r.sentence);
    assert_eq!(r.tail.map(|tail| tail.tied), Some(vec![1, 2]));
    assert!(r.sentence.contains("the simplest of the 2 with the lowest p99 latency"), "{}", r.sentence);
    assert!(r.knee.is_none_or(|knee| knee.at.point != 0), "another depth is named as enough");
}

#[test]
fn the_knee_is_the_smallest_depth_near_the_best_and_says_what_more_would_cost() {
    let (_, r) = only(&saturating());
    let knee = r.knee.unwrap();
    assert_eq!((knee.lowest.iodepth, knee.at.iodepth, knee.best.iodepth), (32, 128, 512));
    // Little's law in the data: four times the depth at nearly the same rate is nearly four times the latency.
    let cost = knee.best.latency_ns_p99 / knee.at.latency_ns_p99;
    assert!((3.9..4.0).contains(&cost), "{cost}");
    assert!((knee.of_best - 200.0 / 201.0).abs() < 1e-3, "{}", knee.of_best);
}

#[test]
fn a_setting_that_beats_all_others_is_recommended_with_both_gains() {
    let (_, r) = only(&random_reads([
        &[100.0, 100.0, 101.0, 99.0, 100.0, 100.5, 100.0],
        &[200.0, 200.0, 201.0, 199.0, 201.0, 200.0, 199.0],
        &[240.0, 250.0, 251.0, 249.0, 250.0, 252.0, 249.0],
    ]));
    assert_eq!((r.outcome, r.point), (Outcome::Better, Some(2)));
    assert!((r.over_cheapest.unwrap().ratio - 2.5).abs() < 0.01);
    let runner_up = r.over_runner_up.unwrap();
    assert!(runner_up.over == 1 && (runner_up.ratio - 1.25).abs() < 0.01, "{runner_up:?}");
    assert!(runner_up.beyond_noise && runner_up.interval.unwrap().low > 1.0);
}

#[test]
fn a_wider_margin_makes_settings_equivalent_and_is_named() {
    let mut data = random_reads([
        &[100.0, 104.0, 97.0, 102.0, 99.0, 103.0, 98.0, 101.0, 100.0],
        &[100.0, 98.0, 103.0, 97.0, 102.0, 99.0, 104.0, 98.0, 101.0],
        &[100.0, 101.0, 99.0, 103.0, 97.0, 101.0, 100.0, 104.0, 98.0],
    ]);
    assert_ne!(only(&data).1.outcome, Outcome::Equivalent);
    data.meta.equivalence = sweep::plan::Margin::parse("25%").unwrap();
    let r = only(&data).1;
    assert_eq!(
        (r.outcome, r.equivalence.to_string()),
        (Outcome::Equivalent, "25 %".to_owned()),
        "{}",
        r.sentence
    );
}

#[test]
fn the_simplest_is_recommended_where_none_is_faster_although_one_may_be_slower() {
    let (report, r) = only(&random_reads([
        &[100.0, 100.0, 101.0, 99.0, 100.0, 100.5, 100.0, 99.5, 100.5],
        &[98.0, 98.1, 98.9, 97.0, 98.1, 98.4, 98.0, 97.6, 98.4],
        &[90.0, 97.0, 85.0, 94.0, 99.0, 84.0, 96.0, 88.0, 98.0],
    ]));
    assert_eq!((r.outcome, r.point, r.tied.len()), (Outcome::Sufficient, Some(0), 3), "{}", r.sentence);
    let most = r.undecided.and_then(|far| far.could_be).expect("a bound");
    assert!((1.0..=1.05).contains(&most), "{most}");
    let said = format!(
        "use depth 32, the simplest of 3 settings, none of which is more than {} faster: ",
        units::percent(most - 1.0)
    );
    assert!(r.sentence.contains(&said), "{}", r.sentence);
    assert_eq!(report.headline, "For random reads, use depth 32.");
}

#[test]
fn noise_wider_than_the_differences_is_undecided_and_never_called_no_difference() {
    let (report, r) = only(&random_reads([
        &[100.0, 80.0, 120.0, 100.0, 95.0, 125.0, 85.0, 98.0, 104.0, 84.0],
        &[100.0, 85.0, 125.0, 98.0, 104.0, 84.0, 80.0, 120.0, 100.0, 95.0],
        &[100.0, 125.0, 84.0, 99.0, 103.0, 95.0, 104.0, 84.0, 120.0, 100.0],
    ]));
    assert_eq!((r.outcome, r.point, r.tied.len()), (Outcome::Undecided, Some(0), 3));
    assert!(
        r.sentence.contains("undecided between 3 settings after 9 blocks: another one could be up to "),
        "{}",
        r.sentence
    );
    assert!(!r.sentence.contains("difference"), "{}", r.sentence);
    assert!(r.over_cheapest.is_none() && r.over_runner_up.is_none());
    assert!(
        report.headline.starts_with("Nothing is decided yet; undecided: random reads, 4k"),
        "{}",
        report.headline
    );
}

#[test]
fn work_with_a_run_missing_gets_no_recommendation_and_the_others_do() {
    let mut data = fourteen(6);
    // Test type 9, a random read, loses its third pass.
    data.runs.retain(|run| (run.point, run.pass) != (8, 3));
    let report = Report::new(&data).unwrap();
    let incomplete: Vec<String> = report
        .recommendations
        .iter()
        .filter(|r| r.outcome == Outcome::Incomplete)
        .map(|r| r.work.label())
        .collect();
    assert_eq!(incomplete, ["Random reads, 4k"]);
    let r = report.recommendations.iter().find(|r| r.outcome == Outcome::Incomplete).unwrap();
    assert!(r.point.is_none() && r.knee.is_none() && r.flags.is_none());
    assert_eq!(r.caveats, ["4 KiB random read, depth 32: pass 3 is missing"]);
    assert_eq!((report.completeness.planned, report.completeness.done), (84, 83));
    assert_eq!(report.completeness.missing[0].passes, [3]);
    assert!(report.headline.contains("1 of 84 runs is missing"), "{}", report.headline);
}

#[test]
fn a_sweep_without_runs_says_so() {
    let data = SweepData { runs: Vec::new(), controls: Vec::new(), ..fourteen(6) };
    let report = Report::new(&data).unwrap();
    assert_eq!(report.headline, "No run has finished, so there is nothing to say yet.");
    assert!(report.recommendations.iter().all(|r| r.outcome == Outcome::Incomplete && r.point.is_none()));
}

#[test]
fn void_runs_decide_nothing_and_stay_visible() {
    let mut data = saturating();
    // Depth 128 seems ten times as fast in two passes, which were served from nothing.
    for run in data.runs.iter_mut().filter(|r| r.point == 1 && [5, 6].contains(&r.pass)) {
        run.bandwidth_bytes_per_s *= 10.0;
        run.warnings = vec![WarningCode::Unwritten];
    }
    let (report, r) = only(&data);
    assert_eq!(r.point, Some(1));
    assert_eq!(r.bandwidth.unwrap().mean, 200e6);
    let void: Vec<(u32, u32)> =
        report.runs.iter().filter(|r| r.fate == Fate::Void).map(|r| (r.run.point, r.run.pass)).collect();
    assert_eq!(void, [(1, 5), (1, 6)]);
    assert_eq!(report.cleaning.runs.void, 2);
    assert_eq!(report.warnings[0].code, WarningCode::Unwritten);
    assert_eq!(report.warnings[0].runs, 2);
}

#[test]
fn a_point_whose_runs_are_all_void_is_left_out_by_name() {
    let mut data = saturating();
    for run in data.runs.iter_mut().filter(|r| r.point == 2) {
        run.warnings = vec![WarningCode::DirectBuffered];
    }
    let (_, r) = only(&data);
    assert_eq!((r.outcome, r.point), (Outcome::Better, Some(1)));
    assert!(r.caveats[0].contains("4 KiB random read, depth 512"), "{:?}", r.caveats);
    for run in &mut data.runs {
        run.warnings = vec![WarningCode::DirectBuffered];
    }
    let (_, r) = only(&data);
    assert_eq!((r.outcome, r.point), (Outcome::NoFigure, None));
}

#[test]
fn a_void_first_pass_does_not_cost_a_second_one() {
    let mut data = saturating();
    let first = data.runs.iter_mut().find(|r| (r.point, r.pass) == (1, 1)).unwrap();
    first.warnings = vec![WarningCode::SettingsDrift];
    let (report, _) = only(&data);
    let counts = report.points[1].runs;
    assert_eq!((counts.void, counts.first_pass, counts.kept), (1, 0, 9));
}

#[test]
fn a_void_attempt_that_was_repeated_stays_visible_and_counts_for_nothing() {
    let mut data = saturating();
    let plain = Report::new(&data).unwrap();
    let spoilt = RunRow {
        bandwidth_bytes_per_s: 9e9,
        warnings: vec![WarningCode::BackgroundWork],
        ..data.runs[4].clone()
    };
    data.voided.push(spoilt);
    let (report, r) = only(&data);
    assert_eq!(r, plain.recommendations[0]);
    assert_eq!(report.points, plain.points);
    assert_eq!(report.runs.len(), plain.runs.len() + 1);
    assert_eq!(report.runs.iter().filter(|r| r.repeated).count(), 1);
}

#[test]
fn what_the_page_cache_answers_is_not_recommended_over_the_flash() {
    let mut data = saturating();
    for run in data.runs.iter_mut().filter(|r| r.point == 0) {
        run.bandwidth_bytes_per_s *= 50.0;
        run.warnings = vec![WarningCode::Cached];
    }
    let (_, r) = only(&data);
    assert_eq!(r.point, Some(1));
    assert!(r.caveats[0].contains("W-CACHED"), "{:?}", r.caveats);
    // Where everything is cached there is nothing better to offer, but the caveat remains.
    for run in &mut data.runs {
        run.warnings = vec![WarningCode::Cached];
    }
    let (_, r) = only(&data);
    assert_eq!(r.point, Some(0));
    assert!(r.caveats[0].contains("W-CACHED"), "{:?}", r.caveats);
}

#[test]
fn two_passes_decide_nothing() {
    let (report, r) =
        only(&random_reads([&[90.0, 100.0, 101.0], &[170.0, 200.0, 201.0], &[180.0, 201.0, 202.0]]));
    assert_eq!((r.outcome, r.point), (Outcome::Undecided, Some(0)));
    assert!(
        r.sentence.contains("undecided between 3 settings after 2 blocks; until then use depth 32"),
        "{}",
        r.sentence
    );
    assert!(report.headline.starts_with("Nothing is decided yet"), "{}", report.headline);
}

#[test]
fn a_single_setting_has_nothing_to_beat() {
    let mut data = saturating();
    data.points.truncate(1);
    data.runs.retain(|r| r.point == 0);
    let (_, r) = only(&data);
    assert_eq!((r.outcome, r.point), (Outcome::OnlyOne, Some(0)));
    assert!(r.knee.is_none());
}

#[test]
fn the_fourteen_test_types_give_four_recommendations_and_what_cannot_be_told_apart_is_said() {
    let report = Report::new(&fourteen(6)).unwrap();
    let labels: Vec<String> = report.recommendations.iter().map(|r| r.work.label()).collect();
    assert_eq!(labels, ["Streaming reads", "Streaming writes", "Random reads, 4k", "Random writes, 4k"]);
    let points: Vec<Option<u32>> = report.recommendations.iter().map(|r| r.point).collect();
    assert_eq!(points, [Some(4), Some(5), Some(10), Some(11)]);
    // Sequential seeking exists at depth 1 only, so the gain at depth 4 has two possible causes.
    assert!(report.recommendations[0].caveats[0].contains("Sequential seeking was measured at depth 1 only"));
}

/// Random reads of 4 KiB: two engines at two depths, and the depth matters, the engine does not.
fn engines_by_depth() -> SweepData {
    let mut data = saturating();
    let base = data.points[0].clone();
    (data.points, data.runs) = (Vec::new(), Vec::new());
    for (id, (engine, iodepth, megabytes)) in (0..).zip([
        ("io_uring", 1, 100.0),
        ("io_uring", 8, 300.0),
        ("libaio", 1, 100.5),
        ("libaio", 8, 299.0),
    ]) {
        let mut point = base.clone();
        point.id = id;
        point.test_type = None;
        point.settings =
            BTreeMap::from([("ioengine".into(), engine.into()), ("iodepth".into(), iodepth.to_string())]);
        point.workload.iodepth = iodepth;
        point.workload.ioengine = if engine == "libaio" { IoEngine::Libaio } else { IoEngine::IoUring };
        for pass in 1..=10u32 {
            let wobble = 1.0 + 0.002 * f64::from((pass * 7 + id) % 5);
            let row = run(&point, pass, (pass - 1) * 4 + id, megabytes * wobble);
            data.runs.push(RunRow { warnings: Vec::new(), ..row });
        }
        data.points.push(point);
    }
    data
}

#[test]
fn a_space_without_test_types_names_settings_and_flags_as_they_are_typed() {
    let (report, r) = only(&engines_by_depth());
    assert_eq!((r.outcome, r.point, r.tied.as_slice()), (Outcome::Equivalent, Some(1), &[1, 3][..]));
    assert_eq!(r.setting.as_deref(), Some("depth 8, ioengine=io_uring"));
    assert_eq!(r.flags.as_deref(), Some("--rw=randread --bs=4k --iodepth=8 --ioengine=io_uring"));
    // Against the cheapest, only what differs is named.
    assert_eq!(r.over_cheapest.unwrap().setting, "depth 1");
    assert_eq!(report.depth.len(), 2, "one curve an engine");
    let verdicts: Vec<(&str, &str, Option<bool>)> =
        report.effects.iter().map(|e| (e.dimension.as_str(), e.best.as_str(), e.matters)).collect();
    assert_eq!(verdicts[0], ("iodepth", "8", Some(true)));
    assert_eq!((verdicts[1].0, verdicts[1].2), ("ioengine", Some(false)));
    let depth = &report.effects[0].values[0];
    assert_eq!((depth.value.as_str(), depth.pairs), ("1", 2));
    assert!((depth.ratio - 1.0 / 3.0).abs() < 0.005, "{}", depth.ratio);
    let page = sweep::report::html(&report);
    assert!(page.contains("id=\"by-configuration\""));
}

#[test]
fn durability_is_not_tuned_away() {
    let mut data = engines_by_depth();
    for point in data.points.iter_mut().filter(|p| p.id >= 2) {
        point.workload.fdatasync = 1;
        point.settings.insert("fdatasync".into(), "1".into());
    }
    let report = Report::new(&data).unwrap();
    let labels: Vec<String> = report.recommendations.iter().map(|r| r.work.label()).collect();
    assert_eq!(labels, ["Random reads, 4k", "Random reads, 4k, fdatasync=1"]);
    assert!(report.recommendations[1].flags.as_ref().unwrap().contains("--fdatasync=1"));
}

#[test]
fn with_four_passes_judged_the_report_says_that_chauvenet_could_not_speak() {
    let four = Report::new(&fourteen(5)).unwrap().cleaning;
    assert!(!four.can_fire && four.limit > four.largest_possible);
    let five = Report::new(&fourteen(6)).unwrap().cleaning;
    assert!(five.can_fire);
    // The first pass of a write is 20 % off, so with it left in the criterion sees nothing but it.
    assert!(five.rejected_with_first_pass >= 7);
}

#[test]
fn the_first_pass_shows_in_the_trend_of_writes_more_than_of_reads() {
    let report = Report::new(&fourteen(6)).unwrap();
    let first: Vec<f64> = report.passes.iter().map(|trend| trend.passes[0].relative).collect();
    assert!((0.94..0.97).contains(&first[0]) && (0.78..0.82).contains(&first[1]), "{first:?}");
    assert!(report.passes.iter().all(|t| t.passes[0].set_aside && !t.passes[1].set_aside));
}

#[test]
fn a_control_point_that_loses_a_fifth_is_called_drifting() {
    let mut data = fourteen(6);
    assert!(!Report::new(&data).unwrap().drift.unwrap().moved);
    let last = data.controls.iter().map(|r| r.position).max().unwrap();
    for run in &mut data.controls {
        run.bandwidth_bytes_per_s *= 1.0 - 0.2 * f64::from(run.position) / f64::from(last);
    }
    let drift = Report::new(&data).unwrap().drift.unwrap();
    assert!(drift.moved && (-0.27..-0.17).contains(&drift.trend), "{}", drift.sentence());
}

#[test]
fn data_that_contradict_themselves_are_refused_by_name() {
    let mut data = saturating();
    data.runs.push(data.runs[0].clone());
    assert!(matches!(Report::new(&data), Err(AnalysisError::RunTwice { point: 0, pass: 1, .. })));
    let mut data = saturating();
    data.runs[3].point = 99;
    assert!(matches!(Report::new(&data), Err(AnalysisError::UnknownPoint { point: 99, .. })));
    let mut data = saturating();
    data.runs[3].iops = f64::NAN;
    assert!(matches!(Report::new(&data), Err(AnalysisError::NotAFigure { figure: "iops", .. })));
    let mut data = saturating();
    data.points.push(data.points[0].clone());
    assert!(matches!(Report::new(&data), Err(AnalysisError::PointTwice { point: 0 })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_order_in_which_runs_are_handed_over_changes_nothing(seed in any::<u64>()) {
        let data = fourteen(6);
        let mut shuffled = data.clone();
        let mut random = report_data::Random(seed);
        for i in (1..shuffled.runs.len()).rev() {
            shuffled.runs.swap(i, (random.bits() % (i as u64 + 1)) as usize);
        }
        shuffled.controls.reverse();
        shuffled.points.rotate_left((seed % 14) as usize);
        prop_assert_eq!(json(&Report::new(&data).unwrap()), json(&Report::new(&shuffled).unwrap()));
    }

    #[test]
    fn no_figures_make_it_panic_and_every_recommended_point_exists(
        figures in proptest::collection::vec((0u32..3, 1u32..7, 0.0f64..1e12, any::<bool>()), 0..18)
    ) {
        let mut data = saturating();
        data.runs.clear();
        for (i, (p, pass, figure, void)) in figures.into_iter().enumerate() {
            if data.runs.iter().any(|r| (r.point, r.pass) == (p, pass)) {
                continue;
            }
            let mut row = run(&data.points[p as usize], pass, i as u32, figure / 1e6);
            row.warnings = if void { vec![WarningCode::Unwritten] } else { Vec::new() };
            row.latency_ns_mean = 1.0;
            data.runs.push(row);
        }
        let report = Report::new(&data).unwrap();
        for r in &report.recommendations {
            prop_assert!(r.point.is_none_or(|id| report.point(id).is_some()));
            prop_assert_eq!(r.point.is_some(), r.setting.is_some());
        }
        let _ = (sweep::report::html(&report), sweep::report::markdown(&report), sweep::report::csv(&report));
        prop_assert!(!json(&report).contains("NaN"));
    }
}

#[test]
fn sides_that_alternated_are_told_as_b_by_a_with_the_verdict() {
    let line = |a: &[f64], b: &[f64]| {
        let mut data = random_reads([a, b, b]);
        data.points.truncate(2);
        data.runs.retain(|run| run.point < 2);
        for (point, side) in data.points.iter_mut().zip(["A", "B"]) {
            point.settings = [("side".to_owned(), side.to_owned())].into();
        }
        let report = Report::new(&data).unwrap();
        let lines = table(&report, 200);
        let row = lines
            .iter()
            .map(|line| line.plain())
            .skip_while(|line| !line.starts_with("Pair"))
            .nth(1)
            .unwrap();
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let slow = [99.0, 100.0, 101.0, 99.0, 100.0, 100.0, 101.0, 99.0, 100.0, 100.0];
    let fast = slow.map(|figure| 2.0 * figure + figure % 2.0);
    let same = [101.0, 100.0, 99.0, 100.5, 99.5, 101.0, 99.0, 100.0, 101.0, 99.0];
    let wild = [40.0, 100.0, 190.0, 99.0, 60.0, 170.0, 101.0, 45.0, 100.0, 180.0];
    let row = line(&slow, &fast);
    assert!(row.contains("2.00") && row.contains("B is better"), "{row}");
    let row = line(&fast, &slow);
    assert!(row.contains("0.49") && row.contains("A is better"), "{row}");
    let row = line(&slow, &same);
    assert!(row.contains("0.999") && row.contains("equivalent, within ± 5"), "{row}");
    let row = line(&slow, &wild);
    assert!(row.contains("undecided"), "{row}");
}

#[test]
fn the_flags_that_are_recommended_say_what_all_points_share() {
    let mut data = saturating();
    for point in &mut data.points {
        point.workload.ioengine = IoEngine::Psync;
        point.workload.direct = !point.workload.direct;
    }
    let direct = if data.points[0].workload.direct { 1 } else { 0 };
    let flags = only(&data).1.flags.unwrap();
    let expected = format!("--rw=randread --bs=4k --iodepth=128 --ioengine=psync --direct={direct}");
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(words(&flags), words(&expected));
}
