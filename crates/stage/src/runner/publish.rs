//! From copied files to a set: what earlier attempts left over, directories' metadata, the manifest, the name.

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::find::{Destination, Source};
use super::{Notes, Run, now};
use crate::calls;
use crate::digest::{Algorithm, CHUNK_BYTES, Digest, Hasher};
use crate::error::{RETRY, StageError};
use crate::fault::{Barrier, Check, enforced};
use crate::fingerprint::Fingerprint;
use crate::journal::{Digests, Done, JobRow, PART_IN_DOUBT};
use crate::manifest::{self, Kind};
use crate::metadata;
use crate::names::joined;
use crate::owned::{self, FileId, discard_inside};
use crate::pipeline::Pipeline;
use crate::set::Manifest;
use crate::tier::Part;
use crate::tree::kind_of;
use crate::verify::{self, Reader};

/// Entries that are read from the journal at a time.
pub const PAGE: usize = 4096;

impl Destination {
    /// Step 5: the part gets its name, over nothing.
    pub fn publish(&self, parent: &OwnedFd, part: &OsStr) -> Result<(), StageError> {
        match calls::publish(parent.as_fd(), part, &self.name) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::EXIST) => Err(taken(&self.path())),
            made => made.map_err(|error| {
                StageError::io(
                    format!("rename to {}", crate::error::shown(&self.path())),
                    &self.parent.join(part),
                    error,
                )
            }),
        }
    }

    /// Is the name held by a claim of step 5, of this job before a crash or of another mover?
    pub fn is_claimed(&self, parent: &OwnedFd) -> Result<bool, StageError> {
        calls::is_claim(parent.as_fd(), &self.name)
            .map_err(|error| StageError::io("look at", &self.path(), error))
    }

    /// Removes the part that an earlier attempt left, and records nothing.
    pub fn discard_part(&self, parent: &OwnedFd, row: &JobRow, notes: &mut Notes) -> Result<(), StageError> {
        row.part.as_ref().map_or(Ok(()), |name| self.discard(parent, name, row.part_id.as_ref(), notes))
    }

    /// Removes a part. That is durable before the journal forgets the part, for nothing else would remove what came back.
    pub fn discard(
        &self,
        parent: &OwnedFd,
        part: &OsStr,
        made: Option<&FileId>,
        notes: &mut Notes,
    ) -> Result<(), StageError> {
        let left = owned::discard(parent, part, &self.parent, made)?;
        notes.extend(left.note(&self.parent.join(part)));
        calls::sync(parent.as_fd(), Barrier::PartDiscarded)
            .map_err(|error| StageError::sync("fsync", &self.parent, error))
    }

    /// Removes the part's name of a file that has been linked to its final one, and not unlinked from that.
    pub fn drop_link(&self, parent: &OwnedFd, row: &JobRow) -> Result<(), StageError> {
        let (Some(part), Some(made)) = (&row.part, &row.part_id) else { return Ok(()) };
        owned::discard(parent, part, &self.parent, Some(made)).map(drop)
    }
}

/// The destination's name is taken by something else.
pub fn taken(path: &Path) -> StageError {
    StageError::Exists {
        what: format!("{}: is there already, and is something else", crate::error::shown(path)),
        hint: "nothing is ever written over: remove or rename it, or name another destination".to_owned(),
    }
}

impl Run<'_> {
    /// Steps 3 and 4 for a directory; the state of the source that was copied.
    pub(super) fn copy_tree(
        &self,
        pipeline: &Pipeline<'_>,
        source: &Source,
        part: &Part<'_>,
        sync: &OwnedFd,
        vouches: bool,
    ) -> Result<Fingerprint, StageError> {
        let shown = pipeline.terms.part;
        let root = part.file;
        if pipeline.resumed {
            self.is_alone(root, shown)?;
            calls::set_mode(root.as_fd(), 0o700)
                .map_err(|error| StageError::io("set the mode", shown, error))?;
            self.forget_gone(&source.open_root()?, &source.path)?;
            self.remove_strangers(root, shown)?;
        }
        let only = self.spec.listed();
        let duplicate = root.try_clone().map_err(|error| StageError::io("duplicate", shown, error))?;
        let source_root = source.open_root()?;
        pipeline.run(&self.walk(&source.path, only.as_ref()), source_root, duplicate, sync)?;
        if !vouches {
            // A directory whose sync failed cannot be made of another inode by itself: all of the part goes.
            self.journal.keep_note(self.id, PART_IN_DOUBT, b"directories")?;
        }
        self.finish_directories(&source.open_root()?, root, shown, vouches)?;
        let copied = if self.spec.options.no_manifest {
            self.recorded(&mut |_| Ok(()))?
        } else {
            self.write_manifest(root, shown, vouches)?
        };
        // Last, because everything before has changed its times.
        self.finish_directory(&source.open_root()?, root, Path::new(""), shown, !vouches)?;
        if vouches {
            calls::sync_file_system(sync.as_fd(), Barrier::SetFileSystem)
                .map_err(|error| StageError::sync("syncfs", shown, error))?;
        } else {
            self.journal.keep_note(self.id, PART_IN_DOUBT, b"")?;
        }
        if !self.spec.options.no_manifest && enforced(Check::ManifestReadBack) {
            self.check_manifest(root, shown)?;
        }
        Ok(copied)
    }

    /// What an earlier attempt copied and the source does not have any more, or has as something of another kind.
    fn forget_gone(&self, source: &OwnedFd, source_path: &Path) -> Result<(), StageError> {
        let mut gone: Vec<PathBuf> = Vec::new();
        self.each(|done| {
            let path = &done.entry.path.0;
            if path.as_os_str().is_empty() {
                return Ok(());
            }
            let found = calls::open_beneath(source.as_fd(), path, OFlags::PATH, Mode::empty())
                .and_then(|found| calls::stat(found.as_fd()));
            match found {
                Ok(stat) if kind_of(&stat) == Some(done.entry.kind) => Ok(()),
                Err(error) if !calls::is_not_there(&error) => {
                    Err(StageError::io("look at", &joined(source_path, path), error))
                }
                _ => {
                    gone.push(path.clone());
                    Ok(())
                }
            }
        })?;
        self.journal.forget(self.id, &gone)
    }

    /// A part whose mode is final may be open to others: what is in it and not recorded may be theirs, and is left. As
    /// long as it is not final, no other user could write to it, and what is not recorded is an interrupted copy.
    fn is_alone(&self, part: &OwnedFd, shown: &Path) -> Result<(), StageError> {
        let stat = calls::stat(part.as_fd()).map_err(|error| StageError::io("look at", shown, error))?;
        if stat.stx_mode & 0o077 == 0 {
            return Ok(());
        }
        self.strangers(part, shown, |_, path, _| {
            if path == Path::new(manifest::NAME) {
                return Ok(());
            }
            Err(StageError::refused(
                format!("{}: was put into what is not published yet", crate::error::shown(&shown.join(path))),
                format!("it is not of this job, and is left; take it away, then: {RETRY}"),
            ))
        })
    }

    /// Removes from the part what is neither recorded nor a large file that is gone on with.
    fn remove_strangers(&self, part: &OwnedFd, shown: &Path) -> Result<(), StageError> {
        self.strangers(part, shown, |directory, path, name| {
            discard_inside(directory.as_fd(), name, &joined(shown, path.parent().unwrap_or(path)))
        })
    }

    /// Calls `each` with what is in the part and is not recorded: its directory, its path and its name.
    fn strangers(
        &self,
        part: &OwnedFd,
        shown: &Path,
        mut each: impl FnMut(&OwnedFd, &Path, &OsStr) -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        let mut waiting = vec![PathBuf::new()];
        while let Some(above) = waiting.pop() {
            let failed = |error| StageError::io("list", &joined(shown, &above), error);
            let beneath = if above.as_os_str().is_empty() { Path::new(".") } else { &above };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory =
                calls::open_beneath(part.as_fd(), beneath, flags, Mode::empty()).map_err(failed)?;
            let mut list = calls::List::of(directory.as_fd()).map_err(failed)?;
            let mut strangers = Vec::new();
            while let Some((name, _)) = list.next().map_err(failed)? {
                self.stop.check()?;
                let path = above.join(&name);
                match self.journal.entry(self.entries(), &path)? {
                    Some(done) if done.entry.kind == Kind::Directory => waiting.push(path),
                    Some(_) => {}
                    None if self.journal.is_begun(self.id, &path)? => {}
                    None => strangers.push(name),
                }
            }
            for name in strangers {
                each(&directory, &above.join(&name), &name)?;
            }
        }
        Ok(())
    }

    /// Gives all directories but the root what belongs to them, the innermost first.
    fn finish_directories(
        &self,
        source: &OwnedFd,
        part: &OwnedFd,
        shown: &Path,
        vouches: bool,
    ) -> Result<(), StageError> {
        let mut before: Option<PathBuf> = None;
        loop {
            let page = self.journal.entries_before(self.entries(), before.as_deref(), PAGE)?;
            let Some(last) = page.last() else { return Ok(()) };
            before = Some(last.entry.path.0.clone());
            for done in page {
                if done.entry.kind == Kind::Directory && !done.entry.path.0.as_os_str().is_empty() {
                    self.stop.check()?;
                    self.finish(&done, source, part, shown, !vouches)?;
                }
            }
        }
    }

    fn finish_directory(
        &self,
        source: &OwnedFd,
        part: &OwnedFd,
        path: &Path,
        shown: &Path,
        sync: bool,
    ) -> Result<(), StageError> {
        match self.journal.entry(self.entries(), path)? {
            Some(done) => self.finish(&done, source, part, shown, sync),
            None => Ok(()),
        }
    }

    fn finish(
        &self,
        done: &Done,
        source: &OwnedFd,
        part: &OwnedFd,
        shown: &Path,
        sync: bool,
    ) -> Result<(), StageError> {
        let path = &done.entry.path.0;
        let beneath = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let shown = joined(shown, path);
        let copy = calls::open_beneath(part.as_fd(), beneath, flags, Mode::empty())
            .map_err(|error| StageError::io("open the directory", &shown, error))?;
        let original = calls::open_beneath(source.as_fd(), beneath, flags, Mode::empty()).ok();
        let original = original.as_ref().map(|fd| fd.as_fd());
        metadata::apply(
            original,
            copy.as_fd(),
            &done.entry,
            self.spec.options.preserve,
            &shown,
            self.progress,
        )?;
        if sync {
            calls::sync(copy.as_fd(), Barrier::Directory)
                .map_err(|error| StageError::sync("fsync", &shown, error))?;
        }
        Ok(())
    }

    fn write_manifest(&self, part: &OwnedFd, shown: &Path, vouches: bool) -> Result<Fingerprint, StageError> {
        let shown = shown.join(manifest::NAME);
        let failed = |error| StageError::io("write", &shown, error);
        let file = calls::create(part.as_fd(), manifest::NAME.as_ref(), OFlags::RDWR)
            .map_err(|error| StageError::io("create", &shown, error))?;
        let name = self.spec.destination.path().and_then(Path::file_name).unwrap_or_default();
        let stream = BufWriter::with_capacity(1 << 20, Through { file: &file, offset: 0 });
        let mut header = manifest::Header::new(self.spec.options.digest, Path::new(name), now());
        header.part.clone_from(&self.spec.options.part);
        let mut writer = manifest::Writer::new(stream, &header).map_err(failed)?;
        let copied = self.recorded(&mut |done| writer.entry(&done.entry).map_err(failed))?;
        let (mut stream, _) = writer.finish().map_err(failed)?;
        stream.flush().map_err(failed)?;
        drop(stream);
        calls::set_mode(file.as_fd(), 0o666 & !metadata::umask())
            .map_err(|error| StageError::io("set the mode", &shown, error))?;
        // Where syncfs vouches, the file system is synced next.
        if !vouches {
            calls::sync(file.as_fd(), Barrier::Manifest)
                .map_err(|error| StageError::sync("fsync", &shown, error))?;
        }
        Ok(copied)
    }

    /// Reads the manifest back around the cache, and to its end.
    fn check_manifest(&self, part: &OwnedFd, shown: &Path) -> Result<(), StageError> {
        let shown = shown.join(manifest::NAME);
        let size = calls::stat_at(part.as_fd(), manifest::NAME.as_ref())
            .map_err(|error| StageError::io("look at", &shown, error))?
            .stx_size;
        let file = calls::open_at(part.as_fd(), manifest::NAME.as_ref(), OFlags::RDONLY, Mode::empty())
            .map_err(|error| StageError::io("open", &shown, error))?;
        // The expected bytes come from the page cache, the stored ones from the medium.
        let mut stored = Hasher::new(Algorithm::Xxh3);
        let mut reader = Reader::new(CHUNK_BYTES);
        let mut chunks: Vec<Digest> = Vec::new();
        reader.chunks(
            part.as_fd(),
            Path::new(manifest::NAME),
            &shown,
            size,
            Algorithm::Xxh3,
            &mut |_, digest| {
                stored.update(&digest.0);
                chunks.push(digest);
                Ok(())
            },
        )?;
        let mut written = Vec::new();
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        for at in (0..size).step_by(CHUNK_BYTES as usize) {
            let length = CHUNK_BYTES.min(size - at) as usize;
            calls::read_at(file.as_fd(), &mut buffer[..length], at)
                .map_err(|error| StageError::io("read back", &shown, error))?;
            written.push(Algorithm::Xxh3.of(&buffer[..length]));
        }
        let stream = std::io::BufReader::with_capacity(1 << 20, std::fs::File::from(file));
        let mut whole = manifest::Reader::new(stream, crate::error::shown(&shown))?;
        let mut entries = 0;
        while whole.next_entry()?.is_some() {
            entries += 1;
        }
        if chunks != written || entries != self.journal.entry_count(self.entries())? {
            return Err(StageError::Corrupt {
                path: crate::error::shown(&shown),
                offset: 0,
                expected: "what was written".to_owned(),
                found: "something else".to_owned(),
            });
        }
        Ok(())
    }

    /// Calls `visit` with every entry of the job, in the order of their paths' bytes.
    pub(super) fn each(
        &self,
        mut visit: impl FnMut(&Done) -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        self.journal.every_entry(self.entries()).try_for_each(|done| {
            self.stop.check()?;
            visit(&done?)
        })
    }

    /// What a semaphore promised must be what was copied.
    pub(super) fn meets_expectations(&self) -> Result<(), StageError> {
        for expected in &self.spec.options.expected {
            let shown =
                self.spec.source.path().map(|source| joined(source, &expected.path.0)).unwrap_or_default();
            let changed =
                |how: String| Err(StageError::SourceChanged { path: crate::error::shown(&shown), how });
            let Some(done) = self.journal.entry(self.entries(), &expected.path.0)? else {
                return changed("the semaphore names it, and it is not there".to_owned());
            };
            if let Some(size) = expected.size
                && size != done.entry.size
            {
                return changed(format!("the semaphore says {size} bytes, and it has {}", done.entry.size));
            }
            if let Some(digest) = expected.digest {
                let algorithm = self.spec.options.digest;
                let found = self.whole_digest(&expected.path.0, &shown, &done)?;
                if found != digest {
                    return changed(format!(
                        "the semaphore says {}, and it has {}",
                        digest.text(algorithm),
                        found.text(algorithm)
                    ));
                }
            }
        }
        Ok(())
    }

    /// The digest of a file's bytes in order, as programs that know no chunks compute it, of the source: whether that is
    /// what was copied is seen after this.
    /// No link is followed, and nothing is waited for that has taken the file's name.
    fn whole_digest(&self, path: &Path, shown: &Path, done: &Done) -> Result<Digest, StageError> {
        if let (true, Some(digest)) = (done.entry.chunks.is_empty(), done.entry.digest) {
            return Ok(digest);
        }
        let failed = |error| StageError::io("read", shown, error);
        let source = Source::open(self.spec.source.path().unwrap_or(Path::new("")), self.spec.watched())?;
        let file = if path.as_os_str().is_empty() {
            source.open_root()?
        } else {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            calls::open_beneath(source.open_root()?.as_fd(), path, flags, Mode::empty()).map_err(failed)?
        };
        let mut hasher = Hasher::new(self.spec.options.digest);
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        for at in (0..done.entry.size).step_by(CHUNK_BYTES as usize) {
            self.stop.check()?;
            let length = CHUNK_BYTES.min(done.entry.size - at) as usize;
            let read = calls::read_at(file.as_fd(), &mut buffer[..length], at).map_err(failed)?;
            hasher.update(&buffer[..read]);
        }
        Ok(hasher.finish())
    }

    /// Reads all that was recorded back, after a crash between the rename and COMMITTED.
    pub(super) fn read_again(&self, parent: &OwnedFd, destination: &Destination) -> Result<(), StageError> {
        let shown = destination.path();
        let kind = calls::stat_at(parent.as_fd(), &destination.name)
            .map_err(|error| StageError::io("look at", &shown, error))?;
        let single =
            rustix::fs::FileType::from_raw_mode(kind.stx_mode.into()) != rustix::fs::FileType::Directory;
        let Digests { algorithm, chunk_bytes } = self.journal.digests(self.id, self.spec)?;
        if single {
            let Some(done) = self.journal.entry(self.entries(), Path::new(""))? else {
                return Err(StageError::refused(
                    format!(
                        "{}: has the part's inode, and nothing is recorded of it",
                        crate::error::shown(&shown)
                    ),
                    format!("rename it, then: {RETRY}"),
                ));
            };
            let mut entry = done.entry;
            entry.path = crate::names::PathText(PathBuf::from(&destination.name));
            return Reader::new(chunk_bytes).entry(parent.as_fd(), &destination.parent, &entry, algorithm);
        }
        let root = calls::open_at(
            parent.as_fd(),
            &destination.name,
            OFlags::RDONLY | OFlags::DIRECTORY,
            Mode::empty(),
        )
        .map_err(|error| StageError::io("open the directory", &shown, error))?;
        let mut entries = self.journal.every_entry(self.entries());
        let mut next = || Ok(entries.next().transpose()?.map(|done| done.entry));
        let (threads, progress, stop) = (self.threads, self.progress, self.stop);
        verify::tree(&root, &shown, algorithm, chunk_bytes, threads, progress, stop, &mut next, &Err)?;
        // One that is there and cannot be used vouches for nothing.
        let Some(_) = Manifest::misnamed(root.as_fd(), &shown)? else { return Ok(()) };
        Err(StageError::Corrupt {
            path: crate::error::shown(&shown.join(manifest::NAME)),
            offset: 0,
            expected: "a manifest".to_owned(),
            found: "something else".to_owned(),
        })
    }
}

/// Writes one byte after another through [`calls`].
struct Through<'a> {
    file: &'a OwnedFd,
    offset: u64,
}

impl Write for Through<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        calls::write_at(self.file.as_fd(), bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
