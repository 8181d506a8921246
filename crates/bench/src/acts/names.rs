//! One name a request: files or directories that are made, looked up or removed.
//!
//! Request n works on the nth name, so that a job of as many blocks as it has names visits each once. A request that
//! removes first looks whether the name still stands for what the run has made, by device and inode: what somebody
//! else put there meanwhile stays, and fails the run. Making never opens what exists (`O_EXCL`).

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use storage::device::{Device, DeviceKind, Geometry};

use super::ActError;

/// What is done with each name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// open(2) with `O_CREAT`.
    CreateFile,
    /// statx(2).
    StatFile,
    /// statx(2) that does not follow links.
    StatLink,
    /// unlink(2).
    DeleteFile,
    /// mkdir(2).
    CreateDirectory,
    /// statx(2).
    StatDirectory,
    /// rmdir(2).
    DeleteDirectory,
}

impl Operation {
    /// All that have an engine of their own.
    pub const ALL: [Self; 6] = [
        Self::CreateFile,
        Self::StatFile,
        Self::DeleteFile,
        Self::CreateDirectory,
        Self::StatDirectory,
        Self::DeleteDirectory,
    ];

    /// fio's name of the engine.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::CreateFile => "filecreate",
            Self::StatFile | Self::StatLink => "filestat",
            Self::DeleteFile => "filedelete",
            Self::CreateDirectory => "dircreate",
            Self::StatDirectory => "dirstat",
            Self::DeleteDirectory => "dirdelete",
        }
    }

    /// Whether each name can be worked on but once.
    #[must_use]
    pub fn is_once(self) -> bool {
        !matches!(self, Self::StatFile | Self::StatLink | Self::StatDirectory)
    }

    /// Whether names are made before the run.
    #[must_use]
    pub fn is_made_ready(self) -> bool {
        !self.makes()
    }

    fn makes(self) -> bool {
        matches!(self, Self::CreateFile | Self::CreateDirectory)
    }

    fn is_of_directories(self) -> bool {
        matches!(self, Self::CreateDirectory | Self::StatDirectory | Self::DeleteDirectory)
    }
}

/// What a name stood for when it was made: device and inode.
type Identity = (u64, u64);

fn identity(facts: &Metadata) -> Identity {
    (facts.dev(), facts.ino())
}

/// Names that requests work on.
#[derive(Debug)]
pub struct Names {
    operation: Operation,
    spec: String,
    paths: Vec<PathBuf>,
    /// Bytes that a request counts for, and files are made with.
    each: u64,
    /// What was made of each, and is still there as far as is known.
    made: Mutex<Vec<Option<Identity>>>,
    /// Everything that was made is removed when this is dropped.
    unlink: bool,
    /// The first name's directory.
    parent: PathBuf,
    /// The same, open.
    directory: File,
}

impl Names {
    /// Makes ready: what is to be looked up or removed is made where it is missing, and what is to be made, or removed,
    /// must not be there. Files are made with their length and no data.
    ///
    /// # Errors
    /// [`ActError`]; what was made until then is removed again, unless it was to be looked up.
    ///
    /// # Panics
    /// If there are no names.
    pub fn prepare(
        operation: Operation,
        paths: Vec<PathBuf>,
        each: u64,
        may_make: bool,
        unlink: bool,
    ) -> Result<Self, ActError> {
        let parent = paths[0].parent().filter(|path| !path.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let directory = File::open(parent).map_err(|source| ActError::Io {
            operation: "open the directory",
            path: parent.to_owned(),
            source,
        })?;
        let spec = format!("{} of {} names in {}", operation.word(), paths.len(), parent.display());
        let made = Mutex::new(vec![None; paths.len()]);
        // What is to be removed anyway is not left behind by a run that fails.
        let unlink = unlink || operation.is_once() && !operation.makes();
        let parent = parent.to_owned();
        let names = Self { operation, spec, paths, each, made, unlink, parent, directory };
        for (number, path) in names.paths.iter().enumerate() {
            names.make_ready(number, path, may_make)?;
        }
        Ok(names)
    }

    fn make_ready(&self, number: usize, path: &Path, may_make: bool) -> Result<(), ActError> {
        let act = self.operation.word();
        let exists = |why| ActError::Exists { path: path.to_owned(), act, why };
        match (fs::symlink_metadata(path), self.operation) {
            (Ok(_), operation) if operation.makes() => Err(exists("makes what is not there")),
            (Ok(_), operation) if operation.is_once() => {
                Err(exists("removes nothing but what the run has made"))
            }
            (Ok(_), _) => Ok(()),
            (Err(error), operation) if error.kind() == io::ErrorKind::NotFound => match may_make {
                _ if operation.makes() => Ok(()),
                true => self.make(number, path).map_err(|source| ActError::Io {
                    operation: "make",
                    path: path.to_owned(),
                    source,
                }),
                false => Err(ActError::Missing(path.to_owned())),
            },
            (Err(source), _) => Err(ActError::Io { operation: "look at", path: path.to_owned(), source }),
        }
    }

    /// Makes a name, and remembers what it stands for where that is to be removed.
    fn make(&self, number: usize, path: &Path) -> io::Result<()> {
        if self.operation.is_of_directories() {
            fs::DirBuilder::new().mode(0o755).create(path)?;
            return self.remember(number, || fs::symlink_metadata(path));
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(path)?;
        self.remember(number, || file.metadata())?;
        // Only what is laid has a length: fio's filecreate leaves empty files.
        if self.operation.makes() { Ok(()) } else { file.set_len(self.each) }
    }

    /// Remembers what a name stands for, if it is to be removed.
    fn remember(&self, number: usize, facts: impl FnOnce() -> io::Result<Metadata>) -> io::Result<()> {
        if self.unlink {
            self.lock()[number] = Some(identity(&facts()?));
        }
        Ok(())
    }

    /// Removes a name that still stands for what the run has made of it.
    fn remove(&self, number: usize) -> io::Result<()> {
        let path = &self.paths[number];
        let expected = self.lock()[number];
        let found = identity(&fs::symlink_metadata(path)?);
        if expected != Some(found) {
            return Err(io::Error::other("it is not what the run has made there, and stays"));
        }
        if self.operation.is_of_directories() {
            fs::remove_dir(path)?
        } else {
            fs::remove_file(path)?
        };
        self.lock()[number] = None;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Identity>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn perform(&self, number: usize) -> io::Result<()> {
        let path = &self.paths[number];
        match self.operation {
            Operation::CreateFile | Operation::CreateDirectory => self.make(number, path),
            Operation::StatFile | Operation::StatDirectory => fs::metadata(path).map(drop),
            Operation::StatLink => fs::symlink_metadata(path).map(drop),
            Operation::DeleteFile | Operation::DeleteDirectory => self.remove(number),
        }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        if self.unlink {
            let left: Vec<usize> = (0..self.paths.len()).filter(|n| self.lock()[*n].is_some()).collect();
            for number in left {
                // What cannot be removed is still the user's to remove; the figures stand.
                let _ = self.remove(number);
            }
        }
    }
}

impl Device for Names {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Operations
    }

    fn performs(&self) -> Option<&'static str> {
        Some(self.operation.word())
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.parent)
    }

    fn size(&self) -> u64 {
        self.each * self.paths.len() as u64
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 1, physical_block: 1, memory_alignment: 1 }
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The operation on the name at `offset`. The error names it.
    fn read_at(&self, _: &mut [u8], offset: u64) -> io::Result<()> {
        let number = (offset / self.each) as usize;
        self.perform(number).map_err(|error| {
            let (word, path) = (self.operation.word(), self.paths[number].display());
            io::Error::new(error.kind(), format!("{word} {path}: {error}"))
        })
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(directory: &Path, count: usize) -> Vec<PathBuf> {
        (0..count).map(|n| directory.join(format!("f.{n}"))).collect()
    }

    fn listed(directory: &Path) -> usize {
        fs::read_dir(directory).expect("lists").count()
    }

    fn perform(names: &Names, number: u64) -> io::Result<()> {
        names.read_at(&mut [], number * 4096)
    }

    #[test]
    fn each_request_does_its_operation_with_its_name() {
        let place = tempfile::tempdir().expect("a directory");
        let all = || paths(place.path(), 3);
        for (make, look, remove) in [
            (Operation::CreateFile, Operation::StatFile, Operation::DeleteFile),
            (Operation::CreateDirectory, Operation::StatDirectory, Operation::DeleteDirectory),
        ] {
            let names = Names::prepare(make, all(), 4096, true, false).expect("ready");
            perform(&names, 1).expect("makes it");
            assert_eq!(listed(place.path()), 1);
            assert_eq!(place.path().join("f.1").is_dir(), make == Operation::CreateDirectory);
            perform(&names, 1).expect_err("is there");
            drop(names);
            assert_eq!(listed(place.path()), 1, "what was made stays");
            let names = Names::prepare(look, all(), 4096, true, false).expect("ready");
            assert_eq!(listed(place.path()), 3);
            perform(&names, 2).expect("looks it up");
            drop(names);
            for path in all() {
                if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.expect("removes");
            }
            let names = Names::prepare(remove, all(), 4096, true, false).expect("ready");
            assert_eq!(listed(place.path()), 3);
            perform(&names, 0).expect("removes it");
            assert_eq!(listed(place.path()), 2);
            drop(names);
            assert_eq!(listed(place.path()), 0, "what was made to be removed is");
        }
    }

    #[test]
    fn what_is_there_is_neither_made_nor_removed() {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join("f.1"), "mine").expect("writes");
        for operation in Operation::ALL.into_iter().filter(|operation| operation.is_once()) {
            let refused = Names::prepare(operation, paths(place.path(), 2), 4096, true, false);
            assert!(matches!(refused, Err(ActError::Exists { .. })), "{operation:?}: {refused:?}");
            assert_eq!(listed(place.path()), 1, "{operation:?}: nothing is left of the attempt");
        }
        let refused = Names::prepare(Operation::StatFile, paths(place.path(), 2), 4096, false, false);
        assert!(matches!(refused, Err(ActError::Missing(_))), "{refused:?}");
    }

    #[test]
    fn another_file_of_the_same_name_is_not_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let names = Names::prepare(Operation::DeleteFile, paths(place.path(), 2), 4096, true, false);
        let names = names.expect("ready");
        let first = place.path().join("f.0");
        fs::write(place.path().join("other"), "mine").expect("writes");
        fs::rename(place.path().join("other"), &first).expect("takes its place");
        let error = perform(&names, 0).expect_err("is another file");
        assert!(error.to_string().contains("not what the run has made"), "{error}");
        drop(names);
        assert_eq!(fs::read_to_string(&first).expect("is there"), "mine");
        assert_eq!(listed(place.path()), 1);
    }

    #[test]
    fn files_that_were_made_to_be_removed_afterwards_are() {
        let place = tempfile::tempdir().expect("a directory");
        let names = Names::prepare(Operation::CreateFile, paths(place.path(), 2), 4096, true, true);
        let names = names.expect("ready");
        perform(&names, 0).expect("makes it");
        drop(names);
        assert_eq!(listed(place.path()), 0);
    }
}
