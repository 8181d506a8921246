//! The documents of `flashwright bfs` about files.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use graph::build::Built;
use graph::edges::EdgesHeader;
use graph::format::{Header, SectionKind};

/// `bfs generate --json`, `bfs import --json`, and `bfs info --json` of an edge list (`flashwright.edges/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct EdgesDocument {
    /// `flashwright.edges/1`.
    pub schema: &'static str,
    /// The edge list.
    pub path: PathBuf,
    /// Vertices are 0 to this number − 1.
    pub vertices: u64,
    /// Pairs in the list.
    pub edges: u64,
    /// Whether pairs have a direction.
    pub directed: bool,
    /// Bytes of a vertex in the file.
    pub vertex_bytes: usize,
    /// Length of the file, bytes.
    pub file_bytes: u64,
    /// The generator with its parameters, or the format and name of the imported file.
    pub origin: String,
    /// Time that it took to make; null in `info`.
    pub elapsed_s: Option<f64>,
}

impl EdgesDocument {
    /// Of a list.
    pub fn of(path: &Path, header: &EdgesHeader, elapsed_s: Option<f64>) -> Self {
        Self {
            schema: "flashwright.edges/1",
            path: path.to_owned(),
            vertices: header.vertices,
            edges: header.edges,
            directed: header.directed,
            vertex_bytes: header.width.bytes(),
            file_bytes: header.file_bytes(),
            origin: header.origin.clone(),
            elapsed_s,
        }
    }
}

/// `bfs build --json`, and `bfs info --json` of a graph (`flashwright.graph/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct GraphDocument {
    /// `flashwright.graph/1`.
    pub schema: &'static str,
    /// The graph.
    pub path: PathBuf,
    /// Vertices, those without neighbours included.
    pub vertices: u64,
    /// Entries of all adjacency lists; two an edge where edges have no direction.
    pub entries: u64,
    /// Edges of the input, before duplicates and self-loops were dropped.
    pub input_edges: u64,
    /// The length of the longest list.
    pub max_degree: u64,
    /// Whether edges are followed in their direction only.
    pub directed: bool,
    /// `degree` or `given`.
    pub order: &'static str,
    /// Bytes of a vertex in the file.
    pub vertex_bytes: usize,
    /// Neighbours of each vertex that are stored apart as well.
    pub heads: u32,
    /// Length of the file, bytes.
    pub file_bytes: u64,
    /// Its parts.
    pub sections: Vec<SectionDocument>,
    /// How it was built; null in `info`.
    pub build: Option<BuildDocument>,
}

/// `bfs export --json` (`flashwright.bfs-export/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct ExportDocument {
    /// `flashwright.bfs-export/1`.
    pub schema: &'static str,
    /// The export.
    pub path: PathBuf,
    /// The graph.
    pub graph: String,
    /// Vertices.
    pub vertices: u64,
    /// Entries of all lists; of a directed graph those of outgoing edges.
    pub entries: u64,
    /// Whether edges have a direction.
    pub directed: bool,
    /// Length of the file, bytes.
    pub file_bytes: u64,
    /// Time that it took.
    pub elapsed_s: f64,
}

/// A part of a graph.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SectionDocument {
    /// Its name.
    pub name: &'static str,
    /// Where it begins, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub bytes: u64,
}

/// How a graph was built.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BuildDocument {
    /// Time that it took.
    pub elapsed_s: f64,
    /// The budget of memory, bytes.
    pub memory_bytes: u64,
    /// Whether it went on from the sorted arcs of an earlier build.
    pub resumed: bool,
    /// Arcs that were sorted first, one or two an edge, before duplicates were dropped; null after a resumption.
    pub arcs_sorted: Option<u64>,
    /// Whether new numbers were looked up in memory; null in the given order.
    pub numbers_in_memory: Option<bool>,
    /// Bytes that the sorts read from scratch space.
    pub scratch_bytes_read: u64,
    /// Bytes that the sorts wrote to scratch space.
    pub scratch_bytes_written: u64,
}

impl GraphDocument {
    /// Of a graph.
    pub fn of(path: &Path, header: &Header, build: Option<BuildDocument>) -> Self {
        let section = |kind: &SectionKind| {
            let section = header.section(*kind);
            SectionDocument { name: kind.word(), offset: section.offset, bytes: section.length }
        };
        Self {
            schema: "flashwright.graph/1",
            path: path.to_owned(),
            vertices: header.vertices,
            entries: header.entries,
            input_edges: header.input_edges,
            max_degree: header.max_degree,
            directed: header.directed,
            order: header.order.word(),
            vertex_bytes: header.width.bytes(),
            heads: header.heads,
            file_bytes: header.file_bytes,
            sections: SectionKind::ALL.iter().map(section).filter(|section| section.bytes > 0).collect(),
            build,
        }
    }
}

impl BuildDocument {
    /// Of a build.
    pub fn of(built: &Built, memory_bytes: u64, elapsed_s: f64) -> Self {
        Self {
            elapsed_s,
            memory_bytes,
            resumed: built.resumed,
            arcs_sorted: built.arcs_sorted,
            numbers_in_memory: built.array_in_memory,
            scratch_bytes_read: built.scratch.bytes_read,
            scratch_bytes_written: built.scratch.bytes_written,
        }
    }
}
