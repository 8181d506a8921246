//! Anonymous memory, in huge pages where the machine has any.
//!
//! Three attempts, best first: reserved huge pages (`MAP_HUGETLB`), transparent ones
//! (`madvise(MADV_HUGEPAGE)` on a 2 MiB-aligned range, kernel `admin-guide/mm/transhuge.rst`), plain
//! pages. Every page is touched before the mapping is handed out: a page fault is not to be measured
//! as a device's latency.
//!
//! A caller who compares kinds of pages asks for one of them ([`PageChoice`]), and gets that or an error.
//!
//! What kind of pages it became is looked up, not assumed: the advice is accepted where transparent
//! huge pages are switched off, and where memory is too fragmented to give any.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

const HUGE: usize = 2 << 20;
/// The smallest page of any architecture.
const PAGE: usize = 4096;

/// The kind of pages that a mapping got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Reserved huge pages (hugetlbfs).
    Reserved,
    /// Transparent huge pages throughout.
    Transparent,
    /// Transparent huge pages in part, base pages for the rest.
    Mixed,
    /// Pages of the base size.
    Base,
}

/// The kind of pages asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PageChoice {
    /// The largest that can be had.
    #[default]
    Auto,
    /// Pages of the base size, even where the machine makes all memory transparently huge.
    Base,
    /// Transparent huge pages, at least in part, or nothing.
    Transparent,
    /// Reserved huge pages or nothing.
    Reserved,
}

/// An anonymous private mapping, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<u8>,
    length: usize,
    kind: PageKind,
}

// SAFETY: the mapping is plain memory without thread affinity; access to its bytes goes through raw
// pointers whose users answer for races.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives out only the address, length and kind.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps and touches `length` bytes of zeros at a multiple of `alignment`, a power of two up to 2 MiB,
    /// and at least of a page.
    ///
    /// # Errors
    /// The kernel's, `OutOfMemory` foremost.
    pub fn anonymous(length: usize, alignment: usize) -> io::Result<Self> {
        Self::of_pages(PageChoice::Auto, length, alignment)
    }

    /// The same in pages of the kind asked for. Huge pages are whole, so the mapping may be longer than
    /// asked.
    ///
    /// # Errors
    /// The kernel's; `Unsupported` where it gave no transparent huge pages though they were asked for.
    pub fn of_pages(choice: PageChoice, length: usize, alignment: usize) -> io::Result<Self> {
        assert!(alignment.is_power_of_two() && alignment <= HUGE, "an alignment of {alignment}");
        let whole = || length.checked_next_multiple_of(HUGE).ok_or(io::ErrorKind::OutOfMemory);
        match choice {
            PageChoice::Auto => Self::largest(length, alignment),
            PageChoice::Base => Self::base(length, alignment, true),
            PageChoice::Reserved => Self::reserved(whole()?),
            PageChoice::Transparent => match Self::transparent(whole()?)? {
                mapping if mapping.kind == PageKind::Base => Err(no_transparent_pages()),
                mapping => Ok(mapping),
            },
        }
    }

    fn largest(length: usize, alignment: usize) -> io::Result<Self> {
        if length >= HUGE {
            let whole = length.checked_next_multiple_of(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
            if let Ok(mapping) = Self::reserved(whole) {
                return Ok(mapping);
            }
            if let Ok(mapping) = Self::transparent(whole) {
                return Ok(mapping);
            }
        }
        Self::base(length, alignment, false)
    }

    /// Maps pages of the base size; `insist` keeps the kernel from joining them to huge ones.
    fn base(length: usize, alignment: usize, insist: bool) -> io::Result<Self> {
        // Cutting needs whole pages; without it any length will do.
        let whole = length.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let address = raw_map_aligned(whole, alignment)?;
        let mapping = Self { address, length: whole, kind: PageKind::Base };
        if insist {
            // SAFETY: the range is the whole of our own mapping; the advice does not change its contents. A
            // kernel without transparent huge pages refuses it, and has none to keep away.
            unsafe { libc::madvise(address.as_ptr().cast(), whole, libc::MADV_NOHUGEPAGE) };
        }
        mapping.populate()?;
        Ok(mapping)
    }

    /// The first byte.
    #[must_use]
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Bytes mapped; at least what was asked for.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// The kind of pages it got.
    #[must_use]
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    /// Takes 2 MiB pages that were set aside, whatever the default size of such pages is.
    fn reserved(length: usize) -> io::Result<Self> {
        let address = raw_map(length, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB)?;
        let mapping = Self { address, length, kind: PageKind::Reserved };
        // A memory policy or control group may withhold pages that the reservation counted; touching
        // one would be answered by SIGBUS, populating is answered by an error.
        mapping.populate()?;
        Ok(mapping)
    }

    /// Maps at a multiple of 2 MiB, asks for huge pages, then touches all.
    fn transparent(length: usize) -> io::Result<Self> {
        let address = raw_map_aligned(length, HUGE)?;
        let mut mapping = Self { address, length, kind: PageKind::Base };
        // SAFETY: the range is the whole of our own mapping; the advice does not change its contents.
        let advised = unsafe { libc::madvise(address.as_ptr().cast(), length, libc::MADV_HUGEPAGE) };
        if advised != 0 {
            return Err(io::Error::last_os_error());
        }
        mapping.populate()?;
        let start = address.as_ptr() as usize;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        mapping.kind = match huge_bytes_within(&smaps, start..start + length) {
            0 => PageKind::Base,
            huge if huge >= length => PageKind::Transparent,
            _ => PageKind::Mixed,
        };
        Ok(mapping)
    }

    /// Makes every page present and writable (madvise(2), MADV_POPULATE_WRITE, Linux 5.14).
    fn populate(&self) -> io::Result<()> {
        // SAFETY: the range is the whole of our own mapping; populating only faults the pages in.
        let result =
            unsafe { libc::madvise(self.address.as_ptr().cast(), self.length, libc::MADV_POPULATE_WRITE) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        // An older kernel: each page is written to.
        for offset in (0..self.length).step_by(PAGE) {
            // SAFETY: offset < length; nobody else knows of the mapping yet.
            unsafe { self.address.add(offset).write_volatile(0) };
        }
        Ok(())
    }
}

fn no_transparent_pages() -> io::Error {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let message = match setting.split(['[', ']']).nth(1) {
        Some(word) => {
            format!("no transparent huge pages were given (transparent_hugepage/enabled is {word})")
        }
        None => "this kernel has no transparent huge pages".to_owned(),
    };
    io::Error::new(io::ErrorKind::Unsupported, message)
}

/// Bytes of `range` that transparent huge pages cover, from the text of `/proc/self/smaps` (proc(5)).
///
/// The kernel may have merged the range with its neighbours, whose huge pages are then counted too, up
/// to the length of the range.
fn huge_bytes_within(smaps: &str, range: Range<usize>) -> usize {
    let mut overlap = 0;
    let mut huge = 0;
    for line in smaps.lines() {
        if let Some(value) = line.strip_prefix("AnonHugePages:") {
            let kilobytes = value.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap_or(0);
            huge += overlap.min(kilobytes.saturating_mul(1024));
        } else if let Some((start, end)) = line.split(' ').next().and_then(|word| word.split_once('-'))
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            overlap = end.min(range.end).saturating_sub(start.max(range.start));
        }
    }
    huge
}

/// Bytes of a page of this machine, of the smallest kind.
#[must_use]
pub fn page_bytes() -> usize {
    // SAFETY: sysconf takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE)
}

/// Maps whole pages at a multiple of `alignment`: maps that much more and cuts off both ends.
pub(crate) fn raw_map_aligned(length: usize, alignment: usize) -> io::Result<NonNull<u8>> {
    let page = page_bytes();
    if alignment <= page {
        return raw_map(length, 0);
    }
    let length = length.checked_next_multiple_of(page).ok_or(io::ErrorKind::OutOfMemory)?;
    let padded = length.checked_add(alignment).ok_or(io::ErrorKind::OutOfMemory)?;
    let raw = raw_map(padded, 0)?;
    let lead = raw.as_ptr().align_offset(alignment);
    // SAFETY: lead < alignment and padded = length + alignment, so all three parts lie in the mapping made
    // above, on page boundaries; the first and last are unmapped once and never referred to again.
    unsafe {
        if lead > 0 {
            libc::munmap(raw.as_ptr().cast(), lead);
        }
        libc::munmap(raw.as_ptr().add(lead + length).cast(), alignment - lead);
        Ok(raw.add(lead))
    }
}

fn raw_map(length: usize, flags: i32) -> io::Result<NonNull<u8>> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of ours.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what this value mapped, and it is unmapped once.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_counted_where_the_range_lies_and_no_further() {
        let smaps = "400000-600000 rw-p 00000000 00:00 0 \nAnonHugePages:      2048 kB\nVmFlags: rd wr\n\
                     600000-e00000 rw-p 00000000 00:00 0 [heap]\nRss: 8 kB\nAnonHugePages:      4096 kB\n\
                     garbage-line here\nAnonHugePages: lots\n";
        assert_eq!(huge_bytes_within(smaps, 0x40_0000..0x60_0000), 2 << 20);
        assert_eq!(huge_bytes_within(smaps, 0x60_0000..0xe0_0000), 4 << 20);
        assert_eq!(huge_bytes_within(smaps, 0x50_0000..0x70_0000), 2 << 20);
        assert_eq!(huge_bytes_within(smaps, 0xe0_0000..0xf0_0000), 0);
        assert_eq!(huge_bytes_within("", 0..usize::MAX), 0);
    }

    #[test]
    fn memory_of_any_length_is_zero_and_writable_to_its_end() {
        for length in [1, 4096, 4097, HUGE - 1, HUGE, 3 * HUGE + 5] {
            let mapping = Mapping::anonymous(length, 1).expect("maps");
            assert!(mapping.length() >= length);
            let last = mapping.length() - 1;
            // SAFETY: the offset lies in the mapping, of which nobody else knows.
            unsafe {
                assert_eq!(mapping.address().add(last).read(), 0);
                mapping.address().add(last).write(7);
                assert_eq!(mapping.address().add(last).read(), 7);
            }
        }
    }

    /// Bytes of transparent huge pages in a mapping, as the kernel counts them.
    fn huge_bytes(mapping: &Mapping) -> usize {
        let start = mapping.address().as_ptr() as usize;
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("reads");
        huge_bytes_within(&smaps, start..start + mapping.length())
    }

    #[test]
    fn the_pages_asked_for_are_given_or_refused() {
        let base = Mapping::of_pages(PageChoice::Base, 3 * HUGE, 1).expect("maps");
        assert_eq!((base.kind(), huge_bytes(&base)), (PageKind::Base, 0));
        match Mapping::of_pages(PageChoice::Transparent, HUGE / 2, 1) {
            Ok(mapping) => assert!(mapping.kind() == PageKind::Transparent && huge_bytes(&mapping) > 0),
            Err(error) => assert!(error.to_string().contains("transparent huge pages"), "{error}"),
        }
        match Mapping::of_pages(PageChoice::Reserved, 1, 1) {
            Ok(mapping) => assert_eq!((mapping.kind(), mapping.length()), (PageKind::Reserved, HUGE)),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }

    #[test]
    fn an_impossible_length_is_an_error() {
        for length in [usize::MAX, usize::MAX - HUGE, isize::MAX as usize, 1 << 60] {
            assert!(Mapping::anonymous(length, 1).is_err(), "{length}");
        }
    }
}
