//! What the kernel says about block devices, mounts and file systems.
//!
//! Everything is read from text files below one root, so that the same code runs on a real machine
//! (`/`) and on a tree that a test has built. Two rules hold throughout:
//!
//! - **A missing file is a missing fact, not a failure.** Kernels differ, devices vanish while they are
//!   being read, containers hide parts of the tree; each fact is an `Option` and is read by itself.
//! - **Names are kernel names** (`nvme0n1p2`), as in `/proc/diskstats`; paths below `/dev` are whatever udev
//!   made of them.

mod backing;
mod caches;
mod device;
mod links;
mod mounts;
mod namespace;
mod queue;
mod stack;

use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use backing::Backing;
pub use caches::Cache;
pub(crate) use caches::count_list;
pub use device::{BlockDevice, LoopFacts, MapperFacts, RaidFacts};
pub use links::PcieLink;
pub(crate) use mounts::unescape;
pub use mounts::{Mount, parse_mountinfo};
#[cfg(test)]
pub(crate) use namespace::tests as namespace_tests;
pub(crate) use namespace::{NoTwin, block_device_of, characters_of, is_namespace};
pub use queue::{QueueFacts, ZoneFacts};
pub use stack::BTRFS_CHUNK_BYTES;

/// A device number, printed as the kernel prints it: `259:3`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl From<(u32, u32)> for DeviceNumber {
    fn from((major, minor): (u32, u32)) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Text that is no device number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a device number (MAJOR:MINOR)")]
pub struct NotADeviceNumber(pub String);

impl FromStr for DeviceNumber {
    type Err = NotADeviceNumber;

    fn from_str(text: &str) -> Result<Self, NotADeviceNumber> {
        let parse = || {
            let (major, minor) = text.trim().split_once(':')?;
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        parse().ok_or_else(|| NotADeviceNumber(text.to_owned()))
    }
}

/// The tree of kernel files below one root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::host()
    }
}

impl Sysfs {
    /// This machine's.
    #[must_use]
    pub fn host() -> Self {
        Self::at("/")
    }

    /// A tree with `sys`, `proc`, `dev` and `etc` below `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether this is the real tree, in which paths and device numbers mean what they say.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where `path` (absolute) is below this root.
    #[must_use]
    pub fn at_root(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The trimmed text of a file; none where it cannot be read or is empty.
    #[must_use]
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        read_text(&self.at_root(path))
    }

    /// The directory of a block device or partition, by kernel name; links are resolved.
    #[must_use]
    pub fn directory(&self, name: &str) -> Option<PathBuf> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return None;
        }
        let class = self.at_root("/sys/class/block");
        let link = class.join(name);
        // The kernel's links lead through no other links, so one call reads the way. This is asked often.
        let target = fs::read_link(&link).ok().filter(|target| target.is_relative());
        let read = target.map(|target| joined(class, &target)).filter(|directory| directory.exists());
        let resolved =
            || fs::canonicalize(&link).or_else(|_| fs::canonicalize(self.at_root("/sys/block").join(name)));
        read.or_else(|| resolved().ok())
    }

    /// The kernel name of a block device or partition.
    #[must_use]
    pub fn name(&self, number: DeviceNumber) -> Option<String> {
        // The link's last name is the device's. Resolving it would ask for each directory on its way, and this is asked often.
        let link = self.at_root("/sys/dev/block").join(number.to_string());
        file_name(&fs::read_link(link).ok()?)
    }

    /// The kernel name of the disk that a partition is part of; a disk's own.
    #[must_use]
    pub fn disk_of(&self, name: &str) -> Option<String> {
        let directory = self.directory(name)?;
        if directory.join("partition").exists() {
            file_name(directory.parent()?)
        } else {
            file_name(&directory)
        }
    }

    /// The number of a block device or partition.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<DeviceNumber> {
        read_text(&self.directory(name)?.join("dev"))?.parse().ok()
    }

    /// Kernel names of all whole block devices, in order; partitions come with their disks.
    #[must_use]
    pub fn disks(&self) -> Vec<String> {
        entries(&self.at_root("/sys/block"))
    }

    /// The mounts that this process sees, in the order in which they were made.
    #[must_use]
    pub fn mounts(&self) -> Vec<Mount> {
        self.raw("/proc/self/mountinfo").map(|text| parse_mountinfo(&text)).unwrap_or_default()
    }

    /// A file's text as it is, bytes that are no UTF-8 replaced.
    pub(crate) fn raw(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.at_root(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The trimmed text of a file; none where it cannot be read or is empty. Attributes are short, and what
/// is not UTF-8 (a drive's serial number) is kept as far as it goes.
pub(crate) fn read_text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// A number in a file.
pub(crate) fn read_number<T: FromStr>(path: &Path) -> Option<T> {
    read_text(path)?.parse().ok()
}

/// `0` or `1` in a file.
pub(crate) fn read_flag(path: &Path) -> Option<bool> {
    read_number::<u64>(path).map(|value| value != 0)
}

/// The names in a directory, sorted as people count: `nvme2n1` before `nvme10n1`.
pub(crate) fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_by_cached_key(|name| natural(name));
    names
}

/// A name as text and numbers by turns.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, after) = rest.split_at(digits);
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(end);
        parts.push((text.to_owned(), number.parse().unwrap_or(u64::MAX)));
        rest = after;
    }
    parts
}

/// Where a relative path leads from a directory, if neither has links.
fn joined(mut from: PathBuf, path: &Path) -> PathBuf {
    for part in path.components() {
        match part {
            Component::ParentDir => drop(from.pop()),
            Component::Normal(name) => from.push(name),
            _ => {}
        }
    }
    from
}

/// The last part of a path as text.
pub(crate) fn file_name(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A fake tree of kernel files, built link by link as the kernel lays them out.
    pub(crate) struct Tree {
        pub root: tempfile::TempDir,
    }

    impl Tree {
        pub fn new() -> Self {
            let tree = Self { root: tempfile::tempdir().unwrap() };
            for directory in ["sys/block", "sys/class/block", "sys/dev/block", "proc/self"] {
                fs::create_dir_all(tree.root.path().join(directory)).unwrap();
            }
            tree
        }

        pub fn sysfs(&self) -> Sysfs {
            Sysfs::at(self.root.path())
        }

        pub fn file(&self, path: &str, text: &str) {
            let path = self.root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// A link as the kernel makes them: relative.
        pub fn link(&self, from: &str, to: &str) {
            let (from, to) = (from.trim_start_matches('/'), to.trim_start_matches('/'));
            let up = "../".repeat(from.matches('/').count());
            let from = self.root.path().join(from);
            fs::create_dir_all(from.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(up + to, from).unwrap();
        }

        /// A whole disk in `parent` (below /sys/devices) with its links; returns its directory.
        pub fn disk(&self, parent: &str, name: &str, number: &str, bytes: u64) -> String {
            let directory = format!("/sys/devices/{parent}/{name}");
            self.node(&directory, name, number, bytes);
            self.link(&format!("/sys/block/{name}"), &directory);
            fs::create_dir_all(self.root.path().join(directory.trim_start_matches('/')).join("queue"))
                .unwrap();
            for (file, value) in
                [("logical_block_size", "512"), ("physical_block_size", "4096"), ("rotational", "0")]
            {
                self.file(&format!("{directory}/queue/{file}"), value);
            }
            directory
        }

        pub fn partition(&self, disk: &str, name: &str, number: &str, bytes: u64) -> String {
            let directory = format!("{disk}/{name}");
            self.node(&directory, name, number, bytes);
            self.file(&format!("{directory}/partition"), "1\n");
            self.file(&format!("{directory}/start"), "2048\n");
            directory
        }

        fn node(&self, directory: &str, name: &str, number: &str, bytes: u64) {
            self.file(&format!("{directory}/dev"), &format!("{number}\n"));
            self.file(&format!("{directory}/size"), &format!("{}\n", bytes / 512));
            for empty in ["holders", "slaves"] {
                fs::create_dir_all(self.root.path().join(directory.trim_start_matches('/')).join(empty))
                    .unwrap();
            }
            self.link(&format!("/sys/class/block/{name}"), directory);
            self.link(&format!("/sys/dev/block/{number}"), directory);
        }

        /// Puts `upper` on top of `lower`.
        pub fn stack(&self, lower: &str, upper: &str) {
            let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
            self.link(&format!("{lower}/holders/{}", name(upper)), upper);
            self.link(&format!("{upper}/slaves/{}", name(lower)), lower);
        }
    }

    #[test]
    fn device_numbers_read_and_print_alike() {
        let number: DeviceNumber = "259:3\n".parse().unwrap();
        assert_eq!(number, DeviceNumber { major: 259, minor: 3 });
        assert_eq!(number.to_string(), "259:3");
        for text in ["", "259", "a:b", "-1:2", "1:2:3", "99999999999:1"] {
            assert!(text.parse::<DeviceNumber>().is_err(), "{text}");
        }
    }

    #[test]
    fn devices_are_found_by_name_and_by_number() {
        let tree = Tree::new();
        let disk = tree.disk("pci0/nvme/nvme0", "nvme0n1", "259:0", 1 << 30);
        tree.partition(&disk, "nvme0n1p1", "259:1", 1 << 29);
        tree.disk("pci0/nvme/nvme1", "nvme10n1", "259:2", 1 << 30);
        tree.disk("pci0/nvme/nvme2", "nvme2n1", "259:3", 1 << 30);
        let sysfs = tree.sysfs();
        assert_eq!(sysfs.disks(), ["nvme0n1", "nvme2n1", "nvme10n1"]);
        assert_eq!(sysfs.name("259:1".parse().unwrap()).as_deref(), Some("nvme0n1p1"));
        assert_eq!(sysfs.number("nvme0n1p1"), "259:1".parse().ok());
        assert_eq!(sysfs.number("../../etc/passwd"), None);
        assert_eq!(sysfs.number(""), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_device_number_panic(text in ".{0,16}") {
            let _ = text.parse::<DeviceNumber>();
        }

        #[test]
        fn no_name_makes_the_lookup_leave_the_tree(name in ".{0,16}") {
            let tree = Tree::new();
            prop_assert!(tree.sysfs().directory(&name).is_none());
        }
    }
}
