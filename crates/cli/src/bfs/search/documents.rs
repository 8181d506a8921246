//! The documents of searches.

use schemars::JsonSchema;
use serde::Serialize;

use graph::semi::SearchRecord;

/// `bfs run --json` (`flashwright.bfs/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct BfsDocument {
    /// `flashwright.bfs/1`.
    pub schema: &'static str,
    /// The graph.
    pub graph: String,
    /// The vertex that was searched from.
    pub source: u64,
    /// `semi`, `mr` or `mm`.
    pub algorithm: &'static str,
    /// Why this one.
    pub reason: String,
    /// Vertices reached, the source included.
    pub reached: u64,
    /// Levels, the source's included.
    pub levels: u64,
    /// Neighbours in the lists of the vertices that were reached; two an edge in an undirected graph.
    pub entries: u64,
    /// Time of the search.
    pub elapsed_s: f64,
    /// Edges of the component per second: half of `entries` in an undirected graph.
    pub teps: f64,
    /// Memory.
    pub memory: MemoryDocument,
    /// Reads and writes.
    pub io: IoDocument,
    /// Where the time of all threads went.
    pub time: TimeDocument,
    /// What kept the search from being faster, as in `bench`: `drives`, `load-generator` or `unknown`.
    pub limit: LimitDocument,
    /// Level by level; empty for mr and mm.
    pub steps: Vec<StepDocument>,
}

/// Memory of a search.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MemoryDocument {
    /// What it may take, bytes.
    pub budget_bytes: u64,
    /// What it was planned to take, bytes.
    pub planned_bytes: u64,
    /// The most that the process had resident, bytes (`VmHWM`).
    pub peak_resident_bytes: Option<u64>,
}

/// Reads and writes of a search.
#[derive(Debug, Serialize, JsonSchema)]
pub struct IoDocument {
    /// The engine; null for mr and mm, which use several.
    pub engine: Option<&'static str>,
    /// Length of the graph's file, bytes.
    pub graph_bytes: u64,
    /// Bytes read from the graph.
    pub bytes_read: u64,
    /// Requests to the graph; null for mr and mm.
    pub requests: Option<u64>,
    /// Pages that were read again, each time counted; null for mr and mm.
    pub repeated_pages: Option<u64>,
    /// Bytes read from temporary space.
    pub scratch_bytes_read: u64,
    /// Bytes written to temporary space.
    pub scratch_bytes_written: u64,
    /// Bytes that the algorithm's sorts and scans come to in theory; null for semi.
    pub bytes_in_theory: Option<u64>,
    /// Bytes read from each member of a device that is made of others.
    pub member_bytes: Vec<u64>,
}

/// Time of all threads together.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TimeDocument {
    /// Waiting for requests.
    pub io_wait_s: f64,
    /// Computing, sorts not counted.
    pub compute_s: f64,
    /// Sorting and merging; 0 for semi, which sorts nothing but small fronts.
    pub sort_s: f64,
}

/// The limit and its evidence.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LimitDocument {
    /// The word.
    pub limit: &'static str,
    /// Why.
    pub evidence: String,
}

/// A level.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StepDocument {
    /// `top-down` or `bottom-up`.
    pub direction: &'static str,
    /// Vertices of the front.
    pub front: u64,
    /// Vertices found.
    pub found: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Time.
    pub elapsed_s: f64,
}

impl StepDocument {
    /// Of each level of a search.
    pub fn all(record: &SearchRecord) -> Vec<Self> {
        let step = |level: &graph::semi::LevelRecord| Self {
            direction: level.direction.word(),
            front: level.front,
            found: level.found,
            bytes_read: level.bytes,
            elapsed_s: level.time.as_secs_f64(),
        };
        record.levels.iter().map(step).collect()
    }
}

/// `bfs validate --json` (`flashwright.bfs-validate/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct ValidateDocument {
    /// `flashwright.bfs-validate/1`.
    pub schema: &'static str,
    /// Whether all five checks hold.
    pub valid: bool,
    /// The vertex that was searched from.
    pub source: u64,
    /// Vertices reached.
    pub reached: u64,
    /// Levels.
    pub levels: u32,
    /// Edges of the input that were looked at.
    pub edges: u64,
    /// Of these, edges between vertices that were reached.
    pub component_edges: u64,
    /// The first violation of each check that failed.
    pub violations: Vec<ViolationDocument>,
}

/// A check that failed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ViolationDocument {
    /// Its number, 1 to 5.
    pub check: u8,
    /// The first thing that was wrong.
    pub detail: String,
}

/// `bfs bench --json` (`flashwright.bfs-bench/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct BenchDocument {
    /// `flashwright.bfs-bench/1`.
    pub schema: &'static str,
    /// The graph.
    pub graph: String,
    /// Length of the graph's file, bytes.
    pub graph_bytes: u64,
    /// The most memory that was to be used, bytes.
    pub memory_bytes: u64,
    /// What TEPS counts: `input` edges of the component, or `stored` edges, without duplicates and self-loops.
    pub edges_counted: &'static str,
    /// Whether each search was validated.
    pub validated: bool,
    /// Harmonic mean of edges per second.
    pub harmonic_mean_teps: f64,
    /// Median time of a search.
    pub median_s: f64,
    /// Mean bytes read by a search.
    pub mean_bytes_read: f64,
    /// Each search.
    pub searches: Vec<KeyDocument>,
}

/// A search of a bench.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KeyDocument {
    /// The vertex that was searched from.
    pub source: u64,
    /// Time.
    pub elapsed_s: f64,
    /// Vertices reached.
    pub reached: u64,
    /// Edges of the component.
    pub edges: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Time of all threads waiting for requests.
    pub io_wait_s: f64,
}

/// `bfs run --sources --json` (`flashwright.bfs-many/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct ManyDocument {
    /// `flashwright.bfs-many/1`.
    pub schema: &'static str,
    /// The graph.
    pub graph: String,
    /// Time of all searches together, the index's loading included.
    pub elapsed_s: f64,
    /// Memory that they may take, bytes.
    pub budget_bytes: u64,
    /// Memory that they were planned to take, bytes.
    pub planned_bytes: u64,
    /// The most that the process had resident, bytes (`VmHWM`).
    pub peak_resident_bytes: Option<u64>,
    /// Length of the graph's file, bytes.
    pub graph_bytes: u64,
    /// Bytes read from the graph.
    pub bytes_read: u64,
    /// Requests to the graph.
    pub requests: u64,
    /// Time of all threads waiting for requests.
    pub io_wait_s: f64,
    /// What each search found, in the order of the file.
    pub sources: Vec<SourceDocument>,
}

/// One of many searches.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SourceDocument {
    /// The vertex that was searched from.
    pub source: u64,
    /// Vertices reached, the source included; the size of its component in an undirected graph.
    pub reached: u64,
    /// Vertices on each level.
    pub levels: Vec<u64>,
    /// Distances to all vertices reached, added up.
    pub distances: u64,
    /// Other vertices reached by the mean distance to them.
    pub closeness: f64,
    /// The sources from which this one is reached.
    pub reached_by: Vec<u64>,
}
