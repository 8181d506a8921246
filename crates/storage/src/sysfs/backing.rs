//! What a path stands on: file system, mount and block devices.
//!
//! `st_dev` names the block device only where a file system has exactly one and says so. The others each
//! have a way of their own: btrfs lists its members in sysfs, overlayfs stands on the file systems of
//! its layers, network and memory file systems have no device here, and anything else is asked for
//! the source that mount(8) was given.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mounts::{Mount, mount_of};
use super::{BlockDevice, DeviceNumber, Sysfs};
use crate::device::sys::{self, Status};

/// Overlays upon overlays that are followed down; the kernel itself allows two.
const MAX_LAYERS: u32 = 4;

/// What a path stands on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Backing {
    /// Type of the file system: `ext4`; none for a block device itself, or where the mount is not visible.
    pub filesystem: Option<String>,
    /// Where it is mounted.
    pub mount_point: Option<String>,
    /// Device or other source, as mount(8) was told it.
    pub source: Option<String>,
    /// Options of mount and file system.
    pub options: Option<String>,
    /// The block devices below, nearest first, down to the drives.
    pub block_devices: Vec<BlockDevice>,
    /// Why there are no block devices, where there are none.
    pub note: Option<String>,
}

impl Backing {
    /// The devices with nothing below them: the drives.
    pub fn drives(&self) -> impl Iterator<Item = &BlockDevice> {
        let known = |name: &String| self.block_devices.iter().any(|d| &d.name == name);
        self.block_devices.iter().filter(move |device| {
            device.disk.is_none() && device.loop_device.is_none() && !device.slaves.iter().any(known)
        })
    }
}

impl Sysfs {
    /// What the file, directory or block device at `path` stands on.
    ///
    /// # Errors
    /// The kernel's, where the path does not exist or cannot be reached.
    pub fn backing(&self, path: &Path) -> io::Result<Backing> {
        let status = sys::status_of_path(path)?;
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Ok(self.backing_of_status(&status, Some(&real)))
    }

    /// The same of an open file.
    pub fn backing_of_fd(&self, fd: BorrowedFd<'_>) -> io::Result<Backing> {
        Ok(self.backing_of_status(&sys::status(fd)?, None))
    }

    /// Several as one, as what is spread over them stands on all: their devices each once, nearest first; what
    /// they all agree on, and nothing of what they do not.
    #[must_use]
    pub fn joined(&self, parts: &[Backing]) -> Backing {
        let agreed = |of: fn(&Backing) -> &Option<String>| {
            let first = parts.first().and_then(|part| of(part).clone())?;
            parts.iter().all(|part| of(part).as_ref() == Some(&first)).then_some(first)
        };
        let tops = parts.iter().flat_map(|part| {
            let below = |top: &BlockDevice| {
                let others = part.block_devices.iter().filter(|other| other.name != top.name);
                others
                    .map(|other| self.names_below(&other.name))
                    .any(|mut below| below.any(|n| n == top.name))
            };
            part.block_devices.iter().filter(move |device| !below(device)).map(|device| device.name.clone())
        });
        // What was read of each part a moment ago need not be read again.
        let known: Vec<_> = parts.iter().flat_map(|part| &part.block_devices).collect();
        Backing {
            filesystem: agreed(|part| &part.filesystem),
            mount_point: agreed(|part| &part.mount_point),
            source: agreed(|part| &part.source),
            options: agreed(|part| &part.options),
            block_devices: self.stack_of_known(tops.collect::<Vec<_>>(), &known),
            note: agreed(|part| &part.note),
        }
    }

    fn backing_of_status(&self, status: &Status, path: Option<&Path>) -> Backing {
        if status.file_type() == libc::S_IFBLK {
            let name = self.name(DeviceNumber::from(status.special));
            return Backing { block_devices: self.stack_of_all(name), ..Backing::default() };
        }
        let mounts = self.mounts();
        let Some(mount) = self.mount_of_status(&mounts, status, path) else {
            let name = self.name(DeviceNumber::from(status.device));
            let note = "its mount is not visible from here".to_owned();
            return Backing {
                block_devices: self.stack_of_all(name),
                note: Some(note),
                ..Backing::default()
            };
        };
        let names = self.devices_of_mount(mount, DeviceNumber::from(status.device), 0);
        let block_devices = self.stack_of_all(names);
        Backing {
            filesystem: Some(mount.filesystem.clone()),
            mount_point: Some(mount.mount_point.display().to_string()),
            source: Some(mount.source.clone()).filter(|source| !source.is_empty()),
            options: Some(mount.all_options()),
            note: block_devices.is_empty().then(|| no_devices(&mount.filesystem).to_owned()),
            block_devices,
        }
    }

    /// The mount of a file: by the mount's identity, which is exact, else (before Linux 5.8, and on trees that are
    /// not this machine's) by path, else by device.
    fn mount_of_status<'a>(
        &self,
        mounts: &'a [Mount],
        status: &Status,
        path: Option<&Path>,
    ) -> Option<&'a Mount> {
        let by_id = || {
            let id = status.mount.filter(|_| self.is_host())?;
            mounts.iter().find(|mount| mount.id == id)
        };
        let by_path = || mount_of(mounts, path?);
        let device = DeviceNumber::from(status.device);
        let by_device = || mounts.iter().rfind(|mount| mount.device == device);
        by_id().or_else(by_path).or_else(by_device)
    }

    /// Names of the devices below a path whose file system has no device number of its own.
    pub(crate) fn backing_devices(&self, path: &Path, status: &Status, depth: u32) -> Vec<String> {
        let mounts = self.mounts();
        let real = fs::canonicalize(path).ok();
        match self.mount_of_status(&mounts, status, real.as_deref()) {
            Some(mount) => self.devices_of_mount(mount, DeviceNumber::from(status.device), depth),
            None => Vec::new(),
        }
    }

    fn devices_of_mount(&self, mount: &Mount, device: DeviceNumber, depth: u32) -> Vec<String> {
        if let Some(name) = self.name(device).or_else(|| self.name(mount.device)) {
            return vec![name];
        }
        if mount.filesystem == "overlay" {
            return self.devices_of_overlay(mount, depth);
        }
        let named: Vec<String> =
            mount.named_devices().iter().filter_map(|path| self.device_at(path)).collect();
        if mount.filesystem == "btrfs"
            && let Some(members) = named.first().map(|n| self.btrfs_members(n)).filter(|m| !m.is_empty())
        {
            return members;
        }
        named
    }

    /// What is written to an overlay goes to its upper layer; one without can only be read, from the first of
    /// its lower layers at best.
    fn devices_of_overlay(&self, mount: &Mount, depth: u32) -> Vec<String> {
        let lower = mount.option("lowerdir").and_then(|layers| layers.split(':').next());
        let layer = mount.option("upperdir").or(lower).filter(|_| depth < MAX_LAYERS);
        let Some(layer) = layer.map(|layer| self.at_root(super::mounts::unescape(layer))) else {
            return Vec::new();
        };
        let Ok(status) = sys::status_of_path(&layer) else { return Vec::new() };
        match self.name(DeviceNumber::from(status.device)) {
            Some(name) => vec![name],
            None => self.backing_devices(&layer, &status, depth + 1),
        }
    }

    /// The kernel name of the device that a path, such as a mount's source, names.
    #[must_use]
    pub fn device_at(&self, path: &Path) -> Option<String> {
        let status = sys::status_of_path(&self.at_root(path)).ok();
        let by_node = status
            .filter(|s| s.file_type() == libc::S_IFBLK)
            .and_then(|s| self.name(DeviceNumber::from(s.special)));
        // In a container, or on a tree of a test, there may be no node; the name is then what is left.
        by_node.or_else(|| {
            let name = super::file_name(path)?;
            self.directory(&name).map(|_| name)
        })
    }
}

fn no_devices(filesystem: &str) -> &'static str {
    match filesystem {
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => "it is memory, not a medium",
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "glusterfs" | "lustre" | "beegfs" | "gpfs" | "9p"
        | "afs" | "pvfs2" => "it is on another machine",
        "zfs" => "ZFS does not say which drives it uses; see `zpool status`",
        "overlay" => "the layers of the overlay are not visible from here",
        name if name.starts_with("fuse") => "a user process stands behind it",
        "virtiofs" => "it is the host's",
        _ => "the kernel names no block device for it",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;
    use super::*;

    fn names(backing: &Backing) -> Vec<&str> {
        backing.block_devices.iter().map(|d| d.name.as_str()).collect()
    }

    /// A tree whose files are reached by their paths in it; no device number of the real machine is known there.
    fn backing(tree: &Tree, path: &str) -> Backing {
        let sysfs = tree.sysfs();
        let mounts = sysfs.mounts();
        let mount = mount_of(&mounts, Path::new(path)).unwrap();
        let devices = sysfs.devices_of_mount(mount, DeviceNumber::default(), 0);
        Backing { block_devices: sysfs.stack_of_all(devices), ..Backing::default() }
    }

    #[test]
    fn btrfs_stands_on_all_of_its_members() {
        let tree = Tree::new();
        tree.disk("pci/a", "sda", "8:0", 1 << 30);
        tree.disk("pci/b", "sdb", "8:16", 1 << 30);
        tree.file("/sys/fs/btrfs/0000-uuid/devices/sda", "");
        tree.file("/sys/fs/btrfs/0000-uuid/devices/sdb", "");
        tree.file("/sys/fs/btrfs/features/x", "");
        tree.file("/proc/self/mountinfo", "30 1 0:44 /sub /data rw - btrfs /dev/sdb rw\n");
        assert_eq!(names(&backing(&tree, "/data/x")), ["sda", "sdb"]);
    }

    #[test]
    fn what_is_spread_over_several_stands_on_all_of_them_each_once() {
        let tree = Tree::new();
        let a = tree.disk("pci/a", "sda", "8:0", 1 << 30);
        tree.partition(&a, "sda1", "8:1", 1 << 20);
        tree.partition(&a, "sda2", "8:2", 1 << 20);
        tree.disk("pci/b", "sdb", "8:16", 1 << 30);
        let sysfs = tree.sysfs();
        let on = |filesystem: &str, name: &str| Backing {
            filesystem: Some(filesystem.to_owned()),
            options: Some("rw".to_owned()),
            block_devices: sysfs.stack(name),
            ..Backing::default()
        };
        let joined = sysfs.joined(&[on("xfs", "sda1"), on("xfs", "sda2"), on("ext4", "sdb")]);
        assert_eq!(names(&joined), ["sda1", "sda2", "sdb", "sda"]);
        assert_eq!((joined.filesystem, joined.options.as_deref()), (None, Some("rw")));
        assert_eq!(sysfs.joined(&[]), Backing::default());
    }

    #[test]
    fn an_overlay_stands_on_its_upper_layer() {
        let tree = Tree::new();
        tree.disk("pci/a", "sda", "8:0", 1 << 30);
        let up = tree.root.path().join("up");
        fs::create_dir_all(&up).unwrap();
        use std::os::unix::fs::MetadataExt;
        let device = fs::metadata(&up).unwrap().dev();
        let number = format!("{}:{}", libc::major(device), libc::minor(device));
        tree.disk("pci/b", "sdb", &number, 1 << 30);
        tree.file(
            "/proc/self/mountinfo",
            "30 1 0:44 / /merged rw - overlay overlay rw,lowerdir=/low,upperdir=/up,workdir=/w\n",
        );
        assert_eq!(names(&backing(&tree, "/merged/x")), ["sdb"]);
    }

    #[test]
    fn network_and_memory_file_systems_have_no_devices_and_say_why() {
        let tree = Tree::new();
        tree.file(
            "/proc/self/mountinfo",
            "30 1 0:44 / /net rw - nfs4 server:/export rw\n31 1 0:45 / /mem rw - tmpfs tmpfs rw\n",
        );
        assert!(names(&backing(&tree, "/net/x")).is_empty());
        assert!(names(&backing(&tree, "/mem/x")).is_empty());
        assert!(no_devices("nfs4").contains("another machine"));
        assert!(no_devices("tmpfs").contains("memory"));
    }

    #[test]
    fn drives_are_the_devices_with_nothing_below() {
        let tree = Tree::new();
        let a = tree.disk("pci/a", "sda", "8:0", 1 << 30);
        let b = tree.disk("pci/b", "sdb", "8:16", 1 << 30);
        let part = tree.partition(&a, "sda1", "8:1", 1 << 20);
        let md = tree.disk("virtual/block", "md0", "9:0", 1 << 30);
        tree.stack(&part, &md);
        tree.stack(&b, &md);
        let backing = Backing { block_devices: tree.sysfs().stack("md0"), ..Backing::default() };
        let mut drives: Vec<_> = backing.drives().map(|d| d.name.as_str()).collect();
        drives.sort_unstable();
        assert_eq!(drives, ["sda", "sdb"]);
    }

    #[test]
    fn this_machines_root_has_a_mount() {
        let backing = Sysfs::host().backing(Path::new("/")).unwrap();
        assert_eq!(backing.mount_point.as_deref(), Some("/"));
        assert!(backing.filesystem.is_some());
        assert!(Sysfs::host().backing(Path::new("/no/such/path")).is_err());
    }
}
