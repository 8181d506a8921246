//! The file by which an application says that a set is complete, and its removal when the job that it asked for is durable.
//!
//! An application may replace the file at any time, which asks for another job. So a job holds the state in which the file
//! was read, and only a file that is still in that state is removed. Jobs that were asked for together leave it to who asked,
//! and are known by it: checkpoints that follow one another have files of the same names and sizes.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use rustix::fs::{Statx, StatxFlags};
use serde::{Deserialize, Serialize};

use crate::calls;
use crate::fault::{Check, enforced};
use crate::names::PathText;

/// A state of a file. The number of its device is not part of it: it may be another when the machine has started again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Inode.
    pub ino: u64,
    /// Time of birth, seconds and nanoseconds since 1970, where the file system keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<(i64, u32)>,
    /// Bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: (i64, u32),
    /// Change time.
    pub ctime: (i64, u32),
}

impl Identity {
    /// Of what statx(2) said.
    #[must_use]
    pub fn of(stat: &Statx) -> Self {
        let time = |time: &rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
        Self {
            ino: stat.stx_ino,
            born: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(&stat.stx_btime)),
            size: stat.stx_size,
            mtime: time(&stat.stx_mtime),
            ctime: time(&stat.stx_ctime),
        }
    }

    /// Is it the same file of the same size with other times, as touch(1) leaves it, or who writes it anew at the same length?
    /// Without a time of birth nothing tells a file from one that was given its inode.
    #[must_use]
    pub fn is_touched(&self, other: &Self) -> bool {
        self.born.is_some()
            && (self.ino, self.born, self.size) == (other.ino, other.born, other.size)
            && self != other
    }
}

/// A semaphore that asked for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Semaphore {
    /// Where it lies, absolute.
    pub path: PathText,
    /// The state in which it was read.
    pub identity: Identity,
    /// The directory above it that was watched: below that no symbolic link leads to the job's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<PathText>,
    /// It asks for other jobs as well, or is to be kept: this job leaves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
}

impl Semaphore {
    /// The one that lies at `path` now.
    ///
    /// # Errors
    /// No file is there; a directory on the way that may not be searched.
    pub fn at(path: PathBuf) -> io::Result<Self> {
        let stat = rustix::fs::statx(
            rustix::fs::CWD,
            &path,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::BASIC_STATS | StatxFlags::BTIME,
        )?;
        Ok(Self { path: PathText(path), identity: Identity::of(&stat), watched: None, stays: false })
    }
}

/// What became of a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It was removed. The directory has to be synced.
    Removed,
    /// Nothing had its name.
    Absent,
    /// Another semaphore has its name, and was left.
    Replaced,
}

/// Removes the semaphore of this name in a directory if it is in the state in which it was read. What replaces it between
/// the two system calls of this is removed: unlinkat(2) takes a name.
///
/// # Errors
/// A name that may not be removed; a directory that has it.
pub fn remove(directory: BorrowedFd<'_>, name: &OsStr, identity: &Identity) -> io::Result<Removal> {
    match calls::stat_at(directory, name) {
        Ok(stat) if Identity::of(&stat) != *identity && enforced(Check::SemaphoreBeforeRemoval) => {
            Ok(Removal::Replaced)
        }
        Ok(_) => calls::remove_file(directory, name).map(|()| Removal::Removed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Removal::Absent),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_touched_only_if_it_is_known_to_be_the_same() {
        let born = Identity { ino: 7, born: Some((1, 2)), size: 4, mtime: (3, 0), ctime: (3, 0) };
        let later = |file: Identity| Identity { mtime: (4, 0), ctime: (4, 0), ..file };
        assert!(born.is_touched(&later(born)) && !born.is_touched(&born));
        for other in [
            Identity { ino: 8, ..later(born) },
            Identity { born: Some((1, 3)), ..later(born) },
            Identity { size: 5, ..later(born) },
        ] {
            assert!(!born.is_touched(&other), "{other:?}");
        }
        let unborn = Identity { born: None, ..born };
        assert!(!unborn.is_touched(&later(unborn)));
    }
}
