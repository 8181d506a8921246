//! Runs a [`Workload`](measure::Workload) on a device in real time, as fast as the kernel allows.
//!
//! - [`acts`] are requests that move no data.
//! - [`run`] moves threads through ramp, measured interval and tail, and counts.
//! - [`payload`] makes what is written; [`verify`] knows it again.
//! - [`zones`] keep requests to the write pointers of zoned drives.
//! - [`observe`] looks at the machine from beside.
//! - [`target`] opens devices as workloads need them; [`scratch`] lays data to read.
//! - [`precondition`] brings a target into a known state; [`saturation`] watches it lose its freshness.
//! - [`ladder`] measures every level from the first cache to the last disk.
//! - [`lies`] compares what was asked with what was seen, and warns.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod acts;
pub mod ladder;
pub mod lies;
#[cfg(test)]
mod namespaced;
pub mod observe;
pub mod payload;
pub mod precondition;
pub mod problem;
pub mod run;
pub mod saturation;
pub mod scratch;
pub mod target;
pub mod verify;
pub mod zones;

pub use run::{BenchError, Job, Outcome, Progress, RunOptions};
