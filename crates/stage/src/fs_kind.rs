//! What a file system can be relied on for.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use storage::fs_type;

/// Does syncfs(2) make all data and metadata of this file system durable, and tell of every write-back error since its
/// descriptor was opened? The kernel does the latter since 5.8 for file systems that record errors in their super
/// block's sequence as these do; of others (NFS, Lustre, FUSE, overlay) it is not known here, so each file is fsynced.
pub fn sync_vouches(file: impl AsFd) -> io::Result<bool> {
    let kind = fs_type::of(file)?;
    let known =
        || matches!(kind, fs_type::EXT4 | fs_type::XFS | fs_type::BTRFS | fs_type::F2FS) && kernel_tells();
    Ok(crate::fault::syncfs_vouches().unwrap_or_else(known))
}

/// The line of `/proc/self/mountinfo`, proc(5), of the mount that `file` is on. None where `/proc` does not say.
pub fn mount_line(file: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = facts.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().to_owned();
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let mut lines = table.split(|byte| *byte == b'\n');
    let line = lines.find(|line| line.split(|byte| *byte == b' ').next() == Some(id.as_bytes()))?;
    Some(line.to_vec())
}

/// Is the file system that `file` is on read-only, by whichever of its mounts? False where `/proc` does not say.
pub fn is_read_only(file: BorrowedFd<'_>) -> bool {
    let options = |line: Vec<u8>| line.rsplit(|byte| *byte == b' ').next().map(<[u8]>::to_vec);
    let options = mount_line(file).and_then(options).unwrap_or_default();
    options.split(|byte| *byte == b',').any(|option| option == b"ro")
}

/// Is the kernel 5.8 or later?
fn kernel_tells() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 8)
}
