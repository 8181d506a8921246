//! Token buckets: so many units a second, and so many at once.
//!
//! A bucket fills at its rate, up to a tenth of a second's worth or to what the largest request that waits asks for. A
//! request of `n` units goes through when `n` tokens are there, and takes them: it is paid for before it is made, so that a
//! limit of 3 MB/s does not let a chunk of 8 MiB through at once. Over any time `t` no more goes through than `rate·t` and
//! a tenth of a second's worth, or the largest request if that is more.

use std::time::Duration;

/// What a bucket holds, in seconds of its rate: short enough not to be seen as a burst by an application whose
/// latency matters, long enough for a thread that oversleeps to catch up.
const BURST_S: f64 = 0.1;

/// The shortest wait worth asking the kernel for; also what keeps rounding from asking for none at all.
const LEAST_WAIT: Duration = Duration::from_micros(1);

/// A token bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    rate: f64,
    level: f64,
    /// The largest request that waits, or the last that went through: a thread that is busy with one saves up for the next.
    largest: f64,
    at: Duration,
}

impl Bucket {
    /// With a tenth of a second's worth, at a rate in units a second; at least one.
    pub(super) fn new(rate: f64, now: Duration) -> Self {
        let rate = rate.max(1.0);
        Self { rate, level: rate * BURST_S, largest: 0.0, at: now }
    }

    /// Units a second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    fn capacity(&self) -> f64 {
        (self.rate * BURST_S).max(self.largest)
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + self.rate * passed).min(self.capacity());
        self.at = self.at.max(now);
    }

    /// Another rate from now on. What has been saved or is owed stays, up to the new capacity.
    pub(super) fn set_rate(&mut self, rate: f64, now: Duration) {
        self.refill(now);
        self.rate = rate.max(1.0);
        self.level = self.level.min(self.capacity());
    }

    /// How long until `n` units may go through; zero: now.
    pub(super) fn wait(&mut self, n: f64, now: Duration) -> Duration {
        self.refill(now);
        self.largest = self.largest.max(n);
        let lacking = n - self.level;
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
        self.largest = n;
    }

    /// `n` units go through beyond the limit. The bucket is charged, so that other requests make room, but owes a tenth
    /// of a second or this one request at most: later requests do not pay for the whole excess.
    pub(super) fn take_beyond(&mut self, n: f64, now: Duration) {
        self.refill(now);
        let most = (self.rate * BURST_S).max(n);
        self.level = (self.level - n).max((-most).min(self.level));
        self.largest = n;
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
        let bucket = |rate: Option<u64>| rate.map(|rate| Bucket::new(rate as f64, now));
        Self { bytes: bucket(bytes), ios: bucket(ios) }
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

    /// Both are charged; `beyond`: whether or not they are met.
    pub(super) fn take(&mut self, bytes: f64, ios: f64, beyond: bool, now: Duration) {
        for (bucket, n) in [(&mut self.bytes, bytes), (&mut self.ios, ios)] {
            if let Some(bucket) = bucket {
                if beyond { bucket.take_beyond(n, now) } else { bucket.take(n, now) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use stage::digest::CHUNK_BYTES;

    const CHUNK: f64 = CHUNK_BYTES as f64;

    /// How many units go through at a moment, in requests of `n`.
    fn at_once(bucket: &mut Bucket, n: f64, now: Duration) -> f64 {
        let mut through = 0.0;
        while bucket.wait(n, now) == Duration::ZERO {
            bucket.take(n, now);
            through += n;
        }
        through
    }

    #[test]
    fn what_goes_through_at_once_is_a_tenth_of_a_second_or_one_request() {
        let mut bucket = Bucket::new(3e6, Duration::ZERO);
        assert_eq!(at_once(&mut bucket.clone(), CHUNK, Duration::ZERO), 0.0, "a chunk is paid for first");
        assert!(at_once(&mut bucket, 1e4, Duration::ZERO) <= 0.3e6);
        // However long it was left alone.
        let later = Duration::from_secs(3600);
        assert!(at_once(&mut bucket, 1e4, later) <= 0.3e6);
        let wait = bucket.wait(CHUNK, later);
        assert!((wait.as_secs_f64() - CHUNK / 3e6).abs() < 0.01, "{wait:?}");
        assert_eq!(at_once(&mut bucket, CHUNK, later + 9 * wait), CHUNK);
    }

    #[test]
    fn a_thread_that_is_busy_between_two_requests_keeps_its_rate() {
        let mut bucket = Bucket::new(20e6, Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            now += bucket.wait(CHUNK, now);
            bucket.take(CHUNK, now);
            now += Duration::from_millis(300);
        }
        let rate = 100.0 * CHUNK / now.as_secs_f64();
        assert!((19.8e6..20.2e6).contains(&rate), "{rate}");
    }

    #[test]
    fn a_higher_rate_shortens_the_wait_that_is_under_way() {
        let mut bucket = Bucket::new(1e6, Duration::ZERO);
        bucket.take(2.0 * CHUNK, Duration::ZERO);
        let before = bucket.wait(CHUNK, Duration::ZERO);
        bucket.set_rate(1e9, Duration::ZERO);
        assert!(bucket.wait(1.0, Duration::ZERO) < before / 100);
    }

    #[test]
    fn what_goes_over_the_limit_is_owed_once_however_long_it_lasts() {
        let mut bucket = Bucket::new(1e6, Duration::ZERO);
        for _ in 0..1000 {
            bucket.take_beyond(CHUNK, Duration::ZERO);
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
            let mut bucket = Bucket::new(rate, now);
            let start = now;
            let (burst, mut through) = (rate * BURST_S, 0.0);
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
                let allowed = rate * (now - start).as_secs_f64() + burst;
                prop_assert!(through <= allowed * (1.0 + 1e-9) + 64.0, "{through} > {allowed}");
            }
        }

        #[test]
        fn who_waits_as_long_as_told_is_let_through(rate in 1.0_f64..1e11, bytes in 1.0_f64..1e9, owed in 0.0_f64..1e8) {
            let mut bucket = Bucket::new(rate, Duration::ZERO);
            bucket.take(owed, Duration::ZERO);
            let wait = bucket.wait(bytes, Duration::ZERO);
            prop_assert!(bucket.wait(bytes, wait + LEAST_WAIT) <= LEAST_WAIT);
        }
    }
}
