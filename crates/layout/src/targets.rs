//! What an entry of a journal may name. A journal is believed as to what was changed, and not as to what a layout can change
//! at all: settings of queues and interrupts, its own mounts, and what bears a UUID of its own.

use std::path::{Component, Path, PathBuf};

use base::Filesystem;
use storage::sysfs::Sysfs;

use crate::change::{Change, Owner};

impl Change {
    /// What it names that no layout of this state directory can have changed.
    pub(crate) fn objection(&self, system: &Sysfs, state: &Path) -> Option<String> {
        match self {
            Self::Settings { of, old } => {
                let file = |file: &PathBuf| match of {
                    Owner::Drive(_) => is_of_queue(file),
                    Owner::ThisBoot { .. } => is_setting(system, file),
                };
                let wrong = old.iter().find(|(path, _)| !file(path));
                wrong.map(|(file, _)| format!("it names the file {}", file.display()))
            }
            Self::Array { uuid, .. } | Self::Filesystem { uuid, .. } => uuid_objection(uuid),
            Self::Volume { group, uuids, .. } => {
                let digits = group.strip_prefix("flashwright_").unwrap_or_default();
                if digits.len() != 8 || !is_hex(digits) {
                    return Some(format!("it names the volume group {group}"));
                }
                uuids.iter().find_map(|uuid| uuid_objection(uuid))
            }
            Self::Mount { point } => {
                let name = point.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let index = name.strip_prefix("mount-").and_then(|index| index.parse::<u32>().ok());
                let is_own = index.is_some_and(|index| *point == state.join(format!("mount-{index}")));
                (!is_own).then(|| format!("it names the directory {}", point.display()))
            }
        }
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Without all of its digits a UUID would be found on every drive.
fn uuid_objection(uuid: &str) -> Option<String> {
    let digits = uuid.replace('-', "");
    (digits.len() != 32 || !is_hex(&digits)).then(|| format!("it names the UUID '{uuid}'"))
}

/// The names of a relative path that goes nowhere but down.
fn names(path: &Path) -> Option<Vec<&str>> {
    let name = |component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    };
    path.components().map(name).collect()
}

/// `queue/NAME`, `queue/iosched/NAME`: below a drive's directory in sysfs.
fn is_of_queue(file: &Path) -> bool {
    matches!(names(file).as_deref(), Some(["queue", _] | ["queue", "iosched", _]))
}

/// The settings of queues, interrupts and file systems, by the kernel's own links and no others.
fn is_setting(system: &Sysfs, file: &Path) -> bool {
    let Ok(below_root) = file.strip_prefix("/") else { return false };
    let is_one = match names(below_root).as_deref() {
        Some(["sys", "class", "block", _, "queue", _] | ["sys", "block", _, "queue", _]) => true,
        Some(["sys", "fs", kind, _, "bdi", "read_ahead_kb"]) => {
            Filesystem::from_word(kind).is_some_and(Filesystem::has_own_read_ahead)
        }
        Some(["proc", "irq", number, "smp_affinity_list"]) => number.parse::<u32>().is_ok(),
        _ => false,
    };
    // One that is not there is left out anyway.
    is_one
        && system.at_root(file).canonicalize().map_or(true, |real| {
            ["/sys", "/proc/irq"]
                .iter()
                .any(|top| system.at_root(top).canonicalize().is_ok_and(|top| real.starts_with(top)))
        })
}
