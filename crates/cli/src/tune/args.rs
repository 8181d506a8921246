//! Flags of `flashwright tune`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `flashwright tune`.
#[derive(Debug, Args)]
#[command(after_help = "\
DIR is a sweep's directory, its results.db or its results.json. Without --for the one \
layout is taken that serves all kinds of work best; with it, the best for that \
kind alone.

Examples:
  flashwright tune show results/   the settings, and what each gives
  flashwright tune apply results/  set queues and interrupts; contents stay
  flashwright tune undo            set everything back as it was
  flashwright tune export results/ --output tuned/
                                   udev rules, a tuned profile, and a script")]
pub struct TuneArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TuneCommand,
}

/// The verbs below `tune`.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Print the settings with the measurement behind each
    Show(ShowArgs),
    /// Set the drives' queues and interrupts now, journalled
    Apply(ApplyArgs),
    /// Set back what `tune apply` set, byte for byte; safe to do at any time
    Undo(UndoArgs),
    /// Write udev rules, a tuned profile and a script that builds the layout
    Export(ExportArgs),
}

/// Which settings.
#[derive(Debug, Args)]
pub struct Which {
    /// A sweep's directory, its results.db or its results.json
    #[arg(value_name = "DIR")]
    pub sweep: PathBuf,
    /// The best for one kind of work, such as random-reads-4k; `tune show` names them
    #[arg(long = "for", value_name = "WORK")]
    pub work: Option<String>,
    /// Other drives than the sweep's, separated by commas
    #[arg(long, value_name = "DEV,…")]
    pub drives: Option<String>,
}

/// `flashwright tune show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Which settings
    #[command(flatten)]
    pub which: Which,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `flashwright tune apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Which settings
    #[command(flatten)]
    pub which: Which,
    /// Apply what was measured on a machine that is not this one
    #[arg(long)]
    pub allow_other_machine: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `flashwright tune undo`.
#[derive(Debug, Args)]
pub struct UndoArgs {
    /// Taken for the sake of symmetry; what is undone stands in the journal
    #[arg(value_name = "DIR")]
    pub sweep: Option<PathBuf>,
    /// Give up what cannot be undone, because a drive is gone for good
    #[arg(long)]
    pub abandon: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `flashwright tune export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Which settings
    #[command(flatten)]
    pub which: Which,
    /// The directory that the files go to, which is made where there is none; all of them on standard output without it
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Where the script mounts the file system
    #[arg(long, value_name = "FOLDER", default_value = "/mnt/flash")]
    pub mount: PathBuf,
}
