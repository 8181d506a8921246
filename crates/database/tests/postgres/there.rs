//! What is in a database is read from it, and what will be is told before: the index of the sky, and the size.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use database::compare::{Config, Listener, LoadedTier, Plan, Run, TierSpec, compare};
use database::dataset::{self, Dataset, LoadProgress, Workload};
use database::engine::SkyIndex;
use database::open::EngineKind;
use database::postgres::{Existing, Postgres, is_there};
use database::query::Query;
use database::{DatabaseError, Engine, size};

use super::{NAME, SEED, managed, running_in, server, tier, words};

#[test]
fn the_index_of_the_sky_is_that_of_the_database_whatever_is_asked_for() {
    let dataset = Dataset::new(Workload::Ptf, 3000, SEED).unwrap();
    for (stored, other) in [(SkyIndex::Q3c, SkyIndex::Healpix), (SkyIndex::Healpix, SkyIndex::Q3c)] {
        let folder = tier();
        let Some(mut postgres) = server(folder.path(), stored) else { continue };
        dataset::load(&mut postgres, &dataset, &AtomicBool::new(false), &mut |_| {}).unwrap();
        drop(postgres);
        let mut unasked = Postgres::managed(&managed(folder.path()), None).unwrap();
        assert_eq!(unasked.sky(), stored);
        let stated = ("index of the sky".to_owned(), stored.word().to_owned());
        assert!(unasked.facts().unwrap().settings.contains(&stated));
        let statement =
            Query::ConeArcseconds.statement(&dataset, 0, unasked.dialect(), unasked.connect().unwrap().sky());
        assert!(unasked.explain(&statement).unwrap().contains("Scan on candidate_sky"));
        // A server of the user's own is looked at in the same way.
        let connection =
            format!("host='{}' user=flashwright dbname=postgres", folder.path().join(NAME).display());
        let existing = Existing { connection, ..Existing::default() };
        assert_eq!(Postgres::existing(&existing, stored).unwrap().sky(), stored);
        assert_eq!(Postgres::existing(&existing, other).unwrap_err().class(), base::ErrorClass::Invalid);
        drop(unasked);
        let (said, hint) = words(&Postgres::managed(&managed(folder.path()), other).unwrap_err());
        let expected = format!("is indexed by {}", stored.word());
        assert!(said.starts_with(&format!("--sky={}: ", other.word())) && said.contains(&expected), "{said}");
        assert!(hint.contains("leave --sky out"), "{hint}");
        assert!(running_in(folder.path()).is_empty() && is_there(&folder.path().join(NAME)));
    }
}

#[test]
fn tiers_that_are_indexed_in_different_ways_are_not_compared() {
    let dataset = Dataset::new(Workload::Ptf, 3000, SEED).unwrap();
    let (loaded, empty) = (tier(), tier());
    let Some(mut postgres) = server(loaded.path(), SkyIndex::Q3c) else { return };
    dataset::load(&mut postgres, &dataset, &AtomicBool::new(false), &mut |_| {}).unwrap();
    drop(postgres);
    let tier_of = |name: &str, folder: &tempfile::TempDir| TierSpec {
        name: name.to_owned(),
        directory: folder.path().to_owned(),
    };
    let config = Config {
        dataset,
        tiers: vec![tier_of("flash", &loaded), tier_of("disk", &empty)],
        queries: vec![Query::Object],
        blocks: 1,
        seed: 1,
        keep: false,
        engine: EngineKind::Postgres.into(),
        direct: &|_| None,
        stop: Arc::default(),
        begun: None,
    };
    let (said, hint) = words(&compare(&config, &mut Silent).err().unwrap());
    assert!(said.contains("--tiers=flash=") && said.contains("by q3c, and disk by healpix"), "{said}");
    assert!(hint.contains("--sky"), "{hint}");
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "what was made for it is gone");
    assert!(is_there(&loaded.path().join(NAME)) && running_in(loaded.path()).is_empty());
}

/// Is told and says nothing; a load that is begun is a failure.
struct Silent;

impl Listener for Silent {
    fn cleared(&mut self, _: &Path) {}

    fn loading(&mut self, tier: &str, _: LoadProgress<'_>) {
        panic!("{tier} is loaded");
    }

    fn loaded(&mut self, _: &[LoadedTier], _: &[Plan]) -> Result<(), DatabaseError> {
        Ok(())
    }

    fn asking(&mut self, _: &str, _: u32, _: Query) {}

    fn block(&mut self, _: &[Run]) -> Result<(), DatabaseError> {
        Ok(())
    }
}

#[test]
fn a_database_has_the_size_that_was_told_by_a_fifth() {
    for (workload, scale) in [(Workload::Ptf, 60_000), (Workload::Bionet, 5000)] {
        let folder = tier();
        let Some(mut postgres) = server(folder.path(), SkyIndex::Healpix) else { return };
        let dataset = Dataset::new(workload, scale, SEED).unwrap();
        let told = size::estimate(&dataset, EngineKind::Postgres);
        dataset::load(&mut postgres, &dataset, &AtomicBool::new(false), &mut |_| {}).unwrap();
        let there = postgres.size_bytes().unwrap();
        let ratio = told.data_bytes as f64 / there as f64;
        println!("{} {scale}: {ratio} of {there}", workload.word());
        assert!((0.8..1.2).contains(&ratio), "{} {scale}: {ratio} of {there}", workload.word());
        let blocks = |file: &Path| {
            use std::os::unix::fs::MetadataExt;
            fs::symlink_metadata(file).map_or(0, |facts| facts.blocks() * 512)
        };
        let whole: u64 = postgres.files().iter().map(|file| blocks(file)).sum();
        println!("{} {scale}: room {} of {whole}", workload.word(), told.bytes());
        assert!(told.bytes() * 10 > whole * 8, "{} and {whole}", told.bytes());
    }
}
