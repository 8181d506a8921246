//! `bfs bench --tiers`: the same searches on copies of a graph on several media, which take turns (DASH, Table 9).
//!
//! 1. Each medium gets a copy in a file without a name, as scratch files are: nothing of it is left when the process ends,
//!    in whichever way. Copies are made before the first search, so a full medium shows at once.
//! 2. Each key is searched from on every medium before the next key, and each time another medium is first, so what else the
//!    machine does meets all of them alike.
//! 3. With `--edges` every result is validated against the original edges.
//!
//! Speed-ups are in relation to the medium with the most I/O time: of all keys together, and between which of single keys. Where this
//! range holds 1, the media are not told apart.

use std::sync::atomic::{AtomicBool, Ordering};

use graph::GraphError;
use graph::format::Fwg;
use measure::record::TargetFacts;
use storage::device::{AlignedBuffer, OpenError, OpenOptions, ScratchFile};
use storage::sysfs::{Backing, Sysfs};

use super::args::{BenchArgs, TierDirectory};
use super::documents::{KeyDocument, TierDocument, TiersDocument};
use super::searcher::{self, Searcher};
use crate::failure::Failure;
use crate::output;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// The name that a medium in memory has.
const MEMORY: &str = "memory";

/// A medium with its copy of the graph.
struct SearchedTier<'a> {
    named: &'a TierDirectory,
    stands_on: String,
    direct: bool,
    copy: Fwg,
    searcher: Searcher<'a>,
    searches: Vec<KeyDocument>,
}

/// Compares.
pub fn bench(args: &BenchArgs, graph: Fwg, keys: &[u64], stop: &AtomicBool) -> Result<(), Failure> {
    check_names(&args.tiers)?;
    // All copies stay open, and each has its checksums in memory.
    let beside = graph.memory_bytes() * (args.tiers.len() as u64 - 1);
    let graph = graph.with_memory_beside(beside);
    let choice = searcher::choose(args, &graph)?;
    let backings: Vec<Backing> = args.tiers.iter().map(check).collect::<Result<_, _>>()?;
    let mut tiers = Vec::new();
    for (named, backing) in args.tiers.iter().zip(&backings) {
        let copy = copy(&graph, named, stop)?.with_memory_beside(beside);
        let direct = copy.device().is_direct() || is_memory(backing);
        let searcher = Searcher::new(args, choice.clone(), &named.directory, stop);
        let stands_on = stands_on(backing);
        tiers.push(SearchedTier { named, stands_on, direct, copy, searcher, searches: Vec::new() });
    }
    let graph_bytes = graph.header().file_bytes;
    // Its checksums are a part of the budget that each copy needs for its own.
    drop(graph);
    for (done, key) in keys.iter().enumerate() {
        let media = tiers.len();
        for turn in 0..media {
            let tier = &mut tiers[(done + turn) % media];
            tier.searches.push(tier.searcher.search(&tier.copy, *key)?);
        }
        searcher::progress(done + 1, keys.len());
    }
    let document = TiersDocument {
        schema: "flashwright.bfs-tiers/1",
        graph: args.graph.clone(),
        algorithm: choice.algorithm.word(),
        reason: choice.reason,
        graph_bytes,
        memory_bytes: args.memory,
        edges_counted: if args.edges.is_some() { "input" } else { "stored" },
        validated: args.edges.is_some(),
        tiers: documents(tiers),
    };
    if args.json { output::print_document(&document) } else { crate::bfs::print_page(&text(&document)) }
}

/// No two media may have one name.
fn check_names(tiers: &[TierDirectory]) -> Result<(), Failure> {
    let is_repeated = |(at, tier): (usize, &TierDirectory)| {
        tiers[..at].iter().any(|other| other.name == tier.name).then(|| option(tier))
    };
    match tiers.iter().enumerate().find_map(is_repeated) {
        Some(option) => Err(Failure::invalid(format!("{option}: another medium has this name"))
            .hint("give each medium a name of its own")),
        None => Ok(()),
    }
}

/// The flag with one of its values, as messages begin.
fn option(tier: &TierDirectory) -> String {
    format!("--tiers: {}={}", tier.name, tier.directory.display())
}

/// What a directory stands on. A medium in memory has to be called so.
fn check(tier: &TierDirectory) -> Result<Backing, Failure> {
    let option = option(tier);
    if tier.directory.exists() && !tier.directory.is_dir() {
        return Err(
            Failure::invalid(format!("{option}: is not a directory")).hint("name a directory on the medium")
        );
    }
    let backing = Sysfs::host().backing(&tier.directory).map_err(|error| {
        Failure::invalid(format!("{option}: cannot be examined: {error}"))
            .hint("name a directory that is there")
    })?;
    if is_memory(&backing) && tier.name != MEMORY {
        let system = backing.filesystem.as_deref().unwrap_or_default();
        return Err(Failure::invalid(format!("{option}: lies in memory ({system})"))
            .hint(format!("call it {MEMORY}={}, or name a directory on a drive", tier.directory.display())));
    }
    Ok(backing)
}

fn is_memory(backing: &Backing) -> bool {
    TargetFacts { filesystem: backing.filesystem.clone(), ..TargetFacts::default() }.is_file_in_memory()
}

fn stands_on(backing: &Backing) -> String {
    let system = backing.filesystem.as_deref().unwrap_or("unknown");
    backing.block_devices.first().map_or_else(|| system.to_owned(), |on| format!("{system} on {}", on.name))
}

/// Copies the graph to a file without a name, and opens it past the page cache where that is possible.
fn copy(graph: &Fwg, tier: &TierDirectory, stop: &AtomicBool) -> Result<Fwg, Failure> {
    let directory = &tier.directory;
    let place = directory.join("copy of the graph");
    let failed = |error: OpenError| Failure::of(error.class(), &error).hint_if(error.hint());
    let (from, length) = (graph.device(), graph.header().file_bytes);
    let file = ScratchFile::create(directory, length).map_err(|error| no_copy(tier, &error))?;
    let spec = format!("copy of {} in {}", graph.path().display(), directory.display());
    let to = match file.open(&spec, &OpenOptions::writing()) {
        Err(OpenError::DirectUnsupported { .. }) => file.open(&spec, &OpenOptions::writing().buffered()),
        opened => opened,
    }
    .map_err(failed)?;
    let mut buffer = AlignedBuffer::zeroed(COPY_BYTES, COPY_BYTES.min(4096));
    for at in (0..length).step_by(COPY_BYTES) {
        if stop.load(Ordering::Relaxed) {
            return Err(GraphError::Interrupted { during: "copying the graph" }.into());
        }
        let bytes = &mut buffer[..(length - at).min(COPY_BYTES as u64) as usize];
        from.read_at(bytes, at).map_err(|error| GraphError::io_at("read", graph.path(), at, error))?;
        to.write_at(bytes, at).map_err(|error| GraphError::io_at("write", &place, at, error))?;
    }
    to.sync_data().map_err(|error| GraphError::io("sync", &place, error))?;
    Ok(Fwg::on(to, &place)?)
}

/// No file can be made on a medium: it is full, or its directory takes no files, as /proc.
fn no_copy(tier: &TierDirectory, error: &OpenError) -> Failure {
    let hint = match error {
        OpenError::NoSpace { .. } => "make room there, or name another directory",
        _ => "name a directory in which files can be made",
    };
    let why = base::with_causes(error);
    Failure::new(error.class(), format!("{}: no copy of the graph can be made in it: {why}", option(tier)))
        .hint(hint)
}

fn documents(tiers: Vec<SearchedTier<'_>>) -> Vec<TierDocument> {
    type Time = fn(&KeyDocument) -> f64;
    let (of_io, of_run): (Time, Time) = (|key| key.time.io_s, |key| key.elapsed_s);
    let sum = |tier: &SearchedTier<'_>, of: Time| tier.searches.iter().map(of).sum::<f64>();
    let slowest = tiers.iter().max_by(|a, b| sum(a, of_io).total_cmp(&sum(b, of_io)));
    let slowest: Vec<[f64; 2]> =
        slowest.iter().flat_map(|tier| &tier.searches).map(|key| [of_io(key), of_run(key)]).collect();
    let sums = slowest.iter().fold([0.0; 2], |sums, key| [sums[0] + key[0], sums[1] + key[1]]);
    let range = |tier: &SearchedTier<'_>, which: usize, of: Time| {
        let ratios = slowest.iter().zip(&tier.searches).map(|(key, own)| key[which] / of(own));
        let finite: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
        let (low, high) =
            (finite.iter().copied().reduce(f64::min)?, finite.iter().copied().reduce(f64::max)?);
        Some([low, high])
    };
    let document = |tier: SearchedTier<'_>| {
        let (io_s, run_s) = (sum(&tier, of_io), sum(&tier, of_run));
        let (io_speedup_range, run_speedup_range) = (range(&tier, 0, of_io), range(&tier, 1, of_run));
        TierDocument {
            name: tier.named.name.clone(),
            directory: tier.named.directory.clone(),
            stands_on: tier.stands_on,
            direct: tier.direct,
            io_s,
            run_s,
            io_speedup: (io_s > 0.0).then_some(sums[0] / io_s),
            io_speedup_range,
            run_speedup: sums[1] / run_s,
            run_speedup_range,
            harmonic_mean_teps: searcher::harmonic_mean_teps(&tier.searches),
            searches: tier.searches,
        }
    };
    tiers.into_iter().map(document).collect()
}

fn text(document: &TiersDocument) -> String {
    let valid = if document.validated { ", each validated" } else { "" };
    let searches = document.tiers.first().map_or(0, |tier| tier.searches.len());
    let mut text = format!(
        "{searches} searches by {} of {} ({}) within {} on each medium{valid}\n{:<12} {:>10} {:>10} {:>22} {:>22} {:>12}  stands \
         on\n",
        document.algorithm,
        document.graph,
        units::bytes(document.graph_bytes),
        units::bytes(document.memory_bytes),
        "medium",
        "I/O time",
        "run time",
        "I/O",
        "run",
        "edges/s",
    );
    for tier in &document.tiers {
        let io = tier.io_speedup.map_or_else(|| "-".to_owned(), |io| times(io, tier.io_speedup_range));
        let run = times(tier.run_speedup, tier.run_speedup_range);
        let cached = if tier.direct { "" } else { ", through the page cache" };
        text += &format!(
            "{:<12} {:>8.3} s {:>8.3} s {io:>22} {run:>22} {:>10.1} M  {}{cached}\n",
            tier.name,
            tier.io_s,
            tier.run_s,
            tier.harmonic_mean_teps / 1e6,
            tier.stands_on,
        );
    }
    text + "I/O time: at least one thread waited for requests. Speed-ups: of the medium with the most I/O time to this one, of all keys (of single keys).\n"
}

/// `2.41 x (2.10-2.77)`.
fn times(all: f64, range: Option<[f64; 2]>) -> String {
    let range = range.map_or_else(String::new, |[low, high]| format!(" ({low:.2}-{high:.2})"));
    format!("{all:.2} x{range}")
}
