//! Large files, by the chunk: many chunks of a file under way at once, digested on the way, durable before they count.
//!
//! A chunk goes through these steps, and is reported ([`Lane::copy`]'s `sealed`, where the journal is written) after the
//! last of them only:
//!
//! 1. read from the source, around the page cache where that can be; the pace has let it in;
//! 2. digested where it lies, with no copy of it made;
//! 3. written to the destination from the same buffer;
//! 4. with all chunks that were written meanwhile, a *group*, made durable by one fdatasync(2), while later chunks are
//!    read and written. A failure of it ends the copy: it is never tried again, and the part must not be trusted;
//! 5. read back around the page cache, and digested again: the same digest, or [`StageError::Corrupt`];
//! 6. reported, with its group.
//!
//! So a slow tier that reads as fast as it writes loses nothing by verification: while group n is read back, group n + 1
//! is written. Only the last group's reading back comes after all writing, which is why groups are small where writing
//! is slow.
//!
//! **The file's end.** Direct requests are multiples of some block, and files are not. The last block is written padded
//! with zeros, and the file then cut to its length, before the fdatasync(2) that makes its chunk durable. The other way, a
//! last piece through the page cache, would mix both ways in one block of the file.
//!
//! **Holes** stay holes where that was asked for. A chunk that is nothing but a hole costs no request: its digest is that
//! of zeros, and it is verified by asking the destination, once it is synced, whether it has any data there; if it has,
//! it is read like any other. Zeros that the source has as data are written as data: what was allocated stays
//! allocated.
//!
//! **Within one file system** that can share blocks, ioctl_ficlone(2) takes the place of steps 1 and 3. What it made
//! is synced, read around the cache and digested all the same.
//!
//! **Where there is no direct I/O** requests go through the page cache; what is read back has been dropped from it
//! before. That is less than reading around it (pages that a program has mapped stay), so it is noted ([`Lane::notes`]).
//!
//! Memory is bounded: `depth` buffers of a chunk each.

mod check;
mod clone;
mod copy;
mod holes;
mod port;
mod side;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::fs::OFlags;
use storage::transfer::{Method, RequestError, Transfer, TransferConfig};

use self::check::Check;
use self::copy::Copying;
use self::port::Port;
use self::side::Side;
use crate::calls;
use crate::digest::{Algorithm, CHUNK_BYTES, Digest, Hasher};
use crate::error::{StageError, shown};
use crate::fault::{self, Barrier, enforced};
use crate::pace::{Pace, Progress, Stop};

/// How a lane works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneConfig {
    /// Chunks under way at once, each with a buffer; fewer where there is no memory for them.
    pub depth: u32,
    /// Bytes of a chunk, which is what one digest is of; a multiple of 4096, at most 1 GiB.
    pub chunk_bytes: u64,
    /// Let others' I/O go first.
    pub background: bool,
    /// Share blocks instead of copying them, where source and destination are on one file system that can.
    pub reflink: bool,
    /// How requests are made.
    pub method: Method,
    /// A group is synced when it has this many bytes, whatever its age.
    pub group_bytes: u64,
    /// A group is synced when its first chunk was written this long ago.
    pub group_time: Duration,
}

impl Default for LaneConfig {
    fn default() -> Self {
        Self {
            depth: 8,
            chunk_bytes: CHUNK_BYTES,
            background: false,
            reflink: true,
            method: Method::Auto,
            group_bytes: 256 << 20,
            group_time: Duration::from_secs(2),
        }
    }
}

/// A file to be copied.
#[derive(Debug, Clone, Copy)]
pub struct LargeFile<'a> {
    /// Open for reading. No program writes to it; its holes are only believed where it has been synced.
    pub source: BorrowedFd<'a>,
    /// Open for reading and writing; empty, or what an earlier attempt has left.
    pub destination: BorrowedFd<'a>,
    /// For messages.
    pub source_path: &'a Path,
    /// For messages.
    pub destination_path: &'a Path,
    /// The source's length.
    pub bytes: u64,
    /// How chunks are digested.
    pub algorithm: Algorithm,
    /// Holes stay holes.
    pub preserve_sparse: bool,
}

/// The journal's step: chunks that are durable and were read back, with their digests.
pub type Sealed<'a> = dyn FnMut(&[(u64, Digest)]) -> Result<(), StageError> + 'a;

/// Buffers, and a way to have many requests made at once: for one thread, for one file after another.
#[derive(Debug)]
pub struct Lane {
    config: LaneConfig,
    /// None once it has failed; made anew for the next file.
    port: Option<Port>,
    notes: Vec<String>,
}

impl Lane {
    /// Bytes of a chunk.
    pub(crate) const fn chunk_bytes(&self) -> u64 {
        self.config.chunk_bytes
    }

    /// Takes memory for the buffers. Nothing of the calling thread is changed; it is the one that must use the lane.
    ///
    /// # Errors
    /// There is no memory for even one chunk, or no way to make requests.
    pub fn new(config: &LaneConfig) -> Result<Self, StageError> {
        if config.depth == 0 || config.chunk_bytes == 0 || !config.chunk_bytes.is_multiple_of(4096) {
            return Err(StageError::invalid(
                format!("{} chunks of {} bytes at once", config.depth, config.chunk_bytes),
                "at least one chunk, of a multiple of 4096 bytes",
            ));
        }
        let port = port(config)?;
        Ok(Self { config: config.clone(), port: Some(port), notes: Vec::new() })
    }

    /// How requests are made.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        self.port.as_ref().map(Port::method)
    }

    /// What is worth knowing of the files since this was last asked: what could not be read back around the page cache,
    /// and why.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Copies a file. When this returns, every byte has been written, synced and read back, and the destination has the
    /// source's length, which the caller syncs with the metadata. Chunks in `done` (index and digest) were reported by an earlier attempt; they are counted as
    /// written and verified, and not touched. `sealed` is called on this thread with chunks that are durable and
    /// verified; an error of it ends the copy. `written` is called once, when every byte has been written and the last
    /// of them are still to be made durable and read back; not where blocks were shared instead. The digests are those of all chunks, in order.
    ///
    /// The caller looks at the source again afterwards: what was changed without changing its length is not found here.
    ///
    /// # Errors
    /// [`StageError::Stopped`] when asked to stop: what was reported stays valid. [`StageError::SourceChanged`] where
    /// the source ends early; [`StageError::Corrupt`] where what is read back differs. After any error but these and
    /// those of reading the source, the part is not to be trusted beyond what was reported; after one of fdatasync(2),
    /// not at all.
    #[allow(clippy::too_many_arguments, reason = "each has another owner")]
    pub fn copy(
        &mut self,
        file: &LargeFile<'_>,
        done: &BTreeMap<u64, Digest>,
        pace: &dyn Pace,
        stop: &Stop,
        progress: &Progress,
        sealed: &mut Sealed<'_>,
        written: &mut dyn FnMut(),
    ) -> Result<Vec<Digest>, StageError> {
        stop.check()?;
        let (config, mut notes) = (self.config.clone(), Vec::new());
        let copied = self.with_port(file.destination_path, |port| {
            let chunk_bytes = config.chunk_bytes as u32;
            let (from, to) = (OFlags::RDONLY, OFlags::RDWR);
            let source = Side::open(file.source, file.source_path, from, chunk_bytes)?;
            let mut destination = Side::open(file.destination, file.destination_path, to, chunk_bytes)?;
            let digests = if config.reflink && done.is_empty() && clone::clone(file)? {
                progress.bytes_written.fetch_add(file.bytes, Relaxed);
                Check {
                    port,
                    side: &mut destination,
                    bytes: file.bytes,
                    chunk_bytes: config.chunk_bytes,
                    algorithm: file.algorithm,
                    holes: file.preserve_sparse,
                    pace,
                    stop,
                    progress,
                }
                .run(sealed)?
            } else {
                let mut copying =
                    Copying::new(port, &config, file, done, source, destination, pace, stop, progress)?;
                let digests = copying.run(sealed, written)?;
                destination = copying.destination;
                digests
            };
            notes.extend(said(&destination));
            Ok(digests)
        })?;
        self.notes.append(&mut notes);
        Ok(copied)
    }

    /// Lends the port out, and sees to it that nothing is under way when it comes back.
    fn with_port<T>(
        &mut self,
        path: &Path,
        work: impl FnOnce(&mut Port) -> Result<T, StageError>,
    ) -> Result<T, StageError> {
        // Taken, so that one that is lost in a panic waits for its requests and is not used again.
        let mut port = match self.port.take() {
            Some(port) => port,
            None => port(&self.config)?,
        };
        let result = work(&mut port);
        match port.drain() {
            Ok(lost) => {
                self.port = Some(port);
                // Of two failures the one that says what is not to be trusted.
                lost.map_or(result, |error| Err(StageError::sync("fdatasync", path, error)))
            }
            Err(_) => result,
        }
    }
}

/// Sets a port up, of fewer slots where there is no memory for as many as asked for.
fn port(config: &LaneConfig) -> Result<Port, StageError> {
    let mut depth = config.depth;
    loop {
        let asked = TransferConfig {
            slots: depth,
            slot_bytes: u32::try_from(config.chunk_bytes).unwrap_or(u32::MAX),
            method: config.method,
            idle: config.background,
        };
        match Transfer::new(&asked) {
            Ok(transfer) => return Ok(Port::new(transfer)),
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory && depth > 1 => depth /= 2,
            Err(source) => {
                return Err(StageError::Io {
                    operation: "set up its requests".to_owned(),
                    path: "copying".to_owned(),
                    offset: None,
                    source,
                });
            }
        }
    }
}

/// The requests' own machinery failed, not one of them.
fn broken(path: &Path, error: io::Error) -> StageError {
    StageError::io("go on with its requests", path, error)
}

/// A request of a destination that failed.
fn failed(operation: &str, path: &Path, offset: u64, error: RequestError) -> StageError {
    match error {
        RequestError::Os(error) => StageError::io_at(operation, path, offset, error),
        short @ RequestError::Short { .. } => {
            let kind = match operation {
                "write" => io::ErrorKind::WriteZero,
                _ => io::ErrorKind::UnexpectedEof,
            };
            StageError::io_at(operation, path, offset, io::Error::new(kind, short))
        }
    }
}

/// Compares what was read back.
fn compare(
    path: &Path,
    algorithm: Algorithm,
    offset: u64,
    expected: Digest,
    found: Digest,
) -> Result<(), StageError> {
    if expected == found || !enforced(fault::Check::ChunkReadBack) {
        return Ok(());
    }
    Err(StageError::Corrupt {
        path: shown(path),
        offset,
        expected: expected.text(algorithm),
        found: found.text(algorithm),
    })
}

/// What is to be said of how a file was read back.
fn said(side: &Side<'_>) -> Option<String> {
    let why = side.buffered_because.as_ref()?;
    Some(format!("{}: read back through the page cache, dropped before ({why})", shown(side.path)))
}

/// Where chunk `index` of a file lies.
fn chunk(index: u64, chunk_bytes: u64, bytes: u64) -> Range<u64> {
    let start = index * chunk_bytes;
    start..(start + chunk_bytes).min(bytes)
}

/// The digest of zeros, computed once for a run of equal chunks.
#[derive(Debug, Default)]
struct Zeros(Option<(u64, Digest)>);

impl Zeros {
    fn of(&mut self, algorithm: Algorithm, bytes: u64) -> Digest {
        match self.0 {
            Some((length, digest)) if length == bytes => digest,
            _ => {
                let mut hasher = Hasher::new(algorithm);
                let (zeros, mut left) = ([0; 64 << 10], bytes);
                while left > 0 {
                    let some = left.min(zeros.len() as u64);
                    hasher.update(&zeros[..some as usize]);
                    left -= some;
                }
                self.0.insert((bytes, hasher.finish())).1
            }
        }
    }
}

/// Syncs a source before its holes are asked for: what is on its way to the medium may be reported as one.
pub fn sync_holes(source: BorrowedFd<'_>, path: &Path) -> Result<(), StageError> {
    calls::sync_source(source, Barrier::SourceHoles).map_err(|error| StageError::source_sync(path, error))
}
