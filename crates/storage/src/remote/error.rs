//! What can go wrong with an export of another host.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use nbd::client::ConnectError;

use super::replies::ProtocolError;

/// Why an export cannot be used, or a request to it was not done. Every message names the host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The first connection could not be made.
    #[error("{host}: no connection")]
    Connect {
        /// Address and port, or socket.
        host: String,
        /// Why.
        #[source]
        source: Box<ConnectError>,
    },
    /// The connection was lost, and no other could be made in time.
    #[error("host died: {host} was lost ({lost}) and did not come back within timeout={}s", timeout.as_secs())]
    Died {
        /// Address and port, or socket.
        host: String,
        /// How the connection ended.
        lost: String,
        /// How long it was tried.
        timeout: Duration,
        /// What the last attempt to connect met.
        #[source]
        source: Box<ConnectError>,
    },
    /// The connection was lost several times over the same request.
    #[error("{host}: the connection was lost {attempts} times with this request under way ({lost})")]
    LostAgain {
        /// Address and port, or socket.
        host: String,
        /// How the connection ended the last time.
        lost: String,
        /// How often it was sent.
        attempts: u8,
    },
    /// Requests were not answered.
    #[error("{host}: no answer within {}s (timeout={}s)", waited.as_secs(), timeout.as_secs())]
    Silent {
        /// Address and port, or socket.
        host: String,
        /// How long the request waited.
        waited: Duration,
        /// What the spec says.
        timeout: Duration,
    },
    /// What the server says is not the protocol.
    #[error("{host}: breaks the protocol: {what}")]
    Protocol {
        /// Address and port, or socket.
        host: String,
        /// What it said.
        what: String,
    },
    /// Behind the same name is something else than before.
    #[error("{host}: came back with another export: {what}")]
    Changed {
        /// Address and port, or socket.
        host: String,
        /// What differs: `its size was 1073741824 and is 4096`.
        what: String,
    },
    /// A flush that could not vouch for what was written before it.
    #[error(
        "{host}: the connection was lost after writes that had not been flushed; if the server restarted they are lost"
    )]
    Unflushed {
        /// Address and port, or socket.
        host: String,
    },
    /// The server answered with an error and a reason.
    #[error("{host} says: {said}")]
    Refused {
        /// Address and port, or socket.
        host: String,
        /// Its words.
        said: String,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// Writing is not possible.
    #[error("{host}: the export is read-only")]
    ReadOnly {
        /// Address and port, or socket.
        host: String,
    },
    /// More connections for writing than the server keeps coherent.
    #[error(
        "{host}: connections={connections} is not safe for writing: the server does not say that a flush on one connection covers the others (multi-conn)"
    )]
    NotShared {
        /// Address and port, or socket.
        host: String,
        /// What was asked for.
        connections: u32,
    },
    /// The export is of no use.
    #[error("{host}: the export has {size} bytes, too few for one request of {needed}")]
    TooSmall {
        /// Address and port, or socket.
        host: String,
        /// Its size, bytes.
        size: u64,
        /// The smallest request, bytes.
        needed: u64,
    },
    /// This side failed.
    #[error("{host}: {operation}")]
    Local {
        /// Address and port, or socket.
        host: String,
        /// The call.
        operation: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl RemoteError {
    /// What to do about it, where there is something to say.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Connect { source, .. } => return source.hint(),
            Self::Died { .. } => {
                "see to the host; timeout=SECONDS in the spec says how long to wait for it to come back"
                    .to_owned()
            }
            Self::Silent { .. } | Self::LostAgain { .. } => {
                "see to the server; timeout=SECONDS in the spec says how long to wait for an answer"
                    .to_owned()
            }
            Self::Changed { .. } => "open it again once it is what it should be".to_owned(),
            Self::Unflushed { .. } => {
                "write again whatever was written since the last flush that succeeded".to_owned()
            }
            Self::ReadOnly { .. } => "only read it, or have the server export it for writing".to_owned(),
            Self::NotShared { .. } => "leave connections out of the spec".to_owned(),
            Self::Protocol { .. } | Self::Refused { .. } | Self::TooSmall { .. } | Self::Local { .. } => {
                return None;
            }
        })
    }

    /// The error number that stands for it where there is room for no more.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Self::Connect { .. } | Self::Died { .. } | Self::LostAgain { .. } => libc::EHOSTDOWN,
            Self::Silent { .. } => libc::ETIMEDOUT,
            Self::Protocol { .. } => libc::EPROTO,
            Self::Changed { .. } => libc::ESTALE,
            Self::ReadOnly { .. } => libc::EROFS,
            Self::NotShared { .. } | Self::TooSmall { .. } => libc::EINVAL,
            Self::Unflushed { .. } => libc::EIO,
            Self::Refused { source, .. } | Self::Local { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
        }
    }

    pub(super) fn protocol(host: &str, error: ProtocolError) -> Self {
        Self::Protocol { host: host.to_owned(), what: error.to_string() }
    }
}

/// What an error of a device or an engine says of another host, where it does.
#[must_use]
pub fn told_by(error: &io::Error) -> Option<&RemoteError> {
    error.get_ref()?.downcast_ref::<Arc<RemoteError>>().map(|inner| &**inner)
}

/// The error number of an error that [`io_error`] made, or any other.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    told_by(error).map(RemoteError::errno).or(error.raw_os_error()).unwrap_or(libc::EIO)
}

/// An error of the kind that its number has, which tells all.
pub(crate) fn io_error(error: Arc<RemoteError>) -> io::Error {
    io::Error::new(io::Error::from_raw_os_error(error.errno()).kind(), error)
}
