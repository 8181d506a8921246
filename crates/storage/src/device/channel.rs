//! The synchronous path of files and block devices.
//!
//! Direct I/O demands aligned memory, offsets and lengths; labels, checks and laid files do not always
//! have them. What is aligned goes straight through. The rest goes through an aligned buffer of whole
//! blocks, and a write of a part of a block reads that block first. This path is for set-up, not for
//! what is measured.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use super::Geometry;

/// The part of [`Device`](super::Device) that everything with the fields `path` and `channel` answers
/// alike.
macro_rules! answered_by_channel {
    () => {
        fn path(&self) -> Option<&Path> {
            Some(&self.path)
        }

        fn size(&self) -> u64 {
            self.channel.size
        }

        fn geometry(&self) -> Geometry {
            self.channel.geometry
        }

        fn is_direct(&self) -> bool {
            self.channel.direct
        }

        fn is_writable(&self) -> bool {
            self.channel.writable
        }

        fn fd(&self) -> BorrowedFd<'_> {
            self.channel.fd()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.channel.read_at(buffer, offset)
        }

        fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
            self.channel.write_at(buffer, offset)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.channel.sync_data()
        }
    };
}
pub(crate) use answered_by_channel;

/// Bytes that are moved at a time through the aligned buffer.
const BOUNCE: usize = 1 << 20;

/// An open file with bounds and alignment.
#[derive(Debug)]
pub(crate) struct Channel {
    pub file: File,
    pub geometry: Geometry,
    pub direct: bool,
    pub writable: bool,
    pub size: u64,
}

impl Channel {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether the kernel can be trusted with this request as it is.
    ///
    /// The memory must be aligned to a logical block even where the kernel asks for less: zram on a machine
    /// of 4 KiB pages takes every part of a request for a whole page (`is_partial_io` in its driver), so a
    /// block that straddles two pages would be read over whatever else lies in both.
    fn is_aligned(&self, address: *const u8, length: usize, offset: u64) -> bool {
        let block = u64::from(self.geometry.logical_block.max(1));
        let memory = self.geometry.memory_alignment.max(self.geometry.logical_block).max(1) as usize;
        !self.direct
            || (address.addr().is_multiple_of(memory)
                && offset.is_multiple_of(block)
                && (length as u64).is_multiple_of(block))
    }

    /// `error` where the request reaches beyond the end.
    fn bounded(&self, length: usize, offset: u64, error: io::ErrorKind) -> io::Result<()> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::Error::new(
                error,
                format!("{length} bytes at {offset} reach beyond the end at {}", self.size),
            )),
        }
    }

    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.bounded(buffer.len(), offset, io::ErrorKind::UnexpectedEof)?;
        if self.is_aligned(buffer.as_ptr(), buffer.len(), offset) {
            return self.file.read_exact_at(buffer, offset);
        }
        let mut bounce = self.bounce(buffer.len());
        let mut done = 0;
        while done < buffer.len() {
            let (start, skip) = self.block_of(offset + done as u64);
            let take = (bounce.len() - skip).min(buffer.len() - done);
            let whole = self.blocks(skip + take);
            self.file.read_exact_at(&mut bounce[..whole], start)?;
            buffer[done..done + take].copy_from_slice(&bounce[skip..skip + take]);
            done += take;
        }
        Ok(())
    }

    pub fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only"));
        }
        self.bounded(buffer.len(), offset, io::ErrorKind::WriteZero)?;
        if self.is_aligned(buffer.as_ptr(), buffer.len(), offset) {
            return self.file.write_all_at(buffer, offset);
        }
        let mut bounce = self.bounce(buffer.len());
        let mut done = 0;
        while done < buffer.len() {
            let (start, skip) = self.block_of(offset + done as u64);
            let take = (bounce.len() - skip).min(buffer.len() - done);
            let whole = self.blocks(skip + take);
            if skip != 0 || whole != skip + take {
                // The neighbours' bytes in the first and last block go back as they were.
                self.file.read_exact_at(&mut bounce[..whole], start)?;
            }
            bounce[skip..skip + take].copy_from_slice(&buffer[done..done + take]);
            self.file.write_all_at(&bounce[..whole], start)?;
            done += take;
        }
        Ok(())
    }

    pub fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Refuses to discard what may not be, before the kernel is asked.
    pub fn check_discard(&self, offset: u64, length: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only"));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.bounded(length, offset, io::ErrorKind::InvalidInput)
    }

    /// The block that holds `offset`: where it begins, and how far into it the offset is.
    fn block_of(&self, offset: u64) -> (u64, usize) {
        let block = u64::from(self.geometry.logical_block.max(1));
        (offset - offset % block, (offset % block) as usize)
    }

    /// `length` rounded up to whole blocks.
    fn blocks(&self, length: usize) -> usize {
        length.next_multiple_of(self.geometry.logical_block.max(1) as usize)
    }

    fn bounce(&self, length: usize) -> AlignedBuffer {
        let block = self.geometry.logical_block.max(1) as usize;
        // One more block for each end that is cut.
        let wanted = length.saturating_add(2 * block).min(BOUNCE.max(2 * block));
        AlignedBuffer::zeroed(
            wanted.next_multiple_of(block),
            self.geometry.memory_alignment.max(self.geometry.logical_block).max(1).next_power_of_two()
                as usize,
        )
    }
}

/// Zeroed bytes at an aligned address.
#[derive(Debug)]
pub struct AlignedBuffer {
    /// The first aligned byte of what was allocated.
    pointer: NonNull<u8>,
    length: usize,
    allocated: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes are plain, and owned by this value alone.
unsafe impl Send for AlignedBuffer {}

impl AlignedBuffer {
    /// `length` bytes, not zero, at a multiple of `alignment`, a power of two, and at least of a page.
    ///
    /// Asked for aligned memory, Rust's allocator writes the zeros itself, so that the kernel makes every page at once. Memory
    /// without an alignment that is fresh from the kernel is zero, and has only the pages that are used: so it is aligned here.
    pub fn zeroed(length: usize, alignment: usize) -> Self {
        let (length, alignment) = (length.max(1), alignment.max(4096));
        let layout = length.checked_add(alignment).and_then(|size| Layout::from_size_align(size, 1).ok());
        let layout = layout.expect("alignments come rounded to powers of two, lengths bounded");
        // SAFETY: the layout's size is more than one.
        let allocated = unsafe { alloc_zeroed(layout) };
        let Some(allocated) = NonNull::new(allocated) else { handle_alloc_error(layout) };
        let address = allocated.addr().get();
        // SAFETY: less than `alignment` further, so that `length` bytes of the allocation follow.
        let pointer = unsafe { allocated.add(address.next_multiple_of(alignment) - address) };
        Self { pointer, length, allocated, layout }
    }

    /// Where it is, for the kernel to write to. Whoever hands it over looks at no byte until the kernel is done with it.
    pub(crate) fn address(&self) -> u64 {
        self.pointer.as_ptr() as u64
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes of the allocation begin at `pointer`, initialised to zero, borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout, freed only here.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_zero_and_has_the_pages_that_are_used() {
        // More than the C library keeps for itself (mallopt(3), M_MMAP_THRESHOLD).
        let length = 64 << 20;
        let before = crate::usage::thread();
        let mut buffer = AlignedBuffer::zeroed(length, 1 << 20);
        let made = crate::usage::thread().since(before).minor_faults;
        assert!(made < 16, "{made} pages");
        assert!(buffer.address().is_multiple_of(1 << 20));
        assert_eq!((buffer.len(), buffer[0], buffer[length - 1]), (length, 0, 0));
        buffer[length - 1] = 1;
        drop(buffer);
        let small = AlignedBuffer::zeroed(0, 1);
        assert!(small.len() == 1 && small.address().is_multiple_of(4096));
    }
}
