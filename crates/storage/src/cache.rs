//! Forgetting what the page cache holds of a device: fio's `invalidate`.
//!
//! Only clean pages can be dropped (posix_fadvise(2), POSIX_FADV_DONTNEED), so dirty ones are written
//! first. Pages that somebody else has mapped or locked stay; a buffered run that still finds its data
//! in memory is caught by `W-CACHED`. On tmpfs, and for memory, the pages are the data, and nothing is
//! dropped.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Writes back and drops all cached pages of what `fd` refers to, a regular file or a block device.
///
/// # Errors
/// The kernel's: of fdatasync(2) where dirty pages cannot be written (nothing is dropped then), or of
/// posix_fadvise(2), such as `ESPIPE` for something without pages.
pub fn drop_cached(fd: BorrowedFd<'_>) -> io::Result<()> {
    let raw = fd.as_raw_fd();
    // SAFETY: `fd` is borrowed, so `raw` stays open during the call, which takes no pointer.
    if unsafe { libc::fdatasync(raw) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; a length of 0 means up to the end, and the call takes no pointer.
    match unsafe { libc::posix_fadvise(raw, 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        // It returns the error instead of setting errno.
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Begins to write the dirty pages of `fd`, which allocates what the file system has put off, and waits for none of
/// them: sync_file_range(2). It vouches for nothing; whoever needs the bytes to be durable syncs them.
///
/// # Errors
/// The kernel's, such as `ESPIPE` for something without pages.
pub fn begin_writeback(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `fd` is borrowed and stays open during the call, which takes no pointer; a length of 0 is up to the end.
    match unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    /// Whether the first page can be read without the drive.
    fn is_cached(file: &File) -> io::Result<bool> {
        let mut page = [0u8; 4096];
        let iov = libc::iovec { iov_base: page.as_mut_ptr().cast(), iov_len: page.len() };
        // SAFETY: `iov` describes `page`, which outlives the call and is not otherwise used in it.
        let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const iov, 1, 0, libc::RWF_NOWAIT) };
        if read > 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }

    #[test]
    fn dirty_pages_are_written_and_then_dropped() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        file.write_all(&vec![7u8; 1 << 20]).expect("written");
        match is_cached(&file) {
            Ok(cached) => assert!(cached, "what was just written is in the cache"),
            Err(error) => return eprintln!("skipped: no RWF_NOWAIT on this file system ({error})"),
        }
        // The kernel may hold a page for a moment more, such as that of a write that has just ended.
        let is_dropped = (0..100).any(|turn| {
            std::thread::sleep(std::time::Duration::from_millis(turn));
            drop_cached(file.as_fd()).expect("dropped");
            !is_cached(&file).expect("RWF_NOWAIT")
        });
        assert!(is_dropped, "still cached");
    }

    #[test]
    fn what_has_no_pages_is_an_error() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert!(drop_cached(reader.as_fd()).is_err());
    }
}
