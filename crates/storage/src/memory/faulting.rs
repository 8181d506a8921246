//! Private memory whose pages are made when they are touched: what a page fault costs.
//!
//! The mapping is anonymous, private and untouched, and no advice is given about it: in which pages it comes to lie is the
//! machine's setting. Its bytes go out and in as those of [`SharedMemory`](super::SharedMemory), for the same reasons and
//! by the same copies.

use std::io;
use std::ptr::NonNull;

use super::{OutOfBounds, copy_racing_in, copy_racing_out};
use crate::device::available_memory;
use crate::device::sys;
use crate::pages::{page_bytes, raw_map_aligned};

/// Memory that is left to the rest of the system, whatever is asked for.
const RESERVE: u64 = 64 << 20;

/// See the module's argument.
#[derive(Debug)]
pub struct FaultingMemory {
    pointer: NonNull<u8>,
    length: usize,
    mapped: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and lives until `drop`; every access
// is a copy that tolerates races (see `SharedMemory`).
unsafe impl Send for FaultingMemory {}
// SAFETY: as for Send; no `&self` method hands out a reference into the mapping.
unsafe impl Sync for FaultingMemory {}

impl FaultingMemory {
    /// Fails if so many bytes are not to be had, together with what else is touched meanwhile: the kernel's answer to
    /// touching them would be to kill some process.
    ///
    /// # Errors
    /// `OutOfMemory` with what is free.
    pub fn check(bytes: u64) -> io::Result<()> {
        let available = available_memory().saturating_sub(RESERVE);
        if bytes <= available {
            return Ok(());
        }
        let message = format!(
            "{} of memory are asked for, and {} are free",
            units::bytes(bytes),
            units::bytes(available)
        );
        Err(io::Error::new(io::ErrorKind::OutOfMemory, message))
    }

    /// Maps `size` bytes of zeros, none of them present.
    ///
    /// # Errors
    /// As [`check`](Self::check), and the kernel's.
    pub fn map(size: u64) -> io::Result<Self> {
        Self::check(size)?;
        let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
        let length = usize::try_from(size).map_err(|_| too_large())?;
        // Whole pages are a whole number of words, which the word-wise copy needs.
        let mapped = length.max(1).checked_next_multiple_of(page_bytes()).ok_or_else(too_large)?;
        Ok(Self { pointer: raw_map_aligned(mapped, 1)?, length, mapped })
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.length as u64
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies `buffer.len()` bytes at `offset` out into `buffer`.
    ///
    /// # Errors
    /// [`OutOfBounds`]; nothing was copied.
    pub fn copy_out(&self, offset: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.bounded(offset, buffer.len())?;
        // SAFETY: `bounded` puts at..at+len inside the mapping, which lives as long as `self`; `buffer` is exclusively
        // ours, and cannot overlap a mapping of which no slice exists.
        unsafe { copy_racing_out(self.pointer.as_ptr(), at, buffer) };
        Ok(())
    }

    /// Copies all of `buffer` in at `offset`.
    ///
    /// # Errors
    /// [`OutOfBounds`]; nothing was copied.
    pub fn copy_in(&self, offset: u64, buffer: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.bounded(offset, buffer.len())?;
        // SAFETY: as in `copy_out`; the mapping is writable (PROT_WRITE) for its whole life.
        unsafe { copy_racing_in(self.pointer.as_ptr(), at, buffer) };
        Ok(())
    }

    fn bounded(&self, offset: u64, length: usize) -> Result<usize, OutOfBounds> {
        let inside = usize::try_from(offset)
            .ok()
            .filter(|at| at.checked_add(length).is_some_and(|end| end <= self.length));
        inside.ok_or(OutOfBounds { offset, length, size: self.length as u64 })
    }
}

impl Drop for FaultingMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and is unmapped only here; no copy can be running, since each
        // borrows `self`.
        unsafe { sys::unmap(self.pointer, self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of the mapping that are present (mincore(2) does not tell for anonymous memory; smaps(5) does).
    fn resident(memory: &FaultingMemory) -> u64 {
        let start = memory.pointer.as_ptr().addr();
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("reads");
        let mut inside = false;
        for line in smaps.lines() {
            if let Some((range, _)) = line.split_once(' ')
                && let Some((from, to)) = range.split_once('-')
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                inside = (from..to).contains(&start);
            } else if inside && let Some(value) = line.strip_prefix("Rss:") {
                return value.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024;
            }
        }
        panic!("the mapping is not in smaps");
    }

    #[test]
    fn pages_are_made_when_they_are_touched_and_not_before() {
        let memory = FaultingMemory::map(256 << 20).expect("maps");
        // The kernel may have joined the mapping with a neighbour that has pages, so growth is what counts.
        let before = resident(&memory);
        assert!(before < 128 << 20, "{before} bytes are present that nothing has touched");
        let mut back = vec![1; 8192];
        memory.copy_in(255 << 20, &[7; 4096]).expect("inside");
        memory.copy_out(255 << 20, &mut back).expect("inside");
        assert!(back[..4096].iter().all(|byte| *byte == 7) && back[4096..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn requests_beyond_the_end_and_sizes_beyond_the_memory_are_refused() {
        let memory = FaultingMemory::map(10_000).expect("maps");
        let mut buffer = [0; 16];
        for offset in [9_985, 10_000, u64::MAX - 3] {
            assert!(memory.copy_out(offset, &mut buffer).is_err(), "{offset}");
            assert!(memory.copy_in(offset, &buffer).is_err(), "{offset}");
        }
        assert_eq!((memory.len(), memory.is_empty()), (10_000, false));
        let refused = FaultingMemory::check(1 << 60).expect_err("no machine has so much");
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
    }
}
