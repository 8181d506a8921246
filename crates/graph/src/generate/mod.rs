//! Made-up graphs of any scale, streamed: the same seed gives the same file, whatever the number of threads.
//!
//! A graph is cut into chunks of edges or of vertices. Each chunk is a function of the seed and of its number alone, so
//! threads make chunks at the same time, and they are written in order. Memory holds two chunks a thread.

mod kronecker;
mod lattice;
mod random;
mod web;

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

use crate::edges::{EdgeWriter, EdgesConfig, EdgesHeader};
use crate::{GraphError, IdWidth, Steps, VertexId};

use random::Stream;

/// The largest scale: 2^scale vertices, and edges that can still be counted.
pub const LARGEST_SCALE: u32 = 48;
/// Edges of a chunk of independent edges.
const EDGES_PER_CHUNK: u64 = 1 << 18;
/// Vertices of a chunk, where edges are made vertex by vertex.
const VERTICES_PER_CHUNK: u64 = 1 << 16;
/// Chunks of a thread that wait for being written.
const CHUNKS_WAITING: usize = 1;

base::words! {
    /// Kinds of graphs.
    pub enum GraphKind {
        /// Graph500's: edges in a recursively divided matrix, (A, B, C) = (0.57, 0.19, 0.19), vertices renumbered at random.
        /// Few hubs, small diameter. Edges are drawn independently, so their order is a random one.
        Kronecker = "kronecker",
        /// Both ends of each edge drawn uniformly.
        Uniform = "uniform",
        /// Road-like: a lattice of about 2^(scale/2) rows, of which 70 % of the edges are there: degree 2.8 on average,
        /// large diameter, close vertices have close numbers.
        Grid = "grid",
        /// Web-like: hosts of pages; most links lead to near pages of the host, the others to popular hosts. Directed.
        Web = "web",
    }
}

/// Which graph.
#[derive(Debug, Clone, Copy)]
pub struct GraphSpec {
    /// Its kind.
    pub kind: GraphKind,
    /// It has 2^scale vertices; at most [`LARGEST_SCALE`].
    pub scale: u32,
    /// Edges a vertex; a lattice has its own.
    pub edge_factor: u32,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Threads that make edges.
    pub threads: usize,
}

impl GraphSpec {
    fn vertices(&self) -> u64 {
        1 << self.scale
    }

    /// How many chunks there are.
    fn chunks(&self) -> u64 {
        match self.kind {
            GraphKind::Kronecker | GraphKind::Uniform => self.edges().div_ceil(EDGES_PER_CHUNK),
            GraphKind::Grid | GraphKind::Web => self.vertices().div_ceil(VERTICES_PER_CHUNK),
        }
    }

    /// Edges of the kinds whose edges are independent.
    fn edges(&self) -> u64 {
        self.vertices() * u64::from(self.edge_factor)
    }

    fn chunk(&self, chunk: u64) -> Vec<(VertexId, VertexId)> {
        let edges = chunk * EDGES_PER_CHUNK..((chunk + 1) * EDGES_PER_CHUNK).min(self.edges());
        let vertices = chunk * VERTICES_PER_CHUNK..((chunk + 1) * VERTICES_PER_CHUNK).min(self.vertices());
        match self.kind {
            GraphKind::Kronecker => kronecker::edges(self.scale, self.seed, edges),
            GraphKind::Uniform => {
                let mask = self.vertices() - 1;
                let edge = |number| {
                    let mut stream = Stream::of(self.seed, number);
                    (stream.next() & mask, stream.next() & mask)
                };
                edges.map(edge).collect()
            }
            GraphKind::Grid => lattice::edges(self.scale, self.seed, vertices),
            GraphKind::Web => web::edges(self.scale, self.edge_factor, self.seed, vertices),
        }
    }

    fn origin(&self) -> String {
        let Self { kind, scale, edge_factor, seed, .. } = self;
        match kind {
            GraphKind::Grid => format!("grid scale={scale} seed={seed}"),
            _ => format!("{} scale={scale} edge_factor={edge_factor} seed={seed}", kind.word()),
        }
    }
}

/// Writes a graph as an edge list; the steps are chunks.
///
/// # Errors
/// [`GraphError::Io`] if the list cannot be made or written; [`GraphError::Busy`] if another process writes the same list;
/// [`GraphError::Invalid`] for a scale above [`LARGEST_SCALE`], no edges a vertex, or more than 2^60 edges;
/// [`GraphError::Interrupted`] if `steps` asks to stop.
pub fn generate(spec: &GraphSpec, path: &Path, steps: &Steps) -> Result<EdgesHeader, GraphError> {
    check(spec)?;
    let config = EdgesConfig {
        vertices: Some(spec.vertices()),
        directed: spec.kind == GraphKind::Web,
        width: IdWidth::for_vertices(spec.vertices()),
        origin: spec.origin(),
    };
    let mut writer = EdgeWriter::create(path, config)?;
    let chunks = spec.chunks();
    steps.begin(1, chunks);
    let threads = (spec.threads.max(1) as u64).min(chunks);
    std::thread::scope(|scope| {
        let waiting: Vec<Receiver<_>> = (0..threads)
            .map(|thread| {
                let (send, receive) = sync_channel(CHUNKS_WAITING);
                scope.spawn(move || {
                    let mut own = (thread..chunks).step_by(threads as usize);
                    // The writer has ended early if it takes no more chunks.
                    while own.next().is_some_and(|chunk| send.send(spec.chunk(chunk)).is_ok()) {}
                });
                receive
            })
            .collect();
        for chunk in 0..chunks {
            let edges =
                waiting[(chunk % threads) as usize].recv().expect("the thread makes all of its chunks");
            writer.extend(&edges)?;
            steps.add(1, "generating edges")?;
        }
        Ok::<(), GraphError>(())
    })?;
    writer.finish()
}

fn check(spec: &GraphSpec) -> Result<(), GraphError> {
    let invalid = |message| Err(GraphError::Invalid { message });
    if spec.scale > LARGEST_SCALE {
        return invalid(format!("scale {} is above {LARGEST_SCALE}", spec.scale));
    }
    if spec.edge_factor == 0 {
        return invalid("a graph needs at least one edge a vertex".to_owned());
    }
    if u128::from(spec.edge_factor) << spec.scale > 1 << 60 {
        let message = format!("scale {} with {} edges a vertex is too large", spec.scale, spec.edge_factor);
        return invalid(message);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
