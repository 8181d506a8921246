//! The searches of `bfs bench`, each from scratch, with temporary files in one directory.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use graph::format::Fwg;
use graph::results::Results;

use super::args::{Algorithm, BenchArgs};
use super::documents::KeyDocument;
use super::{Job, validate};
use crate::failure::Failure;
use crate::output;

/// The algorithm, and why.
pub fn algorithm(args: &BenchArgs, graph: &Fwg) -> (Algorithm, String) {
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
    algorithm: Algorithm,
    directory: &'a Path,
    stop: &'a AtomicBool,
}

impl<'a> Searcher<'a> {
    /// One with its temporary files in `directory`.
    pub fn new(args: &'a BenchArgs, algorithm: Algorithm, directory: &'a Path, stop: &'a AtomicBool) -> Self {
        Self { args, algorithm, directory, stop }
    }

    /// Searches once, from a vertex in the input's numbers, and validates what was found if there are edges to do it with.
    pub fn search(&self, graph: &Fwg, source: u64) -> Result<KeyDocument, Failure> {
        let args = self.args;
        // Results that are validated have a name, in a directory that lasts for one search: an interruption finds it.
        let folder = args.edges.as_ref().map(|_| self.folder()).transpose()?;
        let results = folder.as_ref().map(|folder| folder.path().join("key.out"));
        let job = Job {
            graph,
            source,
            config: super::config(args.memory, args.threads, args.ioengine),
            scratch: self.directory.to_owned(),
            output: results.as_deref(),
            temporary: folder.as_ref().map(tempfile::TempDir::path),
            stop: self.stop,
        };
        let found = job.search(self.algorithm, String::new())?;
        let mut edges = super::edges(graph, found.entries);
        if let (Some(list), Some(results)) = (&args.edges, &results) {
            let verdict = validate::against(&Results::open(results)?, list, graph.header())?;
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

    fn folder(&self) -> Result<tempfile::TempDir, Failure> {
        tempfile::Builder::new()
            .prefix(".bfs-bench.")
            .tempdir_in(self.directory)
            .map_err(|error| Failure::io(self.directory, "make a directory in it", &error))
    }
}

/// The mean of rates of equal work, which is the harmonic one (Graph500 specification, output).
pub fn harmonic_mean_teps(searches: &[KeyDocument]) -> f64 {
    let inverse: f64 = searches.iter().map(|key| key.elapsed_s / key.edges.max(1) as f64).sum();
    searches.len() as f64 / inverse
}
