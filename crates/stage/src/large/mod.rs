//! Large files, one chunk after another (placeholder until the ring lands).
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use storage::device::AlignedBuffer;

use crate::calls;
use crate::digest::{Algorithm, CHUNK_BYTES, Digest};
use crate::error::StageError;
use crate::pace::{Pace, Progress, Stop};

/// A file.
pub struct LargeFile<'a> {
    /// From.
    pub source: BorrowedFd<'a>,
    /// To.
    pub destination: BorrowedFd<'a>,
    /// Shown.
    pub source_path: &'a Path,
    /// Shown.
    pub destination_path: &'a Path,
    /// Bytes.
    pub bytes: u64,
    /// How.
    pub algorithm: Algorithm,
    /// Holes.
    pub preserve_sparse: bool,
}

/// How.
#[derive(Debug, Clone)]
pub struct LaneConfig {
    /// In flight.
    pub depth: u32,
    /// Bytes.
    pub chunk_bytes: u64,
    /// Idle.
    pub background: bool,
    /// Clone.
    pub reflink: bool,
}

impl Default for LaneConfig {
    fn default() -> Self {
        Self { depth: 8, chunk_bytes: CHUNK_BYTES, background: false, reflink: true }
    }
}

/// Copies.
pub struct Lane {
    buffer: AlignedBuffer,
}

impl Lane {
    /// One.
    ///
    /// # Errors
    /// None.
    pub fn new(_: &LaneConfig) -> Result<Self, StageError> {
        Ok(Self { buffer: AlignedBuffer::zeroed(CHUNK_BYTES as usize, 4096) })
    }

    /// Copies.
    ///
    /// # Errors
    /// All.
    #[allow(clippy::too_many_arguments)]
    pub fn copy(
        &mut self,
        file: &LargeFile<'_>,
        done: &BTreeMap<u64, Digest>,
        pace: &dyn Pace,
        stop: &Stop,
        progress: &Progress,
        sealed: &mut dyn FnMut(&[(u64, Digest)]) -> Result<(), StageError>,
    ) -> Result<Vec<Digest>, StageError> {
        let mut digests = Vec::new();
        for chunk in 0..file.bytes.div_ceil(CHUNK_BYTES) {
            if let Some(digest) = done.get(&chunk) {
                digests.push(*digest);
                continue;
            }
            let at = chunk * CHUNK_BYTES;
            let length = CHUNK_BYTES.min(file.bytes - at) as usize;
            pace.admit(length as u64, 2, stop);
            stop.check()?;
            let read = calls::read_at(file.source, &mut self.buffer[..length], at)
                .map_err(|e| StageError::io_at("read", file.source_path, at, e))?;
            if read != length {
                return Err(StageError::SourceChanged {
                    path: crate::error::shown(file.source_path),
                    how: "it became shorter".into(),
                });
            }
            let digest = file.algorithm.of(&self.buffer[..length]);
            calls::write_at(file.destination, &self.buffer[..length], at)
                .map_err(|e| StageError::io_at("write", file.destination_path, at, e))?;
            progress.bytes_written.fetch_add(length as u64, Relaxed);
            calls::sync_data(file.destination)
                .map_err(|e| StageError::io("fdatasync", file.destination_path, e))?;
            progress.bytes_verified.fetch_add(length as u64, Relaxed);
            sealed(&[(chunk, digest)])?;
            digests.push(digest);
        }
        calls::truncate(file.destination, file.bytes)
            .map_err(|e| StageError::io("truncate", file.destination_path, e))?;
        calls::sync(file.destination).map_err(|e| StageError::io("fsync", file.destination_path, e))?;
        Ok(digests)
    }
}
