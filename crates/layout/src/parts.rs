//! What a layout is built of, in order, and how each part is made.
//!
//! Two layouts share the parts that they begin with, up to the first that differs. What is shared stands; the
//! rest is taken down and built. So other mount options mean mounting anew, another file system leaves the
//! array, and more drives one by one leave those that are there.
//!
//! Nothing is discarded by mkfs (`-K`, `nodiscard`): it would put the drives into the state of new ones, so that
//! whatever is measured next looks better than what is measured an hour later. A purge is a step of
//! preconditioning that is asked for, and seen. All of ext4's tables are written at once
//! (`lazy_itable_init=0,lazy_journal_init=0`), for otherwise a thread of the kernel writes them during the runs.

use std::path::Path;

use storage::sysfs::Sysfs;

use crate::change::{BackingDevice, Change};
use crate::drive::DriveId;
use crate::error::{LayoutError, ProgramError};
use crate::held::Held;
use crate::label;
use crate::spec::{Filesystem, LayoutKind, LayoutSpec};
use crate::system::{System, TRIES};
use crate::volumes;

/// What a file system is made on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum On {
    /// The array or volume.
    Layer,
    /// Drives.
    Drives(Vec<DriveId>),
}

/// One part of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// An md array.
    Array { members: Vec<DriveId>, chunk_bytes: u64 },
    /// An LVM volume.
    Volume { members: Vec<DriveId>, chunk_bytes: u64 },
    /// A file system, with the stripe that it is to know of: chunk in bytes, and width.
    Filesystem { kind: Filesystem, on: On, stripe: Option<(u64, usize)> },
    /// The mount of the file system before it; the `index`th of its layout.
    Mount { kind: Filesystem, options: Option<String>, index: usize },
}

/// A part that stands.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub part: Part,
    /// Its number in the journal.
    pub number: u64,
    pub change: Change,
    /// The kernel name of the device that it is, where it is one.
    pub device: Option<String>,
}

/// The parts of a layout.
pub(crate) fn plan(spec: &LayoutSpec, drives: &[DriveId]) -> Vec<Part> {
    let members = drives.to_vec();
    let chunk_bytes = spec.chunk_bytes().unwrap_or(0);
    let mut parts = Vec::new();
    match spec.kind {
        LayoutKind::MdRaid0 => parts.push(Part::Array { members, chunk_bytes }),
        LayoutKind::LvmStripe => parts.push(Part::Volume { members, chunk_bytes }),
        _ => {}
    }
    let Some(kind) = spec.mounted_filesystem() else { return parts };
    let places: Vec<On> = match spec.kind {
        LayoutKind::BtrfsRaid0 => vec![On::Drives(drives.to_vec())],
        LayoutKind::MdRaid0 | LayoutKind::LvmStripe => vec![On::Layer],
        _ => drives.iter().map(|drive| On::Drives(vec![drive.clone()])).collect(),
    };
    let stripe = (!parts.is_empty()).then_some((chunk_bytes, drives.len()));
    for (index, on) in places.into_iter().enumerate() {
        parts.push(Part::Filesystem { kind, on, stripe });
        parts.push(Part::Mount { kind, options: spec.mount_options.clone(), index });
    }
    parts
}

impl Part {
    /// The drives whose contents go when it is made.
    pub fn drives(&self) -> &[DriveId] {
        match self {
            Self::Array { members, .. } | Self::Volume { members, .. } => members,
            Self::Filesystem { on: On::Drives(drives), .. } => drives,
            _ => &[],
        }
    }

    /// For people: what making it is.
    pub fn words(&self) -> String {
        match self {
            Self::Array { members, chunk_bytes } => {
                format!("make an md array of {} drives, chunk {}", members.len(), units::bytes(*chunk_bytes))
            }
            Self::Volume { members, chunk_bytes } => {
                format!(
                    "make an LVM volume of {} drives, chunk {}",
                    members.len(),
                    units::bytes(*chunk_bytes)
                )
            }
            Self::Filesystem { kind, on: On::Layer, .. } => format!("make {} on it", kind.word()),
            Self::Filesystem { kind, on: On::Drives(drives), .. } => {
                let names: Vec<_> = drives.iter().map(|drive| drive.name.as_str()).collect();
                format!("make {} on {}", kind.word(), names.join(", "))
            }
            Self::Mount { kind, .. } => format!("mount {}", kind.word()),
        }
    }

    /// What will be changed by making it, with all names and UUIDs chosen now.
    pub fn change(&self, system: &dyn System, before: &[Made], state: &Path) -> Result<Change, LayoutError> {
        let uuid = || {
            let random = Path::new("/proc/sys/kernel/random/uuid");
            system.new_uuid().map_err(|source| LayoutError::io(random, "read a UUID", source))
        };
        Ok(match self {
            Self::Array { members, .. } => Change::Array { uuid: uuid()?, members: members.clone() },
            Self::Volume { members, .. } => {
                let digits = || Ok::<_, LayoutError>(uuid()?.replace('-', ""));
                let group = format!("flashwright_{}", &digits()?[..8]);
                let uuids = members.iter().map(|_| digits()).collect::<Result<_, _>>()?;
                Change::Volume { group, uuids, members: members.clone() }
            }
            Self::Filesystem { kind, on, .. } => {
                let on = match on {
                    On::Drives(drives) => drives.iter().cloned().map(BackingDevice::Drive).collect(),
                    On::Layer => before.iter().filter_map(|made| layer(&made.change)).collect(),
                };
                Change::Filesystem { kind: *kind, uuid: uuid()?, on }
            }
            Self::Mount { index, .. } => Change::Mount { point: state.join(format!("mount-{index}")) },
        })
    }

    /// Makes it, of the drives that it is made of, in their order. Returns the kernel name of the device that came of it.
    pub fn make(
        &self,
        system: &mut dyn System,
        change: &Change,
        before: &[Made],
        held: &[&Held],
    ) -> Result<Option<String>, LayoutError> {
        match (self, change) {
            (Self::Array { chunk_bytes, .. }, Change::Array { uuid, .. }) => {
                make_array(system, uuid, held, *chunk_bytes).map(Some)
            }
            (Self::Volume { chunk_bytes, .. }, Change::Volume { group, uuids, .. }) => {
                let created = volumes::create_volume(system, group, uuids, held, *chunk_bytes);
                created.map_err(|source| program("make the LVM volume", source))?;
                let name = volumes::mappings_of(&system.sysfs(), group).into_iter().next();
                let name = name.ok_or_else(|| made("LVM volume", "a mapping", "none"))?;
                clear_new(system, &name)?;
                Ok(Some(name))
            }
            (Self::Filesystem { kind, stripe, .. }, Change::Filesystem { uuid, on, .. }) => {
                let layers = if held.is_empty() { devices(system, on)? } else { Vec::new() };
                let below = || layers.iter().chain(held.iter().copied());
                let paths: Vec<_> = below().map(Held::path).collect();
                let created =
                    system.run(&format!("mkfs.{}", kind.word()), &mkfs(*kind, uuid, *stripe, &paths));
                below().try_for_each(|device| device.check(system))?;
                created.map_err(|source| program(&format!("make {}", kind.word()), source))?;
                Ok(below().next().map(|device| device.drive.name.clone()))
            }
            (Self::Mount { kind, options, .. }, Change::Mount { point }) => {
                let below = before.iter().rev().find_map(|made| match &made.change {
                    Change::Filesystem { on, uuid, .. } => Some((on, uuid)),
                    _ => None,
                });
                let (on, uuid) = below.ok_or_else(|| made("mount", "a file system before it", "none"))?;
                let devices = devices(system, on)?;
                make_mount(system, *kind, options.as_deref(), &devices, point)?;
                check_mount(&system.sysfs(), *kind, uuid, &devices, point)?;
                devices.iter().try_for_each(|device| device.check(system))?;
                Ok(None)
            }
            _ => Err(made("layout", "a change of the same kind as its part", "another")),
        }
    }
}

/// What a file system lies on, held.
fn devices(system: &dyn System, on: &[BackingDevice]) -> Result<Vec<Held>, LayoutError> {
    let held = on.iter().map(|place| place.hold(system)?.ok_or_else(|| made("device", "there", "gone")));
    held.collect()
}

/// The layer that a change makes.
fn layer(change: &Change) -> Option<BackingDevice> {
    match change {
        Change::Array { uuid, members } => {
            Some(BackingDevice::Array { uuid: uuid.clone(), members: members.clone() })
        }
        Change::Volume { group, .. } => Some(BackingDevice::Volume { group: group.clone() }),
        _ => None,
    }
}

fn made(what: &str, asked: &str, found: &str) -> LayoutError {
    LayoutError::Made { what: what.to_owned(), asked: asked.to_owned(), found: found.to_owned() }
}

fn program(what: &str, source: ProgramError) -> LayoutError {
    LayoutError::Program { what: what.to_owned(), source }
}

fn make_array(
    system: &mut dyn System,
    uuid: &str,
    held: &[&Held],
    chunk_bytes: u64,
) -> Result<String, LayoutError> {
    let members: Vec<_> = held.iter().map(|member| member.drive.clone()).collect();
    let array = volumes::free_array_node(&system.sysfs());
    let array = array.ok_or_else(|| made("md array", "a free name", "128 arrays"))?;
    let created = volumes::create_array(system, &array, uuid, held, chunk_bytes);
    created.map_err(|source| program("make the md array", source))?;
    let name = volumes::arrays_of(system, uuid, &members)?.into_iter().next();
    let name = name.ok_or_else(|| made("md array", "an array of the members", "none"))?;
    let facts = system.sysfs().block_node(&name).and_then(|device| device.raid).unwrap_or_default();
    if facts.chunk_bytes != Some(chunk_bytes) {
        let found = facts.chunk_bytes.map_or_else(|| "none".to_owned(), units::bytes_short);
        return Err(made("chunk of the md array", &units::bytes_short(chunk_bytes), &found));
    }
    if facts.raid_disks.map(|disks| disks as usize) != Some(members.len()) {
        let found = facts.raid_disks.map_or_else(|| "none".to_owned(), |disks| disks.to_string());
        return Err(made("width of the md array", &members.len().to_string(), &found));
    }
    clear_new(system, &name)?;
    Ok(name)
}

/// An array made anew shows what an earlier one of the same geometry held, superblocks included.
fn clear_new(system: &mut dyn System, name: &str) -> Result<(), LayoutError> {
    let device = Held::open(system, name)?;
    label::clear(system, &device)
        .map_err(|source| LayoutError::io(device.node(), "wipe old signatures", source))
}

/// Arguments of mkfs: the UUID that was chosen, no discard, all tables written at once, and the stripe below.
fn mkfs(kind: Filesystem, uuid: &str, stripe: Option<(u64, usize)>, devices: &[String]) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(ToString::to_string));
    match kind {
        Filesystem::Xfs => {
            add(&["-f", "-q", "-K", "-m", &format!("uuid={uuid}")]);
            if let Some((chunk, width)) = stripe {
                add(&["-d", &format!("su={chunk},sw={width}")]);
            }
        }
        Filesystem::Ext4 => {
            let mut extended = "lazy_itable_init=0,lazy_journal_init=0,nodiscard".to_owned();
            if let Some((chunk, width)) = stripe {
                let stride = chunk / 4096;
                extended += &format!(",stride={stride},stripe_width={}", stride * width as u64);
            }
            // -F: the contents were given up, and nobody is there to be asked.
            add(&["-F", "-q", "-b", "4096", "-U", uuid, "-E", &extended]);
        }
        Filesystem::Btrfs => {
            add(&["-f", "-q", "-K", "-U", uuid]);
            if devices.len() > 1 {
                add(&["-d", "raid0", "-m", "raid0"]);
            }
        }
        Filesystem::F2fs => add(&["-f", "-q", "-t", "0", "-U", uuid]),
    }
    arguments.extend_from_slice(devices);
    arguments
}

fn make_mount(
    system: &mut dyn System,
    kind: Filesystem,
    options: Option<&str>,
    devices: &[Held],
    point: &Path,
) -> Result<(), LayoutError> {
    let made = system.make_directory(point);
    made.map_err(|source| LayoutError::io(point, "make the directory", source))?;
    let mut options: Vec<String> = options.map(str::to_owned).into_iter().collect();
    // Without udev the kernel has to be told of the other members (btrfs(5), device=), and shows those names later.
    if devices.len() > 1 {
        options.extend(devices.iter().map(|device| format!("device={}", device.node().display())));
    }
    let mut arguments: Vec<String> = vec!["-t".into(), kind.word().into()];
    if !options.is_empty() {
        arguments.extend(["-o".into(), options.join(",")]);
    }
    // mount(8) resolves the descriptor to the device's name, which mountinfo then shows; if the node was renamed or removed it
    // mounts the descriptor's device all the same.
    arguments.extend(devices.first().map(Held::path));
    arguments.push(point.display().to_string());
    let mounted = system.run("mount", &arguments);
    mounted.map_err(|source| program(&format!("mount {}", kind.word()), source))?;
    // ext4 reads its block bitmaps ahead in the thread that initialises lazily, right after it is mounted. That of
    // another file system may last; then the check before a run tells.
    for _ in 0..TRIES {
        if kind != Filesystem::Ext4 || !is_lazy_init_running(&system.sysfs()) {
            break;
        }
        system.pause();
    }
    Ok(())
}

/// Fails with [`LayoutError::Replaced`] if what is mounted at `point` does not lie on these devices: mount(2) takes names, and
/// a node in `/dev` may be replaced after mount(8) has resolved its name. The caller then unmounts it.
fn check_mount(
    sysfs: &Sysfs,
    kind: Filesystem,
    uuid: &str,
    devices: &[Held],
    point: &Path,
) -> Result<(), LayoutError> {
    let mounts = sysfs.mounts();
    // A later mount on the same point covers an earlier one.
    let Some(mount) = mounts.iter().rev().find(|mount| mount.mount_point == point) else {
        return Err(made("mount", kind.word(), "nothing is mounted"));
    };
    let is_on = |device: &&Held| match kind {
        // btrfs has a device number of its own; the kernel lists its members by file system while it is mounted.
        Filesystem::Btrfs => {
            let member = format!("/sys/fs/btrfs/{uuid}/devices/{}", device.drive.name);
            sysfs.at_root(member).exists()
        }
        Filesystem::Xfs | Filesystem::Ext4 | Filesystem::F2fs => mount.device == device.number(),
    };
    match devices.iter().find(|device| !is_on(device)) {
        Some(other) => Err(other.replaced()),
        None => Ok(()),
    }
}

/// Whether the kernel's thread runs that writes the tables of an ext4 later.
pub(crate) fn is_lazy_init_running(sysfs: &Sysfs) -> bool {
    let entries = std::fs::read_dir(sysfs.at_root("/proc")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .any(|pid| sysfs.text(format!("/proc/{pid}/comm")).as_deref() == Some("ext4lazyinit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drives(names: &[&str]) -> Vec<DriveId> {
        let drive = |name: &&str| DriveId { name: (*name).into(), ..DriveId::default() };
        names.iter().map(drive).collect()
    }

    fn shared(one: &str, other: &str) -> (usize, usize) {
        let parts = |text: &str| {
            let spec = LayoutSpec::parse(text).unwrap();
            let names: Vec<_> = spec.drives.iter().map(|path| path.to_str().unwrap()).collect();
            plan(&spec, &drives(&names))
        };
        let (one, other) = (parts(one), parts(other));
        (one.iter().zip(&other).take_while(|(a, b)| a == b).count(), other.len())
    }

    #[test]
    fn what_two_layouts_begin_with_stands() {
        let md = "md-raid0(filesystem=xfs):/a,/b";
        assert_eq!(shared(md, "md-raid0(filesystem=xfs,scheduler=none):/a,/b"), (3, 3));
        assert_eq!(shared(md, "md-raid0(filesystem=xfs,mount_options=noatime):/a,/b"), (2, 3));
        assert_eq!(shared(md, "md-raid0(filesystem=ext4):/a,/b"), (1, 3));
        assert_eq!(shared(md, "md-raid0(chunk=64k,filesystem=xfs):/a,/b"), (0, 3));
        assert_eq!(shared("separate(filesystem=xfs):/a,/b", "separate(filesystem=xfs):/a,/b,/c"), (4, 6));
        assert_eq!(shared("separate:/a,/b", "stripe:/a,/b"), (0, 0));
    }

    #[test]
    fn file_systems_are_made_with_the_geometry_below_and_discard_nothing() {
        let arguments = |kind| mkfs(kind, "u", Some((64 << 10, 8)), &["/dev/md127".into()]).join(" ");
        assert_eq!(arguments(Filesystem::Xfs), "-f -q -K -m uuid=u -d su=65536,sw=8 /dev/md127");
        assert_eq!(
            arguments(Filesystem::Ext4),
            "-F -q -b 4096 -U u -E lazy_itable_init=0,lazy_journal_init=0,nodiscard,stride=16,stripe_width=128 /dev/md127"
        );
        assert_eq!(arguments(Filesystem::F2fs), "-f -q -t 0 -U u /dev/md127");
        let two = mkfs(Filesystem::Btrfs, "u", None, &["/dev/a".into(), "/dev/b".into()]).join(" ");
        assert_eq!(two, "-f -q -K -U u -d raid0 -m raid0 /dev/a /dev/b");
    }
}
