//! Flags of `flashwright flashio`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::values;

/// `flashwright flashio`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(subcommand_value_name = "WHAT", subcommand_help_heading = "Besides running one")]
#[command(after_help = "\
Every task multiplies matrices and writes a checkpoint each time it has \
computed for a while. The same work is run three ways in turn: to the slow \
tier, to the fast tier with a drain behind it, to the fast tier alone.

Examples:
  flashwright flashio --fast /flash --slow /lustre/me --tasks 4
  flashwright flashio --fast /flash --slow /lustre/me --compute 30s \\
      --checkpoint-size 2g --output results
As root, tiers of about the paper's ratio on one machine:
  examples/flashio-tiers.sh up DIR; examples/flashio-tiers.sh run DIR")]
pub struct FlashioArgs {
    #[command(subcommand)]
    pub command: Option<FlashioCommand>,
    /// A directory on the fast tier
    #[arg(long, value_name = "DIR", required = true)]
    pub fast: Option<PathBuf>,
    /// A directory on the slow tier
    #[arg(long, value_name = "DIR", required = true)]
    pub slow: Option<PathBuf>,
    /// Processes that compute and write [default: 4; under mpirun all of its processes but the first, which coordinates]
    #[arg(long, value_name = "N", value_parser = values::whole::<u32>)]
    pub tasks: Option<u32>,
    /// Time of computing between two checkpoints, by which the work is calibrated
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::positive_duration)]
    pub compute: Duration,
    /// Bytes that a task writes for a checkpoint
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = values::positive_size)]
    pub checkpoint_size: u64,
    /// Checkpoints of each way in a block
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::whole::<u32>)]
    pub checkpoints: u32,
    /// Iterations between two checkpoints
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::whole::<u32>)]
    pub every: u32,
    /// The most blocks, each of the three ways in random order; fewer where all comparisons are decided before
    #[arg(long, value_name = "N", default_value = "6", value_parser = values::whole::<u32>)]
    pub blocks: u32,
    /// Rows and columns of the matrices
    #[arg(long, value_name = "N", default_value = "256", value_parser = values::whole::<u32>)]
    pub matrix: u32,
    /// Multiplications of an iteration, in place of a calibration
    #[arg(long, value_name = "N", value_parser = values::whole::<u32>)]
    pub multiplications: Option<u32>,
    /// End if a task, or the drain of a checkpoint, takes longer, and name it
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = values::positive_duration)]
    pub timeout: Duration,
    /// Seed of the order of ways [default: another each time]
    #[arg(long, value_name = "N", value_parser = values::whole::<u64>)]
    pub seed: Option<u64>,
    /// Leave the checkpoints where they are
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON document (flashwright.flashio/2)
    #[arg(long)]
    pub json: bool,
    /// Write report.html and flashio.json to DIR, which is made if its parent is there
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// What else can be done.
#[derive(Debug, Subcommand)]
pub enum FlashioCommand {
    /// Make report.html again from flashio.json, and print the figures
    Report {
        /// What --output named
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}
