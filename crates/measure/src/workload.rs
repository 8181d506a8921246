//! What to run, in fio's words.
//!
//! A [`Workload`] names no device: the same one runs on a drive, a stripe or a simulated machine.
//! A field with the name of a fio option means what that option means (fio(1), version 3.33), and where
//! flashwright goes further the field's comment says so; fields such as `write_bssplit`, `request_timeout`,
//! `latency_clock` and `pages` are flashwright's own. [`Workload::validate`] is called by whoever runs it, so
//! a contradictory workload never reaches a device.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod validity;
mod values;

pub use base::IoEngine;

pub use self::validity::InvalidWorkload;
pub use self::values::{
    DedupeMode, LatencyClock, RateProcess, Rw, SizeShare, Verify, WriteSync, ZoneMode, all_draws, full_queues,
};
pub use crate::contents::{DataPattern, InvalidPattern};
pub use crate::distribution::{RandomDistribution, Sequence, Zone};
pub use crate::placement::{CpusAllowedPolicy, NumberList, Pages};
use crate::words;

/// A workload: everything about a run except where it runs. See the module's argument.
///
/// Records of later versions may have options that this one does not know, so reading keeps them in
/// [`later_options`](Self::later_options) instead of failing. What people type is checked by [`unknown_option`](crate::options::unknown_option).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Workload {
    /// A name for reports; empty where none was given.
    pub name: String,
    /// Direction and order.
    pub rw: Rw,
    /// Block size in bytes.
    #[serde(with = "words::size")]
    #[schemars(with = "u64")]
    pub bs: u64,
    /// Several block sizes with shares that add up to 100; takes the place of `bs` where not empty.
    pub bssplit: Vec<SizeShare>,
    /// The block sizes of the writes of a mix with their shares, where they are not those of its reads.
    pub write_bssplit: Vec<SizeShare>,
    /// Random offsets are multiples of it, where they are not multiples of the smallest block; a multiple of that.
    #[serde(with = "words::size::option")]
    #[schemars(with = "Option<u64>")]
    pub blockalign: Option<u64>,
    /// Requests kept in flight by each job.
    pub iodepth: u32,
    /// The most requests handed to the kernel at once. 0 leaves it to the runner: 32 where they are served
    /// at once, from a cache; otherwise what the last completions made room for, up to an eighth of the depth
    /// (at least 4), and 32 from depth 128 on.
    pub iodepth_batch: u32,
    /// The fewest completions to wait for at once (fio's `iodepth_batch_complete_min`), 1 or more.
    pub iodepth_batch_complete_min: u32,
    /// Identical jobs, each a thread with a seed of its own.
    pub numjobs: u32,
    /// Percentage of reads in a mix.
    pub rwmixread: u8,
    /// Bytes that a sequential job skips after each request; below zero it goes backwards, and -2 blocks are the block
    /// before the one just visited. fio writes it behind `rw`: `rw=read:8k`.
    #[serde(with = "words::signed_size")]
    #[schemars(with = "i64")]
    pub rw_step: i64,
    /// How many of a random job's requests are at random offsets; the others follow the one before them.
    pub percentage_random: u8,
    /// Requests a second that *each job* is to start, whether or not earlier ones are done: an open
    /// loop. Latency then counts from the intended start.
    pub rate_iops: Option<u64>,
    /// Bytes a second that each job is to start; an open loop as well.
    #[serde(with = "words::size::option")]
    #[schemars(with = "Option<u64>")]
    pub rate: Option<u64>,
    /// When arrivals are due under a rate.
    pub rate_process: RateProcess,
    /// How long to measure, ramp excluded. In seconds in data.
    #[serde(with = "words::seconds::option")]
    #[schemars(with = "Option<f64>")]
    pub runtime: Option<Duration>,
    /// Go on for the whole `runtime`, over the region again if need be. Without it the run ends as
    /// soon as each job has moved `size` bytes.
    pub time_based: bool,
    /// Bytes that each job moves, where they are not those of its region; meaningless with `time_based`.
    #[serde(with = "words::size::option")]
    #[schemars(with = "Option<u64>")]
    pub io_size: Option<u64>,
    /// How often each job moves its region, or its `io_size`.
    pub loops: u32,
    /// The most requests of each job, whatever is left of its bytes or its time.
    pub number_ios: Option<u64>,
    /// How long each job rests after `thinktime_blocks` requests, once they are answered. In seconds in data.
    #[serde(with = "words::seconds")]
    #[schemars(with = "f64")]
    pub thinktime: Duration,
    /// How much of a rest is spent computing instead of asleep. In seconds in data.
    #[serde(with = "words::seconds")]
    #[schemars(with = "f64")]
    pub thinktime_spin: Duration,
    /// Requests between two rests.
    pub thinktime_blocks: u32,
    /// How long to run before measuring. In seconds in data. Even at 0 the queue is filled once.
    #[serde(with = "words::seconds")]
    #[schemars(with = "f64")]
    pub ramp_time: Duration,
    /// How long a request may go unanswered before the run fails; 0 for ever. In seconds in data. A drive's own driver
    /// gives up after 30 s, mostly, and makes the request again, which this leaves time for.
    #[serde(with = "words::seconds")]
    #[schemars(with = "f64")]
    pub request_timeout: Duration,
    /// Bytes of the target that are used; the whole of it where left out.
    #[serde(with = "words::size::option")]
    #[schemars(with = "Option<u64>")]
    pub size: Option<u64>,
    /// Where the used part begins.
    #[serde(with = "words::size")]
    #[schemars(with = "u64")]
    pub offset: u64,
    /// How far job n+1's region begins after job n's. Where left out the region is divided among
    /// the jobs, so that no two walk the same offsets (fio lets them).
    #[serde(with = "words::size::option")]
    #[schemars(with = "Option<u64>")]
    pub offset_increment: Option<u64>,
    /// What zones are.
    pub zonemode: ZoneMode,
    /// With `zonemode=strided`, bytes that are moved in one zone before the next: requests go zone by zone, and there are no
    /// zones where left out. With `zonemode=zbd` how large a zone is; that of the drive where left out.
    #[serde(with = "words::size::option")]
    #[schemars(with = "Option<u64>")]
    pub zonesize: Option<u64>,
    /// How large a zone is; as large as `zonesize` where left out.
    #[serde(with = "words::size::option")]
    #[schemars(with = "Option<u64>")]
    pub zonerange: Option<u64>,
    /// Bytes between two zones.
    #[serde(with = "words::size")]
    #[schemars(with = "u64")]
    pub zoneskip: u64,
    /// How much of each zone can be written, where the target is no zoned drive; all of it where left out.
    #[serde(with = "words::size::option")]
    #[schemars(with = "Option<u64>")]
    pub zonecapacity: Option<u64>,
    /// Read what lies beyond the write pointers as well.
    pub read_beyond_wp: bool,
    /// The most zones that are written at a time, by all jobs together; 0 for the drive's own limit.
    pub max_open_zones: u32,
    /// The most zones that one job has open at a time; 0 for no limit of its own.
    pub job_max_open_zones: u32,
    /// Keep to no limit that the drive has.
    pub ignore_zone_limits: bool,
    /// The part of the region that holds data from which on `zone_reset_frequency` counts.
    pub zone_reset_threshold: f64,
    /// How many zones are reset for each write, from 0 to 1; none but full ones at 0.
    pub zone_reset_frequency: f64,
    /// How random offsets are drawn.
    pub random_distribution: RandomDistribution,
    /// Draw each random offset afresh, instead of visiting every block once before any again.
    pub norandommap: bool,
    /// Seed of every random choice of the run; job n adds n.
    pub randseed: u64,
    /// Put a header with checksum, offset and generation into each written block, and check it when
    /// read: after a writing run by reading everything back, in a reading run as it goes. Reads of a mix are not checked.
    pub verify: Option<Verify>,
    /// Bytes between two headers of a block; each block has one where left out.
    #[serde(with = "words::size::option")]
    #[schemars(with = "Option<u64>")]
    pub verify_interval: Option<u64>,
    /// What verified blocks hold beside their headers; random bytes where left out.
    pub verify_pattern: Option<DataPattern>,
    /// Blocks that are written before they are read back, while the job goes on; 0 to read all back at its end.
    pub verify_backlog: u32,
    /// What written blocks hold; random bytes where left out.
    pub buffer_pattern: Option<DataPattern>,
    /// How much of each written buffer compresses away, 0–100 percent.
    pub buffer_compress_percentage: u8,
    /// How many of the written blocks are copies of others, 0–100 percent.
    pub dedupe_percentage: u8,
    /// Of which blocks they are copies.
    pub dedupe_mode: DedupeMode,
    /// How many different blocks there are to copy with `dedupe_mode=working_set`, in percent of those of the region.
    pub dedupe_working_set_percentage: u8,
    /// Whether all jobs copy the same blocks.
    pub dedupe_global: bool,
    /// Bypass the page cache (O_DIRECT).
    pub direct: bool,
    /// Engine asked for.
    pub ioengine: IoEngine,
    /// Poll the device for completions (fio's `hipri`, IORING_SETUP_IOPOLL).
    pub hipri: bool,
    /// Let a kernel thread submit (fio's `sqthread_poll`, IORING_SETUP_SQPOLL).
    pub sqthread_poll: bool,
    /// fdatasync(2) after this many writes of a job; 0 for never.
    pub fdatasync: u32,
    /// fsync(2) after this many writes of a job; 0 for never.
    pub fsync: u32,
    /// What each write has made durable when it completes, by the descriptor's flags.
    pub sync: WriteSync,
    /// fsync(2) at the end of a writing job, inside the measured time (fio's `end_fsync`).
    pub end_fsync: bool,
    /// How often the clock is read.
    pub latency_clock: LatencyClock,
    /// CPUs that the jobs may run on: `0-3,8`; wherever the process may where left out.
    pub cpus_allowed: Option<NumberList>,
    /// How those CPUs are given to the jobs.
    pub cpus_allowed_policy: CpusAllowedPolicy,
    /// NUMA nodes whose CPUs the jobs may run on. Memory follows: buffers are touched first by the job.
    pub numa_cpu_nodes: Option<NumberList>,
    /// The pages that buffers lie in.
    pub pages: Pages,
    /// Options of a later version by name, as they were read. They are written as they stand and tell workloads apart;
    /// a workload that has any is not run.
    #[serde(flatten)]
    pub later_options: BTreeMap<String, serde_json::Value>,
}

impl Default for Workload {
    /// fio's defaults, but `direct` on, and depth, size and time that show a drive something.
    fn default() -> Self {
        Self {
            name: String::new(),
            rw: Rw::RandRead,
            bs: 4096,
            bssplit: Vec::new(),
            write_bssplit: Vec::new(),
            blockalign: None,
            iodepth: 1,
            iodepth_batch: 0,
            iodepth_batch_complete_min: 1,
            numjobs: 1,
            rwmixread: 50,
            rw_step: 0,
            percentage_random: 100,
            rate_iops: None,
            rate: None,
            rate_process: RateProcess::Linear,
            runtime: None,
            time_based: false,
            io_size: None,
            loops: 1,
            number_ios: None,
            thinktime: Duration::ZERO,
            thinktime_spin: Duration::ZERO,
            thinktime_blocks: 1,
            ramp_time: Duration::ZERO,
            request_timeout: Duration::from_secs(120),
            size: None,
            offset: 0,
            offset_increment: None,
            zonesize: None,
            zonerange: None,
            zonemode: ZoneMode::Strided,
            zoneskip: 0,
            zonecapacity: None,
            read_beyond_wp: false,
            max_open_zones: 0,
            job_max_open_zones: 0,
            ignore_zone_limits: false,
            zone_reset_threshold: 0.0,
            zone_reset_frequency: 0.0,
            random_distribution: RandomDistribution::Random,
            norandommap: false,
            randseed: 0x666c_6173_6821,
            verify: None,
            verify_interval: None,
            verify_pattern: None,
            verify_backlog: 0,
            buffer_pattern: None,
            buffer_compress_percentage: 0,
            dedupe_percentage: 0,
            dedupe_mode: DedupeMode::Repeat,
            dedupe_working_set_percentage: 5,
            dedupe_global: false,
            direct: true,
            ioengine: IoEngine::Auto,
            hipri: false,
            sqthread_poll: false,
            fdatasync: 0,
            fsync: 0,
            sync: WriteSync::None,
            end_fsync: false,
            latency_clock: LatencyClock::Batch,
            cpus_allowed: None,
            cpus_allowed_policy: CpusAllowedPolicy::Shared,
            numa_cpu_nodes: None,
            pages: Pages::Auto,
            later_options: BTreeMap::new(),
        }
    }
}

impl Workload {
    /// The largest request, in bytes.
    #[must_use]
    #[inline]
    pub fn max_bs(&self) -> u64 {
        self.sizes().map(|share| share.bs).max().unwrap_or(self.bs)
    }

    /// The smallest request, in bytes; all offsets are multiples of it.
    #[must_use]
    #[inline]
    pub fn min_bs(&self) -> u64 {
        self.sizes().map(|share| share.bs).min().unwrap_or(self.bs)
    }

    /// The sizes of all requests; those of a mix's writes where they have their own as well.
    #[inline]
    fn sizes(&self) -> impl Iterator<Item = SizeShare> {
        let one = self.bssplit.is_empty().then_some(SizeShare { bs: self.bs, percent: 100 });
        one.into_iter().chain(self.bssplit.iter().chain(&self.write_bssplit).copied())
    }

    /// Whether all requests have the size `bs`.
    #[must_use]
    #[inline]
    pub fn has_one_size(&self) -> bool {
        self.bssplit.is_empty() && self.write_bssplit.is_empty()
    }

    /// Bytes of a request on average.
    #[must_use]
    pub fn mean_bs(&self) -> f64 {
        let mean = |split: &[SizeShare]| -> f64 {
            let all = all_draws(split) as f64;
            split.iter().map(|share| share.bs as f64 * share.draws() as f64 / all).sum()
        };
        let reads = if self.bssplit.is_empty() { self.bs as f64 } else { mean(&self.bssplit) };
        if self.write_bssplit.is_empty() {
            return reads;
        }
        let part = f64::from(self.rwmixread) / 100.0;
        reads * part + mean(&self.write_bssplit) * (1.0 - part)
    }

    /// What random offsets are multiples of.
    #[must_use]
    #[inline]
    pub fn offset_unit(&self) -> u64 {
        self.blockalign.filter(|_| self.rw.is_random()).unwrap_or(self.min_bs())
    }

    /// The option that says what written blocks hold, and what that is.
    #[must_use]
    #[inline]
    pub fn pattern(&self) -> Option<(&'static str, &DataPattern)> {
        let of_verify = self.verify_pattern.as_ref().filter(|_| self.verify.is_some());
        let of_buffer = self.buffer_pattern.as_ref().map(|pattern| ("buffer_pattern", pattern));
        of_verify.map(|pattern| ("verify_pattern", pattern)).or(of_buffer)
    }

    /// Whether what is to be verified is known from a log of the writes, and not from their order: where blocks are read back
    /// while the job goes on, and where it reads between its writes.
    #[must_use]
    pub fn verifies_by_log(&self) -> bool {
        let is_mix = matches!(self.rw, Rw::Rw | Rw::RandRw);
        // Where a write goes is decided by the zones' pointers.
        let has_backlog = self.verify_backlog > 0 || is_mix || self.is_zbd();
        self.verify.is_some() && self.rw.writes() && has_backlog
    }

    /// Whether the regions of several jobs may have blocks in common.
    #[must_use]
    pub fn regions_overlap(&self) -> bool {
        let overlaps = |step: u64| self.size.is_none_or(|size| step < size);
        self.numjobs > 1 && self.offset_increment.is_some_and(overlaps)
    }

    /// Whether requests keep to the zones of a zoned drive.
    #[must_use]
    pub fn is_zbd(&self) -> bool {
        self.zonemode == ZoneMode::Zbd
    }

    /// Whether requests do nothing but reset zones, whose size is that of a block then.
    #[must_use]
    pub fn resets_zones(&self) -> bool {
        self.is_zbd() && self.rw.modifies() && !self.rw.writes()
    }

    /// Bytes that are moved in one strided zone before the next; None where there are no such zones.
    #[must_use]
    pub fn strided_bytes(&self) -> Option<u64> {
        self.zonesize.filter(|_| !self.is_zbd())
    }

    /// The workload as it is without zones of any kind.
    #[must_use]
    pub fn without_zones(self) -> Self {
        let plain = Self::default();
        Self {
            zonemode: plain.zonemode,
            zonesize: plain.zonesize,
            zonerange: plain.zonerange,
            zoneskip: plain.zoneskip,
            zonecapacity: plain.zonecapacity,
            read_beyond_wp: plain.read_beyond_wp,
            max_open_zones: plain.max_open_zones,
            job_max_open_zones: plain.job_max_open_zones,
            ignore_zone_limits: plain.ignore_zone_limits,
            zone_reset_threshold: plain.zone_reset_threshold,
            zone_reset_frequency: plain.zone_reset_frequency,
            ..self
        }
    }

    /// Whether requests start on a schedule instead of when earlier ones end.
    #[must_use]
    pub fn is_open_loop(&self) -> bool {
        self.rate_iops.is_some() || self.rate.is_some()
    }

    /// Whether each job rests between requests (`thinktime`).
    #[must_use]
    pub fn rests(&self) -> bool {
        !self.thinktime.is_zero()
    }

    /// Whether something in the run makes writes durable.
    #[must_use]
    pub fn makes_durable(&self) -> bool {
        self.fdatasync > 0 || self.fsync > 0 || self.end_fsync || self.sync != WriteSync::None
    }

    /// One line for people: `randread 4 KiB, depth 32, 2 jobs`.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut line = format!("{} ", self.rw.word());
        if self.has_one_size() {
            line += &units::bytes(self.bs);
        } else {
            line += "mixed sizes";
        }
        line += &format!(", depth {}", self.iodepth);
        if self.numjobs > 1 {
            line += &format!(", {} jobs", self.numjobs);
        }
        if !self.direct {
            line += ", buffered";
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_a_valid_workload() {
        assert_eq!(Workload::default().validate(), Ok(()));
    }

    #[test]
    fn a_workload_reads_back_from_its_own_data() {
        let workload = Workload {
            runtime: Some(Duration::from_millis(500)),
            random_distribution: RandomDistribution::Zipf(1.2),
            bssplit: vec![SizeShare { bs: 4096, percent: 60 }, SizeShare { bs: 65536, percent: 40 }],
            cpus_allowed: NumberList::new([0, 1, 3]),
            cpus_allowed_policy: CpusAllowedPolicy::Split,
            pages: Pages::Base,
            ..Workload::default()
        };
        let text = toml::to_string(&workload).expect("serialises");
        assert_eq!(toml::from_str::<Workload>(&text).expect("reads back"), workload);
    }

    #[test]
    fn files_may_use_the_spelling_of_people() {
        let workload: Workload =
            toml::from_str("rw = \"randwrite\"\nbs = \"64k\"\nruntime = \"1500ms\"\nsize = \"1g\"")
                .expect("reads");
        assert_eq!((workload.bs, workload.size), (65536, Some(1 << 30)));
        assert_eq!(workload.runtime, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn options_of_a_later_version_are_kept_and_not_run() {
        let text = r#"{"iodepth":8,"placement":{"zone":3}}"#;
        let workload: Workload = serde_json::from_str(text).expect("reads");
        assert_eq!(workload.iodepth, 8);
        assert_eq!(serde_json::to_value(&workload).expect("writes")["placement"]["zone"], 3);
        let mut changed = workload.clone();
        crate::options::find("iodepth").expect("is one").set(&mut changed, 4.into()).expect("sets");
        assert_eq!(changed.later_options, workload.later_options);
        let invalid = workload.validate().expect_err("is not known");
        assert_eq!(invalid.to_string(), "option=placement: is not an option of this version");
    }

    #[test]
    fn a_parameter_that_is_not_finite_is_refused_where_it_is_read() {
        for parameter in ["zipf = nan", "pareto = inf"] {
            let error =
                toml::from_str::<Workload>(&format!("random_distribution = {{ {parameter} }}")).unwrap_err();
            assert!(error.message().contains("finite"), "{error}");
        }
    }

    #[test]
    fn contradictions_are_named() {
        let cases = [
            (Workload { bs: 0, ..Workload::default() }, "bs"),
            (Workload { iodepth: 0, ..Workload::default() }, "iodepth"),
            (Workload { time_based: true, ..Workload::default() }, "time_based"),
            (Workload { size: Some(512), ..Workload::default() }, "size"),
            (Workload { ioengine: IoEngine::Mmap, direct: true, ..Workload::default() }, "ioengine"),
            (
                Workload { ioengine: IoEngine::Mmap, direct: false, iodepth: 4, ..Workload::default() },
                "iodepth",
            ),
            (Workload { ioengine: IoEngine::IoUringCmd, direct: false, ..Workload::default() }, "direct"),
            (
                Workload {
                    ioengine: IoEngine::Mmap,
                    direct: false,
                    rw: Rw::Write,
                    sync: WriteSync::Dsync,
                    ..Workload::default()
                },
                "sync",
            ),
            (Workload { rate_iops: Some(1), rate: Some(1), ..Workload::default() }, "rate_iops"),
            (
                Workload {
                    verify: Some(Verify::Xxh3),
                    norandommap: true,
                    rw: Rw::RandWrite,
                    ..Workload::default()
                },
                "verify",
            ),
            (
                Workload { cpus_allowed_policy: CpusAllowedPolicy::Split, ..Workload::default() },
                "cpus_allowed_policy",
            ),
            (
                Workload {
                    cpus_allowed: NumberList::new([0]),
                    numa_cpu_nodes: NumberList::new([0]),
                    ..Workload::default()
                },
                "numa_cpu_nodes",
            ),
            (
                Workload { random_distribution: RandomDistribution::Zipf(1.0), ..Workload::default() },
                "random_distribution",
            ),
        ];
        for (workload, option) in cases {
            assert_eq!(workload.validate().unwrap_err().option, option);
        }
    }
}
