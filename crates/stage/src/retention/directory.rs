//! A directory of sets: the fast tier, and the slow one where that is a file system.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{LATEST, Lock, Place, Slow, doomed_uuid, is_doomed, place};
use crate::calls;
use crate::error::{StageError, shown};
use crate::names::{PathText, is_part, part_name};
use crate::runner::discard;
use crate::set::Manifest;
use crate::spec;

pub(super) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// A directory of sets.
pub(crate) struct Tier {
    pub path: PathBuf,
    directory: OwnedFd,
}

/// The right to work on a directory, where the file system has locks.
pub(crate) struct Alone<'a>(Option<BorrowedFd<'a>>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some(directory) = self.0 {
            let _ = rustix::fs::flock(directory, FlockOperation::Unlock);
        }
    }
}

impl Lock for Alone<'_> {}

impl Tier {
    pub fn open(path: &Path) -> Result<Self, StageError> {
        let directory =
            calls::open_directory(path).map_err(|error| StageError::io("open the directory", path, error))?;
        Ok(Self { path: path.to_owned(), directory })
    }

    pub fn is(&self, other: &Self) -> Result<bool, StageError> {
        let identity = |tier: &Self| {
            calls::stat(tier.directory.as_fd())
                .map(|found| (found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
                .map_err(|error| StageError::io("stat", &tier.path, error))
        };
        Ok(identity(self)? == identity(other)?)
    }

    fn failed<'a>(
        &'a self,
        operation: &'a str,
        name: &'a OsStr,
    ) -> impl FnOnce(io::Error) -> StageError + 'a {
        move |error| StageError::io(operation, &self.path.join(name), error)
    }

    pub fn lock(&self) -> Alone<'_> {
        let locked =
            rustix::io::retry_on_intr(|| rustix::fs::flock(&self.directory, FlockOperation::LockExclusive));
        Alone(locked.is_ok().then(|| self.directory.as_fd()))
    }

    pub fn directory(&self, name: &OsStr) -> Result<OwnedFd, StageError> {
        calls::open_at(self.directory.as_fd(), name, DIRECTORY, Mode::empty())
            .map_err(self.failed("open", name))
    }

    fn names(&self) -> Result<Vec<(OsString, FileType)>, StageError> {
        calls::list(self.directory.as_fd())
            .map_err(|error| StageError::io("read the directory", &self.path, error))
    }

    /// The directories of a series, oldest first.
    pub fn members(&self, series: &Place<'_>) -> Result<Vec<OsString>, StageError> {
        let mut members = Vec::new();
        for (name, _) in self.names()? {
            let beside = place(&name).is_some_and(|place| place.is_beside(series));
            if beside && !is_part(&name) && self.has(&name)? {
                members.push(name);
            }
        }
        members.sort_by(|a, b| match (place(a), place(b)) {
            (Some(a), Some(b)) => a.order(&b),
            _ => a.cmp(b),
        });
        Ok(members)
    }

    /// Is a directory of this name here? File systems need not tell kinds when they list names. What cannot be told is
    /// an error: a copy that is overlooked is one that the rules do not protect.
    pub fn has(&self, name: &OsStr) -> Result<bool, StageError> {
        match calls::stat_at(self.directory.as_fd(), name) {
            Ok(found) => Ok(FileType::from_raw_mode(u32::from(found.stx_mode)) == FileType::Directory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("stat", name)(error)),
        }
    }

    /// The manifest of a set that is durable here.
    pub fn durable(&self, name: &OsStr) -> Result<Option<Manifest>, StageError> {
        if !self.has(name)? {
            return Ok(None);
        }
        let directory = self.directory(name)?;
        let path = self.path.join(name);
        let Some(manifest) = Manifest::read(directory.as_fd(), &path)? else {
            return Ok(None);
        };
        let differs = manifest.differs_from(directory.as_fd(), &path, crate::set::Times::Ignored)?;
        Ok(differs.is_none().then_some(manifest))
    }

    pub fn latest(&self) -> Result<Option<OsString>, StageError> {
        match calls::read_link(self.directory.as_fd(), OsStr::new(LATEST)) {
            Ok(target) => Ok(Some(target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read the link", OsStr::new(LATEST))(error)),
        }
    }

    /// Rule 4.
    pub fn move_latest(&self, name: &OsStr, own: &Place<'_>) -> Result<Option<OsString>, StageError> {
        if self.durable(name)?.is_none() {
            return Ok(None);
        }
        let current = match self.latest() {
            Err(StageError::Io { source, .. })
                if source.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
            {
                return Err(StageError::refused(
                    format!("{} is no symbolic link, and is left as it is", shown(&self.path.join(LATEST))),
                    "give it another name, then the next set that is durable has `latest` point to it",
                ));
            }
            current => current?,
        };
        if let Some(current) = current {
            let newer = place(&current)
                .is_some_and(|current| current.is_beside(own) && current.order(own) == Ordering::Greater);
            if current == name || (newer && self.has(&current)?) {
                // Who moved it may have died before the name was durable.
                self.sync()?;
                return Ok(None);
            }
        }
        let directory = self.directory.as_fd();
        // Nobody else is at it (`lock`): what has such a name is of somebody who died before the rename.
        for (name, kind) in self.names()? {
            if kind == FileType::Symlink && is_doomed(&name) && name.as_bytes().starts_with(b".latest.") {
                calls::remove_file(directory, &name).map_err(self.failed("remove", &name))?;
            }
        }
        let part = part_name(OsStr::new(LATEST), doomed_uuid(&self.path)?);
        calls::symlink(name, directory, &part).map_err(self.failed("make the link", &part))?;
        calls::replace(directory, &part, OsStr::new(LATEST))
            .map_err(self.failed("rename to latest", &part))?;
        self.sync()?;
        Ok(Some(name.to_owned()))
    }

    fn sync(&self) -> Result<(), StageError> {
        calls::sync(self.directory.as_fd()).map_err(|error| StageError::io("fsync", &self.path, error))
    }

    /// Rule 3: has a set lose its name, durably. False if somebody is reading it, or it went meanwhile.
    pub fn doom(&self, name: &OsStr, unless_pinned: bool) -> Result<bool, StageError> {
        let set = self.directory(name)?;
        if unless_pinned {
            let lock = rustix::fs::flock(&set, FlockOperation::NonBlockingLockExclusive);
            if lock == Err(Errno::WOULDBLOCK) {
                return Ok(false);
            }
        }
        let part = part_name(name, doomed_uuid(&self.path)?);
        match calls::publish(self.directory.as_fd(), name, &part) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.failed("rename, to remove it,", name)(error)),
        }
        self.sync()?;
        Ok(true)
    }

    /// Takes apart what was doomed, now or before a crash.
    pub fn sweep(&self) -> Result<(), StageError> {
        for (name, _) in self.names()? {
            if is_doomed(&name) {
                discard(&self.directory, &name, &self.path)?;
            }
        }
        Ok(())
    }
}

impl Slow for Tier {
    fn place(&self, name: &OsStr) -> spec::Place {
        spec::Place::Path(PathText(self.path.join(name)))
    }

    fn lock(&self) -> Box<dyn Lock + '_> {
        Box::new(self.lock())
    }

    fn is(&self, fast: &Tier) -> Result<bool, StageError> {
        fast.is(self)
    }

    fn members(&self, series: &Place<'_>) -> Result<Vec<OsString>, StageError> {
        self.members(series)
    }

    fn durable(&self, name: &OsStr) -> Result<Option<Manifest>, StageError> {
        self.durable(name)
    }

    fn reads_back(&self, name: &OsStr, manifest: &Manifest) -> Result<bool, StageError> {
        let path = self.path.join(name);
        match manifest.verify(self.directory(name)?.as_fd(), &path, &crate::store::always) {
            Ok(()) => Ok(true),
            Err(StageError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn latest(&self) -> Result<Option<OsString>, StageError> {
        self.latest()
    }

    fn move_latest(&self, name: &OsStr, own: &Place<'_>) -> Result<Option<OsString>, StageError> {
        self.move_latest(name, own)
    }

    fn remove(&self, name: &OsStr) -> Result<(), StageError> {
        self.doom(name, false).map(drop)
    }

    fn sweep(&self) -> Result<(), StageError> {
        self.sweep()
    }
}
