//! Walking a source, and making its directories in the part, both through descriptors alone.
//!
//! Names are read as they come and handed on in batches, so that a directory of a million files takes no more memory
//! than one of a thousand. A directory's descriptors live as long as somebody is at work in it.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::calls;
use crate::error::StageError;
use crate::journal::{Done, Identity};
use crate::manifest::{self, Entry, Kind};
use crate::names::{self, PathText};
use crate::pace::Stop;

/// Names in a batch at most.
pub const BATCH: usize = 128;

/// A directory of the source and its copy.
#[derive(Debug)]
pub struct Directory {
    /// The source.
    pub source: OwnedFd,
    /// Its copy in the part.
    pub copy: OwnedFd,
    /// Relative to the source's root; empty for the root.
    pub path: PathBuf,
}

/// Names of one directory that are no directories.
#[derive(Debug)]
pub struct Batch {
    /// Where.
    pub directory: Arc<Directory>,
    /// Their names.
    pub names: Vec<OsString>,
}

/// What a walk finds.
pub trait Found {
    /// Files and links; an error ends the walk.
    fn batch(&mut self, batch: Batch) -> Result<(), StageError>;
    /// A directory, made in the part.
    fn directory(&mut self, done: Done) -> Result<(), StageError>;
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

/// What a walk has to know.
#[derive(Debug)]
pub struct Walk<'a> {
    /// The source as a person reads it.
    pub source: &'a Path,
    /// The part as a person reads it.
    pub part: &'a Path,
    /// May directories of other file systems be walked into?
    pub across: bool,
    /// What may be in the tree: these files and the directories that they are in, where it is given.
    pub only: Option<&'a std::collections::BTreeSet<PathBuf>>,
    /// Ends it.
    pub stop: &'a Stop,
}

impl Walk<'_> {
    /// Walks `source` and makes its directories beneath `copy`, telling `found` of all that is there.
    ///
    /// # Errors
    /// The kernel's, and those of `found`.
    pub fn run(&self, source: OwnedFd, copy: OwnedFd, found: &mut dyn Found) -> Result<(), StageError> {
        let stat = self.stat(&source, Path::new(""))?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        found.directory(Done {
            entry: entry_of(Path::new(""), Kind::Directory, &stat),
            source: Identity::of(&stat),
        })?;
        let root = Arc::new(Directory { source, copy, path: PathBuf::new() });
        // What is yet to be walked: a name, and the directory that it is in.
        let mut waiting: Vec<(Arc<Directory>, OsString)> = Vec::new();
        self.list(&root, &mut waiting, found)?;
        drop(root);
        while let Some((above, name)) = waiting.pop() {
            self.stop.check()?;
            let path = above.path.join(&name);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let source = calls::open_at(above.source.as_fd(), &name, flags, Mode::empty())
                .map_err(|error| StageError::io("open the directory", &self.source.join(&path), error))?;
            let stat = self.stat(&source, &path)?;
            if !self.across && (stat.stx_dev_major, stat.stx_dev_minor) != device {
                return Err(StageError::refused(
                    format!(
                        "{}: another file system is mounted there",
                        crate::error::shown(&self.source.join(&path))
                    ),
                    "move that one by itself, or copy (stage cp) and remove the source by hand",
                ));
            }
            let copy = self.make(&above, &name, &path)?;
            found.directory(Done {
                entry: entry_of(&path, Kind::Directory, &stat),
                source: Identity::of(&stat),
            })?;
            let directory = Arc::new(Directory { source, copy, path });
            drop(above);
            self.list(&directory, &mut waiting, found)?;
        }
        Ok(())
    }

    fn stat(&self, source: &OwnedFd, path: &Path) -> Result<Statx, StageError> {
        calls::stat(source.as_fd()).map_err(|error| StageError::io("look at", &self.source.join(path), error))
    }

    /// The copy of a directory, for its owner alone until all is in it.
    fn make(&self, above: &Directory, name: &std::ffi::OsStr, path: &Path) -> Result<OwnedFd, StageError> {
        let shown = self.part.join(path);
        match calls::make_directory(above.copy.as_fd(), name, Mode::RWXU) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::EXIST) => {
                // An earlier attempt's, which may have its final mode already. Nobody else can write where it is.
                rustix::fs::chmodat(above.copy.as_fd(), name, Mode::RWXU, rustix::fs::AtFlags::empty())
                    .map_err(|errno| StageError::io("set the mode", &shown, errno))?;
            }
            made => made.map_err(|error| StageError::io("make the directory", &shown, error))?,
        }
        let copy =
            calls::open_at(above.copy.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                .map_err(|error| StageError::io("open the directory", &shown, error))?;
        Ok(copy)
    }

    fn list(
        &self,
        directory: &Arc<Directory>,
        waiting: &mut Vec<(Arc<Directory>, OsString)>,
        found: &mut dyn Found,
    ) -> Result<(), StageError> {
        let failed =
            |error: std::io::Error| StageError::io("list", &self.source.join(&directory.path), error);
        let mut names = Vec::new();
        let mut entries = calls::List::of(directory.source.as_fd()).map_err(failed)?;
        while let Some((name, kind)) = entries.next().map_err(failed)? {
            let path = directory.path.join(&name);
            if names::is_part(&name) || path == Path::new(manifest::NAME) || !self.is_wanted(&path) {
                continue;
            }
            let kind = match kind {
                FileType::Unknown => {
                    let stat = calls::stat_at(directory.source.as_fd(), &name)
                        .map_err(|error| StageError::io("look at", &self.source.join(&path), error))?;
                    FileType::from_raw_mode(stat.stx_mode.into())
                }
                kind => kind,
            };
            if kind == FileType::Directory {
                waiting.push((Arc::clone(directory), name));
                continue;
            }
            names.push(name);
            if names.len() == BATCH {
                self.stop.check()?;
                let names = std::mem::take(&mut names);
                found.batch(Batch { directory: Arc::clone(directory), names })?;
            }
        }
        if !names.is_empty() {
            found.batch(Batch { directory: Arc::clone(directory), names })?;
        }
        Ok(())
    }

    fn is_wanted(&self, path: &Path) -> bool {
        self.only.is_none_or(|only| names::is_among(only, path))
    }
}
