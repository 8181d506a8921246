//! A workload in fio's words: the inverse of reading a job file.

use std::time::Duration;

use measure::Workload;
use measure::workload::{
    CpusAllowedPolicy, Pages, RandomDistribution, RateProcess, Rw, Sequence, SizeShare, Verify, WriteSync,
};

use super::draft::Draft;

/// The options with which fio would be told to run `workload`, in fio's spelling. `rw`, `bs`, `iodepth`,
/// `numjobs`, `direct` and `ioengine` always stand there, since programs that read fio-json look for
/// them; others where they differ from fio's default.
///
/// Some settings have no word in fio and are left out: an engine left open (`auto`), regions divided
/// among jobs, the latency clock, and pages other than reserved huge ones.
#[must_use]
pub fn options_of(workload: &Workload) -> Vec<(String, String)> {
    let mut out = Options(Vec::new());
    let w = workload;
    let fio = Draft::default().workload;
    match w.rw_step {
        0 => out.add("rw", w.rw.word()),
        step => out.add("rw", format!("{}:{}", w.rw.word(), measure::options::signed_size_text(step))),
    }
    out.add("bs", units::bytes_short(w.bs));
    let sizes = range_of(&w.bssplit).filter(|_| w.write_bssplit.is_empty());
    if let Some((low, high)) = sizes {
        out.add("bsrange", format!("{}-{}", units::bytes_short(low), units::bytes_short(high)));
    }
    out.unless(w.has_one_size() || sizes.is_some(), "bssplit", || {
        let list = |split: &[SizeShare]| split.iter().map(SizeShare::to_string).collect::<Vec<_>>().join(":");
        match (w.bssplit.as_slice(), w.write_bssplit.as_slice()) {
            (reads, []) => list(reads),
            ([], writes) => format!("{},{}", units::bytes_short(w.bs), list(writes)),
            (reads, writes) => format!("{},{}", list(reads), list(writes)),
        }
    });
    if let Some(align) = w.blockalign {
        out.add("ba", units::bytes_short(align));
    }
    out.add("iodepth", w.iodepth);
    out.unless(w.iodepth_batch <= 1, "iodepth_batch", || w.iodepth_batch);
    let min = w.iodepth_batch_complete_min;
    out.unless(min == fio.iodepth_batch_complete_min, "iodepth_batch_complete_min", || min);
    out.add("numjobs", w.numjobs);
    out.unless(w.rwmixread == fio.rwmixread, "rwmixread", || w.rwmixread);
    if let Some(rate) = w.rate_iops {
        out.add("rate_iops", by_direction(rate, w));
    }
    if let Some(rate) = w.rate {
        out.add("rate", by_direction(rate, w));
    }
    out.unless(w.rate_process == RateProcess::Linear, "rate_process", || w.rate_process.word());
    if let Some(runtime) = w.runtime {
        out.add("runtime", time(runtime));
    }
    out.unless(!w.time_based, "time_based", || 1);
    if let Some(bytes) = w.io_size {
        out.add("io_size", units::bytes_short(bytes));
    }
    out.unless(w.loops == 1, "loops", || w.loops);
    if let Some(requests) = w.number_ios {
        out.add("number_ios", requests);
    }
    out.unless(w.thinktime.is_zero(), "thinktime", || time(w.thinktime));
    out.unless(w.thinktime_spin.is_zero(), "thinktime_spin", || time(w.thinktime_spin));
    out.unless(w.thinktime_blocks == 1, "thinktime_blocks", || w.thinktime_blocks);
    out.unless(w.ramp_time.is_zero(), "ramp_time", || time(w.ramp_time));
    if let Some(size) = w.size {
        out.add("size", units::bytes_short(size));
    }
    out.unless(w.offset == 0, "offset", || units::bytes_short(w.offset));
    let increment = w.offset_increment.unwrap_or(0);
    out.unless(increment == 0, "offset_increment", || units::bytes_short(increment));
    let is_random = w.random_distribution == RandomDistribution::Random;
    match &w.random_distribution {
        RandomDistribution::Sequence(Sequence { blocks, strided: true }) => {
            let sequence = Sequence { blocks: blocks.clone(), strided: false };
            out.add("random_distribution", RandomDistribution::Sequence(sequence));
            out.add("random_sequence_stride", 1);
        }
        distribution => out.unless(is_random, "random_distribution", || distribution),
    }
    out.unless(w.zonesize.is_none() && !w.is_zbd(), "zonemode", || w.zonemode.word());
    if let Some(size) = w.zonesize {
        out.add("zonesize", units::bytes_short(size));
    }
    if let Some(range) = w.zonerange {
        out.add("zonerange", units::bytes_short(range));
    }
    out.unless(w.zoneskip == 0, "zoneskip", || units::bytes_short(w.zoneskip));
    if let Some(bytes) = w.zonecapacity {
        out.add("zonecapacity", units::bytes_short(bytes));
    }
    out.unless(!w.read_beyond_wp, "read_beyond_wp", || 1);
    out.unless(w.max_open_zones == 0, "max_open_zones", || w.max_open_zones);
    out.unless(w.job_max_open_zones == 0, "job_max_open_zones", || w.job_max_open_zones);
    out.unless(!w.ignore_zone_limits, "ignore_zone_limits", || 1);
    out.unless(w.zone_reset_threshold == 0.0, "zone_reset_threshold", || w.zone_reset_threshold);
    out.unless(w.zone_reset_frequency == 0.0, "zone_reset_frequency", || w.zone_reset_frequency);
    out.unless(w.percentage_random == 100, "percentage_random", || w.percentage_random);
    out.unless(!w.norandommap, "norandommap", || 1);
    out.unless(w.randseed == fio.randseed, "randseed", || w.randseed);
    if let Some(verify) = w.verify {
        out.add("verify", if verify == Verify::Xxh3 { "xxhash" } else { verify.word() });
    }
    if let Some(bytes) = w.verify_interval {
        out.add("verify_interval", units::bytes_short(bytes));
    }
    if let Some(pattern) = &w.verify_pattern {
        out.add("verify_pattern", pattern);
    }
    out.unless(w.verify_backlog == 0, "verify_backlog", || w.verify_backlog);
    if let Some(pattern) = &w.buffer_pattern {
        out.add("buffer_pattern", pattern);
    }
    let compress = w.buffer_compress_percentage;
    out.unless(compress == 0, "buffer_compress_percentage", || compress);
    out.unless(w.dedupe_percentage == 0, "dedupe_percentage", || w.dedupe_percentage);
    out.unless(w.dedupe_mode == fio.dedupe_mode, "dedupe_mode", || w.dedupe_mode.word());
    let set = w.dedupe_working_set_percentage;
    out.unless(set == fio.dedupe_working_set_percentage, "dedupe_working_set_percentage", || set);
    out.unless(!w.dedupe_global, "dedupe_global", || 1);
    out.add("direct", u8::from(w.direct));
    out.add("ioengine", w.ioengine.word());
    out.unless(!w.hipri, "hipri", || 1);
    out.unless(!w.sqthread_poll, "sqthread_poll", || 1);
    out.unless(w.fdatasync == 0, "fdatasync", || w.fdatasync);
    out.unless(w.fsync == 0, "fsync", || w.fsync);
    out.unless(w.sync == WriteSync::None, "sync", || w.sync.word());
    out.unless(!w.end_fsync, "end_fsync", || 1);
    if let Some(cpus) = &w.cpus_allowed {
        out.add("cpus_allowed", cpus);
    }
    out.unless(w.cpus_allowed_policy == CpusAllowedPolicy::Shared, "cpus_allowed_policy", || {
        w.cpus_allowed_policy.word()
    });
    if let Some(nodes) = &w.numa_cpu_nodes {
        out.add("numa_cpu_nodes", nodes);
    }
    out.unless(w.pages != Pages::Huge, "iomem", || "mmaphuge");
    out.0
}

/// The ends of a range whose sizes are as frequent as each other, where a split has no shares.
fn range_of(split: &[SizeShare]) -> Option<(u64, u64)> {
    let (first, last) = (split.first()?, split.last()?);
    (first.percent == 0).then_some((first.bs, last.bs))
}

struct Options(Vec<(String, String)>);

impl Options {
    fn add(&mut self, key: &str, value: impl ToString) {
        self.0.push((key.to_owned(), value.to_string()));
    }

    fn unless<V: ToString>(&mut self, default: bool, key: &str, value: impl FnOnce() -> V) {
        if !default {
            self.add(key, value());
        }
    }
}

/// In a mix fio has a rate for each direction: the shares of the one that we have.
fn by_direction(rate: u64, workload: &Workload) -> String {
    let reads = u64::from(workload.rwmixread.min(100));
    if !matches!(workload.rw, Rw::Rw | Rw::RandRw) || reads == 0 || reads == 100 {
        return rate.to_string();
    }
    // u128 cannot overflow here, and the share is below the rate.
    let read = (u128::from(rate) * u128::from(reads) / 100) as u64;
    format!("{read},{}", rate - read)
}

/// In the largest unit that holds it exactly; fio resolves microseconds.
fn time(duration: Duration) -> String {
    let us = duration.as_nanos().div_ceil(1000);
    if us.is_multiple_of(1_000_000) {
        format!("{}s", us / 1_000_000)
    } else if us.is_multiple_of(1000) {
        format!("{}ms", us / 1000)
    } else {
        format!("{us}us")
    }
}
