//! Requests that are not answered: what a thread says before it waits, and how it finds one request among others.
//!
//! A thread that waits in the kernel can say nothing more, so it says before each wait what it waits for, and the coordinator,
//! which sees that it does not come back, names that.

use std::time::Duration;

use storage::engine::Engine;

use super::{NOT_BEGUN, Turn};
use crate::run::BenchError;
use crate::run::requests::Requests;

impl<E: Engine, R: Requests> Turn<'_, E, R> {
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
