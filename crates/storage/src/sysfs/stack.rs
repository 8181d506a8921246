//! Which devices lie below and above a device.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::{BlockDevice, DeviceNumber, Sysfs, entries, read_number};
use crate::device::sys;

/// Bytes that btrfs puts on one drive before the next, whatever the profile (kernel, `BTRFS_STRIPE_LEN`).
pub const BTRFS_CHUNK_BYTES: u64 = 64 << 10;

impl Sysfs {
    /// The device and all that lie below it, nearest first, each once, down to what the kernel knows
    /// nothing below: partition → disk, md and dm → members, loop → the device of the backing file's file system.
    #[must_use]
    pub fn stack(&self, name: &str) -> Vec<BlockDevice> {
        self.walk([name.to_owned()], |name| self.block_device(name), |device| self.below(device))
    }

    /// The device and all that are made of it, nearest first, each once, as [`Sysfs::block_node`] has them.
    #[must_use]
    pub fn above(&self, name: &str) -> Vec<BlockDevice> {
        self.walk(
            [name.to_owned()],
            |name| self.block_node(name),
            |device| {
                let mut upper = device.holders.clone();
                upper.extend(device.partitions.iter().cloned());
                upper
            },
        )
    }

    /// The names of those that lie below the device, itself left out.
    pub(crate) fn names_below(&self, name: &str) -> impl Iterator<Item = String> {
        let all = self.walk([name.to_owned()], |name| self.block_node(name), |device| self.below(device));
        all.into_iter().skip(1).map(|device| device.name)
    }

    /// The stacks of several devices as one, nearest first; what is in `known` is taken from there.
    pub(crate) fn stack_of_known(
        &self,
        names: impl IntoIterator<Item = String>,
        known: &[&BlockDevice],
    ) -> Vec<BlockDevice> {
        let read = |name: &str| {
            let found = known.iter().find(|device| device.name == name);
            found.map(|device| (*device).clone()).or_else(|| self.block_device(name))
        };
        self.walk(names, read, |device| self.below(device))
    }

    /// The stacks of several devices as one, nearest first.
    pub(crate) fn stack_of_all(&self, names: impl IntoIterator<Item = String>) -> Vec<BlockDevice> {
        self.stack_of_known(names, &[])
    }

    /// Breadth first, so that nearer devices come first; each device once, so that no loop holds it up.
    fn walk(
        &self,
        start: impl IntoIterator<Item = String>,
        read: impl Fn(&str) -> Option<BlockDevice>,
        next: impl Fn(&BlockDevice) -> Vec<String>,
    ) -> Vec<BlockDevice> {
        let mut queue: VecDeque<String> = start.into_iter().collect();
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        while let Some(name) = queue.pop_front() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let Some(device) = read(&name) else { continue };
            queue.extend(next(&device));
            found.push(device);
        }
        found
    }

    fn below(&self, device: &BlockDevice) -> Vec<String> {
        if let Some(disk) = &device.disk {
            return vec![disk.clone()];
        }
        if let Some(backing) = &device.loop_device {
            // The name is as it was seen where the loop device was made, which may not be here.
            let path = self.at_root(&backing.backing_file);
            return self.devices_of_path(&path);
        }
        device.slaves.clone()
    }

    /// Names of the devices that hold `path` most directly: itself if it is one, else those of its file
    /// system.
    pub(crate) fn devices_of_path(&self, path: &Path) -> Vec<String> {
        let Ok(status) = sys::status_of_path(path) else { return Vec::new() };
        if status.file_type() == libc::S_IFBLK {
            return self.name(DeviceNumber::from(status.special)).into_iter().collect();
        }
        if let Some(name) = self.name(DeviceNumber::from(status.device)) {
            return vec![name];
        }
        self.backing_devices(path, &status, 0)
    }

    /// The members of the mounted btrfs that `name` is a member of, itself included; none where it is
    /// in none (kernel, `/sys/fs/btrfs/UUID/devices`).
    #[must_use]
    pub fn btrfs_members(&self, name: &str) -> Vec<String> {
        self.btrfs_of(name).map(|(_, members)| members).unwrap_or_default()
    }

    /// Over how many drives the mounted btrfs that `name` is a member of spreads consecutive data, in chunks of
    /// [`BTRFS_CHUNK_BYTES`]. None where it does not: its data have another profile, or, in the middle of a conversion,
    /// several (kernel, `/sys/fs/btrfs/UUID/allocation/data/PROFILE`).
    #[must_use]
    pub fn btrfs_stripe_drives(&self, name: &str) -> Option<u32> {
        let (directory, members) = self.btrfs_of(name)?;
        let data = directory.join("allocation/data");
        // Counters of all profiles lie beside the profiles' directories.
        let holds_data = |profile: &String| {
            read_number(&data.join(profile).join("total_bytes")).is_some_and(|bytes: u64| bytes > 0)
        };
        let profiles: Vec<String> = entries(&data).into_iter().filter(holds_data).collect();
        let members = u32::try_from(members.len()).ok()?;
        match profiles.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["raid0" | "raid5" | "raid6"] => Some(members),
            ["raid10"] => Some(members / 2),
            _ => None,
        }
    }

    /// The directory in sysfs of the mounted btrfs that `name` is a member of, and its members.
    fn btrfs_of(&self, name: &str) -> Option<(PathBuf, Vec<String>)> {
        let root = self.at_root("/sys/fs/btrfs");
        entries(&root)
            .into_iter()
            .map(|uuid| root.join(uuid))
            .map(|directory| (directory.clone(), entries(&directory.join("devices"))))
            .find(|(_, members)| members.iter().any(|member| member == name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;

    fn names(devices: &[super::BlockDevice]) -> Vec<&str> {
        devices.iter().map(|d| d.name.as_str()).collect()
    }

    #[test]
    fn a_stack_goes_down_through_mappings_arrays_and_partitions() {
        let tree = Tree::new();
        let a = tree.disk("pci/a", "nvme0n1", "259:0", 1 << 30);
        let b = tree.disk("pci/b", "nvme1n1", "259:1", 1 << 30);
        let part = tree.partition(&a, "nvme0n1p1", "259:2", 1 << 29);
        let md = tree.disk("virtual/block", "md0", "9:0", 1 << 30);
        let dm = tree.disk("virtual/block", "dm-0", "252:0", 1 << 30);
        tree.stack(&part, &md);
        tree.stack(&b, &md);
        tree.stack(&md, &dm);
        let sysfs = tree.sysfs();
        assert_eq!(names(&sysfs.stack("dm-0")), ["dm-0", "md0", "nvme0n1p1", "nvme1n1", "nvme0n1"]);
        assert_eq!(names(&sysfs.above("nvme0n1")), ["nvme0n1", "nvme0n1p1", "md0", "dm-0"]);
        assert!(sysfs.stack("nothing").is_empty());
    }

    #[test]
    fn a_btrfs_spreads_its_data_where_all_of_them_have_one_profile_that_does() {
        let tree = Tree::new();
        for member in ["sda", "sdb", "sdc", "sdd"] {
            tree.file(&format!("/sys/fs/btrfs/uuid/devices/{member}"), "");
        }
        tree.file("/sys/fs/btrfs/uuid/allocation/data/total_bytes", "1000\n");
        tree.file("/sys/fs/btrfs/uuid/allocation/data/raid10/total_bytes", "1000\n");
        tree.file("/sys/fs/btrfs/uuid/allocation/data/single/total_bytes", "0\n");
        let sysfs = tree.sysfs();
        assert_eq!(sysfs.btrfs_stripe_drives("sdc"), Some(2));
        assert_eq!(sysfs.btrfs_stripe_drives("sde"), None);
        tree.file("/sys/fs/btrfs/uuid/allocation/data/single/total_bytes", "500\n");
        assert_eq!(sysfs.btrfs_stripe_drives("sdc"), None, "a conversion under way");
        tree.file("/sys/fs/btrfs/uuid/allocation/data/raid10/total_bytes", "0\n");
        assert_eq!(sysfs.btrfs_stripe_drives("sdc"), None);
    }

    #[test]
    fn a_tree_that_bites_its_tail_is_walked_once() {
        let tree = Tree::new();
        let a = tree.disk("virtual/block", "dm-0", "252:0", 1 << 30);
        let b = tree.disk("virtual/block", "dm-1", "252:1", 1 << 30);
        tree.stack(&a, &b);
        tree.stack(&b, &a);
        assert_eq!(names(&tree.sysfs().stack("dm-0")), ["dm-0", "dm-1"]);
    }

    #[test]
    fn a_loop_device_stands_on_the_device_of_its_file() {
        use std::os::unix::fs::MetadataExt;
        let tree = Tree::new();
        tree.file("/images/disk.img", "x");
        let device = std::fs::metadata(tree.root.path().join("images/disk.img")).unwrap().dev();
        let number = format!("{}:{}", libc::major(device), libc::minor(device));
        tree.disk("pci/x", "sda", &number, 1 << 30);
        let looped = tree.disk("virtual/block", "loop0", "7:0", 1 << 20);
        tree.file(&format!("{looped}/loop/backing_file"), "/images/disk.img\n");
        assert_eq!(names(&tree.sysfs().stack("loop0")), ["loop0", "sda"]);
    }
}
