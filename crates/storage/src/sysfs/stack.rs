//! Which devices lie below and above a device.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

use super::{BlockDevice, DeviceNumber, Sysfs, entries};
use crate::device::sys;

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
        let root = self.at_root("/sys/fs/btrfs");
        entries(&root)
            .into_iter()
            .map(|uuid| entries(&root.join(uuid).join("devices")))
            .find(|members| members.iter().any(|member| member == name))
            .unwrap_or_default()
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
