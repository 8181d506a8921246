//! `bfs run`, `bfs validate` and `bfs bench`.

pub mod args;
mod bench;
pub mod documents;
mod external;
mod many;
mod searcher;
mod tiers;
mod validate;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use graph::account::Account;
use graph::fetch::Traffic;
use graph::format::Fwg;
use graph::results::{Results, TreeWriter};
use graph::semi::{Semi, SemiConfig, in_input_order, plan};
use measure::limit::Limit;

use self::args::{Algorithm, RunArgs, SearchCommand};
use self::documents::{BfsDocument, IoDocument, LimitDocument, MemoryDocument, StepDocument, TimeDocument};
use crate::failure::Failure;
use crate::output;
use crate::signals;

/// Share of the time from which waiting or computing limits.
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
    let config = config(args.memory, args.threads, args.ioengine);
    if let Some(output) = &args.output {
        let is_one: fn(&Path) -> bool = |path| Results::open(path).is_ok();
        super::check_new_file(output, Some(("file of results", is_one)))?;
    }
    super::check_scratch(args.scratch.as_deref())?;
    let (algorithm, reason) = choose(args.algorithm, &graph, &config);
    let job = Job {
        graph: &graph,
        source: args.source.unwrap_or_default(),
        config,
        scratch: args.scratch.clone().unwrap_or_else(|| super::beside(Path::new(&args.graph))),
        output: args.output.as_deref(),
        temporary: None,
        stop: &stop,
    };
    let document = job.search(algorithm, reason)?;
    if args.json { output::print_document(&document) } else { output::print(&text(&document)) }
}

/// One search.
struct Job<'a> {
    graph: &'a Fwg,
    /// In the input's numbers.
    source: u64,
    config: SemiConfig,
    /// Where mr and mm keep what does not fit in memory.
    scratch: PathBuf,
    /// Where results go.
    output: Option<&'a Path>,
    /// A directory to be removed if the search is interrupted.
    temporary: Option<&'a Path>,
    stop: &'a AtomicBool,
}

impl Job<'_> {
    fn search(&self, algorithm: Algorithm, reason: String) -> Result<BfsDocument, Failure> {
        match algorithm {
            Algorithm::Mr | Algorithm::Mm => external::run(self, algorithm, reason),
            Algorithm::Semi | Algorithm::Auto => semi(self, reason),
        }
    }
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

fn semi(job: &Job<'_>, reason: String) -> Result<BfsDocument, Failure> {
    let graph = job.graph;
    let stored = graph.stored_number(job.source)?;
    let (index, traffic) = (graph.index()?, Traffic::of(graph));
    let mut semi = Semi::new(graph, &index, &traffic, job.config)?;
    let loaded = graph.plain_bytes_read();
    let account = Account::open(graph.clock());
    let record = semi.search(stored, job.stop)?;
    let account = account.close();
    let plan = *semi.plan();
    let io = IoDocument {
        engine: Some(record.engine),
        graph_bytes: graph.header().file_bytes,
        bytes_loaded: loaded,
        bytes_read: traffic.bytes() + graph.plain_bytes_read() - loaded,
        requests: Some(traffic.requests()),
        repeated_pages: Some(traffic.repeated_pages()),
        scratch_bytes_read: 0,
        scratch_bytes_written: 0,
        bytes_in_theory: None,
        member_bytes: traffic.member_bytes(),
    };
    let document = BfsDocument {
        schema: "flashwright.bfs/1",
        graph: graph.path().display().to_string(),
        source: job.source,
        algorithm: "semi",
        reason,
        reached: record.reached,
        levels: record.levels.len() as u64,
        entries: record.entries,
        elapsed_s: record.time.as_secs_f64(),
        teps: edges(graph, record.entries) as f64 / record.time.as_secs_f64(),
        memory: MemoryDocument {
            budget_bytes: job.config.memory,
            planned_bytes: plan.total(),
            peak_resident_bytes: peak_resident_bytes(),
        },
        io,
        time: TimeDocument::of(&account, record.threads, 0.0),
        limit: limit(&account, record.threads),
        steps: StepDocument::all(&record),
    };
    if let Some(path) = job.output {
        // Results take the place of what the search had in memory.
        let parents = semi.into_parents();
        drop(index);
        let mut writer = TreeWriter::create(path, graph.header().vertices, job.source)?;
        in_input_order(graph, parents, plan.for_tree(graph), |found| writer.vertex(found))?;
        writer.finish()?;
    }
    Ok(document)
}

/// Edges of a component with so many neighbours in its lists.
fn edges(graph: &Fwg, entries: u64) -> u64 {
    if graph.header().directed { entries } else { entries / 2 }
}

/// What limits a search. Threads that sort do not wait for requests, so waits are looked at as one span and not by thread.
fn limit(account: &Account, threads: usize) -> LimitDocument {
    let (io, cpu) = (account.io_share(), account.cpu_share(threads));
    let waited = format!("a thread waited for requests {} of the time", units::percent(io));
    let computed = format!("{} of the threads' time was computed", units::percent(cpu.min(1.0)));
    let (limit, evidence) = if cpu >= MOSTLY {
        (Limit::LoadGenerator, computed)
    } else if io >= MOSTLY {
        (Limit::Drives, format!("{waited}, {computed}"))
    } else {
        (Limit::Unknown, format!("{waited}, {computed}, which says neither"))
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
    text += &format!(", {} to load\n", units::bytes(io.bytes_loaded));
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
        "time       {:.3} s of I/O; of all threads {:.3} s waiting, {:.3} s computing, {:.3} s idle; {:.3} s merging and \
         sorting\nlimit      {}: {}\n",
        time.io_s,
        time.io_wait_s,
        time.compute_s,
        time.idle_s,
        time.sort_s,
        document.limit.limit,
        document.limit.evidence
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
