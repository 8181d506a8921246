//! Reading an edge list.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header::{EdgesHeader, HEADER_BYTES};
use crate::GraphError;
use crate::blocks::{self, BlockScan};

/// An edge list whose header is sound and whose length is right.
#[derive(Debug)]
pub struct EdgeList {
    file: Arc<OwnedFd>,
    alignment: u32,
    path: PathBuf,
    header: EdgesHeader,
}

impl EdgeList {
    /// Opens the list at `path`.
    ///
    /// # Errors
    /// As [`EdgesHeader::decode`]; [`GraphError::Truncated`] if the file is shorter than its header says.
    pub fn open(path: &Path) -> Result<Self, GraphError> {
        let io = |operation, source| GraphError::io(operation, path, source);
        let file = File::open(path).map_err(|source| io("open", source))?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        (&file).take(HEADER_BYTES as u64).read_to_end(&mut bytes).map_err(|source| io("read", source))?;
        let header = EdgesHeader::decode(&bytes, path)?;
        let (needed, found) =
            (header.file_bytes(), file.metadata().map_err(|source| io("stat", source))?.len());
        if found < needed {
            let what = format!("block {}", header.blocks().saturating_sub(1));
            return Err(GraphError::Truncated { path: path.to_owned(), what, needed, found });
        }
        let alignment = blocks::make_direct(&file);
        Ok(Self { file: Arc::new(file.into()), alignment, path: path.to_owned(), header })
    }

    /// What it is.
    #[must_use]
    pub fn header(&self) -> &EdgesHeader {
        &self.header
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all blocks, or some of them, in order, `depth` blocks of 1 MiB at once.
    ///
    /// # Errors
    /// Of setting up the requests.
    pub fn scan(&self, blocks: Range<u64>, depth: u32) -> Result<BlockScan, GraphError> {
        let file = (Arc::clone(&self.file), self.alignment);
        let sizes = (self.header.file_bytes(), self.header.edges, depth);
        BlockScan::new(file, &self.path, self.header.layout(), blocks, sizes)
    }
}
