//! What can be wrong with a machine file.

use std::path::PathBuf;

/// A machine that cannot be: the key at fault as it stands in the file (`drive.page_bytes`), its value, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}={value}: {reason}")]
pub struct InvalidMachine {
    /// The key with the tables that lead to it.
    pub key: String,
    /// Its value, as it would be typed.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
    /// What to do instead.
    pub hint: String,
}

impl InvalidMachine {
    /// The error of `key`, whose `value` cannot be.
    #[must_use]
    pub fn new(
        key: impl Into<String>,
        value: impl ToString,
        reason: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { key: key.into(), value: value.to_string(), reason: reason.into(), hint: hint.into() }
    }
}

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The file cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not TOML, or has a key that is not known, or a value of the wrong kind.
    #[error("{file}: {reason}")]
    Syntax {
        /// The file.
        file: String,
        /// The reader's words, in one line, with the place.
        reason: String,
    },
    /// A value cannot be.
    #[error("{file}: {error}")]
    Invalid {
        /// The file.
        file: String,
        /// Key, value and reason.
        error: InvalidMachine,
    },
}
