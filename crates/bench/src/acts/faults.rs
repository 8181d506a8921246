//! Requests that copy to and from private memory, whose pages are made when they are touched first: fio's `page_fault`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use storage::device::{Device, DeviceKind, Geometry};
use storage::memory::{FaultingMemory, OutOfBounds};

/// See the module's argument.
#[derive(Debug)]
pub struct Faults {
    memory: FaultingMemory,
    /// Devices have a descriptor. Nothing is done with this one.
    null: File,
}

impl Faults {
    /// fio's name of the engine.
    pub const WORD: &str = "page_fault";

    /// Memory of `size` bytes, of which no page is present.
    ///
    /// # Errors
    /// `OutOfMemory` where there is not so much; the kernel's.
    pub fn new(size: u64) -> io::Result<Self> {
        Ok(Self { memory: FaultingMemory::map(size)?, null: File::open("/dev/null")? })
    }
}

fn beyond(error: OutOfBounds) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl Device for Faults {
    fn spec(&self) -> &str {
        Self::WORD
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Operations
    }

    fn performs(&self) -> Option<&'static str> {
        Some(Self::WORD)
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.memory.len()
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 1, physical_block: 1, memory_alignment: 1 }
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.copy_out(offset, buffer).map_err(beyond)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.memory.copy_in(offset, buffer).map_err(beyond)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
