//! Rests, and requests that are not answered: what a thread says before it waits, and how it finds one request among others.
//!
//! A thread that waits in the kernel can say nothing more, so it says before each wait what it waits for, and the coordinator,
//! which sees that it does not come back, names that.

use std::time::Duration;

use storage::engine::Engine;

use super::{NOT_BEGUN, Turn};
use crate::run::BenchError;
use crate::run::requests::Requests;

impl<E: Engine, R: Requests> Turn<'_, E, R> {
    /// Whether the next request must not be issued yet.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.requests.is_held() || self.flow.as_ref().is_some_and(|flow| flow.is_held)
    }

    /// A rest of a thread whose next request is held, and that has none in flight.
    #[cold]
    pub(super) fn rest_while_held(&mut self) {
        match &mut self.flow {
            Some(flow) if flow.is_held => {
                // Those that it is to be in proportion to may wait for what it has.
                if let Some(walk) = self.requests.walk() {
                    walk.step_aside();
                }
                flow.rest();
            }
            _ => self.rest_for_zones(),
        }
    }

    fn rest_for_zones(&mut self) {
        if let Some(walk) = self.requests.walk() {
            walk.rest();
        }
    }

    /// A rest until the next request is due. Bounded, so that a slow rate does not keep the thread from seeing the phase change.
    pub(super) fn rest_until_due(&mut self, left: Duration) {
        match self.requests.is_held() {
            true => self.rest_for_zones(),
            false => std::thread::sleep(left.min(Duration::from_millis(50))),
        }
    }

    /// Says what a wait for `completions` waits for: where one is enough, no request in flight was answered if the wait has no
    /// end, so that any of them can be named. Where several are waited for, some of them may have been answered.
    #[inline]
    pub(super) fn say_what_is_waited_for(&self, completions: u32) {
        self.pulse.waits_for(if completions > 1 { None } else { self.engine.request(self.newest) });
    }

    /// Whether any request in flight is older than it may be: a drive may answer all but one. Once a second. Two checks in
    /// a row must find one, so that after a stop of the process the coordinator has said so before the second.
    ///
    /// The thread fails here and not later, so that its failure is known before its engine is dropped, which waits for
    /// the request.
    #[cold]
    pub(super) fn check_ages(&mut self, now: u64) -> Result<(), BenchError> {
        self.next_ages = now + self.clock.ticks(Duration::from_secs(1));
        let limit = self.task.workload.request_timeout;
        if limit.is_zero() {
            return Ok(());
        }
        let oldest = now.saturating_sub(self.clock.ticks(limit));
        let mut idle = vec![false; self.began.len()];
        self.idle.iter().for_each(|slot| idle[*slot as usize] = true);
        let resumed = self.control.resumed();
        let has_limit = |slot: u32| !(self.requests.is_flush(slot) && self.has_unlimited_flushes());
        let late = (0..).zip(&self.began).find(|(slot, began)| {
            let in_flight = !idle[*slot as usize] && **began != NOT_BEGUN;
            in_flight && (**began).max(resumed) < oldest && has_limit(*slot)
        });
        let late = late.map(|(slot, _)| slot);
        let was_late = std::mem::replace(&mut self.is_late, late.is_some());
        let Some(slot) = late.filter(|_| was_late) else { return Ok(()) };
        let asked = self.engine.request(slot);
        let unanswered = || BenchError::unanswered(&*self.task.device, limit, asked);
        self.control.fail(unanswered());
        self.pulse.stop();
        Err(unanswered())
    }
}
