//! Why a move could not be made, in classes that become exit codes.

use std::io;
use std::path::{Path, PathBuf};

pub use base::ErrorClass;

/// Why a job failed, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Why {
    /// The error with its causes, one line.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What kind of failure.
    pub class: ErrorClass,
    /// The kernel's error number, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// What it comes down to.
    pub cause: Cause,
}

impl Why {
    /// Of an error, with all its causes.
    #[must_use]
    pub fn of(error: &StageError) -> Self {
        let message = base::with_causes(error);
        Self { message, hint: error.hint(), class: error.class(), errno: error.errno(), cause: error.cause() }
    }
}

/// What a failure comes down to, for programs that act on it. The journal keeps it with the message.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The destination, a quota or a journal is full.
    NoSpace,
    /// Written data could not be made durable.
    FsyncFailed,
    /// What was read back is not what was written.
    VerificationFailed,
    /// The source is not what it was.
    SourceChanged,
    /// The source is not what its own manifest says.
    SourceCorrupt,
    /// The user may not.
    Permission,
    /// The destination is mounted read-only.
    ReadOnly,
    /// The name is taken.
    DestinationExists,
    /// The request itself makes no sense, or is refused: asked again as it is, it fails again.
    Request,
    /// There is no room in a server's bounds: asked again as it is, later, it may be done.
    Busy,
    /// Something else; the message says what.
    Other,
}

impl Cause {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NoSpace => "no-space",
            Self::FsyncFailed => "fsync-failed",
            Self::VerificationFailed => "verification-failed",
            Self::SourceChanged => "source-changed",
            Self::SourceCorrupt => "source-corrupt",
            Self::Permission => "permission",
            Self::ReadOnly => "read-only",
            Self::DestinationExists => "destination-exists",
            Self::Request => "request",
            Self::Busy => "busy",
            Self::Other => "other",
        }
    }

    /// Of a system call that failed with this error number.
    #[must_use]
    pub fn of_errno(errno: i32) -> Option<Self> {
        use rustix::io::Errno;
        match Errno::from_raw_os_error(errno) {
            Errno::NOSPC | Errno::DQUOT => Some(Self::NoSpace),
            Errno::ACCESS | Errno::PERM => Some(Self::Permission),
            Errno::ROFS => Some(Self::ReadOnly),
            Errno::EXIST | Errno::NOTEMPTY => Some(Self::DestinationExists),
            _ => None,
        }
    }
}

/// Stands in a hint where a failed job is to be begun again. How that is done depends on who carries the job out:
/// [`crate::job::Remedy`] puts it into words.
pub const RETRY: &str = "stage retry";

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
    /// Written data of a copy, a directory or a journal could not be made durable, and is not to be trusted.
    #[error("{path}: cannot {operation}")]
    Sync {
        /// `fsync`, `fdatasync` or `syncfs`.
        operation: &'static str,
        /// Of what, as a person reads it.
        path: String,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// The state directory is not there and could not be made.
    #[error("{path}: cannot make the state directory")]
    StateDirectory {
        /// The directory, as a person reads it.
        path: String,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// The source could not be made durable. The kernel has dropped what it could not write, and a second sync would
    /// succeed without it: nothing to retry unless a user asks for it.
    #[error("{path}: cannot sync the source")]
    SourceSync {
        /// The source, as a person reads it.
        path: String,
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
    /// A server has all that it may have.
    #[error("{what}")]
    Busy {
        /// Of what, and how much.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// The name is taken, and nothing is ever written over.
    #[error("{what}")]
    Exists {
        /// Which name, and by what.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// Another process has a lock, and has kept it for longer than is waited for it.
    #[error("{path}: is locked by {by}")]
    Locked {
        /// What is locked.
        path: String,
        /// The process, as far as it can be told.
        by: String,
    },
    /// The source is not what it was.
    #[error("{path}: changed while it was copied ({how})")]
    SourceChanged {
        /// Which file.
        path: String,
        /// In what: size, modification time, identity, gone.
        how: String,
    },
    /// The source is a set, and is not what its manifest says.
    #[error("{path}: is not what its manifest says: {how}")]
    SourceCorrupt {
        /// The set, or the file in it.
        path: String,
        /// In what: a name, a size, digests at an offset.
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
    /// A manifest that cannot be used.
    #[error("{path}: {what}")]
    Manifest {
        /// Its path or URL, as a person reads it.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// An error that another crate defines: a server's, an object store's. [`StageError::foreign`] has it as it was made.
    #[error("{0}")]
    Foreign(Box<dyn Foreign>),
    /// It was asked to stop.
    #[error("stopped: {what}")]
    Stopped {
        /// What was stopped.
        what: String,
    },
}

/// An error of a crate above this one, which passes through functions of this one. Its message is complete: it has no source.
pub trait Foreign: std::error::Error + Send + Sync + 'static {
    /// What kind of failure it is.
    fn class(&self) -> ErrorClass {
        ErrorClass::Failed
    }

    /// What it comes down to.
    fn cause(&self) -> Cause {
        Cause::Other
    }

    /// What to do about it, where there is something.
    fn hint(&self) -> Option<String> {
        None
    }

    /// The kernel's error number, where there is one.
    fn errno(&self) -> Option<i32> {
        None
    }
}

impl<E: Foreign> From<E> for StageError {
    fn from(error: E) -> Self {
        Self::Foreign(Box::new(error))
    }
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

    /// A sync that failed, by the name of its system call.
    pub fn sync(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Sync { operation, path: shown(path), source: source.into() }
    }

    /// A sync of the source that failed.
    pub fn source_sync(path: &Path, source: impl Into<io::Error>) -> Self {
        let (path, source) = (shown(path), source.into());
        if source.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) {
            return Self::refused(
                format!(
                    "{path}: its file system has no fsync(2) and is not read-only, so that the file cannot be made durable"
                ),
                "make that file system read-only (mount -o remount,ro), or copy the file to another one first",
            );
        }
        Self::SourceSync { path, source }
    }

    /// A request that makes no sense.
    pub fn invalid(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), hint: Some(hint.into()) }
    }

    /// A request that is refused for safety.
    pub fn refused(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { what: what.into(), hint: Some(hint.into()) }
    }

    /// The error of another crate, if it is one and of this type.
    #[must_use]
    pub fn foreign<E: Foreign>(&self) -> Option<&E> {
        let Self::Foreign(error) = self else { return None };
        let error: &dyn std::error::Error = error.as_ref();
        error.downcast_ref()
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. } => ErrorClass::Invalid,
            Self::Refused { .. } | Self::Busy { .. } | Self::Exists { .. } | Self::Locked { .. } => {
                ErrorClass::Refused
            }
            Self::Stopped { .. } => ErrorClass::Interrupted,
            Self::Foreign(error) => error.class(),
            Self::Io { .. }
            | Self::Sync { .. }
            | Self::SourceSync { .. }
            | Self::StateDirectory { .. }
            | Self::SourceChanged { .. }
            | Self::SourceCorrupt { .. }
            | Self::Corrupt { .. }
            | Self::Journal { .. }
            | Self::Manifest { .. } => ErrorClass::Failed,
        }
    }

    /// What it comes down to.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Io { source, .. } | Self::StateDirectory { source, .. } => {
                source.raw_os_error().and_then(Cause::of_errno).unwrap_or(Cause::Other)
            }
            // No room is a cause of its own: it can be mended.
            Self::Sync { source, .. } | Self::SourceSync { source, .. } => {
                source.raw_os_error().and_then(Cause::of_errno).unwrap_or(Cause::FsyncFailed)
            }
            Self::Exists { .. } => Cause::DestinationExists,
            Self::Invalid { .. } | Self::Refused { .. } => Cause::Request,
            Self::Busy { .. } => Cause::Busy,
            Self::SourceChanged { .. } => Cause::SourceChanged,
            Self::SourceCorrupt { .. } => Cause::SourceCorrupt,
            Self::Corrupt { .. } => Cause::VerificationFailed,
            Self::Foreign(error) => Foreign::cause(error.as_ref()),
            Self::Locked { .. } | Self::Journal { .. } | Self::Manifest { .. } | Self::Stopped { .. } => {
                Cause::Other
            }
        }
    }

    /// What to do about it, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. } | Self::Refused { hint, .. } => hint.clone(),
            Self::Exists { hint, .. } | Self::Busy { hint, .. } => Some(hint.clone()),
            Self::StateDirectory { .. } => Some("name a directory for the journal: --state DIR".to_owned()),
            Self::Locked { .. } => Some("let that process end, or end it, and try again".to_owned()),
            Self::SourceChanged { .. } => Some(format!("copy it again once nothing writes to it: {RETRY}")),
            Self::SourceCorrupt { .. } => {
                Some("bring it from another copy; flashwright stage verify names all that differs".to_owned())
            }
            Self::Corrupt { .. } => {
                Some("the medium or the way to it is not to be trusted; the source has been kept".to_owned())
            }
            Self::Io { source, .. } | Self::Sync { source, .. } | Self::SourceSync { source, .. } => {
                match source.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                    Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
                        Some(format!("make room at the destination, then: {RETRY}"))
                    }
                    Some(rustix::io::Errno::ROFS) => {
                        Some("the file system there is mounted read-only".to_owned())
                    }
                    _ => None,
                }
            }
            Self::Foreign(error) => error.hint(),
            Self::Journal { .. } | Self::Manifest { .. } | Self::Stopped { .. } => None,
        }
    }

    /// The kernel's error number, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. }
            | Self::Sync { source, .. }
            | Self::SourceSync { source, .. }
            | Self::StateDirectory { source, .. } => source.raw_os_error(),
            Self::Foreign(error) => error.errno(),
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
