//! The extent of a file as what requests work on: fio's `falloc` and `ftruncate`.
//!
//! A write allocates its range (fallocate(2), by which the file may grow), or sets the file's length to its offset
//! (ftruncate(2)); a discard punches a hole. Reads are refused where the job file is read: fio allocates for a read without
//! growing the file, which is a change that nobody expects of a read.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use storage::device::{Device, DeviceKind, Geometry, allocate_range};

/// What a write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Allocates its range.
    Allocate,
    /// Sets the file's length to its offset.
    Truncate,
}

impl Range {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Allocate, Self::Truncate];

    /// fio's name of the engine.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Allocate => "falloc",
            Self::Truncate => "ftruncate",
        }
    }
}

/// A file whose extent is worked on, opened and guarded like one that is written.
#[derive(Debug)]
pub struct OnFile {
    range: Range,
    below: Arc<dyn Device>,
    /// The same open file.
    file: File,
}

impl OnFile {
    /// Over an open file.
    ///
    /// # Errors
    /// The kernel's, where the descriptor cannot be had twice.
    pub fn new(range: Range, below: Arc<dyn Device>) -> io::Result<Self> {
        let file = File::from(below.fd().try_clone_to_owned()?);
        Ok(Self { range, below, file })
    }
}

impl Device for OnFile {
    fn spec(&self) -> &str {
        self.below.spec()
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Operations
    }

    fn performs(&self) -> Option<&'static str> {
        Some(self.range.word())
    }

    fn path(&self) -> Option<&Path> {
        self.below.path()
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn is_direct(&self) -> bool {
        self.below.is_direct()
    }

    fn is_writable(&self) -> bool {
        self.below.is_writable()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.below.fd()
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        match self.range {
            Range::Allocate => allocate_range(self.below.fd(), offset, data.len() as u64),
            Range::Truncate => self.file.set_len(offset),
        }
    }

    /// fsync(2), whichever of the two was asked for: a length is what fdatasync(2) may leave out.
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        match self.range {
            Range::Allocate => self.below.discard(offset, length),
            Range::Truncate => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
