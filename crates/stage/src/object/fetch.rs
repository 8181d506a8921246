//! From a store to a directory or a file that the caller has made and will publish.
//!
//! Everything is made beneath the caller's descriptor, through no symbolic link, by names that the manifest's reader
//! has found to lead downwards only. When it returns, every byte has been compared with the manifest twice, as it came
//! and as it was read back from the file, and everything is durable but the directory's own name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Mode, OFlags};

use super::lanes::{Halt, over};
use super::sets::{chunks_of, split};
use super::{LANES, Manifest, ObjectSet};
use crate::calls;
use crate::digest::{Algorithm, Digest};
use crate::error::StageError;
use crate::manifest::{Entry, Kind};
use crate::pace::{Pace, Progress, Stop};
use crate::spec::Preserve;

/// Whoever could write to the store would otherwise make programs that run with the caller's rights.
const SETUID_SETGID: u32 = 0o6000;

/// What a fetch works with.
struct Fetch<'a> {
    set: &'a ObjectSet,
    manifest: &'a Manifest,
    preserve: &'a Preserve,
    pace: &'a dyn Pace,
    progress: &'a Progress,
    /// For messages.
    path: &'a Path,
}

impl ObjectSet {
    /// Fills an empty directory with a set that is a directory. Set-user-ID and set-group-ID bits are kept only where
    /// owners are.
    ///
    /// # Errors
    /// [`StageError::Corrupt`] for what is not as the manifest has it; the kernel's and the store's. What was made
    /// stays: the directory is the caller's to remove.
    #[allow(clippy::too_many_arguments, reason = "what every engine is given")]
    pub fn fetch_into(
        &self,
        manifest: &Manifest,
        directory: BorrowedFd<'_>,
        path: &Path,
        preserve: &Preserve,
        pace: &dyn Pace,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<(), StageError> {
        if manifest.is_file() {
            return Err(StageError::Invalid {
                what: format!("{}: it is a file, and no directory", self.shown(&self.prefix)),
                hint: None,
            });
        }
        let fetch = Fetch { set: self, manifest, preserve, pace, progress, path };
        fetch.count();
        for entry in manifest.entries.iter().filter(|entry| entry.kind == Kind::Directory && !is_root(entry))
        {
            stop.check()?;
            fetch.make_directory(directory, entry)?;
        }
        let mut files: Vec<&Entry> = manifest.files().collect();
        files.sort_by_key(|entry| std::cmp::Reverse(entry.size));
        over(&files, LANES, stop, &|entry, halt| {
            let mode = Mode::from_raw_mode(if preserve.mode { 0o600 } else { 0o666 });
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let (parent, name) = fetch.parent(directory, entry)?;
            let parent = parent.as_ref().map_or(directory, |parent| parent.as_fd());
            let file = calls::open_at(parent, name, flags, mode)
                .map_err(|error| fetch.failed("create", entry, error))?;
            fetch.file(entry, file.as_fd(), halt)
        })?;
        for entry in &manifest.entries {
            stop.check()?;
            fetch.make_link(directory, entry)?;
        }
        // From the innermost outwards: whatever is made in a directory changes its times.
        for entry in manifest.entries.iter().rev().filter(|entry| entry.kind == Kind::Directory) {
            stop.check()?;
            fetch.finish_directory(directory, entry)?;
        }
        Ok(())
    }

    /// Fills an empty file, open for reading and writing, with a set that is a file.
    ///
    /// # Errors
    /// As [`Self::fetch_into`].
    #[allow(clippy::too_many_arguments, reason = "what every engine is given")]
    pub fn fetch_file(
        &self,
        manifest: &Manifest,
        file: BorrowedFd<'_>,
        path: &Path,
        preserve: &Preserve,
        pace: &dyn Pace,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<(), StageError> {
        let Some(entry) = manifest.entries.first().filter(|_| manifest.is_file()) else {
            return Err(StageError::Invalid {
                what: format!("{}: it is a directory, and no file", self.shown(&self.prefix)),
                hint: None,
            });
        };
        let fetch = Fetch { set: self, manifest, preserve, pace, progress, path };
        fetch.count();
        fetch.file(entry, file, &Halt::new(stop))
    }
}

fn is_root(entry: &Entry) -> bool {
    entry.path.0.as_os_str().is_empty()
}

impl Fetch<'_> {
    fn count(&self) {
        let files = self.manifest.files().count() as u64;
        self.progress.files_total.store(files, Relaxed);
        self.progress.bytes_total.store(self.manifest.files().map(|file| file.size).sum(), Relaxed);
        self.progress.walked.store(true, Relaxed);
        if self.preserve.xattrs || self.preserve.acls {
            self.progress.not_preserved.fetch_add(self.manifest.entries.len() as u64, Relaxed);
        }
    }

    fn failed(&self, operation: &str, entry: &Entry, error: std::io::Error) -> StageError {
        StageError::io(operation, &self.local(entry), error)
    }

    fn local(&self, entry: &Entry) -> std::path::PathBuf {
        if is_root(entry) { self.path.to_owned() } else { self.path.join(&entry.path.0) }
    }

    /// The directory that an entry is in, opened, unless it is the set's own; and the entry's name there.
    fn parent<'e>(
        &self,
        root: BorrowedFd<'_>,
        entry: &'e Entry,
    ) -> Result<(Option<OwnedFd>, &'e std::ffi::OsStr), StageError> {
        let (parent, name) = split(&entry.path.0);
        if parent.as_os_str().is_empty() {
            return Ok((None, name));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = calls::open_beneath(root, parent, flags, Mode::empty());
        Ok((Some(opened.map_err(|error| self.failed("open the directory of", entry, error))?), name))
    }

    fn make_directory(&self, root: BorrowedFd<'_>, entry: &Entry) -> Result<(), StageError> {
        let (parent, name) = self.parent(root, entry)?;
        let parent = parent.as_ref().map_or(root, |parent| parent.as_fd());
        let mode = Mode::from_raw_mode(if self.preserve.mode { 0o700 } else { 0o777 });
        calls::make_directory(parent, name, mode)
            .map_err(|error| self.failed("make the directory", entry, error))
    }

    /// A symbolic link, or another name of a file.
    fn make_link(&self, root: BorrowedFd<'_>, entry: &Entry) -> Result<(), StageError> {
        let (parent, name) = match (&entry.target, &entry.link_to) {
            (None, None) => return Ok(()),
            _ => self.parent(root, entry)?,
        };
        let parent = parent.as_ref().map_or(root, |parent| parent.as_fd());
        if let Some(first) = &entry.link_to {
            let first = Entry { path: first.clone(), ..entry.clone() };
            let (from, old) = self.parent(root, &first)?;
            let from = from.as_ref().map_or(root, |from| from.as_fd());
            return calls::link(from, old, parent, name).map_err(|error| self.failed("link", entry, error));
        }
        let target = entry.target.clone().unwrap_or_default().0;
        calls::symlink(target.as_os_str(), parent, name)
            .map_err(|error| self.failed("make the link", entry, error))?;
        if self.preserve.owner && calls::set_owner_at(parent, name, entry.uid, entry.gid).is_err() {
            self.progress.not_preserved.fetch_add(1, Relaxed);
        }
        if self.preserve.times {
            let time = (entry.mtime_s, entry.mtime_ns);
            calls::set_times_at(parent, name, time, time)
                .map_err(|error| self.failed("set the times of", entry, error))?;
        }
        Ok(())
    }

    fn finish_directory(&self, root: BorrowedFd<'_>, entry: &Entry) -> Result<(), StageError> {
        let opened;
        let directory = if is_root(entry) {
            root
        } else {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            opened = calls::open_beneath(root, &entry.path.0, flags, Mode::empty())
                .map_err(|error| self.failed("open", entry, error))?;
            opened.as_fd()
        };
        self.metadata(entry, directory)?;
        calls::sync(directory).map_err(|error| self.failed("fsync", entry, error))
    }

    /// Owner, mode and times, in this order: a change of owner clears bits of the mode.
    fn metadata(&self, entry: &Entry, file: BorrowedFd<'_>) -> Result<(), StageError> {
        let mut mode = entry.mode & !SETUID_SETGID;
        if self.preserve.owner {
            match calls::set_owner(file, entry.uid, entry.gid) {
                Ok(()) => mode = entry.mode,
                Err(_) => {
                    self.progress.not_preserved.fetch_add(1, Relaxed);
                }
            }
        }
        if self.preserve.mode {
            calls::set_mode(file, mode).map_err(|error| self.failed("set the mode of", entry, error))?;
        }
        if self.preserve.times {
            let time = (entry.mtime_s, entry.mtime_ns);
            calls::set_times(file, time, time)
                .map_err(|error| self.failed("set the times of", entry, error))?;
        }
        Ok(())
    }

    fn file(&self, entry: &Entry, file: BorrowedFd<'_>, halt: &Halt<'_>) -> Result<(), StageError> {
        let key = self.set.key(&entry.path.0)?;
        let digests = chunks_of(entry);
        let wanted = self.set.wanted(&key, entry, &self.manifest.header);
        if !self.preserve.sparse {
            calls::reserve(file, entry.size)
                .map_err(|error| self.failed("reserve room for", entry, error))?;
        }
        calls::truncate(file, entry.size).map_err(|error| self.failed("truncate", entry, error))?;
        self.set.read(&wanted, Some(&digests), halt, self.pace, true, &mut |offset, bytes, pieces| {
            // What the file reads as anyway need not be written.
            let hole = self.preserve.sparse && pieces.iter().all(|piece| piece.iter().all(|byte| *byte == 0));
            let mut at = offset;
            for piece in pieces.iter().filter(|_| !hole) {
                calls::write_at(file, piece, at)
                    .map_err(|error| StageError::io_at("write", &self.local(entry), at, error))?;
                at += piece.len() as u64;
            }
            self.progress.bytes_written.fetch_add(bytes, Relaxed);
            Ok(())
        })?;
        self.metadata(entry, file)?;
        calls::sync(file).map_err(|error| self.failed("fsync", entry, error))?;
        self.read_back(entry, file, &digests, halt)?;
        self.progress.files_done.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Reads what was written, from the medium as far as the page cache can be told to forget it.
    fn read_back(
        &self,
        entry: &Entry,
        file: BorrowedFd<'_>,
        expected: &[Digest],
        halt: &Halt<'_>,
    ) -> Result<(), StageError> {
        // A file system that cannot forget gives what it has.
        let _ = storage::cache::drop_cached(file);
        let header = &self.manifest.header;
        let mut offset = 0;
        for right in expected {
            let bytes = (entry.size - offset).min(header.chunk_bytes);
            let _share = self.set.budget.take(bytes, halt)?;
            let found = self.digest(entry, file, offset, bytes, header.algorithm)?;
            if found != *right {
                return Err(StageError::Corrupt {
                    path: crate::error::shown(&self.local(entry)),
                    offset,
                    expected: right.text(header.algorithm),
                    found: found.text(header.algorithm),
                });
            }
            offset += bytes;
            self.progress.bytes_verified.fetch_add(bytes, Relaxed);
        }
        Ok(())
    }

    fn digest(
        &self,
        entry: &Entry,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
        algorithm: Algorithm,
    ) -> Result<Digest, StageError> {
        let mut chunk = vec![0; bytes as usize];
        let read = calls::read_at(file, &mut chunk, offset)
            .map_err(|error| StageError::io_at("read back", &self.local(entry), offset, error))?;
        Ok(algorithm.of(&chunk[..read]))
    }
}
