//! From a results file to a report.

mod report_data;

use std::collections::BTreeMap;
use std::time::Duration;

use measure::record::{DirectionCounts, JobCounts, RunRecord, SCHEMA};
use measure::{Histogram, Warning, WarningCode};
use report_data::{Random, host, point, target};
use sweep::load::load;
use sweep::model::Point;
use sweep::plan::{Margin, Order, Plan, Prepare, Protocol, Rules, StepKind};
use sweep::report::Report;
use sweep::store::{Machine, Measured, Meta, Store};

fn record(point: &Point, pass: u32, random: &mut Random) -> RunRecord {
    let rate = 100_000.0 * (1.0 + 0.01 * random.normal()) * f64::from(point.workload.iodepth).sqrt();
    let (interval_ns, ios) = (500_000_000, (rate / 2.0) as u64);
    let bytes = ios * point.workload.bs;
    let mut latency = Histogram::new();
    latency.record_n((1e9 * f64::from(point.workload.iodepth) / rate) as u64, ios);
    let seen = target();
    RunRecord {
        schema: SCHEMA.to_owned(),
        workload: point.workload.clone(),
        target: seen.facts,
        layout: seen.layout,
        pass,
        precondition: None,
        host: host(),
        engine: seen.engine,
        started_unix_ns: report_data::START + u64::from(pass) * 1_000_000_000,
        interval_ns,
        read: DirectionCounts { bytes, ios, latency },
        jobs: vec![JobCounts { bytes, ios, interval_ns, ..JobCounts::default() }],
        warnings: vec![Warning::new(WarningCode::Virtual, "vda is a virtio device")],
        ..RunRecord::default()
    }
}

#[test]
fn a_results_file_becomes_a_report_with_latency_curves_and_what_the_records_say() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.db");
    let rules = Rules {
        passes: 6,
        order: Order::Random,
        control: Some(0),
        control_every: 4,
        seed: 7,
        shards: 1,
        prepare: Prepare::default(),
        protocol: Protocol::Dash,
        equivalence: Margin::default(),
        spacing: std::time::Duration::ZERO,
    };
    let plan = Plan::new(vec![point(0, 9), point(1, 11), point(2, 13)], rules);
    let machine = Machine { hostname: "node".to_owned(), host: host() };
    let meta = Meta {
        name: "three depths".to_owned(),
        space: "[sweep]\n".to_owned(),
        created_unix_ns: report_data::START,
        version: "0.1.0".to_owned(),
        seed: 7,
        passes: 6,
        order: Order::Random,
        discard_first: true,
        control: Some(0),
        control_every: 4,
        max_consecutive_failures: 3,
        plan_digest: plan.digest(),
        shards: 1,
        parts: vec![1],
        prepare: Prepare::default(),
        protocol: Protocol::Dash,
        budget: None,
        equivalence: Margin::default(),
        spacing: std::time::Duration::ZERO,
        machine: machine.clone(),
    };
    let mut store = Store::create(&path, &meta, &plan).unwrap();
    let session = store.begin_session("0.1.0", &machine).unwrap();
    let mut random = Random(3);
    let mut requests: BTreeMap<u32, u64> = BTreeMap::new();
    for step in plan.steps() {
        let planned = step.planned;
        let record = record(&plan.points[planned.point as usize], planned.pass, &mut random);
        let measured = Measured { planned, record: &record, wall: Duration::from_millis(520) };
        match step.kind {
            StepKind::Run => {
                store.insert_run(session, measured).unwrap();
                if planned.pass > 1 {
                    *requests.entry(planned.point).or_default() += record.ios();
                }
            }
            StepKind::Control => {
                store.insert_control(session, measured).unwrap();
            }
        }
    }
    store.insert_failure(session, plan.runs[0], StepKind::Run, "the drive went away").unwrap();
    drop(store);

    let data = load(&Store::open_read_only(&path).unwrap()).unwrap();
    let report = Report::new(&data).unwrap();
    assert!(report.completeness.is_complete());
    assert_eq!(report.recommendations[0].point, Some(2), "{}", report.recommendations[0].sentence);
    assert_eq!(report.runs.len(), 18);
    assert_eq!(report.controls.len(), plan.controls.len());
    let kept = report.points.iter().all(|p| p.runs.kept == 5);
    for curve in &report.latency {
        // Nothing of the first pass, and, where none was rejected, everything of the others.
        assert!(curve.requests <= requests[&curve.point]);
        assert!(!kept || curve.requests == requests[&curve.point]);
    }
    assert_eq!(report.latency.len(), 3);
    assert_eq!(report.targets, [target()]);
    assert_eq!(report.host, Some(host()));
    assert_eq!(report.warnings[0].example.as_deref(), Some("vda is a virtio device"));
    assert_eq!(report.failures[0].error, "the drive went away");
    assert_eq!(report.meta.order, "random within each pass");
}
