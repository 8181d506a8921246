//! How long flash lasts, and how often it reads a wrong bit.
//!
//! A cell lasts so many program/erase cycles. The host's writes are multiplied by the write amplification of the drive's
//! garbage collection, and spread over all cells by wear levelling. What a drive says of itself ([`crate::smart`]) gives
//! the same from the other end: what was written, and which part of its life that took by the maker's own count.

use schemars::JsonSchema;
use serde::Serialize;

use crate::smart::Smart;
use crate::{Formula, PlanError, positive};

/// Seconds of a year: 365.25 days.
pub const YEAR_S: f64 = 31_557_600.0;

/// How endurance is computed.
pub const FORMULAS: [Formula; 4] = [
    Formula {
        gives: "bytes that can be written",
        formula: "capacity x P/E cycles / write amplification",
        source: "He et al., DASH, SC 2010, section V.B; JEDEC JESD218",
    },
    Formula {
        gives: "life; drive writes a day",
        formula: "bytes that can be written / write rate; the same / capacity / days of the warranted years",
        source: "JEDEC JESD218",
    },
    Formula {
        gives: "time between bit errors",
        formula: "1 / (UBER x 8 x read rate)",
        source: "He et al., DASH, SC 2010, section V.B",
    },
    Formula {
        gives: "life left by SMART",
        formula: "power-on time x (100 - percentage used) / percentage used",
        source: "NVM Express base specification, SMART / Health Information log",
    },
];

/// A drive and its load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Wear {
    /// Bytes of the drive.
    pub capacity_bytes: f64,
    /// Program/erase cycles that a cell lasts.
    pub pe_cycles: f64,
    /// Bytes that the drive writes for each byte of the host; at least 1.
    pub write_amplification: f64,
    /// Bytes a second that the host writes while it does.
    pub write_bytes_per_s: f64,
    /// Share of the time in which it does.
    pub duty: f64,
    /// Years over which drive writes a day are counted.
    pub years: f64,
}

/// What a load does to a drive.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Life {
    /// Bytes that the host can write.
    pub writable_bytes: f64,
    /// Seconds until then.
    pub life_s: f64,
    /// Whole drives a day that can be written over the years.
    pub drive_writes_per_day: f64,
    /// The largest write amplification with which the drive lasts the years.
    pub largest_write_amplification: f64,
}

impl Wear {
    /// How long the drive lasts.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] for a value outside of its range.
    pub fn life(&self) -> Result<Life, PlanError> {
        positive("capacity", self.capacity_bytes)?;
        positive("pe-cycles", self.pe_cycles)?;
        positive("write-rate", self.write_bytes_per_s)?;
        positive("years", self.years)?;
        crate::share("duty", self.duty)?;
        positive("duty", self.duty)?;
        if !self.write_amplification.is_finite() || self.write_amplification < 1.0 {
            let hint = "1 is a drive that copies nothing; random writes to a full drive come to 2 to 5";
            let parameter = format!("write-amplification={}", self.write_amplification);
            return Err(PlanError::invalid(parameter, "is below 1", hint));
        }
        let rate = self.write_bytes_per_s * self.duty;
        let cells = self.capacity_bytes * self.pe_cycles;
        let writable_bytes = cells / self.write_amplification;
        Ok(Life {
            writable_bytes,
            life_s: writable_bytes / rate,
            drive_writes_per_day: writable_bytes / self.capacity_bytes / (self.years * YEAR_S / 86_400.0),
            largest_write_amplification: cells / (rate * self.years * YEAR_S),
        })
    }
}

/// Seconds from one uncorrectable bit to the next, of a drive that is read at this rate all the time.
///
/// # Errors
/// [`PlanError::Invalid`] unless both are above zero.
pub fn between_bit_errors(uber: f64, read_bytes_per_s: f64) -> Result<f64, PlanError> {
    Ok(1.0 / (positive("uber", uber)? * 8.0 * positive("read-rate", read_bytes_per_s)?))
}

/// What a drive's own counters come to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Worn {
    /// The counters.
    pub counters: Smart,
    /// Bytes a second that were written on average while it had power.
    pub write_bytes_per_s: Option<f64>,
    /// Seconds until its life is used up at that rate, by its own count.
    pub left_s: Option<f64>,
    /// The least and the most that it may be, as wear is counted in whole percents; the most is null below two percent.
    pub left_range_s: Option<(f64, Option<f64>)>,
    /// Bytes that can be written in its whole life, by its own count.
    pub writable_bytes: Option<f64>,
    /// Write amplification, from its own count and the cycles that its cells are said to last.
    pub write_amplification: Option<f64>,
}

impl Worn {
    /// What counters come to; the write amplification if the cycles are known. Of a drive that counts less than one
    /// percent nothing can be projected.
    #[must_use]
    pub fn of(counters: Smart, pe_cycles: Option<f64>) -> Self {
        let on = counters.power_on_s.filter(|s| *s > 0.0);
        let used = counters.percentage_used.filter(|percent| *percent > 0.0);
        let written = counters.written_bytes.filter(|bytes| *bytes > 0.0);
        let left = |used: f64, on: f64| on * (100.0 - used).max(0.0) / used;
        let media = used.zip(pe_cycles).zip(counters.capacity_bytes);
        Self {
            write_bytes_per_s: written.zip(on).map(|(bytes, seconds)| bytes / seconds),
            left_s: used.zip(on).map(|(used, on)| left(used, on)),
            left_range_s: used
                .zip(on)
                .map(|(used, on)| (left(used + 1.0, on), (used > 1.0).then(|| left(used - 1.0, on)))),
            writable_bytes: used.zip(written).map(|(used, bytes)| bytes * 100.0 / used),
            write_amplification: media
                .zip(written)
                .map(|(((used, cycles), capacity), bytes)| used / 100.0 * cycles * capacity / bytes),
            counters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X25E: Wear = Wear {
        capacity_bytes: 64e9,
        pe_cycles: 1e5,
        write_amplification: 1.0,
        write_bytes_per_s: 10_724.0 * 4096.0,
        duty: 1.0,
        years: 1.0,
    };

    /// DASH, section V.B: "over 1 year" at the peak rate of random writes holds up to a write amplification of 4.6;
    /// sequential writes at Table 4's 203 MB/s take 0.999 years.
    #[test]
    fn an_x25_e_outlasts_a_year_of_random_writes_as_dash_says() {
        let life = X25E.life().unwrap();
        assert!((life.life_s / YEAR_S - 4.617).abs() < 0.001, "{}", life.life_s / YEAR_S);
        assert!((life.largest_write_amplification - 4.617).abs() < 0.001);
        let sequential = Wear { write_bytes_per_s: 203e6, ..X25E }.life().unwrap();
        assert!((sequential.life_s / YEAR_S - 0.999).abs() < 0.0005);
    }

    #[test]
    fn a_bit_error_comes_in_about_six_days_as_dash_says() {
        let days = between_bit_errors(1e-15, 250e6).unwrap() / 86_400.0;
        assert!((days - 5.787).abs() < 0.001, "{days}");
    }

    #[test]
    fn life_falls_with_every_load_and_nonsense_is_named() {
        let life = |wear: Wear| wear.life().unwrap().life_s;
        assert!(life(Wear { write_amplification: 2.0, ..X25E }) * 2.0 == life(X25E));
        assert!(life(Wear { duty: 0.5, ..X25E }) == 2.0 * life(X25E));
        for (wear, words) in [
            (Wear { write_amplification: 0.5, ..X25E }, "write-amplification=0.5: is below 1"),
            (Wear { duty: 0.0, ..X25E }, "duty=0: must be"),
            (Wear { pe_cycles: -1.0, ..X25E }, "pe-cycles=-1"),
        ] {
            assert!(wear.life().unwrap_err().to_string().starts_with(words));
        }
        assert!(between_bit_errors(0.0, 1.0).is_err());
    }

    #[test]
    fn counters_give_rate_life_left_and_write_amplification() {
        let counters = Smart {
            capacity_bytes: Some(1e12),
            written_bytes: Some(100e12),
            power_on_s: Some(1e7),
            percentage_used: Some(10.0),
            ..Smart::default()
        };
        let worn = Worn::of(counters.clone(), Some(3000.0));
        assert_eq!(worn.write_bytes_per_s, Some(1e7));
        assert_eq!(worn.left_s, Some(9e7));
        let (least, most) = worn.left_range_s.unwrap();
        assert!((least - 8.09e7).abs() < 1e5 && (most.unwrap() - 1.011e8).abs() < 1e5, "9 to 11 percent");
        assert_eq!(worn.writable_bytes, Some(1e15));
        assert_eq!(worn.write_amplification, Some(3.0));
        let fresh = Worn::of(Smart { percentage_used: Some(0.0), ..counters }, Some(3000.0));
        assert_eq!((fresh.left_s, fresh.write_amplification), (None, None));
        let unwritten = Worn::of(Smart { written_bytes: Some(0.0), ..fresh.counters }, Some(3000.0));
        assert_eq!(unwritten.write_bytes_per_s, None, "a rate of zero is not known");
    }
}
