//! What ends a run.

use std::io;
use std::path::{Path, PathBuf};

use base::ErrorClass;
use ranks::{Lost, RanksError, Why};
use stage::error::StageError;

/// Why a run could not be made, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum FlashioError {
    /// A value makes no sense.
    #[error("--{flag}: {problem}")]
    Invalid {
        /// The flag, without dashes, with its value.
        flag: String,
        /// What is wrong with it.
        problem: String,
        /// What would be right.
        hint: &'static str,
    },
    /// A task is lost.
    #[error("task {} on {} {}", .0.rank, .0.node, .0.why)]
    Task(Lost),
    /// The tasks could not be started, or not be told.
    #[error("the tasks")]
    Ranks(#[source] RanksError),
    /// Tasks were started, and one of them has not joined the others in time.
    #[error("of {tasks} tasks number {} on {} {}", lost.rank, lost.node, lost.why)]
    NotJoined {
        /// How many were started.
        tasks: u32,
        /// The one that is missing.
        lost: Lost,
    },
    /// The store could not drain.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A system call failed.
    #[error("{}: cannot {operation}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A block of a checkpoint is not what was written.
    #[error("{}: {what}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong with which block.
        what: String,
    },
    /// A drain did not end in time.
    #[error("checkpoint {step} is not durable on the slow tier after {waited_s} s")]
    Undrained {
        /// The checkpoint.
        step: u64,
        /// Seconds.
        waited_s: u64,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl FlashioError {
    /// A system call that failed.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }

    /// What kind of failure.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. } => ErrorClass::Invalid,
            Self::Interrupted => ErrorClass::Interrupted,
            Self::Stage(error) => error.class(),
            _ => ErrorClass::Failed,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. } => Some((*hint).to_owned()),
            Self::Stage(error) => error.hint(),
            Self::Ranks(error) => error.hint().map(str::to_owned),
            Self::NotJoined { .. } => Some("start fewer --tasks, or free the host of other work".to_owned()),
            Self::Task(Lost { why: Why::Late(_), .. }) => {
                Some("a task that is only slow needs a longer --timeout".to_owned())
            }
            _ => None,
        }
    }
}

impl From<RanksError> for FlashioError {
    fn from(error: RanksError) -> Self {
        match error {
            RanksError::Lost(lost) => lost.into(),
            other => Self::Ranks(other),
        }
    }
}

/// The root is lost only where it was told to stop, or at the other ranks.
impl From<Lost> for FlashioError {
    fn from(lost: Lost) -> Self {
        if lost.rank == 0 { Self::Interrupted } else { Self::Task(lost) }
    }
}
