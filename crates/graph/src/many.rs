//! Up to 64 searches at once, which share each page that is read: a bit a search in a word a vertex (MS-BFS, Then et al.,
//! VLDB 2014), with the edges on a drive.
//!
//! In memory lie three words a vertex (seen, front, next), the index, the checksums and, where there is room, the heads. Each
//! level has up to two passes, and each search takes part in one of them:
//!
//! - **Top-down**, for searches whose fronts are small: the lists of all vertices that are in such a front, each read once.
//! - **Bottom-up**, for searches whose fronts are large: each vertex that some of them have not seen looks for them first among
//!   its heads, then, as long as any is missing, page by page in its list.
//!
//! What comes out are sums: vertices a level for each search, hence reach, size of the component and closeness, and which
//! sources reach each other.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::IoEngine;

use crate::fetch::{FetchConfig, Fetcher, Traffic};
use crate::format::{Fwg, Index, List, PAGE_BYTES, SectionKind};
use crate::{GraphError, IdWidth, VertexId};

/// The most searches.
pub const MOST_SOURCES: usize = 64;
/// A search goes bottom-up once its front has this share of the neighbours that it has not explored: 1 in so many.
const ALPHA: u64 = 6;
/// Neighbours of all fronts together below which a level is one thread's.
const SMALL_ENTRIES: u64 = 1 << 18;
/// What the program takes by itself.
const PROGRAM_BYTES: u64 = 8 << 20;
/// Vertices that a thread takes on at a time.
const CHUNK: usize = 8 << 10;
/// Lists longer than a page that a thread collects before it reads on in them.
const MOST_REST: usize = 4096;

/// How to search.
#[derive(Debug, Clone, Copy)]
pub struct ManyConfig {
    /// Bytes of memory that the whole program may take.
    pub memory: u64,
    /// Threads.
    pub threads: usize,
    /// The engine that reads.
    pub engine: IoEngine,
}

/// What one of the searches found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManyFound {
    /// Vertices on each level; the first is the source's.
    pub levels: Vec<u64>,
    /// The sources that reach this source, as positions in the list of sources.
    pub reached_by: Vec<usize>,
}

impl ManyFound {
    /// Vertices reached, the source included: the size of its component, if the graph is undirected.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.levels.iter().sum()
    }

    /// Distances to all vertices reached, added up.
    #[must_use]
    pub fn distances(&self) -> u64 {
        self.levels.iter().zip(0..).map(|(count, level)| count * level).sum()
    }

    /// Other vertices reached by the mean distance to them; 0 if there are none.
    #[must_use]
    pub fn closeness(&self) -> f64 {
        let distances = self.distances();
        if distances == 0 { 0.0 } else { (self.reached() - 1) as f64 / distances as f64 }
    }
}

/// What the searches did together.
#[derive(Debug, Clone)]
pub struct ManyRecord {
    /// For each source, in the order given.
    pub found: Vec<ManyFound>,
    /// Duration.
    pub time: Duration,
    /// What was planned to be taken of memory, bytes.
    pub planned_bytes: u64,
}

/// Bytes of memory that searches of a graph take at least, and whether the heads fit in beside.
///
/// # Errors
/// [`GraphError::Memory`] if the budget is too small; [`GraphError::Invalid`] for more than 2^32 − 1 vertices.
pub fn plan(graph: &Fwg, config: &ManyConfig) -> Result<(u64, bool), GraphError> {
    let header = graph.header();
    if header.width != IdWidth::Four || header.vertices > u64::from(u32::MAX) {
        let message =
            format!("up to {} vertices are searched at once; the graph has {}", u32::MAX, header.vertices);
        return Err(GraphError::Invalid { message });
    }
    let buffers = config.threads as u64 * fetch_config(config).memory_bytes();
    let tables = Index::memory_bytes(header) + graph.memory_bytes() + Traffic::memory_bytes(graph);
    let needed = 24 * header.vertices + tables + buffers + PROGRAM_BYTES;
    if needed > config.memory {
        let purpose = "searching this graph from many vertices at once".to_owned();
        return Err(GraphError::Memory { purpose, needed, budget: config.memory });
    }
    let heads = header.section(SectionKind::Heads).length;
    let is_room = heads > 0 && !header.directed && needed + heads <= config.memory;
    Ok((needed + if is_room { heads } else { 0 }, is_room))
}

fn fetch_config(config: &ManyConfig) -> FetchConfig {
    FetchConfig { engine: config.engine, ..FetchConfig::default() }
}

/// Searches from stored vertices at once.
///
/// # Errors
/// As [`plan`]; [`GraphError::Invalid`] for none or too many sources; [`GraphError::NoVertex`]; of reading;
/// [`GraphError::Interrupted`] once `stop` is set.
pub fn search(
    graph: &Fwg,
    sources: &[VertexId],
    config: &ManyConfig,
    traffic: &Traffic,
    stop: &AtomicBool,
) -> Result<ManyRecord, GraphError> {
    if sources.is_empty() || sources.len() > MOST_SOURCES {
        let message = format!("{} sources; 1 to {MOST_SOURCES} are searched from at once", sources.len());
        return Err(GraphError::Invalid { message });
    }
    let vertices = graph.header().vertices;
    if let Some(&vertex) = sources.iter().find(|source| **source >= vertices) {
        return Err(GraphError::NoVertex { path: graph.path().to_owned(), vertex, vertices });
    }
    let (planned_bytes, is_room_for_heads) = plan(graph, config)?;
    let began = Instant::now();
    let index = graph.index()?;
    let words = || (0..vertices).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let mut many = Many {
        graph,
        index: &index,
        traffic,
        config,
        stop,
        seen: words(),
        front: words(),
        next: words(),
        heads: Vec::new(),
        all: u64::MAX >> (64 - sources.len()),
        claim: AtomicUsize::new(0),
    };
    if is_room_for_heads {
        many.load_heads()?;
    }
    let found = many.levels(sources)?;
    Ok(ManyRecord { found, time: began.elapsed(), planned_bytes })
}

/// Searches under way.
#[derive(Debug)]
struct Many<'a> {
    graph: &'a Fwg,
    index: &'a Index,
    traffic: &'a Traffic,
    config: &'a ManyConfig,
    stop: &'a AtomicBool,
    seen: Vec<AtomicU64>,
    front: Vec<AtomicU64>,
    next: Vec<AtomicU64>,
    /// Empty if they are not in memory.
    heads: Vec<u32>,
    /// A bit for each search.
    all: u64,
    claim: AtomicUsize,
}

/// Vertices and neighbours that each search found on a level.
struct Census {
    vertices: [u64; MOST_SOURCES],
    entries: [u64; MOST_SOURCES],
}

/// A part of a list that is still to be read.
#[derive(Clone, Copy)]
struct Rest {
    vertex: u32,
    offset: u64,
    length: u64,
}

impl Many<'_> {
    fn load_heads(&mut self) -> Result<(), GraphError> {
        let section = self.graph.header().section(SectionKind::Heads);
        let mut heads = vec![0; (section.length / 4) as usize];
        let mut keep = |_: VertexId, at: u64, bytes: &[u8]| {
            let first = ((at - section.offset) / 4) as usize;
            heads[first..].iter_mut().zip(ids(bytes)).for_each(|(head, id)| *head = id);
        };
        let mut fetcher = Fetcher::new(self.graph, self.traffic, fetch_config(self.config))?;
        fetcher.add(0, section.offset, section.length, &mut keep)?;
        fetcher.finish(&mut keep)?;
        self.heads = heads;
        Ok(())
    }

    fn levels(&self, sources: &[VertexId]) -> Result<Vec<ManyFound>, GraphError> {
        for (search, source) in sources.iter().enumerate() {
            self.next[*source as usize].fetch_or(1 << search, Ordering::Relaxed);
        }
        let mut found = vec![ManyFound::default(); sources.len()];
        let mut own = Fetcher::new(self.graph, self.traffic, fetch_config(self.config))?;
        let mut unexplored = [self.graph.header().entries; MOST_SOURCES];
        loop {
            let census = self.advance()?;
            if census.vertices.iter().all(|count| *count == 0) {
                break;
            }
            let (mut down, mut up) = (0_u64, 0_u64);
            for (search, found) in found.iter_mut().enumerate() {
                let (vertices, entries) = (census.vertices[search], census.entries[search]);
                if vertices == 0 {
                    continue;
                }
                found.levels.push(vertices);
                unexplored[search] = unexplored[search].saturating_sub(entries);
                let is_large = entries > unexplored[search] / ALPHA && !self.graph.header().directed;
                *(if is_large { &mut up } else { &mut down }) |= 1 << search;
            }
            // Setting up another thread's engine costs more than a small front.
            let is_small = up == 0 && census.entries.iter().sum::<u64>() < SMALL_ENTRIES;
            let threads = if is_small { 1 } else { self.config.threads };
            if down != 0 {
                self.all_threads(&mut own, threads, |fetcher| self.top_down(fetcher, down))?;
            }
            if up != 0 {
                self.all_threads(&mut own, threads, |fetcher| self.bottom_up(fetcher, up))?;
            }
        }
        for (found, source) in found.iter_mut().zip(sources) {
            let seen = self.seen[*source as usize].load(Ordering::Relaxed);
            found.reached_by = (0..sources.len()).filter(|search| seen >> search & 1 != 0).collect();
        }
        Ok(found)
    }

    /// Makes what was found the front, and counts it.
    fn advance(&self) -> Result<Census, GraphError> {
        let mut census = Census { vertices: [0; MOST_SOURCES], entries: [0; MOST_SOURCES] };
        let mut cursor = self.index.cursor();
        for vertex in 0..self.seen.len() {
            let next = self.next[vertex].swap(0, Ordering::Relaxed);
            let seen = self.seen[vertex].load(Ordering::Relaxed);
            let mut new = next & !seen;
            self.front[vertex].store(new, Ordering::Relaxed);
            if new != 0 {
                self.seen[vertex].store(seen | new, Ordering::Relaxed);
                let degree = cursor.list(vertex as u64)?.degree;
                while new != 0 {
                    let search = new.trailing_zeros() as usize;
                    census.vertices[search] += 1;
                    census.entries[search] += degree;
                    new &= new - 1;
                }
            }
        }
        Ok(census)
    }

    /// Runs a pass on the calling thread, and on others that end with it.
    fn all_threads(
        &self,
        own: &mut Fetcher<'_>,
        threads: usize,
        pass: impl Fn(&mut Fetcher<'_>) -> Result<(), GraphError> + Sync,
    ) -> Result<(), GraphError> {
        self.claim.store(0, Ordering::Relaxed);
        let work = || pass(&mut Fetcher::new(self.graph, self.traffic, fetch_config(self.config))?);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut result = pass(own);
            for other in others {
                result = result.and(other.join().expect("a searching thread does not panic"));
            }
            result
        })
    }

    fn next_chunk(&self) -> Result<Option<Range<usize>>, GraphError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(GraphError::Interrupted { during: "searching" });
        }
        let listed = self.graph.header().listed as usize;
        let first = self.claim.fetch_add(1, Ordering::Relaxed) * CHUNK;
        Ok((first < listed).then(|| first..(first + CHUNK).min(listed)))
    }

    fn top_down(&self, fetcher: &mut Fetcher<'_>, searches: u64) -> Result<(), GraphError> {
        let mut cursor = self.index.cursor();
        let mut visit = |vertex: VertexId, _: u64, bytes: &[u8]| {
            let front = self.front[vertex as usize].load(Ordering::Relaxed) & searches;
            for id in ids(bytes) {
                let new = front & !self.seen[id as usize].load(Ordering::Relaxed);
                if new & !self.next[id as usize].load(Ordering::Relaxed) != 0 {
                    self.next[id as usize].fetch_or(new, Ordering::Relaxed);
                }
            }
        };
        while let Some(vertices) = self.next_chunk()? {
            for vertex in vertices {
                if self.front[vertex].load(Ordering::Relaxed) & searches != 0 {
                    let list = cursor.list(vertex as u64)?;
                    fetcher.add(vertex as u64, list.offset, list.degree * 4, &mut visit)?;
                }
            }
        }
        fetcher.finish(&mut visit)
    }

    fn bottom_up(&self, fetcher: &mut Fetcher<'_>, searches: u64) -> Result<(), GraphError> {
        let heads = if self.heads.is_empty() { 0 } else { self.graph.header().heads as usize };
        let mut cursor = self.index.cursor();
        let mut rest = Vec::new();
        while let Some(vertices) = self.next_chunk()? {
            for vertex in vertices {
                let own = &self.heads[vertex * heads..(vertex + 1) * heads];
                if self.look_among(vertex, searches, own.iter().copied()) == 0 {
                    continue;
                }
                let List { offset, degree } = cursor.list(vertex as u64)?;
                if degree > heads as u64 {
                    rest.push(Rest { vertex: vertex as u32, offset, length: degree * 4 });
                }
            }
            if rest.len() >= MOST_REST {
                self.look_in_lists(fetcher, searches, &mut rest)?;
            }
        }
        self.look_in_lists(fetcher, searches, &mut rest)
    }

    /// Reads lists a page at a time as long as searches are missing.
    fn look_in_lists(
        &self,
        fetcher: &mut Fetcher<'_>,
        searches: u64,
        rest: &mut Vec<Rest>,
    ) -> Result<(), GraphError> {
        let mut visit = |vertex: VertexId, _: u64, bytes: &[u8]| {
            self.look_among(vertex as usize, searches, ids(bytes));
        };
        while !rest.is_empty() {
            for part in rest.iter_mut() {
                let now = part.length.min(PAGE_BYTES);
                fetcher.add(part.vertex.into(), part.offset, now, &mut visit)?;
                (part.offset, part.length) = (part.offset + now, part.length - now);
            }
            fetcher.finish(&mut visit)?;
            rest.retain(|part| part.length > 0 && self.missing(part.vertex as usize, searches) != 0);
        }
        Ok(())
    }

    /// Searches that have not seen a vertex, nor found it on this level.
    #[inline]
    fn missing(&self, vertex: usize, searches: u64) -> u64 {
        let known = self.seen[vertex].load(Ordering::Relaxed) | self.next[vertex].load(Ordering::Relaxed);
        searches & self.all & !known
    }

    /// Looks for missing searches in the fronts of neighbours; what is missing still.
    #[inline]
    fn look_among(&self, vertex: usize, searches: u64, neighbours: impl Iterator<Item = u32>) -> u64 {
        let missing = self.missing(vertex, searches);
        let mut left = missing;
        for id in neighbours {
            if left == 0 {
                break;
            }
            left &= !self.front[id as usize].load(Ordering::Relaxed);
        }
        if left != missing {
            self.next[vertex].fetch_or(missing & !left, Ordering::Relaxed);
        }
        left
    }
}

/// Neighbours in the bytes of a list.
#[inline]
fn ids(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]))
}
