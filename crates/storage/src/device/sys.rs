//! The system calls that the standard library does not offer, each in a safe wrapper where that is
//! possible. `-1` becomes an [`io::Error`] here and nowhere else.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// `_IO(0x12, n)`; libc has one of the family, which brings each architecture's encoding along
/// (linux/fs.h: BLKSSZGET is `_IO(0x12, 104)`).
const fn block_ioctl(number: u8) -> libc::Ioctl {
    libc::BLKSSZGET - 104 + number as libc::Ioctl
}

/// linux/fs.h: `_IO(0x12, 94)`, whether the device is read-only.
const BLKROGET: libc::Ioctl = block_ioctl(94);
/// linux/fs.h: `_IO(0x12, 97)`, write back and forget cached pages.
const BLKFLSBUF: libc::Ioctl = block_ioctl(97);
/// linux/fs.h: `_IO(0x12, 119)`, discard a range.
const BLKDISCARD: libc::Ioctl = block_ioctl(119);

/// linux/blkzoned.h: the zones from a sector on.
const BLKREPORTZONE: libc::Ioctl = libc::_IOWR::<[u64; 2]>(0x12, 130);
/// linux/blkzoned.h: has zones begin again at their first sector.
const BLKRESETZONE: libc::Ioctl = libc::_IOW::<[u64; 2]>(0x12, 131);
/// linux/blkzoned.h: makes zones full.
const BLKFINISHZONE: libc::Ioctl = libc::_IOW::<[u64; 2]>(0x12, 136);

/// What statx(2) says about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// Type and permissions.
    pub mode: u32,
    /// Length in bytes, for a regular file.
    pub size: u64,
    /// Inode number.
    pub inode: u64,
    /// Device of the file system.
    pub device: (u32, u32),
    /// Device that a special file stands for.
    pub special: (u32, u32),
    /// Time of birth (seconds, nanoseconds), where the file system keeps it.
    pub born: Option<(i64, u32)>,
    /// Identity of the mount, from Linux 5.8.
    pub mount: Option<u64>,
    /// Preferred I/O size.
    pub block_size: u32,
    /// The smallest and the largest write that is atomic, bytes, from Linux 6.11; None where there is none.
    pub atomic: Option<(u32, u32)>,
    /// Alignment of (memory, offset) for direct I/O, from Linux 6.1 and where the file system says;
    /// (0, 0) where it says that there is no direct I/O on this file.
    pub direct: Option<(u32, u32)>,
}

impl Status {
    /// The file-type bits of the mode.
    pub fn file_type(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    /// Whether both are the same file.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.device == other.device && self.inode == other.inode
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A path as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path cannot contain NUL"))
}

/// statx(2) of what a path leads to, symbolic links followed.
pub(crate) fn status_of_path(path: &Path) -> io::Result<Status> {
    statx(libc::AT_FDCWD, &c_path(path)?, 0)
}

/// The sizes of writes, in bytes, that an open file or device takes with RWF_ATOMIC: powers of two, at multiples of
/// themselves. None where it takes none: an older kernel, or a file system or drive without atomic writes. A file has to be
/// opened with O_DIRECT as well.
///
/// # Errors
/// The error of statx(2) if the kernel cannot describe the file. A file without atomic writes is no error.
pub fn atomic_writes(fd: BorrowedFd<'_>) -> io::Result<Option<RangeInclusive<u64>>> {
    Ok(status(fd)?.atomic.map(|(least, most)| u64::from(least)..=u64::from(most)))
}

/// statx(2) of an open file.
pub(crate) fn status(fd: BorrowedFd<'_>) -> io::Result<Status> {
    statx(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn statx(dir: libc::c_int, path: &CStr, flags: libc::c_int) -> io::Result<Status> {
    /// linux/stat.h, from Linux 6.11; libc lacks it.
    const STATX_WRITE_ATOMIC: u32 = 0x0001_0000;
    const MASK: u32 = libc::STATX_BASIC_STATS
        | libc::STATX_BTIME
        | libc::STATX_MNT_ID
        | libc::STATX_DIOALIGN
        | STATX_WRITE_ATOMIC;
    let mut raw = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is NUL-terminated and the buffer is a whole `struct statx`, which is all that
    // the kernel writes to.
    check(unsafe { libc::statx(dir, path.as_ptr(), flags, MASK, raw.as_mut_ptr()) })?;
    // SAFETY: zeroed before the call, and every bit pattern of its integer fields is valid.
    let raw = unsafe { raw.assume_init() };
    let has = |bit: u32| raw.stx_mask & bit != 0;
    Ok(Status {
        mode: u32::from(raw.stx_mode),
        size: raw.stx_size,
        inode: raw.stx_ino,
        device: (raw.stx_dev_major, raw.stx_dev_minor),
        special: (raw.stx_rdev_major, raw.stx_rdev_minor),
        born: has(libc::STATX_BTIME).then_some((raw.stx_btime.tv_sec, raw.stx_btime.tv_nsec)),
        mount: has(libc::STATX_MNT_ID).then_some(raw.stx_mnt_id),
        block_size: raw.stx_blksize,
        atomic: has(STATX_WRITE_ATOMIC)
            .then_some((raw.stx_atomic_write_unit_min, raw.stx_atomic_write_unit_max))
            .filter(|(_, largest)| *largest > 0),
        direct: has(libc::STATX_DIOALIGN).then_some((raw.stx_dio_mem_align, raw.stx_dio_offset_align)),
    })
}

/// An ioctl that writes one `int`.
fn ioctl_int(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u32> {
    let mut value: libc::c_int = 0;
    // SAFETY: the requests passed here (BLKSSZGET, BLKPBSZGET, BLKROGET) write one int (or unsigned
    // int, of the same size) through the pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut value) })?;
    u32::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// BLKSSZGET: bytes of a logical block.
pub(crate) fn logical_block(fd: BorrowedFd<'_>) -> io::Result<u32> {
    ioctl_int(fd, libc::BLKSSZGET)
}

/// BLKPBSZGET: bytes of a physical block.
pub(crate) fn physical_block(fd: BorrowedFd<'_>) -> io::Result<u32> {
    ioctl_int(fd, libc::BLKPBSZGET)
}

/// BLKROGET: whether the device is read-only.
pub(crate) fn is_read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    ioctl_int(fd, BLKROGET).map(|value| value != 0)
}

/// The effective user.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: it takes nothing, cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// fchmodat2(2) of what a descriptor leads to. ENOSYS before Linux 6.6.
pub(crate) fn set_mode_of_path(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    /// asm-generic/unistd.h; libc has it for some architectures only.
    const FCHMODAT2: libc::c_long = 452;
    // SAFETY: the path is an empty NUL-terminated string, which is all of the caller's memory that the kernel reads.
    let result = unsafe { libc::syscall(FCHMODAT2, fd.as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What is behind a loop device, as the kernel knows it (loop(4)): its path may lead to another file by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopBacking {
    /// The device of the file's file system, as the kernel encodes it.
    pub device: u64,
    /// The inode of the file.
    pub inode: u64,
    /// Where in the file the device begins, bytes.
    pub offset_bytes: u64,
}

/// LOOP_GET_STATUS64 of an open loop device.
///
/// # Errors
/// ENXIO where nothing is behind it, ENOTTY or EINVAL where it is no loop device.
pub fn loop_backing(fd: BorrowedFd<'_>) -> io::Result<LoopBacking> {
    // linux/loop.h.
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    // `struct loop_info64` has 232 bytes, and begins with device, inode, the loop's own number and the offset.
    let mut info = [0_u64; 29];
    // SAFETY: the request writes one `struct loop_info64` of 232 bytes, which is the size of `info`, and any bits are u64s.
    // Other drivers that know a request of this number do not exist (Documentation/userspace-api/ioctl/ioctl-number.rst).
    check(unsafe { libc::ioctl(fd.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) })?;
    let [device, inode, _, offset_bytes, ..] = info;
    Ok(LoopBacking { device, inode, offset_bytes })
}

/// Writes back and forgets what the page cache has of a block device (BLKFLSBUF).
pub(crate) fn forget_pages(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: BLKFLSBUF takes no argument.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKFLSBUF, 0) })?;
    Ok(())
}

/// BLKDISCARD.
pub(crate) fn discard_blocks(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    let range = [offset, length];
    // SAFETY: BLKDISCARD reads two u64 through the pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKDISCARD, range.as_ptr()) })?;
    Ok(())
}

/// A sector of linux/blkzoned.h, whatever the logical block of the drive is.
const SECTOR: u64 = 512;

/// `struct blk_zone`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawZone {
    pub start: u64,
    pub length: u64,
    pub pointer: u64,
    pub kind: u8,
    pub condition: u8,
    pub hints: [u8; 6],
    pub capacity: u64,
    pub reserved: [u64; 3],
}

/// Zones that are asked for at once.
const ZONES_OF_A_REPORT: usize = 256;
/// `BLK_ZONE_REP_CAPACITY`: zones come with capacities, from Linux 5.9.
const HAS_CAPACITIES: u32 = 1;

/// `struct blk_zone_report` with room for some zones.
#[repr(C)]
struct RawReport {
    sector: u64,
    count: u32,
    flags: u32,
    zones: [RawZone; ZONES_OF_A_REPORT],
}

/// BLKREPORTZONE: the first of the zones from that which has the byte at `from`, at most `most`; all in bytes.
pub(crate) fn report_zones(fd: BorrowedFd<'_>, from: u64, most: usize) -> io::Result<Vec<RawZone>> {
    let most = most.min(ZONES_OF_A_REPORT);
    let zones = [RawZone::default(); ZONES_OF_A_REPORT];
    let mut report = Box::new(RawReport { sector: from / SECTOR, count: most as u32, flags: 0, zones });
    // SAFETY: the request reads the head of a `struct blk_zone_report` and writes at most `count` zones behind it, for which
    // there is room; any bits are valid for their integers.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKREPORTZONE, &raw mut *report) })?;
    let has_capacities = report.flags & HAS_CAPACITIES != 0;
    let zone = |zone: &RawZone| RawZone {
        start: zone.start * SECTOR,
        length: zone.length * SECTOR,
        pointer: zone.pointer.saturating_mul(SECTOR),
        capacity: if has_capacities { zone.capacity } else { zone.length } * SECTOR,
        ..*zone
    };
    Ok(report.zones.iter().take(report.count as usize).map(zone).collect())
}

/// An ioctl that takes a range of whole zones.
fn manage_zones(fd: BorrowedFd<'_>, request: libc::Ioctl, start: u64, length: u64) -> io::Result<()> {
    let range = [start / SECTOR, length / SECTOR];
    // SAFETY: the requests passed here (BLKRESETZONE, BLKFINISHZONE) read two u64 through the pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, range.as_ptr()) })?;
    Ok(())
}

/// BLKRESETZONE. What the zones hold is lost.
pub(crate) fn reset_zones(fd: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<()> {
    manage_zones(fd, BLKRESETZONE, start, length)
}

/// BLKFINISHZONE.
pub(crate) fn finish_zones(fd: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<()> {
    manage_zones(fd, BLKFINISHZONE, start, length)
}

/// An offset or length as the kernel takes it.
fn signed(value: u64) -> io::Result<libc::off64_t> {
    libc::off64_t::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

/// fallocate(2) with `mode`, again where a signal interrupted it.
fn fallocate(fd: BorrowedFd<'_>, mode: libc::c_int, offset: u64, length: u64) -> io::Result<()> {
    let (offset, length) = (signed(offset)?, signed(length)?);
    loop {
        // SAFETY: takes no pointers.
        match check(unsafe { libc::fallocate64(fd.as_raw_fd(), mode, offset, length) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(drop),
        }
    }
}

/// Reserves space for `length` bytes and makes the file that long.
pub(crate) fn allocate(fd: BorrowedFd<'_>, length: u64) -> io::Result<()> {
    fallocate(fd, 0, 0, length)
}

/// Reserves space for a range of a file, which grows if the range ends beyond it (fallocate(2)).
///
/// # Errors
/// The error of fallocate(2): ENOSPC if there is no room, EOPNOTSUPP if the file system cannot reserve space. EFBIG if the offset
/// or the length does not fit 63 bits.
pub fn allocate_range(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    fallocate(fd, 0, offset, length)
}

/// Gives a file's range back to the file system.
pub(crate) fn punch_hole(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, length)
}

/// Makes a range of a file or block device read as zeros and keeps its space.
pub(crate) fn zero_range(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    fallocate(fd, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, offset, length)
}

/// A counter that poll(2) finds readable from the first [`raise`](Self::raise) to the next
/// [`clear`](Self::clear) (eventfd(2)).
#[derive(Debug)]
pub(crate) struct Signal(File);

impl Signal {
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes integers only.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel has just made this descriptor, and nobody else has it.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    pub fn raise(&self) {
        // It can only fail where the counter is full, and is readable then.
        let _ = (&self.0).write_all(&1_u64.to_ne_bytes());
    }

    pub fn clear(&self) {
        // It can only fail where nothing was raised.
        let _ = (&self.0).read(&mut [0; 8]);
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Turns O_DIRECT on for an open file.
pub(crate) fn set_direct(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes and gives integers only.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT) })?;
    Ok(())
}

/// Takes a lease on an open file (F_RDLCK), or gives it back (F_UNLCK). An open(2) that breaks it sends SIGURG
/// to this process, which is ignored by default; SIGIO would end the process.
pub(crate) fn set_lease(fd: BorrowedFd<'_>, lease: libc::c_int) -> io::Result<()> {
    /// asm-generic/fcntl.h; libc lacks it.
    const F_SETSIG: libc::c_int = 10;
    // SAFETY: takes and gives integers only.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, lease) })?;
    Ok(())
}

/// lseek(2) with SEEK_DATA or SEEK_HOLE; none where there is no more of it (ENXIO).
pub(crate) fn seek(fd: BorrowedFd<'_>, from: u64, what: libc::c_int) -> io::Result<Option<u64>> {
    let from = signed(from)?;
    // SAFETY: takes no pointers.
    let at = unsafe { libc::lseek64(fd.as_raw_fd(), from, what) };
    if at >= 0 {
        return Ok(Some(at.unsigned_abs()));
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        error => Err(error),
    }
}

/// Reads an extended attribute of at most 256 bytes; none where there is none, or no such thing.
pub(crate) fn get_attribute(fd: BorrowedFd<'_>, name: &CStr) -> Option<Vec<u8>> {
    let mut value = vec![0u8; 256];
    // SAFETY: the name is NUL-terminated, and the kernel writes at most `value.len()` bytes.
    let length =
        unsafe { libc::fgetxattr(fd.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

/// Sets an extended attribute.
pub(crate) fn set_attribute(fd: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated, and the kernel reads `value.len()` bytes.
    check(unsafe { libc::fsetxattr(fd.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })?;
    Ok(())
}

/// Free bytes for an unprivileged user, all bytes, and the magic of a file system (statfs(2)).
pub fn space(path: &Path) -> io::Result<(u64, u64)> {
    let path = c_path(path)?;
    let mut raw = MaybeUninit::<libc::statvfs64>::zeroed();
    // SAFETY: the path is NUL-terminated and the buffer a whole `struct statvfs64`.
    check(unsafe { libc::statvfs64(path.as_ptr(), raw.as_mut_ptr()) })?;
    // SAFETY: zeroed before, and all its fields are integers.
    let raw = unsafe { raw.assume_init() };
    let unit = if raw.f_frsize == 0 { raw.f_bsize } else { raw.f_frsize };
    let bytes = |blocks: u64| blocks.saturating_mul(unit);
    Ok((bytes(raw.f_bavail), bytes(raw.f_blocks)))
}

/// How the C library at hand types the names of resources: glibc as unsigned, musl as plain integers.
#[cfg(target_env = "gnu")]
pub(crate) type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
pub(crate) type Resource = libc::c_int;

/// A resource limit (soft, hard); `u64::MAX` is no limit.
pub(crate) fn limit(resource: Resource) -> io::Result<(u64, u64)> {
    let mut raw = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `struct rlimit64`.
    check(unsafe { libc::getrlimit64(resource, &raw mut raw) })?;
    Ok((raw.rlim_cur, raw.rlim_max))
}

/// memfd_create(2), open for sealing.
pub(crate) fn memfd_create(name: &CStr) -> io::Result<File> {
    // SAFETY: the name is NUL-terminated.
    let fd =
        check(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Seals a memfd's size for good.
pub(crate) fn seal_size(file: &File) -> io::Result<()> {
    const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: takes integers only.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
    Ok(())
}

/// Maps the first `length` bytes of `file`, shared, for reading and writing, at a multiple of
/// `alignment`: huge pages are only for mappings whose address and offset agree in their alignment.
pub(crate) fn map_shared(file: &File, length: usize, alignment: usize) -> io::Result<NonNull<u8>> {
    let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
    let reserved = length.checked_add(alignment).ok_or_else(no_memory)?;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let reserve = unsafe { libc::mmap(std::ptr::null_mut(), reserved, libc::PROT_NONE, anonymous, -1, 0) };
    if reserve == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = NonNull::new(reserve.cast::<u8>()).ok_or_else(no_memory)?;
    let before = start.as_ptr().addr().next_multiple_of(alignment) - start.as_ptr().addr();
    // SAFETY: before < alignment, so both addresses are inside the reservation or at its end.
    let (aligned, end) = unsafe { (start.add(before), start.add(before + length)) };
    let (read_write, fixed) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: MAP_FIXED replaces a part of the reservation made above, which nobody else knows of.
    let mapped = unsafe {
        libc::mmap(aligned.as_ptr().cast(), length, read_write, fixed, file.as_fd().as_raw_fd(), 0)
    };
    if mapped == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        // SAFETY: the whole reservation, used by nobody.
        unsafe { unmap(start, reserved) };
        return Err(error);
    }
    // SAFETY: what is left of the reservation on either side, used by nobody; an empty part is skipped
    // by the kernel with an error that does not matter.
    unsafe {
        unmap(start, before);
        unmap(end, alignment - before);
    }
    Ok(aligned)
}

/// Ends a mapping.
///
/// # Safety
/// The range must be mapped by this module, to be used no more.
pub(crate) unsafe fn unmap(address: NonNull<u8>, length: usize) {
    // SAFETY: the caller vouches for the range. The result can only be an error where that is untrue.
    unsafe { libc::munmap(address.as_ptr().cast(), length) };
}

/// madvise(2).
///
/// # Safety
/// The range must be inside a live mapping, and the advice must not change its contents.
pub(crate) unsafe fn advise(address: NonNull<u8>, length: usize, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the caller vouches for range and advice.
    check(unsafe { libc::madvise(address.as_ptr().cast(), length, advice) })?;
    Ok(())
}

/// Has the pages of a range come from one NUMA node: mbind(2) with `MPOL_BIND` (linux/mempolicy.h).
///
/// # Safety
/// The range must be a live mapping of whole pages.
pub(crate) unsafe fn bind_to_node(address: NonNull<u8>, length: usize, node: u32) -> io::Result<()> {
    const MPOL_BIND: libc::c_ulong = 2;
    const BITS: usize = libc::c_ulong::BITS as usize;
    let mut mask = [0 as libc::c_ulong; 1024 / BITS];
    let word = mask.get_mut(node as usize / BITS).ok_or(io::ErrorKind::InvalidInput)?;
    *word = 1 << (node as usize % BITS);
    let address = address.as_ptr();
    // SAFETY: the caller vouches for the range; the mask has as many bits as are announced, one less than the
    // number given, as the system call counts them.
    let result =
        unsafe { libc::syscall(libc::SYS_mbind, address, length, MPOL_BIND, mask.as_ptr(), 1024 + 1, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes every page of a range present and writable; contents stay.
///
/// # Safety
/// The range must be inside a live mapping that can be written.
pub(crate) unsafe fn populate_write(address: NonNull<u8>, length: usize) -> io::Result<()> {
    loop {
        // SAFETY: the caller vouches for the range; populating changes no byte.
        match unsafe { advise(address, length, libc::MADV_POPULATE_WRITE) } {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Before Linux 5.14: touch each page.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                for at in (0..length).step_by(4096) {
                    // SAFETY: at < length; adding zero atomically leaves the byte as it is, also if
                    // somebody writes it meanwhile.
                    let byte = unsafe { std::sync::atomic::AtomicU8::from_ptr(address.as_ptr().add(at)) };
                    byte.fetch_add(0, std::sync::atomic::Ordering::Relaxed);
                }
                return Ok(());
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_ioctls_have_the_numbers_of_linux_fs_h() {
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(BLKROGET, 0x125e);
            assert_eq!(BLKDISCARD, 0x1277);
            assert_eq!(BLKFLSBUF, 0x1261);
            // linux/blkzoned.h.
            assert_eq!(BLKREPORTZONE, 0xc010_1282);
            assert_eq!(BLKRESETZONE, 0x4010_1283);
            assert_eq!(BLKFINISHZONE, 0x4010_1288);
        }
        assert_eq!(size_of::<RawZone>(), 64);
        assert_eq!(std::mem::offset_of!(RawReport, zones), 16);
    }

    #[test]
    fn one_file_is_recognised_by_path_and_by_descriptor() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let by_path = status_of_path(file.path()).unwrap();
        let by_descriptor = status(file.as_file().as_fd()).unwrap();
        assert!(by_path.is_same_file(&by_descriptor));
        assert_eq!(by_path.file_type(), libc::S_IFREG);
    }

    #[test]
    fn a_path_with_nul_is_an_error() {
        assert!(status_of_path(Path::new("a\0b")).is_err());
    }
}
