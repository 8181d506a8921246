//! What holds a move back: limits, governors, deadlines, and requests to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::error::StageError;

/// Asked before bytes are read from a source. Those who read what was written back to check it, do not ask: what
/// was let in is let through to its end.
pub trait Pace: Send + Sync {
    /// Waits until `bytes` more may be moved in `ios` requests; returns early, without an error, when `stop` is asked for.
    fn admit(&self, bytes: u64, ios: u64, stop: &Stop);
}

/// No limits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl Pace for Unlimited {
    fn admit(&self, _: u64, _: u64, _: &Stop) {}
}

/// A request to stop, shared between threads.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// No request yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a stop.
    pub fn ask(&self) {
        self.0.store(true, Relaxed);
    }

    /// Was a stop requested?
    #[must_use]
    pub fn asked(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// An error if a stop was requested.
    ///
    /// # Errors
    /// [`StageError::Stopped`].
    pub fn check(&self) -> Result<(), StageError> {
        if self.asked() {
            Err(StageError::Stopped { what: "the move was asked to stop".to_owned() })
        } else {
            Ok(())
        }
    }
}

/// A flag that a signal handler sets.
impl From<Arc<AtomicBool>> for Stop {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

/// Counters of a move, for those who watch. All of them only grow, but for the totals, which a walk finds.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files found.
    pub files_total: AtomicU64,
    /// Bytes found.
    pub bytes_total: AtomicU64,
    /// Bytes written to the destination.
    pub bytes_written: AtomicU64,
    /// Bytes read back from it and found right.
    pub bytes_verified: AtomicU64,
    /// Files that are durable and verified at the destination, under a name that is not final yet.
    pub files_done: AtomicU64,
    /// Set when the walk has found everything, so that totals are totals.
    pub walked: AtomicBool,
    /// Things that could not be kept, such as an owner.
    pub not_preserved: AtomicU64,
}

impl Progress {
    /// Counts from nothing, because an attempt counts what it finds done.
    pub fn begin_again(&self) {
        let Self {
            files_total,
            bytes_total,
            bytes_written,
            bytes_verified,
            files_done,
            walked,
            not_preserved,
        } = self;
        for count in [files_total, bytes_total, bytes_written, bytes_verified, files_done, not_preserved] {
            count.store(0, Relaxed);
        }
        walked.store(false, Relaxed);
    }
}

/// Called now and then by long work; an error ends the work.
pub type GoOn<'a> = &'a dyn Fn() -> Result<(), StageError>;

/// Never requests a stop.
pub fn always() -> Result<(), StageError> {
    Ok(())
}
