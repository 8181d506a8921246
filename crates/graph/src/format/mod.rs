//! The stored graph, `.fwg`: adjacency lists laid out for a search that reads few pages.
//!
//! ```text
//! page 0     header: sizes, order, section table, its own checksum
//! section    NEW_TO_OLD   the input's number of each vertex          only if the vertices were renumbered
//! section    OLD_TO_NEW   the stored number of each input vertex     only if the vertices were renumbered
//! section    HEADS        the first K neighbours of each listed vertex
//! section    INDEX        where each list begins                     here in the given order
//! section    ADJACENCY    the neighbours of each vertex, ascending
//! section    INDEX        where each list begins                     here in degree order
//! section    SUMS         CRC-32C of each page from page 1 to the last before SUMS
//! ```
//!
//! Sections begin at multiples of [`PAGE_BYTES`] and are padded with zeros. Numbers are little-endian.
//!
//! - **Order.** In [`Order::Degree`] vertex 0 has the most neighbours, so an ascending list names hubs first, and vertices
//!   without neighbours come last: the first [`Header::listed`] vertices are those with lists. In [`Order::Given`]
//!   vertices keep their input's numbers, which is better where neighbours have close numbers, as on roads.
//! - **Lists.** A list of a page or more begins on a page boundary; shorter ones follow each other without gaps
//!   ([`list_start`]). A list is complete: its first K entries are in HEADS as well,
//!   where a vertex with fewer neighbours is padded by its own number, which is in no front while it is looked for.
//! - **Index.** In degree order lists of equal length are neighbours, so a run of them is one entry, and the index is
//!   as long as there are different degrees. In the given order there is an offset for each 16 vertices and a degree
//!   for each.
//! - **Checksums.** Every byte is covered: pages by SUMS, the bytes of SUMS and the header by the header. What was read is
//!   compared before it is used, and vertices on it are seen to be below their limit ([`Fwg::check`]). The sums take 1/1024 of the file, and lie in memory while it is open.
//! - **Validity.** The header is written last, after all else is synced. A file that was not finished has no header.

mod header;
mod index;
mod place;
mod reader;
mod sums;
mod walk;
mod writer;

pub(crate) use place::{GraphPlace, Stream, write_sums};
pub(crate) use sums::device_sums_bytes;

pub use header::{Header, MOST_HEADS, Order, Section, SectionKind, VERSION};
pub use index::{Index, IndexCursor, IndexKind, List};
pub use reader::Fwg;
pub use sums::PageSums;
pub use writer::{FwgConfig, FwgWriter};

/// Unit of layout, of checksums and of reads, bytes.
pub const PAGE_BYTES: u64 = 4096;

/// Where a list of `bytes` begins if the one before it ended at `end`, both relative to the adjacency section.
#[must_use]
pub const fn list_start(end: u64, bytes: u64) -> u64 {
    if bytes >= PAGE_BYTES { end.next_multiple_of(PAGE_BYTES) } else { end }
}

/// Whether a file with these first bytes is a stored graph.
#[must_use]
pub fn is_graph(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(&header::MAGIC)
}
