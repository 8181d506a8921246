//! A file as one side of a copy: opened for direct I/O where that is to be had, and plainly otherwise.
//!
//! Direct I/O goes around the page cache, so that a copy evicts no other program's pages, costs no copying of bytes, and, when it
//! reads back what it wrote, is answered by the drive. Whether a file can have it is asked of statx(2) (STATX_DIOALIGN,
//! Linux 6.1), and where that has no answer it is tried. The file is opened again through `/proc/self/fd`, so that the
//! caller's descriptor keeps its flags. A file system that takes the flag and refuses the requests (`EINVAL`) is found
//! out by the first of them, and [`Side::give_up_direct`] goes on without.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::error::StageError;
use crate::fault::{Call, before};
use crate::uncached::{self, BLOCK};

/// Pages, to which holes are rounded.
pub(super) const PAGE: u64 = 4096;

/// See the module's argument.
#[derive(Debug)]
pub(super) struct Side<'a> {
    pub path: &'a Path,
    plain: Arc<OwnedFd>,
    direct: Option<(Arc<OwnedFd>, u32)>,
    /// Why there is no direct I/O.
    pub buffered_because: Option<String>,
}

impl<'a> Side<'a> {
    /// Opens `file` again with `access` (read-only, or read and write), for requests of `chunk_bytes` and parts of it.
    pub fn open(
        file: BorrowedFd<'_>,
        path: &'a Path,
        access: OFlags,
        chunk_bytes: u32,
    ) -> Result<Self, StageError> {
        let plain = file.try_clone_to_owned().map_err(|error| StageError::io("duplicate", path, error))?;
        let mut side = Self { path, plain: Arc::new(plain), direct: None, buffered_because: None };
        match open_direct(file, access, chunk_bytes) {
            Ok((direct, alignment)) => side.direct = Some((Arc::new(direct), alignment)),
            Err(why) => side.buffered_because = Some(why),
        }
        Ok(side)
    }

    /// The file that requests go to.
    pub fn file(&self) -> &Arc<OwnedFd> {
        self.direct.as_ref().map_or(&self.plain, |(file, _)| file)
    }

    /// What requests are multiples of; 1 where they go through the page cache.
    pub fn alignment(&self) -> u32 {
        self.direct.as_ref().map_or(1, |(_, alignment)| *alignment)
    }

    /// Does I/O go around the page cache?
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The file as the caller opened it.
    pub fn plain(&self) -> &Arc<OwnedFd> {
        &self.plain
    }

    /// The file, for calls on it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.plain.as_fd()
    }

    /// From now on through the page cache: a direct request was refused.
    pub fn give_up_direct(&mut self) {
        self.direct = None;
        self.buffered_because = Some("direct requests are refused with EINVAL".to_owned());
    }

    /// Drops what the page cache has of a range, so that the next read is answered by the drive ([`uncached`]).
    pub fn forget(&self, range: &Range<u64>) {
        uncached::forget(self.plain.as_fd(), Some(range));
    }

    /// Takes the storage of a range away, so that it is a hole. False where the file system cannot.
    pub fn punch(&self, range: &Range<u64>) -> Result<bool, StageError> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = before(Call::Fallocate).and_then(|verdict| {
            let punched = rustix::io::retry_on_intr(|| {
                fs::fallocate(&self.plain, mode, range.start, range.end - range.start)
            });
            verdict.made();
            punched
        });
        match punched {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(error) => Err(StageError::io_at("punch a hole", self.path, range.start, error)),
        }
    }
}

/// The file again, around the page cache, with what requests to it must be multiples of; or why not.
fn open_direct(file: BorrowedFd<'_>, access: OFlags, chunk_bytes: u32) -> Result<(OwnedFd, u32), String> {
    let alignment = alignment(file)?;
    if !alignment.is_power_of_two() || !chunk_bytes.is_multiple_of(alignment) {
        return Err(format!("direct requests would have to be multiples of {alignment} bytes"));
    }
    match uncached::open_direct(file, access) {
        Ok(direct) => Ok((direct, alignment)),
        Err(error) => Err(format!("it cannot be opened with O_DIRECT: {error}")),
    }
}

/// What direct requests must be multiples of, in memory and in the file.
fn alignment(file: BorrowedFd<'_>) -> Result<u32, String> {
    let stated = before(Call::Statx).and_then(|verdict| {
        let stated = fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        verdict.made();
        stated
    });
    match stated {
        Ok(stat) if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            match stat.stx_dio_offset_align.max(stat.stx_dio_mem_align) {
                0 => Err("the file system has no direct I/O for it".to_owned()),
                // Buffers begin at multiples of this many bytes.
                _ if stat.stx_dio_mem_align as usize > storage::transfer::ALIGNMENT => {
                    Err(format!("direct requests want memory aligned to {} bytes", stat.stx_dio_mem_align))
                }
                alignment => Ok(alignment.max(512)),
            }
        }
        _ => Ok(BLOCK as u32),
    }
}
