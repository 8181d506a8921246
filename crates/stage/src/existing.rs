//! What is there already, made durable before it is relied on.
//!
//! A copy that another program made may be equal to its source and still lie in the page cache alone: removing the
//! source would leave nothing after a power cut. So it is synced first and compared afterwards, around the cache: what
//! the kernel could not write then shows as a difference, even if the error was reported to another program.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use crate::calls;
use crate::error::StageError;
use crate::fault::{Barrier, leaves_out_sync};
use crate::fs_kind;
use crate::mounts;
use crate::pace::Stop;
use crate::tree::mounted;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// A FIFO that has taken the name is not waited for.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

/// Makes the file or directory at `path`, all below it, and its name durable; `purpose` is what a move needs it for.
///
/// # Errors
/// A file that may not be read; something mounted there; a sync that failed; [`StageError::Stopped`].
pub fn make_durable(path: &Path, purpose: Option<Barrier>, stop: &Stop) -> Result<(), StageError> {
    let Some(name) = path.file_name() else {
        return Err(StageError::invalid(
            format!("{}: has no last name", crate::error::shown(path)),
            "name a file or directory in a directory",
        ));
    };
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent =
        calls::open_directory(above).map_err(|error| StageError::io("open the directory", above, error))?;
    make_durable_at(parent.as_fd(), name, path, purpose, stop)
}

/// [`make_durable`] of a name in an open directory; `shown` is for messages. What is mounted there or below is on another
/// file system, or under another name as well: it is refused.
pub(crate) fn make_durable_at(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    shown: &Path,
    purpose: Option<Barrier>,
    stop: &Stop,
) -> Result<(), StageError> {
    if purpose.is_some_and(|barrier| leaves_out_sync(barrier, parent, true)) {
        return Ok(());
    }
    match mounts::at_or_below(parent, name) {
        Ok(Some(point)) => return Err(mounted(&point)),
        Ok(None) => {}
        Err(error) => return Err(StageError::io("find the mounts below", shown, error)),
    }
    let vouches = fs_kind::sync_vouches(parent).map_err(|error| StageError::io("look at", shown, error))?;
    if vouches {
        return calls::sync_file_system(parent, Barrier::ExistingFileSystem)
            .map_err(|error| StageError::sync("syncfs", shown, error));
    }
    sync_one(parent, name, shown, true, stop)?;
    calls::sync(parent, Barrier::ExistingName).map_err(|error| StageError::sync("fsync", shown, error))
}

/// Syncs each file and directory below an open directory, then the directory. `on_path`: a move rests on it.
pub fn sync_tree(
    directory: BorrowedFd<'_>,
    shown: &Path,
    on_path: bool,
    stop: &Stop,
) -> Result<(), StageError> {
    let mut list =
        calls::List::of(directory).map_err(|error| StageError::io("read the directory", shown, error))?;
    while let Some((name, _)) =
        list.next().map_err(|error| StageError::io("read the directory", shown, error))?
    {
        stop.check()?;
        sync_one(directory, &name, &shown.join(&name), on_path, stop)?;
    }
    calls::fsync(directory, on_path.then_some(Barrier::ExistingDirectory))
        .map_err(|error| StageError::sync("fsync", shown, error))
}

fn sync_one(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    shown: &Path,
    on_path: bool,
    stop: &Stop,
) -> Result<(), StageError> {
    let found = calls::stat_at(parent, name).map_err(|error| StageError::io("stat", shown, error))?;
    let open = |flags| {
        calls::open_at(parent, name, flags, Mode::empty())
            .map_err(|error| StageError::io("open", shown, error))
    };
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::RegularFile => calls::fsync(open(FILE)?.as_fd(), on_path.then_some(Barrier::ExistingFile))
            .map_err(|error| StageError::sync("fsync", shown, error)),
        FileType::Directory => sync_tree(open(DIRECTORY)?.as_fd(), shown, on_path, stop),
        // A link is in its directory; what is of another kind is no part of a copy.
        _ => Ok(()),
    }
}
