//! `flashwright flashio`: an application that computes and checkpoints, on the tiers of this system.
//!
//! Tasks are processes of this program with the same command line; [`tasks::join`] tells which they are.

pub mod args;
mod document;
mod page;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::flashio::FlashioError;
use ::flashio::run::{Config, run};
use ::flashio::{Way, task};
use ranks::{Ranks, local};

pub use self::document::FlashioDocument;

use self::args::{FlashioArgs, FlashioCommand};
use self::document::Facts;
use crate::failure::Failure;
use crate::output::{self, Sink};
use crate::{paint, plan, signals, tasks};

/// Tasks where nothing is said.
const TASKS: u32 = 4;

/// Measures, or reports again.
pub fn flashio(args: &FlashioArgs) -> Result<(), Failure> {
    if let Some(FlashioCommand::Report { directory }) = &args.command {
        return report(directory);
    }
    // A task ends with the coordinator, which heeds the signals.
    let stop = if local::is_child() { Arc::default() } else { signals::stop_flag()? };
    let joined = if tasks::is_started_with_others() { tasks::join(args.tasks, &stop)? } else { None };
    let joined = match joined {
        Some(ranks) if !ranks.is_root() => serve(ranks),
        joined => joined,
    };
    let tasks = match (&joined, args.tasks) {
        (Some(ranks), _) => ranks.size() - 1,
        (None, tasks) => tasks.unwrap_or(TASKS),
    };
    let sinks = args.output.as_deref().map(sinks).transpose()?;
    let config = config(args, tasks, stop);
    if output::is_watched() {
        output::tell(&format!("{} {}\n", paint::dim("note:"), outlook(&config)));
    }
    let mut measured = run(&config, joined)?;
    let document = FlashioDocument::from(Facts::of(args, tasks, &measured));
    let page = page::page(&document);
    if let Some([html, json]) = sinks {
        html.write(&sweep::report::page(&page))?;
        json.write(&output::document_text(&document)?)?;
    }
    if args.json {
        output::print_document(&document)?;
    } else if !measured.legs.is_empty() {
        output::print(&plan::screen::text(&page))?;
    }
    let ended = measured.ended.take();
    let removed = measured.remove();
    ended.map_or(removed, Err).map_err(Failure::from)
}

/// Makes the page again from the document that a run wrote.
fn report(directory: &Path) -> Result<(), Failure> {
    let path = directory.join("flashio.json");
    let text = std::fs::read(&path).map_err(|error| {
        Failure::invalid(format!("{}: cannot be read: {error}", path.display()))
            .hint("name the directory that flashio --output wrote")
    })?;
    let document = facts(&text).map_err(|why| {
        Failure::invalid(format!("{}: {why}", path.display())).hint("run flashwright flashio --output again")
    })?;
    let page = page::page(&FlashioDocument::from(document));
    html_sink(directory)?.write(&sweep::report::page(&page))?;
    output::print(&plan::screen::text(&page))
}

fn facts(text: &[u8]) -> Result<Facts, String> {
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    match value["schema"].as_str() {
        Some(document::SCHEMA) => serde_json::from_value(value).map_err(|error| error.to_string()),
        other => {
            let what = other.unwrap_or("no document of flashwright");
            Err(format!("is {what}, and {} is read", document::SCHEMA))
        }
    }
}

/// Works as a task. The coordinator tells what went wrong, with the task's number and node.
fn serve(ranks: Ranks) -> ! {
    let code = task::serve(ranks).map_or_else(|error| error.class().exit_code(), |()| 0);
    std::process::exit(code.into())
}

fn config(args: &FlashioArgs, tasks: u32, stop: Arc<AtomicBool>) -> Config {
    Config {
        fast: args.fast.clone().expect("--fast is required"),
        slow: args.slow.clone().expect("--slow is required"),
        tasks,
        matrix: args.matrix,
        compute: args.compute,
        multiplications: args.multiplications,
        every: args.every,
        checkpoints: args.checkpoints,
        checkpoint_bytes: args.checkpoint_size,
        blocks: args.blocks,
        timeout: args.timeout,
        seed: args.seed.unwrap_or_else(sweep::plan::fresh_seed),
        keep: args.keep,
        arguments: std::env::args_os().skip(1).collect(),
        stop,
        listener: Arc::new(|task, line: &str| {
            output::tell(&format!("task {task}: {line}\n"));
        }),
        progress,
    }
}

/// How long it computes and how much it writes, at most.
fn outlook(config: &Config) -> String {
    // One way writes to the slow tier, one to the fast one, and one to both.
    let legs = u64::from(config.tasks) * u64::from(config.checkpoints);
    let bytes = legs.saturating_mul(config.checkpoint_bytes).saturating_mul(2 * u64::from(config.blocks));
    let times = (Way::ALL.len() as u32).saturating_mul(config.checkpoints);
    let computing = config.compute.saturating_mul(times.saturating_mul(config.blocks));
    let computing = match config.multiplications {
        None => format!("computes for about {}, and ", units::seconds(computing)),
        Some(_) => String::new(),
    };
    format!(
        "{} tasks, at most {} blocks of three ways: it {computing}writes {} to each of {} and {}, besides the time that this takes",
        config.tasks,
        config.blocks,
        units::bytes(bytes),
        config.fast.display(),
        config.slow.display()
    )
}

fn progress(block: u32, way: Way) {
    if output::is_watched() {
        output::tell(&format!("block {}: {}\n", block + 1, way.label()));
    }
}

/// Where the page and the document go.
fn sinks(directory: &Path) -> Result<[Sink; 2], Failure> {
    if !directory.is_dir() {
        std::fs::create_dir(directory).map_err(|error| {
            Failure::invalid(format!("--output={}: cannot be made: {error}", directory.display()))
                .hint("name a directory whose parent is there")
        })?;
    }
    Ok([html_sink(directory)?, sink(&directory.join("flashio.json"))?])
}

fn html_sink(directory: &Path) -> Result<Sink, Failure> {
    sink(&directory.join("report.html"))
}

fn sink(path: &Path) -> Result<Sink, Failure> {
    Sink::of(Some(path), false)
        .map_err(|failure| failure.hint("name another directory, or move that file away"))
}

impl From<FlashioError> for Failure {
    fn from(error: FlashioError) -> Self {
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_is_said_beforehand_how_long_it_computes_and_how_much_it_writes() {
        let config = Config {
            fast: "fast".into(),
            slow: "slow".into(),
            tasks: 2,
            matrix: 16,
            compute: Duration::from_secs(2),
            multiplications: None,
            every: 2,
            checkpoints: 5,
            checkpoint_bytes: 64 << 20,
            blocks: 6,
            timeout: Duration::from_secs(60),
            seed: 1,
            keep: false,
            arguments: Vec::new(),
            stop: Arc::default(),
            listener: Arc::new(|_, _: &str| {}),
            progress,
        };
        // Each checkpoint of a task is written once to each tier by way of the three: 2 tasks, 5 checkpoints, 6 blocks, twice.
        assert_eq!(
            outlook(&config),
            "2 tasks, at most 6 blocks of three ways: it computes for about 3 min 00 s, and writes 7.50 GiB to each of fast \
             and slow, besides the time that this takes"
        );
        let given = outlook(&Config { multiplications: Some(3), ..config });
        assert!(given.contains("three ways: it writes 7.50 GiB"), "{given}");
    }
}
