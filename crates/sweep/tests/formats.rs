//! Results and records are read for ever: the fixtures of `formats/`.

#[path = "../../../formats/dump.rs"]
mod dump;
mod fake;
#[path = "../../../formats/fixture.rs"]
mod fixture;

use std::path::Path;
use std::time::Duration;

use fixture::fixture;
use measure::limit::Verdict;
use measure::record::TargetFacts;
use measure::workload::Rw;
use measure::{Limit, RunRecord, Warning, WarningCode, Workload};
use rusqlite::Connection;
use sweep::plan::{PlannedRun, Protocol, Step, StepKind};
use sweep::space::Space;
use sweep::store::{Measured, Store, StoreError};

const SPACE: &str = "[sweep]\nprotocol = 'dash'\nname = 'old'\nseed = 1\npasses = 1\ndiscard_first = false\n[space]\niodepth = [1, 8]";

fn record(workload: &Workload) -> RunRecord {
    let mut record = fake::record(workload, &TargetFacts::default(), 1.0);
    record.warnings = vec![Warning::new(WarningCode::ClosedLoop, "4 requests in flight")];
    let evidence = "vda was busy 99 % of the time".to_owned();
    record.verdict =
        Some(Verdict { limit: Limit::Drives, evidence, at_percent_of_drives: None, others: vec![] });
    record
}

fn results() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.db");
    let space = Space::parse("old.toml", SPACE).unwrap();
    let mut store = sweep::run::begin(&path, &space, &fake::identity()).unwrap().store;
    let session = store.begin_session("0.1.0", &fake::identity().machine).unwrap();
    let plan = store.plan().unwrap();
    for planned in &plan.runs {
        let record = record(&plan.points[planned.point as usize].workload);
        store
            .insert_run(
                session,
                Measured { planned: *planned, record: &record, wall: Duration::from_secs(1) },
            )
            .unwrap();
    }
    drop(store);
    dump::dump(&Connection::open(path).unwrap()).into_bytes()
}

const BLOCKS: &str =
    "[sweep]\nname = 'blocks'\nseed = 1\nbudget = '60s'\ncontrol = false\n[space]\niodepth = [1, 8]";

/// A block, and one of which the second run is not there.
fn results_of_blocks() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.db");
    let space = Space::parse("blocks.toml", BLOCKS).unwrap();
    let mut store = sweep::run::begin(&path, &space, &fake::identity()).unwrap().store;
    let session = store.begin_session("0.1.0", &fake::identity().machine).unwrap();
    let points = store.points().unwrap();
    for block in 0..2u32 {
        let planned = |point: u32| PlannedRun { position: 2 * block + point, point, pass: block + 1 };
        let step = |point: u32| Step { planned: planned(point), kind: StepKind::Run };
        let used = Duration::from_secs(5 * u64::from(block));
        store.insert_block(&[step(0), step(1)], 1, used).unwrap();
        for point in 0..2 - block {
            let record = record(&points[point as usize].workload);
            let wall = Duration::from_millis(300);
            store.insert_run(session, Measured { planned: planned(point), record: &record, wall }).unwrap();
        }
    }
    drop(store);
    dump::dump(&Connection::open(path).unwrap()).into_bytes()
}

#[test]
fn results_of_format_3_are_read() {
    let sql = fixture("results-3.sql", results_of_blocks);
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &sql);
    let meta = store.meta().unwrap();
    assert_eq!((meta.protocol, meta.passes), (Protocol::Blocks, 0));
    assert_eq!((meta.budget, meta.spacing), (Some(Duration::from_secs(60)), Duration::from_secs(5)));
    assert_eq!(store.time_used().unwrap()[&1], Duration::from_secs(5));
    let board = store.board().unwrap();
    let entry = &board.stages[0].entries[0];
    assert_eq!((entry.whole, entry.last_block, entry.race.blocks()), (1, 2, 1));
    assert_eq!(store.cut().unwrap().len(), 2);
    let completeness = store.completeness().unwrap();
    assert_eq!((completeness.done, completeness.open_works, completeness.is_complete()), (3, 1, false));
    let report = sweep::report::Report::new(&sweep::load::load(&store).unwrap()).unwrap();
    assert_eq!((report.points.len(), report.runs.len(), report.contests[0].bandwidth.blocks), (2, 3, 1));
}

fn open(directory: &Path, sql: &[u8]) -> Store {
    let connection = Connection::open(directory.join("results.db")).unwrap();
    connection.execute_batch(std::str::from_utf8(sql).unwrap()).unwrap();
    drop(connection);
    Store::open_read_only(directory).unwrap()
}

#[test]
fn results_of_passes_are_read() {
    let sql = fixture("results-3-passes.sql", results);
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &sql);
    let plan = store.plan().unwrap();
    let depths: Vec<u32> = plan.points.iter().map(|point| point.workload.iodepth).collect();
    assert_eq!((depths, plan.runs.len()), (vec![1, 8], 2));
    let runs = store.runs().unwrap();
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!(
            (run.warnings.as_slice(), run.limit),
            (&[WarningCode::ClosedLoop][..], Some(Limit::Drives))
        );
        let record = store.record(run.id).unwrap();
        assert_eq!((record.bytes(), record.ios()), (run.bytes, run.ios));
        assert!(run.bytes > 0 && record.has_warning(WarningCode::ClosedLoop));
    }
    assert_eq!(store.completeness().unwrap().done, 2);
    let report = sweep::report::Report::new(&sweep::load::load(&store).unwrap()).unwrap();
    assert_eq!((report.points.len(), report.runs.len()), (2, 2));
}

#[test]
fn a_record_of_format_1_is_read() {
    let workload =
        Workload { rw: Rw::RandRw, iodepth: 4, runtime: Some(Duration::from_secs(5)), ..Workload::default() };
    let text = fixture("run-1.json", || serde_json::to_vec_pretty(&record(&workload)).unwrap());
    let found: RunRecord = serde_json::from_slice(&text).unwrap();
    assert_eq!((found.schema.as_str(), &found.workload), ("flashwright.run/1", &workload));
    assert!(found.bytes() > 0 && found.latency().count() > 0);
    assert_eq!(found.verdict.map(|verdict| verdict.limit), Some(Limit::Drives));
}

/// A later version may store options that this one does not know, in points and in records.
#[test]
fn a_workload_with_an_option_of_a_later_version_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let sql = String::from_utf8(fixture("results-3-passes.sql", results)).unwrap();
    let known = "\"iodepth\":8,";
    assert!(sql.contains(known), "the fixture's workloads");
    let later = sql.replace(known, "\"iodepth\":8,\"zone_reset\":5,");
    let store = open(directory.path(), later.as_bytes());
    let plan = store.plan().unwrap();
    let options: Vec<usize> = plan.points.iter().map(|point| point.workload.later_options.len()).collect();
    assert_eq!(options, [0, 1]);
    let report = sweep::report::Report::new(&sweep::load::load(&store).unwrap()).unwrap();
    assert_eq!((report.points.len(), report.runs.len()), (2, 2));
    let mut text: serde_json::Value = serde_json::from_slice(&fixture("run-1.json", Vec::new)).unwrap();
    text["workload"]["zone_reset"] = 5.into();
    let record: RunRecord = serde_json::from_value(text.clone()).unwrap();
    let written = serde_json::to_value(&record).unwrap();
    // Options that came after the fixture are written too, with their defaults.
    for (option, value) in text["workload"].as_object().unwrap() {
        assert_eq!(&written["workload"][option], value, "{option}");
    }
}

/// A record may keep its fields and have them mean something else: its version is asked.
#[test]
fn a_record_of_a_later_version_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let sql = fixture("results-3-passes.sql", results);
    drop(open(directory.path(), &sql));
    let connection = Connection::open(directory.path().join("results.db")).unwrap();
    let mut later = record(&Workload::default());
    later.schema = "flashwright.run/2".to_owned();
    let text = serde_json::to_vec(&later).unwrap();
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, &text).unwrap();
    let packed = packed.finish().unwrap();
    let changed =
        connection.execute("UPDATE records SET length = ?1, zlib = ?2", (text.len() as i64, packed)).unwrap();
    assert_eq!(changed, 2);
    drop(connection);
    let store = Store::open_read_only(directory.path()).unwrap();
    let error = store.record(1).unwrap_err().to_string();
    assert!(
        error.ends_with("record of runs row 1 is 'flashwright.run/2', which this flashwright does not know"),
        "{error}"
    );
    assert!(sweep::load::load(&store).is_err());
}

/// What a later version plans by is no damage, but decides how figures are read: they are not guessed at.
#[test]
fn a_plan_by_a_word_of_a_later_version_is_not_called_damage() {
    let sql = String::from_utf8(fixture("results-3.sql", results_of_blocks)).unwrap();
    for (key, word) in [("protocol", "blocks"), ("order", "random")] {
        let known = format!("'{key}','{word}'");
        assert!(sql.contains(&known), "the fixture's {key}");
        for (found, is_later) in [("sequential-halving", true), ("\u{1}?", false)] {
            let directory = tempfile::tempdir().unwrap();
            let store = open(directory.path(), sql.replace(&known, &format!("'{key}','{found}'")).as_bytes());
            let error = store.meta().unwrap_err();
            assert_eq!(matches!(error, StoreError::Later { .. }), is_later, "{error}");
            let words = format!("meta '{key}' is '{found}', which this flashwright does not know");
            assert_eq!(error.to_string().ends_with(&words), is_later, "{error}");
            assert!(error.hint().is_some());
        }
    }
}
