//! `db load` and `db ingest`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use database::Engine;
use database::claim::{open_claimed, open_scratch};
use database::dataset::{self, Dataset, LoadProgress};
use database::ingest::{IngestConfig, ingest as take_in};
use database::interrupt::interruptible;
use database::open;
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
        Some(server) => (Box::new(open::connect(server, &choice.postgres)?) as Box<dyn Engine>, None),
        None => {
            let path = open::path(choice.kind, args.workload, &directory);
            (open_claimed(&choice, &dataset, &directory)?.keep()?, Some(path))
        }
    };
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
        loaded,
    };
    if args.json {
        return output::print_document(&document);
    }
    output::print(&plan::screen::text(&page::of_load(&document)))
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
        stop: Arc::clone(&stop),
    };
    let mut watch = Watch::new();
    let taken = interruptible(&stop, |statements| {
        statements.over(&*scratch.engine);
        let ingested = take_in(&mut *scratch.engine, &config, &mut |progress| watch.tell("", &progress))?;
        Ok((ingested, scratch.engine.facts()?))
    });
    let removed = scratch.end();
    let (ingested, engine) = taken?;
    removed?;
    let document = DbIngestDocument { schema: "flashwright.db-ingest/1", engine, ingested };
    if args.json {
        return output::print_document(&document);
    }
    output::print(&plan::screen::text(&page::of_ingest(&document)))
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
