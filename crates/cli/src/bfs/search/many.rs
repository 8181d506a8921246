//! `bfs run --sources`: up to 64 searches that share the pages they read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use external::{Space, Usage};
use graph::GraphError;
use graph::account::Account;
use graph::fetch::Traffic;
use graph::format::Fwg;
use graph::many::{self, Discoveries, MOST_SOURCES, ManyConfig, ManyRecord};
use graph::results::TreeWriter;

use super::args::RunArgs;
use super::documents::{ManyDocument, SourceDocument, TimeDocument};
use crate::failure::Failure;
use crate::output;

/// Searches; the memory is checked, and told where somebody watches, before anything is read.
pub fn run(args: &RunArgs, graph: &Fwg, list: &Path, stop: &AtomicBool) -> Result<(), Failure> {
    let sources = read(list)?;
    let config = super::config(args.memory, args.threads, args.ioengine);
    let config = ManyConfig { memory: config.memory, threads: config.threads, engine: config.engine };
    let outputs = args.output.as_deref().map(|output| outputs(output, &sources)).transpose()?;
    let plan = many::plan(graph, &config, outputs.is_some())?;
    if output::is_watched() {
        output::tell(&format!("{} of memory for {} searches\n", units::bytes(plan.bytes), sources.len()));
    }
    graph.load()?;
    let searches = Searches { args, graph, sources: &sources, config, stop };
    let (loaded, traffic) = (graph.plain_bytes_read(), Traffic::of(graph));
    let account = Account::open(graph.clock());
    let (record, trees) = match &outputs {
        Some(_) => searches.search_with_trees(&traffic)?,
        None => (many::search(graph, &searches.stored()?, &config, &traffic, stop)?, None),
    };
    let account = account.close();
    let written =
        trees.zip(outputs.as_deref()).map(|(trees, files)| searches.write(trees, files)).transpose()?;
    let usage = written.map_or_else(Usage::default, |(usage, _)| usage);
    let each = sources.iter().zip(&record.found).enumerate().map(|(at, (source, found))| SourceDocument {
        source: *source,
        reached: found.reached,
        level_count: found.level_count,
        levels: found.levels.clone(),
        distances: found.distances,
        closeness: found.closeness(),
        reached_by: found.reached_by.iter().map(|at| sources[*at]).collect(),
        output: outputs.as_ref().map(|files| files[at].clone()),
    });
    let document = ManyDocument {
        schema: "flashwright.bfs-many/1",
        graph: args.graph.clone(),
        elapsed_s: record.time.as_secs_f64(),
        budget_bytes: args.memory,
        planned_bytes: record.planned_bytes,
        peak_resident_bytes: super::peak_resident_bytes(),
        graph_bytes: graph.header().file_bytes,
        bytes_read: traffic.bytes() + graph.plain_bytes_read() - loaded,
        requests: traffic.requests(),
        scratch_bytes_read: usage.bytes_read,
        scratch_bytes_written: usage.bytes_written,
        outputs_s: written.map(|(_, time)| time.as_secs_f64()),
        time: TimeDocument::of(&account, record.threads, 0.0),
        sources: each.collect(),
    };
    if args.json { output::print_document(&document) } else { crate::bfs::print_page(&text(&document)) }
}

/// What is searched, and with what.
struct Searches<'a> {
    args: &'a RunArgs,
    graph: &'a Fwg,
    /// In the input's numbers.
    sources: &'a [u64],
    config: ManyConfig,
    stop: &'a AtomicBool,
}

impl Searches<'_> {
    /// The sources in the graph's numbers.
    fn stored(&self) -> Result<Vec<u64>, GraphError> {
        self.sources.iter().map(|source| self.graph.stored_number(*source)).collect()
    }

    fn search_with_trees(&self, traffic: &Traffic) -> Result<(ManyRecord, Option<Discoveries>), Failure> {
        super::super::check_scratch(self.args.scratch.as_deref())?;
        let folder = match &self.args.scratch {
            Some(folder) => folder.clone(),
            None => super::super::beside_graph(&self.args.graph)?,
        };
        let (graph, options) = (self.graph, many::space_options(self.config.memory));
        let most = many::most_space_bytes(graph, self.sources.len());
        let space = Space::scratch(&folder, most, &options).map_err(GraphError::from)?;
        let space = space.with_clock(graph.clock().clone());
        let stored = self.stored()?;
        let (record, found) =
            many::search_with_trees(graph, &stored, &self.config, traffic, self.stop, &space)?;
        Ok((record, Some(found)))
    }

    /// Writes what each search found to its file; what that took.
    fn write(&self, found: Discoveries, files: &[PathBuf]) -> Result<(Usage, Duration), GraphError> {
        let (begun, vertices) = (Instant::now(), self.graph.header().vertices);
        let limits = (self.config.memory, self.config.threads);
        let mut trees = found.trees(self.graph, self.sources, limits, self.stop)?;
        for (search, (source, file)) in self.sources.iter().zip(files).enumerate() {
            if self.sources[..search].contains(source) {
                continue;
            }
            let mut writer = TreeWriter::create(file, vertices, *source)?;
            super::write_tree(&mut writer, vertices, self.stop, || trees.next_of(search))?;
            writer.finish()?;
        }
        Ok((trees.usage(), begun.elapsed()))
    }
}

/// The file of each source: `NAME-VERTEX.ENDING`. None of them may be something else already.
fn outputs(output: &Path, sources: &[u64]) -> Result<Vec<PathBuf>, Failure> {
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let file_of = |source: &u64| {
        let mut name = format!("{stem}-{source}");
        if let Some(ending) = output.extension() {
            name = format!("{name}.{}", ending.to_string_lossy());
        }
        output.with_file_name(name)
    };
    let files: Vec<PathBuf> = sources.iter().map(file_of).collect();
    files.iter().try_for_each(|file| super::check_results(file))?;
    Ok(files)
}

/// The vertices of a file, one a line; empty lines and what follows a # are skipped.
fn read(list: &Path) -> Result<Vec<u64>, Failure> {
    let text = std::fs::read_to_string(list).map_err(|error| {
        Failure::invalid(format!("--sources={}: cannot be read: {error}", list.display()))
            .hint("name a file of vertices, one a line")
    })?;
    let mut sources = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let word = line.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        let vertex = word.parse().map_err(|_| {
            let line = number + 1;
            Failure::invalid(format!("--sources={}: line {line}: '{word}' is not a vertex", list.display()))
                .hint("one vertex a line")
        })?;
        sources.push(vertex);
    }
    if sources.is_empty() || sources.len() > MOST_SOURCES {
        return Err(Failure::invalid(format!(
            "--sources={}: has {} vertices",
            list.display(),
            sources.len()
        ))
        .hint(format!("1 to {MOST_SOURCES} are searched from at once")));
    }
    Ok(sources)
}

fn text(document: &ManyDocument) -> String {
    let mut text = format!(
        "{} searches in {:.3} s, {} read of a graph of {} in {} requests\nmemory     {} planned of {}\n",
        document.sources.len(),
        document.elapsed_s,
        units::bytes(document.bytes_read),
        units::bytes(document.graph_bytes),
        document.requests,
        units::bytes(document.planned_bytes),
        units::bytes(document.budget_bytes),
    );
    for source in &document.sources {
        text += &format!(
            "from {:>12}  reached {:>12}  levels {:>5}  closeness {:.4}\n",
            source.source, source.reached, source.level_count, source.closeness
        );
    }
    if let Some(time) = document.outputs_s {
        let files: BTreeSet<_> =
            document.sources.iter().filter_map(|source| source.output.as_ref()).collect();
        text += &format!(
            "outputs    {} files in {time:.3} s; scratch: {} written, {} read\n",
            files.len(),
            units::bytes(document.scratch_bytes_written),
            units::bytes(document.scratch_bytes_read),
        );
    }
    text
}
