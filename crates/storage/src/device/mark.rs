//! Which existing files flashwright may overwrite without being told: those that it laid.
//!
//! A scratch file is marked with the extended attribute `user.flashwright.scratch` when it is made. The
//! mark carries the inode number and the size, so that neither a copy made with its attributes
//! (`cp -a`) nor a file of another length written over it (`cat data > scratch`) passes for scratch. A
//! magic number in the data could not do this: the benchmark overwrites all of the data.
//!
//! Some file systems keep no user attributes (NFS before 4.2, tmpfs before Linux 6.6, vfat). For those the
//! process remembers what it made itself, by device, inode and time of birth; inode numbers alone are
//! used again. A later process must then be told `--destroy FILE`.

use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::sys::{self, Status};

const ATTRIBUTE: &std::ffi::CStr = c"user.flashwright.scratch";

type Identity = ((u32, u32), u64, (i64, u32));

static MADE_HERE: LazyLock<Mutex<HashSet<Identity>>> = LazyLock::new(Mutex::default);

fn identity(status: &Status) -> Option<Identity> {
    Some((status.device, status.inode, status.born?))
}

fn text(status: &Status) -> String {
    format!("1 inode={} size={}", status.inode, status.size)
}

/// Marks a file that has just been made with its final size. Best effort: see the module's argument.
pub(crate) fn set(fd: BorrowedFd<'_>) {
    let Ok(status) = sys::status(fd) else { return };
    // Without attributes the process's own memory serves.
    let _ = sys::set_attribute(fd, ATTRIBUTE, text(&status).as_bytes());
    if let Some(identity) = identity(&status) {
        MADE_HERE.lock().unwrap_or_else(PoisonError::into_inner).insert(identity);
    }
}

/// Takes the mark from a file that holds data from now on, so that nothing is written over it without a word. A file
/// that bears no mark is left as it is.
///
/// # Errors
/// The kernel's: the file would then still pass for scratch.
pub fn keep_contents(fd: BorrowedFd<'_>) -> io::Result<()> {
    let made_here = sys::status(fd).ok().as_ref().and_then(identity);
    if let Some(identity) = made_here {
        MADE_HERE.lock().unwrap_or_else(PoisonError::into_inner).remove(&identity);
    }
    match sys::get_attribute(fd, ATTRIBUTE) {
        Some(_) => sys::set_attribute(fd, ATTRIBUTE, b"0 holds data"),
        None => Ok(()),
    }
}

/// Whether there is a file at `path` that flashwright laid, with the size that it was laid with.
#[must_use]
pub fn was_laid(path: &std::path::Path) -> bool {
    let file = std::fs::File::open(path);
    file.is_ok_and(|file| is_set(std::os::fd::AsFd::as_fd(&file)))
}

/// Whether flashwright laid this file, and it still has the size that it was laid with.
pub(crate) fn is_set(fd: BorrowedFd<'_>) -> bool {
    let Ok(status) = sys::status(fd) else { return false };
    let marked = sys::get_attribute(fd, ATTRIBUTE).is_some_and(|v| v == text(&status).as_bytes());
    let made_here = || {
        let made = MADE_HERE.lock().unwrap_or_else(PoisonError::into_inner);
        identity(&status).is_some_and(|identity| made.contains(&identity))
    };
    marked || made_here()
}
