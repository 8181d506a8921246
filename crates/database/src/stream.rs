//! Queries at a set rate: latencies from the intended start.
//!
//! Query i is due at i / rate. Connections take the next one as they are free; one that finds none free waits, and its latency counts from
//! the time that it was due, so that a slow query is felt by those behind it as by users. Keys are distinct until all were used.
//! When it is told to stop, queries in progress are cancelled, and the figures are of those that were answered.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use measure::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ask::ask;
use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::interrupt::{interruptible, told};
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
    /// Seconds until the last answer.
    pub lasted_s: f64,
    /// It was told to stop before its end: the figures are of the queries until then.
    pub is_interrupted: bool,
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
    /// It was told to stop.
    is_cut: bool,
}

impl Counts {
    fn new() -> Self {
        Self { blocks: Some(0), device_bytes: Some(0), ..Self::default() }
    }

    fn merge(&mut self, other: &Self) {
        self.from_due.merge(&other.from_due);
        self.service.merge(&other.service);
        self.rows += other.rows;
        self.blocks = self.blocks.zip(other.blocks).map(|(a, b)| a + b);
        self.device_bytes = self.device_bytes.zip(other.device_bytes).map(|(a, b)| a + b);
        self.is_cut |= other.is_cut;
    }
}

/// Asks. The engine is as cold or warm as it is handed over.
///
/// # Errors
/// [`DatabaseError::Interrupted`] before the first answer; those of the engine.
pub fn stream(engine: &dyn Engine, config: &StreamConfig<'_>) -> Result<Streamed, DatabaseError> {
    let next = AtomicU64::new(0);
    let connections: Vec<_> = (0..config.connections).map(|_| engine.connect()).collect::<Result<_, _>>()?;
    let begun = Instant::now();
    let all = interruptible(config.stop, |watch| {
        connections.iter().for_each(|connection| watch.over(&**connection));
        serve_all(connections, config, begun, &next)
    })?;
    let lasted_s = begun.elapsed().as_secs_f64();
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
        achieved: queries as f64 / lasted_s,
        lasted_s,
        is_interrupted: all.is_cut,
        from_due: Latencies::of(&all.from_due),
        service: Latencies::of(&all.service),
        rows: all.rows,
        blocks_read: all.blocks.map(each),
        device_bytes: all.device_bytes.map(each),
    })
}

fn serve_all(
    connections: Vec<Box<dyn Engine>>,
    config: &StreamConfig<'_>,
    begun: Instant,
    next: &AtomicU64,
) -> Result<Counts, DatabaseError> {
    std::thread::scope(|scope| {
        let worker = |mut engine: Box<dyn Engine>| {
            scope.spawn(move || {
                let served = serve(&mut *engine, config, begun, next);
                if served.is_err() {
                    // Nothing is left for the others: what came of them is not told.
                    next.store(1 << 60, Ordering::Relaxed);
                }
                served
            })
        };
        let workers: Vec<_> = connections.into_iter().map(worker).collect();
        let mut all = Counts::new();
        for worker in workers {
            all.merge(&worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}

fn serve(
    engine: &mut dyn Engine,
    config: &StreamConfig<'_>,
    begun: Instant,
    next: &AtomicU64,
) -> Result<Counts, DatabaseError> {
    let mut counts = Counts::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let due_s = number as f64 / config.rate;
        if due_s >= config.lasts.as_secs_f64() {
            return Ok(counts);
        }
        let due = Duration::from_secs_f64(due_s);
        let asked = match wait_until(begun + due, config.stop) {
            true => ask(engine, &config.dataset, config.query, config.first_key + number)
                .map_err(|error| told(config.stop, error)),
            false => Err(DatabaseError::Interrupted),
        };
        let (answer, cost) = match asked {
            Err(DatabaseError::Interrupted) => return Ok(Counts { is_cut: true, ..counts }),
            asked => asked?,
        };
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
