//! What a person finds in results.db with SQL.

mod fake;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fake::identity;
use measure::limit::Verdict;
use measure::record::{DirectionCounts, TargetFacts};
use measure::{Limit, RunRecord, Warning, WarningCode, Workload};
use rusqlite::Connection;
use sweep::model::RunRow;
use sweep::run::begin;
use sweep::space::Space;
use sweep::store::{Measured, RecordOf, Store};

const SPACE: &str = "[sweep]
protocol = 'dash'
seed = 1
passes = 2
control = false
[space]
iodepth = [1, 8]
bs = ['4k']";

fn record(workload: &Workload) -> RunRecord {
    let mut record = fake::record(workload, &TargetFacts::default(), 1.0);
    // A mixture: a fifth of it is written.
    record.write =
        DirectionCounts { bytes: record.read.bytes / 4, ios: record.read.ios / 4, ..record.read.clone() };
    (record.process.user_ns, record.process.system_ns) = (3 * record.ios(), 5 * record.ios());
    record.warnings.push(Warning::new(WarningCode::BackgroundWork, "ext4lazyinit wrote"));
    let evidence = "vda was busy".to_owned();
    record.verdict =
        Some(Verdict { limit: Limit::Drives, evidence, at_percent_of_drives: None, others: vec![] });
    record
}

/// A sweep with all runs of its first pass.
fn half(directory: &Path) -> Store {
    let space = Space::parse("s.toml", SPACE).unwrap();
    let mut store = begin(&directory.join("results.db"), &space, &identity()).unwrap().store;
    let session = store.begin_session("0", &identity().machine).unwrap();
    let plan = store.plan().unwrap();
    for planned in plan.runs.iter().filter(|planned| planned.pass == 1) {
        let record = record(&plan.points[planned.point as usize].workload);
        store
            .insert_run(session, Measured { planned: *planned, record: &record, wall: Duration::ZERO })
            .unwrap();
    }
    store
}

/// Neither what stores a run nor what reads it leaves a field out.
#[test]
fn a_run_is_read_as_it_was_returned_when_it_was_stored_and_no_figure_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let space = Space::parse("s.toml", SPACE).unwrap();
    let mut store = begin(&dir.path().join("results.db"), &space, &identity()).unwrap().store;
    let session = store.begin_session("0", &identity().machine).unwrap();
    let plan = store.plan().unwrap();
    let planned = *plan.runs.iter().find(|run| run.position > 0 && run.point > 0).unwrap();
    let record = record(&plan.points[planned.point as usize].workload);
    let stored =
        store.insert_run(session, Measured { planned, record: &record, wall: Duration::ZERO }).unwrap();
    let fields = |row: &RunRow| serde_json::to_value(row).unwrap();
    let (row, none) = (fields(&stored), fields(&RunRow::default()));
    for (name, value) in row.as_object().unwrap() {
        assert_ne!(value, &none[name], "{name}");
    }
    assert_eq!(store.runs().unwrap(), [stored]);
}

fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        let value = |n| row.get_unwrap::<_, rusqlite::types::Value>(n);
        Ok((0..columns).map(|n| format!("{:?}", value(n))).collect::<Vec<_>>().join(" "))
    };
    statement.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn each_run_is_a_row_with_a_column_for_each_setting() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = half(directory.path());
    let runs = store.runs().unwrap();
    let kept: BTreeMap<i64, &str> = runs.iter().map(|run| (run.id, "kept")).collect();
    let connection = Connection::open(directory.path().join("results.db")).unwrap();
    let sql = "SELECT kind, direction, fate, iodepth, limited_by, cpu_user_ns_per_io, cpu_system_ns_per_io FROM results ORDER BY iodepth";
    let before = rows(&connection, sql);
    assert_eq!(before.len(), 2);
    assert!(before.iter().all(|row| row.contains("Null")), "nothing is judged yet: {before:?}");
    store.set_fates(kept.iter().map(|(id, fate)| (RecordOf::Run(*id), *fate))).unwrap();
    store.set_fates(kept.iter().map(|(id, fate)| (RecordOf::Run(*id), *fate))).unwrap();
    let row = |depth: u32| {
        format!(
            "Text(\"run\") Text(\"read+write\") Text(\"kept\") Integer({depth}) Text(\"drives\") Real(3.0) Real(5.0)"
        )
    };
    assert_eq!(rows(&connection, sql), [row(1), row(8)]);
    // The tables by record agree with the records.
    for run in &runs {
        let record = store.record(run.id).unwrap();
        let sql = format!(
            "SELECT sum(d.bytes), sum(d.ios) FROM directions d JOIN runs r USING (record) WHERE r.id = {}",
            run.id
        );
        let written = record.read.bytes + record.write.bytes;
        assert_eq!(
            rows(&connection, &sql),
            [format!("Integer({written}) Integer({})", record.read.ios + record.write.ios)]
        );
    }
    let codes = rows(&connection, "SELECT DISTINCT number, code, message FROM warnings ORDER BY number");
    assert_eq!(codes.len(), 2, "{codes:?}");
    assert!(codes[1].contains("ext4lazyinit wrote"), "{codes:?}");
}

/// The database itself refuses a row whose point or pass is not that of its step in the plan.
#[test]
fn a_row_of_another_step_is_refused_by_the_database() {
    let directory = tempfile::tempdir().unwrap();
    drop(half(directory.path()));
    let connection = Connection::open(directory.path().join("results.db")).unwrap();
    connection.pragma_update(None, "foreign_keys", 1).unwrap();
    for change in ["point = 1 - point, pass = 2", "pass = 2", "position = 1000"] {
        let error = connection.execute(&format!("UPDATE runs SET {change} WHERE id = 1"), []).unwrap_err();
        assert!(error.to_string().contains("FOREIGN KEY"), "{change}: {error}");
    }
}
