//! `bfs run --sources`: up to 64 searches that share the pages they read.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use graph::account::Account;
use graph::fetch::Traffic;
use graph::format::Fwg;
use graph::many::{MOST_SOURCES, ManyConfig, plan, search};

use super::args::RunArgs;
use super::documents::{ManyDocument, SourceDocument, TimeDocument};
use crate::failure::Failure;
use crate::output;

/// Searches; the memory is checked, and told where somebody watches, before anything is read.
pub fn run(args: &RunArgs, graph: &Fwg, list: &Path, stop: &AtomicBool) -> Result<(), Failure> {
    let sources = read(list)?;
    let config = super::config(args.memory, args.threads, args.ioengine);
    let config = ManyConfig { memory: config.memory, threads: config.threads, engine: config.engine };
    let (planned, _) = plan(graph, &config)?;
    if output::is_watched() {
        output::tell(&format!("{} of memory for {} searches\n", units::bytes(planned), sources.len()));
    }
    let stored: Vec<u64> =
        sources.iter().map(|source| graph.stored_number(*source)).collect::<Result<_, _>>()?;
    let traffic = Traffic::of(graph);
    let (account, loaded) = (Account::open(graph.clock()), graph.plain_bytes_read());
    let record = search(graph, &stored, &config, &traffic, stop)?;
    let account = account.close();
    let each = sources.iter().zip(&record.found).map(|(source, found)| SourceDocument {
        source: *source,
        reached: found.reached(),
        levels: found.levels.clone(),
        distances: found.distances(),
        closeness: found.closeness(),
        reached_by: found.reached_by.iter().map(|at| sources[*at]).collect(),
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
        time: TimeDocument::of(&account, config.threads, 0.0),
        sources: each.collect(),
    };
    if args.json { output::print_document(&document) } else { output::print(&text(&document)) }
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
            source.source,
            source.reached,
            source.levels.len(),
            source.closeness
        );
    }
    text
}
