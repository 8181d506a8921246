//! What lies around a device: its PCIe link, NUMA node and temperature sensor.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{entries, read_number, read_text};

/// The PCIe link of a drive: what it runs at, and what device and slot could do
/// (kernel, `Documentation/ABI/testing/sysfs-bus-pci`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PcieLink {
    /// PCI address of the device: `0000:01:00.0`.
    pub address: String,
    /// Transfers a second and lane at present, in GT/s.
    pub speed_gts: f64,
    /// Lanes at present.
    pub width: u32,
    /// The most that the device supports, GT/s.
    pub max_speed_gts: f64,
    /// The most lanes that the device supports.
    pub max_width: u32,
    /// The most that the port above supports, GT/s, where it says.
    pub port_max_speed_gts: Option<f64>,
    /// The most lanes that the port above supports, where it says.
    pub port_max_width: Option<u32>,
}

impl PcieLink {
    /// Whether the link runs below what both ends support.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        let speed = self.port_max_speed_gts.map_or(self.max_speed_gts, |p| p.min(self.max_speed_gts));
        let width = self.port_max_width.map_or(self.max_width, |p| p.min(self.max_width));
        self.speed_gts + 0.01 < speed || self.width < width
    }

    /// Bytes a second that the link carries in one direction, before packet headers: lanes times
    /// transfers, less the line code (8b/10b to 5 GT/s, 128b/130b to 32 GT/s, then PAM4 flits; PCI Express
    /// Base Specification 6.0, §4.2).
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        let code = match self.speed_gts {
            gts if gts <= 5.0 => 0.8,
            gts if gts <= 32.0 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        self.speed_gts * 1e9 / 8.0 * code * f64::from(self.width)
    }

    /// The link of the nearest PCI device at or above `directory`; none where there is none, or where it
    /// does not know (virtual devices say `Unknown` and 0 lanes).
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        let mut with_link = directory.ancestors().filter(|above| above.join("current_link_speed").exists());
        let device = with_link.next()?;
        let port = with_link.next();
        let width = |path: &Path, name: &str| {
            read_number::<u32>(&path.join(name)).filter(|lanes| (1..=64).contains(lanes))
        };
        Some(Self {
            address: super::file_name(device)?,
            speed_gts: speed(&device.join("current_link_speed"))?,
            width: width(device, "current_link_width")?,
            max_speed_gts: speed(&device.join("max_link_speed"))?,
            max_width: width(device, "max_link_width")?,
            port_max_speed_gts: port.and_then(|p| speed(&p.join("max_link_speed"))),
            port_max_width: port.and_then(|p| width(p, "max_link_width")),
        })
    }
}

/// `8.0 GT/s PCIe` is 8.
fn speed(path: &Path) -> Option<f64> {
    let text = read_text(path)?;
    let (number, unit) = text.split_once(' ')?;
    let value: f64 = number.parse().ok()?;
    (unit.starts_with("GT/s") && value.is_finite() && value > 0.0).then_some(value)
}

/// The NUMA node of the nearest device that says one.
pub(crate) fn numa_node(directory: &Path) -> Option<u32> {
    // -1 is "no node", and a device further up does not know better.
    let said = directory.ancestors().find_map(|d| read_number::<i64>(&d.join("numa_node")))?;
    u32::try_from(said).ok()
}

/// The drive's own temperature in °C: NVMe controllers and, with the module drivetemp, SATA drives
/// register a hwmon (kernel, `Documentation/hwmon`), at the controller or two steps from the disk. The first
/// sensor is the composite one.
pub(crate) fn temperature(directory: &Path) -> Option<f64> {
    let near = [".", "device", "device/device"].map(|up| directory.join(up));
    let sensors = near.iter().flat_map(|device| {
        [device.clone(), device.join("hwmon")].into_iter().flat_map(|place| {
            let hwmon = |name: &String| name.starts_with("hwmon") && name != "hwmon";
            let found: Vec<PathBuf> = entries(&place)
                .into_iter()
                .filter(hwmon)
                .map(|name| place.join(name).join("temp1_input"))
                .collect();
            found
        })
    });
    let millidegrees = sensors.into_iter().find_map(|sensor| read_number::<i32>(&sensor))?;
    // Beyond these no flash works; such values come from sensors that are not there.
    (-60_000..=200_000).contains(&millidegrees).then(|| f64::from(millidegrees) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;
    use super::*;

    fn link(tree: &Tree, at: &str, facts: [&str; 4]) {
        let names = ["current_link_speed", "current_link_width", "max_link_speed", "max_link_width"];
        for (name, value) in names.into_iter().zip(facts) {
            tree.file(&format!("{at}/{name}"), value);
        }
    }

    #[test]
    fn a_link_below_what_both_ends_can_do_is_degraded() {
        let tree = Tree::new();
        let port = "/sys/devices/pci0000:00/0000:00:01.0";
        let device = format!("{port}/0000:01:00.0");
        link(&tree, port, ["8.0 GT/s PCIe", "4", "16.0 GT/s PCIe", "16"]);
        link(&tree, &device, ["8.0 GT/s PCIe", "2", "16.0 GT/s PCIe", "4"]);
        tree.file(&format!("{device}/numa_node"), "1\n");
        tree.file(&format!("{device}/nvme/nvme0/nvme0n1/dev"), "259:0\n");
        let below = tree.root.path().join(&device[1..]).join("nvme/nvme0/nvme0n1");
        let found = PcieLink::read(&below).unwrap();
        assert_eq!(found.address, "0000:01:00.0");
        assert_eq!((found.width, found.max_width, found.port_max_width), (2, 4, Some(16)));
        assert!(found.is_degraded());
        assert!((found.bytes_per_s() - 1.969e9).abs() < 1e6);
        assert_eq!(numa_node(&below), Some(1));
    }

    #[test]
    fn a_slower_slot_is_no_fault_of_the_link() {
        let slot = PcieLink {
            address: String::new(),
            speed_gts: 8.0,
            width: 4,
            max_speed_gts: 16.0,
            max_width: 4,
            port_max_speed_gts: Some(8.0),
            port_max_width: Some(4),
        };
        assert!(!slot.is_degraded());
    }

    #[test]
    fn virtual_devices_that_say_unknown_have_no_link() {
        let tree = Tree::new();
        let device = "/sys/devices/pci0000:00/0000:00:02.0";
        link(&tree, device, ["Unknown", "0", "Unknown", "255"]);
        tree.file(&format!("{device}/numa_node"), "-1\n");
        let directory = tree.root.path().join(&device[1..]);
        assert_eq!(PcieLink::read(&directory), None);
        assert_eq!(numa_node(&directory), None);
    }

    #[test]
    fn the_temperature_is_read_from_either_place_of_hwmon() {
        let tree = Tree::new();
        let disk = tree.disk("nvme/nvme0", "nvme0n1", "259:0", 1 << 30);
        tree.link(&format!("{disk}/device"), "/sys/devices/nvme/nvme0");
        tree.file("/sys/devices/nvme/nvme0/hwmon3/temp1_input", "41850\n");
        let directory = tree.root.path().join(&disk[1..]);
        assert_eq!(temperature(&directory), Some(41.85));
        let other = tree.disk("ata/target", "sda", "8:0", 1 << 30);
        tree.link(&format!("{other}/device"), "/sys/devices/ata/target");
        tree.file("/sys/devices/ata/target/hwmon/hwmon5/temp1_input", "-273000\n");
        assert_eq!(temperature(&tree.root.path().join(&other[1..])), None);
    }
}
