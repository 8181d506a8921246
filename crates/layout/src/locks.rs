//! Locks on what layouts change, whatever the state directory is that they are made from.
//!
//! A drive's lock is flock(2) on the node of its whole disk, as udev and systemd take it: udev leaves a locked disk alone.
//! It stands for the settings of the disk's queue as well. Interrupts may be several drives', so they have one lock on
//! this host. A lock is held as long as its process works on what it stands for, and ends with it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use storage::sysfs::DeviceNumber;
use storage::trust;

use crate::drive::{DriveId, node};
use crate::error::LayoutError;
use crate::system::System;

/// How often a lock is tried: ten seconds of pauses. Whoever makes a layout has it for as long as that takes.
const TRIES: u32 = 200;

/// Where the lock on interrupts is.
const HOST: &str = "/run/flashwright";

/// Asked while a lock is waited for.
pub(crate) type GoOn<'a> = &'a dyn Fn(&str) -> Result<(), LayoutError>;

/// The locks that are held.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    disks: Vec<(DeviceNumber, File)>,
    interrupts: Option<File>,
}

impl Locks {
    /// Locks the disks of drives; those that are not there have none.
    pub fn take(
        &mut self,
        system: &dyn System,
        drives: &[DriveId],
        go_on: GoOn<'_>,
    ) -> Result<(), LayoutError> {
        let sysfs = system.sysfs();
        let disk = |drive: &DriveId| {
            let disk = sysfs.disk_of(&drive.name_now(&sysfs)?)?;
            Some((sysfs.number(&disk)?, disk))
        };
        let mut disks: Vec<_> = drives.iter().filter_map(disk).collect();
        // In one order for all, so that no two wait for each other.
        disks.sort();
        disks.dedup();
        for (number, disk) in disks {
            if self.disks.iter().any(|(held, _)| *held == number) {
                continue;
            }
            let path = node(&disk);
            let failed = |source| LayoutError::io(&path, "open", source);
            let file = system.open_drive(&path).map_err(failed)?;
            wait(system, &file, &path, go_on)?;
            self.disks.push((number, file));
        }
        Ok(())
    }

    /// Locks the interrupts of this host.
    pub fn take_interrupts(&mut self, system: &dyn System, go_on: GoOn<'_>) -> Result<(), LayoutError> {
        if self.interrupts.is_some() {
            return Ok(());
        }
        let directory = system.sysfs().at_root(HOST);
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&directory);
        let real = made.and_then(|()| directory.canonicalize());
        let path = real.map_err(|source| LayoutError::io(directory, "make the directory", source))?;
        let path = path.join("layout.lock");
        let file = trust::open(&path, OpenOptions::new().append(true).create(true).mode(0o600))?;
        wait(system, &file, &path, go_on)?;
        self.interrupts = Some(file);
        Ok(())
    }
}

fn wait(system: &dyn System, file: &File, path: &Path, go_on: GoOn<'_>) -> Result<(), LayoutError> {
    for _ in 0..TRIES {
        go_on("waiting for a lock")?;
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(source)) => return Err(LayoutError::io(path, "lock", source)),
            Err(TryLockError::WouldBlock) => system.pause(),
        }
    }
    let holder = storage::locks::holder(file.as_fd()).ok().flatten();
    let holder = holder.unwrap_or_else(|| "a process that this host does not show".to_owned());
    Err(LayoutError::Locked { lock: PathBuf::from(path), holder })
}
