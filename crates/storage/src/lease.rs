//! Files that no process has open for writing.
//!
//! The kernel grants a read lease (F_SETLEASE, fcntl(2)) on a file that no process has open for writing or mapped for it, under
//! any name, and refuses it with EAGAIN otherwise. While the lease is held, an open(2) for writing and a truncate(2) wait. The
//! caller must own the file or have CAP_LEASE. Network file systems either have no leases (NFSv3, Ceph: EINVAL), or refuse them
//! for reasons of their own (NFSv4, SMB: EAGAIN without a delegation), or know of this host alone (Lustre).

use std::ops::Deref;
use std::os::fd::AsFd;

use crate::device::sys;
use crate::fs_type;

/// File systems that answer EAGAIN although no process may have the file open for writing.
const REFUSE_LEASES: [u32; 3] = [fs_type::NFS, fs_type::CIFS, fs_type::SMB2];

/// A file that no process has open for writing, as far as the kernel tells. An open(2) for writing waits until this is dropped,
/// or for `/proc/sys/fs/lease-break-time` (45 s).
#[derive(Debug)]
pub struct Unwritten<F: AsFd> {
    file: F,
    leased: bool,
}

impl<F: AsFd> Unwritten<F> {
    /// None if a process has it open for writing.
    pub fn new(file: F) -> Option<Self> {
        let leased = match sys::set_lease(file.as_fd(), libc::F_RDLCK) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                if !REFUSE_LEASES.contains(&fs_type::of(file.as_fd()).ok()?) {
                    return None;
                }
                false
            }
            Err(_) => false,
        };
        Some(Self { file, leased })
    }

    /// The kernel vouches for it. False where there are no leases, or none for this user.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.leased
    }
}

impl<F: AsFd> Deref for Unwritten<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.file
    }
}

impl<F: AsFd> Drop for Unwritten<F> {
    fn drop(&mut self) {
        // By word, because a program that another thread is just starting has the descriptor too.
        if self.leased {
            let _ = sys::set_lease(self.file.as_fd(), libc::F_UNLCK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::ErrorKind;
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    #[test]
    fn one_that_is_open_for_writing_under_another_name_is_told_until_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (name, other) = (folder.path().join("name"), folder.path().join("other"));
        let writer = File::create(&name).unwrap();
        std::fs::hard_link(&name, &other).unwrap();
        assert!(Unwritten::new(File::open(&other).unwrap()).is_none());
        drop(writer);
        // A program that another test is just starting may have the writer's descriptor for a moment.
        let unwritten =
            std::iter::repeat_with(|| Unwritten::new(File::open(&other).unwrap())).flatten().next();
        assert!(unwritten.unwrap().is_certain());
    }

    #[test]
    fn an_open_for_writing_waits_and_its_signal_ends_no_process() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let write = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let held = Unwritten::new(File::open(&path).unwrap()).unwrap();
        // As of a program that is just being started.
        let duplicate = held.try_clone().unwrap();
        assert_eq!(write().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(held);
        write().unwrap();
        drop(duplicate);
    }

    #[test]
    fn nothing_is_certain_of_what_has_no_leases() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Unwritten::new(File::open(folder.path()).unwrap()).unwrap().is_certain());
    }
}
