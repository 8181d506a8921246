//! `bfs bench`: searches from random vertices, one after the other, each from scratch; with `--tiers` on copies of the graph,
//! the media taking turns.

use std::path::PathBuf;

use graph::GraphError;
use graph::format::Fwg;
use graph::validate;

use super::Choice;
use super::args::{Algorithm, BenchArgs};
use super::documents::{BenchDocument, KeyDocument};
use super::searcher::{self, Searcher};
use super::tiers;
use crate::failure::Failure;
use crate::{output, signals};

/// Draws among all vertices for a key before a graph counts as one without edges.
const DRAWS: u32 = 100_000;

/// Measures.
pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    if args.keys == 0 {
        return Err(Failure::invalid("--keys=0: there is nothing to search from").hint("--keys 64"));
    }
    let stop = signals::stop_flag()?;
    let graph = Fwg::open(&args.graph)?;
    check_memory(&graph, args)?;
    let keys = keys(&graph, args)?;
    if !args.tiers.is_empty() {
        return tiers::bench(args, graph, &keys, &stop);
    }
    crate::bfs::check_scratch(args.scratch.as_deref())?;
    let choice = searcher::choose(args, &graph)?;
    let needs_directory = args.edges.is_some() || choice.algorithm != Algorithm::Semi;
    let directory = match &args.scratch {
        Some(directory) => directory.clone(),
        None if needs_directory => crate::bfs::beside_graph(&args.graph)?,
        None => PathBuf::new(),
    };
    let searcher = Searcher::new(args, choice.clone(), &directory, &stop);
    let mut searches = Vec::new();
    for key in &keys {
        searches.push(searcher.search(&graph, *key)?);
        searcher::progress(searches.len(), keys.len());
    }
    let document = document(args, &graph, choice, searches);
    if args.json { output::print_document(&document) } else { crate::bfs::print_page(&text(&document)) }
}

/// Fails if the graph's checksums, of which a copy on each medium has its own, or what validates a search beside them, take more
/// than the budget.
fn check_memory(graph: &Fwg, args: &BenchArgs) -> Result<(), GraphError> {
    let open = graph.memory_bytes() * args.tiers.len().max(1) as u64;
    let (purpose, needed) = match args.edges {
        Some(_) => {
            ("validating a search of this graph", open + validate::memory_bytes(graph.header().vertices))
        }
        None => ("the checksums of this graph", open),
    };
    if needed <= args.memory {
        return Ok(());
    }
    Err(GraphError::Memory { purpose: purpose.to_owned(), needed, budget: args.memory })
}

/// Vertices with neighbours, in the input's numbers.
fn keys(graph: &Fwg, args: &BenchArgs) -> Result<Vec<u64>, Failure> {
    let mut random = args.seed;
    (0..args.keys).map(|_| Ok(graph.input_number(draw(graph, &mut random)?)?)).collect()
}

/// A vertex with neighbours, in the file's numbers.
fn draw(graph: &Fwg, random: &mut u64) -> Result<u64, Failure> {
    let mut cursor = graph.windowed_cursor()?;
    for _ in 0..DRAWS {
        // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
        *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let vertex = (z ^ (z >> 31)) % graph.header().listed.max(1);
        if cursor.list(vertex)?.degree > 0 {
            return Ok(vertex);
        }
    }
    Err(Failure::invalid("the graph has no vertex with neighbours").hint("there is nothing to search"))
}

fn document(args: &BenchArgs, graph: &Fwg, choice: Choice, searches: Vec<KeyDocument>) -> BenchDocument {
    let mut times: Vec<f64> = searches.iter().map(|key| key.elapsed_s).collect();
    times.sort_by(f64::total_cmp);
    let bytes: u64 = searches.iter().map(|key| key.bytes_read).sum();
    BenchDocument {
        schema: "flashwright.bfs-bench/1",
        graph: args.graph.clone(),
        algorithm: choice.algorithm.word(),
        reason: choice.reason,
        graph_bytes: graph.header().file_bytes,
        memory_bytes: args.memory,
        edges_counted: if args.edges.is_some() { "input" } else { "stored" },
        validated: args.edges.is_some(),
        harmonic_mean_teps: searcher::harmonic_mean_teps(&searches),
        median_s: times[times.len() / 2],
        mean_bytes_read: bytes as f64 / searches.len() as f64,
        searches,
    }
}

fn text(document: &BenchDocument) -> String {
    let valid = if document.validated { ", each validated" } else { "" };
    format!(
        "{} searches by {} of {} ({}) within {}{valid}\nedges/s    {:.1} million, harmonic mean over {} edges\nmedian     {:.3} s a \
         search\nread       {} a search\n",
        document.searches.len(),
        document.algorithm,
        document.graph,
        units::bytes(document.graph_bytes),
        units::bytes(document.memory_bytes),
        document.harmonic_mean_teps / 1e6,
        document.edges_counted,
        document.median_s,
        units::bytes(document.mean_bytes_read as u64),
    )
}
