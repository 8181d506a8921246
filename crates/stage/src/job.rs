//! A job: a request that was accepted, and what has become of it.

use serde::{Deserialize, Serialize};

use crate::error::RETRY;
pub use crate::error::Why;
use crate::fingerprint::Fingerprint;
use crate::spec::{JobSpec, Level};

/// A job's number in its journal.
pub type JobId = i64;

/// How a failed job is begun again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// A server has the job under this number.
    Retry(JobId),
    /// A command without a server has it: given again, it goes on.
    SameCommand,
}

impl Remedy {
    /// A hint with [`RETRY`] put into words.
    #[must_use]
    pub fn spell(self, hint: &str) -> String {
        match self {
            Self::Retry(id) => hint.replace(RETRY, &format!("flashwright stage retry {id}")),
            Self::SameCommand => hint.replace(RETRY, "the same command goes on"),
        }
    }
}

/// Where a job is. Durable in the journal; what a crash leaves, the next start goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// INTENT: accepted. Nothing is at the destination but, after a start, what is not whole.
    Queued,
    /// At work.
    Running,
    /// COMMITTED: at the destination under its name, verified and, unless that is in memory, durable. The source, of a
    /// move, may still be there.
    Committed,
    /// DONE: nothing is left to do.
    Done,
    /// It could not be done; the source is where it was, what was copied is kept for `retry`.
    Failed,
    /// It was cancelled: the source is where it was, what was copied is gone.
    Cancelled,
}

impl State {
    /// The word for it in the journal and on the screen.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Committed => "committed",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Is there nothing left to do?
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// A job as those who ask are told. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobStatus {
    /// Its number.
    pub id: JobId,
    /// What was asked for.
    pub spec: JobSpec,
    /// Where it is.
    pub state: State,
    /// How far it has come.
    pub level: Level,
    /// Why it failed; of a job that is done, why its source was left alone: its copy was taken away before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Why>,
    /// What is worth knowing and no failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How often it was begun.
    pub attempts: u32,
    /// When it was accepted.
    pub created: u64,
    /// When it was durable. None if the destination is in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<u64>,
    /// When nothing was left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<u64>,
    /// Files found; all of them where `walked`.
    pub files_total: u64,
    /// Files durable and verified.
    pub files_done: u64,
    /// Bytes found.
    pub bytes_total: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read back and right.
    pub bytes_verified: u64,
    /// The totals are totals.
    pub walked: bool,
    /// Bytes a second written, lately; none unless it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// What holds it back now, in a person's words: `bwlimit 2 GB/s`, `the fast tier answers 3.1x slower than at rest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back_by: Option<String>,
    /// The destination is in memory (tmpfs, ramfs): the job ends at the level `in-memory`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_memory: bool,
    /// The state of the source that the copy is of, as [`crate::runner::fingerprint_of`] tells it: names, inodes, sizes and
    /// times. There from right before the copy is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Fingerprint>,
}

/// Has a job come as far as a client waits for (`wanted`), or will it come no further? Of a job that is to be at its
/// destination, the source of a move has gone as well.
#[must_use]
pub fn has_reached(state: State, level: Level, wanted: Level) -> bool {
    state.is_final() || (!wanted.is_committed() && level >= wanted)
}

impl JobStatus {
    /// Was its copy taken away before its source went? Then both are as others left them, and the job is done.
    #[must_use]
    pub fn has_left_its_source(&self) -> bool {
        self.state == State::Done && self.error.is_some()
    }

    /// [`has_reached`].
    #[must_use]
    pub fn has_reached(&self, wanted: Level) -> bool {
        has_reached(self.state, self.level, wanted)
    }

    /// What is promised of a copy that is committed ([`Level::is_committed`]).
    #[must_use]
    pub fn promise(&self) -> &'static str {
        if self.in_memory { "copied to memory, not durable" } else { "durable and verified" }
    }
}
