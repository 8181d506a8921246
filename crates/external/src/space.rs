//! Temporary space: a device cut into blocks, which are given out, returned, and counted.
//!
//! Nothing on the device outlives the process or means anything without the tables in memory, so no header is written: a
//! block is data alone, and its CRC-32C is kept in the table of the structure that wrote it. That detects bits that
//! changed, writes that were lost and writes that went elsewhere, because all of them leave other bytes under the table's
//! entry.
//!
//! A block has one owner. The lowest free block is given out first, which keeps neighbours together and, in a file, the
//! part that is used small. A scratch file takes space of its file system as blocks are given out for the first time, a
//! piece at a time: [`PIECE_BYTES`], and an eighth of what it has already.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::device::{Device, OpenError, OpenOptions, ScratchFile};
use storage::engine::IoEngine;

use crate::ExternalError;
use crate::waits::{WaitClock, Waited};

/// The least piece that a scratch file grows by, where the file system has that much.
const PIECE_BYTES: u64 = 8 << 20;

/// How a device is used as temporary space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceOptions {
    /// Bytes of a block, which is the unit of every request; a multiple of 4096 and of the device's blocks.
    pub block_bytes: usize,
    /// The engine.
    pub engine: IoEngine,
}

impl Default for SpaceOptions {
    /// Blocks of 128 KiB, by the fastest engine that works.
    fn default() -> Self {
        Self { block_bytes: 128 << 10, engine: IoEngine::Auto }
    }
}

/// What was done on a space so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes read from the device.
    pub bytes_read: u64,
    /// Bytes written to the device.
    pub bytes_written: u64,
    /// Requests of both kinds.
    pub requests: u64,
    /// Time that threads spent waiting for requests.
    pub waited: Waited,
    /// Bytes in blocks that are given out now.
    pub bytes_in_use: u64,
    /// The most bytes that were given out at one time.
    pub bytes_in_use_peak: u64,
    /// Bytes of the file system that a scratch file has taken; 0 on a device.
    pub bytes_set_aside: u64,
}

/// A writable device as temporary space. Clones share it.
#[derive(Debug, Clone)]
pub struct Space {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: Arc<dyn Device>,
    /// What grows; None for a device, which has its space.
    file: Option<ScratchFile>,
    options: SpaceOptions,
    blocks: Mutex<Blocks>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    requests: AtomicU64,
    waits: WaitClock,
}

/// Which blocks are free: those in `returned`, and those from `unused` on.
#[derive(Debug, Default)]
struct Blocks {
    returned: BTreeSet<u64>,
    unused: u64,
    count: u64,
    /// How many of them, from the first, have space in the file system.
    set_aside: u64,
    in_use: u64,
    peak: u64,
}

impl Space {
    /// Uses all of `device`, whose contents are lost.
    ///
    /// # Errors
    /// [`ExternalError::ReadOnly`], and [`ExternalError::BlockSize`] for blocks that the device cannot read and write.
    pub fn on(device: Arc<dyn Device>, options: &SpaceOptions) -> Result<Self, ExternalError> {
        Self::new(device, None, options)
    }

    fn new(
        device: Arc<dyn Device>,
        file: Option<ScratchFile>,
        options: &SpaceOptions,
    ) -> Result<Self, ExternalError> {
        let name = || device.spec().to_owned();
        if !device.is_writable() {
            return Err(ExternalError::ReadOnly { device: name() });
        }
        let unit = u64::from(device.geometry().logical_block).max(4096);
        let block_bytes = options.block_bytes as u64;
        let reason = if block_bytes == 0 || !block_bytes.is_multiple_of(unit) {
            format!("it is not a multiple of {unit}")
        } else if block_bytes > 64 << 20 {
            "it is more than 64 MiB".to_owned()
        } else {
            String::new()
        };
        if !reason.is_empty() {
            let block_bytes = options.block_bytes;
            return Err(ExternalError::BlockSize { device: name(), block_bytes, reason });
        }
        let count = device.size() / block_bytes;
        let set_aside = if file.is_some() { 0 } else { count };
        let blocks = Blocks { count, set_aside, ..Blocks::default() };
        Ok(Self {
            inner: Arc::new(Inner {
                device,
                file,
                options: options.clone(),
                blocks: Mutex::new(blocks),
                bytes_read: AtomicU64::new(0),
                bytes_written: AtomicU64::new(0),
                requests: AtomicU64::new(0),
                waits: WaitClock::default(),
            }),
        })
    }

    /// Uses a scratch file in `directory`, past the page cache where the file system allows that. The file grows as it is used,
    /// to `bytes` at most, and has no name, so nothing is left of it when the process ends.
    ///
    /// # Errors
    /// [`ExternalError::Open`] where there is no such directory, otherwise as [`Space::on`].
    pub fn scratch(directory: &Path, bytes: u64, options: &SpaceOptions) -> Result<Self, ExternalError> {
        let place = directory.display().to_string();
        let failed = |error| ExternalError::Open { place: place.clone(), source: Box::new(error) };
        let file = ScratchFile::create_empty(directory, bytes).map_err(failed)?;
        let spec = format!("scratch file in {place}");
        let device = match file.open(&spec, &OpenOptions::writing()) {
            Err(OpenError::DirectUnsupported { .. }) => {
                file.open(&spec, &OpenOptions::writing().buffered()).map_err(failed)?
            }
            opened => opened.map_err(failed)?,
        };
        Self::new(device, Some(file), options)
    }

    /// Counts waits on `clock`, which other work counts on as well.
    ///
    /// # Panics
    /// If the space is in use.
    #[must_use]
    pub fn with_clock(mut self, clock: WaitClock) -> Self {
        Arc::get_mut(&mut self.inner).expect("a space that no structure has yet").waits = clock;
        self
    }

    /// The clock on which waits are counted.
    #[must_use]
    pub fn clock(&self) -> &WaitClock {
        &self.inner.waits
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.inner.device
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.inner.options.block_bytes
    }

    /// What was done on it so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let inner = &*self.inner;
        let blocks = self.blocks();
        Usage {
            bytes_read: inner.bytes_read.load(Ordering::Relaxed),
            bytes_written: inner.bytes_written.load(Ordering::Relaxed),
            requests: inner.requests.load(Ordering::Relaxed),
            waited: inner.waits.waited(),
            bytes_in_use: blocks.in_use * self.block_bytes() as u64,
            bytes_in_use_peak: blocks.peak * self.block_bytes() as u64,
            bytes_set_aside: if inner.file.is_some() {
                blocks.set_aside * self.block_bytes() as u64
            } else {
                0
            },
        }
    }

    pub(crate) fn engine(&self) -> IoEngine {
        self.inner.options.engine
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        // The table is consistent after every statement, so a thread that panicked left nothing half done.
        self.inner.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_block(&self) -> Result<u64, ExternalError> {
        let mut blocks = self.blocks();
        let block = match blocks.returned.pop_first() {
            Some(block) => block,
            None if blocks.unused < blocks.count => {
                if blocks.unused == blocks.set_aside {
                    blocks.set_aside += self.grow(blocks.set_aside, blocks.count)?;
                }
                blocks.unused += 1;
                blocks.unused - 1
            }
            None => {
                let device = self.inner.device.spec().to_owned();
                return Err(ExternalError::Full { device, size: self.inner.device.size() });
            }
        };
        blocks.in_use += 1;
        blocks.peak = blocks.peak.max(blocks.in_use);
        Ok(block)
    }

    /// Sets space aside for blocks from `first` on; how many. One block is better than none where the disk is nearly full.
    fn grow(&self, first: u64, count: u64) -> Result<u64, ExternalError> {
        let Some(file) = &self.inner.file else { return Ok(count - first) };
        let block_bytes = self.block_bytes() as u64;
        let mut blocks = (PIECE_BYTES / block_bytes).max(first / 8).clamp(1, count - first);
        loop {
            match file.set_aside(first * block_bytes, blocks * block_bytes) {
                Ok(()) => return Ok(blocks),
                Err(OpenError::NoSpace { .. }) if blocks > 1 => blocks = blocks.div_ceil(2),
                Err(error) => {
                    let place = file.directory().display().to_string();
                    return Err(ExternalError::Grow {
                        place,
                        used: first * block_bytes,
                        source: Box::new(error),
                    });
                }
            }
        }
    }

    pub(crate) fn return_block(&self, block: u64) {
        let mut blocks = self.blocks();
        let is_new = blocks.returned.insert(block);
        assert!(is_new && block < blocks.unused, "block {block} has one owner");
        blocks.in_use -= 1;
    }

    pub(crate) fn count_read(&self, bytes: u32) {
        self.inner.bytes_read.fetch_add(u64::from(bytes), Ordering::Relaxed);
        self.inner.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_written(&self, bytes: u32) {
        self.inner.bytes_written.fetch_add(u64::from(bytes), Ordering::Relaxed);
        self.inner.requests.fetch_add(1, Ordering::Relaxed);
    }
}
