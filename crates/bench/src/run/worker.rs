//! One thread of a run: the loop that everything else is about.
//!
//! Each turn issues what fits (at most a batch, see [`Batch`]), makes one system call, reaps what is ready and reads
//! the clock once. A request's latency runs from the turn's clock reading before its submission to the
//! one after its reap. Idle slots form a stack: the buffer that was used last is used next, so that a
//! queue that is never full keeps to a few warm buffers.
//!
//! Contents of large writes take long to make: 4 MiB are stamped in 0.1 to 0.4 ms, during which a drive at depth 1 would
//! have nothing to do. So where blocks are large the engine has one slot more than the depth, and while the queue is
//! full the next block is made in it. At most `iodepth` requests are in flight all the same.
//!
//! [`closed`] starts a request when an earlier one ends; [`open`] starts them by the clock and counts
//! latency from when each was due (fio(1), `rate_iops`; against what G. Tene calls coordinated
//! omission).

use std::sync::Arc;
use std::time::Duration;

use measure::dealing::Region;
use measure::record::{FailedRequests, ZoneCounts};
use measure::workload::{LatencyClock, RandomDistribution, Workload};
use storage::clock::Clock;
use storage::device::Device;
use storage::engine::{Engine, Fallback};
use storage::usage;

use super::batch::Batch;
use super::conduct::Conduct;
use super::control::{Control, Phase, Pulse};
use super::flow;
use super::log::Completion;
use super::pauses::Pauses;
use super::requests::{General, Reads, Requests};
use super::schedule::Schedule;
use super::search::{Search, Searched};
use super::tally::{Summary, Tally};
use super::tolerance::Failures;
use super::{BenchError, opening};
use crate::zones::{Announcement, Walk, ZoneTable};
use readback::{owed, read_back, verify_error};

mod burning;
mod flushing;
mod phases;
mod readback;
mod searching;
mod waiting;

/// What a thread is to do.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub device: Arc<dyn Device>,
    pub workload: Workload,
    pub region: Region,
    /// The zones that its requests keep to.
    pub zones: Option<Arc<ZoneTable>>,
    /// That it is going to write there, until it does.
    pub announced: Option<Arc<Announcement>>,
    /// The CPUs to run on; none: wherever the process may.
    pub cpus: Option<Vec<u32>>,
    pub generation: u64,
    /// The thread's place among those of its job.
    pub number: usize,
    pub conduct: Conduct,
    /// The flow that it is a part of.
    pub flow: Option<Arc<flow::Shared>>,
}

/// What a thread did.
#[derive(Debug)]
pub(super) struct Report {
    pub summary: Summary,
    pub engine: &'static str,
    pub features: Vec<String>,
    pub fallback: Fallback,
    /// The one CPU that the thread was bound to, if it was.
    pub cpu: Option<u32>,
    pub verified_blocks: u64,
    /// Blocks that verification had to read back; none where it was no part of the run.
    pub verify_expected: Option<u64>,
    /// What was made again: see [`Engine::retries`].
    pub retries: u64,
    /// What the search for a depth came to, where there was one.
    pub searched: Option<Searched>,
    /// Failures that it lived with.
    pub failed: Vec<FailedRequests>,
    /// What it did to zones beside its requests, where it keeps to such.
    pub zones: Option<ZoneCounts>,
}

/// Runs a thread's task from opening the engine to the last completion.
pub(super) fn work(task: &Task, control: &Control) -> Result<Report, BenchError> {
    let workload = &task.workload;
    let config = opening::config(workload, &task.conduct);
    if let Some(cpus) = &task.cpus {
        usage::bind_to_cpus(cpus).map_err(|source| BenchError::Bind { thread: task.region.job, source })?;
    }
    if let Some(policy) = &task.conduct.memory {
        usage::set_memory_policy(policy).map_err(|source| BenchError::memory_policy(policy, source))?;
    }
    if let Some(priority) = task.conduct.priority {
        usage::set_io_priority(priority).map_err(|source| BenchError::Priority { priority, source })?;
    }
    if let Some(burn) = task.conduct.burn {
        return Ok(Report {
            summary: burning::burn(burn, task, control),
            engine: task.device.performs().unwrap_or_default(),
            features: Vec::new(),
            fallback: None,
            cpu: only_cpu(task),
            verified_blocks: 0,
            verify_expected: None,
            retries: 0,
            searched: None,
            failed: Vec::new(),
            zones: None,
        });
    }
    let (engine, fallback) = opening::open(workload, &task.device, &config)?;
    let mut report = storage::on_engine!(engine, engine => run(engine, task, control))?;
    report.fallback = fallback;
    report.cpu = only_cpu(task);
    Ok(report)
}

/// The one CPU that the thread is bound to, if it is.
fn only_cpu(task: &Task) -> Option<u32> {
    match task.cpus.as_deref() {
        Some([only]) => Some(*only),
        _ => None,
    }
}

/// Picks the loop for the workload: the narrow one where nothing but reads of one size is asked for, in one of three plain orders.
fn run<E: Engine>(engine: E, task: &Task, control: &Control) -> Result<Report, BenchError> {
    let w = &task.workload;
    let plain =
        w.rw_step == 0 && w.percentage_random == 100 && w.number_ios.is_none() && w.blockalign.is_none();
    let plain = plain && w.zonesize.is_none() && !w.is_zbd();
    let logs_offsets = task.conduct.log.is_some_and(|log| log.offsets);
    let plain = plain && !logs_offsets && task.conduct.request_priorities.is_none();
    let narrow = w.rw.reads() && !w.rw.modifies() && w.bssplit.is_empty() && w.verify.is_none() && plain;
    if narrow && (!w.rw.is_random() || w.random_distribution == RandomDistribution::Random) {
        narrow_run(engine, task, control)
    } else {
        general_run(engine, task, control)
    }
}

fn narrow_run<E: Engine>(engine: E, task: &Task, control: &Control) -> Result<Report, BenchError> {
    let requests = Reads::new(&task.workload, &task.region);
    let mut turn = Turn::new(engine, requests, task, control);
    turn.go()?;
    turn.report(0, None)
}

fn general_run<E: Engine>(mut engine: E, task: &Task, control: &Control) -> Result<Report, BenchError> {
    let w = &task.workload;
    let (region, depth) = (&task.region, engine.depth());
    let walk = |zones| Walk::new(zones, &task.device, w, region, depth);
    let walk = task.zones.as_ref().map(walk);
    if let Some(announced) = &task.announced {
        announced.withdraw();
    }
    let mut requests = General::new(w, region, depth, task.generation).with(&task.conduct).within(walk);
    requests.fill_buffers(&mut engine);
    let mut turn = Turn::new(engine, requests, task, control);
    turn.go()?;
    let verified = turn.requests.verified_blocks;
    let Some((mut check, expected)) = owed(&mut turn.requests, task, turn.engine.depth()) else {
        return turn.report(verified, None);
    };
    read_back(&mut turn.engine, &mut check, control, turn.pulse, &mut turn.failures)?;
    turn.report(verified + check.verified_blocks, Some(expected))
}

/// The beginning of a request that was made ahead, in ticks.
const NOT_BEGUN: u64 = 0;

/// The state of a thread's loop.
struct Turn<'a, E, R> {
    engine: E,
    requests: R,
    task: &'a Task,
    control: &'a Control,
    clock: Clock,
    tally: Tally,
    /// Slots not in flight; the one used last is on top.
    idle: Vec<u32>,
    /// Slots issued this turn, where they are timed from after that.
    issued: Vec<u32>,
    /// The slot that was issued last.
    newest: u32,
    /// When each slot's request began, in ticks: its submission, or when it was due.
    began: Box<[u64]>,
    pulse: &'a Pulse,
    /// When the ages of requests are checked next, in ticks.
    next_ages: u64,
    /// The last check of ages found a request that is older than it may be.
    is_late: bool,
    /// Slots beyond the depth, in which requests are made ahead: one or none.
    spare: usize,
    /// No more requests are to be issued.
    exhausted: bool,
    filled: bool,
    completed: u64,
    ramp_until: u64,
    fill_until: u64,
    deadline: u64,
    /// The rests between requests, where the workload has any.
    pauses: Option<Pauses>,
    flow: Option<flow::Part>,
    search: Option<Search>,
    failures: Failures,
    /// The interval ends with a flush of this thread's own, not with the first thread to end.
    own_end: bool,
    last_seen: Phase,
}

impl<'a, E: Engine, R: Requests> Turn<'a, E, R> {
    fn new(engine: E, requests: R, task: &'a Task, control: &'a Control) -> Self {
        let clock = Clock::get();
        let workload = &task.workload;
        let runtime = workload.runtime.unwrap_or(Duration::from_secs(10));
        let now = clock.now();
        let ramp_until = now + clock.ticks(workload.ramp_time);
        let depth = engine.depth();
        Self {
            requests,
            task,
            control,
            clock,
            // The ramp is counted from the moment that the record calls the start.
            tally: Tally::new(clock, now, runtime.as_nanos() as u64).with(&task.conduct),
            idle: (0..depth).rev().collect(),
            issued: Vec::new(),
            newest: 0,
            began: vec![0; depth as usize].into_boxed_slice(),
            pulse: &control.pulses()[task.number],
            next_ages: now,
            is_late: false,
            spare: depth.saturating_sub(workload.iodepth) as usize,
            exhausted: false,
            filled: false,
            completed: 0,
            ramp_until,
            // A queue of large blocks may take longer to fill than the run is to last.
            fill_until: ramp_until + clock.ticks(runtime),
            deadline: u64::MAX,
            pauses: Pauses::new(workload),
            flow: task
                .flow
                .as_ref()
                .zip(task.conduct.flow)
                .map(|(shared, flow)| flow::Part::new(shared, flow)),
            search: task
                .conduct
                .latency
                .map(|goal| Search::new(goal, workload.iodepth, clock.ticks(goal.window))),
            failures: Failures::new(task.conduct.tolerance.as_ref()),
            own_end: workload.end_fsync && workload.rw.writes(),
            last_seen: Phase::Ramp,
            engine,
        }
    }

    fn go(&mut self) -> Result<(), BenchError> {
        if self.task.workload.is_open_loop() {
            self.open()?
        } else {
            self.closed()?
        }
        if let Some(failure) = self.requests.take_failure() {
            return Err(failure);
        }
        if let Some(walk) = self.requests.walk() {
            walk.retire();
        }
        if self.own_end && self.control.phase() != Phase::Stop {
            self.flush()?;
        }
        let now = self.clock.now();
        if self.tally.is_measuring() {
            self.tally.end(now);
        }
        self.control.done();
        Ok(())
    }

    /// The closed loop: as many requests in flight as the depth allows, always.
    fn closed(&mut self) -> Result<(), BenchError> {
        let w = &self.task.workload;
        let each = w.latency_clock == LatencyClock::Each;
        let batch = Batch::new(w, self.engine.name());
        let complete_min = w.iodepth_batch_complete_min;
        let mut now = self.clock.now();
        loop {
            self.look(now);
            if self.control.phase() == Phase::Stop {
                return Ok(());
            }
            if now >= self.next_ages {
                self.check_ages(now)?;
            }
            // What comes before the interval is no figure of any depth.
            if self.search.is_some() && self.tally.is_measuring() {
                self.search_depth(now)?;
            }
            let mut group = batch.with(self.engine.in_flight());
            if let Some(pauses) = &mut self.pauses {
                if pauses.is_due() && self.engine.in_flight() == 0 && !self.exhausted {
                    now = pauses.rest(self.clock);
                    continue;
                }
                group = group.min(pauses.left as usize);
            }
            self.issue(group, now);
            self.rest_while_flushing();
            if self.exhausted && self.engine.in_flight() == 0 {
                return Ok(());
            }
            let is_held = self.is_held();
            if is_held && self.engine.in_flight() == 0 {
                self.rest_while_held();
                now = self.clock.now();
                continue;
            }
            // While the queue is not full, submit without waiting.
            let is_resting = self.pauses.as_ref().is_some_and(Pauses::is_due);
            let filling = !self.exhausted && self.room() > 0 && !is_resting && !is_held;
            let wait_for = if filling {
                0
            } else if self.exhausted || is_resting || is_held || self.search.is_some() {
                1
            } else {
                complete_min
            };
            if each || R::SLOW_TO_ISSUE {
                now = self.clock.now();
                for slot in self.issued.drain(..) {
                    self.began[slot as usize] = now;
                }
            }
            if R::WORKS_AHEAD && self.spare > 0 && !filling && !self.exhausted && !is_resting {
                self.make_ahead()?;
            }
            self.say_what_is_waited_for(wait_for);
            self.engine.submit(wait_for, None)?;
            now = self.reap()?;
        }
    }

    /// How many more requests may be in flight.
    #[inline]
    fn room(&self) -> usize {
        if R::WORKS_AHEAD {
            // The slot of the request that was made ahead is not among the idle ones.
            let ahead = usize::from(self.requests.is_ahead());
            return self.searched((self.idle.len() + ahead).saturating_sub(self.spare));
        }
        self.searched(self.idle.len())
    }

    /// Hands over what was issued, and makes the next request while the drive works on it.
    fn make_ahead(&mut self) -> Result<(), BenchError> {
        if self.requests.is_ahead() {
            return Ok(());
        }
        let Some(slot) = self.idle.pop() else { return Ok(()) };
        self.engine.submit(0, None)?;
        self.began[slot as usize] = NOT_BEGUN;
        if !self.requests.make_ahead(&mut self.engine, slot) {
            self.idle.push(slot);
            self.exhausted = true;
        }
        Ok(())
    }

    /// Issues up to `batch` requests into idle slots, as begun at `now`.
    #[inline]
    fn issue(&mut self, batch: usize, now: u64) {
        if self.exhausted {
            return;
        }
        self.issued.clear();
        let mut count = 0;
        for _ in 0..batch.min(self.room()) {
            // One that is held was admitted before.
            if !(self.requests.is_held() || self.flow.as_mut().is_none_or(flow::Part::admits)) {
                break;
            }
            let ahead = if R::WORKS_AHEAD { self.requests.issue_ahead(&mut self.engine) } else { None };
            let slot = match ahead {
                Some(slot) => slot,
                None => {
                    let Some(slot) = self.idle.pop() else { break };
                    if !self.requests.issue(&mut self.engine, slot) {
                        self.idle.push(slot);
                        self.exhausted = !self.requests.is_held();
                        if let Some(flow) = self.flow.as_mut().filter(|_| !self.exhausted) {
                            flow.stand_aside();
                        }
                        break;
                    }
                    slot
                }
            };
            if let Some(flow) = &mut self.flow {
                flow.come_back();
            }
            self.began[slot as usize] = now;
            self.newest = slot;
            count += 1;
            if R::SLOW_TO_ISSUE || batch == 1 {
                self.issued.push(slot);
            }
        }
        if let Some(pauses) = &mut self.pauses {
            pauses.left -= count;
        }
    }

    /// The open loop: requests start when they are due, whatever became of the earlier ones.
    fn open(&mut self) -> Result<(), BenchError> {
        usage::precise_timers();
        let mut schedule = Schedule::new(&self.task.workload, self.clock, u64::from(self.task.region.job));
        let mut due = self.clock.now();
        let mut now = due;
        loop {
            self.look(now);
            if self.control.phase() == Phase::Stop {
                return Ok(());
            }
            while !self.exhausted && due <= now {
                let Some(slot) = self.idle.pop() else { break };
                if !self.requests.issue(&mut self.engine, slot) {
                    self.idle.push(slot);
                    self.exhausted = !self.requests.is_held();
                    break;
                }
                self.began[slot as usize] = due;
                self.newest = slot;
                due += schedule.gap();
            }
            self.rest_while_flushing();
            if self.exhausted && self.engine.in_flight() == 0 {
                return Ok(());
            }
            let full = self.idle.is_empty();
            let left = Duration::from_nanos(self.clock.nanoseconds(due.saturating_sub(now)));
            if self.engine.in_flight() == 0 {
                self.rest_until_due(left);
                now = self.clock.now();
                continue;
            }
            let timeout = if full || self.exhausted || self.is_held() { None } else { Some(left) };
            self.say_what_is_waited_for(1);
            self.engine.submit(1, timeout)?;
            now = self.reap()?;
        }
    }

    /// Takes back what is done and counts it. Returns the time of the reap.
    #[inline]
    fn reap(&mut self) -> Result<u64, BenchError> {
        let first = self.idle.len();
        let mut failed = Vec::new();
        let idle = &mut self.idle;
        self.engine.reap(|slot, result| match result {
            Ok(()) => idle.push(slot),
            Err(error) => failed.push((slot, error)),
        });
        let now = self.clock.now();
        for at in first..self.idle.len() {
            let slot = self.idle[at];
            let settled = match self.requests.settle(&self.engine, slot) {
                Ok(settled) => settled,
                Err(wrong) => {
                    self.failures.block(wrong).map_err(|wrong| verify_error(&self.engine, wrong))?;
                    continue;
                }
            };
            if settled.counts {
                let counts = &mut self.tally.current[settled.direction as usize];
                let latency_ns = self.clock.nanoseconds(now.saturating_sub(self.began[slot as usize]));
                counts.bytes += settled.bytes;
                counts.ios += 1;
                counts.latency.record(latency_ns);
                // Only those that are slow to issue may have priorities of their own.
                if R::SLOW_TO_ISSUE && self.task.conduct.request_priorities.is_some() {
                    let priority = settled.priority_in(&self.task.conduct);
                    counts.by_priority.entry(priority.number()).or_default().record(latency_ns);
                }
                if let Some(search) = &mut self.search {
                    search.saw(latency_ns);
                }
                if self.tally.logs() {
                    self.tally.log(now, Completion { request: settled, latency_ns });
                }
            }
        }
        if self.idle.len() > first
            && let Some(slow) = self.tally.broken_floor(now)
        {
            return Err(BenchError::too_slow(slow, self.task.region.job));
        }
        for (slot, failure) in failed {
            self.failures.request(failure)?;
            self.requests.abandon(slot);
            self.idle.push(slot);
        }
        self.completed += (self.idle.len() - first) as u64;
        Ok(now)
    }

    /// Looks at the phase and the clock once a turn.
    #[inline]
    fn look(&mut self, now: u64) {
        self.pulse.beat(now);
        let phase = self.control.phase();
        if phase != self.last_seen || !self.filled {
            self.phase_work(phase, now);
        }
        if self.tally.step_is_due(now) {
            let (bytes, ios) = self.tally.step(now);
            self.control.progress(bytes, ios);
            if self.task.conduct.steady.is_some() {
                self.control.saw(self.task.number, self.tally.seen(now));
            }
        }
        if now >= self.deadline {
            self.time_is_up(now);
        }
    }

    fn report(mut self, verified_blocks: u64, verify_expected: Option<u64>) -> Result<Report, BenchError> {
        self.engine.conclude()?;
        let ahead = (self.spare > 0).then(|| "blocks made ahead".to_owned());
        Ok(Report {
            engine: self.task.device.performs().unwrap_or(self.engine.name()),
            features: self.engine.features().into_iter().chain(ahead).collect(),
            summary: self.tally.close(self.clock.now()),
            fallback: None,
            cpu: None,
            verified_blocks,
            verify_expected,
            retries: self.engine.retries(),
            searched: self.search.map(|search| search.outcome()),
            failed: self.failures.seen,
            zones: self.requests.walk().map(|walk| walk.counts()),
        })
    }
}

#[cfg(test)]
mod tests;
