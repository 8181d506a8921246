//! The mover as a service: a socket in the file system, a line of JSON for a question, a line for its answer.
//!
//! - [`protocol`]: what may be said. [`client`]: how programs say it.
//! - [`place`]: where the socket and the state directory are, for whom nothing is said.

pub mod client;
pub mod doctor;
pub mod place;
pub mod protocol;

mod lines;

pub use client::Client;
