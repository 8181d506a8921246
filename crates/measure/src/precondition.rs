//! What was done to a target before it was measured, and what proves it.
//!
//! The order is that of the SNIA Solid State Storage Performance Test Specification: *purge* (the medium
//! forgets everything), *workload-independent preconditioning* (everything is written twice, so that no
//! block is fresh), *workload-dependent preconditioning* (the test's own writes in rounds, until five of
//! them obey the rules of [`mod@crate::stats::steady`]). Each step leaves its evidence here; what was not done
//! is absent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::Steadiness;

base::words! {
    /// How far to go before measuring.
    #[derive(Default)]
    pub enum Precondition {
        /// Measure the target as it stands.
        #[default]
        None = "none",
        /// Write its region twice, sequentially.
        Fill = "fill",
        /// The same, then the workload itself in rounds until it is steady.
        Steady = "steady",
    }
}

/// What was done, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preconditioned {
    /// What was asked for.
    pub asked: Precondition,
    /// Where the part of the target begins that was prepared, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub region_bytes: u64,
    /// The purge, where there was one.
    pub purge: Option<Purged>,
    /// The fill, where there was one.
    pub fill: Option<Filled>,
    /// The rounds, where there were any.
    pub rounds: Option<Rounds>,
}

impl Preconditioned {
    /// Whether a steady state was asked for and not reached.
    #[must_use]
    pub fn is_unsteady(&self) -> bool {
        self.rounds.as_ref().is_some_and(|rounds| !rounds.steadiness.is_steady())
    }
}

/// How the medium was made to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PurgeMethod {
    /// BLKDISCARD over the region of a block device. The drive may unmap the blocks at once or later; it
    /// is no sanitize, and no proof that every cell was erased.
    Discard,
    /// A hole punched into a file and written again, because a write into a hole measures the file
    /// system's allocation. **Not a purge of the drive**: blocks outside the file stay as they are.
    PunchedAndRewritten,
}

/// A purge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Purged {
    /// How.
    pub method: PurgeMethod,
    /// Bytes that were given back.
    pub bytes: u64,
    /// How long it took, nanoseconds.
    pub elapsed_ns: u64,
}

/// A sequential fill with random data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Filled {
    /// How often the region was written.
    pub passes: u32,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Bytes that were written and flushed.
    pub written_bytes: u64,
    /// Bytes that the drives below counted as written meanwhile (diskstats), by drive; empty where the
    /// kernel keeps no counters of them.
    pub drives: Vec<DriveWritten>,
    /// How long it took, flushes included, nanoseconds.
    pub elapsed_ns: u64,
}

impl Filled {
    /// Bytes that are proved to have been written: what was written, or what the drives counted, where
    /// that is less.
    #[must_use]
    pub fn proved_bytes(&self) -> u64 {
        if self.drives.is_empty() {
            return self.written_bytes;
        }
        self.written_bytes.min(self.drives.iter().map(|drive| drive.bytes).sum())
    }
}

/// What one drive counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriveWritten {
    /// Kernel name.
    pub name: String,
    /// Bytes written.
    pub bytes: u64,
}

/// The workload in rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rounds {
    /// Length of a round, nanoseconds.
    pub round_ns: u64,
    /// The most rounds that were allowed.
    pub most: u32,
    /// Requests a second in each round.
    pub iops: Vec<f64>,
    /// Bytes written in all rounds.
    pub written_bytes: u64,
    /// SNIA's rule, over the window that decided.
    pub steadiness: Steadiness,
}
