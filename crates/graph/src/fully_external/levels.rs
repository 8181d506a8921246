//! Levels of an undirected graph around a set of vertices, by sorting (Munagala and Ranade, SODA 1999).
//!
//! ```text
//! L(0) = the given vertices, each with a label
//! A    = the neighbours of L(t-1), each with a label made from the vertex it was found from      one ascending pass
//! A'   = A sorted, the first of each vertex only                                                  external sort
//! L(t) = A' without L(t-1) and L(t-2)                                                             one three-way merge
//! ```
//!
//! Two levels suffice because an edge of an undirected graph spans at most one level: a neighbour of L(t-1) that was seen
//! before lies in L(t-2), L(t-1) or L(t). A file may call a graph undirected that is not: then a vertex is found again and again,
//! and the search ends as soon as more lists were read than there are.
//!
//! Nothing is kept for each vertex in memory, not even a bit. Duplicates are dropped as each chunk of A is sorted, before it
//! is written. Of several labels a vertex gets the lowest, so the outcome is the same every time.

use std::time::Instant;

use external::{
    ExternalError, Record, Sorter, SorterOptions, Source, Space, Stream, StreamReader, StreamWriter,
};

use super::ids::Ids;
use super::lists::ListReader;
use super::{ExternalSearchFigures, ExternalSearchOptions};
use crate::format::{Fwg, IndexCursor, List, PAGE_BYTES, SectionKind};
use crate::{GraphError, IdWidth, VertexId};

/// Blocks that streams take beside the sorter: the frontier, both levels that are subtracted, the next level, and what the
/// caller writes.
const STREAM_BLOCKS: u64 = 2 + 2 + 2 + 3 + 3;

/// Makes one level after the other.
pub(super) struct Levels<'a, I: Ids> {
    graph: &'a Fwg,
    space: &'a Space,
    sorter: SorterOptions<I::Pair>,
    lists: ListReader<'a, u64>,
    cursor: IndexCursor<'a>,
    before: Stream<I::Pair>,
    last: Stream<I::Pair>,
    /// The label of the neighbours of a vertex and its label.
    label: fn(VertexId, u64) -> u64,
    pub figures: ExternalSearchFigures,
}

impl<'a, I: Ids> Levels<'a, I> {
    /// Begins with `start`, pairs of vertices and labels, ascending. `algorithm` is named where memory is too little.
    pub fn new(
        graph: &'a Fwg,
        options: &'a ExternalSearchOptions,
        algorithm: &'static str,
        start: Stream<I::Pair>,
        label: fn(VertexId, u64) -> u64,
    ) -> Result<Self, GraphError> {
        let block = options.space.block_bytes() as u64;
        let others = STREAM_BLOCKS * block + ListReader::<u64>::memory_bytes(options.memory);
        let memory = options.memory.saturating_sub(others);
        let sorter = SorterOptions { threads: options.threads, ..SorterOptions::new(memory) };
        let sorter = sorter.unique(|a, b| I::first(a) == I::first(b));
        // Whether the rest suffices is known now, not after the first level.
        Sorter::new(&options.space, &sorter)
            .map_err(|error| too_little(error, algorithm, others, options))?;
        Ok(Self {
            graph,
            space: &options.space,
            sorter,
            lists: ListReader::open(graph, options.memory)?,
            cursor: graph.windowed_cursor()?,
            before: Stream::empty(&options.space),
            last: start,
            label,
            figures: ExternalSearchFigures { levels: 1, ..ExternalSearchFigures::default() },
        })
    }

    /// Makes the next level, and shows it to `see`, in ascending order; false where it is empty.
    pub fn advance(
        &mut self,
        mut see: impl FnMut(&I::Pair) -> Result<(), GraphError>,
    ) -> Result<bool, GraphError> {
        let mut candidates = Sorter::new(self.space, &self.sorter)?;
        let start = Instant::now();
        self.expand(&mut candidates)?;
        self.figures.expanding += start.elapsed();
        let start = Instant::now();
        let next = self.subtract(candidates, &mut see)?;
        self.figures.merging += start.elapsed();
        self.figures.bytes_in_theory += 4 * spilled_bytes(self.space, &next);
        self.before = std::mem::replace(&mut self.last, next);
        self.figures.levels += u64::from(!self.last.is_empty());
        Ok(!self.last.is_empty())
    }

    /// Gives memory and space back.
    pub fn finish(mut self) -> ExternalSearchFigures {
        self.figures.graph_bytes_read += self.lists.bytes_read;
        self.figures
    }

    /// Pushes the neighbours of the last level.
    fn expand(&mut self, candidates: &mut Sorter<I::Pair>) -> Result<(), GraphError> {
        let mut pairs = Vec::new();
        let mut push = |label, list: &[u8]| {
            pairs.clear();
            I::pairs(list, label, &mut pairs);
            candidates.push_slice(&pairs).map_err(GraphError::from)
        };
        let mut frontier = self.last.reader(2);
        let mut pages = PageCount::default();
        while let Some(pair) = frontier.next_record()? {
            let vertex = I::first(&pair);
            let list = self.cursor.list(vertex)?;
            self.figures.entries += list.degree;
            self.figures.bytes_in_theory += pages.bytes(list, I::WIDTH);
            self.lists.add((self.label)(vertex, I::second(&pair)), list, &mut push)?;
        }
        self.lists.finish(&mut push)?;
        if self.figures.entries > self.graph.header().entries { Err(one_way(self.graph)) } else { Ok(()) }
    }

    /// Makes the next level of the candidates.
    fn subtract(
        &mut self,
        candidates: Sorter<I::Pair>,
        see: &mut impl FnMut(&I::Pair) -> Result<(), GraphError>,
    ) -> Result<Stream<I::Pair>, GraphError> {
        let pushed = candidates.len() * size_of::<I::Pair>() as u64;
        let mut sorted = candidates.finish()?;
        if !sorted.is_in_memory() {
            self.figures.bytes_in_theory += 2 * pushed;
        }
        let mut next = StreamWriter::new(self.space, 3);
        let mut last = Subtracted::new(&self.last, I::first);
        let mut before = Subtracted::new(&self.before, I::first);
        while let Some(pair) = sorted.next_record()? {
            let vertex = I::first(&pair);
            if !last.holds(vertex)? && !before.holds(vertex)? {
                next.push(pair)?;
                see(&pair)?;
            }
        }
        Ok(next.finish()?)
    }
}

/// Counts pages of ascending lists, each page once.
#[derive(Debug, Default)]
pub(super) struct PageCount {
    end: u64,
}

impl PageCount {
    /// Bytes of the pages of `list` that no list before it had.
    pub fn bytes(&mut self, list: List, width: IdWidth) -> u64 {
        let end = list.offset + list.degree * width.bytes() as u64;
        if end == list.offset {
            return 0;
        }
        let first = (list.offset - list.offset % PAGE_BYTES).max(self.end);
        self.end = end.next_multiple_of(PAGE_BYTES).max(self.end);
        self.end - first
    }
}

/// What of a stream is not in memory, bytes.
pub(super) fn spilled_bytes<T: Record>(space: &Space, stream: &Stream<T>) -> u64 {
    let bytes = stream.len() * size_of::<T>() as u64;
    if bytes > space.block_bytes() as u64 { bytes } else { 0 }
}

/// A stream of one record.
pub(super) fn single<T: Record>(space: &Space, record: T) -> Result<Stream<T>, GraphError> {
    let mut writer = StreamWriter::new(space, 2);
    writer.push(record)?;
    Ok(writer.finish()?)
}

/// `error` of a sorter as that of the search, which needs `others` beside it.
pub(super) fn too_little(
    error: ExternalError,
    algorithm: &'static str,
    others: u64,
    options: &ExternalSearchOptions,
) -> GraphError {
    match error {
        ExternalError::TooLittleMemory { needed, .. } => GraphError::Memory {
            purpose: format!("algorithm {algorithm}"),
            needed: needed + others,
            budget: options.memory,
        },
        error => error.into(),
    }
}

/// Fails unless every edge of the graph is one in both directions.
pub(super) fn check_undirected(graph: &Fwg, algorithm: &'static str) -> Result<(), GraphError> {
    if !graph.header().directed {
        return Ok(());
    }
    let path = graph.path().display();
    let message = format!("{path}: has directed edges, and algorithm {algorithm} needs an undirected graph");
    Err(GraphError::Invalid { message })
}

/// That a vertex of an undirected graph was found twice, which no edge in both lists leads to.
pub(super) fn one_way(graph: &Fwg) -> GraphError {
    graph.contradicts(SectionKind::Adjacency, "an undirected edge is in the list of one end only")
}

/// A level whose vertices are not to be taken, asked in ascending order.
pub(super) struct Subtracted<'a, T: Record> {
    level: StreamReader<'a, T>,
    vertex_of: fn(&T) -> VertexId,
    head: Option<VertexId>,
    has_begun: bool,
}

impl<'a, T: Record> Subtracted<'a, T> {
    pub fn new(level: &'a Stream<T>, vertex_of: fn(&T) -> VertexId) -> Self {
        Self { level: level.reader(2), vertex_of, head: None, has_begun: false }
    }

    #[inline]
    pub fn holds(&mut self, vertex: VertexId) -> Result<bool, GraphError> {
        while !self.has_begun || self.head.is_some_and(|head| head < vertex) {
            self.has_begun = true;
            self.head = self.level.next_record()?.map(|record| (self.vertex_of)(&record));
        }
        Ok(self.head == Some(vertex))
    }
}
