//! Arcs to adjacency lists.

use external::{Sorted, Sorter, SorterOptions, Source, Space};

use super::READ_DEPTH;
use super::arcs::{Arc, Arcs, BATCH};
use super::numbers::{NumberScan, Numbers};
use crate::edges::EdgeList;
use crate::format::FwgWriter;
use crate::{GraphError, IdWidth, Steps, VertexId};

/// How the budget is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Numbers lie in an array in memory.
    pub array: bool,
    /// Bytes for each sort of arcs.
    pub(super) arcs: u64,
    /// Bytes for the sort of vertices.
    pub(super) vertices: u64,
    pub(super) threads: usize,
}

impl Plan {
    /// Divides `budget` bytes.
    pub fn new(budget: u64, vertices: u64, threads: usize) -> Self {
        let array_bytes = array_bytes(vertices);
        let array = array_bytes <= budget / 2;
        let rest = if array { budget - array_bytes } else { budget };
        let of_vertices = (rest / 4).min(64 << 20);
        let arcs = (rest - of_vertices) / if array { 1 } else { 2 };
        Self { array, arcs, vertices: of_vertices, threads }
    }

    /// Whether an array of the numbers of a list's vertices surely fits.
    pub fn fits_array(budget: u64, list: &EdgeList) -> bool {
        array_bytes(list.header().vertices) <= budget / 4
    }

    fn sorter<A: Arc>(&self, space: &Space, bytes: u64) -> Result<Sorter<A>, GraphError> {
        let mut options = SorterOptions::new(bytes);
        options.threads = self.threads;
        Ok(Sorter::new(space, &options)?)
    }
}

fn array_bytes(vertices: u64) -> u64 {
    vertices.saturating_mul(IdWidth::for_vertices(vertices).bytes() as u64)
}

/// Writes lists in the given order: those of `arcs.el`.
pub fn write_given(
    sorted: &EdgeList,
    numbers: &Numbers,
    vertices: u64,
    writer: &mut FwgWriter,
    steps: &Steps,
) -> Result<(), GraphError> {
    steps.begin(4, sorted.header().edges);
    let mut degrees = numbers.scan(vertices, steps)?;
    let mut scan = sorted.scan(0..sorted.header().blocks(), READ_DEPTH)?;
    let mut batch: Vec<VertexId> = Vec::new();
    let mut current = None;
    while let Some((_, pairs)) = scan.next_block()? {
        for (source, target) in pairs.iter() {
            if current != Some(source) {
                writer.neighbours(&batch)?;
                batch.clear();
                begin_through(source, &mut degrees, writer)?;
                current = Some(source);
            }
            batch.push(target);
        }
        writer.neighbours(&batch)?;
        batch.clear();
        steps.add(pairs.len() as u64, "writing the graph")?;
    }
    if vertices > 0 { begin_through(vertices - 1, &mut degrees, writer) } else { Ok(()) }
}

/// Begins the vertices up to `last` that were not begun.
fn begin_through(
    last: VertexId,
    degrees: &mut NumberScan<'_>,
    writer: &mut FwgWriter,
) -> Result<(), GraphError> {
    while let Some(vertex) = degrees.peek()?.filter(|vertex| vertex.old <= last) {
        writer.begin_vertex(vertex.old, vertex.degree)?;
        degrees.advance();
    }
    Ok(())
}

/// Sorted arcs that become lists in degree order.
pub struct Renumbering<'a> {
    pub space: &'a Space,
    pub plan: Plan,
    /// `arcs.el`.
    pub sorted: &'a EdgeList,
    /// What each edge became in it.
    pub arcs: Arcs,
    pub numbers: &'a Numbers,
    /// Of the graph.
    pub vertices: u64,
    pub steps: &'a Steps,
}

impl Renumbering<'_> {
    /// Renumbers the arcs and writes the lists.
    pub fn write<A: Arc>(&self, writer: &mut FwgWriter) -> Result<(), GraphError> {
        let (numbers, vertices, steps) = (self.numbers, self.vertices, self.steps);
        steps.begin(3, self.sorted.header().blocks());
        let renumbered = match (self.plan.array, IdWidth::for_vertices(vertices)) {
            (true, IdWidth::Four) => {
                let array = array(numbers, (vertices, steps), |new| new as u32)?;
                self.by_array::<A>(|old| array[old as usize].into())?
            }
            (true, IdWidth::Eight) => {
                let array = array(numbers, (vertices, steps), |new| new)?;
                self.by_array::<A>(|old| array[old as usize])?
            }
            (false, _) => self.by_sorting::<A>()?,
        };
        let mut by_number = self.plan.sorter::<A>(self.space, self.plan.vertices)?;
        let mut scan = numbers.scan(vertices, steps)?;
        while let Some(vertex) = scan.next()? {
            if vertex.degree > 0 {
                by_number.push(A::of(vertex.new, vertex.old))?;
            }
        }
        steps.begin(4, numbers.entries());
        write_lists(renumbered, by_number.finish()?, numbers, writer, steps)?;
        write_isolated(numbers, (vertices, steps), writer)?;
        write_old_to_new(numbers, (vertices, steps), writer)
    }

    /// Renumbers by an array. Sources ascend, so their numbers come from a scan.
    fn by_array<A: Arc>(&self, number: impl Fn(VertexId) -> VertexId) -> Result<Sorted<A>, GraphError> {
        let mut sorter = self.plan.sorter::<A>(self.space, self.plan.arcs)?;
        let mut sources = self.numbers.scan(self.vertices, self.steps)?;
        let mut scan = self.sorted.scan(0..self.sorted.header().blocks(), READ_DEPTH)?;
        let mut batch: Vec<A> = Vec::with_capacity(2 * BATCH);
        let mut last = None;
        while let Some((_, pairs)) = scan.next_block()? {
            let mut pairs = pairs.iter();
            loop {
                for (source, target) in pairs.by_ref().take(BATCH) {
                    let new = match last {
                        Some((old, new)) if old == source => new,
                        _ => sources.number(source)?,
                    };
                    last = Some((source, new));
                    batch.push(A::of(new, target));
                }
                if batch.is_empty() {
                    break;
                }
                // In a loop of its own, in which the CPU waits for the memory of many arcs at once.
                for arc in &mut batch {
                    let (source, target) = arc.ends();
                    *arc = A::of(source, number(target));
                }
                if self.arcs == Arcs::Once {
                    for at in 0..batch.len() {
                        let (source, target) = batch[at].ends();
                        if source != target {
                            batch.push(A::of(target, source));
                        }
                    }
                }
                sorter.push_slice(&batch)?;
                batch.clear();
            }
            self.steps.add(1, "renumbering")?;
        }
        Ok(sorter.finish()?)
    }

    /// Renumbers the sources by a scan, sorts by targets, and renumbers those by a second scan.
    fn by_sorting<A: Arc>(&self) -> Result<Sorted<A>, GraphError> {
        let mut by_target = self.plan.sorter::<A>(self.space, self.plan.arcs)?;
        let mut sources = self.numbers.scan(self.vertices, self.steps)?;
        let mut scan = self.sorted.scan(0..self.sorted.header().blocks(), READ_DEPTH)?;
        while let Some((_, pairs)) = scan.next_block()? {
            for (source, target) in pairs.iter() {
                by_target.push(A::of(target, sources.number(source)?))?;
            }
            self.steps.add(1, "renumbering")?;
        }
        drop(sources);
        let mut by_target = by_target.finish()?;
        let mut by_source = self.plan.sorter::<A>(self.space, self.plan.arcs)?;
        let mut targets = self.numbers.scan(self.vertices, self.steps)?;
        loop {
            let records = by_target.fill()?;
            let count = records.len().min(BATCH);
            if count == 0 {
                return Ok(by_source.finish()?);
            }
            for record in &records[..count] {
                let (target, source) = record.ends();
                let target = targets.number(target)?;
                by_source.push(A::of(source, target))?;
                if self.arcs == Arcs::Once && source != target {
                    by_source.push(A::of(target, source))?;
                }
            }
            by_target.consume(count);
            self.steps.add(0, "renumbering")?;
        }
    }
}

/// The stored number of each vertex.
fn array<N: Clone + Default>(
    numbers: &Numbers,
    (vertices, steps): (u64, &Steps),
    narrow: impl Fn(VertexId) -> N,
) -> Result<Vec<N>, GraphError> {
    let mut array = vec![N::default(); vertices as usize];
    let mut scan = numbers.scan(vertices, steps)?;
    while let Some(vertex) = scan.next()? {
        array[vertex.old as usize] = narrow(vertex.new);
    }
    Ok(array)
}

/// Writes the vertices that have neighbours.
fn write_lists<A: Arc>(
    mut arcs: Sorted<A>,
    mut by_number: Sorted<A>,
    numbers: &Numbers,
    writer: &mut FwgWriter,
    steps: &Steps,
) -> Result<(), GraphError> {
    let mut next = 0;
    let mut batch = Vec::with_capacity(BATCH);
    let mut told = 0;
    for (degree, count) in numbers.runs() {
        for new in next..next + count {
            let (numbered, old) = by_number.next_record()?.expect("every number is given").ends();
            assert_eq!(numbered, new, "numbers are consecutive");
            writer.begin_vertex(old, degree)?;
            let mut owed = degree as usize;
            while owed > 0 {
                let records = arcs.fill()?;
                let count = records.len().min(BATCH).min(owed);
                assert!(count > 0, "vertex {new} has {degree} arcs");
                batch.clear();
                for record in &records[..count] {
                    let (source, target) = record.ends();
                    assert_eq!(source, new, "degrees are of the same arcs");
                    batch.push(target);
                }
                arcs.consume(count);
                writer.neighbours(&batch)?;
                owed -= count;
                told += count;
            }
            if told >= BATCH {
                steps.add(told as u64, "writing the graph")?;
                told = 0;
            }
        }
        next += count;
    }
    Ok(())
}

/// Writes the vertices without neighbours.
fn write_isolated(
    numbers: &Numbers,
    (vertices, steps): (u64, &Steps),
    writer: &mut FwgWriter,
) -> Result<(), GraphError> {
    let mut scan = numbers.scan(vertices, steps)?;
    while let Some(vertex) = scan.next()? {
        if vertex.degree == 0 {
            writer.begin_vertex(vertex.old, 0)?;
        }
    }
    Ok(())
}

/// Writes the stored number of each input vertex.
fn write_old_to_new(
    numbers: &Numbers,
    (vertices, steps): (u64, &Steps),
    writer: &mut FwgWriter,
) -> Result<(), GraphError> {
    let mut scan = numbers.scan(vertices, steps)?;
    while let Some(vertex) = scan.next()? {
        writer.old_to_new(vertex.new)?;
    }
    Ok(())
}
