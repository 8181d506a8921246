//! A workload in fio's words: the inverse of reading a job file.

use std::time::Duration;

use measure::Workload;
use measure::options::{OPTIONS, ValueKind, differences, signed_size_text};
use measure::workload::{Pages, RandomDistribution, Rw, Sequence, SizeShare, Verify};

use super::draft::plain_workload;

/// Beside `rw`, the options that always stand there, since programs that read fio-json look for them.
const ALWAYS_WRITTEN: [&str; 5] = ["bs", "iodepth", "numjobs", "direct", "ioengine"];

/// The options with which fio would be told to run `workload`, in fio's spelling and the order of [`OPTIONS`]. `rw`, `bs`,
/// `iodepth`, `numjobs`, `direct` and `ioengine` always stand there; others where they differ from fio's default.
///
/// What has no key in [`OPTIONS`] is left out, and so are pages other than reserved huge ones, and that jobs divide their region.
#[must_use]
pub fn options_of(workload: &Workload) -> Vec<(String, String)> {
    let mut out = Options(Vec::new());
    let w = workload;
    let differing: Vec<&str> = differences(w, &plain_workload()).map(|option| option.name).collect();
    for option in OPTIONS {
        let Some(key) = option.fio else { continue };
        match option.name {
            // A section's name stands above it; the others are told with `rw` and `bssplit`.
            "name" | "rw_step" | "write_bssplit" => {}
            "rw" => match w.rw_step {
                0 => out.add(key, w.rw.word()),
                step => out.add(key, format!("{}:{}", w.rw.word(), signed_size_text(step))),
            },
            "bssplit" => sizes(w, &mut out),
            "rate_iops" => out.extend(w.rate_iops.map(|rate| (key, by_direction(rate, w)))),
            "rate" => out.extend(w.rate.map(|rate| (key, by_direction(rate, w)))),
            // None and one are one to fio.
            "iodepth_batch" if w.iodepth_batch <= 1 => {}
            "random_distribution" => distribution(w, &mut out),
            "zonemode" if w.zonesize.is_none() && !w.is_zbd() => {}
            "zonemode" => out.add(key, w.zonemode.word()),
            "verify" if w.verify == Some(Verify::Xxh3) => out.add(key, "xxhash"),
            "pages" if w.pages == Pages::Huge => out.add(key, "mmaphuge"),
            "pages" => {}
            _ if ALWAYS_WRITTEN.contains(&key) || differing.contains(&option.name) => {
                let value = match option.kind {
                    ValueKind::Duration | ValueKind::PositiveDuration => {
                        let seconds = option.get(w).as_f64();
                        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map(time)
                    }
                    _ => option.text(w),
                };
                out.extend(value.map(|value| (key, value)));
            }
            _ => {}
        }
    }
    out.0
}

/// The sizes of requests, where there are several.
fn sizes(w: &Workload, out: &mut Options) {
    if let Some((low, high)) = range_of(&w.bssplit).filter(|_| w.write_bssplit.is_empty()) {
        out.add("bsrange", format!("{}-{}", units::bytes_short(low), units::bytes_short(high)));
        return;
    }
    let list = |split: &[SizeShare]| split.iter().map(SizeShare::to_string).collect::<Vec<_>>().join(":");
    match (w.bssplit.as_slice(), w.write_bssplit.as_slice()) {
        _ if w.has_one_size() => {}
        (reads, []) => out.add("bssplit", list(reads)),
        ([], writes) => out.add("bssplit", format!("{},{}", units::bytes_short(w.bs), list(writes))),
        (reads, writes) => out.add("bssplit", format!("{},{}", list(reads), list(writes))),
    }
}

/// fio has the stride of a sequence as an option of its own.
fn distribution(w: &Workload, out: &mut Options) {
    match &w.random_distribution {
        RandomDistribution::Random => {}
        RandomDistribution::Sequence(Sequence { blocks, strided: true }) => {
            let sequence = Sequence { blocks: blocks.clone(), strided: false };
            out.add("random_distribution", RandomDistribution::Sequence(sequence));
            out.add("random_sequence_stride", 1);
        }
        distribution => out.add("random_distribution", distribution),
    }
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

    fn extend(&mut self, option: Option<(&str, String)>) {
        self.0.extend(option.map(|(key, value)| (key.to_owned(), value)));
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
