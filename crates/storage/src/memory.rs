//! Memory that many threads, and the kernel, read and write at once: the bytes of a `mem:` device.
//!
//! A `mem:` device is a memfd(2) that is mapped shared, so that the same bytes have a descriptor,
//! which every engine can drive, and an address, which the memory engine copies from and to.
//! Its users race by design: two requests for one block may be in flight, as on any drive, and a
//! reader may then see bytes of both. What must not follow from that is undefined behaviour, so:
//!
//! 1. **No reference to the bytes exists.** There is no `&[u8]` over them, only a pointer and a length;
//!    bytes go out and in through [`SharedMemory::copy_out`] and [`SharedMemory::copy_in`], which check
//!    bounds.
//! 2. **The copy is one that the language defines under races.** On x86-64 it is `rep movsb` in inline
//!    assembly, which the compiler may not look into: the abstract machine sees a call that does what
//!    relaxed atomic loads and stores of each byte would do. Elsewhere it is relaxed atomic accesses
//!    of aligned 8-byte words and of nothing else, since atomics of different sizes may not race either.
//! 3. **The mapping cannot shrink.** The memfd is sealed against shrinking and growing before it is
//!    mapped, so no access inside the bounds meets the SIGBUS of a truncated file.
//!
//! Pages are touched before the first measured request. Huge pages are asked for with
//! madvise(2) `MADV_HUGEPAGE` and `MADV_COLLAPSE` on shared memory, not with `MFD_HUGETLB`: hugetlbfs has no
//! write(2), so no engine could drive it. How much of the mapping they cover is then read from
//! `/proc/self/smaps`, because a request for huge pages is not a promise.

mod faulting;
mod socket;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

pub use self::faulting::FaultingMemory;
pub use self::socket::{MOST_RUNS, Run};
use crate::device::sys;
use crate::pages::PageChoice;

/// Huge pages on every architecture with 4 KiB base pages; elsewhere the kernel ignores the advice.
const HUGE_PAGE: usize = 2 << 20;

/// madvise(2), from Linux 6.1; not every C library's headers name it.
const MADV_COLLAPSE: libc::c_int = 25;

/// Bytes at a time for which pages are made, so that a signal is noticed in between.
const POPULATE_STEP: usize = 64 << 20;

/// Why huge pages that were insisted on are none.
const NO_HUGE_PAGES: &str =
    "the kernel gave no huge pages: memory is fragmented, or it was built without them";

/// In which pages memory is to lie, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryPlacement {
    /// The pages. Memory that has a descriptor is never made of reserved ones, so asking for those is asking
    /// for transparent ones.
    pub pages: PageChoice,
    /// The NUMA node (mbind(2), `MPOL_BIND`); where there is none, that of the thread that makes it.
    pub node: Option<u32>,
}

/// A request outside the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes at {offset} reach beyond the {size} bytes of the memory device")]
pub struct OutOfBounds {
    /// Where the request begins.
    pub offset: u64,
    /// Its length.
    pub length: usize,
    /// The size of the memory, bytes.
    pub size: u64,
}

/// A shared mapping of a sealed memfd. See the module's argument.
#[derive(Debug)]
pub struct SharedMemory {
    pointer: NonNull<u8>,
    length: usize,
    file: File,
    huge_bytes: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread, and lives until `drop`; every access
// is a copy that tolerates races (see `copy_racing`).
unsafe impl Send for SharedMemory {}
// SAFETY: as for Send; no `&self` method hands out a reference into the mapping.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes `size` bytes of zeroed memory, with all pages present.
    ///
    /// # Errors
    /// The kernel's, with the name of the system call: `ENOMEM` where there is not that much.
    #[cfg(test)]
    pub(crate) fn create(size: u64) -> Result<Self, (&'static str, io::Error)> {
        Self::create_on(size, &MemoryPlacement::default())
    }

    /// The same, in the pages and on the node that `placement` names.
    ///
    /// # Errors
    /// As [`Self::create`]; `Unsupported` where there are no huge pages though they were asked for.
    pub(crate) fn create_on(
        size: u64,
        placement: &MemoryPlacement,
    ) -> Result<Self, (&'static str, io::Error)> {
        let too_large = || ("mmap", io::Error::from_raw_os_error(libc::ENOMEM));
        let length = usize::try_from(size).map_err(|_| too_large())?;
        // The mapping is a whole number of words, so that the word-wise copy stays inside it.
        let mapped = length.checked_next_multiple_of(HUGE_PAGE).ok_or_else(too_large)?;
        let file = sys::memfd_create(c"flashwright-mem").map_err(|e| ("memfd_create", e))?;
        file.set_len(mapped as u64).map_err(|e| ("ftruncate", e))?;
        sys::seal_size(&file).map_err(|e| ("fcntl(F_ADD_SEALS)", e))?;
        let pointer = sys::map_shared(&file, mapped, HUGE_PAGE).map_err(|e| ("mmap", e))?;
        let mut memory = Self { pointer, length: mapped, file, huge_bytes: 0 };
        if let Some(node) = placement.node {
            // SAFETY: the whole mapping, which is ours; a policy changes no byte.
            unsafe { sys::bind_to_node(memory.pointer, mapped, node) }.map_err(|e| ("mbind", e))?;
        }
        memory.populate(placement.pages).map_err(|e| ("madvise(MADV_POPULATE_WRITE)", e))?;
        memory.huge_bytes = huge_bytes_mapped(memory.pointer.as_ptr() as usize);
        if memory.huge_bytes == 0 && matches!(placement.pages, PageChoice::Transparent | PageChoice::Reserved)
        {
            return Err((
                "madvise(MADV_COLLAPSE)",
                io::Error::new(io::ErrorKind::Unsupported, NO_HUGE_PAGES),
            ));
        }
        memory.length = length;
        Ok(memory)
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

    /// Bytes of the mapping that huge pages cover, as the kernel reported after it was made.
    #[must_use]
    pub fn huge_bytes(&self) -> u64 {
        self.huge_bytes
    }

    /// The first byte, for handing to the kernel (registered buffers) or for tests of alignment. It
    /// must not be made a reference while anyone may write: see the module's argument.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// The memfd behind the mapping.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Copies `buffer.len()` bytes at `offset` out into `buffer`.
    ///
    /// Where another thread writes the same bytes meanwhile, each byte is the old or the new one.
    ///
    /// # Errors
    /// [`OutOfBounds`]; nothing was copied.
    pub fn copy_out(&self, offset: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.bounded(offset, buffer.len())?;
        // SAFETY: `bounded` puts at..at+len inside the mapping, which lives as long as `self`;
        // `buffer` is exclusively ours, and cannot overlap a mapping of which no slice exists.
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

    /// The offset as an index, if `length` bytes from there lie inside.
    fn bounded(&self, offset: u64, length: usize) -> Result<usize, OutOfBounds> {
        let inside = usize::try_from(offset)
            .ok()
            .filter(|at| at.checked_add(length).is_some_and(|end| end <= self.length));
        inside.ok_or(OutOfBounds { offset, length, size: self.length as u64 })
    }

    /// Makes every page present, in huge pages where they are wanted and the kernel will.
    fn populate(&self, pages: PageChoice) -> io::Result<()> {
        let huge = pages != PageChoice::Base;
        let mut at = 0;
        while at < self.length {
            let step = POPULATE_STEP.min(self.length - at);
            // SAFETY: at < length and step <= length - at, so the range is inside the mapping.
            let start = unsafe { self.pointer.add(at) };
            // The advice makes huge pages at once where `shmem_enabled` is `advise`. Collapsing works
            // whatever that says, but only on pages that are there (from Linux 6.1). Where neither is to
            // be had, or memory is fragmented, small pages do the same work.
            // SAFETY: the range belongs to this mapping, and none of these calls changes its bytes.
            unsafe {
                let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
                let _ = sys::advise(start, step, advice);
                sys::populate_write(start, step)?;
                if huge {
                    let _ = sys::advise(start, step, MADV_COLLAPSE);
                }
            }
            at += step;
        }
        Ok(())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let mapped = self.length.next_multiple_of(HUGE_PAGE);
        // SAFETY: the mapping was made with this rounded length and is unmapped only here; no copy
        // can be running, since each borrows `self`.
        unsafe { sys::unmap(self.pointer, mapped) };
    }
}

/// Bytes of the mapping that begins at `address` which are mapped by huge pages (smaps(5)).
fn huge_bytes_mapped(address: usize) -> u64 {
    std::fs::read_to_string("/proc/self/smaps").map_or(0, |text| huge_bytes_in(&text, address))
}

/// The same from the text of `/proc/self/smaps`.
fn huge_bytes_in(smaps: &str, address: usize) -> u64 {
    let mut inside = false;
    let mut kilobytes = 0;
    for line in smaps.lines() {
        if let Some((range, _)) = line.split_once(' ')
            && let Some((start, end)) = range.split_once('-')
            && let (Ok(start), Ok(_)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            inside = start == address;
        } else if inside
            && let Some((key, value)) = line.split_once(':')
            && matches!(key, "ShmemPmdMapped" | "FilePmdMapped")
        {
            kilobytes += value.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0);
        }
    }
    kilobytes * 1024
}

/// # Safety
/// `base + at .. + buffer.len()` must be inside a live mapping that no Rust reference covers.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy_racing_out(base: *mut u8, at: usize, buffer: &mut [u8]) {
    // SAFETY: the caller vouches for the source, the slice for the destination.
    unsafe { copy_opaque(buffer.as_mut_ptr(), base.add(at), buffer.len()) }
}

/// # Safety
/// As for [`copy_racing_out`]; the mapping must be writable.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy_racing_in(base: *mut u8, at: usize, buffer: &[u8]) {
    // SAFETY: the caller vouches for the destination, the slice for the source.
    unsafe { copy_opaque(base.add(at), buffer.as_ptr(), buffer.len()) }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use words::{copy_in as copy_racing_in, copy_out as copy_racing_out};

/// Copies bytes with one string instruction, about which the compiler may assume nothing but that it
/// reads and writes memory.
///
/// # Safety
/// `from..from+length` must be readable and `to..to+length` writable and the two must not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_opaque(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: `rep movsb` touches exactly rcx bytes from rsi and to rdi, both vouched for by the
    // caller; the ABI guarantees a clear direction flag, and no flag or stack is changed.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// The portable copy: relaxed atomic accesses of aligned words.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const WORD: usize = 8;

    /// The word at index `word` of a mapping at `base`.
    ///
    /// # Safety
    /// The word must be inside a live mapping, and `base` aligned to words.
    unsafe fn word<'a>(base: *mut u8, word: usize) -> &'a AtomicU64 {
        debug_assert!(base.addr().is_multiple_of(WORD));
        // SAFETY: the caller vouches for bounds and alignment, and every access to the mapping from
        // Rust is an atomic access of such a word.
        unsafe { AtomicU64::from_ptr(base.cast::<u64>().add(word)) }
    }

    /// # Safety
    /// `base` must be a word-aligned live mapping whose length is a whole number of words, containing
    /// `at .. at + buffer.len()`, accessed by nothing but this module.
    pub(crate) unsafe fn copy_out(base: *mut u8, at: usize, buffer: &mut [u8]) {
        let mut done = 0;
        while done < buffer.len() {
            let (index, skip) = ((at + done) / WORD, (at + done) % WORD);
            let take = (WORD - skip).min(buffer.len() - done);
            // SAFETY: the byte at+done is inside the mapping, hence so is its word.
            let bytes = unsafe { word(base, index) }.load(Relaxed).to_ne_bytes();
            buffer[done..done + take].copy_from_slice(&bytes[skip..skip + take]);
            done += take;
        }
    }

    /// # Safety
    /// As for [`copy_out`]; the mapping must be writable.
    pub(crate) unsafe fn copy_in(base: *mut u8, at: usize, buffer: &[u8]) {
        let mut done = 0;
        while done < buffer.len() {
            let (index, skip) = ((at + done) / WORD, (at + done) % WORD);
            let take = (WORD - skip).min(buffer.len() - done);
            // SAFETY: the byte at+done is inside the mapping, hence so is its word.
            let cell = unsafe { word(base, index) };
            let part = &buffer[done..done + take];
            if let Ok(whole) = <[u8; WORD]>::try_from(part) {
                cell.store(u64::from_ne_bytes(whole), Relaxed);
            } else {
                // A neighbour's bytes in the same word must survive its own concurrent write.
                let _ = cell.fetch_update(Relaxed, Relaxed, |old| {
                    let mut bytes = old.to_ne_bytes();
                    bytes[skip..skip + take].copy_from_slice(part);
                    Some(u64::from_ne_bytes(bytes))
                });
            }
            done += take;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fresh_memory_is_zero_and_holds_what_is_copied_in() {
        let memory = SharedMemory::create(1 << 20).unwrap();
        assert_eq!(memory.len(), 1 << 20);
        let mut back = vec![1; 1 << 20];
        memory.copy_out(0, &mut back).unwrap();
        assert!(back.iter().all(|b| *b == 0));
        memory.copy_in(4097, b"flash").unwrap();
        memory.copy_out(4090, &mut back[..16]).unwrap();
        assert_eq!(&back[..16], b"\0\0\0\0\0\0\0flash\0\0\0\0");
    }

    #[test]
    fn requests_beyond_the_end_are_refused() {
        let memory = SharedMemory::create(10_000).unwrap();
        let mut buffer = [0; 16];
        for offset in [9_985, 10_000, u64::MAX - 3, u64::MAX] {
            assert!(memory.copy_out(offset, &mut buffer).is_err(), "{offset}");
            assert!(memory.copy_in(offset, &buffer).is_err(), "{offset}");
        }
        memory.copy_out(9_984, &mut buffer).unwrap();
        memory.copy_out(10_000, &mut []).unwrap();
    }

    #[test]
    fn the_descriptor_and_the_mapping_show_the_same_bytes() {
        use std::os::unix::fs::FileExt;
        let memory = SharedMemory::create(1 << 20).unwrap();
        memory.file().write_all_at(b"by descriptor", 70_000).unwrap();
        let mut back = [0; 13];
        memory.copy_out(70_000, &mut back).unwrap();
        assert_eq!(&back, b"by descriptor");
        memory.copy_in(5, b"by address").unwrap();
        memory.file().read_exact_at(&mut back[..10], 5).unwrap();
        assert_eq!(&back[..10], b"by address");
    }

    #[test]
    fn the_memory_cannot_be_truncated_from_under_its_users() {
        let memory = SharedMemory::create(1 << 20).unwrap();
        assert!(memory.file().set_len(0).is_err());
        assert!(memory.file().set_len(1 << 30).is_err());
    }

    #[test]
    fn threads_that_race_see_old_or_new_bytes_and_nothing_else() {
        let memory = SharedMemory::create(1 << 16).unwrap();
        std::thread::scope(|scope| {
            for value in [0xaa_u8, 0x55] {
                let memory = &memory;
                scope.spawn(move || {
                    for _ in 0..500 {
                        memory.copy_in(3, &[value; 4096]).unwrap();
                    }
                });
            }
            let mut seen = [0; 4096];
            for _ in 0..500 {
                memory.copy_out(3, &mut seen).unwrap();
                assert!(seen.iter().all(|b| matches!(b, 0 | 0xaa | 0x55)));
            }
        });
    }

    #[test]
    fn the_mapping_begins_where_a_huge_page_can() {
        let memory = SharedMemory::create(3 << 20).unwrap();
        assert_eq!(memory.as_ptr().addr() % HUGE_PAGE, 0);
        assert!(memory.huge_bytes() <= 4 << 20);
        if memory.huge_bytes() == 0 {
            eprintln!("no huge pages were to be had here");
        }
    }

    #[test]
    fn smaps_tells_the_huge_part_of_one_mapping() {
        let text = "7f0000000000-7f0000400000 rw-s 00000000 00:01 9 /memfd:x (deleted)\n\
                    Size:               4096 kB\nShmemPmdMapped:     2048 kB\nFilePmdMapped:  0 kB\n\
                    7f0000400000-7f0000800000 rw-s 00000000 00:01 9 /memfd:x (deleted)\n\
                    ShmemPmdMapped:     4096 kB\ngarbage\n";
        assert_eq!(huge_bytes_in(text, 0x7f00_0000_0000), 2 << 20);
        assert_eq!(huge_bytes_in(text, 0x7f00_0040_0000), 4 << 20);
        assert_eq!(huge_bytes_in(text, 1), 0);
    }

    proptest! {
        #[test]
        fn the_portable_copy_equals_a_plain_one(at in 0usize..64, data in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut cells = vec![u64::from_ne_bytes(*b"ABCDEFGH"); 16];
            let mut plain: Vec<u8> = cells.iter().flat_map(|w| w.to_ne_bytes()).collect();
            plain[at..at + data.len()].copy_from_slice(&data);
            let base = cells.as_mut_ptr().cast::<u8>();
            let mut back = vec![0; data.len()];
            // SAFETY: `cells` is 128 bytes of aligned words, used by nothing else; at + len < 128.
            unsafe {
                words::copy_in(base, at, &data);
                words::copy_out(base, at, &mut back);
            }
            prop_assert_eq!(&back, &data);
            let all: Vec<u8> = cells.iter().flat_map(|w| w.to_ne_bytes()).collect();
            prop_assert_eq!(all, plain);
        }
    }
}
