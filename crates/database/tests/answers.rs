//! Every query on SQLite against an independent computation over the same rows.

mod oracle;

use std::sync::atomic::AtomicBool;

use database::Engine;
use database::ask::{ask, ask_cold};
use database::dataset::{Dataset, Workload, load};
use database::engine::{Dialect, SkyIndex};
use database::query::Query;
use database::sqlite::{Journal, Sqlite};
use oracle::Oracle;

fn loaded(folder: &std::path::Path, workload: Workload, scale: u64) -> (Dataset, Box<dyn Engine>) {
    let dataset = Dataset::new(workload, scale, 7).unwrap();
    let mut engine = Sqlite::open(&folder.join("db.sqlite"), Journal::Rollback).unwrap();
    load(&mut engine, &dataset, &AtomicBool::new(false), &mut |_| ()).unwrap();
    (dataset, Box::new(engine))
}

/// Keys of a query, at most so many, over all that there are.
fn keys(query: Query, dataset: &Dataset, most: u64) -> impl Iterator<Item = u64> {
    let step = (query.keys(dataset) / most).max(1) as usize;
    (0..query.keys(dataset)).step_by(step).take(most as usize)
}

fn check(workload: Workload, scale: u64, most: u64) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (dataset, mut engine) = loaded(folder.path(), workload, scale);
    let oracle = Oracle::new(dataset);
    for &query in Query::of(workload) {
        let (mut rows, mut asked) = (0, 0);
        for key in keys(query, &dataset, most) {
            let (answer, cost) = ask(&mut *engine, &dataset, query, key).unwrap();
            let statement = query.statement(&dataset, key, Dialect::Sqlite, SkyIndex::Healpix);
            assert_eq!(answer, oracle.answer(query, key), "{} with key {key}: {statement:?}", query.word());
            assert!(cost.elapsed_ns > 0);
            rows += answer.rows;
            asked += 1;
        }
        assert!(rows >= asked, "{}: {rows} rows of {asked} questions", query.word());
    }
}

#[test]
fn every_query_of_ptf_returns_what_trying_every_pair_returns() {
    check(Workload::Ptf, 30_000, 12);
}

#[test]
fn every_query_of_bionet_returns_what_walking_the_rows_returns() {
    check(Workload::Bionet, 600, 12);
}

#[test]
fn plans_use_the_indexes_that_the_page_names() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (dataset, mut engine) = loaded(folder.path(), Workload::Ptf, 30_000);
    let mut plan = |query: Query| {
        engine.explain(&query.statement(&dataset, 0, Dialect::Sqlite, SkyIndex::Healpix)).unwrap()
    };
    for (query, index) in [
        (Query::Forward, "USING INDEX candidate_sky"),
        (Query::Backward, "USING INDEX candidate_sky"),
        (Query::Object, "USING INTEGER PRIMARY KEY"),
        (Query::ConeArcseconds, "USING INDEX candidate_sky"),
        (Query::ConeArcminute, "USING INDEX candidate_sky"),
        (Query::ConeDegree, "USING INDEX candidate_sky"),
        (Query::CrossMatch, "USING INDEX candidate_sky"),
        (Query::LightCurve, "USING INDEX candidate_sky"),
    ] {
        let plan = plan(query);
        assert!(plan.contains(index) && !plan.contains("SCAN c"), "{}:\n{plan}", query.word());
    }
    assert!(plan(Query::ColumnScan).starts_with("SCAN c"));
    drop(engine);
    let (dataset, mut engine) =
        loaded(tempfile::tempdir_in(folder.path()).unwrap().path(), Workload::Bionet, 600);
    let mut plan = |query: Query| {
        engine.explain(&query.statement(&dataset, 0, Dialect::Sqlite, SkyIndex::Healpix)).unwrap()
    };
    for (query, step) in [
        (Query::Enrichment, "SCAN a"),
        (Query::Cocitation, "SCAN a"),
        (Query::Paths, "SEARCH e USING INDEX edge_from"),
        (Query::Lookup, "SEARCH l USING INDEX alias_alias"),
        (Query::Neighbours, "SEARCH e USING INDEX edge_from"),
    ] {
        let plan = plan(query);
        assert!(plan.contains(step), "{}:\n{plan}", query.word());
    }
}

#[test]
fn a_cold_query_reads_the_pages_that_it_leaves_in_memory() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (dataset, mut engine) = loaded(folder.path(), Workload::Ptf, 30_000);
    if engine.make_cold().unwrap().resident_bytes > 0 {
        return eprintln!("skipped: this file system keeps its pages");
    }
    let mut cold = |query| ask_cold(&mut *engine, &dataset, query, 0, false).unwrap();
    let (point, scan) = (cold(Query::Forward), cold(Query::ColumnScan));
    let (of_point, of_scan) = (point.pages.unwrap(), scan.pages.unwrap());
    assert!(of_point.bytes > 0 && of_point.bytes * 4 < of_scan.bytes, "{of_point:?} {of_scan:?}");
    if let (Some(few), Some(many)) = (point.cost.blocks_read, scan.cost.blocks_read) {
        assert!(few > 3 && few * 10 < many, "{few} {many}");
        assert!(many * 4096 >= 30_000 * 100, "{many} blocks of 30,000 candidates");
    } else {
        eprintln!("skipped: this kernel counts no I/O of threads");
    }
    let again = ask(&mut *engine, &dataset, Query::Forward, 0).unwrap();
    assert_eq!(again.0, point.answer);
}
