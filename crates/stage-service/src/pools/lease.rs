//! How long a reservation lasts: a day of real time, whatever the clock is set to.
//!
//! The wall clock may be set, so within one boot a lease ends by the machine's uptime (CLOCK_BOOTTIME), which cannot be set,
//! is the same for all processes, and goes on while the machine sleeps. Uptime begins anew with each boot. The first
//! process that reads a lease of an earlier boot gives it what the wall clock says is left of it, and a day at most, so that
//! a clock that went back does not make it last for ever. Its end by the wall clock is recorded beside it, for
//! that and to be shown, and recorded again when the clock has been set.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// It lasts so long, unless it is renewed.
pub(super) const LEASE: Duration = Duration::from_secs(24 * 3600);

/// A difference between the two clocks that is more than rounding.
const SET_S: u64 = 2;

/// A time of one boot that nothing sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Uptime {
    /// Which boot (/proc/sys/kernel/random/boot_id).
    pub(super) boot: String,
    /// Seconds since it.
    pub(super) seconds: u64,
}

/// When a reservation goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    /// By the wall clock, seconds since 1970.
    pub(super) expires: u64,
    /// By the boot's own time; none: this machine does not say.
    pub(super) until: Option<Uptime>,
}

impl Lease {
    /// One that begins now, by both clocks.
    pub(super) fn begin(wall: u64, now: Option<&Uptime>) -> Self {
        Self::left(LEASE.as_secs(), wall, now)
    }

    fn left(seconds: u64, wall: u64, now: Option<&Uptime>) -> Self {
        let at =
            |now: &Uptime| Uptime { boot: now.boot.clone(), seconds: now.seconds.saturating_add(seconds) };
        Self { expires: wall.saturating_add(seconds), until: now.map(at) }
    }

    /// None once it has ended; otherwise the lease, corrected if the clock was set.
    pub(super) fn now(&self, wall: u64, now: Option<&Uptime>) -> Option<Self> {
        let left = match (&self.until, now) {
            (Some(until), Some(now)) if until.boot == now.boot => until.seconds.checked_sub(now.seconds)?,
            _ => self.expires.checked_sub(wall)?.min(LEASE.as_secs()),
        };
        if left == 0 {
            return None;
        }
        let anew = Self::left(left, wall, now);
        let same = self.until == anew.until && self.expires.abs_diff(anew.expires) < SET_S;
        Some(if same { self.clone() } else { anew })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn up(boot: &str, seconds: u64) -> Uptime {
        Uptime { boot: boot.to_owned(), seconds }
    }

    fn at(lease: &Lease, wall: u64, boot: &str, seconds: u64) -> Option<Lease> {
        lease.now(wall, Some(&up(boot, seconds)))
    }

    #[test]
    fn a_clock_that_is_set_neither_ends_a_lease_nor_prolongs_it() {
        let lease = Lease::begin(1_000_000, Some(&up("a", 50)));
        assert_eq!(at(&lease, 1_000_010, "a", 60), Some(lease.clone()), "nothing to be noted");
        let forward =
            at(&lease, 1_000_000 + 2 * DAY, "a", 60).expect("a day has not passed after ten seconds");
        assert_eq!((forward.expires, &forward.until), (1_000_000 + 3 * DAY - 10, &lease.until));
        let back = at(&forward, 1_000_000 - DAY, "a", 60).unwrap();
        assert_eq!((back.expires, &back.until), (1_000_000 - 10, &lease.until));
        assert!(at(&back, 1_000_000 - 2, "a", 49 + DAY).is_some());
        assert_eq!(at(&back, 1_000_000 - 9 * DAY, "a", 50 + DAY), None, "set back, and ended all the same");
    }

    #[test]
    fn after_a_restart_the_wall_clock_says_what_is_left_and_never_more_than_a_day() {
        let lease = Lease::begin(1_000_000, Some(&up("a", 5_000_000)));
        let there = at(&lease, 1_000_000 + DAY / 4, "b", 3).unwrap();
        assert_eq!(there.until, Some(up("b", 3 + DAY * 3 / 4)));
        assert_eq!(there.expires, lease.expires);
        assert_eq!(at(&lease, 1_000_000 + DAY, "b", 3), None);
        let back = at(&lease, 500_000, "b", 3).unwrap();
        assert_eq!((back.expires, back.until), (500_000 + DAY, Some(up("b", 3 + DAY))));
        let of_an_older_ledger = Lease { until: None, ..lease };
        assert_eq!(at(&of_an_older_ledger, 1_000_000 + DAY / 4, "b", 3), Some(there));
    }
}
