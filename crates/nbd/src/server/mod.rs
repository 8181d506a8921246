//! The server's side of the handshake.
//!
//! [`negotiate`] takes a connection that was accepted and gives it back when the client has chosen an export: fixed
//! newstyle, with TLS where the policy has it. What comes then, the transmission phase, is the caller's.
//!
//! - A client has [`Policy::timeout`] for all of it, however slowly it speaks.
//! - What was agreed on before TLS is forgotten when TLS begins ("`NBD_OPT_STARTTLS`": "the server MUST NOT preserve any
//!   negotiation state"), and nothing that came in the clear is read as if it had come through TLS, because
//!   nothing is read ahead.
//! - Where TLS is required, a client without it learns nothing but that ("FORCEDTLS mode").
//! - An option costs at most [`limits::OPTION_DATA`](crate::wire::limits::OPTION_DATA) bytes of memory.

mod error;
mod haggle;

use std::time::{Duration, Instant};

pub use crate::export::{Context, ExportInfo};
pub use error::NegotiationError;
pub use haggle::haggle;

use crate::stream::Stream;
use crate::tls::ServerTls;

/// What a server lets clients do before they have chosen.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Whether there is TLS.
    pub tls: TlsPolicy,
    /// How long a client may take to choose an export.
    pub timeout: Duration,
    /// Whether a client may ask what exports there are; `NBD_REP_ERR_POLICY` where not.
    pub list: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { tls: TlsPolicy::Never, timeout: Duration::from_secs(30), list: true }
    }
}

/// "Server-side requirements": one of three modes.
#[derive(Debug, Clone)]
pub enum TlsPolicy {
    /// "NOTLS".
    Never,
    /// TLS for who asks for it. Whoever can get between the two can prevent it, unless the client insists.
    Offered(ServerTls),
    /// "FORCEDTLS": nothing without.
    Required(ServerTls),
}

/// What a server has to offer.
pub trait Exports {
    /// Names and descriptions for `NBD_OPT_LIST`.
    fn list(&self) -> Vec<(String, String)>;

    /// The export of that name, if there is one; an empty name asks for the default. Its `contexts` are those that can
    /// be chosen.
    fn find(&self, name: &str) -> Option<ExportInfo>;

    /// Whether the server is about to end, and lets nobody in any more.
    fn is_closing(&self) -> bool {
        false
    }
}

/// What was agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// The export, its flags and contexts as this client has them.
    pub export: ExportInfo,
    /// Whether replies to reads come in chunks.
    pub structured: bool,
    /// Whether the client asked for the sizes of requests, and so promised to keep to them ("Size constraints").
    pub sizes_are_known: bool,
}

/// A connection that has reached the transmission phase.
#[derive(Debug)]
pub struct Negotiated {
    /// The connection; its calls wait, and without a deadline.
    pub stream: Stream,
    /// The export, its flags and contexts as this client has them.
    pub export: ExportInfo,
    /// Whether replies to reads come in chunks.
    pub structured: bool,
    /// See [`Agreed::sizes_are_known`].
    pub sizes_are_known: bool,
}

/// Holds the handshake on a connection that was accepted.
///
/// # Errors
///
/// The client leaves or breaks the protocol, the time is up, TLS fails, or the connection does.
/// [`NegotiationError::is_ordinary`] says whether it is worth a word.
pub fn negotiate(
    mut stream: Stream,
    policy: &Policy,
    exports: &dyn Exports,
) -> Result<Negotiated, NegotiationError> {
    let local = |source| NegotiationError::Io { source };
    stream.set_nonblocking(false).map_err(local)?;
    stream.set_deadline(Some(Instant::now() + policy.timeout)).map_err(local)?;
    match haggle(&mut stream, policy, exports) {
        Ok(Agreed { export, structured, sizes_are_known }) => {
            stream.set_deadline(None).map_err(local)?;
            Ok(Negotiated { stream, export, structured, sizes_are_known })
        }
        Err(error) => {
            // What was said last, an error perhaps, is to arrive.
            let _ = stream.shutdown();
            Err(error)
        }
    }
}
