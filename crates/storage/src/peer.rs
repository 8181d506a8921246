//! What the kernel knows of the other end of a Unix socket, beyond SO_PEERCRED: see unix(7) and pidfd_open(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// SO_PEERPIDFD of asm-generic/socket.h, Linux 6.5; libc has it for some targets only.
const SO_PEERPIDFD: libc::c_int = 77;

/// A descriptor of the process that connected, which stays that process's when its number is used again. It is
/// readable once the process has ended.
///
/// # Errors
/// ENOPROTOOPT before Linux 6.5; ESRCH or EINVAL where the process has gone.
pub fn process(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one int, which `fd` has room for, and its length to `bytes`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: the kernel has just made this descriptor for us (close-on-exec, as pidfds are); nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_process_at_the_other_end_has_a_descriptor_of_its_own() {
        let (near, _far) = UnixStream::pair().unwrap();
        match process(near.as_fd()) {
            Ok(process) => assert!(process.as_raw_fd() > near.as_raw_fd()),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                println!("SKIP SO_PEERPIDFD: the kernel is older than 6.5");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
