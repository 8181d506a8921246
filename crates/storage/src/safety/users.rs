//! Who uses a block device or file now.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::Obstacle;
use super::openers::writers;
use crate::device::sys::{self, Status};
use crate::sysfs::{BlockDevice, DeviceNumber, Mount, Sysfs};

/// All present users of the device: of itself, of its partitions, and of the disk that it is a part of.
/// Other partitions of the same disk do not matter.
///
/// # Errors
/// Where the kernel shows no such device, since nothing can then be known about it.
pub fn users(system: &Sysfs, number: DeviceNumber) -> io::Result<Vec<Obstacle>> {
    Ok(users_of_each(system, &[number])?.into_iter().flatten().collect())
}

/// The same of several devices, in their order. All descriptors of all processes are looked through once, not
/// once for each device: on a busy node that is what takes the time.
///
/// # Errors
/// As [`users`].
pub fn users_of_each(system: &Sysfs, numbers: &[DeviceNumber]) -> io::Result<Vec<Vec<Obstacle>>> {
    let families = numbers
        .iter()
        .map(|number| {
            let device = system.name(*number).and_then(|name| system.block_node(&name)).ok_or_else(|| {
                let message = format!("no block device {number} in sysfs");
                io::Error::new(io::ErrorKind::NotFound, message)
            })?;
            Ok(family(system, &device))
        })
        .collect::<io::Result<Vec<_>>>()?;
    let mounts = system.mounts();
    let writers = writers(system, &families);
    Ok(families
        .iter()
        .zip(writers)
        .map(|(family, writers)| {
            let mut found = Vec::new();
            for member in family {
                found.extend(mounted(system, &mounts, member));
                found.extend(swapped(system, member));
                found.extend(held(system, &mounts, member));
                found.extend(looped(system, member));
            }
            found.extend(writers);
            found
        })
        .collect())
}

/// The device, its partitions, and its disk.
fn family(system: &Sysfs, device: &BlockDevice) -> Vec<BlockDevice> {
    let related = device.partitions.iter().chain(&device.disk);
    let related: Vec<_> = related.filter_map(|name| system.block_node(name)).collect();
    std::iter::once(device.clone()).chain(related).collect()
}

fn mounted(system: &Sysfs, mounts: &[Mount], device: &BlockDevice) -> Vec<Obstacle> {
    // A file system that is bound to many places is one obstacle, named by the first.
    let mut seen = BTreeSet::new();
    mounts
        .iter()
        .filter(|mount| is_mounted_from(system, mount, device))
        .filter(|mount| seen.insert(mount.device))
        .map(|mount| Obstacle::Mounted {
            device: device.dev_path(),
            mount_point: mount.mount_point.display().to_string(),
            filesystem: mount.filesystem.clone(),
        })
        .collect()
}

/// Whether the mount uses the device: by number, by name, or as a member of its btrfs.
fn is_mounted_from(system: &Sysfs, mount: &Mount, device: &BlockDevice) -> bool {
    if mount.device == device.number {
        return true;
    }
    // What a network or kernel file system calls its source may look like anything.
    let named: Vec<String> = mount.named_devices().iter().filter_map(|path| system.device_at(path)).collect();
    named.contains(&device.name)
        || (mount.filesystem == "btrfs"
            && named.iter().any(|name| system.btrfs_members(name).contains(&device.name)))
}

/// The files and devices in `/proc/swaps`.
fn swaps(system: &Sysfs) -> Vec<String> {
    let text = system.raw("/proc/swaps").unwrap_or_default();
    text.lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .map(crate::sysfs::unescape)
        .collect()
}

fn swapped(system: &Sysfs, device: &BlockDevice) -> Option<Obstacle> {
    let is_this = |path: &String| system.device_at(Path::new(path)).as_ref() == Some(&device.name);
    swaps(system).iter().any(is_this).then(|| Obstacle::Swap { device: device.dev_path() })
}

fn held(system: &Sysfs, mounts: &[Mount], device: &BlockDevice) -> Vec<Obstacle> {
    let holders = device.holders.iter().map(|name| {
        let above = system.above(name);
        let mount_point =
            above.iter().find_map(|upper| mounts.iter().find(|mount| is_mounted_from(system, mount, upper)));
        Obstacle::Held {
            device: device.dev_path(),
            holder: above.first().map_or_else(|| format!("/dev/{name}"), BlockDevice::describe),
            mount_point: mount_point.map(|mount| mount.mount_point.display().to_string()),
        }
    });
    holders.collect()
}

/// Loop devices take a claim only while they are set up, and are no holders in sysfs.
fn looped(system: &Sysfs, device: &BlockDevice) -> Vec<Obstacle> {
    let is_this = |path: &Path| system.device_at(path).as_ref() == Some(&device.name);
    loops(system)
        .into_iter()
        .filter(|(_, file)| file.starts_with("/dev/") && is_this(Path::new(file)))
        .map(|(holder, _)| Obstacle::Loop { device: device.dev_path(), holder })
        .collect()
}

/// All loop devices in use, and what is behind them.
fn loops(system: &Sysfs) -> Vec<(String, String)> {
    let names = system.disks().into_iter().filter(|name| name.starts_with("loop"));
    names
        .filter_map(|name| {
            let backing = system.text(format!("/sys/block/{name}/loop/backing_file"))?;
            Some((format!("/dev/{name}"), backing))
        })
        .collect()
}

/// Why a regular file must not be written, whatever the user says: it is swapped to, or is behind a
/// loop device.
pub(crate) fn file_obstacles(system: &Sysfs, path: &Path, status: &Status) -> Vec<Obstacle> {
    let is_this =
        |name: &str| sys::status_of_path(&system.at_root(name)).is_ok_and(|other| other.is_same_file(status));
    let device = path.display().to_string();
    let swap = swaps(system)
        .into_iter()
        .filter(|name| is_this(name))
        .map(|_| Obstacle::Swap { device: device.clone() });
    let loops = loops(system)
        .into_iter()
        .filter(|(_, file)| is_this(file))
        .map(|(holder, _)| Obstacle::Loop { device: device.clone(), holder });
    swap.chain(loops).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::tests::Tree;

    fn users_of(tree: &Tree, number: &str) -> Vec<String> {
        let found = users(&tree.sysfs(), number.parse().unwrap()).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    fn disk_with_two_partitions() -> Tree {
        let tree = Tree::new();
        let disk = tree.disk("pci/a", "sda", "8:0", 1 << 30);
        tree.partition(&disk, "sda1", "8:1", 1 << 20);
        tree.partition(&disk, "sda2", "8:2", 1 << 20);
        tree
    }

    #[test]
    fn a_mounted_partition_protects_the_disk_but_not_its_sibling() {
        let tree = disk_with_two_partitions();
        tree.file("/proc/self/mountinfo", "30 1 8:1 / /boot rw - ext4 /dev/sda1 rw\n");
        assert_eq!(users_of(&tree, "8:0"), ["/dev/sda1 is mounted on /boot (ext4)"]);
        assert_eq!(users_of(&tree, "8:1"), ["/dev/sda1 is mounted on /boot (ext4)"]);
        assert!(users_of(&tree, "8:2").is_empty());
    }

    #[test]
    fn a_mounted_disk_protects_its_partitions() {
        let tree = disk_with_two_partitions();
        tree.file("/proc/self/mountinfo", "30 1 8:0 / /data rw - xfs /dev/sda rw\n");
        assert_eq!(users_of(&tree, "8:2"), ["/dev/sda is mounted on /data (xfs)"]);
    }

    #[test]
    fn every_member_of_a_mounted_btrfs_is_mounted() {
        let tree = disk_with_two_partitions();
        tree.disk("pci/b", "sdb", "8:16", 1 << 30);
        tree.file("/sys/fs/btrfs/u/devices/sda2", "");
        tree.file("/sys/fs/btrfs/u/devices/sdb", "");
        tree.file("/proc/self/mountinfo", "30 1 0:44 / /pool rw - btrfs /dev/sda2 rw\n");
        assert_eq!(users_of(&tree, "8:16"), ["/dev/sdb is mounted on /pool (btrfs)"]);
        assert_eq!(users_of(&tree, "8:0"), ["/dev/sda2 is mounted on /pool (btrfs)"]);
        assert!(users_of(&tree, "8:1").is_empty());
    }

    #[test]
    fn the_log_device_of_a_mount_is_mounted_too() {
        let tree = disk_with_two_partitions();
        tree.file("/proc/self/mountinfo", "30 1 9:9 / /x rw - xfs /dev/sdz rw,logdev=/dev/sda2\n");
        assert_eq!(users_of(&tree, "8:2"), ["/dev/sda2 is mounted on /x (xfs)"]);
    }

    #[test]
    fn holders_are_named_with_what_they_are_and_where_they_are_mounted() {
        let tree = disk_with_two_partitions();
        let part = "/sys/devices/pci/a/sda/sda2";
        let md = tree.disk("virtual/block", "md0", "9:0", 1 << 30);
        tree.file(&format!("{md}/md/level"), "raid1\n");
        let dm = tree.disk("virtual/block", "dm-0", "252:0", 1 << 30);
        tree.stack(part, &md);
        tree.stack(&md, &dm);
        assert_eq!(users_of(&tree, "8:0"), ["/dev/sda2 is held by /dev/md0 (md raid1)"]);
        tree.file("/proc/self/mountinfo", "30 1 252:0 / /srv rw - ext4 /dev/mapper/x rw\n");
        assert_eq!(
            users_of(&tree, "8:2"),
            ["/dev/sda2 is held by /dev/md0 (md raid1), which is mounted on /srv"]
        );
    }

    #[test]
    fn swap_and_loop_devices_protect_what_they_stand_on() {
        let tree = disk_with_two_partitions();
        tree.file("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sda1 partition 1 0 -2\n");
        let looped = tree.disk("virtual/block", "loop3", "7:3", 1 << 20);
        tree.file(&format!("{looped}/loop/backing_file"), "/dev/sda2\n");
        assert_eq!(users_of(&tree, "8:1"), ["/dev/sda1 is swapped to"]);
        assert_eq!(users_of(&tree, "8:2"), ["/dev/sda2 is what is behind /dev/loop3"]);
        assert_eq!(users_of(&tree, "8:0").len(), 2);
    }

    #[test]
    fn files_that_are_swapped_to_or_looped_are_protected() {
        let tree = Tree::new();
        tree.file("/a file.img", "x");
        tree.file("/b.img", "x");
        tree.file("/proc/swaps", "Filename Type\n/a\\040file.img file 1 0 -2\n");
        let looped = tree.disk("virtual/block", "loop3", "7:3", 1 << 20);
        tree.file(&format!("{looped}/loop/backing_file"), "/b.img\n");
        let obstacles = |name: &str| {
            let path = tree.root.path().join(name);
            let status = sys::status_of_path(&path).unwrap();
            file_obstacles(&tree.sysfs(), Path::new(name), &status)
        };
        assert_eq!(obstacles("a file.img"), [Obstacle::Swap { device: "a file.img".into() }]);
        assert_eq!(
            obstacles("b.img"),
            [Obstacle::Loop { device: "b.img".into(), holder: "/dev/loop3".into() }]
        );
    }

    #[test]
    fn an_unknown_device_is_an_error_not_a_free_one() {
        assert!(users(&Tree::new().sysfs(), "8:0".parse().unwrap()).is_err());
    }
}
