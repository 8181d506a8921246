//! Ranges of blocks that one request at a time may change.
//!
//! A request waits for all that came before it and overlap with it, those that wait themselves included, so that none
//! waits for ever.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module's argument.
#[derive(Debug, Default)]
pub struct RangeLock {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Held and waiting, the oldest first.
    queue: VecDeque<(u64, Range<u64>)>,
    next: u64,
}

/// A range that is held until this is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    lock: &'a RangeLock,
    ticket: u64,
}

impl RangeLock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no earlier request holds, or waits for, a part of `range`.
    pub fn hold(&self, range: Range<u64>) -> Held<'_> {
        let mut state = self.state();
        let ticket = state.next;
        state.next += 1;
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let is_blocked = |state: &State| {
            let earlier = state.queue.iter().take_while(|(number, _)| *number != ticket);
            earlier.into_iter().any(|(_, other)| overlaps(other))
        };
        state.queue.push_back((ticket, range.clone()));
        while is_blocked(&state) {
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Held { lock: self, ticket }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state();
        state.queue.retain(|(ticket, _)| *ticket != self.ticket);
        let is_awaited = !state.queue.is_empty();
        drop(state);
        if is_awaited {
            self.lock.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn overlapping_ranges_are_held_one_after_the_other_and_others_at_once() {
        let lock = RangeLock::default();
        let apart = (lock.hold(0..4), lock.hold(4..8));
        drop(apart);
        let holders = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for start in 0..8 {
                let (lock, holders) = (&lock, &holders);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let _held = lock.hold(start..start + 8);
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "all of these have block 7");
                        holders.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
