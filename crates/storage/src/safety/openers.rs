//! Processes that have a block device open for writing, or a character device by which its blocks are written.
//!
//! `O_EXCL` keeps out only those who use it, too; a virtual machine or a database on a raw device often does not, and of a
//! namespace that is driven by NVMe commands (`/dev/ng0n1`) the block device is not even open. Their descriptors show in
//! `/proc/PID/fd` as far as this user may look. One that is open for reading counts in neither case: it is how drives
//! are asked for their health. Root may write a namespace by commands from such a one, and is not seen then.

use std::fs;
use std::path::Path;

use super::Obstacle;
use crate::device::sys;
use crate::sysfs::{BlockDevice, DeviceNumber, Sysfs, characters_of, entries, read_text};

/// For each family of devices the processes, other than this one, that have one of it open for writing.
pub(super) fn writers(system: &Sysfs, families: &[Vec<BlockDevice>]) -> Vec<Vec<Obstacle>> {
    let own = std::process::id();
    let processes = entries(&system.at_root("/proc")).into_iter().filter_map(|n| n.parse().ok());
    let nodes: Vec<Vec<Node>> = families.iter().map(|family| nodes_of(system, family)).collect();
    let mut found = vec![Vec::new(); families.len()];
    for pid in processes.filter(|pid: &u32| !(system.is_host() && *pid == own)) {
        let opened = opened_for_writing(system, pid);
        for (nodes, found) in nodes.iter().zip(&mut found) {
            // One that has several of a family open is one obstacle.
            let Some(node) = nodes.iter().find(|node| opened.contains(&node.identity)) else { continue };
            let command = system.text(format!("/proc/{pid}/comm")).unwrap_or_else(|| "?".into());
            found.push(Obstacle::Open { device: node.path.clone(), pid, command });
        }
    }
    found
}

/// What a descriptor leads to: the kind of a device, and its number.
type Identity = (u32, DeviceNumber);

/// A device by which one of a family is written.
struct Node {
    path: String,
    identity: Identity,
}

/// The block devices of a family, and the character devices that take commands for them.
fn nodes_of(system: &Sysfs, family: &[BlockDevice]) -> Vec<Node> {
    let characters = family.iter().flat_map(|device| characters_of(system, &device.name));
    let characters = characters
        .map(|(name, number)| Node { path: format!("/dev/{name}"), identity: (libc::S_IFCHR, number) });
    let block =
        |device: &BlockDevice| Node { path: device.dev_path(), identity: (libc::S_IFBLK, device.number) };
    family.iter().map(block).chain(characters).collect()
}

/// The devices that the process has open for writing.
fn opened_for_writing(system: &Sysfs, pid: u32) -> Vec<Identity> {
    let process = system.at_root(format!("/proc/{pid}"));
    let opened = entries(&process.join("fd")).into_iter().filter_map(|fd| {
        let link = process.join("fd").join(&fd);
        // Sockets, pipes and memory have no path; reading the link is cheaper than looking behind it.
        let target = fs::read_link(&link).ok()?;
        if !target.is_absolute() || !is_for_writing(&process.join("fdinfo").join(&fd)) {
            return None;
        }
        let status = sys::status_of_path(&link).ok()?;
        let kind = status.file_type();
        matches!(kind, libc::S_IFBLK | libc::S_IFCHR).then(|| (kind, DeviceNumber::from(status.special)))
    });
    opened.collect()
}

/// Whether a descriptor can write: `flags` in fdinfo is octal, its last two bits the access mode
/// (proc_pid_fdinfo(5)).
fn is_for_writing(fdinfo: &Path) -> bool {
    let text = read_text(fdinfo).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|value| i64::from_str_radix(value.trim(), 8).ok());
    flags.is_some_and(|flags| {
        let mode = flags & i64::from(libc::O_ACCMODE);
        mode == i64::from(libc::O_WRONLY) || mode == i64::from(libc::O_RDWR)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_whose_commands_are_sent_by_its_character_device_is_open() {
        use crate::sysfs::namespace_tests::character;
        use crate::sysfs::tests::Tree;

        let tree = Tree::new();
        let controller = "pci0/nvme/nvme0";
        tree.disk(controller, "nvme0n1", "259:0", 1 << 30);
        tree.disk(controller, "nvme0n2", "259:1", 1 << 30);
        // What the descriptor leads to is real, so that a real device stands for the namespace.
        let number = DeviceNumber::from(sys::status_of_path(Path::new("/dev/null")).unwrap().special);
        character(&tree, controller, "ng0n1", &number.to_string(), "nvme-generic");
        let descriptors = tree.root.path().join("proc/77/fd");
        fs::create_dir_all(&descriptors).unwrap();
        std::os::unix::fs::symlink("/dev/null", descriptors.join("3")).unwrap();
        tree.file("/proc/77/comm", "qemu\n");
        let open = |flags: &str| {
            tree.file("/proc/77/fdinfo/3", &format!("pos:\t0\nflags:\t{flags}\n"));
            let device = |name| vec![tree.sysfs().block_node(name).unwrap()];
            let found = writers(&tree.sysfs(), &[device("nvme0n1"), device("nvme0n2")]);
            found.iter().map(|found| found.iter().map(ToString::to_string).collect()).collect::<Vec<Vec<_>>>()
        };
        assert_eq!(open("0100002"), [vec!["/dev/ng0n1 is open in process 77 (qemu)"], vec![]]);
        assert_eq!(open("0100000"), [vec![], Vec::<&str>::new()], "for reading");
    }

    #[test]
    fn the_access_mode_is_read_from_the_octal_flags() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("3");
        for (text, writes) in [
            ("pos:\t0\nflags:\t0100000\nmnt_id:\t1\n", false),
            ("pos:\t0\nflags:\t0100001\n", true),
            ("pos:\t0\nflags:\t0140002\n", true),
            ("flags:\t9x\n", false),
            ("", false),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(is_for_writing(&path), writes, "{text:?}");
        }
        assert!(!is_for_writing(&directory.path().join("4")));
    }
}
