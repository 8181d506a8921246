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
use std::sync::atomic::{AtomicBool, Ordering};

use graph::GraphError;
use graph::account::Account;
use graph::fetch::Traffic;
use graph::forecast::{self, DriveFigures};
use graph::format::Fwg;
use graph::fully_external::Reached;
use graph::results::{Results, TreeWriter, is_results_table};
use graph::semi::{Semi, SemiConfig, in_input_order, plan};
use measure::limit::Limit;

use self::args::{Algorithm, RunArgs, SearchCommand};
use self::documents::{
    BfsDocument, DriveDocument, IoDocument, LimitDocument, MemoryDocument, StepDocument, TimeDocument,
};
use crate::failure::Failure;
use crate::output;
use crate::signals;

/// Share of the time from which waiting or computing limits.
const MOSTLY: f64 = 0.6;
/// Vertices that are written between two looks at whether to stop.
const STOP_INTERVAL: u64 = 1 << 16;

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
        check_results(output)?;
    }
    super::check_scratch(args.scratch.as_deref())?;
    let choice = choose(args.algorithm, &graph, &config)?;
    let scratch = match (&args.scratch, choice.algorithm) {
        (Some(scratch), _) => scratch.clone(),
        (None, Algorithm::Mr | Algorithm::Mm) => super::beside_graph(&args.graph)?,
        (None, _) => PathBuf::new(),
    };
    let job = Job {
        graph: &graph,
        source: args.source.unwrap_or_default(),
        config,
        scratch,
        output: args.output.as_deref().map_or(Output::Nothing, Output::File),
        stop: &stop,
    };
    let (document, _) = job.search(choice)?;
    if args.json { output::print_document(&document) } else { super::print_page(&text(&document)) }
}

/// Refuses to replace what is no file of results.
fn check_results(output: &Path) -> Result<(), Failure> {
    let is_one: fn(&Path) -> bool = |path| Results::header_of(path).is_ok() || is_results_table(path);
    super::check_new_file(output, Some(("file of results", is_one)))
}

/// Where the results of a search go.
#[derive(Debug, Clone, Copy)]
enum Output<'a> {
    Nothing,
    File(&'a Path),
    /// To a file without a name in a directory.
    Unnamed(&'a Path),
}

impl Output<'_> {
    fn writer(self, vertices: u64, source: u64) -> Result<Option<TreeWriter>, GraphError> {
        match self {
            Self::Nothing => Ok(None),
            Self::File(path) => TreeWriter::create(path, vertices, source).map(Some),
            Self::Unnamed(folder) => TreeWriter::unnamed(folder, vertices, source).map(Some),
        }
    }
}

/// Writes the vertices that `next` gives in ascending order, and between them those that were not reached.
fn write_tree(
    writer: &mut TreeWriter,
    vertices: u64,
    stop: &AtomicBool,
    mut next: impl FnMut() -> Result<Option<Reached>, GraphError>,
) -> Result<(), GraphError> {
    let mut reached = next()?;
    for vertex in 0..vertices {
        if vertex.is_multiple_of(STOP_INTERVAL) && stop.load(Ordering::Relaxed) {
            return Err(GraphError::Interrupted { during: "writing results" });
        }
        match &reached {
            Some(found) if found.vertex == vertex => {
                writer.vertex(Some((found.parent, found.level as u32)))?;
                reached = next()?;
            }
            _ => writer.vertex(None)?,
        }
    }
    Ok(())
}

/// One search.
struct Job<'a> {
    graph: &'a Fwg,
    /// In the input's numbers.
    source: u64,
    config: SemiConfig,
    /// Where mr and mm keep what does not fit in memory.
    scratch: PathBuf,
    output: Output<'a>,
    stop: &'a AtomicBool,
}

/// What a search did, and its results, if they went to a file without a name.
type Found = (BfsDocument, Option<Results>);

impl Job<'_> {
    fn search(&self, choice: Choice) -> Result<Found, Failure> {
        match choice.algorithm {
            Algorithm::Mr | Algorithm::Mm => external::run(self, choice),
            Algorithm::Semi | Algorithm::Auto => semi(self, choice),
        }
    }
}

fn config(memory: u64, threads: Option<usize>, engine: base::IoEngine) -> SemiConfig {
    let threads = threads.unwrap_or_else(super::threads).max(1);
    SemiConfig { memory, threads, engine }
}

/// How a graph is searched, and why.
#[derive(Debug, Clone)]
struct Choice {
    algorithm: Algorithm,
    reason: String,
    /// The graph's drive, where that was asked.
    drive: Option<DriveFigures>,
}

impl Choice {
    fn new(algorithm: Algorithm, reason: impl Into<String>) -> Self {
        Self { algorithm, reason: reason.into(), drive: None }
    }
}

/// The algorithm. Where the vertices do not fit in memory the drive is measured, which is said.
fn choose(asked: Algorithm, graph: &Fwg, config: &SemiConfig) -> Result<Choice, Failure> {
    if asked != Algorithm::Auto {
        return Ok(Choice::new(asked, "by --algorithm"));
    }
    let header = graph.header();
    let budget = units::bytes(config.memory);
    match plan(graph, config) {
        Ok(_) => {
            return Ok(Choice::new(
                Algorithm::Semi,
                format!("{} vertices fit into {budget}", header.vertices),
            ));
        }
        Err(error) if header.directed => {
            let why = format!("the others need an undirected graph, though {error}");
            return Ok(Choice::new(Algorithm::Semi, why));
        }
        Err(_) => {}
    }
    if output::is_watched() {
        output::tell("measuring the graph's drive\n");
    }
    let drive = forecast::measure(graph)?;
    let forecast = forecast::forecast(header, config.memory, &drive);
    let algorithm = if forecast.mm_s < forecast.mr_s { Algorithm::Mm } else { Algorithm::Mr };
    let reason = format!(
        "{} vertices do not fit into {budget}; with {:.1} neighbours on average and {} at most, some {:.0} levels, on a drive of \
         {:.0} pages/s and {}/s, measured for {:.1} s, mr would take about {} and mm {}",
        header.vertices,
        forecast::mean_degree(header),
        header.max_degree,
        forecast.levels,
        drive.pages_per_s,
        units::bytes(drive.bytes_per_s as u64),
        drive.measured.as_secs_f64(),
        about(forecast.mr_s),
        about(forecast.mm_s),
    );
    Ok(Choice { algorithm, reason, drive: Some(drive) })
}

/// Seconds with one digit, as far as an estimate goes.
fn about(seconds: f64) -> String {
    if seconds < 0.05 { "less than 0.1 s".to_owned() } else { format!("{seconds:.1} s") }
}

fn semi(job: &Job<'_>, choice: Choice) -> Result<Found, Failure> {
    let graph = job.graph;
    let traffic = Traffic::of(graph);
    let mut semi = Semi::new(graph, &traffic, job.config)?;
    let stored = graph.stored_number(job.source)?;
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
        algorithm: Algorithm::Semi.word(),
        reason: choice.reason,
        drive: choice.drive.map(DriveDocument::of),
        reached: record.reached,
        levels: record.level_count,
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
    // Results take the place of what the search had in memory.
    let parents = semi.into_parents();
    let Some(mut writer) = job.output.writer(graph.header().vertices, job.source)? else {
        return Ok((document, None));
    };
    in_input_order(graph, parents, plan.for_tree(graph), job.stop, |found| writer.vertex(found))?;
    Ok((document, writer.finish()?))
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
