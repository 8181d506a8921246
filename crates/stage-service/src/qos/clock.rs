//! Time, behind a trait, so that every test of pacing runs in virtual time.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One look at both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since some origin, steadily (CLOCK_MONOTONIC): what all pacing goes by.
    pub steady: Duration,
    /// Since 1970, as the machine believes at the moment (CLOCK_REALTIME): it may jump. Only deadlines look at it.
    pub wall: Duration,
}

/// Where the time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time.
    fn now(&self) -> Now;

    /// How long a thread that wants to wait for `most` of this clock's time has really to wait.
    fn patience(&self, most: Duration) -> Duration {
        most
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Now {
            steady: ORIGIN.get_or_init(Instant::now).elapsed(),
            // A clock before 1970 is a broken one; deadlines are then far away, as they are by that clock.
            wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }
}

/// A clock that advances only while a thread waits, or by hand.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct VirtualClock(std::sync::Mutex<Now>);

#[cfg(test)]
impl VirtualClock {
    pub(super) fn at(wall_s: u64) -> std::sync::Arc<Self> {
        let now = Now { steady: Duration::ZERO, wall: Duration::from_secs(wall_s) };
        std::sync::Arc::new(Self(std::sync::Mutex::new(now)))
    }

    pub(super) fn pass(&self, time: Duration) {
        let mut now = self.0.lock().unwrap();
        now.steady += time;
        now.wall += time;
    }
}

#[cfg(test)]
impl Clock for VirtualClock {
    fn now(&self) -> Now {
        *self.0.lock().unwrap()
    }

    fn patience(&self, most: Duration) -> Duration {
        self.pass(most);
        Duration::ZERO
    }
}
