//! How a handshake ends without an export.

use std::io;

use crate::tls::TlsError;
use crate::wire::WireError;
use crate::wire::options::option_name;

/// Why a client did not get to the transmission phase.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationError {
    /// It said `NBD_OPT_ABORT`.
    #[error("the client ended the negotiation")]
    Aborted,
    /// It closed the connection between two messages.
    #[error("the client closed the connection before choosing an export")]
    Closed,
    /// The time was up.
    #[error("the client did not choose an export in time")]
    TimedOut,
    /// It was told that what it asked for is not there, by the only means that its option has.
    #[error("the client asked for an export that there is not")]
    UnknownExport,
    /// The same, because it came without TLS.
    #[error("the client asked for an export without the TLS that is required")]
    WithoutTls,
    /// The server is about to end.
    #[error("the client came while the server was ending")]
    Closing,
    /// It set flags that are not known ("Client flags").
    #[error("the client set the flags {0:#010x}, which are not known")]
    Flags(u32),
    /// It did not say that it knows more than one option, and sent another.
    #[error("the client sent {} without fixed newstyle negotiation", option_name(*.0))]
    NotFixed(u32),
    /// It announced more data than is read.
    #[error("the client announced {length} bytes of {}", option_name(*.option))]
    TooLong {
        /// The option.
        option: u32,
        /// How many.
        length: u32,
    },
    /// It asked for more options than are answered.
    #[error("the client sent more than {} options", crate::wire::limits::OPTIONS)]
    TooMany,
    /// It sent what is no message of the protocol.
    #[error("the client broke the protocol")]
    Wire(#[from] WireError),
    /// There is no TLS.
    #[error("TLS with the client")]
    Tls(#[source] TlsError),
    /// The connection failed.
    #[error("talk to the client")]
    Io {
        /// How.
        source: io::Error,
    },
}

impl NegotiationError {
    /// Whether clients end this way in the course of things: one that only wanted a list, say.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(self, Self::Aborted | Self::Closed | Self::Closing | Self::UnknownExport)
    }
}

impl From<io::Error> for NegotiationError {
    fn from(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Io { source },
        }
    }
}

impl From<TlsError> for NegotiationError {
    fn from(source: TlsError) -> Self {
        match source {
            TlsError::Io(error) if error.kind() == io::ErrorKind::TimedOut => Self::TimedOut,
            source => Self::Tls(source),
        }
    }
}
