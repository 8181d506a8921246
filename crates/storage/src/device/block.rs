//! Block devices.
//!
//! To read, a device is simply opened. To write, it is **claimed**: `O_EXCL` makes the kernel refuse while
//! anything holds the device or a part of it (a mount, md, dm, swap, another exclusive opener), and
//! makes others be refused afterwards. The order closes the races between looking and taking:
//!
//! 1. look who uses it, so that the refusal can name them;
//! 2. open with `O_EXCL`;
//! 3. check that the descriptor is the device that was looked at, and look again;
//! 4. look for signatures through the descriptor; nobody can make new ones now without going round
//!    the claim.

use std::fs::{File, OpenOptions as FsOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::channel::{Channel, answered_by_channel};
use super::sys::{self, Status};
use super::zones::{BlockZones, Zone, Zoned, zone_of};
use super::{Device, DeviceKind, Geometry, OpenError, OpenOptions, ZeroOptions, failed, open_error};
use crate::safety::{self, Obstacle, Refusal, Signature};
use crate::sysfs::{DeviceNumber, Sysfs, ZoneFacts};

/// An open block device.
#[derive(Debug)]
pub(crate) struct BlockDevice {
    spec: String,
    path: PathBuf,
    channel: Channel,
    zones: Option<BlockZones>,
}

/// Opens the block device at `path`, of which `status` was seen; only its first `limit` bytes, where
/// there is a limit.
pub(crate) fn open(
    spec: String,
    path: &Path,
    status: &Status,
    limit: Option<u64>,
    options: &OpenOptions,
) -> Result<BlockDevice, OpenError> {
    open_any(spec, path, status, (limit, false), options)
}

/// The same; with `may_be_empty` also a device that holds no block, which is there to be claimed.
pub(super) fn open_any(
    spec: String,
    path: &Path,
    status: &Status,
    (limit, may_be_empty): (Option<u64>, bool),
    options: &OpenOptions,
) -> Result<BlockDevice, OpenError> {
    let file = if options.access.writes() {
        claim(path, status, options)?
    } else {
        open_fd(path, options, 0).map_err(|e| open_error(path, options.access, e))?
    };
    let opened = sys::status(file.as_fd()).map_err(|e| failed(path, "statx", e))?;
    if opened.special != status.special || opened.file_type() != libc::S_IFBLK {
        return Err(OpenError::Replaced { path: path.to_owned() });
    }
    let actual = length(&file).map_err(|e| failed(path, "lseek", e))?;
    if let Some(asked) = limit.filter(|asked| *asked > actual) {
        return Err(OpenError::SizeMismatch { path: path.to_owned(), asked, actual });
    }
    let size = limit.unwrap_or(actual);
    let logical = sys::logical_block(file.as_fd()).map_err(|e| failed(path, "BLKSSZGET", e))?;
    let physical = sys::physical_block(file.as_fd()).map_err(|e| failed(path, "BLKPBSZGET", e))?;
    let geometry = if options.direct {
        // Before Linux 6.1, which says it in statx, a logical block was what memory had to be aligned to.
        let memory = opened.direct.map_or(logical, |(memory, _)| memory);
        Geometry {
            logical_block: logical.max(1),
            physical_block: physical.max(logical),
            memory_alignment: memory.max(1),
        }
    } else {
        Geometry { logical_block: 1, physical_block: physical.max(1), memory_alignment: 1 }
    };
    let block = u64::from(geometry.logical_block);
    let usable = size - size % block;
    if usable == 0 && !may_be_empty {
        return Err(OpenError::TooSmall { path: path.to_owned(), size, needed: block });
    }
    let channel =
        Channel { file, geometry, direct: options.direct, writable: options.access.writes(), size: usable };
    let zones = BlockZones::of(DeviceNumber::from(opened.special));
    Ok(BlockDevice { spec, path: path.to_owned(), channel, zones })
}

/// Bytes of a device. Its end is found by seeking, which every architecture spells alike.
fn length(mut file: &File) -> io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    let size = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    Ok(size)
}

fn open_fd(path: &Path, options: &OpenOptions, flags: i32) -> io::Result<File> {
    let direct = if options.direct { libc::O_DIRECT } else { 0 };
    FsOptions::new()
        .read(true)
        .write(options.access.writes())
        .custom_flags(direct | flags | options.sync.flag() | libc::O_NOCTTY)
        .open(path)
}

/// Opens for writing, if nobody uses the device and it bears no data that was not given up.
fn claim(path: &Path, status: &Status, options: &OpenOptions) -> Result<File, OpenError> {
    let system = Sysfs::host();
    let number = DeviceNumber::from(status.special);
    let look = || -> Result<(), OpenError> {
        let users = safety::users(&system, number).map_err(|e| failed(path, "safety check", e))?;
        if users.is_empty() { Ok(()) } else { Err(Refusal::new(path, users).into()) }
    };
    patiently(look)?;
    let file = patiently(|| {
        open_fd(path, options, libc::O_EXCL).map_err(|error| {
            if error.raw_os_error() == Some(libc::EBUSY) {
                return busy(&system, path, number);
            }
            open_error(path, options.access, error)
        })
    })?;
    let opened = sys::status(file.as_fd()).map_err(|e| failed(path, "statx", e))?;
    if opened.special != status.special || opened.file_type() != libc::S_IFBLK {
        return Err(OpenError::Replaced { path: path.to_owned() });
    }
    if sys::is_read_only(file.as_fd()).unwrap_or(false) {
        let source = io::Error::from_raw_os_error(libc::EROFS);
        return Err(open_error(path, options.access, source));
    }
    patiently(look)?;
    if !is_given_up(number, &options.destroy) {
        let found = safety::signatures(&file, length(&file).unwrap_or(0))
            .map_err(|e| failed(path, "reading signatures", e))?;
        refuse_signed(path, found)?;
    }
    Ok(file)
}

/// Refuses what bears signatures.
pub(super) fn refuse_signed(path: &Path, found: Vec<Signature>) -> Result<(), OpenError> {
    match found.is_empty() {
        true => Ok(()),
        false => Err(Refusal::new(path, found.into_iter().map(Obstacle::Signature).collect()).into()),
    }
}

/// Tries again for a fifth of a second where nothing but an open descriptor stands in the way: losetup, udev
/// and the like look by for a few milliseconds, and a device that was just closed may be among them.
/// Whoever is still there then uses the device.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    for _ in 0..5 {
        match attempt() {
            Err(OpenError::InUse(refusal)) if refusal.may_pass() => {
                std::thread::sleep(std::time::Duration::from_millis(40));
            }
            result => return result,
        }
    }
    attempt()
}

/// Names whoever made the kernel answer EBUSY, as far as they can be seen.
fn busy(system: &Sysfs, path: &Path, number: DeviceNumber) -> OpenError {
    let mut users = safety::users(system, number).unwrap_or_default();
    if users.is_empty() {
        users.push(Obstacle::Claimed);
    }
    Refusal::new(path, users).into()
}

/// Whether one of the names that the user gave up is this very device, under whatever name.
pub(super) fn is_given_up(number: DeviceNumber, destroy: &[PathBuf]) -> bool {
    destroy.iter().any(|name| {
        sys::status_of_path(name).is_ok_and(|named| {
            named.file_type() == libc::S_IFBLK && DeviceNumber::from(named.special) == number
        })
    })
}

impl Device for BlockDevice {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    answered_by_channel!();

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.channel.check_discard(offset, length)?;
        match &self.zones {
            _ if length == 0 => Ok(()),
            Some(zones) if zones.facts.is_host_managed => {
                zones.discard(self, self.fd(), offset..offset + length, self.channel.size)
            }
            _ => sys::discard_blocks(self.fd(), offset, length),
        }
    }

    fn zones(&self) -> Option<&dyn Zoned> {
        self.zones.is_some().then_some(self as &dyn Zoned)
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: ZeroOptions) -> io::Result<()> {
        self.channel.write_zeroes(offset, length, how, true)
    }
}

impl Zoned for BlockDevice {
    fn facts(&self) -> ZoneFacts {
        self.zones.as_ref().expect("only a device with zones is asked for them").facts
    }

    fn report(&self, from: u64, most: usize) -> io::Result<Vec<Zone>> {
        sys::report_zones(self.fd(), from, most)?.iter().map(zone_of).collect()
    }

    fn reset(&self, start: u64, length: u64) -> io::Result<()> {
        self.channel.check_discard(start, length)?;
        sys::reset_zones(self.fd(), start, length)
    }

    fn finish(&self, start: u64, length: u64) -> io::Result<()> {
        self.channel.check_discard(start, length)?;
        sys::finish_zones(self.fd(), start, length)
    }
}
