//! The same database on several tiers: which is faster at what, and why.
//!
//! 1. What comparisons that were killed left on the tiers is removed, or gone on with. Each tier is loaded, unless its database is there and
//!    complete. A database that is made here goes with the comparison ([`claim`](crate::claim)).
//!    Before the first block each engine is asked for its plan of each query.
//! 2. A block takes the tiers in random order. On each, every query runs cold and then warm, with the same key on all tiers of a block and
//!    another one in the next block.
//! 3. Answers of one query and key must be equal on all tiers; else the comparison ends with [`DatabaseError::Differ`].
//! 4. After each block, races over the tiers (`measure::decide`) decide each query; blocks end when all are decided.
//!
//! A comparison that was cut off goes on after its last complete block ([`Config::begun`]): keys and the order of tiers follow from the block.
//!
//! [`figures`] is a pure function of the runs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use measure::pattern::Rng;

use crate::ask::{Answer, Asked, Temperature, ask, ask_cold};
use crate::claim::{Claimed, clear, open_claimed};
use crate::dataset::{Dataset, LoadProgress, Workload, load};
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::figures;
use crate::interrupt::{Watch, interruptible, told};
use crate::open::{self, EngineChoice};
use crate::query::Query;
pub use crate::record::{Direct, LoadedTier, Plan, Run};
use crate::size;

/// A tier's name and directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierSpec {
    /// As the user calls it.
    pub name: String,
    /// Where its database is.
    pub directory: PathBuf,
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
    /// Leave the databases that are made for it where they are.
    pub keep: bool,
    /// What has it on each tier.
    pub engine: EngineChoice,
    /// Measures direct reads of a file.
    pub direct: &'a dyn Fn(&Path) -> Option<Direct>,
    /// Ends it when it is set.
    pub stop: Arc<AtomicBool>,
    /// What an earlier part of the same comparison has measured.
    pub begun: Option<Begun>,
}

/// The tiers of a comparison that was cut off, and its complete blocks.
#[derive(Debug, Clone, Default)]
pub struct Begun {
    /// As they were then.
    pub tiers: Vec<LoadedTier>,
    /// All runs.
    pub runs: Vec<Run>,
}

/// What happens, for whoever watches or keeps it.
pub trait Listener {
    /// What a command that was killed had left was removed.
    fn cleared(&mut self, path: &Path);
    /// A tier is being loaded.
    fn loading(&mut self, tier: &str, progress: LoadProgress<'_>);
    /// All tiers are loaded, and the engine has said how it will answer.
    ///
    /// # Errors
    /// If they cannot be kept.
    fn loaded(&mut self, tiers: &[LoadedTier], plans: &[Plan]) -> Result<(), DatabaseError>;
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
    pub tiers: Vec<LoadedTier>,
    /// All runs of complete blocks.
    pub runs: Vec<Run>,
    /// Why it ended early.
    pub ended: Option<DatabaseError>,
}

/// Compares.
///
/// # Errors
/// What fails before the first block: [`DatabaseError::Changed`] for an engine that is not as it was when the comparison began. A later
/// failure is in [`Compared::ended`].
pub fn compare(config: &Config<'_>, listener: &mut dyn Listener) -> Result<Compared, DatabaseError> {
    if let Some(Begun { tiers, runs }) = config.begun.clone()
        && blocks_of(&runs) >= config.blocks
    {
        return Ok(Compared { tiers, runs, ended: None });
    }
    let mut places = Vec::new();
    let compared = interruptible(&config.stop, |watch| over(config, listener, watch, &mut places));
    let removed = places.into_iter().map(|place| match config.keep {
        true => place.keep().map(drop),
        false => place.end(),
    });
    let removed = removed.fold(Ok(()), Result::and);
    let mut compared = compared?;
    compared.ended = compared.ended.or(removed.err());
    Ok(compared)
}

/// Compares, and leaves the databases open.
fn over(
    config: &Config<'_>,
    listener: &mut dyn Listener,
    watch: &Watch,
    places: &mut Vec<Claimed>,
) -> Result<Compared, DatabaseError> {
    for tier in &config.tiers {
        let here = open::path(config.engine.kind, config.dataset.workload(), &tier.directory);
        clear(&tier.directory, &here)?.iter().for_each(|path| listener.cleared(path));
    }
    check_room(config)?;
    for tier in &config.tiers {
        let place = open_claimed(&config.engine, &config.dataset, &tier.directory)?;
        watch.over(&*place.engine);
        places.push(place);
    }
    check_sky(config, places)?;
    let mut tiers = Vec::new();
    for (tier, place) in config.tiers.iter().zip(places.iter_mut()) {
        tiers.push(prepare(config, tier, &mut *place.engine, listener)?);
    }
    let mut runs = Vec::new();
    if let Some(begun) = config.begun.clone() {
        check_unchanged(&begun.tiers, &tiers)?;
        // Their loads and direct reads are those of the beginning.
        (tiers, runs) = (begun.tiers, begun.runs);
    }
    listener.loaded(&tiers, &plans(config, places)?)?;
    let ended = blocks(config, &tiers, places, listener, &mut runs).err();
    let ended = ended.map(|error| told(&config.stop, error));
    Ok(Compared { tiers, runs, ended })
}

/// Refuses tiers that have not the room for what will be made on them.
fn check_room(config: &Config<'_>) -> Result<(), DatabaseError> {
    let needed_bytes = size::estimate(&config.dataset, config.engine.kind).bytes();
    let mut of_file_systems: HashMap<u64, u64> = HashMap::new();
    for tier in &config.tiers {
        if open::path(config.engine.kind, config.dataset.workload(), &tier.directory).exists() {
            continue;
        }
        let facts =
            std::fs::metadata(&tier.directory).map_err(DatabaseError::io("look at it", &tier.directory))?;
        let sum = of_file_systems.entry(facts.dev()).or_default();
        *sum += needed_bytes;
        size::check(format!("tiers={}={}", tier.name, tier.directory.display()), &tier.directory, *sum)?;
    }
    Ok(())
}

/// Refuses to compare an index of the sky with another one, before anything is loaded.
fn check_sky(config: &Config<'_>, places: &[Claimed]) -> Result<(), DatabaseError> {
    let last = places.last().map(|place| place.engine.sky()).unwrap_or_default();
    let other = config.tiers.iter().zip(places).find(|(_, place)| place.engine.sky() != last);
    match (other, config.tiers.last()) {
        (Some((tier, place)), Some(to)) if config.dataset.workload() == Workload::Ptf => {
            Err(DatabaseError::Invalid {
                flag: format!("tiers={}={}", tier.name, tier.directory.display()),
                problem: format!(
                    "is indexed by {}, and {} by {}",
                    place.engine.sky().word(),
                    to.name,
                    last.word()
                ),
                hint: "--sky says how a new database is indexed; one that is there stays as it is".to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// Complete blocks.
fn blocks_of(runs: &[Run]) -> u32 {
    runs.iter().map(|run| run.block + 1).max().unwrap_or(0)
}

/// Refuses to go on with another version of the engine, or other settings.
fn check_unchanged(begun: &[LoadedTier], now: &[LoadedTier]) -> Result<(), DatabaseError> {
    for (was, is) in begun.iter().zip(now) {
        if was.engine.version != is.engine.version {
            let words = format!("{} then, {} now", was.engine.version, is.engine.version);
            return Err(DatabaseError::Changed { what: words });
        }
        let of = |tier: &LoadedTier, name: &str| {
            let setting = tier.engine.settings.iter().find(|(other, _)| other == name);
            setting.map_or("none".to_owned(), |(_, value)| value.clone())
        };
        let mut names = was.engine.settings.iter().chain(&is.engine.settings).map(|(name, _)| name);
        if let Some(name) = names.find(|name| of(was, name) != of(is, name)) {
            let words = format!("{name} was {}, and is {}", of(was, name), of(is, name));
            return Err(DatabaseError::Changed { what: words });
        }
    }
    Ok(())
}

fn prepare(
    config: &Config<'_>,
    tier: &TierSpec,
    engine: &mut dyn Engine,
    listener: &mut dyn Listener,
) -> Result<LoadedTier, DatabaseError> {
    let mut progress = |progress: LoadProgress<'_>| listener.loading(&tier.name, progress);
    let loaded = load(engine, &config.dataset, &config.stop, &mut progress)?;
    let largest =
        engine.files().into_iter().max_by_key(|file| std::fs::metadata(file).map_or(0, |facts| facts.len()));
    Ok(LoadedTier {
        name: tier.name.clone(),
        directory: tier.directory.clone(),
        is_in_memory: is_in_memory(&tier.directory)?,
        engine: engine.facts()?,
        loaded,
        direct: largest.and_then(|file| (config.direct)(&file)),
    })
}

/// The plan of each query; tiers with the same one are named together.
fn plans(config: &Config<'_>, places: &mut [Claimed]) -> Result<Vec<Plan>, DatabaseError> {
    let mut plans: Vec<Plan> = Vec::new();
    for &query in &config.queries {
        for (tier, place) in config.tiers.iter().zip(places.iter_mut()) {
            let engine = &mut *place.engine;
            let statement = query.statement(&config.dataset, 0, engine.dialect(), engine.sky());
            let plan = engine.plan(&statement)?;
            match plans.iter_mut().find(|of| of.query == query && of.plan == plan) {
                Some(same) => same.tiers.push(tier.name.clone()),
                None => plans.push(Plan { query, tiers: vec![tier.name.clone()], plan }),
            }
        }
    }
    Ok(plans)
}

/// Whether a directory's file system has its files in the page cache alone (statfs(2)).
///
/// # Errors
/// [`DatabaseError::Io`] if it cannot be asked.
pub fn is_in_memory(directory: &Path) -> Result<bool, DatabaseError> {
    storage::fs_type::at(directory)
        .map(storage::fs_type::is_memory)
        .map_err(DatabaseError::io("ask for its file system", directory))
}

fn blocks(
    config: &Config<'_>,
    tiers: &[LoadedTier],
    places: &mut [Claimed],
    listener: &mut dyn Listener,
    runs: &mut Vec<Run>,
) -> Result<(), DatabaseError> {
    let names: Vec<_> = tiers.iter().map(|tier| tier.name.clone()).collect();
    let plan = Rounds {
        queries: &config.queries,
        names: &names,
        blocks: config.blocks,
        seed: config.seed,
        stop: &config.stop,
    };
    let listener = RefCell::new(listener);
    let mut ask = |tier: usize, block: u32, query: Query| {
        let LoadedTier { name, is_in_memory, engine: facts, .. } = &tiers[tier];
        listener.borrow_mut().asking(name, block, query);
        let tested =
            Tested { dataset: &config.dataset, is_owned: facts.is_owned, is_in_memory: *is_in_memory };
        both(&tested, &mut *places[tier].engine, query, block.into())
    };
    rounds(&plan, runs, &mut ask, &mut |of_block| listener.borrow_mut().block(of_block))
}

/// What is asked in which blocks.
pub(crate) struct Rounds<'a> {
    pub(crate) queries: &'a [Query],
    /// What is compared, the one that others are compared with last.
    pub(crate) names: &'a [String],
    /// The most blocks.
    pub(crate) blocks: u32,
    /// Of the order within blocks.
    pub(crate) seed: u64,
    pub(crate) stop: &'a AtomicBool,
}

impl Rounds<'_> {
    /// Whether no further block is needed.
    fn are_over(&self, runs: &[Run]) -> bool {
        let contests = figures::contests(runs, self.queries, self.names.len());
        let is_decided = !contests.is_empty() && contests.iter().all(figures::Contest::is_decided);
        is_decided || blocks_of(runs) >= self.blocks
    }
}

/// Asks a query of what has a place in the list, in a block.
type AskOne<'a> = dyn FnMut(usize, u32, Query) -> Result<Vec<(Temperature, Asked)>, DatabaseError> + 'a;

/// Runs the blocks that are missing; each complete one goes to `keep` and to `runs`.
pub(crate) fn rounds(
    plan: &Rounds<'_>,
    runs: &mut Vec<Run>,
    ask_one: &mut AskOne<'_>,
    keep: &mut dyn FnMut(&[Run]) -> Result<(), DatabaseError>,
) -> Result<(), DatabaseError> {
    let mut rng = Rng::new(plan.seed);
    let begun = blocks_of(runs);
    for block in 0..plan.blocks {
        let mut order: Vec<usize> = (0..plan.names.len()).collect();
        for n in (1..order.len()).rev() {
            order.swap(n, rng.below(n as u64 + 1) as usize);
        }
        if block < begun {
            continue;
        }
        let (mut of_block, mut answers) = (Vec::new(), HashMap::new());
        for tier in order {
            for &query in plan.queries {
                if plan.stop.load(Ordering::Relaxed) {
                    return Err(DatabaseError::Interrupted);
                }
                for (temperature, asked) in ask_one(tier, block, query)? {
                    agree(&mut answers, query, &plan.names[tier], asked.answer)?;
                    of_block.push(Run { block, tier, query, key: block.into(), temperature, asked });
                }
            }
        }
        keep(&of_block)?;
        runs.append(&mut of_block);
        if plan.are_over(runs) {
            break;
        }
    }
    Ok(())
}

/// Of what a query is asked.
pub(crate) struct Tested<'a> {
    pub(crate) dataset: &'a Dataset,
    /// The engine may be stopped and made cold.
    pub(crate) is_owned: bool,
    /// Its files are in memory, so that nothing can be evicted.
    pub(crate) is_in_memory: bool,
}

/// Cold, then warm. A server of the user's own is asked warm alone, after a first time that does not count.
pub(crate) fn both(
    tested: &Tested<'_>,
    engine: &mut dyn Engine,
    query: Query,
    key: u64,
) -> Result<Vec<(Temperature, Asked)>, DatabaseError> {
    let mut pair = Vec::with_capacity(2);
    if tested.is_owned {
        pair.push((Temperature::Cold, ask_cold(engine, tested.dataset, query, key, tested.is_in_memory)?));
    } else {
        ask(engine, tested.dataset, query, key)?;
    }
    let (answer, cost) = ask(engine, tested.dataset, query, key)?;
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
