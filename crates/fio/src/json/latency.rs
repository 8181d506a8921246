//! Histograms in fio's terms.
//!
//! The buckets are fio's own (`stat.h`: 64 to an octave above 128 ns); fio names one by the mean of its
//! range, for percentiles and for bins alike, and puts everything from 17.0 s upwards into its last.

use measure::Histogram;
use measure::histogram::Bucket;
use serde::Serialize;

use super::common::OrderedMap;

/// fio's last bucket (`FIO_IO_U_PLAT_NR` = 29 · 64): where it begins, and its name.
const LAST_FROM_NS: u64 = (1 << 33) + (63 << 27);
const LAST_NAME_NS: u64 = LAST_FROM_NS + (1 << 26);

/// `clat_ns` and its like.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Latency {
    /// Smallest, nanoseconds.
    pub min: u64,
    /// Largest, nanoseconds.
    pub max: u64,
    /// Mean, nanoseconds.
    pub mean: f64,
    /// Standard deviation, nanoseconds.
    pub stddev: f64,
    /// How many were counted.
    #[serde(rename = "N")]
    pub count: u64,
    /// Percentile to nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<OrderedMap<u64>>,
    /// Nanoseconds to count; json+ only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bins: Option<OrderedMap<u64>>,
}

/// Moments only.
pub(super) fn moments(histogram: &Histogram) -> Latency {
    Latency {
        min: histogram.min(),
        max: histogram.max(),
        mean: histogram.mean(),
        stddev: histogram.stddev(),
        count: histogram.count(),
        percentile: None,
        bins: None,
    }
}

/// Moments, percentiles and, where `plus`, bins; like fio without the latter two where nothing was
/// counted.
pub(super) fn full(histogram: &Histogram, percentiles: &[f64], plus: bool) -> Latency {
    if histogram.count() == 0 {
        return moments(histogram);
    }
    let bins = bins(histogram);
    let percentile = OrderedMap(
        percentiles.iter().map(|p| (format!("{p:.6}"), percentile(&bins, *p, histogram.count()))).collect(),
    );
    Latency {
        percentile: Some(percentile),
        bins: plus.then(|| OrderedMap(bins.into_iter().map(|(ns, n)| (ns.to_string(), n)).collect())),
        ..moments(histogram)
    }
}

/// fio's name for a bucket, nanoseconds.
fn name(bucket: &Bucket) -> u64 {
    if bucket.lower_ns >= LAST_FROM_NS {
        return LAST_NAME_NS;
    }
    bucket.lower_ns + (bucket.upper_ns - bucket.lower_ns).div_ceil(2)
}

/// The buckets that are not empty by fio's name, ascending.
fn bins(histogram: &Histogram) -> Vec<(u64, u64)> {
    let mut bins: Vec<(u64, u64)> = Vec::new();
    for bucket in histogram.buckets() {
        let name = name(&bucket);
        match bins.last_mut() {
            Some((last, count)) if *last == name => *count += bucket.count,
            _ => bins.push((name, bucket.count)),
        }
    }
    bins
}

/// The name of the first bucket with which `percentile` percent are counted.
fn percentile(bins: &[(u64, u64)], percentile: f64, count: u64) -> u64 {
    let wanted = percentile / 100.0 * count as f64;
    let mut seen = 0;
    for (name, n) in bins {
        seen += n;
        if seen as f64 >= wanted {
            return *name;
        }
    }
    bins.last().map_or(0, |(name, _)| *name)
}

/// Upper ends of fio's coarse distribution, in each of ns, us and ms.
const COARSE: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// `latency_ns`, `latency_us`, `latency_ms`: percent of all requests between the one key and the next.
/// A bucket that straddles an end counts where its middle lies, at most 1/128 away.
pub(super) fn coarse(histogram: &Histogram) -> [OrderedMap<f64>; 3] {
    let mut ns = [0u64; 10];
    let mut us = [0u64; 10];
    let mut ms = [0u64; 12];
    for bucket in histogram.buckets() {
        let middle = name(&bucket);
        let slot = |value: u64| COARSE.partition_point(|end| *end <= value).min(9);
        match middle {
            0..1_000 => ns[slot(middle)] += bucket.count,
            1_000..1_000_000 => us[slot(middle / 1_000)] += bucket.count,
            _ => match middle / 1_000_000 {
                2000.. => ms[11] += bucket.count,
                1000.. => ms[10] += bucket.count,
                value => ms[slot(value)] += bucket.count,
            },
        }
    }
    let total = histogram.count();
    let ends = || COARSE.iter().map(u64::to_string);
    let shares = |names: Vec<String>, counts: &[u64]| {
        OrderedMap(names.into_iter().zip(counts.iter().map(|n| percent(*n, total))).collect())
    };
    let beyond = ["2000".to_owned(), ">=2000".to_owned()];
    [
        shares(ends().collect(), &ns),
        shares(ends().collect(), &us),
        shares(ends().chain(beyond).collect(), &ms),
    ]
}

/// `part` of `total` in percent; 0 of nothing.
pub(super) fn percent(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 * 100.0 / total as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    /// Names that fio 3.33 printed for these latencies.
    #[test]
    fn a_bucket_has_the_name_that_fio_gives_it() {
        for (value, expected) in [(127, 127), (128, 129), (458, 458), (459, 458), (3_700_190, 3_686_400)] {
            assert_eq!(bins(&of(&[value])), [(expected, 1)], "{value}");
        }
    }

    #[test]
    fn what_lies_beyond_fios_last_bucket_is_counted_in_it() {
        let bins = bins(&of(&[17_045_651_455, 17_045_651_456, 17_200_000_000, 60_000_000_000, u64::MAX]));
        assert_eq!(bins.len(), 2);
        assert_eq!(bins[1], (17_112_760_320, 4));
    }

    #[test]
    fn nothing_counted_has_neither_percentiles_nor_bins() {
        let latency = full(&Histogram::new(), &[50.0], true);
        assert!(latency.percentile.is_none() && latency.bins.is_none());
    }

    #[test]
    fn the_coarse_distribution_comes_to_a_hundred_percent() {
        let values = [1, 2, 3, 999, 1000, 1999, 2000, 999_000, 1_000_000, 1_500_000_000, 3_000_000_000];
        let parts = coarse(&of(&values));
        let sum: f64 = parts.iter().flat_map(|shares| &shares.0).map(|(_, percent)| percent).sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
        let of = |part: usize, key: &str| {
            parts[part].0.iter().find(|(name, _)| name == key).map(|(_, p)| (p * 11.0 / 100.0).round())
        };
        assert_eq!(of(0, "2"), Some(1.0));
        assert_eq!(of(0, "4"), Some(2.0));
        assert_eq!(of(0, "1000"), Some(1.0));
        assert_eq!(of(2, "2000"), Some(1.0));
        assert_eq!(of(2, ">=2000"), Some(1.0));
    }
}
