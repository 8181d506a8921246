//! The header of an edge list.

use std::path::Path;

use crate::blocks::BlockLayout;
use crate::vertex::MOST_COUNT;
use crate::{GraphError, IdWidth};

/// The version that is written.
pub const EDGES_VERSION: u32 = 1;
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 4096;
/// Size of a block.
pub(super) const BLOCK_BYTES: u32 = 1 << 20;
/// The first bytes of an edge list.
pub(super) const MAGIC: [u8; 8] = *b"FWEDGES\n";
const CHECKSUM_AT: usize = HEADER_BYTES - 4;
const ORIGIN_AT: usize = 64;
/// The most bytes of the text that says where the edges are from.
const ORIGIN_MAX_BYTES: usize = 1024;

/// What an edge list is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgesHeader {
    /// Vertices are 0 to this number − 1.
    pub vertices: u64,
    /// Pairs in the list.
    pub edges: u64,
    /// Whether pairs have a direction, from the first vertex to the second.
    pub directed: bool,
    /// Width of a vertex in the file.
    pub width: IdWidth,
    /// Where the edges are from: the generator with its parameters, or the imported file.
    pub origin: String,
}

impl EdgesHeader {
    /// How blocks lie.
    #[must_use]
    pub fn layout(&self) -> BlockLayout {
        BlockLayout { base: HEADER_BYTES as u64, block_bytes: BLOCK_BYTES, width: self.width }
    }

    /// How many blocks there are.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.edges.div_ceil(self.layout().pairs_per_block() as u64)
    }

    /// The length of the file, bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let layout = self.layout();
        let per_block = layout.pairs_per_block() as u64;
        let rest = (self.edges % per_block) as usize;
        let last = if rest > 0 { layout.stored_bytes(rest) as u64 } else { 0 };
        layout.offset(self.edges / per_block) + last
    }

    /// The header as it stands in the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&EDGES_VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.directed).to_le_bytes());
        bytes.extend_from_slice(&(self.width.bytes() as u32).to_le_bytes());
        bytes.extend_from_slice(&BLOCK_BYTES.to_le_bytes());
        bytes.extend_from_slice(&self.vertices.to_le_bytes());
        bytes.extend_from_slice(&self.edges.to_le_bytes());
        let mut end = self.origin.len().min(ORIGIN_MAX_BYTES);
        while !self.origin.is_char_boundary(end) {
            end -= 1;
        }
        bytes.extend_from_slice(&(end as u32).to_le_bytes());
        bytes.resize(ORIGIN_AT, 0);
        bytes.extend_from_slice(&self.origin.as_bytes()[..end]);
        bytes.resize(CHECKSUM_AT, 0);
        let sum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header of a file, of its first 4096 bytes.
    ///
    /// # Errors
    /// [`GraphError::WrongFormat`], [`GraphError::NewerVersion`], or [`GraphError::Corrupt`].
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Self, GraphError> {
        let path = || path.to_owned();
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Err(GraphError::WrongFormat { path: path(), expected: "an edge list (.el)" });
        }
        let corrupt = |detail: String| GraphError::Corrupt {
            path: path(),
            what: "header".to_owned(),
            offset: 0,
            detail,
        };
        let small = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let large = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let (sum, stored) = (crc32c::crc32c(&bytes[..CHECKSUM_AT]), small(CHECKSUM_AT));
        if sum != stored {
            return Err(corrupt(format!("its checksum is {sum:08x}, not {stored:08x}")));
        }
        if small(8) > EDGES_VERSION {
            return Err(GraphError::NewerVersion { path: path(), found: small(8), newest: EDGES_VERSION });
        }
        let width = IdWidth::from_bytes(small(16).into())
            .ok_or_else(|| corrupt(format!("vertices of {} bytes", small(16))))?;
        let (vertices, length) = (large(24), small(40) as usize);
        if small(12) > 1 || small(20) != BLOCK_BYTES || length > ORIGIN_MAX_BYTES {
            return Err(corrupt("a field has a value that is not possible".to_owned()));
        }
        if width == IdWidth::Four && vertices > 1 << 32 {
            return Err(corrupt(format!("{vertices} vertices of 4 bytes")));
        }
        let edges = large(32);
        if vertices.max(edges) > MOST_COUNT {
            return Err(corrupt(format!("{vertices} vertices and {edges} edges, more than any drive holds")));
        }
        let origin = String::from_utf8(bytes[ORIGIN_AT..ORIGIN_AT + length].to_vec())
            .map_err(|_| corrupt("its origin is not UTF-8".to_owned()))?;
        Ok(Self { vertices, edges, directed: small(12) == 1, width, origin })
    }
}
