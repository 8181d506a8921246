//! What goes wrong with TLS.

use std::io;
use std::path::PathBuf;

use openssl::error::ErrorStack;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of a file with keys is none.
    #[error("line {line} of {} is no key: {problem}", path.display())]
    Key {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A file with keys has none.
    #[error("{} has no key in it", path.display())]
    NoKey {
        /// Which file.
        path: PathBuf,
    },
    /// A name is not in the file with keys.
    #[error("{} has no key for `{user}`", path.display())]
    NoUser {
        /// Which file.
        path: PathBuf,
        /// Whose key.
        user: String,
    },
    /// A file has keys of several names, and none was named.
    #[error("{} has keys of several names", path.display())]
    WhichUser {
        /// Which file.
        path: PathBuf,
    },
    /// A certificate or its key is none, or they do not belong together.
    #[error("{} is not what it should be", path.display())]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// What OpenSSL says.
        source: ErrorStack,
    },
    /// There is no name that the server's certificate could be held against.
    #[error("a server behind a Unix socket has no name that its certificate could have")]
    NoName,
    /// OpenSSL could not be set up.
    #[error("set up TLS")]
    Setup(#[source] ErrorStack),
    /// The peer's certificate is not to be believed.
    #[error("the peer's certificate is not to be believed: {reason}")]
    Unverified {
        /// What OpenSSL says.
        reason: &'static str,
    },
    /// The peer's certificate is believed, and none of those that may come in.
    #[error("the peer's certificate bears the common name {}, which may not come in", .names.join(", "))]
    NotAuthorized {
        /// Its common names.
        names: Vec<String>,
    },
    /// The handshake failed.
    #[error("TLS handshake")]
    Handshake(#[source] openssl::ssl::Error),
    /// The peer did not prove that it has the key.
    #[error("the peer did not prove that it has the key")]
    NoProof,
    /// The connection failed within the handshake.
    #[error("TLS handshake")]
    Io(#[source] io::Error),
    /// The peer ended TLS after the handshake: with TLS 1.3 a server says only then that it does not believe a client.
    #[error("the peer ended TLS")]
    Ended(#[source] io::Error),
    /// There is TLS already.
    #[error("there is TLS on this connection already")]
    Twice,
}

impl TlsError {
    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Key { .. } | Self::NoKey { .. } => {
                "psktool -u NAME -p FILE makes a key and appends it to the file".into()
            }
            Self::NoUser { .. } | Self::WhichUser { .. } => {
                "name one of the file's users: nbds://NAME@host/… or tls-username=NAME".into()
            }
            Self::NoName => "name it with tls-hostname=NAME".into(),
            Self::Unverified { .. } => {
                "ca-cert.pem has to be the authority of the server's certificate, which has to bear the host's name \
                 (another name: tls-hostname=NAME)"
                    .into()
            }
            Self::Handshake(_) | Self::NoProof | Self::Ended(_) => {
                "both sides have to use the same kind of TLS (key or certificates), and the same key or authority".into()
            }
            _ => return None,
        })
    }
}
