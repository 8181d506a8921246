//! `disk_util`: what the block devices below the targets did.
//!
//! fio counts over its whole run; a record counts over its own interval. Records of jobs that ran at
//! the same time saw the same requests, so of intervals that overlap only the longest is taken.

use measure::RunRecord;
use measure::record::DriveCounts;
use serde::Serialize;

/// diskstats count in units of 512 bytes whatever the device's own block.
const SECTOR: u64 = 512;

/// One block device.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DiskUtil {
    /// Kernel name.
    pub name: String,
    /// Reads completed.
    pub read_ios: u64,
    /// Writes completed.
    pub write_ios: u64,
    /// Sectors of 512 bytes read.
    pub read_sectors: u64,
    /// Sectors of 512 bytes written.
    pub write_sectors: u64,
    /// Reads merged with a neighbour.
    pub read_merges: u64,
    /// Writes merged with a neighbour.
    pub write_merges: u64,
    /// Not recorded: 0.
    pub read_ticks: u64,
    /// Not recorded: 0.
    pub write_ticks: u64,
    /// Not recorded: 0.
    pub in_queue: u64,
    /// Percent of the time in which a request was in flight.
    pub util: f64,
}

/// One interval of one drive.
struct Seen<'a> {
    from_ns: u64,
    until_ns: u64,
    counts: &'a DriveCounts,
}

impl Seen<'_> {
    fn length_ns(&self) -> u64 {
        self.until_ns - self.from_ns
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.from_ns < other.until_ns && other.from_ns < self.until_ns
    }
}

pub(super) fn disk_util<'a>(records: impl Iterator<Item = &'a RunRecord> + Clone) -> Vec<DiskUtil> {
    let mut names: Vec<&str> = Vec::new();
    for drive in records.clone().flat_map(|record| &record.drives) {
        if !names.contains(&drive.name.as_str()) {
            names.push(&drive.name);
        }
    }
    names.into_iter().map(|name| one(name, records.clone())).collect()
}

fn one<'a>(name: &str, records: impl Iterator<Item = &'a RunRecord>) -> DiskUtil {
    let mut seen: Vec<Seen<'_>> = Vec::new();
    for record in records {
        let from_ns = record.started_unix_ns.saturating_add(record.ramp_ns);
        let until_ns = from_ns.saturating_add(record.interval_ns);
        let drives = record.drives.iter().filter(|drive| drive.name == name);
        seen.extend(drives.map(|counts| Seen { from_ns, until_ns, counts }));
    }
    seen.sort_by_key(|interval| std::cmp::Reverse(interval.length_ns()));
    let mut apart: Vec<Seen<'_>> = Vec::new();
    for interval in seen {
        if !apart.iter().any(|taken| taken.overlaps(&interval)) {
            apart.push(interval);
        }
    }
    let sum = |of: fn(&DriveCounts) -> u64| apart.iter().map(|seen| of(seen.counts)).sum::<u64>();
    let length_ms = apart.iter().map(Seen::length_ns).sum::<u64>() as f64 / 1e6;
    let busy_ms = sum(|drive| drive.busy_ms) as f64;
    DiskUtil {
        name: name.to_owned(),
        read_ios: sum(|drive| drive.read_ios),
        write_ios: sum(|drive| drive.write_ios),
        read_sectors: sum(|drive| drive.read_bytes) / SECTOR,
        write_sectors: sum(|drive| drive.write_bytes) / SECTOR,
        read_merges: sum(|drive| drive.read_merges),
        write_merges: sum(|drive| drive.write_merges),
        util: if length_ms > 0.0 { (busy_ms * 100.0 / length_ms).min(100.0) } else { 0.0 },
        ..DiskUtil::default()
    }
}
