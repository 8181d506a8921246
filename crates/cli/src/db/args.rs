//! Flags of `flashwright db`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use database::compare::TierSpec;
use database::dataset::Workload;
use database::engine::SkyIndex;
use database::open::{EngineChoice, EngineKind};
use database::postgres::{PostgresOptions, Setting, parse_setting};
use database::query::Query;

use crate::failure::Failure;
use crate::forms::ReportFormat;
use crate::values::{self, BadValue};

/// `flashwright db`.
#[derive(Debug, Args)]
#[command(after_help = "\
Workloads: ptf (Palomar Transient Factory, a survey of the sky) and bionet
(BiologicalNetworks, a warehouse of pathways), both of the DASH paper.

Examples:
  flashwright db load ptf --rows 10000000 --dir /flash
  flashwright db run ptf --dir /flash
  flashwright db run ptf --dir /flash --query forward --rate 10 --for 60s
  flashwright db compare ptf --tiers ram=/ram,flash=/flash,disk=/disk
  flashwright db ingest --dir /flash --for 60s
  flashwright db compare ptf --engine postgres --sky q3c \\
    --tiers flash=/flash,disk=/disk")]
pub struct DbArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DbCommand,
}

/// The verbs below `db`.
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Make a workload's database in a directory; goes on with one that was cut off
    Load(LoadArgs),
    /// Ask a database: each query cold and then warm, or one of them at a set rate
    Run(RunArgs),
    /// Take in alerts at a set rate while cones are searched at another one
    Ingest(IngestArgs),
    /// Ask the same database on several tiers, and say which is faster at what
    Compare(CompareArgs),
    /// Try settings of a PostgreSQL server, one at a time, and say which queries each moves
    Advise(AdviseArgs),
    /// Show what a comparison found again
    Report(ReportArgs),
}

/// `flashwright db load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The workload: ptf or bionet
    #[arg(value_name = "WORKLOAD", value_parser = values::word::<Workload>)]
    pub workload: Workload,
    /// Where it is
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The engine
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Rows of ptf's candidates, or of bionet's nodes
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = values::whole::<u64>)]
    pub rows: u64,
    /// What all rows follow from
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u64>)]
    pub seed: u64,
    /// Print one JSON document (flashwright.db-load/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright db run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The workload: ptf or bionet
    #[arg(value_name = "WORKLOAD", value_parser = values::word::<Workload>)]
    pub workload: Workload,
    /// Where it is
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The engine
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Only these queries, joined by commas [default: all of the workload]
    #[arg(long, value_name = "QUERY,…", value_delimiter = ',', value_parser = values::word::<Query>)]
    pub query: Vec<Query>,
    /// The key that parameters follow from; with --rate the first one
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::whole::<u64>)]
    pub key: u64,
    /// Print each query's plan as well
    #[arg(long, conflicts_with = "rate")]
    pub explain: bool,
    /// Ask one query so often a second, each time with another key, from cold
    #[arg(long, value_name = "QUERIES/S", value_parser = positive)]
    pub rate: Option<f64>,
    /// How long to ask at that rate
    #[arg(long = "for", value_name = "TIME", default_value = "30s", requires = "rate", value_parser = values::positive_duration)]
    pub lasts: Duration,
    /// Connections that share the rate
    #[arg(long, value_name = "N", default_value = "1", requires = "rate", value_parser = values::whole::<u32>)]
    pub connections: u32,
    /// Print one JSON document (flashwright.db-run/1, or with --rate flashwright.db-stream/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright db ingest`.
#[derive(Debug, Args)]
#[command(after_help = "\
Rubin sends 350 alerts a second: 10 million in a night of eight hours. The
database is made in DIR for this run, and removed at its end.")]
pub struct IngestArgs {
    /// A directory on the tier
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// The engine
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Rows before the first alert
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = values::whole::<u64>)]
    pub rows: u64,
    /// Alerts a second
    #[arg(long, value_name = "ALERTS/S", default_value = "350", value_parser = values::whole::<u64>)]
    pub rate: u64,
    /// Cones a second, half of 5″ and half of 1′
    #[arg(long, value_name = "CONES/S", default_value = "20", value_parser = positive)]
    pub cones: f64,
    /// How long alerts come in
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = values::positive_duration)]
    pub lasts: Duration,
    /// What all rows follow from
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u64>)]
    pub seed: u64,
    /// Print one JSON document (flashwright.db-ingest/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright db compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
A block takes the tiers in random order; on each, every query runs cold and then
warm, with the same key on all tiers. Speed-ups are over the last tier.")]
pub struct CompareArgs {
    /// The workload: ptf or bionet
    #[arg(value_name = "WORKLOAD", value_parser = values::word::<Workload>)]
    pub workload: Workload,
    /// Directories on the tiers with a name each, joined by commas; others are compared with the last
    #[arg(long, value_name = "NAME=DIR,…", value_delimiter = ',', required = true, value_parser = tier)]
    pub tiers: Vec<TierSpec>,
    /// The engine
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Rows of ptf's candidates, or of bionet's nodes
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = values::whole::<u64>)]
    pub rows: u64,
    /// What all rows and the order of tiers follow from
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u64>)]
    pub seed: u64,
    /// Only these queries, joined by commas [default: all of the workload]
    #[arg(long, value_name = "QUERY,…", value_delimiter = ',', value_parser = values::word::<Query>)]
    pub query: Vec<Query>,
    /// The most blocks; fewer where all comparisons are decided before
    #[arg(long, value_name = "N", default_value = "6", value_parser = values::whole::<u32>)]
    pub blocks: u32,
    /// Leave the databases that this comparison makes where they are
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON document (flashwright.db-compare/1)
    #[arg(long)]
    pub json: bool,
    /// Write results.db, report.html and compare.json to DIR, which is made if its parent is there
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// `flashwright db advise`.
#[derive(Debug, Args)]
#[command(after_help = "\
A block takes each setting and the unchanged server in random order; with each,
every query runs cold and then warm. On a server of yours (--connect) settings
are of sessions, and nothing is cold.

Example:
  flashwright db advise ptf --engine postgres --dir /flash \\
    --try random_page_cost=4 --try effective_io_concurrency=200 \\
    --try shared_buffers=1GB --try huge_pages=on")]
pub struct AdviseArgs {
    /// The workload: ptf or bionet
    #[arg(value_name = "WORKLOAD", value_parser = values::word::<Workload>)]
    pub workload: Workload,
    /// Where it is
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The engine
    #[command(flatten)]
    pub engine: EngineArgs,
    /// A setting to compare with the server as it is; may be repeated
    #[arg(long = "try", value_name = "NAME=VALUE", required = true, value_parser = setting)]
    pub settings: Vec<Setting>,
    /// Only these queries, joined by commas [default: all of the workload]
    #[arg(long, value_name = "QUERY,…", value_delimiter = ',', value_parser = values::word::<Query>)]
    pub query: Vec<Query>,
    /// The most blocks; fewer where all settings are decided before
    #[arg(long, value_name = "N", default_value = "6", value_parser = values::whole::<u32>)]
    pub blocks: u32,
    /// What the order of settings follows from
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::whole::<u64>)]
    pub seed: u64,
    /// Print one JSON document (flashwright.db-advise/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright db report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --format and --output it goes to the terminal. --format html goes to
report.html beside results.db unless --output says otherwise; the other
formats go to standard output.

Examples:
  flashwright db report results                    show it again
  flashwright db report results --format md        tables for a ticket
  flashwright db report results --output runs.csv  every run, for a spreadsheet")]
pub struct ReportArgs {
    /// A comparison's directory, or its results.db
    #[arg(value_name = "DIR|results.db")]
    pub results: PathBuf,
    /// The form of the report [default: as the output's name says, and html where it does not]
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["json", "html"])]
    pub format: Option<ReportFormat>,
    /// Where it goes; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html"])]
    pub output: Option<PathBuf>,
    /// Replace the file that --output names even if flashwright did not write it
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Print one JSON document (flashwright.db-compare/1)
    #[arg(long)]
    pub json: bool,
    /// Write the page to FILE as well
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The directory of a database, or the server that has it.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// A directory on the tier
    #[arg(long, value_name = "DIR", required_unless_present = "connect")]
    pub dir: Option<PathBuf>,
    /// postgres: your own server, as "host=… user=… dbname=…" or postgresql://…; it is never stopped, so nothing is cold
    #[arg(long, value_name = "STRING", conflicts_with_all = ["dir", "memory_limit", "programs"])]
    pub connect: Option<String>,
}

/// The engine, and how it is set.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// The engine: sqlite or postgres
    #[arg(long, value_name = "ENGINE", default_value = "sqlite", value_parser = values::word::<EngineKind>)]
    pub engine: EngineKind,
    /// postgres: search cones by healpix or q3c [default: as the database is indexed, a new one by healpix]
    #[arg(long, value_name = "INDEX", value_parser = values::word::<SkyIndex>)]
    pub sky: Option<SkyIndex>,
    /// postgres: a setting of the server, or of each session with --connect; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub set: Vec<Setting>,
    /// postgres: limit of memory for its processes and the pages that they read; takes root
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub memory_limit: Option<u64>,
    /// postgres: the directory of its programs [default: PATH, then where packages put them]
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
}

impl EngineArgs {
    /// The engine, unless a flag is of another one.
    pub fn choice(&self) -> Result<EngineChoice, Failure> {
        let of_postgres = [
            self.sky.map(|sky| format!("sky={}", sky.word())),
            self.set.first().map(|(name, value)| format!("set={name}={value}")),
            self.memory_limit.map(|bytes| format!("memory-limit={bytes}")),
            self.programs.as_ref().map(|path| format!("programs={}", path.display())),
        ];
        if self.engine != EngineKind::Postgres
            && let Some(flag) = of_postgres.into_iter().flatten().next()
        {
            let engine = self.engine.word();
            return Err(Failure::invalid(format!("--{flag}: {engine} has no such setting"))
                .hint("it is of --engine postgres"));
        }
        let postgres = PostgresOptions {
            sky: self.sky,
            settings: self.set.clone(),
            memory_bytes: self.memory_limit,
            programs: self.programs.clone(),
        };
        Ok(EngineChoice { kind: self.engine, postgres })
    }
}

impl PlaceArgs {
    /// The user's own server, which is PostgreSQL.
    pub fn server(&self, choice: &EngineChoice) -> Result<Option<&str>, Failure> {
        match &self.connect {
            Some(_) if choice.kind != EngineKind::Postgres => {
                let engine = choice.kind.word();
                Err(Failure::invalid(format!("--connect: {engine} has no server"))
                    .hint("add --engine postgres"))
            }
            connect => Ok(connect.as_deref()),
        }
    }

    /// The directory, which is there if no server is named.
    pub fn directory(&self) -> PathBuf {
        self.dir.clone().unwrap_or_default()
    }
}

/// A setting: `work_mem=64MB`.
fn setting(text: &str) -> Result<Setting, BadValue> {
    parse_setting(text)
        .map_err(|problem| BadValue::new(format!("'{text}': {problem}"), "for instance work_mem=64MB"))
}

/// A number above zero.
fn positive(text: &str) -> Result<f64, BadValue> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number
        .ok_or_else(|| BadValue::new(format!("'{text}' is not a number above zero"), "for instance 2 or 0.5"))
}

/// A tier: `flash=/mnt/flash`.
fn tier(text: &str) -> Result<TierSpec, BadValue> {
    match text.split_once('=') {
        Some((name, directory)) if !name.is_empty() && !directory.is_empty() => {
            Ok(TierSpec { name: name.to_owned(), directory: directory.into() })
        }
        _ => Err(BadValue::new(
            format!("'{text}' is not NAME=DIR"),
            "for instance flash=/mnt/flash,disk=/mnt/disk",
        )),
    }
}
