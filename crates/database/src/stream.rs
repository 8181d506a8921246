//! Queries at a set rate: latencies from the intended start.
//!
//! Query i is due at i / rate. Connections take the next one as they are free; one that finds none free waits, and its latency counts from
//! the time that it was due, so that a slow query is felt by those behind it as by users. Keys are distinct until all were used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use measure::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ask::ask;
use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::query::Query;

/// The longest sleep before `stop` is looked at.
const STOP_POLL: Duration = Duration::from_millis(50);

/// What is to be asked how often.
pub struct StreamConfig<'a> {
    /// The database.
    pub dataset: Dataset,
    /// The query.
    pub query: Query,
    /// Queries a second, above 0.
    pub rate: f64,
    /// How long queries are due.
    pub lasts: Duration,
    /// Connections, at least 1.
    pub connections: usize,
    /// The first key.
    pub first_key: u64,
    /// Ends it when it is set.
    pub stop: &'a AtomicBool,
}

/// Latencies, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latencies {
    /// The median.
    pub p50_ms: f64,
    /// The 90th percentile.
    pub p90_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The 99.9th percentile.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Latencies {
    /// Of a histogram of nanoseconds.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Self {
        let ms = |percentile| histogram.percentile(percentile) as f64 / 1e6;
        let max_ms = histogram.max() as f64 / 1e6;
        Self { p50_ms: ms(50.0), p90_ms: ms(90.0), p99_ms: ms(99.0), p999_ms: ms(99.9), max_ms }
    }
}

/// What came of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Streamed {
    /// The query.
    pub query: Query,
    /// Queries a second that were due.
    pub rate: f64,
    /// Connections.
    pub connections: usize,
    /// Queries that were asked and answered.
    pub queries: u64,
    /// All keys were different.
    pub are_distinct: bool,
    /// Queries a second that were answered.
    pub achieved: f64,
    /// From the time that a query was due until its last row.
    pub from_due: Latencies,
    /// From its request until its last row.
    pub service: Latencies,
    /// Rows of all answers.
    pub rows: u64,
    /// Blocks that the engine asked the system for, a query.
    pub blocks_read: Option<f64>,
    /// Bytes that came from the device, a query.
    pub device_bytes: Option<f64>,
}

/// What a connection counts.
#[derive(Default)]
struct Counts {
    from_due: Histogram,
    service: Histogram,
    rows: u64,
    blocks: Option<u64>,
    device_bytes: Option<u64>,
}

/// Asks. The engine is as cold or warm as it is handed over.
///
/// # Errors
/// [`DatabaseError::Interrupted`] before the first answer; those of the engine.
pub fn stream(engine: &dyn Engine, config: &StreamConfig<'_>) -> Result<Streamed, DatabaseError> {
    let next = AtomicU64::new(0);
    let connections: Vec<_> = (0..config.connections).map(|_| engine.connect()).collect::<Result<_, _>>()?;
    let begun = Instant::now();
    let counted: Vec<Result<Counts, DatabaseError>> = std::thread::scope(|scope| {
        let worker = |mut engine: Box<dyn Engine>| {
            let next = &next;
            scope.spawn(move || serve(&mut *engine, config, begun, next))
        };
        let workers: Vec<_> = connections.into_iter().map(worker).collect();
        let joined = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    });
    let elapsed_s = begun.elapsed().as_secs_f64();
    let mut all = Counts { blocks: Some(0), device_bytes: Some(0), ..Counts::default() };
    for counts in counted {
        let counts = counts?;
        all.from_due.merge(&counts.from_due);
        all.service.merge(&counts.service);
        all.rows += counts.rows;
        all.blocks = all.blocks.zip(counts.blocks).map(|(a, b)| a + b);
        all.device_bytes = all.device_bytes.zip(counts.device_bytes).map(|(a, b)| a + b);
    }
    let queries = all.service.count();
    if queries == 0 {
        return Err(DatabaseError::Interrupted);
    }
    let each = |sum: u64| sum as f64 / queries as f64;
    Ok(Streamed {
        query: config.query,
        rate: config.rate,
        connections: config.connections,
        queries,
        are_distinct: queries <= config.query.keys(&config.dataset),
        achieved: queries as f64 / elapsed_s,
        from_due: Latencies::of(&all.from_due),
        service: Latencies::of(&all.service),
        rows: all.rows,
        blocks_read: all.blocks.map(each),
        device_bytes: all.device_bytes.map(each),
    })
}

fn serve(
    engine: &mut dyn Engine,
    config: &StreamConfig<'_>,
    begun: Instant,
    next: &AtomicU64,
) -> Result<Counts, DatabaseError> {
    let mut counts = Counts { blocks: Some(0), device_bytes: Some(0), ..Counts::default() };
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let due = Duration::from_secs_f64(number as f64 / config.rate);
        if due >= config.lasts || !wait_until(begun + due, config.stop) {
            return Ok(counts);
        }
        let (answer, cost) = ask(engine, &config.dataset, config.query, config.first_key + number)?;
        let since_due = begun.elapsed().saturating_sub(due);
        counts.from_due.record(since_due.as_nanos() as u64);
        counts.service.record(cost.elapsed_ns);
        counts.rows += answer.rows;
        counts.blocks = counts.blocks.zip(cost.blocks_read).map(|(a, b)| a + b);
        counts.device_bytes = counts.device_bytes.zip(cost.device_bytes).map(|(a, b)| a + b);
    }
}

/// False if it was told to stop before.
pub(crate) fn wait_until(due: Instant, stop: &AtomicBool) -> bool {
    while !stop.load(Ordering::Relaxed) {
        match due.checked_duration_since(Instant::now()) {
            None | Some(Duration::ZERO) => return true,
            Some(left) => std::thread::sleep(left.min(STOP_POLL)),
        }
    }
    false
}
