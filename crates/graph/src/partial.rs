//! The file of another name in which a file is written until it is whole: `.NAME.partial` beside it. There is one writer of it at
//! a time, and what a writer that was killed has left is removed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use storage::locks::{self, Attempt};

use crate::GraphError;

/// Makes the file for what will be at `path`, and its name. It is locked as long as it is open.
///
/// # Errors
/// [`GraphError::Busy`] if another writer of the same path is at work.
pub fn create(path: &Path) -> Result<(File, PathBuf), GraphError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.partial"));
    remove_abandoned(&partial, path)?;
    // A link is not followed by a call that makes a file.
    let file = match OpenOptions::new().write(true).create_new(true).open(&partial) {
        // Another writer came between these two steps.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(busy(path, None)),
        file => file.map_err(|source| GraphError::io("create", &partial, source))?,
    };
    lock(&file, &partial, path)?;
    // A writer that found the file before it was locked took it for abandoned, and removed it.
    if !is_at(&file, &partial) {
        return Err(busy(path, None));
    }
    Ok((file, partial))
}

/// Removes what a writer that was killed has left. A writer at work has it locked.
fn remove_abandoned(partial: &Path, path: &Path) -> Result<(), GraphError> {
    let failed = |operation, source| GraphError::io(operation, partial, source);
    let kind = match std::fs::symlink_metadata(partial) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        facts => facts.map_err(|source| failed("stat", source))?.file_type(),
    };
    // A link is removed and not followed: what it leads to belongs to others.
    let no_follow = OFlags::NOFOLLOW.bits() as i32;
    let is_link = |error: &io::Error| error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    let mut held = None;
    if kind.is_file() || kind.is_symlink() {
        // Opened for writing, because NFS locks nothing else. The lock lasts until the file is removed.
        match OpenOptions::new().write(true).custom_flags(no_follow).open(partial) {
            Ok(file) => held = Some(file),
            Err(error) if is_link(&error) => {}
            Err(source) => return Err(failed("open", source)),
        }
    }
    if let Some(file) = &held {
        lock(file, partial, path)?;
        if !is_at(file, partial) {
            return Err(busy(path, None));
        }
    }
    std::fs::remove_file(partial).map_err(|source| failed("remove", source))
}

/// Locks a partial file, where the file system has locks.
fn lock(file: &File, partial: &Path, path: &Path) -> Result<(), GraphError> {
    match locks::try_exclusive(file.as_fd()) {
        Ok(Attempt::Held { by }) => Err(busy(path, by)),
        Ok(Attempt::Taken | Attempt::Unsupported) => Ok(()),
        Err(source) => Err(GraphError::io("lock", partial, source)),
    }
}

fn busy(path: &Path, by: Option<String>) -> GraphError {
    let by = by.unwrap_or_else(|| "another process".to_owned());
    GraphError::Busy { path: path.to_owned(), by }
}

/// Whether a name still stands for an open file.
fn is_at(file: &File, name: &Path) -> bool {
    let identity = |facts: std::fs::Metadata| (facts.dev(), facts.ino());
    let (open, named) = (file.metadata().map(identity), std::fs::symlink_metadata(name).map(identity));
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}
