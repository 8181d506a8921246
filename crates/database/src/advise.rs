//! What each setting of a PostgreSQL server does to the queries: one setting at a time, beside the server as it is.
//!
//! 1. Each setting is tried once before anything is measured, so that one that the server refuses is told at once.
//! 2. A block takes the settings and the unchanged server in random order. With each, our own server is started anew, the user's own gets
//!    sessions anew, and every query runs as in a comparison of tiers, with the same key for all of a block.
//! 3. Answers must be equal. Each setting is compared with the unchanged server within blocks, by the rules of a comparison of tiers.
//!
//! One at a time is not all together: settings that help alone may not help each other.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::compare::{Rounds, Tested, both, rounds};
use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::interrupt::interruptible;
use crate::postgres::{Postgres, Setting};
use crate::query::Query;
use crate::record::Run;

/// What the server as it is is called.
pub const UNCHANGED: &str = "unchanged";

/// What is to be tried.
pub struct AdviseConfig {
    /// The database, which is loaded.
    pub dataset: Dataset,
    /// Its queries.
    pub queries: Vec<Query>,
    /// Settings, each tried alone.
    pub settings: Vec<Setting>,
    /// The most blocks.
    pub blocks: u32,
    /// Seed of the order of settings.
    pub seed: u64,
    /// The tier's files are in memory.
    pub is_in_memory: bool,
    /// Ends it when it is set.
    pub stop: Arc<AtomicBool>,
}

impl AdviseConfig {
    /// Each setting as it is typed, then the unchanged server.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let settings = self.settings.iter().map(|(name, value)| format!("{name}={value}"));
        settings.chain([UNCHANGED.to_owned()]).collect()
    }
}

/// What was measured: the place of a run in [`AdviseConfig::names`] is its tier.
pub struct Advised {
    /// All runs of complete blocks.
    pub runs: Vec<Run>,
    /// Why it ended early.
    pub ended: Option<DatabaseError>,
}

/// Tries each setting. The server runs with its own settings afterwards.
///
/// # Errors
/// A setting that the server refuses, and what else fails before the first block. A later failure is in [`Advised::ended`].
pub fn advise(
    server: &mut Postgres,
    config: &AdviseConfig,
    asking: &mut dyn FnMut(&str, u32, Query),
) -> Result<Advised, DatabaseError> {
    let is_owned = server.facts()?.is_owned;
    for setting in &config.settings {
        server.vary(std::slice::from_ref(setting))?;
    }
    let names = config.names();
    let mut runs = Vec::new();
    let mut now = None;
    let plan = Rounds {
        queries: &config.queries,
        names: &names,
        blocks: config.blocks,
        seed: config.seed,
        stop: &config.stop,
    };
    let tested = Tested { dataset: &config.dataset, is_owned, is_in_memory: config.is_in_memory };
    let ended = interruptible(&config.stop, |watch| {
        watch.over(server);
        rounds(
            &plan,
            &mut runs,
            &mut |place, block, query| {
                asking(&names[place], block, query);
                if now != Some(place) {
                    server.vary(config.settings.get(place).map_or(&[], std::slice::from_ref))?;
                    now = Some(place);
                }
                both(&tested, server, query, block.into())
            },
            &mut |_| Ok(()),
        )
    });
    let back = server.vary(&[]);
    Ok(Advised { runs, ended: ended.err().or(back.err()) })
}
