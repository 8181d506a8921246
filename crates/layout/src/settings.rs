//! Settings of queues, layers and interrupts: written, remembered, set back.
//!
//! An owner (a drive, a layer, a drive's interrupts) whose settings change goes back to its old values first, and
//! from there to those asked for. What a layout does not name is thereby what the machine would have, however
//! many layouts came before: no run depends on the one before it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use storage::sysfs::Sysfs;

use crate::change::{Change, Owner, settle};
use crate::drive::DriveId;
use crate::error::LayoutError;
use crate::interrupts;
use crate::journal::Journal;
use crate::knobs::{self, KNOBS};
use crate::system::System;

/// An owner of settings, and what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub owner: Owner,
    /// For people: `nvme0n1`.
    pub shown: String,
    /// The directory that the files are in; empty where they are absolute.
    pub directory: PathBuf,
    /// Files and values, in the order of writing.
    pub files: Vec<(PathBuf, String)>,
}

/// What was changed of an owner.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    /// The numbers in the journal; later ones for files that came later.
    pub numbers: Vec<u64>,
    pub owner: Owner,
    directory: PathBuf,
    old: BTreeMap<PathBuf, String>,
    /// What was asked for last; none where that is not known to be in force.
    asked: Option<Vec<(PathBuf, String)>>,
}

impl Wanted {
    /// Settings of a drive's queue.
    pub fn of_queue(drive: &DriveId, queue: &BTreeMap<String, String>) -> Self {
        let files = KNOBS
            .iter()
            .filter_map(|knob| Some((Path::new("queue").join(knob.name), queue.get(knob.name)?.clone())))
            .collect();
        Self {
            owner: Owner::Drive(drive.clone()),
            shown: drive.name.clone(),
            directory: Path::new("/sys/class/block").join(&drive.name),
            files,
        }
    }

    /// Settings of a device, or of a file system without one of its own, in files that do not outlast a boot.
    pub fn of_files(what: &str, device: Option<DriveId>, files: Vec<(PathBuf, String)>) -> Self {
        let owner = Owner::ThisBoot { what: what.to_owned(), device };
        Self { owner, shown: what.to_owned(), directory: PathBuf::new(), files }
    }
}

fn value(sysfs: &Sysfs, path: &Path) -> Option<String> {
    knobs::read(sysfs, path)
}

/// Brings one owner to what is wanted of it. Returns a word on each value that the kernel keeps for itself.
pub(crate) fn apply(
    system: &mut dyn System,
    journal: &mut Journal,
    recorded: &mut Vec<Recorded>,
    wanted: &Wanted,
) -> Result<Vec<String>, LayoutError> {
    let known = recorded.iter().position(|record| record.owner == wanted.owner);
    if known.is_none() && wanted.files.is_empty() {
        return Ok(Vec::new());
    }
    let index = known.unwrap_or_else(|| {
        recorded.push(Recorded {
            numbers: Vec::new(),
            owner: wanted.owner.clone(),
            directory: wanted.directory.clone(),
            old: BTreeMap::new(),
            asked: Some(Vec::new()),
        });
        recorded.len() - 1
    });
    let record = &mut recorded[index];
    if record.asked.as_ref() == Some(&wanted.files) && in_force(system, wanted) {
        return Ok(Vec::new());
    }
    record.asked = None;
    // First back, then remember: what is read now is what the machine would have.
    restore(system, record).map_err(|(path, source)| setting(wanted, &path, "its old value", source))?;
    remember(system, journal, record, wanted)?;
    let notes = write(system, wanted)?;
    record.asked = Some(wanted.files.clone());
    Ok(notes)
}

fn in_force(system: &dyn System, wanted: &Wanted) -> bool {
    let sysfs = system.sysfs();
    wanted.files.iter().all(|(file, asked)| {
        value(&sysfs, &wanted.directory.join(file)).is_some_and(|found| is_same(file, asked, &found))
    })
}

/// Whether what was read is what was asked for.
pub(crate) fn is_same(file: &Path, asked: &str, found: &str) -> bool {
    asked == found || (file.starts_with("/proc/irq") && interrupts::same(asked, found))
}

fn setting(wanted: &Wanted, path: &Path, value: &str, source: io::Error) -> LayoutError {
    LayoutError::Setting {
        device: wanted.shown.clone(),
        setting: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        value: value.to_owned(),
        source,
    }
}

/// Journals the old values of all files that writing will change and that are not remembered yet: those asked for
/// that differ, and those which they reset.
fn remember(
    system: &mut dyn System,
    journal: &mut Journal,
    record: &mut Recorded,
    wanted: &Wanted,
) -> Result<(), LayoutError> {
    let sysfs = system.sysfs();
    let mut old: Vec<(PathBuf, String)> = Vec::new();
    for (file, asked) in &wanted.files {
        let Some(found) = value(&sysfs, &wanted.directory.join(file)) else {
            let source = io::Error::new(io::ErrorKind::NotFound, "there is no such setting");
            return Err(setting(wanted, file, asked, source));
        };
        if is_same(file, asked, &found) {
            continue;
        }
        let mut files = vec![file.clone()];
        files.extend(reset_by(&sysfs, &wanted.directory, file));
        for file in files {
            let is_new = !record.old.contains_key(&file) && old.iter().all(|(known, _)| *known != file);
            if let Some(found) = value(&sysfs, &wanted.directory.join(&file)).filter(|_| is_new) {
                old.push((file, found));
            }
        }
    }
    if old.is_empty() {
        return Ok(());
    }
    old.sort_by_key(|(file, _)| knobs::rank(&file.to_string_lossy()));
    let number = journal.announce(system, Change::Settings { of: record.owner.clone(), old: old.clone() })?;
    record.numbers.push(number);
    record.old.extend(old);
    Ok(())
}

/// The files that writing `file` resets: other settings of the queue, and the tunables of the scheduler.
fn reset_by(sysfs: &Sysfs, directory: &Path, file: &Path) -> Vec<PathBuf> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(knob) = knobs::knob(name).filter(|_| file.starts_with("queue")) else { return Vec::new() };
    let mut files: Vec<PathBuf> = knob.resets.iter().map(|reset| Path::new("queue").join(reset)).collect();
    if name == "scheduler" {
        let tunables = std::fs::read_dir(sysfs.at_root(directory.join("queue/iosched")));
        let names = tunables.into_iter().flatten().flatten().map(|entry| entry.file_name());
        files.extend(names.map(|name| Path::new("queue/iosched").join(name)));
    }
    files
}

/// Sets back what was changed of an owner.
fn restore(system: &mut dyn System, record: &Recorded) -> Result<(), (PathBuf, io::Error)> {
    let mut files: Vec<_> = record.old.iter().collect();
    files.sort_by_key(|(file, _)| knobs::rank(&file.to_string_lossy()));
    let files: Vec<_> =
        files.into_iter().map(|(file, old)| (record.directory.join(file), old.clone())).collect();
    settle(system, &files)
}

/// Writes what is asked for, in order, and reads it back.
fn write(system: &mut dyn System, wanted: &Wanted) -> Result<Vec<String>, LayoutError> {
    let mut managed = 0;
    let mut refused = Vec::new();
    for (file, asked) in &wanted.files {
        let path = wanted.directory.join(file);
        if value(&system.sysfs(), &path).is_some_and(|found| is_same(file, asked, &found)) {
            continue;
        }
        match system.write_setting(&path, asked) {
            Err(error) if path.starts_with("/proc/irq") && interrupts::is_refusal(&error) => {
                managed += 1;
                refused.push(file);
            }
            Err(error) => return Err(setting(wanted, file, asked, error)),
            Ok(()) => {}
        }
    }
    for (file, asked) in wanted.files.iter().filter(|(file, _)| !refused.contains(&file)) {
        let found = value(&system.sysfs(), &wanted.directory.join(file)).unwrap_or_default();
        if !is_same(file, asked, &found) {
            return Err(LayoutError::NotTaken {
                device: wanted.shown.clone(),
                setting: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                value: asked.clone(),
                found,
            });
        }
    }
    let all = wanted.files.len();
    let note = format!(
        "{}: {managed} of {all} are managed: the kernel alone says which CPU takes them",
        wanted.shown
    );
    Ok((managed > 0).then_some(note).into_iter().collect())
}
