//! `db advise`.

use std::sync::Arc;

use database::advise::{AdviseConfig, advise as try_settings};
use database::compare::is_in_memory;
use database::dataset;
use database::engine::Engine;
use database::open::{self, EngineKind};

use super::args::AdviseArgs;
use super::document::DbAdviseDocument;
use super::run::chosen;
use super::{IN_MEMORY, machine_notes, page};
use crate::failure::Failure;
use crate::{output, plan, signals};

/// Tries settings.
pub fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    let choice = args.engine.choice()?;
    if choice.kind != EngineKind::Postgres {
        let engine = choice.kind.word();
        return Err(Failure::invalid(format!("--engine={engine}: has no settings to try"))
            .hint("add --engine postgres"));
    }
    if args.blocks == 0 {
        return Err(Failure::invalid("--blocks=0: must be above zero").hint("for instance 6"));
    }
    let stop = signals::stop_flag()?;
    let directory = args.place.directory();
    let connect = args.place.server(&choice)?;
    let (mut server, at) = match connect {
        Some(connect) => (open::connect(connect, &choice.postgres)?, "the server".to_owned()),
        None => {
            let path = open::path(choice.kind, args.workload, &directory);
            (open::server(&choice.postgres, args.workload, &directory)?, path.display().to_string())
        }
    };
    let dataset = dataset::find(&mut server, args.workload, &at)?;
    let config = AdviseConfig {
        dataset,
        queries: chosen(&args.query, &dataset)?,
        settings: args.settings.clone(),
        blocks: args.blocks,
        seed: args.seed,
        is_in_memory: connect.is_none() && is_in_memory(&directory)?,
        stop: Arc::clone(&stop),
    };
    let mut notes = machine_notes();
    if connect.is_some() {
        notes.push("the server is the user's own: settings are of sessions, and nothing is cold".to_owned());
    }
    if config.is_in_memory {
        notes.push(IN_MEMORY.to_owned());
    }
    let engine = server.facts()?;
    let advised = try_settings(&mut server, &config, &mut |name, block, query| {
        if output::is_watched() {
            output::tell(&format!("block {}: {name}, {}\n", block + 1, query.word()));
        }
    })?;
    let ended = advised.ended.as_ref().map(|error| base::with_causes(error));
    let document = DbAdviseDocument::of(&config, engine, &advised.runs, notes, ended);
    if args.json {
        output::print_document(&document)?;
    } else if document.blocks > 0 {
        output::print(&plan::screen::text(&page::of_advise(&document)))?;
    }
    advised.ended.map_or(Ok(()), |error| Err(error.into()))
}
