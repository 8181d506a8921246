//! Flags of `flashwright plan`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::values::{Amplification, Bandwidth, amount, amplification, bandwidth, number};
use crate::values;

/// `flashwright plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
A price file is TOML: products with prices, dates and sources \
(examples/prices). Sizes and rates: 4t and 4TiB are powers of 1024, 4TB and \
2.5GB/s powers of ten. RESULTS is a sweep's directory or results.db, or a file \
of bench --json, probe --ladder --json or stage status --json (a drain).

Examples:
  flashwright plan cost --prices prices.toml nvme=results/
  flashwright plan power --prices prices.toml --years 5 --duty 0.3
  flashwright plan checkpoint --mtbf 24h --size 2TB --fast 10GB/s --simulate
  flashwright plan endurance --capacity 3.84TB --pe-cycles 3000 \\
      --write-rate 200MB/s --smart smart.json
  flashwright plan tier curve.csv --prices prices.toml --access-time 1ms")]
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
    /// How long flash lasts, and how often it reads a wrong bit
    Endurance(EnduranceArgs),
    /// A ladder of memory and storage with prices and watts (DASH, Fig. 1)
    Hierarchy(HierarchyArgs),
    /// How much DRAM, flash and disk a working set needs, at the least price
    Tier(TierArgs),
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
    /// Replace the file that --html names even if flashwright did not write it
    #[arg(long, requires = "html")]
    pub force: bool,
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
    #[arg(long, value_name = "TIME", conflicts_with_all = ["size", "fast", "slow", "alone", "slow_failures", "drain_overlap", "prices", "fast_product", "slow_product"], value_parser = values::positive_duration)]
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
    /// Time from one checkpoint to the next [default: that of the least waste, for each tier its own]
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
    #[arg(long, value_name = "SHARE", requires_all = ["slow", "fast", "mtbf"], value_parser = number)]
    pub slow_failures: Option<f64>,
    /// Share of its speed that the application keeps while a checkpoint drains
    #[arg(long, value_name = "SHARE", default_value = "0", requires = "slow_failures", value_parser = number)]
    pub drain_overlap: f64,
    /// Checkpoints that stay on the fast tier
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::whole::<u32>)]
    pub keep: u32,
    /// Capacity of the fast tier [default: by the formula]
    #[arg(long, value_name = "SIZE", requires = "fast", value_parser = amount)]
    pub fast_capacity: Option<u64>,
    /// Capacity that the slow tier must have [default: two checkpoints, or what comes with its bandwidth]
    #[arg(long, value_name = "SIZE", value_parser = amount)]
    pub slow_capacity: Option<u64>,
    /// The price file
    #[arg(long, value_name = "FILE", requires = "size")]
    pub prices: Option<PathBuf>,
    /// Product of the fast tier
    #[arg(long, value_name = "NAME", default_value = "flash", requires = "prices")]
    pub fast_product: String,
    /// Product of the slow tier
    #[arg(long, value_name = "NAME", default_value = "disk", requires = "prices")]
    pub slow_product: String,
    /// Find the cheapest tiers that waste at most this share of the time
    #[arg(
        long,
        value_name = "SHARE",
        requires_all = ["prices", "mtbf"],
        conflicts_with_all = ["interval", "slow", "alone", "slow_failures", "simulate", "fast_capacity"],
        value_parser = number,
    )]
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

/// `flashwright plan endurance`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashwright plan endurance --capacity 64GB --pe-cycles 100000 \\
      --write-rate 203MB/s --uber 1e-15 --read-rate 250MB/s
  flashwright plan endurance --prices examples/prices/dash-2010.toml \\
      --product x25-e-of-table-4 --write-rate 44MB/s
  smartctl --json -a /dev/nvme0 > smart.json
  flashwright plan endurance --smart smart.json --pe-cycles 3000
  flashwright sim nvme-node-2026 --rw=randwrite --iodepth=64 --json > run.json
  flashwright plan endurance --capacity 480GB --pe-cycles 3000 \\
      --write-rate 200MB/s --write-amplification run.json")]
pub struct EnduranceArgs {
    /// Bytes of the drive [default: the product's, or what --smart tells]
    #[arg(long, value_name = "SIZE", value_parser = amount)]
    pub capacity: Option<u64>,
    /// Program/erase cycles that a cell lasts [default: the product's]
    #[arg(long, value_name = "N", value_parser = number)]
    pub pe_cycles: Option<f64>,
    /// What the host writes, as a rate or as measured [default: the mean of --smart]
    #[arg(long, value_name = "RATE|RESULTS", value_parser = bandwidth)]
    pub write_rate: Option<Bandwidth>,
    /// Share of the time in which it does
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = number)]
    pub duty: f64,
    /// Bytes that the flash writes for each byte of the host, as a ratio or as simulated [default: what --smart and the P/E cycles come to, or 1]
    #[arg(long, value_name = "RATIO|RESULTS", value_parser = amplification)]
    pub write_amplification: Option<Amplification>,
    /// Years over which drive writes a day are counted
    #[arg(long, value_name = "N", default_value = "5", value_parser = number)]
    pub years: f64,
    /// Uncorrectable bit errors for each bit read [default: the product's]
    #[arg(long, value_name = "RATE", requires = "read_rate", value_parser = number)]
    pub uber: Option<f64>,
    /// What is read, as a rate or as measured
    #[arg(long, value_name = "RATE|RESULTS", value_parser = bandwidth)]
    pub read_rate: Option<Bandwidth>,
    /// What the drive counts: the output of smartctl --json -a or nvme smart-log -o json
    #[arg(long, value_name = "FILE")]
    pub smart: Option<PathBuf>,
    /// The price file that has the product
    #[arg(long, value_name = "FILE", requires = "product")]
    pub prices: Option<PathBuf>,
    /// The drive, as a product of the price file
    #[arg(long, value_name = "NAME", requires = "prices")]
    pub product: Option<String>,
    #[command(flatten)]
    pub form: FormArgs,
}

/// `flashwright plan hierarchy`.
#[derive(Debug, Args)]
#[command(after_help = "\
A product belongs to a level that has its name, or to levels of its kind: \
memory, flash, disk.

Examples:
  flashwright probe --ladder --json > ladder.json
  flashwright plan hierarchy ladder.json
  flashwright plan hierarchy ladder.json --prices prices.toml --html fig1.html")]
pub struct HierarchyArgs {
    /// A file of probe --ladder --json
    #[arg(value_name = "LADDER")]
    pub ladder: PathBuf,
    /// The price file
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    #[command(flatten)]
    pub form: FormArgs,
}

/// `flashwright plan tier`.
#[derive(Debug, Args)]
#[command(after_help = "\
The curve is CSV with the heading bytes,miss_ratio, or distance_bytes,count for \
a histogram of LRU stack distances.

Examples:
  flashwright plan tier examples/working-set.csv --access-time 100us \\
      --prices examples/prices/dash-tiers-2010.toml
  flashwright plan tier examples/working-set.csv --rate 50000 \\
      --tiers flash,disk --prices examples/prices/dash-tiers-2010.toml")]
pub struct TierArgs {
    /// The working-set curve
    #[arg(value_name = "CURVE")]
    pub curve: PathBuf,
    /// The price file
    #[arg(long, value_name = "FILE", required = true)]
    pub prices: PathBuf,
    /// Products that may be tiers, fastest first
    #[arg(long, value_name = "NAME,…", default_value = "dram,flash,disk", value_delimiter = ',')]
    pub tiers: Vec<String>,
    /// Bytes of all data [default: the curve's last]
    #[arg(long, value_name = "SIZE", value_parser = amount)]
    pub size: Option<u64>,
    /// Largest mean access time
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    pub access_time: Option<Duration>,
    /// Requests a second
    #[arg(long, value_name = "N", value_parser = number)]
    pub rate: Option<f64>,
    #[command(flatten)]
    pub form: FormArgs,
}
