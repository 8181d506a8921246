//! Sets as they lie on a tier: what a manifest says, and whether it is so.
//!
//! A manifest (`flashwright.manifest/1`) is JSON, one document a line: a head, an entry for each name below the set in
//! the order of their bytes, an end with the digest of all before it. It is read line by line, three times if need be,
//! and never held in memory, so that a set of a million files costs no more than one of ten.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Statx};
use serde::Deserialize;

use crate::calls;
use crate::digest::{Algorithm, Digest, Hasher};
use crate::error::StageError;
use crate::names::{PathText, is_part};

/// The name of a set's manifest, inside it.
pub const MANIFEST: &str = ".flashwright-manifest";
/// What its head says.
const FORMAT: &str = "flashwright.manifest/1";
/// No line is longer: a path has 4096 bytes at most, 8192 in hexadecimal digits, and there may be two.
const LINE_BYTES: u64 = 64 << 10;

#[derive(Deserialize)]
struct Head {
    format: String,
    algorithm: Algorithm,
    chunk_bytes: u64,
}

/// What a name in a set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// A name in a set, as its manifest has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Entry {
    /// Relative to the set.
    pub path: PathText,
    /// What it is.
    pub kind: Kind,
    /// Of a file, bytes.
    #[serde(default)]
    pub size: Option<u64>,
    /// Of a file, of its bytes by the chunk.
    #[serde(default)]
    pub digest: Option<Digest>,
    /// Time of modification, seconds since 1970.
    #[serde(default)]
    pub mtime_s: Option<i64>,
    /// Nanoseconds of it.
    #[serde(default)]
    pub mtime_ns: Option<u32>,
    /// Where a symbolic link leads.
    #[serde(default)]
    pub target: Option<PathText>,
    /// Another name of the same file, which comes before.
    #[serde(default)]
    pub link_to: Option<PathText>,
}

#[derive(Deserialize)]
struct End {
    end: bool,
    entries: u64,
    digest: Digest,
}

/// Are times of modification compared?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// They are: is it still what was copied?
    Compared,
    /// They are not: is all there?
    Ignored,
}

/// A manifest that is whole.
#[derive(Debug)]
pub struct Manifest {
    file: OwnedFd,
    path: PathBuf,
    algorithm: Algorithm,
    chunk_bytes: u64,
    entries: u64,
    digest: Digest,
}

impl Manifest {
    /// Reads the manifest of a set. None if it has none, or one that is torn or of another format: nothing is then
    /// said about the set.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(set: BorrowedFd<'_>, set_path: &Path) -> Result<Option<Self>, StageError> {
        let path = set_path.join(MANIFEST);
        // NONBLOCK: a pipe of this name is not waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = match calls::open_at(set, OsStr::new(MANIFEST), flags, Mode::empty()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StageError::io("open", &path, error)),
        };
        let found = calls::stat(file.as_fd()).map_err(|error| StageError::io("stat", &path, error))?;
        if kind_of(&found) != Some(Kind::File) {
            return Ok(None);
        }
        let failed = |error| StageError::io("read", &path, error);
        let mut lines = Lines::of(file.as_fd());
        let Some(head) = lines.next::<Head>().map_err(failed)?.filter(|head| head.format == FORMAT) else {
            return Ok(None);
        };
        let mut entries = 0;
        loop {
            let before = lines.hashed();
            if lines.line().map_err(failed)? == 0 {
                return Ok(None);
            }
            if let Ok(end) = serde_json::from_slice::<End>(&lines.buffer) {
                let whole = end.end && end.entries == entries && end.digest == before;
                let last = lines.line().map_err(failed)? == 0;
                let Head { algorithm, chunk_bytes, .. } = head;
                let manifest = || Self { file, path, algorithm, chunk_bytes, entries, digest: before };
                return Ok((whole && last && chunk_bytes > 0).then(manifest));
            }
            if serde_json::from_slice::<Entry>(&lines.buffer).is_err() {
                return Ok(None);
            }
            entries += 1;
        }
    }

    /// What it is the digest of: two manifests that are equal say the same of their sets, names and times included.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// How its files are digested.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Calls `see` for each entry until it breaks, and returns with what.
    fn each<B>(
        &self,
        mut see: impl FnMut(Entry) -> Result<ControlFlow<B>, StageError>,
    ) -> Result<Option<B>, StageError> {
        let failed = |error| StageError::io("read", &self.path, error);
        let mut lines = Lines::of(self.file.as_fd());
        lines.line().map_err(failed)?;
        for _ in 0..self.entries {
            let entry = lines.next::<Entry>().map_err(failed)?.ok_or_else(|| self.changed())?;
            if let ControlFlow::Break(value) = see(entry)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn changed(&self) -> StageError {
        StageError::SourceChanged { path: crate::error::shown(&self.path), how: "manifest".to_owned() }
    }

    /// Compares names, kinds, sizes and perhaps times with what is there; the first difference in a person's words.
    /// No file is read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn differs_from(
        &self,
        set: BorrowedFd<'_>,
        set_path: &Path,
        times: Times,
    ) -> Result<Option<String>, StageError> {
        let mut parents = Parents { set, last: None };
        let difference = self.each(|entry| {
            let shown = crate::error::shown(&entry.path.0);
            let found = match parents.stat(&entry.path.0) {
                Ok(found) => found,
                Err(error) if is_absence(&error) => {
                    return Ok(ControlFlow::Break(format!("{shown} is not there")));
                }
                Err(error) => return Err(StageError::io("stat", &set_path.join(&entry.path.0), error)),
            };
            let how = if kind_of(&found) != Some(entry.kind) {
                Some("is another kind of thing")
            } else if entry.kind == Kind::File && entry.size.is_some_and(|size| size != found.stx_size) {
                Some("has another size")
            } else if times == Times::Compared && entry.kind == Kind::File && is_newer(&entry, &found) {
                Some("has another time of modification")
            } else if entry.kind == Kind::Symlink && !parents.leads_to(&entry) {
                Some("leads elsewhere")
            } else {
                None
            };
            Ok(how.map_or(ControlFlow::Continue(()), |how| ControlFlow::Break(format!("{shown} {how}"))))
        })?;
        if difference.is_some() {
            return Ok(difference);
        }
        let names = count(set, set_path, true)?;
        Ok((names != self.entries)
            .then(|| format!("it holds {names} names where the manifest has {}", self.entries)))
    }

    /// Reads every file, from its medium where the page cache can be told to let go of it, and compares digests.
    ///
    /// # Errors
    /// [`StageError::Corrupt`] for the first that is not what it should be; what `go_on` says, which is asked at every
    /// mebibyte; the kernel's.
    pub fn verify(
        &self,
        set: BorrowedFd<'_>,
        set_path: &Path,
        go_on: &dyn Fn() -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        let mut buffer = Vec::new();
        let failure = self.each::<()>(|entry| {
            let (Kind::File, Some(wanted)) = (entry.kind, entry.digest) else {
                return Ok(ControlFlow::Continue(()));
            };
            let path = set_path.join(&entry.path.0);
            let file =
                calls::open_beneath(set, &entry.path.0, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
                    .map_err(|error| StageError::io("open", &path, error))?;
            let found = self.digest_of(file.as_fd(), &path, &mut buffer, go_on)?;
            if found != wanted {
                return Err(StageError::Corrupt {
                    path: crate::error::shown(&path),
                    offset: 0,
                    expected: wanted.text(self.algorithm),
                    found: found.text(self.algorithm),
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        debug_assert!(failure.is_none());
        Ok(())
    }

    fn digest_of(
        &self,
        file: BorrowedFd<'_>,
        path: &Path,
        buffer: &mut Vec<u8>,
        go_on: &dyn Fn() -> Result<(), StageError>,
    ) -> Result<Digest, StageError> {
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        let mut chunks = Vec::new();
        let mut offset = 0;
        loop {
            let mut chunk = Hasher::new(self.algorithm);
            let mut bytes = 0;
            while bytes < self.chunk_bytes {
                go_on()?;
                let most = (self.chunk_bytes - bytes).min(READ_BYTES);
                buffer.resize(most as usize, 0);
                let read = calls::read_at(file, buffer, offset)
                    .map_err(|error| StageError::io_at("read", path, offset, error))?;
                chunk.update(&buffer[..read]);
                bytes += read as u64;
                offset += read as u64;
                if (read as u64) < most {
                    break;
                }
            }
            if bytes > 0 {
                chunks.push(chunk.finish());
            }
            if bytes < self.chunk_bytes {
                return Ok(self.algorithm.of_chunks(&chunks));
            }
        }
    }

    /// Do two manifests say the same of their sets' names and bytes? Times may differ.
    ///
    /// # Errors
    /// The kernel's.
    pub fn same_bytes(&self, other: &Self) -> Result<bool, StageError> {
        if self.algorithm != other.algorithm
            || self.chunk_bytes != other.chunk_bytes
            || self.entries != other.entries
        {
            return Ok(false);
        }
        let mut others = Lines::of(other.file.as_fd());
        let failed = |error| StageError::io("read", &other.path, error);
        others.line().map_err(failed)?;
        let differ = self.each(|a| {
            let b = others.next::<Entry>().map_err(failed)?.ok_or_else(|| other.changed())?;
            let same = (&a.path, a.kind, a.size, a.digest, &a.target, &a.link_to)
                == (&b.path, b.kind, b.size, b.digest, &b.target, &b.link_to);
            Ok(if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(differ.is_none())
    }
}

/// Bytes of one read.
const READ_BYTES: u64 = 1 << 20;

/// Is the file not the one that the manifest was written for?
fn is_newer(entry: &Entry, found: &Statx) -> bool {
    entry.mtime_s.is_some_and(|seconds| seconds != found.stx_mtime.tv_sec)
        || entry.mtime_ns.is_some_and(|nanoseconds| nanoseconds != found.stx_mtime.tv_nsec)
}

fn kind_of(found: &Statx) -> Option<Kind> {
    match FileType::from_raw_mode(u32::from(found.stx_mode)) {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Directory),
        FileType::Symlink => Some(Kind::Symlink),
        _ => None,
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Names below a directory; those that copies leave out are not counted.
fn count(directory: BorrowedFd<'_>, path: &Path, top: bool) -> Result<u64, StageError> {
    let mut names = 0;
    let listed = calls::list(directory).map_err(|error| StageError::io("read the directory", path, error))?;
    for (name, kind) in listed {
        if is_part(&name) || (top && name == MANIFEST) {
            continue;
        }
        names += 1;
        if matches!(kind, FileType::Directory | FileType::Unknown) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            match calls::open_at(directory, &name, flags, Mode::empty()) {
                Ok(below) => names += count(below.as_fd(), &path.join(&name), false)?,
                Err(error) if is_absence(&error) => {}
                Err(error) => return Err(StageError::io("open", &path.join(&name), error)),
            }
        }
    }
    Ok(names)
}

/// The directory of the last name looked up, which the next one shares as a rule.
struct Parents<'a> {
    set: BorrowedFd<'a>,
    last: Option<(PathBuf, OwnedFd)>,
}

impl Parents<'_> {
    fn of(&mut self, path: &Path) -> io::Result<(BorrowedFd<'_>, OsString)> {
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?.to_owned();
        let parent = path.parent().unwrap_or(Path::new(""));
        if parent.as_os_str().is_empty() {
            return Ok((self.set, name));
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let directory = calls::open_beneath(self.set, parent, flags, Mode::empty())?;
            self.last = Some((parent.to_owned(), directory));
        }
        let directory = self.last.as_ref().map_or(self.set, |(_, directory)| directory.as_fd());
        Ok((directory, name))
    }

    fn stat(&mut self, path: &Path) -> io::Result<Statx> {
        let (directory, name) = self.of(path)?;
        calls::stat_at(directory, &name)
    }

    fn leads_to(&mut self, entry: &Entry) -> bool {
        let Some(target) = &entry.target else { return true };
        self.of(&entry.path.0)
            .and_then(|(directory, name)| calls::read_link(directory, &name))
            .is_ok_and(|found| found == target.0.as_os_str())
    }
}

/// A manifest's lines, digested on the way.
struct Lines<'a> {
    reader: BufReader<At<'a>>,
    hasher: Hasher,
    buffer: Vec<u8>,
}

/// A file read from an offset of its own, so that several may read it.
struct At<'a> {
    file: BorrowedFd<'a>,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = calls::read_at(self.file, buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl<'a> Lines<'a> {
    fn of(file: BorrowedFd<'a>) -> Self {
        let reader = BufReader::with_capacity(64 << 10, At { file, offset: 0 });
        Self { reader, hasher: Hasher::new(Algorithm::Xxh3), buffer: Vec::new() }
    }

    /// The next line into the buffer, without its end; its bytes, 0 at the end of the file.
    fn line(&mut self) -> io::Result<usize> {
        self.buffer.clear();
        let bytes = (&mut self.reader).take(LINE_BYTES).read_until(b'\n', &mut self.buffer)?;
        self.hasher.update(&self.buffer);
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        }
        Ok(bytes)
    }

    /// The next line, if it is a document of this kind.
    fn next<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<Option<T>> {
        self.line()?;
        Ok(serde_json::from_slice(&self.buffer).ok())
    }

    /// The digest of all lines so far.
    fn hashed(&self) -> Digest {
        self.hasher.so_far()
    }
}
