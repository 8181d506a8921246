//! Flags of `bfs run`, `bfs validate` and `bfs bench`.

use std::path::PathBuf;

use base::IoEngine;
use clap::{Args, Subcommand};

use crate::values::{self, BadValue};

/// The verbs that search.
#[derive(Debug, Subcommand)]
pub enum SearchCommand {
    /// Search a graph from one vertex, or from up to 64 at once
    Run(RunArgs),
    /// Check a search's results against the original edges (Graph500's five checks)
    Validate(ValidateArgs),
    /// Search from 64 random vertices and show the harmonic mean of edges per second, or compare media
    Bench(BenchArgs),
}

base::words! {
    /// How a graph can be searched.
    pub enum Algorithm {
        /// By the graph, the budget and the drive.
        Auto = "auto",
        /// Vertices in memory, edges on the drive, direction-optimizing.
        Semi = "semi",
        /// Sorting, nothing in memory but the budget (Munagala and Ranade); undirected graphs.
        Mr = "mr",
        /// The same with clusters, for graphs of large diameter (Mehlhorn and Meyer).
        Mm = "mm",
    }
}

/// The most threads that can be asked for.
const MOST_THREADS: usize = 1024;

fn threads(text: &str) -> Result<usize, BadValue> {
    match values::whole::<usize>(text)? {
        threads @ 1..=MOST_THREADS => Ok(threads),
        threads => Err(BadValue::new(
            format!("{threads} is not from 1 to {MOST_THREADS}"),
            "leave it out for one a CPU; fewer run where memory has no room for the buffers of all",
        )),
    }
}

/// `auto`, and what it tries on files and block devices.
const ENGINES: [IoEngine; 4] = [IoEngine::Auto, IoEngine::IoUring, IoEngine::Libaio, IoEngine::Psync];

fn engine(text: &str) -> Result<IoEngine, BadValue> {
    let unknown = || values::unknown_word(text, &ENGINES.map(IoEngine::word));
    ENGINES.into_iter().find(|engine| engine.word() == text).ok_or_else(unknown)
}

/// `flashwright bfs run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashwright bfs run kron.fwg --source 7 --memory 64m
  flashwright bfs run kron.fwg --source 7 --output kron.out
  flashwright bfs run kron.fwg --source 7 --output kron.parquet
  flashwright bfs run kron.fwg --sources keys.txt --memory 256m
  flashwright bfs run kron.fwg --sources keys.txt --output kron.parquet")]
pub struct RunArgs {
    /// The graph, or the device it lies on
    #[arg(value_name = "FILE.fwg")]
    pub graph: String,
    /// The vertex to search from
    #[arg(long, value_name = "N", value_parser = values::whole::<u64>, required_unless_present = "sources")]
    pub source: Option<u64>,
    /// A file of up to 64 vertices, one a line, searched from at once
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "algorithm"])]
    pub sources: Option<PathBuf>,
    /// semi (vertices in memory), mr (sorting, nothing in memory but buffers), mm (the same, for large diameters), or auto
    #[arg(long, value_name = "ALGORITHM", default_value = "auto", value_parser = values::word::<Algorithm>)]
    pub algorithm: Algorithm,
    /// The most memory to use
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = values::positive_size)]
    pub memory: u64,
    /// Threads [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// auto, io_uring, libaio or psync
    #[arg(long, value_name = "ENGINE", default_value = "auto", value_parser = engine)]
    pub ioengine: IoEngine,
    /// Where mr, mm and --sources with --output keep what does not fit in memory [default: beside the graph]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Write a parent and a level for each vertex; FILE.parquet gives a table, --sources FILE-VERTEX.out for each
    #[arg(long, value_name = "FILE.out")]
    pub output: Option<PathBuf>,
    /// Print one JSON document (flashwright.bfs/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright bfs validate`.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The graph that was searched
    #[arg(value_name = "FILE.fwg")]
    pub graph: String,
    /// The results of the search
    #[arg(value_name = "FILE.out")]
    pub results: PathBuf,
    /// The edge list that the graph was built of
    #[arg(long, value_name = "LIST")]
    pub edges: PathBuf,
    /// Print one JSON document (flashwright.bfs-validate/1)
    #[arg(long)]
    pub json: bool,
}

/// A medium of `bfs bench --tiers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierDirectory {
    /// What it is called.
    pub name: String,
    /// Where the graph's copy and temporary files go.
    pub directory: PathBuf,
}

fn tier(text: &str) -> Result<TierDirectory, BadValue> {
    match text.split_once('=') {
        Some((name, directory)) if !name.trim().is_empty() && !directory.is_empty() => {
            Ok(TierDirectory { name: name.trim().to_owned(), directory: directory.into() })
        }
        _ => Err(BadValue::new(format!("'{text}' is not NAME=DIR"), "for example flash=/nvme/tmp")),
    }
}

/// `flashwright bfs bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashwright bfs bench kron.fwg --edges kron.el
  flashwright bfs bench kron.fwg --tiers memory=/dev/shm,flash=/nvme,disk=/mnt")]
pub struct BenchArgs {
    /// The graph, or the device it lies on
    #[arg(value_name = "FILE.fwg")]
    pub graph: String,
    /// semi (vertices in memory), mr (sorting, nothing in memory but buffers), mm (the same, for large diameters), or auto
    #[arg(long, value_name = "ALGORITHM", default_value = "semi", value_parser = values::word::<Algorithm>)]
    pub algorithm: Algorithm,
    /// Media to compare, each with a copy of the graph, for example memory=/dev/shm,flash=/nvme,disk=/mnt
    #[arg(long, value_name = "NAME=DIR,…", value_delimiter = ',', value_parser = tier)]
    pub tiers: Vec<TierDirectory>,
    /// Vertices to search from, drawn from those with neighbours
    #[arg(long, value_name = "N", default_value = "64", value_parser = values::whole::<u32>)]
    pub keys: u32,
    /// Seed of the draw
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u64>)]
    pub seed: u64,
    /// The most memory to use
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = values::positive_size)]
    pub memory: u64,
    /// Threads [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// auto, io_uring, libaio or psync
    #[arg(long, value_name = "ENGINE", default_value = "auto", value_parser = engine)]
    pub ioengine: IoEngine,
    /// Where mr and mm keep what does not fit in memory, and results that are validated [default: beside the graph]
    #[arg(long, value_name = "DIR", conflicts_with = "tiers")]
    pub scratch: Option<PathBuf>,
    /// Validate every search against this edge list
    #[arg(long, value_name = "FILE.el")]
    pub edges: Option<PathBuf>,
    /// Print one JSON document (flashwright.bfs-bench/1)
    #[arg(long)]
    pub json: bool,
}
