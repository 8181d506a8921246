//! The command line of flashwright: parse, validate, run, report.
//!
//! It is a library, so that cargo compiles it beside what else the tests and examples need, and the binary is only linked.
//!
//! Each verb is a module that turns its flags into a request, hands it to the library that does the work,
//! and prints what came of it. Three rules hold for all of them:
//!
//! 1. Standard output carries results and nothing else; with `--json`, exactly one document. Everything
//!    said along the way goes to standard error, and only where somebody watches.
//! 2. What cannot be done is said in one line, `error: …`, with a second one, `hint: …`, where there is
//!    something to do about it (`failure`); with `--json` in a document too, where no other was printed.
//! 3. The exit code tells 0 done, 1 failed, 2 wrong request, 3 refused for safety, 130 interrupted.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod args;
mod bench;
mod bfs;
mod db;
mod evidence;
mod failure;
mod flashio;
mod forms;
mod layout;
mod machine;
mod memory;
mod output;
mod pages;
mod paint;
mod plan;
mod probe;
mod report;
mod schema;
mod serve;
mod signals;
mod sim;
mod stage;
mod sweep;
mod tasks;
mod terminal;
mod tune;
mod usage;
mod values;
mod volume;

use std::process::ExitCode;

use args::{Command, Parsed};
use failure::Failure;

/// Does what the arguments of this process ask for, and gives the exit code that tells how it went (rule 3).
#[must_use]
pub fn main() -> ExitCode {
    match args::parse() {
        Parsed::Command(command) => match run(*command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        },
        Parsed::Answered => ExitCode::SUCCESS,
        Parsed::Wrong(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Probe(args) => probe::probe(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Layout(args) => layout::layout(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Memory(args) => memory::memory(&args),
        Command::Volume(args) => volume::volume(&args),
        Command::Stage(args) => stage::stage(&args),
        Command::Flashio(args) => flashio::flashio(&args),
        Command::Db(args) => db::db(&args),
        Command::Bfs(args) => bfs::bfs(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Report(args) => report::report(&args),
        Command::Schema(args) => schema::schema(&args),
        Command::Help(args) => args::help(&args),
        Command::Pages(args) => pages::pages(&args),
    }
}
