//! `semi`: direction-optimizing breadth-first search with the vertices in memory and the edges on a drive.
//!
//! In memory lie a parent for each vertex, four bitmaps (visited, front, next, pending), the index and the checksums. Each level
//! runs in one of two directions (Beamer, Asanović, Patterson, SC 2012):
//!
//! - **Top-down** reads the lists of the front, in the order of the file, merged by page ([`fetch`](crate::fetch)), and
//!   claims each unvisited neighbour. A small front is a sorted queue, served by one thread with a pool of pages; a large
//!   one is a bitmap that all threads share by chunk.
//! - **Bottom-up** looks for a parent of each unvisited vertex: first among its heads, then, on a miss only, in its list, the
//!   first page before the rest. Lists name hubs first, so few pages past the heads are read.
//!
//! The direction follows from what each would read, as far as that is known, and else from Beamer's rule (α = 15, β = 18):
//! see `choice`. Heads that fit into the budget are read once and kept.

mod choice;
mod crew;
mod memory;
mod run;
mod state;
mod steps;
mod tree;

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use base::IoEngine;

pub use self::choice::Direction;
use self::crew::{Crew, Outfit};
pub use self::memory::{MemoryPlan, plan};
pub use self::run::MOST_RECORDS;
use self::run::Run;
use self::state::State;
use self::steps::Shared;
pub use self::tree::in_input_order;
use crate::fetch::Traffic;
use crate::format::{Fwg, Index};
use crate::{GraphError, VertexId};

/// The parent of a vertex that was not reached.
pub const UNREACHED: u32 = u32::MAX;

/// How to search.
#[derive(Debug, Clone, Copy)]
pub struct SemiConfig {
    /// Bytes of memory that the whole program may take.
    pub memory: u64,
    /// Threads.
    pub threads: usize,
    /// The engine that reads.
    pub engine: IoEngine,
}

/// What one level did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelRecord {
    /// Which way it was searched.
    pub direction: Direction,
    /// Vertices of the front.
    pub front: u64,
    /// Neighbours in the lists of the front.
    pub front_entries: u64,
    /// Vertices found.
    pub found: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Duration.
    pub time: Duration,
}

/// What a search did.
#[derive(Debug, Clone)]
pub struct SearchRecord {
    /// Vertices reached, the source included.
    pub reached: u64,
    /// Neighbours in the lists of the vertices that were reached.
    pub entries: u64,
    /// Levels that had a front.
    pub level_count: u64,
    /// The first of them, [`MOST_RECORDS`] at most: a path of millions of vertices has as many levels.
    pub levels: Vec<LevelRecord>,
    /// Duration of the search, without opening the graph and loading its index.
    pub time: Duration,
    /// Threads that searched.
    pub threads: usize,
    /// Name of the engine that read.
    pub engine: &'static str,
}

/// A searcher, which can search from many sources one after the other.
#[derive(Debug)]
pub struct Semi<'a> {
    graph: &'a Fwg,
    index: Index,
    traffic: &'a Traffic,
    plan: MemoryPlan,
    state: State,
    chunks: Vec<VertexId>,
    /// Heads that an earlier search brought into memory.
    heads: OnceLock<Vec<u32>>,
}

impl<'a> Semi<'a> {
    /// Allocates what the search needs, and reads the index. A budget that is too small is refused before memory is taken.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if the budget is too small; [`GraphError::Invalid`] for more than 2^32 − 1 vertices; of reading.
    pub fn new(graph: &'a Fwg, traffic: &'a Traffic, config: SemiConfig) -> Result<Self, GraphError> {
        let (plan, header) = (plan(graph, &config)?, graph.header());
        let index = graph.index()?;
        let chunks = steps::chunks(header, &mut index.cursor())?;
        let (state, heads) = (State::new(header.vertices), OnceLock::new());
        Ok(Self { graph, index, traffic, plan, state, chunks, heads })
    }

    /// Searches from a vertex, in the file's numbers.
    ///
    /// # Errors
    /// [`GraphError::NoVertex`]; of reading; [`GraphError::Interrupted`] once `stop` is set.
    pub fn search(&mut self, source: VertexId, stop: &AtomicBool) -> Result<SearchRecord, GraphError> {
        let header = self.graph.header();
        if source >= header.vertices {
            let path = self.graph.path().to_owned();
            return Err(GraphError::NoVertex { path, vertex: source, vertices: header.vertices });
        }
        self.state.clear();
        self.state.claim(source as u32, source as u32);
        let heads = std::mem::take(&mut self.heads);
        let shared = Shared::new(self.graph, &self.state, &self.chunks, heads, stop);
        let outfit =
            Outfit { shared: &shared, index: &self.index, traffic: self.traffic, fetch: self.plan.fetch };
        let threads = self.plan.threads;
        let record = std::thread::scope(|scope| {
            let crew = Crew::start(scope, threads, outfit)?;
            let engine = crew.first.engine();
            let began = Instant::now();
            let mut run = Run::new(&shared, crew, &self.plan, self.traffic);
            let (reached, entries) = run.levels(source)?;
            let (level_count, levels) = (run.level_count, std::mem::take(&mut run.records));
            let time = began.elapsed();
            Ok(SearchRecord { reached, entries, level_count, levels, time, threads, engine })
        });
        self.heads = shared.heads;
        record
    }

    /// What the search takes of memory.
    #[must_use]
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// The parents of the last search, in the file's numbers: of the source its own number, [`UNREACHED`] of what was not
    /// reached. All other memory of the searcher is given back.
    #[must_use]
    pub fn into_parents(self) -> Vec<u32> {
        self.state.into_parents()
    }

    /// A vertex's parent in the last search.
    #[must_use]
    pub fn parent(&self, vertex: VertexId) -> u32 {
        self.state.parent(vertex as u32)
    }
}
