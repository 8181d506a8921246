//! `flashwright plan`: what to buy, how often to checkpoint, how long it lasts.
//!
//! Each verb reads its files, hands numbers to [`planner`], and shows what comes back as a [`Page`] or as a
//! document. Nothing is measured and nothing but `--html` is written.

pub mod args;
pub mod checkpoint;
pub mod efficiency;
pub mod endurance;
pub mod hierarchy;
mod model;
mod records;
mod screen;
pub mod tier;
mod values;

use std::path::Path;

use planner::PlanError;
use planner::prices::Prices;
use serde::Serialize;
use sweep::report::Page;

use self::args::{FormArgs, PlanArgs, PlanCommand};
use crate::failure::Failure;
use crate::output::{self, Sink};

/// Plans.
pub fn plan(args: &PlanArgs) -> Result<(), Failure> {
    match &args.command {
        PlanCommand::Cost(args) => efficiency::cost(args),
        PlanCommand::Power(args) => efficiency::power(args),
        PlanCommand::Checkpoint(args) => checkpoint::checkpoint(args),
        PlanCommand::Endurance(args) => endurance::endurance(args),
        PlanCommand::Hierarchy(args) => hierarchy::hierarchy(args),
        PlanCommand::Tier(args) => tier::tier(args),
    }
}

/// A parameter of a request is a flag of the same name.
impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::invalid(format!("--{error}")).hint(error.hint())
    }
}

/// Reads a file that a flag names.
fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::invalid(format!("{}: cannot be read: {error}", path.display())).hint("name a text file")
    })
}

/// Reads a price file. Errors name the file and its key.
fn prices(path: &Path) -> Result<Prices, Failure> {
    in_prices(path, Prices::parse(&read(path)?))
}

/// An error about a key of the price file.
fn in_prices<T>(path: &Path, result: Result<T, PlanError>) -> Result<T, Failure> {
    result
        .map_err(|error| Failure::invalid(format!("--prices={}: {error}", path.display())).hint(error.hint()))
}

/// Prints a plan in the form that was asked for.
fn show(form: &FormArgs, document: &impl Serialize, page: &Page) -> Result<(), Failure> {
    if let Some(path) = &form.html {
        Sink::of_flag("html", Some(path))?.write(&sweep::report::page(page))?;
    }
    if form.json {
        return output::print_document(document);
    }
    output::print(&screen::text(page))
}
