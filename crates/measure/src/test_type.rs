//! The papers' fourteen test types (DASH-IO §3.1), numbered as the paper numbers them.
//!
//! The paper lists three groups, each "read and write"; its figures fix the numbers: the first eight
//! are sequential (Fig. 11), and 10, 12 and 14 are the random writes (§3.5). So odd numbers read,
//! even numbers write.
//!
//! | number | request | seeking | depth |
//! |---|---|---|---|
//! | 1, 2 | 4 MiB | sequential | 1 |
//! | 3, 4 | 4 MiB | random | 1 |
//! | 5, 6 | 4 MiB | random | 4 |
//! | 7, 8 | 4 MiB | random | 16 |
//! | 9, 10 | 4 KiB | random | 32 |
//! | 11, 12 | 4 KiB | random | 128 |
//! | 13, 14 | 4 KiB | random | 512 |

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workload::{Rw, Workload};

/// One of the fourteen, 1 to 14.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u8", into = "u8")]
pub struct TestType(u8);

/// A number that is no test type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("test_type={0}: the papers number their test types 1 to 14")]
pub struct NoSuchTestType(pub u8);

impl TryFrom<u8> for TestType {
    type Error = NoSuchTestType;

    fn try_from(number: u8) -> Result<Self, NoSuchTestType> {
        if (1..=14).contains(&number) { Ok(Self(number)) } else { Err(NoSuchTestType(number)) }
    }
}

impl From<TestType> for u8 {
    fn from(test_type: TestType) -> Self {
        test_type.0
    }
}

impl TestType {
    /// All fourteen, in the paper's order.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=14).map(Self)
    }

    /// The paper's number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Whether it reads; the even ones write.
    #[must_use]
    pub fn is_read(self) -> bool {
        self.0 % 2 == 1
    }

    /// Whether its requests are large: the paper's "sequential tests", 1 to 8.
    #[must_use]
    pub fn is_sequential(self) -> bool {
        self.0 <= 8
    }

    /// Requests in flight.
    #[must_use]
    pub fn iodepth(self) -> u32 {
        [1, 1, 4, 16, 32, 128, 512][usize::from(self.0 - 1) / 2]
    }

    /// Request size in bytes: 4 MiB or 4 KiB.
    #[must_use]
    pub fn bs(self) -> u64 {
        if self.is_sequential() { 4 << 20 } else { 4 << 10 }
    }

    /// `base` with this test type's direction, order, block size and depth put in.
    #[must_use]
    pub fn workload(self, base: &Workload) -> Workload {
        let rw = match (self.0 <= 2, self.is_read()) {
            (true, true) => Rw::Read,
            (true, false) => Rw::Write,
            (false, true) => Rw::RandRead,
            (false, false) => Rw::RandWrite,
        };
        Workload {
            name: format!("test type {}", self.0),
            rw,
            bs: self.bs(),
            bssplit: Vec::new(),
            write_bssplit: Vec::new(),
            iodepth: self.iodepth(),
            ..base.clone()
        }
    }

    /// One line for people: `4 MiB sequential read, depth 1`.
    #[must_use]
    pub fn label(self) -> String {
        let size = if self.is_sequential() { "4 MiB" } else { "4 KiB" };
        let seeking = if self.0 <= 2 { "sequential" } else { "random" };
        let direction = if self.is_read() { "read" } else { "write" };
        format!("{size} {seeking} {direction}, depth {}", self.iodepth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourteen_are_those_of_the_paper() {
        let table: Vec<_> = TestType::all()
            .map(|t| {
                let w = t.workload(&Workload::default());
                (w.rw.word(), w.bs, w.iodepth)
            })
            .collect();
        let (mb, kb) = (4 << 20, 4 << 10);
        assert_eq!(
            table,
            [
                ("read", mb, 1),
                ("write", mb, 1),
                ("randread", mb, 1),
                ("randwrite", mb, 1),
                ("randread", mb, 4),
                ("randwrite", mb, 4),
                ("randread", mb, 16),
                ("randwrite", mb, 16),
                ("randread", kb, 32),
                ("randwrite", kb, 32),
                ("randread", kb, 128),
                ("randwrite", kb, 128),
                ("randread", kb, 512),
                ("randwrite", kb, 512),
            ]
        );
    }

    #[test]
    fn only_one_to_fourteen_exist() {
        assert!(TestType::try_from(0).is_err());
        assert!(TestType::try_from(15).is_err());
        assert_eq!(TestType::try_from(14).map(TestType::number), Ok(14));
    }
}
