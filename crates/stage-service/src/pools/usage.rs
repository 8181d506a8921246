//! What really lies in a pool: blocks, not lengths, of all files below its directory. Directories themselves do not
//! count, so that a writer who fills a reservation need not know how many blocks of names come with it.
//!
//! Reached through descriptors and no symbolic link, and within its file system. A file with several names counts once. What
//! cannot be looked into (another user's directory where this process is not root, a tree deeper than a path may be long)
//! is counted as `unseen`, and does not make the whole fail: all who can write to a pool could otherwise lock everybody
//! out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Statx};

use stage::calls;

/// A block of st_blocks (stat(2)), whatever the file system's own size is.
const BLOCK_BYTES: u64 = 512;

/// A set: a directory or file below a user's directory of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetUse {
    pub(super) owner: u32,
    pub(super) bytes: u64,
    /// When the set's own directory last changed, nanoseconds since 1970.
    pub(super) modified_ns: i128,
}

/// What lies in a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    pub(super) by_owner: BTreeMap<u32, u64>,
    /// By the path relative to the pool: `1000/ckpt-7`.
    pub(super) sets: BTreeMap<PathBuf, SetUse>,
    pub(super) unseen: u64,
}

impl Usage {
    /// Bytes of one set.
    pub(super) fn of(&self, set: &Path) -> u64 {
        self.sets.get(set).map_or(0, |set| set.bytes)
    }
}

struct Walk<'a> {
    pool: BorrowedFd<'a>,
    device: (u32, u32),
    usage: Usage,
    links: BTreeSet<u64>,
}

/// Walks a pool.
pub(super) fn walk(pool: BorrowedFd<'_>) -> std::io::Result<Usage> {
    let top = calls::stat(pool)?;
    let device = (top.stx_dev_major, top.stx_dev_minor);
    let mut walk = Walk { pool, device, usage: Usage::default(), links: BTreeSet::new() };
    for name in names(pool)? {
        let Ok(stat) = calls::stat_at(pool, &name) else { continue };
        let path = PathBuf::from(&name);
        let user: Option<u32> = name.to_str().and_then(|name| name.parse().ok());
        match user {
            Some(user) if kind(&stat) == FileType::Directory => walk.user(user, &path),
            _ => {
                let bytes = walk.tree(&path, &stat);
                walk.charge(stat.stx_uid, bytes);
            }
        }
    }
    Ok(walk.usage)
}

fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

fn names(directory: BorrowedFd<'_>) -> std::io::Result<Vec<OsString>> {
    Ok(calls::list(directory)?.into_iter().map(|(name, _)| name).collect())
}

impl Walk<'_> {
    fn charge(&mut self, owner: u32, bytes: u64) {
        self.usage.bytes += bytes;
        *self.usage.by_owner.entry(owner).or_insert(0) += bytes;
    }

    fn open(&self, path: &Path) -> std::io::Result<std::os::fd::OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        calls::open_beneath(self.pool, path, flags, Mode::empty())
    }

    /// A user's directory: each entry is a set, and all of it counts for the user, whatever user owns the files.
    fn user(&mut self, owner: u32, path: &Path) {
        let Ok((directory, names)) =
            self.open(path).and_then(|fd| names(fd.as_fd()).map(|names| (fd, names)))
        else {
            self.usage.unseen += 1;
            return;
        };
        for name in names {
            let Ok(stat) = calls::stat_at(directory.as_fd(), &name) else { continue };
            let path = path.join(&name);
            let bytes = self.tree(&path, &stat);
            let modified = &stat.stx_mtime;
            let modified_ns = i128::from(modified.tv_sec) * 1_000_000_000 + i128::from(modified.tv_nsec);
            self.usage.sets.insert(path, SetUse { owner, bytes, modified_ns });
            self.charge(owner, bytes);
        }
    }

    /// Bytes of what is at `path` and below.
    fn tree(&mut self, path: &Path, stat: &Statx) -> u64 {
        let mut bytes = self.one(stat);
        let mut rest = if kind(stat) == FileType::Directory { vec![path.to_owned()] } else { Vec::new() };
        while let Some(path) = rest.pop() {
            let Ok((directory, names)) =
                self.open(&path).and_then(|fd| names(fd.as_fd()).map(|names| (fd, names)))
            else {
                self.usage.unseen += 1;
                continue;
            };
            for name in names {
                let Ok(stat) = calls::stat_at(directory.as_fd(), &name) else { continue };
                bytes += self.one(&stat);
                let here = (stat.stx_dev_major, stat.stx_dev_minor) == self.device;
                if kind(&stat) == FileType::Directory && here {
                    rest.push(path.join(&name));
                }
            }
        }
        bytes
    }

    fn one(&mut self, stat: &Statx) -> u64 {
        let here = (stat.stx_dev_major, stat.stx_dev_minor) == self.device;
        let is_directory = kind(stat) == FileType::Directory;
        if !here || is_directory || (stat.stx_nlink > 1 && !self.links.insert(stat.stx_ino)) {
            return 0;
        }
        stat.stx_blocks * BLOCK_BYTES
    }
}
