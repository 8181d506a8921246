//! Names that are given over nothing: a part becomes visible only if no one else has its name.
//!
//! renameat2(2) with RENAME_NOREPLACE does so in one call. Where it is not known (NFS, Lustre), a file is linked to its
//! name, and a directory is renamed over a claim, an empty directory that this mover made.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{self, FileType, Mode, RenameFlags, Statx};
use rustix::io::Errno;

use super::{link, make_directory, remove_directory, remove_file, stat_at};
use crate::fault::{Call, Check, Moment, before, changed, comes_to, enforced, path_at};

/// Gives a file or directory its name within one directory, over nothing; see [`publish_into`].
///
/// # Errors
/// `EEXIST` where the name is taken.
pub fn publish(directory: BorrowedFd<'_>, part: &OsStr, name: &OsStr) -> io::Result<()> {
    publish_into(directory, part, directory, name)
}

/// Renames within one file system, over nothing: renameat2(2) with RENAME_NOREPLACE. File systems without it (NFS,
/// Lustre) answer EINVAL; there a file is linked to its name and unlinked from the old one, and a directory is renamed
/// over an empty directory that claims the name. In both cases the kernel decides which of two movers gets the name.
///
/// # Errors
/// `EEXIST` where the name is taken.
pub fn publish_into(
    from: BorrowedFd<'_>,
    part: &OsStr,
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> io::Result<()> {
    comes_to(Moment::Renamed, || vec![path_at(from, part)]);
    changed(from);
    changed(directory);
    match rename_no_replace(from, part, directory, name) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        // A claim that was made where the same directory is mounted over NFS.
        Err(Errno::EXIST) if is_claim(directory, name)? => {}
        made => return Ok(made?),
    }
    let stat = stat_at(from, part)?;
    let published = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => publish_over_claim(from, part, directory, name),
        _ => publish_by_link(from, part, directory, name),
    };
    // A server that repeats a request whose reply was lost answers EEXIST or ENOENT, although it made the change.
    // The inode of the name decides.
    published.or_else(|error| {
        let found = stat_at(directory, name);
        if found.is_ok_and(|found| same_file(&found, &stat) || !enforced(Check::NameAfterError)) {
            remove_if_there(from, part)
        } else {
            Err(error)
        }
    })
}

fn rename_no_replace(
    from: BorrowedFd<'_>,
    part: &OsStr,
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<(), Errno> {
    let verdict = before(Call::Renameat)?;
    let made = if crate::fault::lacks_noreplace() {
        Err(Errno::INVAL)
    } else {
        fs::renameat_with(from, part, directory, name, RenameFlags::NOREPLACE)
    };
    verdict.made();
    made
}

fn same_file(one: &Statx, other: &Statx) -> bool {
    let inode = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    inode(one) == inode(other)
}

fn remove_if_there(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match remove_file(directory, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn publish_by_link(
    from: BorrowedFd<'_>,
    part: &OsStr,
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> io::Result<()> {
    match link(from, part, directory, name) {
        // Without links, stat(2) and then rename(2) remain; docs/faults.md has the window between them.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK)
            ) =>
        {
            match stat_at(directory, name) {
                Ok(_) => Err(Errno::EXIST.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    planned!(Renameat, Ok(fs::renameat(from, part, directory, name)?))
                }
                Err(error) => Err(error),
            }
        }
        linked => linked.and_then(|()| remove_if_there(from, part)),
    }
}

/// Mode of a directory that claims a name: only its owner's, and sticky, which a directory of one user never needs.
const CLAIM_MODE: Mode = Mode::RWXU.union(Mode::SVTX);

/// Is this name held by a claim of this process's user? One that a crash left is taken over; if another mover still wants it, the one that
/// renames first fills it, and the rename of the other fails with ENOTEMPTY.
pub fn is_claim(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    match stat_at(directory, name) {
        Ok(stat) => {
            let mode: u32 = stat.stx_mode.into();
            let bits = Mode::RWXU | Mode::RWXG | Mode::RWXO | Mode::SVTX;
            let is_directory = FileType::from_raw_mode(mode) == FileType::Directory;
            let is_claim = is_directory && Mode::from_raw_mode(mode) & bits == CLAIM_MODE;
            // A directory of another user is no claim, whatever its mode.
            let is_own = stat.stx_uid == rustix::process::geteuid().as_raw();
            Ok(is_claim && is_own || !enforced(Check::Claim))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a claim that is not needed any more, if there is one; what is not empty stays.
pub fn release_claim(directory: BorrowedFd<'_>, name: &OsStr) {
    if is_claim(directory, name).unwrap_or(false) {
        let _ = remove_directory(directory, name);
    }
}

fn publish_over_claim(
    from: BorrowedFd<'_>,
    part: &OsStr,
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> io::Result<()> {
    match make_directory(directory, name, CLAIM_MODE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_claim(directory, name)? => {}
        made => made?,
    }
    let renamed: io::Result<()> = (|| planned!(Renameat, Ok(fs::renameat(from, part, directory, name)?)))();
    renamed.map_err(|error| match Errno::from_io_error(&error) {
        // The claim has been filled, or replaced by a file.
        Some(Errno::NOTEMPTY | Errno::NOTDIR) => Errno::EXIST.into(),
        _ => {
            release_claim(directory, name);
            error
        }
    })
}
