//! The rests that a thread takes between requests: fio's `thinktime`.
//!
//! After so many requests a thread issues no more until all of them are answered, then rests. fio does the same
//! (`handle_thinktime`: it waits for what is in flight, spins, sleeps).

use std::time::Duration;

use measure::workload::Workload;
use storage::clock::Clock;

/// The longest sleep after which a thread looks whether the run is over.
const LOOK: Duration = Duration::from_millis(50);

/// When a thread rests, and for how long.
#[derive(Debug)]
pub(super) struct Pauses {
    every: u32,
    /// Requests that may be issued before the next rest.
    pub left: u32,
    rest: Duration,
    spin: Duration,
    /// When the rest that is under way ends, in ticks; 0 between rests.
    until: u64,
}

impl Pauses {
    /// None where the workload has no rests.
    pub fn new(workload: &Workload) -> Option<Self> {
        let every = workload.thinktime_blocks;
        workload.rests().then_some(Self {
            every,
            left: every,
            rest: workload.thinktime,
            spin: workload.thinktime_spin,
            until: 0,
        })
    }

    /// Whether a rest is due as soon as nothing is in flight.
    pub fn is_due(&self) -> bool {
        self.left == 0
    }

    /// Part of a rest: sleeps for at most [`LOOK`], after computing for as long as the workload says. Returns the time;
    /// requests may be issued again when [`is_due`](Self::is_due) says so.
    #[cold]
    pub fn rest(&mut self, clock: Clock) -> u64 {
        let mut now = clock.now();
        if self.until == 0 {
            self.until = now + clock.ticks(self.rest);
            let spin_until = now + clock.ticks(self.spin);
            while now < spin_until {
                std::hint::spin_loop();
                now = clock.now();
            }
        }
        let left = Duration::from_nanos(clock.nanoseconds(self.until.saturating_sub(now)));
        if !left.is_zero() {
            std::thread::sleep(left.min(LOOK));
            now = clock.now();
        }
        if now >= self.until {
            (self.until, self.left) = (0, self.every);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_no_shorter_than_asked_and_then_requests_go_on() {
        let thinktime = Duration::from_millis(120);
        let workload = Workload {
            thinktime,
            thinktime_spin: Duration::from_millis(5),
            thinktime_blocks: 3,
            ..Workload::default()
        };
        let mut pauses = Pauses::new(&workload).expect("it rests");
        assert!(!pauses.is_due());
        pauses.left = 0;
        let clock = Clock::get();
        let began = clock.now();
        while pauses.is_due() {
            pauses.rest(clock);
        }
        assert!(clock.nanoseconds(clock.now() - began) >= thinktime.as_nanos() as u64);
        assert_eq!(pauses.left, 3);
    }

    #[test]
    fn a_long_rest_is_looked_up_from() {
        let workload = Workload { thinktime: Duration::from_secs(100_000), ..Workload::default() };
        let mut pauses = Pauses::new(&workload).expect("it rests");
        pauses.left = 0;
        pauses.rest(Clock::get());
        assert!(pauses.is_due());
    }
}
