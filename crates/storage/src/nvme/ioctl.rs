//! Commands to a namespace that are waited for: the driver's ioctls.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::command::Command;
use super::identify::{extended_part, has_extended_formats};
use super::status;

/// `_IO('N', 0x40)`: the number of the namespace.
const NVME_IOCTL_ID: libc::Ioctl = libc::_IO(b'N' as u32, 0x40);
/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = libc::_IOWR::<Command>(b'N' as u32, 0x41);
/// `_IOWR('N', 0x43, struct nvme_passthru_cmd)`.
const NVME_IOCTL_IO_CMD: libc::Ioctl = libc::_IOWR::<Command>(b'N' as u32, 0x43);

/// The number (NSID) of the namespace that is open, by its block or its character device.
pub(crate) fn namespace_id(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    let id = unsafe { libc::ioctl(fd.as_raw_fd(), NVME_IOCTL_ID) };
    if id == -1 { Err(io::Error::last_os_error()) } else { Ok(id as u32) }
}

/// What the namespace says of itself.
pub(crate) fn identify(fd: BorrowedFd<'_>, nsid: u32) -> io::Result<Box<[u8; 4096]>> {
    ask(fd, Command::identify(nsid))
}

/// The extended part of a namespace's format ([`extended_part`]); 0 where its controller has no such formats.
pub(crate) fn extended_format(fd: BorrowedFd<'_>, nsid: u32, format: u8) -> io::Result<u32> {
    if !has_extended_formats(&*ask(fd, Command::identify_controller())?) {
        return Ok(0);
    }
    Ok(extended_part(&*ask(fd, Command::identify_format(nsid))?, format))
}

fn ask(fd: BorrowedFd<'_>, command: Command) -> io::Result<Box<[u8; 4096]>> {
    let mut data = Box::new([0_u8; 4096]);
    let mut command = command.with_data(data.as_mut_ptr() as u64);
    assert_eq!(command.data_len, 4096, "each kind of Identify answers as much");
    // SAFETY: the command asks for 4096 bytes at `data`, which has as many and lives until the call returns.
    unsafe { pass(fd, NVME_IOCTL_ADMIN_CMD, &mut command) }?;
    Ok(data)
}

/// Sends a command that reads into, or writes from, `data`, or that moves none; waits for it.
///
/// # Safety
/// Where the command has data, they lie in memory of `command.data_len` bytes at `command.addr`, which nothing else writes
/// meanwhile; and its metadata likewise, `command.metadata_len` bytes at `command.metadata`.
pub(crate) unsafe fn submit(fd: BorrowedFd<'_>, mut command: Command) -> io::Result<()> {
    // SAFETY: the caller vouches for the data.
    unsafe { pass(fd, NVME_IOCTL_IO_CMD, &mut command) }
}

/// # Safety
/// As for [`submit`].
unsafe fn pass(fd: BorrowedFd<'_>, request: libc::Ioctl, command: &mut Command) -> io::Result<()> {
    // SAFETY: the requests passed here take a `struct nvme_passthru_cmd`, which `Command` is; the caller vouches for what it
    // points to.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(command)) } {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        status => Err(io::Error::other(status::words(status as u16))),
    }
}
