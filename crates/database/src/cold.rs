//! Cold files: their pages leave the page cache, and mincore(2) is asked whether all of them did.
//!
//! That holds for this system. Below a virtual machine, the host may keep what the guest has dropped.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use storage::cache::drop_cached;
use storage::residency::{self, Residency};

use crate::engine::Cold;
use crate::error::DatabaseError;

/// Pages that a CPU has just put on its list cannot be dropped for a moment.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Writes back and drops all pages of files, and says what stayed.
///
/// # Errors
/// [`DatabaseError::Io`] for a file that cannot be opened, written back or asked about. Files that have gone are passed over.
pub fn evict(files: &[PathBuf]) -> Result<Cold, DatabaseError> {
    let mut cold = Cold::default();
    for path in files {
        let Some(file) = open(path)? else { continue };
        let mut found = Residency::default();
        for attempt in 0..ATTEMPTS {
            drop_cached(file.as_fd()).map_err(DatabaseError::io("drop it from the page cache", path))?;
            found = residency::of(&file).map_err(DatabaseError::io("ask what is in memory", path))?;
            if found.resident == 0 || attempt + 1 == ATTEMPTS {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        cold.file_bytes += file.metadata().map_err(DatabaseError::io("look at it", path))?.len();
        cold.resident_bytes += found.resident_bytes();
    }
    Ok(cold)
}

/// What the page cache holds of files.
///
/// # Errors
/// As [`evict`].
pub fn residency(files: &[PathBuf]) -> Result<Residency, DatabaseError> {
    let mut all = Residency::default();
    for path in files {
        let Some(file) = open(path)? else { continue };
        all = all.and(residency::of(&file).map_err(DatabaseError::io("ask what is in memory", path))?);
    }
    Ok(all)
}

fn open(path: &Path) -> Result<Option<File>, DatabaseError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DatabaseError::io("open it", path)(error)),
    }
}

/// Whether this system is a virtual machine, so that a cache of its host may lie below the tier.
#[must_use]
pub fn is_guest() -> bool {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpu.lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_was_read_is_resident_until_it_is_evicted() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files = [folder.path().join("one"), folder.path().join("gone")];
        std::fs::write(&files[0], vec![1; 1 << 20]).unwrap();
        assert_eq!(residency(&files).unwrap().resident_bytes(), 1 << 20);
        let cold = evict(&files).unwrap();
        if cold.resident_bytes > 0 {
            return eprintln!("skipped: this file system keeps its pages");
        }
        assert_eq!(cold.file_bytes, 1 << 20);
        File::open(&files[0]).unwrap().read_exact(&mut [0; 4096]).unwrap();
        assert!(residency(&files).unwrap().resident > 0);
    }
}
