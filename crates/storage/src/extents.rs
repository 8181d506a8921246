//! Which bytes of a file were ever written.
//!
//! A read from a hole or an unwritten extent never reaches the medium: the kernel hands out zeros, and
//! the figure is one of memory. So before reads are measured, a region is asked about:
//!
//! 1. **FIEMAP** (kernel, `Documentation/filesystems/fiemap.rst`), page by page until the region is covered.
//!    What no extent covers is a hole; `FIEMAP_EXTENT_UNWRITTEN` is space that was reserved and never
//!    written; `FIEMAP_EXTENT_DELALLOC` is data that is still in memory only.
//!    `FIEMAP_FLAG_SYNC` is always set: without it, a file that was reserved and then written through
//!    the page cache looks unwritten until the kernel has got round to writing it back.
//! 2. **SEEK_HOLE and SEEK_DATA** (lseek(2)) where the file system has no FIEMAP (tmpfs, NFS). They tell holes only;
//!    most file systems count unwritten extents among them. A file system that knows nothing reports all
//!    as data, so the answer carries its [`Evidence`].
//! 3. Otherwise the answer is **unknown**, never "written".

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::sys;

/// linux/fs.h: `_IOWR('f', 11, struct fiemap)`; the same number on every architecture, since read and
/// write together set the same two bits in both encodings of ioctl numbers.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;

// linux/fiemap.h
const FIEMAP_FLAG_SYNC: u32 = 0x1;
const FIEMAP_EXTENT_LAST: u32 = 0x1;
const FIEMAP_EXTENT_DELALLOC: u32 = 0x4;
const FIEMAP_EXTENT_ENCODED: u32 = 0x8;
const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
const FIEMAP_EXTENT_SHARED: u32 = 0x2000;

/// Extents asked for at once: a page and a bit of memory in seven.
const BATCH: usize = 512;

/// How it is known which bytes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// The file system listed its extents.
    Fiemap,
    /// SEEK_HOLE and SEEK_DATA: holes as far as the file system tells them.
    Seek,
    /// Nobody says.
    #[default]
    Unknown,
}

/// What of a region was written. All in bytes; holes, unwritten and written add up to `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WrittenState {
    /// Length of the region, as far as the file reaches into it.
    pub total: u64,
    /// Not backed by any space.
    pub holes: u64,
    /// Space reserved, never written.
    pub unwritten: u64,
    /// Written, but not yet given a place on the medium (delayed allocation).
    pub delayed: u64,
    /// Compressed or encrypted by the file system, so that fewer bytes than these are read.
    pub encoded: u64,
    /// Shared with other files (reflinks, snapshots): a write copies first.
    pub shared: u64,
    /// Extents seen.
    pub extents: u64,
    /// How this is known.
    pub evidence: Evidence,
}

impl WrittenState {
    /// Bytes whose reading would not touch the medium.
    #[must_use]
    pub fn never_written(&self) -> u64 {
        self.holes + self.unwritten
    }

    /// Whether it is known that everything was written.
    #[must_use]
    pub fn is_fully_written(&self) -> bool {
        self.evidence != Evidence::Unknown && self.never_written() == 0
    }

    /// Two regions as one: sums, on the weaker evidence of the two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let evidence = match (self.evidence, other.evidence) {
            (Evidence::Unknown, _) | (_, Evidence::Unknown) => Evidence::Unknown,
            (Evidence::Seek, _) | (_, Evidence::Seek) => Evidence::Seek,
            (Evidence::Fiemap, Evidence::Fiemap) => Evidence::Fiemap,
        };
        Self {
            total: self.total + other.total,
            holes: self.holes + other.holes,
            unwritten: self.unwritten + other.unwritten,
            delayed: self.delayed + other.delayed,
            encoded: self.encoded + other.encoded,
            shared: self.shared + other.shared,
            extents: self.extents + other.extents,
            evidence,
        }
    }
}

impl fmt::Display for WrittenState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.holes, self.unwritten) {
            _ if self.evidence == Evidence::Unknown => {
                write!(f, "an unknown part of {}", units::bytes(self.total))
            }
            (0, 0) => write!(f, "none of {}", units::bytes(self.total)),
            (holes, 0) => write!(f, "{} (holes)", units::bytes(holes)),
            (0, unwritten) => write!(f, "{} (reserved space)", units::bytes(unwritten)),
            (holes, unwritten) => write!(
                f,
                "{} ({} of holes and {} of reserved space)",
                units::bytes(holes + unwritten),
                units::bytes(holes),
                units::bytes(unwritten)
            ),
        }
    }
}

/// Asks which of the `length` bytes at `offset` of an open file were written.
///
/// The region is cut off at the end of the file. What is no regular file gives
/// [`Evidence::Unknown`]: a block device does not know what was written to it.
///
/// # Errors
/// The kernel's, where it failed for another reason than not knowing.
pub fn written_state(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<WrittenState> {
    let status = sys::status(fd)?;
    if status.file_type() != libc::S_IFREG {
        return Ok(WrittenState { total: length, ..WrittenState::default() });
    }
    let end = offset.saturating_add(length).min(status.size);
    let region = offset.min(end)..end;
    match by_fiemap(fd, region.clone()) {
        Err(error) if means_unsupported(&error) => by_seek(fd, region),
        result => result,
    }
}

/// Whether the kernel or file system does not know the question: no such ioctl, no FIEMAP, or a flag
/// that is not understood (`EBADR`).
fn means_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EBADR | libc::ENOSYS | libc::EINVAL)
    )
}

/// linux/fiemap.h: `struct fiemap_extent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// linux/fiemap.h: `struct fiemap`, with room for [`BATCH`] extents.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; BATCH],
}

/// One page of the map of a region.
fn fiemap(fd: BorrowedFd<'_>, region: &Range<u64>, map: &mut Map) -> io::Result<usize> {
    map.start = region.start;
    map.length = region.end - region.start;
    map.flags = FIEMAP_FLAG_SYNC;
    map.mapped_extents = 0;
    map.extent_count = BATCH as u32;
    loop {
        // SAFETY: FS_IOC_FIEMAP reads and writes a `struct fiemap` followed by extent_count extents,
        // which is what `Map` is (header of 32 bytes, extents of 56, checked in a test).
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *map) };
        if result >= 0 {
            return Ok((map.mapped_extents as usize).min(BATCH));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn by_fiemap(fd: BorrowedFd<'_>, region: Range<u64>) -> io::Result<WrittenState> {
    let mut map = Box::new(Map {
        start: 0,
        length: 0,
        flags: 0,
        mapped_extents: 0,
        extent_count: 0,
        reserved: 0,
        extents: [Extent::default(); BATCH],
    });
    let mut tally = Tally::new(region.clone(), Evidence::Fiemap);
    let mut rest = region;
    while !rest.is_empty() {
        let count = fiemap(fd, &rest, &mut map)?;
        let found = &map.extents[..count];
        found.iter().for_each(|extent| tally.extent(extent.logical, extent.length, extent.flags));
        let Some(last) = found.last() else { break };
        let next = last.logical.saturating_add(last.length);
        // A file system that stands still is taken at its last word rather than asked for ever.
        if last.flags & FIEMAP_EXTENT_LAST != 0 || next <= rest.start {
            break;
        }
        rest.start = next.min(rest.end);
    }
    Ok(tally.finish())
}

fn by_seek(fd: BorrowedFd<'_>, region: Range<u64>) -> io::Result<WrittenState> {
    let mut tally = Tally::new(region.clone(), Evidence::Seek);
    let mut at = region.start;
    while at < region.end {
        let data = match sys::seek(fd, at, libc::SEEK_DATA) {
            Ok(Some(data)) if data < region.end => data.max(at),
            Ok(_) => break,
            Err(error) if means_unsupported(&error) => {
                let total = region.end - region.start;
                return Ok(WrittenState { total, ..WrittenState::default() });
            }
            Err(error) => return Err(error),
        };
        let hole = sys::seek(fd, data, libc::SEEK_HOLE)?.unwrap_or(region.end);
        if hole <= data {
            // The file changes under our eyes; what is left counts as data.
            tally.extent(data, region.end - data, 0);
            break;
        }
        tally.extent(data, hole - data, 0);
        at = hole;
    }
    Ok(tally.finish())
}

/// A part of a file that is data throughout, or a hole throughout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Bytes.
    pub length: u64,
    /// Nothing was written there: it takes no space, or none that was written, and reads as zeros.
    pub hole: bool,
}

/// The stretches of a region of an open file, in order, as lseek(2) tells them; at most `most`, so that they may
/// end before the region does. Where nobody can tell, as of a block device, all of it is data.
///
/// # Errors
/// The kernel's, where it failed for another reason than not knowing.
pub fn stretches(fd: BorrowedFd<'_>, region: Range<u64>, most: usize) -> io::Result<Vec<Stretch>> {
    let mut found = Vec::new();
    let mut at = region.start;
    if sys::status(fd)?.file_type() != libc::S_IFREG {
        found.push(Stretch { length: region.end - at, hole: false });
        return Ok(found);
    }
    while at < region.end && found.len() < most {
        let data = match sys::seek(fd, at, libc::SEEK_DATA) {
            Ok(data) => data.unwrap_or(region.end).clamp(at, region.end),
            Err(error) if means_unsupported(&error) => at,
            Err(error) => return Err(error),
        };
        let (end, hole) = if data > at {
            (data, true)
        } else {
            match sys::seek(fd, at, libc::SEEK_HOLE) {
                // A file that changes meanwhile may have its hole here by now; a stretch is never empty.
                Ok(Some(hole)) if hole > at => (hole.min(region.end), false),
                Err(error) if !means_unsupported(&error) => return Err(error),
                _ => (region.end, false),
            }
        };
        found.push(Stretch { length: end - at, hole });
        at = end;
    }
    Ok(found)
}

/// Adds up extents that come in rising order; what lies between them is holes.
struct Tally {
    region: Range<u64>,
    /// Up to here every byte has been counted.
    at: u64,
    state: WrittenState,
}

impl Tally {
    fn new(region: Range<u64>, evidence: Evidence) -> Self {
        let total = region.end.saturating_sub(region.start);
        let state = WrittenState { total, evidence, ..WrittenState::default() };
        Self { at: region.start, region, state }
    }

    fn extent(&mut self, logical: u64, length: u64, flags: u32) {
        let end = logical.saturating_add(length).min(self.region.end);
        let start = logical.max(self.at);
        if start >= end {
            return;
        }
        self.state.holes += start - self.at;
        self.state.extents += 1;
        let bytes = end - start;
        let add = |flag: u32, count: &mut u64| {
            if flags & flag != 0 {
                *count += bytes;
            }
        };
        add(FIEMAP_EXTENT_UNWRITTEN, &mut self.state.unwritten);
        add(FIEMAP_EXTENT_DELALLOC, &mut self.state.delayed);
        add(FIEMAP_EXTENT_ENCODED, &mut self.state.encoded);
        add(FIEMAP_EXTENT_SHARED, &mut self.state.shared);
        self.at = end;
    }

    fn finish(mut self) -> WrittenState {
        self.state.holes += self.region.end.saturating_sub(self.at);
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    const MIB: u64 = 1 << 20;

    fn state(file: &std::fs::File) -> WrittenState {
        written_state(file.as_fd(), 0, u64::MAX).unwrap()
    }

    #[test]
    fn the_structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<Extent>(), 56);
        assert_eq!(size_of::<Map>(), 32 + 56 * BATCH);
    }

    #[test]
    fn a_written_file_is_fully_written_even_before_it_reaches_the_disk() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 3 * MIB as usize]).unwrap();
        let state = state(&file);
        assert!(state.is_fully_written(), "{state:?}");
        assert_eq!((state.total, state.delayed), (3 * MIB, 0));
    }

    #[test]
    fn holes_are_counted_to_the_byte() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * MIB).unwrap();
        file.write_all_at(&vec![7; MIB as usize], 2 * MIB).unwrap();
        let state = state(&file);
        assert_eq!((state.total, state.holes, state.unwritten), (8 * MIB, 7 * MIB, 0));
        assert!(!state.is_fully_written());
        let part = written_state(file.as_fd(), 2 * MIB, MIB).unwrap();
        assert!(part.is_fully_written(), "{part:?}");
    }

    #[test]
    fn reserved_space_is_no_written_space_until_it_is_written() {
        let file = tempfile::tempfile().unwrap();
        if let Err(error) = sys::allocate(file.as_fd(), 4 * MIB) {
            eprintln!("SKIPPED: the temporary directory has no fallocate: {error}");
            return;
        }
        let before = state(&file);
        assert_eq!(before.never_written(), 4 * MIB, "{before:?}");
        file.write_all_at(&vec![7; 4 * MIB as usize], 0).unwrap();
        let after = state(&file);
        assert!(after.is_fully_written(), "{after:?}");
    }

    #[test]
    fn a_file_of_many_extents_is_read_to_its_end() {
        let file = tempfile::tempfile().unwrap();
        let pieces = 3 * BATCH as u64;
        for n in 0..pieces {
            file.write_all_at(&[7; 4096], n * 8192).unwrap();
        }
        let state = state(&file);
        assert_eq!(state.holes, (pieces - 1) * 4096, "{state:?}");
    }

    #[test]
    fn memory_files_without_fiemap_are_asked_by_seeking() {
        let file = sys::memfd_create(c"test").unwrap();
        file.set_len(4 * MIB).unwrap();
        file.write_all_at(&vec![7; MIB as usize], MIB).unwrap();
        let state = state(&file);
        assert_eq!(state.evidence, Evidence::Seek);
        assert_eq!((state.total, state.holes), (4 * MIB, 3 * MIB));
    }

    #[test]
    fn stretches_follow_one_another_and_end_with_the_region() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * MIB).unwrap();
        file.write_all_at(&vec![7; MIB as usize], 2 * MIB).unwrap();
        let told = |region, most| stretches(file.as_fd(), region, most).unwrap();
        let of = |mebibytes: u64, hole| Stretch { length: mebibytes * MIB, hole };
        assert_eq!(told(0..8 * MIB, 9), [of(2, true), of(1, false), of(5, true)]);
        assert_eq!(told(0..8 * MIB, 2), [of(2, true), of(1, false)]);
        assert_eq!(told(MIB..3 * MIB, 9), [of(1, true), of(1, false)]);
        assert_eq!(told(5 * MIB..5 * MIB, 9), []);
    }

    #[test]
    fn what_is_no_file_is_unknown() {
        let device = std::fs::File::open("/dev/zero").unwrap();
        let state = written_state(device.as_fd(), 0, 4096).unwrap();
        assert_eq!(state.evidence, Evidence::Unknown);
        assert!(!state.is_fully_written());
    }

    proptest! {
        #[test]
        fn parts_add_up_whatever_the_file_system_says(
            region in (0u64..1000, 0u64..1000),
            extents in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 0..20),
            small in proptest::collection::vec((0u64..1200, 0u64..300, any::<u32>()), 0..20),
        ) {
            let mut tally = Tally::new(region.0..region.0 + region.1, Evidence::Fiemap);
            for (logical, length, flags) in extents.into_iter().chain(small) {
                tally.extent(logical, length, flags);
            }
            let state = tally.finish();
            prop_assert!(state.never_written() <= state.total);
            prop_assert!(state.shared.max(state.encoded) + state.holes <= state.total);
        }
    }
}
