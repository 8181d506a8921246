//! The directories of a store: made, locked, looked through, made durable.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use stage::calls;
use stage::error::{StageError, shown};
use stage::lock;
use stage::manifest;
use storage::locks::Held;

const LOCK: &str = "store.lock";

/// Are these one directory?
pub(super) fn same(a: &OwnedFd, b: &OwnedFd) -> io::Result<bool> {
    let identity = |fd: &OwnedFd| {
        calls::stat(fd.as_fd()).map(|found| (found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
    };
    Ok(identity(a)? == identity(b)?)
}

/// Is a directory of this name there?
pub(super) fn is_directory(tier: &OwnedFd, name: &OsStr) -> bool {
    calls::stat_at(tier.as_fd(), name)
        .is_ok_and(|found| FileType::from_raw_mode(u32::from(found.stx_mode)) == FileType::Directory)
}

/// The checkpoints in a directory, oldest first.
pub(super) fn steps_in(
    tier: &OwnedFd,
    path: &Path,
    step_of: &dyn Fn(&OsStr) -> Option<u64>,
) -> Result<Vec<u64>, StageError> {
    let names =
        calls::list(tier.as_fd()).map_err(|error| StageError::io("read the directory", path, error))?;
    let named = names.iter().filter(|(name, _)| is_directory(tier, name));
    let mut steps: Vec<u64> = named.filter_map(|(name, _)| step_of(name)).collect();
    steps.sort_unstable();
    Ok(steps)
}

pub(super) fn open_directory(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    path: &Path,
) -> Result<OwnedFd, StageError> {
    calls::open_at(parent, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .map_err(|error| StageError::io("open the directory", path, error))
}

/// Opens a tier's directory, and makes it if its parent is there: a longer way that is missing is a tier that is not
/// mounted, more often than not, and is made with `parents` alone.
pub(super) fn tier(which: &str, path: &Path, read_only: bool, parents: bool) -> Result<OwnedFd, StageError> {
    if !read_only && let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        if parents && !parent.is_dir() {
            drop(tier(which, parent, read_only, parents)?);
        }
        make_durably(which, parent, name, 0o777)?;
    }
    calls::open_directory(path).map_err(|error| absent(which, path, error))
}

fn absent(which: &str, path: &Path, error: io::Error) -> StageError {
    if is_absent(&error) {
        StageError::invalid(
            format!("{which} {}: there is no such directory", shown(path)),
            "is the tier mounted? Make it first, or have it made with the option parents",
        )
    } else {
        StageError::io("open the directory", path, error)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn make_durably(which: &str, parent: &Path, name: &OsStr, mode: u32) -> Result<(), StageError> {
    let directory = calls::open_directory(parent).map_err(|error| absent(which, parent, error))?;
    match calls::make_directory(directory.as_fd(), name, Mode::from_raw_mode(mode)) {
        Ok(()) => calls::sync_outside_move(directory.as_fd())
            .map_err(|error| StageError::sync("fsync", parent, error)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // A directory that may not be written to, with ours in it already, is enough.
        Err(_) if calls::stat_at(directory.as_fd(), name).is_ok() => Ok(()),
        Err(error) => Err(StageError::io("make the directory", &parent.join(name), error)),
    }
}

/// Takes the right to write to a store. The lock lies in the fast directory itself, wherever the journal is: it is the
/// directory's unfinished checkpoints that the next store to open it removes. Only its owner may open it, so that other
/// users who may read the tier cannot hold it.
pub(super) fn take_lock(fast: &Path, state: &Path) -> Result<Held<File>, StageError> {
    let within = fast.join(super::STATE);
    for directory in [&*within, state] {
        if let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) {
            make_durably("state", parent, name, 0o700)?;
        }
    }
    let path = within.join(LOCK);
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| StageError::io("open", &path, error))?;
    match lock::at_once(file.as_fd(), true, &path) {
        Ok(true) => Ok(Held::new(file)),
        Ok(false) => Err(StageError::io("lock", &path, rustix::io::Errno::NOLCK)),
        Err(StageError::Locked { by, .. }) => Err(StageError::refused(
            format!("{}: {by} writes to this store", shown(fast)),
            "wait until it closes it, or open it to be read only; a fork of that program keeps it open, too",
        )),
        Err(error) => Err(error),
    }
}

/// Finds what a checkpoint must not hold, before anything is made durable; returns how many files there are.
pub(super) fn look_at(directory: BorrowedFd<'_>, path: &Path, top: bool) -> Result<usize, StageError> {
    let mut files = 0;
    for (name, _) in
        calls::list(directory).map_err(|error| StageError::io("read the directory", path, error))?
    {
        let below = path.join(&name);
        if top && name == manifest::NAME {
            return Err(StageError::invalid(
                format!("{}: this name is taken for something else, and would not be drained", shown(&below)),
                "give it another",
            ));
        }
        let found =
            calls::stat_at(directory, &name).map_err(|error| StageError::io("stat", &below, error))?;
        match FileType::from_raw_mode(u32::from(found.stx_mode)) {
            FileType::RegularFile => files += 1,
            FileType::Symlink => {}
            FileType::Directory => {
                let inner = open_directory(directory, &name, &below)?;
                files += look_at(inner.as_fd(), &below, false)?;
            }
            _ => {
                return Err(StageError::invalid(
                    format!("{}: neither file, directory nor symbolic link", shown(&below)),
                    "a checkpoint holds what can be stored; remove it before the commit",
                ));
            }
        }
    }
    Ok(files)
}
