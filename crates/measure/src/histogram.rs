//! A latency histogram with bounded relative error: HDR-style, integers only.
//!
//! Values below 128 ns have a bucket each; above, every power of two is cut into 64 equal buckets,
//! so a bucket is at most 1/64 (1.6 %) of its value wide. That is the geometry of fio's own
//! histograms (`stat.h`, `FIO_IO_U_PLAT_BITS` = 6), which makes the two comparable bucket by bucket.
//! Recording is a shift, an add and an increment, without a branch beyond the first octave.
//!
//! A percentile is reported as the *upper* edge of the bucket that holds it, never above the
//! largest value seen: the figure may err upwards by one bucket, and never flatters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const SUB_BITS: u32 = 6;
const SUB: u64 = 1 << SUB_BITS;
/// Buckets for the whole of `u64`.
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) * SUB as usize;

/// Counts of latencies in nanoseconds, with exact count, sum, minimum and maximum.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

/// The bucket that holds `value`.
#[inline]
fn index(value: u64) -> usize {
    // Setting the lowest sub-bucket bit keeps the first two octaves linear without a branch.
    let shift = (63 - (value | SUB).leading_zeros()) - SUB_BITS;
    ((u64::from(shift) << SUB_BITS) + (value >> shift)) as usize
}

/// The largest value that falls into bucket `index`.
fn upper_edge(index: usize) -> u64 {
    lower_edge(index + 1).wrapping_sub(1)
}

/// The smallest value that falls into bucket `index`.
fn lower_edge(index: usize) -> u64 {
    let index = index as u64;
    if index < 2 * SUB {
        return index;
    }
    let shift = (index >> SUB_BITS) - 1;
    // The bucket after the last one begins past u64; wrapping makes its predecessor end at u64::MAX.
    (SUB + (index & (SUB - 1))).checked_shl(shift as u32).filter(|_| shift <= 57).unwrap_or(0)
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one latency of `ns` nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[index(ns)] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Counts `n` latencies of `ns` nanoseconds each.
    #[inline]
    pub fn record_n(&mut self, ns: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.counts[index(ns)] += n;
        self.count += n;
        self.sum += u128::from(ns) * u128::from(n);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// How many latencies were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest latency in nanoseconds; 0 where nothing was counted.
    #[must_use]
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest latency in nanoseconds; 0 where nothing was counted.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The exact arithmetic mean in nanoseconds; 0 where nothing was counted.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The standard deviation in nanoseconds, from the buckets' middles.
    #[must_use]
    pub fn stddev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 = self
            .buckets()
            .map(|b| {
                let middle = (b.lower_ns as f64 + b.upper_ns as f64) / 2.0;
                (middle - mean).powi(2) * b.count as f64
            })
            .sum();
        (squares / (self.count - 1) as f64).sqrt()
    }

    /// The latency that `percentile` percent (0–100) of the requests did not exceed, in nanoseconds:
    /// the upper edge of its bucket, never above the largest value seen.
    #[must_use]
    pub fn percentile(&self, percentile: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let rank = ((percentile / 100.0 * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (i, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return upper_edge(i).min(self.max);
            }
        }
        self.max
    }

    /// The buckets that are not empty, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| Bucket {
            lower_ns: lower_edge(i),
            upper_ns: upper_edge(i),
            count: *n,
        })
    }
}

/// One bucket: `count` latencies between `lower_ns` and `upper_ns`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest latency that falls in, nanoseconds.
    pub lower_ns: u64,
    /// Largest latency that falls in, nanoseconds.
    pub upper_ns: u64,
    /// How many did.
    pub count: u64,
}

/// How a histogram stands in data: exact moments, and `[lower edge in ns, count]` for each bucket
/// that is not empty.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Histogram")]
struct Stored {
    /// Latencies counted.
    count: u64,
    /// Their exact sum, nanoseconds.
    sum_ns: u64,
    /// Smallest, nanoseconds.
    min_ns: u64,
    /// Largest, nanoseconds.
    max_ns: u64,
    /// `[lower edge in nanoseconds, count]`; an octave has 64 buckets.
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Stored {
            count: self.count,
            sum_ns: u64::try_from(self.sum).unwrap_or(u64::MAX),
            min_ns: self.min(),
            max_ns: self.max,
            buckets: self.buckets().map(|b| (b.lower_ns, b.count)).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Stored::deserialize(deserializer)?;
        let mut histogram = Self::new();
        let mut count: u64 = 0;
        for (lower, n) in stored.buckets {
            histogram.counts[index(lower)] += n;
            count = count.checked_add(n).ok_or_else(|| serde::de::Error::custom("bucket counts overflow"))?;
        }
        if count != stored.count {
            return Err(serde::de::Error::custom("bucket counts do not add up to count"));
        }
        histogram.count = count;
        histogram.sum = u128::from(stored.sum_ns);
        histogram.min = if count == 0 { u64::MAX } else { stored.min_ns };
        histogram.max = stored.max_ns;
        Ok(histogram)
    }
}

impl JsonSchema for Histogram {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Stored::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Stored::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_tile_the_whole_range_without_gap_or_overlap() {
        for i in 0..BUCKETS {
            assert_eq!(index(lower_edge(i)), i);
            assert_eq!(index(upper_edge(i)), i);
        }
        assert_eq!(upper_edge(BUCKETS - 1), u64::MAX);
        assert_eq!(index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn an_empty_histogram_reports_zeros() {
        let h = Histogram::new();
        assert_eq!((h.percentile(99.0), h.min(), h.max(), h.count()), (0, 0, 0, 0));
        assert_eq!(h.mean(), 0.0);
    }

    proptest! {
        #[test]
        fn a_percentile_errs_upwards_by_at_most_one_bucket(
            mut values in proptest::collection::vec(0u64..10_000_000_000, 1..400),
            p in 0.0f64..100.0,
        ) {
            let mut h = Histogram::new();
            for v in &values {
                h.record(*v);
            }
            values.sort_unstable();
            let rank = ((p / 100.0 * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let got = h.percentile(p);
            prop_assert!(got >= exact);
            prop_assert!(got as f64 <= exact as f64 * (1.0 + 1.0 / 64.0) + 1.0);
            prop_assert_eq!(h.max(), *values.last().unwrap());
        }

        #[test]
        fn merging_equals_recording_together(
            a in proptest::collection::vec(any::<u64>(), 0..50),
            b in proptest::collection::vec(any::<u64>(), 0..50),
        ) {
            let record = |values: &[u64]| {
                let mut h = Histogram::new();
                values.iter().for_each(|v| h.record(*v));
                h
            };
            let mut merged = record(&a);
            merged.merge(&record(&b));
            prop_assert_eq!(merged, record(&[a, b].concat()));
        }

        #[test]
        fn data_read_back_is_the_same_histogram(
            values in proptest::collection::vec(0u64..1_000_000_000_000, 0..100),
        ) {
            let mut h = Histogram::new();
            values.iter().for_each(|v| h.record(*v));
            let text = serde_json::to_string(&h).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), h);
        }
    }
}
