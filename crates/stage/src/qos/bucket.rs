//! Token buckets: so many units a second, and so many at once.
//!
//! A request of `n` units goes through when `min(n, burst)` tokens are there, and takes `n`. One that is larger than
//! the burst therefore waits for a full bucket, leaves it in debt, and the next pays: none is too large to ever be let
//! through. Over any time `t` no more goes through than `rate·t + burst`, and once what the largest request has beyond
//! the burst.

use std::time::Duration;

use crate::digest::CHUNK_BYTES;

/// What a bucket holds, in seconds of its rate: short enough not to be seen as a burst by an application whose
/// latency matters, long enough for a thread that oversleeps to catch up.
const BURST_S: f64 = 0.1;

/// The shortest wait worth asking the kernel for; also what keeps rounding from asking for none at all.
const LEAST_WAIT: Duration = Duration::from_micros(1);

/// A token bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    rate: f64,
    /// The smallest burst, however low the rate: one request of the usual size.
    least: f64,
    level: f64,
    at: Duration,
}

impl Bucket {
    /// Full, at a rate in units a second; at least one.
    pub(super) fn new(rate: f64, least: f64, now: Duration) -> Self {
        let mut bucket = Self { rate: rate.max(1.0), least, level: 0.0, at: now };
        bucket.level = bucket.burst();
        bucket
    }

    /// Of bytes: it holds at least one chunk.
    pub(super) fn of_bytes(rate: f64, now: Duration) -> Self {
        Self::new(rate, CHUNK_BYTES as f64, now)
    }

    /// Of requests: it holds at least one.
    pub(super) fn of_ios(rate: f64, now: Duration) -> Self {
        Self::new(rate, 1.0, now)
    }

    /// Units a second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    fn burst(&self) -> f64 {
        (self.rate * BURST_S).max(self.least)
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + self.rate * passed).min(self.burst());
        self.at = self.at.max(now);
    }

    /// Another rate from now on. What has been saved or is owed stays, up to the new burst.
    pub(super) fn set_rate(&mut self, rate: f64, now: Duration) {
        self.refill(now);
        self.rate = rate.max(1.0);
        self.level = self.level.min(self.burst());
    }

    /// How long until `n` units may go through; zero: now.
    pub(super) fn wait(&mut self, n: f64, now: Duration) -> Duration {
        self.refill(now);
        let lacking = n.min(self.burst()) - self.level;
        // Half a unit is below what a sum of floating-point refills can be wrong by.
        if lacking <= 0.5 {
            Duration::ZERO
        } else {
            Duration::try_from_secs_f64(lacking / self.rate).unwrap_or(Duration::MAX).max(LEAST_WAIT)
        }
    }

    /// `n` units go through.
    pub(super) fn take(&mut self, n: f64, now: Duration) {
        self.refill(now);
        self.level -= n;
    }

    /// `n` units go through although they may not. The bucket remembers it, so that others make room, but no more
    /// than one burst or this one request of it: what went over the limit is not held against those who come later.
    pub(super) fn take_over(&mut self, n: f64, now: Duration) {
        self.refill(now);
        let most = self.burst().max(n);
        self.level = (self.level - n).max((-most).min(self.level));
    }
}

/// A limit on bytes and one on requests, either of which may be absent.
#[derive(Debug, Clone, Default)]
pub(super) struct Limits {
    pub(super) bytes: Option<Bucket>,
    pub(super) ios: Option<Bucket>,
}

/// Which of the two is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Bytes,
    Ios,
}

impl Limits {
    pub(super) fn new(bytes: Option<u64>, ios: Option<u64>, now: Duration) -> Self {
        let mut limits = Self::default();
        limits.set(bytes, ios, now);
        limits
    }

    /// Sets both, keeping what each has saved or owes.
    pub(super) fn set(&mut self, bytes: Option<u64>, ios: Option<u64>, now: Duration) {
        Self::renew(&mut self.bytes, bytes, Bucket::of_bytes, now);
        Self::renew(&mut self.ios, ios, Bucket::of_ios, now);
    }

    fn renew(
        bucket: &mut Option<Bucket>,
        rate: Option<u64>,
        made: fn(f64, Duration) -> Bucket,
        now: Duration,
    ) {
        match (rate.map(|rate| rate as f64), bucket.as_mut()) {
            (Some(rate), Some(bucket)) => bucket.set_rate(rate, now),
            (Some(rate), None) => *bucket = Some(made(rate, now)),
            (None, _) => *bucket = None,
        }
    }

    /// How long until both are met, and which is met last; none: now.
    pub(super) fn wait(&mut self, bytes: f64, ios: f64, now: Duration) -> Option<(Duration, Which)> {
        let of_bytes = self.bytes.as_mut().map_or(Duration::ZERO, |bucket| bucket.wait(bytes, now));
        let of_ios = self.ios.as_mut().map_or(Duration::ZERO, |bucket| bucket.wait(ios, now));
        match of_bytes.max(of_ios) {
            Duration::ZERO => None,
            longest if longest == of_bytes => Some((longest, Which::Bytes)),
            longest => Some((longest, Which::Ios)),
        }
    }

    /// Both are charged; `over`: whether or not they are met.
    pub(super) fn take(&mut self, bytes: f64, ios: f64, over: bool, now: Duration) {
        for (bucket, n) in [(&mut self.bytes, bytes), (&mut self.ios, ios)] {
            if let Some(bucket) = bucket {
                if over { bucket.take_over(n, now) } else { bucket.take(n, now) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: f64 = CHUNK_BYTES as f64;

    #[test]
    fn a_request_larger_than_the_burst_goes_into_debt_and_is_let_through() {
        let mut bucket = Bucket::of_bytes(1e6, Duration::ZERO);
        assert_eq!(bucket.wait(10.0 * CHUNK, Duration::ZERO), Duration::ZERO);
        bucket.take(10.0 * CHUNK, Duration::ZERO);
        let owed = bucket.wait(CHUNK, Duration::ZERO).as_secs_f64();
        assert!((owed - 10.0 * CHUNK / 1e6).abs() < 1e-3, "{owed}");
    }

    #[test]
    fn a_higher_rate_shortens_the_wait_that_is_under_way() {
        let mut bucket = Bucket::of_bytes(1e6, Duration::ZERO);
        bucket.take(2.0 * CHUNK, Duration::ZERO);
        let before = bucket.wait(CHUNK, Duration::ZERO);
        bucket.set_rate(1e9, Duration::ZERO);
        assert!(bucket.wait(1.0, Duration::ZERO) < before / 100);
    }

    #[test]
    fn what_goes_over_the_limit_is_owed_once_however_long_it_lasts() {
        let mut bucket = Bucket::of_bytes(1e6, Duration::ZERO);
        for _ in 0..1000 {
            bucket.take_over(CHUNK, Duration::ZERO);
        }
        assert!(bucket.wait(CHUNK, Duration::ZERO).as_secs_f64() <= 2.0 * CHUNK / 1e6 + 1e-3);
    }

    proptest! {
        #[test]
        fn no_more_goes_through_than_rate_and_burst_allow(
            rate in 1e3_f64..1e10,
            requests in prop::collection::vec((1.0_f64..6.4e7, 0u64..2_000_000_000), 1..60),
        ) {
            let mut now = Duration::from_secs(5);
            let mut bucket = Bucket::of_bytes(rate, now);
            let start = now;
            let (burst, mut through, mut largest) = (bucket.burst(), 0.0, 0.0_f64);
            for (bytes, pause_ns) in requests {
                now += Duration::from_nanos(pause_ns);
                loop {
                    match bucket.wait(bytes, now) {
                        Duration::ZERO => break,
                        wait => now += wait,
                    }
                }
                bucket.take(bytes, now);
                through += bytes;
                largest = largest.max(bytes);
                let allowed = rate * (now - start).as_secs_f64() + burst + (largest - burst).max(0.0);
                prop_assert!(through <= allowed * (1.0 + 1e-9) + 64.0, "{through} > {allowed}");
            }
        }

        #[test]
        fn who_waits_as_long_as_told_is_let_through(rate in 1.0_f64..1e11, bytes in 1.0_f64..1e9, owed in 0.0_f64..1e8) {
            let mut bucket = Bucket::of_bytes(rate, Duration::ZERO);
            bucket.take(owed, Duration::ZERO);
            let wait = bucket.wait(bytes, Duration::ZERO);
            prop_assert!(bucket.wait(bytes, wait + LEAST_WAIT) <= LEAST_WAIT);
        }
    }
}
