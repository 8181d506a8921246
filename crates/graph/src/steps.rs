//! How far long work is, and whether it is to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::GraphError;

/// Steps of work, told to a caller that shows them, from any thread.
#[derive(Debug, Default)]
pub struct Steps {
    done: AtomicU64,
    total: AtomicU64,
    phase: AtomicU64,
    stop: AtomicBool,
}

impl Steps {
    /// Asks the work to stop at the next step; it ends with [`GraphError::Interrupted`].
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The number of the phase, the steps done in it, and all of its steps.
    #[must_use]
    pub fn now(&self) -> (u64, u64, u64) {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (load(&self.phase), load(&self.done), load(&self.total))
    }

    /// Begins a phase of so many steps.
    pub(crate) fn begin(&self, phase: u64, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Counts steps.
    ///
    /// # Errors
    /// [`GraphError::Interrupted`] if the work is to stop.
    pub(crate) fn add(&self, steps: u64, during: &'static str) -> Result<(), GraphError> {
        self.done.fetch_add(steps, Ordering::Relaxed);
        if self.stop.load(Ordering::Relaxed) { Err(GraphError::Interrupted { during }) } else { Ok(()) }
    }
}
