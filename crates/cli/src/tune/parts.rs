//! What the files that make settings stay have in common: drives, the order of settings, and the lines above each.

use ::layout::LayoutSpec;
use storage::sysfs::Sysfs;

use super::tuning::{Tuning, one_line};

/// A drive as rules and profiles name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// Its kernel name.
    pub name: String,
    /// Its serial number, where a rule can match it.
    pub serial: Option<String>,
}

/// The drives of a layout, as this machine knows them; of those that are not here, the names.
pub fn drives(spec: &LayoutSpec, sysfs: &Sysfs) -> Vec<Drive> {
    let drive = |path: &std::path::PathBuf| {
        let here = sysfs.device_at(path).and_then(|name| sysfs.block_device(&name));
        // A partition's queue is its disk's.
        let disk = here.map(|device| match device.disk.as_ref().and_then(|disk| sysfs.block_device(disk)) {
            Some(disk) => disk,
            None => device,
        });
        let name = disk.as_ref().map(|device| device.name.clone());
        let named = || path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        // The attribute `serial` is an NVMe controller's (or a virtio disk's); of others only the name can be matched.
        let has_attribute = |name: &str| name.starts_with("nvme") || name.starts_with("vd");
        let plain = |serial: &String| serial.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let serial = disk.filter(|device| has_attribute(&device.name)).and_then(|device| device.serial);
        Drive { name: name.unwrap_or_else(named), serial: serial.filter(|s| !s.is_empty()).filter(plain) }
    };
    let mut drives: Vec<Drive> = Vec::new();
    for path in &spec.drives {
        let drive = drive(path);
        // What is no name of a drive has no place in a rule.
        let is_name = drive.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.!".contains(c));
        if is_name && !drive.name.is_empty() && !drives.contains(&drive) {
            drives.push(drive);
        }
    }
    drives
}

/// The settings in the order in which they are made.
pub fn in_order(tuning: &Tuning) -> Vec<String> {
    let mut names: Vec<&String> = tuning.settings.keys().filter(|name| *name != "drives").collect();
    names.sort_by_key(|name| {
        (!tuning.settings[*name].of_layout, sweep::recommend::rank(name), (*name).clone())
    });
    names.into_iter().cloned().collect()
}

/// The settings of queues in that order, but for the one that only the drive knows.
pub fn queue(tuning: &Tuning, spec: &LayoutSpec) -> Vec<(String, String)> {
    let names = in_order(tuning).into_iter().filter(|name| name != "write_cache");
    names.filter_map(|name| Some((name.clone(), spec.queue.get(&name)?.clone()))).collect()
}

/// The lines above a setting: what it is, and what was measured.
pub fn comment(tuning: &Tuning, name: &str) -> String {
    let value = tuning.settings.get(name).map_or("", |setting| setting.value.as_str());
    let mut text = format!("# {}\n", one_line(&format!("{name}={value}")));
    for line in tuning.evidence(name) {
        text += &format!("#   {line}\n");
    }
    text
}

/// The head of each file.
pub fn head(tuning: &Tuning, what: &str) -> String {
    format!("# {what}\n# From {}.\n# {}\n", tuning.origin, tuning.sentence)
}
