//! PostgreSQL as an engine, on real servers: answers, costs, and what is left after every kind of end.
//!
//! Without PostgreSQL, without a user that it may run as, or without Q3C, a test says what it leaves out. `make test-postgres` installs
//! them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use database::advise::{AdviseConfig, UNCHANGED, advise};
use database::ask::{Temperature, ask, ask_cold};
use database::compare::{Run, is_in_memory};
use database::dataset::{self, Dataset, Workload};
use database::engine::{Dialect, SkyIndex, Statement};
use database::ingest::{IngestConfig, ingest};
use database::postgres::{Existing, Managed, Postgres, is_there, remove};
use database::query::Query;
use database::schema::{Column, ColumnType, Rows, Table, Value};
use database::sqlite::{Journal, Sqlite};
use database::{DatabaseError, Engine};

#[path = "postgres/held.rs"]
mod held;
mod small;
#[path = "postgres/there.rs"]
mod there;

use held::postmaster;
use small::Small;

const SEED: u64 = 7;
/// A server's directory on the tier.
const NAME: &str = "flashwright-ptf.postgres";
/// What the control group of a server is called.
const GROUP: &str = "flashwright-postgres-";
const PATIENCE: Duration = Duration::from_secs(60);
/// The directory in which a test program's child keeps a server until it is killed.
const CHILD: &str = "FLASHWRIGHT_CHILD_POSTGRES";

/// A directory that a server's user can enter, beside the build because /tmp may be memory.
fn tier() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
    folder
}

fn managed(directory: &Path) -> Managed {
    Managed { directory: directory.join(NAME), ..Managed::default() }
}

/// A server, or None, having said why, where there cannot be one.
fn server(directory: &Path, sky: SkyIndex) -> Option<Postgres> {
    match Postgres::managed(&managed(directory), sky) {
        Ok(server) => Some(server),
        Err(error) => {
            let words = base::with_causes(&error);
            let is_missing = ["find PostgreSQL", "there is no user", "extension q3c", "Permission denied"]
                .iter()
                .any(|reason| words.contains(reason));
            assert!(is_missing, "{words}");
            eprintln!("SKIP PostgreSQL: {words} (make test-postgres)");
            None
        }
    }
}

fn sql(text: &str) -> Statement {
    Statement { sql: text.to_owned(), parameters: Vec::new() }
}

fn rows_of(engine: &mut dyn Engine, statement: &Statement) -> Result<Vec<Vec<Value>>, DatabaseError> {
    let mut rows = Vec::new();
    engine.run(statement, &mut |row| {
        rows.push(row.to_vec());
        Ok(())
    })?;
    Ok(rows)
}

/// Processes of a server in a directory: PostgreSQL's have its cluster as their own.
fn running_in(directory: &Path) -> Vec<u32> {
    let data = directory.join(NAME).join("data");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|process| fs::read_link(format!("/proc/{process}/cwd")).is_ok_and(|cwd| cwd == data))
        .collect()
}

fn wait_until_nothing_runs_in(directory: &Path) {
    let begun = Instant::now();
    while !running_in(directory).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "still running: {:?}", running_in(directory));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn words(error: &DatabaseError) -> (String, String) {
    (base::with_causes(error), error.hint().unwrap_or_default())
}

const COLUMNS: &[Column] = &[
    Column { name: "id", of: ColumnType::BigInt },
    Column { name: "small", of: ColumnType::Integer },
    Column { name: "real", of: ColumnType::Double },
    Column { name: "words", of: ColumnType::Text },
];
const TABLE: Table = Table { name: "sample", columns: COLUMNS, primary: Some("id"), indexes: &[] };

/// So many rows from a number on, each of some hundred bytes.
struct Sample {
    next: i64,
    end: i64,
}

impl Rows for Sample {
    fn next(&mut self, row: &mut Vec<Value>) -> bool {
        row.clear();
        if self.next > self.end {
            return false;
        }
        row.extend([
            Value::Integer(self.next),
            Value::Integer(-self.next),
            Value::Double(self.next as f64 / 3.0),
            Value::Text(format!("é{}", "x".repeat(100))),
        ]);
        self.next += 1;
        true
    }
}

#[test]
fn both_workloads_give_the_answers_that_sqlite_gives_by_either_index_of_the_sky() {
    let stop = AtomicBool::new(false);
    for (workload, scale) in [(Workload::Ptf, 60_000), (Workload::Bionet, 3000)] {
        let dataset = Dataset::new(workload, scale, SEED).unwrap();
        let reference = tier();
        let mut sqlite = Sqlite::open(&reference.path().join("reference"), Journal::Rollback).unwrap();
        dataset::load(&mut sqlite, &dataset, &stop, &mut |_| {}).unwrap();
        for sky in [SkyIndex::Healpix, SkyIndex::Q3c] {
            let folder = tier();
            let Some(mut postgres) = server(folder.path(), sky) else { continue };
            dataset::load(&mut postgres, &dataset, &stop, &mut |_| {}).unwrap();
            let queries: &[Query] = if workload == Workload::Ptf { &Query::PTF } else { &Query::BIONET };
            for &query in queries {
                for key in 0..query.keys(&dataset).min(5) {
                    let (expected, _) = ask(&mut sqlite, &dataset, query, key).unwrap();
                    let (found, cost) = ask(&mut postgres, &dataset, query, key).unwrap();
                    assert_eq!(found, expected, "{} {key} by {}", query.word(), sky.word());
                    assert!(cost.blocks_hit.unwrap() + cost.blocks_read.unwrap() > 0, "{cost:?}");
                }
            }
            assert!(postgres.size_bytes().unwrap() > 1 << 20);
            assert!(dataset::is_complete(&mut postgres, &dataset).unwrap());
            drop(postgres);
            assert_eq!(running_in(folder.path()), Vec::<u32>::new());
        }
    }
}

#[test]
fn values_come_back_as_they_were_loaded_and_a_load_is_counted_exactly() {
    let folder = tier();
    let Some(mut postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    postgres.create(&[TABLE]).unwrap();
    assert_eq!(postgres.loaded(&TABLE).unwrap(), 0);
    assert_eq!(postgres.load(&TABLE, &mut Sample { next: 1, end: 3000 }).unwrap(), 3000);
    assert_eq!(postgres.load(&TABLE, &mut Sample { next: 3001, end: 3010 }).unwrap(), 10);
    assert_eq!(postgres.loaded(&TABLE).unwrap(), 3010);
    postgres.finish_load(&[TABLE]).unwrap();
    let one = Statement {
        sql: "SELECT id, small, real, words FROM sample WHERE id = $1 AND small = $2 AND real > $3 AND words <> $4".to_owned(),
        parameters: vec![5.into(), (-5).into(), 1.5.into(), "é".into()],
    };
    let expected =
        vec![5.into(), (-5).into(), (5.0 / 3.0).into(), Value::Text(format!("é{}", "x".repeat(100)))];
    assert_eq!(rows_of(&mut postgres, &one).unwrap(), [expected]);
    let (plan, explained) = (postgres.plan(&one).unwrap(), postgres.explain(&one).unwrap());
    for told in [&plan, &explained] {
        assert!(told.contains("Index Scan using sample_id_key"), "{told}");
    }
    assert!(explained.contains("actual time") && !plan.contains("cost="), "{plan}");
    let empty = rows_of(&mut postgres, &sql("SELECT max(id) FROM sample WHERE id < 0")).unwrap();
    assert_eq!(empty, [[Value::Null]]);
    let (untold, _) = words(&rows_of(&mut postgres, &sql("SELECT now()")).unwrap_err());
    assert!(untold.contains("timestamptz") && untold.contains("cast it"), "{untold}");
    let facts = postgres.facts().unwrap();
    assert!(facts.is_owned && facts.version.starts_with("PostgreSQL "), "{facts:?}");
    assert!(facts.settings.contains(&("autovacuum".to_owned(), "off".to_owned())), "{facts:?}");
}

#[test]
fn alerts_are_durable_and_found_by_either_index_while_cones_are_searched() {
    for sky in [SkyIndex::Healpix, SkyIndex::Q3c] {
        let folder = tier();
        let Some(mut postgres) = server(folder.path(), sky) else { continue };
        let config = IngestConfig {
            history: 3000,
            rate: 300,
            cones: 20.0,
            seconds: 2,
            seed: SEED,
            is_in_memory: is_in_memory(folder.path()).unwrap(),
            stop: Arc::default(),
        };
        let ingested = ingest(&mut postgres, &config, &mut |_| ()).unwrap();
        assert_eq!((ingested.alerts, ingested.arcseconds.queries, ingested.arcminute.queries), (600, 20, 20));
        // What came in is found as in a database that was loaded at once.
        let dataset = Dataset::new(Workload::Ptf, 3600, SEED).unwrap();
        let mut sqlite = Sqlite::open(&folder.path().join("reference"), Journal::Rollback).unwrap();
        dataset::load(&mut sqlite, &dataset, &AtomicBool::new(false), &mut |_| {}).unwrap();
        for query in [Query::ConeArcseconds, Query::ConeArcminute, Query::ColumnScan] {
            for key in 0..query.keys(&dataset).min(20) {
                let (expected, _) = ask(&mut sqlite, &dataset, query, key).unwrap();
                assert_eq!(ask(&mut postgres, &dataset, query, key).unwrap().0, expected, "{}", query.word());
            }
        }
    }
}

#[test]
fn a_cold_query_reads_blocks_from_the_device_and_a_warm_one_does_not() {
    let folder = tier();
    let Some(mut postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    let dataset = Dataset::new(Workload::Ptf, 60_000, SEED).unwrap();
    dataset::load(&mut postgres, &dataset, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let mut other = postgres.connect().unwrap();
    let cold = match ask_cold(&mut postgres, &dataset, Query::Forward, 3, false) {
        Err(DatabaseError::Warm { .. }) => {
            return eprintln!("SKIP cold queries: this file system keeps its pages");
        }
        cold => cold.unwrap(),
    };
    assert!(cold.cost.blocks_read.unwrap() > 10, "{cold:?}");
    assert!(cold.pages.unwrap().bytes >= cold.cost.blocks_read.unwrap() * 4096, "{cold:?}");
    let (answer, warm) = ask(&mut postgres, &dataset, Query::Forward, 3).unwrap();
    assert_eq!((answer, warm.blocks_read), (cold.answer, Some(0)), "{}", Temperature::Warm.word());
    assert!(warm.blocks_hit.unwrap() >= cold.cost.blocks_read.unwrap(), "{warm:?}");
    // A connection of before the restart finds the server again.
    assert_eq!(ask(&mut *other, &dataset, Query::Forward, 3).unwrap().0, answer);
}

#[test]
fn a_directory_in_use_by_another_server_is_refused_and_a_removed_one_is_gone() {
    let folder = tier();
    let Some(postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    let (said, hint) = words(&Postgres::managed(&managed(folder.path()), SkyIndex::Healpix).unwrap_err());
    assert!(said.contains("uses it") && hint.contains("another directory"), "{said}");
    assert!(remove(&folder.path().join(NAME)).is_err(), "removed below a running server");
    drop(postgres);
    assert!(is_there(&folder.path().join(NAME)));
    remove(&folder.path().join(NAME)).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    remove(&folder.path().join(NAME)).unwrap();
    let mut postgres = server(folder.path(), SkyIndex::Healpix).expect("a server again");
    postgres.remove().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(running_in(folder.path()).is_empty());
}

#[test]
fn a_cluster_of_another_version_and_a_bad_setting_are_named_and_leave_nothing_running() {
    let folder = tier();
    let Some(mut postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    postgres.create(&[TABLE]).unwrap();
    let bad = vec![("work_mem".to_owned(), "much".to_owned())];
    let (said, _) = words(&postgres.vary(&bad).unwrap_err());
    assert!(said.contains("work_mem") && said.contains("much"), "{said}");
    assert_eq!(postgres.loaded(&TABLE).unwrap(), 0, "serves with the settings of before");
    postgres.vary(&[("work_mem".to_owned(), "5MB".to_owned())]).unwrap();
    assert!(postgres.facts().unwrap().settings.contains(&("work_mem".to_owned(), "5MB".to_owned())));
    drop(postgres);
    let with_bad = Managed { settings: bad, ..managed(folder.path()) };
    let (said, _) = words(&Postgres::managed(&with_bad, SkyIndex::Healpix).unwrap_err());
    assert!(said.contains("work_mem"), "{said}");
    assert!(
        running_in(folder.path()).is_empty() && is_there(&folder.path().join(NAME)),
        "a cluster of before stays"
    );
    let fresh = tier();
    let with_bad = Managed { directory: fresh.path().join(NAME), ..with_bad };
    assert!(Postgres::managed(&with_bad, SkyIndex::Healpix).is_err());
    assert_eq!(fs::read_dir(fresh.path()).unwrap().count(), 0, "a directory is half made");
    let version = folder.path().join(NAME).join("data/PG_VERSION");
    fs::write(&version, "8\n").unwrap();
    let (said, hint) = words(&Postgres::managed(&managed(folder.path()), SkyIndex::Healpix).unwrap_err());
    assert!(said.contains("find PostgreSQL 8") && hint.contains("postgresql-8"), "{said}; {hint}");
}

#[test]
fn a_setting_that_changes_a_plan_is_seen_in_what_is_read_and_the_server_is_as_it_was_afterwards() {
    let folder = tier();
    let Some(mut postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    let dataset = Dataset::new(Workload::Ptf, 60_000, SEED).unwrap();
    dataset::load(&mut postgres, &dataset, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let before = postgres.facts().unwrap();
    let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut config = AdviseConfig {
        dataset,
        queries: vec![Query::ColumnScan],
        // A cache that the table does not fit in, and what is set already.
        settings: vec![of("shared_buffers", "1MB"), of("random_page_cost", "1.1")],
        blocks: 1,
        seed: 1,
        is_in_memory: is_in_memory(folder.path()).unwrap(),
        stop: Arc::default(),
    };
    assert_eq!(config.names(), ["shared_buffers=1MB", "random_page_cost=1.1", UNCHANGED]);
    let mut asked = Vec::new();
    let advised = advise(&mut postgres, &config, &mut |name, _, _| asked.push(name.to_owned())).unwrap();
    match advised.ended {
        Some(DatabaseError::Warm { .. }) => {
            return eprintln!("SKIP settings: this file system keeps its pages");
        }
        ended => assert!(ended.is_none(), "{ended:?}"),
    }
    asked.sort();
    let mut names = config.names();
    names.sort();
    assert_eq!(asked, names);
    let warm = |place: usize| {
        let is_of = |run: &&Run| (run.tier, run.temperature) == (place, Temperature::Warm);
        advised.runs.iter().find(is_of).unwrap().asked.cost.blocks_read.unwrap()
    };
    assert!(warm(0) > 500 && warm(1) == 0 && warm(2) == 0, "{:?}", advised.runs);
    assert_eq!(postgres.facts().unwrap(), before);
    config.settings = vec![of("no_such_setting", "1")];
    assert!(advise(&mut postgres, &config, &mut |_, _, _| ()).is_err());
    assert_eq!(postgres.facts().unwrap(), before);
}

#[test]
fn the_users_own_server_is_asked_and_never_stopped() {
    let folder = tier();
    let Some(mut owned) = server(folder.path(), SkyIndex::Healpix) else { return };
    let socket = folder.path().join(NAME);
    let at = |user: &str, more: &str| Existing {
        connection: format!("host='{}' user={user} dbname=postgres {more}", socket.display()),
        ..Existing::default()
    };
    let mut existing = Postgres::existing(&at("flashwright", ""), SkyIndex::Healpix).unwrap();
    assert_eq!((existing.dialect(), existing.files()), (Dialect::Postgres, Vec::<PathBuf>::new()));
    assert!(!existing.facts().unwrap().is_owned);
    assert!(matches!(existing.make_cold(), Err(DatabaseError::NotOwned { .. })));
    let shared_buffers = [("shared_buffers".to_owned(), "1GB".to_owned())];
    let (said, _) = words(&existing.vary(&shared_buffers).unwrap_err());
    assert!(said.contains("shared_buffers") && said.contains("restarting"), "{said}");
    existing.vary(&[("random_page_cost".to_owned(), "7".to_owned())]).unwrap();
    assert!(existing.facts().unwrap().settings.contains(&("random_page_cost".to_owned(), "7".to_owned())));
    existing.vary(&[]).unwrap();
    assert!(!existing.facts().unwrap().settings.contains(&("random_page_cost".to_owned(), "7".to_owned())));
    existing.create(&[TABLE]).unwrap();
    existing.remove().unwrap();
    let left =
        rows_of(&mut owned, &sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'flashwright'")).unwrap();
    assert_eq!(left, [[Value::Integer(0)]]);
    drop(existing);
    assert_eq!(rows_of(&mut owned, &sql("SELECT 1")).unwrap(), [[Value::Integer(1)]]);

    // A user with a password, and one without the right to make a schema.
    for statement in ["CREATE ROLE walter LOGIN PASSWORD 'right'", "SELECT 1"] {
        rows_of(&mut owned, &sql(statement)).unwrap();
    }
    let rules = socket.join("data/pg_hba.conf");
    fs::write(&rules, "local all walter scram-sha-256\nlocal all all trust\n").unwrap();
    rows_of(&mut owned, &sql("SELECT CAST(pg_reload_conf() AS text)")).unwrap();
    let begun = Instant::now();
    let refused = loop {
        // The server reads its rules a moment later.
        match Postgres::existing(&at("walter", "password=wrong"), SkyIndex::Healpix) {
            Err(error) if words(&error).0.contains("password authentication failed") => break words(&error),
            _ => assert!(begun.elapsed() < PATIENCE, "the password is not asked for"),
        }
    };
    assert!(refused.1.contains("PGPASSWORD") && !refused.0.contains("wrong"), "{refused:?}");
    let (said, hint) =
        words(&Postgres::existing(&at("walter", "password=right"), SkyIndex::Healpix).unwrap_err());
    assert!(said.contains("permission denied") && hint.contains("GRANT CREATE"), "{said}; {hint}");
    let (said, hint) =
        words(&Postgres::existing(&at("flashwright", "dbname=none"), SkyIndex::Healpix).unwrap_err());
    assert!(said.contains("does not exist") && hint.contains("createdb"), "{said}; {hint}");
}

#[test]
fn a_server_that_is_not_there_is_named_with_what_to_check() {
    let folder = tier();
    let connection = format!("host='{}' user=flashwright", folder.path().display());
    let existing = Existing { connection, ..Existing::default() };
    let (said, hint) = words(&Postgres::existing(&existing, SkyIndex::Healpix).unwrap_err());
    assert!(said.contains("cannot connect") && hint.contains("is the server running"), "{said}; {hint}");
}

#[test]
fn a_connection_that_is_cut_in_a_query_or_a_load_is_told_and_the_next_request_connects_again() {
    let folder = tier();
    let Some(mut postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    postgres.create(&[TABLE]).unwrap();
    postgres.load(&TABLE, &mut Sample { next: 1, end: 10 }).unwrap();
    let mut other = postgres.connect().unwrap();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE pid <> pg_backend_pid() AND state = 'active' AND backend_type = 'client backend'";
    let cutter = std::thread::spawn(move || {
        let begun = Instant::now();
        while rows_of(&mut *other, &sql(cut)).unwrap() == [[Value::Integer(0)]] {
            assert!(begun.elapsed() < PATIENCE, "no session is at work");
            std::thread::sleep(Duration::from_millis(20));
        }
        other
    });
    let (said, hint) = words(&rows_of(&mut postgres, &sql("SELECT CAST(pg_sleep(60) AS text)")).unwrap_err());
    // The server's reason reaches a session that waits for an answer, and none between two messages of a request.
    let is_told = said.contains("terminating connection") || said.contains("connection closed");
    assert!(is_told && hint.contains("log"), "{said}; {hint}");
    let mut other = cutter.join().unwrap();
    assert_eq!(postgres.loaded(&TABLE).unwrap(), 10);

    /// Cuts the load's own connection in the middle.
    struct Cut<'a>(Sample, &'a mut dyn Engine, &'static str);
    impl Rows for Cut<'_> {
        fn next(&mut self, row: &mut Vec<Value>) -> bool {
            if self.0.next == 20_000 {
                rows_of(self.1, &sql(self.2)).unwrap();
            }
            self.0.next(row)
        }
    }
    let lost =
        postgres.load(&TABLE, &mut Cut(Sample { next: 11, end: 60_000 }, &mut *other, cut)).unwrap_err();
    assert!(words(&lost).0.contains("cannot load sample"), "{lost:?}");
    assert_eq!(postgres.loaded(&TABLE).unwrap(), 10, "all or none");
    assert_eq!(rows_of(&mut postgres, &sql("SELECT count(*) FROM sample")).unwrap(), [[Value::Integer(10)]]);
}

#[test]
fn a_full_disk_stops_a_load_with_clear_words_and_what_was_committed_stays() {
    let Some(small) = Small::new("130m") else { return };
    let Some(mut postgres) = server(small.path(), SkyIndex::Healpix) else { return };
    postgres.create(&[TABLE]).unwrap();
    let mut loaded = 0;
    let full = loop {
        let next = i64::try_from(loaded).unwrap() + 1;
        match postgres.load(&TABLE, &mut Sample { next, end: next + 19_999 }) {
            Ok(rows) => loaded += rows,
            Err(error) => break error,
        }
        assert!(loaded < 10_000_000, "the disk is never full");
    };
    let (said, hint) = words(&full);
    assert!(said.contains("No space left") && hint.contains("the tier is full"), "{said}; {hint}");
    drop(postgres);
    assert!(running_in(small.path()).is_empty());
    small.grow("400m");
    let mut postgres = server(small.path(), SkyIndex::Healpix).expect("a server again");
    assert_eq!(postgres.loaded(&TABLE).unwrap(), loaded);
    let next = i64::try_from(loaded).unwrap() + 1;
    postgres.load(&TABLE, &mut Sample { next, end: next }).unwrap();
    let counted = rows_of(&mut postgres, &sql("SELECT count(*), max(id) FROM sample")).unwrap();
    assert_eq!(counted, [[Value::Integer(next), Value::Integer(next)]]);
}

#[test]
fn a_disk_without_room_for_a_cluster_is_left_as_it_was() {
    let Some(small) = Small::new("8m") else { return };
    let error = Postgres::managed(&managed(small.path()), SkyIndex::Healpix).unwrap_err();
    let (said, hint) = words(&error);
    if said.contains("find PostgreSQL") || said.contains("there is no user") {
        return eprintln!("SKIP PostgreSQL: {said} (make test-postgres)");
    }
    assert!(said.contains("No space left") && hint.contains("full"), "{said}; {hint}");
    assert_eq!(fs::read_dir(small.path()).unwrap().count(), 0);
}

#[test]
fn a_limit_of_memory_holds_the_servers_processes_and_goes_with_them() {
    let folder = tier();
    let limited = Managed { memory_bytes: Some(256 << 20), ..managed(folder.path()) };
    let postgres = match Postgres::managed(&limited, SkyIndex::Healpix) {
        Ok(postgres) => postgres,
        Err(error) => return eprintln!("SKIP a limit of memory: {}", base::with_causes(&error)),
    };
    let group_of = |process: u32| {
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
        let line = groups.lines().find(|line| line.contains(GROUP)).unwrap_or_default().to_owned();
        line.rsplit(':').next().unwrap_or_default().to_owned()
    };
    let groups: Vec<_> = running_in(folder.path()).into_iter().map(group_of).collect();
    assert!(groups.len() > 3 && groups.iter().all(|group| group.contains(GROUP)), "{groups:?}");
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"].map(|root| format!("{root}{}", groups[0]));
    assert!(places.iter().any(|place| Path::new(place).exists()));
    drop(postgres);
    assert!(!places.iter().any(|place| Path::new(place).exists()), "the group stays");
}

/// Keeps a server until it is killed, where a test below starts this program again.
#[test]
fn child_keeps_a_server() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let _postgres = Postgres::managed(&managed(Path::new(&directory)), SkyIndex::Healpix).expect("a server");
    println!("\nready");
    std::thread::sleep(PATIENCE * 2);
}

fn child_with_server(directory: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program)
        .args(["--exact", "child_keeps_a_server", "--nocapture"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let is_ready = said.lines().map_while(Result::ok).any(|line| line == "ready");
    if !is_ready {
        let _ = child.kill();
        let _ = child.wait();
        panic!("the child has no server");
    }
    child
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_program_leaves_no_server_and_its_directory_serves_again() {
    let folder = tier();
    let Some(postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    drop(postgres);
    let mut child = child_with_server(folder.path());
    assert!(!running_in(folder.path()).is_empty());
    kill(&mut child);
    wait_until_nothing_runs_in(folder.path());
    let mut postgres = server(folder.path(), SkyIndex::Healpix).expect("a server again");
    assert_eq!(rows_of(&mut postgres, &sql("SELECT 1")).unwrap(), [[Value::Integer(1)]]);
}

#[test]
fn a_server_whose_program_and_keeper_were_killed_is_stopped_by_the_next_start() {
    let folder = tier();
    let Some(postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    drop(postgres);
    let mut child = child_with_server(folder.path());
    let postmaster = postmaster(folder.path());
    let status = fs::read_to_string(format!("/proc/{postmaster}/status")).unwrap();
    let keeper = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned();
    assert!(Command::new("kill").args(["-KILL", &keeper]).status().unwrap().success());
    kill(&mut child);
    assert!(
        running_in(folder.path()).contains(&postmaster),
        "the server ends by itself: nothing is tried here"
    );
    let mut postgres = server(folder.path(), SkyIndex::Healpix).expect("a server again");
    assert!(!running_in(folder.path()).contains(&postmaster));
    assert_eq!(rows_of(&mut postgres, &sql("SELECT 1")).unwrap(), [[Value::Integer(1)]]);
}

#[test]
fn a_cluster_whose_making_was_cut_off_is_made_anew() {
    let folder = tier();
    let Some(postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
    drop(postgres);
    let place = folder.path().join(NAME);
    fs::rename(place.join("data"), place.join("data.new")).unwrap();
    assert!(!is_there(&folder.path().join(NAME)));
    let postgres = server(folder.path(), SkyIndex::Healpix).expect("a server again");
    assert!(is_there(&folder.path().join(NAME)) && !place.join("data.new").exists());
    drop(postgres);
}
