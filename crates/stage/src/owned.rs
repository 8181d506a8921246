//! What a job has made, told from what others have, and removed.
//!
//! In a directory that others may write to, a name says nothing: it can be taken away and given to something else between
//! any two calls. A part is known by its inode and time of birth ([`FileId`]), which the journal holds before anything is
//! put into it, on the mount that the journal holds ([`crate::mounts`]). It is opened through no link and worked on by
//! its descriptor. Anything else under its name is left where it is.
//!
//! A crash between the making of a part and the journal's record of it leaves a name without an identity. Then what has
//! the name is removed only if it is empty, by rmdir(2) or, of a file of no bytes or a symbolic link, unlink(2): nothing can
//! be lost by it.
//!
//! One window is left: unlinkat(2) takes a name, so what gets it in the moment after the last look at it is removed in the
//! part's stead, if it is an empty directory, or a file in the place of a part that is a file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::calls;
use crate::error::{RETRY, StageError};
use crate::fault::{Check, enforced};

/// Which file or directory it is, of those on its mount. The number of an inode is given to another file when the first
/// has gone; its time of birth is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileId {
    /// Inode.
    pub ino: u64,
    /// Time of birth, nanoseconds since 1970, where the file system keeps it.
    pub born: Option<i64>,
}

impl FileId {
    /// Of what an open descriptor leads to.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        calls::stat(file).map(|stat| Self::in_stat(&stat))
    }

    /// Of what has a name in a directory, followed nowhere; none where nothing has it.
    pub fn at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Self>> {
        match calls::stat_at(directory, name) {
            Ok(stat) => Ok(Some(Self::in_stat(&stat))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Of what statx(2) said. The root of another mount has number 0 here, which nothing has that was made.
    pub(crate) fn in_stat(stat: &Statx) -> Self {
        let born = (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| {
            let time = &stat.stx_btime;
            time.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.tv_nsec))
        });
        Self { ino: if is_mount_root(stat) { 0 } else { stat.stx_ino }, born }
    }

    /// Is it this one? A time of birth counts where both have one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let born = self.born.zip(other.born).is_none_or(|(one, other)| one == other);
        self.ino != 0 && self.ino == other.ino && born
    }
}

/// Is it the root of a mount? Kernels before 5.8 never say so.
pub(crate) fn is_mount_root(stat: &Statx) -> bool {
    stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// What has the name of something that was made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing, or nothing any more.
    Nothing,
    /// Something that was not made here. It was not touched.
    Foreign,
}

impl Left {
    /// Words for what was left, for a job's notes.
    #[must_use]
    pub fn note(self, path: &Path) -> Option<String> {
        (self == Self::Foreign).then(|| {
            format!("{} is not what was made under that name; it was left", crate::error::shown(path))
        })
    }
}

/// Opens a part for reading, and a file for writing as well; none where it is not what has the name. Its mode may be final
/// already, and forbid even its owner.
pub fn open(parent: BorrowedFd<'_>, name: &OsStr, made: &FileId) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let path = match calls::open_at(parent, name, flags, Mode::empty()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let stat = calls::stat(path.as_fd())?;
    if !FileId::in_stat(&stat).is(made) && enforced(Check::PartOnResume) {
        return Ok(None);
    }
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => open_directory(&path).map(Some),
        FileType::RegularFile => {
            let file = calls::open_at(parent, name, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty())?;
            let is_it = FileId::of(file.as_fd())?.is(made) || !enforced(Check::PartOnResume);
            Ok(is_it.then_some(file))
        }
        _ => Ok(None),
    }
}

/// The directory that a descriptor of O_PATH leads to, for reading; it is opened up for its owner if it has to be.
pub fn open_directory(path: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    match calls::open_at(path.as_fd(), OsStr::new("."), flags, Mode::empty()) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => {
            calls::set_mode_of_path(path.as_fd(), 0o700)?;
            calls::open_at(path.as_fd(), OsStr::new("."), flags, Mode::empty())
        }
        opened => opened,
    }
}

/// Removes a part with all below it, following no link, if it is what has the name. Where no identity was recorded, what
/// has the name is removed if it is empty.
pub fn discard(
    parent: &OwnedFd,
    name: &OsStr,
    shown: &Path,
    made: Option<&FileId>,
) -> Result<Left, StageError> {
    let shown = shown.join(name);
    let failed = |error| StageError::io("remove", &shown, error);
    let parent = parent.as_fd();
    let stat = match calls::stat_at(parent, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Left::Nothing),
        stat => stat.map_err(failed)?,
    };
    let kind = FileType::from_raw_mode(stat.stx_mode.into());
    let removed = match (made, kind) {
        (Some(made), _) if !FileId::in_stat(&stat).is(made) && enforced(Check::DiscardedPart) => {
            return Ok(Left::Foreign);
        }
        (Some(_), FileType::Directory) => {
            let made = &FileId::in_stat(&stat);
            let Some(directory) = open(parent, name, made).map_err(failed)? else {
                return Ok(Left::Foreign);
            };
            empty(&directory, &shown)?;
            if !FileId::at(parent, name).map_err(failed)?.is_some_and(|there| there.is(made)) {
                return Ok(Left::Foreign);
            }
            calls::remove_directory(parent, name)
        }
        (None, FileType::Directory) => calls::remove_directory(parent, name),
        (None, FileType::RegularFile) if stat.stx_size > 0 || stat.stx_nlink > 1 => return Ok(Left::Foreign),
        (Some(_), _) | (None, FileType::RegularFile | FileType::Symlink) => calls::remove_file(parent, name),
        (None, _) => return Ok(Left::Foreign),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Left::Nothing),
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY | Errno::NOTDIR | Errno::ISDIR)
            ) =>
        {
            Ok(Left::Foreign)
        }
        removed => removed.map(|()| Left::Nothing).map_err(failed),
    }
}

/// Removes a name inside of a part, with all below it. No name in there can be moved by others: a part is its owner's
/// alone until all is in it.
///
/// # Errors
/// The kernel's; another file system is mounted there.
pub fn discard_inside(part: BorrowedFd<'_>, name: &OsStr, shown: &Path) -> Result<(), StageError> {
    if unlinked(part, name, shown)? {
        return Ok(());
    }
    let shown = shown.join(name);
    let failed = |error| StageError::io("remove", &shown, error);
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let path = calls::open_at(part, name, flags, Mode::empty()).map_err(failed)?;
    if is_mount_root(&calls::stat(path.as_fd()).map_err(failed)?) {
        return Err(failed(Errno::BUSY.into()));
    }
    empty(&open_directory(&path).map_err(failed)?, &shown)?;
    calls::remove_directory(part, name).map_err(failed)
}

/// A directory on the way to the one that is emptied.
struct Level {
    /// The name of the directory below it that is emptied.
    name: OsString,
    /// Which one it is itself.
    id: (u32, u32, u64),
    /// Its other directories that are known of.
    waiting: Vec<OsString>,
}

/// Removes all that is in a directory, however deep it is: one directory is open at a time, and the one above it is
/// reached by `..` and has to be the one that it was reached from.
fn empty(directory: &OwnedFd, shown: &Path) -> Result<(), StageError> {
    let failed = |error| StageError::io("remove", shown, error);
    let inode = |file: &OwnedFd| {
        let of = |stat: Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        calls::stat(file.as_fd()).map(of).map_err(failed)
    };
    let mut at = directory.try_clone().map_err(failed)?;
    let mut above: Vec<Level> = Vec::new();
    let mut waiting = without_files(&at, shown)?;
    loop {
        if waiting.is_empty() {
            // Names that came in since, or for which there was no room.
            waiting = without_files(&at, shown)?;
        }
        if let Some(name) = waiting.pop() {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let path = calls::open_at(at.as_fd(), &name, flags, Mode::empty()).map_err(failed)?;
            if is_mount_root(&calls::stat(path.as_fd()).map_err(failed)?) {
                return Err(StageError::io("remove", &shown.join(&name), Errno::BUSY));
            }
            above.push(Level { name, id: inode(&at)?, waiting });
            at = open_directory(&path).map_err(failed)?;
            waiting = without_files(&at, shown)?;
            continue;
        }
        let Some(level) = above.pop() else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        at = match above.is_empty() {
            true => directory.try_clone(),
            false => calls::open_at(at.as_fd(), OsStr::new(".."), flags, Mode::empty()),
        }
        .map_err(failed)?;
        if inode(&at)? != level.id {
            return Err(StageError::refused(
                format!(
                    "{}: a directory in it was moved away while it was removed",
                    crate::error::shown(shown)
                ),
                format!("look at where it is now, then: {RETRY}"),
            ));
        }
        calls::remove_directory(at.as_fd(), &level.name).map_err(failed)?;
        waiting = level.waiting;
    }
}

/// Removes the files of a directory, as far as they are listed at once, and returns with the names of its directories.
fn without_files(directory: &OwnedFd, shown: &Path) -> Result<Vec<OsString>, StageError> {
    let failed = |error| StageError::io("remove", shown, error);
    // Nothing can be removed from a directory that its owner may not write.
    let _ = calls::set_mode(directory.as_fd(), 0o700);
    loop {
        let mut names = Vec::new();
        let mut list = calls::List::of(directory.as_fd()).map_err(failed)?;
        while names.len() < 1024 {
            match list.next().map_err(failed)? {
                Some(name) => names.push(name),
                None => break,
            }
        }
        let mut directories = Vec::new();
        let is_empty = names.is_empty();
        for (name, kind) in names {
            if kind == FileType::Directory
                || kind == FileType::Unknown && !unlinked(directory.as_fd(), &name, shown)?
            {
                directories.push(name);
            } else if kind != FileType::Unknown {
                calls::remove_file(directory.as_fd(), &name)
                    .map_err(|error| StageError::io("remove", &shown.join(&name), error))?;
            }
        }
        if is_empty || !directories.is_empty() {
            return Ok(directories);
        }
    }
}

/// Removes a name that may be a directory; false if it is.
fn unlinked(directory: BorrowedFd<'_>, name: &OsStr, shown: &Path) -> Result<bool, StageError> {
    match calls::remove_file(directory, name) {
        Ok(()) => Ok(true),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Ok(true),
            Some(Errno::ISDIR | Errno::PERM) => Ok(false),
            _ => Err(StageError::io("remove", &shown.join(name), error)),
        },
    }
}

/// Where names are recorded that are about to be given to what is to be removed. The methods' defaults keep no record.
pub trait Record {
    /// Records the name `part` that a set is about to have instead of `name`, until it is decided whether it goes
    /// ([`Record::dooms`]). After a crash before that, it gets its name back.
    fn takes_aside(
        &self,
        directory: &Path,
        name: &OsStr,
        part: &OsStr,
        id: &FileId,
    ) -> Result<(), StageError> {
        let _ = (directory, name, part, id);
        Ok(())
    }

    /// What was taken aside in a directory, and is not doomed.
    fn taken_aside(&self, directory: &Path) -> Result<Vec<TakenAside>, StageError> {
        let _ = directory;
        Ok(Vec::new())
    }

    /// Records what has, or is about to have, a name in a directory and is to be removed; of a link or a probe, whose inode
    /// is not known, the name alone. Of a probe in a set the name is the set's and its own.
    fn dooms(&self, directory: &Path, name: &OsStr, id: Option<&FileId>) -> Result<(), StageError> {
        let _ = (directory, name, id);
        Ok(())
    }

    /// What is recorded for a directory.
    fn doomed(&self, directory: &Path) -> Result<Vec<(OsString, Option<FileId>)>, StageError> {
        let _ = directory;
        Ok(Vec::new())
    }

    /// Forgets a name that is gone.
    fn forgets(&self, directory: &Path, name: &OsStr) -> Result<(), StageError> {
        let _ = (directory, name);
        Ok(())
    }
}

/// No record is kept.
impl Record for () {}

/// A set without its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenAside {
    /// The name that it has.
    pub part: OsString,
    /// Its own name.
    pub name: OsString,
    /// Which directory it is.
    pub id: FileId,
}
