//! The first sort: arcs by source and target, and the degree of each source.

use external::{Record, Sorted, Sorter, SorterOptions, Source, Space};

use super::work::WorkDirectory;
use super::{BuildOptions, READ_DEPTH};
use crate::edges::{EdgeList, EdgeWriter, EdgesConfig};
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

/// Arcs that are handed over at once.
const BATCH: usize = 1 << 14;

/// What the first sort needs.
#[derive(Debug)]
pub struct Sort<'a> {
    /// Scratch space.
    pub space: &'a Space,
    /// Bytes of memory.
    pub budget: u64,
    /// One arc an edge instead of two.
    pub directed: bool,
    /// The options.
    pub options: &'a BuildOptions,
    /// Progress.
    pub steps: &'a Steps,
}

impl Sort<'_> {
    /// Sorts the arcs of a list into the work directory; how many there were.
    pub fn run<A: Arc>(&self, list: &EdgeList, work: &WorkDirectory, key: &str) -> Result<u64, GraphError> {
        let mut options = SorterOptions::<A>::new(self.budget);
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
                } else {
                    batch.push(A::of(source, target));
                    if !self.directed {
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
        let mut counted: Vec<(VertexId, u64)> = Vec::with_capacity(BATCH);
        let mut current: Option<(VertexId, u64)> = None;
        loop {
            let records = sorted.fill()?;
            let count = records.len().min(BATCH);
            if count == 0 {
                break;
            }
            pairs.clear();
            for record in &records[..count] {
                let (source, target) = record.ends();
                pairs.push((source, target));
                match &mut current {
                    Some((vertex, degree)) if *vertex == source => *degree += 1,
                    other => counted.extend(other.replace((source, 1))),
                }
            }
            sorted.consume(count);
            writer.extend(&pairs)?;
            degrees.extend(&counted)?;
            counted.clear();
            self.steps.add(count as u64, "sorting edges")?;
        }
        counted.extend(current);
        degrees.extend(&counted)?;
        degrees.finish()?;
        writer.finish()?;
        Ok(())
    }
}
