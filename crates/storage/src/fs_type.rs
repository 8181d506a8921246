//! File systems by their numbers (statfs(2), `f_type`; linux/magic.h, and Lustre's, GPFS's and BeeGFS's own headers).

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// ext2, ext3 and ext4.
pub const EXT4: u32 = 0xef53;
/// XFS.
pub const XFS: u32 = 0x5846_5342;
/// btrfs.
pub const BTRFS: u32 = 0x9123_683e;
/// F2FS.
pub const F2FS: u32 = 0xf2f5_2010;
/// bcachefs.
pub const BCACHEFS: u32 = 0xca45_1a4e;
/// overlayfs.
pub const OVERLAY: u32 = 0x794c_7630;
/// NFS, of each version.
pub const NFS: u32 = 0x6969;
/// SMB version 1, by the kernel's client.
pub const CIFS: u32 = 0xff53_4d42;
/// SMB versions 2 and 3, by the kernel's client.
pub const SMB2: u32 = 0xfe53_4d42;
/// smbfs, the client of old kernels.
pub const SMBFS: u32 = 0x517b;
/// Lustre.
pub const LUSTRE: u32 = 0x0bd0_0bd0;
/// GPFS (Storage Scale).
pub const GPFS: u32 = 0x4750_4653;
/// BeeGFS.
pub const BEEGFS: u32 = 0x1983_0326;
/// Ceph's file system.
pub const CEPH: u32 = 0x00c3_6400;
/// AFS.
pub const AFS: u32 = 0x5346_414f;
/// 9P.
pub const NINE_P: u32 = 0x0102_1997;
/// FUSE, whichever program serves it.
pub const FUSE: u32 = 0x6573_5546;
/// tmpfs.
pub const TMPFS: u32 = 0x0102_1994;
/// ramfs.
pub const RAMFS: u32 = 0x8584_58f6;

/// The number of the file system that an open file is on.
///
/// # Errors
/// The error of fstatfs(2).
pub fn of(file: impl AsFd) -> io::Result<u32> {
    // Its type differs from one architecture to another; the numbers have 32 bits.
    Ok(rustix::fs::fstatfs(file)?.f_type as u32)
}

/// The number of the file system that a path is on.
///
/// # Errors
/// The error of statfs(2).
pub fn at(path: &Path) -> io::Result<u32> {
    Ok(rustix::fs::statfs(path)?.f_type as u32)
}

/// Whether files of this file system are in the page cache alone.
#[must_use]
pub fn is_memory(number: u32) -> bool {
    [TMPFS, RAMFS].contains(&number)
}
