//! Small files: read at once, digested and written; [read back](back) around the page cache once they are durable.

mod back;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use storage::device::AlignedBuffer;
use storage::transfer::RequestError;

use crate::calls;
use crate::digest::Algorithm;
use crate::error::StageError;
use crate::fault::Barrier;
use crate::journal::{Done, Identity};
use crate::manifest::Kind;
use crate::metadata;
use crate::names::{PathText, joined};
use crate::pace::{Pace, Progress, Stop};
use crate::reads::{Completion, Reads};
use crate::spec::Preserve;
use crate::tree::{Directory, entry_of};
use crate::uncached::{BLOCK, refuses_direct};

/// Files from this size on are copied by the chunk.
pub const LARGE: u64 = 4 << 20;

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
    /// The source as a whole was not synced: a file of it is, before its holes are looked for.
    pub sync_source: bool,
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
#[allow(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
pub enum Copied {
    /// It was written.
    Written(Written),
    /// It is too large for one piece: so many bytes.
    Large(u64),
    /// It has other names as well.
    Linked {
        /// The device and inode that they share.
        inode: (u32, u32, u64),
    },
}

/// Bytes of one file, or of several at once, aligned for direct I/O: for one thread.
pub struct Copier {
    buffer: AlignedBuffer,
    /// Made when the first file comes that can be read beside others.
    reads: Option<Reads>,
    /// Sources are opened with O_DIRECT, which spares them the page cache, until a file system refuses it.
    direct: bool,
}

impl Default for Copier {
    fn default() -> Self {
        // One byte more than the largest small file shows that a file has grown; direct reads take whole blocks.
        Self { buffer: AlignedBuffer::zeroed(LARGE as usize + BLOCK, BLOCK), reads: None, direct: true }
    }
}

/// A source that is open and was looked at.
struct Opened {
    file: Arc<OwnedFd>,
    stat: Statx,
    direct: bool,
    name: std::ffi::OsString,
    path: PathBuf,
}

/// What a name is.
enum Examined {
    /// A file to be copied here.
    File(Opened),
    /// Something else, or a file for others.
    Otherwise(Copied),
}

impl Copier {
    /// Copies one name of a directory that is no directory. With `links`, a file of several names is left to those
    /// who know all of them.
    ///
    /// # Errors
    /// A source that is of no kind that can be copied, or changes.
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

    /// Copies one name to another, which is open and empty. `path` is what is recorded.
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn copy_as(
        &mut self,
        directory: &Arc<Directory>,
        name: &OsStr,
        copy: Option<(&OsStr, &OwnedFd)>,
        path: PathBuf,
        links: bool,
        terms: &Terms<'_>,
    ) -> Result<Copied, StageError> {
        match self.examine(directory, name, path, links, terms)? {
            Examined::Otherwise(copied) => Ok(copied),
            Examined::File(opened) => {
                admit(&opened, terms)?;
                self.copy_alone(directory, opened, copy, terms)
            }
        }
    }

    /// Copies names of one directory, small files among them read side by side. `each` is told what became of every
    /// one, in no particular order.
    ///
    /// # Errors
    /// As [`Self::copy`], and those of `each`; some of the others may have been copied then.
    pub fn copy_many(
        &mut self,
        directory: &Arc<Directory>,
        names: Vec<std::ffi::OsString>,
        links: bool,
        terms: &Terms<'_>,
        each: &mut dyn FnMut(&OsStr, Copied) -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        let mut reads = self.reads()?;
        let mut under_way: Vec<Option<Opened>> = Vec::with_capacity(names.len());
        for name in names {
            let path = directory.path.join(&name);
            let opened = match self.examine(directory, &name, path, links, terms)? {
                Examined::Otherwise(copied) => {
                    each(&name, copied)?;
                    continue;
                }
                Examined::File(opened) => opened,
            };
            admit(&opened, terms)?;
            if !Reads::takes(opened.stat.stx_size) {
                let copied = self.copy_alone(directory, opened, None, terms)?;
                each(&name, copied)?;
                continue;
            }
            if reads.is_full() {
                while !reads.has_room() && self.arrive(directory, &mut reads, &mut under_way, terms, each)? {}
            }
            reads
                .start(&opened.file, opened.stat.stx_size, opened.direct, under_way.len())
                .map_err(|errno| StageError::io_at("read", &joined(terms.source, &opened.path), 0, errno))?;
            under_way.push(Some(opened));
        }
        while self.arrive(directory, &mut reads, &mut under_way, terms, each)? {}
        self.reads = Some(reads);
        Ok(())
    }

    /// Takes the window, with nothing under way.
    fn reads(&mut self) -> Result<Reads, StageError> {
        match self.reads.take() {
            Some(reads) => Ok(reads),
            None => {
                Reads::new().map_err(|error| StageError::io("set up reads", Path::new("io_uring"), error))
            }
        }
    }

    /// Copies the next file whose read has completed. False if none is under way.
    fn arrive(
        &mut self,
        directory: &Arc<Directory>,
        reads: &mut Reads,
        under_way: &mut [Option<Opened>],
        terms: &Terms<'_>,
        each: &mut dyn FnMut(&OsStr, Copied) -> Result<(), StageError>,
    ) -> Result<bool, StageError> {
        let completion = reads.next().map_err(|error| StageError::io("read", terms.source, error))?;
        let Some(Completion { tag, slot, result }) = completion else { return Ok(false) };
        let opened = under_way[tag].take().expect("a read completes once");
        let name = opened.name.clone();
        let copied = match result {
            Ok(read) => write(directory, opened, None, read, reads.buffer(slot), terms)?,
            Err(RequestError::Short { .. }) => return Err(changed(&opened, "it became shorter", terms)),
            Err(RequestError::Os(error)) if refuses_direct(&error) && opened.direct => {
                self.direct = false;
                self.copy_alone(directory, opened, None, terms)?
            }
            Err(RequestError::Os(error)) => {
                return Err(StageError::io_at("read", &joined(terms.source, &opened.path), 0, error));
            }
        };
        reads.release(slot);
        each(&name, copied)?;
        Ok(true)
    }

    /// Opens a name, and returns what it is.
    fn examine(
        &mut self,
        directory: &Arc<Directory>,
        name: &OsStr,
        path: PathBuf,
        links: bool,
        terms: &Terms<'_>,
    ) -> Result<Examined, StageError> {
        let shown = || joined(terms.source, &path);
        let file = match self.open(directory, name) {
            Ok(file) => file,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    // A move of one file, which was a file when it was looked at: its copy has a part's name, and another
                    // program's file may have its own name there.
                    Some(Errno::LOOP) if path.as_os_str().is_empty() => Err(StageError::SourceChanged {
                        path: crate::error::shown(&shown()),
                        how: "it became a symbolic link".to_owned(),
                    }),
                    Some(Errno::LOOP) => self.link(directory, name, path, terms).map(Examined::Otherwise),
                    Some(Errno::NOENT) => Err(StageError::SourceChanged {
                        path: crate::error::shown(&shown()),
                        how: "it is gone".to_owned(),
                    }),
                    Some(Errno::NXIO) => Err(special(&shown())),
                    _ => Err(StageError::io("open", &shown(), error)),
                };
            }
        };
        let stat = calls::stat(file.as_fd()).map_err(|error| StageError::io("look at", &shown(), error))?;
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
            return Err(special(&shown()));
        }
        if links && stat.stx_nlink > 1 {
            let inode = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
            return Ok(Examined::Otherwise(Copied::Linked { inode }));
        }
        if stat.stx_size >= LARGE || terms.preserve.sparse && has_holes(&stat) {
            return Ok(Examined::Otherwise(Copied::Large(stat.stx_size)));
        }
        Ok(Examined::File(Opened {
            file: Arc::new(file),
            stat,
            direct: self.direct,
            name: name.to_owned(),
            path,
        }))
    }

    fn open(&mut self, directory: &Directory, name: &OsStr) -> io::Result<OwnedFd> {
        // O_NONBLOCK, because a FIFO without a writer would hold the open for ever; it means nothing to a file.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        if self.direct {
            match calls::open_at(directory.source.as_fd(), name, flags | OFlags::DIRECT, Mode::empty()) {
                Err(error) if refuses_direct(&error) => self.direct = false,
                opened => return opened,
            }
        }
        calls::open_at(directory.source.as_fd(), name, flags, Mode::empty())
    }

    /// Copies a small file while nothing else is read.
    fn copy_alone(
        &mut self,
        directory: &Arc<Directory>,
        mut opened: Opened,
        copy: Option<(&OsStr, &OwnedFd)>,
        terms: &Terms<'_>,
    ) -> Result<Copied, StageError> {
        // A whole number of blocks, and at least a byte more than there should be.
        let room = (opened.stat.stx_size as usize + 1).next_multiple_of(BLOCK);
        let mut read = calls::read_at(opened.file.as_fd(), &mut self.buffer[..room], 0);
        if opened.direct && read.as_ref().is_err_and(refuses_direct) {
            self.direct = false;
            let reopened = self.open(directory, &opened.name);
            opened.direct = false;
            read = reopened.and_then(|file| {
                opened.file = Arc::new(file);
                calls::read_at(opened.file.as_fd(), &mut self.buffer[..room], 0)
            });
        }
        let read =
            read.map_err(|error| StageError::io_at("read", &joined(terms.source, &opened.path), 0, error))?;
        write(directory, opened, copy, read, &self.buffer, terms)
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
        let done = Done::new(entry, Identity::of(&stat));
        Ok(Copied::Written(Written {
            directory: Arc::clone(directory),
            name: name.to_owned(),
            copy_name: None,
            done,
        }))
    }
}

/// Counts a file in, and waits until it may be moved.
fn admit(opened: &Opened, terms: &Terms<'_>) -> Result<(), StageError> {
    terms.progress.files_total.fetch_add(1, Relaxed);
    terms.progress.bytes_total.fetch_add(opened.stat.stx_size, Relaxed);
    terms.pace.admit(opened.stat.stx_size, 2, terms.stop);
    terms.stop.check()
}

/// Writes a copy of what was read, `read` bytes of `buffer`: bytes, then what goes with them.
fn write(
    directory: &Arc<Directory>,
    opened: Opened,
    copy: Option<(&OsStr, &OwnedFd)>,
    read: usize,
    buffer: &[u8],
    terms: &Terms<'_>,
) -> Result<Copied, StageError> {
    let size = opened.stat.stx_size as usize;
    if read != size {
        let how = if read < size { "it became shorter" } else { "it became longer" };
        return Err(changed(&opened, how, terms));
    }
    let Opened { file, stat, name, path, .. } = opened;
    let to = || joined(terms.part, &path);
    let made;
    let destination = match copy {
        Some((_, file)) => file,
        None => {
            made = calls::create(directory.copy.as_fd(), &name, OFlags::WRONLY)
                .map_err(|error| StageError::io("create", &to(), error))?;
            &made
        }
    };
    let bytes = &buffer[..size];
    let mut entry = entry_of(&path, Kind::File, &stat);
    entry.digest = Some(terms.algorithm.of(bytes));
    // All of it in one call, and no write-back begun: the sync of the group allocates and writes many files together,
    // which costs less than the same done for one after another.
    calls::write_at(destination.as_fd(), bytes, 0)
        .map_err(|error| StageError::io_at("write", &to(), 0, error))?;
    terms.progress.bytes_written.fetch_add(size as u64, Relaxed);
    let source = Some(file.as_fd());
    metadata::apply(source, destination.as_fd(), &entry, terms.preserve, &to(), terms.progress)?;
    if terms.sync_each {
        calls::sync(destination.as_fd(), Barrier::SmallFile)
            .map_err(|error| StageError::sync("fsync", &to(), error))?;
    }
    let done = Done::new(entry, Identity::of(&stat));
    let copy_name = copy.map(|(name, _)| name.to_owned());
    Ok(Copied::Written(Written { directory: Arc::clone(directory), name, copy_name, done }))
}

fn changed(opened: &Opened, how: &str, terms: &Terms<'_>) -> StageError {
    let path = crate::error::shown(&joined(terms.source, &opened.path));
    StageError::SourceChanged { path, how: how.to_owned() }
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

/// Makes the small files durable that were written to a part: one sync of its file system for all of them.
pub fn sync_group(part: BorrowedFd<'_>, path: &Path) -> Result<(), StageError> {
    calls::sync_file_system(part, Barrier::SmallGroup)
        .map_err(|error| StageError::sync("syncfs", path, error))
}
