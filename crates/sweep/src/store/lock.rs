//! One process at a time runs a sweep.
//!
//! The lock is flock(2) on `results.db.lock`. The kernel holds it for the open file and drops it with
//! the process, however that ends, so a sweep killed by SIGKILL leaves no stale lock: the file may
//! stay behind, and means nothing by itself. It is a file of its own because SQLite keeps POSIX locks
//! on the database, and closing any other descriptor of that file would silently drop them
//! (fcntl(2), "Record locks").
//!
//! The holder writes who it is into the file, for the message that others get, and removes the file
//! when it is done. Removal races with a process that has opened the file and not yet locked it: that
//! one would then lock a file that nobody else can find. So whoever gets the lock checks that the
//! name still leads to the file it locked, and starts over otherwise.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::StoreError;

/// `sweep status` asks by locking for an instant; a sweep that starts in that instant tries again.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// The right to run the sweep in one results file. Dropping it gives the right back.
#[derive(Debug)]
pub(super) struct SweepLock {
    file: File,
    path: PathBuf,
}

/// `results.db` → `results.db.lock`.
fn lock_path(database: &Path) -> PathBuf {
    let mut name: OsString = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl SweepLock {
    /// Takes the lock of `database`.
    pub(super) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = lock_path(database);
        let failed = |source| StoreError::Lock { path: path.clone(), source };
        for attempt in 0..TRIES {
            if attempt > 0 {
                sleep(PAUSE);
            }
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) if !is_named(&file, &path) => {}
                Ok(()) => {
                    // A courtesy: on a full disk the lock holds without it.
                    let _ = write_holder(&mut file);
                    return Ok(Self { file, path });
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        Err(StoreError::Locked { path: database.to_owned(), holder: read_holder(&path) })
    }

    /// The same open file, so that the lock lasts until both are closed.
    pub(super) fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

impl Drop for SweepLock {
    fn drop(&mut self) {
        // While the lock is still held, so that the name removed is that of this file. A file that
        // cannot be removed is harmless, see above.
        if is_named(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether `path` still leads to `file`.
fn is_named(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

fn write_holder(file: &mut File) -> io::Result<()> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "process {} on {}", std::process::id(), host.trim())
}

fn read_holder(path: &Path) -> Option<String> {
    let mut text = String::new();
    // Bounded: the file may be anything by now.
    File::open(path).ok()?.take(200).read_to_string(&mut text).ok()?;
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    (!clean.is_empty()).then_some(clean)
}

/// Who runs the sweep in `database` at this moment: process id and host; `None` if nobody does.
///
/// # Errors
/// [`StoreError::Lock`] where the lock file exists and cannot be asked.
pub fn running(database: &Path) -> Result<Option<String>, StoreError> {
    let path = lock_path(database);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Lock { path, source }),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => {
            Ok(Some(read_holder(&path).unwrap_or_else(|| "an unknown process".into())))
        }
        Err(TryLockError::Error(source)) => Err(StoreError::Lock { path, source }),
    }
}
