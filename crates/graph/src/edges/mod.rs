//! Edge lists, `.el`: the pairs of a graph as they were generated or imported.
//!
//! ```text
//! page 0    header: version, vertices, edges, direction, width, where the edges are from, its checksum
//! blocks    of 1 MiB (crate::blocks), all full but the last
//! ```
//!
//! The file is written under `.NAME.partial` beside its place, synced, given its header, synced again and renamed, so that
//! a `.el` is complete or does not exist. A lock on the partial file keeps a second writer out; a partial file
//! that a crash left is replaced.

mod header;
mod reader;
mod writer;

pub use header::{EDGES_VERSION, EdgesHeader};
pub use reader::EdgeList;
pub use writer::{EdgeWriter, EdgesConfig};

#[cfg(test)]
mod tests;
