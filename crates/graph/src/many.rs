//! Up to 64 searches at once, which share each page that is read: a bit a search in a word a vertex (MS-BFS, Then et al.,
//! VLDB 2014), with the edges on a drive.
//!
//! In memory lie three words a vertex (seen, front, next), two a page of the lists, the index, the checksums and, where there
//! is room, the heads. In an undirected graph only vertices with neighbours have words.
//!
//! Searches need not be on the same level. Those whose fronts are still small go ahead, so that the costly levels of all,
//! which read most of the graph, come in the same round. A round is one pass over the lists, in which a page is read once (where the
//! parts of two threads meet, by both), and each search goes one of two ways (`choice`):
//!
//! - **Top-down**: the lists of its front. A list that is read serves all searches whose fronts the vertex is in.
//! - **Bottom-up**: each vertex that it has not seen looks for its front first among the vertex's heads, then, as long as any
//!   search is missing, page by page in its list.
//!
//! What comes out are sums: vertices a level for each search, hence reach, size of the component and closeness, and which
//! sources reach each other; and, if asked for, the tree of each search (`trees`), by way of temporary space.

mod choice;
mod notes;
mod trees;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::IoEngine;
use external::Space;

use self::choice::Choice;
use self::notes::{Notes, Recorder};
pub use self::trees::{Discoveries, ManyTrees, most_space_bytes, space_options};
use crate::fetch::{FetchConfig, Fetcher, Traffic};
use crate::format::{Fwg, Header, Index, List, PAGE_BYTES, SectionKind};
use crate::{GraphError, IdWidth, MOST_THREADS, VertexId};

/// The most searches.
pub const MOST_SOURCES: usize = 64;
/// A search goes ahead of others while it has seen less than this share of all neighbours, and
const START_SHARE: u64 = 64;
/// its front's lists lie on less than this share of all pages.
const SMALL_FRONT_SHARE: u64 = 200;
/// Fronts on less than this share of all pages are searched top-down without comparing.
const CLEAR_SHARE: u64 = 64;
/// Pages of all fronts together below which a round is one thread's.
const SMALL_PAGES: u64 = 256;
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

/// Levels of each search whose vertices are kept: half a megabyte for all, which the program's own memory has room for.
pub const MOST_LEVELS: usize = 1024;

/// What one of the searches found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManyFound {
    /// Vertices on each of the first levels, [`MOST_LEVELS`] at most; the first is the source's.
    pub levels: Vec<u64>,
    /// Levels.
    pub level_count: u64,
    /// Vertices reached, the source included: the size of its component, if the graph is undirected.
    pub reached: u64,
    /// Distances to all vertices reached, added up.
    pub distances: u64,
    /// The sources that reach this source, as positions in the list of sources.
    pub reached_by: Vec<usize>,
}

impl ManyFound {
    /// Adds the vertices of the next level.
    fn add_level(&mut self, vertices: u64) {
        if self.levels.len() < MOST_LEVELS {
            self.levels.push(vertices);
        }
        self.reached += vertices;
        self.distances += vertices * self.level_count;
        self.level_count += 1;
    }

    /// Other vertices reached, divided by the sum of the distances to them; 0 if there are none.
    #[must_use]
    pub fn closeness(&self) -> f64 {
        if self.distances == 0 { 0.0 } else { (self.reached - 1) as f64 / self.distances as f64 }
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
    /// Threads that searched.
    pub threads: usize,
}

/// What searches take of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManyPlan {
    /// Bytes.
    pub bytes: u64,
    /// Whether the heads lie in memory.
    pub has_heads: bool,
    /// Threads: those of the configuration, or as many as have room for their buffers.
    pub threads: usize,
}

/// What searches of a graph take of memory, and the making of their trees afterwards if that is asked for.
///
/// # Errors
/// [`GraphError::Memory`] if the budget is too small; [`GraphError::Invalid`] for more than 2^32 − 1 vertices.
pub fn plan(graph: &Fwg, config: &ManyConfig, trees: bool) -> Result<ManyPlan, GraphError> {
    let header = graph.header();
    if header.width != IdWidth::Four || header.vertices > u64::from(u32::MAX) {
        let message =
            format!("up to {} vertices are searched at once; the graph has {}", u32::MAX, header.vertices);
        return Err(GraphError::Invalid { message });
    }
    let tables = Index::memory_bytes(header) + graph.memory_bytes() + Traffic::memory_bytes(graph);
    let tables = tables + Choice::memory_bytes(header);
    let fixed = 24 * words_of(header) + tables + PROGRAM_BYTES;
    // Of a search, and of that and its trees; blocks of temporary space grow with the budget.
    let needed = |memory: u64, threads: usize| {
        let block = space_options(memory).block_bytes as u64;
        let notes = if trees { notes::memory_bytes(threads, block) } else { 0 };
        let after = if trees { trees::memory_bytes(graph, memory) } else { 0 };
        let search = fixed + threads as u64 * fetch_config(config).memory_bytes() + notes;
        (search, search.max(after))
    };
    let mut threads = config.threads.clamp(1, MOST_THREADS);
    while threads > 1 && needed(config.memory, threads).1 > config.memory {
        threads /= 2;
    }
    let (search, most) = needed(config.memory, threads);
    if most > config.memory {
        let mut needed_within = most;
        while needed(needed_within, threads).1 > needed_within {
            needed_within = needed(needed_within, threads).1;
        }
        let needed = needed_within;
        let purpose = "searching this graph from many vertices at once".to_owned();
        return Err(GraphError::Memory { purpose, needed, budget: config.memory });
    }
    let heads = header.section(SectionKind::Heads).length;
    let has_heads = heads > 0 && !header.directed && search + heads <= config.memory;
    Ok(ManyPlan { bytes: most.max(search + if has_heads { heads } else { 0 }), has_heads, threads })
}

/// Vertices that a search can meet beside its source.
fn words_of(header: &Header) -> u64 {
    if header.directed { header.vertices } else { header.listed }
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
    let plan = plan(graph, config, false)?;
    search_as(plan, graph, sources, config, traffic, stop, None)
}

/// The same, and notes on `space` what each search finds, of which trees are made.
///
/// # Errors
/// As [`search`], and those of temporary space.
pub fn search_with_trees(
    graph: &Fwg,
    sources: &[VertexId],
    config: &ManyConfig,
    traffic: &Traffic,
    stop: &AtomicBool,
    space: &Space,
) -> Result<(ManyRecord, Discoveries), GraphError> {
    let plan = plan(graph, config, true)?;
    let work = |recorder: &Recorder| search_as(plan, graph, sources, config, traffic, stop, Some(recorder));
    let (record, notes) = notes::record(space, work)?;
    Ok((record, Discoveries { notes, space: space.clone() }))
}

fn search_as(
    plan: ManyPlan,
    graph: &Fwg,
    sources: &[VertexId],
    config: &ManyConfig,
    traffic: &Traffic,
    stop: &AtomicBool,
    recorder: Option<&Recorder>,
) -> Result<ManyRecord, GraphError> {
    if sources.is_empty() || sources.len() > MOST_SOURCES {
        let message = format!("{} sources; 1 to {MOST_SOURCES} are searched from at once", sources.len());
        return Err(GraphError::Invalid { message });
    }
    let vertices = graph.header().vertices;
    if let Some(&vertex) = sources.iter().find(|source| **source >= vertices) {
        return Err(GraphError::NoVertex { path: graph.path().to_owned(), vertex, vertices });
    }
    let config = &ManyConfig { threads: plan.threads, ..*config };
    let began = Instant::now();
    let index = graph.index()?;
    let words = || (0..words_of(graph.header())).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let mut many = Many {
        graph,
        index: &index,
        traffic,
        config,
        stop,
        recorder,
        seen: words(),
        front: words(),
        next: words(),
        heads: Vec::new(),
        claim: AtomicUsize::new(0),
    };
    if plan.has_heads {
        many.load_heads()?;
    }
    let found = many.levels(sources)?;
    Ok(ManyRecord { found, time: began.elapsed(), planned_bytes: plan.bytes, threads: plan.threads })
}

/// Searches under way.
#[derive(Debug)]
struct Many<'a> {
    graph: &'a Fwg,
    index: &'a Index,
    traffic: &'a Traffic,
    config: &'a ManyConfig,
    stop: &'a AtomicBool,
    /// Takes what is found, where trees are asked for.
    recorder: Option<&'a Recorder>,
    seen: Vec<AtomicU64>,
    front: Vec<AtomicU64>,
    next: Vec<AtomicU64>,
    /// Empty if they are not in memory.
    heads: Vec<u32>,
    claim: AtomicUsize,
}

/// What the searches found in a round.
struct Census {
    /// Vertices of each search's new front, and neighbours in their lists.
    vertices: [u64; MOST_SOURCES],
    entries: [u64; MOST_SOURCES],
    /// Searches that have a front.
    living: u64,
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
        let header = self.graph.header();
        let mut found = vec![ManyFound::default(); sources.len()];
        for (search, source) in sources.iter().enumerate() {
            match self.next.get(*source as usize) {
                Some(word) => word.fetch_or(1 << search, Ordering::Relaxed),
                None => continue, // It has no neighbours.
            };
        }
        let mut choice = Choice::of(header);
        let mut own = Fetcher::new(self.graph, self.traffic, fetch_config(self.config))?;
        let mut explored = [0; MOST_SOURCES];
        let mut active = u64::MAX;
        loop {
            let census = self.advance(active, &mut choice)?;
            for (search, found) in found.iter_mut().enumerate() {
                if census.vertices[search] > 0 {
                    found.add_level(census.vertices[search]);
                }
                explored[search] += census.entries[search];
            }
            if census.living == 0 {
                break;
            }
            active = ready(&choice, census.living, &explored, header.entries);
            let front_pages = choice.union(active, 0);
            let is_clear = front_pages <= choice.pages() / CLEAR_SHARE;
            let ways = if header.directed || is_clear {
                (active, 0)
            } else {
                self.add_missing(active, &mut choice)?;
                choice.choose(active)
            };
            if let Some(recorder) = self.recorder {
                recorder.begin_round(active)?;
            }
            // Setting up another thread's engine costs more than a small front.
            let threads = if ways.1 == 0 && front_pages < SMALL_PAGES { 1 } else { self.config.threads };
            self.all_threads(&mut own, threads, |fetcher| self.pass(fetcher, ways))?;
        }
        for (found, source) in found.iter_mut().zip(sources) {
            if let Some(seen) = self.seen.get(*source as usize) {
                let seen = seen.load(Ordering::Relaxed);
                found.reached_by = (0..sources.len()).filter(|search| seen >> search & 1 != 0).collect();
            } else {
                found.add_level(1);
                found.reached_by = (0..sources.len()).filter(|at| sources[*at] == *source).collect();
            }
        }
        Ok(found)
    }

    /// Makes what the active searches found their fronts, counts it, and notes the pages of the fronts of all.
    fn advance(&self, active: u64, choice: &mut Choice) -> Result<Census, GraphError> {
        let mut census = Census { vertices: [0; MOST_SOURCES], entries: [0; MOST_SOURCES], living: 0 };
        let mut cursor = self.index.cursor();
        choice.clear();
        for vertex in 0..self.seen.len() {
            let seen = self.seen[vertex].load(Ordering::Relaxed);
            let new = self.next[vertex].swap(0, Ordering::Relaxed) & !seen;
            let waiting = self.front[vertex].load(Ordering::Relaxed) & !active;
            let front = new | waiting;
            self.front[vertex].store(front, Ordering::Relaxed);
            if front == 0 {
                continue;
            }
            self.seen[vertex].store(seen | new, Ordering::Relaxed);
            census.living |= front;
            let list = cursor.list(vertex as u64)?;
            if list.degree > 0 {
                choice.add_front(list, front);
            }
            for search in ones(new) {
                census.vertices[search] += 1;
                census.entries[search] += list.degree;
            }
        }
        Ok(census)
    }

    /// Notes the pages that the active searches would read bottom-up.
    fn add_missing(&self, active: u64, choice: &mut Choice) -> Result<(), GraphError> {
        let mut cursor = self.index.cursor();
        for vertex in 0..self.graph.header().listed as usize {
            let heads = self.heads_of(vertex);
            let known = heads.iter().fold(self.seen[vertex].load(Ordering::Relaxed), |known, head| {
                known | self.front[*head as usize].load(Ordering::Relaxed)
            });
            if active & !known != 0 {
                let list = cursor.list(vertex as u64)?;
                if list.degree > heads.len() as u64 {
                    choice.add_missing(list, active & !known);
                }
            }
        }
        Ok(())
    }

    /// The first neighbours of a vertex, as far as they are in memory.
    #[inline]
    fn heads_of(&self, vertex: usize) -> &[u32] {
        let heads = if self.heads.is_empty() { 0 } else { self.graph.header().heads as usize };
        &self.heads[vertex * heads..(vertex + 1) * heads]
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

    /// One level of the searches that go top-down and of those that go bottom-up.
    fn pass(&self, fetcher: &mut Fetcher<'_>, ways: (u64, u64)) -> Result<(), GraphError> {
        let (down, up) = ways;
        let notes = Notes::to(self.recorder);
        let mut cursor = self.index.cursor();
        let mut rest = Vec::new();
        let mut visit = |vertex: VertexId, _: u64, bytes: &[u8]| {
            let front = self.front[vertex as usize].load(Ordering::Relaxed) & (down | up);
            if front & down != 0 {
                self.push(vertex as u32, front, bytes, &notes);
            }
            self.look_among(vertex as usize, up, ids(bytes), &notes);
        };
        while let Some(vertices) = self.next_chunk()? {
            for vertex in vertices {
                if self.front[vertex].load(Ordering::Relaxed) & down != 0 {
                    let list = cursor.list(vertex as u64)?;
                    fetcher.add(vertex as u64, list.offset, list.degree * 4, &mut visit)?;
                    continue;
                }
                let heads = self.heads_of(vertex);
                if self.look_among(vertex, up, heads.iter().copied(), &notes) == 0 {
                    continue;
                }
                let List { offset, degree } = cursor.list(vertex as u64)?;
                if degree > heads.len() as u64 {
                    let now = (degree * 4).min(PAGE_BYTES);
                    fetcher.add(vertex as u64, offset, now, &mut visit)?;
                    if degree * 4 > now {
                        let (offset, length) = (offset + now, degree * 4 - now);
                        rest.push(Rest { vertex: vertex as u32, offset, length });
                    }
                }
            }
            if rest.len() >= MOST_REST {
                fetcher.finish(&mut visit)?;
                self.look_in_lists(fetcher, up, &mut rest, &notes)?;
            }
        }
        fetcher.finish(&mut visit)?;
        self.look_in_lists(fetcher, up, &mut rest, &notes)?;
        notes.finish()
    }

    /// Gives the searches of a front the neighbours in a part of the list of `vertex`.
    #[inline]
    fn push(&self, vertex: u32, front: u64, bytes: &[u8], notes: &Notes<'_>) {
        for id in ids(bytes) {
            let new = front & !self.seen[id as usize].load(Ordering::Relaxed);
            if new & !self.next[id as usize].load(Ordering::Relaxed) != 0 {
                let before = self.next[id as usize].fetch_or(new, Ordering::Relaxed);
                notes.add(id, vertex, new & !before);
            }
        }
    }

    /// Reads lists a page at a time as long as searches are missing.
    fn look_in_lists(
        &self,
        fetcher: &mut Fetcher<'_>,
        searches: u64,
        rest: &mut Vec<Rest>,
        notes: &Notes<'_>,
    ) -> Result<(), GraphError> {
        let mut visit = |vertex: VertexId, _: u64, bytes: &[u8]| {
            self.look_among(vertex as usize, searches, ids(bytes), notes);
        };
        loop {
            rest.retain(|part| part.length > 0 && self.missing(part.vertex as usize, searches) != 0);
            if rest.is_empty() {
                return Ok(());
            }
            for part in rest.iter_mut() {
                let now = part.length.min(PAGE_BYTES);
                fetcher.add(part.vertex.into(), part.offset, now, &mut visit)?;
                (part.offset, part.length) = (part.offset + now, part.length - now);
            }
            fetcher.finish(&mut visit)?;
        }
    }

    /// Searches that have not seen a vertex, nor found it on this level.
    #[inline]
    fn missing(&self, vertex: usize, searches: u64) -> u64 {
        let known = self.seen[vertex].load(Ordering::Relaxed) | self.next[vertex].load(Ordering::Relaxed);
        searches & !known
    }

    /// Looks for missing searches in the fronts of neighbours; what is missing still.
    #[inline]
    fn look_among(
        &self,
        vertex: usize,
        searches: u64,
        neighbours: impl Iterator<Item = u32>,
        notes: &Notes<'_>,
    ) -> u64 {
        let mut left = self.missing(vertex, searches);
        for id in neighbours {
            if left == 0 {
                break;
            }
            let found = left & self.front[id as usize].load(Ordering::Relaxed);
            if found != 0 {
                left &= !found;
                let before = self.next[vertex].fetch_or(found, Ordering::Relaxed);
                notes.add(vertex as u32, id, found & !before);
            }
        }
        left
    }
}

/// The searches that take part in the next round: those that are still near their sources, if there are any, else all.
fn ready(choice: &Choice, living: u64, explored: &[u64; MOST_SOURCES], entries: u64) -> u64 {
    let pages = choice.down_alone();
    let is_starting = |search: &usize| {
        explored[*search] < entries / START_SHARE && pages[*search] <= choice.pages() / SMALL_FRONT_SHARE
    };
    let starting = ones(living).filter(is_starting).map(|search| 1_u64 << search).sum::<u64>();
    if starting != 0 { starting } else { living }
}

/// The numbers of the bits that are set.
#[inline]
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = (word != 0).then_some(word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        first
    })
}

/// Neighbours in the bytes of a list.
#[inline]
fn ids(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]))
}
