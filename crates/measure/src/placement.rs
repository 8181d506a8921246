//! Where a workload's threads run and its buffers lie: CPUs, NUMA nodes, pages.
//!
//! Lists of CPUs and nodes are written as fio and the kernel write them: `0-3,8`. A list has one canonical text, with neighbours joined into ranges and nothing named twice, so that two
//! spellings of one list are one value wherever values are compared: as a sweep's point, in a record.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Numbers of CPUs or nodes, ascending, each once, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct NumberList(Vec<u32>);

/// The largest number that a list may name; no kernel is built for more CPUs (`NR_CPUS`).
const LARGEST: u32 = 8191;

/// A text that is no list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{part}' is neither a number up to {LARGEST} nor a range such as 0-3")]
pub struct InvalidList {
    /// The part at fault.
    pub part: String,
}

impl NumberList {
    /// A list of these numbers; none where there are none, or one is too large to be a CPU.
    #[must_use]
    pub fn new(numbers: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut numbers: Vec<u32> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        (!numbers.is_empty() && numbers.iter().all(|n| *n <= LARGEST)).then_some(Self(numbers))
    }

    /// The numbers, ascending.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }
}

impl FromStr for NumberList {
    type Err = InvalidList;

    fn from_str(text: &str) -> Result<Self, InvalidList> {
        let mut numbers = Vec::new();
        for part in text.split(',').map(str::trim) {
            let bad = || InvalidList { part: part.to_owned() };
            let number =
                |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n <= LARGEST).ok_or_else(bad);
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(bad());
            }
            numbers.extend(first..=last);
        }
        Self::new(numbers).ok_or_else(|| InvalidList { part: text.to_owned() })
    }
}

impl fmt::Display for NumberList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| a + 1 == *b);
        for (place, run) in runs.enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            match run {
                [first, .., last] => write!(f, "{first}-{last}")?,
                [only] => write!(f, "{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for NumberList {
    type Error = InvalidList;

    fn try_from(text: String) -> Result<Self, InvalidList> {
        text.parse()
    }
}

impl From<NumberList> for String {
    fn from(list: NumberList) -> Self {
        list.to_string()
    }
}

base::words! {
    /// How the CPUs of `cpus_allowed` are given to a workload's jobs: fio's `cpus_allowed_policy`.
    #[derive(Default)]
    pub enum CpusAllowedPolicy {
        /// Every job may run on all of them.
        #[default]
        Shared = "shared",
        /// Each job is bound to one of them, in order, beginning again where there are more jobs than CPUs.
        Split = "split",
    }
}

base::words! {
    /// The pages that buffers lie in. fio's `iomem` says less: its `mmaphuge` is [`Pages::Huge`] here, and its
    /// other words leave it to the machine whether pages are transparently huge.
    #[derive(Default)]
    pub enum Pages {
        /// The largest available: reserved huge pages, transparent ones, base pages. The record says
        /// which it was.
        #[default]
        Auto = "auto",
        /// Pages of the base size (4 KiB on most machines), even where huge ones are available.
        Base = "base" | "4k",
        /// Transparent huge pages, asked for by madvise(2).
        Thp = "thp",
        /// Reserved huge pages (`vm.nr_hugepages`).
        Huge = "huge",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_list_have_one_text() {
        for (typed, text) in [
            ("0", "0"),
            ("0-3,8", "0-3,8"),
            ("8,0,1,2,3", "0-3,8"),
            ("1, 0", "0-1"),
            ("3-3", "3"),
            ("0-2,1-4", "0-4"),
        ] {
            assert_eq!(typed.parse::<NumberList>().expect(typed).to_string(), text, "{typed}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_part() {
        for (typed, part) in
            [("", ""), ("0,x", "x"), ("3-1", "3-1"), ("0-", "0-"), ("8192", "8192"), ("all", "all")]
        {
            assert_eq!(typed.parse::<NumberList>().expect_err(typed).part, part);
        }
    }
}
