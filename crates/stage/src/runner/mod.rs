//! The order of a move between two directories, in which every step rests on the one before it being durable.
//!
//! 1. The source is found and looked at; the destination's directory is made, each new directory's parent synced.
//! 2. A name for the part is journalled, then the part is made: `.NAME.UUID.part`, in the directory that the destination
//!    will be in.
//! 3. Files are copied into it, synced, read back around the cache, and only then recorded (`crate::pipeline`).
//! 4. Directories get their metadata, the set its manifest; all of it is synced, the manifest read back.
//! 5. The part is renamed to its name, over nothing; the directory is synced; COMMITTED is journalled.
//! 6. Of a move, the source goes, each file only if it is still the one that was copied; DONE.
//!
//! What a crash leaves is told from the journal and two names:
//!
//! | journal | part | destination | so |
//! |---|---|---|---|
//! | no part named | – | – | begin at 1 |
//! | part named, without an inode | any | – | what has that name goes; begin at 2 |
//! | part named, with an inode | is that inode | – | go on at 3 with what is recorded |
//! | part named, with an inode | – | is that inode | it was renamed: read all of it back, then step 5's sync and COMMITTED |
//! | part named, with an inode | – | – | somebody took it away: begin at 2 |
//! | COMMITTED | – | is that inode | step 6 |
//! | COMMITTED | – | anything else | the source is kept, and it is said |

mod adopt;
mod against;
mod discard;
mod find;
#[cfg(feature = "s3")]
mod objects;
mod publish;
mod remove;

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use storage::uuid::Uuid;

use crate::calls;
use crate::error::StageError;
use crate::fs_kind;
use crate::job::{JobId, State};
use crate::journal::{JobRow, Journal};
use crate::large::LaneConfig;
use crate::names;
use crate::pace::{Pace, Progress, Stop};
use crate::pipeline::{self, Pipeline};
use crate::retention;
use crate::small::Terms;
use crate::spec::{JobSpec, Level, Place, Verb};

pub use discard::discard;
use find::{Destination, Source};
#[cfg(feature = "s3")]
pub use objects::abandon;

/// What a job is run with.
pub struct Run<'a> {
    /// Its journal.
    pub journal: &'a Journal,
    /// Its number.
    pub id: JobId,
    /// What was asked for.
    pub spec: &'a JobSpec,
    /// What holds it back.
    pub pace: &'a dyn Pace,
    /// What ends it between two steps.
    pub stop: &'a Stop,
    /// What is counted.
    pub progress: &'a Progress,
    /// Threads that copy.
    pub threads: usize,
}

/// The operation that failed where a source could not be made durable: nothing to try again without being asked.
pub(crate) const SYNC_SOURCE: &str = "sync the source";

/// What is worth knowing about a job that is done.
pub type Notes = Vec<String>;

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Run<'_> {
    /// Does what is left of the job.
    ///
    /// # Errors
    /// What keeps it from being done. The source is whole then, unless the job was committed.
    pub fn run(&self) -> Result<Notes, StageError> {
        let row = self.row()?;
        let mut notes = Notes::new();
        let (source, destination) = match (&self.spec.source, &self.spec.destination) {
            (Place::Path(source), Place::Path(destination)) => (&source.0, Destination::of(&destination.0)?),
            #[cfg(feature = "s3")]
            (Place::Path(source), Place::Object(url)) => {
                self.to_object(&row, &source.0, url, &mut notes)?;
                return Ok(notes);
            }
            #[cfg(feature = "s3")]
            (Place::Object(url), Place::Path(destination)) => {
                self.out_of_object(&row, url, &destination.0, &mut notes)?;
                return Ok(notes);
            }
            #[cfg(feature = "s3")]
            _ => {
                return Err(StageError::invalid(
                    format!("{}: from one object store to another", self.spec.destination.shown()),
                    "one of the two has to be a file or a directory",
                ));
            }
            #[cfg(not(feature = "s3"))]
            _ => {
                return Err(StageError::invalid(
                    "this program is built without object stores",
                    "build it with the feature s3",
                ));
            }
        };
        if row.state != State::Committed {
            self.to_destination(&row, source, &destination, &mut notes)?;
        }
        self.behind(source, &destination, &mut notes)?;
        Ok(notes)
    }

    fn row(&self) -> Result<JobRow, StageError> {
        self.journal
            .job(self.id)?
            .ok_or_else(|| StageError::Stopped { what: "the job is not in the journal".to_owned() })
    }

    /// Steps 1 to 5.
    fn to_destination(
        &self,
        row: &JobRow,
        source: &Path,
        destination: &Destination,
        notes: &mut Notes,
    ) -> Result<(), StageError> {
        destination.make_parents()?;
        let parent = destination.open()?;
        let there = destination.inode(&parent)?;
        if let (Some(ino), Some(there)) = (row.part_ino, there)
            && ino == there
        {
            self.read_again(&parent, destination)?;
            notes.push(
                "it had its name when the work was interrupted; all of it was read back again".to_owned(),
            );
            return self.committed(&parent, destination);
        }
        let source = Source::open(source)?;
        find::check(&source, &parent, destination, self.spec.verb)?;
        if there.is_some() {
            self.adopt(&source, &parent, destination)?;
            notes.push("it was there already, and the same, byte for byte".to_owned());
            return self.committed(&parent, destination);
        }
        self.local(&source)?;
        let part = self.part(row, &source, &parent, destination)?;
        let sync =
            calls::open_at(parent.as_fd(), ".".as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                .map_err(|error| StageError::io("open the directory", &destination.parent, error))?;
        let part_path = destination.parent.join(&part.name);
        let vouches = fs_kind::sync_vouches(&parent)
            .map_err(|error| StageError::io("look at", &destination.parent, error))?;
        let pipeline = Pipeline {
            id: self.id,
            journal: self.journal,
            terms: Terms {
                source: &source.path,
                part: &part_path,
                algorithm: self.spec.options.digest,
                preserve: self.spec.options.preserve,
                sync_each: !vouches,
                pace: self.pace,
                stop: self.stop,
                progress: self.progress,
            },
            threads: self.threads,
            resumed: part.resumed,
            lane: LaneConfig {
                depth: match (self.spec.options.background, source.is_directory) {
                    (true, _) => pipeline::BACKGROUND_DEPTH,
                    (false, true) => pipeline::LANE_DEPTH,
                    (false, false) => LaneConfig::default().depth,
                },
                background: self.spec.options.background,
                ..LaneConfig::default()
            },
            background: self.spec.options.background,
            notes: Mutex::default(),
        };
        if source.is_directory {
            self.copy_tree(&pipeline, &source, &part, &parent, &sync, vouches)?;
            self.against_its_manifest(&source.open_root()?, &source.path, notes)?;
        } else {
            self.copy_file(&pipeline, &source, &part, &parent)?;
        }
        notes.append(&mut pipeline.notes.lock().unwrap_or_else(PoisonError::into_inner));
        self.meets_expectations()?;
        self.stop.check()?;
        destination.publish(&parent, &part.name)?;
        self.committed(&parent, destination)?;
        let lost = self.progress.not_preserved.load(std::sync::atomic::Ordering::Relaxed);
        if lost > 0 {
            notes.push(format!("{lost} owners or attributes could not be kept: it takes privilege, or the file system has none"));
        }
        Ok(())
    }

    /// Step 5 after the rename: the name is made durable, and then COMMITTED is.
    fn committed(&self, parent: &OwnedFd, destination: &Destination) -> Result<(), StageError> {
        calls::sync(parent.as_fd()).map_err(|error| StageError::io("fsync", &destination.parent, error))?;
        // What stands there now is what the source's removal will look for.
        let ino = destination.inode(parent)?;
        if let Some(ino) = ino {
            self.journal.made_part(self.id, ino)?;
        }
        self.journal.commit(self.id, now())
    }

    /// Makes the source durable where it is: whoever wrote it may not have, and holes are told from data only then.
    /// Of a directory on a file system whose own sync is not known to tell of errors, it is not said to be: the job
    /// goes from staged to durable there.
    fn local(&self, source: &Source) -> Result<(), StageError> {
        let failed = |error| StageError::io(SYNC_SOURCE, &source.path, error);
        let root = source.open_root()?;
        if fs_kind::sync_vouches(&source.parent).map_err(failed)? {
            calls::sync_file_system(root.as_fd()).map_err(failed)?;
        } else if source.is_directory {
            return Ok(());
        } else {
            calls::sync(root.as_fd()).map_err(failed)?;
        }
        self.journal.level(self.id, Level::Local)
    }

    /// Step 2, or the part that an earlier attempt left.
    fn part(
        &self,
        row: &JobRow,
        source: &Source,
        parent: &OwnedFd,
        destination: &Destination,
    ) -> Result<Part, StageError> {
        if let Some(name) = &row.part {
            let there = find::inode(parent, name, &destination.parent)?;
            if there.is_some() && there == row.part_ino {
                return Ok(Part { name: name.clone(), resumed: true });
            }
            discard(parent, name, &destination.parent)?;
        }
        self.new_part(parent, destination, source.is_directory)
    }

    /// Step 2: a name that is journalled, then, for a directory, what has it.
    fn new_part(
        &self,
        parent: &OwnedFd,
        destination: &Destination,
        directory: bool,
    ) -> Result<Part, StageError> {
        let uuid = Uuid::random()
            .map_err(|error| StageError::io("get a UUID", Path::new("/proc/sys/kernel/random"), error))?;
        let name = names::part_name(&destination.name, uuid);
        self.journal.name_part(self.id, &name)?;
        if directory {
            let shown = destination.parent.join(&name);
            calls::make_directory(parent.as_fd(), &name, Mode::RWXU)
                .map_err(|error| StageError::io("make the directory", &shown, error))?;
            let ino = find::inode(parent, &name, &destination.parent)?;
            self.journal.made_part(self.id, ino.unwrap_or(0))?;
        }
        Ok(Part { name, resumed: false })
    }

    fn copy_file(
        &self,
        pipeline: &Pipeline<'_>,
        source: &Source,
        part: &Part,
        parent: &OwnedFd,
    ) -> Result<(), StageError> {
        use crate::small::{Copied, Copier};
        use crate::tree::Directory;
        // A file is the one entry with the empty path, in the directory that it is in, under the part's name there.
        let duplicate =
            |fd: &OwnedFd| fd.try_clone().map_err(|error| StageError::io("duplicate", &source.path, error));
        let directory = std::sync::Arc::new(Directory {
            source: duplicate(&source.parent)?,
            copy: duplicate(parent)?,
            path: PathBuf::new(),
        });
        let name = source.name.as_os_str();
        let mut copier = Copier::default();
        let done = match copier.copy_as(
            &directory,
            name,
            Some(&part.name),
            PathBuf::new(),
            false,
            &pipeline.terms,
        )? {
            Copied::Written(written) => {
                let shown = pipeline.terms.part;
                let file = calls::open_at(parent.as_fd(), &part.name, OFlags::RDONLY, Mode::empty())
                    .map_err(|error| StageError::io("open", shown, error))?;
                if !pipeline.terms.sync_each {
                    calls::sync(file.as_fd()).map_err(|error| StageError::io("fsync", shown, error))?;
                }
                copier.verify(&written, &pipeline.terms)?;
                self.progress.files_done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                written.done
            }
            other => {
                if let Copied::Large(size) = other {
                    pipeline.found(size);
                }
                let mut lane = crate::large::Lane::new(&pipeline.lane)?;
                pipeline.copy_large_as(&mut lane, &directory, name, &part.name, PathBuf::new(), &mut || {})?
            }
        };
        let ino = find::inode(parent, &part.name, pipeline.terms.part)?;
        self.journal.made_part(self.id, ino.unwrap_or(0))?;
        self.progress.walked.store(true, std::sync::atomic::Ordering::Relaxed);
        self.journal.record(self.id, &[done])
    }

    /// Step 6, and what else follows when all is durable.
    fn behind(&self, source: &Path, destination: &Destination, notes: &mut Notes) -> Result<(), StageError> {
        let row = self.row()?;
        let parent = destination.open()?;
        if row.part_ino.is_none() || destination.inode(&parent)? != row.part_ino {
            notes.push(format!(
                "{} is not there any more as it was committed; the source was left alone",
                crate::error::shown(&destination.path())
            ));
            return Ok(());
        }
        if self.spec.verb == Verb::Move {
            remove::remove(self, source, notes)?;
        }
        self.semaphore((self.spec.verb == Verb::Move).then_some(source))?;
        let outcome = retention::after_commit(self.spec, self.journal, self.stop)?;
        notes.extend(outcome.notes());
        Ok(())
    }

    /// Removes the semaphore that asked for the job; `moved` is a source that has gone.
    fn semaphore(&self, moved: Option<&Path>) -> Result<(), StageError> {
        let semaphore = self.spec.options.semaphore.as_ref();
        semaphore.map_or(Ok(()), |semaphore| remove::semaphore(self, &semaphore.0, moved))
    }
}

/// The part of this attempt.
struct Part {
    name: OsString,
    /// It is an earlier attempt's, and what is recorded is in it.
    resumed: bool,
}
