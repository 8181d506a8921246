//! Regular files.
//!
//! Opening to read changes nothing, not even the access time where that is permitted. Opening to write
//! happens only to a file that flashwright laid ([`super::mark`]) or that holds nothing ([`super::contents`]), and that
//! is no member of a volume; or to one that the user has given up by name; and
//! never to one that is swapped to or is a loop device's backing file. A new file is made under a
//! name that did not exist (`O_EXCL`, `O_NOFOLLOW`), with its space reserved at once, so that a full disk shows
//! now and not in the middle of a run; if anything fails after that, the name is gone again.

use std::fs::{File, OpenOptions as FsOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::channel::{AlignedBuffer, Channel, answered_by_channel};
use super::sys::{self, Status};
use super::{
    Access, Device, DeviceKind, Geometry, OpenError, OpenOptions, ZeroOptions, contents, failed, mark,
    open_error,
};
use crate::safety;
use crate::sysfs::{DeviceNumber, Sysfs};

/// An open regular file.
#[derive(Debug)]
pub(crate) struct FileDevice {
    spec: String,
    path: PathBuf,
    channel: Channel,
}

/// Opens the regular file at `path`, of which `status` was seen; only its first `limit` bytes, where
/// there is a limit.
pub(crate) fn open_existing(
    spec: String,
    path: &Path,
    status: &Status,
    limit: Option<u64>,
    options: &OpenOptions,
) -> Result<FileDevice, OpenError> {
    let actual = status.size;
    if let Some(asked) = limit.filter(|asked| *asked > actual) {
        return Err(OpenError::SizeMismatch { path: path.to_owned(), asked, actual });
    }
    if options.access.writes() {
        permit_overwriting(path, status, options)?;
    }
    let file = open_file(path, options)?;
    let opened = sys::status(file.as_fd()).map_err(|e| failed(path, "statx", e))?;
    if !opened.is_same_file(status) || opened.file_type() != libc::S_IFREG {
        return Err(OpenError::Replaced { path: path.to_owned() });
    }
    let size = limit.unwrap_or(opened.size);
    FileDevice::assemble(spec, path, file, size, options)
}

/// Makes a regular file of `size` bytes at `path`, where nothing was.
pub(crate) fn create(
    spec: String,
    path: &Path,
    size: u64,
    options: &OpenOptions,
) -> Result<FileDevice, OpenError> {
    let no_space = |source: Option<io::Error>| OpenError::NoSpace {
        path: path.to_owned(),
        asked: size,
        available: sys::space(parent(path)).map_or(0, |(free, _)| free),
        source,
    };
    // Growing beyond this limit is answered by a signal that kills the process, not by an error.
    if sys::limit(libc::RLIMIT_FSIZE).is_ok_and(|(soft, _)| size > soft) {
        return Err(no_space(Some(io::Error::from_raw_os_error(libc::EFBIG))));
    }
    let file = FsOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => OpenError::Replaced { path: path.to_owned() },
            io::ErrorKind::NotFound => OpenError::NoDirectory { path: parent(path).to_owned() },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => no_space(Some(error)),
            _ => open_error(path, Access::ReadWrite, error),
        })?;
    let debris = Debris::of(&file, path);
    reserve(&file, path, size).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => no_space(Some(error)),
        _ => failed(path, "fallocate", error),
    })?;
    mark::set(file.as_fd());
    if options.direct {
        sys::set_direct(file.as_fd()).map_err(|error| direct_error(path, error))?;
    }
    let device = FileDevice::assemble(spec, path, file, size, options)?;
    debris.keep();
    Ok(device)
}

/// The directory of a path.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the file `size` bytes long, with the space for it set aside.
pub(super) fn reserve(file: &File, path: &Path, size: u64) -> io::Result<()> {
    match sys::allocate(file.as_fd(), size) {
        // No such call on this file system: the best that can be known is whether it would fit now.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
            let (free, _) = sys::space(path)?;
            if size > free {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            file.set_len(size)
        }
        result => result,
    }
}

/// Removes a file that was made in vain, unless [`kept`](Debris::keep).
struct Debris<'a> {
    path: &'a Path,
    status: Option<Status>,
}

impl<'a> Debris<'a> {
    fn of(file: &File, path: &'a Path) -> Self {
        Self { path, status: sys::status(file.as_fd()).ok() }
    }

    fn keep(mut self) {
        self.status = None;
    }
}

impl Drop for Debris<'_> {
    fn drop(&mut self) {
        let Some(made) = self.status else { return };
        // The name may stand for another file by now, which is not ours to remove.
        if sys::status_of_path(self.path).is_ok_and(|now| now.is_same_file(&made)) {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// Refuses to write over what may be somebody's data.
fn permit_overwriting(path: &Path, status: &Status, options: &OpenOptions) -> Result<(), OpenError> {
    let obstacles = safety::file_obstacles(&Sysfs::host(), path, status);
    if !obstacles.is_empty() {
        return Err(safety::Refusal::new(path, obstacles).into());
    }
    let named = options
        .destroy
        .iter()
        .any(|name| sys::status_of_path(name).is_ok_and(|named| named.is_same_file(status)));
    if named || status.size == 0 {
        return Ok(());
    }
    // Reading the mark needs a descriptor; this one cannot change anything.
    let probe = File::open(path).map_err(|e| open_error(path, Access::ReadWrite, e))?;
    let probed = sys::status(probe.as_fd()).map_err(|e| failed(path, "statx", e))?;
    // Its own data are nowhere near the label of a volume, so the mark of a scratch file says nothing of them.
    let member = safety::is_member(&probe, probed.size).map_err(|e| failed(path, "reading signatures", e))?;
    if let Some(member) = member {
        return Err(safety::Refusal::new(path, vec![safety::Obstacle::Signature(member)]).into());
    }
    let worthless = || contents::are_worthless(&probe, status.size).unwrap_or(false);
    if probed.is_same_file(status) && (mark::is_set(probe.as_fd()) || worthless()) {
        return Ok(());
    }
    Err(OpenError::WouldOverwrite { path: path.to_owned(), size: status.size })
}

fn open_file(path: &Path, options: &OpenOptions) -> Result<File, OpenError> {
    let direct = if options.direct { libc::O_DIRECT } else { 0 };
    let open = |flags: i32| {
        FsOptions::new()
            .read(true)
            .write(options.access.writes())
            .custom_flags(flags | options.sync.flag() | libc::O_NOCTTY)
            .open(path)
    };
    // O_NOATIME is for owners and CAP_FOWNER; without it, reads merely touch the access time.
    let result = match open(direct | libc::O_NOATIME) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => open(direct),
        result => result,
    };
    result.map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) if options.direct => direct_error(path, error),
        _ => open_error(path, options.access, error),
    })
}

/// What EINVAL means when O_DIRECT was asked for.
fn direct_error(path: &Path, error: io::Error) -> OpenError {
    if error.raw_os_error() == Some(libc::EINVAL) {
        let reason = "the file system refuses O_DIRECT";
        return OpenError::DirectUnsupported { path: path.to_owned(), reason };
    }
    failed(path, "O_DIRECT", error)
}

impl FileDevice {
    fn assemble(
        spec: String,
        path: &Path,
        file: File,
        size: u64,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let status = sys::status(file.as_fd()).map_err(|e| failed(path, "statx", e))?;
        let geometry = geometry(path, &file, &status, options.direct)?;
        let block = u64::from(geometry.logical_block);
        let usable = size - size % block;
        if usable == 0 {
            return Err(OpenError::TooSmall { path: path.to_owned(), size, needed: block });
        }
        let channel = Channel {
            file,
            geometry,
            direct: options.direct,
            writable: options.access.writes(),
            size: usable,
        };
        Ok(Self { spec, path: path.to_owned(), channel })
    }
}

fn geometry(path: &Path, file: &File, status: &Status, direct: bool) -> Result<Geometry, OpenError> {
    let physical_block = Sysfs::host()
        .queue(DeviceNumber::from(status.device))
        .map_or(4096, |queue| queue.physical_block_bytes.max(1));
    if !direct {
        return Ok(Geometry { logical_block: 1, physical_block, memory_alignment: 1 });
    }
    let (memory_alignment, logical_block) = match status.direct {
        Some((0, _) | (_, 0)) => {
            let reason = "the file system says that this file has no direct I/O";
            return Err(OpenError::DirectUnsupported { path: path.to_owned(), reason });
        }
        Some(alignment) => alignment,
        None => probe_alignment(file, status.size),
    };
    let physical_block = physical_block.max(logical_block);
    Ok(Geometry { logical_block, physical_block, memory_alignment })
}

/// Block sizes and alignments that are tried where the file system does not say which it wants.
const TRIED: [u32; 6] = [512, 1024, 2048, 4096, 8192, 65_536];

/// What direct reads of this file need, found by reading: the smallest block at an offset of that
/// block, and then the smallest memory alignment, which the kernel takes. Reads change nothing; a file
/// too short to be read from gets a page for both, which every file system takes that takes any.
fn probe_alignment(file: &File, size: u64) -> (u32, u32) {
    let page = 4096;
    let largest = *TRIED.last().unwrap_or(&page) as usize;
    let mut buffer = AlignedBuffer::zeroed(2 * largest, largest);
    let mut takes = |skip: usize, block: u32| {
        let length = block as usize;
        size >= 2 * u64::from(block)
            && file.read_at(&mut buffer[skip..skip + length], u64::from(block)).is_ok()
    };
    let Some(block) = TRIED.into_iter().find(|block| takes(0, *block)) else {
        return (page, page);
    };
    // Multiples of 512 only: devices differ in what they take below, and the next file of this file
    // system may lie on another.
    let memory = TRIED.into_iter().find(|a| *a <= page && takes(*a as usize, block));
    (memory.unwrap_or(page), block)
}

impl Device for FileDevice {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::File
    }

    answered_by_channel!();

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.channel.check_discard(offset, length)?;
        if length == 0 { Ok(()) } else { sys::punch_hole(self.fd(), offset, length) }
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: ZeroOptions) -> io::Result<()> {
        self.channel.write_zeroes(offset, length, how, false)
    }
}
