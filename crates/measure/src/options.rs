//! The options of a workload, each declared once.
//!
//! [`OPTIONS`] has a row for each field of [`Workload`]. Flags of the command line with their help, keys and dimensions of
//! sweeps, what an analysis may vary, and what fio is told of a workload are made from it. TOML files, records and JSON Schema
//! follow from the field. fio's job files keep a table of their own, because fio reads values otherwise (comma lists,
//! percentages); tests hold it, and docs/options.md, against this one.

use base::{Word, Words};

pub use crate::signed_size::{signed_size, signed_size_text};
use crate::workload::{
    CpusAllowedPolicy, DedupeMode, IoEngine, LatencyClock, Pages, RateProcess, Rw, SizeShare, Verify,
    Workload, WriteSync, ZoneMode,
};

/// What an option means to a search for the fastest configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionClass {
    /// What must be done. Points with different demands do different work, and are not compared with one another.
    Demand,
    /// How it is done. A search chooses among its values.
    Choice,
    /// The circumstances of a measurement, such as its length and its seed.
    Condition,
}

impl OptionClass {
    /// The word used in documentation.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Choice => "choice",
            Self::Condition => "condition",
        }
    }
}

/// The type of an option's values, with their unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// Bytes: `4096`, `4k`.
    Size,
    /// Bytes, at least one.
    PositiveSize,
    /// Requests a second, at least one; a flag's suffixes are those of sizes, as in fio.
    Rate,
    /// Bytes that may be negative: `8k`, `-8k`.
    SignedSize,
    /// A duration: `500ms`; bare numbers are seconds.
    Duration,
    /// A duration above zero.
    PositiveDuration,
    /// 0 or 1.
    Switch,
    /// A whole number below 2^32.
    Count,
    /// A whole number below 2^64.
    Seed,
    /// 0 to 100.
    Percent,
    /// 0 to 1.
    Fraction,
    /// One of some words.
    Word(Words),
    /// `random`, `zipf:1.2`, `pareto:0.2`.
    Distribution,
    /// `4k/60:64k/40`.
    Split,
    /// Numbers of CPUs or NUMA nodes: `0-3,8`.
    Numbers,
    /// Bytes that are repeated: `0xdeadface`, `"abc"`, `%o`.
    Pattern,
    /// Any text.
    Text,
}

impl ValueKind {
    /// What stands for a value in help: `SIZE`.
    #[must_use]
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Size | Self::PositiveSize | Self::SignedSize => "SIZE",
            Self::Duration | Self::PositiveDuration => "TIME",
            Self::Switch => "0|1",
            Self::Rate | Self::Count | Self::Seed | Self::Fraction => "N",
            Self::Percent => "PERCENT",
            Self::Word(_) | Self::Distribution => "WORD",
            Self::Split => "SIZE/PERCENT:…",
            Self::Numbers => "LIST",
            Self::Pattern => "PATTERN",
            Self::Text => "TEXT",
        }
    }

    /// The unit of values, as documentation names it.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Size | Self::PositiveSize | Self::SignedSize => "bytes",
            Self::Rate => "requests/s",
            Self::Duration | Self::PositiveDuration => "seconds",
            Self::Percent => "percent",
            Self::Fraction => "0 to 1",
            Self::Switch => "0 or 1",
            Self::Count | Self::Seed => "number",
            Self::Word(_) => "word",
            Self::Distribution => "word and parameter",
            Self::Split => "sizes and percentages",
            Self::Numbers => "list of numbers",
            Self::Pattern => "numbers, quoted texts, %o",
            Self::Text => "text",
        }
    }
}

/// An option of a workload.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadOption {
    /// Its name in fio's spelling, which is that of the field of [`Workload`].
    pub name: &'static str,
    /// Other names that flags may have, hyphens for underscores among them.
    pub aliases: &'static [&'static str],
    /// The type of its values.
    pub kind: ValueKind,
    /// What it means to a search.
    pub class: OptionClass,
    /// The section of help that it stands in.
    pub heading: &'static str,
    /// What it does, in a line of help.
    pub help: &'static str,
    /// The key of fio's job files that sets it, of several the first; None if no key does.
    pub fio: Option<&'static str>,
}

impl WorkloadOption {
    /// Sets the option in a workload. `value` has the form that the field has in a record.
    ///
    /// # Errors
    /// The reason, where the field cannot have the value.
    pub fn set(&self, workload: &mut Workload, value: serde_json::Value) -> Result<(), String> {
        let mut fields = serde_json::to_value(&*workload).map_err(|e| e.to_string())?;
        fields[self.name] = value;
        if self.name == "bs" {
            // A split takes the place of the one size, which the new one is to be.
            fields["bssplit"] = serde_json::Value::Array(Vec::new());
        }
        *workload = serde_json::from_value(fields).map_err(|e| e.to_string())?;
        Ok(())
    }

    /// The option's value in a workload, in the form of a record.
    #[must_use]
    pub fn get(&self, workload: &Workload) -> serde_json::Value {
        serde_json::to_value(workload).map(|mut fields| fields[self.name].take()).unwrap_or_default()
    }

    /// The option's value in a workload, as a user would type it; None where it is left out.
    #[must_use]
    pub fn text(&self, workload: &Workload) -> Option<String> {
        use serde_json::Value;
        let value = self.get(workload);
        Some(match (self.kind, value) {
            (_, Value::Null) => return None,
            (ValueKind::Size | ValueKind::PositiveSize, Value::Number(n)) => {
                units::bytes_short(n.as_u64().unwrap_or_default())
            }
            (ValueKind::Duration | ValueKind::PositiveDuration, Value::Number(n)) => {
                format!("{}s", n.as_f64().unwrap_or_default())
            }
            (ValueKind::Split, value) => {
                let split: Vec<SizeShare> = serde_json::from_value(value).unwrap_or_default();
                if split.is_empty() {
                    return None;
                }
                split.iter().map(SizeShare::to_string).collect::<Vec<_>>().join(":")
            }
            (ValueKind::SignedSize, Value::Number(n)) => signed_size_text(n.as_i64().unwrap_or_default()),
            (ValueKind::Fraction, Value::Number(n)) => n.as_f64().unwrap_or_default().to_string(),
            (ValueKind::Distribution, _) => workload.random_distribution.to_string(),
            (_, Value::Bool(on)) => u8::from(on).to_string(),
            (_, Value::String(text)) => text,
            (_, value) => value.to_string(),
        })
    }
}

impl WorkloadOption {
    /// A value other than the default, in the form of a record: for tests over all options.
    #[must_use]
    pub fn example(&self) -> serde_json::Value {
        match self.kind {
            ValueKind::Switch => (!self.get(&Workload::default()).as_bool().unwrap_or_default()).into(),
            ValueKind::Word(words) => words.list.last().copied().unwrap_or_default().into(),
            ValueKind::Distribution => serde_json::json!({ "zipf": 1.2 }),
            ValueKind::Split => {
                serde_json::json!([{ "bs": 4096, "percent": 60 }, { "bs": 65536, "percent": 40 }])
            }
            ValueKind::Numbers => "0-3,8".into(),
            ValueKind::Pattern => "0xdeadface\"abc\"".into(),
            ValueKind::Text => "a name".into(),
            ValueKind::Duration | ValueKind::PositiveDuration | ValueKind::Fraction => 0.5.into(),
            _ => 64.into(),
        }
    }
}

/// The options that do not have their default in a workload, in the order of help.
pub fn differing(workload: &Workload) -> impl Iterator<Item = &'static WorkloadOption> {
    differences(workload, &Workload::default())
}

/// The options that have another value in one workload than in the other, in the order of help.
pub fn differences(
    one: &Workload,
    other: &Workload,
) -> impl Iterator<Item = &'static WorkloadOption> + use<> {
    let fields = |workload: &Workload| serde_json::to_value(workload).unwrap_or_default();
    let (one, other) = (fields(one), fields(other));
    OPTIONS.iter().filter(move |option| one[option.name] != other[option.name])
}

/// The option of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static WorkloadOption> {
    OPTIONS.iter().find(|option| option.name == name)
}

/// Why `name` is not an option, with the nearest one; None if it is one.
#[must_use]
pub fn unknown_option(name: &str) -> Option<String> {
    if find(name).is_some() {
        return None;
    }
    let meant = match base::nearest(name, OPTIONS.iter().map(|option| option.name)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => String::new(),
    };
    Some(format!("unknown field `{name}`{meant}"))
}

const fn word<W: Word>() -> ValueKind {
    ValueKind::Word(Words::of::<W>())
}

const WORKLOAD: &str = "Workload";
const TIME: &str = "Time and rate";
const REGION: &str = "Region";
const ENGINE: &str = "Engine";
const CPUS: &str = "CPUs";

macro_rules! options {
    ($($name:literal $(also $alias:literal)*, $kind:expr, $class:ident, $heading:ident, $fio:expr, $help:literal;)+) => {
        /// All options, in the order of help.
        pub const OPTIONS: &[WorkloadOption] = &[$(
            WorkloadOption {
                name: $name,
                aliases: &[$($alias),*],
                kind: $kind,
                class: OptionClass::$class,
                heading: $heading,
                help: $help,
                fio: $fio,
            },
        )+];
    };
}

#[rustfmt::skip]
options! {
    "rw" also "readwrite", word::<Rw>(), Demand, WORKLOAD, Some("rw"), "Direction and order: read, write, randread, randwrite, rw, randrw, trim, randtrim, or trimwrite and randtrimwrite (each block is discarded, then written)";
    "bs" also "blocksize", ValueKind::PositiveSize, Demand, WORKLOAD, Some("bs"), "Bytes of a request [default: 4k]";
    "bssplit", ValueKind::Split, Demand, WORKLOAD, Some("bssplit"), "Several request sizes with their percentages: 4k/60:64k/40";
    "write_bssplit" also "write-bssplit", ValueKind::Split, Demand, WORKLOAD, Some("bssplit"), "In rw and randrw: the sizes of writes with their percentages, where they are not those of reads";
    "blockalign" also "ba", ValueKind::PositiveSize, Demand, WORKLOAD, Some("ba"), "What random offsets are multiples of [default: the smallest block]";
    "iodepth", ValueKind::Count, Choice, WORKLOAD, Some("iodepth"), "Requests kept in flight by each job [default: 1]";
    "numjobs", ValueKind::Count, Choice, WORKLOAD, Some("numjobs"), "Identical jobs, a thread each [default: 1]";
    "rwmixread", ValueKind::Percent, Demand, WORKLOAD, Some("rwmixread"), "Percentage of reads in rw and randrw [default: 50]";
    "rw_step" also "rw-step", ValueKind::SignedSize, Demand, WORKLOAD, Some("rw"), "Bytes that a sequential job skips after each request; below zero it goes backwards";
    "percentage_random" also "percentage-random", ValueKind::Percent, Demand, WORKLOAD, Some("percentage_random"), "How many of a random job's requests are at random offsets [default: 100]";
    "random_distribution" also "random-distribution", ValueKind::Distribution, Demand, WORKLOAD, Some("random_distribution"), "How random offsets are drawn: random, zipf:1.2, pareto:0.2, zoned:50/5:30/15:20/80 or sequence:2,0,1";
    "norandommap", ValueKind::Switch, Choice, WORKLOAD, Some("norandommap"), "1: draw each random offset afresh, instead of visiting every block once before any again";
    "randseed", ValueKind::Seed, Condition, WORKLOAD, Some("randseed"), "Seed of every random choice";
    "buffer_compress_percentage" also "buffer-compress-percentage", ValueKind::Percent, Demand, WORKLOAD, Some("buffer_compress_percentage"), "How much of each written block compresses away";
    "dedupe_percentage" also "dedupe-percentage", ValueKind::Percent, Demand, WORKLOAD, Some("dedupe_percentage"), "How many of the written blocks are copies of others";
    "dedupe_mode" also "dedupe-mode", word::<DedupeMode>(), Demand, WORKLOAD, Some("dedupe_mode"), "Which blocks are copied: repeat (the last that was no copy) or working_set (one of a set)";
    "dedupe_working_set_percentage" also "dedupe-working-set-percentage", ValueKind::Percent, Demand, WORKLOAD, Some("dedupe_working_set_percentage"), "How large that set is, in percent of the region's blocks [default: 5]";
    "dedupe_global" also "dedupe-global", ValueKind::Switch, Demand, WORKLOAD, Some("dedupe_global"), "1: all jobs copy the same blocks";
    "fdatasync", ValueKind::Count, Demand, WORKLOAD, Some("fdatasync"), "fdatasync after this many writes of a job; 0 for never";
    "fsync", ValueKind::Count, Demand, WORKLOAD, Some("fsync"), "fsync after this many writes of a job; 0 for never";
    "sync", word::<WriteSync>(), Demand, WORKLOAD, Some("sync"), "What each write has made durable: none, dsync (O_DSYNC) or sync (O_SYNC)";
    "end_fsync" also "end-fsync", ValueKind::Switch, Demand, WORKLOAD, Some("end_fsync"), "1: fsync at the end of a writing job, inside the measured time";
    "verify", word::<Verify>(), Demand, WORKLOAD, Some("verify"), "Put a checksum, the offset and a generation into each block and check them: crc32c, xxh3, crc32, crc64, md5, sha256 or sha512; meta: no checksum of the data; pattern: no header, --verify_pattern alone";
    "verify_interval" also "verify-interval", ValueKind::PositiveSize, Demand, WORKLOAD, Some("verify_interval"), "Bytes between two headers of a verified block [default: one a block]";
    "verify_pattern" also "verify-pattern", ValueKind::Pattern, Demand, WORKLOAD, Some("verify_pattern"), "What verified blocks hold beside headers: 0xdeadface, \"abc\", %o (the offset), or several of them [default: random]";
    "verify_backlog" also "verify-backlog", ValueKind::Count, Demand, WORKLOAD, Some("verify_backlog"), "Read written blocks back whenever there are so many, while the job goes on; 0: after it";
    "buffer_pattern" also "buffer-pattern", ValueKind::Pattern, Demand, WORKLOAD, Some("buffer_pattern"), "What written blocks hold: 0xdeadface, \"abc\", or several such [default: random]";
    "name", ValueKind::Text, Condition, WORKLOAD, Some("name"), "A name for reports";

    "runtime", ValueKind::PositiveDuration, Condition, TIME, Some("runtime"), "How long to measure [default: 5s]";
    "ramp_time" also "ramp-time", ValueKind::Duration, Condition, TIME, Some("ramp_time"), "How long to run before measuring";
    "request_timeout" also "request-timeout", ValueKind::Duration, Condition, TIME, None, "How long a request may go unanswered before the run fails; 0: for ever [default: 120s]";
    "time_based" also "time-based", ValueKind::Switch, Condition, TIME, Some("time_based"), "0: end as soon as each job has moved its region once [default: 1]";
    "io_size" also "io-size", ValueKind::PositiveSize, Condition, TIME, Some("io_size"), "With --time_based=0: bytes that each job moves [default: its region]";
    "loops", ValueKind::Count, Condition, TIME, Some("loops"), "With --time_based=0: how often each job moves its region [default: 1]";
    "number_ios" also "number-ios", ValueKind::Seed, Condition, TIME, Some("number_ios"), "The most requests of each job";
    "thinktime", ValueKind::Duration, Demand, TIME, Some("thinktime"), "How long each job rests after --thinktime_blocks requests";
    "thinktime_spin" also "thinktime-spin", ValueKind::Duration, Demand, TIME, Some("thinktime_spin"), "How much of a rest is spent computing";
    "thinktime_blocks" also "thinktime-blocks", ValueKind::Count, Demand, TIME, Some("thinktime_blocks"), "Requests between two rests [default: 1]";
    "rate_iops" also "rate-iops", ValueKind::Rate, Demand, TIME, Some("rate_iops"), "Requests a second that each job starts, done or not: an open loop, latency from the intended start";
    "rate", ValueKind::PositiveSize, Demand, TIME, Some("rate"), "Bytes a second that each job starts, likewise";
    "rate_process" also "rate-process", word::<RateProcess>(), Demand, TIME, Some("rate_process"), "When requests are due under a rate: linear or poisson";

    "size", ValueKind::PositiveSize, Condition, REGION, Some("size"), "Bytes of the target that are used [default: all of it]; for writing, the size of a file to be made";
    "offset", ValueKind::Size, Condition, REGION, Some("offset"), "Where the used part begins";
    "offset_increment" also "offset-increment", ValueKind::Size, Condition, REGION, Some("offset_increment"), "How far each job's region begins after the one before; without it the jobs divide the region";
    "zonemode", word::<ZoneMode>(), Demand, REGION, Some("zonemode"), "What zones are: strided (parts of any target, with --zonesize) or zbd (those of a zoned drive, written at their write pointers only)";
    "zonesize", ValueKind::PositiveSize, Demand, REGION, Some("zonesize"), "Bytes moved in one zone before the next: requests go zone by zone; with --zonemode=zbd how large a zone is, where the target is no zoned drive";
    "zonerange", ValueKind::PositiveSize, Demand, REGION, Some("zonerange"), "How large a zone is [default: --zonesize]";
    "zoneskip", ValueKind::Size, Demand, REGION, Some("zoneskip"), "Bytes between two zones, which are left out";
    "zonecapacity", ValueKind::PositiveSize, Demand, REGION, Some("zonecapacity"), "With --zonemode=zbd: how much of a zone can be written, where the target is no zoned drive";
    "read_beyond_wp" also "read-beyond-wp", ValueKind::Switch, Demand, REGION, Some("read_beyond_wp"), "With --zonemode=zbd: 1 reads beyond the zones' write pointers too";
    "max_open_zones" also "max-open-zones", ValueKind::Count, Choice, REGION, Some("max_open_zones"), "With --zonemode=zbd: the most zones written at a time by all jobs; 0 for the drive's own limit";
    "job_max_open_zones" also "job-max-open-zones", ValueKind::Count, Choice, REGION, Some("job_max_open_zones"), "With --zonemode=zbd: the most zones that each job writes at a time; 0 for no limit";
    "ignore_zone_limits" also "ignore-zone-limits", ValueKind::Switch, Choice, REGION, Some("ignore_zone_limits"), "With --zonemode=zbd: 1 keeps to no limit of the drive's";
    "zone_reset_threshold" also "zone-reset-threshold", ValueKind::Fraction, Demand, REGION, Some("zone_reset_threshold"), "With --zone_reset_frequency: the part of the region that must hold data before it counts";
    "zone_reset_frequency" also "zone-reset-frequency", ValueKind::Fraction, Demand, REGION, Some("zone_reset_frequency"), "With --zonemode=zbd: how many zones are reset for each write, full ones apart";

    "ioengine", word::<IoEngine>(), Choice, ENGINE, Some("ioengine"), "How the kernel is asked: auto, io_uring, libaio, posixaio, psync or mmap; io_uring_cmd for NVMe namespaces by their character devices, nbd for exports of other hosts";
    "direct", ValueKind::Switch, Choice, ENGINE, Some("direct"), "1: bypass the page cache (O_DIRECT); 0: go through it [default: 1]";
    "iodepth_batch" also "iodepth-batch" also "iodepth_batch_submit", ValueKind::Count, Choice, ENGINE, Some("iodepth_batch"), "The most requests handed to the kernel at once";
    "iodepth_batch_complete_min" also "iodepth-batch-complete-min" also "iodepth_batch_complete", ValueKind::Count, Choice, ENGINE, Some("iodepth_batch_complete_min"), "The fewest completions to wait for at once";
    "hipri", ValueKind::Switch, Choice, ENGINE, Some("hipri"), "1: poll the device for completions (io_uring, io_uring_cmd)";
    "sqthread_poll" also "sqthread-poll", ValueKind::Switch, Choice, ENGINE, Some("sqthread_poll"), "1: let a kernel thread submit (io_uring, io_uring_cmd)";
    "latency_clock" also "latency-clock", word::<LatencyClock>(), Choice, ENGINE, None, "When the clock is read: batch (once a batch) or each (once a request)";
    "pages", word::<Pages>(), Choice, ENGINE, Some("iomem"), "The pages that buffers lie in: auto, base, thp (transparent huge) or huge (reserved)";

    "cpus_allowed" also "cpus-allowed", ValueKind::Numbers, Choice, CPUS, Some("cpus_allowed"), "CPUs that the jobs may run on: 0-3,8";
    "cpus_allowed_policy" also "cpus-allowed-policy", word::<CpusAllowedPolicy>(), Choice, CPUS, Some("cpus_allowed_policy"), "How these are given to the jobs: shared, or split to bind each job to one of them";
    "numa_cpu_nodes" also "numa-cpu-nodes", ValueKind::Numbers, Choice, CPUS, Some("numa_cpu_nodes"), "NUMA nodes whose CPUs the jobs may run on; buffers lie there as well";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_workload_is_an_option_and_every_option_a_field() {
        let fields = serde_json::to_value(Workload::default()).unwrap();
        let fields: Vec<&String> = fields.as_object().unwrap().keys().collect();
        for field in &fields {
            assert!(find(field).is_some(), "{field} is missing from OPTIONS");
        }
        for option in OPTIONS {
            let hyphenated = option.name.replace('_', "-");
            assert!(hyphenated == option.name || option.aliases.contains(&&*hyphenated), "{}", option.name);
            assert!(fields.iter().any(|field| *field == option.name), "{} is no field", option.name);
        }
        assert_eq!(OPTIONS.len(), fields.len(), "a row is there twice");
    }

    #[test]
    fn an_option_that_is_set_reads_back_and_no_other_changes() {
        for option in OPTIONS {
            let mut workload = Workload::default();
            option.set(&mut workload, option.example()).unwrap();
            assert_eq!(option.get(&workload), option.example());
            assert!(option.text(&workload).is_some(), "{}", option.name);
            let changed: Vec<&str> = differing(&workload).map(|option| option.name).collect();
            assert_eq!(changed, [option.name]);
        }
    }
}
