//! The first sort: arcs by source and target.

use external::{Record, Sorted, Sorter, SorterOptions, Source, Space};

use super::degrees::Counter;
use super::work::WorkDirectory;
use super::{BuildOptions, FIXED_BYTES, READ_DEPTH, order};
use crate::edges::{EdgeList, EdgeWriter, EdgesConfig};
use crate::format::Order;
use crate::{GraphError, IdWidth, Steps, VertexId};

/// A pair of vertices as a record that is sorted.
pub trait Arc: Record {
    /// The width of its vertices.
    const WIDTH: IdWidth;

    /// Of its vertices; the first is the more significant.
    fn of(first: VertexId, second: VertexId) -> Self;

    /// Its vertices.
    fn ends(self) -> (VertexId, VertexId);
}

impl Arc for u64 {
    const WIDTH: IdWidth = IdWidth::Four;

    #[inline(always)]
    fn of(first: VertexId, second: VertexId) -> Self {
        debug_assert!(first.max(second) >> 32 == 0, "a vertex of 4 bytes");
        (first << 32) | second
    }

    #[inline(always)]
    fn ends(self) -> (VertexId, VertexId) {
        (self >> 32, self & 0xffff_ffff)
    }
}

impl Arc for [u64; 2] {
    const WIDTH: IdWidth = IdWidth::Eight;

    #[inline(always)]
    fn of(first: VertexId, second: VertexId) -> Self {
        [first, second]
    }

    #[inline(always)]
    fn ends(self) -> (VertexId, VertexId) {
        (self[0], self[1])
    }
}

/// What an edge becomes in the first sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arcs {
    /// One arc, in the edge's direction.
    Directed,
    /// One in each direction.
    Both,
    /// One, from the smaller vertex to the larger. The other one is made when vertices are renumbered.
    Once,
}

impl Arcs {
    /// For the edges of a list. Once is half of the work of both, but its result holds no lists yet, and degrees are counted in an
    /// array: for degree order, where that has room.
    pub fn choose(list: &EdgeList, directed: bool, options: &BuildOptions) -> Result<Self, GraphError> {
        let header = list.header();
        let most = if options.keep_duplicates { 2 * header.edges } else { header.vertices };
        let is_counted = most < 1 << 32 && 4 * header.vertices <= (options.memory - FIXED_BYTES) / 2;
        Ok(match options.order {
            _ if directed => Self::Directed,
            Some(Order::Degree) if is_counted => Self::Once,
            None if is_counted && !order::are_close(list)? => Self::Once,
            _ => Self::Both,
        })
    }
}

/// Arcs that are handed over at once.
pub(super) const BATCH: usize = 1 << 14;

/// What the first sort needs.
#[derive(Debug)]
pub struct Sort<'a> {
    /// Scratch space.
    pub space: &'a Space,
    /// Bytes of memory.
    pub budget: u64,
    /// What an edge becomes.
    pub arcs: Arcs,
    /// The options.
    pub options: &'a BuildOptions,
    /// Progress.
    pub steps: &'a Steps,
}

impl Sort<'_> {
    /// Sorts the arcs of a list into the work directory; how many there were.
    pub fn run<A: Arc>(&self, list: &EdgeList, work: &WorkDirectory, key: &str) -> Result<u64, GraphError> {
        let counts_bytes = if self.arcs == Arcs::Once { 4 * list.header().vertices } else { 0 };
        let mut options = SorterOptions::<A>::new(self.budget - counts_bytes);
        options.threads = self.options.threads;
        if !self.options.keep_duplicates {
            options = options.unique(|one, other| one == other);
        }
        let mut sorter = Sorter::new(self.space, &options)?;
        self.push_all(list, &mut sorter)?;
        let arcs = sorter.len();
        let mut sorted = sorter.finish()?;
        self.write(&mut sorted, list, arcs, work, key)?;
        Ok(arcs)
    }

    fn push_all<A: Arc>(&self, list: &EdgeList, sorter: &mut Sorter<A>) -> Result<(), GraphError> {
        let blocks = list.header().blocks();
        self.steps.begin(1, blocks);
        let mut scan = list.scan(0..blocks, READ_DEPTH)?;
        let vertices = list.header().vertices;
        let mut batch: Vec<A> = Vec::with_capacity(2 * BATCH);
        let mut largest = 0;
        while let Some((_, pairs)) = scan.next_block()? {
            for (source, target) in pairs.iter() {
                largest = largest.max(source).max(target);
                if source == target {
                    if self.options.keep_self_loops {
                        batch.push(A::of(source, target));
                    }
                } else if self.arcs == Arcs::Once {
                    batch.push(A::of(source.min(target), source.max(target)));
                } else {
                    batch.push(A::of(source, target));
                    if self.arcs == Arcs::Both {
                        batch.push(A::of(target, source));
                    }
                }
                if batch.len() >= BATCH {
                    sorter.push_slice(&batch)?;
                    batch.clear();
                }
            }
            if largest >= vertices && !pairs.is_empty() {
                let path = list.path().to_owned();
                return Err(GraphError::VertexTooLarge { path, vertex: largest, limit: vertices });
            }
            self.steps.add(1, "reading edges")?;
        }
        Ok(sorter.push_slice(&batch)?)
    }

    /// Writes `degrees.el` and then `arcs.el`, whose presence says that both are complete.
    fn write<A: Arc>(
        &self,
        sorted: &mut Sorted<A>,
        list: &EdgeList,
        arcs: u64,
        work: &WorkDirectory,
        key: &str,
    ) -> Result<(), GraphError> {
        self.steps.begin(2, arcs);
        let config =
            |width, vertices| EdgesConfig { vertices, directed: true, width, origin: key.to_owned() };
        let of_degrees = if arcs < 1 << 32 { A::WIDTH } else { IdWidth::Eight };
        let mut degrees = EdgeWriter::create(&work.degrees_path(), config(of_degrees, None))?;
        let vertices = Some(list.header().vertices);
        let mut writer = EdgeWriter::create(&work.sorted_path(), config(A::WIDTH, vertices))?;
        let mut pairs: Vec<(VertexId, VertexId)> = Vec::with_capacity(BATCH);
        let mut counter = Counter::of(self.arcs, list.header().vertices);
        loop {
            let records = sorted.fill()?;
            let count = records.len().min(BATCH);
            if count == 0 {
                break;
            }
            pairs.clear();
            pairs.extend(records[..count].iter().map(|record| record.ends()));
            sorted.consume(count);
            writer.extend(&pairs)?;
            counter.count(&pairs, &mut degrees)?;
            self.steps.add(count as u64, "sorting edges")?;
        }
        counter.finish(&mut degrees)?;
        degrees.finish()?;
        writer.finish()?;
        Ok(())
    }
}
