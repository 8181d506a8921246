//! Files that are no results files, damaged ones, and large ones.

mod fake;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::ErrorClass;
use fake::{LADDER, identity};
use measure::record::TargetFacts;
use rusqlite::Connection;
use sweep::run::begin;
use sweep::space::Space;
use sweep::status::Status;
use sweep::store::{Measured, Store, StoreError};

fn begun(directory: &Path, space: &str) -> Store {
    let space = Space::parse("s.toml", space).unwrap();
    begin(&directory.join("results.db"), &space, &identity()).unwrap().store
}

/// Opens it in both ways; both must complain alike.
fn complaint(path: &Path) -> StoreError {
    let reading = Store::open_read_only(path).expect_err("must be refused");
    let writing = Store::open(path).expect_err("must be refused");
    assert_eq!(reading.to_string(), writing.to_string());
    assert!(reading.hint().is_some(), "{reading}");
    reading
}

#[test]
fn what_is_no_results_file_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert!(matches!(complaint(&dir.path().join("none.db")), StoreError::Missing { .. }));
    assert!(matches!(complaint(dir.path()), StoreError::Missing { .. }), "no results.db in the directory");
    let text = file("text.db", &b"shopping list ".repeat(100));
    assert!(matches!(complaint(&text), StoreError::Foreign { .. }));
    assert!(matches!(complaint(&file("empty.db", b"")), StoreError::Unbegun { .. }));
    assert!(matches!(complaint(Path::new("/dev/null")), StoreError::Foreign { .. }));
    let other = dir.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    assert!(matches!(complaint(&other), StoreError::Foreign { .. }));
    drop(begun(dir.path(), LADDER));
    let results = dir.path().join("results.db");
    for format in [2, 7] {
        Connection::open(&results).unwrap().pragma_update(None, "user_version", format).unwrap();
        let error = complaint(&results);
        let expected = format!("has format {format}, and this flashwright reads 3");
        assert!(error.to_string().contains(&expected), "{error}");
        assert_eq!(error.class(), ErrorClass::Invalid);
    }
}

#[test]
fn a_new_sweep_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let space = Space::parse("s", LADDER).unwrap();
    for content in [&b"precious, and longer than an SQLite header, which has one hundred bytes, so that it is read at all"[..], b"x"] {
        let path = dir.path().join("notes.txt");
        std::fs::write(&path, content).unwrap();
        let error = begin(&path, &space, &identity()).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    let error = begin(&dir.path().join("no/such/results.db"), &space, &identity()).unwrap_err();
    assert!(matches!(error, StoreError::NoDirectory { .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no lock file is left");
}

#[test]
fn an_empty_file_left_by_a_killed_beginner_is_used() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("results.db"), b"").unwrap();
    assert_eq!(begun(dir.path(), LADDER).missing().unwrap().len(), 12);
}

#[test]
fn a_damaged_file_is_an_error_that_names_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.db");
    for (sql, place) in [
        ("UPDATE points SET workload = '{' WHERE id = 2", "point 2"),
        ("UPDATE points SET test_type = 99 WHERE id = 1", "point 1"),
        ("DELETE FROM meta WHERE key = 'seed'", "meta 'seed'"),
        ("UPDATE meta SET value = 'x' WHERE key = 'passes'", "meta 'passes'"),
    ] {
        let _ = std::fs::remove_file(&path);
        drop(begun(dir.path(), LADDER));
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let store = Store::open_read_only(&path).unwrap();
        let error = store.plan().expect_err(sql);
        assert!(error.to_string().contains(place), "{sql}: {error}");
        assert_eq!(error.class(), ErrorClass::Failed);
    }
}

#[test]
fn overwritten_pages_never_make_a_reader_panic() {
    let dir = tempfile::tempdir().unwrap();
    drop(fill(dir.path(), 10));
    let whole = std::fs::read(dir.path().join("results.db")).unwrap();
    let seed = sweep::plan::fresh_seed();
    println!("seed {seed}");
    let mut random = sweep::plan::SplitMix64::new(seed);
    let path = dir.path().join("damaged.db");
    for _ in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(8) {
            let at = random.below(bytes.len() as u64 - 64) as usize;
            for byte in &mut bytes[at..at + 64] {
                *byte = random.next_u64() as u8;
            }
        }
        if random.below(3) == 0 {
            bytes.truncate(random.below(whole.len() as u64) as usize);
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(store) = Store::open_read_only(&path) {
            let _ = Status::of(&store);
            let _ = store.plan();
            for run in store.runs().unwrap_or_default() {
                let _ = store.record(run.id);
            }
        }
    }
}

#[test]
fn a_commit_cut_short_is_rolled_back_by_the_next_reader() {
    let dir = tempfile::tempdir().unwrap();
    let before = fill(dir.path(), 6).completeness().unwrap();
    let (from, copy) = (dir.path().join("results.db"), dir.path().join("copy.db"));
    let mut writer = Connection::open(&from).unwrap();
    // A cache of a few pages makes SQLite write to the file in the middle of a transaction, as a
    // large commit does; the pair of files is then what `kill -9` leaves.
    writer.execute_batch("PRAGMA cache_size = 5").unwrap();
    let transaction = writer.transaction().unwrap();
    for n in 0..200 {
        transaction
            .execute("INSERT INTO notes (key, value) VALUES (?1, ?2)", (format!("k{n}"), "x".repeat(2000)))
            .unwrap();
    }
    transaction.execute("DELETE FROM runs", []).unwrap();
    std::fs::copy(&from, &copy).unwrap();
    std::fs::copy(dir.path().join("results.db-journal"), dir.path().join("copy.db-journal")).unwrap();
    drop(transaction);
    assert!(std::fs::metadata(&copy).unwrap().len() > 200_000, "the transaction reached the file");
    let store = Store::open_read_only(&copy).unwrap();
    assert_eq!(store.completeness().unwrap(), before);
    assert!(store.notes().unwrap().is_empty());
    assert!(!dir.path().join("copy.db-journal").exists());
    assert!(!store.is_writable());
}

#[test]
fn a_run_that_is_there_or_was_not_planned_is_refused_by_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = begun(dir.path(), LADDER);
    let plan = store.plan().unwrap();
    let session = store.begin_session("0.1.0", &identity().machine).unwrap();
    let record = fake::record(&plan.points[0].workload, &TargetFacts::default(), 1.0);
    let wall = Duration::from_millis(1);
    let planned = plan.runs[0];
    store.insert_run(session, Measured { planned, record: &record, wall }).unwrap();
    assert!(store.insert_run(session, Measured { planned, record: &record, wall }).is_err());
    let mut unplanned = planned;
    (unplanned.position, unplanned.pass) = (9999, 77);
    assert!(store.insert_run(session, Measured { planned: unplanned, record: &record, wall }).is_err());
    assert_eq!(store.runs().unwrap().len(), 1);
    assert!(matches!(store.record(55).unwrap_err(), StoreError::NoSuchRow { .. }));
    drop(store);
    let count = |table: &str| -> i64 {
        let connection = Connection::open(dir.path().join("results.db")).unwrap();
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("runs"), count("records")), (1, 1), "a refused run leaves no record behind");
}

#[test]
fn notes_are_kept_with_the_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = begun(dir.path(), LADDER);
    store.set_note("scratch.size", "4g").unwrap();
    store.set_note("scratch.size", "8g").unwrap();
    drop(store);
    assert_eq!(Store::open_read_only(dir.path()).unwrap().notes().unwrap()["scratch.size"], "8g");
}

/// A store with this many runs, made without a commit for each.
fn fill(directory: &Path, runs: usize) -> Store {
    let space = format!(
        "[sweep]\nprotocol = 'dash'\nseed = 1\npasses = {}\n[space]\niodepth = [1, 2, 3, 4, 5]",
        runs.div_ceil(5).max(2)
    );
    let mut store = begun(directory, &space);
    let plan = store.plan().unwrap();
    let session = store.begin_session("0.1.0", &identity().machine).unwrap();
    let record = fake::record(&plan.points[0].workload, &TargetFacts::default(), 1.0);
    let first = Measured { planned: plan.runs[0], record: &record, wall: Duration::from_millis(600) };
    store.insert_run(session, first).unwrap();
    drop(store);
    // The other rows are copies of the first under their own position: one transaction, as many rows.
    let connection = Connection::open(directory.join("results.db")).unwrap();
    connection
        .execute_batch(&format!(
            "BEGIN;
             INSERT INTO records (id, length, zlib)
                 SELECT p.position + 2, r.length, r.zlib FROM plan p, records r
                 WHERE r.id = 1 AND p.kind = 'run' AND p.position != {first} ORDER BY p.position LIMIT {runs} - 1;
             INSERT INTO runs SELECT p.position + 2, p.point, p.pass, p.position, s.session, s.started_unix_ns,
                 s.interval_ns, s.bytes, s.ios, s.bandwidth_bytes_per_s, s.iops, s.latency_ns_mean,
                 s.latency_ns_p50, s.latency_ns_p99, s.latency_ns_p99_9, s.latency_ns_max, s.warnings,
                 s.wall_ns, p.position + 2
             FROM plan p, runs s WHERE s.id = 1 AND p.position + 2 IN (SELECT id FROM records WHERE id > 1);
             COMMIT;",
            first = plan.runs[0].position
        ))
        .unwrap();
    Store::open_read_only(directory).unwrap()
}

#[test]
fn reading_runs_touches_no_record() {
    let dir = tempfile::tempdir().unwrap();
    drop(fill(dir.path(), 50));
    // Records that cannot be read: whoever touched one would fail.
    Connection::open(dir.path().join("results.db"))
        .unwrap()
        .execute_batch("UPDATE records SET zlib = x'00', length = 1 << 60")
        .unwrap();
    let store = Store::open_read_only(dir.path()).unwrap();
    let runs = store.runs().unwrap();
    assert_eq!(runs.len(), 50);
    assert_eq!(store.completeness().unwrap().done, 50);
    Status::of(&store).unwrap();
    assert!(matches!(store.record(runs[0].id).unwrap_err(), StoreError::Damaged { .. }));
}

#[test]
fn the_cost_of_reading_grows_with_the_runs_and_not_faster() {
    let time = |runs: usize| {
        let dir = tempfile::tempdir().unwrap();
        let store = fill(dir.path(), runs);
        // The best of three: others use the machine as well.
        let once = || {
            let began = Instant::now();
            assert_eq!(store.runs().unwrap().len(), runs);
            assert!(store.missing_steps().unwrap().iter().all(|s| s.kind == sweep::plan::StepKind::Control));
            began.elapsed()
        };
        let best = (0..3).map(|_| once()).min().unwrap();
        println!("{runs} runs: {best:?}");
        best
    };
    let (small, large) = (time(1_000), time(20_000));
    // Twenty times the runs; quadratic would be four hundred times the cost.
    assert!(large < small * 100, "{small:?} → {large:?}");
}
