//! What is there already, made durable before it is relied on.
//!
//! A copy that another program made may be equal to its source and still lie in the page cache alone: removing the
//! source would leave nothing after a power cut. So it is synced first and compared afterwards, around the cache: what
//! the kernel could not write then shows as a difference, even if the error was reported to another program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Statx};

use crate::calls;
use crate::error::StageError;
use crate::fault::{Barrier, leaves_out_sync};
use crate::fs_kind;
use crate::manifest;
use crate::mounts;
use crate::pace::Stop;
use crate::tree::{Directory, Visitor, Walk, mounted};

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
    if let Some(directory) = sync_one(parent, name, shown, true)? {
        sync_below(directory, shown, true, stop)?;
    }
    calls::sync(parent, Barrier::ExistingName).map_err(|error| StageError::sync("fsync", shown, error))
}

/// Syncs an open directory, and each file and directory below it. `on_path`: a move rests on it.
pub fn sync_tree(
    directory: BorrowedFd<'_>,
    shown: &Path,
    on_path: bool,
    stop: &Stop,
) -> Result<(), StageError> {
    sync_open(directory, true, shown, on_path)?;
    let root = directory.try_clone_to_owned().map_err(|error| StageError::io("duplicate", shown, error))?;
    sync_below(root, shown, on_path, stop)
}

fn sync_below(root: OwnedFd, shown: &Path, on_path: bool, stop: &Stop) -> Result<(), StageError> {
    // A walk passes over the manifest, which is not part of a source.
    match sync_one(root.as_fd(), manifest::NAME.as_ref(), &shown.join(manifest::NAME), on_path) {
        Err(StageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        synced => drop(synced?),
    }
    Walk { source: shown, across: true, only: None, stop }.run(root, &mut Syncing { shown, on_path, stop })
}

/// [`sync_below`].
struct Syncing<'a> {
    shown: &'a Path,
    on_path: bool,
    stop: &'a Stop,
}

impl Visitor for Syncing<'_> {
    type Copy = ();

    fn directory(
        &mut self,
        above: Option<(&Directory<()>, &OsStr)>,
        path: &Path,
        _: &Statx,
    ) -> Result<(), StageError> {
        let Some((above, name)) = above else { return Ok(()) };
        sync_one(above.source.as_fd(), name, &self.shown.join(path), self.on_path).map(drop)
    }

    fn open_again(&mut self, _: &Path) -> Result<(), StageError> {
        Ok(())
    }

    fn names(&mut self, directory: &Arc<Directory<()>>, names: Vec<OsString>) -> Result<(), StageError> {
        for name in names {
            self.stop.check()?;
            let shown = self.shown.join(&directory.path).join(&name);
            sync_one(directory.source.as_fd(), &name, &shown, self.on_path)?;
        }
        Ok(())
    }
}

/// Syncs a file or a directory; returns with it if it is a directory.
fn sync_one(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    shown: &Path,
    on_path: bool,
) -> Result<Option<OwnedFd>, StageError> {
    let found = calls::stat_at(parent, name).map_err(|error| StageError::io("stat", shown, error))?;
    let kind = FileType::from_raw_mode(found.stx_mode.into());
    let flags = match kind {
        FileType::RegularFile => FILE,
        FileType::Directory => DIRECTORY,
        // A link is in its directory; what is of another kind is no part of a copy.
        _ => return Ok(None),
    };
    let file = calls::open_at(parent, name, flags, Mode::empty())
        .map_err(|error| StageError::io("open", shown, error))?;
    let is_directory = kind == FileType::Directory;
    sync_open(file.as_fd(), is_directory, shown, on_path)?;
    Ok(is_directory.then_some(file))
}

fn sync_open(
    file: BorrowedFd<'_>,
    is_directory: bool,
    shown: &Path,
    on_path: bool,
) -> Result<(), StageError> {
    let barrier = if is_directory { Barrier::ExistingDirectory } else { Barrier::ExistingFile };
    calls::fsync(file, on_path.then_some(barrier)).map_err(|error| StageError::sync("fsync", shown, error))
}
