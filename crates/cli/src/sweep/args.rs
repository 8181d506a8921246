//! The flags of `sweep` and of what belongs to it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use measure::simulation::machine::World;
use sweep::plan::{Margin, Protocol};

use crate::values;

const EXAMPLES: &str = "\
Examples:
  flashwright sweep                    the papers' 14 tests, in two minutes
  flashwright sweep --target /scratch  the same on the file system of /scratch
  flashwright sweep examples/depth.toml --target /dev/nvme1n1 \\
      --destroy /dev/nvme1n1
  flashwright sweep plan examples/dash14.toml

Without --target a scratch file is laid in the current directory; it has no name and vanishes at \
the end, however that comes. A space is a TOML file; examples/ has some, and docs/sweep.md \
tells all keys.";

/// `flashwright sweep`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
#[command(subcommand_value_name = "WHAT", subcommand_help_heading = "Besides running one")]
pub struct SweepArgs {
    #[command(subcommand)]
    pub command: Option<SweepCommand>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// What can be done with sweeps.
#[derive(Debug, Subcommand)]
pub enum SweepCommand {
    /// Run a sweep; the same as without the word
    Run(RunArgs),
    /// Show what a sweep would run, and how long it would take; touches nothing
    Plan(PlanArgs),
    /// Go on with a sweep that was interrupted or killed
    Resume(ResumeArgs),
    /// Tell how far a sweep is, also while it runs
    Status(StatusArgs),
    /// Compare two sweeps point by point
    Diff(DiffArgs),
    /// Put the parts of a sweep that were measured on several machines together
    Merge(MergeArgs),
    /// Compare two targets, settings or programs that alternate in one sweep
    Ab(AbArgs),
    /// Try on simulated machines how often the decisions are right; touches nothing
    CheckStatistics(CheckArgs),
    /// Try on the figures of a sweep how near a screened one comes to its best points, and by how few runs; touches nothing
    CheckSearch(CheckSearchArgs),
}

/// What replaces the space file's words.
#[derive(Debug, Clone, Args)]
pub struct OverrideArgs {
    /// What to measure: a directory (a scratch file is laid there), a file, a block device, file:PATH?size=4g,
    /// mem:4g, stripe(chunk=64k):SPEC,SPEC, separate:SPEC,SPEC or volume:SPEC,SPEC; several are compared [default: a scratch file in the current directory]
    #[arg(long, value_name = "SPEC")]
    pub target: Vec<String>,
    /// How long each run measures
    #[arg(long, value_parser = values::positive_duration, value_name = "TIME")]
    pub runtime: Option<Duration>,
    /// How long each run goes on before it measures
    #[arg(long = "ramp_time", alias = "ramp-time", value_parser = values::duration, value_name = "TIME")]
    pub ramp_time: Option<Duration>,
    /// How runs are chosen: blocks (the alternatives of one kind of work back to back, until it is decided which is best),
    /// dash (the papers' passes over all points) or screen (as --search screen) [default: blocks; dash for layouts]
    #[arg(long, value_parser = values::word::<Protocol>, value_name = "WORD")]
    pub protocol: Option<Protocol>,
    /// How much of the space is run: exhaustive (every point in every pass, as --protocol dash), race (every point until it
    /// cannot win, as --protocol blocks) or screen (few points on few layouts, for spaces of hundreds of points and more)
    #[arg(long, value_parser = values::search, value_name = "WORD", conflicts_with = "protocol")]
    pub search: Option<Protocol>,
    /// The longest that blocks are run; what is not decided by then is said [default: 2m, more for large spaces]
    #[arg(long, value_parser = values::positive_duration, value_name = "TIME")]
    pub budget: Option<Duration>,
    /// How far apart settings may lie that count as equally good: 3%, 0.05 [default: 5%]
    #[arg(long, value_parser = values::margin, value_name = "PERCENT")]
    pub equivalence: Option<Margin>,
    /// A fixed number of blocks, or of passes
    #[arg(long, value_parser = values::whole::<u32>, value_name = "N")]
    pub passes: Option<u32>,
    /// Bytes of each target that are used, and of the scratch file
    /// [default: all; for the scratch file by memory, free space and speed]
    #[arg(long, value_parser = values::positive_size, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Seed of the order and of all offsets [default: drawn, and recorded]
    #[arg(long, value_parser = values::whole::<u64>, value_name = "N")]
    pub seed: Option<u64>,
    /// Drives of which the space's layouts are built, in the place of those that it names
    #[arg(long, value_name = "DEV,DEV…", value_delimiter = ',')]
    pub drives: Vec<PathBuf>,
    /// Plan or run only the I-th of N parts, for one of N machines of one kind; `sweep merge` puts them together
    #[arg(long, value_name = "I/N", value_parser = values::shard)]
    pub shard: Option<(u32, u32)>,
}

/// What a user allows.
#[derive(Debug, Clone, Default, Args)]
pub struct PermitArgs {
    /// A device or file whose contents may be lost; may be given several times
    #[arg(long, value_name = "DEV")]
    pub destroy: Vec<PathBuf>,
    /// Measure reads of holes and unwritten extents, which the kernel answers from nothing
    #[arg(long, alias = "allow_unwritten")]
    pub allow_unwritten: bool,
}

/// What every sweep begins with.
#[derive(Debug, Clone, Args)]
pub struct BeginningArgs {
    #[command(flatten)]
    pub permits: PermitArgs,
    /// Where results.db, results.json and report.html go [default: flashwright-results-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Print the report as one JSON document (flashwright.report/2)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright sweep` itself.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The design space [default: the papers' fourteen test types]
    #[arg(value_name = "SPACE.toml")]
    pub space: Option<PathBuf>,
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Run on a machine described in this file, in virtual time, instead of on drives: a machine file, or the name of one that the program
    /// brings (`flashwright sim --help`)
    #[arg(long, value_name = "MACHINE.toml", conflicts_with_all = ["target", "drives"])]
    pub machine: Option<PathBuf>,
    #[command(flatten)]
    pub beginning: BeginningArgs,
}

/// `flashwright sweep plan`.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// The design space [default: the papers' fourteen test types]
    #[arg(value_name = "SPACE.toml")]
    pub space: Option<PathBuf>,
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Print one JSON document (flashwright.plan/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright sweep resume`.
#[derive(Debug, Clone, Args)]
pub struct ResumeArgs {
    /// A sweep's directory, or its results.db
    #[arg(value_name = "DIR")]
    pub sweep: PathBuf,
    #[command(flatten)]
    pub permits: PermitArgs,
    /// The longest that blocks are run, all sessions together, in the place of what the sweep was begun with
    #[arg(long, value_parser = values::positive_duration, value_name = "TIME")]
    pub budget: Option<Duration>,
    /// Go on here with a sweep that was begun on another machine
    #[arg(long, alias = "allow_other_machine")]
    pub allow_other_machine: bool,
    /// Print the report as one JSON document (flashwright.report/2)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright sweep status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// A sweep's directory, or its results.db
    #[arg(value_name = "DIR")]
    pub sweep: PathBuf,
    /// Print one JSON document (flashwright.status/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright sweep diff`.
#[derive(Debug, Clone, Args)]
pub struct DiffArgs {
    /// The baseline: a sweep's directory, or its results.db
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// What is compared with it
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// A further sweep of the same kind as A on the same machine; with two or more it is estimated how far figures move
    /// between sessions
    #[arg(long, value_name = "DIR")]
    pub like: Vec<PathBuf>,
    /// Print one JSON document (flashwright.diff/2)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright sweep ab`.
#[derive(Debug, Clone, Args)]
pub struct AbArgs {
    /// One side: a space as for `sweep`, which may also be without `[space]`
    #[arg(value_name = "A.toml")]
    pub a: PathBuf,
    /// The other: the same `[space]`, and another target or other choices in `[base]`
    #[arg(value_name = "B.toml")]
    pub b: PathBuf,
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Another flashwright that measures A
    #[arg(long, value_name = "PROGRAM")]
    pub binary_a: Option<PathBuf>,
    /// Another flashwright that measures B
    #[arg(long, value_name = "PROGRAM")]
    pub binary_b: Option<PathBuf>,
    #[command(flatten)]
    pub beginning: BeginningArgs,
}

/// `flashwright sweep merge`.
#[derive(Debug, Clone, Args)]
pub struct MergeArgs {
    /// Directories of sweeps that ran with --shard, or their results.db
    #[arg(value_name = "DIR", required = true)]
    pub sweeps: Vec<PathBuf>,
    /// Where the whole goes
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Print the report as one JSON document (flashwright.report/2)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright sweep check-statistics`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Numbers of settings, 2 to 200
    #[arg(long, value_name = "N,N…", value_delimiter = ',', default_values_t = [2, 3, 6, 14, 40],
          value_parser = clap::value_parser!(u16).range(2..=200))]
    pub settings: Vec<u16>,
    /// Races of each line, 20 or more
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(20..))]
    pub repetitions: u32,
    /// What all figures follow from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON document (flashwright.statistics/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright sweep check-search`.
#[derive(Debug, Clone, Args)]
pub struct CheckSearchArgs {
    /// The results of a sweep over all points; their means are taken for the truth
    #[arg(value_name = "DIR")]
    pub results: PathBuf,
    /// The noise: quiet, normal, unequal, pass, vm, vm+, heavy or trend
    #[arg(long, value_name = "WORD", value_parser = values::world, default_value = "normal")]
    pub world: World,
    /// Length of the runs [default: as the sweep had them]
    #[arg(long, value_parser = values::positive_duration, value_name = "TIME")]
    pub runtime: Option<Duration>,
    /// Searches of each method, 1 or more
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: u32,
    /// What all figures follow from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON document (flashwright.search-check/1)
    #[arg(long)]
    pub json: bool,
}
