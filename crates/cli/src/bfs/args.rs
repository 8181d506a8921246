//! Flags of `flashwright bfs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use graph::format::{MOST_HEADS, Order};
use graph::generate::{GraphKind, LARGEST_SCALE};
use graph::import::InputFormat;

use super::search::args::SearchCommand;
use crate::values::{self, BadValue};

/// `flashwright bfs`.
#[derive(Debug, Args)]
#[command(after_help = "\
An edge list (.el) is generated or imported, a graph (.fwg) is built from it \
within a budget of memory, and searched.

Examples:
  flashwright bfs generate --scale 22 --output kron.el
  flashwright bfs import soc-LiveJournal1.txt.gz --output lj.el
  flashwright bfs build kron.el --output kron.fwg --memory 64m
  flashwright bfs build kron.el --output volume:/dev/nvme0n1,/dev/nvme1n1
  flashwright bfs run kron.fwg --source 7 --memory 64m --output kron.out
  flashwright bfs validate kron.fwg kron.out --edges kron.el
  flashwright bfs bench kron.fwg --edges kron.el
  flashwright bfs info kron.fwg")]
pub struct BfsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BfsCommand,
}

/// The verbs below `bfs`.
#[derive(Debug, Subcommand)]
pub enum BfsCommand {
    /// Make an edge list: Kronecker (Graph500), uniform, road-like or web-like
    Generate(GenerateArgs),
    /// Make an edge list of SNAP text, Matrix Market, GAP, Parquet or raw pairs
    Import(ImportArgs),
    /// Build a graph of an edge list
    Build(BuildArgs),
    /// Write a graph for the programs of the GAP Benchmark Suite (.sg)
    Export(ExportArgs),
    /// Show what an edge list or a graph is
    Info(InfoArgs),
    #[command(flatten)]
    Search(SearchCommand),
}

/// `flashwright bfs generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// 2^N vertices
    #[arg(long, value_name = "N", value_parser = scale)]
    pub scale: u32,
    /// kronecker, uniform, grid (road-like, large diameter) or web (directed)
    #[arg(long, value_name = "KIND", default_value = "kronecker", value_parser = values::word::<GraphKind>)]
    pub kind: GraphKind,
    /// Edges a vertex; grid has its own [default: 16]
    #[arg(long, value_name = "N", value_parser = edge_factor)]
    pub edge_factor: Option<u32>,
    /// Seed: the same one gives the same edges
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u64>)]
    pub seed: u64,
    /// The edge list
    #[arg(long, value_name = "FILE.el")]
    pub output: PathBuf,
    /// Print one JSON document (flashwright.edges/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright bfs import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file, which may be compressed by gzip or zstd
    #[arg(value_name = "FILE")]
    pub input: PathBuf,
    /// The edge list
    #[arg(long, value_name = "FILE.el")]
    pub output: PathBuf,
    /// snap, matrix-market, gap, parquet, raw32 or raw64 [default: told by the first bytes; raw pairs are not]
    #[arg(long, value_name = "FORMAT", value_parser = values::word::<InputFormat>)]
    pub format: Option<InputFormat>,
    /// Edges have a direction [default: as the input says, else not]
    #[arg(long, conflicts_with = "undirected")]
    pub directed: bool,
    /// Edges have no direction
    #[arg(long)]
    pub undirected: bool,
    /// Vertices are 0 to N − 1 [default: as the input says, else the largest one that has an edge is the last]
    #[arg(long, value_name = "N", value_parser = values::whole::<u64>)]
    pub vertices: Option<u64>,
    /// Print one JSON document (flashwright.edges/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright bfs build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The edge list
    #[arg(value_name = "FILE.el")]
    pub edges: PathBuf,
    /// The graph, or the device it is built on: a drive, stripe(chunk=64k):SPEC,… or volume:SPEC,…
    #[arg(long, value_name = "FILE.fwg|SPEC")]
    pub output: PathBuf,
    /// A member of the device whose contents may be lost
    #[arg(long, value_name = "DEV")]
    pub destroy: Vec<PathBuf>,
    /// The most memory to use; at least 32m
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = values::positive_size)]
    pub memory: u64,
    /// degree (hubs first), given (as in the input), or auto: given if neighbours have close numbers, as on roads
    #[arg(long, value_name = "ORDER", default_value = "auto", value_parser = order)]
    pub order: OrderChoice,
    /// Neighbours of each vertex that are stored apart as well, for steps that go bottom-up
    #[arg(long, value_name = "N", default_value = "1", value_parser = heads)]
    pub heads: u32,
    /// Follow edges in their direction only [default: as the edge list says]
    #[arg(long, conflicts_with = "undirected")]
    pub directed: bool,
    /// Follow edges in both directions
    #[arg(long)]
    pub undirected: bool,
    /// Keep edges that occur several times as often as they occur
    #[arg(long)]
    pub keep_duplicates: bool,
    /// Keep edges from a vertex to itself
    #[arg(long)]
    pub keep_self_loops: bool,
    /// Where the sorts have their scratch file [default: beside the graph; beside the edge list if the graph is no file]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Print one JSON document (flashwright.graph/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright bfs export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The graph, or the device it lies on
    #[arg(value_name = "FILE.fwg")]
    pub graph: String,
    /// The export
    #[arg(long, value_name = "FILE.sg")]
    pub output: PathBuf,
    /// The most memory to use
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = values::positive_size)]
    pub memory: u64,
    /// Where the sort's scratch file goes [default: beside the export]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Print one JSON document (flashwright.bfs-export/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright bfs info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// An edge list or a graph, or the device that a graph lies on
    #[arg(value_name = "FILE|SPEC")]
    pub file: PathBuf,
    /// Print one JSON document (flashwright.edges/1 or flashwright.graph/1)
    #[arg(long)]
    pub json: bool,
}

/// How vertices are numbered; None if the arcs are to decide.
#[derive(Debug, Clone, Copy)]
pub struct OrderChoice(pub Option<Order>);

fn order(text: &str) -> Result<OrderChoice, BadValue> {
    let choices = [None, Some(Order::Degree), Some(Order::Given)];
    let word = |choice: Option<Order>| choice.map_or("auto", Order::word);
    let unknown = || values::unknown_word(text, &choices.map(word));
    choices.into_iter().find(|choice| word(*choice) == text).map(OrderChoice).ok_or_else(unknown)
}

fn scale(text: &str) -> Result<u32, BadValue> {
    match values::whole(text)? {
        scale @ 0..=LARGEST_SCALE => Ok(scale),
        scale => Err(BadValue::new(
            format!("{scale} is above {LARGEST_SCALE}"),
            "2^N vertices are made: 22 is four million",
        )),
    }
}

fn edge_factor(text: &str) -> Result<u32, BadValue> {
    match values::whole(text)? {
        0 => Err(BadValue::new("0 makes no edges".to_owned(), "Graph500 has 16")),
        edges => Ok(edges),
    }
}

/// More than a page of heads a vertex would be a second copy of the graph.
fn heads(text: &str) -> Result<u32, BadValue> {
    match values::whole(text)? {
        heads @ 0..=MOST_HEADS => Ok(heads),
        heads => {
            Err(BadValue::new(format!("{heads} is above {MOST_HEADS}"), "1 to 4 heads answer most questions"))
        }
    }
}
