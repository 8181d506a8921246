//! Sets as they lie on a tier: is what the manifest says so?
//!
//! A manifest is read entry by entry, more than once if need be, and never held in memory, so that a set of a million
//! files costs no more than one of ten.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Statx};

use crate::calls;
use crate::digest::{Algorithm, Digest};
use crate::error::{StageError, shown};
use crate::manifest::{Entry, Header, Kind, NAME, Reader};
use crate::pace::Stop;
use crate::parts::{PartRecord, SetRecord};
use crate::spec::Expected;
use crate::tree::{Directory, Visitor, Walk};
use crate::verify;

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
    header: Header,
    digest: Digest,
}

type Entries<'a> = Reader<BufReader<At<'a>>>;

impl Manifest {
    /// Reads the manifest of a set. None if it has none, or one that is torn, damaged or of another format: nothing is
    /// then said about the set.
    pub fn read(set: BorrowedFd<'_>, set_path: &Path) -> Result<Option<Self>, StageError> {
        let path = set_path.join(NAME);
        // NONBLOCK: a pipe of this name is not waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = match calls::open_at(set, OsStr::new(NAME), flags, Mode::empty()) {
            Ok(file) => file,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(StageError::io("open", &path, error)),
        };
        let found = calls::stat(file.as_fd()).map_err(|error| StageError::io("stat", &path, error))?;
        if kind_of(&found) != Some(Kind::File) {
            return Ok(None);
        }
        let read = || {
            let mut entries = entries(&file, &path)?;
            while entries.next_entry()?.is_some() {}
            Ok((entries.header().clone(), entries.digest()))
        };
        match read() {
            Ok((header, Some(digest))) => Ok(Some(Self { file, path, header, digest })),
            Ok((_, None)) | Err(StageError::Manifest { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What has a manifest's name in a directory and is not a manifest, in words; None if there is nothing, or a manifest. It
    /// is not copied and not compared, so nothing else holds it.
    pub fn misnamed(set: BorrowedFd<'_>, set_path: &Path) -> Result<Option<String>, StageError> {
        match calls::stat_at(set, OsStr::new(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StageError::io("stat", &set_path.join(NAME), error)),
            Ok(_) => Ok(Self::read(set, set_path)?
                .is_none()
                .then(|| format!("{NAME} is not a manifest, and was not copied"))),
        }
    }

    /// A manifest that was read to its end elsewhere: of a set in an object store. It is kept in a file
    /// in memory. `path` is what messages call it.
    ///
    /// # Errors
    /// What is no manifest.
    pub fn of_text(text: &[u8], path: &Path) -> Result<Self, StageError> {
        let failed = |error| StageError::io("keep in memory", path, error);
        let file = rustix::fs::memfd_create("manifest", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|errno| failed(io::Error::from(errno)))?;
        calls::write_at(file.as_fd(), text, 0).map_err(failed)?;
        let (header, digest) = {
            let mut entries = entries(&file, path)?;
            while entries.next_entry()?.is_some() {}
            (entries.header().clone(), entries.digest())
        };
        let digest = digest.ok_or_else(|| StageError::Manifest {
            path: shown(path),
            what: "the manifest has no end".to_owned(),
        })?;
        Ok(Self { file, path: path.to_owned(), header, digest })
    }

    /// A second handle of the same manifest.
    pub fn try_clone(&self) -> Result<Self, StageError> {
        let file = self.file.try_clone().map_err(|error| StageError::io("duplicate", &self.path, error))?;
        Ok(Self { file, path: self.path.clone(), header: self.header.clone(), digest: self.digest })
    }

    /// How its files are digested.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.header.algorithm
    }

    /// When it was made, seconds since 1970.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.header.created
    }

    /// Which part of a set it is of, if it is of one.
    #[must_use]
    pub fn part(&self) -> Option<&PartRecord> {
        self.header.part.as_ref()
    }

    /// Which set of parts it is the record of, if it is of one.
    #[must_use]
    pub fn set(&self) -> Option<&SetRecord> {
        self.header.set.as_ref()
    }

    /// As it is spelt.
    pub fn text(&self) -> Result<Vec<u8>, StageError> {
        let failed = |error| StageError::io("read", &self.path, error);
        let bytes = calls::stat(self.file.as_fd()).map_err(failed)?.stx_size;
        let mut text = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        let read = calls::read_at(self.file.as_fd(), &mut text, 0).map_err(failed)?;
        text.truncate(read);
        Ok(text)
    }

    /// Are its digests made so?
    pub(crate) fn is_digested_by(&self, algorithm: Algorithm, chunk_bytes: u64) -> bool {
        (self.header.algorithm, self.header.chunk_bytes) == (algorithm, chunk_bytes)
    }

    /// Calls `see` for each entry until it breaks, and returns with what.
    pub(crate) fn each<B>(
        &self,
        mut see: impl FnMut(Entry) -> Result<ControlFlow<B>, StageError>,
    ) -> Result<Option<B>, StageError> {
        let mut entries = entries(&self.file, &self.path)?;
        while let Some(entry) = entries.next_entry()? {
            if let ControlFlow::Break(value) = see(entry)? {
                return Ok(Some(value));
            }
        }
        if entries.digest() == Some(self.digest) {
            return Ok(None);
        }
        Err(StageError::SourceChanged { path: shown(&self.path), how: "what it says".to_owned() })
    }

    /// Compares names, kinds, sizes, hard links and perhaps times with what is there; the first difference in a person's
    /// words. No file is read.
    pub fn differs_from(
        &self,
        set: BorrowedFd<'_>,
        set_path: &Path,
        times: Times,
    ) -> Result<Option<String>, StageError> {
        let (difference, listed) = self.compare(set, set_path, times)?;
        // Beside the parts of a set there may be copies of parts that were never finished.
        if difference.is_some() || self.header.set.is_some() {
            return Ok(difference);
        }
        let names = count(set, set_path)?;
        Ok((names != listed).then(|| format!("it holds {names} names where the manifest has {listed}")))
    }

    /// The same, where other names may be there as well.
    pub fn lacks_of(
        &self,
        set: BorrowedFd<'_>,
        set_path: &Path,
        times: Times,
    ) -> Result<Option<String>, StageError> {
        Ok(self.compare(set, set_path, times)?.0)
    }

    /// The first difference, and how many names there are if there is none.
    fn compare(
        &self,
        set: BorrowedFd<'_>,
        set_path: &Path,
        times: Times,
    ) -> Result<(Option<String>, u64), StageError> {
        let mut parents = Parents { set, last: None };
        let mut listed = 0;
        let difference = self.each(|entry| {
            if entry.path.0.as_os_str().is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            listed += 1;
            let shown = shown(&entry.path.0);
            // Size and time of a hard link are compared under its first name; here, that it is the same inode.
            let is_file = entry.kind == Kind::File && entry.link_to.is_none();
            let found = match parents.stat(&entry.path.0) {
                Ok(found) => found,
                Err(error) if is_absence(&error) => {
                    return Ok(ControlFlow::Break(format!("{shown} is not there")));
                }
                Err(error) => return Err(StageError::io("stat", &set_path.join(&entry.path.0), error)),
            };
            let how = if kind_of(&found) != Some(entry.kind) {
                Some("is another kind of thing")
            } else if is_file && entry.size != found.stx_size {
                Some("has another size")
            } else if times == Times::Compared && is_file && is_newer(&entry, &found) {
                Some("has another time of modification")
            } else if entry.kind == Kind::Symlink && !parents.leads_to(&entry) {
                Some("leads elsewhere")
            } else if let Some(first) = &entry.link_to
                && !parents.is_same_file(&found, &first.0)
            {
                Some("is not the hard link that it was")
            } else {
                None
            };
            Ok(how.map_or(ControlFlow::Continue(()), |how| ControlFlow::Break(format!("{shown} {how}"))))
        })?;
        Ok((difference, listed))
    }

    /// Is it that of a copy of exactly what a list names? Of what the list says of sizes and of digests that are made by
    /// `algorithm` nothing may differ; a digest of several chunks is not that of a list.
    pub fn is_of_list(&self, list: &[Expected], algorithm: Algorithm) -> Result<bool, StageError> {
        let mut lacking: BTreeMap<&Path, &Expected> =
            list.iter().map(|file| (file.path.0.as_path(), file)).collect();
        let is_digested = self.header.algorithm == algorithm;
        let stranger = self.each(|entry| {
            let digest = entry.digest.filter(|_| is_digested && entry.chunks.is_empty());
            let is_as_listed = match lacking.remove(entry.path.0.as_path()) {
                None => entry.kind == Kind::Directory,
                Some(file) => {
                    file.size.is_none_or(|size| size == entry.size)
                        && file.digest.zip(digest).is_none_or(|(listed, recorded)| listed == recorded)
                }
            };
            Ok(if is_as_listed { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(stranger.is_none() && lacking.is_empty())
    }

    /// Reads every file, around the page cache where that can be, and compares digests.
    ///
    /// # Errors
    /// [`StageError::Corrupt`] for the first that is not what it should be; what `go_on` says, which is asked at every
    /// chunk.
    pub fn verify(
        &self,
        set: BorrowedFd<'_>,
        set_path: &Path,
        go_on: &dyn Fn() -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        let mut reader = verify::Reader::new(self.header.chunk_bytes);
        let algorithm = self.header.algorithm;
        self.each::<()>(|entry| {
            let (Kind::File, Some(whole)) = (entry.kind, entry.digest) else {
                return Ok(ControlFlow::Continue(()));
            };
            let (path, shown_path) = (&entry.path.0, set_path.join(&entry.path.0));
            let wanted = if entry.chunks.is_empty() { vec![whole] } else { entry.chunks.clone() };
            reader.chunks(set, path, &shown_path, entry.size, algorithm, &mut |chunk, found| {
                go_on()?;
                match wanted.get(chunk as usize) {
                    Some(wanted) if *wanted == found => Ok(()),
                    wanted => Err(StageError::Corrupt {
                        path: shown(&shown_path),
                        offset: chunk * self.header.chunk_bytes,
                        expected: wanted.map_or_else(String::new, |wanted| wanted.text(algorithm)),
                        found: found.text(algorithm),
                    }),
                }
            })?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    /// Do two manifests say the same of their sets' names and bytes? Times may differ.
    pub fn same_bytes(&self, other: &Self) -> Result<bool, StageError> {
        let (a, b) = (&self.header, &other.header);
        if (a.algorithm, a.chunk_bytes) != (b.algorithm, b.chunk_bytes) {
            return Ok(false);
        }
        let mut others = entries(&other.file, &other.path)?;
        let differ = self.each(|a| {
            let same = others.next_entry()?.is_some_and(|b| {
                (&a.path, a.kind, a.size, a.digest, &a.target, &a.link_to)
                    == (&b.path, b.kind, b.size, b.digest, &b.target, &b.link_to)
            });
            Ok(if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(differ.is_none() && others.next_entry()?.is_none())
    }
}

/// A manifest's entries, from the first.
fn entries<'a>(file: &'a OwnedFd, path: &Path) -> Result<Entries<'a>, StageError> {
    let reader = BufReader::with_capacity(64 << 10, At { file: file.as_fd(), offset: 0 });
    Reader::new(reader, shown(path))
}

/// Is the file not the one that the manifest was written for?
fn is_newer(entry: &Entry, found: &Statx) -> bool {
    (entry.mtime_s, entry.mtime_ns) != (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec)
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

/// Names below a directory, all but the manifest's.
fn count(set: BorrowedFd<'_>, path: &Path) -> Result<u64, StageError> {
    struct Names(u64);
    impl Visitor for Names {
        type Copy = ();

        fn directory(
            &mut self,
            above: Option<(&Directory<()>, &OsStr)>,
            _: &Path,
            _: &Statx,
        ) -> Result<(), StageError> {
            self.0 += u64::from(above.is_some());
            Ok(())
        }

        fn open_again(&mut self, _: &Path) -> Result<(), StageError> {
            Ok(())
        }

        fn names(&mut self, _: &Arc<Directory<()>>, names: Vec<OsString>) -> Result<(), StageError> {
            self.0 += names.len() as u64;
            Ok(())
        }
    }
    let set = set.try_clone_to_owned().map_err(|error| StageError::io("duplicate", path, error))?;
    let mut names = Names(0);
    Walk { source: path, across: true, only: None, stop: &Stop::new() }.run(set, &mut names)?;
    Ok(names.0)
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

    /// Is what `found` describes the file that `path` names? False if there is nothing.
    fn is_same_file(&mut self, found: &Statx, path: &Path) -> bool {
        let inode = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        self.stat(path).is_ok_and(|first| inode(&first) == inode(found))
    }

    fn leads_to(&mut self, entry: &Entry) -> bool {
        let Some(target) = &entry.target else { return true };
        self.of(&entry.path.0)
            .and_then(|(directory, name)| calls::read_link(directory, &name))
            .is_ok_and(|found| found == target.0.as_os_str())
    }
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
