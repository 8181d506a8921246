//! The mode of what a descriptor leads to that cannot be opened for more than that (`O_PATH`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::device::sys;

/// Sets the permission bits of what a descriptor leads to, one of `O_PATH` included. fchmodat2(2) (Linux 6.6), else chmod(2)
/// by `/proc/self/fd`: another user can give neither to another file, as a name.
///
/// # Errors
/// EPERM for another user's file; ENOENT before Linux 6.6 where /proc is not mounted.
pub fn set_of_path(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    static LACKING: AtomicBool = AtomicBool::new(false);
    let mode = mode & 0o7777;
    if !LACKING.load(Ordering::Relaxed) {
        match sys::set_mode_of_path(file, mode) {
            // A seccomp filter that does not know the call says EPERM, which may be about the file as well.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS)) => {
                LACKING.store(true, Ordering::Relaxed);
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM)) => {}
            set => return set,
        }
    }
    rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), rustix::fs::Mode::from_raw_mode(mode))
        .map_err(io::Error::from)
}
