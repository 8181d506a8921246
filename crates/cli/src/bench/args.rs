//! The flags of `bench`: every option of a workload in fio's spelling, and where it runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use measure::Workload;
use measure::precondition::Precondition;
use measure::workload::{
    CpusAllowedPolicy, IoEngine, LatencyClock, NumberList, Pages, RandomDistribution, RateProcess, Rw,
    SizeShare, Verify,
};

use crate::values;

const EXAMPLES: &str = "\
Examples:
  flashwright bench --rw=randread --bs=4k --iodepth=32 --target FILE
  flashwright bench --rw=write --bs=1m --size=1g --target NEWFILE
                       make NEWFILE and write it
  flashwright bench --rw=randwrite --bs=4k \\
      --target /dev/nvme1n1 --destroy /dev/nvme1n1
  flashwright bench --rw=randread --rate_iops=20k --target FILE
                       open loop: latency under a given load
  flashwright bench job.fio --output-format=fio-json
  flashwright bench --rw=randwrite --bs=4k --purge --precondition=steady \\
      --target /dev/nvme1n1 --destroy /dev/nvme1n1
  flashwright bench --wsat --purge --output curve/ \\
      --target /dev/nvme1n1 --destroy /dev/nvme1n1

A target is a path, file:PATH?size=4g, mem:4g, or several of these as one: stripe(chunk=64k):SPEC,SPEC, \
separate:SPEC,SPEC, or a labelled volume (flashwright volume), volume:SPEC,SPEC. Sizes are powers of two (4k is 4096), times are \
seconds unless they name a unit. Flags are spelled as fio spells them; hyphens do as well as \
underscores.";

/// `flashwright bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// A workload in TOML, or a fio job file; flags go before what a TOML file says
    #[arg(value_name = "JOBFILE.fio|WORKLOAD.toml")]
    pub file: Option<PathBuf>,

    /// What to measure: a file, a block device, file:PATH?size=4g, mem:4g, stripe(chunk=64k):SPEC,SPEC,
    /// separate:SPEC,SPEC or volume:SPEC,SPEC
    #[arg(long, alias = "filename", value_name = "SPEC", help_heading = "Target and safety")]
    pub target: Option<String>,
    /// A device or file whose contents may be lost; may be given several times
    #[arg(long, value_name = "DEV", help_heading = "Target and safety")]
    pub destroy: Vec<PathBuf>,
    /// Measure reads of holes and unwritten extents, which the kernel answers from nothing
    #[arg(long, alias = "allow_unwritten", help_heading = "Target and safety")]
    pub allow_unwritten: bool,

    #[command(flatten)]
    pub workload: WorkloadArgs,

    /// Print what becomes of each key of fio's job files, or of one, and exit
    #[arg(
        long,
        value_name = "KEY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        help_heading = "Output"
    )]
    pub cmdhelp: Option<String>,

    #[command(flatten)]
    pub prepare: PrepareArgs,

    /// Print one JSON document (flashwright.bench/1)
    #[arg(long, conflicts_with = "output_format", help_heading = "Output")]
    pub json: bool,
    /// The form of the result: text, json, or fio's own: fio-json, or json+ with all latency bins
    #[arg(
        long,
        alias = "output_format",
        value_enum,
        value_name = "FORMAT",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub output_format: Option<OutputFormat>,
    /// Write the result to a file instead of standard output; with --wsat, plot, CSV and JSON to a directory
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Say each second how it goes, on standard error, even if that is no terminal
    #[arg(long, help_heading = "Output")]
    pub live: bool,
}

/// What happens before the run, or in its place.
#[derive(Debug, Clone, Default, Args)]
pub struct PrepareArgs {
    /// Before measuring: fill writes the region twice; steady then repeats the workload until it is steady
    #[arg(long, value_parser = values::word::<Precondition>, value_name = "none|fill|steady", help_heading = "Preconditioning")]
    pub precondition: Option<Precondition>,
    /// Discard the region first; a file is punched and written again, which is no purge of the drive
    #[arg(long, help_heading = "Preconditioning")]
    pub purge: bool,
    /// Length of a round in which steadiness is judged [default: 60s]
    #[arg(long = "round_time", alias = "round-time", value_parser = values::positive_duration, value_name = "TIME", help_heading = "Preconditioning")]
    pub round_time: Option<Duration>,
    /// The most rounds of --precondition=steady [default: 25]
    #[arg(long = "max_rounds", alias = "max-rounds", value_parser = values::whole::<u32>, value_name = "N", help_heading = "Preconditioning")]
    pub max_rounds: Option<u32>,
    /// Write-saturation curve: write at random until the drive is steady, and find where its rate falls
    #[arg(long, help_heading = "Preconditioning")]
    pub wsat: bool,
    /// With --wsat: end after so many times the region [default: 4]
    #[arg(long, value_parser = values::whole::<u32>, value_name = "N", help_heading = "Preconditioning")]
    pub capacities: Option<u32>,
    /// With --wsat: 0 goes on to --capacities even if it is steady [default: 1]
    #[arg(long = "until_steady", alias = "until-steady", value_parser = values::switch, value_name = "0|1", help_heading = "Preconditioning")]
    pub until_steady: Option<bool>,
}

impl PrepareArgs {
    /// The first flag that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("precondition", self.precondition.is_some()),
            ("purge", self.purge),
            ("round_time", self.round_time.is_some()),
            ("max_rounds", self.max_rounds.is_some()),
            ("wsat", self.wsat),
            ("capacities", self.capacities.is_some()),
            ("until_steady", self.until_steady.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// The forms of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    #[value(alias = "normal")]
    Text,
    /// flashwright.bench/1
    Json,
    /// What fio's `--output-format=json` prints
    #[value(name = "fio-json")]
    FioJson,
    /// The same with the bins of the latency histograms
    #[value(name = "json+", alias = "fio-json+")]
    FioJsonPlus,
}

impl BenchArgs {
    /// The form asked for.
    pub fn format(&self) -> OutputFormat {
        match self.output_format {
            Some(format) => format,
            None if self.json => OutputFormat::Json,
            None => OutputFormat::Text,
        }
    }
}

/// Declares the flags once, with what is done with each.
macro_rules! workload_flags {
    ($(
        $(#[doc = $doc:literal])+
        $field:ident: $type:ty, $parser:expr, [$($arg:tt)*], $heading:literal, |$workload:ident, $value:ident| $set:expr;
    )+) => {
        /// Every option of a workload.
        #[derive(Debug, Clone, Default, Args)]
        pub struct WorkloadArgs {
            $(
                $(#[doc = $doc])+
                #[arg(value_parser = $parser, help_heading = $heading, $($arg)*)]
                pub $field: Option<$type>,
            )+
        }

        impl WorkloadArgs {
            /// Puts what was given into a workload.
            pub fn apply(&self, workload: &mut Workload) {
                $(
                    if let Some($value) = self.$field.clone() {
                        let $workload = &mut *workload;
                        $set;
                    }
                )+
            }

            /// The first flag that was given, in fio's spelling.
            pub fn first_given(&self) -> Option<&'static str> {
                let given = [$((stringify!($field), self.$field.is_some())),+];
                given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
            }
        }
    };
}

workload_flags! {
    /// Direction and order: read, write, randread, randwrite, rw, randrw, trim or randtrim
    rw: Rw, values::word::<Rw>, [long, alias = "readwrite", value_name = "WORD"], "Workload", |w, v| w.rw = v;
    /// Bytes of a request [default: 4k]
    bs: u64, values::positive_size, [long, alias = "blocksize", value_name = "SIZE"], "Workload", |w, v| { w.bs = v; w.bssplit.clear() };
    /// Several request sizes with their percentages: 4k/60:64k/40
    bssplit: Shares, shares, [long, value_name = "SIZE/PERCENT:…", conflicts_with = "bs"], "Workload", |w, v| w.bssplit = v.0;
    /// Requests kept in flight by each job [default: 1]
    iodepth: u32, values::whole::<u32>, [long, value_name = "N"], "Workload", |w, v| w.iodepth = v;
    /// Identical jobs, a thread each [default: 1]
    numjobs: u32, values::whole::<u32>, [long, value_name = "N"], "Workload", |w, v| w.numjobs = v;
    /// Percentage of reads in rw and randrw [default: 50]
    rwmixread: u8, values::whole::<u8>, [long, value_name = "PERCENT"], "Workload", |w, v| w.rwmixread = v;
    /// How random offsets are drawn: random, zipf:1.2 or pareto:0.2
    random_distribution: RandomDistribution, values::random_distribution, [long = "random_distribution", alias = "random-distribution", value_name = "WORD"], "Workload", |w, v| w.random_distribution = v;
    /// 1: draw each random offset afresh, instead of visiting every block once before any again
    norandommap: bool, values::switch, [long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1"], "Workload", |w, v| w.norandommap = v;
    /// Seed of every random choice
    randseed: u64, values::whole::<u64>, [long, value_name = "N"], "Workload", |w, v| w.randseed = v;
    /// How much of each written block compresses away
    buffer_compress_percentage: u8, values::whole::<u8>, [long = "buffer_compress_percentage", alias = "buffer-compress-percentage", value_name = "PERCENT"], "Workload", |w, v| w.buffer_compress_percentage = v;
    /// Put a checksum, the offset and a generation into each block and check them: crc32c or xxh3
    verify: Verify, values::word::<Verify>, [long, value_name = "WORD"], "Workload", |w, v| w.verify = Some(v);
    /// fdatasync after this many writes of a job; 0 for never
    fdatasync: u32, values::whole::<u32>, [long, value_name = "N"], "Workload", |w, v| w.fdatasync = v;
    /// 1: fsync at the end of a writing job, inside the measured time
    end_fsync: bool, values::switch, [long = "end_fsync", alias = "end-fsync", value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1"], "Workload", |w, v| w.end_fsync = v;
    /// A name for reports
    name: String, clap::builder::NonEmptyStringValueParser::new(), [long, value_name = "TEXT"], "Workload", |w, v| w.name = v;

    /// How long to measure [default: 5s]
    runtime: Duration, values::positive_duration, [long, value_name = "TIME"], "Time and rate", |w, v| w.runtime = Some(v);
    /// How long to run before measuring
    ramp_time: Duration, values::duration, [long = "ramp_time", alias = "ramp-time", value_name = "TIME"], "Time and rate", |w, v| w.ramp_time = v;
    /// 0: end as soon as each job has moved its region once [default: 1]
    time_based: bool, values::switch, [long = "time_based", alias = "time-based", value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1"], "Time and rate", |w, v| w.time_based = v;
    /// Requests a second that each job starts, done or not: an open loop, latency from the intended start
    rate_iops: u64, rate, [long = "rate_iops", alias = "rate-iops", value_name = "N"], "Time and rate", |w, v| w.rate_iops = Some(v);
    /// Bytes a second that each job starts, likewise
    rate: u64, values::positive_size, [long, value_name = "SIZE"], "Time and rate", |w, v| w.rate = Some(v);
    /// When requests are due under a rate: linear or poisson
    rate_process: RateProcess, values::word::<RateProcess>, [long = "rate_process", alias = "rate-process", value_name = "WORD"], "Time and rate", |w, v| w.rate_process = v;

    /// Bytes of the target that are used [default: all of it]; for writing, the size of a file to be made
    size: u64, values::positive_size, [long, value_name = "SIZE"], "Region", |w, v| w.size = Some(v);
    /// Where the used part begins
    offset: u64, values::size, [long, value_name = "SIZE"], "Region", |w, v| w.offset = v;
    /// How far each job's region begins after the one before; without it the jobs divide the region
    offset_increment: u64, values::size, [long = "offset_increment", alias = "offset-increment", value_name = "SIZE"], "Region", |w, v| w.offset_increment = Some(v);

    /// How the kernel is asked: auto, io_uring, libaio or psync; nbd for exports of other hosts
    ioengine: IoEngine, values::word::<IoEngine>, [long, value_name = "WORD"], "Engine", |w, v| w.ioengine = v;
    /// 1: bypass the page cache (O_DIRECT); 0: go through it [default: 1]
    direct: bool, values::switch, [long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1"], "Engine", |w, v| w.direct = v;
    /// The most requests handed to the kernel at once
    iodepth_batch: u32, values::whole::<u32>, [long = "iodepth_batch", alias = "iodepth-batch", alias = "iodepth_batch_submit", value_name = "N"], "Engine", |w, v| w.iodepth_batch = v;
    /// The fewest completions to wait for at once
    iodepth_batch_complete_min: u32, values::whole::<u32>, [long = "iodepth_batch_complete_min", alias = "iodepth-batch-complete-min", alias = "iodepth_batch_complete", value_name = "N"], "Engine", |w, v| w.iodepth_batch_complete_min = v;
    /// 1: poll the device for completions (io_uring)
    hipri: bool, values::switch, [long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1"], "Engine", |w, v| w.hipri = v;
    /// 1: let a kernel thread submit (io_uring)
    sqthread_poll: bool, values::switch, [long = "sqthread_poll", alias = "sqthread-poll", value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1"], "Engine", |w, v| w.sqthread_poll = v;
    /// When the clock is read: once a batch, or for each request
    latency_clock: LatencyClock, values::word::<LatencyClock>, [long = "latency_clock", alias = "latency-clock", value_name = "batch|each"], "Engine", |w, v| w.latency_clock = v;
    /// The pages that buffers lie in: auto, base, thp (transparent huge) or huge (reserved)
    pages: Pages, values::word::<Pages>, [long, value_name = "WORD"], "Engine", |w, v| w.pages = v;

    /// CPUs that the jobs may run on: 0-3,8
    cpus_allowed: NumberList, values::number_list, [long = "cpus_allowed", alias = "cpus-allowed", value_name = "LIST"], "CPUs", |w, v| w.cpus_allowed = Some(v);
    /// How these are given to the jobs: shared, or split to bind each job to one of them
    cpus_allowed_policy: CpusAllowedPolicy, values::word::<CpusAllowedPolicy>, [long = "cpus_allowed_policy", alias = "cpus-allowed-policy", value_name = "WORD"], "CPUs", |w, v| w.cpus_allowed_policy = v;
    /// NUMA nodes whose CPUs the jobs may run on; buffers lie there as well
    numa_cpu_nodes: NumberList, values::number_list, [long = "numa_cpu_nodes", alias = "numa-cpu-nodes", value_name = "LIST"], "CPUs", |w, v| w.numa_cpu_nodes = Some(v);
}

/// A list of shares as one value; a bare `Vec` would be a flag that may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares(Vec<SizeShare>);

fn shares(text: &str) -> Result<Shares, values::BadValue> {
    values::bssplit(text).map(Shares)
}

/// Requests a second: fio reads `20k` as 20,480 here, as it does every size, and so does this.
fn rate(text: &str) -> Result<u64, values::BadValue> {
    values::positive_size(text)
}
