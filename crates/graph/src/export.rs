//! A stored graph as the serialized graph `.sg` of the GAP Benchmark Suite ([`import`](crate::import) says how it is laid out).
//!
//! 1. The lists are read in the order of the file, and the pairs of a vertex and a neighbour in the input's numbers are sorted
//!    ([`external::Sorter`]). In memory lies the input's number of each stored vertex, 4 bytes.
//! 2. The sorted pairs are the lists: index and neighbours are written side by side.
//! 3. A directed graph has the lists of incoming edges behind them, by a second sort of the pairs turned round.
//!
//! The file appears under its name once it is durable, and one writer of it is at work at a time.

use std::path::{Path, PathBuf};

use external::{ExternalError, Sorter, SorterOptions, Source, Space, SpaceOptions};

use crate::fetch::{FetchConfig, Fetcher, Traffic};
use crate::format::{Fwg, GraphPlace, SectionKind};
use crate::{GraphError, Steps, VertexId};

/// Where the index begins: behind the direction, the number of list entries and that of vertices.
const INDEX_AT: u64 = 17;
/// The most vertices: neighbours are `i32`.
const MOST_VERTICES: u64 = i32::MAX as u64;
/// Bytes of index or neighbours that are written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Both buffers, and what program, threads and allocator need.
const FIXED_BYTES: u64 = 10 << 20;
/// Blocks of the sort's temporary space, bytes.
const BLOCK_BYTES: usize = 32 << 10;

/// How a graph is exported.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// Bytes of memory for everything.
    pub memory: u64,
    /// Where the sort's scratch file is made.
    pub scratch: PathBuf,
    /// Threads that sort.
    pub threads: usize,
}

/// Writes `graph` to `path`; the length of the file, bytes.
///
/// # Errors
/// [`GraphError::Invalid`] for more vertices than the format has; [`GraphError::Memory`]; [`GraphError::Busy`] if another
/// process writes `path`; of reading and writing.
pub fn gap(graph: &Fwg, path: &Path, options: &ExportOptions, steps: &Steps) -> Result<u64, GraphError> {
    let header = graph.header();
    if header.vertices > MOST_VERTICES {
        let vertices = header.vertices;
        let message = format!("a graph of {vertices} vertices is more than .sg has: {MOST_VERTICES}");
        return Err(GraphError::Invalid { message });
    }
    let work = Export::new(graph, options, steps)?;
    let mut place = GraphPlace::file(path)?;
    let mut at = INDEX_AT;
    let phases = 1 + u64::from(header.directed);
    for phase in 0..phases {
        steps.begin(2 * phase + 1, header.entries);
        let pairs = work.sort(phase == 1)?;
        steps.begin(2 * phase + 2, header.entries);
        at = work.write(pairs, &place, at)?;
    }
    let mut first = vec![u8::from(header.directed)];
    first.extend(header.entries.to_le_bytes());
    first.extend(header.vertices.to_le_bytes());
    place.complete(&first)?;
    Ok(at)
}

/// Phases of an export, as [`Steps`] tells them.
pub const EXPORT_PHASES: [&str; 4] =
    ["reading lists", "writing lists", "reading incoming edges", "writing incoming edges"];

struct Export<'a> {
    graph: &'a Fwg,
    steps: &'a Steps,
    space: Space,
    sorter: SorterOptions<u64>,
    /// The input's numbers; empty where they are the stored ones.
    old: Vec<u32>,
}

impl<'a> Export<'a> {
    fn new(graph: &'a Fwg, options: &ExportOptions, steps: &'a Steps) -> Result<Self, GraphError> {
        let header = graph.header();
        let array = if header.is_renumbered() { header.vertices * 4 } else { 0 };
        let fixed = FIXED_BYTES
            + graph.memory_bytes()
            + Traffic::memory_bytes(graph)
            + FetchConfig::default().memory_bytes()
            + array;
        let space = SpaceOptions { block_bytes: BLOCK_BYTES, ..SpaceOptions::default() };
        // A bound, not a need: pairs that are written twice at the same time.
        let space = Space::scratch(&options.scratch, header.entries * 32 + (64 << 20), &space)?;
        let sorter = SorterOptions::new(options.memory.saturating_sub(fixed));
        let sorter = SorterOptions { threads: options.threads, ..sorter };
        Sorter::new(&space, &sorter).map_err(|error| match error {
            ExternalError::TooLittleMemory { needed, .. } => GraphError::Memory {
                purpose: "exporting this graph".to_owned(),
                needed: fixed + needed,
                budget: options.memory,
            },
            error => error.into(),
        })?;
        let mut old = Vec::with_capacity((array / 4) as usize);
        if header.is_renumbered() {
            graph.numbers(SectionKind::NewToOld, |_, part| {
                old.extend(part.map(|number| number as u32));
                Ok(())
            })?;
        }
        Ok(Self { graph, steps, space, sorter, old })
    }

    fn number(&self, stored: VertexId) -> u64 {
        self.old.get(stored as usize).map_or(stored, |old| (*old).into())
    }

    /// All pairs of a vertex and a neighbour, by vertex; turned round if the lists of incoming edges are wanted.
    fn sort(&self, incoming: bool) -> Result<external::Sorted<u64>, GraphError> {
        let width = self.graph.header().width;
        let traffic = Traffic::of(self.graph);
        let mut fetcher = Fetcher::new(self.graph, &traffic, FetchConfig::default())?;
        let mut cursor = self.graph.windowed_cursor()?;
        let mut sorter = Sorter::new(&self.space, &self.sorter)?;
        let mut pairs: Vec<u64> = Vec::new();
        let mut failure = None;
        let mut take = |vertex, _: u64, list: &[u8]| {
            let vertex = self.number(vertex);
            pairs.clear();
            pairs.extend(list.chunks_exact(width.bytes()).map(|id| {
                let neighbour = self.number(width.get(id));
                if incoming { neighbour << 32 | vertex } else { vertex << 32 | neighbour }
            }));
            if let Err(error) = sorter.push_slice(&pairs) {
                failure.get_or_insert(error);
            }
        };
        for vertex in 0..self.graph.header().listed {
            let list = cursor.list(vertex)?;
            if list.degree > 0 {
                fetcher.add(vertex, list.offset, list.degree * width.bytes() as u64, &mut take)?;
            }
            self.steps.add(list.degree, "exporting")?;
        }
        fetcher.finish(&mut take)?;
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(sorter.finish()?),
        }
    }

    /// Writes index and neighbours from `at` on; where they end.
    fn write(
        &self,
        mut pairs: external::Sorted<u64>,
        place: &GraphPlace,
        at: u64,
    ) -> Result<u64, GraphError> {
        let vertices = self.graph.header().vertices;
        let mut index = Part::at(at);
        let mut neighbours = Part::at(at + 8 * (vertices + 1));
        let (mut written, mut begun) = (0_u64, 0);
        while let Some(pair) = pairs.next_record()? {
            let vertex = pair >> 32;
            while begun <= vertex {
                index.add(&written.to_le_bytes(), place)?;
                begun += 1;
            }
            neighbours.add(&(pair as u32).to_le_bytes(), place)?;
            written += 1;
            if written.is_multiple_of(1 << 16) {
                self.steps.add(1 << 16, "exporting")?;
            }
        }
        for _ in begun..=vertices {
            index.add(&written.to_le_bytes(), place)?;
        }
        assert_eq!(written, self.graph.header().entries, "each list entry is written once");
        index.flush(place)?;
        neighbours.flush(place)?;
        Ok(neighbours.offset)
    }
}

/// A part of the file that grows.
struct Part {
    /// Where the buffer will be written.
    offset: u64,
    buffer: Vec<u8>,
}

impl Part {
    fn at(offset: u64) -> Self {
        Self { offset, buffer: Vec::with_capacity(BUFFER_BYTES) }
    }

    #[inline]
    fn add(&mut self, bytes: &[u8], place: &GraphPlace) -> Result<(), GraphError> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush(place)?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self, place: &GraphPlace) -> Result<(), GraphError> {
        place.write(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
