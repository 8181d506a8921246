//! A change to the machine, with all that is needed to undo it.
//!
//! Each is undone by looking at what is there, never by assuming that it was made: it may have been made, half
//! made, or only announced; the machine may have been booted since, and may have put an array
//! together under another name, or given a drive another. So
//!
//! - drives are known by serial number where they have one, and by name otherwise;
//! - what lies on a drive is ours only if it bears the UUID that was chosen for it, and only then wiped;
//! - settings are compared with the old values, and written only where they differ.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{LayoutError, ProgramError};
use crate::held::Held;
use crate::interrupts;
use crate::knobs;
use crate::label::{self, Label};
use crate::spec::Filesystem;
use crate::system::{System, TRIES};
use crate::volumes;

pub use crate::drive::DriveId;

/// What a file system lies on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackingDevice {
    /// A drive.
    Drive(DriveId),
    /// The md array with this UUID, made of these drives.
    Array {
        /// Its UUID.
        uuid: String,
        /// Its members.
        members: Vec<DriveId>,
    },
    /// The logical volume of this group.
    Volume {
        /// Name of the group.
        group: String,
    },
}

impl BackingDevice {
    fn drives(&self) -> &[DriveId] {
        match self {
            Self::Drive(drive) => std::slice::from_ref(drive),
            Self::Array { members, .. } => members,
            Self::Volume { .. } => &[],
        }
    }

    /// The device that it is now, held; None if it is not there. An array or volume is looked for again once it is held,
    /// since only then is its name no other's.
    pub(crate) fn hold(&self, system: &dyn System) -> Result<Option<Held>, LayoutError> {
        if let Self::Drive(drive) = self {
            return drive.hold(system);
        }
        let Some(name) = self.layers(system)?.into_iter().next() else { return Ok(None) };
        let held = Held::open(system, &name)?;
        if self.layers(system)?.contains(&name) { Ok(Some(held)) } else { Err(held.replaced()) }
    }

    /// The kernel names of the array or volume.
    fn layers(&self, system: &dyn System) -> Result<Vec<String>, LayoutError> {
        match self {
            Self::Drive(_) => Ok(Vec::new()),
            Self::Array { uuid, members } => volumes::arrays_of(system, uuid, members),
            Self::Volume { group } => Ok(volumes::mappings_of(&system.sysfs(), group)),
        }
    }
}

/// What settings belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A drive: the files are below its directory in sysfs.
    Drive(DriveId),
    /// Something that does not outlast a boot (an array, an interrupt): the files are absolute.
    ThisBoot {
        /// For people: `md127`, `interrupts of nvme0n1`.
        what: String,
        /// The array or volume, or the drive whose interrupts they are: within one boot another array may get the name,
        /// and another drive the numbers of the interrupts. None for a btrfs, whose files are named by its UUID.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<DriveId>,
    },
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Settings that are going to be written.
    Settings {
        /// What they belong to.
        of: Owner,
        /// Each file and its old value, in the order in which they are written.
        old: Vec<(PathBuf, String)>,
    },
    /// An md array (md(4), metadata 1.2).
    Array {
        /// Its UUID.
        uuid: String,
        /// Its members.
        members: Vec<DriveId>,
    },
    /// An LVM volume group with one logical volume.
    Volume {
        /// Name of the group, which is ours alone.
        group: String,
        /// The UUIDs of its physical volumes, without dashes.
        uuids: Vec<String>,
        /// The drives, in the same order.
        members: Vec<DriveId>,
    },
    /// A file system.
    Filesystem {
        /// Which.
        kind: Filesystem,
        /// Its UUID.
        uuid: String,
        /// Where it lies; several for a btrfs of several drives.
        on: Vec<BackingDevice>,
    },
    /// A mount.
    Mount {
        /// Where.
        point: PathBuf,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |drives: &[DriveId]| drives.iter().map(|d| d.name.clone()).collect::<Vec<_>>().join(", ");
        match self {
            Self::Settings { of, old } => {
                let of = match of {
                    Owner::Drive(drive) => &drive.name,
                    Owner::ThisBoot { what, .. } => what,
                };
                let old: Vec<_> = old
                    .iter()
                    .map(|(file, value)| {
                        format!("{} {value}", file.file_name().unwrap_or_default().display())
                    })
                    .collect();
                write!(f, "settings of {of}: {} before", old.join(", "))
            }
            Self::Array { uuid, members } => write!(f, "md array {uuid} on {}", names(members)),
            Self::Volume { group, members, .. } => write!(f, "volume group {group} on {}", names(members)),
            Self::Filesystem { kind, uuid, on } => {
                let on: Vec<_> = on
                    .iter()
                    .map(|place| match place {
                        BackingDevice::Drive(drive) => drive.name.clone(),
                        BackingDevice::Array { .. } => "the array".to_owned(),
                        BackingDevice::Volume { group } => group.clone(),
                    })
                    .collect();
                write!(f, "{} {uuid} on {}", kind.word(), on.join(", "))
            }
            Self::Mount { point } => write!(f, "mount on {}", point.display()),
        }
    }
}

/// Why a change could not be undone: for people, a reason each.
pub(crate) type Obstruction = String;

impl Change {
    /// The drives that it changes.
    pub(crate) fn drives(&self) -> Vec<&DriveId> {
        match self {
            Self::Settings { of: Owner::Drive(drive), .. } => vec![drive],
            Self::Array { members, .. } | Self::Volume { members, .. } => members.iter().collect(),
            Self::Filesystem { on, .. } => on.iter().flat_map(BackingDevice::drives).collect(),
            Self::Settings { .. } | Self::Mount { .. } => Vec::new(),
        }
    }

    /// Whether it changes settings.
    pub(crate) fn is_of_settings(&self) -> bool {
        matches!(self, Self::Settings { .. })
    }

    /// Whether it changes which CPUs take interrupts.
    pub(crate) fn is_of_interrupts(&self) -> bool {
        matches!(self, Self::Settings { old, .. } if old.iter().any(|(file, _)| file.starts_with("/proc/irq")))
    }

    /// Undoes it, as far as it was made. `same_boot` tells whether the machine was not booted since.
    ///
    /// # Errors
    /// What stands in the way, after all that can be done was done.
    pub(crate) fn undo(&self, system: &mut dyn System, same_boot: bool) -> Result<(), Obstruction> {
        match self {
            Self::Settings { of, old } => undo_settings(system, of, old, same_boot),
            Self::Array { uuid, members } => volumes::undo_array(system, uuid, members),
            Self::Volume { group, uuids, members } => volumes::undo_volume(system, group, uuids, members),
            Self::Filesystem { kind, uuid, on } => undo_filesystem(system, *kind, uuid, on),
            Self::Mount { point } => undo_mount(system, point),
        }
    }
}

fn undo_settings(
    system: &mut dyn System,
    of: &Owner,
    old: &[(PathBuf, String)],
    same_boot: bool,
) -> Result<(), Obstruction> {
    let device = match of {
        Owner::Drive(drive) => Some(drive),
        // A boot has set them back, and numbers interrupts and arrays anew.
        Owner::ThisBoot { .. } if !same_boot => return Ok(()),
        Owner::ThisBoot { device, .. } => device.as_ref(),
    };
    let held =
        device.map(|device| device.hold(system)).transpose().map_err(|error| base::with_causes(&error))?;
    // While it is held its name is no other's.
    let name = match &held {
        Some(Some(held)) => held.drive.name.as_str(),
        // An array that is gone took its settings along; a drive has them from its driver when it comes back.
        Some(None) => return Ok(()),
        None => "",
    };
    let directory = match of {
        Owner::Drive(_) => Path::new("/sys/class/block").join(name),
        Owner::ThisBoot { .. } => PathBuf::new(),
    };
    let interrupts: Vec<_> =
        interrupts::of_drive(&system.sysfs(), name).into_iter().map(interrupts::affinity).collect();
    let is_of_device = |file: &Path| {
        name.is_empty() || !file.starts_with("/proc/irq") || interrupts.iter().any(|own| own == file)
    };
    let old = old.iter().filter(|(file, _)| is_of_device(file));
    let files: Vec<_> = old.map(|(file, value)| (directory.join(file), value.clone())).collect();
    settle(system, &files)
        .map_err(|(path, source)| format!("{} cannot be set back: {source}", path.display()))
}

/// Brings files to values, in the order given, as long as one write may undo another. Files that are
/// not there (an array is gone, another scheduler has no such tunable) are left out.
///
/// # Errors
/// The first file that does not take its value, with the kernel's word, or what came of it.
pub(crate) fn settle(
    system: &mut dyn System,
    files: &[(PathBuf, String)],
) -> Result<(), (PathBuf, io::Error)> {
    let now = |system: &dyn System, path: &Path| knobs::read(&system.sysfs(), path);
    let mut refused = None;
    for _ in 0..3 {
        refused = None;
        let mut wrote = false;
        for (path, value) in files {
            let Some(found) = now(system, path).filter(|found| found != value) else { continue };
            wrote = true;
            // Writeback throttling that was never set by hand goes with the scheduler; -1 is its word for
            // that (sysfs-block), and a number would tie it down for good.
            if path.ends_with("wbt_lat_usec") && found != "-1" {
                let _ = system.write_setting(path, "-1");
                if now(system, path).as_deref() == Some(value) {
                    continue;
                }
            }
            if let Err(error) = system.write_setting(path, value) {
                refused.get_or_insert((path.clone(), error));
            }
        }
        if !wrote {
            return Ok(());
        }
    }
    for (path, value) in files {
        if let Some(found) = now(system, path).filter(|found| found != value) {
            let found = io::Error::other(format!("it is {found}, not {value}"));
            return Err(refused.unwrap_or((path.clone(), found)));
        }
    }
    Ok(())
}

fn undo_filesystem(
    system: &mut dyn System,
    kind: Filesystem,
    uuid: &str,
    on: &[BackingDevice],
) -> Result<(), Obstruction> {
    let mut left = Vec::new();
    for place in on {
        match (place.hold(system), place) {
            (Ok(Some(held)), _) => {
                left.extend(label::wipe(system, &held, Label::Filesystem(kind), uuid).err());
            }
            (Ok(None), BackingDevice::Drive(drive)) => left.push(drive.gone()),
            // What lay on an array or volume that is gone is nowhere; a drive may come back with it.
            (Ok(None), _) => {}
            (Err(error), _) => left.push(base::with_causes(&error)),
        }
    }
    if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
}

fn undo_mount(system: &mut dyn System, point: &Path) -> Result<(), Obstruction> {
    let mut last: Option<ProgramError> = None;
    for attempt in 0..TRIES {
        let is_mounted = system.sysfs().mounts().iter().any(|mount| mount.mount_point == point);
        if !is_mounted {
            let removed = system.remove_directory(point);
            return removed.map_err(|error| format!("{} cannot be removed: {error}", point.display()));
        }
        if attempt > 0 {
            system.pause();
        }
        last = system.run("umount", &[point.display().to_string()]).err();
    }
    Err(last
        .map_or_else(|| format!("{} is mounted again and again", point.display()), |e| base::with_causes(&e)))
}
