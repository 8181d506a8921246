//! Flags of `flashwright layout`.

use std::path::PathBuf;

use base::{Filesystem, LayoutKind};
use clap::{Args, Subcommand};

/// `flashwright layout`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
A layout is a kind, settings and drives: KIND(SETTING=VALUE,…):DRIVE,DRIVE,…
Kinds: {}.
Settings: chunk, width, filesystem ({}), \
mount_options, scheduler, read_ahead_kb, nr_requests, nomerges, rq_affinity, \
write_cache, wbt_lat_usec, max_sectors_kb, io_poll, iostats, irq_cpus.
What is not named is left as the machine has it.

Examples:
  flashwright layout survey /dev/nvme0n1 /dev/nvme1n1
  flashwright layout up \\
      'md-raid0(chunk=64k,filesystem=xfs):/dev/nvme0n1,/dev/nvme1n1'
  flashwright layout show
  flashwright layout down", LayoutKind::WORDS.join(", "), Filesystem::SETTINGS.join(", ")))]
pub struct LayoutArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LayoutCommand,
}

/// The verbs below `layout`.
#[derive(Debug, Subcommand)]
pub enum LayoutCommand {
    /// Make a layout, which stays until it is taken down
    Up(UpArgs),
    /// Take down what `layout up` made, and set back all settings
    Down(DownArgs),
    /// Restore what a process changed that was killed; safe to do at any time
    Undo(DownArgs),
    /// Tell what stands
    Show(ShowArgs),
    /// Tell which layouts and settings are to be had here, and why others are not
    Survey(SurveyArgs),
}

/// `flashwright layout up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The layout
    #[arg(value_name = "SPEC")]
    pub spec: String,
    /// A drive whose contents may be lost; may be given many times, and must name that very drive
    #[arg(long, value_name = "DEV")]
    pub destroy: Vec<PathBuf>,
    /// Size of the file to measure on each file system; as much as fits, less a tenth, unless said
    #[arg(long, value_name = "SIZE", value_parser = crate::values::size)]
    pub file_size: Option<u64>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `flashwright layout down` and `undo`.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Give up what cannot be undone, such as a mark on a drive that is gone for good
    #[arg(long)]
    pub abandon: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `flashwright layout show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `flashwright layout survey`.
#[derive(Debug, Args)]
pub struct SurveyArgs {
    /// The drives
    #[arg(value_name = "DRIVE", required = true)]
    pub drives: Vec<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}
