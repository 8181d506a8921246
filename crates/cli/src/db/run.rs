//! `db run`: each query cold and warm, or one of them at a set rate.

use std::sync::atomic::{AtomicBool, Ordering};

use database::DatabaseError;
use database::ask::{Asked, Temperature, ask, ask_cold, cool};
use database::compare::is_in_memory;
use database::dataset::{self, Dataset};
use database::engine::Engine;
use database::interrupt::interruptible;
use database::open;
use database::query::Query;
use database::stream::{StreamConfig, stream};

use super::args::RunArgs;
use super::document::{DbRunDocument, DbRunQuery, DbStreamDocument, seed};
use super::{IN_MEMORY, machine_notes, page};
use crate::failure::Failure;
use crate::{output, plan, signals};

/// Asks.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let choice = args.engine.choice()?;
    let directory = args.place.directory();
    let server = args.place.server(&choice)?;
    let (mut engine, at) = match server {
        Some(server) => {
            (Box::new(open::connect(server, &choice.postgres)?) as Box<dyn Engine>, "the server".to_owned())
        }
        None => {
            let path = open::path(choice.kind, args.workload, &directory);
            (open::open(&choice, args.workload, &directory)?, path.display().to_string())
        }
    };
    let dataset = dataset::find(&mut *engine, args.workload, &at)?;
    let queries = chosen(&args.query, &dataset)?;
    let mut notes = machine_notes();
    let is_in_memory = server.is_none() && is_in_memory(&directory)?;
    if server.is_some() {
        notes.push(
            match args.rate {
                Some(_) => "the server is the user's own and is not stopped: nothing is cold",
                None => {
                    "the server is the user's own and is not stopped: nothing is cold, each query runs twice"
                }
            }
            .to_owned(),
        );
    }
    if is_in_memory {
        notes.push(IN_MEMORY.to_owned());
    }
    match args.rate {
        Some(rate) => at_rate(args, &mut *engine, &dataset, &queries, rate, is_in_memory, notes),
        None => one_by_one(args, &mut *engine, &dataset, &queries, is_in_memory, notes),
    }
}

/// The queries that flags name; all of the workload if none.
pub fn chosen(named: &[Query], dataset: &Dataset) -> Result<Vec<Query>, Failure> {
    let there = Query::of(dataset.workload());
    if let Some(other) = named.iter().find(|query| !there.contains(query)) {
        let words: Vec<_> = there.iter().map(|query| query.word()).collect();
        let workload = dataset.workload().word();
        return Err(Failure::invalid(format!("--query={}: is not a query of {workload}", other.word()))
            .hint(format!("there are {}", words.join(", "))));
    }
    Ok(if named.is_empty() { there.to_vec() } else { named.to_vec() })
}

fn one_by_one(
    args: &RunArgs,
    engine: &mut dyn Engine,
    dataset: &Dataset,
    queries: &[Query],
    is_in_memory: bool,
    notes: Vec<String>,
) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let asked = interruptible(&stop, |statements| {
        statements.over(engine);
        each(args, engine, dataset, queries, is_in_memory, &stop)
    })?;
    let document = DbRunDocument {
        schema: "flashwright.db-run/1",
        workload: args.workload,
        rows: dataset.scale(),
        seed: seed(dataset),
        key: args.key,
        engine: engine.facts()?,
        queries: asked,
        notes,
    };
    if args.json {
        return output::print_document(&document);
    }
    output::print(&plan::screen::text(&page::of_run(&document)))
}

/// Every query, cold and warm.
fn each(
    args: &RunArgs,
    engine: &mut dyn Engine,
    dataset: &Dataset,
    queries: &[Query],
    is_in_memory: bool,
    stop: &AtomicBool,
) -> Result<Vec<DbRunQuery>, DatabaseError> {
    let is_owned = engine.facts()?.is_owned;
    let mut asked = Vec::new();
    for &query in queries {
        if stop.load(Ordering::Relaxed) {
            return Err(DatabaseError::Interrupted);
        }
        if output::is_watched() {
            output::tell(&format!("{}\n", query.word()));
        }
        let statement = query.statement(dataset, args.key, engine.dialect(), engine.sky());
        let plan = args.explain.then(|| engine.explain(&statement)).transpose()?;
        let mut keep = |temperature, asked_so: Asked| {
            let plan = plan.clone().filter(|_| temperature == Temperature::Cold || !is_owned);
            asked.push(DbRunQuery { query, temperature, asked: asked_so, plan });
        };
        if is_owned {
            keep(Temperature::Cold, ask_cold(engine, dataset, query, args.key, is_in_memory)?);
        } else {
            ask(engine, dataset, query, args.key)?;
        }
        let (answer, cost) = ask(engine, dataset, query, args.key)?;
        keep(Temperature::Warm, Asked { answer, cost, pages: None });
    }
    Ok(asked)
}

fn at_rate(
    args: &RunArgs,
    engine: &mut dyn Engine,
    dataset: &Dataset,
    queries: &[Query],
    rate: f64,
    is_in_memory: bool,
    notes: Vec<String>,
) -> Result<(), Failure> {
    let [query] = args.query[..] else {
        let words: Vec<_> = queries.iter().map(|query| query.word()).collect();
        return Err(Failure::invalid(format!("--rate={rate}: is of one query"))
            .hint(format!("name it with --query, one of {}", words.join(", "))));
    };
    if args.connections == 0 {
        return Err(Failure::invalid("--connections=0: must be above zero").hint("for instance 4"));
    }
    let stop = signals::stop_flag()?;
    if engine.facts()?.is_owned {
        cool(engine, is_in_memory)?;
    }
    let config = StreamConfig {
        dataset: *dataset,
        query,
        rate,
        lasts: args.lasts,
        connections: args.connections as usize,
        first_key: args.key,
        stop: &stop,
    };
    let document = DbStreamDocument {
        schema: "flashwright.db-stream/1",
        workload: args.workload,
        rows: dataset.scale(),
        seed: seed(dataset),
        engine: engine.facts()?,
        stream: stream(engine, &config)?,
        notes,
    };
    match args.json {
        true => output::print_document(&document)?,
        false => output::print(&plan::screen::text(&page::of_stream(&document)))?,
    }
    interrupted(document.stream.is_interrupted)
}

/// The end of a command that was interrupted after it had figures, which are printed.
pub fn interrupted(is_interrupted: bool) -> Result<(), Failure> {
    match is_interrupted {
        true => {
            Err(Failure::from(DatabaseError::Interrupted).hint("the figures are of what came until then"))
        }
        false => Ok(()),
    }
}
