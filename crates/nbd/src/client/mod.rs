//! The client's side of the handshake.
//!
//! [`connect`] goes from a URI to a [`Session`]: a connection on which requests can be sent. [`list()`] asks a server what
//! it has.
//!
//! - Finding the host and connecting have [`ConnectOptions::connect_timeout`] together, the handshake has
//!   [`ConnectOptions::handshake_timeout`].
//! - With `nbds`, TLS is the first thing that is asked for, and whatever the answer is but `NBD_REP_ACK`, the connection
//!   ends ("Protocol downgrade attacks"). Nothing is asked of an export before.
//! - What a server says is held against what was asked: replies to another option, information of the wrong length,
//!   sizes that the protocol does not have, more replies than there is anything to say. Any of it is an error.

mod dial;
mod error;
mod handshake;

use std::time::{Duration, Instant};

pub use crate::export::{Context, ExportInfo};
pub use crate::wire::TransmissionFlags;
pub use error::{ConnectError, HandshakeError};
pub use handshake::{Agreed, Listed, Terms, handshake, list_exports};

use crate::stream::Stream;
use crate::tls::ClientTls;
use crate::uri::Uri;

/// How to connect.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// How long finding the host and connecting may take.
    pub connect_timeout: Duration,
    /// How long the handshake may take, TLS included.
    pub handshake_timeout: Duration,
    /// Whether to ask for structured replies, without which there are no metadata contexts and errors have no text.
    pub structured: bool,
    /// Whether to ask for the metadata context `base:allocation`.
    pub allocation: bool,
    /// What TLS is put on with, where it was set up before; else it is set up from the URI.
    pub tls: Option<ClientTls>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(30),
            structured: true,
            allocation: true,
            tls: None,
        }
    }
}

/// A connection in the transmission phase.
#[derive(Debug)]
pub struct Session {
    /// The connection; its calls wait, and without a deadline.
    pub stream: Stream,
    /// The export as it was agreed on.
    pub export: ExportInfo,
    /// Whether replies to reads come in chunks.
    pub structured: bool,
}

/// Connects to an export.
///
/// # Errors
///
/// The host cannot be found or reached in time, is no NBD server, does not have that export, or does not keep to the
/// protocol; TLS fails or is refused.
pub fn connect(uri: &Uri, options: &ConnectOptions) -> Result<Session, ConnectError> {
    let (mut stream, terms) = dial(uri, options)?;
    let agreed = handshake(&mut stream, &terms).map_err(|source| failed(uri, options, source))?;
    stream.set_deadline(None).map_err(|source| failed(uri, options, HandshakeError::Io(source)))?;
    Ok(Session { stream, export: agreed.export, structured: agreed.structured })
}

/// Asks a server for its exports. The URI's own export is of no account.
///
/// # Errors
///
/// Those of [`connect`]; and the server may refuse to tell.
pub fn list(uri: &Uri, options: &ConnectOptions) -> Result<Vec<Listed>, ConnectError> {
    let (mut stream, terms) = dial(uri, options)?;
    list_exports(&mut stream, &terms).map_err(|source| failed(uri, options, source))
}

/// A connection on which the handshake is to begin, and what to ask for in it.
fn dial(uri: &Uri, options: &ConnectOptions) -> Result<(Stream, Terms), ConnectError> {
    let tls = match (&options.tls, uri.is_secure()) {
        (_, false) => None,
        (Some(tls), true) => Some(tls.clone()),
        (None, true) => {
            Some(ClientTls::of(uri).map_err(|source| ConnectError::Tls { host: uri.host(), source })?)
        }
    };
    let terms = Terms {
        export: uri.export().to_owned(),
        structured: options.structured,
        allocation: options.allocation,
        tls,
    };
    let mut stream = dial::dial(uri.server(), options.connect_timeout)?;
    let deadline = Instant::now() + options.handshake_timeout;
    stream
        .set_deadline(Some(deadline))
        .map_err(|source| ConnectError::Connect { host: uri.host(), source })?;
    Ok((stream, terms))
}

fn failed(uri: &Uri, options: &ConnectOptions, source: HandshakeError) -> ConnectError {
    let host = uri.host();
    if source.is_timeout() {
        return ConnectError::Silent { host, within: options.handshake_timeout };
    }
    ConnectError::Handshake { host, source }
}
