//! From a store to a directory or a file that the caller has made and will publish.
//!
//! Everything is made beneath the caller's descriptor, through no symbolic link, by names that the manifest's reader
//! has found to lead downwards only. When it returns, every byte has been compared with the manifest twice, as it came
//! and as it was read back from the file, and everything is durable but the directory's own name.
//!
//! What is done is recorded ([`super::resume`]), so that a fetch that was killed resumes: a file that was synced and read
//! back, and is still what it was then, stays; of a large one that was under way the chunks that were synced stay, and all of
//! it is read back in the end. Whatever else is there is removed and fetched again.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags};
use storage::uuid::Uuid;

use super::drain::STEP;
use super::lanes::{Halt, for_each};
use super::read::Wanted;
use super::resume::{ChunkLog, Ledger, Recorder};
use super::sets::{chunks_of, split};
use super::{LANES, Manifest, ObjectSet};
use stage::calls;
use stage::digest::Digest;
use stage::error::StageError;
use stage::fault::{Barrier, Check, Moment, comes_to, enforced};
use stage::journal::{Done, Identity, PART_IN_DOUBT};
use stage::manifest::{Entry, Kind};
use stage::spec::Preserve;
use stage::tier::{Part, Run};
use stage::uncached::Uncached;
use stage::verify::Reader;

/// Otherwise all who may write to the store could make programs that run with the caller's rights.
const SETUID_SETGID: u32 = 0o6000;

/// Chunks are noted when there are this many, or when the first has waited for [`NOTED_EVERY`]; files of no more are
/// fetched whole.
const NOTED_AT_ONCE: usize = 4;
/// See [`NOTED_AT_ONCE`].
const NOTED_EVERY: Duration = Duration::from_secs(5);

/// A set on its way to a part.
struct Fetch<'a> {
    set: &'a ObjectSet,
    manifest: &'a Manifest,
    run: &'a Run<'a>,
    part: &'a Part<'a>,
    /// The part's path, for messages.
    path: PathBuf,
    ledger: Ledger<'a>,
    recorder: Recorder<'a>,
}

impl ObjectSet {
    /// Fills a part with this set: a directory, or a file that is open for reading and writing. Set-user-ID and set-group-ID bits
    /// are kept only where owners are. What is recorded of a resumed part is not fetched again.
    ///
    /// # Errors
    /// [`StageError::Corrupt`] for what is not as the manifest has it. What was made stays.
    pub(super) fn fetch(
        &self,
        manifest: &Manifest,
        run: &Run<'_>,
        part: &Part<'_>,
    ) -> Result<(), StageError> {
        let path = part.at.path.join(part.at.name);
        let ledger = Ledger::of(run);
        let fetch = Fetch { set: self, manifest, run, part, path, ledger, recorder: Recorder::new(ledger) };
        fetch.count();
        if !manifest.is_file() {
            return fetch.directory();
        }
        fetch.file(&manifest.entries[0], part.file.as_fd(), &Halt::new(run.stop))?;
        fetch.recorder.flush()
    }
}

/// What is recorded of an entry where no copy is known by its inode.
pub(super) fn recorded_without_copy(entry: &Entry) -> Done {
    let mtime = (entry.mtime_s, entry.mtime_ns);
    Done::new(entry.clone(), Identity { ino: 0, size: entry.size, mtime, ctime: (0, 0), nlink: 1 })
}

fn is_root(entry: &Entry) -> bool {
    entry.path.0.as_os_str().is_empty()
}

impl Fetch<'_> {
    fn directory(&self) -> Result<(), StageError> {
        let (root, stop, entries) = (self.part.file.as_fd(), self.run.stop, &self.manifest.entries);
        if self.part.resumed {
            calls::set_mode(root, 0o700)
                .map_err(|error| StageError::io("set the mode of", &self.path, error))?;
        }
        for entry in entries.iter().filter(|entry| entry.kind == Kind::Directory && !is_root(entry)) {
            stop.check()?;
            self.make_directory(root, entry)?;
        }
        let mut files: Vec<&Entry> = self.manifest.files().collect();
        files.sort_by_key(|entry| std::cmp::Reverse(entry.size));
        let got = for_each(&files, LANES, stop, &|entry, halt| self.one(root, entry, halt));
        // What was fetched is recorded even if the rest failed.
        let recorded = self.recorder.flush();
        got.and(recorded)?;
        for entry in entries {
            stop.check()?;
            self.make_link(root, entry)?;
        }
        // A directory whose sync failed cannot be made of another inode by itself: then all of it is fetched anew.
        self.ledger.save(PART_IN_DOUBT, b"directories")?;
        // From the innermost outwards: whatever is made in a directory changes its times.
        for entry in entries.iter().rev().filter(|entry| entry.kind == Kind::Directory) {
            stop.check()?;
            self.finish_directory(root, entry)?;
        }
        self.record_rest()
    }

    /// Records all but the files with bytes, so that a crash between the rename and COMMITTED can be resumed by reading all
    /// of it back.
    fn record_rest(&self) -> Result<(), StageError> {
        let has_bytes = |entry: &Entry| entry.kind == Kind::File && entry.link_to.is_none();
        let rest: Vec<&Entry> = self.manifest.entries.iter().filter(|entry| !has_bytes(entry)).collect();
        for some in rest.chunks(STEP) {
            let done: Vec<Done> = some.iter().map(|entry| recorded_without_copy(entry)).collect();
            self.ledger.record(&done)?;
        }
        Ok(())
    }

    /// A file of a directory, unless it is there.
    fn one(&self, root: BorrowedFd<'_>, entry: &Entry, halt: &Halt<'_>) -> Result<(), StageError> {
        let (parent, name) = self.parent(root, entry)?;
        let parent = parent.as_ref().map_or(root, |parent| parent.as_fd());
        if self.part.resumed {
            if self.is_done(parent, name, entry)? {
                self.run.progress.bytes_written.fetch_add(entry.size, Relaxed);
                self.run.progress.bytes_verified.fetch_add(entry.size, Relaxed);
                self.run.progress.files_done.fetch_add(1, Relaxed);
                return Ok(());
            }
            // NONBLOCK: what is there may be anything.
            let flags = OFlags::RDWR | OFlags::NONBLOCK;
            if self.is_noted_by_chunk(entry)
                && let Ok(file) = calls::open_at(parent, name, flags, Mode::empty())
                && self.is_begun(entry, file.as_fd())?
            {
                return self.file(entry, file.as_fd(), halt);
            }
            self.remove(parent, name, entry)?;
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file =
            calls::open_at(parent, name, flags, mode).map_err(|error| self.failed("create", entry, error))?;
        self.file(entry, file.as_fd(), halt)
    }

    /// Has an earlier run brought it, and is it still what it was then?
    fn is_done(&self, parent: BorrowedFd<'_>, name: &OsStr, entry: &Entry) -> Result<bool, StageError> {
        let Some(done) = self.ledger.entry(&entry.path.0)? else { return Ok(false) };
        match calls::stat_at(parent, name) {
            Ok(stat) => {
                Ok(self.is_unchanged(&done.source, Identity::of(&stat)) || !enforced(Check::FetchedOnResume))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("look at", entry, error)),
        }
    }

    /// Is a copy what it was when it was recorded? `was` has the manifest's time of modification, which the copy has only where
    /// times are preserved. Every write moves the time of change, and so does giving the copy another name, which the fetch
    /// itself does.
    fn is_unchanged(&self, was: &Identity, now: Identity) -> bool {
        if now.nlink <= 1 {
            return was.change(&Identity { mtime: was.mtime, ..now }).is_none();
        }
        self.preserve().times && was.change(&Identity { ctime: was.ctime, ..now }).is_none()
    }

    fn preserve(&self) -> &Preserve {
        &self.run.spec.options.preserve
    }

    fn is_noted_by_chunk(&self, entry: &Entry) -> bool {
        entry.size.div_ceil(self.manifest.header.chunk_bytes) > NOTED_AT_ONCE as u64
    }

    /// Is this the file that an earlier run has begun?
    fn is_begun(&self, entry: &Entry, file: BorrowedFd<'_>) -> Result<bool, StageError> {
        let stat = calls::stat(file).map_err(|error| self.failed("look at", entry, error))?;
        let is_file = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
        Ok(is_file && !ChunkLog::new(self.ledger, &entry.path.0).load(stat.stx_ino)?.is_empty())
    }

    /// What an earlier run left and did not come to note.
    fn remove(&self, parent: BorrowedFd<'_>, name: &OsStr, entry: &Entry) -> Result<(), StageError> {
        match calls::remove_file(parent, name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(self.failed("remove", entry, error))
            }
            _ => Ok(()),
        }
    }

    fn count(&self) {
        let files = self.manifest.files().count() as u64;
        self.run.progress.files_total.store(files, Relaxed);
        self.run.progress.bytes_total.store(self.manifest.files().map(|file| file.size).sum(), Relaxed);
        self.run.progress.walked.store(true, Relaxed);
        if self.preserve().xattrs || self.preserve().acls {
            self.run.progress.not_preserved.fetch_add(self.manifest.entries.len() as u64, Relaxed);
        }
    }

    fn failed(&self, operation: &str, entry: &Entry, error: std::io::Error) -> StageError {
        StageError::io(operation, &self.local(entry), error)
    }

    fn local(&self, entry: &Entry) -> PathBuf {
        if is_root(entry) { self.path.clone() } else { self.path.join(&entry.path.0) }
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
        match calls::make_directory(parent, name, Mode::RWXU) {
            Err(error) if self.part.resumed && error.kind() == std::io::ErrorKind::AlreadyExists => {
                // An earlier run's, which may have its final mode already.
                calls::open_at(parent, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
                    .and_then(|path| calls::set_mode_of_path(path.as_fd(), 0o700))
                    .map_err(|error| self.failed("set the mode of", entry, error))
            }
            made => made.map_err(|error| self.failed("make the directory", entry, error)),
        }
    }

    /// A symbolic link, or another name of a file.
    fn make_link(&self, root: BorrowedFd<'_>, entry: &Entry) -> Result<(), StageError> {
        let (parent, name) = match (&entry.target, &entry.link_to) {
            (None, None) => return Ok(()),
            _ => self.parent(root, entry)?,
        };
        let parent = parent.as_ref().map_or(root, |parent| parent.as_fd());
        if self.part.resumed {
            self.remove(parent, name, entry)?;
        }
        if let Some(first) = &entry.link_to {
            let first = Entry { path: first.clone(), ..entry.clone() };
            let (from, old) = self.parent(root, &first)?;
            let from = from.as_ref().map_or(root, |from| from.as_fd());
            return calls::link(from, old, parent, name).map_err(|error| self.failed("link", entry, error));
        }
        let target = entry.target.clone().unwrap_or_default().0;
        calls::symlink(target.as_os_str(), parent, name)
            .map_err(|error| self.failed("make the link", entry, error))?;
        if self.preserve().owner && calls::set_owner_at(parent, name, entry.uid, entry.gid).is_err() {
            self.run.progress.not_preserved.fetch_add(1, Relaxed);
        }
        if self.preserve().times {
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
        calls::sync(directory, Barrier::FetchedDirectory)
            .map_err(|error| StageError::sync("fsync", &self.local(entry), error))
    }

    /// Owner, mode and times, in this order: a change of owner clears bits of the mode.
    fn metadata(&self, entry: &Entry, file: BorrowedFd<'_>) -> Result<(), StageError> {
        let mut mode = entry.mode & !SETUID_SETGID;
        if self.preserve().owner {
            match calls::set_owner(file, entry.uid, entry.gid) {
                Ok(()) => mode = entry.mode,
                Err(_) => {
                    self.run.progress.not_preserved.fetch_add(1, Relaxed);
                }
            }
        }
        if !self.preserve().mode {
            mode = stage::metadata::usual_mode(entry);
        }
        calls::set_mode(file, mode).map_err(|error| self.failed("set the mode of", entry, error))?;
        if self.preserve().times {
            let time = (entry.mtime_s, entry.mtime_ns);
            calls::set_times(file, time, time)
                .map_err(|error| self.failed("set the times of", entry, error))?;
        }
        Ok(())
    }

    fn file(&self, entry: &Entry, file: BorrowedFd<'_>, halt: &Halt<'_>) -> Result<(), StageError> {
        let key = self.set.key(&entry.path.0)?;
        let digests = chunks_of(entry);
        let ino = calls::stat(file).map_err(|error| self.failed("look at", entry, error))?.stx_ino;
        let by_chunk = self.is_noted_by_chunk(entry);
        let mut notes = ChunkLog::new(self.ledger, &entry.path.0);
        let have = if by_chunk && self.part.resumed { notes.load(ino)? } else { BTreeSet::new() };
        if by_chunk && have.is_empty() {
            let id = Uuid::random().map_err(|error| self.failed("find a number for", entry, error))?;
            notes.begin(stage::names::hex(&id.0), ino)?;
        }
        let fresh = have.is_empty();
        let chunk_bytes = self.manifest.header.chunk_bytes;
        let there: u64 =
            have.iter().map(|chunk| entry.size.saturating_sub(chunk * chunk_bytes).min(chunk_bytes)).sum();
        self.run.progress.bytes_written.fetch_add(there, Relaxed);
        let wanted = Wanted { have: Some(&have), ..self.set.wanted(&key, entry, &self.manifest.header) };
        let mut waiting = Vec::new();
        let mut since = Instant::now();
        if !self.preserve().sparse {
            calls::reserve(file, entry.size)
                .map_err(|error| self.failed("reserve room for", entry, error))?;
        }
        calls::truncate(file, entry.size).map_err(|error| self.failed("truncate", entry, error))?;
        self.set.read(&wanted, Some(&digests), halt, self.run.pace, true, &mut |offset, bytes, pieces| {
            // What the file reads as anyway need not be written.
            let hole = fresh
                && self.preserve().sparse
                && pieces.iter().all(|piece| piece.iter().all(|byte| *byte == 0));
            let mut at = offset;
            for piece in pieces.iter().filter(|_| !hole) {
                calls::write_at(file, piece, at)
                    .map_err(|error| StageError::io_at("write", &self.local(entry), at, error))?;
                at += piece.len() as u64;
            }
            self.run.progress.bytes_written.fetch_add(bytes, Relaxed);
            if !by_chunk {
                return Ok(());
            }
            if waiting.is_empty() {
                since = Instant::now();
            }
            waiting.push(offset / chunk_bytes);
            if waiting.len() >= NOTED_AT_ONCE || since.elapsed() >= NOTED_EVERY {
                if let Err(error) = calls::sync_data(file, Barrier::FetchedChunks) {
                    self.distrust(entry, &mut notes)?;
                    return Err(StageError::sync("fdatasync", &self.local(entry), error));
                }
                comes_to(Moment::Recorded, || vec![entry.path.0.clone()]);
                notes.add(std::mem::take(&mut waiting))?;
            }
            Ok(())
        })?;
        self.metadata(entry, file)?;
        if let Err(error) = calls::sync(file, Barrier::FetchedFile) {
            self.distrust(entry, &mut notes)?;
            return Err(StageError::sync("fsync", &self.local(entry), error));
        }
        match self.read_back(entry, file, &digests, halt) {
            // Whatever was noted of it, the next run begins it again.
            Err(error @ StageError::Corrupt { .. }) if by_chunk => {
                notes.forget()?;
                return Err(error);
            }
            read => read?,
        }
        let stat = calls::stat(file).map_err(|error| self.failed("look at", entry, error))?;
        self.recorder.add(Done::new(entry.clone(), Identity::of(&stat)))?;
        self.run.progress.files_done.fetch_add(1, Relaxed);
        Ok(())
    }

    /// A sync of a file failed: the kernel has dropped what it could not write, and the next sync would say that all is
    /// well. The next run fetches it into another inode.
    fn distrust(&self, entry: &Entry, notes: &mut ChunkLog<'_>) -> Result<(), StageError> {
        notes.forget()?;
        // What is fetched alone is the caller's file.
        if is_root(entry) { self.ledger.save(PART_IN_DOUBT, b"file") } else { Ok(()) }
    }

    /// Reads a copy back around the page cache.
    fn read_back(
        &self,
        entry: &Entry,
        file: BorrowedFd<'_>,
        expected: &[Digest],
        halt: &Halt<'_>,
    ) -> Result<(), StageError> {
        let (header, path) = (&self.manifest.header, self.local(entry));
        let file = Uncached::reopen(file).map_err(|error| self.failed("duplicate", entry, error))?;
        let chunk_bytes = header.chunk_bytes.min(entry.size);
        let _share = self.set.budget.take(chunk_bytes, halt)?;
        let mut reader = Reader::new(header.chunk_bytes.min(entry.size.next_power_of_two()));
        reader.file_chunks(file, &path, entry.size, header.algorithm, &mut |chunk, found| {
            halt.check()?;
            let (offset, right) = (chunk * header.chunk_bytes, expected[chunk as usize]);
            if found != right && enforced(Check::FetchedReadBack) {
                return Err(StageError::Corrupt {
                    path: stage::error::shown(&path),
                    offset,
                    expected: right.text(header.algorithm),
                    found: found.text(header.algorithm),
                });
            }
            let bytes = (entry.size - offset).min(header.chunk_bytes);
            self.run.progress.bytes_verified.fetch_add(bytes, Relaxed);
            Ok(())
        })
    }
}
