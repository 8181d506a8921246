//! The phases of a run, and how its threads agree on them.
//!
//! ```text
//! Ramp ──(every thread has filled its queue once, ramp_time is over)──▶ Measure
//! Measure ──(the first thread is done)──▶ Tail ──(all are done)──▶ end
//! any ──(failure, or a wish to stop)──▶ Stop
//! ```
//!
//! A thread that waits for a drive that no longer answers sees no phase. Each therefore has a [`Pulse`], and the
//! coordinator fails the run when one has not beaten for `request_timeout`, whatever the phase. Time in which the whole process was
//! stopped (SIGSTOP, a paused container or virtual machine) does not count: see [`Control::resumed`].
//!
//! Only the coordinator moves the phase, so that what it observes (diskstats, CPU counters) is taken
//! at the very transitions. Threads look at one atomic word once a batch; each counts from the first
//! reap after it saw `Measure` to the last before it saw anything else, so its counts and its interval
//! belong together exactly, whatever moment the others saw the change.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;

use storage::engine::Op;

use super::BenchError;
use super::steady::Seen;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    Ramp = 0,
    Measure = 1,
    Tail = 2,
    Stop = 3,
}

/// When a thread last had an answer, so that the coordinator notices a thread that waits in vain, and what it waits for. On a
/// cache line of its own, because the thread writes it every turn.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Pulse {
    last: AtomicU64,
    /// Place in [`OPS`] of what the thread waits for, or [`NOT_KNOWN`].
    op: AtomicU8,
    offset: AtomicU64,
}

/// A pulse of a thread that waits for no request.
const AT_REST: u64 = u64::MAX;

/// What a thread can wait for.
const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Trim, Op::SyncData, Op::Sync];
/// It is not known which request a thread waits for.
const NOT_KNOWN: u8 = u8::MAX;

impl Pulse {
    /// What [`last`](Self::last) gives after [`stop`](Self::stop).
    pub const STOPPED: u64 = 0;

    fn at_rest() -> Self {
        Self { last: AtomicU64::new(AT_REST), op: AtomicU8::new(NOT_KNOWN), offset: AtomicU64::new(0) }
    }

    /// The thread goes on at `now`, in ticks.
    #[inline]
    pub fn beat(&self, now: u64) {
        self.last.store(now, Ordering::Relaxed);
    }

    /// The thread goes to wait, for this request at least; None where it is not known for which.
    #[inline]
    pub fn waits_for(&self, request: Option<(Op, u64)>) {
        let (op, offset) = request.map_or((NOT_KNOWN, 0), |(op, offset)| (op as u8, offset));
        self.op.store(op, Ordering::Relaxed);
        self.offset.store(offset, Ordering::Relaxed);
    }

    /// What the thread waits for, as it said last. Of a thread that still runs the two parts may be of two requests, so it is
    /// only of use where the thread has waited for long.
    pub fn waited_for(&self) -> Option<(Op, u64)> {
        let op = OPS.get(usize::from(self.op.load(Ordering::Relaxed)))?;
        Some((*op, self.offset.load(Ordering::Relaxed)))
    }

    /// The thread can no longer be waited for: it goes to wait for a request that is not answered.
    pub fn stop(&self) {
        self.beat(Self::STOPPED);
    }

    /// The thread waits for no request, or for one that may take any time.
    pub fn rest(&self) {
        self.last.store(AT_REST, Ordering::Relaxed);
    }

    /// Ticks at which the thread last went on; None while it rests.
    pub fn last(&self) -> Option<u64> {
        Some(self.last.load(Ordering::Relaxed)).filter(|last| *last != AT_REST)
    }
}

/// What the threads of one job share with the coordinator.
#[derive(Debug)]
pub(super) struct Control {
    phase: AtomicU8,
    /// Threads that still have to fill their queues.
    filling: AtomicU32,
    /// Threads that still run.
    running: AtomicU32,
    /// Whether some thread has done its share.
    done: AtomicBool,
    coordinator: Thread,
    failure: Mutex<Option<BenchError>>,
    /// For the live view; written a few times a second by each thread.
    bytes: AtomicU64,
    ios: AtomicU64,
    pulses: Box<[Pulse]>,
    /// What each thread has done, where that decides about the end.
    seen_by: Box<[Mutex<Seen>]>,
    /// All threads are to end, because there is enough to know.
    enough: AtomicBool,
    /// When the process last went on after it had been stopped, in ticks; 0 if it never was.
    resumed: AtomicU64,
}

impl Control {
    pub fn new(threads: u32) -> Self {
        Self {
            phase: AtomicU8::new(Phase::Ramp as u8),
            filling: AtomicU32::new(threads),
            running: AtomicU32::new(threads),
            done: AtomicBool::new(false),
            coordinator: std::thread::current(),
            failure: Mutex::new(None),
            bytes: AtomicU64::new(0),
            ios: AtomicU64::new(0),
            pulses: (0..threads).map(|_| Pulse::at_rest()).collect(),
            seen_by: (0..threads).map(|_| Mutex::default()).collect(),
            enough: AtomicBool::new(false),
            resumed: AtomicU64::new(0),
        }
    }

    /// Called by thread `number` at each of its steps.
    pub fn saw(&self, number: usize, seen: Seen) {
        *self.seen_by[number].lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// What each thread has done up to its last step.
    pub fn seen_by(&self) -> Vec<Seen> {
        self.seen_by.iter().map(|seen| *seen.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Ends the job: there is enough to know.
    pub fn end_early(&self) {
        self.enough.store(true, Ordering::Release);
        self.done();
    }

    /// Whether the job ends before it has done all of its work.
    pub fn is_enough(&self) -> bool {
        self.enough.load(Ordering::Acquire)
    }

    /// The process went on at `now`, in ticks, after it had been stopped: nothing counts as unanswered from before.
    pub fn resume(&self, now: u64) {
        self.resumed.store(now, Ordering::Relaxed);
    }

    /// When the process last went on after it had been stopped, in ticks; 0 if it never was.
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// The pulse of each thread, in order.
    pub fn pulses(&self) -> &[Pulse] {
        &self.pulses
    }

    #[inline]
    pub fn phase(&self) -> Phase {
        // The phase publishes nothing but itself, so no ordering is needed.
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Ramp,
            1 => Phase::Measure,
            2 => Phase::Tail,
            _ => Phase::Stop,
        }
    }

    /// Moves on. Never back: a failure stays a failure.
    pub fn advance(&self, to: Phase) {
        self.phase.fetch_max(to as u8, Ordering::Relaxed);
    }

    /// Called once by each thread whose queue has been full and whose ramp is over.
    pub fn filled(&self) {
        if self.filling.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.coordinator.unpark();
        }
    }

    pub fn all_filled(&self) -> bool {
        self.filling.load(Ordering::Acquire) == 0
    }

    /// Called by each thread that has done its share of the measured work.
    pub fn done(&self) {
        self.done.store(true, Ordering::Release);
        self.coordinator.unpark();
    }

    pub fn any_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Adds to what the live view shows.
    pub fn progress(&self, bytes: u64, ios: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.ios.fetch_add(ios, Ordering::Relaxed);
    }

    /// Bytes and requests for the live view.
    pub fn seen(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.ios.load(Ordering::Relaxed))
    }

    /// Called by each thread as its last act.
    pub fn leave(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.coordinator.unpark();
    }

    pub fn all_left(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    /// Stops the run; the first failure is the one that is told.
    pub fn fail(&self, error: BenchError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.advance(Phase::Stop);
        self.coordinator.unpark();
    }

    pub fn take_failure(&self) -> Option<BenchError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_keeps_what_its_thread_waits_for() {
        let pulse = Pulse::at_rest();
        assert_eq!(pulse.waited_for(), None);
        for op in OPS {
            pulse.waits_for(Some((op, 4096)));
            assert_eq!(pulse.waited_for(), Some((op, 4096)));
        }
        pulse.waits_for(None);
        assert_eq!(pulse.waited_for(), None);
    }
}
