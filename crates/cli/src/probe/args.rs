//! The flags of `probe`, with and without `--ladder`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::values;

/// `flashwright probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashwright probe            the machine and all its drives
  flashwright probe /scratch   its file system, options, and the drives below
  flashwright probe /dev/nvme0n1 --json
  flashwright probe --ladder   latency and bandwidth of caches, memory, drives
  flashwright probe --ladder /scratch --remote nbd://host2 --html ladder.html")]
pub struct ProbeArgs {
    /// Files, directories, block devices or specs over them (volume:SPEC,SPEC) to look at; the whole machine where
    /// none is named
    #[arg(value_name = "PATH|DEV")]
    pub paths: Vec<PathBuf>,
    /// Print one JSON document (flashwright.probe/1; with --ladder flashwright.ladder/1)
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub ladder: LadderArgs,
}

/// The flags of the ladder.
#[derive(Debug, Args)]
pub struct LadderArgs {
    /// Measure the latency, bandwidth and capacity of every level: caches, memory, drives
    #[arg(long, help_heading = "Ladder")]
    pub ladder: bool,
    /// Memory of another host as a level, by its device spec; may be given several times
    #[arg(long, value_name = "SPEC", help_heading = "Ladder")]
    pub remote: Vec<String>,
    /// A device or file among those measured whose contents may be lost: it is written as well
    #[arg(long, value_name = "DEV", help_heading = "Ladder")]
    pub destroy: Vec<PathBuf>,
    /// Time of one measurement of a device; one of memory takes a fortieth [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, help_heading = "Ladder")]
    pub runtime: Option<Duration>,
    /// How often everything is measured [default: 5]
    #[arg(long, value_name = "N", value_parser = values::whole::<u32>, help_heading = "Ladder")]
    pub rounds: Option<u32>,
    /// The largest set in memory [default: eight times the last cache]
    #[arg(long = "max-set", alias = "max_set", value_name = "SIZE", value_parser = values::positive_size, help_heading = "Ladder")]
    pub max_set: Option<u64>,
    /// Size of the file that is laid in a directory [default: by memory, free space and speed]
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size, help_heading = "Ladder")]
    pub size: Option<u64>,
    /// Write a page with plots to FILE
    #[arg(long, value_name = "FILE", help_heading = "Ladder")]
    pub html: Option<PathBuf>,
    /// Replace the file that --html names even if flashwright did not write it
    #[arg(long, help_heading = "Ladder", requires = "html")]
    pub force: bool,
}
