//! The buffers of an engine: one contiguous, aligned, pre-faulted mapping cut into equal slots.
//!
//! One mapping means one registered buffer, one set of page-table entries and, with huge pages, a
//! handful of TLB entries for a queue of any depth. Slots never move and are never freed singly, so a
//! slot index is all that a request carries. Who may touch a slot when is the engine's to enforce
//! ([`crate::engine`]); the arena only hands out pointers and stays mapped until it is dropped.

use std::io;
use std::ptr::NonNull;

use crate::device::available_memory;
use crate::pages::{Mapping, PageChoice, PageKind};

/// Smallest page of any architecture: what every mapping is aligned to.
const PAGE: usize = 4096;

/// A mapping of `slots` buffers of `stride` bytes each.
#[derive(Debug)]
pub struct Arena {
    mapping: Mapping,
    slots: u32,
    stride: usize,
    slot_bytes: usize,
}

impl Arena {
    /// Maps and faults in `slots` buffers of `slot_bytes`, each aligned to `alignment` (a power of two).
    ///
    /// # Errors
    /// `OutOfMemory` where the mapping cannot be had, or is more than what is free: touching it would be
    /// answered by the kernel's killing some process.
    pub fn new(slots: u32, slot_bytes: usize, alignment: usize) -> io::Result<Self> {
        Self::of_pages(PageChoice::Auto, slots, slot_bytes, alignment)
    }

    /// The same in pages of the kind asked for.
    ///
    /// # Errors
    /// The same, and where there are no such pages.
    pub fn of_pages(pages: PageChoice, slots: u32, slot_bytes: usize, alignment: usize) -> io::Result<Self> {
        assert!(alignment.is_power_of_two(), "alignment is a power of two");
        assert!(slots > 0 && slot_bytes > 0, "an arena has something in it");
        // Buffers start on page boundaries when they are at least a page, so that no request touches
        // a page more than it must.
        let unit = if slot_bytes >= PAGE { alignment.max(PAGE) } else { alignment };
        let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
        let stride = slot_bytes.checked_next_multiple_of(unit).ok_or_else(too_large)?;
        let total = stride.checked_mul(slots as usize).ok_or_else(too_large)?;
        let available = available_memory();
        if total as u64 > available {
            let message =
                format!("{} of buffers, and {} free", units::bytes(total as u64), units::bytes(available));
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, message));
        }
        let mapping = Mapping::of_pages(pages, total, unit)?;
        Ok(Self { mapping, slots, stride, slot_bytes })
    }

    /// How many buffers there are.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes that each buffer holds.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Distance between two buffers' beginnings, bytes.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// What kind of pages the mapping got.
    #[must_use]
    pub fn pages(&self) -> PageKind {
        self.mapping.kind()
    }

    /// Where slot `slot` begins.
    ///
    /// The pointer is valid for `slot_bytes` bytes for as long as the arena lives.
    #[inline]
    #[must_use]
    pub fn slot(&self, slot: u32) -> NonNull<u8> {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        // SAFETY: slot < slots, so the offset lies within the one mapping of slots × stride bytes.
        unsafe { self.mapping.address().add(slot as usize * self.stride) }
    }

    /// The part of the mapping that holds slots `first..first + count`, for registration.
    pub(crate) fn span(&self, first: u32, count: u32) -> libc::iovec {
        assert!(first + count <= self.slots, "the span lies in the arena");
        libc::iovec { iov_base: self.slot(first).as_ptr().cast(), iov_len: count as usize * self.stride }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots, bytes, alignment; the last two as drives with blocks above a page ask for.
    const SIZES: [(u32, usize, usize); 6] = [
        (1, 1, 1),
        (7, 512, 512),
        (128, 4096, 4096),
        (3, 4 << 20, 512),
        (5, 16 << 10, 16 << 10),
        (3, 4 << 20, 64 << 10),
    ];

    #[test]
    fn slots_are_aligned_disjoint_and_writable() {
        for (slots, bytes, alignment) in SIZES {
            let arena = Arena::new(slots, bytes, alignment).expect("maps");
            for slot in 0..slots {
                let start = arena.slot(slot).as_ptr();
                assert_eq!(start as usize % alignment, 0);
                // SAFETY: the slot is slot_bytes long and nobody else knows of this arena.
                unsafe { start.write_bytes(slot as u8, bytes) };
            }
            for slot in 0..slots {
                let start = arena.slot(slot).as_ptr();
                // SAFETY: within the slot, initialised by the loop above.
                let ends = unsafe { (start.read(), start.add(bytes - 1).read()) };
                assert_eq!(ends, (slot as u8, slot as u8));
            }
        }
    }

    /// Mappings of odd lengths in between, so that no address is aligned by luck.
    #[test]
    fn buffers_are_aligned_beyond_a_page_wherever_they_come_to_lie() {
        let mut held = Vec::new();
        for pages in 1..=16 {
            for alignment in [8 << 10, 16 << 10, 64 << 10] {
                held.push(Arena::new(pages, PAGE, PAGE).expect("maps"));
                let arena = Arena::new(2, alignment, alignment).expect("maps");
                for slot in 0..2 {
                    assert_eq!(arena.slot(slot).as_ptr() as usize % alignment, 0, "{alignment}");
                }
                held.push(arena);
            }
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        for (slots, bytes) in [(u32::MAX, 1 << 30), (1, usize::MAX), (32_768, 1 << 30), (2, usize::MAX / 2)] {
            let error = Arena::new(slots, bytes, 4096).expect_err("no machine has this");
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
        }
    }
}
