//! Values of machine files: how they are written, and what they must be.

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::device::Time;
use crate::error::InvalidMachine;

/// Bytes: a number, or fio's spelling in quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes (65536) or a size in quotes (\"64k\")")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Bytes, E> {
                u64::try_from(value).map(Bytes).map_err(|_| E::custom(format!("{value} is not a size")))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Bytes, E> {
                Ok(Bytes(value))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                units::size(text).map(Bytes).map_err(|error| E::custom(format!("\"{text}\": {error}")))
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

/// Whether values can be.
pub type Checked = Result<(), InvalidMachine>;

/// A number from `least` to `most`; `hint` says what to write.
///
/// # Errors
/// [`InvalidMachine`] of `key`.
pub fn within(key: &str, value: f64, least: f64, most: f64, hint: &str) -> Checked {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(());
    }
    Err(InvalidMachine::new(key, value, format!("must be from {least} to {most}"), hint))
}

/// A time in microseconds, from 0 to 10 s.
///
/// # Errors
/// [`InvalidMachine`] of `key`.
pub fn micros(key: &str, value: f64) -> Checked {
    within(key, value, 0.0, 1e7, "microseconds, for instance 10.5")
}

/// A rate in bytes a second, from 1 kB/s, at which the times of the largest commands stay within 64 bits, to 10^15.
///
/// # Errors
/// [`InvalidMachine`] of `key`.
pub fn rate(key: &str, value: f64) -> Checked {
    within(key, value, 1e3, 1e15, "bytes a second, for instance 2.8e8")
}

/// A count from 1 to `most`.
///
/// # Errors
/// [`InvalidMachine`] of `key`.
pub fn count(key: &str, value: u32, most: u32) -> Checked {
    within(key, f64::from(value), 1.0, f64::from(most), "a whole number")
}

/// Bytes: a multiple of `unit`, which is `what`, at least one of it and at most 2^60.
///
/// # Errors
/// [`InvalidMachine`] of `key`.
pub fn multiple(key: &str, value: Bytes, unit: u64, what: &str) -> Checked {
    let reason = if value.0 < unit {
        format!("is smaller than {what}, {unit} bytes")
    } else if !value.0.is_multiple_of(unit) {
        format!("is not a multiple of {what}, {unit} bytes")
    } else if value.0 > 1 << 60 {
        "is more than 2^60 bytes".to_owned()
    } else {
        return Ok(());
    };
    Err(InvalidMachine::new(key, value.0, reason, "for instance \"64g\" for a drive, \"4k\" for a page"))
}

/// Nanoseconds of a time in microseconds.
#[must_use]
pub fn ns(micros: f64) -> Time {
    (micros * 1e3).round() as Time
}

/// Nanoseconds that `bytes` take at a rate.
#[must_use]
#[inline]
pub fn transfer_ns(bytes: u32, bytes_per_s: f64) -> Time {
    (f64::from(bytes) / bytes_per_s * 1e9).round() as Time
}
