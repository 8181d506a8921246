//! What really is in force, read from the machine after everything was made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use storage::sysfs::Sysfs;

use crate::drive::{DriveId, node};
use crate::interrupts;
use crate::knobs::{self, KNOBS};
use crate::spec::{LayoutKind, LayoutSpec};
use crate::system::System;

/// What was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Built {
    /// The device spec of what is to be measured.
    pub device_spec: String,
    /// Settings really in force, read from the machine.
    pub facts: BTreeMap<String, String>,
    /// Nodes of arrays and volumes.
    pub layers: Vec<PathBuf>,
    /// Where file systems are mounted.
    pub mounts: Vec<PathBuf>,
    /// The files that the device spec names. They are the caller's to make.
    pub files: Vec<PathBuf>,
    /// The size of each in the device spec, bytes; 0 where there are none.
    pub file_bytes: u64,
    /// What the machine would not do, for people.
    pub notes: Vec<String>,
}

/// The device spec of a layout that was made.
pub(crate) fn device_spec(spec: &LayoutSpec, built: &Built) -> String {
    let size = units::bytes_short(built.file_bytes);
    let files = built.files.iter().map(|path| format!("file:{}?size={size}", path.display()));
    let raw = || -> Vec<String> {
        let nodes = if built.layers.is_empty() { &spec.drives } else { &built.layers };
        nodes.iter().map(|path| path.display().to_string()).collect()
    };
    let targets = if built.files.is_empty() { raw() } else { files.collect() };
    let all = targets.join(",");
    match spec.kind {
        LayoutKind::Separate => format!("separate:{all}"),
        LayoutKind::Stripe => {
            format!("stripe(chunk={}):{all}", units::bytes_short(spec.chunk_bytes().unwrap_or(0)))
        }
        _ => all,
    }
}

/// The settings in force, by the names of a layout's settings. Where drives differ, all values, comma separated.
pub(crate) fn facts(
    system: &dyn System,
    spec: &LayoutSpec,
    built: &Built,
    drives: &[DriveId],
) -> BTreeMap<String, String> {
    let sysfs = system.sysfs();
    let mut facts = BTreeMap::from([
        ("layout".to_owned(), spec.kind.word().to_owned()),
        ("width".to_owned(), drives.len().to_string()),
        ("filesystem".to_owned(), spec.mounted_filesystem().map_or("raw", |fs| fs.word()).to_owned()),
        (
            "drives".to_owned(),
            drives.iter().map(|d| node(&d.name).display().to_string()).collect::<Vec<_>>().join(","),
        ),
    ]);
    if let Some(chunk) = chunk(&sysfs, spec, built) {
        facts.insert("chunk".into(), units::bytes_short(chunk));
    }
    for knob in &KNOBS {
        let values = drives.iter().filter_map(|drive| queue_setting(&sysfs, &drive.name, knob.name));
        let values = distinct(values);
        if !values.is_empty() {
            facts.insert(knob.name.into(), values.join(","));
        }
    }
    let layers: Vec<_> = built.layers.iter().filter_map(|path| sysfs.device_at(path)).collect();
    let above = layers.iter().filter_map(|name| queue_setting(&sysfs, name, "read_ahead_kb"));
    let above = distinct(above);
    if !above.is_empty() {
        facts.insert("layer_read_ahead_kb".into(), above.join(","));
    }
    let mounts = sysfs.mounts();
    let options = mounts.iter().filter(|mount| built.mounts.contains(&mount.mount_point));
    let options = distinct(options.map(|mount| mount.all_options()));
    if !options.is_empty() {
        facts.insert("mount_options".into(), options.join(" | "));
    }
    if spec.irq_cpus.is_some() {
        facts.insert("irq_cpus".into(), irq_cpus(&sysfs, drives).join(" | "));
    }
    facts
}

/// A setting of the queue of a device, or of the disk of a partition. It is looked at for each drive before each run,
/// so no more is read than this.
pub(crate) fn queue_setting(sysfs: &Sysfs, name: &str, knob: &str) -> Option<String> {
    let whole = sysfs.disk_of(name)?;
    knobs::read(sysfs, Path::new(&format!("/sys/class/block/{whole}/queue/{knob}")))
}

/// The chunk in force: what the kernel says where there is an array, and of a volume the smallest request that it
/// prefers.
fn chunk(sysfs: &Sysfs, spec: &LayoutSpec, built: &Built) -> Option<u64> {
    let layer = built.layers.first().and_then(|path| sysfs.device_at(path));
    let layer = layer.and_then(|name| sysfs.block_node(&name));
    let of_array = layer.and_then(|device| device.raid).and_then(|raid| raid.chunk_bytes);
    of_array.or_else(|| spec.chunk_bytes())
}

fn irq_cpus(sysfs: &Sysfs, drives: &[DriveId]) -> Vec<String> {
    let numbers = drives.iter().flat_map(|drive| interrupts::of_drive(sysfs, &drive.name));
    distinct(numbers.filter_map(|number| sysfs.text(interrupts::affinity(number))))
}

fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}
