//! A server without room is asked again after pauses.

use std::time::{Duration, Instant};

/// The first pause, and the longest, but for sets that it takes long to look at.
pub const PAUSE: Duration = Duration::from_millis(500);
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The server had no room when it was asked last.
#[derive(Debug)]
pub struct Full {
    pause: Duration,
    again: Instant,
}

impl Full {
    /// A look at a set may read all of it: the pause is many times as long as it took, and grows.
    pub fn after(before: Option<&Self>, took: Duration) -> Self {
        let longer = before.map_or(Duration::ZERO, |full| 2 * full.pause);
        let pause = longer.clamp(PAUSE, PAUSE_MAX).max(10 * took);
        Self { pause, again: Instant::now() + pause }
    }

    /// Is it too early to ask again?
    pub fn lasts(&self) -> bool {
        Instant::now() < self.again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_longer_than_the_looks() {
        let first = Full::after(None, Duration::ZERO);
        assert!(first.lasts());
        assert_eq!(first.pause, PAUSE);
        assert_eq!(Full::after(Some(&first), Duration::ZERO).pause, 2 * PAUSE);
        let long = Full { pause: PAUSE_MAX, again: Instant::now() };
        assert!(!long.lasts());
        assert_eq!(Full::after(Some(&long), Duration::ZERO).pause, PAUSE_MAX);
        assert_eq!(Full::after(Some(&long), PAUSE_MAX).pause, 10 * PAUSE_MAX);
    }
}
