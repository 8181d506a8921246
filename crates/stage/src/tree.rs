//! The one walk of a source, through descriptors alone.
//!
//! Names are read as they come and handed on in batches, so that a directory of a million files takes no more memory
//! than one of a thousand. A directory's descriptors live as long as a thread is at work in it; of those on the way to it a
//! bounded number is kept open, and the others are opened again by their paths.
//!
//! A manifest in the root is not part of a source: what is copied gets its own. Every other name is, also one that looks like
//! the part of a move, because a name alone does not say who made it. A name that is gone between its listing and its
//! opening is a change of the source ([`StageError::SourceChanged`]).

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::calls;
use crate::error::StageError;
use crate::fault::{Check, enforced};
use crate::manifest::{self, Entry, Kind};
use crate::names::{self, PathText};
use crate::owned::is_mount_root;
use crate::pace::Stop;

/// Names in a batch at most.
pub const BATCH: usize = 128;

/// A directory of the source, and what a visitor keeps with it, such as its copy in the part.
#[derive(Debug)]
pub struct Directory<C = OwnedFd> {
    /// The source.
    pub source: OwnedFd,
    /// What [`Visitor::directory`] returned for it.
    pub copy: C,
    /// Relative to the source's root; empty for the root.
    pub path: PathBuf,
}

/// What a walk hands its findings to. An error ends the walk.
pub trait Visitor {
    /// What goes with a directory.
    type Copy;

    /// A directory is reached, `above` and its name there; the root has none above it.
    fn directory(
        &mut self,
        above: Option<(&Directory<Self::Copy>, &OsStr)>,
        path: &Path,
        stat: &Statx,
    ) -> Result<Self::Copy, StageError>;

    /// What goes with a directory that was visited, and whose descriptors were given up since.
    fn open_again(&mut self, path: &Path) -> Result<Self::Copy, StageError>;

    /// Names in a directory that are not directories.
    fn names(
        &mut self,
        directory: &Arc<Directory<Self::Copy>>,
        names: Vec<OsString>,
    ) -> Result<(), StageError>;
}

/// One entry of a source, as [`Walk::each`] finds it.
pub struct Seen<'a> {
    /// Relative to the source's root; empty for the root.
    pub path: &'a Path,
    /// What statx(2) says of it.
    pub stat: &'a Statx,
    /// The directory that it is in, and its name there; the root has none.
    pub place: Option<(BorrowedFd<'a>, &'a OsStr)>,
}

impl Seen<'_> {
    /// What it is, if it is something that is copied.
    pub fn kind(&self) -> Option<Kind> {
        kind_of(self.stat)
    }
}

/// A file, directory or symbolic link; nothing else is copied.
pub fn kind_of(stat: &Statx) -> Option<Kind> {
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Directory),
        FileType::Symlink => Some(Kind::Symlink),
        _ => None,
    }
}

/// The mount and the file system that an entry is on. Directories of one file system may be on two mounts (a bind mount),
/// and those of one mount on two devices (a subvolume of btrfs). Kernels before 5.8 tell the device alone.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MountOf {
    id: u64,
    device: (u32, u32),
}

impl MountOf {
    fn stat(stat: &Statx) -> Self {
        let has_id = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Self {
            id: if has_id { stat.stx_mnt_id } else { 0 },
            device: (stat.stx_dev_major, stat.stx_dev_minor),
        }
    }
}

/// Something is mounted at this path, which may be neither removed nor relied on with what it is in.
pub(crate) fn mounted(path: &Path) -> StageError {
    StageError::refused(
        format!("{}: something is mounted there", crate::error::shown(path)),
        "unmount it, or move what is beside it; stage cp copies from other mounts as well",
    )
}

/// The entry of what statx(2) says.
#[must_use]
pub fn entry_of(path: &Path, kind: Kind, stat: &Statx) -> Entry {
    Entry {
        path: PathText(path.to_owned()),
        kind,
        size: if kind == Kind::File { stat.stx_size } else { 0 },
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        mtime_s: stat.stx_mtime.tv_sec,
        mtime_ns: stat.stx_mtime.tv_nsec,
        digest: None,
        chunks: Vec::new(),
        target: None,
        link_to: None,
    }
}

fn inode(stat: &Statx) -> (u32, u32, u64) {
    (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)
}

/// What a walk has to know.
#[derive(Debug, Clone, Copy)]
pub struct Walk<'a> {
    /// The source as a person reads it.
    pub source: &'a Path,
    /// May other mounts be walked into?
    pub across: bool,
    /// What may be in the tree: these files and the directories that they are in, where it is given.
    pub only: Option<&'a std::collections::BTreeSet<PathBuf>>,
    /// Ends it.
    pub stop: &'a Stop,
}

/// Directories on the way to the one at work whose descriptors are kept, so that a deep tree does not use them up.
const OPEN_LEVELS: usize = 32;

/// A directory on the way to the one at work, and the names of those in it that are still to be walked.
struct Level<C> {
    path: PathBuf,
    inode: (u32, u32, u64),
    /// None of one that is opened again when its turn comes.
    open: Option<Arc<Directory<C>>>,
    waiting: Vec<OsString>,
}

impl Walk<'_> {
    /// Walks the directory `source` and hands `visitor` all that is there.
    pub fn run<V: Visitor>(&self, source: OwnedFd, visitor: &mut V) -> Result<(), StageError> {
        let stat = self.stat(source.as_fd(), Path::new(""))?;
        let mount = MountOf::stat(&stat);
        let copy = visitor.directory(None, Path::new(""), &stat)?;
        let root = Arc::new(Directory { source, copy, path: PathBuf::new() });
        let mut levels = vec![self.list(&root, &stat, visitor)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.waiting.pop() else {
                levels.pop();
                continue;
            };
            self.stop.check()?;
            let above = match &level.open {
                Some(open) => Arc::clone(open),
                None => Arc::clone(level.open.insert(self.open_again(&root, level, visitor)?)),
            };
            if level.waiting.is_empty() {
                levels.pop();
            }
            let path = above.path.join(&name);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let source = calls::open_at(above.source.as_fd(), &name, flags, Mode::empty())
                .map_err(|error| self.failed("open the directory", &path, error))?;
            let stat = self.stat(source.as_fd(), &path)?;
            if !self.across && MountOf::stat(&stat) != mount && enforced(Check::InnerMounts) {
                return Err(mounted(&self.source.join(&path)));
            }
            let copy = visitor.directory(Some((&above, &name)), &path, &stat)?;
            drop(above);
            let directory = Arc::new(Directory { source, copy, path });
            levels.push(self.list(&directory, &stat, visitor)?);
            if let Some(old) = levels.len().checked_sub(OPEN_LEVELS + 1) {
                levels[old].open = None;
            }
        }
        Ok(())
    }

    /// The directory of a level whose descriptors were given up: by its path, and it has to be the same.
    fn open_again<V: Visitor>(
        &self,
        root: &Directory<V::Copy>,
        level: &Level<V::Copy>,
        visitor: &mut V,
    ) -> Result<Arc<Directory<V::Copy>>, StageError> {
        let path = level.path.clone();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let beneath = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        let source = calls::open_beneath(root.source.as_fd(), beneath, flags, Mode::empty())
            .map_err(|error| self.failed("open the directory", &path, error))?;
        if inode(&self.stat(source.as_fd(), &path)?) != level.inode {
            let path = crate::error::shown(&self.source.join(&path));
            return Err(StageError::SourceChanged { path, how: "it was replaced".to_owned() });
        }
        let copy = visitor.open_again(&path)?;
        Ok(Arc::new(Directory { source, copy, path }))
    }

    /// Hands `visit` every entry of the directory `root`, or its file of this name alone, as it is now: attributes that
    /// the client of a network file system has cached do not count.
    pub fn each(
        &self,
        root: BorrowedFd<'_>,
        file: Option<&OsStr>,
        visit: &mut dyn FnMut(&Seen<'_>) -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        if let Some(name) = file {
            let path = Path::new("");
            let stat =
                calls::stat_now(root, name).map_err(|error| StageError::io("look at", self.source, error))?;
            return visit(&Seen { path, stat: &stat, place: Some((root, name)) });
        }
        let root =
            root.try_clone_to_owned().map_err(|error| StageError::io("duplicate", self.source, error))?;
        self.run(root, &mut Visiting { walk: self, visit })
    }

    fn stat(&self, source: BorrowedFd<'_>, path: &Path) -> Result<Statx, StageError> {
        calls::stat(source).map_err(|error| self.failed("look at", path, error))
    }

    /// An entry that is gone by the time of its stat has changed.
    fn failed(&self, operation: &str, path: &Path, error: std::io::Error) -> StageError {
        let shown = self.source.join(path);
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) if !path.as_os_str().is_empty() => {
                StageError::SourceChanged { path: crate::error::shown(&shown), how: "it is gone".to_owned() }
            }
            _ => StageError::io(operation, &shown, error),
        }
    }

    fn list<V: Visitor>(
        &self,
        directory: &Arc<Directory<V::Copy>>,
        stat: &Statx,
        visitor: &mut V,
    ) -> Result<Level<V::Copy>, StageError> {
        let failed =
            |error: std::io::Error| StageError::io("list", &self.source.join(&directory.path), error);
        let (mut names, mut waiting) = (Vec::new(), Vec::new());
        let mut entries = calls::List::of(directory.source.as_fd()).map_err(failed)?;
        while let Some((name, kind)) = entries.next().map_err(failed)? {
            let path = directory.path.join(&name);
            if path == Path::new(manifest::NAME) || !self.is_wanted(&path) {
                continue;
            }
            let kind = match kind {
                FileType::Unknown => {
                    let stat = calls::stat_at(directory.source.as_fd(), &name)
                        .map_err(|error| self.failed("look at", &path, error))?;
                    FileType::from_raw_mode(stat.stx_mode.into())
                }
                kind => kind,
            };
            if kind == FileType::Directory {
                waiting.push(name);
                continue;
            }
            names.push(name);
            if names.len() == BATCH {
                self.stop.check()?;
                visitor.names(directory, std::mem::take(&mut names))?;
            }
        }
        if !names.is_empty() {
            visitor.names(directory, names)?;
        }
        let (path, inode) = (directory.path.clone(), inode(stat));
        Ok(Level { path, inode, open: Some(Arc::clone(directory)), waiting })
    }

    fn is_wanted(&self, path: &Path) -> bool {
        self.only.is_none_or(|only| names::is_among(only, path))
    }
}

/// [`Walk::each`].
struct Visiting<'a> {
    walk: &'a Walk<'a>,
    visit: &'a mut dyn FnMut(&Seen<'_>) -> Result<(), StageError>,
}

impl Visitor for Visiting<'_> {
    type Copy = ();

    fn directory(
        &mut self,
        above: Option<(&Directory<()>, &OsStr)>,
        path: &Path,
        stat: &Statx,
    ) -> Result<(), StageError> {
        let place = above.map(|(above, name)| (above.source.as_fd(), name));
        (self.visit)(&Seen { path, stat, place })
    }

    fn open_again(&mut self, _: &Path) -> Result<(), StageError> {
        Ok(())
    }

    fn names(&mut self, directory: &Arc<Directory<()>>, names: Vec<OsString>) -> Result<(), StageError> {
        for name in names {
            let path = directory.path.join(&name);
            let stat = calls::stat_now(directory.source.as_fd(), &name)
                .map_err(|error| self.walk.failed("look at", &path, error))?;
            if !self.walk.across && is_mount_root(&stat) && enforced(Check::InnerMounts) {
                return Err(mounted(&self.walk.source.join(&path)));
            }
            (self.visit)(&Seen { path: &path, stat: &stat, place: Some((directory.source.as_fd(), &name)) })?;
        }
        Ok(())
    }
}
