//! Loads that are cut off and go on, databases that are another one, and comparisons on two tiers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use database::ask::{Temperature, ask};
use database::compare::{Begun, Config, Listener, LoadedTier, Plan, Run, TierSpec, compare, is_in_memory};
use database::dataset::{Dataset, LoadProgress, Workload, find, load};
use database::engine::Statement;
use database::ingest::{IngestConfig, ingest};
use database::open::{self, EngineKind};
use database::query::Query;
use database::sqlite::{Journal, Sqlite};
use database::store::{self, Meta, Store};
use database::stream::{StreamConfig, stream};
use database::{DatabaseError, Engine, size};

mod small;

use small::Small;

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn opened(directory: &Path) -> Box<dyn Engine> {
    open::open_or_make(&EngineKind::Sqlite.into(), Workload::Ptf, directory).unwrap()
}

fn ptf(rows: u64) -> Dataset {
    Dataset::new(Workload::Ptf, rows, 5).unwrap()
}

/// All answers of all queries.
fn answers(engine: &mut dyn Engine, dataset: &Dataset) -> Vec<database::ask::Answer> {
    Query::of(dataset.workload()).iter().map(|&query| ask(engine, dataset, query, 3).unwrap().0).collect()
}

#[test]
fn a_load_that_was_cut_off_goes_on_to_the_same_database() {
    let (cut, whole) = (place(), place());
    // More rows than one batch, so that a table is cut off in its middle.
    let dataset = ptf(120_000);
    let mut engine = opened(cut.path());
    let (stop, mut cuts) = (AtomicBool::new(false), 0);
    loop {
        stop.store(false, Ordering::Relaxed);
        let mut steps = 0;
        let loaded = load(&mut *engine, &dataset, &stop, &mut |_| {
            // Further each time.
            steps += 1;
            stop.store(steps > cuts, Ordering::Relaxed);
        });
        match loaded {
            Ok(loaded) => {
                assert!(loaded.tables.iter().any(|table| table.resumed_rows > 0), "{loaded:?}");
                break;
            }
            Err(DatabaseError::Interrupted) => cuts += 7,
            Err(error) => panic!("{error}"),
        }
        assert!(matches!(find(&mut *engine, Workload::Ptf, "here"), Err(DatabaseError::Incomplete { .. })));
        engine = opened(cut.path());
    }
    assert!(cuts > 0);
    let mut other = opened(whole.path());
    load(&mut *other, &dataset, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!(answers(&mut *engine, &dataset), answers(&mut *other, &dataset));
    for table in dataset.tables() {
        assert_eq!(engine.loaded(table).unwrap(), dataset.rows(table), "{}", table.name);
    }
    // A complete one is left alone.
    assert!(load(&mut *engine, &dataset, &AtomicBool::new(false), &mut |_| ()).unwrap().was_complete);
    assert_eq!(find(&mut *engine, Workload::Ptf, "here").unwrap(), dataset);
}

#[test]
fn a_batch_is_stored_whole_or_not_at_all() {
    struct Failing(u64);
    impl database::schema::Rows for Failing {
        fn next(&mut self, row: &mut Vec<database::schema::Value>) -> bool {
            // The third row repeats the number of the second.
            self.0 += 1;
            *row = [1, 2, 2][self.0 as usize - 1..][..1].iter().map(|id| (*id).into()).collect();
            row.extend([1.0, 2.0].map(Into::into));
            true
        }
    }
    let folder = place();
    let mut engine = opened(folder.path());
    engine.create(&[database::ptf::tables::FIELD]).unwrap();
    let error = engine.load(&database::ptf::tables::FIELD, &mut Failing(0)).unwrap_err();
    assert!(error.to_string().contains("cannot load ptffield"), "{error}");
    assert_eq!(engine.loaded(&database::ptf::tables::FIELD).unwrap(), 0);
}

#[test]
fn a_database_has_the_size_that_was_told_by_a_fifth() {
    for (workload, scale) in
        [(Workload::Ptf, 100_000), (Workload::Ptf, 3000), (Workload::Bionet, 3000), (Workload::Bionet, 300)]
    {
        let folder = place();
        let mut engine = Sqlite::open(&folder.path().join("database"), Journal::Rollback).unwrap();
        let dataset = Dataset::new(workload, scale, 3).unwrap();
        let told = size::estimate(&dataset, EngineKind::Sqlite);
        load(&mut engine, &dataset, &AtomicBool::new(false), &mut |_| ()).unwrap();
        let ratio = told.bytes() as f64 / engine.size_bytes().unwrap() as f64;
        println!("{} {scale}: {ratio}", workload.word());
        assert!((0.8..1.2).contains(&ratio), "{} {scale}: {ratio}", workload.word());
    }
}

#[test]
fn a_full_disk_stops_a_load_with_clear_words_and_it_goes_on_once_there_is_room() {
    let Some(small) = Small::new("15m") else { return };
    let dataset = ptf(150_000);
    let mut engine = opened(small.path());
    let full = load(&mut *engine, &dataset, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    let (said, hint) = (base::with_causes(&full), full.hint().unwrap());
    assert!(said.contains("cannot load candidate") && said.contains("full"), "{said}");
    assert!(hint.contains("free space there") && hint.contains("goes on"), "{hint}");
    // The first batch is whole, and nothing of the second is there.
    assert_eq!(engine.loaded(&database::ptf::tables::CANDIDATE).unwrap(), 100_000);
    drop(engine);
    small.grow("80m");
    let mut engine = opened(small.path());
    let loaded = load(&mut *engine, &dataset, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert!(loaded.tables.iter().any(|table| table.resumed_rows == 100_000), "{loaded:?}");
    let whole = place();
    let mut other = opened(whole.path());
    load(&mut *other, &dataset, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!(answers(&mut *engine, &dataset), answers(&mut *other, &dataset));
}

#[test]
fn a_database_of_other_rows_or_seed_is_refused() {
    let folder = place();
    let mut engine = opened(folder.path());
    load(&mut *engine, &ptf(1000), &AtomicBool::new(false), &mut |_| ()).unwrap();
    for other in [ptf(1001), Dataset::new(Workload::Ptf, 1000, 6).unwrap()] {
        let error = load(&mut *engine, &other, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("ptf of 1000 rows and seed 5, not ptf of"), "{error}");
        assert_eq!(error.class(), base::ErrorClass::Invalid);
    }
    let missing = open::open(&EngineKind::Sqlite.into(), Workload::Bionet, folder.path());
    assert!(matches!(missing.err(), Some(DatabaseError::Incomplete { .. })));
    let nowhere = open::open_or_make(&EngineKind::Sqlite.into(), Workload::Ptf, &folder.path().join("no"));
    assert!(matches!(nowhere.err(), Some(DatabaseError::Invalid { .. })));
    assert!(Dataset::new(Workload::Bionet, 99, 1).is_err() && Dataset::new(Workload::Ptf, 0, 1).is_err());
}

#[test]
fn what_is_no_database_is_refused_and_left_as_it_is() {
    let folder = place();
    let path = open::path(EngineKind::Sqlite, Workload::Ptf, folder.path());
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    let error = open::open_or_make(&EngineKind::Sqlite.into(), Workload::Ptf, folder.path()).err().unwrap();
    assert!(error.hint().unwrap().contains("another directory"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![b'x'; 8192]);
}

/// Keeps what it is told.
#[derive(Default)]
struct Kept {
    blocks: usize,
    tiers: Vec<LoadedTier>,
    plans: Vec<Plan>,
    /// Sets this after the first block.
    stop: Option<Arc<AtomicBool>>,
    /// Does this before the first question.
    before: Option<Box<dyn FnOnce()>>,
}

impl Listener for Kept {
    fn cleared(&mut self, _path: &Path) {}

    fn loading(&mut self, _tier: &str, _progress: LoadProgress<'_>) {}

    fn loaded(&mut self, tiers: &[LoadedTier], plans: &[Plan]) -> Result<(), DatabaseError> {
        self.tiers = tiers.to_vec();
        self.plans = plans.to_vec();
        if let Some(before) = self.before.take() {
            before();
        }
        Ok(())
    }

    fn asking(&mut self, _tier: &str, _block: u32, _query: Query) {}

    fn block(&mut self, _runs: &[Run]) -> Result<(), DatabaseError> {
        self.blocks += 1;
        if let Some(stop) = &self.stop {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn config(folder: &Path, keep: bool, stop: &Arc<AtomicBool>) -> Config<'static> {
    let tiers = ["one", "other"].map(|name| {
        let directory = folder.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        TierSpec { name: name.to_owned(), directory }
    });
    Config {
        dataset: ptf(3000),
        tiers: tiers.to_vec(),
        queries: vec![Query::Forward, Query::ColumnScan],
        blocks: 2,
        seed: 1,
        keep,
        engine: EngineKind::Sqlite.into(),
        direct: &|_| None,
        stop: Arc::clone(stop),
        begun: None,
    }
}

fn files(folder: &Path) -> usize {
    ["one", "other"].map(|name| std::fs::read_dir(folder.join(name)).unwrap().count()).iter().sum()
}

#[test]
fn a_comparison_has_every_query_cold_and_warm_on_each_tier_and_removes_what_it_made() {
    let (folder, stop) = (place(), Arc::new(AtomicBool::new(false)));
    let mut kept = Kept::default();
    let compared = compare(&config(folder.path(), false, &stop), &mut kept).unwrap();
    assert!(compared.ended.is_none(), "{:?}", compared.ended);
    assert_eq!((compared.runs.len(), kept.blocks, files(folder.path())), (2 * 2 * 2 * 2, 2, 0));
    // Equal plans are told once.
    let plans: Vec<_> = kept.plans.iter().map(|of| (of.query, of.tiers.join(" "))).collect();
    assert_eq!(plans, [Query::Forward, Query::ColumnScan].map(|query| (query, "one other".to_owned())));
    assert!(kept.plans[0].plan.contains("SEARCH c USING INDEX candidate_sky"), "{:?}", kept.plans);
    assert_eq!(kept.plans[1].plan, "SCAN c");
    for block in 0..2 {
        for query in [Query::Forward, Query::ColumnScan] {
            let of = |temperature| {
                let is_of =
                    |run: &&Run| (run.block, run.query, run.temperature) == (block, query, temperature);
                compared.runs.iter().filter(is_of).map(|run| run.key).collect::<Vec<_>>()
            };
            let key = u64::from(block);
            assert_eq!((of(Temperature::Cold), of(Temperature::Warm)), (vec![key; 2], vec![key; 2]));
        }
    }
    // What was there stays, and what --keep says stays.
    compare(&config(folder.path(), true, &stop), &mut Kept::default()).unwrap();
    assert_eq!(files(folder.path()), 2);
    compare(&config(folder.path(), false, &stop), &mut Kept::default()).unwrap();
    assert_eq!(files(folder.path()), 2);
}

#[test]
fn an_interrupted_comparison_keeps_whole_blocks_and_leaves_no_database() {
    let (folder, stop) = (place(), Arc::new(AtomicBool::new(false)));
    let mut kept = Kept { stop: Some(Arc::clone(&stop)), ..Kept::default() };
    let compared = compare(&config(folder.path(), false, &stop), &mut kept).unwrap();
    assert!(matches!(compared.ended, Some(DatabaseError::Interrupted)), "{:?}", compared.ended);
    assert_eq!((compared.runs.len(), files(folder.path())), (8, 0));
    // Also if it is stopped while it loads.
    let error = compare(&config(folder.path(), false, &stop), &mut Kept::default()).err();
    assert!(matches!(error, Some(DatabaseError::Interrupted)), "{error:?}");
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn a_comparison_goes_on_after_its_last_complete_block_as_if_it_had_not_been_cut_off() {
    let (folder, stop) = (place(), Arc::new(AtomicBool::new(false)));
    let whole = |begun| Config { blocks: 3, begun, ..config(folder.path(), false, &stop) };
    let asked = |runs: &[Run]| -> Vec<_> {
        runs.iter().map(|run| (run.block, run.tier, run.query, run.key, run.asked.answer)).collect()
    };
    let expected = compare(&whole(None), &mut Kept::default()).unwrap();
    let cut = compare(&config(folder.path(), false, &stop), &mut Kept::default()).unwrap();
    let begun = Begun { tiers: cut.tiers, runs: cut.runs };
    let mut kept = Kept::default();
    let compared = compare(&whole(Some(begun.clone())), &mut kept).unwrap();
    assert!(compared.ended.is_none(), "{:?}", compared.ended);
    assert_eq!((asked(&compared.runs), kept.blocks), (asked(&expected.runs), 1));
    assert_eq!((compared.runs[..16].to_vec(), &compared.tiers), (begun.runs.clone(), &begun.tiers));
    // Nothing is left to do: not even a database is made.
    let done = Begun { tiers: begun.tiers.clone(), runs: compared.runs };
    let mut kept = Kept::default();
    assert_eq!(compare(&whole(Some(done)), &mut kept).unwrap().runs.len(), 24);
    assert!(kept.blocks == 0 && kept.tiers.is_empty());
    let mut changed = begun;
    changed.tiers[1].engine.settings[0].1 = "8192".to_owned();
    let refused = compare(&whole(Some(changed)), &mut Kept::default()).err().unwrap();
    assert!(refused.to_string().contains("page_size was 8192, and is 4096"), "{refused}");
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn tiers_that_answer_differently_end_the_comparison() {
    let (folder, stop) = (place(), Arc::new(AtomicBool::new(false)));
    let path = open::path(EngineKind::Sqlite, Workload::Ptf, &folder.path().join("other"));
    let damage = move || {
        let mut sqlite = Sqlite::open(&path, Journal::Rollback).unwrap();
        let sql = "UPDATE candidate SET flag = flag + 1 WHERE mag_err < 0.1".to_owned();
        sqlite.run(&Statement { sql, parameters: Vec::new() }, &mut |_| Ok(())).unwrap();
    };
    let mut kept = Kept { before: Some(Box::new(damage)), ..Kept::default() };
    let compared = compare(&config(folder.path(), false, &stop), &mut kept).unwrap();
    let error = compared.ended.unwrap();
    assert!(matches!(error, DatabaseError::Differ { query: "column-scan", .. }), "{error}");
    assert!(error.to_string().contains(" on one") && error.to_string().contains(" on other"), "{error}");
    assert_eq!((compared.runs.len(), files(folder.path())), (0, 0));
}

#[test]
fn results_are_read_as_they_were_kept_and_no_other_file_is_taken_for_them() {
    let (folder, stop) = (place(), Arc::new(AtomicBool::new(false)));
    let mut kept = Kept::default();
    let config = config(folder.path(), false, &stop);
    let compared = compare(&config, &mut kept).unwrap();
    let meta = Meta {
        dataset: config.dataset,
        queries: config.queries.clone(),
        tiers: kept.tiers,
        plans: kept.plans,
        notes: vec!["a note".to_owned()],
    };
    let path = folder.path().join(store::FILE_NAME);
    let mut store = Store::create(&path, &meta).unwrap();
    let (first, second): (Vec<Run>, Vec<Run>) = compared.runs.iter().partition(|run| run.block == 0);
    store.block(&meta.tiers, &first).unwrap();
    store.block(&meta.tiers, &second).unwrap();
    // A block is there once.
    assert!(store.block(&meta.tiers, &second).is_err());
    drop(store);
    let read = store::read(folder.path()).unwrap();
    assert_eq!((read.meta, read.runs), (meta.clone(), compared.runs));
    assert!(matches!(Store::create(&path, &meta), Err(DatabaseError::Io { .. })));
    let other = folder.path().join("other.db");
    drop(Sqlite::open(&other, Journal::Rollback).unwrap());
    let error = store::read(&other).unwrap_err();
    assert!(error.to_string().contains("is not the results of db compare"), "{error}");
}

#[test]
fn a_stream_asks_every_key_once_and_counts_from_the_time_that_a_query_was_due() {
    let folder = place();
    let mut engine = opened(folder.path());
    let dataset = ptf(5000);
    load(&mut *engine, &dataset, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let stop = AtomicBool::new(false);
    let lasts = std::time::Duration::from_millis(200);
    let config = StreamConfig {
        dataset,
        query: Query::Forward,
        rate: 100.0,
        lasts,
        connections: 2,
        first_key: 0,
        stop: &stop,
    };
    let streamed = stream(&*engine, &config).unwrap();
    assert_eq!((streamed.queries, streamed.are_distinct), (20, true));
    // All of them are due within a microsecond of each other, so that all but the first wait for those before.
    let late =
        StreamConfig { rate: 1e6, lasts: std::time::Duration::from_micros(50), connections: 1, ..config };
    let streamed = stream(&*engine, &late).unwrap();
    assert_eq!(streamed.queries, 50);
    assert!(streamed.from_due.max_ms > 3.0 * streamed.service.p50_ms, "{streamed:?}");
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(stream(&*engine, &config), Err(DatabaseError::Interrupted)));
}

#[test]
fn alerts_are_durable_and_found_while_cones_are_searched() {
    let folder = place();
    let mut engine = Sqlite::open(&folder.path().join("alerts.sqlite"), Journal::WriteAhead).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let config = IngestConfig {
        history: 3000,
        rate: 300,
        cones: 20.0,
        seconds: 2,
        seed: 1,
        is_in_memory: is_in_memory(folder.path()).unwrap(),
        stop,
    };
    let ingested = ingest(&mut engine, &config, &mut |_| ()).unwrap();
    assert_eq!((ingested.alerts, ingested.arcseconds.queries, ingested.arcminute.queries), (600, 20, 20));
    let mut again = Sqlite::open(&folder.path().join("alerts.sqlite"), Journal::WriteAhead).unwrap();
    assert_eq!(again.loaded(&database::ptf::tables::CANDIDATE).unwrap(), 3600);
    let dataset = ptf(3600);
    let (answer, _) =
        ask(&mut again, &Dataset::new(Workload::Ptf, 3600, 1).unwrap(), Query::ColumnScan, 0).unwrap();
    assert_eq!((answer.rows, dataset.scale()), (1, 3600));
}

/// Runs something with a flag that is set later and later, until it has figures.
fn interrupted_later<T>(mut run: impl FnMut(&Arc<AtomicBool>) -> Result<T, DatabaseError>) -> T {
    for attempt in 0..9 {
        let stop = Arc::new(AtomicBool::new(false));
        let setter = Arc::clone(&stop);
        let timer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300 << attempt));
            setter.store(true, Ordering::Relaxed);
        });
        let came = run(&stop);
        timer.join().unwrap();
        match came {
            Err(DatabaseError::Interrupted) => {}
            came => return came.unwrap(),
        }
    }
    panic!("nothing was answered in a minute");
}

#[test]
fn a_stream_that_is_interrupted_keeps_the_figures_of_what_was_answered() {
    let folder = place();
    let mut engine = opened(folder.path());
    let dataset = ptf(5000);
    load(&mut *engine, &dataset, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let hour = std::time::Duration::from_secs(3600);
    let streamed = interrupted_later(|stop| {
        let config = StreamConfig {
            dataset,
            query: Query::Forward,
            rate: 100.0,
            lasts: hour,
            connections: 2,
            first_key: 0,
            stop,
        };
        stream(&*engine, &config)
    });
    assert!(streamed.is_interrupted && streamed.queries > 0 && streamed.rows > 0, "{streamed:?}");
    assert!(streamed.lasted_s < 600.0 && streamed.from_due.max_ms > 0.0, "{streamed:?}");
}

#[test]
fn alerts_that_are_interrupted_keep_the_figures_of_what_was_durable_and_found() {
    let folder = place();
    let is_in_memory = is_in_memory(folder.path()).unwrap();
    let mut attempt = 0;
    let ingested = interrupted_later(|stop| {
        attempt += 1;
        let path = folder.path().join(format!("alerts-{attempt}.sqlite"));
        let mut engine = Sqlite::open(&path, Journal::WriteAhead).unwrap();
        let (seconds, stop) = (3600, Arc::clone(stop));
        let config =
            IngestConfig { history: 3000, rate: 300, cones: 40.0, seconds, seed: 1, is_in_memory, stop };
        ingest(&mut engine, &config, &mut |_| ())
    });
    assert!(ingested.is_interrupted && ingested.alerts > 0, "{ingested:?}");
    assert!(ingested.alerts.is_multiple_of(300), "half of a second's alerts");
    assert!(ingested.arcseconds.is_interrupted && ingested.arcminute.queries > 0, "{ingested:?}");
}
