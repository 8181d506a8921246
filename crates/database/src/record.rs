//! What a comparison keeps: its tiers, its plans and its runs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ask::{Asked, Temperature};
use crate::dataset::Loaded;
use crate::engine::EngineFacts;
use crate::query::Query;

/// A tier that was compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedTier {
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

/// How an engine answers a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The query, with the key of the first block.
    pub query: Query,
    /// The names of the tiers on which this is its plan.
    pub tiers: Vec<String>,
    /// The plan as the engine tells it, a step a line.
    pub plan: String,
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
