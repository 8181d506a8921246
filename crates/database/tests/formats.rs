//! The results of a comparison are read for ever: the fixture of `formats/`.

#[path = "../../../formats/dump.rs"]
mod dump;
#[path = "../../../formats/fixture.rs"]
mod fixture;

use std::path::Path;

use database::ask::{Answer, Asked, PagesIn, Temperature};
use database::compare::{Direct, LoadedTier, Run};
use database::dataset::{Dataset, Loaded, TableLoad, Workload};
use database::engine::{Cost, EngineFacts};
use database::query::Query;
use database::store::{self, Meta, Store};
use fixture::fixture;
use rusqlite::Connection;

fn tier(name: &str) -> LoadedTier {
    let table =
        TableLoad { table: "candidate".to_owned(), resumed_rows: 10, rows: 990, load_s: 0.5, index_s: 0.25 };
    LoadedTier {
        name: name.to_owned(),
        directory: Path::new("/tiers").join(name),
        is_in_memory: name == "ram",
        engine: EngineFacts {
            version: "SQLite 3".to_owned(),
            settings: vec![("page_size".to_owned(), "4096".to_owned())],
            is_owned: true,
        },
        loaded: Loaded { was_complete: false, tables: vec![table], finish_s: 0.125, size_bytes: 1 << 20 },
        direct: (name != "ram").then_some(Direct { random_us: 80.5, sequential_bytes_per_s: 1e9 }),
    }
}

fn meta() -> Meta {
    Meta {
        dataset: Dataset::new(Workload::Ptf, 1000, 7).unwrap(),
        queries: vec![Query::Forward],
        tiers: ["ram", "disk"].map(tier).to_vec(),
        plans: Vec::new(),
        notes: vec!["guest-cold".to_owned()],
    }
}

fn runs() -> Vec<Run> {
    let of = |tier: usize, temperature: Temperature| {
        let is_cold = temperature == Temperature::Cold;
        let cost = Cost {
            elapsed_ns: 1000 + tier as u64,
            cpu_ns: Some(400),
            io_ns: Some(600),
            blocks_read: is_cold.then_some(80),
            blocks_hit: None,
            block_bytes: 4096,
            device_bytes: Some(80 << 12),
        };
        let pages = is_cold.then_some(PagesIn { bytes: 80 << 12, runs: 70, scattered_bytes: 75 << 12 });
        let asked = Asked { answer: Answer { rows: 18, hash: u64::MAX }, cost, pages };
        Run { block: 0, tier, query: Query::Forward, key: 3, temperature, asked }
    };
    (0..2).flat_map(|tier| Temperature::ALL.map(|temperature| of(tier, temperature))).collect()
}

fn results() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(store::FILE_NAME);
    let mut store = Store::create(&path, &meta()).unwrap();
    store.block(&meta().tiers, &runs()).unwrap();
    drop(store);
    dump::dump(&Connection::open(path).unwrap()).into_bytes()
}

#[test]
fn results_of_format_1_are_read() {
    let sql = fixture("db-results-1.sql", results);
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(folder.path().join(store::FILE_NAME)).unwrap();
    connection.execute_batch(std::str::from_utf8(&sql).unwrap()).unwrap();
    let kept = store::read(folder.path()).unwrap();
    assert_eq!((kept.meta, kept.runs), (meta(), runs()));
    connection.pragma_update(None, "user_version", 2).unwrap();
    let error = store::read(folder.path()).unwrap_err();
    assert!(error.to_string().contains("has format 2, and this program reads 1"), "{error}");
}
