//! Writing a stored graph in one pass.
//!
//! Vertices come in the order of their stored numbers, each with its neighbours ascending. Four sections grow side by side,
//! each through a buffer of its own; nothing is read back. In memory lie the buffers, the checksums (1/1024 of the file)
//! and, in degree order, the runs of the index.
//!
//! The file is written under a name of its own beside its place, synced, given its header, synced again and renamed. A crash
//! leaves the earlier file, if there was one, and a `.NAME.partial`, which the next writer replaces. A device, which cannot
//! be renamed, first loses its header and gets one at the end.

use std::path::Path;
use std::sync::Arc;

use storage::device::Device;

use super::header::{Header, MOST_HEADS, Order, Section, SectionKind};
use super::index::{GROUP, GROUP_BYTES, Group, Run};
use super::place::{BUFFER_BYTES, GraphPlace, Stream, write_sums};
use super::{PAGE_BYTES, list_start};
use crate::{GraphError, IdWidth, VertexId};

/// What is to be known before the first vertex.
#[derive(Debug, Clone, Copy)]
pub struct FwgConfig {
    /// Vertices.
    pub vertices: u64,
    /// In degree order the vertices that have neighbours, which come first; in the given order all vertices.
    pub listed: u64,
    /// How vertices are numbered.
    pub order: Order,
    /// Whether edges have a direction.
    pub directed: bool,
    /// Neighbours of each listed vertex that the heads section repeats; 0 for no such section.
    pub heads: u32,
    /// Edges of the input, self-loops and duplicates included.
    pub input_edges: u64,
}

impl FwgConfig {
    /// Bytes of memory that a writer takes for a graph of this many entries.
    #[must_use]
    pub fn memory_bytes(&self, entries: u64) -> u64 {
        let file = entries * IdWidth::for_vertices(self.vertices).bytes() as u64;
        4 * BUFFER_BYTES as u64 + file / (PAGE_BYTES / 4)
    }

    /// Bytes that a graph of so many entries takes at most: each list of a page or more begins on a page, and so does each section.
    #[must_use]
    pub fn most_bytes(&self, entries: u64) -> u64 {
        let bytes = entries * IdWidth::for_vertices(self.vertices).bytes() as u64;
        let gaps = (bytes / PAGE_BYTES).min(self.listed) * PAGE_BYTES;
        let groups = self.listed.div_ceil(GROUP) * GROUP_BYTES;
        let sections = 8 * PAGE_BYTES;
        self.least_bytes(entries) + gaps + gaps / (PAGE_BYTES / 4) + groups + sections
    }

    /// Bytes that a graph of so many entries takes at least: what is between lists and sections is not counted.
    #[must_use]
    pub fn least_bytes(&self, entries: u64) -> u64 {
        let numbers = if self.order == Order::Degree { 2 * self.vertices } else { 0 };
        let ids = numbers + self.listed * u64::from(self.heads) + entries;
        let bytes = ids * IdWidth::for_vertices(self.vertices).bytes() as u64;
        PAGE_BYTES + bytes + bytes / (PAGE_BYTES / 4)
    }
}

/// See the module's argument.
#[derive(Debug)]
pub struct FwgWriter {
    config: FwgConfig,
    width: IdWidth,
    place: GraphPlace,
    new_to_old: Stream,
    old_to_new: Stream,
    heads: Stream,
    adjacency: Stream,
    index: IndexBuilder,
    /// Vertices begun.
    next: VertexId,
    /// Neighbours that the present vertex still gets, and has got.
    owed: u64,
    given: u64,
    degree: u64,
    last_neighbour: Option<VertexId>,
    renumbered: u64,
    entries: u64,
    max_degree: u64,
    scratch: Vec<u8>,
}

impl FwgWriter {
    /// Begins the file at `path`, beside which it needs room for a `.NAME.partial`.
    ///
    /// # Errors
    /// Of making the file; [`GraphError::Invalid`] for more listed vertices than vertices, or more heads than [`MOST_HEADS`].
    pub fn create(path: &Path, config: FwgConfig) -> Result<Self, GraphError> {
        Self::begin(GraphPlace::file(path)?, config)
    }

    /// Begins the graph on a writable device; `path` is what messages call it. What lies there is lost.
    ///
    /// # Errors
    /// [`GraphError::Io`] if the first page cannot be cleared and synced; [`GraphError::Invalid`] as in [`FwgWriter::create`].
    pub fn on(device: Arc<dyn Device>, path: &Path, config: FwgConfig) -> Result<Self, GraphError> {
        Self::begin(GraphPlace::device(device, path)?, config)
    }

    fn begin(place: GraphPlace, config: FwgConfig) -> Result<Self, GraphError> {
        if config.listed > config.vertices {
            let message = format!("{} of {} vertices cannot have lists", config.listed, config.vertices);
            return Err(GraphError::Invalid { message });
        }
        if config.heads > MOST_HEADS {
            let message = format!("{} heads a vertex are above {MOST_HEADS}", config.heads);
            return Err(GraphError::Invalid { message });
        }
        let width = IdWidth::for_vertices(config.vertices);
        let numbers = match config.order {
            Order::Given => 0,
            Order::Degree => config.vertices * width.bytes() as u64,
        };
        let new_to_old = Stream::at(PAGE_BYTES, numbers);
        let old_to_new = Stream::at(new_to_old.end(), numbers);
        let head_bytes = config.listed * u64::from(config.heads) * width.bytes() as u64;
        let heads = Stream::at(old_to_new.end(), head_bytes);
        let groups = match config.order {
            Order::Given => config.listed.div_ceil(GROUP) * GROUP_BYTES,
            Order::Degree => 0,
        };
        let groups = Stream::at(heads.end(), groups);
        let adjacency = Stream::at(groups.end(), 0);
        let index = match config.order {
            Order::Given => IndexBuilder::Groups { stream: groups, group: None },
            Order::Degree => IndexBuilder::Runs(Vec::new()),
        };
        let (next, owed, given, degree, renumbered, entries, max_degree) = (0, 0, 0, 0, 0, 0, 0);
        let (last_neighbour, scratch) = (None, Vec::new());
        Ok(Self {
            config,
            width,
            place,
            new_to_old,
            old_to_new,
            heads,
            adjacency,
            index,
            next,
            owed,
            given,
            degree,
            last_neighbour,
            renumbered,
            entries,
            max_degree,
            scratch,
        })
    }

    /// Adds the next vertex with all its neighbours, ascending.
    ///
    /// # Errors
    /// [`GraphError::Io`] if a full buffer cannot be written; [`GraphError::Invalid`] for a degree above 2^32 − 1 in the given
    /// order.
    ///
    /// # Panics
    /// As [`FwgWriter::begin_vertex`] and [`FwgWriter::neighbours`].
    pub fn vertex(&mut self, old: VertexId, neighbours: &[VertexId]) -> Result<(), GraphError> {
        self.begin_vertex(old, neighbours.len() as u64)?;
        self.neighbours(neighbours)
    }

    /// Begins the next vertex, whose number in the input was `old`; its neighbours follow in as many calls as the caller
    /// likes.
    ///
    /// # Errors
    /// [`GraphError::Io`] if a full buffer cannot be written; [`GraphError::Invalid`] for a degree above 2^32 − 1 in the given
    /// order.
    ///
    /// # Panics
    /// If the vertex before it lacks neighbours, if there are more vertices than were promised, if a vertex that is not
    /// listed has neighbours, or if degrees rise in degree order.
    pub fn begin_vertex(&mut self, old: VertexId, degree: u64) -> Result<(), GraphError> {
        assert_eq!(self.owed, 0, "vertex {} lacks neighbours", self.next.wrapping_sub(1));
        assert!(self.next < self.config.vertices, "more vertices than were promised");
        assert!(degree == 0 || self.next < self.config.listed, "vertex {} is not listed", self.next);
        let first = self.next == 0;
        match self.config.order {
            Order::Given => assert_eq!(old, self.next, "vertices keep their numbers in the given order"),
            Order::Degree => {
                assert!(first || degree <= self.degree, "degrees rise at vertex {}", self.next);
                let bytes = old.to_le_bytes();
                self.new_to_old.add(&bytes[..self.width.bytes()], &self.place)?;
            }
        }
        let bytes = degree * self.width.bytes() as u64;
        let (end, start) = (self.adjacency.length, list_start(self.adjacency.length, bytes));
        self.adjacency.zeros(start - end, &self.place)?;
        if self.next < self.config.listed {
            self.index.add(self.next, degree, [end, start], &self.place)?;
        }
        self.next += 1;
        (self.owed, self.given, self.degree, self.last_neighbour) = (degree, 0, degree, None);
        self.max_degree = self.max_degree.max(degree);
        self.entries += degree;
        if degree == 0 { self.fill_heads() } else { Ok(()) }
    }

    /// Adds neighbours of the present vertex.
    ///
    /// # Errors
    /// [`GraphError::Io`] with the path and the offset if a full buffer cannot be written.
    ///
    /// # Panics
    /// If they are not ascending, no vertices of the graph, or more than its degree.
    pub fn neighbours(&mut self, neighbours: &[VertexId]) -> Result<(), GraphError> {
        assert!(neighbours.len() as u64 <= self.owed, "more neighbours than the degree");
        self.scratch.clear();
        for &neighbour in neighbours {
            assert!(neighbour < self.config.vertices, "neighbour {neighbour} is not a vertex");
            assert!(self.last_neighbour <= Some(neighbour), "neighbours are not ascending");
            self.last_neighbour = Some(neighbour);
            self.width.put(neighbour, &mut self.scratch);
        }
        self.adjacency.add(&self.scratch, &self.place)?;
        let head = u64::from(self.config.heads).saturating_sub(self.given).min(neighbours.len() as u64);
        self.heads.add(&self.scratch[..head as usize * self.width.bytes()], &self.place)?;
        self.given += neighbours.len() as u64;
        self.owed -= neighbours.len() as u64;
        if self.owed == 0 && !neighbours.is_empty() { self.fill_heads() } else { Ok(()) }
    }

    /// Pads the heads of a vertex with fewer neighbours by its own number.
    fn fill_heads(&mut self) -> Result<(), GraphError> {
        if self.next > self.config.listed {
            return Ok(());
        }
        let own = (self.next - 1).to_le_bytes();
        for _ in self.given..u64::from(self.config.heads) {
            self.heads.add(&own[..self.width.bytes()], &self.place)?;
        }
        Ok(())
    }

    /// Adds the stored number of the next input vertex; all of them are due before the end in degree order, at any time.
    ///
    /// # Errors
    /// [`GraphError::Io`] with the path and the offset if a full buffer cannot be written.
    ///
    /// # Panics
    /// In the given order, or if there are more than vertices.
    pub fn old_to_new(&mut self, new: VertexId) -> Result<(), GraphError> {
        assert!(self.config.order == Order::Degree && self.renumbered < self.config.vertices);
        self.renumbered += 1;
        let bytes = new.to_le_bytes();
        self.old_to_new.add(&bytes[..self.width.bytes()], &self.place)
    }

    /// Completes the file, syncs it and puts it into its place.
    ///
    /// # Errors
    /// [`GraphError::Io`] with the path if the graph cannot be written or synced, or its file cannot be renamed.
    ///
    /// # Panics
    /// If vertices, neighbours or numbers are missing.
    pub fn finish(mut self) -> Result<Header, GraphError> {
        assert_eq!((self.next, self.owed), (self.config.vertices, 0), "vertices or neighbours are missing");
        assert!(self.config.order == Order::Given || self.renumbered == self.config.vertices);
        let place = &self.place;
        let mut sections = [Section::default(); 6];
        let mut sums = Vec::new();
        let mut set = |kind: SectionKind, section: Section, pages: Vec<u32>| {
            sections[kind as usize - 1] = section;
            sums.extend(pages);
        };
        for (kind, stream) in [
            (SectionKind::NewToOld, &mut self.new_to_old),
            (SectionKind::OldToNew, &mut self.old_to_new),
            (SectionKind::Heads, &mut self.heads),
        ] {
            let section = stream.close(place)?;
            set(kind, section, std::mem::take(&mut stream.sums));
        }
        match self.index {
            IndexBuilder::Groups { mut stream, group } => {
                if let Some(group) = group {
                    add_group(&mut stream, &group, place)?;
                }
                let section = stream.close(place)?;
                set(SectionKind::Index, section, stream.sums);
                let section = self.adjacency.close(place)?;
                set(SectionKind::Adjacency, section, std::mem::take(&mut self.adjacency.sums));
            }
            IndexBuilder::Runs(runs) => {
                let section = self.adjacency.close(place)?;
                set(SectionKind::Adjacency, section, std::mem::take(&mut self.adjacency.sums));
                let mut stream = Stream::at(section.padded_end(), 0);
                let mut bytes = Vec::new();
                runs.iter().for_each(|run| run.encode(&mut bytes));
                stream.add(&bytes, place)?;
                let section = stream.close(place)?;
                set(SectionKind::Index, section, stream.sums);
            }
        }
        let end = sections.iter().map(|section| section.padded_end()).max().unwrap_or(PAGE_BYTES);
        let (section, sums_checksum) = write_sums(&sums, end.max(PAGE_BYTES), place)?;
        sections[SectionKind::Sums as usize - 1] = section;
        let config = self.config;
        let header = Header {
            vertices: config.vertices,
            listed: config.listed,
            entries: self.entries,
            input_edges: config.input_edges,
            max_degree: self.max_degree,
            directed: config.directed,
            order: config.order,
            width: self.width,
            heads: config.heads,
            file_bytes: section.padded_end().max(section.offset),
            sums_checksum,
            sections,
        };
        self.place.complete(&header.encode())?;
        Ok(header)
    }
}

/// The index as far as it is known.
#[derive(Debug)]
enum IndexBuilder {
    Runs(Vec<Run>),
    Groups { stream: Stream, group: Option<Group> },
}

impl IndexBuilder {
    /// Adds a list that begins at `start`, where the one before it ended at `end`.
    fn add(
        &mut self,
        vertex: VertexId,
        degree: u64,
        [end, start]: [u64; 2],
        place: &GraphPlace,
    ) -> Result<(), GraphError> {
        match self {
            Self::Runs(runs) => {
                if runs.last().is_none_or(|run| run.degree != degree) {
                    runs.push(Run { first: vertex, degree, offset: start });
                }
            }
            Self::Groups { stream, group } => {
                let degree = u32::try_from(degree).map_err(|_| GraphError::Invalid {
                    message: format!("vertex {vertex} has {degree} neighbours, too many for the given order"),
                })?;
                let slot = (vertex % GROUP) as usize;
                if slot == 0
                    && let Some(full) = group.replace(Group { end, degrees: [0; GROUP as usize] })
                {
                    add_group(stream, &full, place)?;
                }
                if let Some(group) = group {
                    group.degrees[slot] = degree;
                }
            }
        }
        Ok(())
    }
}

fn add_group(stream: &mut Stream, group: &Group, place: &GraphPlace) -> Result<(), GraphError> {
    let mut bytes = Vec::with_capacity(GROUP_BYTES as usize);
    group.encode(&mut bytes);
    stream.add(&bytes, place)
}
