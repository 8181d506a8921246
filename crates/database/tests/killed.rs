//! Comparisons that are killed at every step: what is left is found and goes with the next one, and nothing else does.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use database::claim::{Claim, open_claimed, open_scratch};
use database::compare::{Config, Listener, LoadedTier, Plan, Run, TierSpec, compare};
use database::dataset::{Dataset, LoadProgress, Workload, load};
use database::engine::{Engine, Statement};
use database::interrupt::interruptible;
use database::open::{self, EngineKind};
use database::query::Query;
use database::{DatabaseError, dataset};
use rustix::process::{Signal, getpid, kill_process};

/// Engine, directory and step of a test program's child, which kills itself at that step of a comparison.
const CHILD: &str = "FLASHWRIGHT_CHILD_COMPARES";

fn place() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn ptf(rows: u64) -> Dataset {
    Dataset::new(Workload::Ptf, rows, 5).unwrap()
}

fn config(kind: EngineKind, folder: &Path, rows: u64) -> Config<'static> {
    let tiers = ["one", "other"].map(|name| {
        let directory = folder.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        TierSpec { name: name.to_owned(), directory }
    });
    Config {
        dataset: ptf(rows),
        tiers: tiers.to_vec(),
        queries: vec![Query::Object],
        blocks: 1,
        seed: 1,
        keep: false,
        engine: kind.into(),
        direct: &|_| None,
        stop: Arc::default(),
        begun: None,
    }
}

/// Counts the steps of a comparison, and kills this process at one of them.
#[derive(Default)]
struct Steps {
    steps: usize,
    last: Option<usize>,
    cleared: Vec<PathBuf>,
}

impl Steps {
    fn step(&mut self) {
        self.steps += 1;
        if self.last == Some(self.steps) {
            kill_process(getpid(), Signal::KILL).unwrap();
            std::thread::park();
        }
    }
}

impl Listener for Steps {
    fn cleared(&mut self, path: &Path) {
        self.cleared.push(path.to_owned());
    }

    fn loading(&mut self, _: &str, _: LoadProgress<'_>) {
        self.step();
    }

    fn loaded(&mut self, _: &[LoadedTier], _: &[Plan]) -> Result<(), DatabaseError> {
        self.step();
        Ok(())
    }

    fn asking(&mut self, _: &str, _: u32, _: Query) {
        self.step();
    }

    fn block(&mut self, _: &[Run]) -> Result<(), DatabaseError> {
        self.step();
        Ok(())
    }
}

fn names(folder: &Path) -> Vec<String> {
    let tiers = ["one", "other"].iter().flat_map(|tier| std::fs::read_dir(folder.join(tier)).unwrap());
    tiers.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Compares until it is killed, where a test below starts this program again.
#[test]
fn child_compares_until_it_is_killed() {
    let Ok(words) = std::env::var(CHILD) else { return };
    let [engine, rows, step, folder] = words.splitn(4, ' ').collect::<Vec<_>>()[..] else {
        panic!("{words}")
    };
    let kind = EngineKind::ALL.into_iter().find(|kind| kind.word() == engine).unwrap();
    let mut steps = Steps { last: Some(step.parse().unwrap()), ..Steps::default() };
    let config = config(kind, Path::new(folder), rows.parse().unwrap());
    assert!(compare(&config, &mut steps).is_ok(), "a comparison of {} steps", steps.steps);
}

/// Kills a comparison at a step; false if it had ended before.
fn killed(kind: EngineKind, folder: &Path, rows: u64, step: usize) -> bool {
    let program = std::env::current_exe().unwrap();
    let words = format!("{} {rows} {step} {}", kind.word(), folder.display());
    let ended = Command::new(program)
        .args(["--exact", "child_compares_until_it_is_killed"])
        .env(CHILD, words)
        .output()
        .unwrap();
    let is_killed = ended.status.signal() == Some(Signal::KILL.as_raw());
    assert!(is_killed || ended.status.success(), "{ended:?}");
    is_killed
}

#[test]
fn what_a_comparison_left_that_was_killed_at_any_step_goes_with_the_next_one() {
    let folder = place();
    let mut step = 1;
    while killed(EngineKind::Sqlite, folder.path(), 1000, step) {
        assert!(names(folder.path()).iter().any(|name| name.ends_with(".claim")), "step {step}");
        // The same one goes on with what is there, another one cannot.
        let rows = if step % 2 == 0 { 1000 } else { 1001 };
        let mut steps = Steps::default();
        let compared = compare(&config(EngineKind::Sqlite, folder.path(), rows), &mut steps).unwrap();
        assert!(compared.ended.is_none() && compared.runs.len() == 4, "step {step}: {:?}", compared.ended);
        assert_eq!(names(folder.path()), Vec::<String>::new(), "step {step}");
        step += 1;
    }
    assert!(step > 8, "{step} steps");
    // A comparison of another workload on these directories clears them as well.
    assert!(killed(EngineKind::Sqlite, folder.path(), 1000, step - 1));
    let dataset = Dataset::new(Workload::Bionet, 300, 5).unwrap();
    let other =
        Config { dataset, queries: vec![Query::Lookup], ..config(EngineKind::Sqlite, folder.path(), 1) };
    let mut steps = Steps::default();
    compare(&other, &mut steps).unwrap();
    assert_eq!((steps.cleared.len(), names(folder.path()).len()), (2, 0));
}

#[test]
fn a_killed_comparison_leaves_databases_of_others_alone() {
    let folder = place();
    let one = config(EngineKind::Sqlite, folder.path(), 1000);
    let mut engine =
        open_claimed(&one.engine, &ptf(1000), &folder.path().join("one")).unwrap().keep().unwrap();
    load(&mut *engine, &ptf(1000), &AtomicBool::new(false), &mut |_| ()).unwrap();
    drop(engine);
    let last = {
        let mut steps = Steps::default();
        compare(&one, &mut steps).unwrap();
        steps.steps
    };
    assert_eq!(names(folder.path()), ["flashwright-ptf.sqlite"]);
    assert!(killed(EngineKind::Sqlite, folder.path(), 1000, last));
    compare(&one, &mut Steps::default()).unwrap();
    assert_eq!(names(folder.path()), ["flashwright-ptf.sqlite"]);
    // While one runs, no other may use what it made.
    let path = open::path(EngineKind::Sqlite, Workload::Ptf, &folder.path().join("other"));
    let running = Claim::take(&path).unwrap();
    let refused = compare(&one, &mut Steps::default()).err().unwrap();
    assert!(base::with_causes(&refused).contains("uses the database"), "{refused:?}");
    drop(running);
    // Who loads what was left has it.
    assert!(killed(EngineKind::Sqlite, folder.path(), 1000, last));
    let left = open_claimed(&one.engine, &ptf(1000), &folder.path().join("other")).unwrap();
    let mut engine = left.keep().unwrap();
    assert!(dataset::is_complete(&mut *engine, &ptf(1000)).unwrap());
    drop(engine);
    compare(&one, &mut Steps::default()).unwrap();
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn the_database_of_alerts_takes_the_place_of_one_that_was_left_and_of_no_other() {
    let folder = place();
    let choice = EngineKind::Sqlite.into();
    // Dropped as by a program that is killed: nothing is removed.
    drop(open_scratch(&choice, folder.path()).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    let scratch = open_scratch(&choice, folder.path()).unwrap();
    assert!(open_scratch(&choice, folder.path()).is_err(), "two at once");
    scratch.end().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::write(open::named(EngineKind::Sqlite, open::INGEST, folder.path()), "data").unwrap();
    assert!(matches!(open_scratch(&choice, folder.path()), Err(DatabaseError::Other { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// An engine in a directory; None, having said why, where there cannot be one.
fn engine(kind: EngineKind, folder: &Path) -> Option<Box<dyn Engine>> {
    match open::open_or_make(&kind.into(), Workload::Ptf, folder) {
        Ok(engine) => Some(engine),
        Err(error) if kind == EngineKind::Postgres => {
            eprintln!("SKIP PostgreSQL: {} (make test-postgres)", base::with_causes(&error));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_server_and_its_database_go_with_the_next_comparison() {
    let folder = place();
    let tried = place();
    let Some(probe) = engine(EngineKind::Postgres, tried.path()) else { return };
    drop::<Box<dyn Engine>>(probe);
    // While the first tier is loaded, and while the second one is.
    for step in [1, 20] {
        assert!(killed(EngineKind::Postgres, folder.path(), 1000, step), "step {step}");
        assert!(names(folder.path()).contains(&"flashwright-ptf.postgres".to_owned()));
        let mut steps = Steps::default();
        let kind = if step == 1 { EngineKind::Postgres } else { EngineKind::Sqlite };
        let compared = compare(&config(kind, folder.path(), 1001), &mut steps).unwrap();
        assert!(compared.ended.is_none(), "{:?}", compared.ended);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}

/// Runs a statement that has no end, until the flag ends it.
fn endless(engine: &mut dyn Engine, sql: &str) {
    let stop = AtomicBool::new(false);
    let ended = interruptible(&stop, |watch| {
        watch.over(engine);
        std::thread::scope(|scope| {
            scope.spawn(|| stop.store(true, Ordering::Relaxed));
            engine.run(&Statement { sql: sql.to_owned(), parameters: Vec::new() }, &mut |_| Ok(()))
        })
    });
    assert!(matches!(ended, Err(DatabaseError::Interrupted)), "{ended:?}");
    let one = Statement { sql: "SELECT 1".to_owned(), parameters: Vec::new() };
    engine.run(&one, &mut |_| Ok(())).unwrap();
}

#[test]
fn a_statement_ends_when_the_user_asks_to_stop() {
    let folder = place();
    let forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    endless(&mut *engine(EngineKind::Sqlite, folder.path()).unwrap(), forever);
    let Some(mut postgres) = engine(EngineKind::Postgres, folder.path()) else { return };
    endless(&mut *postgres, "SELECT CAST(pg_sleep(100000) AS text)");
}
