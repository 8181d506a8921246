//! What goes with a file's bytes: owner, mode, times, extended attributes and access control lists.
//!
//! What the caller may not set (another's ownership, `trusted.` attributes) is counted and said, and is no failure:
//! so is cp(1)'s `--preserve` without privilege. Everything else that goes wrong is one.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::calls;
use crate::error::StageError;
use crate::manifest::{Entry, Kind};
use crate::pace::Progress;
use crate::spec::Preserve;
use crate::tree::kind_of;

/// POSIX ACLs lie in attributes of these names: acl(5), `system.posix_acl_access` and `_default`.
const ACL: &[u8] = b"system.posix_acl_";

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// Gives `destination` what `entry` says, and the attributes that `source` has. The owner comes first, because
/// chown(2) clears set-user-ID bits; the times last, because everything else changes them.
pub fn apply(
    source: Option<BorrowedFd<'_>>,
    destination: BorrowedFd<'_>,
    entry: &Entry,
    preserve: Preserve,
    shown: &Path,
    progress: &Progress,
) -> Result<(), StageError> {
    if preserve.owner {
        let set = calls::set_owner(destination, entry.uid, entry.gid);
        tolerate(set, "set the owner", shown, progress)?;
    }
    let mode = if preserve.mode {
        let found = calls::stat(destination).map_err(|error| StageError::io("look at", shown, error))?;
        let mode = preserved_mode(entry, &found);
        progress.not_preserved.fetch_add(u64::from(mode != entry.mode), Relaxed);
        mode
    } else {
        usual_mode(entry)
    };
    calls::set_mode(destination, mode).map_err(|error| StageError::io("set the mode", shown, error))?;
    if let Some(source) = source {
        attributes(source, destination, preserve, shown, progress)?;
    }
    if preserve.times {
        let modified = (entry.mtime_s, entry.mtime_ns);
        calls::set_times(destination, modified, modified)
            .map_err(|error| StageError::io("set the times", shown, error))?;
    }
    Ok(())
}

/// The mode of a copy whose mode is preserved. Set-user-ID and set-group-ID bits of a file are dropped if the copy has
/// another owner or group: another user's program would run with the rights of the caller.
fn preserved_mode(entry: &Entry, copy: &Statx) -> u32 {
    let same_owner = (copy.stx_uid, copy.stx_gid) == (entry.uid, entry.gid);
    if entry.kind == Kind::File && !same_owner { entry.mode & !SET_ID } else { entry.mode }
}

/// What came of [`adopt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    /// It has all that was asked for.
    Unchanged,
    /// It was given what it lacked, which is not durable yet.
    Changed,
    /// It has become something else, or would become a set-user-ID program.
    Refused,
}

/// Gives what has `path` below `root`, and was there before, the metadata that `entry` has and the attributes of `source`,
/// if it has others.
///
/// # Errors
/// The caller may not set what was asked for, or not open the file.
pub fn adopt(
    source: Option<BorrowedFd<'_>>,
    root: BorrowedFd<'_>,
    path: &Path,
    entry: &Entry,
    preserve: Preserve,
    shown: &Path,
    progress: &Progress,
) -> Result<Adopted, StageError> {
    let failed = |what: &'static str| move |error| StageError::io(what, shown, error);
    let beneath =
        |path: &Path| if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() };
    let is_link = entry.kind == Kind::Symlink;
    let flags = match is_link {
        true => OFlags::PATH,
        false => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
    };
    let copy = calls::open_beneath(root, &beneath(path), flags, Mode::empty()).map_err(failed("open"))?;
    let found = &calls::stat(copy.as_fd()).map_err(failed("look at"))?;
    if kind_of(found) != Some(entry.kind) || entry.kind == Kind::File && found.stx_size != entry.size {
        return Ok(Adopted::Refused);
    }
    let owner = !preserve.owner || (found.stx_uid, found.stx_gid) == (entry.uid, entry.gid);
    let mode =
        is_link || !preserve.mode || u32::from(found.stx_mode) & 0o7777 == preserved_mode(entry, found);
    let modified = (entry.mtime_s, entry.mtime_ns);
    let times = !preserve.times || (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec) == modified;
    if is_link {
        let above = beneath(path.parent().unwrap_or(Path::new("")));
        let name = path.file_name().unwrap_or_default();
        if owner && times {
            return Ok(Adopted::Unchanged);
        }
        let directory = calls::open_beneath(root, &above, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
            .map_err(failed("open the directory of"))?;
        if !owner {
            let set = calls::set_owner_at(directory.as_fd(), name, entry.uid, entry.gid);
            tolerate(set, "set the owner", shown, progress)?;
        }
        if !times {
            calls::set_times_at(directory.as_fd(), name, modified, modified)
                .map_err(failed("set the times"))?;
        }
        return Ok(Adopted::Changed);
    }
    let mut attributes_differ = false;
    for (name, value) in source.map_or(Ok(Vec::new()), |source| wanted(source, preserve, shown))? {
        let there = calls::attribute(copy.as_fd(), &name).map_err(failed("read an attribute"))?;
        attributes_differ |= there.as_ref() != Some(&value);
    }
    if owner && mode && times && !attributes_differ {
        return Ok(Adopted::Unchanged);
    }
    let is_set_id = entry.kind == Kind::File && preserve.mode && entry.mode & SET_ID != 0;
    if is_set_id {
        return Ok(Adopted::Refused);
    }
    apply(source, copy.as_fd(), entry, preserve, shown, progress)?;
    Ok(Adopted::Changed)
}

/// The mode of a copy whose mode is not preserved: as of cp(1), the source's permission bits that the umask leaves.
/// Until then it is its owner's alone.
pub fn usual_mode(entry: &Entry) -> u32 {
    entry.mode & 0o777 & !umask()
}

/// The process's umask, without changing it: proc(5), `Umask` of `/proc/self/status`.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o077)
}

fn attributes(
    source: BorrowedFd<'_>,
    destination: BorrowedFd<'_>,
    preserve: Preserve,
    shown: &Path,
    progress: &Progress,
) -> Result<(), StageError> {
    for (name, value) in wanted(source, preserve, shown)? {
        let set = calls::set_attribute(destination, &name, &value);
        tolerate(set, "set an attribute", shown, progress)?;
    }
    Ok(())
}

/// An extended attribute: its name and its value.
type Attribute = (Vec<u8>, Vec<u8>);

/// The attributes that are to be kept.
fn wanted(source: BorrowedFd<'_>, preserve: Preserve, shown: &Path) -> Result<Vec<Attribute>, StageError> {
    let failed = |what: &'static str| move |error| StageError::io(what, shown, error);
    let mut found = Vec::new();
    if !(preserve.xattrs || preserve.acls) {
        return Ok(found);
    }
    for name in calls::attributes(source).map_err(failed("list the attributes"))? {
        let wanted = if name.starts_with(ACL) {
            preserve.acls
        } else {
            preserve.xattrs && !name.starts_with(b"system.")
        };
        if !wanted {
            continue;
        }
        if let Some(value) = calls::attribute(source, &name).map_err(failed("read an attribute"))? {
            found.push((name, value));
        }
    }
    Ok(found)
}

/// What the caller may not do, or the file system cannot, is counted.
fn tolerate(
    set: std::io::Result<()>,
    what: &'static str,
    shown: &Path,
    progress: &Progress,
) -> Result<(), StageError> {
    let Err(error) = set else { return Ok(()) };
    match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL) => {
            progress.not_preserved.fetch_add(1, Relaxed);
            Ok(())
        }
        _ => Err(StageError::io(what, shown, error)),
    }
}
