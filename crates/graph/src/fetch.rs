//! Reads of many ranges of a stored graph: merged by page, many in flight, handed over as they complete.
//!
//! 1. The caller [adds](Fetcher::add) ranges, ascending where it can. A range that begins on the last page of the open
//!    request, or on the page behind it, joins that request, so no page is read twice because two lists share it.
//! 2. A request is closed when the next range lies elsewhere or does not fit. Closed requests go to the engine; up to
//!    `depth` are in flight.
//! 3. Pages of a completed request are compared with their checksums, then each range in it is passed to the caller's
//!    visitor, in the order of completion.
//!
//! A range longer than a request comes in pieces; a shorter one always comes whole. With a [`PagePool`] pages that were read
//! lately are passed to the visitor at once, which matters to searches of many small steps.

mod pool;

use std::sync::atomic::{AtomicU64, Ordering};

use base::IoEngine;
use storage::engine::{AnyEngine, Engine, EngineConfig, Op};
use storage::on_engine;

pub use self::pool::PagePool;
use crate::format::{Fwg, PAGE_BYTES};
use crate::{GraphError, VertexId};

/// Closed requests that are collected before they are handed to the kernel.
const SUBMIT_BATCH: u32 = 8;
/// Ranges of a request, which bounds the memory that they take.
const MOST_RANGES: usize = 2048;

/// What a fetcher reads with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchConfig {
    /// The engine.
    pub engine: IoEngine,
    /// Requests in flight.
    pub depth: u32,
    /// Longest request, bytes; whole pages.
    pub request_bytes: u32,
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self { engine: IoEngine::Auto, depth: 32, request_bytes: 64 << 10 }
    }
}

impl FetchConfig {
    /// Bytes of memory that a fetcher takes: its buffers and what it knows of requests.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let ranges = (MOST_RANGES * std::mem::size_of::<Range>()) as u64;
        u64::from(self.depth) * (u64::from(self.request_bytes) + ranges)
    }
}

/// What was read, shared by all fetchers of a search.
#[derive(Debug)]
pub struct Traffic {
    /// A bit for each page of the file: whether it was read before.
    seen: Vec<AtomicU64>,
    bytes: AtomicU64,
    requests: AtomicU64,
    repeated_pages: AtomicU64,
    members: Vec<AtomicU64>,
}

impl Traffic {
    /// Nothing read so far.
    #[must_use]
    pub fn of(graph: &Fwg) -> Self {
        let words = (graph.header().file_bytes / PAGE_BYTES).div_ceil(64);
        let zeros = |count: u64| (0..count).map(|_| AtomicU64::new(0)).collect();
        let members = graph.device().spread().map_or(0, |spread| spread.members().len());
        Self {
            seen: zeros(words),
            bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            repeated_pages: AtomicU64::new(0),
            members: zeros(members as u64),
        }
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(graph: &Fwg) -> u64 {
        (graph.header().file_bytes / PAGE_BYTES).div_ceil(64) * 8
    }

    /// Bytes read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Requests made.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Pages that had been read before, each time counted.
    #[must_use]
    pub fn repeated_pages(&self) -> u64 {
        self.repeated_pages.load(Ordering::Relaxed)
    }

    /// Bytes of each member of a device that is made of others; empty for others.
    #[must_use]
    pub fn member_bytes(&self) -> Vec<u64> {
        self.members.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }

    fn count(&self, graph: &Fwg, offset: u64, length: u64) {
        self.bytes.fetch_add(length, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        for page in offset / PAGE_BYTES..(offset + length) / PAGE_BYTES {
            let bit = 1 << (page % 64);
            if self.seen[(page / 64) as usize].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
                self.repeated_pages.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Some(spread) = graph.device().spread() {
            for (member, part) in spread.extents(offset..offset + length) {
                self.members[member as usize].fetch_add(part.end - part.start, Ordering::Relaxed);
            }
        }
    }
}

/// A range that was asked for.
#[derive(Debug, Clone, Copy)]
struct Range {
    vertex: VertexId,
    /// In the request's buffer.
    start: u32,
    length: u32,
}

/// A request that is open or in flight.
#[derive(Debug, Default)]
struct Request {
    offset: u64,
    length: u64,
    ranges: Vec<Range>,
}

/// See the module's argument.
#[derive(Debug)]
pub struct Fetcher<'a> {
    graph: &'a Fwg,
    traffic: &'a Traffic,
    engine: AnyEngine,
    requests: Vec<Request>,
    idle: Vec<u32>,
    /// The slot of the request that is open.
    open: Option<u32>,
    prepared: u32,
    request_bytes: u64,
    pool: Option<PagePool>,
    finished: Vec<u32>,
}

impl<'a> Fetcher<'a> {
    /// Opens an engine on the graph's device.
    ///
    /// # Errors
    /// If no engine can be set up.
    pub fn new(graph: &'a Fwg, traffic: &'a Traffic, config: FetchConfig) -> Result<Self, GraphError> {
        let asked = EngineConfig {
            depth: config.depth,
            slot_bytes: config.request_bytes as usize,
            ..EngineConfig::default()
        };
        let (engine, _) = storage::engine::open(config.engine, graph.device(), &asked)
            .map_err(|error| failed(graph, "set up an engine for", 0, error))?;
        Ok(Self {
            graph,
            traffic,
            engine,
            requests: (0..config.depth).map(|_| Request::default()).collect(),
            idle: (0..config.depth).rev().collect(),
            open: None,
            prepared: 0,
            request_bytes: config.request_bytes.into(),
            pool: None,
            finished: Vec::new(),
        })
    }

    /// The engine's name.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        self.engine.name()
    }

    /// Keeps pages that are read in a pool from now on; None for no longer.
    pub fn keep_pages(&mut self, pool: Option<PagePool>) -> Option<PagePool> {
        std::mem::replace(&mut self.pool, pool)
    }

    /// Asks for `length` bytes at `offset`, which come to a visitor with `vertex`, in this call or a later one.
    ///
    /// # Errors
    /// Of requests that completed meanwhile, this one or others.
    pub fn add(
        &mut self,
        vertex: VertexId,
        mut offset: u64,
        mut length: u64,
        visit: &mut impl FnMut(VertexId, u64, &[u8]),
    ) -> Result<(), GraphError> {
        if let Some(pool) = &self.pool
            && pool.visit(offset, length, &mut |at, bytes| visit(vertex, at, bytes))
        {
            return Ok(());
        }
        while length > 0 {
            let (slot, fits) = self.request_for(offset, length, visit)?;
            let request = &mut self.requests[slot as usize];
            let start = (offset - request.offset) as u32;
            request.ranges.push(Range { vertex, start, length: fits as u32 });
            let end = (offset + fits).next_multiple_of(PAGE_BYTES);
            request.length = request.length.max(end - request.offset);
            (offset, length) = (offset + fits, length - fits);
        }
        Ok(())
    }

    /// The slot of the open request, a new one where the range cannot join; and how much of the range fits.
    fn request_for(
        &mut self,
        offset: u64,
        length: u64,
        visit: &mut impl FnMut(VertexId, u64, &[u8]),
    ) -> Result<(u32, u64), GraphError> {
        let page = offset - offset % PAGE_BYTES;
        if let Some(slot) = self.open {
            let request = &self.requests[slot as usize];
            let end = request.offset + request.length;
            let limit = request.offset + self.request_bytes;
            let joins = page >= request.offset && page <= end && request.ranges.len() < MOST_RANGES;
            if joins && offset + length <= limit {
                return Ok((slot, length));
            }
            // A range that needs several requests anyway fills this one.
            if joins && length > self.request_bytes && offset < limit {
                return Ok((slot, limit - offset));
            }
            self.close();
            if self.prepared >= SUBMIT_BATCH {
                self.complete(0, visit)?;
            }
        }
        while self.idle.is_empty() {
            self.complete(1, visit)?;
        }
        let slot = self.idle.pop().expect("a slot is idle");
        self.open = Some(slot);
        let request = &mut self.requests[slot as usize];
        (request.offset, request.length) = (page, 0);
        request.ranges.clear();
        Ok((slot, length.min(page + self.request_bytes - offset)))
    }

    /// Gives the open request to the engine.
    fn close(&mut self) {
        let Some(slot) = self.open.take() else { return };
        let Request { offset, length, .. } = self.requests[slot as usize];
        self.traffic.count(self.graph, offset, length);
        on_engine!(&mut self.engine, engine => engine.prepare(slot, Op::Read, offset, length as u32));
        self.prepared += 1;
    }

    /// Closes the open request and waits until everything asked for has been visited.
    ///
    /// # Errors
    /// [`GraphError::Io`] if a request cannot be submitted or a read fails; [`GraphError::Corrupt`] if a page's checksum does not
    /// fit or a vertex on it is not one of the graph.
    pub fn finish(&mut self, visit: &mut impl FnMut(VertexId, u64, &[u8])) -> Result<(), GraphError> {
        self.close();
        while on_engine!(&self.engine, engine => engine.in_flight()) > 0 {
            self.complete(1, visit)?;
        }
        Ok(())
    }

    fn complete(
        &mut self,
        least: u32,
        visit: &mut impl FnMut(VertexId, u64, &[u8]),
    ) -> Result<(), GraphError> {
        let engine = &mut self.engine;
        let submitted =
            self.graph.clock().during(|| on_engine!(engine, engine => engine.submit(least, None)));
        submitted.map_err(|error| failed(self.graph, "drive the engine of", 0, error))?;
        self.prepared = 0;
        let (finished, mut failure) = (&mut self.finished, None);
        on_engine!(&mut self.engine, engine => engine.reap(|slot, outcome| match outcome {
            Ok(()) => finished.push(slot),
            Err(error) => failure = Some((slot, error)),
        }));
        if let Some((slot, error)) = failure {
            return Err(failed(self.graph, "read", self.requests[slot as usize].offset, error));
        }
        while let Some(slot) = self.finished.pop() {
            let request = &self.requests[slot as usize];
            let bytes = on_engine!(&self.engine, engine => engine.buffer(slot));
            let bytes = &bytes[..request.length as usize];
            self.graph.check(request.offset, bytes)?;
            if let Some(pool) = &mut self.pool {
                pool.put(request.offset, bytes);
            }
            for range in &request.ranges {
                let (start, end) = (range.start as usize, (range.start + range.length) as usize);
                visit(range.vertex, request.offset + u64::from(range.start), &bytes[start..end]);
            }
            self.idle.push(slot);
        }
        Ok(())
    }
}

fn failed(
    graph: &Fwg,
    operation: &'static str,
    offset: u64,
    error: impl std::error::Error + Send + Sync + 'static,
) -> GraphError {
    GraphError::io_at(operation, graph.path(), offset, std::io::Error::other(error))
}
