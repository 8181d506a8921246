//! Graphs larger than memory: edge lists, stored graphs, and breadth-first search on them.
//!
//! Vertices are numbered from 0; [`VertexId`] is 64 bits wide everywhere in memory. Files hold 4 or 8 bytes a vertex,
//! whichever [`IdWidth`] the number of vertices needs.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod account;
pub mod blocks;
pub mod build;
pub mod edges;
mod error;
pub mod export;
pub mod fetch;
pub mod forecast;
pub mod format;
pub mod fully_external;
pub mod generate;
pub mod import;
pub mod many;
mod partial;
pub mod results;
pub mod semi;
mod steps;
pub mod validate;
mod vertex;

pub use error::GraphError;
pub use steps::Steps;
pub use vertex::{IdWidth, VertexId};

/// The most threads that a search has use for: more than any machine has CPUs, and few enough that their buffers can be added up.
pub const MOST_THREADS: usize = 1 << 16;
