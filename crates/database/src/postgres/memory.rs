//! A limit of memory for a server's processes and for the pages of files that they read: a control group of its own, of version 2 or 1.
//!
//! The group belongs to the server's directory: a group that a run left behind has the name that the next run gives, and is taken over.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::problem::problem;
use crate::error::DatabaseError;

const ROOT: &str = "/sys/fs/cgroup";
/// A group can be removed once the kernel has forgotten its last process.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// A control group that bounds memory. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    group: PathBuf,
    pub(super) bytes: u64,
}

impl MemoryLimit {
    /// Makes a group of a name with a limit.
    ///
    /// # Errors
    /// [`DatabaseError::Engine`] where control groups cannot be made, which takes root mostly.
    pub(super) fn new(name: &str, bytes: u64) -> Result<Self, DatabaseError> {
        let (parent, file) = if Path::new(ROOT).join("cgroup.controllers").exists() {
            (PathBuf::from(ROOT), "memory.max")
        } else {
            (Path::new(ROOT).join("memory"), "memory.limit_in_bytes")
        };
        let limit = Self { group: parent.join(name), bytes };
        limit.make(file, bytes).map_err(|error| {
            let at = limit.group.display().to_string();
            problem(&at, &format!("limit memory to {bytes} bytes"), error.to_string())
                .hinted("control groups take root: call flashwright as root, or without a limit of memory")
        })?;
        Ok(limit)
    }

    fn make(&self, file: &str, bytes: u64) -> io::Result<()> {
        match fs::create_dir(&self.group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        write(&self.group.join(file), &bytes.to_string())
    }

    /// Moves a process in, and with it all that it will start.
    pub(super) fn enter(&self, process: u32) -> Result<(), DatabaseError> {
        let path = self.group.join("cgroup.procs");
        write(&path, &process.to_string()).map_err(DatabaseError::io("move the server into it", &path))
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let begun = Instant::now();
        while fs::remove_dir(&self.group).is_err() && self.group.exists() && begun.elapsed() < REMOVAL_TIMEOUT
        {
            sleep(PAUSE);
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
