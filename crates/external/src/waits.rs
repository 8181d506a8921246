//! How long threads waited for requests: each for itself, and all of them seen as one.
//!
//! Threads do different work: one reads, others sort. The sum of their waits says how much threads were blocked; divided by
//! their number it says nothing of the drive, because a thread that sorts was never to wait for it. The time in which *at
//! least one* thread waited is a span on one clock, and comparable with the time of the whole work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A clock that runs while threads wait. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct WaitClock {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: u32,
    /// When the first of those that wait now began.
    since: Option<Instant>,
    span: Duration,
    sum: Duration,
}

/// How long threads waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waited {
    /// Time in which at least one thread waited.
    pub span: Duration,
    /// Time that each thread waited, added up.
    pub sum: Duration,
}

impl Waited {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { span: self.span.saturating_sub(earlier.span), sum: self.sum.saturating_sub(earlier.sum) }
    }
}

impl WaitClock {
    /// Runs `work`, during which the calling thread waits.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let _waiting = Waiting::begin(self);
        work()
    }

    /// What was counted so far; of waits that have not ended, the span alone.
    #[must_use]
    pub fn waited(&self) -> Waited {
        let state = self.state();
        let open = state.since.map_or(Duration::ZERO, |since| since.elapsed());
        Waited { span: state.span + open, sum: state.sum }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait, which ends when it is dropped, also by a panic.
struct Waiting<'a> {
    clock: &'a WaitClock,
    began: Instant,
}

impl<'a> Waiting<'a> {
    fn begin(clock: &'a WaitClock) -> Self {
        let mut state = clock.state();
        // Taken with the lock held, so that spans do not overlap.
        let began = Instant::now();
        state.waiting += 1;
        state.since.get_or_insert(began);
        drop(state);
        Self { clock, began }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.clock.state();
        let now = Instant::now();
        state.sum += now - self.began;
        state.waiting -= 1;
        if state.waiting == 0
            && let Some(since) = state.since.take()
        {
            state.span += now - since;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn waits_that_overlap_are_one_span_and_two_in_the_sum() {
        let clock = WaitClock::default();
        let nap = Duration::from_millis(20);
        let (begun, ended) = (Barrier::new(2), Barrier::new(2));
        let both = || {
            clock.during(|| {
                begun.wait();
                std::thread::sleep(nap);
                ended.wait();
            });
        };
        std::thread::scope(|scope| {
            scope.spawn(both);
            both();
        });
        let Waited { span, sum } = clock.waited();
        // Both slept within the span, however long the machine took; outside of it nothing was counted.
        assert!(span >= nap && sum >= 2 * nap && span <= sum, "{span:?} {sum:?}");
        std::thread::sleep(nap);
        assert_eq!(clock.waited(), Waited { span, sum }, "nobody waits");
        clock.during(|| assert!(clock.waited().span > span && clock.waited().sum == sum));
        assert_eq!(clock.waited().since(clock.waited()), Waited::default());
    }
}
