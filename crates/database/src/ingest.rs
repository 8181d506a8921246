//! A survey of today: alerts come in at a set rate while cones are searched at another one.
//!
//! The Rubin observatory sends 10 million alerts in eight hours: 350 a second. Each second's alerts are one durable batch, with its indexes
//! kept up to date, due at the end of that second. Two streams of cones, of 5″ and of 1′, run beside it on connections of their own,
//! each with latencies from the intended start. The table begins with a history of the same survey.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use measure::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, LoadProgress};
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::ptf::Ptf;
use crate::ptf::tables::CANDIDATE;
use crate::query::Query;
use crate::schema::{Rows, Value};
use crate::stream::{Latencies, StreamConfig, Streamed, stream, wait_until};

/// Alerts of the Rubin observatory, a second.
pub const RUBIN_RATE: u64 = 350;
/// Rows of history that are made durable at once.
const BATCH_ROWS: u64 = 100_000;

/// What is to come in and be asked.
pub struct IngestConfig {
    /// Rows before the first alert.
    pub history: u64,
    /// Alerts a second, at least 1.
    pub rate: u64,
    /// Cones a second, half of each radius; above 0.
    pub cones: f64,
    /// Seconds, at least 1.
    pub seconds: u64,
    /// What all rows follow from.
    pub seed: u64,
    /// Ends it when it is set.
    pub stop: Arc<AtomicBool>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ingested {
    /// Rows before the first alert.
    pub history: u64,
    /// Alerts that are durable.
    pub alerts: u64,
    /// Alerts a second that were due.
    pub rate: u64,
    /// Alerts a second that became durable.
    pub achieved: f64,
    /// From the time that a second's alerts were due until they were durable.
    pub durable: Latencies,
    /// Cones of 5″.
    pub arcseconds: Streamed,
    /// Cones of 1′.
    pub arcminute: Streamed,
}

/// At most a number of rows.
struct Batch<'a> {
    rows: &'a mut dyn Rows,
    left: u64,
}

impl Rows for Batch<'_> {
    fn next(&mut self, row: &mut Vec<Value>) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.rows.next(row)
    }
}

/// Fills an empty database with the history, then runs alerts and cones beside each other.
///
/// # Errors
/// [`DatabaseError::Interrupted`], and those of the engine.
pub fn ingest(
    engine: &mut dyn Engine,
    config: &IngestConfig,
    progress: &mut dyn FnMut(LoadProgress<'_>),
) -> Result<Ingested, DatabaseError> {
    let ptf = Ptf { candidates: config.history + config.rate * config.seconds, seed: config.seed };
    let mut rows = ptf.stream(&CANDIDATE, 0);
    lay_history(engine, config, &mut *rows, progress)?;
    let dataset = Dataset::Ptf(ptf);
    let over = AtomicBool::new(false);
    let cones = |query| StreamConfig {
        dataset,
        query,
        rate: config.cones / 2.0,
        lasts: Duration::from_secs(config.seconds),
        connections: 1,
        first_key: 0,
        stop: &over,
    };
    let (small, large) = (cones(Query::ConeArcseconds), cones(Query::ConeArcminute));
    let (first, second) = (engine.connect()?, engine.connect()?);
    let (written, arcseconds, arcminute) = std::thread::scope(|scope| {
        // A reader's failure ends the others at their next look.
        let over = &over;
        let end = move |result: Result<Streamed, DatabaseError>| {
            if result.is_err() {
                over.store(true, Ordering::Relaxed);
            }
            result
        };
        let small = scope.spawn(move || end(stream(&*first, &small)));
        let large = scope.spawn(move || end(stream(&*second, &large)));
        let written = write(engine, config, &mut *rows, over);
        if written.is_err() {
            over.store(true, Ordering::Relaxed);
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Streamed, DatabaseError>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (written, join(small), join(large))
    });
    let (durable, alerts, elapsed_s) = written?;
    Ok(Ingested {
        history: config.history,
        alerts,
        rate: config.rate,
        achieved: alerts as f64 / elapsed_s,
        durable,
        arcseconds: arcseconds?,
        arcminute: arcminute?,
    })
}

fn lay_history(
    engine: &mut dyn Engine,
    config: &IngestConfig,
    rows: &mut dyn Rows,
    progress: &mut dyn FnMut(LoadProgress<'_>),
) -> Result<(), DatabaseError> {
    engine.create(&[CANDIDATE])?;
    let mut there = 0;
    while there < config.history {
        if config.stop.load(Ordering::Relaxed) {
            return Err(DatabaseError::Interrupted);
        }
        progress(LoadProgress { what: CANDIDATE.name, rows: there, of: config.history, is_indexing: false });
        let left = BATCH_ROWS.min(config.history - there);
        there += engine.load(&CANDIDATE, &mut Batch { rows, left })?;
    }
    for index in CANDIDATE.indexes {
        progress(LoadProgress { what: index.name, rows: there, of: there, is_indexing: true });
        engine.build_index(&CANDIDATE, index)?;
    }
    engine.finish_load(&[CANDIDATE])
}

fn write(
    engine: &mut dyn Engine,
    config: &IngestConfig,
    rows: &mut dyn Rows,
    over: &AtomicBool,
) -> Result<(Latencies, u64, f64), DatabaseError> {
    let (begun, mut durable, mut alerts) = (Instant::now(), Histogram::new(), 0);
    for second in 1..=config.seconds {
        let due = begun + Duration::from_secs(second);
        if !wait_until(due, &config.stop) || over.load(Ordering::Relaxed) {
            return Err(DatabaseError::Interrupted);
        }
        alerts += engine.load(&CANDIDATE, &mut Batch { rows, left: config.rate })?;
        durable.record(due.elapsed().as_nanos() as u64);
    }
    let there = engine.loaded(&CANDIDATE)?;
    assert_eq!(there, config.history + alerts, "rows that are durable");
    Ok((Latencies::of(&durable), alerts, begun.elapsed().as_secs_f64()))
}
