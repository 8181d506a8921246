//! When it must be durable: the least rate that still gets there.
//!
//! `needed = remaining bytes / (time left − margin)`, recomputed at every request, times a safety factor. A job goes
//! at whatever its limits allow, or at this, whichever is more: as long as the limits suffice nothing is raised, and
//! when they no longer do (a governor has backed off, a limit was lowered, more files were found), the rate is raised to
//! the least that suffices from there on. Any later would need a higher one.
//!
//! The margin is left for what is not paced: reading back, fsync, publishing. Within it, and after the deadline, there
//! is no limit at all: what is late shall not be later than it must.
//!
//! **A clock that jumps.** A deadline is a time of the wall clock; it is turned into steady time when the job starts.
//! The wall clock may be slewed (NTP) without harm: it is looked at with each request, and only when it is a second or
//! more off from where it should be, has it been set, and the deadline is turned into steady time anew: it is what the
//! clock says now that counts. A clock set forward past the deadline has the job run at full speed, one set back gives it
//! time; both are noted.

use std::time::Duration;

use super::clock::Now;

/// The rate is raised by this much above what is needed, against what goes slower than it might.
pub(super) const SAFETY: f64 = 1.1;

/// Kept free at the end: this share of the time from start to deadline, and at least a second.
const MARGIN_SHARE: f64 = 0.05;
const MARGIN_LEAST: Duration = Duration::from_secs(1);

/// A difference between the wall clock and steady time that is a jump, and no slew.
const JUMP: Duration = Duration::from_secs(1);

/// A deadline in steady time.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    /// By the wall clock.
    at: Duration,
    /// Both clocks when they were last compared with consequences.
    anchor: Now,
    margin: Duration,
    /// The last jump, seconds; positive is forward.
    pub(super) jumped: Option<f64>,
}

impl Deadline {
    /// Of a job that starts now.
    pub(super) fn new(seconds_since_1970: u64, now: Now) -> Self {
        let at = Duration::from_secs(seconds_since_1970);
        let margin = at.saturating_sub(now.wall).mul_f64(MARGIN_SHARE).max(MARGIN_LEAST);
        Self { at, anchor: now, margin, jumped: None }
    }

    /// Seconds left; negative once it has passed.
    pub(super) fn left_s(&mut self, now: Now) -> f64 {
        let passed = now.steady.saturating_sub(self.anchor.steady);
        let off = now.wall.as_secs_f64() - (self.anchor.wall + passed).as_secs_f64();
        if off.abs() >= JUMP.as_secs_f64() {
            self.anchor = now;
            self.jumped = Some(off);
        }
        let passed = now.steady.saturating_sub(self.anchor.steady);
        self.at.as_secs_f64() - (self.anchor.wall + passed).as_secs_f64()
    }

    /// Bytes a second that it takes, with the safety factor; infinite when there is no time left to divide by.
    pub(super) fn needed(&mut self, remaining: u64, now: Now) -> f64 {
        let left = self.left_s(now) - self.margin.as_secs_f64();
        if left <= 0.0 { f64::INFINITY } else { remaining as f64 / left * SAFETY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(steady: u64, wall: u64) -> Now {
        Now { steady: Duration::from_secs(steady), wall: Duration::from_secs(wall) }
    }

    #[test]
    fn what_is_needed_grows_as_time_goes_by_and_falls_as_bytes_are_moved() {
        let mut deadline = Deadline::new(1_000_100, at(50, 1_000_000));
        let first = deadline.needed(95_000, at(50, 1_000_000));
        assert!((first - 1000.0 * SAFETY).abs() < 1e-6, "{first}");
        assert!(deadline.needed(95_000, at(90, 1_000_040)) > first);
        assert!(deadline.needed(10_000, at(90, 1_000_040)) < first);
    }

    #[test]
    fn within_the_margin_and_after_the_deadline_there_is_no_limit() {
        let mut deadline = Deadline::new(1_000_100, at(0, 1_000_000));
        assert!(deadline.needed(1, at(94, 1_000_094)).is_finite());
        assert!(deadline.needed(1, at(95, 1_000_095)).is_infinite());
        assert!(deadline.needed(1, at(500, 1_000_500)).is_infinite());
    }

    #[test]
    fn a_clock_that_is_slewed_is_left_alone_and_one_that_is_set_counts() {
        let mut deadline = Deadline::new(1_001_000, at(0, 1_000_000));
        let slewed = Now { steady: Duration::from_secs(100), wall: Duration::from_millis(1_000_100_900) };
        assert!((deadline.left_s(slewed) - 900.0).abs() < 1e-6);
        assert_eq!(deadline.jumped, None);
        assert!((deadline.left_s(at(100, 1_000_900)) - 100.0).abs() < 1e-6, "set forward");
        assert_eq!(deadline.jumped, Some(800.0));
        assert!((deadline.left_s(at(101, 999_001)) - 1999.0).abs() < 1e-6, "set back");
        assert!((deadline.left_s(at(201, 999_101)) - 1899.0).abs() < 1e-6, "and goes on from there");
    }
}
