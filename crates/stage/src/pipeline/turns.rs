//! Who may write: large files have lanes, and fewer of these write at once than there are.
//!
//! Files of one length that begin together end together. If each lane had a turn all the time, none would write while
//! the ends of all are read back.

use std::sync::{Condvar, Mutex, PoisonError};

/// A number of turns.
#[derive(Debug)]
pub(super) struct Turns {
    free: Mutex<usize>,
    given_back: Condvar,
}

/// One that was taken; given back when it goes.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(super) fn new(number: usize) -> Self {
        Self { free: Mutex::new(number), given_back: Condvar::new() }
    }

    /// Waits for a turn. The guard gives it back, also after a failure or a stop.
    pub(super) fn take(&self) -> Turn<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free =
            self.given_back.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}
