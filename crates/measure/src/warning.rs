//! The ways in which a storage figure lies, each with a stable code.
//!
//! A code never changes its meaning and is never reused. [`WarningCode::explain`] is the single source
//! for the documentation page, the report and the terminal; a test holds the page to it.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::later::{self, LaterWord};

/// A fact found during one run, under its code, in words that carry the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// The stable code.
    pub code: WarningCode,
    /// What was seen, with its figures.
    pub message: String,
}

impl Warning {
    /// A warning with its evidence.
    #[must_use]
    pub fn new(code: WarningCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// What a code does to the figure beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Bears on how to read the figure.
    Note,
    /// The figure may mislead.
    Warning,
    /// The figure is void: it does not measure what was asked.
    Void,
}

/// What a code means and what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// What it does to the figure.
    pub severity: Severity,
    /// What it means, in a sentence.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

macro_rules! codes {
    ($($variant:ident $code:literal $severity:ident $meaning:literal $remedy:literal)+) => {
        /// The codes. `Display` and data give the spelling `W-…`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum WarningCode {
            $(
                #[doc = $meaning]
                $variant,
            )+
            /// A code of a later version, as it was read. A run of this version never has one.
            Later(LaterWord),
        }

        impl WarningCode {
            /// All codes of this version, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable spelling.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ Self::Later(code) => code.word() }
            }

            /// The code of a spelling; of one that is not known, [`WarningCode::Later`]. None if it cannot be a code, which
            /// is `W-` with letters, digits and hyphens.
            #[must_use]
            pub fn from_code(text: &str) -> Option<Self> {
                let known = Self::ALL.iter().copied().find(|code| code.code() == text);
                let later = || text.starts_with("W-").then(|| LaterWord::new(text)).flatten().map(Self::Later);
                known.or_else(later)
            }

            /// Meaning, severity and remedy.
            #[must_use]
            pub fn explain(self) -> Explanation {
                match self {
                    $(Self::$variant => Explanation {
                        severity: Severity::$severity,
                        meaning: $meaning,
                        remedy: $remedy,
                    },)+
                    Self::Later(_) => Explanation {
                        // Only the later version knows whether the figure is void, so it is not relied on.
                        severity: Severity::Void,
                        meaning: "A warning of a later version of flashwright; this version does not know what it does to the figure, and concludes nothing from it.",
                        remedy: "Read the run, or make the report, with that version.",
                    },
                }
            }
        }
    };
}

codes! {
    Unwritten "W-UNWRITTEN" Void
        "Part of the target has holes or unwritten extents; the kernel answers reads of them from nothing, without asking the drive."
        "Write the whole file first (`bench --rw=write --bs=1m --time_based=0`), or measure it knowingly with --allow-unwritten."
    Cached "W-CACHED" Warning
        "The block devices below the target moved fewer bytes than were asked for: the page cache answered the rest."
        "With --direct=0 use --direct=1 or a working set well above the memory; with --direct=1 measure the device below the layer that caches."
    DirectBuffered "W-DIRECT-BUFFERED" Void
        "O_DIRECT was asked for, but the file system served the requests through the page cache."
        "Measure on a file system that supports O_DIRECT, or say --direct=0 and mean it."
    Unwatched "W-UNWATCHED" Note
        "The kernel kept no counters of the devices below the target, so caching, splitting and other users could not be ruled out."
        "Of an export, watch the drives on its own host. Elsewhere write 1 to queue/iostats of the device, or measure on a file system with a block device below it."
    SmallSet "W-SMALL-SET" Warning
        "The working set is small enough to fit a cache on the way (page cache when buffered, the drive's DRAM or SLC cache when direct)."
        "Raise --size: above twice the memory when buffered, to several GiB and at best the whole drive when direct."
    Compressible "W-COMPRESSIBLE" Warning
        "A layer below (zram, btrfs, ZFS, VDO) compresses or deduplicates, so the figure depends on the data written."
        "Keep buffer_compress_percentage at your data's real value, or switch compression off below."
    RepeatedData "W-REPEATED-DATA" Warning
        "The target's data are zeros or repeat themselves; drives and layers that compress or deduplicate answer such reads faster."
        "Fill it with random, block-unique data first (`bench --rw=write` does)."
    VolatileCache "W-VOLATILE-CACHE" Note
        "The drive has a volatile write cache and nothing flushed it: completed writes were not yet durable."
        "Add --fdatasync=N or --end_fsync=1 for the cost of durable writes."
    SlcCache "W-SLC-CACHE" Warning
        "The write rate fell for good within the run, as it does when a drive's SLC cache or its stock of erased blocks is used up: the mean is of two states."
        "Write for longer and set the time before the fall aside (--ramp_time), or precondition the drive (--precondition=steady)."
    Heat "W-HEAT" Warning
        "A drive's temperature sensor passed its warning threshold, where drives slow themselves down."
        "Improve cooling, or read the figure as one of a hot drive."
    Merged "W-MERGED" Warning
        "The block layer merged neighbouring requests: the drive saw fewer and larger ones than were made."
        "Set queue/nomerges to 2 for the test, or read the figure as one of merged requests."
    Split "W-SPLIT" Note
        "The block layer split requests: the drive saw more and smaller ones than were made."
        "Keep bs at or below queue/max_sectors_kb, or raise that limit."
    Chunk "W-CHUNK" Note
        "Random requests are larger than the chunk, or cross from one chunk to the next, so that they go to several drives and take as long as the slowest of them."
        "Use a chunk and an offset that are multiples of bs, or read the figure as one of requests that share the drives."
    Virtual "W-VIRTUAL" Note
        "The target is a virtual device (virtio, loop, zram, a memory drive) or the machine is a virtual one; another layer takes part in the figure."
        "Read it as a figure of that layer; measure on bare metal for the drive's own."
    Misaligned "W-MISALIGNED" Warning
        "Requests are not aligned to the physical block or the partition does not begin on one, so the drive reads before it writes."
        "Use a bs that is a multiple of the physical block, and align the partition to 1 MiB."
    PollUnavailable "W-POLL-UNAVAILABLE" Warning
        "hipri was asked for, but the device has no polled queues; completions came by interrupt."
        "Load nvme with poll_queues=N, or drop hipri."
    CpuBound "W-CPU-BOUND" Warning
        "A load generator's thread was at least 95 % busy, or requests spent most of their time on the way to psync's threads: the figure is the generator's limit, not the drive's."
        "Raise --numjobs, or read the figure as IOPS per core."
    Generator "W-GENERATOR" Warning
        "Making the requests took half of a job's time or more, as the same requests show on a device that answers at once: the figure is near the most that this CPU generates."
        "Raise --numjobs, or --bs where that fits the question; or read the figure as one of CPU and drive together."
    Steal "W-STEAL" Warning
        "The hypervisor gave CPU time to others during the run."
        "Repeat when the host is quieter; compare only runs with little steal."
    Governor "W-GOVERNOR" Note
        "The CPU frequency governor is not `performance`; clock changes add noise to latency."
        "Set it to performance for the test."
    IdleStates "W-IDLE-STATES" Note
        "CPUs sleep between completions in a state that takes a tenth of a request's time or more to leave, and that time is in each latency."
        "For latencies of the drive alone disable deep states (`cpupower idle-set -D 10`), use --hipri=1 where queues can be polled, or raise --iodepth."
    Numa "W-NUMA" Warning
        "A load generator's CPU and the drive sit on different NUMA nodes."
        "Bind the jobs to the drive's node."
    LinkDegraded "W-LINK-DEGRADED" Warning
        "The drive's PCIe link runs below the speed or width that both ends support."
        "Reseat the drive or check the slot; see `lspci -vv`."
    BackgroundWork "W-BACKGROUND-WORK" Void
        "An md resync, ext4 lazy initialisation, scrub or trim was under way on the drives during the run."
        "Wait until it is done and run again."
    SettingsDrift "W-SETTINGS-DRIFT" Void
        "A setting of the block queue (scheduler, read-ahead, wbt, iostats, …) changed during the run; or it, or the frequency governor, since earlier runs of the sweep."
        "Find what changes it (tuned, udev), then run again."
    OtherTraffic "W-OTHER-TRAFFIC" Warning
        "The drives moved many more bytes than this run asked for: somebody else was using them."
        "Stop the other user, or measure on a drive of your own."
    SameOffsets "W-SAME-OFFSETS" Warning
        "Several jobs walk the same sequential offsets, so that all but the first find their data in a cache."
        "Leave offset_increment out (each job then gets a part of its own) or set it to the size of a part; in a job file give each section an offset and a size of its own, and copies (numjobs) an offset_increment."
    ClosedLoop "W-CLOSED-LOOP" Note
        "Each request waited for an earlier one to finish, so these percentiles leave out the queueing that independent users would see."
        "Use --rate_iops for the latency under a given load."
    RateMissed "W-RATE-MISSED" Warning
        "The target could not keep the rate asked for; the queue grew, and latency from the intended start grew with it."
        "Lower rate_iops, or raise iodepth."
    EngineFallback "W-ENGINE-FALLBACK" Note
        "ioengine=auto could not have its first choice."
        "The message names the reason; on enterprise kernels see kernel.io_uring_disabled."
    Unsteady "W-UNSTEADY" Warning
        "Bandwidth moved by more than 20 % within the measured interval, or along a slope of more than 10 %."
        "Raise --ramp_time and --runtime, and precondition the drive before writing tests."
    ShortRun "W-SHORT-RUN" Warning
        "The interval holds too few requests for its figures to be more than an anecdote."
        "Raise --runtime or --size."
    Unpreconditioned "W-UNPRECONDITIONED" Note
        "The drive was not brought into its steady state first (SNIA: twice its capacity written), so writes may run at the speed of a fresh drive."
        "Precondition the drive before comparing write figures between drives."
    NotSteady "W-NOT-STEADY" Warning
        "The workload was repeated in rounds before the run, and no five of them obeyed SNIA's rule: the drive had not reached its steady state."
        "Allow more rounds (--max_rounds) or longer ones (--round_time), or report the figure as one of an unsteady drive."
    FewBlocks "W-FEW-BLOCKS" Warning
        "The region holds fewer blocks than eight times the requests in flight, so requests often meet on the same block."
        "Raise --size, or lower --iodepth."
    VerifyPartial "W-VERIFY-PARTIAL" Note
        "The run ended before verification had read back everything that was written."
        "Raise --runtime, or lower --size."
    FailedRequests "W-FAILED-REQUESTS" Warning
        "Requests failed, and the job was told to go on: they are in none of the figures, and not all was done that was asked for."
        "See the kernel's log (dmesg) for errors of the drive; wrong blocks are not there. Without continue_on_error and ignore_error the first of them ends the run."
    Zones "W-ZONES" Warning
        "A thread ended before its time or size, because none of its zones could be opened for writing, or none held anything to read or trim."
        "See blkzone report for zones that others have left open or partly written. Raise --max_open_zones where it is lower than the drive's limit, or lower --numjobs."
}

impl Serialize for WarningCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

impl<'de> Deserialize<'de> for WarningCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_code(&text).ok_or_else(|| de::Error::custom(format!("'{text}' is not a warning's code")))
    }
}

impl JsonSchema for WarningCode {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WarningCode".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let known: Vec<_> = Self::ALL.iter().map(|code| (code.code(), code.explain().meaning)).collect();
        later::schema(&known, "^W-[A-Za-z0-9-]+$")
    }
}

impl std::fmt::Display for WarningCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_spelled_alike_in_data() {
        let mut seen = std::collections::HashSet::new();
        for code in WarningCode::ALL {
            assert!(code.code().starts_with("W-"), "{code}");
            assert!(seen.insert(code.code()), "{code} is used twice");
            assert_eq!(serde_json::to_string(code).unwrap(), format!("\"{code}\""));
            assert_eq!(WarningCode::from_code(code.code()), Some(*code));
        }
    }

    #[test]
    fn a_code_of_a_later_version_is_kept_and_written_as_it_was_read() {
        let json = r#"{"code":"W-TOMORROW","message":"seen"}"#;
        let warning: Warning = serde_json::from_str(json).unwrap();
        assert_eq!((warning.code.code(), warning.code.explain().severity), ("W-TOMORROW", Severity::Void));
        assert_eq!(serde_json::to_string(&warning).unwrap(), json);
        assert!(WarningCode::ALL.iter().all(|known| *known < warning.code), "it comes last");
        for wrong in [
            r#"{"code":"TOMORROW","message":""}"#,
            r#"{"code":"W-a b","message":""}"#,
            r#"{"code":1,"message":""}"#,
        ] {
            assert!(serde_json::from_str::<Warning>(wrong).is_err(), "{wrong}");
        }
    }
}
