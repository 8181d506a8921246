//! One block device or partition, with all that is known about it.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    DeviceNumber, PcieLink, QueueFacts, Sysfs, entries, file_name, links, read_flag, read_number, read_text,
};

/// A block device or partition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockDevice {
    /// Kernel name: `nvme0n1p2`.
    pub name: String,
    /// Device number.
    pub number: DeviceNumber,
    /// Bytes.
    pub size_bytes: u64,
    /// The disk that a partition is part of.
    pub disk: Option<String>,
    /// Number of a partition.
    pub partition: Option<u32>,
    /// Where a partition begins on its disk, bytes.
    pub partition_start_bytes: Option<u64>,
    /// The partitions of a disk.
    pub partitions: Vec<String>,
    /// The devices that it is made of: members of md and dm.
    pub slaves: Vec<String>,
    /// The devices that are made of it.
    pub holders: Vec<String>,
    /// `nvme`, `nvme-tcp`, `sata`, `sas`, `usb`, `virtio`, `loop`, `zram`, `md`, `dm`, …; `unknown`.
    pub transport: String,
    /// Whether nothing physical stands behind it on this machine that the kernel knows of: loop, zram, md, dm,
    /// and paravirtual disks.
    pub is_virtual: bool,
    /// Model, as the drive names itself.
    pub model: Option<String>,
    /// Vendor.
    pub vendor: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
    /// Serial number; a partition's is its disk's.
    pub serial: Option<String>,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Whether the medium can be taken out.
    pub removable: bool,
    /// NUMA node of the controller.
    pub numa_node: Option<u32>,
    /// Link of the controller.
    pub pcie: Option<PcieLink>,
    /// Temperature, °C.
    pub temperature_celsius: Option<f64>,
    /// Settings and limits; a partition's are its disk's.
    pub queue: Option<QueueFacts>,
    /// Of a loop device: what is behind it.
    pub loop_device: Option<LoopFacts>,
    /// Of an md array.
    pub raid: Option<RaidFacts>,
    /// Of a device-mapper device.
    pub mapper: Option<MapperFacts>,
    /// Of a zram device: its compression.
    pub compression: Option<String>,
}

/// What is behind a loop device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoopFacts {
    /// The file, as its name was when the device was set up.
    pub backing_file: String,
    /// Whether it goes round the page cache.
    pub direct: Option<bool>,
}

/// An md array (kernel, `Documentation/admin-guide/md.rst`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RaidFacts {
    /// `raid0`, `raid5`, ….
    pub level: String,
    /// Members.
    pub raid_disks: Option<u32>,
    /// Bytes that one member holds before the next.
    pub chunk_bytes: Option<u64>,
    /// `clean`, `active`, ….
    pub state: Option<String>,
    /// `idle`, `resync`, `recover`, `check`, ….
    pub sync_action: Option<String>,
    /// Members missing.
    pub degraded: Option<u32>,
}

/// A device-mapper device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MapperFacts {
    /// Its name below `/dev/mapper`.
    pub name: String,
    /// Its UUID; what comes before the first dash says who made it (`LVM`, `CRYPT`, `mpath`, `VDO`, `part1`).
    pub uuid: Option<String>,
}

/// A file's number of sectors, which have 512 bytes in sysfs whatever the drive's have, in bytes.
fn sectors(file: &Path) -> Option<u64> {
    read_number::<u64>(file).map(|sectors| sectors.saturating_mul(512))
}

impl BlockDevice {
    /// The usual path of the device node. Names with `!` stand for directories (`cciss!c0d0`).
    #[must_use]
    pub fn dev_path(&self) -> String {
        format!("/dev/{}", self.name.replace('!', "/"))
    }

    /// What people call it: name, and for md and dm what it is.
    #[must_use]
    pub fn describe(&self) -> String {
        match (&self.raid, &self.mapper) {
            (Some(raid), _) => format!("{} (md {})", self.dev_path(), raid.level),
            (_, Some(mapper)) => {
                let kind = mapper.uuid.as_deref().and_then(|u| u.split('-').next()).unwrap_or("dm");
                format!("{} ({kind} {})", self.dev_path(), mapper.name)
            }
            _ => self.dev_path(),
        }
    }
}

impl Sysfs {
    /// What is known about a block device or partition; none where there is no such device.
    #[must_use]
    pub fn block_device(&self, name: &str) -> Option<BlockDevice> {
        let mut device = self.block_node(name)?;
        let whole = self.directory(device.disk.as_deref().unwrap_or(&device.name))?;
        let place = multipath_controller(&file_name(&whole)?, &whole).unwrap_or_else(|| whole.clone());
        device.removable = read_flag(&whole.join("removable")).unwrap_or(false);
        device.model = first_text(&whole, &["device/model", "device/name"]);
        device.vendor = first_text(&whole, &["device/vendor"]).filter(|v| !v.starts_with("0x"));
        device.firmware = first_text(&whole, &["device/firmware_rev", "device/rev", "device/fwrev"]);
        device.numa_node = links::numa_node(&place);
        device.pcie = PcieLink::read(&place);
        device.temperature_celsius = links::temperature(&place);
        device.queue = QueueFacts::read(&whole.join("queue"));
        device.compression = read_text(&whole.join("comp_algorithm")).and_then(|t| bracketed(&t));
        Some(device)
    }

    /// The same without the facts about the drive and its queue: number, size, serial number, and what it is made of
    /// and makes. Who looks for users before every run needs no more, and each fact is a file to open.
    #[must_use]
    pub fn block_node(&self, name: &str) -> Option<BlockDevice> {
        let directory = self.directory(name)?;
        let name = file_name(&directory)?;
        let number = read_text(&directory.join("dev"))?.parse().ok()?;
        let partition = read_number(&directory.join("partition"));
        let whole = match partition {
            Some(_) => directory.parent()?.to_owned(),
            None => directory.clone(),
        };
        let disk_name = file_name(&whole)?;
        let transport = transport(&disk_name, &whole);
        Some(BlockDevice {
            number,
            size_bytes: sectors(&directory.join("size")).unwrap_or(0),
            partition_start_bytes: partition.and_then(|_| sectors(&directory.join("start"))),
            disk: partition.map(|_| disk_name),
            partitions: partitions(&directory, partition),
            slaves: entries(&directory.join("slaves")),
            holders: entries(&directory.join("holders")),
            read_only: read_flag(&directory.join("ro")).unwrap_or(false),
            serial: serial(&whole),
            loop_device: read_text(&whole.join("loop/backing_file"))
                .map(|backing_file| LoopFacts { backing_file, direct: read_flag(&whole.join("loop/dio")) }),
            raid: raid(&whole.join("md")),
            mapper: read_text(&whole.join("dm/name"))
                .map(|name| MapperFacts { name, uuid: read_text(&whole.join("dm/uuid")) }),
            is_virtual: is_virtual(&transport, &whole),
            name,
            partition,
            transport,
            ..BlockDevice::default()
        })
    }

    /// The serial number of a disk, where it has one.
    #[must_use]
    pub fn serial_number(&self, disk: &str) -> Option<String> {
        serial(&self.directory(disk)?)
    }

    /// The size of a block device or partition, bytes.
    #[must_use]
    pub fn size_bytes(&self, name: &str) -> Option<u64> {
        sectors(&self.directory(name)?.join("size"))
    }

    /// Where a partition begins on its disk, bytes; None for a disk.
    #[must_use]
    pub fn partition_start_bytes(&self, name: &str) -> Option<u64> {
        sectors(&self.directory(name)?.join("start"))
    }

    /// The worldwide name of a disk, where it has one.
    #[must_use]
    pub fn worldwide_name(&self, disk: &str) -> Option<String> {
        let text = |file: &str| self.text(format!("/sys/class/block/{disk}/{file}"));
        text("wwid").or_else(|| text("device/wwid"))
    }

    /// What a disk is known by when another boot has given it another kernel name: its worldwide name, its serial number, or
    /// the file behind a loop device. None where it has none of these.
    #[must_use]
    pub fn lasting_name(&self, device: &BlockDevice) -> Option<String> {
        let disk = device.disk.as_deref().unwrap_or(&device.name);
        let worldwide = self.worldwide_name(disk).map(|name| format!("wwid:{name}"));
        let serial = || device.serial.as_ref().map(|serial| format!("serial:{serial}"));
        let file = || device.loop_device.as_ref().map(|behind| format!("file:{}", behind.backing_file));
        worldwide.or_else(serial).or_else(file)
    }

    /// All block devices of some size, each disk followed by its partitions.
    #[must_use]
    pub fn block_devices(&self) -> Vec<BlockDevice> {
        let mut all = Vec::new();
        for name in self.disks() {
            let Some(disk) = self.block_device(&name) else { continue };
            // Unused loop, ram and nbd devices are there by the dozen.
            if disk.size_bytes == 0 {
                continue;
            }
            let partitions: Vec<_> =
                disk.partitions.iter().filter_map(|name| self.block_device(name)).collect();
            all.push(disk);
            all.extend(partitions);
        }
        all
    }

    /// Queues that the NVMe driver polls (module parameter `poll_queues`); none where the driver is not there.
    #[must_use]
    pub fn nvme_poll_queues(&self) -> Option<u32> {
        read_number(&self.at_root("/sys/module/nvme/parameters/poll_queues"))
    }
}

fn partitions(directory: &Path, partition: Option<u32>) -> Vec<String> {
    if partition.is_some() {
        return Vec::new();
    }
    let is_partition = |name: &String| directory.join(name).join("partition").exists();
    entries(directory).into_iter().filter(is_partition).collect()
}

/// The first of several files that says something.
fn first_text(whole: &Path, files: &[&str]) -> Option<String> {
    files.iter().find_map(|file| read_text(&whole.join(file)))
}

/// The serial number: a file for NVMe, virtio and MMC, and for SCSI and SATA page 0x80 of the vital product data
/// (SPC-4, §7.8.17: four bytes of header, then text).
fn serial(whole: &Path) -> Option<String> {
    first_text(whole, &["device/serial", "serial"]).or_else(|| {
        let page = std::fs::read(whole.join("device/vpd_pg80")).ok()?;
        let text = String::from_utf8_lossy(page.get(4..)?).into_owned();
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    })
}

/// `lzo [zstd]` is `zstd`.
fn bracketed(text: &str) -> Option<String> {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map(|(word, _)| word.to_owned())
}

fn raid(md: &Path) -> Option<RaidFacts> {
    Some(RaidFacts {
        level: read_text(&md.join("level"))?,
        // `4 (3)` while an array is being reshaped.
        raid_disks: read_text(&md.join("raid_disks")).and_then(|t| t.split_whitespace().next()?.parse().ok()),
        chunk_bytes: read_number(&md.join("chunk_size")),
        state: read_text(&md.join("array_state")),
        sync_action: read_text(&md.join("sync_action")),
        degraded: read_number(&md.join("degraded")),
    })
}

/// Drivers that the name alone tells.
const BY_NAME: [(&str, &str); 20] = [
    ("loop", "loop"),
    ("zram", "zram"),
    ("md", "md"),
    ("dm-", "dm"),
    ("nbd", "nbd"),
    ("ram", "ram"),
    ("mmcblk", "mmc"),
    ("vd", "virtio"),
    ("xvd", "xen"),
    ("pmem", "pmem"),
    ("rbd", "rbd"),
    ("drbd", "drbd"),
    ("bcache", "bcache"),
    ("nullb", "null"),
    ("ublkb", "ublk"),
    ("zd", "zvol"),
    ("sr", "optical"),
    ("fd", "floppy"),
    ("rnbd", "rnbd"),
    ("dasd", "dasd"),
];

/// Buses that a SCSI disk's place in the device tree tells, the most telling first.
const BY_PLACE: [(&str, &str); 9] = [
    ("/usb", "usb"),
    ("/ata", "sata"),
    ("/end_device-", "sas"),
    ("/rport-", "fc"),
    ("/session", "iscsi"),
    ("/virtio", "virtio-scsi"),
    ("/vmbus", "hyperv"),
    ("/VMBUS", "hyperv"),
    ("/pseudo_", "scsi_debug"),
];

fn transport(name: &str, whole: &Path) -> String {
    if name.starts_with("nvme") {
        return nvme_transport(whole);
    }
    // A name is the prefix and then a number or letters of its own: `ram0` is no `rambo`.
    let followed = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit() || c == '_')
                || matches!(prefix, "vd" | "xvd" | "dasd")
        })
    };
    if let Some((_, word)) = BY_NAME.into_iter().find(|(prefix, _)| followed(prefix)) {
        return word.to_owned();
    }
    let place = whole.to_string_lossy();
    match BY_PLACE.into_iter().find(|(part, _)| place.contains(part)) {
        Some((_, word)) => word.to_owned(),
        None if name.starts_with("sd") => "scsi".to_owned(),
        None => "unknown".to_owned(),
    }
}

/// `nvme` over PCIe, `nvme-tcp` and the like over a fabric.
fn nvme_transport(whole: &Path) -> String {
    let controller = multipath_controller("nvme", whole).unwrap_or_else(|| whole.join("device"));
    match read_text(&controller.join("transport")).as_deref() {
        None | Some("pcie") => "nvme".to_owned(),
        Some(fabric) => format!("nvme-{fabric}"),
    }
}

/// With NVMe multipath, which is on for every drive that has two ports, the disk is a virtual device
/// below the subsystem, and the controllers are the subsystem's children. The first stands for all.
fn multipath_controller(name: &str, whole: &Path) -> Option<PathBuf> {
    let subsystem = whole.join("device");
    if !name.starts_with("nvme") || subsystem.join("transport").exists() {
        return None;
    }
    let is_controller = |name: &String| {
        name.strip_prefix("nvme").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let controller = entries(&subsystem).into_iter().find(is_controller)?;
    std::fs::canonicalize(subsystem.join(controller)).ok()
}

fn is_virtual(transport: &str, whole: &Path) -> bool {
    const VIRTUAL: [&str; 15] = [
        "loop",
        "zram",
        "md",
        "dm",
        "nbd",
        "ram",
        "virtio",
        "virtio-scsi",
        "xen",
        "null",
        "ublk",
        "zvol",
        "hyperv",
        "scsi_debug",
        "bcache",
    ];
    // NVMe multipath heads are below /sys/devices/virtual, too, but drives stand behind them.
    VIRTUAL.contains(&transport)
        || (whole.to_string_lossy().contains("/devices/virtual/") && !transport.starts_with("nvme"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;
    use super::*;

    #[test]
    fn an_nvme_drive_is_described_from_its_controller() {
        let tree = Tree::new();
        let controller = "/sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0";
        let disk = tree.disk(&controller["/sys/devices/".len()..], "nvme0n1", "259:0", 1 << 40);
        tree.link(&format!("{disk}/device"), controller);
        for (file, text) in [
            ("model", "FAST SSD 9000         \n"),
            ("serial", "S123\n"),
            ("firmware_rev", "1.0\n"),
            ("transport", "pcie\n"),
        ] {
            tree.file(&format!("{controller}/{file}"), text);
        }
        let part = tree.partition(&disk, "nvme0n1p1", "259:1", 1 << 30);
        let sysfs = tree.sysfs();
        let device = sysfs.block_device("nvme0n1").unwrap();
        assert_eq!(device.model.as_deref(), Some("FAST SSD 9000"));
        assert_eq!(device.firmware.as_deref(), Some("1.0"));
        assert_eq!((device.transport.as_str(), device.is_virtual), ("nvme", false));
        assert_eq!(
            (device.size_bytes, device.partitions.as_slice()),
            (1 << 40, &["nvme0n1p1".to_owned()][..])
        );
        let partition = sysfs.block_device("nvme0n1p1").unwrap();
        assert_eq!(partition.disk.as_deref(), Some("nvme0n1"));
        assert_eq!((partition.partition, partition.partition_start_bytes), (Some(1), Some(1 << 20)));
        assert_eq!((partition.model, partition.transport.as_str()), (device.model, "nvme"));
        assert_eq!((partition.serial.as_deref(), device.serial.as_deref()), (Some("S123"), Some("S123")));
        assert_eq!(sysfs.serial_number("nvme0n1").as_deref(), Some("S123"));
        assert!(part.ends_with("nvme0n1p1"));
        tree.file(&format!("{controller}/transport"), "tcp\n");
        assert_eq!(sysfs.block_device("nvme0n1").unwrap().transport, "nvme-tcp");
    }

    #[test]
    fn a_disk_is_known_by_its_worldwide_name_then_its_serial_number_then_the_file_behind_it() {
        let tree = Tree::new();
        let disk = tree.disk("pci0000:00/0000:02:00.0/ata1/host0/target0/block", "sda", "8:0", 1 << 30);
        let name = || {
            let sysfs = tree.sysfs();
            sysfs.lasting_name(&sysfs.block_device("sda").unwrap())
        };
        assert_eq!(name(), None);
        tree.file(&format!("{disk}/loop/backing_file"), "/var/a\n");
        assert_eq!(name().as_deref(), Some("file:/var/a"));
        tree.file(&format!("{disk}/serial"), "S9\n");
        assert_eq!(name().as_deref(), Some("serial:S9"));
        tree.file(&format!("{disk}/wwid"), "naa.5000c500\n");
        assert_eq!(name().as_deref(), Some("wwid:naa.5000c500"));
        tree.partition(&disk, "sda1", "8:1", 1 << 20);
        let sysfs = tree.sysfs();
        assert_eq!(sysfs.lasting_name(&sysfs.block_device("sda1").unwrap()), name(), "its disk's");
    }

    #[test]
    fn a_multipath_nvme_drive_has_the_link_and_sensor_of_its_controller() {
        let tree = Tree::new();
        let pci = "/sys/devices/pci0000:00/0000:01:00.0";
        let controller = format!("{pci}/nvme/nvme0");
        for (file, value) in [
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "4"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("max_link_width", "4"),
            ("numa_node", "1"),
            ("nvme/nvme0/transport", "pcie"),
            ("nvme/nvme0/hwmon2/temp1_input", "40000"),
        ] {
            tree.file(&format!("{pci}/{file}"), value);
        }
        let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        let disk = tree.disk(&subsystem["/sys/devices/".len()..], "nvme0n1", "259:0", 1 << 40);
        tree.file(&format!("{subsystem}/model"), "DUAL PORT SSD\n");
        tree.link(&format!("{subsystem}/nvme0"), &controller);
        tree.link(&format!("{disk}/device"), subsystem);
        let device = tree.sysfs().block_device("nvme0n1").unwrap();
        assert_eq!((device.transport.as_str(), device.is_virtual), ("nvme", false));
        assert_eq!(device.model.as_deref(), Some("DUAL PORT SSD"));
        assert_eq!(device.pcie.map(|link| link.width), Some(4));
        assert_eq!((device.numa_node, device.temperature_celsius), (Some(1), Some(40.0)));
    }

    #[test]
    fn transports_are_told_from_names_and_places() {
        let tree = Tree::new();
        for (place, name, word) in [
            ("pci0/ata1/host0/target", "sda", "sata"),
            ("pci0/usb1/1-1/host1", "sdb", "usb"),
            ("pci0/host2/port-0/end_device-0:0", "sdc", "sas"),
            ("pci0/virtio3/host4", "sdd", "virtio-scsi"),
            ("platform/host5", "sde", "scsi"),
            ("pci0/virtio1/block", "vda", "virtio"),
            ("virtual/block", "loop0", "loop"),
            ("virtual/block", "md127", "md"),
            ("virtual/block", "md_d0", "md"),
            ("virtual/block", "dm-3", "dm"),
            ("virtual/block", "zram0", "zram"),
            ("platform/mmc", "mmcblk0", "mmc"),
            ("virtual/block", "ram0", "ram"),
            ("virtual/block", "mystery", "unknown"),
        ] {
            let minor = tree.sysfs().disks().len();
            tree.disk(place, name, &format!("8:{minor}"), 1 << 20);
            assert_eq!(tree.sysfs().block_device(name).unwrap().transport, word, "{name}");
        }
    }

    #[test]
    fn arrays_mappings_and_loops_say_what_they_are() {
        let tree = Tree::new();
        let md = tree.disk("virtual/block", "md0", "9:0", 1 << 30);
        tree.file(&format!("{md}/md/level"), "raid0\n");
        tree.file(&format!("{md}/md/raid_disks"), "4 (3)\n");
        tree.file(&format!("{md}/md/chunk_size"), "65536\n");
        let dm = tree.disk("virtual/block", "dm-0", "252:0", 1 << 30);
        tree.file(&format!("{dm}/dm/name"), "vg-lv\n");
        tree.file(&format!("{dm}/dm/uuid"), "LVM-abc\n");
        let looped = tree.disk("virtual/block", "loop0", "7:0", 1 << 20);
        tree.file(&format!("{looped}/loop/backing_file"), "/images/a b.img\n");
        tree.file(&format!("{looped}/loop/dio"), "1\n");
        let sysfs = tree.sysfs();
        let array = sysfs.block_device("md0").unwrap();
        let raid = array.raid.clone().unwrap();
        assert_eq!((raid.level.as_str(), raid.raid_disks, raid.chunk_bytes), ("raid0", Some(4), Some(65536)));
        assert_eq!(array.describe(), "/dev/md0 (md raid0)");
        assert_eq!(sysfs.block_device("dm-0").unwrap().describe(), "/dev/dm-0 (LVM vg-lv)");
        let facts = sysfs.block_device("loop0").unwrap().loop_device.unwrap();
        assert_eq!(facts.backing_file, "/images/a b.img");
        assert_eq!(facts.direct, Some(true));
    }

    #[test]
    fn a_device_that_vanishes_while_it_is_read_is_no_device() {
        let tree = Tree::new();
        let disk = tree.disk("x", "sda", "8:0", 1 << 20);
        std::fs::remove_file(tree.root.path().join(&disk[1..]).join("dev")).unwrap();
        assert_eq!(tree.sysfs().block_device("sda"), None);
        assert!(tree.sysfs().block_devices().is_empty());
    }

    #[test]
    fn this_machines_own_devices_can_be_read() {
        for device in Sysfs::host().block_devices() {
            assert!(device.size_bytes > 0 && !device.transport.is_empty(), "{device:?}");
        }
    }
}
