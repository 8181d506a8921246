//! What limits a sweep's configurations: siblings are found by their settings, verdicts survive in results.db,
//! and every form of the report shows them.

mod fake;
mod report_data;

use std::collections::BTreeMap;
use std::time::Duration;

use measure::limit::Verdict;
use measure::workload::Rw;
use measure::{Limit, Workload};
use report_data::{meta, run};
use sweep::analysis::{SweepData, analyse};
use sweep::model::Point;
use sweep::report::{Report, csv, html, json, markdown, table};

/// A point of a space of layouts; the settings as they would be typed: `layout=md-raid0 width=4`.
fn point(id: u32, typed: &str) -> Point {
    let settings: BTreeMap<String, String> =
        typed.split(' ').map(|s| s.split_once('=').unwrap()).map(|(k, v)| (k.into(), v.into())).collect();
    let iodepth = settings.get("iodepth").map_or(32, |depth| depth.parse().unwrap());
    let workload = Workload { rw: Rw::RandRead, iodepth, ..Workload::default() };
    let mut point = report_data::point(id, 9);
    (point.settings, point.test_type, point.workload) = (settings, None, workload);
    "layout".clone_into(&mut point.target);
    point
}

fn unknown() -> Verdict {
    Verdict {
        limit: Limit::Unknown,
        evidence: "nothing was counted".into(),
        at_percent_of_drives: None,
        others: vec![],
    }
}

/// A sweep of these configurations, each with its MB/s in every pass of four.
fn sweep(configurations: &[(&str, f64)]) -> SweepData {
    sweep_of(4, configurations)
}

fn sweep_of(passes: u32, configurations: &[(&str, f64)]) -> SweepData {
    let points: Vec<Point> =
        configurations.iter().enumerate().map(|(id, (typed, _))| point(id as u32, typed)).collect();
    let mut runs = Vec::new();
    for pass in 1..=passes {
        for (point, (_, megabytes)) in points.iter().zip(configurations) {
            let position = runs.len() as u32;
            runs.push(run(point, pass, position, *megabytes * (1.0 + f64::from(pass % 2) * 0.004)));
        }
    }
    SweepData {
        meta: meta(passes, runs.len()),
        verdicts: points.iter().map(|p| (p.id, unknown())).collect(),
        points,
        runs,
        ..SweepData::default()
    }
}

fn limits(configurations: &[(&str, f64)]) -> Vec<Limit> {
    let analysis = analyse(&sweep(configurations)).unwrap();
    analysis.points.iter().map(|p| p.verdict.as_ref().unwrap().limit).collect()
}

#[test]
fn an_array_slower_than_its_drives_separately_is_limited_by_the_raid_layer() {
    use Limit::{Drives, RaidLayer, Unknown};
    let found = limits(&[
        ("layout=separate width=8 filesystem=raw", 3000.0),
        ("layout=md-raid0 width=8 filesystem=raw chunk=64k", 1500.0),
        ("layout=md-raid0 width=4 filesystem=raw chunk=64k", 1500.0),
        ("layout=single width=8 filesystem=raw", 400.0),
    ]);
    // Four drives as an array gave what they have; a single drive has nobody to be compared with.
    assert_eq!(found, [Drives, RaidLayer, Drives, Unknown]);
}

#[test]
fn where_one_run_was_kept_nothing_is_compared() {
    let configurations = [
        ("layout=separate width=8 filesystem=raw", 3000.0),
        ("layout=md-raid0 width=8 filesystem=raw chunk=64k", 1500.0),
    ];
    let analysis = analyse(&sweep_of(2, &configurations)).unwrap();
    assert!(analysis.points.iter().all(|p| p.bandwidth.unwrap().interval.is_none()));
    assert!(analysis.points.iter().all(|p| p.verdict.as_ref().unwrap().limit == Limit::Unknown));
}

#[test]
fn a_file_system_is_compared_with_the_same_devices_raw() {
    let found = limits(&[
        ("layout=md-raid0 filesystem=raw scheduler=none", 2000.0),
        ("layout=md-raid0 filesystem=xfs scheduler=none mount_options=noatime", 1200.0),
        ("layout=md-raid0 filesystem=xfs scheduler=bfq mount_options=noatime", 900.0),
    ]);
    assert_eq!(found, [Limit::Unknown, Limit::FileSystem, Limit::Unknown]);
}

#[test]
fn depth_is_compared_with_all_else_equal() {
    let found = limits(&[("iodepth=4", 100.0), ("iodepth=32", 700.0), ("iodepth=128", 710.0)]);
    assert_eq!(found, [Limit::QueueDepth, Limit::Drives, Limit::Drives]);
}

#[test]
fn an_array_is_measured_by_its_drives_alone_and_one_slow_drive_is_found_among_them() {
    let of = |slow: f64, array: f64| {
        let data = sweep(&[
            ("layout=single drives=/dev/a", 500.0),
            ("layout=single drives=/dev/b", 510.0),
            ("layout=single drives=/dev/c", slow),
            ("layout=stripe drives=/dev/a,/dev/b,/dev/c chunk=64k", array),
        ]);
        analyse(&data).unwrap().points[3].verdict.clone().unwrap()
    };
    let healthy = of(495.0, 1450.0);
    assert_eq!(healthy.limit, Limit::Drives);
    assert!((healthy.at_percent_of_drives.unwrap() - 96.3).abs() < 0.5, "{healthy:?}");
    let unbalanced = of(200.0, 590.0);
    assert_eq!(unbalanced.limit, Limit::UnbalancedDrives);
    assert!(unbalanced.evidence.starts_with("/dev/c alone gave"), "{}", unbalanced.evidence);
}

#[test]
fn an_array_of_few_requests_each_wants_more_by_the_drives_own_curve() {
    let found = limits(&[
        ("layout=single iodepth=4", 200.0),
        ("layout=single iodepth=32", 500.0),
        ("layout=md-raid0 width=8 iodepth=32", 1600.0),
    ]);
    assert_eq!(found[2], Limit::QueueDepth);
}

#[test]
fn every_form_of_the_report_shows_what_limits_it() {
    let report = Report::new(&sweep(&[("iodepth=4", 100.0), ("iodepth=32", 700.0)])).unwrap();
    assert_eq!(report.limits.len(), 2);
    let page = html(&report);
    assert!(page.contains("id=\"limits\"") && page.contains("<h3>queue depth</h3>"));
    assert!(markdown(&report).contains("## What limits it"));
    let rows = csv(&report);
    assert!(rows.lines().next().unwrap().contains(",limit,point_limit,"), "{rows}");
    assert!(rows.contains(",queue-depth,"), "{rows}");
    assert!(json(&report).contains("\"limit\":\"queue-depth\""));
    let text: Vec<String> = table(&report, 100).iter().map(|line| line.plain()).collect();
    assert!(text.iter().any(|line| line.starts_with("Limit of 1 configuration: queue depth.")), "{text:#?}");
    let schema = sweep::report::json_schema();
    let document: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
}

#[test]
fn two_hundred_and_forty_configurations_are_counted_and_not_listed() {
    let typed: Vec<String> = (0..240).map(|n| format!("chunk={}k iodepth=8", n + 1)).collect();
    let all: Vec<(&str, f64)> = typed.iter().map(|t| (t.as_str(), 100.0)).collect();
    let report = Report::new(&sweep(&all)).unwrap();
    let text = markdown(&report);
    let matrix = text.split("## Limits by test").nth(1).unwrap().split("\n## ").next().unwrap();
    assert!(matrix.contains("| randread 4k, depth 8 | 240 |"), "{matrix}");
    assert!(!html(&report).contains("Limit of each test on each configuration"));
}

#[test]
fn verdicts_are_kept_in_the_results_and_read_back_with_the_middle_run() {
    use sweep::space::Space;
    use sweep::store::Measured;

    let directory = tempfile::tempdir().unwrap();
    let space = Space::parse("ladder", fake::LADDER).unwrap();
    let begun = sweep::run::begin(&directory.path().join("results.db"), &space, &fake::identity()).unwrap();
    let mut store = begun.store;
    let session = store.begin_session("0.1.0", &fake::identity().machine).unwrap();
    let plan = store.plan().unwrap();
    for planned in &plan.runs {
        let point = &plan.points[planned.point as usize];
        let facts = measure::record::TargetFacts::default();
        let mut record = fake::record(&point.workload, &facts, 1.0);
        record.verdict = Some(unknown());
        let measured = Measured { planned: *planned, record: &record, wall: Duration::from_millis(1) };
        assert_eq!(store.insert_run(session, measured).unwrap().limit, Some(Limit::Unknown));
    }
    assert!(store.runs().unwrap().iter().all(|run| run.limit == Some(Limit::Unknown)));
    let data = sweep::load::load(&store).unwrap();
    assert_eq!(data.verdicts.len(), plan.points.len());
    assert_eq!(data.verdicts[&0], unknown());
}

#[test]
fn what_a_later_version_found_is_kept_and_shown_and_nothing_is_concluded_from_it() {
    use measure::{Warning, WarningCode};
    use sweep::space::Space;
    use sweep::store::Measured;

    let directory = tempfile::tempdir().unwrap();
    let space = Space::parse("ladder", fake::LADDER).unwrap();
    let begun = sweep::run::begin(&directory.path().join("results.db"), &space, &fake::identity()).unwrap();
    let mut store = begun.store;
    let session = store.begin_session("9.0.0", &fake::identity().machine).unwrap();
    let plan = store.plan().unwrap();
    let code = WarningCode::from_code("W-TOMORROW").unwrap();
    let limit = Limit::from_word("gravity").unwrap();
    for planned in &plan.runs {
        let point = &plan.points[planned.point as usize];
        let facts = measure::record::TargetFacts::default();
        let mut record = fake::record(&point.workload, &facts, 1.0);
        if planned.pass == 2 {
            record.warnings.push(Warning::new(code, "seen by a later version"));
        }
        record.verdict = Some(Verdict { limit, ..unknown() });
        let measured = Measured { planned: *planned, record: &record, wall: Duration::from_millis(1) };
        store.insert_run(session, measured).unwrap();
    }
    drop(store);
    let store = sweep::store::Store::open_read_only(directory.path()).unwrap();
    for run in store.runs().unwrap() {
        let carries = run.pass == 2;
        assert_eq!((run.warnings.contains(&code), run.is_void()), (carries, carries), "pass {}", run.pass);
        assert_eq!(run.limit, Some(limit));
        assert_eq!(store.verdict(run.id).unwrap().unwrap().limit, limit);
        assert_eq!(store.record(run.id).unwrap().has_warning(code), carries);
    }
    sweep::status::Status::of(&store).unwrap();
    let report = sweep::report::Report::new(&sweep::load::load(&store).unwrap()).unwrap();
    for run in &report.runs {
        assert_eq!(run.fate == sweep::analysis::Fate::Void, run.run.pass == 2, "pass {}", run.run.pass);
    }
    for text in [markdown(&report), html(&report), sweep::report::json(&report)] {
        assert!(text.contains("W-TOMORROW") && text.contains("gravity"), "{text}");
    }
    let schema = jsonschema::validator_for(&sweep::report::json_schema()).unwrap();
    let document = serde_json::from_str(&sweep::report::json(&report)).unwrap();
    assert_eq!(
        schema.iter_errors(&document).map(|error| error.to_string()).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
}
