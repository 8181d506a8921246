//! Whether an ext4 has inode tables that are still to be initialised (kernel, `Documentation/filesystems/ext4/blockgroup.rst`).
//!
//! mkfs leaves the inode tables for the kernel to write with zeros after the first mount. One thread, `ext4lazyinit`, does so
//! for all of the machine's ext4, and lives on for seconds after the last of them has gone, so that the thread alone
//! says nothing of a certain file system. Its own group descriptors do: each has a flag that says that the table was
//! written. They are read through the page cache of the block device, in which ext4 itself keeps them.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SUPERBLOCK_AT: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 1024;
const MAGIC: u16 = 0xEF53;
/// Descriptors have checksums, without which the flag is not kept (RO_COMPAT_GDT_CSUM, RO_COMPAT_METADATA_CSUM).
const HAVE_CHECKSUMS: u32 = 0x10 | 0x400;
/// INCOMPAT_META_BG: descriptors lie all over the device.
const IS_SCATTERED: u32 = 0x10;
/// INCOMPAT_64BIT: the superblock says how large a descriptor is, and numbers of blocks have an upper half.
const IS_64_BIT: u32 = 0x80;
const SMALL_DESCRIPTOR_BYTES: usize = 32;
/// Where a descriptor has its flags.
const FLAGS_AT: usize = 0x12;
/// EXT4_BG_INODE_ZEROED.
const TABLE_IS_WRITTEN: u16 = 4;
/// More descriptors than an ext4 of 1 EiB has in groups of 128 MiB; a larger number is damage.
const MOST_DESCRIPTOR_BYTES: u64 = 64 << 20;

/// Whether the ext4 on a block device, or in a file, has inode tables that nobody has written yet. None where that cannot be
/// told: the device may not be read, or holds no ext4, or one whose descriptors are scattered.
#[must_use]
pub fn has_unwritten_tables(device: &Path) -> Option<bool> {
    let mut file = File::open(device).ok()?;
    let mut superblock = [0; SUPERBLOCK_BYTES];
    file.read_exact_at(&mut superblock, SUPERBLOCK_AT).ok()?;
    let half = |at: usize| u16::from_le_bytes([superblock[at], superblock[at + 1]]);
    let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
    let (incompatible, read_only_compatible) = (word(0x60), word(0x64));
    if half(0x38) != MAGIC || incompatible & IS_SCATTERED != 0 {
        return None;
    }
    if read_only_compatible & HAVE_CHECKSUMS == 0 {
        return Some(false);
    }
    let block = 1024_u64.checked_shl(word(0x18)).filter(|block| *block <= 65_536)?;
    let (blocks_high, descriptor) = match incompatible & IS_64_BIT {
        0 => (0, SMALL_DESCRIPTOR_BYTES),
        _ => (word(0x150), usize::from(half(0xFE)).max(SMALL_DESCRIPTOR_BYTES)),
    };
    let blocks = u64::from(word(0x4)) | u64::from(blocks_high) << 32;
    let first = u64::from(word(0x14));
    if blocks.checked_mul(block)? > file.seek(SeekFrom::End(0)).ok()? {
        return None;
    }
    let in_group = Some(word(0x20)).filter(|blocks| *blocks > 0)?;
    let groups = blocks.checked_sub(first)?.div_ceil(u64::from(in_group));
    let bytes = groups.checked_mul(descriptor as u64).filter(|bytes| *bytes <= MOST_DESCRIPTOR_BYTES)?;
    let mut descriptors = vec![0; bytes as usize];
    file.read_exact_at(&mut descriptors, (first + 1) * block).ok()?;
    let is_written =
        |one: &[u8]| u16::from_le_bytes([one[FLAGS_AT], one[FLAGS_AT + 1]]) & TABLE_IS_WRITTEN != 0;
    Some(!descriptors.chunks_exact(descriptor).all(is_written))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What mkfs makes of a sparse file of `mebibytes`; none without it.
    fn made(mebibytes: u64, options: &[&str]) -> Option<tempfile::NamedTempFile> {
        let image = tempfile::NamedTempFile::new().expect("a file");
        image.as_file().set_len(mebibytes << 20).expect("grows");
        let mkfs =
            ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"].into_iter().find(|path| Path::new(path).exists());
        let Some(mkfs) = mkfs else {
            println!("SKIP tables of ext4: there is no mkfs.ext4");
            return None;
        };
        let status =
            Command::new(mkfs).args(["-q", "-F"]).args(options).arg(image.path()).status().expect("runs");
        assert!(status.success(), "{options:?}");
        Some(image)
    }

    #[test]
    fn tables_that_mkfs_left_to_the_kernel_are_told_from_those_that_it_wrote() {
        // Several groups, of small and of large blocks, with descriptors of either size, and without checksums.
        for (mebibytes, more) in
            [(64, &["-b", "1024"][..]), (600, &["-b", "4096"]), (300, &["-b", "4096", "-O", "^64bit"])]
        {
            // A discarded image holds zeros, which mkfs counts as written tables.
            for (lazy, expected) in
                [("nodiscard,lazy_itable_init=1", true), ("nodiscard,lazy_itable_init=0", false)]
            {
                let options = [more, &["-E", lazy]].concat();
                let Some(image) = made(mebibytes, &options) else { return };
                assert_eq!(has_unwritten_tables(image.path()), Some(expected), "{options:?}");
            }
        }
        let options = ["-O", "^metadata_csum,^uninit_bg", "-E", "nodiscard,lazy_itable_init=1"];
        let Some(image) = made(64, &options) else { return };
        assert_eq!(
            has_unwritten_tables(image.path()),
            Some(false),
            "without checksums nothing is left to the kernel"
        );
    }

    #[test]
    fn what_is_no_ext4_or_cannot_be_read_says_nothing() {
        let empty = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(has_unwritten_tables(empty.path()), None);
        empty.as_file().set_len(1 << 20).expect("grows");
        assert_eq!(has_unwritten_tables(empty.path()), None);
        assert_eq!(has_unwritten_tables(Path::new("/nowhere")), None);
        let Some(image) = made(64, &["-O", "meta_bg,^resize_inode", "-E", "lazy_itable_init=1"]) else {
            return;
        };
        assert_eq!(has_unwritten_tables(image.path()), None, "descriptors are scattered");
    }

    #[test]
    fn damaged_numbers_are_refused() {
        let Some(image) = made(64, &["-E", "nodiscard,lazy_itable_init=0"]) else { return };
        for (at, bytes) in [(0x18, [0xff; 4]), (0x4, [0xff; 4]), (0x20, [0; 4]), (0x14, [0xff; 4])] {
            let mut kept = [0; 4];
            image.as_file().read_exact_at(&mut kept, SUPERBLOCK_AT + at).expect("reads");
            image.as_file().write_all_at(&bytes, SUPERBLOCK_AT + at).expect("writes");
            assert_ne!(has_unwritten_tables(image.path()), Some(true), "{at:#x}");
            image.as_file().write_all_at(&kept, SUPERBLOCK_AT + at).expect("writes");
        }
    }
}
