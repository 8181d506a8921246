//! `db compare`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::RunOptions;
use bench::target::{BenchTarget, TargetOptions};
use database::DatabaseError;
use database::compare::{self, Begun, Config, Direct, Listener, LoadedTier, Plan, Run};
use database::dataset::{Dataset, LoadProgress};
use database::query::Query;
use database::store::{self, Kept, Meta, Store};
use measure::Workload;
use measure::workload::Rw;

use super::args::CompareArgs;
use super::document::DbCompareDocument;
use super::load::Watch;
use super::run::chosen;
use super::{machine_notes, page};
use crate::failure::Failure;
use crate::output::{self, Sink};
use crate::{plan, signals};

/// How long direct reads of each kind are measured.
const DIRECT_TIME: Duration = Duration::from_millis(500);

/// Compares tiers.
pub fn compare(args: &CompareArgs) -> Result<(), Failure> {
    check(args)?;
    let stop = signals::stop_flag()?;
    let dataset = Dataset::new(args.workload, args.rows, args.seed)?;
    let queries = chosen(&args.query, &dataset)?;
    let output = args.output.as_deref().map(Output::new).transpose()?;
    let begun = output.as_ref().map(|output| output.begun(args, &dataset, &queries)).transpose()?.flatten();
    let config = Config {
        dataset,
        tiers: args.tiers.clone(),
        queries: queries.clone(),
        blocks: args.blocks,
        seed: args.seed,
        keep: args.keep,
        engine: args.engine.choice()?,
        direct: &|file| direct(file, &stop),
        stop: Arc::clone(&stop),
        begun: begun.as_ref().map(|kept| Begun { tiers: kept.meta.tiers.clone(), runs: kept.runs.clone() }),
    };
    let is_begun = begun.is_some();
    let fresh = Meta { dataset, queries, tiers: Vec::new(), plans: Vec::new(), notes: machine_notes() };
    let meta = begun.map_or(fresh, |kept| kept.meta);
    let path = output.as_ref().map(|output| output.results.clone());
    let mut keeper = Keeper { meta, watch: Watch::new(), path, is_begun, store: None };
    let compared = compare::compare(&config, &mut keeper)?;
    let kept = Kept { meta: keeper.meta, runs: compared.runs };
    let document =
        DbCompareDocument::of(&kept, compared.ended.as_ref().map(|error| base::with_causes(error)));
    if let Some(output) = output {
        output.html.write(&sweep::report::page(&page::whole(&document)))?;
        output.json.write(&output::document_text(&document)?)?;
    }
    if args.json {
        output::print_document(&document)?;
    } else if document.blocks > 0 {
        output::print(&plan::screen::text(&page::of_compare(&document)))?;
    }
    let is_interrupted = matches!(compared.ended, Some(DatabaseError::Interrupted));
    let goes_on = (args.output.is_some() && is_interrupted)
        .then_some("the same command goes on after the last complete block");
    compared.ended.map_or(Ok(()), |error| Err(Failure::from(error).hint_if(goes_on)))
}

fn check(args: &CompareArgs) -> Result<(), Failure> {
    let identity = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    for (n, tier) in args.tiers.iter().enumerate() {
        if !tier.directory.is_dir() {
            let flag = format!("--tiers={}={}", tier.name, tier.directory.display());
            return Err(Failure::invalid(format!("{flag}: is not a directory"))
                .hint("name directories that are there and may be written to"));
        }
        for other in &args.tiers[..n] {
            if other.name == tier.name || identity(&other.directory) == identity(&tier.directory) {
                let pair = format!("--tiers={}={}", tier.name, tier.directory.display());
                return Err(Failure::invalid(format!(
                    "{pair}: has the name or the directory of {}",
                    other.name
                ))
                .hint("name each tier once"));
            }
        }
    }
    if args.tiers.len() < 2 || args.blocks == 0 {
        let what = if args.blocks == 0 { "--blocks=0: must be above zero" } else { "--tiers: is one tier" };
        return Err(Failure::invalid(what).hint("for instance --tiers flash=/flash,disk=/disk --blocks 6"));
    }
    Ok(())
}

/// The files of `--output`.
struct Output {
    results: PathBuf,
    html: Sink,
    json: Sink,
}

impl Output {
    fn new(directory: &Path) -> Result<Self, Failure> {
        let refused =
            |problem: String| Failure::invalid(format!("--output={}: {problem}", directory.display()));
        if !directory.is_dir() {
            std::fs::create_dir(directory).map_err(|error| {
                refused(format!("cannot be made: {error}")).hint("name a directory whose parent is there")
            })?;
        }
        let results = directory.join(store::FILE_NAME);
        let sink = |name: &str| {
            Sink::of(Some(&directory.join(name)), false)
                .map_err(|failure| failure.hint("name another directory, or move that file away"))
        };
        Ok(Self { results, html: sink("report.html")?, json: sink("compare.json")? })
    }
}

impl Output {
    /// What an earlier part of the same comparison has left there.
    fn begun(
        &self,
        args: &CompareArgs,
        dataset: &Dataset,
        queries: &[Query],
    ) -> Result<Option<Kept>, Failure> {
        if !self.results.exists() {
            return Ok(None);
        }
        let kept = store::read(&self.results)?;
        let is_tier = |(tier, spec): (&LoadedTier, &compare::TierSpec)| {
            (&tier.name, &tier.directory) == (&spec.name, &spec.directory)
        };
        let is_same = kept.meta.dataset == *dataset
            && kept.meta.queries == queries
            && kept.meta.tiers.len() == args.tiers.len()
            && kept.meta.tiers.iter().zip(&args.tiers).all(is_tier);
        if is_same {
            return Ok(Some(kept));
        }
        let folder = self.results.parent().unwrap_or(Path::new(".")).display();
        Err(Failure::invalid(format!("--output={folder}: has results of another comparison"))
            .hint("name another directory, or the workload, rows, seed, queries and tiers of that one"))
    }
}

/// Tells how it goes, and keeps each block.
struct Keeper {
    meta: Meta,
    watch: Watch,
    path: Option<PathBuf>,
    /// The file is there already, with the tiers.
    is_begun: bool,
    store: Option<Store>,
}

impl Listener for Keeper {
    fn cleared(&mut self, path: &Path) {
        output::tell(&format!("{}: what an interrupted command left is removed\n", path.display()));
    }

    fn loading(&mut self, tier: &str, progress: LoadProgress<'_>) {
        self.watch.tell(&format!("{tier}: "), &progress);
    }

    fn loaded(&mut self, tiers: &[LoadedTier], plans: &[Plan]) -> Result<(), DatabaseError> {
        if self.is_begun {
            self.store = self.path.as_deref().map(Store::open).transpose()?;
            return Ok(());
        }
        self.meta.tiers = tiers.to_vec();
        self.meta.plans = plans.to_vec();
        for tier in tiers.iter().filter(|tier| tier.is_in_memory) {
            let note = "is in memory: nothing is durable there, nothing can be evicted, and cold is as warm";
            self.meta.notes.push(format!("the tier {} {note}", tier.name));
        }
        self.store = self.path.as_deref().map(|path| Store::create(path, &self.meta)).transpose()?;
        Ok(())
    }

    fn asking(&mut self, tier: &str, block: u32, query: Query) {
        if output::is_watched() {
            output::tell(&format!("block {}: {tier}, {}\n", block + 1, query.word()));
        }
    }

    fn block(&mut self, runs: &[Run]) -> Result<(), DatabaseError> {
        match &mut self.store {
            Some(store) => store.block(&self.meta.tiers, runs),
            None => Ok(()),
        }
    }
}

/// What direct reads of a file give; None where they cannot be made.
fn direct(file: &Path, stop: &AtomicBool) -> Option<Direct> {
    let mut target = BenchTarget::new(&file.display().to_string(), TargetOptions::default()).ok()?;
    let mut measured = |rw, bs| {
        let workload =
            Workload { rw, bs, runtime: Some(DIRECT_TIME), time_based: true, ..Workload::default() };
        let options = RunOptions { stop: Some(stop), ..RunOptions::default() };
        let record = target.run_once(&workload, options).ok()?.records.into_iter().next()?;
        (record.interval_ns > 0 && record.read.ios > 0).then_some(record)
    };
    let random = measured(Rw::RandRead, 4096)?;
    let sequential = measured(Rw::Read, 1 << 20)?;
    // Whole nanoseconds and bytes are the same numbers after they were written and read as JSON.
    Some(Direct {
        random_us: (random.interval_ns / random.read.ios) as f64 / 1e3,
        sequential_bytes_per_s: (sequential.read.bytes as f64 * 1e9 / sequential.interval_ns as f64).round(),
    })
}
