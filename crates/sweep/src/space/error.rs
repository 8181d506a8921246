//! What is wrong with a space, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A space that cannot be read or makes no sense. The message begins with file and line.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    /// The file cannot be read.
    #[error("{}: cannot read the space", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The file is no TOML.
    #[error("{origin}:{line}: {message}")]
    Syntax {
        /// The file's name.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// What the parser expected.
        message: String,
    },
    /// A key or a value that cannot be honoured.
    #[error("{0}")]
    Invalid(Box<Fault>),
}

/// A key or a value that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file's name, or `the command line`.
    pub origin: String,
    /// Line, from 1; none where no line is at fault.
    pub line: Option<usize>,
    /// The key at fault.
    pub key: String,
    /// Its value as it was typed, where the value is at fault.
    pub value: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What to do instead.
    pub hint: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.key)?;
        if let Some(value) = &self.value {
            write!(f, "={value}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl From<Fault> for SpaceError {
    fn from(fault: Fault) -> Self {
        Self::Invalid(Box::new(fault))
    }
}

impl SpaceError {
    /// What to do about it, where there is something to do.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Read { .. } => Some("examples/dash14.toml shows what a space looks like"),
            Self::Syntax { .. } => Some("the file is TOML: https://toml.io"),
            Self::Invalid(fault) => fault.hint.as_deref(),
        }
    }
}
