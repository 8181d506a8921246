//! Brings a target into a known state before it is measured.
//!
//! In SNIA's order (Solid State Storage Performance Test Specification), each step optional:
//!
//! 1. **Purge**: BLKDISCARD over the target's region; a host-managed zoned drive resets the zones that lie inside. A file has
//!    no purge; a hole is punched into it and written again at once, and the record calls it that.
//! 2. **Fill**: the region is written twice, sequentially, with random data, and flushed after each pass. What
//!    the drives counted meanwhile (diskstats) stands beside what was written, and the lesser of the two is
//!    what counts towards `W-UNPRECONDITIONED`. Requests are of 1 MiB, where SNIA says 128 KiB: the order of
//!    the blocks is the same, the kernel splits what the drive does not take whole, and no drive is slower for it.
//! 3. **Rounds**: the workload itself, round after round, until five of them obey SNIA's rule
//!    ([`measure::stats::steady()`]) or there have been as many as are allowed. A round starts as soon as the one
//!    before is counted; between them lie the milliseconds that starting threads takes. A rate, a
//!    verification and a final flush are left out of rounds: they hold the drive back, or measure
//!    something else. Each round draws its own offsets.
//!
//! Nothing here measures: the measured run follows, with all of this in its record. A volatile write cache is
//! not switched off, which would change the machine; it is flushed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use measure::Workload;
use measure::precondition::{
    DriveWritten, Filled, Precondition, Preconditioned, PurgeMethod, Purged, Rounds,
};
use measure::saturation::{MOST_ROUNDS, ROUND};
use measure::stats::steady::{Steadiness, steady};
use storage::device::{Device, DeviceKind, discard_pieces, whole_zones};

use crate::problem::{PreconditionError, Problem};
use crate::run::{BenchError, Progress, RunOptions};
use crate::scratch;
use crate::target::{BenchTarget, Opened};
use crate::zones;

/// SNIA's passes over the capacity.
pub const PASSES: u32 = 2;
/// Bytes that are discarded at once, or one zone where that is more: small enough to stop between, large enough to cost nothing.
const DISCARD: u64 = 1 << 30;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Begin with a purge.
    pub purge: bool,
    /// How far to go then.
    pub how: Precondition,
    /// Length of a round.
    pub round: Duration,
    /// The most rounds.
    pub max_rounds: u32,
}

impl Default for Plan {
    /// Nothing; SNIA's rounds where there are some.
    fn default() -> Self {
        Self { purge: false, how: Precondition::None, round: ROUND, max_rounds: MOST_ROUNDS }
    }
}

/// How it goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Bytes given back, of how many.
    Purging(u64, u64),
    /// Bytes written, of how many, all passes together.
    Filling(u64, u64),
    /// Within a round: its number, and what happened in the last second.
    Within(u32, Progress),
    /// After a round: its number, its requests a second, and the rule's verdict so far.
    Round(u32, f64, Steadiness),
}

/// Who watches, and may stop it.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Set to stop.
    pub stop: &'a AtomicBool,
    /// Told how it goes.
    pub tell: &'a dyn Fn(Step),
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Watch<'_> {
    fn check(&self) -> Result<(), PreconditionError> {
        if self.stop.load(Ordering::Relaxed) { Err(PreconditionError::Interrupted) } else { Ok(()) }
    }
}

/// Prepares `target` for `workload`; what was done stands in the records of later runs and is returned. None
/// where there was nothing to do.
///
/// # Errors
/// [`Problem`]. What was written by then stays written, and is known to the target.
pub fn run(
    target: &mut BenchTarget,
    workload: &Workload,
    plan: &Plan,
    watch: Watch<'_>,
) -> Result<Option<Arc<Preconditioned>>, Problem> {
    target.precondition = None;
    if !plan.purge && plan.how == Precondition::None {
        return Ok(None);
    }
    if plan.how == Precondition::Steady && !workload.rw.writes() {
        return Err(PreconditionError::NoWrites { rw: workload.rw.word() }.into());
    }
    let opened = target.opened_for_writing(workload)?;
    if plan.how != Precondition::None {
        zones::check_can_be_filled(&opened.device).map_err(BenchError::from)?;
    }
    let region = aligned(&*opened.device, &target.region(&*opened.device, workload));
    // No zone is reset of which a part lies beyond the region.
    let region = whole_zones(&*opened.device, region);
    let mut done = Preconditioned {
        asked: plan.how,
        offset: region.start,
        region_bytes: region.end - region.start,
        purge: None,
        fill: None,
        rounds: None,
    };
    if plan.purge {
        done.purge = Some(purge(target, &opened, &region, plan, watch)?);
    }
    if plan.how != Precondition::None {
        done.fill = Some(fill(target, &opened, &region, PASSES, watch)?);
    }
    drop(opened);
    if plan.how == Precondition::Steady {
        done.rounds = Some(rounds(target, workload, plan, watch)?);
    }
    let done = Arc::new(done);
    target.precondition = Some(Arc::clone(&done));
    Ok(Some(done))
}

/// The region in whole blocks of the device, because direct requests are.
fn aligned(device: &dyn Device, region: &Range<u64>) -> Range<u64> {
    let block = u64::from(device.geometry().logical_block.max(1));
    let end = region.end.div_ceil(block) * block;
    let end = if end > device.size() { region.end / block * block } else { end };
    let start = region.start / block * block;
    start..end.max(start)
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn purge(
    target: &mut BenchTarget,
    opened: &Opened,
    region: &Range<u64>,
    plan: &Plan,
    watch: Watch<'_>,
) -> Result<Purged, Problem> {
    let device = &*opened.device;
    if device.kind() == DeviceKind::Memory {
        return Err(PreconditionError::Memory { device: device.spec().to_owned() }.into());
    }
    let begun = Instant::now();
    let bytes = region.end - region.start;
    target.contents_given_back();
    for Range { start: offset, end } in discard_pieces(device, region.clone(), DISCARD) {
        watch.check()?;
        let length = end - offset;
        device.discard(offset, length).map_err(|source| PreconditionError::Discard {
            device: device.spec().to_owned(),
            offset,
            length,
            source,
        })?;
        (watch.tell)(Step::Purging(end - region.start, bytes));
    }
    if device.kind() != DeviceKind::File {
        target.written_bytes = 0;
        return Ok(Purged { method: PurgeMethod::Discard, bytes, elapsed_ns: nanoseconds(begun) });
    }
    // Where a fill follows it writes the hole; otherwise the hole must not be left to the measured run.
    if plan.how == Precondition::None {
        fill(target, opened, region, 1, watch)?;
    }
    Ok(Purged { method: PurgeMethod::PunchedAndRewritten, bytes, elapsed_ns: nanoseconds(begun) })
}

fn fill(
    target: &mut BenchTarget,
    opened: &Opened,
    region: &Range<u64>,
    passes: u32,
    watch: Watch<'_>,
) -> Result<Filled, Problem> {
    let bytes = region.end - region.start;
    let all = bytes * u64::from(passes);
    let observation = opened.observer.prepare().begin();
    let begun = Instant::now();
    target.contents_changed();
    for pass in 0..passes {
        let before = bytes * u64::from(pass);
        let tell = |done, _| (watch.tell)(Step::Filling(before + done, all));
        scratch::fill(&opened.device, region.clone(), watch.stop, &tell)?;
        watch.check()?;
    }
    let elapsed_ns = nanoseconds(begun);
    let observed = observation.end().conclude();
    let drives = opened.observer.subject().stack.drives();
    let counted = drives.map(|drive| {
        let counts = observed.counted(drive)?;
        Some(DriveWritten { name: drive.name().to_owned(), bytes: counts.write_bytes })
    });
    let filled = Filled {
        passes,
        request_bytes: scratch::request_bytes(&opened.device),
        written_bytes: all,
        // A drive without counters leaves nothing to compare with.
        drives: counted.collect::<Option<Vec<_>>>().unwrap_or_default(),
        elapsed_ns,
    };
    target.written_bytes += filled.proved_bytes();
    Ok(filled)
}

fn rounds(
    target: &mut BenchTarget,
    workload: &Workload,
    plan: &Plan,
    watch: Watch<'_>,
) -> Result<Rounds, Problem> {
    let most = plan.max_rounds.max(1);
    let (mut iops, mut written_bytes) = (Vec::new(), 0);
    let mut steadiness = steady(&iops);
    for number in 1..=most {
        let round = round(workload, plan.round, number);
        let within = |progress: &Progress| (watch.tell)(Step::Within(number, *progress));
        let options = RunOptions {
            stop: Some(watch.stop),
            progress: Some(&within),
            pass: number,
            ..RunOptions::default()
        };
        let outcome = target.run_once(&round, options)?;
        if outcome.interrupted {
            return Err(PreconditionError::Interrupted.into());
        }
        let Some(record) = outcome.records.first() else { continue };
        iops.push(record.iops());
        written_bytes += record.total.write_bytes;
        steadiness = steady(&iops);
        (watch.tell)(Step::Round(number, record.iops(), steadiness));
        if steadiness.is_steady() {
            break;
        }
    }
    let round_ns = u64::try_from(plan.round.as_nanos()).unwrap_or(u64::MAX);
    Ok(Rounds { round_ns, most, iops, written_bytes, steadiness })
}

/// The workload as a round runs it.
fn round(workload: &Workload, length: Duration, number: u32) -> Workload {
    Workload {
        runtime: Some(length),
        time_based: true,
        ramp_time: Duration::ZERO,
        rate: None,
        rate_iops: None,
        verify: None,
        end_fsync: false,
        number_ios: None,
        // Jobs add their number to the seed, so rounds are further apart than jobs can be many.
        randseed: workload.randseed.wrapping_add(u64::from(number) << 32),
        ..workload.clone()
    }
}
