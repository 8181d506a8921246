//! Why a server could not be started, and how conversations end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nbd::server::NegotiationError;
use nbd::wire::{ErrorCode, WireError};
use storage::engine::{EngineError, RequestError};

/// A server that could not be started, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address that cannot be listened on.
    #[error("listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A socket in the file system that cannot be listened on.
    #[error("listen on {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something that the server itself needs.
    #[error("{operation}")]
    System {
        /// The call that failed.
        operation: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ServeError {
    /// What to do about it, if there is something.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => {
                    Some("another server has that port; end it, or name another port")
                }
                io::ErrorKind::AddrNotAvailable => {
                    Some("name an address of this host, or 0.0.0.0 for all of them")
                }
                io::ErrorKind::PermissionDenied => Some("ports below 1024 are root's"),
                _ => None,
            },
            Self::Socket { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("another server listens there; end it, or name another path")
            }
            _ => None,
        }
    }
}

/// How long a client may be silent in the middle of a message.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How a conversation ended.
#[derive(Debug, thiserror::Error)]
pub enum Ending {
    /// The client said good-bye.
    #[error("the client disconnected")]
    Disconnected,
    /// The client went without a word.
    #[error("the client closed the connection")]
    Closed,
    /// The server was to stop.
    #[error("the server stops")]
    Stopped,
    /// The client stopped in the middle of a message, or took no replies.
    #[error("nothing moved for {} s in the middle of a message", STALL_TIMEOUT.as_secs())]
    Stalled,
    /// Its place went to another connection.
    #[error("it had no request under way and gave its place to another (--max-connections)")]
    GaveWay,
    /// The client did not keep to the protocol.
    #[error("not the protocol")]
    Protocol(#[from] WireError),
    /// No agreement was come to.
    #[error("negotiation")]
    Negotiation(#[source] NegotiationError),
    /// The connection failed.
    #[error("connection")]
    Io(#[source] io::Error),
    /// The engine that drives the device failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A fault of the server's own, which ended this conversation and no other.
    #[error("internal error")]
    Panicked,
}

impl Ending {
    /// Whether it is how conversations should end.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        matches!(self, Self::Disconnected | Self::Closed | Self::Stopped)
    }
}

/// What the protocol has for an error of the system.
pub(crate) fn code_of(error: &io::Error) -> ErrorCode {
    match (error.raw_os_error(), error.kind()) {
        (Some(errno), _) => ErrorCode::from_errno(errno),
        // An error of a device that is made of others keeps its kind, not its number.
        (None, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => ErrorCode::EPERM,
        (None, io::ErrorKind::OutOfMemory) => ErrorCode::ENOMEM,
        (None, io::ErrorKind::InvalidInput) => ErrorCode::EINVAL,
        (None, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge) => {
            ErrorCode::ENOSPC
        }
        (None, io::ErrorKind::WriteZero) => ErrorCode::ENOSPC,
        (None, io::ErrorKind::Unsupported) => ErrorCode::ENOTSUP,
        _ => ErrorCode::EIO,
    }
}

/// The same for a request that an engine made.
pub(crate) fn code_of_cause(cause: &RequestError) -> ErrorCode {
    match cause {
        RequestError::Os(error) => code_of(error),
        RequestError::Short { .. } => ErrorCode::EIO,
    }
}
