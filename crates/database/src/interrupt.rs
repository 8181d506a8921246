//! Statements that end when the user asks to stop, and not when they are done.
//!
//! A thread looks at the flag and cancels what the engines are doing, again and again until the work has ended: a request to cancel that
//! comes between two statements is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::engine::{Engine, Interrupter};
use crate::error::DatabaseError;

/// How long a statement goes on after the flag is set, at most.
const POLL: Duration = Duration::from_millis(20);

/// The engines whose statements end with the flag.
#[derive(Default)]
pub struct Watch {
    interrupters: Mutex<Vec<Interrupter>>,
    is_over: AtomicBool,
}

impl Watch {
    /// Watches over an engine from now on.
    pub fn over(&self, engine: &dyn Engine) {
        self.interrupters.lock().unwrap_or_else(PoisonError::into_inner).push(engine.interrupter());
    }

    fn run(&self, stop: &AtomicBool) {
        while !self.is_over.load(Ordering::Relaxed) {
            if stop.load(Ordering::Relaxed) {
                let interrupters = self.interrupters.lock().unwrap_or_else(PoisonError::into_inner).clone();
                interrupters.iter().for_each(|interrupt| interrupt());
            }
            thread::park_timeout(POLL);
        }
    }
}

/// Ends the watch, however the work ends.
struct Over<'a>(&'a Watch, thread::Thread);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// Does work whose statements end when `stop` is set.
///
/// # Errors
/// [`DatabaseError::Interrupted`] for whatever fails after `stop` was set; those of the work.
pub fn interruptible<T>(
    stop: &AtomicBool,
    work: impl FnOnce(&Watch) -> Result<T, DatabaseError>,
) -> Result<T, DatabaseError> {
    let watch = Watch::default();
    let done = thread::scope(|scope| {
        let thread = scope.spawn(|| watch.run(stop));
        let _over = Over(&watch, thread.thread().clone());
        work(&watch)
    });
    done.map_err(|error| told(stop, error))
}

/// What failed after `stop` was set, failed by that.
pub(crate) fn told(stop: &AtomicBool, error: DatabaseError) -> DatabaseError {
    match error {
        DatabaseError::Engine { .. } if stop.load(Ordering::Relaxed) => DatabaseError::Interrupted,
        error => error,
    }
}
