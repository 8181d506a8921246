//! A machine made of files, whose power can be cut before, in the middle of and after any change.
//!
//! Drives are small files below `dev`, sysfs and /proc are trees as the kernel lays them out, and the programs that
//! layouts run do to them what the real ones do to a machine: mdadm writes superblocks and makes an array that
//! holds its members, mkfs writes a UUID where the format has it, a change of the scheduler resets the
//! number of requests. So `undo` can be held against the whole machine, byte for byte.
#![allow(dead_code)] // each test binary uses its part

mod process;
mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use storage::sysfs::Sysfs;

pub use process::Process;

/// Bytes of a drive: more than the offset of btrfs' superblock.
const DRIVE: u64 = 72 << 10;
const QUEUE: [(&str, &str); 10] = [
    ("queue/scheduler", "[none] mq-deadline kyber bfq"),
    ("queue/nr_requests", "1023"),
    ("queue/wbt_lat_usec", "2000"),
    ("queue/write_cache", "write back"),
    ("queue/read_ahead_kb", "128"),
    ("queue/nomerges", "0"),
    ("queue/rq_affinity", "1"),
    ("queue/iostats", "1"),
    ("queue/io_poll", "0"),
    ("queue/logical_block_size", "512"),
];
const DRIVES: [&str; 4] = ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1"];

/// When the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Before,
    Half,
    After,
}

/// The machine. It outlives the processes on it.
#[derive(Debug, Clone)]
pub struct World {
    root: Arc<tempfile::TempDir>,
    /// Where the journal is.
    pub state: PathBuf,
    fate: Arc<Mutex<Fate>>,
}

#[derive(Debug, Default)]
struct Fate {
    changes: u64,
    halves: BTreeSet<u64>,
    end: Option<(u64, Moment)>,
    is_dead: bool,
    uuids: u64,
    /// Changes, and looks at drives.
    calls: u64,
    swap: Option<(u64, Swap)>,
    swapped: Option<u64>,
    /// The drive that mount(8) mounts instead of the one that it was given.
    mounts_other: Option<&'static str>,
    /// Whether it was looked yet what the drive is: until then what lies at its node is what was named.
    held: bool,
}

/// How a drive's name comes to lead to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// The node in `/dev` is replaced by that of another drive.
    Node,
    /// The drive is taken out, and the next one gets its name: as long as one has it open, the kernel gives it to none.
    Disk,
    /// Likewise the array [`ARRAY`]: it is stopped, and one of other drives gets its name.
    Array,
}

/// The array that is made.
pub const ARRAY: &str = "md127";

/// The drive that is swapped.
pub const SWAPPED: &str = "nvme1n1";

type Tree = BTreeMap<PathBuf, Vec<u8>>;

impl World {
    pub fn new() -> Self {
        // In memory where that is possible: hundreds of deaths are tried.
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let state = root.path().join("state");
        fs::create_dir(&state).expect("a directory");
        let world = Self { root: Arc::new(root), state, fate: Arc::default() };
        for directory in [
            "sys/block",
            "sys/class/block",
            "sys/dev/block",
            "sys/fs/btrfs",
            "proc/self",
            "dev",
            "run/flashwright",
        ] {
            fs::create_dir_all(world.at(directory)).expect("a directory");
        }
        world.file("proc/self/mountinfo", "1 0 0:1 / / rw - rootfs rootfs rw\n");
        world.file("proc/mdstat", "Personalities : [raid0]\n");
        world.file("proc/filesystems", "\txfs\n\text4\n\tbtrfs\n\tf2fs\n");
        world.file("proc/sys/kernel/random/boot_id", "first\n");
        world.file("sys/devices/system/cpu/online", "0-3\n");
        fs::create_dir_all(world.at("sys/class/misc/device-mapper")).expect("a directory");
        for (index, name) in DRIVES.iter().enumerate() {
            let directory = format!("sys/devices/pci{index}/nvme/{name}");
            world.disk(&directory, name, &format!("259:{index}"));
            world.file(&format!("sys/devices/pci{index}/nvme/{name}/serial"), &format!("SN{index}\n"));
            for irq in [10 * (index + 1), 10 * (index + 1) + 1] {
                world.file(&format!("sys/devices/pci{index}/msi_irqs/{irq}"), "msix\n");
                world.file(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
            }
            fs::write(world.at(format!("dev/{name}")), vec![0; DRIVE as usize]).expect("a drive");
        }
        world
    }

    /// A process, which ends at the given change, counted from one.
    pub fn process(&self, end: Option<(u64, Moment)>) -> Box<Process> {
        let mut fate = self.fate.lock().expect("no panic");
        *fate = Fate { end, uuids: fate.uuids, ..Fate::default() };
        Box::new(Process(self.clone()))
    }

    /// A process below which a drive is swapped right before its `at`th call, or as soon after that as it can be.
    pub fn swapping(&self, at: u64, swap: Swap) -> Box<Process> {
        let process = self.process(None);
        self.fate.lock().expect("no panic").swap = Some((at, swap));
        process
    }

    /// A process below which mount(8) finds another drive at the name that it resolved.
    pub fn mounting(&self, other: &'static str) -> Box<Process> {
        let process = self.process(None);
        self.fate.lock().expect("no panic").mounts_other = Some(other);
        process
    }

    /// Before which call the drive was swapped.
    pub fn swapped(&self) -> Option<u64> {
        self.fate.lock().expect("no panic").swapped
    }

    /// What is on the drive that nobody named: a file system of somebody.
    pub fn intruder() -> Vec<u8> {
        let mut bytes = vec![0xa5; DRIVE as usize];
        bytes[..4].copy_from_slice(b"XFSB");
        bytes
    }

    /// What is on the array that nobody named: bytes that no signature begins.
    pub fn other_array() -> Vec<u8> {
        vec![0x5a; DRIVE as usize]
    }

    fn call(&self) {
        let mut fate = self.fate.lock().expect("no panic");
        fate.calls += 1;
        let Some((_, swap)) = fate.swap.filter(|(at, _)| *at <= fate.calls) else { return };
        let name = if swap == Swap::Array { ARRAY } else { SWAPPED };
        let node = self.at(format!("dev/{name}"));
        let open = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
        let is_held = open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == node);
        let may_be = match swap {
            Swap::Node => fate.held,
            Swap::Disk => !is_held,
            Swap::Array => !is_held && node.exists(),
        };
        if !may_be {
            return;
        }
        fate.swapped = Some(fate.calls);
        fate.swap = None;
        let spare = self.at("dev/spare");
        let other = if swap == Swap::Array { Self::other_array() } else { Self::intruder() };
        fs::write(&spare, other).expect("a drive");
        fs::rename(&spare, &node).expect("takes its place");
        if swap == Swap::Array {
            for drive in DRIVES {
                let _ = fs::remove_file(self.at(format!("sys/block/{drive}/holders/{name}")));
            }
            fs::write(self.at(format!("sys/block/{name}/diskseq")), "99\n").expect("writes");
        }
        if swap == Swap::Disk {
            let directory = fs::canonicalize(self.at(format!("sys/block/{SWAPPED}"))).expect("a drive");
            fs::write(directory.join("diskseq"), "99\n").expect("writes");
            fs::write(directory.join("serial"), "INTRUDER\n").expect("writes");
            for (file, text) in QUEUE {
                fs::write(directory.join(file), format!("{text}\n")).expect("writes");
            }
            let _ = fs::remove_dir_all(directory.join("queue/iosched"));
        }
    }

    /// Has sysfs say that a drive has so many bytes.
    pub fn grow(&self, name: &str, bytes: u64) {
        let size = fs::canonicalize(self.at(format!("sys/block/{name}/size"))).expect("a drive");
        fs::write(size, format!("{}\n", bytes / 512)).expect("writes");
    }

    /// The settings of a drive's queue.
    pub fn queue(&self, name: &str) -> Vec<String> {
        QUEUE.map(|(file, _)| self.text(&format!("sys/block/{name}/{file}"))).to_vec()
    }

    /// The changes that can be half made.
    pub fn halves(&self) -> BTreeSet<u64> {
        self.fate.lock().expect("no panic").halves.clone()
    }

    /// Whether the process has died, and how many changes it had begun.
    pub fn died(&self) -> (bool, u64) {
        let fate = self.fate.lock().expect("no panic");
        (fate.is_dead, fate.changes)
    }

    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.path().join(path.strip_prefix("/").unwrap_or(path))
    }

    pub fn file(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    pub fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    fn disk(&self, directory: &str, name: &str, number: &str) {
        let sequence = number.split(':').next_back().expect("a minor");
        for (file, text) in [("dev", number), ("size", "144"), ("diskseq", sequence)].into_iter().chain(QUEUE)
        {
            self.file(&format!("{directory}/{file}"), &format!("{text}\n"));
        }
        for empty in ["holders", "slaves"] {
            fs::create_dir_all(self.at(directory).join(empty)).expect("a directory");
        }
        // As the kernel makes them: relative, and through no other links.
        let from_sys = directory.strip_prefix("sys/").expect("below sys");
        for (link, up) in [
            (format!("sys/block/{name}"), ".."),
            (format!("sys/class/block/{name}"), "../.."),
            (format!("sys/dev/block/{number}"), "../.."),
        ] {
            symlink(Path::new(up).join(from_sys), self.at(link)).expect("a link");
        }
    }

    /// Everything on the machine but the lock of the state directory: files, links and directories.
    pub fn everything(&self) -> Tree {
        let mut tree = Tree::new();
        let mut directories = vec![self.root.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).expect("lists").map(|entry| entry.expect("an entry")) {
                let path = entry.path();
                let kind = entry.file_type().expect("a type");
                let short = path.strip_prefix(self.root.path()).expect("inside").to_owned();
                if kind.is_dir() {
                    tree.insert(short, b"directory".to_vec());
                    directories.push(path);
                } else if kind.is_symlink() {
                    tree.insert(short, b"link".to_vec());
                } else if !short.ends_with("layout.lock")
                    && short != Path::new("proc/sys/kernel/random/boot_id")
                {
                    tree.insert(short, fs::read(&path).expect("reads"));
                }
            }
        }
        tree
    }

    /// The machine starts again: no mounts, no arrays but those that udev puts together, default settings.
    pub fn reboot(&self) {
        self.file("proc/sys/kernel/random/boot_id", "second\n");
        self.file("proc/self/mountinfo", "1 0 0:1 / / rw - rootfs rootfs rw\n");
        fs::remove_dir_all(self.at("sys/fs/btrfs")).expect("removes");
        fs::create_dir_all(self.at("sys/fs/btrfs")).expect("makes");
        for name in self.disks("md").into_iter().chain(self.disks("dm-")) {
            self.remove_layer(&name);
        }
        for (index, name) in DRIVES.iter().enumerate() {
            let directory = format!("sys/devices/pci{index}/nvme/{name}");
            fs::remove_dir_all(self.at(&directory).join("queue")).expect("removes");
            for link in [
                format!("sys/block/{name}"),
                format!("sys/class/block/{name}"),
                format!("sys/dev/block/259:{index}"),
            ] {
                fs::remove_file(self.at(link)).expect("removes");
            }
            self.disk(&directory, name, &format!("259:{index}"));
            for irq in [10 * (index + 1), 10 * (index + 1) + 1] {
                self.file(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
            }
        }
        let members: Vec<String> =
            DRIVES.iter().filter(|name| self.is_member(name)).map(ToString::to_string).collect();
        if !members.is_empty() {
            self.add_layer("md126", "9:126", &members, &[("md/level", "raid0"), ("md/chunk_size", "65536")]);
        }
    }

    fn is_member(&self, name: &str) -> bool {
        fs::read(self.at(format!("dev/{name}")))
            .is_ok_and(|bytes| bytes[4096..4100] == [0xfc, 0x4e, 0x2b, 0xa9])
    }

    fn disks(&self, prefix: &str) -> Vec<String> {
        Sysfs::at(self.root.path()).disks().into_iter().filter(|name| name.starts_with(prefix)).collect()
    }

    fn add_layer(&self, name: &str, number: &str, members: &[String], files: &[(&str, &str)]) {
        let directory = format!("sys/devices/virtual/block/{name}");
        self.disk(&directory, name, number);
        for (file, text) in files {
            self.file(&format!("{directory}/{file}"), &format!("{text}\n"));
        }
        fs::write(self.at(format!("dev/{name}")), vec![0; DRIVE as usize]).expect("a device");
        for member in members {
            let member = fs::canonicalize(self.at(format!("sys/block/{member}"))).expect("a drive");
            let array =
                Path::new("../../../..").join(directory.strip_prefix("sys/devices/").expect("a device"));
            symlink(array, member.join("holders").join(name)).expect("a link");
        }
    }

    fn remove_layer(&self, name: &str) {
        let number = self.text(&format!("sys/block/{name}/dev"));
        for drive in DRIVES {
            let _ = fs::remove_file(self.at(format!("sys/block/{drive}/holders/{name}")));
        }
        for link in [
            format!("sys/block/{name}"),
            format!("sys/class/block/{name}"),
            format!("sys/dev/block/{}", number.trim()),
        ] {
            fs::remove_file(self.at(link)).expect("removes");
        }
        fs::remove_dir_all(self.at(format!("sys/devices/virtual/block/{name}"))).expect("removes");
        fs::remove_file(self.at(format!("dev/{name}"))).expect("removes");
        // The kernel has no empty directory for virtual devices that are not there.
        let _ = fs::remove_dir(self.at("sys/devices/virtual/block"));
        let _ = fs::remove_dir(self.at("sys/devices/virtual"));
    }

    fn set(&self, path: &Path, value: &str) -> io::Result<()> {
        let file = self.at(path);
        if !file.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let queue = file.parent().expect("a parent").to_owned();
        if path.ends_with("queue/scheduler") {
            let now = fs::read_to_string(&file)?;
            if now.contains(&format!("[{value}]")) {
                return Ok(());
            }
            let words = ["none", "mq-deadline", "kyber", "bfq"];
            if !words.contains(&value) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let marked = words.map(|word| if word == value { format!("[{word}]") } else { word.to_owned() });
            fs::write(&file, marked.join(" ") + "\n")?;
            fs::write(queue.join("nr_requests"), if value == "none" { "1023\n" } else { "256\n" })?;
            fs::write(queue.join("wbt_lat_usec"), if value == "bfq" { "0\n" } else { "2000\n" })?;
            let _ = fs::remove_dir_all(queue.join("iosched"));
            if value == "mq-deadline" {
                fs::create_dir(queue.join("iosched"))?;
                fs::write(queue.join("iosched/read_expire"), "500\n")?;
            }
            return Ok(());
        }
        let value = if path.ends_with("wbt_lat_usec") && value == "-1" { "2000" } else { value };
        if path.starts_with("/proc/irq/11") {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        fs::write(file, format!("{value}\n"))
    }

    fn write_at(&self, device: &str, offset: u64, bytes: &[u8]) {
        // A descriptor of the process means the same to its children, in this world and in ours.
        let path = if device.starts_with("/proc/") { device.into() } else { self.at(device) };
        File::options().write(true).open(path).expect("opens").write_all_at(bytes, offset).expect("writes");
    }
}

/// What differs, for a message that a person can read.
pub fn difference(before: &Tree, after: &Tree) -> Vec<String> {
    let paths: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let show = |tree: &Tree, path: &Path| {
        tree.get(path).map_or_else(
            || "nothing".to_owned(),
            |bytes| {
                let mut text = String::new();
                let _ = bytes.take(60).read_to_string(&mut text);
                format!("{} bytes: {text:?}", bytes.len())
            },
        )
    };
    let differs = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
    differs
        .map(|path| format!("{}: {} -> {}", path.display(), show(before, path), show(after, path)))
        .collect()
}
