//! Removing a part, and all that is in it, and nothing else.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::calls;
use crate::error::StageError;

/// Removes what has this name in a directory, with all below it, following no link. It is no error if nothing has.
///
/// # Errors
/// The kernel's.
pub fn discard(parent: &OwnedFd, name: &OsStr, shown: &Path) -> Result<(), StageError> {
    below(parent.as_fd(), name, &shown.join(name))
}

fn below(parent: BorrowedFd<'_>, name: &OsStr, shown: &Path) -> Result<(), StageError> {
    let failed = |error| StageError::io("remove", shown, error);
    match calls::remove_file(parent, name) {
        Ok(()) => return Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => return Ok(()),
            Some(Errno::ISDIR | Errno::PERM) => {}
            _ => return Err(failed(error)),
        },
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = match calls::open_at(parent, name, flags, Mode::empty()) {
        // Its mode may be final already, and forbid even its owner.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => {
            let path = calls::open_at(parent, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
                .map_err(failed)?;
            rustix::fs::chmodat(parent, name, Mode::RWXU, rustix::fs::AtFlags::empty())
                .map_err(|errno| failed(errno.into()))?;
            drop(path);
            calls::open_at(parent, name, flags, Mode::empty())
        }
        opened => opened,
    }
    .map_err(failed)?;
    // Nothing can be removed from a directory that its owner may not write.
    let _ = rustix::fs::fchmod(&directory, Mode::RWXU);
    loop {
        let mut names = Vec::new();
        let mut list = calls::List::of(directory.as_fd()).map_err(failed)?;
        while names.len() < 1024 {
            match list.next().map_err(failed)? {
                Some((name, kind)) => names.push((name, kind)),
                None => break,
            }
        }
        if names.is_empty() {
            break;
        }
        for (name, kind) in names {
            if kind == FileType::Directory || kind == FileType::Unknown {
                below(directory.as_fd(), &name, &shown.join(&name))?;
            } else {
                calls::remove_file(directory.as_fd(), &name)
                    .map_err(|error| StageError::io("remove", &shown.join(&name), error))?;
            }
        }
    }
    calls::remove_directory(parent, name).map_err(failed)
}
