//! Where each list begins, in memory or through a window.
//!
//! In degree order: runs of lists of equal degree, 24 bytes each. In the given order: groups of 16 vertices, 72 bytes each; in
//! memory 24, if no vertex has more than 255 neighbours, as on roads: what is saved there holds pages of lists.
//! Both are looked up with a cursor. Ascending look-ups cost a comparison each, others a search or a recount of at most
//! 15 degrees. A cursor without the index in memory ([`Fwg::windowed_cursor`](super::Fwg::windowed_cursor)) reads it
//! as it goes. Either is made of an index that was followed from end to end (`walk`): look-ups do not check it again.

use super::header::{get32, get64};
use super::{Fwg, Header, Order, PAGE_BYTES, SectionKind, list_start};
use crate::{GraphError, VertexId};

/// Vertices of a group.
pub(super) const GROUP: u64 = 16;
/// Bytes of a group.
pub(super) const GROUP_BYTES: u64 = 8 + 4 * GROUP;
/// Bytes of a run.
pub(super) const RUN_BYTES: u64 = 24;
/// Bytes of index that a windowed cursor holds.
const WINDOW_BYTES: u64 = 64 << 10;

/// Vertices of equal degree whose lists lie one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub first: VertexId,
    pub degree: u64,
    /// Of the first list, relative to the adjacency section.
    pub offset: u64,
}

/// Sixteen vertices, whose degrees are `D`s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group<D = u32> {
    /// Where the list before the first one ended, relative to the adjacency section.
    pub end: u64,
    pub degrees: [D; GROUP as usize],
}

impl Run {
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        for value in [self.first, self.degree, self.offset] {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub fn decode(bytes: &[u8]) -> Self {
        Self { first: get64(bytes, 0), degree: get64(bytes, 8), offset: get64(bytes, 16) }
    }
}

impl Group {
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.end.to_le_bytes());
        for degree in self.degrees {
            bytes.extend_from_slice(&degree.to_le_bytes());
        }
    }

    pub fn decode(bytes: &[u8]) -> Self {
        Self { end: get64(bytes, 0), degrees: std::array::from_fn(|i| get32(bytes, 8 + 4 * i)) }
    }

    /// With a byte for each degree, which is cut off if that is not enough.
    fn narrow(&self) -> Group<u8> {
        Group { end: self.end, degrees: self.degrees.map(|degree| degree as u8) }
    }
}

/// A list of neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// Neighbours in it.
    pub degree: u64,
}

/// How lists are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// Runs of equal degree.
    Runs,
    /// Groups of 16 vertices.
    Groups,
}

impl IndexKind {
    /// The kind that goes with an order.
    #[must_use]
    pub const fn of(order: Order) -> Self {
        match order {
            Order::Degree => Self::Runs,
            Order::Given => Self::Groups,
        }
    }
}

/// The whole index.
#[derive(Debug)]
pub struct Index {
    entries: Entries,
    frame: Frame,
}

#[derive(Debug)]
enum Entries {
    Runs(Vec<Run>),
    Groups(Vec<Group>),
    /// No degree is above 255.
    Narrow(Vec<Group<u8>>),
}

/// What a look-up needs beside the entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    listed: u64,
    adjacency: u64,
    width: u64,
}

impl Frame {
    pub fn of(header: &Header) -> Self {
        let adjacency = header.section(SectionKind::Adjacency).offset;
        Self { listed: header.listed, adjacency, width: header.width.bytes() as u64 }
    }

    fn of_run(self, run: &Run, vertex: VertexId) -> List {
        let offset = self.adjacency + run.offset + (vertex - run.first) * stride(run.degree * self.width);
        List { offset, degree: run.degree }
    }

    fn of_group<D: Copy + Into<u64>>(self, group: &Group<D>, slot: usize) -> List {
        let bytes_of = |i: usize| group.degrees[i].into() * self.width;
        let mut end = group.end;
        for i in 0..slot {
            end = list_start(end, bytes_of(i)) + bytes_of(i);
        }
        List { offset: self.adjacency + list_start(end, bytes_of(slot)), degree: group.degrees[slot].into() }
    }

    fn nothing(self) -> List {
        List { offset: self.adjacency, degree: 0 }
    }
}

impl Index {
    /// An index without entries, with room for those of a graph.
    pub(super) fn empty(header: &Header) -> Self {
        let length = header.section(SectionKind::Index).length;
        let room = (length / Self::entry_bytes(header)) as usize;
        let entries = match IndexKind::of(header.order) {
            IndexKind::Runs => Entries::Runs(Vec::with_capacity(room)),
            IndexKind::Groups if is_narrow(header) => Entries::Narrow(Vec::with_capacity(room)),
            IndexKind::Groups => Entries::Groups(Vec::with_capacity(room)),
        };
        Self { entries, frame: Frame::of(header) }
    }

    /// Bytes of an entry in the file.
    pub(super) fn entry_bytes(header: &Header) -> u64 {
        match IndexKind::of(header.order) {
            IndexKind::Runs => RUN_BYTES,
            IndexKind::Groups => GROUP_BYTES,
        }
    }

    /// Adds the entries in the next bytes of the section, which were followed (`walk`).
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let groups = bytes.chunks_exact(GROUP_BYTES as usize).map(Group::decode);
        match &mut self.entries {
            Entries::Runs(runs) => runs.extend(bytes.chunks_exact(RUN_BYTES as usize).map(Run::decode)),
            Entries::Groups(all) => all.extend(groups),
            Entries::Narrow(all) => all.extend(groups.map(|group| group.narrow())),
        }
    }

    /// A cursor at the first vertex.
    #[must_use]
    pub fn cursor(&self) -> IndexCursor<'_> {
        let source = match &self.entries {
            Entries::Runs(runs) => Source::Runs { runs, at: 0 },
            Entries::Groups(groups) => Source::Groups { groups },
            Entries::Narrow(groups) => Source::Narrow { groups },
        };
        IndexCursor { source, frame: self.frame }
    }

    /// Bytes of memory that the index of a graph takes.
    #[must_use]
    pub fn memory_bytes(header: &Header) -> u64 {
        let length = header.section(SectionKind::Index).length;
        match IndexKind::of(header.order) {
            IndexKind::Groups if is_narrow(header) => length / GROUP_BYTES * size_of::<Group<u8>>() as u64,
            _ => length,
        }
    }
}

/// Whether each degree of a graph fits into a byte.
fn is_narrow(header: &Header) -> bool {
    header.max_degree <= u8::MAX.into()
}

/// From the beginning of a list of so many bytes to that of the next one of the same length.
pub(super) const fn stride(bytes: u64) -> u64 {
    if bytes >= PAGE_BYTES { bytes.next_multiple_of(PAGE_BYTES) } else { bytes }
}

/// Looks up lists.
#[derive(Debug)]
pub struct IndexCursor<'a> {
    source: Source<'a>,
    frame: Frame,
}

#[derive(Debug)]
enum Source<'a> {
    Runs { runs: &'a [Run], at: usize },
    Groups { groups: &'a [Group] },
    Narrow { groups: &'a [Group<u8>] },
    Window { file: &'a Fwg, bytes: Vec<u8>, start: u64, runs: Vec<Run>, after: VertexId },
}

impl<'a> IndexCursor<'a> {
    pub(super) fn windowed(file: &'a Fwg) -> Self {
        let source = Source::Window { file, bytes: Vec::new(), start: 0, runs: Vec::new(), after: 0 };
        Self { source, frame: Frame::of(file.header()) }
    }

    /// The list of a vertex; an empty one for a vertex without neighbours.
    ///
    /// # Errors
    /// [`GraphError::Io`] or [`GraphError::Corrupt`] if a windowed cursor cannot read a page of the index or its checksum does
    /// not fit. A cursor on an index in memory never fails.
    pub fn list(&mut self, vertex: VertexId) -> Result<List, GraphError> {
        let frame = self.frame;
        if vertex >= frame.listed {
            return Ok(frame.nothing());
        }
        let (group, slot) = ((vertex / GROUP) as usize, (vertex % GROUP) as usize);
        match &mut self.source {
            Source::Runs { runs, at } => {
                *at = run_of(runs, *at, vertex);
                Ok(frame.of_run(&runs[*at], vertex))
            }
            Source::Groups { groups } => Ok(frame.of_group(&groups[group], slot)),
            Source::Narrow { groups } => Ok(frame.of_group(&groups[group], slot)),
            Source::Window { file, bytes, start, runs, after } => match IndexKind::of(file.header().order) {
                IndexKind::Groups => {
                    let at = vertex / GROUP * GROUP_BYTES;
                    if at < *start || at + GROUP_BYTES > *start + bytes.len() as u64 {
                        let section = file.header().section(SectionKind::Index);
                        *start = at;
                        *bytes = vec![0; (section.length - at).min(WINDOW_BYTES) as usize];
                        file.read_at(bytes, section.offset + at)?;
                    }
                    let group = Group::decode(&bytes[(at - *start) as usize..]);
                    Ok(frame.of_group(&group, slot))
                }
                IndexKind::Runs => {
                    let inside = |runs: &[Run]| runs.first().is_some_and(|run| run.first <= vertex);
                    if !inside(runs) || vertex >= *after {
                        (*runs, *after) = window_of_runs(file, vertex)?;
                    }
                    Ok(frame.of_run(&runs[run_of(runs, 0, vertex)], vertex))
                }
            },
        }
    }
}

/// The run of a vertex, which is often that of the vertex before it, or the next one.
#[inline]
fn run_of(runs: &[Run], at: usize, vertex: VertexId) -> usize {
    let holds = |i: usize| runs[i].first <= vertex && runs.get(i + 1).is_none_or(|next| vertex < next.first);
    if holds(at) {
        at
    } else if at + 1 < runs.len() && holds(at + 1) {
        at + 1
    } else {
        runs.partition_point(|run| run.first <= vertex) - 1
    }
}

/// The runs around a vertex, and the first vertex behind them.
fn window_of_runs(file: &Fwg, vertex: VertexId) -> Result<(Vec<Run>, VertexId), GraphError> {
    let section = file.header().section(SectionKind::Index);
    let count = section.length / RUN_BYTES;
    let read = |first: u64, many: u64| -> Result<Vec<Run>, GraphError> {
        let mut bytes = vec![0; (many * RUN_BYTES) as usize];
        file.read_at(&mut bytes, section.offset + first * RUN_BYTES)?;
        Ok(bytes.chunks_exact(RUN_BYTES as usize).map(Run::decode).collect())
    };
    let (mut low, mut high) = (0, count);
    let window = WINDOW_BYTES / RUN_BYTES;
    while high - low > window {
        let middle = low + (high - low) / 2;
        if read(middle, 1)?[0].first <= vertex { low = middle } else { high = middle }
    }
    let many = (count - low).min(window);
    let runs = read(low, many)?;
    let after = if low + many < count { read(low + many, 1)?[0].first } else { file.header().listed };
    Ok((runs, after))
}
