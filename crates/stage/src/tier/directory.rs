//! A directory of sets: the fast tier, and the slow one where that is a file system.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use storage::uuid::Uuid;

use super::{Lock, Tier};
use crate::calls;
use crate::distinct::{self, Shown};
use crate::error::{StageError, shown};
use crate::existing::make_durable_at;
use crate::fault::{Barrier, Check, enforced};
use crate::lock;
use crate::manifest;
use crate::metadata;
use crate::names::{PathText, is_part, part_name};
use crate::owned::{FileId, Left, Record, TakenAside, discard};
use crate::pace::Stop;
use crate::series::{LATEST, SeriesPosition, place};
use crate::set::Manifest;
use crate::spec;

pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Held by the thread that completes a set.
static COMPLETING: Mutex<()> = Mutex::new(());

/// A directory of sets.
#[derive(Debug)]
pub struct Directory {
    pub(crate) path: PathBuf,
    directory: OwnedFd,
    /// Ends the reading of a set.
    stop: Stop,
}

/// Why a set may not go; none: it may.
pub(crate) type Look<'a> = &'a dyn Fn(BorrowedFd<'_>) -> Result<Option<String>, StageError>;

/// The name of a set that is to be taken apart, and which directory it is; or why it stays.
pub(crate) type Doomed = Result<(OsString, FileId), Kept>;

/// Why a set stays.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Somebody holds a lock on it.
    Held,
    /// For this.
    Because(String),
}

impl Kept {
    pub(crate) fn words(self) -> String {
        match self {
            Self::Held => "somebody is reading it, or removes another copy for its sake".to_owned(),
            Self::Because(why) => why,
        }
    }
}

/// The right to work on a directory, where the file system has locks.
struct Alone<'a>(Option<BorrowedFd<'a>>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some(directory) = self.0 {
            let _ = rustix::fs::flock(directory, FlockOperation::Unlock);
        }
    }
}

impl Lock for Alone<'_> {}

impl Directory {
    /// Opens it.
    pub fn open(path: &Path) -> Result<Self, StageError> {
        let directory =
            calls::open_directory(path).map_err(|error| StageError::io("open the directory", path, error))?;
        Ok(Self { path: path.to_owned(), directory, stop: Stop::new() })
    }

    /// The same, which stops reading when it is asked to.
    pub(crate) fn until(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    /// Ends the reading of a set when that is asked for.
    pub(crate) fn go_on(&self) -> Result<(), StageError> {
        self.stop.check()
    }

    fn failed<'a>(
        &'a self,
        operation: &'a str,
        name: &'a OsStr,
    ) -> impl FnOnce(io::Error) -> StageError + 'a {
        move |error| StageError::io(operation, &self.path.join(name), error)
    }

    pub(crate) fn directory(&self, name: &OsStr) -> Result<OwnedFd, StageError> {
        calls::open_at(self.directory.as_fd(), name, DIRECTORY, Mode::empty())
            .map_err(self.failed("open", name))
    }

    fn below(&self, name: &OsStr) -> Result<Self, StageError> {
        let directory = self.directory(name)?;
        Ok(Self { path: self.path.join(name), directory, stop: self.stop.clone() })
    }

    /// [`Tier::put_record`] of the set that this directory is. The record is written under another name, which is recorded,
    /// and linked or renamed over nothing. One that is there and not whole says nothing, and is replaced.
    fn take_record(&self, text: &[u8], record: &dyn Record) -> Result<bool, StageError> {
        // Threads of this process share its record: what it holds of this directory is then of a process that died.
        let _alone = COMPLETING.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, id) in record.doomed(&self.path)? {
            self.take_apart(&part, id.as_ref(), record)?;
        }
        let (directory, name) = (self.directory.as_fd(), OsStr::new(manifest::NAME));
        let part = self.part_of(name)?;
        record.dooms(&self.path, &part, None)?;
        let file = calls::create(directory, &part, OFlags::WRONLY).map_err(self.failed("create", &part))?;
        let id = FileId::of(file.as_fd()).map_err(self.failed("stat", &part))?;
        record.dooms(&self.path, &part, Some(&id))?;
        calls::write_at(file.as_fd(), text, 0).map_err(self.failed("write", &part))?;
        calls::set_mode(file.as_fd(), 0o666 & !metadata::umask())
            .map_err(self.failed("set the mode", &part))?;
        calls::sync(file.as_fd(), Barrier::SetRecord)
            .map_err(|error| StageError::sync("fsync", &self.path.join(&part), error))?;
        // With names that movers of other nodes gave to their parts, and have not synced yet.
        self.sync(Barrier::PartNames)?;
        let mut there = None;
        match calls::publish(directory, &part, name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                there = Manifest::read(directory, &self.path)?;
                if there.is_none() {
                    calls::replace(directory, &part, name).map_err(self.failed("replace", name))?;
                }
            }
            published => published.map_err(self.failed("rename to its name", &part))?,
        }
        discard(&self.directory, &part, &self.path, Some(&id))?;
        self.sync(Barrier::SetRecordName)?;
        record.forgets(&self.path, &part)?;
        match there.map(|there| there.text()).transpose()? {
            None => Ok(true),
            Some(there) if there == text => Ok(false),
            Some(_) => Err(StageError::refused(
                format!("{}: is not the record of the parts beside it", shown(&self.path.join(name))),
                "a part was replaced after the set was complete; `stage verify` names it",
            )),
        }
    }

    fn list(&self) -> Result<Vec<(OsString, FileType)>, StageError> {
        calls::list(self.directory.as_fd())
            .map_err(|error| StageError::io("read the directory", &self.path, error))
    }

    /// Is a set here the set of its name in the tier `slow`, seen through another file system? A file that is made in the
    /// one for a moment appears in the other then. Its name is recorded first, and is swept after a crash.
    pub(crate) fn shows_in(
        &self,
        slow: &dyn Tier,
        name: &OsStr,
        record: &dyn Record,
    ) -> Result<bool, StageError> {
        let (set, path) = (self.directory(name)?, self.path.join(name));
        let probe = self.part_of(name)?;
        record.dooms(&self.path, Path::new(name).join(&probe).as_os_str(), None)?;
        let here = Shown { directory: set.as_fd(), path: &path };
        let appears = || distinct::appears_keeping_times(here, &probe, || slow.shows(name, &probe));
        match appears() {
            // Its owner may not write to it; nor could it be removed then.
            Err(StageError::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                let failed = |error| StageError::io("set the mode", &path, error);
                let mode = calls::stat(set.as_fd()).map_err(failed)?.stx_mode;
                let mode = u32::from(mode) & 0o7777;
                calls::set_mode(set.as_fd(), mode | 0o700).map_err(failed)?;
                let appears = appears();
                calls::set_mode(set.as_fd(), mode).map_err(failed)?;
                appears
            }
            appears => appears,
        }
    }

    fn part_of(&self, name: &OsStr) -> Result<OsString, StageError> {
        let uuid =
            Uuid::random().map_err(|error| StageError::io("make a name of its own in", &self.path, error))?;
        Ok(part_name(name, uuid))
    }

    fn sync(&self, barrier: Barrier) -> Result<(), StageError> {
        calls::sync(self.directory.as_fd(), barrier)
            .map_err(|error| StageError::sync("fsync", &self.path, error))
    }

    /// Rule 3: has a set lose its name; the name that it has then, or why it keeps its own. `look` says whether it may go,
    /// and is asked when no program finds it under its name any more.
    pub(crate) fn doom(
        &self,
        name: &OsStr,
        record: &dyn Record,
        look: Look<'_>,
    ) -> Result<Doomed, StageError> {
        let set = self.directory(name)?;
        if let Err(StageError::Locked { .. }) = lock::at_once(set.as_fd(), true, &self.path) {
            return Ok(Err(Kept::Held));
        }
        let id = FileId::of(set.as_fd()).map_err(self.failed("stat", name))?;
        let part = self.part_of(name)?;
        record.takes_aside(&self.path, name, &part, &id)?;
        match calls::publish(self.directory.as_fd(), name, &part) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                record.forgets(&self.path, &part)?;
                return Ok(Err(Kept::Because("it went meanwhile".to_owned())));
            }
            Err(error) => return Err(self.failed("rename, to remove it,", name)(error)),
        }
        let there = FileId::at(self.directory.as_fd(), &part).map_err(self.failed("stat", name))?;
        let why = match there.is_some_and(|there| !there.is(&id)) {
            true => Ok(Some("something else was given its name".to_owned())),
            false => look(set.as_fd()),
        };
        let decided = why.and_then(|why| match why {
            // From here on it is removed, after a crash too.
            None => record.dooms(&self.path, &part, Some(&id)).map(|()| None),
            why => Ok(why),
        });
        match decided {
            Ok(None) => Ok(Ok((part, id))),
            Ok(Some(why)) => self.give_back(name, &part, record).map(|()| Err(Kept::Because(why))),
            Err(error) => Err(self.give_back(name, &part, record).err().unwrap_or(error)),
        }
    }

    /// Gives a set that is not to go its name back, durably. Where something else has the name by now it stays under the one
    /// that it has, and gets its own back once that is free.
    fn give_back(&self, name: &OsStr, part: &OsStr, record: &dyn Record) -> Result<(), StageError> {
        match calls::publish(self.directory.as_fd(), part, name) {
            Ok(()) => {
                self.sync(Barrier::GivenBack)?;
                record.forgets(&self.path, part)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(StageError::refused(
                format!(
                    "{}: was about to be removed and must not be, and something else has its name by now",
                    shown(&self.path.join(name))
                ),
                format!("it is {}; give it a name", shown(&self.path.join(part))),
            )),
            Err(error) => Err(self.failed("give its name back to", name)(error)),
        }
    }

    /// Takes apart what has the name of a set that was doomed, if it is that. Of a probe in a set, `part` is the set's name
    /// and its own.
    pub(crate) fn take_apart(
        &self,
        part: &OsStr,
        id: Option<&FileId>,
        record: &dyn Record,
    ) -> Result<(), StageError> {
        let set = Path::new(part).parent().filter(|set| !set.as_os_str().is_empty());
        let inside = match set
            .map(|set| calls::open_at(self.directory.as_fd(), set.as_os_str(), DIRECTORY, Mode::empty()))
        {
            // The probe went with its set.
            Some(Err(error)) if calls::is_not_there(&error) => return record.forgets(&self.path, part),
            opened => opened.transpose().map_err(self.failed("open", part))?,
        };
        if inside.is_none() {
            // Half of a set is under no set's name, whatever a power cut takes back.
            self.sync(Barrier::Doomed)?;
        }
        let directory = inside.as_ref().unwrap_or(&self.directory);
        let path = set.map_or_else(|| self.path.clone(), |set| self.path.join(set));
        let name = Path::new(part).file_name().unwrap_or(part);
        let left = discard(directory, name, &path, id)?;
        if let Some(note) = left.note(&path.join(name)) {
            tracing::warn!("{note}");
        }
        // What comes back after a power cut must still be known.
        calls::sync(directory.as_fd(), Barrier::TakenApart)
            .map_err(|error| StageError::sync("fsync", &path, error))?;
        record.forgets(&self.path, part)
    }
}

impl Tier for Directory {
    fn place(&self, name: &OsStr) -> spec::Place {
        spec::Place::Path(PathText(self.path.join(name)))
    }

    fn lock(&self, stop: &Stop) -> Result<Box<dyn Lock + '_>, StageError> {
        let directory = self.directory.as_fd();
        let is_held = lock::wait(directory, true, &self.path, &|| stop.check())?;
        Ok(Box::new(Alone(is_held.then_some(directory))))
    }

    fn is(&self, other: &Directory) -> Result<bool, StageError> {
        let identity = |directory: &OwnedFd| {
            let found =
                calls::stat(directory.as_fd()).map_err(|error| StageError::io("stat", &self.path, error))?;
            Ok::<_, StageError>((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
        };
        Ok(identity(&self.directory)? == identity(&other.directory)?)
    }

    fn shows(&self, name: &OsStr, probe: &OsStr) -> Result<bool, StageError> {
        match calls::open_at(self.directory.as_fd(), name, DIRECTORY, Mode::empty()) {
            Ok(set) => distinct::has(set.as_fd(), probe),
            Err(error) if calls::is_not_there(&error) => Ok(false),
            Err(error) => Err(self.failed("open", name)(error)),
        }
    }

    fn hold(&self, name: &OsStr) -> Result<Option<OwnedFd>, StageError> {
        if !self.has(name)? {
            return Ok(None);
        }
        let (set, path) = (self.directory(name)?, self.path.join(name));
        let is_held = lock::at_once(set.as_fd(), false, &path)?;
        let held = FileId::of(set.as_fd()).map_err(self.failed("stat", name))?;
        let there = FileId::at(self.directory.as_fd(), name).map_err(self.failed("stat", name))?;
        // Who removed it may have done so before it was locked.
        Ok(there.is_some_and(|there| there.is(&held)).then_some(set).filter(|_| is_held))
    }

    fn names(&self, wanted: &(dyn Fn(&OsStr) -> bool + Sync)) -> Result<Vec<OsString>, StageError> {
        let mut names = Vec::new();
        for (name, _) in self.list()? {
            if wanted(&name) && !is_part(&name) && self.has(&name)? {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn children(&self, wanted: &(dyn Fn(&OsStr) -> bool + Sync)) -> Result<Vec<OsString>, StageError> {
        self.names(wanted)
    }

    fn within(&self, name: &OsStr) -> Result<Option<Box<dyn Tier>>, StageError> {
        match self.has(name)? {
            true => Ok(Some(Box::new(self.below(name)?))),
            false => Ok(None),
        }
    }

    fn put_record(&self, name: &OsStr, text: &[u8], record: &dyn Record) -> Result<bool, StageError> {
        self.below(name)?.take_record(text, record)
    }

    /// File systems need not tell kinds when they list names. What cannot be told is an error: a copy that is overlooked
    /// is one that the rules do not protect.
    fn has(&self, name: &OsStr) -> Result<bool, StageError> {
        match calls::stat_at(self.directory.as_fd(), name) {
            Ok(found) => Ok(FileType::from_raw_mode(u32::from(found.stx_mode)) == FileType::Directory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("stat", name)(error)),
        }
    }

    fn manifest(&self, name: &OsStr) -> Result<Option<Manifest>, StageError> {
        match self.has(name)? {
            true => Manifest::read(self.directory(name)?.as_fd(), &self.path.join(name)),
            false => Ok(None),
        }
    }

    fn make_durable(&self, name: &OsStr, purpose: Barrier) -> Result<(), StageError> {
        if !self.has(name)? {
            return Ok(());
        }
        make_durable_at(self.directory.as_fd(), name, &self.path.join(name), Some(purpose), &self.stop)
    }

    fn reads_again(&self) -> bool {
        true
    }

    fn durable(&self, name: &OsStr) -> Result<Option<Manifest>, StageError> {
        if !self.has(name)? {
            return Ok(None);
        }
        let directory = self.directory(name)?;
        let path = self.path.join(name);
        let Some(manifest) = Manifest::read(directory.as_fd(), &path)? else {
            return Ok(None);
        };
        let differs = manifest.differs_from(directory.as_fd(), &path, crate::set::Times::Ignored)?;
        Ok(differs.is_none().then_some(manifest))
    }

    fn reads_back(&self, name: &OsStr, manifest: &Manifest) -> Result<bool, StageError> {
        let path = self.path.join(name);
        match manifest.verify(self.directory(name)?.as_fd(), &path, &|| self.stop.check()) {
            Ok(()) => Ok(true),
            Err(StageError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn latest(&self) -> Result<Option<OsString>, StageError> {
        match calls::read_link(self.directory.as_fd(), OsStr::new(LATEST)) {
            Ok(target) => Ok(Some(target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read the link", OsStr::new(LATEST))(error)),
        }
    }

    /// Rule 4.
    fn move_latest(
        &self,
        name: &OsStr,
        own: &SeriesPosition<'_>,
        record: &dyn Record,
    ) -> Result<Option<OsString>, StageError> {
        if self.durable(name)?.is_none() {
            return Ok(None);
        }
        let current = match self.latest() {
            Err(StageError::Io { source, .. })
                if source.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
            {
                return Err(StageError::refused(
                    format!("{} is no symbolic link, and is left as it is", shown(&self.path.join(LATEST))),
                    "give it another name, then the next set that is durable has `latest` point to it",
                ));
            }
            current => current?,
        };
        if let Some(current) = current {
            let newer = place(&current)
                .is_some_and(|current| current.is_beside(own) && current.order(own) == Ordering::Greater);
            if current == name || (newer && self.has(&current)?) {
                // Who moved it may have died before the name was durable.
                self.sync(Barrier::LatestAgain)?;
                return Ok(None);
            }
        }
        let directory = self.directory.as_fd();
        let part = self.part_of(OsStr::new(LATEST))?;
        record.dooms(&self.path, &part, None)?;
        calls::symlink(name, directory, &part).map_err(self.failed("make the link", &part))?;
        calls::replace(directory, &part, OsStr::new(LATEST))
            .map_err(self.failed("rename to latest", &part))?;
        self.sync(Barrier::Latest)?;
        record.forgets(&self.path, &part)?;
        Ok(Some(name.to_owned()))
    }

    fn remove(&self, name: &OsStr, record: &dyn Record) -> Result<(), StageError> {
        match self.doom(name, record, &|_| Ok(None))? {
            Err(Kept::Held) => Err(StageError::Locked {
                path: shown(&self.path.join(name)),
                by: "who reads it, or removes another copy for its sake".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// What cannot have its name stays recorded.
    fn restore(&self, record: &dyn Record) -> Result<(), StageError> {
        for TakenAside { part, name, id } in record.taken_aside(&self.path)? {
            let there = FileId::at(self.directory.as_fd(), &part).map_err(self.failed("stat", &part))?;
            match there {
                // It was not renamed, or that was not durable. Where nothing has the name either, the tier may not be mounted.
                None if self.has(&name)? => record.forgets(&self.path, &part)?,
                None => {}
                Some(there) if there.is(&id) || !enforced(Check::TakenAside) => {
                    match self.give_back(&name, &part, record) {
                        Err(refused @ StageError::Refused { .. }) => tracing::warn!("{refused}"),
                        given => given?,
                    }
                }
                Some(_) => {
                    let note = Left::Foreign.note(&self.path.join(&part)).unwrap_or_default();
                    // What is there may be the claim of its rename.
                    if !calls::is_claim(self.directory.as_fd(), &part).map_err(self.failed("stat", &part))? {
                        tracing::warn!("{note}");
                    }
                    calls::release_claim(self.directory.as_fd(), &part);
                    record.forgets(&self.path, &part)?;
                }
            }
        }
        Ok(())
    }

    fn sweep(&self, record: &dyn Record) -> Result<(), StageError> {
        for (part, id) in record.doomed(&self.path)? {
            self.take_apart(&part, id.as_ref(), record)?;
        }
        Ok(())
    }
}
