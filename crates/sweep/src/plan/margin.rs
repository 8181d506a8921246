//! How far apart settings may lie that count as equally good.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A margin of equivalence: 5 % unless told otherwise, 0.01 % to 50 %. In documents it is a part of one: 0.05.
// Whole hundredths of a percent, so that plans with the same margin are equal and have the same digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "f64", try_from = "f64")]
#[schemars(with = "f64")]
pub struct Margin {
    hundredths_of_a_percent: u32,
}

impl Default for Margin {
    fn default() -> Self {
        Self { hundredths_of_a_percent: 500 }
    }
}

impl Margin {
    /// The largest that settings may differ by and be called equivalent.
    const MOST: u32 = 5000;

    /// From `3%`, `2.5 %` or `0.05`; none if it is no such number, or outside 0.01 % to 50 %.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (number, of_one) = match text.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 100.0),
            None => (text, 10_000.0),
        };
        let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let hundredths = number.parse::<f64>().ok().filter(|_| plain)? * of_one;
        Self::of_hundredths(hundredths.round())
    }

    /// From a part of one.
    #[must_use]
    pub fn of_part(part: f64) -> Option<Self> {
        Self::of_hundredths((part * 10_000.0).round())
    }

    fn of_hundredths(hundredths: f64) -> Option<Self> {
        let is_within = (1.0..=f64::from(Self::MOST)).contains(&hundredths);
        is_within.then_some(Self { hundredths_of_a_percent: hundredths as u32 })
    }

    /// As a part of one.
    #[must_use]
    pub fn part(self) -> f64 {
        f64::from(self.hundredths_of_a_percent) / 10_000.0
    }

    /// Whether it is the one that nobody asked for.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Margin> for f64 {
    fn from(margin: Margin) -> Self {
        margin.part()
    }
}

impl TryFrom<f64> for Margin {
    type Error = String;

    fn try_from(part: f64) -> Result<Self, String> {
        Self::of_part(part).ok_or_else(|| format!("{part} is no margin of equivalence"))
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.hundredths_of_a_percent) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Margin;

    #[test]
    fn margins_are_read_as_percentages_or_parts() {
        let read = |text: &str| Margin::parse(text).map(|margin| margin.to_string());
        for (text, said) in
            [("3%", "3 %"), ("2.5 %", "2.5 %"), ("0.05", "5 %"), ("50%", "50 %"), ("0.0001", "0.01 %")]
        {
            assert_eq!(read(text).as_deref(), Some(said), "{text}");
        }
        for text in ["", "%", "0", "0%", "60%", "-3%", "1e-2", "nan", "inf", "five"] {
            assert_eq!(read(text), None, "{text}");
        }
        let margin = Margin::parse("2.5%").expect("a margin");
        let stored = serde_json::to_string(&margin).expect("JSON");
        assert_eq!(stored, "0.025");
        assert_eq!(serde_json::from_str::<Margin>(&stored).ok(), Some(margin));
        assert!(serde_json::from_str::<Margin>("0").is_err());
    }
}
