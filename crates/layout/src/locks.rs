//! Locks on state directories, and on what layouts change.
//!
//! | lock (flock(2)) | excludes |
//! |---|---|
//! | `layout.lock` in the state directory | other processes with this state directory |
//! | the node of a whole disk | layouts of other state directories on the disk, its partitions and the settings of its queue; udev leaves a locked disk alone |
//! | `/run/flashwright/layout.lock` | layouts of other state directories that change interrupts, which several drives may share |
//!
//! A process holds a lock for as long as it works on what the lock stands for, and loses it when it ends. Programs that it
//! started inherit the lock of the state directory: if a killed process leaves a mkfs behind, the lock is held until that
//! mkfs, which still writes to the drives, has ended.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use storage::sysfs::DeviceNumber;
use storage::trust;

use crate::drive::{DriveId, node};
use crate::error::LayoutError;
use crate::stop::Stop;
use crate::system::System;

/// Attempts to take a lock that a living process holds, a pause of 50 ms after each: ten seconds.
const ATTEMPTS: u32 = 200;

/// What belongs to this boot of this host and to no state directory.
const HOST_DIRECTORY: &str = "/run/flashwright";

/// The name of the lock in a state directory, and in [`HOST_DIRECTORY`].
const LOCK: &str = "layout.lock";

/// The locks on drives and interrupts that this process holds.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    disks: Vec<(DeviceNumber, String, File)>,
    interrupts: Option<File>,
}

impl Locks {
    /// Locks the disks of drives. A drive that is not there has none.
    ///
    /// # Errors
    /// As [`wait`].
    pub fn take(&mut self, system: &dyn System, drives: &[DriveId], stop: &Stop) -> Result<(), LayoutError> {
        let sysfs = system.sysfs();
        let disk = |drive: &DriveId| {
            let disk = sysfs.disk_of(&drive.name_now(&sysfs)?)?;
            Some((sysfs.number(&disk)?, disk))
        };
        let mut disks: Vec<_> = drives.iter().filter_map(disk).collect();
        // In one order for all processes, so that no two wait for each other.
        disks.sort();
        disks.dedup();
        for (number, disk) in disks {
            if self.disks.iter().any(|(held, _, _)| *held == number) {
                continue;
            }
            let path = node(&disk);
            let failed = |source| LayoutError::io(&path, "open", source);
            let file = system.open_drive(&path).map_err(failed)?;
            wait(system, &file, &path, stop, || true)?;
            self.disks.push((number, disk, file));
        }
        Ok(())
    }

    /// Locks the interrupts of this host.
    ///
    /// # Errors
    /// As [`wait`].
    pub fn take_interrupts(&mut self, system: &dyn System, stop: &Stop) -> Result<(), LayoutError> {
        if self.interrupts.is_some() {
            return Ok(());
        }
        let path = host_directory(system)?.join(LOCK);
        let file = trust::open_to_append(&path)?;
        wait(system, &file, &path, stop, || true)?;
        self.interrupts = Some(file);
        Ok(())
    }

    /// What is locked: kernel names of disks, and `interrupts`.
    pub fn names(&self) -> Vec<&str> {
        let interrupts = self.interrupts.as_ref().map(|_| "interrupts");
        self.disks.iter().map(|(_, name, _)| name.as_str()).chain(interrupts).collect()
    }
}

/// [`HOST_DIRECTORY`], which is made where it is missing.
pub(crate) fn host_directory(system: &dyn System) -> Result<PathBuf, LayoutError> {
    let directory = system.sysfs().at_root(HOST_DIRECTORY);
    let made = DirBuilder::new().recursive(true).mode(0o755).create(&directory);
    let real = made.and_then(|()| directory.canonicalize());
    real.map_err(|source| LayoutError::io(directory, "make the directory", source))
}

/// Takes the lock of a state directory, which is made where it is missing. Returns the directory with links resolved, as
/// mountinfo has it.
///
/// # Errors
/// As [`wait`]. If the process that took the lock has ended, a program that it started still holds it; that wait ends with
/// the program or by `stop`, for the program may run for as long as a mkfs takes.
pub(crate) fn take_state(system: &mut dyn System, state: &Path, stop: &Stop) -> Result<PathBuf, LayoutError> {
    let made = system.make_directory(state);
    made.map_err(|source| LayoutError::io(state, "make the directory", source))?;
    let state =
        state.canonicalize().map_err(|source| LayoutError::io(state, "resolve the directory", source))?;
    let path = state.join(LOCK);
    // Not for reading: programs have it as standard input, and must find nothing there.
    let mut lock = trust::open_to_append(&path)?;
    let is_alive = || {
        let taker = std::fs::read_to_string(&path).unwrap_or_default();
        taker.is_empty() || Path::new("/proc").join(&taker).exists()
    };
    wait(system, &lock, &path, stop, is_alive)?;
    // On a full disk the lock holds without it.
    let _ = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
    system.keep_lock(lock);
    Ok(state)
}

/// Takes a lock. Failed attempts for which `counts` says so are limited to [`ATTEMPTS`]: a process that has just let go may
/// be starting a program in another thread, which holds the lock until it is that program.
///
/// # Errors
/// [`LayoutError::Locked`] with the process that holds the lock; [`LayoutError::Interrupted`] by `stop`.
fn wait(
    system: &dyn System,
    file: &File,
    path: &Path,
    stop: &Stop,
    counts: impl Fn() -> bool,
) -> Result<(), LayoutError> {
    let mut counted = 0;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(source)) => return Err(LayoutError::io(path, "lock", source)),
            Err(TryLockError::WouldBlock) => {}
        }
        stop.check(&format!("waiting for the lock {}", path.display()))?;
        counted += u32::from(counts());
        if counted >= ATTEMPTS {
            let holder = storage::locks::holder(file.as_fd(), storage::locks::LockKind::Flock);
            let holder = holder.unwrap_or_else(|| "a process that this host does not show".to_owned());
            return Err(LayoutError::Locked { lock: path.to_owned(), holder });
        }
        system.pause();
    }
}
