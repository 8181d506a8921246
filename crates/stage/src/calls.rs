//! The system calls of a move, each in one place, each behind [`crate::fault`].
//!
//! Nothing below a root is ever reached by a path from `/`: names are resolved from a descriptor, beneath it, and
//! through no symbolic link ([`open_beneath`], openat2(2)), so that a user who can write to a tree cannot lead a move
//! out of it. Calls that take one name take it relative to the descriptor of its directory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{
    self, AtFlags, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Statx, StatxFlags,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::fault::{Barrier, Call, Moment, before, changed, comes_to, durable, leaves_out_sync, path_at};
use crate::fs_kind;

/// What [`stat`] asks for: everything that tells one state of a file from another, and its mount.
const IDENTITY: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

/// Makes a call as the plan has it, and notes in the plan that it was made. The call's value is an `io::Result`.
macro_rules! planned {
    ($call:ident, $made:expr) => {{
        let verdict = before(Call::$call)?;
        #[allow(clippy::redundant_closure_call, reason = "what returns early within it returns to here")]
        let made = (|| -> io::Result<_> { $made })();
        verdict.made();
        made
    }};
}

/// [`planned`] for a call that makes data durable, which a plan may leave out.
macro_rules! planned_sync {
    ($call:ident, $barrier:expr, $made:expr, $file:expr, $all:expr) => {{
        let verdict = before(Call::$call)?;
        let left_out = $barrier.is_some_and(|barrier| leaves_out_sync(barrier, $file, $all));
        let made = if verdict.skip || left_out {
            Ok(())
        } else {
            $made.map_err(io::Error::from).inspect(|()| durable($file, $all))
        };
        verdict.made();
        made
    }};
}

mod publish;

pub use publish::{is_claim, publish, publish_into, release_claim};

/// Bytes of a path that system calls take, the terminating NUL included: PATH_MAX of limits.h.
const PATH_MAX: usize = 4096;

/// How long a file is waited for on which another process has a lease. The kernel ends a lease that is not given up after
/// `/proc/sys/fs/lease-break-time` (45 s).
const LEASE_PATIENCE: Duration = Duration::from_secs(60);

/// Opens what `path` leads to beneath `root`, through no symbolic link: openat2(2) with RESOLVE_BENEATH and
/// RESOLVE_NO_SYMLINKS; one name after another where the kernel (before 5.6) or a seccomp filter has no openat2(2). A path
/// longer than PATH_MAX is taken in pieces.
///
/// # Errors
/// `ELOOP` for a symbolic link on the way, `EXDEV` for a path that leads out.
pub fn open_beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    open_within(root, path, flags, mode, LEASE_PATIENCE)
}

/// [`open_beneath`] that does not wait for a lease.
///
/// # Errors
/// As [`open_beneath`]; `WouldBlock` with [`OFlags::NONBLOCK`] while another process has a lease on the file, which the kernel
/// has asked it to give up, and where a rename beside the path has the kernel ask for another attempt.
pub fn try_open_beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    open_within(root, path, flags, mode, Duration::ZERO)
}

/// [`open_beneath`] that waits so long for another process to give up its lease.
fn open_within(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    patience: Duration,
) -> io::Result<OwnedFd> {
    let until = Instant::now() + patience;
    planned!(Openat, {
        loop {
            match open_in_pieces(root, path, flags, mode) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => break opened,
            }
        }
    })
}

/// [`open_beneath`], once. A system call takes no longer path than PATH_MAX: what it leads to is reached a piece at a time.
fn open_in_pieces(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let (mut left, mut at) = (path.as_os_str().as_bytes(), None::<OwnedFd>);
    while left.len() >= PATH_MAX {
        let cut = left[..PATH_MAX - 1].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let here = at.as_ref().map_or(root, |fd| fd.as_fd());
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let below = open_piece(here, Path::new(OsStr::from_bytes(&left[..cut])), way, Mode::empty())?;
        (at, left) = (Some(below), &left[cut + 1..]);
    }
    let here = at.as_ref().map_or(root, |fd| fd.as_fd());
    open_piece(here, Path::new(OsStr::from_bytes(left)), flags, mode)
}

/// [`open_beneath`] of a path that a system call takes, once.
fn open_piece(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    static LACKING: AtomicBool = AtomicBool::new(false);
    if LACKING.load(Ordering::Relaxed) {
        return open_by_steps(root, path, flags, mode);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::io::retry_on_intr(|| fs::openat2(root, path, flags, mode, resolve));
    if !matches!(opened, Err(Errno::NOSYS | Errno::PERM)) {
        return Ok(opened?);
    }
    let opened = open_by_steps(root, path, flags, mode);
    // EPERM may be about this file; only a walk that succeeds tells that openat2 itself is what is lacking.
    LACKING.store(opened.is_ok(), Ordering::Relaxed);
    opened
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

/// Does the error say that there is nothing at a path, or nothing that can be reached without following a link? Any other
/// error says nothing of what is there.
#[must_use]
pub fn is_not_there(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Opens a directory by its path as the user gave it, symbolic links and all, as any program would.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    planned!(Openat, {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::io::retry_on_intr(|| fs::open(path, flags, Mode::empty()))?)
    })
}

/// Opens one name in a directory, which must not be a symbolic link.
///
/// # Errors
/// `ELOOP` for a symbolic link.
pub fn open_at(directory: BorrowedFd<'_>, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    if flags.contains(OFlags::CREATE) {
        changed(directory);
    }
    planned!(Openat, {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::io::retry_on_intr(|| fs::openat(directory, name, flags, mode))?)
    })
}

/// A new file of a part. What an earlier attempt left under its name is removed, never written over: its pages may
/// be the ones whose fsync failed.
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
pub fn make_directory(directory: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> io::Result<()> {
    changed(directory);
    planned!(Mkdirat, Ok(fs::mkdirat(directory, name, mode)?))
}

/// The names in a directory, one after another, with the kinds that the file system gives.
pub struct List(Dir);

impl List {
    /// Of an open directory, from its beginning.
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Self> {
        planned!(Getdents, Ok(Self(Dir::read_from(directory)?)))
    }

    /// The next, without `.` and `..`.
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
pub fn list(directory: BorrowedFd<'_>) -> io::Result<Vec<(std::ffi::OsString, FileType)>> {
    let mut list = List::of(directory)?;
    let mut names = Vec::new();
    while let Some(name) = list.next()? {
        names.push(name);
    }
    Ok(names)
}

/// What an open file is.
pub fn stat(file: BorrowedFd<'_>) -> io::Result<Statx> {
    planned!(Statx, Ok(fs::statx(file, "", AtFlags::EMPTY_PATH, IDENTITY)?))
}

/// What a name in a directory is; of a symbolic link, the link.
pub fn stat_at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Statx> {
    planned!(Statx, Ok(fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, IDENTITY)?))
}

/// [`stat_at`] as it is now: a network file system is asked, whatever its client has cached.
pub fn stat_now(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    planned!(Statx, Ok(fs::statx(directory, name, flags, IDENTITY)?))
}

/// Reserves room, so that a full disk is met before a byte is copied. File systems that cannot are left alone.
pub fn reserve(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    planned!(Fallocate, {
        match rustix::io::retry_on_intr(|| fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    })
}

/// Sets a file's length.
pub fn truncate(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    changed(file);
    planned!(Ftruncate, Ok(rustix::io::retry_on_intr(|| fs::ftruncate(file, bytes))?))
}

/// Reads at an offset until the buffer is full or the file ends; the bytes read.
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
/// `EIO` for a write that moves nothing.
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
pub fn sync_data(file: BorrowedFd<'_>, barrier: Barrier) -> io::Result<()> {
    noted(file, (|| planned_sync!(Fdatasync, Some(barrier), fs::fdatasync(file), file, false))())
}

/// Makes a file or a directory durable. An error here is final, as with [`sync_data`].
pub fn sync(file: BorrowedFd<'_>, barrier: Barrier) -> io::Result<()> {
    fsync(file, Some(barrier))
}

/// [`sync`] of a source. A file system that is read-only and has no fsync(2), such as squashfs, has nothing to sync: it
/// answers EINVAL. An error of one that has fsync(2) counts on a read-only mount as well.
pub fn sync_source(file: BorrowedFd<'_>, barrier: Barrier) -> io::Result<()> {
    let made = match plain_fsync(file, Some(barrier)) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) && fs_kind::is_read_only(file) => {
            Ok(())
        }
        made => made,
    };
    noted(file, made)
}

/// [`sync`] of what is not on the path of a move: pools, triggers, a store's own directories.
pub fn sync_outside_move(file: BorrowedFd<'_>) -> io::Result<()> {
    fsync(file, None)
}

pub(crate) fn fsync(file: BorrowedFd<'_>, barrier: Option<Barrier>) -> io::Result<()> {
    noted(file, plain_fsync(file, barrier))
}

/// fsync(2), of whose failure nothing is noted.
fn plain_fsync(file: BorrowedFd<'_>, barrier: Option<Barrier>) -> io::Result<()> {
    planned_sync!(Fsync, barrier, fs::fsync(file), file, false)
}

/// Makes a whole file system durable, and tells whether anything written to it since `file` was opened was lost
/// (Linux 5.8, syncfs(2)).
pub fn sync_file_system(file: BorrowedFd<'_>, barrier: Barrier) -> io::Result<()> {
    file_system(file, Some(barrier))
}

/// [`sync_file_system`] of what is not on the path of a move.
pub fn sync_file_system_outside_move(file: BorrowedFd<'_>) -> io::Result<()> {
    file_system(file, None)
}

fn file_system(file: BorrowedFd<'_>, barrier: Option<Barrier>) -> io::Result<()> {
    counted((|| planned_sync!(Syncfs, barrier, fs::syncfs(file), file, true))())
}

static FAILED_SYNCS: AtomicU64 = AtomicU64::new(0);

/// How many calls that make things durable have failed in this process, for metrics.
#[must_use]
pub fn failed_syncs() -> u64 {
    FAILED_SYNCS.load(Ordering::Relaxed)
}

/// Notes a sync of one file in the plan.
fn noted(file: BorrowedFd<'_>, made: io::Result<()>) -> io::Result<()> {
    crate::fault::synced(file, made.is_err());
    counted(made)
}

fn counted(made: io::Result<()>) -> io::Result<()> {
    made.inspect_err(|_| {
        FAILED_SYNCS.fetch_add(1, Ordering::Relaxed);
    })
}

/// Has the kernel begin to write a file's dirty pages, without waiting for them (sync_file_range(2)). It makes
/// nothing durable, so a failure is ignored: the sync that follows reports it.
pub fn begin_writeback(file: BorrowedFd<'_>) {
    if before(Call::SyncFileRange).is_ok() {
        let _ = storage::cache::begin_writeback(file);
    }
}

/// Sets owner and group.
pub fn set_owner(file: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    changed(file);
    planned!(Fchown, Ok(fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?))
}

/// Sets the owner and group of a name, of a symbolic link those of the link.
pub fn set_owner_at(directory: BorrowedFd<'_>, name: &OsStr, uid: u32, gid: u32) -> io::Result<()> {
    changed(directory);
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    planned!(Fchown, Ok(fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Sets the permission bits.
pub fn set_mode(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    changed(file);
    planned!(Fchmod, Ok(fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777))?))
}

/// Sets the permission bits of what a descriptor of O_PATH leads to.
pub fn set_mode_of_path(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    changed(file);
    planned!(Fchmod, storage::mode::set_of_path(file, mode))
}

/// Sets the times of last access and modification, each seconds and nanoseconds.
pub fn set_times(file: BorrowedFd<'_>, accessed: (i64, u32), modified: (i64, u32)) -> io::Result<()> {
    changed(file);
    planned!(Utimens, Ok(fs::futimens(file, &timestamps(accessed, modified))?))
}

/// Sets the times of a name, of a symbolic link those of the link.
pub fn set_times_at(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    accessed: (i64, u32),
    modified: (i64, u32),
) -> io::Result<()> {
    changed(directory);
    let times = timestamps(accessed, modified);
    planned!(Utimens, Ok(fs::utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)?))
}

fn timestamps(accessed: (i64, u32), modified: (i64, u32)) -> Timestamps {
    let time =
        |(seconds, nanoseconds): (i64, u32)| Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) };
    Timestamps { last_access: time(accessed), last_modification: time(modified) }
}

/// Renames within one directory, over what has the name already: for names that point, as `latest` does.
pub fn replace(directory: BorrowedFd<'_>, part: &OsStr, name: &OsStr) -> io::Result<()> {
    changed(directory);
    planned!(Renameat, Ok(fs::renameat(directory, part, directory, name)?))
}

/// Removes a name that is not a directory.
pub fn remove_file(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    comes_to(Moment::Removed, || vec![path_at(directory, name)]);
    remove_probe(directory, name)
}

/// Removes an empty file that the caller has made just now: no data go with it.
pub fn remove_probe(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    planned!(Unlinkat, Ok(fs::unlinkat(directory, name, AtFlags::empty())?)).inspect(|()| changed(directory))
}

/// Removes an empty directory.
///
/// # Errors
/// `ENOTEMPTY`, and what else the kernel has.
pub fn remove_directory(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    comes_to(Moment::Removed, || vec![path_at(directory, name)]);
    planned!(Unlinkat, Ok(fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?))
        .inspect(|()| changed(directory))
}

/// Makes another name for a file, beneath the same root.
pub fn link(from: BorrowedFd<'_>, old: &OsStr, to: BorrowedFd<'_>, new: &OsStr) -> io::Result<()> {
    changed(to);
    planned!(Linkat, Ok(fs::linkat(from, old, to, new, AtFlags::empty())?))
}

/// Makes a symbolic link.
pub fn symlink(target: &OsStr, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    changed(directory);
    planned!(Symlinkat, Ok(fs::symlinkat(target, directory, name)?))
}

/// Where a symbolic link leads.
pub fn read_link(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<std::ffi::OsString> {
    Ok(OsStr::from_bytes(fs::readlinkat(directory, name, Vec::new())?.to_bytes()).to_owned())
}

/// The names of a file's extended attributes.
pub fn attributes(file: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    planned!(Getxattr, {
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
pub fn attribute(file: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    planned!(Getxattr, {
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
pub fn set_attribute(file: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> io::Result<()> {
    changed(file);
    planned!(Setxattr, Ok(fs::fsetxattr(file, name, value, XattrFlags::empty())?))
}
