//! Whether a figure is what it seems: the table of lies, one pure function for each row.
//!
//! [`judge`] is handed everything that is known about one run ([`Evidence`]) and returns the warnings
//! that belong into its record. It does no I/O and changes nothing, so that each lie can be planted
//! and each healthy run be shown to draw none (`tests/lies.rs`). `docs/warnings.md` lists for each
//! code what is compared with which limit; the limits themselves stand beside the checks, with the
//! reason why a healthy run stays within them.
//!
//! Three rules hold for all checks:
//!
//! 1. *A message carries its evidence*: what was seen, of what, and the limit.
//! 2. *What could not be seen is not guessed.* A device without counters gives no `W-CACHED` and no
//!    all-clear, but `W-UNWATCHED`.
//! 3. *Coarse clocks have slack.* `/proc/stat` ticks every 10 ms, and the disk counters are read a
//!    moment beside the interval, so a difference within those is none.
//!
//! The families: [`cache`] (did the drive do the work), [`device`] (which drive, in what state),
//! [`machine`] (was the generator the limit), [`workload`] (does the request make sense). What takes the records of several jobs
//! to see, [`beside`] judges when all have ended.

use std::sync::Arc;

use measure::precondition::Preconditioned;
use measure::record::{DirectionCounts, DriveCounts, RunRecord};
use measure::workload::full_queues;
use measure::{Warning, WarningCode, Workload};
use storage::device::DeviceKind;
use storage::extents::WrittenState;

use crate::observe::{Layer, Observed, Stack};

pub mod beside;
pub mod blocks;
pub mod cache;
mod chunk;
pub mod device;
pub mod machine;
mod memory;
pub mod workload;

/// Everything that is known about one run.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// What was asked for and what came back; complete but for the warnings.
    pub record: &'a RunRecord,
    /// What lies below the target.
    pub stack: &'a Stack,
    /// What was seen from beside.
    pub observed: &'a Observed,
    /// What the runner knows about the target's contents.
    pub known: &'a Known,
}

/// What the runner knows about the target's contents; each field is optional because each costs a
/// look that not every run takes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// Which bytes of the region were ever written, from the extent map.
    pub written: Option<WrittenState>,
    /// What blocks drawn from the region looked like before a reading run.
    pub sampled: Option<blocks::Sampled>,
    /// Bytes known to have been written to the target before the run, by this program.
    pub written_before_bytes: u64,
    /// What was done to the target beforehand.
    pub precondition: Option<Arc<Preconditioned>>,
    /// Blocks that verification had to read back.
    pub verify_expected_blocks: Option<u64>,
    /// What other jobs that ran at the same time moved on the same drives: ours as well, but not
    /// this record's.
    pub beside: Traffic,
    /// Whether other jobs use the drives at times that do not coincide with this run, so that what the drives did says nothing
    /// of it.
    pub drives_are_shared: bool,
}

/// What was moved on a drive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads.
    pub read_ios: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Writes.
    pub write_ios: u64,
}

impl Traffic {
    /// What all `records` but the one at `own` moved, of those that share a device with it: of a
    /// group of jobs that ran at the same time, the traffic beside one of them.
    #[must_use]
    pub fn beside(records: &[RunRecord], own: usize) -> Self {
        let Some(mine) = records.get(own) else { return Self::default() };
        let shares = |other: &RunRecord| {
            other.target.block_devices.iter().any(|device| mine.target.block_devices.contains(device))
        };
        let others = records.iter().enumerate().filter(|(place, other)| *place != own && shares(other));
        others.fold(Self::default(), |sum, (_, other)| Self {
            read_bytes: sum.read_bytes + other.read.bytes,
            read_ios: sum.read_ios + other.read.ios,
            write_bytes: sum.write_bytes + other.write.bytes,
            write_ios: sum.write_ios + other.write.ios,
        })
    }
}

/// All warnings that the evidence supports, in the order of [`WarningCode::ALL`], each code at most once.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Vec<Warning> {
    type Family = fn(&Evidence<'_>) -> Vec<Warning>;
    let families: &[Family] = match evidence.record.target.kind == DeviceKind::Operations.word() {
        // No byte was moved, so that what the drives did and hold says nothing.
        true => &[machine::judge],
        false => &[cache::judge, device::judge, machine::judge, workload::judge],
    };
    let mut warnings: Vec<Warning> = families.iter().flat_map(|family| family(evidence)).collect();
    warnings.sort_by_key(|warning| warning.code);
    warnings
}

/// What a direction asked of the target between the two readings of the disk counters. The window
/// between them encloses the measured interval, and what went on beside the interval is known by its
/// length only; so there is a least and a most, and each check takes the one that speaks against it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Asked {
    /// Bytes in the interval, or the part of them that the window holds.
    least_bytes: f64,
    /// Requests, likewise.
    least_ios: f64,
    /// Bytes if the whole window went at the interval's rate, or those of the whole run.
    most_bytes: f64,
    /// Requests, likewise.
    most_ios: f64,
}

impl<'a> Evidence<'a> {
    /// Bytes of the target that the run may visit.
    fn region_bytes(&self) -> u64 {
        let workload = &self.record.workload;
        let rest = self.record.target.size_bytes.saturating_sub(workload.offset);
        let size = workload.size.unwrap_or(rest);
        let steps = workload
            .offset_increment
            .unwrap_or(0)
            .saturating_mul(u64::from(workload.numjobs.saturating_sub(1)));
        size.saturating_add(steps).min(rest)
    }

    /// Whether the load was spread over separate devices.
    fn is_separate(&self) -> bool {
        self.record.target.kind == DeviceKind::Separate.word()
    }

    /// Requests in flight when all jobs have their queues full.
    fn in_flight(&self) -> u64 {
        let Workload { iodepth, numjobs, .. } = self.record.workload;
        full_queues(iodepth, numjobs, if self.is_separate() { self.stack.members } else { 1 })
    }

    /// The most bytes by which counters read beside the interval may differ from the interval's own:
    /// a full queue at each end.
    fn edge_bytes(&self) -> f64 {
        2.0 * self.in_flight() as f64 * self.record.workload.max_bs() as f64
    }

    fn interval_s(&self) -> f64 {
        self.record.interval_ns as f64 / 1e9
    }

    fn window_s(&self) -> f64 {
        self.observed.window_ns as f64 / 1e9
    }

    /// What `counts` come to in the window; none where window or interval has no length.
    fn asked(&self, counts: &DirectionCounts) -> Option<Asked> {
        if self.record.interval_ns == 0 || self.observed.window_ns == 0 {
            return None;
        }
        let total = &self.record.total;
        let interval_bytes = self.record.bytes() as f64;
        let all_bytes = (total.read_bytes + total.write_bytes + total.trim_bytes) as f64;
        let covers_all = total.elapsed_ns > 0 && self.observed.window_ns >= total.elapsed_ns;
        let rate = self.window_s() / self.interval_s();
        let most = if covers_all && interval_bytes > 0.0 { all_bytes / interval_bytes } else { rate };
        let (bytes, ios) = (counts.bytes as f64, counts.ios as f64);
        Some(Asked {
            least_bytes: bytes * rate.min(1.0),
            least_ios: ios * rate.min(1.0),
            most_bytes: bytes * most.max(1.0),
            most_ios: ios * most.max(1.0),
        })
    }

    /// What all `layers` together did, less what was done beside; none where one of them was not
    /// counted, or serves others at other times, or there is none.
    fn counted(&self, layers: impl Iterator<Item = &'a Layer>) -> Option<DriveCounts> {
        if self.known.drives_are_shared {
            return None;
        }
        let counts: Vec<&DriveCounts> =
            layers.map(|layer| self.observed.counted(layer)).collect::<Option<_>>()?;
        let sum = |of: fn(&DriveCounts) -> u64| counts.iter().map(|c| of(c)).sum::<u64>();
        let beside = self.known.beside;
        (!counts.is_empty()).then(|| DriveCounts {
            read_ios: sum(|c| c.read_ios).saturating_sub(beside.read_ios),
            read_merges: sum(|c| c.read_merges),
            read_bytes: sum(|c| c.read_bytes).saturating_sub(beside.read_bytes),
            write_ios: sum(|c| c.write_ios).saturating_sub(beside.write_ios),
            write_merges: sum(|c| c.write_merges),
            write_bytes: sum(|c| c.write_bytes).saturating_sub(beside.write_bytes),
            ..DriveCounts::default()
        })
    }
}

/// A warning about each of `findings` together, or none where there is none.
fn about(code: WarningCode, findings: &[String]) -> Option<Warning> {
    (!findings.is_empty()).then(|| Warning::new(code, findings.join("; ")))
}

/// The names of layers, for a message: `sda`, or `sda and sdb`.
fn names<'a>(layers: impl Iterator<Item = &'a Layer>) -> String {
    layers.map(Layer::name).collect::<Vec<_>>().join(" and ")
}
