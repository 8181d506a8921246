//! The system calls of a move, each in one place, each behind [`crate::fault`].
//!
//! Nothing below a root is ever reached by a path from `/`: names are resolved from a descriptor, beneath it, and
//! through no symbolic link ([`open_beneath`], openat2(2)), so that whoever can write to a tree cannot lead a move
//! out of it. Calls that take one name take it relative to the descriptor of its directory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{
    self, AtFlags, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Statx,
    StatxFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::fault::{Barrier, Call, Safeguard, before, changed, durable, leaves_out};

/// What [`stat`] asks for: everything that tells one state of a file from another.
const IDENTITY: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Asks the plan, makes the call, and tells the plan that it is made. The call's value is an `io::Result`.
macro_rules! through {
    ($call:ident, $made:expr) => {{
        let verdict = before(Call::$call)?;
        #[allow(clippy::redundant_closure_call, reason = "what returns early within it returns to here")]
        let made = (|| -> io::Result<_> { $made })();
        verdict.made();
        made
    }};
}

/// [`through`] for a call that makes things durable, which a plan may leave out.
macro_rules! through_sync {
    ($call:ident, $barrier:expr, $made:expr, $durable:expr) => {{
        let verdict = before(Call::$call)?;
        let left_out = $barrier.is_some_and(|barrier| leaves_out(Safeguard::Barrier(barrier)));
        let made = if verdict.skip || left_out {
            Ok(())
        } else {
            $made.map_err(io::Error::from).inspect(|()| $durable)
        };
        verdict.made();
        made
    }};
}

/// Opens what `path` leads to beneath `root`, through no symbolic link: openat2(2) with RESOLVE_BENEATH and
/// RESOLVE_NO_SYMLINKS; one name after another where the kernel (before 5.6) or a seccomp filter has no openat2(2).
///
/// # Errors
/// `ELOOP` for a symbolic link on the way, `EXDEV` for a path that leads out; the kernel's otherwise.
pub fn open_beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    static LACKING: AtomicBool = AtomicBool::new(false);
    through!(Openat, {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if !LACKING.load(Ordering::Relaxed) {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let opened = loop {
                match fs::openat2(root, path, flags, mode, resolve) {
                    // AGAIN: a rename beside it; the kernel asks to be asked again.
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    opened => break opened,
                }
            };
            if !matches!(opened, Err(Errno::NOSYS | Errno::PERM)) {
                return Ok(opened?);
            }
            let opened = open_by_steps(root, path, flags, mode);
            // EPERM may be about this file; only a walk that succeeds tells that openat2 itself is what is lacking.
            LACKING.store(opened.is_ok(), Ordering::Relaxed);
            return opened;
        }
        open_by_steps(root, path, flags, mode)
    })
}

/// [`open_beneath`] without openat2(2): every name on the way is opened as a directory, and followed nowhere.
fn open_by_steps(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => {
                return Err(Errno::XDEV.into());
            }
        }
    }
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let last = names.pop().unwrap_or(OsStr::new("."));
    let mut at: Option<OwnedFd> = None;
    for name in names {
        let here = at.as_ref().map_or(root, |fd| fd.as_fd());
        at = Some(rustix::io::retry_on_intr(|| fs::openat(here, name, way, Mode::empty()))?);
    }
    let here = at.as_ref().map_or(root, |fd| fd.as_fd());
    Ok(rustix::io::retry_on_intr(|| fs::openat(here, last, flags | OFlags::NOFOLLOW, mode))?)
}

/// Opens a directory by its path as the user gave it, symbolic links and all, as any program would.
///
/// # Errors
/// The kernel's.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    through!(Openat, {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::io::retry_on_intr(|| fs::open(path, flags, Mode::empty()))?)
    })
}

/// Opens one name in a directory, which must not be a symbolic link.
///
/// # Errors
/// `ELOOP` for a symbolic link; the kernel's otherwise.
pub fn open_at(directory: BorrowedFd<'_>, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    if flags.contains(OFlags::CREATE) {
        changed(directory);
    }
    through!(Openat, {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::io::retry_on_intr(|| fs::openat(directory, name, flags, mode))?)
    })
}

/// A new file of a part. What an earlier attempt left under its name is removed, never written over: its pages may
/// be the ones whose fsync failed.
///
/// # Errors
/// A call that failed.
pub fn create(directory: BorrowedFd<'_>, name: &OsStr, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::CREATE | OFlags::EXCL;
    let mode = Mode::RUSR | Mode::WUSR;
    match open_at(directory, name, flags, mode) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::EXIST) => {
            remove_file(directory, name)?;
            open_at(directory, name, flags, mode)
        }
        opened => opened,
    }
}

/// Makes a directory.
///
/// # Errors
/// The kernel's.
pub fn make_directory(directory: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> io::Result<()> {
    changed(directory);
    through!(Mkdirat, Ok(fs::mkdirat(directory, name, mode)?))
}

/// The names in a directory, one after another, with the kinds that the file system gives.
pub struct List(Dir);

impl List {
    /// Of an open directory, from its beginning.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Self> {
        through!(Getdents, Ok(Self(Dir::read_from(directory)?)))
    }

    /// The next, without `.` and `..`.
    ///
    /// # Errors
    /// The kernel's.
    #[allow(clippy::should_implement_trait, reason = "it fails")]
    pub fn next(&mut self) -> io::Result<Option<(std::ffi::OsString, FileType)>> {
        while let Some(entry) = self.0.read() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                return Ok(Some((OsStr::from_bytes(name).to_owned(), entry.file_type())));
            }
        }
        Ok(None)
    }
}

/// All the names in a directory that is known to be small, with their kinds.
///
/// # Errors
/// The kernel's.
pub fn list(directory: BorrowedFd<'_>) -> io::Result<Vec<(std::ffi::OsString, FileType)>> {
    let mut list = List::of(directory)?;
    let mut names = Vec::new();
    while let Some(name) = list.next()? {
        names.push(name);
    }
    Ok(names)
}

/// What an open file is.
///
/// # Errors
/// The kernel's.
pub fn stat(file: BorrowedFd<'_>) -> io::Result<Statx> {
    through!(Statx, Ok(fs::statx(file, "", AtFlags::EMPTY_PATH, IDENTITY)?))
}

/// What a name in a directory is; of a symbolic link, the link.
///
/// # Errors
/// The kernel's.
pub fn stat_at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Statx> {
    through!(Statx, Ok(fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, IDENTITY)?))
}

/// [`stat_at`] as it is now: a network file system is asked, whatever its client has cached.
///
/// # Errors
/// The kernel's.
pub fn stat_now(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    through!(Statx, Ok(fs::statx(directory, name, flags, IDENTITY)?))
}

/// Reserves room, so that a full disk is met before a byte is copied. File systems that cannot are left alone.
///
/// # Errors
/// `ENOSPC`, `EDQUOT`, and what else the kernel has.
pub fn reserve(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    through!(Fallocate, {
        match rustix::io::retry_on_intr(|| fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    })
}

/// Sets a file's length.
///
/// # Errors
/// The kernel's.
pub fn truncate(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    changed(file);
    through!(Ftruncate, Ok(rustix::io::retry_on_intr(|| fs::ftruncate(file, bytes))?))
}

/// Reads at an offset until the buffer is full or the file ends; the bytes read.
///
/// # Errors
/// The kernel's.
pub fn read_at(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let verdict = before(Call::Read);
        let read = verdict.and_then(|verdict| {
            let most = verdict.short.map_or(usize::MAX, |short| short.max(1)).min(buffer.len() - done);
            let read = rustix::io::pread(file, &mut buffer[done..done + most], offset + done as u64);
            verdict.made();
            read
        });
        match read {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Writes all of the buffer at an offset.
///
/// # Errors
/// The kernel's; `EIO` for a write that moves nothing.
pub fn write_at(file: BorrowedFd<'_>, buffer: &[u8], offset: u64) -> io::Result<()> {
    changed(file);
    let mut done = 0;
    while done < buffer.len() {
        let verdict = before(Call::Write);
        let written = verdict.and_then(|verdict| {
            let most = verdict.short.map_or(usize::MAX, |short| short.max(1)).min(buffer.len() - done);
            let written = rustix::io::pwrite(file, &buffer[done..done + most], offset + done as u64);
            verdict.made();
            written
        });
        match written {
            Ok(0) => return Err(Errno::IO.into()),
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes a file's data durable, and what is needed to read it. An error here is final for this file: the kernel
/// has dropped what it could not write, and the next call would say that all is well.
///
/// # Errors
/// The kernel's, `EINTR` included.
pub fn sync_data(file: BorrowedFd<'_>, barrier: Barrier) -> io::Result<()> {
    let made =
        counted((|| through_sync!(Fdatasync, Some(barrier), fs::fdatasync(file), durable(file, false)))());
    crate::fault::synced(file, made.is_err());
    made
}

/// Makes a file or a directory durable. An error here is final, as with [`sync_data`].
///
/// # Errors
/// The kernel's, `EINTR` included.
pub fn sync(file: BorrowedFd<'_>, barrier: Barrier) -> io::Result<()> {
    fsync(file, Some(barrier))
}

/// [`sync`] of what is not on the path of a move: pools, triggers, a store's own directories.
///
/// # Errors
/// The kernel's, `EINTR` included.
pub fn sync_outside_move(file: BorrowedFd<'_>) -> io::Result<()> {
    fsync(file, None)
}

pub(crate) fn fsync(file: BorrowedFd<'_>, barrier: Option<Barrier>) -> io::Result<()> {
    let made = counted((|| through_sync!(Fsync, barrier, fs::fsync(file), durable(file, false)))());
    crate::fault::synced(file, made.is_err());
    made
}

/// Makes a whole file system durable, and tells whether anything written to it since `file` was opened was lost
/// (Linux 5.8, syncfs(2)).
///
/// # Errors
/// The kernel's.
pub fn sync_file_system(file: BorrowedFd<'_>, barrier: Barrier) -> io::Result<()> {
    file_system(file, Some(barrier))
}

/// [`sync_file_system`] of what is not on the path of a move.
///
/// # Errors
/// The kernel's.
pub fn sync_file_system_outside_move(file: BorrowedFd<'_>) -> io::Result<()> {
    file_system(file, None)
}

fn file_system(file: BorrowedFd<'_>, barrier: Option<Barrier>) -> io::Result<()> {
    counted((|| through_sync!(Syncfs, barrier, fs::syncfs(file), durable(file, true)))())
}

static FAILED_SYNCS: AtomicU64 = AtomicU64::new(0);

/// How many calls that make things durable have failed in this process, for metrics.
#[must_use]
pub fn failed_syncs() -> u64 {
    FAILED_SYNCS.load(Ordering::Relaxed)
}

fn counted(made: io::Result<()>) -> io::Result<()> {
    made.inspect_err(|_| {
        FAILED_SYNCS.fetch_add(1, Ordering::Relaxed);
    })
}

/// Has the kernel begin to write a file's dirty pages, without waiting for them (sync_file_range(2)). It paces, and
/// vouches for nothing, so that a failure is nobody's concern: the sync that follows has it.
pub fn begin_writeback(file: BorrowedFd<'_>) {
    if before(Call::SyncFileRange).is_ok() {
        let _ = storage::cache::begin_writeback(file);
    }
}

/// Sets owner and group.
///
/// # Errors
/// The kernel's.
pub fn set_owner(file: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    changed(file);
    through!(Fchown, Ok(fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?))
}

/// Sets the owner and group of a name, of a symbolic link those of the link.
///
/// # Errors
/// The kernel's.
pub fn set_owner_at(directory: BorrowedFd<'_>, name: &OsStr, uid: u32, gid: u32) -> io::Result<()> {
    changed(directory);
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    through!(Fchown, Ok(fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Sets the permission bits.
///
/// # Errors
/// The kernel's.
pub fn set_mode(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    changed(file);
    through!(Fchmod, Ok(fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777))?))
}

/// Sets the permission bits of what a descriptor of O_PATH leads to: chmod(2) by `/proc/self/fd`, which is no name that
/// others can give to something else.
///
/// # Errors
/// The kernel's; `ENOENT` where there is no `/proc`.
pub fn set_mode_of_path(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    through!(Fchmod, Ok(fs::chmod(path, Mode::from_raw_mode(mode & 0o7777))?))
}

/// Sets the times of last access and modification, each seconds and nanoseconds.
///
/// # Errors
/// The kernel's.
pub fn set_times(file: BorrowedFd<'_>, accessed: (i64, u32), modified: (i64, u32)) -> io::Result<()> {
    changed(file);
    through!(Utimens, Ok(fs::futimens(file, &timestamps(accessed, modified))?))
}

/// Sets the times of a name, of a symbolic link those of the link.
///
/// # Errors
/// The kernel's.
pub fn set_times_at(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    accessed: (i64, u32),
    modified: (i64, u32),
) -> io::Result<()> {
    changed(directory);
    let times = timestamps(accessed, modified);
    through!(Utimens, Ok(fs::utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)?))
}

fn timestamps(accessed: (i64, u32), modified: (i64, u32)) -> Timestamps {
    let time =
        |(seconds, nanoseconds): (i64, u32)| Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) };
    Timestamps { last_access: time(accessed), last_modification: time(modified) }
}

/// Gives a file or directory its name within one directory, over nothing; see [`publish_into`].
///
/// # Errors
/// `EEXIST` where the name is taken.
pub fn publish(directory: BorrowedFd<'_>, part: &OsStr, name: &OsStr) -> io::Result<()> {
    publish_into(directory, part, directory, name)
}

/// Renames within one file system, over nothing: renameat2(2) with RENAME_NOREPLACE. File systems without it (NFS,
/// Lustre) answer EINVAL; there a file is linked to its name and unlinked from the old one, and a directory is renamed
/// over an empty directory that claims the name. In both cases the kernel, not a look beforehand, decides who gets it.
///
/// # Errors
/// `EEXIST` where the name is taken.
pub fn publish_into(
    from: BorrowedFd<'_>,
    part: &OsStr,
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> io::Result<()> {
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
    // A server that answers a request for the second time, because its first reply was lost, says EEXIST or ENOENT of
    // what it has done itself. What the name leads to decides.
    published.or_else(|error| {
        let found = stat_at(directory, name);
        if found.is_ok_and(|found| same_file(&found, &stat)) {
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
        // Without links nothing is left but to look first, as docs/faults.md says.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK)
            ) =>
        {
            match stat_at(directory, name) {
                Ok(_) => Err(Errno::EXIST.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    through!(Renameat, Ok(fs::renameat(from, part, directory, name)?))
                }
                Err(error) => Err(error),
            }
        }
        linked => linked.and_then(|()| remove_if_there(from, part)),
    }
}

/// Mode of a directory that claims a name: only its owner's, and sticky, which a directory of one user never needs.
const CLAIM_MODE: Mode = Mode::RWXU.union(Mode::SVTX);

/// Is this name held by a claim? One that a crash left is taken over; if another mover still wants it, the one that
/// renames first fills it, and the rename of the other fails with ENOTEMPTY.
///
/// # Errors
/// Fails if the name cannot be looked up.
pub fn is_claim(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    match stat_at(directory, name) {
        Ok(stat) => {
            let mode: u32 = stat.stx_mode.into();
            let bits = Mode::RWXU | Mode::RWXG | Mode::RWXO | Mode::SVTX;
            Ok(FileType::from_raw_mode(mode) == FileType::Directory
                && Mode::from_raw_mode(mode) & bits == CLAIM_MODE)
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
    let renamed: io::Result<()> = (|| through!(Renameat, Ok(fs::renameat(from, part, directory, name)?)))();
    renamed.map_err(|error| match Errno::from_io_error(&error) {
        // The claim has been filled, or replaced by a file.
        Some(Errno::NOTEMPTY | Errno::NOTDIR) => Errno::EXIST.into(),
        _ => {
            release_claim(directory, name);
            error
        }
    })
}

/// Renames within one directory, over what has the name already: for names that point, as `latest` does.
///
/// # Errors
/// The kernel's.
pub fn replace(directory: BorrowedFd<'_>, part: &OsStr, name: &OsStr) -> io::Result<()> {
    changed(directory);
    through!(Renameat, Ok(fs::renameat(directory, part, directory, name)?))
}

/// Removes a name that is not a directory.
///
/// # Errors
/// The kernel's.
pub fn remove_file(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    through!(Unlinkat, Ok(fs::unlinkat(directory, name, AtFlags::empty())?)).inspect(|()| changed(directory))
}

/// Removes an empty directory.
///
/// # Errors
/// `ENOTEMPTY`, and what else the kernel has.
pub fn remove_directory(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    through!(Unlinkat, Ok(fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?))
        .inspect(|()| changed(directory))
}

/// Makes another name for a file, beneath the same root.
///
/// # Errors
/// The kernel's.
pub fn link(from: BorrowedFd<'_>, old: &OsStr, to: BorrowedFd<'_>, new: &OsStr) -> io::Result<()> {
    changed(to);
    through!(Linkat, Ok(fs::linkat(from, old, to, new, AtFlags::empty())?))
}

/// Makes a symbolic link.
///
/// # Errors
/// The kernel's.
pub fn symlink(target: &OsStr, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    changed(directory);
    through!(Symlinkat, Ok(fs::symlinkat(target, directory, name)?))
}

/// Where a symbolic link leads.
///
/// # Errors
/// The kernel's.
pub fn read_link(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<std::ffi::OsString> {
    Ok(OsStr::from_bytes(fs::readlinkat(directory, name, Vec::new())?.to_bytes()).to_owned())
}

/// The names of a file's extended attributes.
///
/// # Errors
/// The kernel's; a file system without any has none.
pub fn attributes(file: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    through!(Getxattr, {
        let mut room = vec![0_u8; 256];
        loop {
            match fs::flistxattr(file, &mut room[..]) {
                Ok(bytes) => {
                    let names = room[..bytes].split(|byte| *byte == 0).filter(|name| !name.is_empty());
                    return Ok(names.map(<[u8]>::to_vec).collect());
                }
                Err(Errno::RANGE) if room.len() < 1 << 20 => room.resize(room.len() * 8, 0),
                Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
                Err(error) => return Err(error.into()),
            }
        }
    })
}

/// The value of an extended attribute, if it is still there.
///
/// # Errors
/// The kernel's.
pub fn attribute(file: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    through!(Getxattr, {
        let mut room = vec![0_u8; 256];
        loop {
            match fs::fgetxattr(file, name, &mut room[..]) {
                Ok(bytes) => {
                    room.truncate(bytes);
                    return Ok(Some(room));
                }
                Err(Errno::RANGE) if room.len() < 1 << 20 => room.resize(room.len() * 8, 0),
                Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    })
}

/// Sets an extended attribute.
///
/// # Errors
/// The kernel's.
pub fn set_attribute(file: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> io::Result<()> {
    changed(file);
    through!(Setxattr, Ok(fs::fsetxattr(file, name, value, XattrFlags::empty())?))
}
