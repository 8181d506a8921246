//! `bfs bench`: searches from random vertices, one after the other, each from scratch.

use std::path::Path;

use graph::GraphError;
use graph::fetch::Traffic;
use graph::format::{Fwg, Index};
use graph::results::{Results, ResultsWriter};
use graph::semi::{Semi, SemiConfig, in_input_order};

use super::args::BenchArgs;
use super::documents::{BenchDocument, KeyDocument};
use super::validate;
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
    let index = graph.index()?;
    let config = super::config(args.memory, args.threads, args.ioengine);
    if let Some(needed) = args.edges.as_ref().map(|_| graph::validate::memory_bytes(graph.header().vertices))
        && needed > args.memory
    {
        let (purpose, budget) = ("validating a search of this graph".to_owned(), args.memory);
        return Err(GraphError::Memory { purpose, needed, budget }.into());
    }
    let folder = tempfile::Builder::new()
        .prefix(".bfs-bench.")
        .tempdir_in(super::beside(&args.graph))
        .map_err(|error| Failure::io(&super::beside(&args.graph), "make a directory in it", &error))?;
    let mut random = args.seed;
    let mut searches = Vec::new();
    for done in 0..args.keys {
        let key = draw(&graph, &index, &mut random)?;
        let results = args.edges.as_deref().map(|edges| (edges, folder.path().join("key.out")));
        searches.push(search(&graph, &index, key, &config, results, &stop)?);
        if output::is_watched() {
            output::tell(&format!("\r{} of {} searches", done + 1, args.keys));
        }
    }
    if output::is_watched() {
        output::tell("\n");
    }
    let document = document(args, &graph, searches);
    if args.json { output::print_document(&document) } else { output::print(&text(&document)) }
}

/// A vertex with neighbours, in the file's numbers.
fn draw(graph: &Fwg, index: &Index, random: &mut u64) -> Result<u64, Failure> {
    let mut cursor = index.cursor();
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

fn search(
    graph: &Fwg,
    index: &Index,
    key: u64,
    config: &SemiConfig,
    results: Option<(&Path, std::path::PathBuf)>,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<KeyDocument, Failure> {
    let traffic = Traffic::of(graph);
    let mut semi = Semi::new(graph, index, &traffic, *config)?;
    let record = semi.search(key, stop)?;
    let source = graph.input_number(key)?;
    let mut edges = super::edges(graph, record.entries);
    if let Some((list, path)) = results {
        let memory = semi.plan().for_tree(graph);
        let mut writer = ResultsWriter::create(&path, graph.header().vertices, source)?;
        in_input_order(graph, semi.into_parents(), memory, |found| writer.vertex(found))?;
        writer.finish()?;
        let verdict = validate::against(&Results::open(&path)?, list, graph.header())?;
        validate::failure(&verdict, Path::new(&format!("the search from {source}")))?;
        edges = verdict.component_edges;
    }
    Ok(KeyDocument {
        source,
        elapsed_s: record.time.as_secs_f64(),
        reached: record.reached,
        edges,
        bytes_read: traffic.bytes(),
        io_wait_s: traffic.wait().as_secs_f64(),
    })
}

fn document(args: &BenchArgs, graph: &Fwg, searches: Vec<KeyDocument>) -> BenchDocument {
    let count = searches.len() as f64;
    // The mean of rates of equal work is the harmonic one (Graph500 specification, output).
    let inverse: f64 = searches.iter().map(|key| key.elapsed_s / key.edges.max(1) as f64).sum();
    let mut times: Vec<f64> = searches.iter().map(|key| key.elapsed_s).collect();
    times.sort_by(f64::total_cmp);
    let bytes: u64 = searches.iter().map(|key| key.bytes_read).sum();
    BenchDocument {
        schema: "flashwright.bfs-bench/1",
        graph: args.graph.clone(),
        graph_bytes: graph.header().file_bytes,
        memory_bytes: args.memory,
        edges_counted: if args.edges.is_some() { "input" } else { "stored" },
        validated: args.edges.is_some(),
        harmonic_mean_teps: count / inverse,
        median_s: times[times.len() / 2],
        mean_bytes_read: bytes as f64 / count,
        searches,
    }
}

fn text(document: &BenchDocument) -> String {
    let valid = if document.validated { ", each validated" } else { "" };
    format!(
        "{} searches of {} ({}) within {}{valid}\nedges/s    {:.1} million, harmonic mean over {} edges\nmedian     {:.3} s a \
         search\nread       {} a search\n",
        document.searches.len(),
        document.graph,
        units::bytes(document.graph_bytes),
        units::bytes(document.memory_bytes),
        document.harmonic_mean_teps / 1e6,
        document.edges_counted,
        document.median_s,
        units::bytes(document.mean_bytes_read as u64),
    )
}
