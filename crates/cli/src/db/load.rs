//! `db load` and `db ingest`.

use std::path::Path;
use std::time::{Duration, Instant};

use database::dataset::{self, Dataset, LoadProgress};
use database::engine::Engine;
use database::ingest::{IngestConfig, ingest as take_in};
use database::open;
use database::sqlite::{Journal, Sqlite};
use sweep::report::PageTable;

use super::args::{IngestArgs, LoadArgs};
use super::document::{DbIngestDocument, DbLoadDocument};
use super::page;
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
    let (mut engine, path) = match args.place.server(&choice)? {
        Some(server) => (open::connect(server, &choice.postgres)?, None),
        None => {
            let path = open::path(choice.kind, args.workload, &directory);
            (open::open_or_make(&choice, args.workload, &directory)?, Some(path))
        }
    };
    let mut watch = Watch::new();
    let loaded = dataset::load(&mut *engine, &dataset, &stop, &mut |progress| watch.tell("", &progress))?;
    let document = DbLoadDocument {
        schema: "flashwright.db-load/1",
        workload: args.workload,
        rows: args.rows,
        seed: args.seed,
        path,
        engine: engine.facts()?,
        loaded,
    };
    if args.json {
        return output::print_document(&document);
    }
    output::print(&plan::screen::text(&page::of_load(&document)))
}

/// The database of a run of `db ingest`, which goes with it.
const INGEST_PREFIX: &str = "flashwright-ingest-";

/// Takes in alerts while cones are searched.
pub fn ingest(args: &IngestArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    for (flag, value) in [("rate", args.rate), ("rows", args.rows)] {
        if value == 0 {
            return Err(Failure::invalid(format!("--{flag}=0: must be above zero")).hint("for instance 350"));
        }
    }
    let seconds = args.lasts.as_secs_f64().ceil() as u64;
    let folder = scratch(&args.dir)?;
    let mut engine = Sqlite::open(&folder.path().join("alerts.sqlite"), Journal::WriteAhead)?;
    let config = IngestConfig {
        history: args.rows,
        rate: args.rate,
        cones: args.cones,
        seconds,
        seed: args.seed,
        stop,
    };
    let mut watch = Watch::new();
    let ingested = take_in(&mut engine, &config, &mut |progress| watch.tell("", &progress))?;
    let document = DbIngestDocument { schema: "flashwright.db-ingest/1", engine: engine.facts()?, ingested };
    drop(engine);
    folder.close().map_err(|error| Failure::io(&args.dir, "remove the alerts' database", &error))?;
    if args.json {
        return output::print_document(&document);
    }
    output::print(&plan::screen::text(&page::of_ingest(&document)))
}

fn scratch(directory: &Path) -> Result<tempfile::TempDir, Failure> {
    tempfile::Builder::new().prefix(INGEST_PREFIX).tempdir_in(directory).map_err(|error| {
        Failure::invalid(format!("--dir={}: cannot make a directory in it: {error}", directory.display()))
            .hint("name a directory on the tier, that is there and may be written to")
    })
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
