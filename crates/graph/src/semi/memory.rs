//! What a search takes of memory, known before it starts.

use super::state::State;
use super::steps::CHUNK_BYTES;
use super::{SemiConfig, UNREACHED, tree};
use crate::fetch::{FetchConfig, PagePool, Traffic};
use crate::format::{Fwg, Index, MOST_HEADS, PAGE_BYTES, SectionKind};
use crate::{GraphError, IdWidth, MOST_THREADS};

/// What the program takes by itself: code, stacks, the allocator's slack.
const PROGRAM_BYTES: u64 = 8 << 20;
/// The most that the queues of a small front take: a vertex for each entry of [`QUEUE_BYTES`](super::run::QUEUE_BYTES).
const QUEUES_BYTES: u64 = 2 * super::run::QUEUE_BYTES;
/// The largest pool: what a search of many small steps uses again lies in fewer pages.
const POOL_MOST: u64 = 256 << 20;

/// The shortest requests, bytes: the most heads of a bitmap's word, of 64 vertices, come whole wherever they begin on a page.
const LEAST_REQUEST: u32 = 64 * MOST_HEADS * 4 + PAGE_BYTES as u32;

/// Bytes by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Parents and bitmaps.
    pub vertices: u64,
    /// Index, checksums and the record of pages read.
    pub index: u64,
    /// Buffers of all threads, queues, and the program itself.
    pub buffers: u64,
    /// The heads section, where it fits: heads are then read once, and the choice of direction is exact.
    pub heads: u64,
    /// Pages kept for small steps, as long as no heads are in memory.
    pub pool: u64,
    /// Pages kept for small steps beside the heads.
    pub pool_beside_heads: u64,
    /// What turning the search's tree into results takes at least, after the search has given its memory back.
    pub results: u64,
    /// Threads: those of the configuration, or as many as have room for their buffers.
    pub threads: usize,
    /// How each thread reads.
    pub(super) fetch: FetchConfig,
}

impl MemoryPlan {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        let spare = self.pool.max(self.heads + self.pool_beside_heads);
        (self.vertices + self.index + self.buffers + spare).max(self.results)
    }

    /// What [`in_input_order`](super::in_input_order) may take of it.
    #[must_use]
    pub fn for_tree(&self, graph: &Fwg) -> u64 {
        self.total().saturating_sub(graph.memory_bytes() + PROGRAM_BYTES)
    }
}

/// What a search of a graph takes within a budget: buffers shrink, and then threads are fewer, before it is refused; what is left
/// becomes the pool.
///
/// # Errors
/// [`GraphError::Memory`] if the least does not fit; [`GraphError::Invalid`] for more than 2^32 − 1 vertices.
pub fn plan(graph: &Fwg, config: &SemiConfig) -> Result<MemoryPlan, GraphError> {
    let header = graph.header();
    if header.width != IdWidth::Four || header.vertices > u64::from(UNREACHED) {
        let message = format!("semi searches up to {UNREACHED} vertices; the graph has {}", header.vertices);
        return Err(GraphError::Invalid { message });
    }
    let vertices = State::memory_bytes(header.vertices);
    let chunks = header.section(SectionKind::Adjacency).length / CHUNK_BYTES * 8 + header.vertices / 8192;
    let index = Index::memory_bytes(header) + graph.memory_bytes() + Traffic::memory_bytes(graph) + chunks;
    let wide = FetchConfig { engine: config.engine, ..FetchConfig::default() };
    let narrow = FetchConfig { request_bytes: LEAST_REQUEST, depth: 16, ..wide };
    let mut threads = config.threads.clamp(1, MOST_THREADS);
    let buffers_of = |fetch: &FetchConfig, threads: usize| {
        threads as u64 * fetch.memory_bytes() + QUEUES_BYTES + PROGRAM_BYTES
    };
    let fits = |fetch, threads| vertices + index + buffers_of(fetch, threads) <= config.memory;
    let fetch = if fits(&wide, threads) { wide } else { narrow };
    while threads > 1 && !fits(&fetch, threads) {
        threads /= 2;
    }
    let buffers = buffers_of(&fetch, threads);
    // Writing results comes after the search, and takes the place of its buffers, bitmaps and pages.
    let results = tree::memory_bytes(header.vertices) + graph.memory_bytes() + PROGRAM_BYTES;
    let search = vertices + index + buffers;
    let needed = search.max(results);
    if needed > config.memory {
        let purpose = "a semi-external search of this graph".to_owned();
        return Err(GraphError::Memory { purpose, needed, budget: config.memory });
    }
    let left = config.memory - search;
    let heads = header.section(SectionKind::Heads).length;
    let heads = if heads <= left && !header.directed { heads } else { 0 };
    let most = PagePool::bytes_for(header.section(SectionKind::Adjacency).length).min(POOL_MOST);
    // A search that never goes bottom-up, as on roads, has the heads' place for its pages.
    let (pool, pool_beside_heads) = (left.min(most), (left - heads).min(most));
    Ok(MemoryPlan { vertices, index, buffers, heads, pool, pool_beside_heads, results, threads, fetch })
}
