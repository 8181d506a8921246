//! The values of flags, in fio's spelling. Each error says what is wrong with the value and carries a hint.

use std::str::FromStr;
use std::time::Duration;

use base::Word;
use measure::simulation::machine::World;
use measure::workload::{DataPattern, NumberList, RandomDistribution, SizeShare};
use sweep::plan::{Margin, Protocol};

/// A value that was not understood. The flag and the value are named by whoever prints it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadValue {
    /// What is wrong.
    message: String,
    /// What would be right.
    pub hint: String,
}

impl BadValue {
    /// What is wrong, and what would be right.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// Bytes: `4k`, `1m`, `1.5g`.
pub fn size(text: &str) -> Result<u64, BadValue> {
    units::size(text)
        .map_err(|e| BadValue::new(e.to_string(), "a size is bytes, or for instance 4k, 1m or 1.5g"))
}

/// Bytes that may be negative: `8k`, `-8k`.
pub fn signed_size(text: &str) -> Result<i64, BadValue> {
    measure::options::signed_size(text)
        .map_err(|why| BadValue::new(why, "a size is bytes, or for instance 8k or -8k"))
}

/// Bytes, at least one.
pub fn positive_size(text: &str) -> Result<u64, BadValue> {
    match size(text)? {
        0 => Err(BadValue::new("must be above zero", "for instance 4k, 1m or 1.5g")),
        bytes => Ok(bytes),
    }
}

/// A time: `5s`, `500ms`, `2m`; bare numbers are seconds.
pub fn duration(text: &str) -> Result<Duration, BadValue> {
    units::duration(text)
        .map_err(|e| BadValue::new(e.to_string(), "a time is seconds, or for instance 500ms, 5s or 2m"))
}

/// A time above zero.
pub fn positive_duration(text: &str) -> Result<Duration, BadValue> {
    match duration(text)? {
        Duration::ZERO => Err(BadValue::new("must be above zero", "for instance 500ms, 5s or 2m")),
        time => Ok(time),
    }
}

/// A margin of equivalence.
pub fn margin(text: &str) -> Result<Margin, BadValue> {
    Margin::parse(text).ok_or_else(|| {
        BadValue::new(
            format!("'{text}' is no margin of equivalence"),
            "for instance 3%, within 0.01% and 50%",
        )
    })
}

/// A switch: `0` or `1`.
pub fn switch(text: &str) -> Result<bool, BadValue> {
    match text {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        _ => Err(BadValue::new(format!("'{text}' is neither 0 nor 1"), "1 switches it on, 0 off")),
    }
}

/// A part of a whole: `2/4` is the second of four.
pub fn shard(text: &str) -> Result<(u32, u32), BadValue> {
    let hint = "the first of four is 1/4, the last 4/4";
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((i, n)) if (1..=n).contains(&i) => Ok((i, n)),
        Some(_) => Err(BadValue::new("there is no such part", hint)),
        None => Err(BadValue::new(format!("'{text}' is not I/N"), hint)),
    }
}

/// The noise of a simulated machine.
pub fn world(text: &str) -> Result<World, BadValue> {
    let words = World::OF_SEARCHES.map(World::word).join(", ");
    let unknown = || BadValue::new(format!("'{text}' is not a kind of noise"), format!("one of {words}"));
    World::OF_SEARCHES.into_iter().find(|world| world.word() == text).ok_or_else(unknown)
}

/// What becomes of points of a sweep that cannot win.
pub fn search(text: &str) -> Result<Protocol, BadValue> {
    Protocol::from_search(text).ok_or_else(|| unknown_word(text, &Protocol::ALL.map(Protocol::search_word)))
}

/// A whole number.
pub fn whole<T: FromStr>(text: &str) -> Result<T, BadValue> {
    let largest = match size_of::<T>() {
        1 => u64::from(u8::MAX),
        4 => u64::from(u32::MAX),
        _ => u64::MAX,
    };
    text.parse().map_err(|_| {
        BadValue::new(
            format!("'{text}' is not a whole number from 0 to {largest}"),
            "a plain number, without a unit",
        )
    })
}

/// A part of a whole: `0.7`.
pub fn fraction(text: &str) -> Result<f64, BadValue> {
    text.parse()
        .ok()
        .filter(|part| (0.0..=1.0).contains(part))
        .ok_or_else(|| BadValue::new(format!("'{text}' is not a number from 0 to 1"), "for instance 0.5"))
}

/// One of the words of an enum; else the error lists them.
pub fn word<W: Word>(text: &str) -> Result<W, BadValue> {
    W::from_word(text).ok_or_else(|| unknown_word(text, W::WORDS))
}

/// A word that is not one of `words`, which the hint lists.
pub fn unknown_word(text: &str, words: &[&str]) -> BadValue {
    let hint = match base::nearest(text, words.iter().copied()) {
        Some(near) => format!("did you mean {near}? There are {}", words.join(", ")),
        None => format!("there are {}", words.join(", ")),
    };
    BadValue::new(format!("'{text}' is not known"), hint)
}

/// CPUs or NUMA nodes: `0-3,8`.
pub fn number_list(text: &str) -> Result<NumberList, BadValue> {
    text.parse::<NumberList>()
        .map_err(|e| BadValue::new(e.to_string(), "numbers and ranges, for instance 0-3,8"))
}

/// fio's patterns: `0xdeadface"abc"`.
pub fn pattern(text: &str) -> Result<DataPattern, BadValue> {
    text.parse::<DataPattern>().map_err(|e| {
        BadValue::new(e.to_string(), "for instance 0xdeadface, \"abc\", -12, or several together")
    })
}

/// fio's `random_distribution`: `random`, `zipf:1.2`, `pareto:0.2`.
pub fn random_distribution(text: &str) -> Result<RandomDistribution, BadValue> {
    const HINT: &str = "there are random, zipf:THETA as in zipf:1.2, pareto:H as in pareto:0.2, \
                        zoned:REQUESTS/REGION:… as in zoned:50/5:30/15:20/80, and sequence:BLOCK,… as in sequence:2,0,1";
    let parameter = |value: &str| {
        value
            .parse::<f64>()
            .ok()
            .filter(|v| v.is_finite())
            .ok_or_else(|| BadValue::new(format!("'{value}' in '{text}' is not a number"), HINT))
    };
    match text.split_once(':') {
        None if text == "random" => Ok(RandomDistribution::Random),
        Some(("zipf", theta)) => Ok(RandomDistribution::Zipf(parameter(theta)?)),
        Some(("pareto", h)) => Ok(RandomDistribution::Pareto(parameter(h)?)),
        Some(("zoned", zones)) => measure::distribution::zones(zones)
            .map(RandomDistribution::Zoned)
            .map_err(|why| BadValue::new(why, "for instance zoned:50/5:30/15:20/80")),
        Some(("sequence", blocks)) => measure::distribution::sequence(blocks)
            .map(RandomDistribution::Sequence)
            .map_err(|why| BadValue::new(why, "for instance sequence:2,0,1")),
        None if matches!(text, "zipf" | "pareto") => {
            Err(BadValue::new(format!("'{text}' lacks its parameter"), HINT))
        }
        _ => Err(BadValue::new(format!("'{text}' is not known"), HINT)),
    }
}

/// fio's `bssplit` for all directions alike: `4k/60:64k/40`.
pub fn bssplit(text: &str) -> Result<Vec<SizeShare>, BadValue> {
    const HINT: &str = "for instance 4k/60:64k/40, size and percentage by turns";
    text.split(':')
        .map(|entry| {
            let Some((bs, percent)) = entry.split_once('/') else {
                return Err(BadValue::new(format!("'{entry}' in '{text}' has no percentage"), HINT));
            };
            let bs = units::size(bs).map_err(|e| BadValue::new(e.to_string(), HINT))?;
            let percent = percent.parse::<u8>().ok().filter(|p| (1..=100).contains(p)).ok_or_else(|| {
                BadValue::new(format!("'{percent}' in '{text}' is not a percentage from 1 to 100"), HINT)
            })?;
            Ok(SizeShare { bs, percent })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use measure::workload::{IoEngine, Rw};

    use super::*;

    #[test]
    fn words_that_are_not_known_are_answered_with_the_nearest() {
        let error = word::<Rw>("ranread").unwrap_err();
        assert_eq!(error.to_string(), "'ranread' is not known");
        assert!(error.hint.starts_with("did you mean randread?"), "{}", error.hint);
        assert!(word::<IoEngine>("spdk").unwrap_err().hint.starts_with("there are auto"));
    }

    #[test]
    fn shares_and_distributions_read_as_in_fio() {
        assert_eq!(
            bssplit("4k/60:64k/40"),
            Ok(vec![SizeShare { bs: 4096, percent: 60 }, SizeShare { bs: 65536, percent: 40 }])
        );
        assert_eq!(random_distribution("zipf:1.2"), Ok(RandomDistribution::Zipf(1.2)));
        for bad in ["", "4k", "4k/", "4k/0", "4x/50", "4k/101", "4k/50:"] {
            assert!(bssplit(bad).is_err(), "{bad}");
        }
        for bad in ["", "zipf", "zipf:", "zipf:x", "zipf:inf", "normal:10", "random:1"] {
            assert!(random_distribution(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_name_their_range() {
        assert_eq!(whole::<u32>("32"), Ok(32));
        assert_eq!(
            whole::<u32>("-1").unwrap_err().to_string(),
            "'-1' is not a whole number from 0 to 4294967295"
        );
        assert!(whole::<u8>("256").is_err());
    }
}
