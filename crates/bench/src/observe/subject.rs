//! What is observed: a target's facts, its stack, and the places to look at.
//!
//! Of a target that is made of others, the devices of all its members are watched.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use measure::record::{Link, TargetFacts};
use storage::device::{Device, DeviceKind};
use storage::sysfs::{Backing, Mount, Sysfs};

use super::activity::Ours;
use super::heat::{self, Sensor};
use super::links;
use super::stack::{self, Stack};

/// A target, and everything below it that is worth watching. Found once, before the first run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Subject {
    /// What the record says of the target.
    pub facts: TargetFacts,
    /// What lies below it.
    pub stack: Stack,
    /// The drives and mounts whose background work matters.
    pub ours: Ours,
    /// Temperature sensors of the drives.
    pub sensors: Vec<Sensor>,
    /// Links on the way to the drives.
    pub links: Vec<Link>,
    /// How the target is made of others, by the names that a record's `layout` has: `layout`, `chunk`, `width`;
    /// empty where it is one device.
    pub arrangement: BTreeMap<String, String>,
}

impl Subject {
    /// What lies below an open device.
    ///
    /// # Errors
    /// The kernel's, where it does not say what the descriptor is.
    pub fn of(sysfs: &Sysfs, device: &dyn Device) -> io::Result<Self> {
        let backing = match device.spread() {
            None => backing(sysfs, device)?,
            Some(spread) => {
                let members = spread.members().iter().map(|member| backing(sysfs, &**member));
                sysfs.joined(&members.collect::<io::Result<Vec<_>>>()?)
            }
        };
        Ok(Self::from_backing(sysfs, device, &backing))
    }

    fn from_backing(sysfs: &Sysfs, device: &dyn Device, backing: &Backing) -> Self {
        let mut stack = Stack::new(sysfs, backing);
        stack.in_memory = leaves(device).all(|leaf| leaf.kind() == DeviceKind::Memory);
        stack.hosts = hosts(device);
        let is_elsewhere = |leaf: &dyn Device| matches!(leaf.kind(), DeviceKind::Memory | DeviceKind::Nbd);
        stack.is_partly_elsewhere = leaves(device).any(is_elsewhere) && !leaves(device).all(is_elsewhere);
        stack.members = device.members().len() as u32;
        stack.chunk = device.spread().and_then(|spread| spread.chunk());
        stack.is_bypassed = leaves(device).any(|leaf| leaf.namespace().is_some());
        let sensors = stack.drives().flat_map(|drive| {
            let device = sysfs.at_root("/sys/class/block").join(drive.name()).join("device");
            let above = stack::controllers(sysfs, drive.name());
            heat::sensors(drive.name(), std::iter::once(device).chain(above))
        });
        Self {
            facts: target_facts(sysfs, device, backing, &stack),
            sensors: sensors.collect(),
            arrangement: arrangement(device),
            ours: ours(sysfs, &stack),
            links: links::of(sysfs, &stack.layers),
            stack,
        }
    }
}

/// What one device stands on.
fn backing(sysfs: &Sysfs, device: &dyn Device) -> io::Result<Backing> {
    if let Some(namespace) = device.namespace() {
        let name = namespace.twin.and_then(|twin| sysfs.name(twin));
        let block_devices = name.map_or_else(Vec::new, |name| sysfs.stack(&name));
        return Ok(Backing { block_devices, ..Backing::default() });
    }
    match device.kind() {
        // Its descriptor is a file in the kernel's own tmpfs, which nobody mounted.
        DeviceKind::Memory => Ok(Backing::default()),
        // What it stands on is the other host's.
        DeviceKind::Nbd => Ok(Backing::default()),
        // Its descriptor stands for nothing.
        DeviceKind::Operations if device.path().is_none() => Ok(Backing::default()),
        _ => sysfs.backing_of_fd(device.fd()),
    }
}

/// The devices at the bottom of a device: itself, where it is not made of others.
fn leaves<'a>(device: &'a dyn Device) -> Box<dyn Iterator<Item = &'a dyn Device> + 'a> {
    match device.spread() {
        None => Box::new(std::iter::once(device)),
        Some(spread) => Box::new(spread.members().iter().map(|member| &**member)),
    }
}

/// The hosts of its exports, in the order in which they are met.
fn hosts(device: &dyn Device) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for host in leaves(device).filter_map(|leaf| leaf.remote().map(|remote| remote.host().to_owned())) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

fn arrangement(device: &dyn Device) -> BTreeMap<String, String> {
    let mut arrangement = BTreeMap::new();
    if device.members().is_empty() {
        return arrangement;
    }
    let mut put = |name: &str, value: String| arrangement.insert(name.to_owned(), value);
    put("layout", device.kind().word().to_owned());
    put("width", device.members().len().to_string());
    if let Some(chunk) = device.spread().and_then(|spread| spread.chunk()) {
        put("chunk", units::bytes_short(chunk));
    }
    arrangement
}

fn target_facts(sysfs: &Sysfs, device: &dyn Device, backing: &Backing, stack: &Stack) -> TargetFacts {
    let top = stack.top().next();
    let known = |text: &String| !text.is_empty() && text != "unknown";
    TargetFacts {
        spec: device.spec().to_owned(),
        kind: device.kind().word().to_owned(),
        path: device.path().map(|path| path.display().to_string()),
        size_bytes: device.size(),
        logical_block_bytes: device.geometry().logical_block,
        filesystem: backing.filesystem.clone(),
        mount_options: backing.options.clone(),
        block_devices: stack.layers.iter().map(|layer| layer.name().to_owned()).collect(),
        lasting_names: lasting_names(sysfs, stack),
        model: stack.drives().find_map(|drive| drive.device.model.clone()),
        transport: top.map(|layer| layer.device.transport.clone()).filter(known),
        rotational: top.and_then(|layer| layer.device.queue.as_ref()?.rotational),
    }
}

/// What the disks below are known by. A name that two of them have (the serial number of a drive with two namespaces, on old
/// kernels) tells neither.
fn lasting_names(sysfs: &Sysfs, stack: &Stack) -> BTreeMap<String, String> {
    let disks = stack.layers.iter().filter(|layer| layer.device.disk.is_none());
    let named: Vec<(String, String)> = disks
        .filter_map(|layer| Some((layer.name().to_owned(), sysfs.lasting_name(&layer.device)?)))
        .collect();
    let is_shared = |disk: &String, name: &String| {
        named.iter().any(|(other, of_other)| other != disk && of_other == name)
    };
    named.iter().filter(|(disk, name)| !is_shared(disk, name)).cloned().collect()
}

/// Everything that is made of the target's drives, whoever uses it: a scrub of another partition of
/// the same disk disturbs as much as one of ours.
fn ours(sysfs: &Sysfs, stack: &Stack) -> Ours {
    let mut devices: BTreeSet<String> = stack.layers.iter().map(|layer| layer.name().to_owned()).collect();
    for drive in stack.drives() {
        devices.extend(sysfs.above(drive.name()).into_iter().map(|device| device.name));
    }
    let btrfs_members = |uuid: &std::path::Path| {
        let members = super::entries(&uuid.join("devices"), "");
        members
            .iter()
            .any(|member| member.file_name().and_then(|n| n.to_str()).is_some_and(|n| devices.contains(n)))
    };
    let btrfs = super::entries(&sysfs.at_root("/sys/fs/btrfs"), "")
        .into_iter()
        .filter(|uuid| btrfs_members(uuid))
        .filter_map(|uuid| Some(uuid.file_name()?.to_str()?.to_owned()));
    let (on_ours, elsewhere): (Vec<Mount>, Vec<Mount>) =
        sysfs.mounts().into_iter().partition(|mount| is_on(sysfs, mount, &devices));
    Ours {
        btrfs: btrfs.collect(),
        mounts: on_ours
            .into_iter()
            .map(|mount| (mount.mount_point.display().to_string(), mount.filesystem))
            .collect(),
        ext4_elsewhere: elsewhere.iter().any(|mount| mount.filesystem == "ext4"),
        devices,
    }
}

/// Whether a mount's file system lies on one of `devices`, by number or by the name of its source.
fn is_on(sysfs: &Sysfs, mount: &Mount, devices: &BTreeSet<String>) -> bool {
    let by_number = sysfs.name(mount.device);
    let by_source = || mount.source.strip_prefix("/dev/").map(str::to_owned);
    by_number.or_else(by_source).is_some_and(|name| devices.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_commands_lies_the_namespaces_block_device_which_counts_none_of_them() {
        let tree = tempfile::tempdir().expect("a directory");
        let root = std::fs::canonicalize(tree.path()).expect("is there");
        let disk = root.join("sys/devices/pci0/nvme/nvme0/nvme0n1");
        std::fs::create_dir_all(disk.join("queue")).expect("directories");
        for (name, text) in [("dev", "259:0"), ("size", "2048"), ("queue/write_cache", "write back")] {
            std::fs::write(disk.join(name), text).expect("a file");
        }
        for link in ["sys/class/block/nvme0n1", "sys/block/nvme0n1", "sys/dev/block/259:0"] {
            let link = root.join(link);
            std::fs::create_dir_all(link.parent().expect("a parent")).expect("directories");
            std::os::unix::fs::symlink(&disk, link).expect("a link");
        }
        let of = |twin: Option<&str>| {
            let device = crate::namespaced::namespaced(twin.map(|number| number.parse().expect("a number")));
            Subject::of(&Sysfs::at(&root), &*device).expect("is described")
        };
        let subject = of(Some("259:0"));
        assert!(subject.stack.is_bypassed);
        assert_eq!(subject.facts.block_devices, ["nvme0n1"]);
        let drives: Vec<_> = subject.stack.drives().collect();
        assert!(matches!(drives[..], [drive] if drive.has_volatile_cache()), "{drives:?}");
        let hidden = of(None);
        assert!(hidden.stack.is_bypassed && hidden.stack.layers.is_empty());
    }
}
