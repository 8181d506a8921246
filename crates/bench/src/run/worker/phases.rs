//! What a thread does where the run goes from one phase to the next, and where its own time is up: see [`super::super::control`].

use storage::engine::Engine;

use super::Turn;
use crate::run::control::Phase;
use crate::run::requests::Requests;

impl<E: Engine, R: Requests> Turn<'_, E, R> {
    #[cold]
    pub(super) fn phase_work(&mut self, phase: Phase, now: u64) {
        let queue_was_full = self.completed >= u64::from(self.engine.depth());
        if !self.filled && now >= self.ramp_until && (queue_was_full || now >= self.fill_until) {
            self.filled = true;
            self.control.filled();
        }
        if phase == self.last_seen {
            return;
        }
        self.last_seen = phase;
        match phase {
            Phase::Ramp => {}
            Phase::Measure => {
                self.tally.begin(now);
                if let Some(runtime) = self.task.workload.runtime {
                    self.deadline = now + self.clock.ticks(runtime);
                }
            }
            // As in fio, each thread searches to its own end.
            Phase::Tail if self.own_end || self.is_searching() => self.exhausted |= self.control.is_enough(),
            Phase::Tail => {
                if self.tally.is_measuring() {
                    self.tally.end(now);
                }
                // A run by size does all of its work; a run by time is over.
                self.exhausted |= self.task.workload.time_based || self.control.is_enough();
            }
            Phase::Stop => {
                if self.tally.is_measuring() {
                    self.tally.end(now);
                }
                self.exhausted = true;
            }
        }
    }

    #[cold]
    pub(super) fn time_is_up(&mut self, now: u64) {
        self.deadline = u64::MAX;
        self.exhausted = true;
        if self.own_end {
            return;
        }
        if self.tally.is_measuring() {
            self.tally.end(now);
        }
        self.control.done();
    }
}
