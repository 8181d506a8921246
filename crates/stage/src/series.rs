//! Series: sets beside each other whose names differ in their last number only, `ckpt-9` and `ckpt-10`; and sets that many
//! nodes write ([`crate::parts`]), `step-00000009.run-A` and `step-00000010.run-B`, of whatever run, ordered by step.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::parts::SetId;

/// The link beside a series that points to its newest durable member; in an object store the object that names it.
pub const LATEST: &str = "latest";

/// What the name of a set of parts has before its step and after it.
const STEP: &[u8] = b"step-";
const RUN: &[u8] = b".run-";

/// A member's place in its series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesPosition<'a> {
    before: &'a [u8],
    digits: &'a [u8],
    after: &'a [u8],
}

/// Reads a name as a member of a series: what is before its last number, the number, what is after.
#[must_use]
pub fn place(name: &OsStr) -> Option<SeriesPosition<'_>> {
    let bytes = name.as_bytes();
    if SetId::of_name(name).is_some() {
        let digits = bytes.iter().skip(STEP.len()).take_while(|byte| byte.is_ascii_digit()).count();
        return Some(SeriesPosition { before: STEP, digits: &bytes[STEP.len()..][..digits], after: RUN });
    }
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let start = bytes[..end].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    Some(SeriesPosition { before: &bytes[..start], digits: &bytes[start..end], after: &bytes[end..] })
}

impl SeriesPosition<'_> {
    /// Are these of one series?
    #[must_use]
    pub fn is_beside(&self, other: &SeriesPosition<'_>) -> bool {
        self.before == other.before && self.after == other.after
    }

    /// The order within a series: by number, however long, and 7 before 07.
    #[must_use]
    pub fn order(&self, other: &SeriesPosition<'_>) -> Ordering {
        let number = |digits: &[u8]| {
            let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
            digits[zeros..].to_vec()
        };
        let (a, b) = (number(self.digits), number(other.digits));
        (a.len(), a, self.digits.len()).cmp(&(b.len(), b, other.digits.len()))
    }
}
