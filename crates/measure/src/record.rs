//! What was seen: `flashwright.run/1`.
//!
//! A record holds raw counts (bytes, requests, histogram, counters before minus after) and the facts
//! needed to judge them (host, target, engine, warnings). Bandwidth, IOPS and percentiles are methods
//! that derive; they are never stored where they could disagree with the counts. The JSON Schema is
//! generated from these types (`flashwright schema run`), and new fields are optional, so that a
//! record of an older version still reads.

use std::collections::BTreeMap;

use base::IoEngine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

use crate::precondition::Preconditioned;
use crate::verdict::Verdict;
use crate::warning::Warning;
use crate::workload::{LatencyClock, Workload, full_queues};

/// The name of the format, in each record's `schema`.
pub const SCHEMA: &str = "flashwright.run/1";

/// The files of `/sys/block/NAME/queue` that are settings of the machine (kernel, `Documentation/ABI/stable/sysfs-block`).
pub const QUEUE_SETTINGS: [&str; 12] = [
    "scheduler",
    "read_ahead_kb",
    "nr_requests",
    "nomerges",
    "rq_affinity",
    "write_cache",
    "wbt_lat_usec",
    "iostats",
    "io_poll",
    "io_poll_delay",
    "max_sectors_kb",
    "rotational",
];

/// One run of one workload on one target. The default is a record of nothing, for makers of records to fill.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecord {
    /// `flashwright.run/1`.
    pub schema: String,
    /// What was asked for.
    pub workload: Workload,
    /// What it ran on.
    pub target: TargetFacts,
    /// The settings in force around the target, by name: `scheduler`, `read_ahead_kb`, `chunk`, ….
    pub layout: BTreeMap<String, String>,
    /// Which repetition this is, from 1.
    pub pass: u32,
    /// What was done to the target beforehand, where it was this program that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precondition: Option<Preconditioned>,
    /// The machine.
    pub host: HostFacts,
    /// How requests were made.
    pub engine: EngineFacts,
    /// When the run began, nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// The measured interval, nanoseconds: from when the last job had its queue full until the
    /// first one ended. All counts below are of this interval.
    pub interval_ns: u64,
    /// Time before the interval (ramp and filling the queue), nanoseconds.
    pub ramp_ns: u64,
    /// Time after the interval (tail), nanoseconds.
    pub tail_ns: u64,
    /// Reads in the interval.
    pub read: DirectionCounts,
    /// Writes in the interval.
    pub write: DirectionCounts,
    /// Discards in the interval.
    pub trim: DirectionCounts,
    /// The same by job, in order.
    pub jobs: Vec<JobCounts>,
    /// What happened when, in steps of equal length; at most a thousand.
    pub samples: Vec<Sample>,
    /// What each block device below the target did in the interval (diskstats).
    pub drives: Vec<DriveCounts>,
    /// What each CPU did in the interval (/proc/stat, /proc/interrupts).
    pub cpus: Vec<CpuCounts>,
    /// What flashwright's own process used in the interval (getrusage).
    pub process: ProcessCounts,
    /// The whole run, ramp and tail included: what was really moved.
    #[serde(default)]
    pub total: TotalCounts,
    /// Blocks whose contents were checked.
    pub verified_blocks: u64,
    /// Requests of the whole run that failed, where the job was told to go on; they are in none of the counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedRequests>,
    /// What the job did to zones beside its requests, where these kept to such (`zonemode=zbd`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<ZoneCounts>,
    /// Ways in which the figures may mislead, and facts that bear on them.
    pub warnings: Vec<Warning>,
    /// Time between the two readings of the counters in `drives`, nanoseconds; a little more than
    /// `interval_ns`. 0 in records that do not have it.
    #[serde(default)]
    pub observed_ns: u64,
    /// What bounds the devices below the target from outside.
    #[serde(default)]
    pub bounds: Bounds,
    /// What limited this run, judged from this record alone.
    #[serde(default)]
    pub verdict: Option<Verdict>,
}

/// Requests of one kind that failed in one way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedRequests {
    /// What they were to do: `read`, `write`, `trim`; `verify` where a block did not hold what was written.
    pub operation: String,
    /// The kernel's number of the error; 84 (EILSEQ) for a block that is wrong.
    pub errno: i32,
    /// The same in words.
    pub error: String,
    /// How many.
    pub count: u64,
    /// What the first of them was.
    pub first: String,
}

/// What a job did to zones beside its requests, in the whole run. Resets before a run that verifies are not among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneCounts {
    /// Zones that were reset before a write.
    pub resets: u64,
    /// Zones that were made full by a command.
    pub finished: u64,
    /// Threads that ended before their time or size, because no zone could be written, or none held anything to read.
    pub ended_early: u32,
}

impl ZoneCounts {
    /// Those of two threads together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            resets: self.resets + other.resets,
            finished: self.finished + other.finished,
            ended_early: self.ended_early + other.ended_early,
        }
    }
}

/// What bounds the devices below a target from outside, as it stood before the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// Rates that control groups of this process allow on these devices.
    pub throttles: Vec<Throttle>,
    /// Links on the way to the drives.
    pub links: Vec<Link>,
}

/// A rate that a control group allows on a device (kernel, `Documentation/admin-guide/cgroup-v2.rst`, `io.max`;
/// `cgroup-v1/blkio-controller.rst`, `blkio.throttle.*`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Throttle {
    /// Kernel name of the device.
    pub device: String,
    /// What is bounded: `read_bps`, `write_bps`, `read_iops`, `write_iops`.
    pub what: String,
    /// The most a second: bytes or requests.
    pub per_second: u64,
    /// The file that says so.
    pub source: String,
}

/// A link that the data of one or more drives pass through.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// Whose link it is: a PCI address (`0000:01:00.0`) or an ATA port (`ata3`).
    pub address: String,
    /// What it is, in words: `PCIe 16 GT/s x4`, `SATA 6.0 Gb/s`.
    pub kind: String,
    /// Bytes a second that it carries in one direction, before packet headers.
    pub bytes_per_s: f64,
    /// The devices below the target whose data pass through it.
    pub devices: Vec<String>,
}

/// The whole run, from the first request to the last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TotalCounts {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Bytes discarded.
    pub trim_bytes: u64,
    /// Requests completed in all directions.
    pub ios: u64,
    /// Time from the start of the first thread to the end of the last, nanoseconds.
    pub elapsed_ns: u64,
}

/// Requests of one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionCounts {
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests completed.
    pub ios: u64,
    /// From submission, or from the intended start under a rate, to completion.
    pub latency: Histogram,
}

/// One job's share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobCounts {
    /// Bytes transferred in all directions.
    pub bytes: u64,
    /// Requests completed in all directions.
    pub ios: u64,
    /// This job's own interval, nanoseconds.
    pub interval_ns: u64,
    /// CPU time of the thread in user mode in the interval, nanoseconds.
    pub user_ns: u64,
    /// CPU time of the thread in the kernel in the interval, nanoseconds.
    pub system_ns: u64,
    /// The CPU that the thread was bound to, if it was.
    pub cpu: Option<u32>,
    /// The CPUs on which the thread was seen at the interval's ends.
    #[serde(default)]
    pub seen_on: Vec<u32>,
}

impl JobCounts {
    /// Requests a second in its interval; 0 without one.
    pub fn iops(&self) -> f64 {
        if self.interval_ns == 0 { 0.0 } else { self.ios as f64 * 1e9 / self.interval_ns as f64 }
    }

    /// CPU time over its interval: 1 is one thread that never slept; 0 without an interval.
    pub fn busy(&self) -> f64 {
        if self.interval_ns == 0 {
            0.0
        } else {
            (self.user_ns + self.system_ns) as f64 / self.interval_ns as f64
        }
    }
}

/// Progress in one step of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// End of the step, nanoseconds after the interval's start.
    pub end_ns: u64,
    /// Bytes read in it.
    pub read_bytes: u64,
    /// Bytes written in it.
    pub write_bytes: u64,
    /// Requests completed in it.
    pub ios: u64,
}

/// What a run ran on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetFacts {
    /// The device spec as typed.
    pub spec: String,
    /// `file`, `block`, `memory`.
    pub kind: String,
    /// Path, where there is one.
    pub path: Option<String>,
    /// Usable bytes.
    pub size_bytes: u64,
    /// Smallest request, and alignment of offsets, that the target takes with `direct`, bytes.
    pub logical_block_bytes: u32,
    /// Type of the file system that holds it: `ext4`, `xfs`, ….
    pub filesystem: Option<String>,
    /// Its mount options.
    pub mount_options: Option<String>,
    /// The block devices below, nearest first: `nvme0n1p2`, `nvme0n1`.
    pub block_devices: Vec<String>,
    /// What the disks among them are known by whatever a boot calls them, by kernel name: `wwid:…`, `serial:…`, or `file:…` of
    /// a loop device. Without those that have none of these, or share it with another.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lasting_names: BTreeMap<String, String>,
    /// Model of the drive, as it names itself.
    pub model: Option<String>,
    /// `nvme`, `sata`, `virtio`, `loop`, `md`, …, where known.
    pub transport: Option<String>,
    /// Whether the kernel believes that it turns.
    pub rotational: Option<bool>,
}

impl TargetFacts {
    /// Whether it is a file of a file system that keeps its files in memory, so that no drive was measured.
    #[must_use]
    pub fn is_file_in_memory(&self) -> bool {
        matches!(self.filesystem.as_deref(), Some("tmpfs" | "ramfs" | "hugetlbfs"))
    }
}

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// `uname -r`.
    pub kernel: String,
    /// `x86_64`, `aarch64`, ….
    pub architecture: String,
    /// Model name of the CPU.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: u32,
    /// NUMA nodes.
    pub numa_nodes: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Frequency governor of the first CPU, where there is one.
    pub governor: Option<String>,
    /// The hypervisor, where one is seen (`kvm`, `vmware`, …); none on bare metal.
    pub virtualization: Option<String>,
    /// A container runtime, where one is seen.
    pub container: Option<String>,
}

/// How requests were made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EngineFacts {
    /// The engine that ran: a word of `ioengine` but `auto`, or `memory`.
    pub used: String,
    /// Why not the first choice, where `auto` had to fall back.
    pub fallback: Option<String>,
    /// What was in use: `fixed buffers`, `registered file`, `defer_taskrun`, `huge pages`, ….
    pub features: Vec<String>,
    /// How often the clock was read.
    pub latency_clock: LatencyClock,
    /// `tsc` or `clock_gettime`.
    pub clock_source: String,
    /// How often a request or a part of one, or a system call that hands requests over, was made again because the kernel
    /// answered EAGAIN, EBUSY or EINTR; in the whole run, all jobs together.
    #[serde(default)]
    pub retries: u64,
}

impl EngineFacts {
    /// The engine that ran; None where memory was copied, requests moved no data, or a machine was simulated.
    #[must_use]
    pub fn engine(&self) -> Option<IoEngine> {
        IoEngine::from_word(&self.used)
    }
}

/// diskstats of one block device, after minus before (kernel, `Documentation/admin-guide/iostats.rst`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriveCounts {
    /// Kernel name: `nvme0n1`.
    pub name: String,
    /// Reads completed.
    pub read_ios: u64,
    /// Reads merged with a neighbour.
    pub read_merges: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed.
    pub write_ios: u64,
    /// Writes merged with a neighbour.
    pub write_merges: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Discards completed.
    pub discard_ios: u64,
    /// Flushes completed.
    pub flush_ios: u64,
    /// Time during which at least one request was in flight, milliseconds.
    pub busy_ms: u64,
    /// Time that its requests spent in it, added up over them, milliseconds: divided by the time between
    /// the readings it is the mean number in flight, divided by the requests their mean time.
    #[serde(default)]
    pub in_flight_ms: u64,
    /// The devices that it is made of, of those in the record.
    #[serde(default)]
    pub below: Vec<String>,
    /// Bytes that flash programmed, those of its garbage collection included; None where the device does not count them, as only
    /// simulated flash does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_write_bytes: Option<u64>,
}

/// One CPU, after minus before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCounts {
    /// Its number.
    pub cpu: u32,
    /// User and nice time, milliseconds.
    pub user_ms: u64,
    /// Kernel time, milliseconds.
    pub system_ms: u64,
    /// Hard and soft interrupt time, milliseconds.
    pub irq_ms: u64,
    /// Idle time, waiting for I/O included, milliseconds.
    pub idle_ms: u64,
    /// Time the hypervisor gave to others, milliseconds.
    pub steal_ms: u64,
    /// Device interrupts taken.
    pub interrupts: u64,
    /// Interrupts taken from the controllers of the drives below the target.
    #[serde(default)]
    pub drive_interrupts: u64,
    /// Soft interrupts run for the block layer (`BLOCK` in /proc/softirqs).
    #[serde(default)]
    pub block_softirqs: u64,
}

impl CpuCounts {
    /// All of its time, idle and stolen time included, milliseconds.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.user_ms + self.system_ms + self.irq_ms + self.idle_ms + self.steal_ms
    }
}

/// flashwright's own process, after minus before (getrusage(2)).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessCounts {
    /// CPU time in user mode, nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds.
    pub system_ns: u64,
    /// Context switches because a thread waited.
    pub voluntary_context_switches: u64,
    /// Context switches because a thread was preempted.
    pub involuntary_context_switches: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
}

/// The figures that programs ask for, derived from a record's counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySummary {
    /// Smallest, nanoseconds.
    pub min: u64,
    /// Exact mean, nanoseconds.
    pub mean: f64,
    /// Standard deviation, nanoseconds.
    pub stddev: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    #[serde(alias = "p99.9")]
    pub p99_9: u64,
    /// 99.99th percentile.
    #[serde(alias = "p99.99")]
    pub p99_99: u64,
    /// Largest, nanoseconds.
    pub max: u64,
}

impl From<&Histogram> for LatencySummary {
    fn from(h: &Histogram) -> Self {
        Self {
            min: h.min(),
            mean: h.mean(),
            stddev: h.stddev(),
            p50: h.percentile(50.0),
            p90: h.percentile(90.0),
            p95: h.percentile(95.0),
            p99: h.percentile(99.0),
            p99_9: h.percentile(99.9),
            p99_99: h.percentile(99.99),
            max: h.max(),
        }
    }
}

/// [`TargetFacts::kind`] of a target that is several devices without an address space over them.
const SEPARATE: &str = "separate";

impl RunRecord {
    /// Bytes of all directions in the interval.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes + self.trim.bytes
    }

    /// Requests of all directions in the interval.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.read.ios + self.write.ios + self.trim.ios
    }

    /// Bytes that the flash below the target programmed for each byte that was written to it; None where no drive counts them, or nothing
    /// was written.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let counting = self.drives.iter().filter(|drive| drive.write_bytes > 0);
        let sums = counting.filter_map(|drive| Some((drive.media_write_bytes?, drive.write_bytes)));
        let (media, host) = sums.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))?;
        Some(media as f64 / host as f64)
    }

    /// Bytes per second: the sum over the jobs of bytes by own interval, which is what they moved
    /// while all of them were busy.
    #[must_use]
    pub fn bandwidth_bytes_per_s(&self) -> f64 {
        self.rate(|job| job.bytes)
    }

    /// Requests per second, likewise.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.rate(|job| job.ios)
    }

    /// Latency of all directions together.
    #[must_use]
    pub fn latency(&self) -> Histogram {
        let mut all = self.read.latency.clone();
        all.merge(&self.write.latency);
        all.merge(&self.trim.latency);
        all
    }

    /// Whether a warning with this code stands in the record.
    #[must_use]
    pub fn has_warning(&self, code: crate::WarningCode) -> bool {
        self.warnings.iter().any(|w| w.code == code)
    }

    /// Puts a warning to the others, in the order of their codes. A code stands in a record once: what is seen later of the
    /// same code goes to its message.
    pub fn warn(&mut self, warning: Warning) {
        match self.warnings.iter_mut().find(|known| known.code == warning.code) {
            Some(known) => known.message = format!("{}; {}", known.message, warning.message),
            None => self.warnings.push(warning),
        }
        self.warnings.sort_by_key(|warning| warning.code);
    }

    /// Devices among which the load was dealt out: the members of `separate`, else one.
    #[must_use]
    pub fn separate_devices(&self) -> u32 {
        if self.target.kind != SEPARATE {
            return 1;
        }
        let told = self.layout.get("width").and_then(|width| width.parse().ok());
        // Each of them has as many jobs as the workload says.
        let counted = || self.jobs.len() as u32 / self.workload.numjobs.max(1);
        told.unwrap_or_else(counted).max(1)
    }

    /// Requests in flight where all jobs have their queues full. Of separate devices each has at least one for
    /// each of `numjobs`.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let Workload { iodepth, numjobs, .. } = self.workload;
        full_queues(iodepth, numjobs, self.separate_devices())
    }

    fn rate(&self, of: impl Fn(&JobCounts) -> u64) -> f64 {
        self.jobs
            .iter()
            .filter(|job| job.interval_ns > 0)
            .map(|job| of(job) as f64 * 1e9 / job.interval_ns as f64)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WarningCode;

    #[test]
    fn a_code_stands_in_a_record_once() {
        let mut record = RunRecord::default();
        record.warn(Warning::new(WarningCode::SettingsDrift, "the scheduler changed"));
        record.warn(Warning::new(WarningCode::Cached, "half of it"));
        record.warn(Warning::new(WarningCode::SettingsDrift, "the layout changed"));
        let seen: Vec<_> = record.warnings.iter().map(|w| (w.code, w.message.as_str())).collect();
        let drift = (WarningCode::SettingsDrift, "the scheduler changed; the layout changed");
        assert_eq!(seen, [(WarningCode::Cached, "half of it"), drift]);
    }
}
