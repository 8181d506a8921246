//! `bfs run --algorithm mr` and `mm`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use graph::GraphError;
use graph::account::Account;
use graph::fully_external::{ExternalSearchOptions, SearchTree, mehlhorn_meyer, munagala_ranade};
use graph::results::TreeWriter;

use super::args::Algorithm;
use super::documents::{BfsDocument, DriveDocument, IoDocument, MemoryDocument, TimeDocument};
use super::{Choice, Found, Job};
use crate::failure::Failure;
use crate::signals;

/// What the program takes by itself, the kernel's memory for it included.
const PROGRAM_BYTES: u64 = 9 << 20;

/// The least for the searches' own buffers.
const LEAST_BYTES: u64 = 4 << 20;

/// Searches with everything but buffers on temporary space.
pub fn run(job: &Job<'_>, choice: Choice) -> Result<Found, Failure> {
    let (graph, header, budget) = (job.graph, job.graph.header(), job.config.memory);
    let fixed = PROGRAM_BYTES + graph.memory_bytes();
    let Some(memory) = budget.checked_sub(fixed).filter(|memory| *memory >= LEAST_BYTES) else {
        let (purpose, needed) = ("a search outside memory".to_owned(), fixed + LEAST_BYTES);
        return Err(GraphError::Memory { purpose, needed, budget }.into());
    };
    graph.load()?;
    let threads = job.config.threads;
    let options = ExternalSearchOptions::in_directory(graph, &job.scratch, memory, threads)
        .map_err(GraphError::from)?;
    let (account, loaded) = (Account::open(graph.clock()), graph.plain_bytes_read());
    let tree = unless_stopped(job, || match choice.algorithm {
        Algorithm::Mr => munagala_ranade(graph, job.source, &options),
        Algorithm::Mm => mehlhorn_meyer(graph, job.source, &options),
        Algorithm::Semi | Algorithm::Auto => unreachable!("is searched with its vertices in memory"),
    });
    let mut tree = tree?;
    let writer = drain(job, &mut tree)?;
    let account = account.close();
    let results = writer.map(TreeWriter::finish).transpose()?.flatten();
    let figures = tree.figures();
    let elapsed_s = account.elapsed.as_secs_f64();
    let lists = figures.graph_bytes_read - figures.numbers_bytes_read;
    let document = BfsDocument {
        schema: "flashwright.bfs/1",
        graph: graph.path().display().to_string(),
        source: job.source,
        algorithm: choice.algorithm.word(),
        reason: choice.reason,
        drive: choice.drive.map(DriveDocument::of),
        reached: figures.reached,
        levels: figures.levels,
        entries: figures.entries,
        elapsed_s,
        teps: super::edges(graph, figures.entries) as f64 / elapsed_s,
        memory: MemoryDocument {
            budget_bytes: budget,
            planned_bytes: budget,
            peak_resident_bytes: super::peak_resident_bytes(),
        },
        io: IoDocument {
            engine: None,
            graph_bytes: header.file_bytes,
            bytes_loaded: loaded,
            bytes_read: lists + graph.plain_bytes_read() - loaded,
            requests: None,
            repeated_pages: None,
            scratch_bytes_read: figures.space_bytes_read,
            scratch_bytes_written: figures.space_bytes_written,
            bytes_in_theory: Some(figures.bytes_in_theory),
            member_bytes: Vec::new(),
        },
        time: TimeDocument::of(&account, threads, (figures.merging + figures.finishing).as_secs_f64()),
        limit: super::limit(&account, threads),
        steps: Vec::new(),
    };
    Ok((document, results))
}

/// Runs what does not look at the flag. Its temporary files have no names, so the process may end meanwhile.
fn unless_stopped<T>(job: &Job<'_>, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if job.stop.load(Ordering::Relaxed) {
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

/// Reads the tree, which comes in the order of the input, to its end; and writes it, if that is asked for.
fn drain(job: &Job<'_>, tree: &mut SearchTree) -> Result<Option<TreeWriter>, GraphError> {
    let vertices = job.graph.header().vertices;
    let Some(mut writer) = job.output.writer(vertices, job.source)? else {
        while tree.next_reached()?.is_some() {}
        return Ok(None);
    };
    super::write_tree(&mut writer, vertices, job.stop, || tree.next_reached())?;
    Ok(Some(writer))
}
