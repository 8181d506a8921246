//! The clock of budgets and pauses, which tests replace.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time between a wish to stop and the end of a pause.
const STOP_LATENCY: Duration = Duration::from_millis(50);

/// A clock that can be waited on.
pub trait Timer {
    /// Time since some fixed moment.
    fn now(&self) -> Duration;

    /// Returns after `pause`, or soon after `stop` was set.
    fn wait(&self, pause: Duration, stop: &AtomicBool);
}

/// The machine's monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemTimer;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Timer for SystemTimer {
    fn now(&self) -> Duration {
        START.elapsed()
    }

    fn wait(&self, pause: Duration, stop: &AtomicBool) {
        let end = Instant::now() + pause;
        while !stop.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(STOP_LATENCY));
        }
    }
}
