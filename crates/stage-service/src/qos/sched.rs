//! Who may move how much now: a state machine without threads or clocks of its own.
//!
//! A request waits as a ticket. One pass over the tickets lets through all that may go. A ticket passes, in this order,
//! its job's own limits, the governor of its tier, and the mover's limits; only what passes all is charged to each.
//!
//! **Order** at a shared limit (a tier's, the mover's): the higher priority first, then the older ticket. The first ticket that
//! must wait for a shared limit blocks those after it, so that small requests cannot keep a large one waiting. A ticket that
//! waits for its job's own limit blocks no other job. Priority is strict: as long as jobs of a higher priority use all
//! of a shared limit, those of a lower one wait.
//!
//! **A deadline** is a second way through: a bucket filled at the rate that is needed. A ticket that may pass there passes,
//! whatever the limits say, and before all others. It is charged to all limits all the same, so that the job goes at the
//! greater of the two rates, not at their sum, and other jobs at a shared limit make room for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::bucket::{Bucket, Limits, Which};
use super::clock::Now;
use super::deadline::Deadline;
use super::governor::Governor;
use stage::pace::Progress;

/// How long after it waited a job is still said to be held back: threads are seldom caught while they wait.
const LATELY: Duration = Duration::from_secs(1);

pub(super) type JobKey = u64;
/// A file system: its device number.
pub(super) type TierKey = u64;

/// What a ticket waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Own(Which),
    Governor,
    Rest,
    Mover(Which),
    /// Another ticket is before it at the limit.
    Turn(Which),
}

#[derive(Debug)]
pub(super) struct Job {
    priority: i32,
    pub(super) limits: Limits,
    pub(super) tier: Option<TierKey>,
    deadline: Option<(Deadline, Bucket)>,
    progress: Arc<Progress>,
    held: Option<(Hold, Duration)>,
    /// When it was last let through by its deadline alone.
    pressed: Option<Duration>,
}

impl Job {
    pub(super) fn new(
        priority: i32,
        limits: Limits,
        tier: Option<TierKey>,
        deadline: Option<u64>,
        progress: Arc<Progress>,
        now: Now,
    ) -> Self {
        let deadline = deadline.map(|at| (Deadline::new(at, now), Bucket::new(1.0, now.steady)));
        Self { priority, limits, tier, deadline, progress, held: None, pressed: None }
    }

    /// Bytes a second that the deadline takes, and seconds left.
    pub(super) fn needed(&mut self, now: Now) -> Option<(f64, f64)> {
        let remaining =
            self.progress.bytes_total.load(Relaxed).saturating_sub(self.progress.bytes_written.load(Relaxed));
        let (deadline, _) = self.deadline.as_mut()?;
        Some((deadline.needed(remaining, now), deadline.left_s(now)))
    }

    /// The last jump of the wall clock that moved the deadline, seconds.
    pub(super) fn jumped(&self) -> Option<f64> {
        self.deadline.as_ref().and_then(|(deadline, _)| deadline.jumped)
    }

    /// What it waits for, or waited for a moment ago.
    pub(super) fn held(&self, now: Now) -> Option<Hold> {
        self.held.filter(|(_, at)| now.steady.saturating_sub(*at) <= LATELY).map(|(hold, _)| hold)
    }

    /// Was it let through by its deadline alone, a moment ago?
    pub(super) fn pressed(&self, now: Now) -> bool {
        self.pressed.is_some_and(|at| now.steady.saturating_sub(at) <= LATELY)
    }
}

#[derive(Debug)]
struct Ticket {
    number: u64,
    priority: i32,
    job: JobKey,
    bytes: f64,
    ios: f64,
}

/// A fast tier with a governor.
#[derive(Debug)]
pub(super) struct TierSchedule {
    pub(super) governor: Governor,
    bucket: Option<Bucket>,
    /// Bytes let through so far.
    pub(super) moved: u64,
    /// A ticket had to wait for the governor since the last probe.
    pub(super) binding: bool,
    /// Jobs that it governs.
    pub(super) jobs: usize,
    /// A thread probes the tier. Without one the governor holds no job.
    pub(super) probed: bool,
}

impl TierSchedule {
    pub(super) fn new(governor: Governor) -> Self {
        Self { governor, bucket: None, moved: 0, binding: false, jobs: 0, probed: true }
    }

    /// Sets the bucket to the governor's limit.
    pub(super) fn follow(&mut self, now: Duration) {
        match (self.governor.limit().filter(|_| self.probed), self.bucket.as_mut()) {
            (Some(limit), Some(bucket)) if bucket.rate() == limit => {}
            (Some(limit), Some(bucket)) => bucket.set_rate(limit, now),
            (Some(limit), None) => self.bucket = Some(Bucket::new(limit, now)),
            (None, _) => self.bucket = None,
        }
    }
}

/// All that is shared by the jobs of a mover.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    pub(super) mover: Limits,
    pub(super) jobs: BTreeMap<JobKey, Job>,
    pub(super) tiers: BTreeMap<TierKey, TierSchedule>,
    /// In the order in which they pass.
    tickets: Vec<Ticket>,
    through: BTreeSet<u64>,
    last_number: u64,
}

/// What a pass has done.
#[derive(Debug, PartialEq)]
pub(super) struct Passed {
    /// Tickets let through.
    pub(super) granted: usize,
    /// After what time another pass may let more through.
    pub(super) retry_in: Duration,
}

impl Scheduler {
    /// With limits on all jobs together.
    pub(super) fn new(mover: Limits) -> Self {
        Self { mover, ..Self::default() }
    }

    /// A request: the ticket's number.
    pub(super) fn ask(&mut self, job: JobKey, bytes: u64, ios: u64) -> u64 {
        self.last_number += 1;
        let priority = self.jobs.get(&job).map_or(0, |job| job.priority);
        let ticket = Ticket { number: self.last_number, priority, job, bytes: bytes as f64, ios: ios as f64 };
        let at = self.tickets.partition_point(|earlier| earlier.priority >= priority);
        self.tickets.insert(at, ticket);
        self.last_number
    }

    /// Was it let through? It is, once.
    pub(super) fn redeem(&mut self, number: u64) -> bool {
        self.through.remove(&number)
    }

    /// Gives a ticket up.
    pub(super) fn forget(&mut self, number: u64) {
        self.tickets.retain(|ticket| ticket.number != number);
        self.through.remove(&number);
    }

    /// Tickets that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.tickets.len()
    }

    /// Lets through all that may go now.
    pub(super) fn pass(&mut self, now: Now) -> Passed {
        for tier in self.tiers.values_mut() {
            tier.governor.give_up_rest(now.steady);
            tier.follow(now.steady);
        }
        let mut granted = 0;
        loop {
            match self.pass_one(now) {
                Ok(()) => granted += 1,
                Err(retry_in) => return Passed { granted, retry_in },
            }
        }
    }

    /// Lets one ticket through, or says after what time to retry.
    fn pass_one(&mut self, now: Now) -> Result<(), Duration> {
        let mut retry_in = Duration::MAX;
        for at in 0..self.tickets.len() {
            match self.deadline_wait(at, now) {
                Some(Duration::ZERO) => {
                    self.grant(at, true, now);
                    return Ok(());
                }
                Some(wait) => retry_in = retry_in.min(wait),
                None => {}
            }
        }
        let mut claimed_tiers = BTreeSet::new();
        let mut claimed_mover = None;
        for at in 0..self.tickets.len() {
            let (wait, hold) = match self.wait(at, &mut claimed_tiers, &mut claimed_mover, now) {
                None => {
                    self.grant(at, false, now);
                    return Ok(());
                }
                Some(held) => held,
            };
            retry_in = retry_in.min(wait);
            if let Some(job) = self.jobs.get_mut(&self.tickets[at].job) {
                job.held = Some((hold, now.steady));
            }
        }
        Err(retry_in)
    }

    /// How long until a ticket's deadline lets it through; none without a deadline.
    fn deadline_wait(&mut self, at: usize, now: Now) -> Option<Duration> {
        let ticket = &self.tickets[at];
        let job = self.jobs.get_mut(&ticket.job)?;
        let (needed, _) = job.needed(now)?;
        let (_, bucket) = job.deadline.as_mut()?;
        if needed.is_infinite() {
            return Some(Duration::ZERO);
        }
        bucket.set_rate(needed, now.steady);
        Some(bucket.wait(ticket.bytes, now.steady))
    }

    /// How long a ticket waits and for what; none: it may go. A shared limit that it waits for is claimed.
    fn wait(
        &mut self,
        at: usize,
        claimed_tiers: &mut BTreeSet<TierKey>,
        claimed_mover: &mut Option<Which>,
        now: Now,
    ) -> Option<(Duration, Hold)> {
        let (bytes, ios) = (self.tickets[at].bytes, self.tickets[at].ios);
        let job = self.jobs.get_mut(&self.tickets[at].job)?;
        if let Some((wait, which)) = job.limits.wait(bytes, ios, now.steady) {
            return Some((wait, Hold::Own(which)));
        }
        if let Some((key, tier)) = job.tier.and_then(|key| Some((key, self.tiers.get_mut(&key)?))) {
            if let Some(ends) = tier.governor.rest_ends().filter(|_| tier.probed) {
                return Some((ends.saturating_sub(now.steady), Hold::Rest));
            }
            if claimed_tiers.contains(&key) {
                tier.binding = true;
                return Some((Duration::MAX, Hold::Governor));
            }
            if let Some(wait) = tier.bucket.as_mut().map(|bucket| bucket.wait(bytes, now.steady))
                && wait > Duration::ZERO
            {
                claimed_tiers.insert(key);
                tier.binding = true;
                return Some((wait, Hold::Governor));
            }
        }
        if let Some(which) = *claimed_mover {
            return Some((Duration::MAX, Hold::Turn(which)));
        }
        let (wait, which) = self.mover.wait(bytes, ios, now.steady)?;
        *claimed_mover = Some(which);
        Some((wait, Hold::Mover(which)))
    }

    fn grant(&mut self, at: usize, by_deadline: bool, now: Now) {
        let ticket = self.tickets.remove(at);
        let (bytes, ios) = (ticket.bytes, ticket.ios);
        self.through.insert(ticket.number);
        let Some(job) = self.jobs.get_mut(&ticket.job) else { return };
        // Through by the deadline, but would the limits have let it through as well?
        let met = job.limits.wait(bytes, ios, now.steady).is_none()
            && self.mover.wait(bytes, ios, now.steady).is_none();
        let tier = job.tier.and_then(|key| self.tiers.get_mut(&key));
        let mut exceeds = by_deadline && !met;
        if let Some(tier) = tier {
            tier.moved += ticket.bytes as u64;
            if by_deadline {
                let waits = tier.bucket.as_mut().is_some_and(|b| b.wait(bytes, now.steady) > Duration::ZERO);
                exceeds |= waits || (tier.probed && tier.governor.resting());
            }
            if let Some(bucket) = &mut tier.bucket {
                if exceeds { bucket.take_beyond(bytes, now.steady) } else { bucket.take(bytes, now.steady) }
            }
        }
        job.limits.take(bytes, ios, exceeds, now.steady);
        self.mover.take(bytes, ios, exceeds, now.steady);
        if let Some((_, bucket)) = &mut job.deadline {
            // What the limits let through beyond what is needed is not to be saved up as a debt.
            bucket.take_beyond(bytes, now.steady);
        }
        if exceeds {
            job.pressed = Some(now.steady);
        }
    }
}
