//! The mover as a service: a socket in the file system, a line of JSON for a question, a line for its answer.
//!
//! - [`protocol`]: what may be said. [`client`]: how programs say it. [`place`]: where, if nobody says so.
//! - [`own`]: a user's own server. [`server`] takes connections, a `session` each answers, [`peer`] says whose they are.
//! - [`listen`]: the socket, made here or handed over by systemd; `notify`: what systemd is told.
//! - [`system`]: one door for all users, and a process for each.
//! - [`pools`]: room on a fast tier that users share.
//! - [`metrics`] and [`scrape`]: figures for Prometheus. [`doctor`]: what is stuck, and why;
//!   [`full`]: why a pool is full.

pub mod client;
pub mod config;
pub mod doctor;
pub mod full;
pub mod listen;
pub mod metrics;
pub mod own;
pub mod peer;
pub mod place;
pub mod pools;
pub mod protocol;
pub mod scrape;
pub mod server;
pub mod system;

mod lines;
mod notify;
mod session;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use client::Client;

/// Has a job come as far as somebody waits for? As [`crate::Mover::wait`] has it: of a job that is to be durable, the
/// source of a move has gone as well.
fn has_reached(job: &crate::JobStatus, level: crate::Level) -> bool {
    job.state.is_final() || (level < crate::Level::Durable && job.level >= level)
}
