//! What the verbs of `db` print with `--json`.

use std::path::PathBuf;

use database::advise::AdviseConfig;
use database::ask::{Asked, Temperature};
use database::compare::{LoadedTier, Plan, Run};
use database::dataset::{Dataset, Loaded, Workload};
use database::engine::EngineFacts;
use database::figures::{self, Contest, QueryFigures};
use database::ingest::Ingested;
use database::query::Query;
use database::store::Kept;
use database::stream::Streamed;
use schemars::JsonSchema;
use serde::Serialize;

use super::why::{self, Reason};

/// `db load --json` (`flashwright.db-load/1`). Times are seconds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DbLoadDocument {
    /// `flashwright.db-load/1`.
    pub schema: &'static str,
    /// The workload.
    pub workload: Workload,
    /// Rows of ptf's candidates, or of bionet's nodes.
    pub rows: u64,
    /// What all rows follow from.
    pub seed: u64,
    /// Where the database is; null on a server of the user's own.
    pub path: Option<PathBuf>,
    /// The engine.
    pub engine: EngineFacts,
    /// What tables and indexes were expected to take, before the load.
    pub estimated_bytes: u64,
    /// What was done.
    pub loaded: Loaded,
}

/// A query of `db run`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DbRunQuery {
    /// The query.
    pub query: Query,
    /// What was in memory.
    pub temperature: Temperature,
    /// What came of it.
    pub asked: Asked,
    /// Its plan, a step a line, where it was asked for.
    pub plan: Option<String>,
}

/// `db run --json` (`flashwright.db-run/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct DbRunDocument {
    /// `flashwright.db-run/1`.
    pub schema: &'static str,
    /// The workload.
    pub workload: Workload,
    /// Rows of ptf's candidates, or of bionet's nodes.
    pub rows: u64,
    /// What all rows follow from.
    pub seed: u64,
    /// The key that parameters follow from.
    pub key: u64,
    /// The engine.
    pub engine: EngineFacts,
    /// Each query, cold and warm.
    pub queries: Vec<DbRunQuery>,
    /// What bears on the figures.
    pub notes: Vec<String>,
}

/// `db run --rate --json` (`flashwright.db-stream/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct DbStreamDocument {
    /// `flashwright.db-stream/1`.
    pub schema: &'static str,
    /// The workload.
    pub workload: Workload,
    /// Rows of ptf's candidates, or of bionet's nodes.
    pub rows: u64,
    /// What all rows follow from.
    pub seed: u64,
    /// The engine.
    pub engine: EngineFacts,
    /// What came of it.
    pub stream: Streamed,
    /// What bears on the figures.
    pub notes: Vec<String>,
}

/// `db ingest --json` (`flashwright.db-ingest/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct DbIngestDocument {
    /// `flashwright.db-ingest/1`.
    pub schema: &'static str,
    /// The engine.
    pub engine: EngineFacts,
    /// What came of it.
    pub ingested: Ingested,
    /// What bears on the figures.
    pub notes: Vec<String>,
}

/// A query of `db compare` in words.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DbQueryWords {
    /// The query.
    pub query: Query,
    /// What it asks.
    pub asks: &'static str,
    /// What is known of it in the original database, and what is inferred.
    pub origin: &'static str,
}

/// `db compare --json` and `db report --json` (`flashwright.db-compare/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct DbCompareDocument {
    /// `flashwright.db-compare/1`.
    pub schema: &'static str,
    /// The workload.
    pub workload: Workload,
    /// Rows of ptf's candidates, or of bionet's nodes.
    pub rows: u64,
    /// What all rows follow from.
    pub seed: u64,
    /// The tiers.
    pub tiers: Vec<LoadedTier>,
    /// What was asked.
    pub queries: Vec<DbQueryWords>,
    /// How each query is answered; empty in results of versions that did not ask.
    pub plans: Vec<Plan>,
    /// Complete blocks.
    pub blocks: u32,
    /// Each query, temperature and tier: medians.
    pub figures: Vec<QueryFigures>,
    /// Each query and temperature of a tier against the last one.
    pub contests: Vec<Contest>,
    /// Why queries gained what they gained, where it is decided which tier is faster.
    pub reasons: Vec<Reason>,
    /// What bears on the figures.
    pub notes: Vec<String>,
    /// Why it ended early.
    pub ended: Option<String>,
}

impl DbCompareDocument {
    /// Of what was kept.
    pub fn of(kept: &Kept, ended: Option<String>) -> Self {
        let (meta, runs) = (&kept.meta, &kept.runs);
        let names: Vec<_> = meta.tiers.iter().map(|tier| tier.name.as_str()).collect();
        let figures = figures::figures(runs, &meta.queries, names.len());
        let contests = figures::contests(runs, &meta.queries, names.len());
        Self {
            schema: "flashwright.db-compare/1",
            workload: meta.dataset.workload(),
            rows: meta.dataset.scale(),
            seed: seed(&meta.dataset),
            tiers: meta.tiers.clone(),
            queries: meta.queries.iter().copied().map(words).collect(),
            plans: meta.plans.clone(),
            blocks: runs.iter().map(|run| run.block + 1).max().unwrap_or(0),
            reasons: why::reasons(&figures, &contests, &names),
            figures,
            contests,
            notes: meta.notes.clone(),
            ended,
        }
    }
}

fn words(query: Query) -> DbQueryWords {
    DbQueryWords { query, asks: query.asks(), origin: query.origin() }
}

/// `db advise --json` (`flashwright.db-advise/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct DbAdviseDocument {
    /// `flashwright.db-advise/1`.
    pub schema: &'static str,
    /// The workload.
    pub workload: Workload,
    /// Rows of ptf's candidates, or of bionet's nodes.
    pub rows: u64,
    /// What all rows follow from.
    pub seed: u64,
    /// The engine, unchanged.
    pub engine: EngineFacts,
    /// Each setting that was tried, then `unchanged`. A `tier` below is a place in this list.
    pub settings: Vec<String>,
    /// Complete blocks.
    pub blocks: u32,
    /// Each query, temperature and setting: medians.
    pub figures: Vec<QueryFigures>,
    /// Each query and temperature with a setting against the unchanged server.
    pub contests: Vec<Contest>,
    /// What bears on the figures.
    pub notes: Vec<String>,
    /// Why it ended early.
    pub ended: Option<String>,
}

impl DbAdviseDocument {
    /// Of what was measured.
    pub fn of(
        config: &AdviseConfig,
        engine: EngineFacts,
        runs: &[Run],
        notes: Vec<String>,
        ended: Option<String>,
    ) -> Self {
        let settings = config.names();
        Self {
            schema: "flashwright.db-advise/1",
            workload: config.dataset.workload(),
            rows: config.dataset.scale(),
            seed: seed(&config.dataset),
            engine,
            blocks: runs.iter().map(|run| run.block + 1).max().unwrap_or(0),
            figures: figures::figures(runs, &config.queries, settings.len()),
            contests: figures::contests(runs, &config.queries, settings.len()),
            settings,
            notes,
            ended,
        }
    }
}

/// What all rows follow from.
pub fn seed(dataset: &Dataset) -> u64 {
    match dataset {
        Dataset::Ptf(ptf) => ptf.seed,
        Dataset::Bionet(bionet) => bionet.seed,
    }
}
