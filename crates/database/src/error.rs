//! What ends a run.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use base::ErrorClass;

/// Why a database could not be loaded or asked.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// A value makes no sense.
    #[error("--{flag}: {problem}")]
    Invalid {
        /// The flag, without dashes, with its value.
        flag: String,
        /// What is wrong with it.
        problem: String,
        /// What would be right.
        hint: String,
    },
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
    /// The engine failed.
    #[error("{at}: cannot {operation}")]
    Engine {
        /// Its file, directory or address.
        at: String,
        /// What was tried.
        operation: String,
        /// What the engine says.
        source: Box<dyn Error + Send + Sync>,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The server is the user's own: it is not stopped, and its files are not evicted.
    #[error("{at}: belongs to the user, so it cannot be stopped and made cold")]
    NotOwned {
        /// Its address.
        at: String,
    },
    /// Pages of the data stayed in memory.
    #[error("{}: {resident_bytes} bytes stay in the page cache, so the database is not cold", path.display())]
    Warm {
        /// The file with most of them.
        path: PathBuf,
        /// Bytes of all files.
        resident_bytes: u64,
    },
    /// The database there is another one.
    #[error("the database there is {found}, not {expected}")]
    Other {
        /// What is there.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// The tier has not the room for a database.
    #[error("--{flag}: has {} MiB free, and the database takes about {} MiB", free_bytes >> 20, needed_bytes.div_ceil(1 << 20))]
    NoRoom {
        /// The flag, without dashes, with its value.
        flag: String,
        /// What the load takes.
        needed_bytes: u64,
        /// What is there.
        free_bytes: u64,
    },
    /// There is no complete database.
    #[error("{at}: there is no complete database")]
    Incomplete {
        /// Where.
        at: String,
    },
    /// The engine is not as it was when a comparison began.
    #[error("the comparison began with another engine: {what}")]
    Changed {
        /// What was, and what is.
        what: String,
    },
    /// Two tiers give different answers to the same question.
    #[error("{query}: {} on {}, {} on {}", answers[0], tiers[0], answers[1], tiers[1])]
    Differ {
        /// The query.
        query: &'static str,
        /// The tiers.
        tiers: [String; 2],
        /// What each of them answered.
        answers: [String; 2],
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl DatabaseError {
    /// A system call that failed.
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }

    /// What kind of failure.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. }
            | Self::NoRoom { .. }
            | Self::Other { .. }
            | Self::Incomplete { .. }
            | Self::Changed { .. } => ErrorClass::Invalid,
            Self::Interrupted => ErrorClass::Interrupted,
            _ => ErrorClass::Failed,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. } => Some(hint.clone()),
            Self::Engine { hint, .. } => hint.clone(),
            Self::NoRoom { .. } => Some("name a tier with more room, or fewer --rows".to_owned()),
            Self::NotOwned { .. } => Some("measure it warm, or let a server be managed: --dir".to_owned()),
            Self::Warm { .. } => Some("close the programs that have the file mapped or open".to_owned()),
            Self::Other { .. } => {
                Some("name another directory, or the rows and seed of that database".to_owned())
            }
            Self::Incomplete { .. } => {
                Some("flashwright db load makes it, and goes on with one that was cut off".to_owned())
            }
            Self::Changed { .. } => Some("set it as it was, or name another --output".to_owned()),
            Self::Differ { .. } => {
                Some("one of the databases is damaged: remove it and load it again".to_owned())
            }
            Self::Io { .. } | Self::Interrupted => None,
        }
    }
}
