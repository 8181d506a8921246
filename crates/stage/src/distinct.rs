//! Proof that a source and a copy of it are two things, before the source is removed for the copy's sake.
//!
//! Device and inode do not tell where one directory is reached through two file systems: an overlay and its upper
//! directory, an NFS export mounted on its own server, a bind mount of FUSE. What counts is whether removing the source
//! removes the copy, so the proof makes a change of the same kind: a file with a random name is made in the source, and
//! must not appear in the copy. An overlay passes such a change on from each of its layers, which is the direction in
//! which bytes could be lost.
//!
//! A single file has no inside: the probe is made beside it and must not appear beside its copy, unless both are in one
//! directory, where device and inode do tell them apart.
//!
//! A crash leaves an empty file under the probe's name, which a journal has: of a move the job's, so that the next attempt,
//! or `cancel`, removes the file before the source is walked; of an eviction that of the process that evicts, whose next
//! attempt does.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, Statx};

use crate::calls;
use crate::error::{StageError, shown};
use crate::fault::{Check, enforced};

/// An open directory, and its path for messages.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The directory.
    pub directory: BorrowedFd<'a>,
    /// As a person reads it.
    pub path: &'a Path,
}

/// Proves that the directory `copy` is not the directory `source` seen through another file system. The source's times
/// are kept; its time of change is not.
///
/// # Errors
/// [`StageError::Refused`] if they are one. The source may not be written to: then it could not be removed either.
pub fn directories(source: Shown<'_>, copy: Shown<'_>, probe: &OsStr) -> Result<(), StageError> {
    let appears = appears_keeping_times(source, probe, || has(copy.directory, probe))?;
    refuse_if(appears, source.path, copy.path)
}

/// Does a new name in the directory `source` appear elsewhere, where `finds` looks for it? The directory's times are kept;
/// its time of change is not.
pub(crate) fn appears_keeping_times(
    source: Shown<'_>,
    probe: &OsStr,
    finds: impl FnOnce() -> Result<bool, StageError>,
) -> Result<bool, StageError> {
    let before = calls::stat(source.directory).map_err(|error| StageError::io("stat", source.path, error))?;
    let appears = appears(source, probe, finds);
    // Only the owner may set times. A directory of another owner keeps the time of the probe.
    let (accessed, modified) = (before.stx_atime, before.stx_mtime);
    let times = [accessed, modified].map(|time| (time.tv_sec, time.tv_nsec));
    let _ = calls::set_times(source.directory, times[0], times[1]);
    appears
}

/// Proves that a file in the directory `copy` is not a file in the directory `source` seen through another file system.
///
/// # Errors
/// [`StageError::Refused`] if the directories are one and cannot be told to be. `source` may not be written to.
pub fn files(source: Shown<'_>, copy: Shown<'_>, probe: &OsStr) -> Result<(), StageError> {
    let inode = |at: Shown<'_>| {
        let of = |stat: Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        calls::stat(at.directory).map(of).map_err(|error| StageError::io("stat", at.path, error))
    };
    if inode(source)? == inode(copy)? {
        return Ok(());
    }
    let appears = appears(source, probe, || has(copy.directory, probe))?;
    refuse_if(appears, source.path, copy.path)
}

/// As [`appears_keeping_times`], without regard to times.
fn appears(
    source: Shown<'_>,
    probe: &OsStr,
    finds: impl FnOnce() -> Result<bool, StageError>,
) -> Result<bool, StageError> {
    let failed = |error| StageError::io("make a file for a moment", source.path, error);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    calls::open_at(source.directory, probe, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let found = finds();
    match calls::remove_probe(source.directory, probe) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => found,
    }
}

/// Has a directory this name now, whatever a client of a network file system has cached?
pub fn has(directory: BorrowedFd<'_>, name: &OsStr) -> Result<bool, StageError> {
    match calls::stat_now(directory, name) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StageError::io("look for a file", Path::new(name), error)),
    }
}

fn refuse_if(one: bool, source: &Path, copy: &Path) -> Result<(), StageError> {
    if !one || !enforced(Check::Distinct) {
        return Ok(());
    }
    Err(StageError::refused(
        format!("{}: a change in {} appears there, so both may be one", shown(copy), shown(source)),
        "name another destination, or the one name that both have; nothing was removed",
    ))
}
