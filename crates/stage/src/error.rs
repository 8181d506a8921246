//! Why a move could not be made, in classes that become exit codes.

use std::io;
use std::path::{Path, PathBuf};

/// What kind of failure it is. Front doors turn it into the exit code, Python into an exception.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    /// The request makes no sense: exit 2.
    Invalid,
    /// Refused, because it might cost somebody data or is not theirs: exit 3.
    Refused,
    /// The system would not: exit 1.
    Failed,
    /// Somebody asked to stop: exit 130.
    Interrupted,
}

/// A move that was not made, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A system call failed.
    #[error("{path}: cannot {operation}{}", at(.offset))]
    Io {
        /// What was tried: `fsync`, `read`, `rename to X`.
        operation: String,
        /// On what, as a person reads it.
        path: String,
        /// Where in the file, bytes.
        offset: Option<u64>,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// The request makes no sense.
    #[error("{what}")]
    Invalid {
        /// Which flag or path, its value, and what is wrong with it.
        what: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Refused for safety.
    #[error("{what}")]
    Refused {
        /// What, and why.
        what: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The source is not what it was.
    #[error("{path}: changed while it was copied ({how})")]
    SourceChanged {
        /// Which file.
        path: String,
        /// In what: size, modification time, identity, gone.
        how: String,
    },
    /// What was read back is not what was written.
    #[error(
        "{path}: what is stored at offset {offset} is not what was written ({expected} expected, {found} found)"
    )]
    Corrupt {
        /// Which file.
        path: String,
        /// Where the part that differs begins, bytes.
        offset: u64,
        /// The digest that it should have.
        expected: String,
        /// The digest that it has.
        found: String,
    },
    /// The journal cannot be used.
    #[error("{path}: {what}")]
    Journal {
        /// The database.
        path: PathBuf,
        /// What was tried.
        what: String,
        /// SQLite's word.
        #[source]
        source: rusqlite::Error,
    },
    /// A store's or a server's answer that does not fit what was asked.
    #[error("{peer}: {what}")]
    Peer {
        /// The socket or the object store.
        peer: String,
        /// What went wrong.
        what: String,
    },
    /// What the server said that could not be done.
    #[error("{}", .0.message)]
    Answered(Box<crate::job::Why>),
    /// Nobody listens where a server would.
    #[error("no server answers at {tried}")]
    NoServer {
        /// The sockets that were tried, each with the kernel's word.
        tried: String,
    },
    /// A job failed, whose failure the journal has kept.
    #[error("{what}: {}", why.as_ref().map_or("it was cancelled", |why| &why.message))]
    Job {
        /// What is not done for it.
        what: String,
        /// Why; nothing where somebody cancelled it.
        why: Option<Box<crate::job::Why>>,
    },
    /// Somebody asked to stop.
    #[error("stopped: {what}")]
    Stopped {
        /// What was stopped.
        what: String,
    },
}

fn at(offset: &Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at offset {offset}"))
}

impl StageError {
    /// A system call on a path that failed.
    pub fn io(operation: impl Into<String>, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { operation: operation.into(), path: shown(path), offset: None, source: source.into() }
    }

    /// One that failed at an offset.
    pub fn io_at(
        operation: impl Into<String>,
        path: &Path,
        offset: u64,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io {
            operation: operation.into(),
            path: shown(path),
            offset: Some(offset),
            source: source.into(),
        }
    }

    /// A request that makes no sense.
    pub fn invalid(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), hint: Some(hint.into()) }
    }

    /// A request that is refused for safety.
    pub fn refused(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { what: what.into(), hint: Some(hint.into()) }
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. } => ErrorClass::Invalid,
            Self::Refused { .. } => ErrorClass::Refused,
            Self::Stopped { .. } | Self::Job { why: None, .. } => ErrorClass::Interrupted,
            Self::Job { why: Some(why), .. } => why.class,
            Self::Answered(why) => why.class,
            Self::Io { .. }
            | Self::SourceChanged { .. }
            | Self::Corrupt { .. }
            | Self::Journal { .. }
            | Self::Peer { .. }
            | Self::NoServer { .. } => ErrorClass::Failed,
        }
    }

    /// What to do about it, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. } | Self::Refused { hint, .. } => hint.clone(),
            Self::SourceChanged { .. } => {
                Some("copy it again once nothing writes to it: stage retry".to_owned())
            }
            Self::Corrupt { .. } => {
                Some("the medium or the way to it is not to be trusted; the source has been kept".to_owned())
            }
            Self::Io { source, .. } => {
                match source.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                    Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
                        Some("make room at the destination, then: stage retry".to_owned())
                    }
                    Some(rustix::io::Errno::ROFS) => Some("the destination is mounted read-only".to_owned()),
                    _ => None,
                }
            }
            Self::Answered(why) => why.hint.clone(),
            Self::NoServer { .. } => Some(
                "start one: flashwright stage serve; or have it done at once, without one: --foreground"
                    .to_owned(),
            ),
            Self::Job { why, .. } => why.as_ref().and_then(|why| why.hint.clone()),
            Self::Journal { .. } | Self::Peer { .. } | Self::Stopped { .. } => None,
        }
    }

    /// The kernel's error number, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::Answered(why) => why.errno,
            Self::Job { why, .. } => why.as_ref().and_then(|why| why.errno),
            _ => None,
        }
    }
}

/// A path as a person reads it: control characters and bytes that are not UTF-8 are escaped, so that a name can
/// neither break a line nor command a terminal.
#[must_use]
pub fn shown(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    crate::names::shown(path.as_os_str().as_bytes())
}
