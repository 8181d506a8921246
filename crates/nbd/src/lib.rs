//! The NBD protocol (Network Block Device), both sides of it, and nothing of what is served or measured.
//!
//! The source of every message is the NBD project's document `doc/proto.md`
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>); a heading of it stands in quotation marks
//! wherever one is implemented. URIs are those of its `doc/uri.md`, with libnbd's names for what that leaves open.
//!
//! Three rules hold throughout:
//!
//! 1. **Who speaks is not believed.** Every length is compared with a limit before a byte of what it announces is
//!    kept ([`wire::limits`]); what is longer is refused, or read and dropped piece by piece. Replies are held
//!    against what was asked.
//! 2. **Nothing is read ahead.** Negotiation reads exactly the bytes of each message, so there is nothing in hand
//!    when TLS begins that came in the clear before it, and nothing when the transmission phase begins.
//! 3. **Nobody is waited for without end.** Connecting and negotiating have a deadline each, for all of it and not for
//!    each byte ([`stream::Stream::set_deadline`]).
//!
//! [`wire`] turns messages into bytes and back, without I/O. [`client`] and [`server`] hold the handshake over
//! anything that is a [`transport::Transport`], usually a [`stream::Stream`], and hand it back when the transmission
//! phase begins; what is done then belongs to who uses this crate.
#![forbid(unsafe_code)]

pub mod client;
mod export;
pub mod server;
mod socket;
pub mod stream;
pub mod tls;
pub mod transport;
pub mod uri;
pub mod wire;

pub use export::{Context, ExportInfo};
