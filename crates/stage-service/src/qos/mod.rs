//! What a move costs others, and how that is bounded: limits, priorities, deadlines, and a governor that backs off when
//! the fast tier slows down.
//!
//! One [`Qos`] belongs to a mover; each of its jobs has a [`JobPace`], whose threads ask it before they read
//! ([`Pace`]). All of them share one state machine (`sched`) under one lock: a request is a ticket, and the first
//! thread that wakes up lets through all tickets that may go. The parts know neither threads nor the machine's clock,
//! so that tests run in virtual time:
//!
//! - `bucket`: how much in how long, for bytes and for requests; a job passes its own limits and the mover's.
//! - `sched`: which request passes next.
//! - `deadline`: the least rate that still gets there.
//! - `governor`: from the latency of probes to a rate; `probe` makes them, from a thread that lives as long as a
//!   governed job runs.
//!
//! A thread that waits checks twenty times a second whether it is to stop.

mod bucket;
mod clock;
mod deadline;
mod governor;
mod probe;
mod rate;
mod sched;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use clock::{Clock, Now, SystemClock};
pub use governor::GovernorStatus;
pub use rate::{GovernorConfig, QosConfig, RateError, rate};

use self::bucket::Limits;
use self::governor::Governor;
use self::probe::Probe;
use self::sched::{Job, JobKey, Scheduler, TierKey, TierSchedule};
use stage::pace::{Pace, Progress, Stop};
use stage::spec::Options;

/// Interval at which a waiting thread checks whether it is to stop.
const STOP_POLL: Duration = Duration::from_millis(50);

/// What the jobs of a mover share.
pub struct Qos {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Tickets were let through, or no longer wait.
    progressed: Condvar,
    /// For the threads that probe: a job has gone.
    probes: Condvar,
    clock: Arc<dyn Clock>,
}

struct State {
    config: QosConfig,
    scheduler: Scheduler,
    probing: BTreeMap<TierKey, Probing>,
    jobs: JobKey,
}

/// Of a tier, what the scheduler does not need to know.
struct Probing {
    directory: PathBuf,
    /// A thread is at it.
    running: bool,
    /// Why there is no governor.
    without: Option<String>,
}

impl fmt::Debug for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qos").field("governors", &self.governors()).finish_non_exhaustive()
    }
}

impl Qos {
    /// Of a mover, by the machine's clocks.
    #[must_use]
    pub fn new(config: QosConfig) -> Arc<Self> {
        Self::with_clock(config, Arc::new(SystemClock))
    }

    /// Of a mover, by another clock.
    #[must_use]
    pub fn with_clock(config: QosConfig, clock: Arc<dyn Clock>) -> Arc<Self> {
        let mover = Limits::new(config.bwlimit, config.iops_limit, clock.now().steady);
        let scheduler = Scheduler::new(mover);
        let state = State { config, scheduler, probing: BTreeMap::new(), jobs: 0 };
        let shared =
            Shared { state: Mutex::new(state), progressed: Condvar::new(), probes: Condvar::new(), clock };
        Arc::new(Self { shared: Arc::new(shared) })
    }

    /// What the governors see and do, by a directory on the tier of each: the first job's that it governed.
    #[must_use]
    pub fn governors(&self) -> Vec<(PathBuf, GovernorStatus)> {
        let state = self.shared.lock();
        let probed = |key| state.scheduler.tiers.get(key).filter(|tier| tier.probed);
        let tiers = state
            .probing
            .iter()
            .filter_map(|(key, probing)| Some((probing.directory.clone(), probed(key)?.governor.status())));
        tiers.collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The lock is poisoned by a panic alone, and no panic leaves a ticket half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pace of one job, for all of its threads. When it goes, the job is forgotten.
pub struct JobPace {
    shared: Arc<Shared>,
    key: JobKey,
    tier: Option<TierKey>,
    notes: Vec<String>,
}

impl fmt::Debug for JobPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobPace").field("key", &self.key).finish_non_exhaustive()
    }
}

impl JobPace {
    /// Of a job that starts now. `progress` is the one that its threads count in: a deadline looks at what remains.
    /// `fast` is a directory on the fast tier in which files may be made, for the governor's probe: the one that holds the
    /// source of a drain, or the destination of what is brought back. Without it there is no governor.
    #[must_use]
    pub fn new(options: &Options, qos: &Arc<Qos>, progress: &Arc<Progress>, fast: Option<&Path>) -> Self {
        let shared = Arc::clone(&qos.shared);
        let now = shared.clock.now();
        let limits = Limits::new(options.bwlimit, options.iops_limit, now.steady);
        let mut notes = Vec::new();
        let mut state = shared.lock();
        let governor = state.config.governor.clone().unwrap_or_default();
        let tier = match fast {
            Some(directory) if options.background || governor.all_jobs => {
                govern(&mut state, &shared, directory, governor, now).map_err(|why| notes.push(why)).ok()
            }
            _ => None,
        };
        state.jobs += 1;
        let key = state.jobs;
        let job = Job::new(options.priority, limits, tier, options.deadline, Arc::clone(progress), now);
        state.scheduler.jobs.insert(key, job);
        drop(state);
        Self { shared, key, tier, notes }
    }

    /// What holds the job back, or held it back within the last second, in a person's words.
    #[must_use]
    pub fn held_back_by(&self) -> Option<String> {
        let now = self.shared.clock.now();
        words::held_back_by(&mut self.shared.lock().scheduler, self.key, now)
    }

    /// What is worth knowing and no failure: why there is no governor, that the clock was set.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        let state = self.shared.lock();
        let probing = self.tier.and_then(|tier| state.probing.get(&tier));
        notes.extend(probing.and_then(|probing| probing.without.clone()));
        notes.extend(words::of_the_clock(&state.scheduler, self.key));
        notes
    }
}

impl Pace for JobPace {
    fn admit(&self, bytes: u64, ios: u64, stop: &Stop) {
        let shared = &*self.shared;
        let mut state = shared.lock();
        let ticket = state.scheduler.ask(self.key, bytes, ios);
        loop {
            let passed = state.scheduler.pass(shared.clock.now());
            let redeemed = state.scheduler.redeem(ticket);
            if passed.granted > usize::from(redeemed) {
                shared.progressed.notify_all();
            }
            if redeemed {
                return;
            }
            if stop.asked() {
                state.scheduler.forget(ticket);
                // This ticket may have blocked others at a shared limit.
                shared.progressed.notify_all();
                return;
            }
            let patience = shared.clock.patience(passed.retry_in.min(STOP_POLL));
            state = shared.progressed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for JobPace {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.scheduler.jobs.remove(&self.key);
        if let Some(tier) = self.tier.and_then(|tier| state.scheduler.tiers.get_mut(&tier)) {
            tier.jobs -= 1;
        }
        drop(state);
        self.shared.progressed.notify_all();
        self.shared.probes.notify_all();
    }
}

/// Puts a job under the governor of the tier that a directory lies on, and sees to it that the tier is probed.
fn govern(
    state: &mut State,
    shared: &Arc<Shared>,
    directory: &Path,
    config: GovernorConfig,
    now: Now,
) -> Result<TierKey, String> {
    let found = rustix::fs::stat(directory).map_err(|error| {
        words::without_governor(format_args!("{}: {error}", stage::error::shown(directory)))
    })?;
    #[allow(clippy::unnecessary_cast, reason = "its type differs from one architecture to another")]
    let key = found.st_dev as TierKey;
    let tier = state
        .scheduler
        .tiers
        .entry(key)
        .or_insert_with(|| TierSchedule::new(Governor::new(config, seed(), now.steady)));
    tier.jobs += 1;
    let probing = state.probing.entry(key).or_insert_with(|| Probing {
        directory: directory.to_owned(),
        running: false,
        without: None,
    });
    if probing.running {
        return Ok(key);
    }
    tier.governor.begin(now.steady);
    tier.probed = true;
    directory.clone_into(&mut probing.directory);
    probing.without = None;
    let (of_thread, path) = (Arc::clone(shared), directory.to_owned());
    let started = std::thread::Builder::new()
        .name("stage-probe".to_owned())
        .spawn(move || probe_while_governed(&of_thread, key, &path));
    match started {
        Ok(_) => {
            probing.running = true;
            Ok(key)
        }
        Err(error) => {
            tier.probed = false;
            tier.jobs -= 1;
            Err(words::without_governor(format_args!("cannot start a thread: {error}")))
        }
    }
}

/// Something that differs from one mover to the next, and is not zero.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() | 1
}

/// What a thread that probes does: it ends when no job of its tier is left, or when probes cannot be made.
fn probe_while_governed(shared: &Shared, key: TierKey, directory: &Path) {
    let mut probe = match Probe::open(directory, seed()) {
        Ok(probe) => probe,
        Err(why) => return without_governor(shared, key, &why),
    };
    let mut state = shared.lock();
    if let Some(tier) = state.scheduler.tiers.get_mut(&key) {
        // Making the file was no rest.
        tier.governor.begin(shared.clock.now().steady);
    }
    loop {
        let Some(tier) = state.scheduler.tiers.get_mut(&key).filter(|tier| tier.jobs > 0) else {
            if let Some(probing) = state.probing.get_mut(&key) {
                probing.running = false;
            }
            return;
        };
        let pause = tier.governor.next_probe();
        let due = shared.clock.now().steady + pause;
        loop {
            let left = due.saturating_sub(shared.clock.now().steady);
            if left.is_zero() || state.scheduler.tiers.get(&key).is_none_or(|tier| tier.jobs == 0) {
                break;
            }
            let patience = shared.clock.patience(left);
            state = shared.probes.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        let read = probe.read();
        state = shared.lock();
        let now = shared.clock.now();
        match read {
            Ok(latency_ns) => {
                if let Some(tier) = state.scheduler.tiers.get_mut(&key) {
                    let binding = std::mem::take(&mut tier.binding);
                    tier.governor.observe(latency_ns, tier.moved, binding, now.steady);
                }
            }
            Err(why) => {
                drop(state);
                return without_governor(shared, key, &why);
            }
        }
        if state.scheduler.pass(now).granted > 0 {
            shared.progressed.notify_all();
        }
    }
}

/// A tier that cannot be probed: its jobs go on without a governor.
fn without_governor(shared: &Shared, key: TierKey, why: &probe::NoProbe) {
    let mut state = shared.lock();
    if let Some(tier) = state.scheduler.tiers.get_mut(&key) {
        tier.probed = false;
    }
    if let Some(probing) = state.probing.get_mut(&key) {
        probing.running = false;
        probing.without = Some(words::without_governor(format_args!("{why}")));
    }
    drop(state);
    tracing::warn!(%why, "the fast tier cannot be probed: no governor");
    shared.progressed.notify_all();
}
