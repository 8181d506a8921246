//! Breadth-first search with clustered lists (Mehlhorn and Meyer, ESA 2002), for undirected graphs of many levels.
//!
//! 1. *Masters* are drawn at random, a share μ = min(1, √((n + m) / (B·n))) of the vertices, B being the vertices of a block; the
//!    source is one. Every other vertex joins the cluster of a nearest master ([`Levels`] around all of them at once).
//! 2. Edges are sorted by the cluster of their first end, each with the cluster of its second end, so a cluster's lists lie
//!    together, and where they lie is known from any edge that leads there.
//! 3. The search keeps a *pool* of edges, sorted by first end: the clusters that were read and not yet used.
//!
//! ```text
//! C    = the clusters of those of L(t-1) that have no edge in the pool
//! pool = pool merged with the edges of C                                          one read for a cluster, once
//! A    = the second ends of the pool's edges that begin in L(t-1), which leave the pool
//! L(t) = A, sorted, each vertex once, without L(t-1) and L(t-2)
//! ```
//!
//! A vertex of a cluster is reached within 1/μ levels or so of the first one, so an edge is scanned about that often, and
//! there are only μ·n random reads. The clusters are drawn from a fixed seed: each search is like the one before.

use std::time::Instant;

use external::{ExternalVec, Record, Sorted, Sorter, SorterOptions, Source, Space, Stream, StreamWriter};

use super::ids::{Ids, Narrow, Wide};
use super::levels::{
    Levels, PageCount, Subtracted, check_undirected, one_way, single, spilled_bytes, too_little,
};
use super::lists::ListReader;
use super::tree::{self, SearchTree, TreeIds};
use super::{ExternalSearchFigures, ExternalSearchOptions};
use crate::format::Fwg;
use crate::{GraphError, IdWidth, VertexId};

/// Seed of the draw of masters.
const SEED: u64 = 2002;
/// Blocks in memory of the clustered edges, and of the list of where clusters begin.
const CLUSTER_BUFFERS: u32 = 16;
const DIRECTORY_BUFFERS: u32 = 2;
/// Blocks of the streams of the last phase: two readers of the level, two of subtracted levels, the pool read and
/// written, the next level, the tree.
const STREAM_BLOCKS: u64 = 2 * 2 + 2 * 2 + 2 + 3 + 3 + 3;

/// Searches from `source`, a vertex in the input's numbers.
///
/// # Errors
/// [`GraphError::Invalid`] for a directed graph, [`GraphError::NoVertex`], [`GraphError::Memory`] where the budget does not
/// hold the buffers; failures of the graph and of temporary space.
pub fn mehlhorn_meyer(
    graph: &Fwg,
    source: VertexId,
    options: &ExternalSearchOptions,
) -> Result<SearchTree, GraphError> {
    check_undirected(graph, "mm")?;
    match graph.header().width {
        IdWidth::Four => search::<Narrow>(graph, source, options),
        IdWidth::Eight => search::<Wide>(graph, source, options),
    }
}

fn search<I: TreeIds>(
    graph: &Fwg,
    source: VertexId,
    options: &ExternalSearchOptions,
) -> Result<SearchTree, GraphError> {
    let before = options.space.usage();
    let source = graph.stored_number(source)?;
    let mut figures = ExternalSearchFigures::default();
    let members = cluster::<I>(graph, source, options, &mut figures)?;
    let clusters = Clusters::<I>::build(graph, source, &members, options, &mut figures)?;
    drop(members);
    let tree = Pool { graph, options, clusters, fetched: 0, figures: &mut figures }.search(source)?;
    figures.reached = tree.len();
    tree::finish::<I>(graph, tree, options, figures, before)
}

/// A budget for one of `parts` sorters that exist at a time, once `blocks` blocks and `others` bytes are taken.
fn sorter_options<T>(
    options: &ExternalSearchOptions,
    parts: u64,
    blocks: u64,
    others: u64,
) -> SorterOptions<T> {
    let taken = blocks * options.space.block_bytes() as u64 + others;
    let memory = options.memory.saturating_sub(taken) / parts;
    SorterOptions { threads: options.threads, ..SorterOptions::new(memory) }
}

/// Draws masters and grows clusters around them: each vertex of one with its cluster, by vertex. Clusters are numbered by
/// their masters.
fn cluster<I: Ids>(
    graph: &Fwg,
    source: VertexId,
    options: &ExternalSearchOptions,
    figures: &mut ExternalSearchFigures,
) -> Result<Stream<I::Pair>, GraphError> {
    let space = &options.space;
    let masters = draw::<I>(graph, source, space)?;
    let mut unsorted = StreamWriter::new(space, 3);
    unsorted.push_all(&mut masters.reader(2))?;
    let mut levels = Levels::<I>::new(graph, options, "mm", masters, |_, cluster| cluster)?;
    while levels.advance(|pair| Ok(unsorted.push(*pair)?))? {}
    let of_clustering = levels.finish();
    // Clusters grow in all components; entries are counted where the search uses them.
    *figures = ExternalSearchFigures { levels: 0, entries: 0, ..of_clustering };

    let unsorted = unsorted.finish()?;
    figures.bytes_in_theory += 2 * spilled_bytes(space, &unsorted);
    let mut sorter = new_sorter(options, &sorter_options::<I::Pair>(options, 1, 6, 0))?;
    let mut reader = unsorted.into_reader(3);
    while let Some(pair) = reader.next_record()? {
        sorter.push(pair)?;
    }
    drop(reader);
    let mut sorted = counted(sorter, figures)?;
    let mut members = StreamWriter::new(space, 3);
    members.push_all(&mut sorted)?;
    let members = members.finish()?;
    figures.bytes_in_theory += 3 * spilled_bytes(space, &members);
    Ok(members)
}

/// The masters, each with the number of its cluster, ascending.
fn draw<I: Ids>(graph: &Fwg, source: VertexId, space: &Space) -> Result<Stream<I::Pair>, GraphError> {
    let header = graph.header();
    let (vertices, entries) = (header.vertices as f64, header.entries as f64);
    let block = (space.block_bytes() / header.width.bytes()) as f64;
    let share = ((vertices + entries) / (block * vertices)).sqrt().min(1.0);
    let below = (share * u64::MAX as f64) as u64;
    let mut masters = StreamWriter::new(space, 3);
    for vertex in 0..header.vertices {
        if vertex == source || vertex < header.listed && mixed(vertex) <= below {
            masters.push(I::pair(vertex, masters.len()))?;
        }
    }
    Ok(masters.finish()?)
}

/// SplitMix64's function.
fn mixed(vertex: VertexId) -> u64 {
    let mut z = (vertex + SEED).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn new_sorter<T: Record>(
    options: &ExternalSearchOptions,
    sorter: &SorterOptions<T>,
) -> Result<Sorter<T>, GraphError> {
    let others = options.memory.saturating_sub(sorter.memory);
    Sorter::new(&options.space, sorter).map_err(|error| too_little(error, "mm", others, options))
}

/// Sorts, and counts what that comes to in theory.
fn counted<T: Record>(
    sorter: Sorter<T>,
    figures: &mut ExternalSearchFigures,
) -> Result<Sorted<T>, GraphError> {
    let bytes = sorter.len() * size_of::<T>() as u64;
    let sorted = sorter.finish()?;
    if !sorted.is_in_memory() {
        figures.bytes_in_theory += 2 * bytes;
    }
    Ok(sorted)
}

/// Edges by clusters.
struct Clusters<I: Ids> {
    /// Cluster and number of the first end, number and cluster of the second end; sorted.
    edges: ExternalVec<I::Quad>,
    /// Where each cluster's edges begin, and where the last one's end.
    starts: ExternalVec<u64>,
    of_source: u64,
}

impl<I: Ids> Clusters<I> {
    /// Sorts the edges of all `members`, pairs of vertices and clusters.
    fn build(
        graph: &Fwg,
        source: VertexId,
        members: &Stream<I::Pair>,
        options: &ExternalSearchOptions,
        figures: &mut ExternalSearchFigures,
    ) -> Result<Self, GraphError> {
        let start = Instant::now();
        let space = &options.space;
        let (mut by_second, of_source) = edges_by_second_end::<I>(graph, source, members, options, figures)?;
        let mut by_cluster = new_sorter(options, &sorter_options(options, 2, 4, 0))?;
        let mut clusters = members.reader(2);
        let mut at = clusters.next_record()?;
        while let Some(edge) = by_second.next_record()? {
            let [second, first, cluster] = I::three(&edge);
            while at.is_some_and(|pair| I::first(&pair) < second) {
                at = clusters.next_record()?;
            }
            // Both ends of an edge of an undirected graph are in the same component, so both are members.
            let of_second = at.map_or(0, |pair| I::second(&pair));
            by_cluster.push(I::quad([cluster, first, second, of_second]))?;
        }
        drop(by_second);
        let mut sorted = counted(by_cluster, figures)?;
        let mut edges = StreamWriter::new(space, 3);
        let mut starts = StreamWriter::<u64>::new(space, 2);
        while let Some(edge) = sorted.next_record()? {
            while starts.len() <= I::four(&edge)[0] {
                starts.push(edges.len())?;
            }
            edges.push(edge)?;
        }
        starts.push(edges.len())?;
        drop(sorted);
        let edges = edges.finish()?;
        figures.bytes_in_theory += 2 * spilled_bytes(space, &edges);
        figures.expanding += start.elapsed();
        Ok(Self {
            edges: ExternalVec::from_stream(edges, CLUSTER_BUFFERS)?,
            starts: ExternalVec::from_stream(starts.finish()?, DIRECTORY_BUFFERS)?,
            of_source,
        })
    }

    /// Shows the edges of a cluster.
    fn read(
        &mut self,
        cluster: u64,
        mut see: impl FnMut(&I::Quad) -> Result<(), GraphError>,
    ) -> Result<(), GraphError> {
        // A cluster without edges behind all others has no start.
        if cluster + 1 >= self.starts.len() {
            return Ok(());
        }
        let (mut at, end) = (self.starts.get(cluster)?, self.starts.get(cluster + 1)?);
        while at < end {
            let edges = self.edges.records_from(at)?;
            let count = edges.len().min((end - at) as usize);
            edges[..count].iter().try_for_each(&mut see)?;
            at += count as u64;
        }
        Ok(())
    }
}

/// The edges of all members, each as its second end, its first end and the first end's cluster; and the source's cluster.
fn edges_by_second_end<I: Ids>(
    graph: &Fwg,
    source: VertexId,
    members: &Stream<I::Pair>,
    options: &ExternalSearchOptions,
    figures: &mut ExternalSearchFigures,
) -> Result<(Sorted<I::Triple>, u64), GraphError> {
    let others = ListReader::<[u64; 2]>::memory_bytes(options.memory);
    let mut sorter = new_sorter(options, &sorter_options(options, 2, 2, others))?;
    let mut push = |[first, cluster]: [u64; 2], list: &[u8]| {
        for second in list.chunks_exact(I::WIDTH.bytes()) {
            sorter.push(I::triple([I::WIDTH.get(second), first, cluster]))?;
        }
        Ok::<(), GraphError>(())
    };
    let mut lists = ListReader::open(graph, options.memory)?;
    let mut cursor = graph.windowed_cursor()?;
    let mut members = members.reader(2);
    let mut of_source = 0;
    let mut pages = PageCount::default();
    while let Some(pair) = members.next_record()? {
        let (vertex, cluster) = (I::first(&pair), I::second(&pair));
        if vertex == source {
            of_source = cluster;
        }
        let list = cursor.list(vertex)?;
        figures.bytes_in_theory += pages.bytes(list, I::WIDTH);
        lists.add([vertex, cluster], list, &mut push)?;
    }
    lists.finish(&mut push)?;
    figures.graph_bytes_read += lists.bytes_read;
    drop(lists);
    Ok((counted(sorter, figures)?, of_source))
}

/// The last phase. Its levels are triples of vertex, parent and cluster; the pool's edges are triples of first end, second
/// end and the latter's cluster.
struct Pool<'a, I: Ids> {
    graph: &'a Fwg,
    options: &'a ExternalSearchOptions,
    clusters: Clusters<I>,
    /// Edges of clusters that were read.
    fetched: u64,
    figures: &'a mut ExternalSearchFigures,
}

/// The pool without the edges of a level, and those edges.
struct SplitPool<I: Ids> {
    candidates: Sorter<I::Triple>,
    /// Edges that begin in the level: each edge of what is reached does once.
    entries: u64,
    rest: Stream<I::Triple>,
}

/// What of the memory is left for each of the three sorters that exist at a time.
fn pool_sorter<T>(options: &ExternalSearchOptions) -> SorterOptions<T> {
    let blocks = STREAM_BLOCKS + u64::from(CLUSTER_BUFFERS + DIRECTORY_BUFFERS);
    sorter_options(options, 3, blocks, 0)
}

fn vertex_of<I: Ids>(triple: &I::Triple) -> VertexId {
    I::three(triple)[0]
}

impl<I: Ids> Pool<'_, I> {
    /// The tree of the search, in the order of levels.
    fn search(mut self, source: VertexId) -> Result<Stream<I::Triple>, GraphError> {
        let space = &self.options.space;
        let start = Instant::now();
        let mut tree = StreamWriter::new(space, 3);
        tree.push(I::triple([source, source, 0]))?;
        let mut before = Stream::empty(space);
        let mut last = single(space, I::triple([source, source, self.clusters.of_source]))?;
        let mut pool = Stream::<I::Triple>::empty(space);
        while !last.is_empty() {
            self.figures.levels += 1;
            let mut fetched = self.fetch(&last, &pool)?;
            let SplitPool { candidates, entries, rest } = self.split(&last, &pool, &mut fetched)?;
            self.figures.entries += entries;
            pool = rest;
            let mut sorted = counted(candidates, self.figures)?;
            let mut next = StreamWriter::new(space, 3);
            let mut seen = [Subtracted::new(&last, vertex_of::<I>), Subtracted::new(&before, vertex_of::<I>)];
            while let Some(candidate) = sorted.next_record()? {
                let [vertex, parent, _] = I::three(&candidate);
                let [in_last, in_before] = &mut seen;
                if !in_last.holds(vertex)? && !in_before.holds(vertex)? {
                    next.push(candidate)?;
                    tree.push(I::triple([vertex, parent, self.figures.levels]))?;
                }
            }
            drop(seen);
            let next = next.finish()?;
            self.figures.bytes_in_theory += 5 * spilled_bytes(space, &next) + 3 * spilled_bytes(space, &pool);
            before = std::mem::replace(&mut last, next);
        }
        self.figures.merging += start.elapsed();
        Ok(tree.finish()?)
    }

    /// The edges of the clusters of those vertices in `level` that have no edge in `pool`.
    fn fetch(
        &mut self,
        level: &Stream<I::Triple>,
        pool: &Stream<I::Triple>,
    ) -> Result<Sorted<I::Triple>, GraphError> {
        let options = pool_sorter::<I::Id>(self.options).unique(|a, b| a == b);
        let mut wanted = new_sorter(self.options, &options)?;
        let mut present = Subtracted::new(pool, vertex_of::<I>);
        let mut reader = level.reader(2);
        while let Some(reached) = reader.next_record()? {
            let [vertex, _, cluster] = I::three(&reached);
            if !present.holds(vertex)? {
                wanted.push(I::id(cluster))?;
            }
        }
        let mut wanted = wanted.finish()?;
        let mut fetched = new_sorter(self.options, &pool_sorter(self.options))?;
        while let Some(cluster) = wanted.next_record()? {
            self.clusters.read(I::vertex(&cluster), |edge| {
                let [_, first, second, of_second] = I::four(edge);
                Ok(fetched.push(I::triple([first, second, of_second]))?)
            })?;
        }
        // A cluster is read once, unless its edges lead to what was reached long before.
        self.fetched += fetched.len();
        if self.fetched > self.clusters.edges.len() {
            return Err(one_way(self.graph));
        }
        counted(fetched, self.figures)
    }

    /// Splits the edges of `pool` and `fetched` in those that begin in `level`, turned round and with the level's vertices
    /// as parents, and the rest.
    fn split(
        &self,
        level: &Stream<I::Triple>,
        pool: &Stream<I::Triple>,
        fetched: &mut Sorted<I::Triple>,
    ) -> Result<SplitPool<I>, GraphError> {
        let options =
            pool_sorter::<I::Triple>(self.options).unique(|a, b| vertex_of::<I>(a) == vertex_of::<I>(b));
        let mut candidates = new_sorter(self.options, &options)?;
        let (mut entries, mut rest) = (0, StreamWriter::new(&self.options.space, 3));
        let mut starts = Subtracted::new(level, vertex_of::<I>);
        let mut pool = pool.reader(2);
        let (mut pooled, mut new) = (pool.next_record()?, fetched.next_record()?);
        loop {
            let edge = match (pooled, new) {
                (None, None) => break,
                (Some(edge), other) if other.is_none_or(|other| edge <= other) => {
                    pooled = pool.next_record()?;
                    edge
                }
                (_, Some(edge)) => {
                    new = fetched.next_record()?;
                    edge
                }
                (Some(_), None) => continue,
            };
            let [first, second, cluster] = I::three(&edge);
            if starts.holds(first)? {
                entries += 1;
                candidates.push(I::triple([second, first, cluster]))?;
            } else {
                rest.push(edge)?;
            }
        }
        Ok(SplitPool { candidates, entries, rest: rest.finish()? })
    }
}
