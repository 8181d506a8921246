//! Clocks of ranks: the offset of each from the root's, by the exchange of least delay (as NTP, RFC 5905, section 8).

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// CLOCK_MONOTONIC, nanoseconds: one clock for all processes of a node.
#[must_use]
pub fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// How far a rank's clock is ahead of the root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// The rank's time less the root's, nanoseconds.
    pub offset_ns: i64,
    /// The round trip that it was measured with, nanoseconds. The offset is right within half of it.
    pub round_trip_ns: i64,
}

impl ClockOffset {
    /// From one exchange: asked and answered by the root's clock, `theirs` by the rank's.
    pub(crate) fn of(asked_ns: i64, theirs_ns: i64, answered_ns: i64) -> Self {
        let round_trip_ns = answered_ns - asked_ns;
        Self { offset_ns: theirs_ns - asked_ns - round_trip_ns / 2, round_trip_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_is_right_within_half_of_the_round_trip() {
        assert_eq!(ClockOffset::of(100, 1150, 200), ClockOffset { offset_ns: 1000, round_trip_ns: 100 });
        // All of the delay on one way.
        assert_eq!(ClockOffset::of(100, 1200, 200).offset_ns, 1050);
    }
}
