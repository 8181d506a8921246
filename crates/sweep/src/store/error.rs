//! What can go wrong with a results file, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// A results file that cannot be made, opened, read or added to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is nothing there.
    #[error("{}: there is no such results file", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The directory that is to hold a new results file is not there.
    #[error("{}: there is no such directory to hold a results file", path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A new sweep would overwrite an old one.
    #[error("{}: holds a sweep already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{}: is not a flashwright results file ({what})", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// How that shows.
        what: &'static str,
    },
    /// The file was written by another version.
    #[error("{}: has format {found}, and this flashwright reads {known}", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The format that this program knows.
        known: i64,
    },
    /// The sweep that was to fill the file was stopped before it had written its plan.
    #[error("{}: holds no sweep; the one that was begun here never got to its first run", path.display())]
    Unbegun {
        /// The file.
        path: PathBuf,
    },
    /// Another process runs this sweep.
    #[error("{}: another process runs this sweep{}", path.display(), holder_words(holder.as_deref()))]
    Locked {
        /// The file.
        path: PathBuf,
        /// Process id and host name, where the lock file tells.
        holder: Option<String>,
    },
    /// The lock file cannot be made or locked.
    #[error("{}: cannot take the sweep's lock", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The file system is full.
    #[error("{}: no space left to {operation}; all earlier runs are kept", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What was being done.
        operation: &'static str,
    },
    /// A value in the file contradicts what may stand there.
    #[error("{}: {place} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Table and row.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// A word in the file is of a later version, and decides how the figures are to be read.
    #[error("{}: {place} is '{word}', which this flashwright does not know", path.display())]
    Later {
        /// The file.
        path: PathBuf,
        /// Table and row.
        place: String,
        /// The word.
        word: String,
    },
    /// There is no such run.
    #[error("{}: there is no {what}", path.display())]
    NoSuchRow {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        what: String,
    },
    /// The sweep in the file is not the one asked for.
    #[error("{}: holds the sweep '{found}', whose plan differs from that of '{wanted}'", path.display())]
    OtherPlan {
        /// The file.
        path: PathBuf,
        /// Name of the stored sweep.
        found: String,
        /// Name of the sweep asked for.
        wanted: String,
    },
    /// Two files hold different figures for the same step.
    #[error("{}: point {point}, pass {pass} has other figures than in a shard before", path.display())]
    Contradicts {
        /// The file that came later.
        path: PathBuf,
        /// The point's id.
        point: u32,
        /// The pass.
        pass: u32,
    },
    /// The sweep was begun on another machine.
    #[error("{}: was measured on another machine: {}", path.display(), differences.join(", "))]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// What differs, each as `name: then → now`.
        differences: Vec<String>,
    },
    /// Any other failure of the database.
    #[error("{}: cannot {operation}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What was being done.
        operation: &'static str,
        /// SQLite's reason.
        #[source]
        source: rusqlite::Error,
    },
    /// Any other failure of the file system.
    #[error("{}: cannot {operation}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was being done.
        operation: &'static str,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
}

fn holder_words(holder: Option<&str>) -> String {
    holder.map(|holder| format!(" ({holder})")).unwrap_or_default()
}

impl StoreError {
    /// What to do about it, where there is something to do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Missing { .. } => "name the directory that a sweep wrote (its --output), or its results.db",
            Self::NoDirectory { .. } => "make it first, or name another --output",
            Self::Exists { .. } => "go on with it by `flashwright sweep resume`, or choose another --output",
            Self::Foreign { .. } => "name the directory that a sweep wrote (its --output), or its results.db",
            Self::Later { .. } => "use the flashwright that wrote it, or a later one",
            Self::OtherFormat { .. } => {
                "use the flashwright that wrote it, or a later one where it is of a later format"
            }
            Self::Unbegun { .. } => "start the sweep again with the same --output",
            Self::Locked { .. } => {
                "wait for it, or stop it first; `flashwright sweep status` shows how far it is"
            }
            Self::Full { .. } => {
                "free some space, then `flashwright sweep resume` goes on where this stopped"
            }
            Self::Damaged { .. } => "restore the file from a copy; a copy must be taken while no sweep runs",
            Self::OtherPlan { .. } => "choose another --output, or resume without naming a space",
            Self::Contradicts { .. } => {
                "a shard that was measured twice is two sweeps: name one of the two directories"
            }
            Self::OtherMachine { .. } => {
                "resume it there, or add --allow-other-machine to mix figures of two machines knowingly"
            }
            Self::Lock { .. } => "run it as the user who began it; its directory must be writable",
            Self::NoSuchRow { .. } | Self::Database { .. } | Self::File { .. } => {
                return None;
            }
        })
    }

    /// Sorts SQLite's failures into those that a user can act on and the rest.
    pub(super) fn from_sql(path: &Path, operation: &'static str, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::Foreign { path, what: "it is no SQLite database" },
            Some(ErrorCode::DiskFull) => Self::Full { path, operation },
            Some(ErrorCode::DatabaseCorrupt) => {
                Self::Damaged { path, place: "the database".into(), what: source.to_string() }
            }
            _ => Self::Database { path, operation, source },
        }
    }
}
