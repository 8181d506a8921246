//! Searches whose memory does not grow with the graph: everything but buffers is on temporary space.
//!
//! - [`munagala_ranade`]: level by level, each by a sort of the neighbours of the one before. Reads each list on its own, so
//!   it suits graphs of few levels.
//! - [`mehlhorn_meyer`]: lists of neighbouring vertices lie together and are read together. Suits graphs of many levels.
//!
//! What they share: `ids` (pairs and tree edges in 4 or 8 bytes a vertex), `lists` (many lists read in one pass, pages
//! merged), `levels` (a level made of the two before it), `tree` (the result in the input's numbers, sorted).

mod ids;
mod levels;
mod lists;
mod mm;
mod mr;
mod tree;

pub use mm::mehlhorn_meyer;
pub use mr::munagala_ranade;
pub(crate) use tree::Ascending;
pub use tree::{Reached, SearchTree};

use std::path::Path;
use std::time::Duration;

use external::{ExternalError, Space, SpaceOptions, Waited};

use crate::format::Fwg;

/// What a search outside memory may use.
#[derive(Debug, Clone)]
pub struct ExternalSearchOptions {
    /// Bytes of memory for buffers, chunks and tables, the graph's checksums not counted.
    pub memory: u64,
    /// Threads that sort, beside the caller's.
    pub threads: usize,
    /// Where what does not fit in memory goes.
    pub space: Space,
}

impl ExternalSearchOptions {
    /// Searches of `graph` with temporary space in a file in `directory`, which grows as it is used, and waits for both counted
    /// on the graph's clock.
    ///
    /// # Errors
    /// Of making the file.
    pub fn in_directory(
        graph: &Fwg,
        directory: &Path,
        memory: u64,
        threads: usize,
    ) -> Result<Self, ExternalError> {
        let header = graph.header();
        // A bound, not a need: pairs of each list entry, twice while they are merged, the tree, and the clusters of mm.
        let bytes = (header.entries + header.vertices) * 4 * 24;
        let space = Space::scratch(directory, bytes + (64 << 20), &Self::space_options(memory))?;
        Ok(Self { memory, threads, space: space.with_clock(graph.clock().clone()) })
    }

    /// How temporary space for a search within `memory` is best cut: into blocks of 4 to 128 KiB, 256 of which fit.
    #[must_use]
    pub fn space_options(memory: u64) -> SpaceOptions {
        let block = (memory / 256).clamp(4 << 10, 128 << 10);
        SpaceOptions { block_bytes: 1 << block.ilog2(), ..SpaceOptions::default() }
    }
}

/// What a search did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExternalSearchFigures {
    /// Vertices reached, the source included.
    pub reached: u64,
    /// Levels, the source's included.
    pub levels: u64,
    /// Entries of the lists that were read, each list counted once. `mm` reads those of other components as well, where
    /// clusters lie in them.
    pub entries: u64,
    /// Bytes read of the graph.
    pub graph_bytes_read: u64,
    /// Of these, bytes of the input's numbers.
    pub numbers_bytes_read: u64,
    /// Bytes read of temporary space.
    pub space_bytes_read: u64,
    /// Bytes written to temporary space.
    pub space_bytes_written: u64,
    /// Bytes that the algorithm's sorts and scans come to in theory: the pages of the lists of each level
    /// once, so 4 KiB for a short list that lies alone; each level's candidates written and read
    /// once where they exceed the sorter's memory; each level's vertices written once and read three times; each
    /// tree edge written once and read once, and twice more for the sort of the result.
    pub bytes_in_theory: u64,
    /// Time in which lists were read and candidates pushed.
    pub expanding: Duration,
    /// Time in which candidates were merged with the levels before.
    pub merging: Duration,
    /// Time in which the result was sorted.
    pub finishing: Duration,
    /// Time spent waiting for requests to temporary space, and to the graph where the space counts on the graph's clock.
    pub waited: Waited,
}

impl ExternalSearchFigures {
    /// Bytes moved in all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.graph_bytes_read + self.space_bytes_read + self.space_bytes_written
    }
}
