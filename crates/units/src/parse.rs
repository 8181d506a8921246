//! Reading sizes and durations in fio's spelling.

use std::time::Duration;

/// Why a size or duration was not understood. The message names the text; the caller adds the flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Nothing, or nothing before the suffix.
    #[error("'{text}' has no number")]
    NoNumber {
        /// What was typed.
        text: String,
    },
    /// A suffix that is no unit of this kind.
    #[error("'{suffix}' in '{text}' is not a unit (expected {expected})")]
    UnknownUnit {
        /// What was typed.
        text: String,
        /// The part that was taken for a unit.
        suffix: String,
        /// The units that would be understood.
        expected: &'static str,
    },
    /// A number that does not fit, or is negative or not finite.
    #[error("'{text}' is out of range")]
    OutOfRange {
        /// What was typed.
        text: String,
    },
}

const SIZE_UNITS: &str = "none, b, k, m, g, t, p";
const TIME_UNITS: &str = "us, ms, s, m, h, d";

/// Splits `12.5ms` into its number and its lower-cased suffix.
fn split(text: &str) -> Result<(&str, String), ParseError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(end);
    if !number.chars().any(|c| c.is_ascii_digit()) {
        return Err(ParseError::NoNumber { text: text.to_owned() });
    }
    Ok((number, suffix.trim().to_ascii_lowercase()))
}

/// Bytes from fio's spelling of a size: `4k` = 4096, `1m`, `1.5g`, `512`, `0x1000`, `4KiB`.
///
/// Every prefix is a power of 1024, as fio reads it by default. Fractions are taken as long as they
/// come to whole bytes.
///
/// # Errors
/// [`ParseError`] where there is no number, the unit is unknown, or the value exceeds `u64`.
pub fn size(text: &str) -> Result<u64, ParseError> {
    let out_of_range = || ParseError::OutOfRange { text: text.to_owned() };
    if let Some(hex) = text.trim().strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map_err(|_| out_of_range());
    }
    let (number, suffix) = split(text)?;
    let unit = suffix.strip_suffix("ib").or_else(|| suffix.strip_suffix('b')).unwrap_or(&suffix);
    let unit = unit.strip_suffix('i').unwrap_or(unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => {
            return Err(ParseError::UnknownUnit { text: text.to_owned(), suffix, expected: SIZE_UNITS });
        }
    };
    let plain: String = number.chars().filter(|c| *c != '_').collect();
    if let Ok(whole) = plain.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(out_of_range);
    }
    let value = plain.parse::<f64>().map_err(|_| out_of_range())? * (1u64 << shift) as f64;
    // 2^53 bounds the whole numbers that an f64 holds exactly.
    if !value.is_finite() || value.fract() != 0.0 || value > 9_007_199_254_740_992.0 {
        return Err(out_of_range());
    }
    Ok(value as u64)
}

/// A duration from fio's spelling: `5s`, `500ms`, `0.5s`, `2m`, `1h`; a bare number is seconds.
///
/// # Errors
/// [`ParseError`] where there is no number, the unit is unknown, or the value is not representable.
pub fn duration(text: &str) -> Result<Duration, ParseError> {
    let out_of_range = || ParseError::OutOfRange { text: text.to_owned() };
    let (number, suffix) = split(text)?;
    let scale = match suffix.as_str() {
        "us" | "usec" | "µs" => 1e-6,
        "ms" | "msec" => 1e-3,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "ns" => 1e-9,
        _ => {
            return Err(ParseError::UnknownUnit { text: text.to_owned(), suffix, expected: TIME_UNITS });
        }
    };
    let plain: String = number.chars().filter(|c| *c != '_').collect();
    let value = plain.parse::<f64>().map_err(|_| out_of_range())? * scale;
    Duration::try_from_secs_f64(value).map_err(|_| out_of_range())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_fio_reads_them() {
        for (text, bytes) in [
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4kb", 4096),
            ("512", 512),
            ("512b", 512),
            ("1m", 1 << 20),
            ("1.5g", 3 << 29),
            ("0.5k", 512),
            ("2t", 2 << 40),
            ("0x1000", 4096),
            (" 8 k ", 8192),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_text_that_was_typed() {
        for text in ["", "k", "4x", "1e3", "-4k", "4k4", "99999999999t", "0.3", "kb4", "0xzz"] {
            assert!(size(text).is_err(), "{text} must not parse");
        }
        for text in ["", "s", "5 parsecs", "-1s", "1e400"] {
            assert!(duration(text).is_err(), "{text} must not parse");
        }
        assert_eq!(
            size("4x").unwrap_err().to_string(),
            "'x' in '4x' is not a unit (expected none, b, k, m, g, t, p)"
        );
    }

    #[test]
    fn a_bare_duration_is_in_seconds() {
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,24}") {
            let _ = size(&text);
            let _ = duration(&text);
        }

        #[test]
        fn printed_sizes_read_back(n in 0u64..(1 << 50)) {
            prop_assert_eq!(size(&crate::bytes_short(n)), Ok(n));
        }
    }
}
