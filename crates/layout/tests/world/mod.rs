//! A machine made of files, whose power can be cut before, in the middle of and after any change.
//!
//! Drives are small files below `dev`, sysfs and /proc are trees as the kernel lays them out, and the programs that
//! layouts run do to them what the real ones do to a machine: mdadm writes superblocks and makes an array that
//! holds its members, mkfs writes a UUID where the format has it, a change of the scheduler resets the
//! number of requests. So `undo` can be held against the whole machine, byte for byte.
#![allow(dead_code)] // each test binary uses its part

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use layout::error::ProgramError;
use layout::held::{Held, Identity};
use layout::system::{Purpose, System, refusal};
use storage::device::{Device, OpenError};
use storage::safety::{self, Obstacle};
use storage::sysfs::{DeviceNumber, Sysfs};

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
}

/// The drive that is swapped.
pub const SWAPPED: &str = "nvme1n1";

/// A process's view of the machine.
#[derive(Debug)]
pub struct Process(World);

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

    fn call(&self) {
        let mut fate = self.fate.lock().expect("no panic");
        fate.calls += 1;
        let Some((_, swap)) = fate.swap.filter(|(at, _)| *at <= fate.calls) else { return };
        let node = self.at(format!("dev/{SWAPPED}"));
        let open = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
        let is_held = open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == node);
        let may_be = match swap {
            Swap::Node => fate.held,
            Swap::Disk => !is_held,
        };
        if !may_be {
            return;
        }
        fate.swapped = Some(fate.calls);
        fate.swap = None;
        let spare = self.at("dev/spare");
        fs::write(&spare, Self::intruder()).expect("a drive");
        fs::rename(&spare, &node).expect("takes its place");
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
        for link in [
            format!("sys/block/{name}"),
            format!("sys/class/block/{name}"),
            format!("sys/dev/block/{number}"),
        ] {
            symlink(self.at(directory), self.at(link)).expect("a link");
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
            symlink(self.at(&directory), member.join("holders").join(name)).expect("a link");
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

    /// What a program does, or half of it.
    fn execute(&self, program: &str, arguments: &[String], half: bool) -> Result<(), String> {
        let is_device = |a: &&String| a.starts_with("/dev/") || a.starts_with("/proc/");
        let devices: Vec<String> = arguments.iter().filter(is_device).cloned().collect();
        let value = |prefix: &str| arguments.iter().find_map(|a| Some(a.strip_prefix(prefix)?.to_owned()));
        let after = |flag: &str| {
            let at = arguments.iter().position(|a| a == flag);
            at.and_then(|at| arguments.get(at + 1)).cloned().unwrap_or_default()
        };
        match program {
            "mdadm" if arguments[0] == "--stop" => {
                self.remove_layer(devices[0].trim_start_matches("/dev/"));
            }
            "mdadm" => {
                let uuid = bytes(&value("--uuid=").expect("a UUID"));
                let (array, members) = devices.split_first().expect("devices");
                for member in members {
                    self.write_at(member, 4096, &[0xfc, 0x4e, 0x2b, 0xa9]);
                    self.write_at(member, 4096 + 16, &uuid);
                    if half {
                        return Ok(());
                    }
                }
                let names: Vec<_> =
                    members.iter().map(|m| fs::read_link(m).expect("a descriptor")).map(name_of).collect();
                let chunk =
                    value("--chunk=").expect("a chunk").trim_end_matches('K').parse::<u64>().expect("KiB")
                        << 10;
                let (disks, chunk) = (names.len().to_string(), chunk.to_string());
                let name = array.trim_start_matches("/dev/");
                let number = format!("9:{}", name.trim_start_matches("md"));
                let files = [("md/level", "raid0"), ("md/chunk_size", &chunk), ("md/raid_disks", &disks)];
                self.add_layer(name, &number, &names, &files);
            }
            "mkfs.xfs" => self.mkfs(&devices[0], (0, b"XFSB"), 32, &after("-m").replace("uuid=", ""), half),
            "mkfs.ext4" => {
                self.mkfs(&devices[0], (1024 + 0x38, &[0x53, 0xef]), 1024 + 0x68, &after("-U"), half)
            }
            "mkfs.btrfs" => {
                for device in &devices {
                    self.mkfs(device, (65536 + 0x40, b"_BHRfS_M"), 65536 + 0x20, &after("-U"), false);
                    if half {
                        return Ok(());
                    }
                }
            }
            "mkfs.f2fs" => {
                for at in [1024, 5120] {
                    self.mkfs(&devices[0], (at, &[0x10, 0x20, 0xf5, 0xf2]), at + 0x6c, &after("-U"), false);
                    if half {
                        return Ok(());
                    }
                }
            }
            "mount" => {
                let (device, point) =
                    (devices.first().expect("a device"), arguments.last().expect("a point"));
                let held = name_of(fs::read_link(device).expect("a descriptor"));
                let name = self.fate.lock().expect("no panic").mounts_other.unwrap_or(&held).to_owned();
                let kind = after("-t");
                if kind == "btrfs" {
                    let members = after("-o");
                    let members = members.split(',').filter_map(|option| option.strip_prefix("device=/dev/"));
                    for member in members.chain([name.as_str()]) {
                        self.file(&format!("sys/fs/btrfs/{}/devices/{member}", self.btrfs_uuid(&name)), "");
                    }
                }
                let number = self.text(&format!("sys/class/block/{name}/dev"));
                let line = format!("9 1 {} / {point} rw - {kind} /dev/{name} rw\n", number.trim());
                let before = self.text("proc/self/mountinfo");
                self.file("proc/self/mountinfo", &(before + &line));
            }
            "umount" => {
                let point = arguments.last().expect("a point");
                let lines = self.text("proc/self/mountinfo");
                let kept: String = lines
                    .lines()
                    .filter(|l| l.split(' ').nth(4) != Some(point))
                    .map(|l| format!("{l}\n"))
                    .collect();
                if kept == lines {
                    return Err(format!("{point}: not mounted"));
                }
                let source =
                    lines.lines().find(|line| !kept.contains(line)).and_then(|line| line.split(' ').nth(8));
                let name = source.expect("a source").trim_start_matches("/dev/").to_owned();
                let _ = fs::remove_dir_all(self.at("sys/fs/btrfs").join(self.btrfs_uuid(&name)));
                self.file("proc/self/mountinfo", &kept);
            }
            "lvm" => self.lvm(arguments, &devices, half)?,
            other => return Err(format!("{other}: not on this machine")),
        }
        Ok(())
    }

    /// The UUID of the btrfs on a drive, or what lies in its place.
    fn btrfs_uuid(&self, name: &str) -> String {
        let bytes = fs::read(self.at(format!("dev/{name}"))).expect("reads");
        let digits: String = bytes[65568..65584].iter().map(|byte| format!("{byte:02x}")).collect();
        let ends = [0, 8, 12, 16, 20, 32];
        ends.windows(2).map(|pair| &digits[pair[0]..pair[1]]).collect::<Vec<_>>().join("-")
    }

    fn mkfs(&self, device: &str, magic: (u64, &[u8]), uuid_at: u64, uuid: &str, half: bool) {
        self.write_at(device, magic.0, magic.1);
        // The real ones write a block at once, so that half of it is none of it, or all.
        if !half {
            self.write_at(device, uuid_at, &bytes(uuid));
        } else {
            self.write_at(device, magic.0, &vec![0; magic.1.len()]);
        }
    }

    fn lvm(&self, arguments: &[String], devices: &[String], half: bool) -> Result<(), String> {
        let group = || arguments.iter().find(|a| a.starts_with("flashwright_")).cloned().expect("a group");
        match arguments[0].as_str() {
            "pvcreate" if !half => {
                let at = arguments.iter().position(|a| a == "--uuid").expect("a UUID");
                self.write_at(&devices[0], 512, b"LABELONE");
                self.write_at(&devices[0], 544, arguments[at + 1].replace('-', "").as_bytes());
            }
            "lvcreate" if !half => {
                let members: Vec<_> = DRIVES
                    .iter()
                    .filter(|n| {
                        fs::read(self.at(format!("dev/{n}"))).is_ok_and(|b| &b[512..520] == b"LABELONE")
                    })
                    .map(ToString::to_string)
                    .collect();
                let name = format!("{}-data", group());
                self.add_layer("dm-0", "253:0", &members, &[("dm/name", &name), ("dm/uuid", "LVM-x")]);
            }
            "vgremove" => {
                let prefix = format!("{}-", group());
                let mine =
                    |name: &String| self.text(&format!("sys/block/{name}/dm/name")).starts_with(&prefix);
                let found: Vec<_> = self.disks("dm-").into_iter().filter(mine).collect();
                if found.is_empty() {
                    return Err("Volume group not found".to_owned());
                }
                for name in found {
                    self.remove_layer(&name);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The name of a node, also of one that was replaced since it was opened.
fn name_of(path: PathBuf) -> String {
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    name.trim_end_matches(" (deleted)").to_owned()
}

fn bytes(uuid: &str) -> Vec<u8> {
    let digits: Vec<u8> = uuid.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("hex"), 16).expect("hex"))
        .collect()
}

impl Process {
    /// Makes a change, unless the power fails before or in the middle of it; what it came to is not told to whoever
    /// is dead by then.
    fn change<T>(&self, half: Option<impl FnOnce()>, whole: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let dead = || io::Error::other("the power has failed");
        self.0.call();
        let mut fate = self.0.fate.lock().expect("no panic");
        if fate.is_dead {
            return Err(dead());
        }
        fate.changes += 1;
        let number = fate.changes;
        if half.is_some() {
            fate.halves.insert(number);
        }
        let end = fate.end.filter(|(at, _)| *at == fate.changes).map(|(_, moment)| moment);
        fate.is_dead = end.is_some();
        drop(fate);
        match end {
            None => whole(),
            Some(Moment::Before) => Err(dead()),
            Some(Moment::Half) => {
                if let Some(half) = half {
                    half();
                }
                Err(dead())
            }
            Some(Moment::After) => {
                let _ = whole();
                Err(dead())
            }
        }
    }
}

impl System for Process {
    fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.0.root.path())
    }

    fn find_program(&self, name: &str) -> Option<PathBuf> {
        Some(Path::new("/bin").join(name))
    }

    fn check_free(
        &self,
        drive: &Path,
        purpose: Purpose,
        destroy: &[PathBuf],
    ) -> Result<Option<Arc<dyn Device>>, OpenError> {
        let name = self.sysfs().device_at(drive).ok_or(OpenError::Missing { path: drive.to_owned() })?;
        let users = self.users(&[self.sysfs().number(&name).expect("a number")]).expect("users").concat();
        let file = self.open_drive(drive).expect("a drive");
        let signatures = safety::signatures(&file, DRIVE).expect("signatures");
        let signatures = signatures.into_iter().map(Obstacle::Signature);
        let given_up = purpose == Purpose::Settings || destroy.iter().any(|path| path == drive);
        match users.into_iter().chain(signatures.filter(|_| !given_up)).next() {
            Some(obstacle) => Err(refusal(drive, obstacle)),
            None => Ok(None),
        }
    }

    fn open_drive(&self, node: &Path) -> io::Result<File> {
        self.0.call();
        File::open(self.0.at(node))
    }

    fn identity(&self, drive: &File) -> io::Result<Identity> {
        self.0.call();
        let inode = drive.metadata()?.ino();
        let is_this =
            |name: &String| fs::metadata(self.0.at(format!("dev/{name}"))).is_ok_and(|f| f.ino() == inode);
        let sysfs = Sysfs::at(self.0.root.path());
        let name = sysfs.disks().into_iter().find(is_this);
        self.0.fate.lock().expect("no panic").held |= name.as_deref() == Some(SWAPPED);
        let number = name.and_then(|name| sysfs.number(&name));
        Identity::of(&sysfs, number.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?)
    }

    fn users(&self, numbers: &[DeviceNumber]) -> io::Result<Vec<Vec<Obstacle>>> {
        safety::users_of_each(&self.sysfs(), numbers)
    }

    fn is_managed(&self, interrupt: u32) -> bool {
        interrupt == 11
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(100 << 20)
    }

    fn new_uuid(&self) -> io::Result<String> {
        let mut fate = self.0.fate.lock().expect("no panic");
        fate.uuids += 1;
        Ok(format!("{:08x}-0000-4000-8000-{:012x}", fate.uuids.wrapping_mul(0x9e37_79b9) as u32, fate.uuids))
    }

    fn append(&mut self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let append = |bytes: &[u8]| {
            use std::io::Write;
            File::options().append(true).create(true).open(file)?.write_all(bytes)
        };
        self.change(Some(|| append(&bytes[..bytes.len() / 2]).expect("appends")), || append(bytes))
    }

    fn remove_file(&mut self, file: &Path) -> io::Result<()> {
        self.change(None::<fn()>, || match fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        })
    }

    fn make_directory(&mut self, directory: &Path) -> io::Result<()> {
        if directory == self.0.state {
            return Ok(());
        }
        self.change(None::<fn()>, || fs::create_dir_all(directory))
    }

    fn remove_directory(&mut self, directory: &Path) -> io::Result<()> {
        self.change(None::<fn()>, || match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        })
    }

    fn write_setting(&mut self, path: &Path, value: &str) -> io::Result<()> {
        self.change(None::<fn()>, || self.0.set(path, value))
    }

    fn zero(&mut self, device: &Held, ranges: &[Range<u64>]) -> io::Result<()> {
        let name = name_of(device.node());
        let holders = self.sysfs().block_device(&name).map(|device| device.holders).unwrap_or_default();
        if !holders.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let zero = |range: &Range<u64>| {
            let length = (range.end.min(DRIVE) - range.start) as usize;
            let path = format!("/proc/self/fd/{}", device.file().as_raw_fd());
            self.0.write_at(&path, range.start, &vec![0; length]);
        };
        self.change(Some(|| zero(&ranges[0])), || {
            ranges.iter().for_each(zero);
            Ok(())
        })
    }

    fn run(&mut self, program: &str, arguments: &[String]) -> Result<String, ProgramError> {
        let world = &self.0;
        let run = |half| world.execute(program, arguments, half);
        let ran = self
            .change(Some(|| run(true).expect("half of it works")), || run(false).map_err(io::Error::other));
        ran.map(|()| String::new()).map_err(|error| ProgramError::Failed {
            command: format!("{program} {}", arguments.join(" ")),
            status: "exit status: 1".to_owned(),
            said: error.to_string(),
        })
    }

    fn keep_lock(&mut self, _: File) {}

    fn pause(&self) {}
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
