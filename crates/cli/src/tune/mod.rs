//! `flashwright tune`: the answer of a sweep, shown, set, set back, and written down for good.
//!
//! The settings are those of the report: the one layout that serves all kinds of work best, or the best for one of
//! them. `apply` sets only what a running machine takes without losing anything (queues, interrupts); it journals
//! every old value before, in a directory of its own, so that layouts can be made and unmade meanwhile. What needs
//! building stands in the script that `export` writes.

pub mod args;
pub mod document;
mod export;
mod files;
mod parts;
mod script;
mod tuning;

use std::path::{Path, PathBuf};

use ::layout::{LayoutError, Layouts, Permits};
use sweep::report::{Report, SCHEMA};
use sweep::store::{Store, locate};

use self::args::{ApplyArgs, ShowArgs, TuneArgs, TuneCommand, UndoArgs};
use self::document::TuneDocument;
use self::tuning::{Tuning, slug};
use crate::failure::Failure;
use crate::layout::documents::{Down, Up};
use crate::{output, paint, signals};

/// Shows, sets, sets back or writes down.
pub fn tune(args: &TuneArgs) -> Result<(), Failure> {
    match &args.command {
        TuneCommand::Show(args) => show(args),
        TuneCommand::Apply(args) => apply(args),
        TuneCommand::Undo(args) => undo(args),
        TuneCommand::Export(args) => export::export(args),
    }
}

/// A failure of the machinery of layouts.
fn failed(error: LayoutError) -> Failure {
    let is_standing = matches!(error, LayoutError::Stands { .. });
    let failure = Failure::of(error.class(), &error).hint_if(error.hint());
    if is_standing {
        failure.hint("`flashwright tune undo` sets back what an earlier `tune apply` set")
    } else {
        failure
    }
}

fn failed_without_layout(sweep: &Path) -> Failure {
    Failure::invalid(format!("{}: the sweep had no layouts, so there is nothing to set", sweep.display()))
        .hint("sweep a space with settings of a layout, such as scheduler or read_ahead_kb")
}

/// Where `apply` keeps its journal, beside that of layouts.
fn state() -> PathBuf {
    ::layout::state_dir().join("tune")
}

/// The report of a sweep: made from its results.db, or read where only results.json was kept.
fn report(sweep: &Path) -> Result<Report, Failure> {
    let json = if sweep.is_dir() { sweep.join(crate::sweep::JSON) } else { sweep.to_owned() };
    let is_json = json.extension().is_some_and(|extension| extension == "json");
    if !is_json || (sweep.is_dir() && locate(sweep).exists()) {
        return crate::sweep::loaded(&Store::open_read_only(sweep)?);
    }
    let text = std::fs::read_to_string(&json).map_err(|error| {
        let message = format!("{}: cannot be read: {error}", json.display());
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        let failure = if is_missing { Failure::invalid(message) } else { Failure::failed(message) };
        failure.hint("name a sweep's directory, its results.db or its results.json")
    })?;
    let wrong = |what: String| {
        Failure::invalid(format!("{}: {what}", json.display()))
            .hint("name a sweep's directory, its results.db or its results.json")
    };
    let no_report = |error| wrong(format!("is no {SCHEMA}: {error}"));
    let document: serde_json::Value = serde_json::from_str(&text).map_err(no_report)?;
    if let Some(other) = document["schema"].as_str().filter(|schema| *schema != SCHEMA) {
        return Err(wrong(format!("is {other}, and {SCHEMA} is read")));
    }
    serde_json::from_value(document).map_err(no_report)
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let report = report(&args.which.sweep)?;
    let tuning = Tuning::of(&report, &args.which)?;
    if args.json {
        return output::print_document(&TuneDocument::new(&report, &tuning));
    }
    let mut text = format!("{}\n{}\n", paint::title(&tuning.origin), tuning.sentence);
    match &tuning.spec {
        Some(spec) => text += &format!("\nlayout  {spec}\n"),
        None => {
            text += "\nThe sweep had no layouts, so there is nothing to set on the machine; see the loads below.\n"
        }
    }
    for name in parts::in_order(&tuning) {
        let setting = &tuning.settings[&name];
        let matters = if setting.matters == Some(false) { " (no difference was shown)" } else { "" };
        text += &format!("\n{}{matters}\n", paint::good(&format!("{name}={}", setting.value)));
        for line in tuning.evidence(&name) {
            text += &format!("    {line}\n");
        }
    }
    text += "\nThe load, for each kind of work (--for takes the name):\n";
    for r in &report.recommendations {
        let flags = r.flags.as_deref().unwrap_or("nothing recommended");
        text += &format!("  {:<24} {flags}\n", slug(&r.work));
    }
    output::print(&text)
}

fn apply(args: &ApplyArgs) -> Result<(), Failure> {
    let report = report(&args.which.sweep)?;
    if !args.allow_other_machine {
        refuse_other_machine(&report)?;
    }
    let tuning = Tuning::of(&report, &args.which)?;
    let spec = tuning.spec.ok_or_else(|| failed_without_layout(&args.which.sweep))?;
    let stop = signals::stop_flag()?;
    let mut layouts = Layouts::open(&state(), Permits::default(), stop.into()).map_err(failed)?;
    // Whatever fails, the end of `layouts` sets back what was set.
    let built = layouts.tune(&spec).map_err(failed)?;
    layouts.leave().map_err(failed)?;
    if args.json {
        return output::print_document(&Up::new(&spec, built));
    }
    let mut text = String::new();
    for (name, value) in spec.queue.iter().chain(spec.irq_cpus.as_ref().map(|cpus| (&*IRQ, cpus))) {
        text += &format!("{name}={value} on {}\n", drives(&spec));
    }
    for note in &built.notes {
        text += &format!("{}: {note}\n", paint::warn("note"));
    }
    if text.is_empty() {
        text += "the layout names no setting of a queue; nothing was changed\n";
    }
    output::print(&format!("{text}`flashwright tune undo` sets everything back; a restart does as well\n"))
}

/// The one setting that is not a queue's.
static IRQ: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| "irq_cpus".to_owned());

fn drives(spec: &::layout::LayoutSpec) -> String {
    spec.drives.iter().map(|drive| drive.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Names of drives say nothing about another machine's.
fn refuse_other_machine(report: &Report) -> Result<(), Failure> {
    use storage::survey::Host;
    let here = bench::observe::host::host_facts(&Host::read(&storage::sysfs::Sysfs::host()));
    let Some(there) = &report.host else { return Ok(()) };
    if (&there.cpu_model, there.cpus, &there.architecture) == (&here.cpu_model, here.cpus, &here.architecture)
    {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "the sweep ran on another machine ({}, {} CPUs; here are {}, {} CPUs)",
        there.cpu_model, there.cpus, here.cpu_model, here.cpus
    ))
    .hint("--allow-other-machine applies it all the same; name its drives with --drives"))
}

fn undo(args: &UndoArgs) -> Result<(), Failure> {
    let mut said = |words: &str| {
        if output::is_watched() {
            output::tell(&format!("{words}\n"));
        }
    };
    let host = &mut ::layout::system::Host::default();
    let stop = signals::stop_flag()?.into();
    let undone = ::layout::undo_on(host, &state(), &stop, &mut said, args.abandon).map_err(failed)?;
    if args.json {
        return output::print_document(&Down::new(undone));
    }
    let mut text: String = undone.undone.iter().map(|change| format!("set back: {change}\n")).collect();
    text.extend(undone.abandoned.iter().map(|change| format!("{}: {change}\n", paint::warn("given up"))));
    if text.is_empty() {
        text += "nothing was applied, nothing is changed\n";
    }
    output::print(&text)
}
