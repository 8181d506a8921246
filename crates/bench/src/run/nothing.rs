//! A device that answers every request at once: fio's `null`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use storage::device::{Device, DeviceKind, Geometry};

/// See the module's argument.
#[derive(Debug)]
pub struct Nothing {
    word: &'static str,
    size: u64,
    /// Devices have a descriptor. Nothing is done with this one.
    null: File,
}

impl Nothing {
    /// A device of so many bytes, none of which there are, that goes by the name of an engine.
    ///
    /// # Errors
    /// The kernel's, where there is no `/dev/null`.
    pub fn new(word: &'static str, size: u64) -> io::Result<Self> {
        Ok(Self { word, size, null: File::open("/dev/null")? })
    }
}

impl Device for Nothing {
    fn spec(&self) -> &str {
        self.word
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Operations
    }

    fn performs(&self) -> Option<&'static str> {
        Some(self.word)
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.size
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

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}
