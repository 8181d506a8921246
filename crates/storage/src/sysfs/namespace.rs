//! The block device of an NVMe namespace, from its character device.
//!
//! Names do not tell: `ng0n1` is named after its controller, and `nvme0n1`, where drives may be reached by several paths,
//! after its subsystem, which is counted apart. Both are children of one node of the device tree, the controller or the
//! subsystem. So the twin is the block device with the same parent and the same namespace number; and where there is not
//! exactly one, there is none.

use std::fs;
use std::path::{Path, PathBuf};

use super::{DeviceNumber, Sysfs, entries, file_name, read_number};

/// The class of the character devices of namespaces.
const CLASS: &str = "nvme-generic";

/// Why no block device stands for a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoTwin {
    /// sysfs does not show the character device.
    #[error("sysfs does not show it")]
    Hidden,
    /// No block device has its parent and its namespace number.
    #[error("its namespace has no block device")]
    Missing,
    /// More than one has.
    #[error("several block devices have its namespace's number")]
    Several,
}

/// Whether a character device is that of a namespace.
pub(crate) fn is_namespace(system: &Sysfs, character: DeviceNumber) -> bool {
    directory(system, character).is_ok()
}

/// The kernel's name of the block device of namespace `nsid`, whose character device is `character`.
pub(crate) fn block_device_of(system: &Sysfs, character: DeviceNumber, nsid: u32) -> Result<String, NoTwin> {
    let parent = directory(system, character)?.parent().map(Path::to_owned).ok_or(NoTwin::Hidden)?;
    let is_twin = |name: &String| {
        let directory = parent.join(name);
        // A path of a namespace that has several is hidden: a disk without a number.
        read_number(&directory.join("nsid")) == Some(nsid)
            && system.number(name).and_then(|number| system.name(number)).as_ref() == Some(name)
            && system.directory(name).as_ref() == Some(&directory)
    };
    let mut twins = entries(&parent).into_iter().filter(is_twin);
    match (twins.next(), twins.next()) {
        (Some(twin), None) => Ok(twin),
        (Some(_), Some(_)) => Err(NoTwin::Several),
        (None, _) => Err(NoTwin::Missing),
    }
}

/// The character devices by which the namespace of block device `disk` takes commands, with their numbers.
///
/// Without opening one: sysfs has no namespace number of a character device. But it lies in the same directory as the disk,
/// and its name ends in the same number, by which the kernel counts the namespaces there.
pub(crate) fn characters_of(system: &Sysfs, disk: &str) -> Vec<(String, DeviceNumber)> {
    let directory = system.directory(disk);
    let Some(parent) = directory.as_deref().and_then(Path::parent) else { return Vec::new() };
    let of_disk = |name: &str| match (instance(name), instance(disk)) {
        (Some(one), Some(other)) => one == other,
        // By names of another make it cannot be told, so that it may be.
        _ => true,
    };
    let character = |name: String| {
        let directory = parent.join(&name);
        let number = read_number(&directory.join("dev"))?;
        (has_class(&directory) && of_disk(&name)).then_some((name, number))
    };
    entries(parent).into_iter().filter_map(character).collect()
}

/// The number of a namespace at the end of a name: 2 of `nvme0n2` and `ng1n2`.
fn instance(name: &str) -> Option<u32> {
    let (before, number) = name.rsplit_once('n')?;
    before.ends_with(|last: char| last.is_ascii_digit()).then(|| number.parse().ok())?
}

/// The directory in sysfs of a namespace's character device.
fn directory(system: &Sysfs, character: DeviceNumber) -> Result<PathBuf, NoTwin> {
    let link = system.at_root("/sys/dev/char").join(character.to_string());
    let directory = fs::canonicalize(link).map_err(|_| NoTwin::Hidden)?;
    if has_class(&directory) { Ok(directory) } else { Err(NoTwin::Hidden) }
}

fn has_class(directory: &Path) -> bool {
    let class = fs::canonicalize(directory.join("subsystem")).ok().and_then(|class| file_name(&class));
    class.as_deref() == Some(CLASS)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sysfs::tests::Tree;

    /// A character device below a controller or subsystem.
    pub(crate) fn character(tree: &Tree, parent: &str, name: &str, number: &str, class: &str) {
        let directory = format!("/sys/devices/{parent}/{name}");
        tree.file(&format!("{directory}/dev"), &format!("{number}\n"));
        tree.link(&format!("/sys/dev/char/{number}"), &directory);
        tree.file(&format!("/sys/class/{class}/.keep"), "");
        tree.link(&format!("{directory}/subsystem"), &format!("/sys/class/{class}"));
    }

    fn namespace(tree: &Tree, parent: &str, name: &str, number: &str, nsid: u32) {
        let directory = tree.disk(parent, name, number, 1 << 30);
        tree.file(&format!("{directory}/nsid"), &format!("{nsid}\n"));
    }

    fn twin(tree: &Tree, number: &str, nsid: u32) -> Result<String, NoTwin> {
        let root = fs::canonicalize(tree.root.path()).unwrap();
        block_device_of(&Sysfs::at(root), number.parse().unwrap(), nsid)
    }

    #[test]
    fn the_twin_has_the_same_parent_and_number_whatever_its_name() {
        let tree = Tree::new();
        // Two controllers whose subsystems were counted the other way round.
        namespace(&tree, "pci0/nvme/nvme0", "nvme1n1", "259:0", 1);
        namespace(&tree, "pci0/nvme/nvme0", "nvme1n2", "259:1", 2);
        namespace(&tree, "pci1/nvme/nvme1", "nvme0n1", "259:2", 1);
        character(&tree, "pci0/nvme/nvme0", "ng0n1", "240:0", CLASS);
        character(&tree, "pci1/nvme/nvme1", "ng1n1", "240:1", CLASS);
        assert_eq!(twin(&tree, "240:0", 1).as_deref(), Ok("nvme1n1"));
        assert_eq!(twin(&tree, "240:0", 2).as_deref(), Ok("nvme1n2"));
        assert_eq!(twin(&tree, "240:1", 1).as_deref(), Ok("nvme0n1"));
        assert_eq!(twin(&tree, "240:1", 2), Err(NoTwin::Missing));
    }

    #[test]
    fn of_a_namespace_with_several_paths_the_twin_is_the_one_with_a_number() {
        let tree = Tree::new();
        let subsystem = "virtual/nvme-subsystem/nvme-subsys0";
        namespace(&tree, subsystem, "nvme0n1", "259:0", 1);
        tree.file(&format!("/sys/devices/{subsystem}/nvme0c0n1/nsid"), "1\n");
        tree.file(&format!("/sys/devices/{subsystem}/nvme0c1n1/nsid"), "1\n");
        character(&tree, subsystem, "ng0n1", "240:0", CLASS);
        assert_eq!(twin(&tree, "240:0", 1).as_deref(), Ok("nvme0n1"));
    }

    #[test]
    fn two_private_namespaces_of_one_number_have_no_twin() {
        let tree = Tree::new();
        let subsystem = "virtual/nvme-subsystem/nvme-subsys0";
        namespace(&tree, subsystem, "nvme0n1", "259:0", 1);
        namespace(&tree, subsystem, "nvme0n2", "259:1", 1);
        character(&tree, subsystem, "ng0n1", "240:0", CLASS);
        assert_eq!(twin(&tree, "240:0", 1), Err(NoTwin::Several));
    }

    #[test]
    fn a_block_device_has_the_character_devices_of_its_own_namespace() {
        let tree = Tree::new();
        namespace(&tree, "pci0/nvme/nvme0", "nvme1n1", "259:0", 1);
        namespace(&tree, "pci0/nvme/nvme0", "nvme1n2", "259:1", 2);
        character(&tree, "pci0/nvme/nvme0", "ng0n1", "240:0", CLASS);
        character(&tree, "pci0/nvme/nvme0", "ng0n2", "240:1", CLASS);
        character(&tree, "pci0/nvme/nvme0", "hwmon1", "240:9", "hwmon");
        tree.disk("pci9/scsi", "sda", "8:0", 1 << 30);
        let of = |disk| characters_of(&tree.sysfs(), disk);
        assert_eq!(of("nvme1n1"), [("ng0n1".to_owned(), "240:0".parse().unwrap())]);
        assert_eq!(of("nvme1n2"), [("ng0n2".to_owned(), "240:1".parse().unwrap())]);
        assert_eq!((of("sda"), of("gone")), (vec![], vec![]));
        character(&tree, "pci0/nvme/nvme0", "other", "240:2", CLASS);
        assert_eq!(of("nvme1n1").len(), 2, "what cannot be told apart counts");
    }

    #[test]
    fn only_a_namespace_is_one() {
        let tree = Tree::new();
        namespace(&tree, "pci0/nvme/nvme0", "nvme0n1", "259:0", 1);
        character(&tree, "pci0/nvme/nvme0", "ng0n1", "240:0", CLASS);
        character(&tree, "pci0/nvme", "nvme0", "241:0", "nvme");
        character(&tree, "virtual/mem", "null", "1:3", "mem");
        let system = tree.sysfs();
        assert!(is_namespace(&system, "240:0".parse().unwrap()));
        for other in ["241:0", "1:3", "240:9"] {
            assert!(!is_namespace(&system, other.parse().unwrap()), "{other}");
            assert_eq!(twin(&tree, other, 1), Err(NoTwin::Hidden));
        }
    }
}
