//! The same database on several tiers: which is faster at what, and why.
//!
//! 1. Each tier is loaded, unless its database is there and complete.
//! 2. A block takes the tiers in random order. On each, every query runs cold and then warm, with the same key on all tiers of a block and
//!    another one in the next block.
//! 3. Answers of one query and key must be equal on all tiers; else the comparison ends with [`DatabaseError::Differ`].
//! 4. After each block, races over the tiers (`measure::decide`) decide each query; blocks end when all are decided.
//!
//! [`figures`](crate::figures) is a pure function of the runs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use measure::pattern::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ask::{Answer, Asked, Temperature, ask, ask_cold};
use crate::dataset::{Dataset, LoadProgress, Loaded, load};
use crate::engine::{Engine, EngineFacts};
use crate::error::DatabaseError;
use crate::figures;
use crate::query::Query;

/// Opens or makes the database in a directory.
pub type Opener<'a> = dyn Fn(&Path) -> Result<Box<dyn Engine>, DatabaseError> + 'a;

/// A tier's name and directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierSpec {
    /// As the user calls it.
    pub name: String,
    /// Where its database is.
    pub directory: PathBuf,
}

/// A tier that was compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tier {
    /// As the user calls it.
    pub name: String,
    /// Where its database is.
    pub directory: PathBuf,
    /// Its files are in memory: nothing is durable there, and cold is as warm.
    pub is_in_memory: bool,
    /// The engine and its settings.
    pub engine: EngineFacts,
    /// How it was loaded.
    pub loaded: Loaded,
    /// What direct reads of the database's own file give; None where the file system has none.
    pub direct: Option<Direct>,
}

/// What direct reads of a tier give, beside its queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Direct {
    /// Random reads of 4 KiB one after another: the mean time of one.
    pub random_us: f64,
    /// Sequential reads of 1 MiB, bytes a second.
    pub sequential_bytes_per_s: f64,
}

/// A query on a tier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The block, from 0.
    pub block: u32,
    /// The tier, by its place in the list.
    pub tier: usize,
    /// The query.
    pub query: Query,
    /// Its key.
    pub key: u64,
    /// What was in memory.
    pub temperature: Temperature,
    /// What came of it.
    #[serde(flatten)]
    pub asked: Asked,
}

/// What is to be compared.
pub struct Config<'a> {
    /// The database.
    pub dataset: Dataset,
    /// The tiers, the one that others are compared with last.
    pub tiers: Vec<TierSpec>,
    /// Its queries.
    pub queries: Vec<Query>,
    /// The most blocks.
    pub blocks: u32,
    /// Seed of the order of tiers.
    pub seed: u64,
    /// Opens a tier's database.
    pub open: &'a Opener<'a>,
    /// Measures direct reads of a file.
    pub direct: &'a dyn Fn(&Path) -> Option<Direct>,
    /// Ends it when it is set.
    pub stop: Arc<AtomicBool>,
}

/// What happens, for whoever watches or keeps it.
pub trait Listener {
    /// A tier is being loaded.
    fn loading(&mut self, tier: &str, progress: LoadProgress<'_>);
    /// All tiers are loaded.
    ///
    /// # Errors
    /// If they cannot be kept.
    fn loaded(&mut self, tiers: &[Tier]) -> Result<(), DatabaseError>;
    /// A query is about to run.
    fn asking(&mut self, tier: &str, block: u32, query: Query);
    /// A block is complete.
    ///
    /// # Errors
    /// If it cannot be kept.
    fn block(&mut self, runs: &[Run]) -> Result<(), DatabaseError>;
}

/// What was measured.
pub struct Compared {
    /// The tiers.
    pub tiers: Vec<Tier>,
    /// All runs of complete blocks.
    pub runs: Vec<Run>,
    /// Why it ended early.
    pub ended: Option<DatabaseError>,
}

/// Compares.
///
/// # Errors
/// What fails before the first block. A later failure is in [`Compared::ended`].
pub fn compare(config: &Config<'_>, listener: &mut dyn Listener) -> Result<Compared, DatabaseError> {
    let mut engines = Vec::new();
    let mut tiers = Vec::new();
    for tier in &config.tiers {
        let mut engine = (config.open)(&tier.directory)?;
        tiers.push(prepare(config, tier, &mut *engine, listener)?);
        engines.push(engine);
    }
    listener.loaded(&tiers)?;
    let mut runs = Vec::new();
    let ended = blocks(config, &tiers, &mut engines, listener, &mut runs).err();
    Ok(Compared { tiers, runs, ended })
}

fn prepare(
    config: &Config<'_>,
    tier: &TierSpec,
    engine: &mut dyn Engine,
    listener: &mut dyn Listener,
) -> Result<Tier, DatabaseError> {
    let mut progress = |progress: LoadProgress<'_>| listener.loading(&tier.name, progress);
    let loaded = load(engine, &config.dataset, &config.stop, &mut progress)?;
    let largest =
        engine.files().into_iter().max_by_key(|file| std::fs::metadata(file).map_or(0, |facts| facts.len()));
    Ok(Tier {
        name: tier.name.clone(),
        directory: tier.directory.clone(),
        is_in_memory: is_in_memory(&tier.directory)?,
        engine: engine.facts()?,
        loaded,
        direct: largest.and_then(|file| (config.direct)(&file)),
    })
}

/// Whether a directory's file system has its files in the page cache alone (statfs(2)).
///
/// # Errors
/// [`DatabaseError::Io`] if it cannot be asked.
pub fn is_in_memory(directory: &Path) -> Result<bool, DatabaseError> {
    const TMPFS: i128 = 0x0102_1994;
    const RAMFS: i128 = 0x8584_58f6;
    let facts = rustix::fs::statfs(directory)
        .map_err(|error| DatabaseError::io("ask for its file system", directory)(error.into()))?;
    Ok([TMPFS, RAMFS].contains(&i128::from(facts.f_type)))
}

fn blocks(
    config: &Config<'_>,
    tiers: &[Tier],
    engines: &mut [Box<dyn Engine>],
    listener: &mut dyn Listener,
    runs: &mut Vec<Run>,
) -> Result<(), DatabaseError> {
    let mut rng = Rng::new(config.seed);
    for block in 0..config.blocks {
        let mut order: Vec<usize> = (0..tiers.len()).collect();
        for n in (1..order.len()).rev() {
            order.swap(n, rng.below(n as u64 + 1) as usize);
        }
        let (mut of_block, mut answers) = (Vec::new(), HashMap::new());
        for tier in order {
            for &query in &config.queries {
                if config.stop.load(Ordering::Relaxed) {
                    return Err(DatabaseError::Interrupted);
                }
                listener.asking(&tiers[tier].name, block, query);
                let pair = both(config, &tiers[tier], &mut *engines[tier], (query, block.into()))?;
                for (temperature, asked) in pair {
                    agree(&mut answers, query, &tiers[tier].name, asked.answer)?;
                    of_block.push(Run { block, tier, query, key: block.into(), temperature, asked });
                }
            }
        }
        listener.block(&of_block)?;
        runs.append(&mut of_block);
        if figures::contests(runs, &config.queries, tiers.len()).iter().all(figures::Contest::is_decided) {
            break;
        }
    }
    Ok(())
}

/// Cold, then warm. A server of the user's own is asked warm alone, after a first time that does not count.
fn both(
    config: &Config<'_>,
    tier: &Tier,
    engine: &mut dyn Engine,
    (query, key): (Query, u64),
) -> Result<Vec<(Temperature, Asked)>, DatabaseError> {
    let mut pair = Vec::with_capacity(2);
    if tier.engine.is_owned {
        let cold = ask_cold(engine, &config.dataset, query, key, tier.is_in_memory)?;
        pair.push((Temperature::Cold, cold));
    } else {
        ask(engine, &config.dataset, query, key)?;
    }
    let (answer, cost) = ask(engine, &config.dataset, query, key)?;
    pair.push((Temperature::Warm, Asked { answer, cost, pages: None }));
    Ok(pair)
}

/// Refuses an answer that differs from the first one to the same question.
fn agree(
    answers: &mut HashMap<Query, (String, Answer)>,
    query: Query,
    tier: &str,
    answer: Answer,
) -> Result<(), DatabaseError> {
    let (first, expected) = answers.entry(query).or_insert_with(|| (tier.to_owned(), answer));
    if *expected == answer {
        return Ok(());
    }
    Err(DatabaseError::Differ {
        query: query.word(),
        tiers: [first.clone(), tier.to_owned()],
        answers: [*expected, answer].map(|answer| format!("{} rows, hash {:016x}", answer.rows, answer.hash)),
    })
}
