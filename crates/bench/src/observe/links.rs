//! Links on the way from the memory to the drives: the drive's own, and those above it that it shares.
//!
//! A PCIe device and the port above it are the two ends of one link, and both report it. Above a switch there
//! is another one, which all drives behind the switch share and which may be narrower than theirs together.
//! So each device on the way is taken with the link that it reports, and the drives below it; those that
//! carry one drive's data twice say the same twice, which does no harm. A SATA drive hangs on an ATA port
//! whose speed libata reports (`sata_spd`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use measure::record::Link;
use storage::sysfs::{PcieLink, Sysfs};

use super::{Layer, stack};

/// A link while its drives are being gathered.
struct Found {
    kind: String,
    bytes_per_s: f64,
    devices: Vec<String>,
}

/// The links of the drives among `layers`, by address.
#[must_use]
pub fn of(sysfs: &Sysfs, layers: &[Layer]) -> Vec<Link> {
    let mut links: BTreeMap<String, Found> = BTreeMap::new();
    for drive in layers.iter().filter(|layer| layer.below.is_empty()) {
        for (address, kind, bytes_per_s) in of_drive(sysfs, drive.name()) {
            let found =
                links.entry(address).or_insert_with(|| Found { kind, bytes_per_s, devices: Vec::new() });
            found.devices.push(drive.name().to_owned());
        }
    }
    links
        .into_iter()
        .map(|(address, found)| {
            let Found { kind, bytes_per_s, devices } = found;
            Link { address, kind, bytes_per_s, devices }
        })
        .collect()
}

fn of_drive(sysfs: &Sysfs, name: &str) -> Vec<(String, String, f64)> {
    // What has several paths may use any of them, so none of their links bounds it.
    let mut above = stack::controllers(sysfs, name);
    let own = fs::canonicalize(sysfs.at_root("/sys/class/block").join(name)).ok();
    above.retain(|folder| own.as_ref().is_some_and(|own| own.starts_with(folder)));
    above.iter().filter_map(|folder| sata(folder).or_else(|| pcie(folder))).collect()
}

fn pcie(folder: &Path) -> Option<(String, String, f64)> {
    let speed_gts: f64 = super::read(&folder.join("current_link_speed"))?.split(' ').next()?.parse().ok()?;
    let width: u32 = super::read(&folder.join("current_link_width"))?.parse().ok()?;
    // Virtual devices claim no lanes; what is on the chip's own bus claims 255.
    if !((1..=64).contains(&width) && speed_gts.is_finite() && speed_gts > 0.0) {
        return None;
    }
    let address = folder.file_name()?.to_str()?.to_owned();
    let link = PcieLink { speed_gts, width, ..PcieLink::default() };
    Some((address, format!("PCIe {speed_gts} GT/s x{width}"), link.bytes_per_s()))
}

/// `ata3` with a `sata_spd` of `6.0 Gbps`; 8b/10b leaves eight tenths (Serial ATA Revision 3.5, §7.3).
fn sata(folder: &Path) -> Option<(String, String, f64)> {
    let port = folder.file_name()?.to_str()?;
    let number =
        port.strip_prefix("ata").filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))?;
    let link = PathBuf::from(format!("link{number}"));
    let speed = super::read(&folder.join(&link).join("ata_link").join(&link).join("sata_spd"))?;
    let gbps: f64 = speed.split(' ').next()?.parse().ok()?;
    (gbps.is_finite() && gbps > 0.0)
        .then(|| (port.to_owned(), format!("SATA {gbps:.1} Gb/s"), gbps * 1e9 * 0.8 / 8.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    fn link(root: &Path, at: &str, speed: &str, width: &str) {
        put(root, &format!("{at}/current_link_speed"), speed);
        put(root, &format!("{at}/current_link_width"), width);
    }

    fn drive(root: &Path, at: &str) -> Layer {
        let name = at.rsplit('/').next().expect("a name");
        put(root, &format!("{at}/dev"), "259:0");
        fs::create_dir_all(root.join("sys/class/block")).expect("directories");
        std::os::unix::fs::symlink(root.join(at), root.join("sys/class/block").join(name)).expect("a link");
        let device = storage::sysfs::BlockDevice { name: name.into(), ..Default::default() };
        Layer { device, ..Layer::default() }
    }

    #[test]
    fn drives_behind_a_switch_share_the_link_above_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path();
        let switch = "sys/devices/pci0/0000:00:01.0/0000:01:00.0";
        link(root, switch, "8.0 GT/s PCIe", "8");
        let layers: Vec<Layer> = (0..2)
            .map(|n| {
                let port = format!("{switch}/0000:02:0{n}.0");
                link(root, &format!("{port}/0000:0{}:00.0", n + 3), "8.0 GT/s PCIe", "4");
                drive(root, &format!("{port}/0000:0{}:00.0/nvme/nvme{n}/nvme{n}n1", n + 3))
            })
            .collect();
        let links = of(&Sysfs::at(root), &layers);
        let devices: Vec<(&str, usize)> =
            links.iter().map(|l| (l.address.as_str(), l.devices.len())).collect();
        assert_eq!(devices, [("0000:01:00.0", 2), ("0000:03:00.0", 1), ("0000:04:00.0", 1)]);
        assert_eq!(links[0].kind, "PCIe 8 GT/s x8");
        assert!((links[0].bytes_per_s / 7.877e9 - 1.0).abs() < 1e-3, "{}", links[0].bytes_per_s);
    }

    #[test]
    fn a_sata_drive_has_its_ports_speed_and_a_virtual_one_has_no_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path();
        put(root, "sys/devices/pci0/ata3/link3/ata_link/link3/sata_spd", "6.0 Gbps");
        let sata = drive(root, "sys/devices/pci0/ata3/host2/target2:0:0/2:0:0:0/block/sda");
        link(root, "sys/devices/pci0/0000:00:02.0", "Unknown", "0");
        let virtual_one = drive(root, "sys/devices/pci0/0000:00:02.0/virtio1/block/vda");
        let links = of(&Sysfs::at(root), &[sata, virtual_one]);
        assert_eq!(links.len(), 1, "{links:?}");
        assert_eq!((links[0].address.as_str(), links[0].bytes_per_s), ("ata3", 6e8));
    }
}
