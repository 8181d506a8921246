//! Step 6: the source goes, each file only if it is still the one that was copied.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::find::{Source, open_below};
use super::publish::PAGE;
use super::{Notes, Run};
use crate::calls;
use crate::digest::CHUNK_BYTES;
use crate::error::{RETRY, StageError};
use crate::fault::{Barrier, Check, enforced};
use crate::journal::{Done, Identity};
use crate::lock;
use crate::manifest::{self, Kind};
use crate::mounts;
use crate::names::joined;
use crate::semaphore::{self, Removal, Semaphore};
use crate::set::Manifest;
use crate::spec::Verb;
use crate::tier::Destination;
use crate::verify::Reader;

/// Keeps the copy of a move from being removed until what is returned is dropped: it may be the source of another move,
/// which goes because of this one's source. None where there is no such lock.
///
/// # Errors
/// [`StageError::Refused`] if somebody is removing it.
pub(super) fn hold(run: &Run<'_>) -> Result<Option<OwnedFd>, StageError> {
    let Some(path) = run.spec.destination.path().filter(|_| run.spec.verb == Verb::Move) else {
        return Ok(None);
    };
    // A source that is its own destination would keep itself; that it is none was looked at.
    if !enforced(Check::SourceIsNotDestination) {
        return Ok(None);
    }
    match Source::open(path, None).and_then(|copy| copy.open_root()) {
        Ok(root) => Ok(locked(&root, false, path)?.then_some(root)),
        // What is not there, or is none of a mover's, is for others to say.
        Err(StageError::Invalid { .. }) => Ok(None),
        Err(StageError::Io { source, .. }) if calls::is_not_there(&source) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Is the source of a move there, so that it has to go? Nobody holds it then.
///
/// # Errors
/// [`StageError::Refused`] if somebody does.
pub(super) fn may_go(run: &Run<'_>) -> Result<bool, StageError> {
    let Some(path) = run.spec.source.path() else { return Ok(true) };
    match Source::open(path, run.spec.watched()) {
        Err(StageError::Io { source, .. }) if Errno::from_io_error(&source) == Some(Errno::NOENT) => {
            Ok(false)
        }
        // What cannot be opened is for the removal to say.
        Err(_) => Ok(true),
        Ok(source) => match source.open_root() {
            Ok(root) => locked(&root, true, path).map(|_| true),
            Err(_) => Ok(true),
        },
    }
}

/// Locks the copy of a move, or its source.
fn locked(root: &OwnedFd, exclusive: bool, path: &Path) -> Result<bool, StageError> {
    match lock::at_once(root.as_fd(), exclusive, path) {
        Err(StageError::Locked { path, by }) => Err(StageError::refused(
            format!("{path}: is locked by {by}, who reads it or removes one of its copies; the source stays"),
            format!("when that is done: {RETRY}"),
        )),
        taken => taken,
    }
}

/// The copy's directory, to see that a file is there before the source's goes: while nobody held it, before a crash or
/// where there are no locks, it may have been removed for the source's sake. None of what lies in a store.
fn copy_root(run: &Run<'_>) -> Result<Option<OwnedFd>, StageError> {
    let path = run.spec.destination.path().filter(|_| enforced(Check::CommittedDestination));
    path.map(|path| {
        calls::open_directory(path).map_err(|error| StageError::io("open the directory", path, error))
    })
    .transpose()
}

/// Has the copy what was copied, by name, kind and size?
fn is_copied(copy: &OwnedFd, done: &Done) -> std::io::Result<bool> {
    let entry = &done.entry;
    let found = calls::open_beneath(copy.as_fd(), &entry.path.0, OFlags::PATH, Mode::empty())
        .and_then(|file| calls::stat(file.as_fd()));
    let found = match found {
        // An error that says nothing of the copy must not end a move with its source there and nothing wrong.
        Err(error) if calls::is_not_there(&error) => return Ok(false),
        found => found?,
    };
    Ok(match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::RegularFile => {
            entry.kind == Kind::File && (entry.link_to.is_some() || found.stx_size == entry.size)
        }
        FileType::Symlink => entry.kind == Kind::Symlink,
        _ => false,
    })
}

/// Removes the source of a committed move. What is no longer what was copied stays, and a note says so. A manifest is not
/// copied; it goes only if the copy has one of its own. What of the copy was lost, if something was: that of the source stays.
pub(super) fn remove(
    run: &Run<'_>,
    path: &Path,
    copy: &dyn Destination,
    notes: &mut Notes,
) -> Result<Option<StageError>, StageError> {
    let source = match Source::open(path, run.spec.watched()) {
        // An earlier attempt was interrupted after this.
        Err(StageError::Io { source, .. }) if Errno::from_io_error(&source) == Some(Errno::NOENT) => {
            return Ok(None);
        }
        // What was copied has gone, and something that cannot be moved has its name: it is not ours to remove.
        Err(error @ StageError::Invalid { .. }) => {
            notes.push(format!("the source stayed, because it is something else now: {error}"));
            return Ok(None);
        }
        source => source?,
    };
    let mut left = Left::default();
    let root = match source.open_root() {
        // It went, or something else got its name, between two looks; what has the name is looked at below.
        Err(_) if !source.is_directory => None,
        opened => Some(opened?),
    };
    if let Some(root) = &root {
        locked(root, true, path)?;
    }
    if let (true, Some(root)) = (source.is_directory, &root) {
        // Directories that the semaphore lies in go with it, after all else.
        let semaphore = within(run, path).filter(|semaphore| semaphore.symlink_metadata().is_ok());
        beneath(run, root, path, semaphore, &mut left)?;
        if left.count == 0 {
            own_manifest(run, root, path, copy, &mut left)?;
            if semaphore.is_none() && left.count == 0 {
                gone(calls::remove_directory(source.parent.as_fd(), &source.name), path, &mut left)?;
            }
        }
    } else if let Some(done) = run.journal.entry(run.entries(), Path::new(""))? {
        file(run, &source.parent, &source.name, &done, path, &mut Removing::of(run), &mut left)?;
    }
    let above = path.parent().unwrap_or(path);
    calls::sync(source.parent.as_fd(), Barrier::SourceRemoved)
        .map_err(|error| StageError::sync("fsync", above, error))?;
    if left.count > 0 {
        notes.push(format!(
            "{} of the source stayed, because {}: {}",
            left.count,
            left.why,
            crate::error::shown(&left.first)
        ));
    }
    Ok(left.lost.map(|lost| {
        StageError::refused(
            format!("{}: is not in the copy any more; it stayed", crate::error::shown(&lost)),
            "move what is at the source again, to another name",
        )
    }))
}

/// Removes the manifest of the set that the source was, if the copy has one in its place.
fn own_manifest(
    run: &Run<'_>,
    root: &OwnedFd,
    path: &Path,
    copy: &dyn Destination,
    left: &mut Left,
) -> Result<(), StageError> {
    let shown = path.join(manifest::NAME);
    match calls::stat_at(root.as_fd(), manifest::NAME.as_ref()) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => return Ok(()),
        found => found.map_err(|error| StageError::io("look at", &shown, error))?,
    };
    if Manifest::read(root.as_fd(), path)?.is_none() {
        left.add(&shown, "it is not a manifest, and was not copied");
    } else if !copy.has_manifest(run)? {
        left.add(&shown, "the copy has no manifest");
    } else {
        gone(calls::remove_file(root.as_fd(), manifest::NAME.as_ref()), &shown, left)?;
    }
    Ok(())
}

/// What was not removed, and the first of it.
#[derive(Default)]
struct Left {
    count: u64,
    first: PathBuf,
    why: &'static str,
    /// The first whose copy is not there any more.
    lost: Option<PathBuf>,
}

impl Left {
    fn add(&mut self, path: &Path, why: &'static str) {
        if self.count == 0 {
            (self.first, self.why) = (path.to_owned(), why);
        }
        self.count += 1;
    }
}

fn beneath(
    run: &Run<'_>,
    root: &OwnedFd,
    shown: &Path,
    semaphore: Option<&Path>,
    left: &mut Left,
) -> Result<(), StageError> {
    let mut before: Option<PathBuf> = None;
    // The directory of the entry before is most often this one's.
    let mut here: Option<(PathBuf, OwnedFd)> = None;
    let mut removing = Removing::of(run);
    let copy = copy_root(run)?;
    loop {
        let page = run.journal.entries_before(run.entries(), before.as_deref(), PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        before = Some(last.entry.path.0.clone());
        for done in page {
            run.stop.check()?;
            let path = &done.entry.path.0;
            let Some(name) = path.file_name() else { continue };
            let above = path.parent().unwrap_or(Path::new(""));
            if here.as_ref().is_none_or(|(path, _)| path != above) {
                let beneath = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                here = match calls::open_beneath(root.as_fd(), beneath, flags, Mode::empty()) {
                    Ok(directory) => Some((above.to_owned(), directory)),
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => None,
                    Err(error)
                        if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NOTDIR)) =>
                    {
                        left.add(&joined(shown, path), "its directory is none any more");
                        continue;
                    }
                    Err(error) => {
                        return Err(StageError::io("open the directory", &joined(shown, above), error));
                    }
                };
            }
            let Some((_, directory)) = &here else { continue };
            let shown = joined(shown, path);
            if semaphore.is_some_and(|semaphore| semaphore.starts_with(&shown) && semaphore != shown) {
                // A directory above it.
            } else if done.entry.kind == Kind::Directory {
                gone(calls::remove_directory(directory.as_fd(), name), &shown, left)?;
            } else {
                let copied = copy.as_ref().map(|copy| is_copied(copy, &done)).transpose();
                if copied.map_err(|error| StageError::io("look at the copy of", &shown, error))?
                    == Some(false)
                {
                    left.add(&shown, "its copy is not there any more");
                    left.lost.get_or_insert(shown);
                } else {
                    file(run, directory, name, &done, &shown, &mut removing, left)?;
                }
            }
        }
    }
}

/// What the removal of one source needs for each of its files.
struct Removing {
    /// Files of several names, by inode, as they were right after one of their names was removed here.
    unlinked: HashMap<u64, Identity>,
    /// The source lies in a file system in memory, or nobody knows in which. Nothing else is mounted in the source of a move.
    is_in_memory: bool,
    reader: Reader,
}

impl Removing {
    fn of(run: &Run<'_>) -> Self {
        let mount = mounts::of_place(&run.spec.source, false);
        Self {
            unlinked: HashMap::new(),
            is_in_memory: mount.is_none_or(|mount| mount.is_in_memory()),
            reader: Reader::new(CHUNK_BYTES),
        }
    }
}

fn file(
    run: &Run<'_>,
    directory: &OwnedFd,
    name: &OsStr,
    done: &Done,
    shown: &Path,
    removing: &mut Removing,
    left: &mut Left,
) -> Result<(), StageError> {
    let failed = |error| StageError::io("look at", shown, error);
    let stat = match calls::stat_at(directory.as_fd(), name) {
        Ok(stat) => stat,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let now = Identity::of(&stat);
    let expected = removing.unlinked.get(&now.ino).unwrap_or(&done.source);
    let found = Found { directory, name, done, now: &now, shown };
    let compared = match expected.change(&now) {
        Some(_) if enforced(Check::SourceBeforeRemoval) => found.has_same_bytes(run, &mut removing.reader),
        // Stores through a shared mapping move no time of a file in memory.
        None if removing.is_in_memory && enforced(Check::SourceBytesInMemory) => {
            found.reads_as_copied(run, &mut removing.reader)
        }
        _ => Ok(true),
    };
    let is_copied = match compared {
        // Another program has removed it meanwhile.
        Err(StageError::Io { source, .. }) if Errno::from_io_error(&source) == Some(Errno::NOENT) => {
            return Ok(());
        }
        compared => compared?,
    };
    if !is_copied {
        left.add(shown, "it changed after it was copied");
        return Ok(());
    }
    // The removal of one name moves the change time of the file, which its other names have in common.
    let other_names = (now.nlink > 1)
        .then(|| calls::open_at(directory.as_fd(), name, OFlags::PATH, Mode::empty()))
        .transpose()
        .map_err(failed)?;
    match calls::remove_file(directory.as_fd(), name) {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::NOENT) => {
            return Err(StageError::io("remove", shown, error));
        }
        _ => {}
    }
    removing.unlinked.remove(&now.ino);
    if let Some(file) = other_names {
        let after = Identity::of(&calls::stat(file.as_fd()).map_err(failed)?);
        let only_unlinked =
            after.nlink + 1 == now.nlink && now.change(&Identity { ctime: now.ctime, ..after }).is_none();
        if only_unlinked {
            removing.unlinked.insert(after.ino, after);
        }
    }
    Ok(())
}

/// A file of the source, as it was found, and what was copied of it.
struct Found<'a> {
    directory: &'a OwnedFd,
    name: &'a OsStr,
    done: &'a Done,
    now: &'a Identity,
    shown: &'a Path,
}

impl Found<'_> {
    /// Is a file of several names still what was copied, although its change time is another? Before a crash this very
    /// removal may have moved it, or another program gave or took a name; its bytes tell.
    fn has_same_bytes(&self, run: &Run<'_>, reader: &mut Reader) -> Result<bool, StageError> {
        let was = &self.done.source;
        let same = was.change(&Identity { ctime: was.ctime, ..*self.now }).is_none();
        if was.nlink == self.now.nlink || !same {
            return Ok(false);
        }
        self.reads_as_copied(run, reader)
    }

    /// Reads the file, and compares what is read with what was copied.
    fn reads_as_copied(&self, run: &Run<'_>, reader: &mut Reader) -> Result<bool, StageError> {
        let Self { directory, name, done, now, shown } = *self;
        if done.entry.kind == Kind::Symlink {
            // Where a symbolic link leads cannot be changed.
            return Ok(true);
        }
        let copied = match &done.entry.link_to {
            Some(first) => run.journal.entry(run.entries(), &first.0)?.and_then(|first| first.entry.digest),
            None => done.entry.digest,
        };
        let Some(copied) = copied else { return Ok(false) };
        let algorithm = run.spec.options.digest;
        let mut chunks = Vec::new();
        let mut take = |_, digest| {
            run.stop.check()?;
            chunks.push(digest);
            Ok(())
        };
        let size = done.source.size;
        match reader.chunks(directory.as_fd(), Path::new(name), shown, size, algorithm, &mut take) {
            Err(StageError::Corrupt { .. }) => return Ok(false),
            read => read?,
        }
        let stat = calls::stat_at(directory.as_fd(), name)
            .map_err(|error| StageError::io("look at", shown, error))?;
        Ok(algorithm.of_chunks(&chunks) == copied && now.change(&Identity::of(&stat)).is_none())
    }
}

/// A directory that something has come into stays.
fn gone(removed: std::io::Result<()>, shown: &Path, left: &mut Left) -> Result<(), StageError> {
    match removed {
        Ok(()) => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Ok(()),
            Some(Errno::NOTEMPTY | Errno::EXIST) => {
                left.add(shown, "something has come into it since");
                Ok(())
            }
            _ => Err(StageError::io("remove", shown, error)),
        },
    }
}

/// The semaphore that asked for the job and goes with it, where it lies in the source.
fn within<'a>(run: &'a Run<'_>, source: &Path) -> Option<&'a Path> {
    let semaphore = run.spec.options.semaphore.as_ref().filter(|semaphore| !semaphore.stays)?;
    let path = &*semaphore.path.0;
    path.strip_prefix(source).is_ok_and(|inside| !inside.as_os_str().is_empty()).then_some(path)
}

/// Removes the semaphore that asked for the job, if it is still the one that was read; of a `moved` source that it lies in,
/// the directories above it as well, as far as nothing else is in them.
pub(super) fn semaphore(
    run: &Run<'_>,
    semaphore: &Semaphore,
    moved: Option<&Path>,
    notes: &mut Notes,
) -> Result<(), StageError> {
    let path = &semaphore.path.0;
    let (Some(mut above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let failed = |path: &Path, error| StageError::io("remove the semaphore", path, error);
    // Below a source that is moved no link is followed.
    let root = moved.filter(|source| within(run, source).is_some()).and_then(Path::parent);
    let opened = match root {
        Some(root) => calls::open_directory(root)
            .and_then(|root_fd| Ok((open_below(&root_fd, root, above)?, Some((root, root_fd))))),
        None => calls::open_directory(above).map(|directory| (directory, None)),
    };
    let (mut directory, root) = match opened {
        // It went with the source.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(|error| failed(above, error))?,
    };
    let removal = semaphore::remove(directory.as_fd(), name, &semaphore.identity);
    if removal.map_err(|error| failed(path, error))? == Removal::Replaced {
        notes.push(format!(
            "{}: was replaced after the job was asked for; it was left, and asks for another",
            crate::error::shown(path)
        ));
        return Ok(());
    }
    if let Some((root, root_fd)) = root {
        while above != root {
            let (Some(parent), Some(name)) = (above.parent(), above.file_name()) else { break };
            let parent_fd = open_below(&root_fd, root, parent).map_err(|error| failed(parent, error))?;
            // What is not empty stays, and so do those above it.
            if calls::remove_directory(parent_fd.as_fd(), name).is_err() {
                break;
            }
            (above, directory) = (parent, parent_fd);
        }
    }
    calls::sync(directory.as_fd(), Barrier::SemaphoreRemoved)
        .map_err(|error| StageError::sync("fsync", above, error))
}
