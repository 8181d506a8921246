//! What a file system can be relied on for.

use std::io;
use std::os::fd::AsFd;

/// Numbers of statfs(2), `f_type`.
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const F2FS: u64 = 0xf2f5_2010;

/// Does syncfs(2) make all data and metadata of this file system durable, and tell of every write-back error since its
/// descriptor was opened? The kernel does the latter since 5.8 for file systems that record errors in their super
/// block's sequence as these do; of others (NFS, Lustre, FUSE, overlay) it is not known here, so each file is fsynced.
pub fn sync_vouches(file: impl AsFd) -> io::Result<bool> {
    let kind = rustix::fs::fstatfs(file)?.f_type as u64;
    let known = || matches!(kind, EXT4 | XFS | BTRFS | F2FS) && kernel_tells();
    Ok(crate::fault::syncfs_vouches().unwrap_or_else(known))
}

/// Is the kernel 5.8 or later?
fn kernel_tells() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 8)
}
