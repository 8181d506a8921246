//! The marks that a layout leaves on drives: where they are, whether they are ours, and wiping them.
//!
//! A mark is ours if it bears the UUID that was chosen for it before it was made. Only the blocks that hold
//! that very mark are zeroed, its copies included, so that no tool finds it any more; whatever else is on the
//! drive stays. Offsets and magic numbers are facts of the formats: md(4) and `drivers/md/md.h` for md's superblock
//! 1.2, `fs/xfs/libxfs/xfs_format.h`, `fs/ext4/ext4.h`, `fs/btrfs`' `btrfs_tree.h` (copies at 64 MiB and 256 GiB),
//! `include/linux/f2fs_fs.h` (two superblocks), and LVM2's `lib/format_text/layout.h`.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use storage::safety::magic_of;

use crate::held::Held;
use crate::spec::Filesystem;
use crate::system::{System, TRIES};

/// A kind of mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    /// A file system's superblock.
    Filesystem(Filesystem),
    /// The superblock of a member of an md array.
    Member,
    /// The label of an LVM physical volume.
    PhysicalVolume,
}

/// One place at which a mark is: all offsets in bytes from the beginning of the device.
struct Spot {
    magic_at: u64,
    magic: &'static [u8],
    uuid_at: u64,
    block: Range<u64>,
}

const KIB: u64 = 1 << 10;

impl Label {
    /// The places, the first of which is the one that counts.
    fn spots(self) -> Vec<Spot> {
        let spot = |magic_at, magic, uuid_at, block| Spot { magic_at, magic, uuid_at, block };
        match self {
            Self::Member => {
                let magic: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
                vec![spot(4 * KIB, magic, 4 * KIB + 16, 4 * KIB..8 * KIB)]
            }
            Self::PhysicalVolume => {
                vec![spot(512, b"LABELONE", 512 + 32, 512..KIB)]
            }
            Self::Filesystem(kind) => {
                // Where superblocks begin, where in one of them the UUID is, and how many bytes it has.
                let (superblocks, uuid_at, length): (&[u64], u64, u64) = match kind {
                    Filesystem::Xfs => (&[0], 32, 4 * KIB),
                    Filesystem::Ext4 => (&[KIB], 0x68, KIB),
                    Filesystem::Btrfs => (&[64 * KIB, 64 * KIB * KIB, 256 * KIB * KIB * KIB], 0x20, 4 * KIB),
                    Filesystem::F2fs => (&[KIB, 5 * KIB], 0x6c, 3 * KIB),
                };
                let (first, magic) = magic_of(kind);
                let magic_at = first - superblocks[0];
                let copy = |at: &u64| spot(at + magic_at, magic, at + uuid_at, *at..at + length);
                superblocks.iter().map(copy).collect()
            }
        }
    }

    /// Bytes of the UUID as it lies on the device: LVM writes 32 characters, all others 16 bytes.
    fn uuid_bytes(self, uuid: &str) -> Vec<u8> {
        let digits: String = uuid.chars().filter(char::is_ascii_alphanumeric).collect();
        match self {
            Self::PhysicalVolume => digits.into_bytes(),
            _ => (0..digits.len() / 2)
                .map_while(|i| u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok())
                .collect(),
        }
    }
}

/// The parts of the device that hold the mark with that UUID; none where it is not there.
pub(crate) fn find(device: &Held, label: Label, uuid: &str) -> io::Result<Vec<Range<u64>>> {
    let own = label.uuid_bytes(uuid);
    let mut found = Vec::new();
    for (index, spot) in label.spots().into_iter().enumerate() {
        let read = |at, length| {
            let mut bytes = vec![0; length];
            device.file().read_exact_at(&mut bytes, at).map(|()| bytes)
        };
        let matches = || -> io::Result<bool> {
            let uuid = read(spot.uuid_at, own.len())?;
            Ok(read(spot.magic_at, spot.magic.len())? == spot.magic && uuid == own)
        };
        match matches() {
            Ok(true) => found.push(spot.block),
            Ok(false) => {}
            // The device ends before a copy; that the first one cannot be read is another matter.
            Err(error) if index > 0 && error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Wipes the mark with that UUID, if it is there. Whoever has the device for a moment is waited for.
///
/// # Errors
/// For people: why it is still there.
pub(crate) fn wipe(system: &mut dyn System, device: &Held, label: Label, uuid: &str) -> Result<(), String> {
    let shown = device.node().display().to_string();
    for attempt in 0..TRIES {
        let found = find(device, label, uuid).map_err(|e| format!("{shown} cannot be read: {e}"))?;
        if found.is_empty() {
            return Ok(());
        }
        match system.zero(device, &found) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && attempt + 1 < TRIES => {
                system.pause()
            }
            Err(error) => return Err(format!("{shown} cannot be wiped: {error}")),
        }
    }
    Err(format!("{shown} bears its mark again and again"))
}

/// Wipes all signatures that are known, of a device whose contents were given up or that was just made. Each
/// is looked for anew, because one may hide another.
///
/// # Errors
/// The kernel's; and where one comes back however often it is wiped.
pub(crate) fn clear(system: &mut dyn System, device: &Held) -> io::Result<()> {
    for attempt in 0..TRIES {
        let found = device.signatures()?;
        if found.is_empty() {
            return Ok(());
        }
        // The sector of the magic number is enough for it not to be one any more, as wipefs(8) does it.
        let ranges: Vec<_> = found.iter().map(|s| s.offset / 512 * 512..s.offset / 512 * 512 + 512).collect();
        match system.zero(device, &ranges) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && attempt + 1 < TRIES => {
                system.pause()
            }
            result => result?,
        }
    }
    let what = device.signatures()?.first().map(ToString::to_string).unwrap_or_default();
    Err(io::Error::other(format!("{what} cannot be wiped")))
}
