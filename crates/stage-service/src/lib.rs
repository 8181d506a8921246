//! The mover as a service: jobs from many clients, what holds them back, and the room that they share.
//!
//! A move itself is `stage`'s; this crate knows which job comes next, how fast it may go and who asked for it. Modules, each
//! of which uses only those before it:
//!
//! - [`error`]: errors of the way to a server, and of jobs that others wait for.
//! - [`qos`]: limits, priorities, deadlines, and a governor that yields to the application.
//! - [`mover`]: jobs taken from a journal and carried out. [`desk`]: where jobs are handed in, here or at a server.
//! - [`store`]: checkpoints on two tiers, for Python and C. [`watch`]: semaphores.
//! - [`pools`]: room on a fast tier that is reserved before it is written to.
//! - [`commands`]: the journals of commands without a server. [`doctor`]: what is stuck, and why; [`full`]: why a pool is full. [`metrics`]: figures for Prometheus.
//! - [`protocol`]: what may be said over the socket, in `lines`. [`place`]: where the socket is. [`client`]: how programs
//!   ask; [`pool_desk`]: pools of a server or of a file.
//! - [`listen`]: the socket, made here or handed over by systemd; [`peer`]: whose connection it is; [`scrape`]: figures over
//!   HTTP; `notify`: what systemd is told.
//! - `house`: what sessions share; `session` answers a connection; [`server`] takes connections; [`own`] is the process.
//!   [`config`] is its file.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod client;
pub mod commands;
pub mod config;
pub mod desk;
pub mod doctor;
pub mod error;
pub mod full;
pub mod house;
pub mod listen;
pub mod metrics;
pub mod mover;
pub mod own;
pub mod peer;
pub mod place;
pub mod pool_desk;
pub mod pools;
pub mod protocol;
pub mod qos;
pub mod scrape;
pub mod server;
pub mod store;
pub mod watch;

mod lines;
mod notify;
mod session;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use error::ServiceError;
pub use mover::{Mover, MoverConfig};
