//! How random offsets are drawn.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

/// A part of the region and its share of the requests, in percent: an entry of fio's `zoned` distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Zone {
    /// Share of the requests.
    pub requests: u8,
    /// Share of the region; zones follow each other.
    pub region: u8,
}

/// How random offsets are drawn: fio's `random_distribution`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RandomDistribution {
    /// Every block is as likely as any other.
    #[default]
    Random,
    /// Block of rank k with probability ∝ 1/k^θ; θ as in fio, for instance 1.2.
    Zipf(#[serde(deserialize_with = "words::finite")] f64),
    /// A power law with exponent h in (0, 1), as in fio; smaller is more skewed.
    Pareto(#[serde(deserialize_with = "words::finite")] f64),
    /// Some parts of the region are visited more often than others; within a zone every block is as likely.
    Zoned(Vec<Zone>),
    /// Given blocks in a given order, again and again.
    Sequence(Sequence),
}

/// Blocks in the order in which they are visited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sequence {
    /// Their numbers.
    pub blocks: Vec<u64>,
    /// Whether each time they lie so many blocks further as there are numbers: fio's `random_sequence_stride`.
    #[serde(default)]
    pub strided: bool,
}

impl fmt::Display for RandomDistribution {
    /// As fio spells it: `zipf:1.2`, `zoned:50/5:30/15:20/80`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Zipf(theta) => write!(f, "zipf:{theta}"),
            Self::Pareto(h) => write!(f, "pareto:{h}"),
            Self::Zoned(zones) => {
                f.write_str("zoned")?;
                zones.iter().try_for_each(|zone| write!(f, ":{}/{}", zone.requests, zone.region))
            }
            Self::Sequence(Sequence { blocks, strided }) => {
                let numbers: Vec<String> = blocks.iter().map(u64::to_string).collect();
                write!(f, "sequence:{}{}", numbers.join(","), if *strided { ":stride" } else { "" })
            }
        }
    }
}

/// The most zones, which is fio's limit.
const MAX_ZONES: usize = 256;

/// Reads the zones of fio's `zoned`: `50/5:30/15:20/`. A share that is left out is an equal part of what the others leave.
///
/// # Errors
/// The part of the text at fault, and why.
pub fn zones(text: &str) -> Result<Vec<Zone>, String> {
    let share = |word: &str, entry: &str| match word.trim() {
        "" => Ok(None),
        word => match word.parse::<u8>() {
            Ok(percent) if percent <= 100 => Ok(Some(percent)),
            _ => Err(format!("'{word}' in '{entry}' is not a percentage")),
        },
    };
    let mut written = Vec::new();
    for entry in text.split(':').filter(|entry| !entry.trim().is_empty()) {
        let Some((requests, region)) = entry.split_once('/') else {
            return Err(format!("'{entry}' does not name a share of the requests and one of the region"));
        };
        written.push((share(requests, entry)?, share(region, entry)?));
    }
    if written.is_empty() || written.len() > MAX_ZONES {
        return Err(format!("it needs 1 to {MAX_ZONES} zones"));
    }
    let requests = completed(written.iter().map(|(requests, _)| *requests).collect());
    let region = completed(written.iter().map(|(_, region)| *region).collect());
    match (requests, region) {
        (Some(requests), Some(region)) => {
            let zone = |(requests, region)| Zone { requests, region };
            Ok(requests.into_iter().zip(region).map(zone).collect())
        }
        (None, _) => Err("the shares of requests do not come to 100 %".to_owned()),
        (_, None) => Err("the shares of the region do not come to 100 %".to_owned()),
    }
}

/// The most blocks of a sequence.
const MAX_SEQUENCE: usize = 4096;

/// Reads the blocks of fio's `sequence`: `2,0,1`; with `:stride` behind them each round begins where the last one's group
/// ends, which in fio is an option of its own.
///
/// # Errors
/// The part of the text at fault.
pub fn sequence(text: &str) -> Result<Sequence, String> {
    let (numbers, strided) = match text.strip_suffix(":stride") {
        Some(numbers) => (numbers, true),
        None => (text, false),
    };
    let number =
        |word: &str| word.trim().parse::<u64>().map_err(|_| format!("'{word}' is not a block's number"));
    let blocks = numbers.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
    if blocks.len() > MAX_SEQUENCE {
        return Err(format!("it has more than {MAX_SEQUENCE} blocks"));
    }
    Ok(Sequence { blocks, strided })
}

/// The shares with those left out; None if they do not come to 100.
fn completed(shares: Vec<Option<u8>>) -> Option<Vec<u8>> {
    let given: u32 = shares.iter().flatten().map(|share| u32::from(*share)).sum();
    let missing = shares.iter().filter(|share| share.is_none()).count() as u32;
    let left = 100_u32.checked_sub(given)?;
    let each = match missing {
        0 if left == 0 => 0,
        0 => return None,
        _ if left % missing == 0 => left / missing,
        _ => return None,
    };
    Some(shares.into_iter().map(|share| share.unwrap_or(each as u8)).collect())
}

/// Whether shares of requests and of the region each come to 100 percent, and no zone without blocks has requests.
pub(crate) fn is_complete(zones: &[Zone]) -> bool {
    let sum = |share: fn(&Zone) -> u8| zones.iter().map(|zone| u32::from(share(zone))).sum::<u32>();
    let empty = |zone: &Zone| zone.region == 0 && zone.requests > 0;
    sum(|zone| zone.requests) == 100 && sum(|zone| zone.region) == 100 && !zones.iter().any(empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_left_out_is_what_the_others_leave() {
        let zone = |requests, region| Zone { requests, region };
        let expected = vec![zone(50, 5), zone(30, 15), zone(20, 80)];
        assert_eq!(zones("50/5:30/15:20/80"), Ok(expected.clone()));
        assert_eq!(zones("50/5:30/15:20/"), Ok(expected.clone()));
        assert_eq!(zones("50/5:/15:20/"), Ok(expected));
        assert_eq!(zones("50/:/").unwrap(), [zone(50, 50), zone(50, 50)]);
    }

    #[test]
    fn shares_that_do_not_come_to_a_hundred_are_refused() {
        for text in ["", "50/50", "60/50:50/50", "50/60:50/50", "101/100", "a/b", "50", "50/30:20/:30/:/"] {
            assert!(zones(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_sequence_is_written_as_it_is_read() {
        for text in ["2,0,1", "7", "2,0,1:stride"] {
            let read = RandomDistribution::Sequence(sequence(text).unwrap());
            assert_eq!(read.to_string(), format!("sequence:{text}"));
            let json = serde_json::to_string(&read).unwrap();
            assert_eq!(serde_json::from_str::<RandomDistribution>(&json).unwrap(), read);
        }
        for text in ["", "1,,2", "a", "-1", ":stride"] {
            assert!(sequence(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_distribution_is_written_as_it_is_read() {
        let text = "zoned:50/5:30/15:20/80";
        let zoned = RandomDistribution::Zoned(zones(&text["zoned:".len()..]).unwrap());
        assert_eq!(zoned.to_string(), text);
        let json = serde_json::to_string(&zoned).unwrap();
        assert_eq!(serde_json::from_str::<RandomDistribution>(&json).unwrap(), zoned);
    }
}
