//! Flags of `flashwright plan`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::values::{Bandwidth, amount, bandwidth, number};
use crate::values;

/// `flashwright plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
A price file is TOML: products with prices, dates and sources \
(examples/prices). Sizes and rates: 4t and 4TiB are powers of 1024, 4TB and \
2.5GB/s powers of ten. RESULTS is a sweep's directory or results.db, or a file \
of bench --json or probe --ladder --json.

Examples:
  flashwright plan cost --prices prices.toml nvme=results/
  flashwright plan power --prices prices.toml --years 5 --duty 0.3
  flashwright plan checkpoint --mtbf 24h --size 2TB --fast 10GB/s --simulate")]
pub struct PlanArgs {
    /// What to plan.
    #[command(subcommand)]
    pub command: PlanCommand,
}

/// The verbs below `plan`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Bandwidth, capacity and IOPS for the money (DASH, Table 1), and of a year of operation
    Cost(EfficiencyArgs),
    /// Bandwidth and IOPS for the power (DASH, Table 2), and the energy of a year
    Power(EfficiencyArgs),
    /// How often to checkpoint, what it wastes, and which tiers to buy
    Checkpoint(Box<CheckpointArgs>),
}

/// How results are printed.
#[derive(Debug, Args)]
pub struct FormArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write a page with plots to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `flashwright plan cost` and `power`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashwright plan cost --prices examples/prices/dash-2010.toml
  flashwright plan power --prices examples/prices/dash-2010.toml --json
  flashwright plan cost --prices prices.toml nvme=results/ --kwh-price 0.3")]
pub struct EfficiencyArgs {
    /// Measured figures of a product of the price file, in place of those that it states
    #[arg(value_name = "NAME=RESULTS")]
    pub results: Vec<String>,
    /// The price file
    #[arg(long, value_name = "FILE", required = true)]
    pub prices: PathBuf,
    /// Years over which a price is spread
    #[arg(long, value_name = "N", default_value = "4", value_parser = number)]
    pub years: f64,
    /// Share of the time in which a product is active
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = number)]
    pub duty: f64,
    /// Power usage effectiveness of the site [default: the price file's, or 1]
    #[arg(long, value_name = "RATIO", value_parser = number)]
    pub pue: Option<f64>,
    /// Price of a kilowatt-hour [default: the price file's, or electricity is left out]
    #[arg(long, value_name = "PRICE", value_parser = number)]
    pub kwh_price: Option<f64>,
    #[command(flatten)]
    pub form: FormArgs,
}

/// `flashwright plan checkpoint`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashwright plan checkpoint --mtbf 24h --write-time 5m
  flashwright plan checkpoint --mtbf 6h --size 2TB --fast results/ --simulate
  flashwright plan checkpoint --mtbf 24h --size 2TB --fast 10GB/s \\
      --slow 2GB/s --slow-failures 0.1
  flashwright plan checkpoint --size 1200TB --interval 1h --fast 2.25TB/s \\
      --fast-capacity 2.25PB --alone 1TB/s \\
      --prices examples/prices/cray-2013.toml
  flashwright plan checkpoint --mtbf 24h --size 1200TB --target-waste 0.1 \\
      --prices examples/prices/cray-2013.toml")]
pub struct CheckpointArgs {
    /// Mean time between failures of the whole machine
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    pub mtbf: Option<Duration>,
    /// Bytes of a checkpoint
    #[arg(long, value_name = "SIZE", value_parser = amount)]
    pub size: Option<u64>,
    /// Time that a checkpoint takes, in place of --size and --fast
    #[arg(long, value_name = "TIME", conflicts_with_all = ["size", "fast"], value_parser = values::positive_duration)]
    pub write_time: Option<Duration>,
    /// Write bandwidth of the fast tier, as a rate or as measured
    #[arg(long, value_name = "RATE|RESULTS", value_parser = bandwidth)]
    pub fast: Option<Bandwidth>,
    /// Write bandwidth of the slow tier, to which checkpoints drain
    #[arg(long, value_name = "RATE|RESULTS", requires = "size", value_parser = bandwidth)]
    pub slow: Option<Bandwidth>,
    /// Compare with a slow tier alone of this bandwidth
    #[arg(long, value_name = "RATE|RESULTS", requires = "size", value_parser = bandwidth)]
    pub alone: Option<Bandwidth>,
    /// Time from one checkpoint to the next [default: that of the least waste]
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    pub interval: Option<Duration>,
    /// Time to read a checkpoint back [default: as long as writing it]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub restart: Option<Duration>,
    /// Time from a failure to the restart
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::duration)]
    pub downtime: Duration,
    /// Share of its speed that the application keeps while a checkpoint is written
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = number)]
    pub overlap: f64,
    /// Share of failures that lose the fast tier's checkpoints: two levels
    #[arg(long, value_name = "SHARE", requires = "slow", value_parser = number)]
    pub slow_failures: Option<f64>,
    /// Share of its speed that the application keeps while a checkpoint drains
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = number)]
    pub drain_overlap: f64,
    /// Checkpoints that stay on the fast tier
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::whole::<u32>)]
    pub keep: u32,
    /// Capacity of the fast tier [default: by the formula]
    #[arg(long, value_name = "SIZE", requires = "fast", value_parser = amount)]
    pub fast_capacity: Option<u64>,
    /// Capacity that the slow tier must have [default: what comes with its bandwidth]
    #[arg(long, value_name = "SIZE", value_parser = amount)]
    pub slow_capacity: Option<u64>,
    /// The price file
    #[arg(long, value_name = "FILE", requires = "size")]
    pub prices: Option<PathBuf>,
    /// Product of the fast tier
    #[arg(long, value_name = "NAME", default_value = "flash")]
    pub fast_product: String,
    /// Product of the slow tier
    #[arg(long, value_name = "NAME", default_value = "disk")]
    pub slow_product: String,
    /// Find the cheapest tiers that waste at most this share of the time
    #[arg(long, value_name = "SHARE", requires_all = ["prices", "mtbf"], value_parser = number)]
    pub target_waste: Option<f64>,
    /// Check the wastes by simulated failures
    #[arg(long, requires = "mtbf")]
    pub simulate: bool,
    /// Simulated runs
    #[arg(long, value_name = "N", default_value = "100000", requires = "simulate", value_parser = values::whole::<u32>)]
    pub runs: u32,
    /// What the simulated failures follow from
    #[arg(long, value_name = "N", default_value = "1", requires = "simulate", value_parser = values::whole::<u64>)]
    pub seed: u64,
    /// Shape of Weibull's distribution of the times between simulated failures [default: exponential]
    #[arg(long, value_name = "SHAPE", requires = "simulate", value_parser = number)]
    pub weibull: Option<f64>,
    #[command(flatten)]
    pub form: FormArgs,
}
