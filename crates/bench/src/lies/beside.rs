//! Jobs that ran at the same time and walked the same sequential offsets of one target.
//!
//! Threads count bytes, not places, so each job's walk is worked out: it begins where its part of the target begins, and is as
//! long as what the job moved in the whole run, ramp and tail included. A walk that reaches the end of its part begins
//! there again, so it is never longer than the part. Two records are compared where both ran at one time. Jobs of one record
//! are [`super::workload`]'s.
//!
//! Not judged: random offsets (each job has its own seed), discards, steps between requests (`rw_step`), zones, operations that move no data, and separate devices, of
//! which a record does not say how large each is.

use std::ops::Range;

use measure::dealing::regions;
use measure::record::RunRecord;
use measure::{Warning, WarningCode};
use storage::device::DeviceKind;

/// Part of a job's walk that others may share. A twentieth of the requests answered from a cache, at no time, raises a figure
/// by a twentieth: no more than runs differ by.
const SHARED_LIMIT: f64 = 0.05;

/// What one record's jobs walked of its target.
struct Walks<'a> {
    target: &'a str,
    /// When it ran, ns since the epoch.
    time: Range<u64>,
    bytes: Vec<Range<u64>>,
}

/// `W-SAME-OFFSETS` of the records of a run, in their order: where other jobs of the run walked what a job walked.
#[must_use]
pub fn same_offsets(records: &[Option<&RunRecord>]) -> Vec<Option<Warning>> {
    let walks: Vec<Option<Walks<'_>>> = records.iter().map(|record| walks((*record)?)).collect();
    let warning = |(at, own): (usize, &Option<Walks<'_>>)| {
        let own = own.as_ref()?;
        let whole: u64 = own.bytes.iter().map(length).sum();
        let others = walks.iter().enumerate().filter(|(other, _)| *other != at);
        let shared = others.filter_map(|(other, walks)| Some((other, shared(own, walks.as_ref()?))));
        let (other, most) = shared.max_by_key(|(_, bytes)| *bytes)?;
        (most as f64 > whole as f64 * SHARED_LIMIT).then(|| {
            let message = format!(
                "jobs {} and {} walked the same {} at the same time, {} of what job {0} walked (limit {})",
                at + 1,
                other + 1,
                units::bytes(most),
                units::percent(most as f64 / whole as f64),
                units::percent(SHARED_LIMIT),
            );
            Warning::new(WarningCode::SameOffsets, message)
        })
    };
    walks.iter().enumerate().map(warning).collect()
}

/// Where a record's jobs walked; None where that is not known, or nowhere.
fn walks(record: &RunRecord) -> Option<Walks<'_>> {
    let workload = &record.workload;
    let is_judged = !workload.rw.is_random() && (workload.rw.reads() || workload.rw.writes());
    let walks_blocks = workload.rw_step == 0 && workload.zonesize.is_none() && !workload.is_zbd();
    let kind = record.target.kind.as_str();
    if !is_judged
        || !walks_blocks
        || [DeviceKind::Separate, DeviceKind::Operations].map(DeviceKind::word).contains(&kind)
    {
        return None;
    }
    let regions = regions(workload, record.target.size_bytes).ok()?;
    // The interval's shares are those of the whole run.
    let measured: u64 = record.jobs.iter().map(|job| job.bytes).sum();
    let moved = (record.total.read_bytes + record.total.write_bytes) as f64;
    let walk = |(region, job): (&measure::dealing::Region, &measure::record::JobCounts)| {
        let share =
            if measured == 0 { 1.0 / regions.len() as f64 } else { job.bytes as f64 / measured as f64 };
        region.start..region.start + region.length.min((moved * share) as u64)
    };
    Some(Walks {
        target: record.target.path.as_deref().unwrap_or(&record.target.spec),
        time: record.started_unix_ns..record.started_unix_ns.saturating_add(record.total.elapsed_ns),
        bytes: regions.iter().zip(&record.jobs).map(walk).filter(|walk| !walk.is_empty()).collect(),
    })
    .filter(|walks| !walks.bytes.is_empty())
}

/// Bytes that `own` jobs walked and others did too, at the same time.
fn shared(own: &Walks<'_>, other: &Walks<'_>) -> u64 {
    if own.target != other.target || length(&common(&own.time, &other.time)) == 0 {
        return 0;
    }
    // Jobs of one record may overlap with each other, so that the most for each is counted, not the sum.
    let most = |walk: &Range<u64>| other.bytes.iter().map(|beside| length(&common(walk, beside))).max();
    own.bytes.iter().filter_map(most).sum()
}

fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}
