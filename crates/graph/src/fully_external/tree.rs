//! The result of a search: a tree edge for each vertex reached, in the input's numbers, ascending.
//!
//! Where the stored graph is renumbered, tree edges are sorted by parent and joined with a pass over the old numbers, then
//! the same by vertex; a last sort orders them by the input's numbers. Each sort flows into the next one without being
//! written in between.

use std::path::PathBuf;
use std::time::Instant;

use external::{Record, Sorted, Sorter, SorterOptions, Source, Space, Stream, Usage};

use super::ids::{Ids, Narrow, Wide};
use super::levels::spilled_bytes;
use super::{ExternalSearchFigures, ExternalSearchOptions};
use crate::format::{Fwg, SectionKind};
use crate::{GraphError, VertexId};

/// A vertex that was reached, in the input's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// The vertex.
    pub vertex: VertexId,
    /// The vertex it was found from; of the source, itself.
    pub parent: VertexId,
    /// Edges between it and the source.
    pub level: u64,
}

/// The tree of a search outside memory, read once.
#[derive(Debug)]
pub struct SearchTree {
    edges: Edges,
    order: Ascending,
    figures: ExternalSearchFigures,
    space: Space,
    before: Usage,
}

/// Tree edges, by vertex.
#[derive(Debug)]
pub(super) enum Edges {
    Narrow(Sorted<<Narrow as Ids>::Triple>),
    Wide(Sorted<<Wide as Ids>::Triple>),
}

impl SearchTree {
    /// What was done until now. The last merge goes on while the tree is read, so bytes read are complete at its end.
    #[must_use]
    pub fn figures(&self) -> ExternalSearchFigures {
        let usage = self.space.usage();
        ExternalSearchFigures {
            space_bytes_read: usage.bytes_read - self.before.bytes_read,
            space_bytes_written: usage.bytes_written - self.before.bytes_written,
            waited: usage.waited.since(self.before.waited),
            ..self.figures.clone()
        }
    }

    /// The next vertex that was reached, in ascending order; none at the end.
    ///
    /// # Errors
    /// Of temporary space; [`GraphError::Corrupt`] if two vertices of the graph have one number in the input.
    pub fn next_reached(&mut self) -> Result<Option<Reached>, GraphError> {
        let parts = match &mut self.edges {
            Edges::Narrow(edges) => edges.next_record()?.map(|edge| Narrow::three(&edge)),
            Edges::Wide(edges) => edges.next_record()?.map(|edge| Wide::three(&edge)),
        };
        let Some([vertex, parent, level]) = parts else { return Ok(None) };
        self.order.check(0, vertex)?;
        Ok(Some(Reached { vertex, parent, level }))
    }
}

/// Sees to it that each vertex comes once, so that who waits for it does not miss all others.
#[derive(Debug)]
pub(crate) struct Ascending {
    graph: PathBuf,
    offset: u64,
    last: Option<(u32, VertexId)>,
}

impl Ascending {
    pub fn of(graph: &Fwg) -> Self {
        let offset = graph.header().section(SectionKind::NewToOld).offset;
        Self { graph: graph.path().to_owned(), offset, last: None }
    }

    /// A vertex of a search comes, by searches and by vertices.
    #[inline]
    pub fn check(&mut self, search: u32, vertex: VertexId) -> Result<(), GraphError> {
        if self.last.replace((search, vertex)) < Some((search, vertex)) {
            return Ok(());
        }
        let (path, what) = (self.graph.clone(), SectionKind::NewToOld.word().to_owned());
        let detail = format!("vertex {vertex} is there twice");
        Err(GraphError::Corrupt { path, what, offset: self.offset, detail })
    }
}

/// Kinds of numbers that a [`SearchTree`] is made of.
pub(super) trait TreeIds: Ids {
    fn edges(sorted: Sorted<Self::Triple>) -> Edges;
}

impl TreeIds for Narrow {
    fn edges(sorted: Sorted<Self::Triple>) -> Edges {
        Edges::Narrow(sorted)
    }
}

impl TreeIds for Wide {
    fn edges(sorted: Sorted<Self::Triple>) -> Edges {
        Edges::Wide(sorted)
    }
}

/// Sorts tree edges in stored numbers, and counts what was done since `before`.
pub(super) fn finish<I: TreeIds>(
    graph: &Fwg,
    tree: Stream<I::Triple>,
    options: &ExternalSearchOptions,
    mut figures: ExternalSearchFigures,
    before: Usage,
) -> Result<SearchTree, GraphError> {
    let start = Instant::now();
    figures.bytes_in_theory += 2 * spilled_bytes(&options.space, &tree);
    let mut work = Finishing { options, figures };
    let mut edges = tree.into_reader(3);
    let sorted = if graph.header().is_renumbered() {
        let mut numbers = Numbers::new(graph);
        let mut by_parent = work.sort(&mut edges, |edge| {
            let [vertex, parent, level] = I::three(&edge);
            Ok(I::triple([parent, vertex, level]))
        })?;
        let mut by_vertex = work.sort(&mut by_parent, |edge| {
            let [parent, vertex, level] = I::three(&edge);
            Ok(I::triple([vertex, numbers.old(parent)?, level]))
        })?;
        drop(by_parent);
        numbers.rewind();
        let sorted = work.sort(&mut by_vertex, |edge| {
            let [vertex, parent, level] = I::three(&edge);
            Ok(I::triple([numbers.old(vertex)?, parent, level]))
        })?;
        work.figures.graph_bytes_read += numbers.bytes_read;
        work.figures.numbers_bytes_read += numbers.bytes_read;
        work.figures.bytes_in_theory += numbers.bytes_read;
        sorted
    } else {
        work.sort(&mut edges, Ok)?
    };
    let mut figures = work.figures;
    figures.finishing = start.elapsed();
    let order = Ascending::of(graph);
    Ok(SearchTree { edges: I::edges(sorted), order, figures, space: options.space.clone(), before })
}

struct Finishing<'a> {
    options: &'a ExternalSearchOptions,
    figures: ExternalSearchFigures,
}

impl Finishing<'_> {
    /// Sorts what becomes of the records of `source`. Half of the budget: the sort before it is being merged meanwhile.
    fn sort<T: Record>(
        &mut self,
        source: &mut impl Source<T>,
        mut change: impl FnMut(T) -> Result<T, GraphError>,
    ) -> Result<Sorted<T>, GraphError> {
        let memory = (self.options.memory - 4 * self.options.space.block_bytes() as u64) / 2;
        let options = SorterOptions { threads: self.options.threads, ..SorterOptions::new(memory) };
        let mut sorter = Sorter::new(&self.options.space, &options)?;
        while let Some(record) = source.next_record()? {
            sorter.push(change(record)?)?;
        }
        let bytes = sorter.len() * size_of::<T>() as u64;
        let sorted = sorter.finish()?;
        if !sorted.is_in_memory() {
            self.figures.bytes_in_theory += 2 * bytes;
        }
        Ok(sorted)
    }
}

/// Bytes of old numbers in memory.
const WINDOW_BYTES: u64 = 256 << 10;

/// The input's numbers of stored vertices, asked in ascending order.
struct Numbers<'a> {
    graph: &'a Fwg,
    window: Vec<u8>,
    /// Where the window begins in the section, bytes.
    start: u64,
    bytes_read: u64,
}

impl<'a> Numbers<'a> {
    fn new(graph: &'a Fwg) -> Self {
        Self { graph, window: Vec::new(), start: 0, bytes_read: 0 }
    }

    fn rewind(&mut self) {
        self.window.clear();
        self.start = 0;
    }

    fn old(&mut self, stored: VertexId) -> Result<VertexId, GraphError> {
        let width = self.graph.header().width;
        let at = stored * width.bytes() as u64;
        if at >= self.start + self.window.len() as u64 {
            let section = self.graph.header().section(SectionKind::NewToOld);
            self.start = at - at % WINDOW_BYTES;
            self.window.resize((section.length - self.start).min(WINDOW_BYTES) as usize, 0);
            self.graph.read_at(&mut self.window, section.offset + self.start)?;
            self.bytes_read += self.window.len() as u64;
        }
        Ok(width.get(&self.window[(at - self.start) as usize..]))
    }
}
