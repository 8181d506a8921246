//! Arrays of md and volumes of LVM: made by mdadm(8) and lvm(8), found again by UUID, taken apart.
//!
//! udev looks at each device that was just closed, and puts an array together again of members that still
//! bear its superblock. So an array is stopped and its superblocks are wiped in one loop, which ends when no
//! member bears one.
//!
//! LVM is told by `--config` to look at the drives of the layout and at no others, to keep no backup of the
//! metadata below `/etc/lvm`, and to leave the devices file alone.

use std::path::{Path, PathBuf};

use storage::sysfs::Sysfs;

use crate::drive::{DriveId, node};
use crate::error::{LayoutError, ProgramError};
use crate::held::Held;
use crate::label::{self, Label};
use crate::system::{System, TRIES};

/// The kernel names of md devices that hold members with that UUID: none where it is stopped, one where it is
/// whole, more only while udev is at work.
pub(crate) fn arrays_of(
    system: &dyn System,
    uuid: &str,
    members: &[DriveId],
) -> Result<Vec<String>, LayoutError> {
    let sysfs = system.sysfs();
    let mut found = Vec::new();
    for member in members {
        let Some(held) = member.hold(system)? else { continue };
        if label::find(&held, Label::Member, uuid).is_ok_and(|parts| !parts.is_empty()) {
            let holders = sysfs.block_node(&held.drive.name).map(|device| device.holders);
            found.extend(holders.into_iter().flatten().filter(|holder| holder.starts_with("md")));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The kernel names of the mappings of a volume group that has no dash in its name.
pub(crate) fn mappings_of(sysfs: &Sysfs, group: &str) -> Vec<String> {
    let prefix = format!("{group}-");
    let disks = sysfs.disks().into_iter().filter(|name| name.starts_with("dm-"));
    disks
        .filter(|name| {
            sysfs.text(format!("/sys/block/{name}/dm/name")).is_some_and(|name| name.starts_with(&prefix))
        })
        .collect()
}

/// A free node for an array: from the top, as mdadm does it, so that the numbers people choose stay free.
pub(crate) fn free_array_node(sysfs: &Sysfs) -> Option<PathBuf> {
    let is_free = |name: &String| sysfs.number(name).is_none() && !sysfs.at_root(node(name)).exists();
    (0..128).rev().map(|number| format!("md{number}")).find(is_free).map(|name| node(&name))
}

/// Makes a RAID-0 of md with that UUID. Metadata 1.2, as it comes with mdadm; `--force` for an array of one
/// drive, which the scaling over widths begins with; `--run`, for nobody is there to be asked.
pub(crate) fn create_array(
    system: &mut dyn System,
    array: &Path,
    uuid: &str,
    members: &[&Held],
    chunk_bytes: u64,
) -> Result<(), ProgramError> {
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let words: Vec<&str> = (0..4).filter_map(|word| digits.get(8 * word..8 * word + 8)).collect();
    let mut arguments: Vec<String> = vec![
        "--create".into(),
        array.display().to_string(),
        "--run".into(),
        "--force".into(),
        "--metadata=1.2".into(),
        "--homehost=any".into(),
        "--name=flashwright".into(),
        format!("--uuid={}", words.join(":")),
        "--level=0".into(),
        format!("--chunk={}K", chunk_bytes >> 10),
        format!("--raid-devices={}", members.len()),
    ];
    arguments.extend(members.iter().map(|member| member.path()));
    system.run("mdadm", &arguments).map(drop)
}

/// Stops the array with that UUID, whatever it is called now, and wipes it from its members.
pub(crate) fn undo_array(system: &mut dyn System, uuid: &str, members: &[DriveId]) -> Result<(), String> {
    let mut left = Vec::new();
    for attempt in 0..TRIES {
        if attempt > 0 {
            system.pause();
        }
        left.clear();
        for array in arrays_of(system, uuid, members).map_err(|error| base::with_causes(&error))? {
            let stopped = system.run("mdadm", &["--stop".into(), node(&array).display().to_string()]);
            left.extend(stopped.err().map(|error| base::with_causes(&error)));
        }
        if !left.is_empty() {
            continue;
        }
        for member in members {
            match member.hold(system) {
                Err(error) => left.push(base::with_causes(&error)),
                Ok(None) => left.push(member.gone()),
                Ok(Some(held)) => left.extend(wipe_member(system, &held, uuid)),
            }
        }
        if left.is_empty() || members.iter().any(|member| member.name_now(&system.sysfs()).is_none()) {
            break;
        }
    }
    if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
}

/// Wipes one member, once: where udev has it in an array again, that is stopped first.
fn wipe_member(system: &mut dyn System, device: &Held, uuid: &str) -> Option<String> {
    let failed = |what: &str, error: std::io::Error| {
        Some(format!("{} cannot be {what}: {error}", device.node().display()))
    };
    match label::find(device, Label::Member, uuid) {
        Err(error) => failed("read", error),
        Ok(parts) if parts.is_empty() => None,
        Ok(parts) => system.zero(device, &parts).err().and_then(|error| failed("wiped", error)),
    }
}

/// A UUID as LVM writes it: 32 characters, with dashes after 6, 10, 14, 18, 22 and 26.
pub(crate) fn lvm_uuid(digits: &str) -> String {
    let ends = [0, 6, 10, 14, 18, 22, 26, 32];
    ends.windows(2).filter_map(|pair| digits.get(pair[0]..pair[1])).collect::<Vec<_>>().join("-")
}

/// Configuration that confines LVM to the drives of the layout. It looks for them among the descriptors of this process,
/// not in `/dev`, so that it finds what is held and nothing else.
fn confined(system: &dyn System, members: &[&Held]) -> Vec<String> {
    let accepted: Vec<String> = members.iter().map(|member| format!("\"a|^{}$|\"", member.path())).collect();
    let filter = [accepted, vec!["\"r|.*|\"".to_owned()]].concat().join(", ");
    // Without udev nobody answers when LVM waits for a node to appear; it then makes it itself.
    let udev = u8::from(system.sysfs().at_root("/run/udev/control").exists());
    let config = format!(
        "devices {{ use_devicesfile=0 scan=[ \"/proc/{}/fd\" ] obtain_device_list_from_udev=0 \
         filter=[ {filter} ] global_filter=[ {filter} ] }} backup {{ backup=0 archive=0 }} \
         activation {{ monitoring=0 udev_sync={udev} udev_rules={udev} }}",
        std::process::id()
    );
    vec!["--config".into(), config]
}

/// Makes a striped logical volume, `data` of `group`, over all of the drives.
pub(crate) fn create_volume(
    system: &mut dyn System,
    group: &str,
    uuids: &[String],
    members: &[&Held],
    chunk_bytes: u64,
) -> Result<(), ProgramError> {
    let confined = confined(system, members);
    let mut lvm = |command: &str, arguments: Vec<String>| {
        let all: Vec<String> =
            [command.to_owned()].into_iter().chain(confined.iter().cloned()).chain(arguments).collect();
        system.run("lvm", &all).map(drop)
    };
    let nodes: Vec<String> = members.iter().map(|member| member.path()).collect();
    for (node, uuid) in nodes.iter().zip(uuids) {
        let uuid = lvm_uuid(uuid);
        lvm("pvcreate", words(&["--yes", "-ff", "--norestorefile", "--uuid", &uuid, node]))?;
    }
    lvm("vgcreate", words(&["--yes", group]).into_iter().chain(nodes).collect())?;
    let width = members.len().to_string();
    let chunk = format!("{}k", chunk_bytes >> 10);
    let mut arguments = words(&["--yes", "-Wn", "-Zn", "-n", "data", "-l", "100%FREE", "-i", &width]);
    // One drive has nothing to take turns with, and lvcreate says so.
    if members.len() > 1 {
        arguments.extend(words(&["-I", &chunk]));
    }
    arguments.push(group.to_owned());
    lvm("lvcreate", arguments)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Takes the volume down and its labels from the drives. LVM is asked first, for it keeps caches; what counts is
/// what is there afterwards, since a group that was only half made is nothing that LVM would remove.
pub(crate) fn undo_volume(
    system: &mut dyn System,
    group: &str,
    uuids: &[String],
    members: &[DriveId],
) -> Result<(), String> {
    let held: Vec<_> = members.iter().map(|member| member.hold(system)).collect();
    let found: Vec<&Held> = held.iter().flatten().flatten().collect();
    let confined = confined(system, &found);
    let is_there = |system: &dyn System| !mappings_of(&system.sysfs(), group).is_empty();
    let remove = ["vgremove".to_owned()].into_iter().chain(confined);
    let remove: Vec<String> = remove.chain(words(&["--yes", "-ff", group])).collect();
    // That there is no such group is as good.
    let removed = system.run("lvm", &remove);
    for attempt in 0..TRIES {
        if !is_there(system) {
            break;
        }
        if attempt > 0 {
            system.pause();
        }
        for name in mappings_of(&system.sysfs(), group) {
            let path = format!("/sys/block/{name}/dm/name");
            let Some(mapping) = system.sysfs().text(path) else { continue };
            let _ = system.run("dmsetup", &words(&["remove", &mapping]));
        }
    }
    if is_there(system) {
        return Err(removed
            .err()
            .map_or_else(|| format!("{group} is in use"), |error| base::with_causes(&error)));
    }
    let mut left = Vec::new();
    for ((member, uuid), held) in members.iter().zip(uuids).zip(&held) {
        match held {
            Err(error) => left.push(base::with_causes(error)),
            Ok(None) => left.push(member.gone()),
            Ok(Some(held)) => left.extend(label::wipe(system, held, Label::PhysicalVolume, uuid).err()),
        }
    }
    if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
}
