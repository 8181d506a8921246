//! This host's memory, or any device, over NBD.
//!
//! A [`Server`] has one [`Export`] and any number of listeners, TCP and Unix sockets. Each connection has a thread of its
//! own, which agrees with its client (by `nbd`'s negotiation) and then holds one of two conversations: about
//! memory (`memory`), where requests are done between memory and socket as they are read; or about a
//! device (`device`), where they go through an engine and come back in the order in which they complete.
//!
//! What holds for both:
//!
//! - **A client takes what it is given.** Requests that make no sense are answered with the error that the protocol names
//!   for them (`terms`); what is not the protocol ends that conversation. Neither reaches the export.
//! - **Memory is bounded** by the connection: its buffers, whatever it asks for. Payloads go where they are to go as they
//!   come in; nothing is held that a reply has to wait for but its own bytes.
//! - **Nobody is waited for for ever** (`link`), and no crowd keeps others out for ever (`door`).
//! - **A conversation that fails ends alone.** A panic in its thread is caught there.
//! - **Stopping** takes no more connections, serves what clients have sent, says good-bye and comes back.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod device;
mod door;
mod error;
mod export;
mod flushes;
pub mod image;
mod input;
mod link;
mod listen;
mod memory;
mod reply;
mod server;
mod stop;
mod terms;
#[cfg(test)]
mod tests;

pub use error::{Ending, ServeError};
pub use export::Export;
pub use listen::Allowed;
pub use server::{Event, Options, Server, Summary};
