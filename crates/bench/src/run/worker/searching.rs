//! A thread that looks for the depth at which its requests are answered in time: see [`crate::run::search`].

use storage::engine::Engine;

use super::Turn;
use crate::run::BenchError;
use crate::run::requests::Requests;
use crate::run::search::{Search, Step};

impl<E: Engine, R: Requests> Turn<'_, E, R> {
    /// How many of so many requests may be issued at the depth being tried.
    #[inline]
    pub(super) fn searched(&self, room: usize) -> usize {
        match &self.search {
            Some(search) => room.min(search.room(self.engine.in_flight()) as usize),
            None => room,
        }
    }

    /// Looks how the depth being tried does.
    #[cold]
    pub(super) fn search_depth(&mut self, now: u64) -> Result<(), BenchError> {
        let Some(search) = &mut self.search else { return Ok(()) };
        match search.look(now, self.engine.in_flight()) {
            Step::Same => {}
            Step::Restart => {
                let (bytes, ios) = self.tally.step(now);
                self.control.progress(bytes, ios);
                self.tally.restart(now);
            }
            Step::Found => self.time_is_up(now),
            Step::Failed => {
                let goal = self.task.conduct.latency.expect("it is what is searched for");
                return Err(BenchError::TooLate { thread: self.task.region.job, target: goal.target });
            }
        }
        Ok(())
    }

    /// Whether the thread's interval ends with its search.
    pub(super) fn is_searching(&self) -> bool {
        self.tally.is_measuring() && self.search.as_ref().is_some_and(Search::is_under_way)
    }
}
