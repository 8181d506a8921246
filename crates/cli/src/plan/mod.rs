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
pub mod screen;
pub mod tier;
mod values;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
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

/// The largest file that is read, bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a file that a flag names: a regular file or a pipe, with or without a byte order mark.
fn read(path: &Path) -> Result<String, Failure> {
    let wrong = |problem: &str, hint: &str| {
        Failure::invalid(format!("{}: {problem}", path.display())).hint(hint.to_owned())
    };
    let kind = std::fs::metadata(path).map(|facts| facts.file_type());
    if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_fifo()) {
        return Err(wrong("cannot be read: is not a regular file or a pipe", "name a text file"));
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| wrong(&format!("cannot be read: {error}"), "name a text file"))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(wrong("is larger than 64 MiB", "name a smaller file"));
    }
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
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

/// Prints a plan in the form that was asked for; `inputs` are the files that it is made from.
fn show(form: &FormArgs, inputs: &[&Path], document: &impl Serialize, page: &Page) -> Result<(), Failure> {
    if let Some(path) = &form.html {
        let sink = Sink::of_flag("html", Some(path), form.force)?;
        if sink.is_none_of(inputs.iter().copied()).is_err() {
            return Err(Failure::invalid(format!("--html={}: is what this command reads", path.display()))
                .hint("name another file"));
        }
        sink.write(&sweep::report::page(page))?;
    }
    if form.json {
        return output::print_document(document);
    }
    output::print(&screen::text(page))
}
