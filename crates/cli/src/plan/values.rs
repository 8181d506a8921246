//! The values of `plan`'s flags.
//!
//! Storage is sold in powers of ten, so `TB` is one here, as it is in the rates of `stage`; `t` and `TiB` are powers of
//! 1024 as everywhere.

use std::path::{Path, PathBuf};

use crate::values::BadValue;

/// A rate, or what was measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Bandwidth {
    /// Bytes per second.
    Rate(f64),
    /// A file or directory of results.
    Results(PathBuf),
}

/// The files of these flags that are results.
pub fn results<'a>(flags: impl IntoIterator<Item = &'a Option<Bandwidth>>) -> impl Iterator<Item = &'a Path> {
    flags.into_iter().filter_map(|flag| match flag {
        Some(Bandwidth::Results(path)) => Some(path.as_path()),
        _ => None,
    })
}

/// A write amplification, or results of simulated flash that have one.
#[derive(Debug, Clone, PartialEq)]
pub enum Amplification {
    /// Bytes that the flash writes for each byte of the host.
    Ratio(f64),
    /// A file or directory of results.
    Results(PathBuf),
}

const DECIMAL: [(&str, f64); 6] =
    [("kB", 1e3), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("PB", 1e15)];

/// Bytes above zero: `4t`, `4TiB`, `1.5TB`.
pub fn amount(text: &str) -> Result<u64, BadValue> {
    const HINT: &str = "for instance 4t or 4TiB (powers of 1024), or 1.5TB (powers of ten)";
    let decimal = DECIMAL.iter().find_map(|(unit, scale)| Some((text.trim().strip_suffix(unit)?, scale)));
    let bytes = match decimal {
        None => units::size(text).map_err(|error| BadValue::new(error.to_string(), HINT))?,
        Some((digits, scale)) => {
            let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            let value = digits.parse::<f64>().ok().filter(|_| plain).map(|value| (value * scale).round());
            // 2^63 bounds what is left exact to within a kilobyte.
            value
                .filter(|value| *value < 9.2e18)
                .ok_or_else(|| BadValue::new(format!("'{text}' has no number, or too large a one"), HINT))?
                as u64
        }
    };
    if bytes == 0 { Err(BadValue::new("must be above zero", HINT)) } else { Ok(bytes) }
}

/// A rate above zero (`2GB/s`), or a path of results. What begins with a digit, or a point or sign before one, is a rate;
/// `./2GB` is a path.
pub fn bandwidth(text: &str) -> Result<Bandwidth, BadValue> {
    const HINT: &str = "a rate is for instance 2.5GB/s or 2GiB/s; results are a path, ./2GB if need be";
    if is_path(text) {
        return Ok(Bandwidth::Results(PathBuf::from(text)));
    }
    let rate = text.strip_suffix("/s").unwrap_or(text);
    if rate.ends_with("bit") || rate.ends_with('b') && !rate.ends_with("ib") {
        return Err(BadValue::new(format!("'{text}' counts bits"), HINT));
    }
    let bytes = amount(rate).map_err(|error| BadValue::new(error.to_string(), HINT))?;
    Ok(Bandwidth::Rate(bytes as f64))
}

/// A ratio (`2.5`), or a path of results, told apart as [`bandwidth`] does.
pub fn amplification(text: &str) -> Result<Amplification, BadValue> {
    match is_path(text) {
        true => Ok(Amplification::Results(PathBuf::from(text))),
        false => number(text).map(Amplification::Ratio),
    }
}

/// Whether a value is a path and no number: it does not begin with a digit, or a point or sign before one.
fn is_path(text: &str) -> bool {
    !text.trim_start_matches(['.', '-', '+']).starts_with(|c: char| c.is_ascii_digit())
        || text.starts_with("..")
}

/// A finite number.
pub fn number(text: &str) -> Result<f64, BadValue> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
    value.ok_or_else(|| BadValue::new(format!("'{text}' is not a number"), "for instance 0.1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_decimal_with_a_capital_b_and_powers_of_1024_without() {
        for (text, bytes) in [
            ("1200TB", 1_200_000_000_000_000),
            ("1.5GB", 1_500_000_000),
            ("4t", 4 << 40),
            ("4TiB", 4 << 40),
            ("512", 512),
        ] {
            assert_eq!(amount(text), Ok(bytes), "{text}");
        }
        for bad in ["", "TB", "0", "0TB", "-1TB", "1e3TB", "4x", "99999PB", "nanTB"] {
            assert!(amount(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bandwidth_is_a_rate_or_a_path() {
        assert_eq!(bandwidth("2.25TB/s"), Ok(Bandwidth::Rate(2.25e12)));
        assert_eq!(bandwidth("2GiB/s"), Ok(Bandwidth::Rate((2u64 << 30) as f64)));
        assert_eq!(bandwidth(".5GB/s"), Ok(Bandwidth::Rate(5e8)));
        assert_eq!(bandwidth("../2GB"), Ok(Bandwidth::Results("../2GB".into())));
        assert_eq!(bandwidth("results/"), Ok(Bandwidth::Results("results/".into())));
        assert_eq!(amplification("2.5"), Ok(Amplification::Ratio(2.5)));
        assert_eq!(amplification("./2.5"), Ok(Amplification::Results("./2.5".into())));
        assert!(amplification("2.5x").is_err());
        assert_eq!(amplification("run.json"), Ok(Amplification::Results("run.json".into())));
        for bad in ["0GB/s", "-1GB/s", "2Gb/s", "2Gbit/s", "2GB/m", "7"] {
            assert_eq!(bandwidth(bad).is_ok(), bad == "7", "{bad}");
        }
    }
}
