//! Other processes that copy for a move: the *hands* of a *crew*.
//!
//! One process carries a move out: it has the journal, walks the source, makes directories, publishes. What it may give away is the
//! copying between them: a task of names, or of chunks of one file. A hand does all of steps 3 of the runner for its task, on
//! its own node: it copies, syncs, and reads back around its own page cache. Only then it answers, and only then the
//! answer is recorded. So a hand that is lost has lost nothing that was recorded, and nothing was published.
//!
//! A hand works below the same directories, seen from another node: it compares the identity of source and part with
//! those of the errand before it touches anything ([`Hand::open`]).

mod hand;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::digest::{Algorithm, Digest};
use crate::error::{Cause, Foreign, StageError, Why};
use crate::fingerprint::Identity;
use crate::manifest::Entry;
use crate::names::PathText;
use crate::owned::FileId;
use crate::spec::Preserve;

pub use hand::Hand;
pub(crate) use hand::copy_range;

/// A move that tasks belong to: the same for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// The source's root.
    pub source: PathText,
    /// What it is.
    pub source_id: FileId,
    /// The part's root.
    pub part: PathText,
    /// What it is.
    pub part_id: FileId,
    /// Both are directories; else a single file.
    pub is_directory: bool,
    /// How bytes are digested.
    pub algorithm: Algorithm,
    /// What goes with them.
    pub preserve: Preserve,
    /// The source as a whole was not synced: a file is, before its holes are believed.
    pub sync_source: bool,
}

/// What a hand is to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Names of directories, which are there in the part.
    Names(Vec<(PathText, Vec<PathText>)>),
    /// Chunks of a file, which is there in the part.
    Chunks {
        /// The file; empty for the root.
        path: PathText,
        /// The source, when the move opened it.
        source: Identity,
        /// The copy.
        copy: FileId,
        /// Which chunks.
        chunks: Range<u64>,
    },
}

/// What came of a task. All of it is durable and was read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Copied {
    /// Of names.
    Names {
        /// Files and links that were copied, each with the source as it was then.
        done: Vec<(Entry, Identity)>,
        /// Files that go by the chunk: number of the directory in the task, name, bytes.
        large: Vec<(usize, PathText, u64)>,
        /// Names of files that have several: number of the directory, name, inode.
        linked: Vec<(usize, PathText, u64)>,
        /// Owners and attributes that could not be kept.
        not_preserved: u64,
    },
    /// Of chunks, with their digests.
    Chunks(Vec<(u64, Digest)>),
}

/// Why a hand did not do a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The source is not what it was.
    Changed {
        /// Which file.
        path: String,
        /// In what.
        how: String,
    },
    /// Written data could not be made durable, and is not to be trusted.
    Unsynced(Why),
    /// Anything else.
    Other(Why),
}

impl From<StageError> for Failure {
    fn from(error: StageError) -> Self {
        match error {
            StageError::SourceChanged { path, how } => Self::Changed { path, how },
            StageError::Sync { .. } => Self::Unsynced(Why::of(&error)),
            error => Self::Other(Why::of(&error)),
        }
    }
}

impl Failure {
    /// As the move has it. `whom` is the hand, as a person reads it.
    #[must_use]
    pub fn of_hand(self, whom: &str) -> StageError {
        let is_unsynced = matches!(self, Self::Unsynced(_));
        match self {
            Self::Changed { path, how } => StageError::SourceChanged { path, how },
            Self::Unsynced(why) | Self::Other(why) => {
                HandError { whom: whom.to_owned(), why, is_unsynced }.into()
            }
        }
    }
}

/// The hands that a move may give tasks to.
pub trait Crew: Send + Sync {
    /// How many there are.
    fn hands(&self) -> usize;

    /// Has a hand do a task, and returns when it has. Called for several tasks of one hand at once.
    ///
    /// # Errors
    /// The hand's; the hand is lost.
    fn work(&self, hand: usize, errand: &Errand, task: Task) -> Result<Copied, StageError>;
}

/// An error of a hand.
#[derive(Debug, thiserror::Error)]
#[error("{whom}: {}", .why.message)]
struct HandError {
    whom: String,
    why: Why,
    is_unsynced: bool,
}

impl Foreign for HandError {
    fn class(&self) -> base::ErrorClass {
        self.why.class
    }

    fn cause(&self) -> Cause {
        self.why.cause
    }

    fn hint(&self) -> Option<String> {
        self.why.hint.clone()
    }

    fn errno(&self) -> Option<i32> {
        self.why.errno
    }
}

/// Is nothing in the inode to be trusted that the error is of, because a sync of it failed, here or at a hand?
pub(crate) fn is_unsynced(error: &StageError) -> bool {
    let at_hand = || error.foreign::<HandError>().is_some_and(|error| error.is_unsynced);
    matches!(error, StageError::Sync { .. }) || at_hand()
}

/// A hand answered what was not asked.
pub(crate) fn out_of_step() -> StageError {
    StageError::Stopped { what: "a task was answered with another one's result".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_sync_of_a_hand_is_told_from_other_errors_whatever_its_number() {
        let full = || std::io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let path = std::path::Path::new("/slow/part");
        let at_hand = |error: StageError| Failure::from(error).of_hand("rank 1 on n1");
        let sync = at_hand(StageError::sync("fdatasync", path, full()));
        assert!(is_unsynced(&sync));
        assert_eq!(sync.cause(), Cause::NoSpace);
        assert!(base::with_causes(&sync).starts_with("rank 1 on n1: /slow/part"), "{sync}");
        assert!(!is_unsynced(&at_hand(StageError::io("write", path, full()))));
    }
}
