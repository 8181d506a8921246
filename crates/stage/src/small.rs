//! Small files: read at once, digested, written, and read back around the page cache once they are durable.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Advice, FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use storage::device::AlignedBuffer;

use crate::calls;
use crate::digest::{Algorithm, Digest};
use crate::error::StageError;
use crate::journal::{Done, Identity};
use crate::manifest::Kind;
use crate::metadata;
use crate::names::PathText;
use crate::pace::{Pace, Progress, Stop};
use crate::spec::Preserve;
use crate::tree::{Directory, entry_of};

/// Files from this size on are copied by the chunk.
pub const LARGE: u64 = 4 << 20;
/// What direct I/O has to be aligned to, on any drive there is.
const BLOCK: usize = 4096;

/// How files are copied: the same for all of a job.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The source's root as a person reads it.
    pub source: &'a Path,
    /// The part's root as a person reads it.
    pub part: &'a Path,
    /// How bytes are digested.
    pub algorithm: Algorithm,
    /// What goes with them.
    pub preserve: Preserve,
    /// Sync each file by itself, because the file system's own sync is not known to tell of errors.
    pub sync_each: bool,
    /// What holds it back.
    pub pace: &'a dyn Pace,
    /// What ends it.
    pub stop: &'a Stop,
    /// What is counted.
    pub progress: &'a Progress,
}

/// A file in the part that is written and not yet known to be durable.
#[derive(Debug)]
pub struct Written {
    /// Where.
    pub directory: Arc<Directory>,
    /// The name of the source there.
    pub name: std::ffi::OsString,
    /// The name of the copy, where it is another.
    pub copy_name: Option<std::ffi::OsString>,
    /// What will be recorded.
    pub done: Done,
}

/// What became of a name.
#[derive(Debug)]
pub enum Copied {
    /// It was written.
    Written(Written),
    /// It is too large for one piece.
    Large,
    /// It has other names as well.
    Linked {
        /// The device and inode that they share.
        inode: (u32, u32, u64),
    },
}

/// Bytes of one file at a time, aligned for direct I/O.
pub struct Copier {
    buffer: AlignedBuffer,
}

impl Default for Copier {
    fn default() -> Self {
        // One byte more than the largest small file shows that a file has grown; direct reads take whole blocks.
        Self { buffer: AlignedBuffer::zeroed(LARGE as usize + BLOCK, BLOCK) }
    }
}

impl Copier {
    /// Copies one name of a directory that is no directory. With `links`, a file of several names is left to those
    /// who know all of them.
    ///
    /// # Errors
    /// The kernel's; a source that is of no kind that can be copied, or changes.
    pub fn copy(
        &mut self,
        directory: &Arc<Directory>,
        name: &OsStr,
        links: bool,
        terms: &Terms<'_>,
    ) -> Result<Copied, StageError> {
        let path = directory.path.join(name);
        self.copy_as(directory, name, None, path, links, terms)
    }

    /// Copies one name to another. `path` is what is recorded.
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn copy_as(
        &mut self,
        directory: &Arc<Directory>,
        name: &OsStr,
        copy_name: Option<&OsStr>,
        path: PathBuf,
        links: bool,
        terms: &Terms<'_>,
    ) -> Result<Copied, StageError> {
        let shown = || joined(terms.source, &path);
        // O_NONBLOCK, because a FIFO without a writer would hold the open for ever; it means nothing to a file.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let source = match calls::open_at(directory.source.as_fd(), name, flags, Mode::empty()) {
            Ok(source) => source,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    Some(Errno::LOOP) => self.link(directory, name, path, terms),
                    Some(Errno::NXIO) => Err(special(&shown())),
                    _ => Err(StageError::io("open", &shown(), error)),
                };
            }
        };
        let stat = calls::stat(source.as_fd()).map_err(|error| StageError::io("look at", &shown(), error))?;
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
            return Err(special(&shown()));
        }
        if links && stat.stx_nlink > 1 {
            return Ok(Copied::Linked { inode: (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino) });
        }
        if stat.stx_size >= LARGE || terms.preserve.sparse && has_holes(&stat) {
            return Ok(Copied::Large);
        }
        let destination = create(directory.copy.as_fd(), copy_name.unwrap_or(name), OFlags::WRONLY)
            .map_err(|error| StageError::io("create", &joined(terms.part, &path), error))?;
        let done = self.file(&source, &stat, &destination, &path, terms)?;
        let copy_name = copy_name.map(OsStr::to_owned);
        Ok(Copied::Written(Written {
            directory: Arc::clone(directory),
            name: name.to_owned(),
            copy_name,
            done,
        }))
    }

    /// Copies a small file between two open ones: bytes, then what goes with them.
    ///
    /// # Errors
    /// The kernel's; a source that changes.
    pub fn file(
        &mut self,
        source: &OwnedFd,
        stat: &Statx,
        destination: &OwnedFd,
        path: &Path,
        terms: &Terms<'_>,
    ) -> Result<Done, StageError> {
        let size = stat.stx_size as usize;
        terms.progress.files_total.fetch_add(1, Relaxed);
        terms.progress.bytes_total.fetch_add(size as u64, Relaxed);
        terms.pace.admit(size as u64, 2, terms.stop);
        terms.stop.check()?;
        let from = || joined(terms.source, path);
        let to = || joined(terms.part, path);
        let read = calls::read_at(source.as_fd(), &mut self.buffer[..size + 1], 0)
            .map_err(|error| StageError::io_at("read", &from(), 0, error))?;
        if read != size {
            let how = if read < size { "it became shorter" } else { "it became longer" };
            return Err(StageError::SourceChanged {
                path: crate::error::shown(&from()),
                how: how.to_owned(),
            });
        }
        let bytes = &self.buffer[..size];
        let mut entry = entry_of(path, Kind::File, stat);
        entry.digest = Some(terms.algorithm.of(bytes));
        calls::write_at(destination.as_fd(), bytes, 0)
            .map_err(|error| StageError::io_at("write", &to(), 0, error))?;
        terms.progress.bytes_written.fetch_add(size as u64, Relaxed);
        metadata::apply(
            Some(source.as_fd()),
            destination.as_fd(),
            &entry,
            terms.preserve,
            &to(),
            terms.progress,
        )?;
        if terms.sync_each {
            calls::sync(destination.as_fd()).map_err(|error| StageError::io("fsync", &to(), error))?;
        } else {
            calls::begin_writeback(destination.as_fd());
        }
        Ok(Done { entry, source: Identity::of(stat) })
    }

    /// Copies a symbolic link: what it says, wherever that leads.
    fn link(
        &mut self,
        directory: &Arc<Directory>,
        name: &OsStr,
        path: PathBuf,
        terms: &Terms<'_>,
    ) -> Result<Copied, StageError> {
        let from = |what: &'static str| {
            let path = &path;
            move |error| StageError::io(what, &joined(terms.source, path), error)
        };
        let to = |what: &'static str| {
            let path = &path;
            move |error| StageError::io(what, &joined(terms.part, path), error)
        };
        let stat = calls::stat_at(directory.source.as_fd(), name).map_err(from("look at"))?;
        let target = calls::read_link(directory.source.as_fd(), name).map_err(from("read the link"))?;
        let copy = directory.copy.as_fd();
        match calls::symlink(&target, copy, name) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::EXIST) => {
                calls::remove_file(copy, name).map_err(to("remove an earlier copy"))?;
                calls::symlink(&target, copy, name).map_err(to("make the link"))?;
            }
            made => made.map_err(to("make the link"))?,
        }
        let mut entry = entry_of(&path, Kind::Symlink, &stat);
        entry.target = Some(PathText(target.into()));
        if terms.preserve.owner && calls::set_owner_at(copy, name, entry.uid, entry.gid).is_err() {
            terms.progress.not_preserved.fetch_add(1, Relaxed);
        }
        if terms.preserve.times {
            let modified = (entry.mtime_s, entry.mtime_ns);
            calls::set_times_at(copy, name, modified, modified).map_err(to("set the times"))?;
        }
        terms.progress.files_total.fetch_add(1, Relaxed);
        let done = Done { entry, source: Identity::of(&stat) };
        Ok(Copied::Written(Written {
            directory: Arc::clone(directory),
            name: name.to_owned(),
            copy_name: None,
            done,
        }))
    }

    /// Reads a copy back around the cache, after it was synced, and looks whether the source is still what was read.
    ///
    /// # Errors
    /// The kernel's; what was read back is something else; the source changed.
    pub fn verify(&mut self, written: &Written, terms: &Terms<'_>) -> Result<(), StageError> {
        let Written { directory, name, copy_name, done } = written;
        let copy_name = copy_name.as_deref().unwrap_or(name);
        let path = &done.entry.path.0;
        let to = || joined(terms.part, path);
        match (done.entry.kind, done.entry.digest) {
            (Kind::File, Some(expected)) => {
                let found = self
                    .read_back(directory.copy.as_fd(), copy_name, done.entry.size, terms.algorithm)
                    .map_err(|error| StageError::io("read back", &to(), error))?;
                if found != expected {
                    return Err(StageError::Corrupt {
                        path: crate::error::shown(&to()),
                        offset: 0,
                        expected: expected.text(terms.algorithm),
                        found: found.text(terms.algorithm),
                    });
                }
                terms.progress.bytes_verified.fetch_add(done.entry.size, Relaxed);
            }
            _ => {
                let target = calls::read_link(directory.copy.as_fd(), copy_name)
                    .map_err(|error| StageError::io("read the link", &to(), error))?;
                let wanted = done.entry.target.as_ref().map(|target| target.0.as_os_str());
                if wanted != Some(&target) {
                    return Err(StageError::Corrupt {
                        path: crate::error::shown(&to()),
                        offset: 0,
                        expected: wanted
                            .map(|wanted| crate::error::shown(Path::new(wanted)))
                            .unwrap_or_default(),
                        found: crate::error::shown(Path::new(&target)),
                    });
                }
            }
        }
        unchanged(directory.source.as_fd(), name, &done.source, &joined(terms.source, path))
    }

    /// The digest of a small file as the medium has it. Direct I/O goes around the cache; where a file system does it
    /// through the cache after all, or not at all, the pages that were written are dropped first.
    fn read_back(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        size: u64,
        algorithm: Algorithm,
    ) -> io::Result<Digest> {
        let size = size as usize;
        let room = (size + 1).next_multiple_of(BLOCK);
        let direct = calls::open_at(directory, name, OFlags::RDONLY | OFlags::DIRECT, Mode::empty());
        let read = direct.and_then(|file| {
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
            calls::read_at(file.as_fd(), &mut self.buffer[..room], 0)
        });
        let read = match read {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                let file = calls::open_at(directory, name, OFlags::RDONLY, Mode::empty())?;
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
                calls::read_at(file.as_fd(), &mut self.buffer[..size + 1], 0)?
            }
            read => read?,
        };
        if read != size {
            return Err(io::Error::other(format!("{read} bytes are there, and {size} were written")));
        }
        Ok(algorithm.of(&self.buffer[..size]))
    }
}

/// Is the name still the file that was read?
///
/// # Errors
/// [`StageError::SourceChanged`]; the kernel's.
pub fn unchanged(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    read: &Identity,
    shown: &Path,
) -> Result<(), StageError> {
    let changed =
        |how: &str| StageError::SourceChanged { path: crate::error::shown(shown), how: how.to_owned() };
    let stat = match calls::stat_at(directory, name) {
        Ok(stat) => stat,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {
            return Err(changed("it is gone"));
        }
        Err(error) => return Err(StageError::io("look at", shown, error)),
    };
    read.change(&Identity::of(&stat)).map_or(Ok(()), |how| Err(changed(how)))
}

/// A new file of a part. What an earlier attempt left under its name is removed, never written over: its pages may
/// be the ones whose fsync failed.
///
/// # Errors
/// The kernel's.
pub fn create(directory: BorrowedFd<'_>, name: &OsStr, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::CREATE | OFlags::EXCL;
    let mode = Mode::RUSR | Mode::WUSR;
    match calls::open_at(directory, name, flags, mode) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::EXIST) => {
            calls::remove_file(directory, name)?;
            calls::open_at(directory, name, flags, mode)
        }
        opened => opened,
    }
}

/// A path below a root, where the root itself has the empty path.
#[must_use]
pub fn joined(root: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { root.to_owned() } else { root.join(path) }
}

/// Does it take clearly less room than it is long?
fn has_holes(stat: &Statx) -> bool {
    stat.stx_size > 64 << 10 && stat.stx_blocks * 512 + (BLOCK as u64) < stat.stx_size
}

fn special(shown: &Path) -> StageError {
    StageError::refused(
        format!("{}: neither a file nor a directory nor a link", crate::error::shown(shown)),
        "sockets, FIFOs and devices are not moved; remove it, or move what is beside it",
    )
}
