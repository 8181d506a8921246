//! Printing figures for people, each with the name of its unit.

use std::time::Duration;

/// A byte count in powers of two: `4 KiB`, `1.5 GiB`, `512 B`.
#[must_use]
pub fn bytes(n: u64) -> String {
    whole_or_scaled(n as f64, 1024.0, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// Bytes in powers of ten, as storage is sold: `1.20 PB`, `320 GB`, `2 TB`.
#[must_use]
pub fn decimal_bytes(n: f64) -> String {
    whole_or_scaled(n, 999.5, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// A value in the first unit in which it is below `limit`, a whole one without digits behind the point.
fn whole_or_scaled(mut value: f64, limit: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= limit && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let number = if value.fract() == 0.0 { format!("{value:.0}") } else { three_digits(value) };
    format!("{number} {}", units[unit])
}

/// A byte count as fio would have it typed, exact: `4k`, `4m`, `1g`, `1000`.
#[must_use]
pub fn bytes_short(n: u64) -> String {
    for (shift, suffix) in [(50, "p"), (40, "t"), (30, "g"), (20, "m"), (10, "k")] {
        if n != 0 && n.trailing_zeros() >= shift {
            return format!("{}{suffix}", n >> shift);
        }
    }
    n.to_string()
}

/// A bandwidth given in bytes per second, in powers of ten: `1.39 GB/s`, `512 MB/s`.
#[must_use]
pub fn bandwidth(bytes_per_second: f64) -> String {
    decimal(bytes_per_second, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// Operations per second: `93.1k IOPS`, `1.21M IOPS`.
#[must_use]
pub fn iops(per_second: f64) -> String {
    format!("{} IOPS", scaled(per_second))
}

/// A plain count, scaled by powers of ten: `16.8k`, `93`.
#[must_use]
pub fn count(n: f64) -> String {
    scaled(n)
}

/// A number of things: `1 block`, `12 blocks`. The plural of the noun is made with an s.
#[must_use]
pub fn counted(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// A time given in nanoseconds: `830 ns`, `81.2 µs`, `12.5 ms`, `2.01 s`.
#[must_use]
pub fn nanoseconds(ns: f64) -> String {
    decimal(ns, &["ns", "µs", "ms", "s"])
}

/// A duration for a progress line: `0.5 s`, `42 s`, `3 min 05 s`, `46 h 40 min`.
#[must_use]
pub fn seconds(duration: Duration) -> String {
    let total = duration.as_secs_f64();
    if total < 9.95 {
        return format!("{total:.1} s");
    }
    let whole = total.round() as u64;
    match whole {
        0..=59 => format!("{whole} s"),
        60..=3599 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A ratio as a percentage: `0.0315` is `3.2 %`.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let value = ratio * 100.0;
    if value.abs() >= 99.95 { format!("{value:.0} %") } else { format!("{value:.1} %") }
}

fn scaled(n: f64) -> String {
    decimal_with(n, &["", "k", "M", "G"], "")
}

fn decimal(value: f64, units: &[&str]) -> String {
    decimal_with(value, units, " ")
}

fn decimal_with(value: f64, units: &[&str], gap: &str) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let mut scaled = value;
    let mut unit = 0;
    // 999.5 would print as 1000 of the smaller unit.
    while scaled.abs() >= 999.5 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let number =
        if unit == 0 && scaled.fract() == 0.0 { format!("{scaled:.0}") } else { three_digits(scaled) };
    format!("{number}{gap}{}", units[unit]).trim_end().to_owned()
}

/// Three significant digits, which is more than any of these figures repeats to.
fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_name_their_units() {
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(decimal_bytes(1.2e15), "1.20 PB");
        assert_eq!(decimal_bytes(2e12), "2 TB");
        assert_eq!(decimal_bytes(999_600.0), "1.00 MB");
        assert_eq!(bytes_short(4 << 20), "4m");
        assert_eq!(bytes_short(1000), "1000");
        assert_eq!(bandwidth(1.39e9), "1.39 GB/s");
        assert_eq!(iops(93_100.0), "93.1k IOPS");
        assert_eq!(iops(42.0), "42 IOPS");
        assert_eq!(nanoseconds(81_200.0), "81.2 µs");
        assert_eq!(nanoseconds(999_600.0), "1.00 ms");
        assert_eq!(nanoseconds(830.0), "830 ns");
        assert_eq!(percent(0.0315), "3.1 %");
        assert_eq!(seconds(Duration::from_secs(168_000)), "46 h 40 min");
        assert_eq!(seconds(Duration::from_millis(500)), "0.5 s");
        assert_eq!(bandwidth(f64::NAN), "–");
    }
}
