//! Whether what was asked for is still there, and nobody else is: looked at before each run, since a run on
//! anything else would carry the wrong name.

use std::fmt;

use serde::Serialize;

use storage::safety::Obstacle;
use storage::sysfs::Sysfs;

use crate::change::Change;
use crate::drive::DriveId;
use crate::error::LayoutError;
use crate::facts::Built;
use crate::parts::{Made, Part, is_lazy_init_running};
use crate::settings::{Wanted, is_same};
use crate::spec::{Filesystem, LayoutSpec};
use crate::system::System;
use crate::{facts, knobs};

/// A difference between what was asked for and what is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// What of it: `scheduler of nvme0n1`.
    pub what: String,
    /// What was asked for.
    pub asked: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, not {}", self.what, self.found, self.asked)
    }
}

fn drift(what: impl Into<String>, asked: impl Into<String>, found: impl Into<String>) -> Drift {
    Drift { what: what.into(), asked: asked.into(), found: found.into() }
}

/// All drifts.
pub(crate) fn drifts(
    system: &dyn System,
    spec: &LayoutSpec,
    built: &Built,
    drives: &[DriveId],
    made: &[Made],
    wanted: &[Wanted],
) -> Result<Vec<Drift>, LayoutError> {
    let sysfs = system.sysfs();
    let mut found = settings(&sysfs, wanted);
    found.extend(unnamed_settings(&sysfs, spec, built, drives));
    for made in made {
        found.extend(match (&made.part, &made.change) {
            (Part::Array { chunk_bytes, members }, _) => array(&sysfs, made, *chunk_bytes, members.len()),
            (Part::Mount { kind, .. }, Change::Mount { point }) => mount(&sysfs, *kind, point, built),
            _ => Vec::new(),
        });
    }
    found.extend(lazy_init(&sysfs, spec));
    found.extend(others(system, drives, built)?);
    Ok(found)
}

fn settings(sysfs: &Sysfs, wanted: &[Wanted]) -> Vec<Drift> {
    let mut found = Vec::new();
    for wanted in wanted {
        for (file, asked) in &wanted.files {
            let now = knobs::read(sysfs, &wanted.directory.join(file)).unwrap_or_else(|| "gone".to_owned());
            if !is_same(file, asked, &now) {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                found.push(drift(format!("{name} of {}", wanted.shown), asked, now));
            }
        }
    }
    found
}

/// Settings that were not asked for were left as they were, and must still be: statistics that somebody switched
/// off would make every check on the drives blind.
fn unnamed_settings(sysfs: &Sysfs, spec: &LayoutSpec, built: &Built, drives: &[DriveId]) -> Vec<Drift> {
    let mut found = Vec::new();
    for knob in knobs::KNOBS.iter().filter(|knob| !spec.queue.contains_key(knob.name)) {
        let Some(before) = built.facts.get(knob.name) else { continue };
        let mut now: Vec<String> = Vec::new();
        for value in drives.iter().filter_map(|drive| facts::queue_setting(sysfs, &drive.name, knob.name)) {
            if !now.contains(&value) {
                now.push(value);
            }
        }
        let now = now.join(",");
        if now != *before {
            found.push(drift(format!("{} of the drives", knob.name), before, now));
        }
    }
    if !spec.queue.contains_key("iostats") && built.facts.get("iostats").is_some_and(|value| value != "1") {
        found.push(drift("iostats of the drives", "1", built.facts["iostats"].clone()));
    }
    found
}

fn array(sysfs: &Sysfs, made: &Made, chunk_bytes: u64, width: usize) -> Vec<Drift> {
    let name = made.device.as_deref().unwrap_or_default();
    let raid = sysfs.block_node(name).and_then(|device| device.raid);
    let Some(raid) = raid else { return vec![drift(name, "an md array", "gone")] };
    let mut found = Vec::new();
    let chunk = raid.chunk_bytes.map_or_else(|| "unknown".to_owned(), units::bytes_short);
    if raid.chunk_bytes != Some(chunk_bytes) {
        found.push(drift(format!("chunk of {name}"), units::bytes_short(chunk_bytes), chunk));
    }
    let disks = raid.raid_disks.unwrap_or(0) as usize;
    if disks != width {
        found.push(drift(format!("width of {name}"), width.to_string(), disks.to_string()));
    }
    if raid.degraded.is_some_and(|missing| missing > 0) {
        found.push(drift(format!("members of {name}"), "all", "some missing"));
    }
    if let Some(action) = raid.sync_action.filter(|action| !matches!(action.as_str(), "idle" | "none")) {
        found.push(drift(format!("background work of {name}"), "none", action));
    }
    found
}

fn mount(sysfs: &Sysfs, kind: Filesystem, point: &std::path::Path, built: &Built) -> Vec<Drift> {
    let shown = format!("mount on {}", point.display());
    let mounts = sysfs.mounts();
    // A later mount on the same point covers an earlier one.
    let Some(mount) = mounts.iter().rev().find(|mount| mount.mount_point == point) else {
        return vec![drift(shown, kind.word(), "nothing")];
    };
    if mount.filesystem != kind.word() {
        return vec![drift(shown, kind.word(), &mount.filesystem)];
    }
    let options = mount.all_options();
    match built.facts.get("mount_options") {
        Some(before) if !before.split(" | ").any(|one| one == options) => {
            vec![drift(format!("options of the {shown}"), before, options)]
        }
        _ => Vec::new(),
    }
}

/// ext4 writes tables that mkfs left out, and reads bitmaps ahead, in a thread of the kernel (ext4(5),
/// `init_itable`, `prefetch_block_bitmaps`). Ours has no tables to write, but another's on the same machine takes
/// time from the runs; whose it is the kernel does not tell.
fn lazy_init(sysfs: &Sysfs, spec: &LayoutSpec) -> Vec<Drift> {
    if spec.mounted_filesystem() != Some(Filesystem::Ext4) || !is_lazy_init_running(sysfs) {
        return Vec::new();
    }
    vec![drift("lazy initialisation of ext4", "done", "under way")]
}

/// Users of the drives that are not the layout itself.
fn others(system: &dyn System, drives: &[DriveId], built: &Built) -> Result<Vec<Drift>, LayoutError> {
    let sysfs = system.sysfs();
    let mut found = Vec::new();
    let mut names = Vec::new();
    for drive in drives {
        match drive.name_now(&sysfs) {
            Some(name) => names.push(name),
            None => found.push(drift(&drive.name, "there", "gone")),
        }
    }
    let numbers: Vec<_> = names.iter().map(|name| sysfs.number(name).unwrap_or_default()).collect();
    let users = system.users(&numbers);
    let users = users.map_err(|source| LayoutError::io("/sys/block", "look for users", source))?;
    let is_ours = |obstacle: &Obstacle| match obstacle {
        Obstacle::Mounted { mount_point, .. } => {
            built.mounts.iter().any(|own| own.display().to_string() == *mount_point)
        }
        // `/dev/md127 (md raid0)`
        Obstacle::Held { holder, .. } => {
            built.layers.iter().any(|own| holder.split(' ').next() == own.to_str())
        }
        _ => false,
    };
    for (name, users) in names.iter().zip(users) {
        let others = users.into_iter().filter(|user| !is_ours(user));
        found.extend(others.map(|user| drift(format!("use of {name}"), "nobody else", user.to_string())));
    }
    Ok(found)
}
