//! What the kernel knows of the other end of a Unix socket: see unix(7) and pidfd_open(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// SO_PEERPIDFD of asm-generic/socket.h, Linux 6.5; libc has it for some targets only.
const SO_PEERPIDFD: libc::c_int = 77;

/// Who connected, or listened, when it did so (SO_PEERCRED).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// The process; none where this process's PID namespace has no number for it.
    pub process: Option<u32>,
    /// Its effective user.
    pub user: u32,
    /// Its effective group.
    pub group: u32,
}

/// The credentials of the other end.
///
/// # Errors
/// ENOTSOCK, EBADF: it is no socket. ENODATA: it is a Unix socket without another end.
pub fn credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which `found` has, and both outlive the call; any bits are a ucred.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if found.uid == u32::MAX {
        return Err(io::Error::from_raw_os_error(libc::ENODATA));
    }
    let process = u32::try_from(found.pid).ok().filter(|pid| *pid > 0);
    Ok(Credentials { process, user: found.uid, group: found.gid })
}

/// The supplementary groups that the other end had when it connected (SO_PEERGROUPS), at most `most`.
///
/// # Errors
/// ERANGE: there are more. ENOTSOCK, EBADF: it is no socket.
pub fn groups(socket: BorrowedFd<'_>, most: usize) -> io::Result<Vec<u32>> {
    let mut groups = vec![0 as libc::gid_t; most];
    let mut bytes = libc::socklen_t::try_from(std::mem::size_of_val(groups.as_slice()))
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the kernel writes at most `bytes` bytes, which is what `groups` has, and both live to the end of the call;
    // any bit pattern is a gid_t.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<libc::gid_t>());
    Ok(groups)
}

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
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_is_this_process() {
        let (near, _far) = UnixStream::pair().unwrap();
        let found = credentials(near.as_fd()).unwrap();
        assert_eq!(found.process, Some(std::process::id()));
        let own = std::fs::metadata("/proc/self").unwrap();
        assert_eq!((found.user, found.group), (own.uid(), own.gid()));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(credentials(file.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }

    #[test]
    fn more_groups_than_there_is_room_for_are_an_error_and_not_cut() {
        let (near, _far) = UnixStream::pair().unwrap();
        let all = groups(near.as_fd(), 4096).unwrap();
        if !all.is_empty() {
            assert_eq!(groups(near.as_fd(), all.len() - 1).unwrap_err().raw_os_error(), Some(libc::ERANGE));
        }
    }

    #[test]
    fn the_process_at_the_other_end_has_a_descriptor_of_its_own() {
        let (near, _far) = UnixStream::pair().unwrap();
        match process(near.as_fd()) {
            // Its number may be any that another test has just closed.
            Ok(process) => {
                let facts = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
                let own = format!("Pid:\t{}", std::process::id());
                assert!(std::fs::read_to_string(facts).unwrap().lines().any(|line| line == own));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                println!("SKIP SO_PEERPIDFD: the kernel is older than 6.5");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
