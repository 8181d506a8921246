//! What goes with a file's bytes: owner, mode, times, extended attributes and access control lists.
//!
//! What the caller may not set (another's ownership, `trusted.` attributes) is counted and said, and is no failure:
//! so is cp(1)'s `--preserve` without privilege. Everything else that goes wrong is one.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;

use crate::calls;
use crate::error::StageError;
use crate::manifest::Entry;
use crate::pace::Progress;
use crate::spec::Preserve;

/// POSIX ACLs lie in attributes of these names: acl(5), `system.posix_acl_access` and `_default`.
const ACL: &[u8] = b"system.posix_acl_";

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
    let mode = if preserve.mode { entry.mode } else { usual_mode(entry) };
    calls::set_mode(destination, mode).map_err(|error| StageError::io("set the mode", shown, error))?;
    if let Some(source) = source
        && (preserve.xattrs || preserve.acls)
    {
        attributes(source, destination, preserve, shown, progress)?;
    }
    if preserve.times {
        let modified = (entry.mtime_s, entry.mtime_ns);
        calls::set_times(destination, modified, modified)
            .map_err(|error| StageError::io("set the times", shown, error))?;
    }
    Ok(())
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
    let failed = |what: &'static str| move |error| StageError::io(what, shown, error);
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
            let set = calls::set_attribute(destination, &name, &value);
            tolerate(set, "set an attribute", shown, progress)?;
        }
    }
    Ok(())
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
