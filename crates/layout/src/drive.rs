//! What a drive is known by: recorded when it is named, and compared whenever it is used again ([`crate::held`]).
//!
//! Serial number, worldwide name, size, a partition's beginning and the file behind a loop device last beyond a boot. The
//! kernel's count of disks (`diskseq`, Linux 5.15) tells two disks of one boot apart that have the same name one after the
//! other.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use storage::device;
use storage::sysfs::Sysfs;

use crate::error::LayoutError;

/// A drive, so that it is found again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DriveId {
    /// Its kernel name when it was seen: `nvme0n1`.
    pub name: String,
    /// Its serial number, where it has one; a partition's is its disk's.
    pub serial: Option<String>,
    /// Bytes.
    pub size_bytes: u64,
    /// Its worldwide name, where it has one: of NVMe namespaces of one drive it is all that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
    /// Where a partition begins on its disk, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_bytes: Option<u64>,
    /// What is behind a loop device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing: Option<BackingFile>,
    /// Which of the disks that this boot has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSequence>,
}

/// The file behind a loop device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BackingFile {
    /// The device of its file system; another boot may number it otherwise.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Where in it the loop device begins, bytes.
    pub offset_bytes: u64,
}

/// The kernel's count of disks (`/sys/block/*/diskseq`): no two disks of a boot have the same, whatever their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiskSequence {
    /// The boot that counted (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// The number.
    pub number: u64,
}

impl DriveId {
    /// The drive that `path` leads to.
    pub(crate) fn of(system: &Sysfs, path: &Path) -> Result<Self, LayoutError> {
        let none = || LayoutError::NoDrive { drive: path.to_owned() };
        let name = system.device_at(path).ok_or_else(none)?;
        Self::named(system, &name).ok_or_else(none)
    }

    /// The drive of a kernel name. Runs before and after each step, so it reads only what is compared.
    fn named(system: &Sysfs, name: &str) -> Option<Self> {
        // A path of an NVMe drive with several paths has no number, and is not a drive.
        system.number(name)?;
        let whole = system.disk_of(name)?;
        let boot = system.text("/proc/sys/kernel/random/boot_id");
        let sequence = sequence(system, &whole);
        Some(Self {
            serial: system.serial_number(&whole),
            size_bytes: system.size_bytes(name).unwrap_or(0),
            wwid: system.worldwide_name(&whole),
            start_bytes: system.partition_start_bytes(name),
            backing: backing(system, &whole),
            disk: boot.zip(sequence).map(|(boot, number)| DiskSequence { boot, number }),
            name: name.to_owned(),
        })
    }

    /// Whether `now` is this drive, under whatever name. What was not known when it was recorded does not count.
    pub(crate) fn is(&self, now: &Self) -> bool {
        let disks = self.disk.as_ref().zip(now.disk.as_ref()).filter(|(then, now)| then.boot == now.boot);
        let same_disk = disks.is_none_or(|(then, now)| then.number == now.number);
        // Only the inode outlasts a boot: file systems are numbered anew.
        let is_file = |then: &BackingFile, now: &BackingFile| {
            (then.inode, then.offset_bytes) == (now.inode, now.offset_bytes)
                && (disks.is_none() || then.device == now.device)
        };
        let same_file = match (&self.backing, &now.backing) {
            (Some(then), Some(now)) => is_file(then, now),
            (then, _) => then.is_none(),
        };
        // Without a lasting name of its own a drive that was taken out and put in again is taken for another.
        let has_name = self.serial.is_some() || self.wwid.is_some() || self.backing.is_some();
        self.size_bytes == now.size_bytes
            && self.serial == now.serial
            && (self.wwid.is_none() || self.wwid == now.wwid)
            && (self.start_bytes.is_none() || self.start_bytes == now.start_bytes)
            && same_file
            && (has_name || same_disk)
    }

    /// The kernel name that it has now; none where it is not there.
    pub(crate) fn name_now(&self, system: &Sysfs) -> Option<String> {
        let is_this = |name: &str| Self::named(system, name).is_some_and(|now| self.is(&now));
        if is_this(&self.name) {
            return Some(self.name.clone());
        }
        if self.serial.is_none() && self.wwid.is_none() && self.backing.is_none() {
            return None;
        }
        let all = system.block_devices();
        let renamed: Vec<_> =
            all.into_iter().map(|device| device.name).filter(|name| is_this(name)).collect();
        // Of two that cannot be told apart neither is taken.
        let [only] = renamed.as_slice() else { return None };
        Some(only.clone())
    }

    /// That it is not there, as an obstruction.
    pub(crate) fn gone(&self) -> String {
        match &self.serial {
            Some(serial) => format!("{} (serial {serial}) is not there", node(&self.name).display()),
            None => format!("{} is not there, or is another drive now", node(&self.name).display()),
        }
    }
}

/// The kernel's count of a disk; None before Linux 5.15.
pub(crate) fn sequence(system: &Sysfs, disk: &str) -> Option<u64> {
    system.text(format!("/sys/class/block/{disk}/diskseq"))?.parse().ok()
}

/// The backing file of a loop device; None for other disks.
fn backing(system: &Sysfs, name: &str) -> Option<BackingFile> {
    system.text(format!("/sys/class/block/{name}/loop/backing_file"))?;
    let file = File::open(system.at_root(node(name))).ok()?;
    let found = device::loop_backing(file.as_fd()).ok()?;
    Some(BackingFile { device: found.device, inode: found.inode, offset_bytes: found.offset_bytes })
}

/// The node of a kernel name. Names with `!` stand for directories (`cciss!c0d0`).
pub(crate) fn node(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_partition_is_known_by_its_disk_and_its_place_on_it() {
        let root = tempfile::tempdir().expect("a directory");
        let disk = root.path().join("sys/devices/pci0/host0/sda");
        let class = root.path().join("sys/class/block");
        for directory in [disk.join("sda1"), disk.join("device"), class.clone()] {
            fs::create_dir_all(directory).expect("a directory");
        }
        for (file, text) in [
            ("dev", "8:0"),
            ("size", "4096"),
            ("diskseq", "7"),
            ("wwid", "naa.5"),
            ("device/serial", "S9"),
            ("sda1/dev", "8:1"),
            ("sda1/partition", "1"),
            ("sda1/size", "1024"),
            ("sda1/start", "2048"),
        ] {
            fs::write(disk.join(file), text).expect("writes");
        }
        symlink("../../devices/pci0/host0/sda", class.join("sda")).expect("a link");
        symlink("../../devices/pci0/host0/sda/sda1", class.join("sda1")).expect("a link");
        let system = Sysfs::at(root.path());
        let whole = DriveId {
            name: "sda".to_owned(),
            serial: Some("S9".to_owned()),
            size_bytes: 4096 * 512,
            wwid: Some("naa.5".to_owned()),
            ..DriveId::default()
        };
        assert_eq!(DriveId::named(&system, "sda"), Some(whole.clone()));
        let size_bytes = 1024 * 512;
        let part = DriveId { name: "sda1".to_owned(), size_bytes, start_bytes: Some(2048 * 512), ..whole };
        assert_eq!(DriveId::named(&system, "sda1"), Some(part));
        assert_eq!(DriveId::named(&system, "sdb"), None);
        fs::remove_file(disk.join("dev")).expect("a file");
        assert_eq!(DriveId::named(&system, "sda"), None, "as a path of an NVMe drive with several");
    }
}
