//! Reading around the page cache, so that what was written is answered by the drive and not by memory.
//!
//! A file is opened with O_DIRECT. Where the file system refuses that (`EINVAL`), when the file is opened or when it is read,
//! reads go through the page cache. In both cases the cache's clean pages are dropped before (POSIX_FADV_DONTNEED), because some
//! file systems serve direct reads from the cache (compressed and inline data of btrfs). Dirty pages stay, and so do pages
//! that a program has mapped: this reads back only what was synced before. On file systems in memory the pages are the data.

use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, Advice, Mode, OFlags};
use rustix::io::Errno;

use crate::calls;
use crate::fault::{Call, before};

/// What direct requests are multiples of where the kernel does not say: no known drive or file system asks for more.
pub(crate) const BLOCK: usize = 4096;

/// A file that is open for reading around the page cache.
#[derive(Debug)]
pub struct Uncached {
    file: Arc<OwnedFd>,
    direct: bool,
}

impl Uncached {
    /// Opens a file; `open` gets the flags that are to be added to its own.
    pub fn open(open: impl Fn(OFlags) -> io::Result<OwnedFd>) -> io::Result<Self> {
        let (file, direct) = match open(OFlags::DIRECT) {
            Err(error) if refuses_direct(&error) => (open(OFlags::empty())?, false),
            opened => (opened?, true),
        };
        forget(file.as_fd(), None);
        Ok(Self { file: Arc::new(file), direct })
    }

    /// Opens an open file again, around the page cache.
    pub fn reopen(file: BorrowedFd<'_>) -> io::Result<Self> {
        Self::open(|flags| match flags {
            OFlags::DIRECT => open_direct(file, OFlags::RDONLY).map_err(|_| Errno::INVAL.into()),
            _ => file.try_clone_to_owned(),
        })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Are requests direct? Then they must be multiples of 4096 bytes, in memory and in the file.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Reads as much of `buffer` as the file has at `at`. Both are aligned for direct requests.
    ///
    /// # Errors
    /// The read's own; `EINVAL` only if it is refused through the page cache as well.
    pub fn read(&mut self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        match calls::read_at(self.file.as_fd(), buffer, at) {
            Err(error) if self.direct && refuses_direct(&error) => {
                let flags = fs::fcntl_getfl(&self.file)?;
                fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
                self.direct = false;
                calls::read_at(self.file.as_fd(), buffer, at)
            }
            read => read,
        }
    }
}

/// Opens an open file once more, with these flags and O_DIRECT.
///
/// # Errors
/// `EINVAL` if the file system has no direct I/O; others if `/proc` is not mounted.
pub(crate) fn open_direct(file: BorrowedFd<'_>, access: OFlags) -> io::Result<OwnedFd> {
    let verdict = before(Call::Openat)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    let opened = rustix::io::retry_on_intr(|| fs::open(&path, flags, Mode::empty()));
    verdict.made();
    Ok(opened?)
}

/// Drops the clean pages of a range, or of all of a file.
pub(crate) fn forget(file: BorrowedFd<'_>, range: Option<&Range<u64>>) {
    let block = BLOCK as u64;
    // A page that is shared with a neighbour is only dropped as a whole.
    let (start, end) =
        range.map_or((0, 0), |range| (range.start - range.start % block, range.end.next_multiple_of(block)));
    // Advice: whether pages were dropped cannot be told. A length of 0 means up to the end.
    let _ = fs::fadvise(file, start, NonZeroU64::new(end - start), Advice::DontNeed);
}

/// Is it the error of a file system that has no direct I/O, or none for this request?
pub(crate) fn refuses_direct(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::INVAL)
}
