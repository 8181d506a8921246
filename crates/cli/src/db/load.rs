//! `db load` and `db ingest`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use database::Engine;
use database::claim::{open_claimed, open_scratch};
use database::compare::is_in_memory;
use database::dataset::{self, Dataset, LoadProgress};
use database::ingest::{IngestConfig, ingest as take_in};
use database::interrupt::interruptible;
use database::open::{self, EngineChoice};
use database::size::{self, Size};
use sweep::report::PageTable;

use super::args::{IngestArgs, LoadArgs};
use super::document::{DbIngestDocument, DbLoadDocument};
use super::run::interrupted;
use super::{IN_MEMORY, machine_notes, page};
use crate::failure::Failure;
use crate::plan::screen::{grouped, table};
use crate::{output, plan, signals};

/// Progress is told no more often.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Tells how a load goes, where somebody watches.
pub struct Watch {
    last: Instant,
}

impl Watch {
    /// Silent for the first two seconds.
    pub fn new() -> Self {
        Self { last: Instant::now() }
    }

    /// Tells it, if the last time is long enough ago.
    pub fn tell(&mut self, on: &str, progress: &LoadProgress<'_>) {
        if !output::is_watched() || self.last.elapsed() < TELL_EVERY {
            return;
        }
        self.last = Instant::now();
        let LoadProgress { what, rows, of, is_indexing } = *progress;
        let line = match is_indexing {
            true => format!("{on}building {what}"),
            false => {
                let part = units::percent(rows as f64 / of.max(1) as f64);
                format!("{on}{part} of {} rows: {what}", grouped(of as f64))
            }
        };
        output::tell(&format!("{line}\n"));
    }
}

/// Makes a database, or goes on making it.
pub fn load(args: &LoadArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let dataset = Dataset::new(args.workload, args.rows, args.seed)?;
    let choice = args.engine.choice()?;
    let directory = args.place.directory();
    let size = size::estimate(&dataset, choice.kind);
    let (mut engine, path) = match args.place.server(&choice)? {
        Some(server) => (Box::new(open::connect(server, &choice.postgres)?) as Box<dyn Engine>, None),
        None => {
            let path = open::path(choice.kind, args.workload, &directory);
            (with_room(&choice, &dataset, &directory, &size)?, Some(path))
        }
    };
    if !args.json && !dataset::is_complete(&mut *engine, &dataset)? {
        let free = path.is_some().then(|| size::free(&directory)).transpose()?.flatten();
        let free = free.map_or_else(String::new, |free| format!(", and {} are free", units::bytes(free)));
        output::tell(&format!("the database takes about {}{free}\n", units::bytes(size.data_bytes)));
    }
    let mut watch = Watch::new();
    let loaded = interruptible(&stop, |statements| {
        statements.over(&*engine);
        dataset::load(&mut *engine, &dataset, &stop, &mut |progress| watch.tell("", &progress))
    })?;
    let document = DbLoadDocument {
        schema: "flashwright.db-load/1",
        workload: args.workload,
        rows: args.rows,
        seed: args.seed,
        path,
        engine: engine.facts()?,
        estimated_bytes: size.data_bytes,
        loaded,
    };
    if args.json {
        return output::print_document(&document);
    }
    output::print(&plan::screen::text(&page::of_load(&document)))
}

/// Opens or makes the database in a directory, unless the tier has not the room for what is missing: then nothing is made.
fn with_room(
    choice: &EngineChoice,
    dataset: &Dataset,
    directory: &Path,
    size: &Size,
) -> Result<Box<dyn Engine>, Failure> {
    let flag = || format!("dir={}", directory.display());
    let was_there = open::path(choice.kind, dataset.workload(), directory).exists();
    if !was_there && directory.is_dir() {
        size::check(flag(), directory, size.bytes())?;
    }
    let mut engine = open_claimed(choice, dataset, directory)?.keep()?;
    if was_there && !dataset::is_complete(&mut *engine, dataset)? {
        size::check(flag(), directory, size.bytes().saturating_sub(engine.size_bytes()?))?;
    }
    Ok(engine)
}

/// Takes in alerts while cones are searched.
pub fn ingest(args: &IngestArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    for (flag, value) in [("rate", args.rate), ("rows", args.rows)] {
        if value == 0 {
            return Err(Failure::invalid(format!("--{flag}=0: must be above zero")).hint("for instance 350"));
        }
    }
    let seconds = args.lasts.as_secs_f64().ceil() as u64;
    let choice = args.engine.choice()?;
    let mut scratch = open_scratch(&choice, &args.dir)?;
    let config = IngestConfig {
        history: args.rows,
        rate: args.rate,
        cones: args.cones,
        seconds,
        seed: args.seed,
        is_in_memory: is_in_memory(&args.dir)?,
        stop: Arc::clone(&stop),
    };
    let mut watch = Watch::new();
    let taken = interruptible(&stop, |statements| {
        statements.over(&*scratch.engine);
        take_in(&mut *scratch.engine, &config, &mut |progress| watch.tell("", &progress))
    });
    // After an interruption a cancellation may still be under way to the other connection.
    let taken = taken.and_then(|ingested| Ok((ingested, scratch.engine.connect()?.facts()?)));
    let removed = scratch.end();
    let (ingested, engine) = taken?;
    removed?;
    let mut notes = machine_notes();
    notes.extend(config.is_in_memory.then(|| IN_MEMORY.to_owned()));
    let document = DbIngestDocument { schema: "flashwright.db-ingest/1", engine, ingested, notes };
    match args.json {
        true => output::print_document(&document)?,
        false => output::print(&plan::screen::text(&page::of_ingest(&document)))?,
    }
    interrupted(document.ingested.is_interrupted)
}

/// Rows, seconds and rows a second of each table.
pub fn tables(document: &DbLoadDocument) -> PageTable {
    let titles = ["Table", ">Rows added", ">Were there", ">Load (s)", ">µs a row", ">Indexes (s)"];
    let mut sheet = table("Tables in the order of loading", &titles);
    for loaded in &document.loaded.tables {
        sheet.rows.push(vec![
            loaded.table.clone(),
            grouped(loaded.rows as f64),
            grouped(loaded.resumed_rows as f64),
            plan::screen::figure(loaded.load_s),
            plan::screen::known(
                (loaded.rows > 0).then(|| loaded.load_s * 1e6 / loaded.rows as f64),
                plan::screen::figure,
            ),
            plan::screen::figure(loaded.index_s),
        ]);
    }
    sheet
}
