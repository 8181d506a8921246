//! Rates as they are typed, and the file that says how a mover is to behave.
//!
//! | typed | bytes a second | why |
//! |---|---|---|
//! | `2g`, `500m`, `2gb`, `4096` | 2·2^30, 500·2^20, 2·2^30, 4096 | no `/s`: fio's sizes, powers of 1024 |
//! | `2GB/s`, `500MB/s`, `800kB/s` | 2·10^9, 500·10^6, 800·10^3 | `B/s` with a prefix: powers of ten, as figures are printed |
//! | `1GiB/s`, `512MiB/s` | 2^30, 512·2^20 | IEC prefixes: powers of 1024 |
//! | `2g/s` | 2·2^30 | fio's size, a second |
//! | `10Gb/s`, `10Gbit/s` | refused | bits or bytes? |

use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// Why a rate was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// It is no size.
    #[error(transparent)]
    Size(#[from] units::ParseError),
    /// `b` is a bit to some and a byte to others.
    #[error("'{text}' may mean bits or bytes")]
    Bits {
        /// What was typed.
        text: String,
    },
    /// Nothing would ever move.
    #[error("'{text}' would stop it for ever")]
    Zero {
        /// What was typed.
        text: String,
    },
}

impl RateError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Size(_) => "a rate is 2g or 1GiB/s (powers of 1024) or 2GB/s (powers of ten)",
            Self::Bits { .. } => "write bytes: 1GB/s or 1GiB/s",
            Self::Zero { .. } => "leave it out where there is to be no limit",
        }
    }
}

/// Bytes a second, as the table has it.
///
/// # Errors
/// [`RateError`], which has a hint.
pub fn rate(text: &str) -> Result<u64, RateError> {
    let typed = text.trim();
    let bytes = match typed.strip_suffix("/s") {
        None => units::size(typed)?,
        Some(size) => {
            let end = size.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
            let (number, unit) = size.split_at(end);
            let decimal = match unit {
                "B" => Some(1),
                "kB" | "KB" => Some(1_000),
                "MB" => Some(1_000_000),
                "GB" => Some(1_000_000_000),
                "TB" => Some(1_000_000_000_000),
                _ => None,
            };
            match decimal {
                Some(scale) => decimal_size(number.trim(), scale)?,
                None if unit.ends_with('b') || unit.ends_with("bit") => {
                    return Err(RateError::Bits { text: text.to_owned() });
                }
                None => units::size(size)?,
            }
        }
    };
    if bytes == 0 { Err(RateError::Zero { text: text.to_owned() }) } else { Ok(bytes) }
}

/// A number, with a fraction perhaps, of units of a power of ten.
fn decimal_size(number: &str, scale: u64) -> Result<u64, units::ParseError> {
    if let Ok(whole) = units::size(number) {
        let out_of_range = || units::ParseError::OutOfRange { text: number.to_owned() };
        return whole.checked_mul(scale).ok_or_else(out_of_range);
    }
    // `1.5` is no size in bytes, but fine in gigabytes: scaled as thousandths, which are whole.
    let plain = number.replace('_', "");
    let value = plain.parse::<f64>().ok().filter(|_| plain.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    let value = value.ok_or_else(|| units::ParseError::NoNumber { text: number.to_owned() })? * scale as f64;
    if value.fract().abs() > 1e-6 || value > 9_007_199_254_740_992.0 {
        return Err(units::ParseError::OutOfRange { text: number.to_owned() });
    }
    Ok(value as u64)
}

/// How a mover is to behave towards everybody else: a table of the server's configuration file.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QosConfig {
    /// Most bytes a second, all jobs together.
    #[serde(deserialize_with = "optional_rate")]
    pub bwlimit: Option<u64>,
    /// Most reads and writes a second, all jobs together.
    #[serde(deserialize_with = "positive")]
    pub iops_limit: Option<u64>,
    /// Backs off when the fast tier slows down; with its defaults where nothing is said, and then for background jobs.
    pub governor: Option<GovernorConfig>,
}

/// How the governor judges.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GovernorConfig {
    /// How many times its latency at rest the fast tier may come to, as the median of the probes sees it; above 1.
    #[serde(deserialize_with = "factor")]
    pub factor: f64,
    /// The rate that the governor never goes below, so that a drain always moves; bytes a second.
    #[serde(deserialize_with = "one_rate")]
    pub floor: u64,
    /// Mean time between two probes.
    #[serde(deserialize_with = "interval")]
    pub interval: Duration,
    /// Govern all jobs, not only those that run in the background.
    pub all_jobs: bool,
}

impl Default for GovernorConfig {
    /// Twice the latency at rest, 16 MiB/s at least, some 16 probes a second.
    fn default() -> Self {
        Self { factor: 2.0, floor: 16 << 20, interval: Duration::from_millis(60), all_jobs: false }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Typed {
    Whole(u64),
    Fraction(f64),
    Text(String),
}

fn one_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = match Typed::deserialize(deserializer)? {
        Typed::Whole(bytes) => bytes.to_string(),
        Typed::Fraction(bytes) => bytes.to_string(),
        Typed::Text(text) => text,
    };
    rate(&text).map_err(|error| serde::de::Error::custom(format!("{error}; {}", error.hint())))
}

fn optional_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    one_rate(deserializer).map(Some)
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(serde::de::Error::custom(
            "0 would stop it for ever; leave it out where there is to be no limit",
        )),
        limit => Ok(Some(limit)),
    }
}

fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let factor = f64::deserialize(deserializer)?;
    if factor > 1.0 && factor <= 1000.0 {
        Ok(factor)
    } else {
        Err(serde::de::Error::custom(format!("factor = {factor}: it must lie above 1 and at most at 1000")))
    }
}

fn interval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = match Typed::deserialize(deserializer)? {
        Typed::Whole(seconds) => seconds.to_string(),
        Typed::Fraction(seconds) => seconds.to_string(),
        Typed::Text(text) => text,
    };
    let interval = units::duration(&text).map_err(serde::de::Error::custom)?;
    if (Duration::from_millis(5)..=Duration::from_secs(10)).contains(&interval) {
        Ok(interval)
    } else {
        Err(serde::de::Error::custom(format!("interval = {text}: it must lie between 5ms and 10s")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_mean_what_the_table_says() {
        for (text, bytes) in [
            ("2g", 2 << 30),
            ("500m", 500 << 20),
            ("2gb", 2 << 30),
            ("4096", 4096),
            ("2GB/s", 2_000_000_000),
            ("500MB/s", 500_000_000),
            ("800kB/s", 800_000),
            ("1.5GB/s", 1_500_000_000),
            ("1.5 GB/s", 1_500_000_000),
            ("1GiB/s", 1 << 30),
            ("512MiB/s", 512 << 20),
            ("2g/s", 2 << 30),
            ("100B/s", 100),
        ] {
            assert_eq!(rate(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_may_be_bits_is_refused_and_so_is_nothing_at_all() {
        for text in ["10Gb/s", "10Gbit/s", "10gb/s"] {
            assert!(matches!(rate(text), Err(RateError::Bits { .. })), "{text}");
        }
        assert!(matches!(rate("0"), Err(RateError::Zero { .. })));
        for text in ["", "GB/s", "fast", "-1g", "1e9GB/s", "1..5GB/s", "2GB/h", "99999999999TB/s", "/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_configuration_is_read_as_it_is_written() {
        let text = "bwlimit = \"2GB/s\"\niops_limit = 5000\n[governor]\nfactor = 3.0\nfloor = \"8m\"\ninterval = \"100ms\"\n";
        let config: QosConfig = toml::from_str(text).unwrap();
        assert_eq!(config.bwlimit, Some(2_000_000_000));
        let governor = config.governor.clone().unwrap();
        assert_eq!((governor.factor, governor.floor), (3.0, 8 << 20));
        assert_eq!(governor.interval, Duration::from_millis(100));
        assert_eq!(toml::from_str::<QosConfig>("").unwrap(), QosConfig::default());
        assert_eq!(
            toml::from_str::<QosConfig>("[governor]").unwrap().governor.unwrap(),
            GovernorConfig::default()
        );
    }

    #[test]
    fn a_configuration_that_makes_no_sense_is_refused_where_it_stands() {
        for (text, word) in [
            ("bwlimit = \"10Gb/s\"", "bits"),
            ("bwlimit = 0", "for ever"),
            ("iops_limit = 0", "for ever"),
            ("bwlimits = 1", "bwlimits"),
            ("[governor]\nfactor = 1.0", "above 1"),
            ("[governor]\ninterval = \"1us\"", "between"),
            ("[governor]\nfloor = \"x\"", "no number"),
        ] {
            let error = toml::from_str::<QosConfig>(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
