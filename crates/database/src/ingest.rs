//! A survey of today: alerts come in at a set rate while cones are searched at another one.
//!
//! The Rubin observatory sends 10 million alerts in eight hours: 350 a second. Each second's alerts are one durable batch, with its indexes
//! kept up to date, due at the end of that second. Two streams of cones, of 5″ and of 1′, run beside it on connections of their own,
//! each with latencies from the intended start. The table begins with a history of the same survey, none of which is in memory.
//! When it is told to stop, the figures are of what was durable and answered until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use measure::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ask::cool;
use crate::dataset::{Dataset, LoadProgress};
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::interrupt::told;
use crate::ptf::Ptf;
use crate::ptf::tables::CANDIDATE;
use crate::query::Query;
use crate::schema::{Rows, Value};
use crate::stream::{Latencies, StreamConfig, Streamed, stream, wait_until};

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
    /// The tier's files are in memory, so that nothing can be evicted.
    pub is_in_memory: bool,
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
    /// Seconds until the last of them was durable.
    pub lasted_s: f64,
    /// It was told to stop before its end: the figures are of what came until then.
    pub is_interrupted: bool,
    /// From the time that a second's alerts were due until they were durable.
    pub durable: Latencies,
    /// Cones of 5″.
    pub arcseconds: Streamed,
    /// Cones of 1′.
    pub arcminute: Streamed,
}

/// What became durable.
struct Written {
    durable: Latencies,
    alerts: u64,
    lasted_s: f64,
    is_interrupted: bool,
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

/// Fills an empty database with the history, makes it cold, then runs alerts and cones beside each other.
///
/// # Errors
/// [`DatabaseError::Warm`] if pages stay in memory, [`DatabaseError::Interrupted`] before the first alerts are durable or the first
/// cones are found, and those of the engine.
pub fn ingest(
    engine: &mut dyn Engine,
    config: &IngestConfig,
    progress: &mut dyn FnMut(LoadProgress<'_>),
) -> Result<Ingested, DatabaseError> {
    let ptf = Ptf { candidates: config.history + config.rate * config.seconds, seed: config.seed };
    let mut rows = ptf.stream(&CANDIDATE, 0);
    lay_history(engine, config, &mut *rows, progress)?;
    cool(engine, config.is_in_memory)?;
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
        if !written.as_ref().is_ok_and(|written| !written.is_interrupted) {
            over.store(true, Ordering::Relaxed);
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Streamed, DatabaseError>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (written, join(small), join(large))
    });
    let (written, arcseconds, arcminute) = all_of(written, arcseconds, arcminute)?;
    let Written { durable, alerts, lasted_s, is_interrupted } = written;
    Ok(Ingested {
        history: config.history,
        alerts,
        rate: config.rate,
        achieved: alerts as f64 / lasted_s,
        lasted_s,
        is_interrupted,
        durable,
        arcseconds,
        arcminute,
    })
}

/// All three, or what failed: a failure of one interrupts the others.
fn all_of<A, B, C>(
    one: Result<A, DatabaseError>,
    two: Result<B, DatabaseError>,
    three: Result<C, DatabaseError>,
) -> Result<(A, B, C), DatabaseError> {
    match (one, two, three) {
        (Ok(one), Ok(two), Ok(three)) => Ok((one, two, three)),
        (one, two, three) => {
            let failed = [one.err(), two.err(), three.err()].into_iter().flatten();
            let first = failed.reduce(|a, b| if matches!(a, DatabaseError::Interrupted) { b } else { a });
            Err(first.unwrap_or(DatabaseError::Interrupted))
        }
    }
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
) -> Result<Written, DatabaseError> {
    let (begun, mut durable, mut alerts, mut lasted_s) = (Instant::now(), Histogram::new(), 0, 0.0);
    let mut is_interrupted = false;
    for second in 1..=config.seconds {
        let due = begun + Duration::from_secs(second);
        let loaded = match wait_until(due, &config.stop) && !over.load(Ordering::Relaxed) {
            true => engine
                .load(&CANDIDATE, &mut Batch { rows, left: config.rate })
                .map_err(|error| told(&config.stop, error)),
            false => Err(DatabaseError::Interrupted),
        };
        match loaded {
            Err(DatabaseError::Interrupted) => {
                is_interrupted = true;
                break;
            }
            loaded => alerts += loaded?,
        }
        durable.record(due.elapsed().as_nanos() as u64);
        lasted_s = begun.elapsed().as_secs_f64();
    }
    if alerts == 0 {
        return Err(DatabaseError::Interrupted);
    }
    if !is_interrupted {
        // Statements after an interruption are cancelled, too.
        let there = engine.loaded(&CANDIDATE)?;
        assert_eq!(there, config.history + alerts, "rows that are durable");
    }
    Ok(Written { durable: Latencies::of(&durable), alerts, lasted_s, is_interrupted })
}
