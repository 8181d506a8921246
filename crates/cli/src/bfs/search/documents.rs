//! The documents of searches.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use graph::account::Account;
use graph::forecast::DriveFigures;
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
    /// The graph's drive, if `auto` measured it.
    pub drive: Option<DriveDocument>,
    /// Vertices reached, the source included.
    pub reached: u64,
    /// Levels, the source's included.
    pub levels: u64,
    /// Neighbours in the lists of the vertices that were reached; two an edge in an undirected graph.
    pub entries: u64,
    /// Time of the search; of mr and mm with the last merge of the result, which is written meanwhile if it is asked for.
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
    /// Level by level, the first 4096 at most; empty for mr and mm.
    pub steps: Vec<StepDocument>,
}

/// What a drive does, measured for a moment.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DriveDocument {
    /// Pages of 4 KiB at random places that were read a second.
    pub pages_per_s: f64,
    /// Bytes that were read in large requests a second.
    pub bytes_per_s: f64,
    /// How long that was measured.
    pub measured_s: f64,
}

impl DriveDocument {
    /// Of a measurement.
    pub fn of(drive: DriveFigures) -> Self {
        let DriveFigures { pages_per_s, bytes_per_s, measured } = drive;
        Self { pages_per_s, bytes_per_s, measured_s: measured.as_secs_f64() }
    }
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
    /// Bytes read from the graph before the search: header, checksums, index.
    pub bytes_loaded: u64,
    /// Bytes read from the graph by the search.
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

/// Where the time of a search went; the same account for all algorithms. Times overlap: one thread waits while another
/// computes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TimeDocument {
    /// I/O time: at least one thread waited for requests, to the graph or to temporary space.
    pub io_s: f64,
    /// Waiting for requests, of all threads together.
    pub io_wait_s: f64,
    /// CPU time of all threads together.
    pub compute_s: f64,
    /// Of `--threads` times the elapsed time, what was neither computed nor waited for requests.
    pub idle_s: f64,
    /// Of the elapsed time, merging levels and sorting the result; 0 for semi, which sorts nothing but small fronts.
    pub sort_s: f64,
}

impl TimeDocument {
    /// Of an account.
    pub fn of(account: &Account, threads: usize, sort_s: f64) -> Self {
        Self {
            io_s: account.waited.span.as_secs_f64(),
            io_wait_s: account.waited.sum.as_secs_f64(),
            compute_s: account.cpu.as_secs_f64(),
            idle_s: account.idle(threads).as_secs_f64(),
            sort_s,
        }
    }
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
    /// `semi`, `mr` or `mm`.
    pub algorithm: &'static str,
    /// Why this one.
    pub reason: String,
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
    /// Bytes read from the graph.
    pub bytes_read: u64,
    /// Bytes read from and written to temporary space.
    pub scratch_bytes: u64,
    /// Where its time went.
    pub time: TimeDocument,
}

/// `bfs bench --tiers --json` (`flashwright.bfs-tiers/1`): Table 9 of the DASH paper.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TiersDocument {
    /// `flashwright.bfs-tiers/1`.
    pub schema: &'static str,
    /// The graph that was copied.
    pub graph: String,
    /// `semi`, `mr` or `mm`.
    pub algorithm: &'static str,
    /// Why this one.
    pub reason: String,
    /// Length of the graph's file, bytes.
    pub graph_bytes: u64,
    /// The most memory that was to be used, bytes.
    pub memory_bytes: u64,
    /// What TEPS counts: `input` edges of the component, or `stored` edges, without duplicates and self-loops.
    pub edges_counted: &'static str,
    /// Whether each search was validated.
    pub validated: bool,
    /// The media, in the order of `--tiers`.
    pub tiers: Vec<TierDocument>,
}

/// Searches on one medium.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TierDocument {
    /// Its name, as `--tiers` gave it.
    pub name: String,
    /// Where copy and temporary space were.
    pub directory: PathBuf,
    /// What the directory stands on: its file system, and the drive nearest to it.
    pub stands_on: String,
    /// Whether reads went past the page cache, or the directory is memory.
    pub direct: bool,
    /// I/O time of all searches together.
    pub io_s: f64,
    /// Run time of all searches together.
    pub run_s: f64,
    /// The I/O time of the medium with the most, by this one's; null if this one waited for nothing.
    pub io_speedup: Option<f64>,
    /// The least and the most of the same for single keys: how far it scatters.
    pub io_speedup_range: Option<[f64; 2]>,
    /// The run time of that same medium by this one's.
    pub run_speedup: f64,
    /// The least and the most of the same for single keys.
    pub run_speedup_range: Option<[f64; 2]>,
    /// Harmonic mean of edges per second.
    pub harmonic_mean_teps: f64,
    /// Each search.
    pub searches: Vec<KeyDocument>,
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
    /// Bytes read from the graph, its index included.
    pub bytes_read: u64,
    /// Requests to the graph's lists and heads.
    pub requests: u64,
    /// Bytes read from temporary space, for the outputs.
    pub scratch_bytes_read: u64,
    /// Bytes written to temporary space, for the outputs.
    pub scratch_bytes_written: u64,
    /// Time that sorting and writing the outputs took after the searches; null without outputs.
    pub outputs_s: Option<f64>,
    /// Where the time went.
    pub time: TimeDocument,
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
    /// Levels, the source's included.
    pub level_count: u64,
    /// Vertices on each of the first levels, 1024 at most.
    pub levels: Vec<u64>,
    /// Distances to all vertices reached, added up.
    pub distances: u64,
    /// Other vertices reached, divided by the sum of the distances to them.
    pub closeness: f64,
    /// The sources from which this one is reached.
    pub reached_by: Vec<u64>,
    /// Its parents and levels, if they were asked for.
    pub output: Option<PathBuf>,
}
