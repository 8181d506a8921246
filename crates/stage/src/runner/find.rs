//! Where a move begins and where it is to end.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::calls;
use crate::error::StageError;
use crate::fault::{Barrier, Check, enforced};
use crate::mounts;
use crate::owned::FileId;
use crate::spec::{JobSpec, Place, Verb, no_parent};
use crate::tier::Local;

/// What is to be moved.
pub struct Source {
    /// As it was given.
    pub path: PathBuf,
    /// The directory that it is in.
    pub parent: OwnedFd,
    /// Its name there.
    pub name: OsString,
    /// Is it a directory?
    pub is_directory: bool,
    /// Its device and inode.
    pub inode: (u32, u32, u64),
}

impl Source {
    /// Finds it. The way there is any program's way, but for what is below `watched`, where others may put a link into it;
    /// what it leads to must be a file or a directory, and no link.
    pub fn open(path: &Path, watched: Option<&Path>) -> Result<Self, StageError> {
        let (parent_path, name) = split(path)?;
        let parent = match watched.filter(|watched| parent_path.starts_with(watched)) {
            Some(watched) => calls::open_directory(watched)
                .and_then(|watched_fd| open_below(&watched_fd, watched, parent_path)),
            None => calls::open_directory(parent_path),
        };
        let parent = parent.map_err(|error| StageError::io("open the directory", parent_path, error))?;
        let stat =
            calls::stat_at(parent.as_fd(), name).map_err(|error| StageError::io("look at", path, error))?;
        let is_directory = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => false,
            FileType::Directory => true,
            FileType::Symlink => {
                return Err(StageError::invalid(
                    format!("{}: a symbolic link", crate::error::shown(path)),
                    "name what it leads to",
                ));
            }
            _ => {
                return Err(StageError::invalid(
                    format!("{}: neither a file nor a directory", crate::error::shown(path)),
                    "sockets, FIFOs and devices are not moved",
                ));
            }
        };
        let inode = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        Ok(Self { path: path.to_owned(), parent, name: name.to_owned(), is_directory, inode })
    }

    /// It, as implementations of tiers are shown it.
    pub fn local(&self) -> Local<'_> {
        let Self { path, parent, name, is_directory, inode } = self;
        Local { path, parent: parent.as_fd(), name, is_directory: *is_directory, inode: *inode }
    }

    /// The file or directory itself, for reading.
    pub fn open_root(&self) -> Result<OwnedFd, StageError> {
        let kind = if self.is_directory { OFlags::DIRECTORY } else { OFlags::NONBLOCK };
        calls::open_at(self.parent.as_fd(), &self.name, OFlags::RDONLY | kind, Mode::empty())
            .map_err(|error| StageError::io("open", &self.path, error))
    }
}

/// Where it is to be.
pub struct Destination {
    /// The directory.
    pub parent: PathBuf,
    /// The name.
    pub name: OsString,
}

impl Destination {
    pub fn of(path: &Path) -> Result<Self, StageError> {
        let (parent, name) = split(path)?;
        Ok(Self { parent: parent.to_owned(), name: name.to_owned() })
    }

    pub fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    pub fn open(&self) -> Result<OwnedFd, StageError> {
        calls::open_directory(&self.parent)
            .map_err(|error| StageError::io("open the directory", &self.parent, error))
    }

    /// Which file or directory has the name.
    pub fn id(&self, parent: &OwnedFd) -> Result<Option<FileId>, StageError> {
        FileId::at(parent.as_fd(), &self.name).map_err(|error| StageError::io("look at", &self.path(), error))
    }

    /// The directory has to be there; or it is made, with those that it is in, and the parent of each new one is synced.
    pub fn has_parents(&self, make: bool) -> Result<(), StageError> {
        let mut missing = Vec::new();
        let mut at = self.parent.as_path();
        loop {
            match calls::open_directory(at) {
                Ok(_) => break,
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {
                    if !make {
                        return Err(no_parent(&self.parent));
                    }
                    missing.push(at);
                    at = match at.parent() {
                        Some(above) if !above.as_os_str().is_empty() => above,
                        _ => return Err(StageError::io("open the directory", at, error)),
                    };
                }
                Err(error) => return Err(StageError::io("open the directory", at, error)),
            }
        }
        missing.into_iter().rev().try_for_each(make_durably)
    }

    /// The directory of a set of parts, which any of its ranks makes. It is synced where it is there already, too: the rank
    /// that made it may not have done so yet.
    pub fn has_set(&self, parents: bool) -> Result<(), StageError> {
        Self::of(&self.parent)?.has_parents(parents)?;
        make_durably(&self.parent)
    }
}

/// Makes a directory, if it is not there, and its name durable.
fn make_durably(directory: &Path) -> Result<(), StageError> {
    let (above, name) = split(directory)?;
    let parent =
        calls::open_directory(above).map_err(|error| StageError::io("open the directory", above, error))?;
    match calls::make_directory(parent.as_fd(), name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
        // Another program made it; whether it was synced is not known.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::EXIST) => {}
        made => made.map_err(|error| StageError::io("make the directory", directory, error))?,
    }
    calls::sync(parent.as_fd(), Barrier::NewParent).map_err(|error| StageError::sync("fsync", above, error))
}

/// Refuses a request that its job could only refuse as well: a source that is neither a file nor a directory or has no
/// name; a destination that is the source or lies in it, whose parent is not a directory, or whose name is taken by
/// something of another kind or size; a bucket in which no set is named; a move into memory, and what a semaphore asks for there. What may not be read is left to
/// the job.
///
/// # Errors
/// [`StageError::Invalid`], [`StageError::Refused`] or [`StageError::Exists`], before anything is journalled.
pub fn check_request(spec: &JobSpec) -> Result<(), StageError> {
    for place in [&spec.source, &spec.destination] {
        if let Place::Object(url) = place {
            url.set_name()?;
        }
    }
    let (from, to) = (mounts::of_place(&spec.source, false), mounts::of_place(&spec.destination, true));
    mounts::check_lasting(spec, [from.as_ref(), to.as_ref()])?;
    mounts::check_semaphore(spec, to.as_ref())?;
    let Some(path) = spec.source.path() else { return Ok(()) };
    let source = match Source::open(path, spec.watched()) {
        Err(StageError::Io { .. }) => return Ok(()),
        source => source?,
    };
    let Some(path) = spec.destination.path() else { return Ok(()) };
    let destination = Destination::of(path)?;
    let parent = match calls::open_directory(&destination.parent) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTDIR) => {
            return Err(StageError::invalid(
                format!("{}: is not a directory", crate::error::shown(&destination.parent)),
                "name a destination in a directory",
            ));
        }
        Err(_) => return Ok(()),
        Ok(parent) => parent,
    };
    check(&source.local(), &parent, &destination, spec.verb)?;
    let stat = |parent: &OwnedFd, name: &OsStr| calls::stat_at(parent.as_fd(), name).ok();
    let (Some(taken), Some(own)) = (stat(&parent, &destination.name), stat(&source.parent, &source.name))
    else {
        return Ok(());
    };
    let kind = FileType::from_raw_mode(taken.stx_mode.into());
    let same_kind = kind == FileType::from_raw_mode(own.stx_mode.into());
    if same_kind && (source.is_directory || taken.stx_size == own.stx_size) {
        return Ok(());
    }
    let word = match kind {
        FileType::Directory => "a directory",
        FileType::RegularFile if same_kind => "a file of another size",
        FileType::RegularFile => "a file",
        FileType::Symlink => "a symbolic link",
        _ => "neither a file nor a directory",
    };
    Err(StageError::Exists {
        what: format!("{}: is there already, and is {word}", crate::error::shown(path)),
        hint: "a destination is never overwritten: name another one, or move away what is there".to_owned(),
    })
}

/// Opens a directory at or below `root`, whose path begins with that of `root`.
pub(super) fn open_below(root_fd: &OwnedFd, root: &Path, path: &Path) -> std::io::Result<OwnedFd> {
    let below = path.strip_prefix(root).unwrap_or(path);
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    calls::open_beneath(root_fd.as_fd(), below, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Refuses what would lose the source: a destination that is the source, or lies in it.
pub fn check(
    source: &Local<'_>,
    parent: &OwnedFd,
    destination: &Destination,
    verb: Verb,
) -> Result<(), StageError> {
    let shown = crate::error::shown(&destination.path());
    match calls::stat_at(parent.as_fd(), &destination.name) {
        Err(error) if calls::is_not_there(&error) => {}
        found => {
            let stat = found.map_err(|error| StageError::io("look at", &destination.path(), error))?;
            let inode = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
            if inode == source.inode && enforced(Check::SourceIsNotDestination) {
                let what = format!("{shown}: is the source itself, under this name or another");
                return Err(StageError::refused(what, "name another destination; nothing was touched"));
            }
        }
    }
    if source.is_directory {
        let mut at =
            parent.try_clone().map_err(|error| StageError::io("duplicate", &destination.parent, error))?;
        let mut before = None;
        loop {
            let stat = calls::stat(at.as_fd())
                .map_err(|error| StageError::io("look at", &destination.parent, error))?;
            let inode = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
            if inode == source.inode && enforced(Check::DestinationOutsideSource) {
                let word = if verb == Verb::Move { "moved" } else { "copied" };
                return Err(StageError::refused(
                    format!("{shown}: lies in what is to be {word}, {}", crate::error::shown(source.path)),
                    "name a destination outside of it",
                ));
            }
            if before == Some(inode) {
                break;
            }
            before = Some(inode);
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            at = match calls::open_at(at.as_fd(), "..".as_ref(), flags, Mode::empty()) {
                Ok(above) => above,
                // Above what this caller may look into; the source, which they may, is not there.
                Err(_) => break,
            };
        }
    }
    Ok(())
}

/// A path's directory and its last name.
fn split(path: &Path) -> Result<(&Path, &OsStr), StageError> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            Ok((if parent.as_os_str().is_empty() { Path::new(".") } else { parent }, name))
        }
        _ => Err(StageError::invalid(
            format!("{}: has no last name that could be moved", crate::error::shown(path)),
            "name a file or directory in a directory",
        )),
    }
}
