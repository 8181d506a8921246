//! What is to be stored: a file, or a directory with all below it, as it was at one moment.
//!
//! It is walked ([`stage::tree`]) before the first byte is read. Each file is compared with what was found when it is opened
//! and after it was read; the runner walks all of it again before the set is committed.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use stage::calls;
use stage::digest::{Algorithm, Digest};
use stage::error::{StageError, shown};
use stage::journal::Identity;
use stage::manifest::{Entry, Kind};
use stage::names::PathText;
use stage::pace::Stop;
use stage::spec::Preserve;
use stage::tree::{Seen, Walk};

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
pub(super) struct Source<'a> {
    root: BorrowedFd<'a>,
    /// The file's name in `root`; none where `root` itself is the source.
    file: Option<&'a OsStr>,
    path: &'a Path,
    /// What is stored of it: these files and the directories that they are in, where it is given.
    only: Option<&'a BTreeSet<PathBuf>>,
    /// May directories of other file systems be walked into?
    across: bool,
}

impl<'a> Source<'a> {
    /// An open directory; `path` is for messages.
    pub fn directory(root: BorrowedFd<'a>, path: &'a Path) -> Self {
        Self { root, file: None, path, only: None, across: true }
    }

    /// A file in an open directory; `path`, of the file, is for messages.
    pub fn file(parent: BorrowedFd<'a>, name: &'a OsStr, path: &'a Path) -> Self {
        Self { root: parent, file: Some(name), path, only: None, across: true }
    }

    /// Nothing of a directory but these files, relative to it, and the directories that they are in.
    pub fn only(self, only: Option<&'a BTreeSet<PathBuf>>) -> Self {
        Self { only, ..self }
    }

    /// Has it end where another file system is mounted: such a source is not removed.
    pub fn of_one_file_system(self) -> Self {
        Self { across: false, ..self }
    }

    /// What a message calls something in it.
    pub fn path_of(&self, relative: &Path) -> PathBuf {
        if relative.as_os_str().is_empty() { self.path.to_owned() } else { self.path.join(relative) }
    }

    /// All that is in it, in the order of the paths' bytes.
    pub fn walk(&self, preserve: &Preserve, stop: &Stop) -> Result<Vec<Found>, StageError> {
        let mut found = Vec::new();
        let walk = Walk { source: self.path, across: self.across, only: self.only, stop };
        walk.each(self.root, self.file, &mut |seen| {
            if seen.path == Path::new(stage::keys::CLAIM) {
                let hint = "rename it: an object of this name says that a drain is at work";
                return Err(StageError::refused(
                    format!("{}: its name is taken", shown(&self.path_of(seen.path))),
                    hint,
                ));
            }
            let mut entry = self.found(seen)?;
            if let (Kind::Symlink, Some((directory, name))) = (entry.kind, seen.place) {
                let target = calls::read_link(directory, name)
                    .map_err(|error| self.gone("read the link", &entry.path, error))?;
                entry.target = Some(target);
            }
            if self.file.is_some() && entry.kind != Kind::File {
                return Err(self.unfit(Path::new(""), "it was a regular file, and is not any more"));
            }
            found.push(entry);
            Ok(())
        })?;
        found.sort_unstable_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        if preserve.links {
            link(&mut found);
        }
        Ok(found)
    }

    fn found(&self, seen: &Seen<'_>) -> Result<Found, StageError> {
        let (path, stat) = (seen.path.to_owned(), seen.stat);
        let Some(kind) = seen.kind() else {
            return Err(StageError::refused(
                format!("{}: an object store cannot hold it", shown(&self.path_of(&path))),
                "only regular files, directories and symbolic links can be stored",
            ));
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
    pub fn open(&self, found: &Found) -> Result<OwnedFd, StageError> {
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
    pub fn check(&self, found: &Found, file: BorrowedFd<'_>) -> Result<(), StageError> {
        let stat =
            calls::stat(file).map_err(|error| StageError::io("stat", &self.path_of(&found.path), error))?;
        match found.identity.change(&Identity::of(&stat)) {
            Some(how) => Err(self.changed(&found.path, how)),
            None => Ok(()),
        }
    }

    /// The source is not what it was.
    pub fn changed(&self, path: &Path, how: &str) -> StageError {
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
