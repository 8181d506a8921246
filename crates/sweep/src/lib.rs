//! The design space: described, ordered, run, resumed, cleaned, judged and drawn.
//!
//! This crate does not know what a drive is. It drives [`measure::Target`]s that it is handed, so the
//! same sweep runs on real flash and on a simulated machine.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod analysis;
pub mod board;
pub mod check_search;
pub mod contest;
pub mod diff;
pub mod error;
pub mod load;
pub mod merge;
pub mod model;
pub mod plan;
pub mod recommend;
pub mod report;
pub mod run;
pub mod search;
pub mod space;
pub mod status;
pub mod store;
pub mod work;
