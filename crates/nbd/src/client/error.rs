//! Why there is no connection to an export.

use std::io;
use std::time::Duration;

use crate::tls::TlsError;
use crate::wire::WireError;
use crate::wire::options::{self, error_name, option_name};

/// Why a client could not connect. Each names the host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The host's name has no address.
    #[error("find the address of {host}")]
    Resolve {
        /// Its name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The connection was refused, or could not be made.
    #[error("connect to {host}")]
    Connect {
        /// Address and port, or socket.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody answered.
    #[error("connect to {host}: no answer within {} s", within.as_secs_f64())]
    Unreachable {
        /// Address and port, or socket.
        host: String,
        /// How long was waited.
        within: Duration,
    },
    /// The server took the connection and did not get through the handshake.
    #[error("agree with {host}: not done within {} s", within.as_secs_f64())]
    Silent {
        /// Address and port, or socket.
        host: String,
        /// How long was waited.
        within: Duration,
    },
    /// TLS could not be set up.
    #[error("prepare TLS with {host}")]
    Tls {
        /// Address and port, or socket.
        host: String,
        /// Why.
        source: TlsError,
    },
    /// The handshake failed.
    #[error("agree with {host}")]
    Handshake {
        /// Address and port, or socket.
        host: String,
        /// Why.
        source: HandshakeError,
    },
}

impl ConnectError {
    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect { source, .. } => match source.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                    Some("is the server running, and on that port or socket?".into())
                }
                _ => None,
            },
            Self::Unreachable { .. } => Some("is the host up, and the port open on the way to it?".into()),
            Self::Tls { source, .. } => source.hint(),
            Self::Handshake { source, .. } => source.hint(),
            _ => None,
        }
    }

    /// Whether the same may succeed later without anybody changing what was asked: a host that is not there at present,
    /// as opposed to one that says no.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Resolve { .. } | Self::Connect { .. } | Self::Unreachable { .. } | Self::Silent { .. } => {
                true
            }
            Self::Tls { .. } => false,
            Self::Handshake { source, .. } => match source {
                HandshakeError::Closed | HandshakeError::Io(_) | HandshakeError::Tls(TlsError::Io(_)) => true,
                HandshakeError::Refused { error, .. } => *error == options::ERR_SHUTDOWN,
                _ => false,
            },
        }
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[source] io::Error),
    /// The server closed it.
    #[error("the server closed the connection")]
    Closed,
    /// It closed it when it was asked for the export, which is how an old one says that there is none.
    #[error("the server closed the connection when it was asked for export `{export}`")]
    ClosedOnName {
        /// Its name.
        export: String,
    },
    /// It speaks something else.
    #[error("it is no NBD server")]
    NotNbd(#[source] WireError),
    /// It speaks the negotiation of before nbd 2.9.17.
    #[error("it speaks the oldstyle negotiation only")]
    Oldstyle,
    /// It broke the protocol.
    #[error("the server broke the protocol")]
    Wire(#[from] WireError),
    /// It answered something else than what was asked.
    #[error("the server broke the protocol: {what} in answer to {}", option_name(*.option))]
    Unexpected {
        /// What was asked.
        option: u32,
        /// What it answered.
        what: &'static str,
    },
    /// There is no such export.
    #[error("there is no export `{export}`{}", Said(said))]
    NoExport {
        /// Its name.
        export: String,
        /// What the server says of it.
        said: String,
    },
    /// Another refusal.
    #[error("the server refused {}: {}{}", option_name(*.option), error_name(*.error), Said(said))]
    Refused {
        /// What was asked.
        option: u32,
        /// `ERR_*`.
        error: u32,
        /// What the server says of it.
        said: String,
    },
    /// The server wants TLS.
    #[error("the server requires TLS")]
    TlsRequired,
    /// The server, or somebody in its place, does not want TLS.
    #[error("the server offers no TLS, which was asked for: {why}{}", Said(said))]
    NoTls {
        /// How it said so.
        why: &'static str,
        /// What the server says of it.
        said: String,
    },
    /// TLS failed.
    #[error("TLS failed")]
    Tls(#[source] TlsError),
}

/// What a server said, where it said something.
struct Said<'a>(&'a str);

impl std::fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " (\"{}\")", self.0) }
    }
}

impl HandshakeError {
    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoExport { .. } | Self::ClosedOnName { .. } => "the server's exports: nbdinfo --list URI".into(),
            Self::TlsRequired => "write nbds:// or nbds+unix://, with tls-psk-file= or tls-certificates=".into(),
            Self::NoTls { .. } => {
                "start the server with TLS; a server that has it can be made to look like this by somebody in between"
                    .into()
            }
            Self::Tls(source) => return source.hint(),
            Self::Oldstyle => "use a server of 2011 or later".into(),
            _ => return None,
        })
    }

    pub(super) fn is_timeout(&self) -> bool {
        match self {
            Self::Io(source) | Self::Tls(TlsError::Io(source)) => source.kind() == io::ErrorKind::TimedOut,
            _ => false,
        }
    }
}

impl From<io::Error> for HandshakeError {
    fn from(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::Closed
            }
            io::ErrorKind::InvalidData => Self::Tls(TlsError::Ended(source)),
            _ => Self::Io(source),
        }
    }
}
