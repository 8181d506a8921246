//! Checksums of pages, in memory.

use storage::device::Device;

use super::PAGE_BYTES;

/// The most that a volume's own checksums take of memory (`volume::SumsLimits`), bytes.
const DEVICE_SUMS_MOST_BYTES: u64 = 64 << 20;

/// Bytes of memory that a device's own checksums of so many bytes take, if it keeps any: 4 for each 4 KiB, and those read beside them.
pub(crate) fn device_sums_bytes(device: &dyn Device, bytes: u64) -> u64 {
    if device.verifies() { (bytes / 1024 + (64 << 10)).min(DEVICE_SUMS_MOST_BYTES) } else { 0 }
}

/// CRC-32C of each page of a stored graph from page 1 on.
#[derive(Debug)]
pub struct PageSums(Vec<u32>);

impl PageSums {
    pub(crate) fn new(sums: Vec<u32>) -> Self {
        Self(sums)
    }

    /// Compares whole pages that were read at `offset`, a multiple of [`PAGE_BYTES`], with what was written.
    ///
    /// # Errors
    /// The offset of the first page that differs, its checksum and the one that was stored.
    pub fn check(&self, offset: u64, pages: &[u8]) -> Result<(), BadPage> {
        let first = (offset / PAGE_BYTES) as usize;
        for (i, page) in pages.chunks_exact(PAGE_BYTES as usize).enumerate() {
            let stored = (first + i).checked_sub(1).and_then(|at| self.0.get(at)).copied();
            let found = crc32c::crc32c(page);
            if stored != Some(found) {
                return Err(BadPage { offset: offset + i as u64 * PAGE_BYTES, found, stored });
            }
        }
        Ok(())
    }
}

/// A page whose checksum does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPage {
    /// Where it is in the file.
    pub offset: u64,
    /// Of what was read.
    pub found: u32,
    /// Of what was written; None for a page that has no checksum.
    pub stored: Option<u32>,
}
