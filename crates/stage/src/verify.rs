//! Reading what is stored around the page cache, and comparing it with what it should be.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{FileType, Mode, OFlags};
use storage::device::AlignedBuffer;

use crate::calls;
use crate::digest::{Algorithm, Digest};
use crate::error::StageError;
use crate::manifest::{Entry, Kind};
use crate::names::joined;
use crate::pace::{Progress, Stop};
use crate::uncached::{BLOCK, Uncached};

/// Reads files by the chunk, around the cache where the file system lets it.
pub struct Reader {
    buffer: AlignedBuffer,
    chunk_bytes: u64,
}

impl Reader {
    /// One for digests of `chunk_bytes` each.
    #[must_use]
    pub fn new(chunk_bytes: u64) -> Self {
        Self { buffer: AlignedBuffer::zeroed(chunk_bytes as usize + BLOCK, BLOCK), chunk_bytes }
    }

    /// [`Self::file_chunks`] of the file at a path.
    pub fn chunks(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &Path,
        shown: &Path,
        size: u64,
        algorithm: Algorithm,
        see: &mut dyn FnMut(u64, Digest) -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file =
            Uncached::open(|direct| calls::open_beneath(directory, path, flags | direct, Mode::empty()))
                .map_err(|error| StageError::io("open", shown, error))?;
        self.file_chunks(file, shown, size, algorithm, see)
    }

    /// Digests a file by the chunk, which must have `size` bytes. `see` gets each chunk's number and digest, in order.
    ///
    /// # Errors
    /// [`StageError::Corrupt`] if the file has another size or is not a regular file; those of `see`.
    pub fn file_chunks(
        &mut self,
        mut file: Uncached,
        shown: &Path,
        size: u64,
        algorithm: Algorithm,
        see: &mut dyn FnMut(u64, Digest) -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        let stat =
            calls::stat(file.file().as_fd()).map_err(|error| StageError::io("look at", shown, error))?;
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile || stat.stx_size != size {
            return Err(differs(shown, 0, format!("{size} bytes"), format!("{} bytes", stat.stx_size)));
        }
        for chunk in 0..size.div_ceil(self.chunk_bytes).max(1) {
            let at = chunk * self.chunk_bytes;
            let length = self.chunk_bytes.min(size - at) as usize;
            let room = (length as u64 + 1).next_multiple_of(BLOCK as u64) as usize;
            let room = room.min(if at + length as u64 == size { room } else { length });
            let read = file
                .read(&mut self.buffer[..room], at)
                .map_err(|error| StageError::io_at("read back", shown, at, error))?;
            if read != length {
                return Err(differs(shown, at, format!("{length} bytes"), format!("{read} bytes")));
            }
            see(chunk, algorithm.of(&self.buffer[..length]))?;
        }
        Ok(())
    }

    /// Compares one entry of a set with what is beneath `root`.
    ///
    /// # Errors
    /// [`StageError::Corrupt`], with the offset of the chunk.
    pub fn entry(
        &mut self,
        root: BorrowedFd<'_>,
        shown_root: &Path,
        entry: &Entry,
        algorithm: Algorithm,
    ) -> Result<(), StageError> {
        let path = if entry.path.0.as_os_str().is_empty() { Path::new(".") } else { &entry.path.0 };
        let shown = joined(shown_root, &entry.path.0);
        let whole = match (entry.kind, &entry.link_to) {
            (Kind::File, None) => return self.file(root, path, &shown, entry, algorithm),
            (Kind::Directory, _) => FileType::Directory,
            (Kind::Symlink, _) => FileType::Symlink,
            (Kind::File, Some(_)) => FileType::RegularFile,
        };
        let file = calls::open_beneath(root, path, OFlags::PATH, Mode::empty())
            .map_err(|error| StageError::io("open", &shown, error))?;
        let stat = calls::stat(file.as_fd()).map_err(|error| StageError::io("look at", &shown, error))?;
        if FileType::from_raw_mode(stat.stx_mode.into()) != whole {
            return Err(differs(&shown, 0, entry.kind.word().to_owned(), "something else".to_owned()));
        }
        match (&entry.target, &entry.link_to) {
            (Some(target), _) => {
                let found = calls::read_link(file.as_fd(), "".as_ref())
                    .map_err(|error| StageError::io("read the link", &shown, error))?;
                if target.0 != Path::new(&found) {
                    return Err(differs(
                        &shown,
                        0,
                        crate::error::shown(&target.0),
                        crate::error::shown(Path::new(&found)),
                    ));
                }
            }
            (_, Some(other)) => {
                let first = calls::open_beneath(root, &other.0, OFlags::PATH, Mode::empty())
                    .and_then(|file| calls::stat(file.as_fd()))
                    .map_err(|error| StageError::io("look at", &joined(shown_root, &other.0), error))?;
                if first.stx_ino != stat.stx_ino {
                    return Err(differs(
                        &shown,
                        0,
                        "another name of a file".to_owned(),
                        "a file of its own".to_owned(),
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn file(
        &mut self,
        root: BorrowedFd<'_>,
        path: &Path,
        shown: &Path,
        entry: &Entry,
        algorithm: Algorithm,
    ) -> Result<(), StageError> {
        let mut found = Vec::new();
        let chunk_bytes = self.chunk_bytes;
        self.chunks(root, path, shown, entry.size, algorithm, &mut |chunk, digest| match entry
            .chunks
            .get(chunk as usize)
        {
            Some(expected) if *expected != digest => {
                Err(differs(shown, chunk * chunk_bytes, expected.text(algorithm), digest.text(algorithm)))
            }
            _ => {
                found.push(digest);
                Ok(())
            }
        })?;
        let found = algorithm.of_chunks(&found);
        match entry.digest {
            Some(expected) if expected == found => Ok(()),
            Some(expected) => Err(differs(shown, 0, expected.text(algorithm), found.text(algorithm))),
            None => Err(differs(shown, 0, "a digest".to_owned(), "none was recorded".to_owned())),
        }
    }
}

/// Compares entries, as they come, with what is beneath `root`, with several threads. What differs goes to `fault`,
/// which says whether to go on.
#[allow(clippy::too_many_arguments, reason = "each is something else, and there is one caller for each use")]
pub fn tree(
    root: &OwnedFd,
    shown: &Path,
    algorithm: Algorithm,
    chunk_bytes: u64,
    threads: usize,
    progress: &Progress,
    stop: &Stop,
    next: &mut (dyn FnMut() -> Result<Option<Entry>, StageError> + Send),
    fault: &(dyn Fn(StageError) -> Result<(), StageError> + Sync),
) -> Result<(), StageError> {
    let next = Mutex::new(next);
    let failure: Mutex<Option<StageError>> = Mutex::new(None);
    let ended = AtomicBool::new(false);
    let fail = |error| {
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        ended.store(true, Relaxed);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut reader = Reader::new(chunk_bytes);
                while !ended.load(Relaxed) {
                    if let Err(stopped) = stop.check() {
                        return fail(stopped);
                    }
                    let entry = (next.lock().unwrap_or_else(PoisonError::into_inner))();
                    let entry = match entry {
                        Ok(Some(entry)) => entry,
                        Ok(None) => return,
                        Err(error) => return fail(error),
                    };
                    match reader.entry(root.as_fd(), shown, &entry, algorithm) {
                        Ok(()) => {
                            progress.bytes_verified.fetch_add(entry.size, Relaxed);
                            progress.files_done.fetch_add(u64::from(entry.kind == Kind::File), Relaxed);
                        }
                        Err(error) => {
                            if let Err(error) = fault(error) {
                                return fail(error);
                            }
                        }
                    }
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn differs(shown: &Path, offset: u64, expected: String, found: String) -> StageError {
    StageError::Corrupt { path: crate::error::shown(shown), offset, expected, found }
}
