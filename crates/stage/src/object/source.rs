//! What is to be stored: a file, or a directory with all below it, as it was at one moment.
//!
//! The walk goes from a descriptor downwards and through no symbolic link. It is made twice: before the first byte is
//! read, and before the set is committed; what it finds must be the same, so that a file that was written, replaced,
//! removed or added in between fails the drain instead of being half in the set.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Statx};

use crate::calls;
use crate::digest::{Algorithm, Digest};
use crate::error::{StageError, shown};
use crate::journal::Identity;
use crate::manifest::{Entry, Kind};
use crate::names::{self, PathText};
use crate::spec::Preserve;

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Relative to the source; empty for the source itself.
    pub path: PathBuf,
    pub kind: Kind,
    pub identity: Identity,
    device: (u32, u32),
    mode: u32,
    owner: (u32, u32),
    target: Option<OsString>,
    /// The first name of the same file.
    pub link_to: Option<PathBuf>,
}

impl Found {
    /// Must its bytes be stored?
    pub fn has_bytes(&self) -> bool {
        self.kind == Kind::File && self.link_to.is_none()
    }

    /// Its line in the manifest.
    pub fn entry(&self, algorithm: Algorithm, chunks: Vec<Digest>) -> Entry {
        let file = self.has_bytes();
        Entry {
            path: PathText(self.path.clone()),
            kind: self.kind,
            size: if self.kind == Kind::File { self.identity.size } else { 0 },
            mode: self.mode,
            uid: self.owner.0,
            gid: self.owner.1,
            mtime_s: self.identity.mtime.0,
            mtime_ns: self.identity.mtime.1,
            digest: file.then(|| algorithm.of_chunks(&chunks)),
            chunks: if chunks.len() > 1 { chunks } else { Vec::new() },
            target: self.target.clone().map(|target| PathText(target.into())),
            link_to: self.link_to.clone().map(PathText),
        }
    }
}

/// A source: a directory with all below it, or one file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    root: BorrowedFd<'a>,
    /// The file's name in `root`; none where `root` itself is the source.
    file: Option<&'a OsStr>,
    path: &'a Path,
    /// What is stored of it: these files and the directories that they are in, where it is given.
    only: Option<&'a BTreeSet<PathBuf>>,
}

impl<'a> Source<'a> {
    /// An open directory; `path` is for messages.
    #[must_use]
    pub fn directory(root: BorrowedFd<'a>, path: &'a Path) -> Self {
        Self { root, file: None, path, only: None }
    }

    /// A file in an open directory; `path`, of the file, is for messages.
    #[must_use]
    pub fn file(parent: BorrowedFd<'a>, name: &'a OsStr, path: &'a Path) -> Self {
        Self { root: parent, file: Some(name), path, only: None }
    }

    /// Nothing of a directory but these files, relative to it, and the directories that they are in.
    pub(super) fn only(self, only: Option<&'a BTreeSet<PathBuf>>) -> Self {
        Self { only, ..self }
    }

    /// What a message calls something in it.
    pub(super) fn path_of(&self, relative: &Path) -> PathBuf {
        if relative.as_os_str().is_empty() { self.path.to_owned() } else { self.path.join(relative) }
    }

    /// All that is in it, in the order of the paths' bytes. A manifest of an earlier move and parts of moves that are
    /// not whole yet are no part of it.
    pub(super) fn walk(&self, preserve: &Preserve) -> Result<Vec<Found>, StageError> {
        let mut found = Vec::new();
        match self.file {
            Some(name) => {
                let stat = calls::stat_at(self.root, name)
                    .map_err(|error| self.gone("stat", Path::new(""), error))?;
                found.push(self.found(PathBuf::new(), &stat)?);
                if found[0].kind != Kind::File {
                    return Err(self.unfit(Path::new(""), "it was a regular file, and is not any more"));
                }
            }
            None => {
                let stat = calls::stat(self.root).map_err(|error| self.gone("stat", Path::new(""), error))?;
                found.push(self.found(PathBuf::new(), &stat)?);
                let mut left = vec![PathBuf::new()];
                while let Some(directory) = left.pop() {
                    self.walk_directory(&directory, &mut found, &mut left)?;
                }
            }
        }
        found.sort_unstable_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        if preserve.links {
            link(&mut found);
        }
        Ok(found)
    }

    fn walk_directory(
        &self,
        directory: &Path,
        found: &mut Vec<Found>,
        left: &mut Vec<PathBuf>,
    ) -> Result<(), StageError> {
        let opened;
        let fd = if directory.as_os_str().is_empty() {
            self.root
        } else {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            opened = calls::open_beneath(self.root, directory, flags, Mode::empty())
                .map_err(|error| self.gone("open", directory, error))?;
            opened.as_fd()
        };
        for (name, _) in calls::list(fd).map_err(|error| self.gone("list", directory, error))? {
            let skipped = names::is_part(&name)
                || directory.as_os_str().is_empty() && name == OsStr::new(crate::manifest::NAME);
            if skipped {
                continue;
            }
            let path = directory.join(&name);
            if self.only.is_some_and(|only| !names::is_among(only, &path)) {
                continue;
            }
            if path == Path::new(super::keys::CLAIM) {
                let hint = "rename it: an object of this name says that a drain is at work";
                return Err(StageError::refused(
                    format!("{}: its name is taken", shown(&self.path_of(&path))),
                    hint,
                ));
            }
            let stat = calls::stat_at(fd, &name).map_err(|error| self.gone("stat", &path, error))?;
            let mut entry = self.found(path, &stat)?;
            match entry.kind {
                Kind::Directory => left.push(entry.path.clone()),
                Kind::Symlink => {
                    let target = calls::read_link(fd, &name)
                        .map_err(|error| self.gone("read the link", &entry.path, error))?;
                    entry.target = Some(target);
                }
                Kind::File => {}
            }
            found.push(entry);
        }
        Ok(())
    }

    fn found(&self, path: PathBuf, stat: &Statx) -> Result<Found, StageError> {
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            other => {
                let what =
                    format!("{}: an object store cannot hold it ({other:?})", shown(&self.path_of(&path)));
                return Err(StageError::refused(
                    what,
                    "only regular files, directories and symbolic links can be stored",
                ));
            }
        };
        Ok(Found {
            path,
            kind,
            identity: Identity::of(stat),
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            mode: u32::from(stat.stx_mode) & 0o7777,
            owner: (stat.stx_uid, stat.stx_gid),
            target: None,
            link_to: None,
        })
    }

    /// Opens a file that was found, if it is still what it was.
    pub(super) fn open(&self, found: &Found) -> Result<OwnedFd, StageError> {
        // NONBLOCK: a FIFO that has taken the name must not hold the drain.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let opened = match self.file {
            Some(name) => calls::open_at(self.root, name, flags, Mode::empty()),
            None => calls::open_beneath(self.root, &found.path, flags, Mode::empty()),
        };
        let file = opened.map_err(|error| self.gone("open", &found.path, error))?;
        self.check(found, file.as_fd())?;
        Ok(file)
    }

    /// Is an open file still what was found?
    pub(super) fn check(&self, found: &Found, file: BorrowedFd<'_>) -> Result<(), StageError> {
        let stat =
            calls::stat(file).map_err(|error| StageError::io("stat", &self.path_of(&found.path), error))?;
        match found.identity.change(&Identity::of(&stat)) {
            Some(how) => Err(self.changed(&found.path, how)),
            None => Ok(()),
        }
    }

    /// Walks again and compares.
    pub(super) fn check_all(&self, before: &[Found], preserve: &Preserve) -> Result<(), StageError> {
        let now = self.walk(preserve)?;
        let mut now = now.iter();
        for was in before {
            match now.next() {
                Some(is) if is == was => {}
                Some(is) if is.path == was.path => {
                    return Err(self.changed(
                        &was.path,
                        was.identity.change(&is.identity).unwrap_or("it is something else"),
                    ));
                }
                Some(is) if is.path.as_os_str() < was.path.as_os_str() => {
                    return Err(self.changed(&is.path, "it is new"));
                }
                _ => return Err(self.changed(&was.path, "it is gone")),
            }
        }
        match now.next() {
            Some(new) => Err(self.changed(&new.path, "it is new")),
            None => Ok(()),
        }
    }

    /// The source is not what it was.
    pub(super) fn changed(&self, path: &Path, how: &str) -> StageError {
        StageError::SourceChanged { path: shown(&self.path_of(path)), how: how.to_owned() }
    }

    fn unfit(&self, path: &Path, how: &str) -> StageError {
        StageError::Refused { what: format!("{}: {how}", shown(&self.path_of(path))), hint: None }
    }

    /// A call on something that was found failed; what is gone has changed.
    fn gone(&self, operation: &str, path: &Path, error: std::io::Error) -> StageError {
        let gone = error.kind() == std::io::ErrorKind::NotFound && !path.as_os_str().is_empty();
        if gone {
            self.changed(path, "it is gone")
        } else {
            StageError::io(operation, &self.path_of(path), error)
        }
    }
}

/// Has further names of one file point to the first.
fn link(found: &mut [Found]) {
    let mut first: HashMap<((u32, u32), u64), PathBuf> = HashMap::new();
    for entry in found {
        if entry.kind == Kind::File && entry.identity.nlink > 1 {
            let key = (entry.device, entry.identity.ino);
            match first.get(&key) {
                Some(path) => entry.link_to = Some(path.clone()),
                None => {
                    first.insert(key, entry.path.clone());
                }
            }
        }
    }
}
