//! One name a request: files or directories that are made, looked up or removed.
//!
//! Request n works on the nth name, so that a job of as many blocks as it has names visits each once. A request that
//! removes first looks whether the name still stands for what the run has made ([`Made`]): what another program
//! put there meanwhile stays, and fails the run. Making never opens what exists (`O_EXCL`).

use std::cell::RefCell;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use storage::device::{Device, DeviceKind, Geometry};

use super::ActError;
use super::made::{Made, is_among_devices};

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
    /// All of them.
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

/// Names that requests work on.
#[derive(Debug)]
pub struct Names {
    operation: Operation,
    spec: String,
    paths: Vec<PathBuf>,
    /// Bytes that a request counts for, and files are made with.
    each: u64,
    /// What was made of each, and is still there as far as is known.
    made: Mutex<Vec<Option<Made>>>,
    /// Everything that was made is removed when this is dropped: in any case as long as the run has not begun.
    unlink: AtomicBool,
    /// What was made for the run is removed after it.
    unlink_afterwards: bool,
    /// The first name's directory.
    parent: PathBuf,
    /// The same, open.
    directory: File,
}

impl Names {
    /// Makes ready: what is to be looked up or removed is made where it is missing, and what is to be made, or removed,
    /// must not be there. Files are made with their length and no data. `stop` is looked at before each name. What was made
    /// is removed again when this is dropped, unless the run has [begun](Self::begin).
    ///
    /// # Errors
    /// [`ActError`]; what was made until then is removed again.
    ///
    /// # Panics
    /// If there are no names.
    pub fn prepare(
        operation: Operation,
        paths: Vec<PathBuf>,
        each: u64,
        may_make: bool,
        unlink: bool,
        stop: &AtomicBool,
    ) -> Result<Self, ActError> {
        let parent = paths[0].parent().filter(|path| !path.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let directory = File::open(parent).map_err(|source| ActError::Io {
            operation: "open the directory",
            path: parent.to_owned(),
            source,
        })?;
        let spec = format!("{} of {} names in {}", operation.word(), paths.len(), parent.display());
        let made = Mutex::new((0..paths.len()).map(|_| None).collect());
        let parent = parent.to_owned();
        // What is to be removed anyway is not left behind by a run that fails.
        let unlink_afterwards = unlink || operation.is_once() && !operation.makes();
        let unlink = AtomicBool::new(true);
        let names = Self { operation, spec, paths, each, made, unlink, unlink_afterwards, parent, directory };
        let devices = Devices::default();
        for (number, path) in names.paths.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Err(ActError::Interrupted);
            }
            names.make_ready(number, path, may_make, &devices)?;
        }
        Ok(names)
    }

    /// The run begins. What was made for it is the user's, unless it is to be removed afterwards.
    pub fn begin(&self) {
        self.unlink.store(self.unlink_afterwards, Ordering::Relaxed);
    }

    fn make_ready(
        &self,
        number: usize,
        path: &Path,
        may_make: bool,
        devices: &Devices,
    ) -> Result<(), ActError> {
        let act = self.operation.word();
        let exists = |why| ActError::Exists { path: path.to_owned(), act, why };
        match (fs::symlink_metadata(path), self.operation) {
            (Ok(_), operation) if operation.makes() => Err(exists("makes what is not there")),
            (Ok(_), operation) if operation.is_once() => {
                Err(exists("removes nothing but what the run has made"))
            }
            (Ok(_), _) => Ok(()),
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound && devices.are_beside(path) => {
                Err(ActError::AmongDevices(path.to_owned()))
            }
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
        // Only what is laid has a length: fio's filecreate leaves empty files.
        let laid = if self.operation.makes() { Ok(()) } else { file.set_len(self.each) };
        self.remember(number, || file.metadata())?;
        laid
    }

    /// Remembers what a name stands for, if it is to be removed.
    fn remember(&self, number: usize, facts: impl FnOnce() -> io::Result<Metadata>) -> io::Result<()> {
        if self.unlink.load(Ordering::Relaxed) {
            self.lock()[number] = Some(Made::of(&facts()?));
        }
        Ok(())
    }

    /// Removes a name that still stands for what the run has made of it.
    fn remove(&self, number: usize) -> io::Result<()> {
        let path = &self.paths[number];
        let made = self.lock()[number].take();
        let removed = match &made {
            Some(made) => made.remove(path),
            None => Err(io::Error::other("the run has not made it, and it stays")),
        };
        if removed.is_err() {
            self.lock()[number] = made;
        }
        removed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Made>>> {
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
        if self.unlink.load(Ordering::Relaxed) {
            let left: Vec<usize> = (0..self.paths.len()).filter(|n| self.lock()[*n].is_some()).collect();
            for number in left {
                // What cannot be removed is still the user's to remove; the figures stand.
                let _ = self.remove(number);
            }
        }
    }
}

/// Whether the directory of a name holds devices, remembered for the next name.
#[derive(Debug, Default)]
struct Devices(RefCell<Option<(PathBuf, bool)>>);

impl Devices {
    fn are_beside(&self, path: &Path) -> bool {
        let mut last = self.0.borrow_mut();
        let parent = path.parent().unwrap_or(path);
        match &*last {
            Some((known, among)) if known == parent => *among,
            _ => {
                let among = is_among_devices(path);
                *last = Some((parent.to_owned(), among));
                among
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

    fn prepare(
        operation: Operation,
        paths: Vec<PathBuf>,
        each: u64,
        may_make: bool,
        unlink: bool,
    ) -> Result<Names, ActError> {
        let names = Names::prepare(operation, paths, each, may_make, unlink, &AtomicBool::new(false))?;
        names.begin();
        Ok(names)
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
            let names = prepare(make, all(), 4096, true, false).expect("ready");
            perform(&names, 1).expect("makes it");
            assert_eq!(listed(place.path()), 1);
            assert_eq!(place.path().join("f.1").is_dir(), make == Operation::CreateDirectory);
            perform(&names, 1).expect_err("is there");
            drop(names);
            assert_eq!(listed(place.path()), 1, "what was made stays");
            let names = prepare(look, all(), 4096, true, false).expect("ready");
            assert_eq!(listed(place.path()), 3);
            perform(&names, 2).expect("looks it up");
            drop(names);
            for path in all() {
                if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.expect("removes");
            }
            let names = prepare(remove, all(), 4096, true, false).expect("ready");
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
            let refused = prepare(operation, paths(place.path(), 2), 4096, true, false);
            assert!(matches!(refused, Err(ActError::Exists { .. })), "{operation:?}: {refused:?}");
            assert_eq!(listed(place.path()), 1, "{operation:?}: nothing is left of the attempt");
        }
        let refused = prepare(Operation::StatFile, paths(place.path(), 2), 4096, false, false);
        assert!(matches!(refused, Err(ActError::Missing(_))), "{refused:?}");
    }

    #[test]
    fn another_file_of_the_same_name_is_not_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let names = prepare(Operation::DeleteFile, paths(place.path(), 2), 4096, true, false);
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
        let names = prepare(Operation::CreateFile, paths(place.path(), 2), 4096, true, true);
        let names = names.expect("ready");
        perform(&names, 0).expect("makes it");
        drop(names);
        assert_eq!(listed(place.path()), 0);
    }

    #[test]
    fn a_later_file_in_the_place_of_one_that_was_made_is_not_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let names = prepare(Operation::DeleteFile, paths(place.path(), 2), 4096, true, false).expect("ready");
        let first = place.path().join("f.0");
        let born = fs::symlink_metadata(&first).expect("is there");
        // File systems give the number of a removed inode again, mostly at once, and their clocks tick in milliseconds.
        let mut has_ticked = false;
        for _ in 0..1000 {
            fs::remove_file(&first).expect("removes");
            fs::write(&first, vec![7; 4096]).expect("writes");
            let now = fs::symlink_metadata(&first).expect("is there");
            has_ticked |= now.modified().ok() > born.modified().ok();
            if has_ticked
                && std::os::unix::fs::MetadataExt::ino(&now) == std::os::unix::fs::MetadataExt::ino(&born)
            {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        perform(&names, 0).expect_err("is a later file");
        drop(names);
        assert_eq!(fs::read(&first).expect("is there"), vec![7; 4096]);
        assert_eq!(listed(place.path()), 1);
    }

    #[test]
    fn a_wish_to_stop_ends_the_making_of_names_and_leaves_none() {
        let place = tempfile::tempdir().expect("a directory");
        for operation in [Operation::DeleteFile, Operation::StatFile, Operation::CreateDirectory] {
            let (stop, all) = (AtomicBool::new(true), paths(place.path(), 4));
            let stopped = Names::prepare(operation, all, 4096, true, false, &stop);
            assert!(matches!(stopped, Err(ActError::Interrupted)), "{operation:?}: {stopped:?}");
            assert_eq!(listed(place.path()), 0, "{operation:?}");
        }
        // The fifth is in the way of a run that has made four.
        fs::write(place.path().join("f.4"), "mine").expect("writes");
        let refused = prepare(Operation::DeleteFile, paths(place.path(), 5), 4096, true, false);
        assert!(matches!(refused, Err(ActError::Exists { .. })), "{refused:?}");
        let missing = place.path().join("no/f.5");
        let of_stat = [paths(place.path(), 4), vec![missing]].concat();
        prepare(Operation::StatFile, of_stat, 4096, true, false).expect_err("has no directory");
        assert_eq!(listed(place.path()), 1, "what was made for a run that did not begin is removed");
    }

    #[test]
    fn what_was_made_for_a_run_that_does_not_begin_is_removed() {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join("f.1"), "mine").expect("writes");
        let all = paths(place.path(), 3);
        let stop = AtomicBool::new(false);
        let names = Names::prepare(Operation::StatFile, all, 4096, true, false, &stop).expect("ready");
        assert_eq!(listed(place.path()), 3);
        drop(names);
        assert_eq!(fs::read_to_string(place.path().join("f.1")).expect("stays"), "mine");
        assert_eq!(listed(place.path()), 1);
    }

    #[test]
    fn a_misspelt_device_does_not_become_a_file() {
        let place = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink("/dev", place.path().join("d")).expect("links");
        let misspelt = place.path().join("d/flashwright-test-misspelt");
        for operation in Operation::ALL {
            let refused = prepare(operation, vec![misspelt.clone()], 4096, true, false);
            let was_made = misspelt.exists();
            drop(fs::remove_file(&misspelt).or_else(|_| fs::remove_dir(&misspelt)));
            assert!(
                !was_made && matches!(refused, Err(ActError::AmongDevices(_))),
                "{operation:?}: {refused:?}"
            );
        }
    }
}
