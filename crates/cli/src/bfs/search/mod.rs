//! `bfs run`, `bfs validate` and `bfs bench`.

pub mod args;
mod bench;
pub mod documents;
mod external;
mod many;
mod validate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use graph::fetch::Traffic;
use graph::format::Fwg;
use graph::results::ResultsWriter;
use graph::semi::{SearchRecord, Semi, SemiConfig, in_input_order, plan};
use measure::limit::Limit;

use self::args::{Algorithm, RunArgs, SearchCommand};
use self::documents::{BfsDocument, IoDocument, LimitDocument, MemoryDocument, StepDocument, TimeDocument};
use crate::failure::Failure;
use crate::output::{self, Sink};
use crate::signals;

/// Share of the threads' time below or above which waiting says what limits.
const MOSTLY: f64 = 0.6;

/// Does one of the verbs.
pub fn search(command: &SearchCommand) -> Result<(), Failure> {
    match command {
        SearchCommand::Run(args) => run(args),
        SearchCommand::Validate(args) => validate::validate(args),
        SearchCommand::Bench(args) => bench::bench(args),
    }
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let graph = Fwg::open(&args.graph)?;
    if let Some(sources) = &args.sources {
        return many::run(args, &graph, sources, &stop);
    }
    let source = args.source.unwrap_or_default();
    let config = config(args.memory, args.threads, args.ioengine);
    if let Some(output) = &args.output {
        check_output(output, &args.graph)?;
    }
    let (algorithm, reason) = choose(args.algorithm, &graph, &config);
    let document = match algorithm {
        Algorithm::Mr | Algorithm::Mm => {
            external::run(args, &graph, (algorithm, reason), config.threads, &stop)?
        }
        Algorithm::Semi | Algorithm::Auto => semi(args, &graph, source, &config, reason, &stop)?,
    };
    if args.json { output::print_document(&document) } else { output::print(&text(&document)) }
}

fn config(memory: u64, threads: Option<usize>, engine: base::IoEngine) -> SemiConfig {
    let threads = threads.unwrap_or_else(super::threads).max(1);
    SemiConfig { memory, threads, engine }
}

/// The algorithm, and why.
fn choose(asked: Algorithm, graph: &Fwg, config: &SemiConfig) -> (Algorithm, String) {
    if asked != Algorithm::Auto {
        return (asked, "by --algorithm".to_owned());
    }
    let header = graph.header();
    let budget = units::bytes(config.memory);
    match plan(graph, config) {
        Ok(_) => (Algorithm::Semi, format!("{} vertices fit into {budget}", header.vertices)),
        Err(error) if header.directed => {
            (Algorithm::Semi, format!("the others need an undirected graph, though {error}"))
        }
        Err(_) => {
            let degree = header.entries as f64 / header.listed.max(1) as f64;
            // Few and even degrees make many levels, and mr reads lists level by level.
            let is_road = header.max_degree <= 16 && degree <= 4.0;
            let (algorithm, levels) = if is_road { (Algorithm::Mm, "many") } else { (Algorithm::Mr, "few") };
            let why = format!(
                "{} vertices do not fit into {budget}; {degree:.1} neighbours on average, {} at most, promise {levels} \
                 levels",
                header.vertices, header.max_degree
            );
            (algorithm, why)
        }
    }
}

/// Refuses to replace what is not a file of results.
fn check_output(output: &Path, graph: &str) -> Result<(), Failure> {
    let exists = std::fs::metadata(output).is_ok_and(|facts| facts.len() > 0);
    if exists && graph::results::Results::open(output).is_ok() {
        return Ok(());
    }
    Sink::of(Some(output), false)?.is_none_of([Path::new(graph)])
}

fn semi(
    args: &RunArgs,
    graph: &Fwg,
    source: u64,
    config: &SemiConfig,
    reason: String,
    stop: &Arc<AtomicBool>,
) -> Result<BfsDocument, Failure> {
    let stored = graph.stored_number(source)?;
    let (index, traffic) = (graph.index()?, Traffic::of(graph));
    let mut semi = Semi::new(graph, &index, &traffic, *config)?;
    let record = semi.search(stored, stop)?;
    let plan = *semi.plan();
    let document = semi_document(args, graph, (source, reason), &record, &traffic, plan.total());
    if let Some(path) = &args.output {
        // Results take the place of what the search had in memory.
        let parents = semi.into_parents();
        drop(index);
        let mut writer = ResultsWriter::create(path, graph.header().vertices, source)?;
        in_input_order(graph, parents, plan.for_tree(graph), |found| writer.vertex(found))?;
        writer.finish()?;
    }
    Ok(document)
}

fn semi_document(
    args: &RunArgs,
    graph: &Fwg,
    (source, reason): (u64, String),
    record: &SearchRecord,
    traffic: &Traffic,
    planned_bytes: u64,
) -> BfsDocument {
    let header = graph.header();
    let all = record.time.as_secs_f64() * record.threads as f64;
    let wait = traffic.wait().as_secs_f64().min(all);
    BfsDocument {
        schema: "flashwright.bfs/1",
        graph: args.graph.clone(),
        source,
        algorithm: "semi",
        reason,
        reached: record.reached,
        levels: record.levels.len() as u64,
        entries: record.entries,
        elapsed_s: record.time.as_secs_f64(),
        teps: edges(graph, record.entries) as f64 / record.time.as_secs_f64(),
        memory: MemoryDocument {
            budget_bytes: args.memory,
            planned_bytes,
            peak_resident_bytes: peak_resident_bytes(),
        },
        io: IoDocument {
            engine: Some(record.engine),
            graph_bytes: header.file_bytes,
            bytes_read: traffic.bytes(),
            requests: Some(traffic.requests()),
            repeated_pages: Some(traffic.repeated_pages()),
            scratch_bytes_read: 0,
            scratch_bytes_written: 0,
            bytes_in_theory: None,
            member_bytes: traffic.member_bytes(),
        },
        time: TimeDocument { io_wait_s: wait, compute_s: all - wait, sort_s: 0.0 },
        limit: limit(wait, all),
        steps: StepDocument::all(record),
    }
}

/// Edges of a component with so many neighbours in its lists.
fn edges(graph: &Fwg, entries: u64) -> u64 {
    if graph.header().directed { entries } else { entries / 2 }
}

/// What limits a search whose threads waited for so much of their time.
fn limit(wait: f64, all: f64) -> LimitDocument {
    let share = if all > 0.0 { wait / all } else { 0.0 };
    let (limit, evidence) = if share >= MOSTLY {
        (Limit::Drives, format!("threads waited {} of their time for requests", units::percent(share)))
    } else if share <= 1.0 - MOSTLY {
        (Limit::LoadGenerator, format!("threads computed {} of their time", units::percent(1.0 - share)))
    } else {
        (
            Limit::Unknown,
            format!("threads waited {} of their time, which says neither", units::percent(share)),
        )
    };
    LimitDocument { limit: limit.word(), evidence }
}

/// The most that this process had resident (proc(5), `VmHWM`).
fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// The page for a person.
fn text(document: &BfsDocument) -> String {
    let BfsDocument { io, time, memory, .. } = document;
    let mut text = format!(
        "{} from {}: {} vertices on {} levels in {:.3} s, {:.1} million edges/s\nchosen     {}\n",
        document.algorithm,
        document.source,
        document.reached,
        document.levels,
        document.elapsed_s,
        document.teps / 1e6,
        document.reason,
    );
    text +=
        &format!("read       {} of a graph of {}", units::bytes(io.bytes_read), units::bytes(io.graph_bytes));
    if let (Some(requests), Some(pages)) = (io.requests, io.repeated_pages) {
        text += &format!(" in {requests} requests, {pages} pages more than once");
    }
    text.push('\n');
    if let Some(theory) = io.bytes_in_theory {
        let (read, written) = (io.scratch_bytes_read, io.scratch_bytes_written);
        text += &format!(
            "scratch    {} written, {} read; with the graph {} of what sorts and scans come to\n",
            units::bytes(written),
            units::bytes(read),
            units::percent((io.bytes_read + read + written) as f64 / theory.max(1) as f64),
        );
    }
    text += &format!(
        "time       {:.3} s waiting, {:.3} s computing, {:.3} s sorting, of all threads\nlimit      {}: {}\n",
        time.io_wait_s, time.compute_s, time.sort_s, document.limit.limit, document.limit.evidence
    );
    let peak =
        memory.peak_resident_bytes.map_or_else(String::new, |b| format!(", {} resident", units::bytes(b)));
    text += &format!(
        "memory     {} planned of {}{peak}\n",
        units::bytes(memory.planned_bytes),
        units::bytes(memory.budget_bytes)
    );
    // Thousands of levels say nothing one by one.
    if document.steps.len() <= 32 {
        for (level, step) in document.steps.iter().enumerate() {
            text += &format!(
                "level {level:<4} {:<9} front {:>10}  found {:>10}  read {:>9}  {:.3} s\n",
                step.direction,
                step.front,
                step.found,
                units::bytes(step.bytes_read),
                step.elapsed_s
            );
        }
    }
    text
}

/// The directory of a graph, where its temporary files go.
fn beside(graph: &str) -> PathBuf {
    let folder = Path::new(graph).parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}
