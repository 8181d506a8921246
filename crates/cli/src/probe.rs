//! `flashwright probe`: what is here, on one screen; with `--ladder`, how far away it is.

use std::path::PathBuf;

use storage::survey::Survey;

use crate::failure::Failure;
use crate::output;
use args::ProbeArgs;
use given::Given;

pub mod args;
mod far;
mod given;
pub mod ladder;
mod screen;

/// Looks and prints; with `--ladder`, measures.
pub fn probe(args: &ProbeArgs) -> Result<(), Failure> {
    if args.ladder.ladder {
        return ladder::ladder(args);
    }
    args.ladder.refuse_without_ladder()?;
    let given = Given::of(&args.paths)?;
    let mut survey = survey(&given.paths)?.with_exports(given.look_at_exports()?);
    survey.volumes = given.look_at_volumes();
    if args.json {
        return output::print_document(&survey);
    }
    output::print(&screen::screen(&survey))
}

/// What the paths stand on.
fn survey(paths: &[PathBuf]) -> Result<Survey, Failure> {
    storage::survey::survey(paths).map_err(|error| {
        let class = match error.source.kind() {
            std::io::ErrorKind::NotFound => base::ErrorClass::Invalid,
            _ => base::ErrorClass::Failed,
        };
        Failure::of(class, &error).hint(error.hint())
    })
}
