//! Sets that many nodes write: each rank stores its part by itself, and whoever finds all of them makes the set complete.
//!
//! ```text
//! SLOW/step-00000100.run-4711.0/                        the set: its name is its identity
//!          rank-000000-of-000002/…                      a part, with a manifest of its own
//!          rank-000001-of-000002/…
//!          .flashwright-manifest                        the set's record: all entries of all parts
//! SLOW/latest -> step-00000100.run-4711.0
//! ```
//!
//! A part is moved as any set is ([`crate::runner`]): it gets its name when it is durable and was read back. Its manifest
//! states which part it is ([`PartRecord`]), and of how many. Then:
//!
//! 1. A set is **complete** when its record is there. The record is a manifest, so that `verify`, `get`, retention and
//!    `latest` treat the set as any other.
//! 2. The record is published only by a process that has found every part: its manifest whole and of this run, step and
//!    number of ranks, every file that it lists there in its size. Before that the set's directory is synced: names of
//!    parts that another node gave, and did not sync yet, are durable before the record is.
//! 3. The record's bytes follow from the manifests of the parts alone, so of two processes that publish it at once either
//!    may be first, and the other finds the same.
//! 4. A run has an identity ([`RunId`]) that no other launch of the program has. Parts of two runs are in two sets, also of
//!    one step; a part that was carried into another set by hand is told by its record.
//! 5. Retention counts and removes complete sets alone ([`crate::retention`]).
//!
//! Nothing is asked of the other nodes, so no process waits for another. What a node that never comes back has not drained
//! leaves a set without a record, which [`crate::complete::survey`] names.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::StageError;

/// Most ranks of a set: their names sort by their number.
pub const RANKS_MAX: u32 = 1_000_000;
/// Bytes of the longest run identity.
const RUN_BYTES_MAX: usize = 64;

/// The identity of one launch of a program: letters, digits, `.`, `_` and `-`, at most 64, the first a letter or digit.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct RunId(String);

impl RunId {
    /// As it is spelt.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = StageError;

    fn from_str(text: &str) -> Result<Self, StageError> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && text.len() <= RUN_BYTES_MAX && text.as_bytes().iter().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(StageError::invalid(
            format!("run {text:?}: not the identity of a run"),
            format!(
                "letters, digits, '.', '_' and '-', at most {RUN_BYTES_MAX}, beginning with a letter or digit"
            ),
        ))
    }
}

impl TryFrom<String> for RunId {
    type Error = StageError;

    fn try_from(text: String) -> Result<Self, StageError> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which set: its name is `step-00000100.run-RUN`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId {
    /// The step. Sets of all runs in one directory are ordered by it.
    pub step: u64,
    /// The launch that wrote it.
    pub run: RunId,
}

impl SetId {
    /// Reads a set's name.
    #[must_use]
    pub fn of_name(name: &OsStr) -> Option<Self> {
        let (step, run) = name.to_str()?.strip_prefix("step-")?.split_once(".run-")?;
        let id = Self { step: step.parse().ok()?, run: run.parse().ok()? };
        (name == id.to_string().as_str()).then_some(id)
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step-{:08}.run-{}", self.step, self.run)
    }
}

/// Which part of a set: its name is `rank-000003-of-000008`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartId {
    /// From 0.
    pub rank: u32,
    /// Parts of the whole set.
    pub ranks: u32,
}

impl PartId {
    /// A part of a set.
    ///
    /// # Errors
    /// [`StageError::Invalid`] for a rank that is not below `ranks`, and for more than [`RANKS_MAX`].
    pub fn new(rank: u32, ranks: u32) -> Result<Self, StageError> {
        if rank < ranks && ranks <= RANKS_MAX {
            return Ok(Self { rank, ranks });
        }
        Err(StageError::invalid(
            format!("rank {rank} of {ranks}: there is no such part"),
            format!("ranks count from 0 to one below their number, which is at most {RANKS_MAX}"),
        ))
    }

    /// Reads a part's name.
    #[must_use]
    pub fn of_name(name: &OsStr) -> Option<Self> {
        let (rank, ranks) = name.to_str()?.strip_prefix("rank-")?.split_once("-of-")?;
        let id = Self::new(rank.parse().ok()?, ranks.parse().ok()?).ok()?;
        (name == id.to_string().as_str()).then_some(id)
    }
}

impl fmt::Display for PartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank-{:06}-of-{:06}", self.rank, self.ranks)
    }
}

/// What a part's manifest states: which part of which set it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartRecord {
    /// The launch.
    pub run: RunId,
    /// The step.
    pub step: u64,
    /// From 0.
    pub rank: u32,
    /// Parts of the whole set.
    pub ranks: u32,
    /// The host that wrote it, for people.
    pub node: String,
}

impl PartRecord {
    /// The set.
    #[must_use]
    pub fn set(&self) -> SetId {
        SetId { step: self.step, run: self.run.clone() }
    }

    /// The part.
    ///
    /// # Errors
    /// As [`PartId::new`].
    pub fn part(&self) -> Result<PartId, StageError> {
        PartId::new(self.rank, self.ranks)
    }
}

/// What a set's record states in its first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SetRecord {
    /// The launch.
    pub run: RunId,
    /// The step.
    pub step: u64,
    /// Its parts.
    pub ranks: u32,
}

/// A part that a set lacks, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct PartFault {
    /// From 0.
    pub rank: u32,
    /// The host that wrote it, or that wrote this rank's part of another set of the run, where that is known.
    pub node: Option<String>,
    /// What is wrong, in words.
    pub why: String,
}

impl fmt::Display for PartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => {
                write!(f, "rank {} ({}): {}", self.rank, crate::names::shown(node.as_bytes()), self.why)
            }
            None => write!(f, "rank {}: {}", self.rank, self.why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::place;

    #[test]
    fn names_of_sets_and_parts_are_read_as_they_are_written_and_in_no_other_way() {
        let set = SetId { step: 100, run: "4711.0".parse().unwrap() };
        assert_eq!(set.to_string(), "step-00000100.run-4711.0");
        assert_eq!(SetId::of_name(OsStr::new("step-00000100.run-4711.0")), Some(set));
        let part = PartId::new(3, 8).unwrap();
        assert_eq!(part.to_string(), "rank-000003-of-000008");
        assert_eq!(PartId::of_name(OsStr::new("rank-000003-of-000008")), Some(part));
        for wrong in [
            "step-100.run-a",
            "step-00000100",
            "step-00000100.run-",
            "step-00000100.run-a/b",
            "step-+0000100.run-a",
        ] {
            assert_eq!(SetId::of_name(OsStr::new(wrong)), None, "{wrong}");
        }
        for wrong in
            ["rank-3-of-8", "rank-000008-of-000008", "rank-000000-of-000000", "rank-000003-of-+00008"]
        {
            assert_eq!(PartId::of_name(OsStr::new(wrong)), None, "{wrong}");
        }
        for wrong in ["", ".a", "-a", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert!(wrong.parse::<RunId>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sets_of_all_runs_are_one_series_ordered_by_step_and_not_by_digits_of_the_run() {
        let at = |name: &'static str| place(OsStr::new(name)).unwrap();
        let (a, b) = (at("step-00000100.run-job9"), at("step-00000200.run-job1"));
        assert!(a.is_beside(&b) && a.order(&b).is_lt());
        assert!(!a.is_beside(&at("step-00000100")));
    }
}
