//! Writing an edge list front to back.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header::{BLOCK_BYTES, EdgesHeader};
use crate::blocks::{self, BlockLayout, BlockSink};
use crate::vertex::MOST_COUNT;
use crate::{GraphError, IdWidth, VertexId, partial};

/// Blocks that are being filled and written at once.
const BLOCKS_AT_ONCE: u32 = 4;

/// What is known before the first edge.
#[derive(Debug, Clone)]
pub struct EdgesConfig {
    /// Vertices; None makes it the largest vertex met + 1.
    pub vertices: Option<u64>,
    /// Whether pairs have a direction.
    pub directed: bool,
    /// Width of a vertex in the file.
    pub width: IdWidth,
    /// Where the edges are from; at most 1024 bytes are kept.
    pub origin: String,
}

/// See the module's argument.
#[derive(Debug)]
pub struct EdgeWriter {
    sink: BlockSink,
    file: Arc<OwnedFd>,
    alignment: u32,
    path: PathBuf,
    partial: PathBuf,
    config: EdgesConfig,
    layout: BlockLayout,
    /// Vertices are below this.
    limit: u64,
    slot: u32,
    pairs: usize,
    blocks: u64,
    edges: u64,
    largest: Option<VertexId>,
    is_finished: bool,
}

impl EdgeWriter {
    /// Begins the edge list at `path`, beside which it needs room for `.NAME.partial`.
    ///
    /// # Errors
    /// Of making the file; [`GraphError::Busy`] if another process writes the same list; [`GraphError::Invalid`] for more than 2^48
    /// vertices.
    pub fn create(path: &Path, config: EdgesConfig) -> Result<Self, GraphError> {
        if let Some(vertices) = config.vertices.filter(|vertices| *vertices > MOST_COUNT) {
            return Err(GraphError::Invalid { message: format!("{vertices} vertices are more than 2^48") });
        }
        let (file, partial) = partial::create(path)?;
        let alignment = blocks::make_direct(&file);
        let limit = match (config.vertices, config.width) {
            (Some(vertices), _) => vertices,
            (None, IdWidth::Four) => 1 << 32,
            (None, IdWidth::Eight) => MOST_COUNT,
        };
        let layout = EdgesHeader {
            vertices: 0,
            edges: 0,
            directed: false,
            width: config.width,
            origin: String::new(),
        }
        .layout();
        let mut sink = BlockSink::new(BLOCKS_AT_ONCE, BLOCK_BYTES, path)?;
        let slot = sink.take(path)?;
        Ok(Self {
            sink,
            file: Arc::new(file.into()),
            alignment,
            path: path.to_owned(),
            partial,
            config,
            layout,
            limit,
            slot,
            pairs: 0,
            blocks: 0,
            edges: 0,
            largest: None,
            is_finished: false,
        })
    }

    /// Pairs so far.
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.edges + self.pairs as u64
    }

    /// Adds pairs.
    ///
    /// # Errors
    /// [`GraphError::Io`] if an earlier block cannot be written; [`GraphError::VertexTooLarge`] for a vertex that is not below
    /// the number of vertices, or does not fit the width.
    pub fn extend(&mut self, pairs: &[(VertexId, VertexId)]) -> Result<(), GraphError> {
        let most = self.layout.pairs_per_block();
        let mut rest = pairs;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(most - self.pairs));
            let block = self.sink.buffer(self.slot);
            for (at, &(source, target)) in now.iter().enumerate() {
                let larger = source.max(target);
                if larger >= self.limit {
                    let (path, limit) = (self.path.clone(), self.limit);
                    return Err(GraphError::VertexTooLarge { path, vertex: larger, limit });
                }
                self.largest = self.largest.max(Some(larger));
                self.layout.put(block, self.pairs + at, source, target);
            }
            self.pairs += now.len();
            if self.pairs == most {
                self.flush()?;
                self.slot = self.sink.take(&self.path)?;
            }
            rest = later;
        }
        Ok(())
    }

    /// Writes the present block.
    fn flush(&mut self) -> Result<(), GraphError> {
        let stored = self.layout.seal(self.sink.buffer(self.slot), self.blocks, self.pairs);
        let offset = self.layout.offset(self.blocks);
        self.sink.write(self.slot, (&self.file, self.alignment), offset, stored);
        self.blocks += 1;
        self.edges += self.pairs as u64;
        self.pairs = 0;
        Ok(())
    }

    /// Completes the list and gives the file its name.
    ///
    /// # Errors
    /// [`GraphError::Io`] with the path if the file cannot be written, synced or renamed.
    pub fn finish(mut self) -> Result<EdgesHeader, GraphError> {
        if self.pairs > 0 {
            self.flush()?;
        } else {
            self.sink.give_back(self.slot);
        }
        self.sink.drain(&self.path)?;
        let vertices = self.config.vertices.unwrap_or_else(|| self.largest.map_or(0, |largest| largest + 1));
        let header = EdgesHeader {
            vertices,
            edges: self.edges,
            directed: self.config.directed,
            width: self.config.width,
            origin: std::mem::take(&mut self.config.origin),
        };
        self.sync()?;
        let slot = self.sink.take(&self.path)?;
        let bytes = header.encode();
        self.sink.buffer(slot)[..bytes.len()].copy_from_slice(&bytes);
        self.sink.write(slot, (&self.file, self.alignment), 0, bytes.len());
        self.sink.drain(&self.path)?;
        self.sync()?;
        std::fs::rename(&self.partial, &self.path)
            .map_err(|source| GraphError::io("rename into place", &self.path, source))?;
        self.is_finished = true;
        sync_folder(&self.path)?;
        Ok(header)
    }

    fn sync(&self) -> Result<(), GraphError> {
        rustix::fs::fsync(&self.file).map_err(|error| GraphError::io("fsync", &self.path, error.into()))
    }
}

impl Drop for EdgeWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // The error that ended the writing is reported already; the next writer replaces what stays.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// Makes a rename durable.
fn sync_folder(path: &Path) -> Result<(), GraphError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced: io::Result<()> = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| GraphError::io("fsync the directory of", path, source))
}
