//! In which order layouts of different state directories changed the settings of a disk.
//!
//! A layout records as the old value of a setting what it finds. If another state directory's layout stands on the disk, for
//! instance settings of `tune`, that is the other's value. So settings are undone newest first, whatever state directory they
//! were made from: undoing the older layout first would overwrite what the newer one set, and undoing the newer one afterwards
//! would leave the older one's values for good.
//!
//! `/run/flashwright/settings-DISK-NUMBER-SUM` holds the path of a journal and a newline; a higher number is a later layout,
//! SUM is the CRC-32C of the path. Interrupts count as a disk called `interrupts`. An entry is written before the journal has its first change and removed
//! after the journal, so entries are a superset; one whose journal says nothing of the disk any more does not count. Entries
//! of a disk are added by the process that holds its lock ([`crate::locks`]), and end with the boot, as the settings do.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use storage::trust;

use crate::error::LayoutError;
use crate::journal::Journal;
use crate::locks::{Locks, host_directory};
use crate::system::System;

/// An entry: a journal that may have changed the settings of a disk.
#[derive(Debug)]
struct Entry {
    /// The kernel name, or `interrupts`.
    disk: String,
    number: u64,
    /// The checksum of the journal's path.
    sum: String,
    /// None if the process that wrote the entry ended in the middle of it; it has journalled nothing.
    journal: Option<PathBuf>,
    file: PathBuf,
}

impl Entry {
    /// Whether the process that wrote it had the lock of this journal's state directory.
    fn is_of(&self, journal: &Path) -> bool {
        self.journal.as_deref().map_or_else(|| self.sum == sum(journal), |own| own == journal)
    }
}

fn sum(journal: &Path) -> String {
    format!("{:08x}", crc32c::crc32c(journal.as_os_str().as_bytes()))
}

/// All entries, the oldest of each disk first.
fn entries(system: &dyn System) -> Result<Vec<Entry>, LayoutError> {
    let directory = system.sysfs().at_root("/run/flashwright");
    let Ok(directory) = directory.canonicalize() else { return Ok(Vec::new()) };
    let listed = std::fs::read_dir(&directory)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| LayoutError::io(&directory, "list the directory", source))?;
    let names = listed.iter().filter_map(|entry| entry.file_name().into_string().ok());
    let mut entries = Vec::new();
    for name in names {
        let parts = name.strip_prefix("settings-").and_then(|name| name.rsplit_once('-'));
        let Some((disk, number, sum)) = parts.and_then(|(name, sum)| {
            let (disk, number) = name.rsplit_once('-')?;
            Some((disk.to_owned(), number.parse().ok()?, sum.to_owned()))
        }) else {
            continue;
        };
        let file = directory.join(&name);
        let mut text = Vec::new();
        match trust::open(&file) {
            Err(error) if error.is_missing() => continue,
            opened => {
                opened?.read_to_end(&mut text).map_err(|source| LayoutError::io(&file, "read", source))?
            }
        };
        let journal = text.strip_suffix(b"\n").map(|path| PathBuf::from(OsStr::from_bytes(path)));
        entries.push(Entry { disk, number, sum, journal, file });
    }
    entries.sort_by_key(|entry| entry.number);
    Ok(entries)
}

/// Makes `journal` the newest of each locked disk. While a process holds the lock of a disk no other becomes the newest.
///
/// # Errors
/// `/run/flashwright` cannot be read or written.
pub(crate) fn enter(system: &mut dyn System, locks: &Locks, journal: &Path) -> Result<(), LayoutError> {
    let entries = entries(system)?;
    for disk in locks.names() {
        let newest = entries.iter().rfind(|entry| entry.disk == disk);
        if newest.is_some_and(|entry| entry.journal.as_deref() == Some(journal)) {
            continue;
        }
        let number = newest.map_or(0, |entry| entry.number) + 1;
        let file = host_directory(system)?.join(format!("settings-{disk}-{number}-{}", sum(journal)));
        let line = [journal.as_os_str().as_bytes(), b"\n"].concat();
        let written = system.append(&file, &line);
        written.map_err(|source| LayoutError::io(file, "append", source))?;
    }
    Ok(())
}

/// Fails with [`LayoutError::Newer`] if the settings of a locked disk were changed by another journal after `journal`, and
/// that change stands.
pub(crate) fn check_newest(system: &dyn System, locks: &Locks, journal: &Path) -> Result<(), LayoutError> {
    let entries = entries(system)?;
    for disk in locks.names() {
        let of_disk: Vec<_> = entries.iter().filter(|entry| entry.disk == disk).collect();
        // Without an entry, as after a restart, nothing tells which is newer.
        let Some(own) = of_disk.iter().rposition(|entry| entry.journal.as_deref() == Some(journal)) else {
            continue;
        };
        let mut newer = of_disk[own + 1..].iter().filter_map(|entry| entry.journal.clone());
        if let Some(journal) = newer.find(|journal| changes_settings(system, journal, disk)) {
            return Err(LayoutError::Newer { disk: disk.to_owned(), journal });
        }
    }
    Ok(())
}

/// Whether the changes that a journal has pending are of the settings of the disk. A journal that cannot be read counts.
fn changes_settings(system: &dyn System, journal: &Path, disk: &str) -> bool {
    let sysfs = system.sysfs();
    let is_of_disk = |name: &String| sysfs.disk_of(name).as_deref() == Some(disk);
    match Journal::read(journal) {
        Ok(None) => false,
        Ok(Some(journal)) => journal.pending().iter().any(|(_, change)| {
            let names = change.drives().into_iter().filter_map(|drive| drive.name_now(&sysfs));
            let is_of_queue = change.is_of_settings() && names.collect::<Vec<_>>().iter().any(is_of_disk);
            is_of_queue || (disk == "interrupts" && change.is_of_interrupts())
        }),
        Err(_) => true,
    }
}

/// Whether `journal` has an entry.
pub(crate) fn has_entries(system: &dyn System, journal: &Path) -> Result<bool, LayoutError> {
    Ok(entries(system)?.iter().any(|entry| entry.is_of(journal)))
}

/// Removes the entries of `journal`, whose state directory is locked and has nothing pending.
///
/// # Errors
/// `/run/flashwright` cannot be read or written.
pub(crate) fn leave(system: &mut dyn System, journal: &Path) -> Result<(), LayoutError> {
    for entry in entries(system)?.into_iter().filter(|entry| entry.is_of(journal)) {
        let removed = system.remove_file(&entry.file);
        removed.map_err(|source| LayoutError::io(entry.file, "remove", source))?;
    }
    Ok(())
}
