//! `bfs run --algorithm mr` and `mm`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use graph::GraphError;
use graph::format::Fwg;
use graph::fully_external::{ExternalSearchOptions, SearchTree, mehlhorn_meyer, munagala_ranade};
use graph::results::ResultsWriter;

use super::args::{Algorithm, RunArgs};
use super::documents::{BfsDocument, IoDocument, MemoryDocument, TimeDocument};
use crate::failure::Failure;
use crate::signals;

/// What the program takes by itself.
const PROGRAM_BYTES: u64 = 8 << 20;

/// Searches with everything but buffers on temporary space.
pub fn run(
    args: &RunArgs,
    graph: &Fwg,
    (algorithm, reason): (Algorithm, String),
    threads: usize,
    stop: &AtomicBool,
) -> Result<BfsDocument, Failure> {
    let header = graph.header();
    let fixed = PROGRAM_BYTES + graph.memory_bytes();
    let Some(memory) = args.memory.checked_sub(fixed).filter(|memory| *memory > 0) else {
        let (purpose, needed) = ("a search outside memory".to_owned(), fixed + (4 << 20));
        return Err(GraphError::Memory { purpose, needed, budget: args.memory }.into());
    };
    let folder = args.scratch.clone().unwrap_or_else(|| super::beside(&args.graph));
    // Pairs of each list entry, twice while they are merged, the tree, and the clusters of mm, 24 bytes each at most.
    let bytes = ((header.entries * 4 + header.vertices * 4) * 24).next_multiple_of(1 << 20) + (64 << 20);
    let options = ExternalSearchOptions::space_options(memory);
    let space = external::Space::scratch(&folder, bytes, &options).map_err(GraphError::from)?;
    let options = ExternalSearchOptions { memory, threads, space };
    let source = args.source.unwrap_or_default();
    let began = Instant::now();
    let (word, tree) = unless_stopped(stop, || match algorithm {
        Algorithm::Mm => ("mm", mehlhorn_meyer(graph, source, &options)),
        _ => ("mr", munagala_ranade(graph, source, &options)),
    });
    let mut tree = tree?;
    let elapsed_s = began.elapsed().as_secs_f64();
    write(args, graph, source, &mut tree)?;
    let figures = tree.figures();
    let sort_s = (figures.merging + figures.finishing).as_secs_f64();
    let wait = (figures.waited_for_graph + figures.waited_for_space).as_secs_f64();
    let all = elapsed_s * threads as f64;
    Ok(BfsDocument {
        schema: "flashwright.bfs/1",
        graph: args.graph.clone(),
        source,
        algorithm: word,
        reason,
        reached: figures.reached,
        levels: figures.levels,
        entries: figures.entries,
        elapsed_s,
        teps: super::edges(graph, figures.entries) as f64 / elapsed_s,
        memory: MemoryDocument {
            budget_bytes: args.memory,
            planned_bytes: args.memory,
            peak_resident_bytes: super::peak_resident_bytes(),
        },
        io: IoDocument {
            engine: None,
            graph_bytes: header.file_bytes,
            bytes_read: figures.graph_bytes_read,
            requests: None,
            repeated_pages: None,
            scratch_bytes_read: figures.space_bytes_read,
            scratch_bytes_written: figures.space_bytes_written,
            bytes_in_theory: Some(figures.bytes_in_theory),
            member_bytes: Vec::new(),
        },
        time: TimeDocument { io_wait_s: wait, compute_s: (elapsed_s - sort_s).max(0.0), sort_s },
        limit: super::limit(wait.min(all), all),
        steps: Vec::new(),
    })
}

/// Runs what does not look at the flag. It leaves only a scratch file without a name, so the process may end meanwhile.
fn unless_stopped<T>(stop: &AtomicBool, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    let _ = Failure::interrupted("interrupted; nothing was kept").report();
                    std::process::exit(signals::INTERRUPTED);
                }
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        result
    })
}

/// Writes the tree, which comes in the order of the input, or reads it to its end.
fn write(args: &RunArgs, graph: &Fwg, source: u64, tree: &mut SearchTree) -> Result<(), GraphError> {
    let Some(path) = &args.output else {
        while tree.next_reached()?.is_some() {}
        return Ok(());
    };
    let vertices = graph.header().vertices;
    let mut writer = ResultsWriter::create(path, vertices, source)?;
    let mut reached = tree.next_reached()?;
    for vertex in 0..vertices {
        match &reached {
            Some(found) if found.vertex == vertex => {
                writer.vertex(Some((found.parent, found.level as u32)))?;
                reached = tree.next_reached()?;
            }
            _ => writer.vertex(None)?,
        }
    }
    writer.finish().map(drop)
}
