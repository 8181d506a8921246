//! What only the inside can stage: a full disk, and a lock that is taken.

use std::path::Path;
use std::time::Duration;

use measure::record::{
    DirectionCounts, EngineFacts, HostFacts, ProcessCounts, RunRecord, SCHEMA, TargetFacts,
};

use super::*;
use crate::run::{Identity, begin};
use crate::space::Space;

fn begun(directory: &Path) -> Store {
    let space = Space::parse("s", "[sweep]\nprotocol = 'dash'\n[space]\niodepth = [1, 2]").unwrap();
    begin(&directory.join(FILE_NAME), &space, &Identity::default()).unwrap().store
}

/// A record of nothing, but of some megabytes: read as data, so that fields which records gain do not
/// matter here.
fn record() -> RunRecord {
    let nothing = serde_json::to_value(DirectionCounts::default()).unwrap();
    let mut record: RunRecord = serde_json::from_value(serde_json::json!({
        "schema": SCHEMA, "workload": {}, "target": TargetFacts::default(), "layout": {}, "pass": 1,
        "host": HostFacts::default(), "engine": EngineFacts::default(), "started_unix_ns": 1,
        "interval_ns": 1, "ramp_ns": 0, "tail_ns": 0, "read": nothing, "write": nothing,
        "trim": nothing, "jobs": [], "samples": [], "drives": [], "cpus": [],
        "process": ProcessCounts::default(), "verified_blocks": 0, "warnings": [],
    }))
    .unwrap();
    let numbers = (0..200_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_string());
    record.layout = numbers.map(|number| (number, String::new())).collect();
    record
}

#[test]
fn a_full_disk_is_a_clear_error_and_loses_only_the_run_in_progress() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = begun(dir.path());
    let session = store.begin_session("0", &Machine::default()).unwrap();
    let plan = store.plan().unwrap();
    let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    // SQLite reports this limit exactly as it reports ENOSPC: SQLITE_FULL.
    store.connection.pragma_update(None, "max_page_count", pages + 20).unwrap();
    let record = record();
    let measured = |planned| Measured { planned, record: &record, wall: Duration::ZERO };
    let error = store.insert_run(session, measured(plan.runs[0])).unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(error.hint().unwrap().contains("resume"));
    assert_eq!(store.missing().unwrap().len(), plan.runs.len());
    // Space again: the same store goes on.
    store.connection.pragma_update(None, "max_page_count", 1_000_000).unwrap();
    store.insert_run(session, measured(plan.runs[0])).unwrap();
    assert_eq!(store.record(1).unwrap().layout.len(), record.layout.len());
}

#[test]
fn a_sweep_that_cannot_be_begun_leaves_no_debris() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let space = Space::parse("s", "[sweep]\nprotocol = 'dash'\n[space]\niodepth = [1, 2]").unwrap();
    let held = lock::SweepLock::take(&path).unwrap();
    let error = begin(&path, &space, &Identity::default()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()));
    assert!(running(&path).unwrap().is_some());
    drop(held);
    assert_eq!(running(&path).unwrap(), None);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_lock_file_that_nobody_holds_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("results.db.lock"), "process 1 on elsewhere").unwrap();
    drop(begun(dir.path()));
    assert!(!dir.path().join("results.db.lock").exists());
}

#[test]
fn committed_runs_are_durable() {
    let dir = tempfile::tempdir().unwrap();
    let store = begun(dir.path());
    let pragma = |name: &str| -> String {
        let value: rusqlite::types::Value =
            store.connection.pragma_query_value(None, name, |r| r.get(0)).unwrap();
        format!("{value:?}")
    };
    // 3 is EXTRA: the directory is synced as well once the journal is gone.
    assert_eq!(pragma("synchronous"), "Integer(3)");
    assert_eq!(pragma("journal_mode"), "Text(\"delete\")");
    assert_eq!(pragma("foreign_keys"), "Integer(1)");
}
