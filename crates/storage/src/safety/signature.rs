//! Signatures: the marks by which file systems, partition tables, RAID members and the like are known.
//!
//! A small prober in the manner of wipefs(8). It need not tell versions and labels of everything apart; it must
//! not overlook what is there. Where two could be meant both are reported; a false alarm costs the user
//! one `--destroy`, an oversight costs the data. Only the first and last few megabytes are read.
//!
//! Offsets and magic numbers are facts of the formats, from the kernel's headers (`include/uapi/linux/magic.h`, the
//! `fs/*/` headers, `drivers/md`), the formats' own specifications, and magic(5). Where a magic number is short,
//! other fields must make sense as well, or random data would be mistaken for it: a benchmark fills
//! drives with random data.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use base::Filesystem;

use crate::device::AlignedBuffer;

/// The mark with which the label of a volume's member begins (docs/formats.md).
pub const LABEL_MAGIC: &[u8; 16] = b"flashwright\0v\0\0\0";
/// Where the first copy of that label begins, bytes.
pub const LABEL_AT: u64 = 4096;
/// Bytes of a label, and what the beginning of the second copy, the last whole such block of the device, is a
/// multiple of.
pub const LABEL_BYTES: u64 = 4096;
/// Where in a label the volume's name stands, padded with zeros.
pub const LABEL_NAME: Range<u64> = 128..192;
/// What such a device is called among signatures.
pub const MEMBER: &str = "flashwright volume member";

/// What a device that begins with a stored graph (docs/formats.md) is called among signatures.
pub const GRAPH: &str = "flashwright graph";

/// Bytes read from the beginning: VMFS has its magic at 1 MiB, all others before.
const HEAD: u64 = 2 << 20;
/// Bytes read from the end: ZFS's third label begins 512 KiB before it, all others later.
const TAIL: u64 = 1 << 20;

/// Something known that lies on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// What it is: `ext4 file system`.
    pub kind: String,
    /// Where its magic number is, bytes from the beginning.
    pub offset: u64,
    /// The name that it carries, where it does.
    pub label: Option<String>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if let Some(label) = &self.label {
            write!(f, " labelled '{}'", label.escape_debug())?;
        }
        write!(f, " (at byte {})", self.offset)
    }
}

/// The signatures on an open block device or image of `size` bytes, in the order in which they are known.
///
/// # Errors
/// The kernel's, where the device cannot be read: nothing may then be taken for unsigned.
pub fn signatures(file: &File, size: u64) -> io::Result<Vec<Signature>> {
    let read = |buffer: &mut [u8], at: u64| file.read_exact_at(buffer, at);
    Ok(probe(&Window::read(&read, size)?))
}

/// The same on whatever can be read at offsets.
pub fn signatures_in(
    read: &dyn Fn(&mut [u8], u64) -> io::Result<()>,
    size: u64,
) -> io::Result<Vec<Signature>> {
    Ok(probe(&Window::read(read, size)?))
}

/// Whether a file is a member of a volume, by either copy of its label.
///
/// # Errors
/// As [`signatures`].
pub fn is_member(file: &File, size: u64) -> io::Result<Option<Signature>> {
    Ok(signatures(file, size)?.into_iter().find(|signature| signature.kind == MEMBER))
}

/// The beginning and the end of a device.
struct Window {
    head: AlignedBuffer,
    tail: AlignedBuffer,
    tail_start: u64,
    size: u64,
}

impl Window {
    fn read(read: &dyn Fn(&mut [u8], u64) -> io::Result<()>, size: u64) -> io::Result<Self> {
        // Aligned to 4096, so that a descriptor with O_DIRECT takes it; the size is whole blocks.
        let part = |start: u64, end: u64| -> io::Result<AlignedBuffer> {
            let length = (end - start) as usize;
            let mut buffer = AlignedBuffer::zeroed(length, 4096);
            read(&mut buffer[..length], start)?;
            Ok(buffer)
        };
        let tail_start = size.saturating_sub(TAIL) / 4096 * 4096;
        let head = part(0, size.min(HEAD))?;
        let tail = part(tail_start, size)?;
        Ok(Self { head, tail, tail_start, size })
    }

    /// `length` bytes at `offset`, where they are in sight.
    fn bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        // A buffer has a byte at least, and a device need not.
        if offset.checked_add(length as u64)? > self.size {
            return None;
        }
        let within = |part: &'_ [u8], start: u64| -> Option<(usize, usize)> {
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            let to = from.checked_add(length)?;
            (to <= part.len()).then_some((from, to))
        };
        if let Some((from, to)) = within(&self.head, 0) {
            return Some(&self.head[from..to]);
        }
        within(&self.tail, self.tail_start).map(|(from, to)| &self.tail[from..to])
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        self.bytes(offset, magic.len()) == Some(magic)
    }

    fn byte(&self, offset: u64) -> Option<u8> {
        self.bytes(offset, 1).map(|b| b[0])
    }

    fn u32(&self, offset: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(offset, 4)?.try_into().ok()?))
    }

    /// Where `back` bytes before the end are.
    fn before_end(&self, back: u64) -> Option<u64> {
        self.size.checked_sub(back)
    }

    /// Printable text of a label, ending at the first NUL; none where there is none.
    fn label(&self, offset: u64, length: usize) -> Option<String> {
        let bytes = self.bytes(offset, length)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(length);
        let text = String::from_utf8_lossy(&bytes[..end]).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// A magic number that is long enough to be sure: kind, offset, bytes, and where a label is (offset, length).
type Plain = (&'static str, u64, &'static [u8], Option<(u64, usize)>);

const KIB: u64 = 1024;

/// Where the magic number of a file system's first superblock is, bytes from the beginning, and what it is.
pub const fn magic_of(kind: Filesystem) -> (u64, &'static [u8]) {
    match kind {
        Filesystem::Xfs => (0, b"XFSB"),
        Filesystem::Ext4 => (KIB + 0x38, b"\x53\xef"),
        Filesystem::Btrfs => (64 * KIB + 64, b"_BHRfS_M"),
        Filesystem::F2fs => (KIB, b"\x10\x20\xf5\xf2"),
    }
}

/// Formats that one number at one place tells.
#[rustfmt::skip]
const PLAIN: &[Plain] = &[
    (MEMBER, LABEL_AT, LABEL_MAGIC, Some((LABEL_AT + 128, 64))),
    (GRAPH, 0, b"FWGRAPH\0", None),
    ("xfs file system", magic_of(Filesystem::Xfs).0, magic_of(Filesystem::Xfs).1, Some((108, 12))),
    ("xfs log", 0, b"\xfe\xed\xba\xbe\0\0\0\x02", None),
    ("btrfs file system", magic_of(Filesystem::Btrfs).0, magic_of(Filesystem::Btrfs).1, Some((64 * KIB + 0x12b, 256))),
    ("bcachefs file system or bcache device", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", None),
    ("bcachefs file system", 4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", None),
    ("f2fs file system", magic_of(Filesystem::F2fs).0, magic_of(Filesystem::F2fs).1, None),
    ("nilfs2 file system", KIB + 6, b"\x34\x34\x02\0", None),
    ("erofs file system", KIB, b"\xe2\xe1\xf5\xe0", Some((KIB + 64, 16))),
    ("squashfs file system", 0, b"hsqs", None),
    ("cramfs file system", 0, b"\x45\x3d\xcd\x28", None),
    ("romfs file system", 0, b"-rom1fs-", None),
    ("ntfs file system", 3, b"NTFS    ", None),
    ("exFAT file system", 3, b"EXFAT   ", None),
    ("ReFS file system", 3, b"ReFS\0", None),
    ("BitLocker volume", 3, b"-FVE-FS-", None),
    ("vfat file system", 82, b"FAT32   ", Some((71, 11))),
    ("vfat file system", 54, b"FAT16   ", Some((43, 11))),
    ("vfat file system", 54, b"FAT12   ", Some((43, 11))),
    ("vfat file system", 54, b"FAT     ", Some((43, 11))),
    ("hfs+ file system", KIB, b"H+\0\x04", None),
    ("hfsx file system", KIB, b"HX\0\x05", None),
    ("APFS container", 32, b"NXSB", None),
    ("iso9660 file system", 32 * KIB + 1, b"CD001", Some((32 * KIB + 40, 32))),
    ("udf file system", 32 * KIB + 1, b"BEA01", None),
    ("udf file system", 32 * KIB + 1, b"NSR02", None),
    ("udf file system", 32 * KIB + 1, b"NSR03", None),
    ("reiserfs file system", 64 * KIB + 52, b"ReIsEr2Fs", None),
    ("reiserfs file system", 64 * KIB + 52, b"ReIsEr3Fs", None),
    ("reiserfs file system", 64 * KIB + 52, b"ReIsErFs", None),
    ("reiser4 file system", 64 * KIB, b"ReIsEr4", None),
    ("jfs file system", 32 * KIB, b"JFS1", None),
    ("gfs2 file system", 64 * KIB, b"\x01\x16\x19\x70\0\0\0\x01", None),
    ("ocfs2 file system", 2 * KIB, b"OCFSV2", None),
    ("ocfs2 file system", 4 * KIB, b"OCFSV2", None),
    ("zonefs file system", 0, b"SFOZ", None),
    ("VMFS volume", 1 << 20, b"\x0d\xd0\x01\xc0", None),
    ("LVM2 physical volume", 24, b"LVM2 001", None),
    ("LVM2 physical volume", 512 + 24, b"LVM2 001", None),
    ("LVM2 physical volume", 1024 + 24, b"LVM2 001", None),
    ("LVM2 physical volume", 1536 + 24, b"LVM2 001", None),
    ("LVM snapshot store", 0, b"SnAp\x01\0\0\0", None),
    ("LUKS volume", 0, b"LUKS\xba\xbe", None),
    ("dm-verity hash device", 0, b"verity\0\0", None),
    ("dm-integrity volume", 0, b"integrt\0", None),
    ("VDO volume", 0, b"dmvdo001", None),
    ("Stratis pool member", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh", None),
    ("md RAID member", 0, b"\xfc\x4e\x2b\xa9\x01\0\0\0", Some((32, 32))),
    ("md RAID member", 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0", Some((4096 + 32, 32))),
    ("Ceph BlueStore device", 0, b"bluestore block device", None),
    ("Oracle ASM disk", 32, b"ORCLDISK", Some((40, 24))),
    ("qcow2 image", 0, b"QFI\xfb\0\0\0", None),
    ("hibernation image", 4096 - 10, b"S1SUSPEND", None),
    ("GPT partition table", 512, b"EFI PART", None),
    ("GPT partition table", 4096, b"EFI PART", None),
];

fn probe(window: &Window) -> Vec<Signature> {
    let mut found: Vec<Signature> = PLAIN
        .iter()
        .filter(|(_, offset, magic, _)| window.has(*offset, magic))
        .map(|(kind, offset, _, label)| Signature {
            kind: (*kind).to_owned(),
            offset: *offset,
            label: label.and_then(|(at, length)| window.label(at, length)),
        })
        .collect();
    for special in [member_at_end, ext, swap, md_at_end, zfs, gpt_backup, raid_firmware, luks2_second, mbr] {
        found.extend(special(window));
    }
    // One format with several copies of its magic is one signature.
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|signature| seen.insert(signature.kind.clone()));
    // What a file system's boot sector looks like to the prober of partition tables.
    let is_boot_sector =
        |s: &Signature| ["vfat", "ntfs", "exFAT", "GPT"].iter().any(|k| s.kind.starts_with(k));
    if found.iter().any(is_boot_sector) {
        found.retain(|signature| signature.kind != MBR);
    }
    found
}

fn signed(kind: &str, offset: u64) -> Signature {
    Signature { kind: kind.to_owned(), offset, label: None }
}

/// The second copy of the label of a volume's member.
fn member_at_end(window: &Window) -> Option<Signature> {
    let at = (window.size / LABEL_BYTES * LABEL_BYTES).checked_sub(LABEL_BYTES)?;
    let label = window.label(at + LABEL_NAME.start, (LABEL_NAME.end - LABEL_NAME.start) as usize);
    let found = |label| Signature { kind: MEMBER.to_owned(), offset: at, label };
    window.has(at, LABEL_MAGIC).then(|| found(label))
}

/// ext2, ext3 and ext4: `struct ext4_super_block` at 1024, magic 0xEF53 at 0x38 (fs/ext4/ext4.h). Two bytes of
/// magic are met by chance, so the block size, revision and counts have to make sense.
fn ext(window: &Window) -> Option<Signature> {
    const AT: u64 = 1024;
    let (magic_at, magic) = magic_of(Filesystem::Ext4);
    let is_ext = window.has(magic_at, magic)
        && window.u32(AT + 0x18)? <= 6
        && window.u32(AT + 0x4c)? <= 1
        && window.u32(AT)? != 0
        && window.u32(AT + 0x28)? != 0;
    if !is_ext {
        return None;
    }
    let compatible = window.u32(AT + 0x5c)?;
    let incompatible = window.u32(AT + 0x60)?;
    // EXTENTS, 64BIT, FLEX_BG; then JOURNAL_DEV; then HAS_JOURNAL.
    let kind = match () {
        () if incompatible & 0x8 != 0 => "ext4 journal",
        () if incompatible & 0x2c0 != 0 => "ext4 file system",
        () if compatible & 0x4 != 0 => "ext3 file system",
        () => "ext2 file system",
    };
    Some(Signature { kind: kind.to_owned(), offset: magic_at, label: window.label(AT + 0x78, 16) })
}

/// Swap space: ten bytes at the end of the first page, whose size is the maker's (mm/swapfile.c).
fn swap(window: &Window) -> Option<Signature> {
    [4096u64, 8192, 16_384, 32_768, 65_536].into_iter().map(|page| page - 10).find_map(|at| {
        let is_swap = window.has(at, b"SWAPSPACE2") || window.has(at, b"SWAP-SPACE");
        let label = || window.label(1024 + 28, 16);
        is_swap.then(|| Signature { kind: "swap space".to_owned(), offset: at, label: label() })
    })
}

/// md superblocks near the end: 0.90 in the last whole 64 KiB but one, 1.0 between 8 and 12 KiB before it (md(4);
/// drivers/md/md.c, super_90_load and super_1_load).
fn md_at_end(window: &Window) -> Option<Signature> {
    const MAGIC: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];
    let old = (window.size & !0xffff).checked_sub(0x1_0000);
    let new = (window.size / 512).checked_sub(16).map(|sector| (sector & !7) * 512);
    // In 0.90 the version comes next, (0, 90); a machine of the other byte order may have made it.
    let has_old = |at: &u64| window.has(*at, &MAGIC) || window.has(*at, &[0xa9, 0x2b, 0x4e, 0xfc]);
    let has_new = |at: &u64| window.has(*at, &MAGIC) && window.u32(at + 4) == Some(1);
    let at = old.filter(has_old).or(new.filter(has_new))?;
    Some(signed("md RAID member", at))
}

/// ZFS: four labels of 256 KiB, two at each end, whose upper half is uberblocks of 1 KiB or more with the magic
/// 0x00bab10c in the byte order of their maker (OpenZFS, "On-Disk Format", ch. 1).
fn zfs(window: &Window) -> Option<Signature> {
    const LABEL: u64 = 256 * KIB;
    let end = window.size / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
    let blocks = labels
        .into_iter()
        .flatten()
        .flat_map(|label| (LABEL / 2..LABEL).step_by(KIB as usize).map(move |at| label + at));
    let is_uberblock = |at: &u64| {
        window.has(*at, &0x00ba_b10c_u64.to_le_bytes()) || window.has(*at, &0x00ba_b10c_u64.to_be_bytes())
    };
    blocks.into_iter().find(is_uberblock).map(|at| signed("ZFS pool member", at))
}

/// The copy of a GPT in the last block (UEFI Specification, §5.3.2).
fn gpt_backup(window: &Window) -> Option<Signature> {
    let at = [512, 4096].into_iter().filter_map(|block| window.before_end(block));
    at.into_iter().find(|at| window.has(*at, b"EFI PART")).map(|at| signed("GPT partition table", at))
}

/// RAID of the firmware: Intel's in the last sector but one, DDF's in the last (SNIA, "Common RAID Disk Data
/// Format", §4.1), big endian by its specification.
fn raid_firmware(window: &Window) -> Option<Signature> {
    let intel = window.before_end(1024).filter(|at| window.has(*at, b"Intel Raid ISM Cfg Sig. "));
    if let Some(at) = intel {
        return Some(signed("Intel RAID member", at));
    }
    let ddf = window.before_end(512)?;
    let magics: [&[u8]; 2] = [b"\xde\x11\xde\x11", b"\x11\xde\x11\xde"];
    magics.iter().any(|magic| window.has(ddf, magic)).then(|| signed("DDF RAID member", ddf))
}

/// The second header of LUKS2, which survives when the first is lost (LUKS2 On-Disk Format, §2.1).
fn luks2_second(window: &Window) -> Option<Signature> {
    let sizes = (4..=12).map(|power| KIB << power);
    sizes.into_iter().find(|at| window.has(*at, b"SKUL\xba\xbe")).map(|at| signed("LUKS volume", at))
}

const MBR: &str = "MBR partition table";

/// An MBR: 0x55AA at 510, and four entries whose boot flag is 0 or 0x80, at least one of them in use. Without
/// the entries it is a boot sector without a table, or chance.
fn mbr(window: &Window) -> Option<Signature> {
    if !window.has(510, &[0x55, 0xaa]) {
        return None;
    }
    let mut used = false;
    for entry in (0..4).map(|n| 446 + 16 * n) {
        if window.byte(entry)? & 0x7f != 0 {
            return None;
        }
        used |= window.byte(entry + 4)? != 0 && window.u32(entry + 12)? != 0;
    }
    used.then(|| signed(MBR, 510))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    const MIB: usize = 1 << 20;

    fn window(bytes: &[u8]) -> Window {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        Window::read(&|buffer, at| file.read_exact_at(buffer, at), bytes.len() as u64).unwrap()
    }

    fn kinds(bytes: &[u8]) -> Vec<String> {
        probe(&window(bytes)).into_iter().map(|s| s.kind).collect()
    }

    fn put(bytes: &mut [u8], at: u64, magic: &[u8]) {
        let at = at as usize;
        bytes[at..at + magic.len()].copy_from_slice(magic);
    }

    #[test]
    fn nothing_is_in_sight_past_the_end() {
        assert_eq!(window(&[]).byte(0), None);
        assert_eq!((window(&[7; 10]).byte(9), window(&[7; 10]).byte(10)), (Some(7), None));
        assert_eq!(window(&[7; 10]).bytes(u64::MAX, 2), None);
    }

    #[test]
    fn every_plain_magic_is_found_where_it_belongs() {
        for (kind, offset, magic, _) in PLAIN {
            let mut bytes = vec![0; 4 * MIB];
            put(&mut bytes, *offset, magic);
            assert!(kinds(&bytes).iter().any(|k| k == kind), "{kind} at {offset}");
        }
    }

    #[test]
    fn nothing_is_found_on_empty_short_or_random_devices() {
        for length in [0, 1, 511, 512, 1000, 4096, 65_536, 4 * MIB] {
            assert_eq!(kinds(&vec![0; length]), Vec::<String>::new(), "{length}");
        }
        let mut state = 0x5eed_u64;
        let random: Vec<u8> = (0..3 * MIB)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        assert_eq!(kinds(&random), Vec::<String>::new());
    }

    #[test]
    fn marks_near_the_end_are_found_for_any_size() {
        for length in [4 * MIB, 4 * MIB + 512, 5 * MIB + 77 * 512] {
            let size = length as u64;
            for (at, magic, kind) in [
                ((size & !0xffff) - 0x1_0000, &b"\xfc\x4e\x2b\xa9"[..], "md RAID member"),
                ((size / 512 - 16) / 8 * 8 * 512, b"\xfc\x4e\x2b\xa9\x01\0\0\0", "md RAID member"),
                (size / 4096 * 4096 - 4096, LABEL_MAGIC, MEMBER),
                (size - 512, b"EFI PART", "GPT partition table"),
                (size - 4096, b"EFI PART", "GPT partition table"),
                (size - 1024, b"Intel Raid ISM Cfg Sig. ", "Intel RAID member"),
                (size - 512, b"\xde\x11\xde\x11", "DDF RAID member"),
                (size / 262_144 * 262_144 - 131_072, b"\x0c\xb1\xba\0\0\0\0\0", "ZFS pool member"),
                (128 * 1024 + 7168, b"\0\0\0\0\0\xba\xb1\x0c", "ZFS pool member"),
            ] {
                let mut bytes = vec![0; length];
                put(&mut bytes, at, magic);
                assert_eq!(kinds(&bytes), [kind], "{kind} at {at} of {length}");
            }
        }
    }

    #[test]
    fn swap_is_found_for_every_page_size_with_its_label() {
        for page in [4096u64, 8192, 16_384, 65_536] {
            let mut bytes = vec![0; MIB];
            put(&mut bytes, page - 10, b"SWAPSPACE2");
            put(&mut bytes, 1024 + 28, b"swappy");
            let found = probe(&window(&bytes));
            assert_eq!(found[0].to_string(), format!("swap space labelled 'swappy' (at byte {})", page - 10));
        }
    }

    #[test]
    fn a_partition_table_needs_a_partition() {
        let mut bytes = vec![0; MIB];
        put(&mut bytes, 510, &[0x55, 0xaa]);
        assert!(kinds(&bytes).is_empty(), "a boot sector alone is no table");
        put(&mut bytes, 446 + 4, &[0x83]);
        put(&mut bytes, 446 + 12, &[0, 8, 0, 0]);
        assert_eq!(kinds(&bytes), [MBR]);
        put(&mut bytes, 512, b"EFI PART");
        assert_eq!(kinds(&bytes), ["GPT partition table"], "the protective MBR of a GPT is part of it");
    }

    #[test]
    fn the_short_magic_of_ext_is_not_enough() {
        let mut bytes = vec![0; MIB];
        put(&mut bytes, 1024 + 0x38, &[0x53, 0xef]);
        assert!(kinds(&bytes).is_empty());
    }

    /// Makes a file system with its own tool; none, said aloud, where the tool is not there.
    fn made_by(tool: &str, arguments: &[&str]) -> Option<Vec<Signature>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(400 << 20).unwrap();
        match Command::new(tool).args(arguments).arg(file.path()).output() {
            Ok(output) if output.status.success() => {}
            other => {
                eprintln!("SKIPPED: {tool} {arguments:?} does not work here: {other:?}");
                return None;
            }
        }
        Some(signatures(file.as_file(), 400 << 20).unwrap())
    }

    #[test]
    fn what_the_formats_own_tools_make_is_recognised() {
        for (tool, arguments, kind, label) in [
            ("mkfs.ext4", &["-q", "-F", "-L", "four"][..], "ext4 file system", Some("four")),
            ("mkfs.ext3", &["-q", "-F", "-L", "three"], "ext3 file system", Some("three")),
            ("mkfs.ext2", &["-q", "-F", "-L", "two"], "ext2 file system", Some("two")),
            ("mkfs.xfs", &["-q", "-f", "-L", "ex"], "xfs file system", Some("ex")),
            ("mkfs.btrfs", &["-q", "-f", "-L", "butter"], "btrfs file system", Some("butter")),
            ("mkswap", &["-L", "paged"], "swap space", Some("paged")),
            ("mkfs.vfat", &["-n", "FATTY"], "vfat file system", Some("FATTY")),
            ("mkfs.f2fs", &["-q", "-f"], "f2fs file system", None),
            ("mkfs.exfat", &[], "exFAT file system", None),
            ("mkfs.ntfs", &["-q", "-F", "-f"], "ntfs file system", None),
        ] {
            let Some(found) = made_by(tool, arguments) else { continue };
            let signature = found.iter().find(|s| s.kind == kind);
            let signature = signature.unwrap_or_else(|| panic!("{tool} makes {found:?}"));
            assert_eq!(signature.label.as_deref(), label, "{tool}");
        }
    }

    #[test]
    fn every_file_system_of_a_layout_is_recognised() {
        // ext4 has more than its magic number to it, and a function of its own.
        for kind in Filesystem::ALL.into_iter().filter(|kind| *kind != Filesystem::Ext4) {
            let name = format!("{} file system", kind.word());
            assert!(PLAIN.iter().any(|row| row.0 == name && (row.1, row.2) == magic_of(kind)), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_contents_make_the_prober_panic(
            length in 0usize..300_000,
            seeds in proptest::collection::vec((any::<u32>(), any::<u64>()), 0..40),
        ) {
            let mut bytes = vec![0; length];
            for (at, value) in seeds {
                let at = at as usize % length.max(1);
                let value = value.to_le_bytes();
                let end = (at + 8).min(length);
                if at < end {
                    bytes[at..end].copy_from_slice(&value[..end - at]);
                }
            }
            let _ = probe(&window(&bytes));
        }
    }
}
