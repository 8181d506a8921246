//! The searches of `bfs bench`, each from scratch. Temporary files lie in one directory and have no names, so nothing of them is
//! left when the process ends, in whichever way.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use graph::format::Fwg;

use super::args::BenchArgs;
use super::documents::KeyDocument;
use super::{Choice, Job, Output, validate};
use crate::failure::Failure;
use crate::output;

/// The algorithm, and why.
pub fn choose(args: &BenchArgs, graph: &Fwg) -> Result<Choice, Failure> {
    super::choose(args.algorithm, graph, &super::config(args.memory, args.threads, args.ioengine))
}

/// Says how far it is, where somebody watches.
pub fn progress(done: usize, all: usize) {
    if output::is_watched() {
        let end = if done == all { "\n" } else { "" };
        output::tell(&format!("\r{done} of {all} searches{end}"));
    }
}

/// Searches with temporary files in one directory.
pub struct Searcher<'a> {
    args: &'a BenchArgs,
    choice: Choice,
    directory: &'a Path,
    stop: &'a AtomicBool,
}

impl<'a> Searcher<'a> {
    /// One with its temporary files in `directory`.
    pub fn new(args: &'a BenchArgs, choice: Choice, directory: &'a Path, stop: &'a AtomicBool) -> Self {
        Self { args, choice, directory, stop }
    }

    /// Searches once, from a vertex in the input's numbers, and validates what was found if there are edges to do it with.
    pub fn search(&self, graph: &Fwg, source: u64) -> Result<KeyDocument, Failure> {
        let args = self.args;
        let job = Job {
            graph,
            source,
            config: super::config(args.memory, args.threads, args.ioengine),
            scratch: self.directory.to_owned(),
            output: args.edges.as_ref().map_or(Output::Nothing, |_| Output::Unnamed(self.directory)),
            stop: self.stop,
        };
        let (found, results) = job.search(self.choice.clone())?;
        let mut edges = super::edges(graph, found.entries);
        if let (Some(list), Some(results)) = (&args.edges, &results) {
            let verdict = validate::against(results, list, graph.header(), self.stop)?;
            validate::failure(&verdict, Path::new(&format!("the search from {source}")))?;
            edges = verdict.component_edges;
        }
        Ok(KeyDocument {
            source,
            elapsed_s: found.elapsed_s,
            reached: found.reached,
            edges,
            bytes_read: found.io.bytes_read,
            scratch_bytes: found.io.scratch_bytes_read + found.io.scratch_bytes_written,
            time: found.time,
        })
    }
}

/// The mean of rates of equal work, which is the harmonic one (Graph500 specification, output).
pub fn harmonic_mean_teps(searches: &[KeyDocument]) -> f64 {
    let inverse: f64 = searches.iter().map(|key| key.elapsed_s / key.edges.max(1) as f64).sum();
    searches.len() as f64 / inverse
}
