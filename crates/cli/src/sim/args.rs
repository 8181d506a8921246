//! The flags of `sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::bench::args::WorkloadArgs;

const EXAMPLES: &str = "\
Examples:
  flashwright sim machines/dash-io-node.toml --rw=randread --bs=4k --iodepth=512
  flashwright sim dash-io-node --layout 'md-raid0(chunk=64k,filesystem=xfs)' \\
      --rw=randwrite --bs=4k --iodepth=128
  flashwright sim my-node.toml workload.toml --json
  flashwright sweep examples/dash-io.toml --machine machines/dash-io-node.toml
  flashwright sim papers
  flashwright sim fit results.db --output my-drive.toml

A machine is a TOML file, or the name of one that the program brings; docs/verbs/sim.md tells all keys. Time is virtual: \
a run ends as soon as its rate is known to 1 %, and the same seed gives the same figures everywhere.";

/// `flashwright sim`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
#[command(subcommand_value_name = "WHAT", subcommand_help_heading = "Besides running a workload")]
pub struct SimArgs {
    #[command(subcommand)]
    pub command: Option<SimCommand>,
    /// The machine
    #[arg(value_name = "MACHINE.toml", required = true)]
    pub machine: Option<PathBuf>,
    /// A workload in TOML; flags go before what it says
    #[arg(value_name = "WORKLOAD.toml")]
    pub file: Option<PathBuf>,
    /// How the machine's drives are used: single, separate, stripe(…) or md-raid0(…), with the settings of `flashwright layout` in the
    /// parentheses and width=N for the first N drives [default: all drives under md, or as one stripe]
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<String>,
    /// Go on for the whole runtime, instead of until the rate is known to 1 %
    #[arg(long)]
    pub whole: bool,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Print one JSON document (flashwright.bench/1)
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// What else can be done.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Set the papers' figures beside those of the simulated machines
    Papers(PapersArgs),
    /// Fit a drive's constants to a measured sweep, and predict the points held out
    Fit(FitArgs),
}

/// `flashwright sim fit`.
#[derive(Debug, Args)]
pub struct FitArgs {
    /// A sweep's directory or its results.db: reads, and writes if there are any, over several bs and iodepth
    #[arg(value_name = "DIR|results.db")]
    pub results: PathBuf,
    /// Hold out one point of so many, which the constants do not see
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..))]
    pub hold_out: u32,
    /// Write a machine file with the drive
    #[arg(long, value_name = "MACHINE.toml", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Replace the file that --output names even if flashwright did not write it
    #[arg(long, help_heading = "Output", requires = "output")]
    pub force: bool,
    /// Print one JSON document (flashwright.fit/1)
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `flashwright sim papers`.
#[derive(Debug, Args)]
pub struct PapersArgs {
    /// Move each constant by 20 % up and down, and tell which figures move by more than 10 % (takes minutes)
    #[arg(long)]
    pub sensitivity: bool,
    /// Set each constant again from the one figure that pins it, and tell what the figures held out then come to (takes a minute)
    #[arg(long)]
    pub refit: bool,
    /// Print one JSON document (flashwright.papers/1)
    #[arg(long)]
    pub json: bool,
}
