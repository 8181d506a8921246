//! What written blocks hold where a user says so: fio's patterns (`buffer_pattern`, `verify_pattern`).
//!
//! A pattern is written as fio reads it (`HOWTO`, "Buffers and memory"): numbers, quoted texts and `%o`, one directly after
//! the other. Its bytes are repeated over the whole block.
//!
//! | written | bytes |
//! |---|---|
//! | `0xdeadface` | those digits in pairs, of which a first single one is a pair by itself |
//! | `-1024`, `66` | the number's 32 bits, lowest byte first, as far as they are not zero |
//! | `"abcd"` | the text; a quote cannot stand in it |
//! | `%o` | the offset of the block on the device, eight bytes, lowest first |

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// fio takes no longer pattern.
const MOST_BYTES: usize = 512;
const OFFSET_BYTES: usize = size_of::<u64>();

/// See the module's argument. It is written again as it was read.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct DataPattern {
    text: String,
    bytes: Vec<u8>,
    /// Where in it the eight bytes of an offset begin.
    offsets: Vec<usize>,
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// There is nothing in it.
    #[error("a pattern has at least one byte")]
    Empty,
    /// It is too long.
    #[error("a pattern has at most {MOST_BYTES} bytes")]
    TooLong,
    /// It names a file.
    #[error("the contents of a file are not read as a pattern")]
    File,
    /// Some of it means nothing.
    #[error("'{0}' begins with neither a number, a quoted text nor %o")]
    Meaningless(String),
}

impl DataPattern {
    /// Whether blocks at different offsets hold different bytes.
    #[must_use]
    #[inline]
    pub fn has_offsets(&self) -> bool {
        !self.offsets.is_empty()
    }

    /// Fills a block that lies at `offset`.
    #[inline]
    pub fn fill(&self, offset: u64, block: &mut [u8]) {
        let head = self.bytes.len().min(block.len());
        block[..head].copy_from_slice(&self.at(offset)[..head]);
        let mut filled = head;
        while filled < block.len() {
            // What is filled is a whole number of patterns.
            let more = filled.min(block.len() - filled);
            block.copy_within(..more, filled);
            filled += more;
        }
    }

    /// Compares part of a block that lies at `offset`; the part begins `from` bytes after the block. Returns what should
    /// stand at the first byte that differs, and where in the part that is.
    #[must_use]
    #[inline]
    pub fn difference(&self, offset: u64, from: usize, part: &[u8]) -> Option<(usize, u8)> {
        let head = self.at(offset);
        let head = &head[..self.bytes.len()];
        let mut at = 0;
        while at < part.len() {
            let expected = &head[(from + at) % head.len()..];
            let length = expected.len().min(part.len() - at);
            let (expected, found) = (&expected[..length], &part[at..at + length]);
            if expected != found {
                let place = expected.iter().zip(found).position(|(expected, found)| expected != found)?;
                return Some((at + place, expected[place]));
            }
            at += length;
        }
        None
    }

    /// The pattern of a block at `offset`, and zeros behind it.
    #[inline]
    fn at(&self, offset: u64) -> [u8; MOST_BYTES] {
        let mut bytes = [0; MOST_BYTES];
        bytes[..self.bytes.len()].copy_from_slice(&self.bytes);
        for at in &self.offsets {
            bytes[*at..at + OFFSET_BYTES].copy_from_slice(&offset.to_le_bytes());
        }
        bytes
    }
}

impl FromStr for DataPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let meaningless = || InvalidPattern::Meaningless(rest.to_owned());
            if first == '\'' {
                return Err(InvalidPattern::File);
            }
            rest = if let Some(after) = rest.strip_prefix("%o") {
                offsets.push(bytes.len());
                bytes.extend([0; OFFSET_BYTES]);
                after
            } else if let Some(quoted) = rest.strip_prefix('"') {
                let (letters, after) = quoted.split_once('"').ok_or_else(meaningless)?;
                bytes.extend(letters.as_bytes());
                after
            } else {
                let (number, after) = number(rest).ok_or_else(meaningless)?;
                bytes.extend(number);
                after
            };
        }
        match bytes.len() {
            0 => Err(InvalidPattern::Empty),
            1..=MOST_BYTES => Ok(Self { text: text.to_owned(), bytes, offsets }),
            _ => Err(InvalidPattern::TooLong),
        }
    }
}

/// The bytes of the number that a text begins with, and what follows it.
fn number(text: &str) -> Option<(Vec<u8>, &str)> {
    let is_x = |text: &str| text.starts_with(['x', 'X']);
    if let Some(digits) = text.strip_prefix('0').filter(|rest| is_x(rest)).map(|rest| &rest[1..]) {
        let mut end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        // `0xff0x14` is two numbers.
        if is_x(&digits[end..]) && digits[..end].ends_with('0') {
            end -= 1;
        }
        let (digits, rest) = digits.split_at(end);
        if digits.is_empty() {
            return None;
        }
        let padded = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits.to_owned() };
        let pair = |at: usize| u8::from_str_radix(&padded[at..at + 2], 16).ok();
        let bytes = (0..padded.len()).step_by(2).map(pair).collect::<Option<Vec<u8>>>()?;
        return Some((bytes, rest));
    }
    // `-100xab` is -10 and 0xab.
    let room = text.to_ascii_lowercase().find("0x").unwrap_or(text.len());
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text.get(sign..room)?;
    let end = sign + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let value = text[..end].parse::<i32>().ok()?.to_le_bytes();
    let used = value.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    Some((value[..used].to_vec(), &text[end..]))
}

impl std::fmt::Display for DataPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for DataPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for DataPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        text.parse::<DataPattern>().expect(text).bytes
    }

    #[test]
    fn a_pattern_is_read_as_fio_reads_it() {
        // The examples of fio's lib/pattern.c.
        assert_eq!(bytes("\"abcd\""), b"abcd");
        assert_eq!(bytes("-1024"), [0x00, 0xfc, 0xff, 0xff]);
        assert_eq!(bytes("66"), [0x42]);
        assert_eq!(bytes("0"), [0]);
        assert_eq!(bytes("0xFF0X1"), [0xff, 0x01]);
        assert_eq!(bytes("%o"), [0; 8]);
        assert_eq!(bytes("\"123\"0xFFeeCC"), [0x31, 0x32, 0x33, 0xff, 0xee, 0xcc]);
        let joined = [0xf6, 0xff, 0xff, 0xff, 0xab, 0x31, 0, 0, 0, 0, 0, 0, 0, 0, 0x32];
        assert_eq!(bytes("-100xab\"1\"%o\"2\""), joined);
        assert_eq!(bytes("0xaa555aa5"), [0xaa, 0x55, 0x5a, 0xa5]);
        assert_eq!(bytes("0xfff"), [0x0f, 0xff]);
        assert_eq!(bytes("-1"), [0xff; 4]);
    }

    #[test]
    fn what_means_nothing_is_named() {
        for text in ["abc", "0x", "0xzz", "\"abc", "%d", "12 34", "-", "-0x12", "99999999999", "1é"] {
            let read = text.parse::<DataPattern>();
            assert!(matches!(read, Err(InvalidPattern::Meaningless(_))), "{text}: {read:?}");
        }
        assert_eq!("".parse::<DataPattern>(), Err(InvalidPattern::Empty));
        assert_eq!("\"\"".parse::<DataPattern>(), Err(InvalidPattern::Empty));
        assert_eq!("'/etc/passwd'".parse::<DataPattern>(), Err(InvalidPattern::File));
        assert!(format!("0x{}", "ab".repeat(512)).parse::<DataPattern>().is_ok());
        let long = format!("0x{}", "ab".repeat(513)).parse::<DataPattern>();
        assert_eq!(long, Err(InvalidPattern::TooLong));
    }

    #[test]
    fn a_filled_block_has_no_difference_and_each_changed_byte_is_found() {
        for text in ["0x01", "0xaa555aa5", "\"abc\"%o", "%o", "\"seven b\""] {
            let pattern: DataPattern = text.parse().expect(text);
            let mut block = vec![0; 1000];
            pattern.fill(0x1234_5678, &mut block);
            assert_eq!(pattern.difference(0x1234_5678, 0, &block), None, "{text}");
            assert_eq!(pattern.difference(0x1234_5678, 333, &block[333..]), None, "{text}");
            assert_eq!(pattern.difference(0, 0, &block).is_some(), pattern.has_offsets(), "{text}");
            for at in [0, 1, 7, 8, 511, 512, 999] {
                let good = block[at];
                block[at] ^= 0x40;
                assert_eq!(pattern.difference(0x1234_5678, 0, &block), Some((at, good)), "{text}, {at}");
                block[at] = good;
            }
        }
    }

    #[test]
    fn a_block_shorter_than_its_pattern_holds_the_beginning() {
        let pattern: DataPattern = "\"abcdefgh\"%o".parse().expect("is one");
        let mut block = [0; 10];
        pattern.fill(0x0201, &mut block);
        assert_eq!(&block, b"abcdefgh\x01\x02");
        assert_eq!(pattern.difference(0x0201, 0, &block), None);
    }
}
