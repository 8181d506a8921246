//! Checkpoints that are not committed yet: begun, filled by the program, committed or removed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::files::{is_directory, look_at, open_directory};
use super::{Store, staged_of};
use crate::mover::Mover;
use stage::calls;
use stage::error::{StageError, shown};
use stage::job::JobStatus;
use stage::journal::{JobRow, Purpose};
use stage::names::part_name;
use stage::owned::{self, FileId, Left};
use stage::pace::Stop;
use storage::uuid::Uuid;

/// More files than this are first written back together: one commit of the file system's journal for many.
const MANY_FILES: usize = 32;

impl Store {
    /// Begins a checkpoint: a new, empty, hidden directory on the fast tier, for the program to fill.
    ///
    /// # Errors
    /// [`StageError::Refused`] where there is one of this step; a drain that has failed since the last call.
    pub fn begin(&self, step: u64) -> Result<PathBuf, StageError> {
        let mover = self.mover()?;
        self.report_failures()?;
        self.release_partner(&mover)?;
        let name = self.name(step);
        if is_directory(&self.fast, &name) || self.is_stored(step)? {
            return Err(StageError::refused(
                format!("step {step}: there is a checkpoint of this step, and it is not written over"),
                "go on counting, or remove that one from both tiers first",
            ));
        }
        let mut inner = self.locked();
        if inner.begun.contains_key(&step) {
            return Err(StageError::refused(
                format!("step {step} is begun already"),
                "commit or abandon that one first",
            ));
        }
        let part = self.begun_name(&mover, &name, None)?;
        let path = self.config.fast.join(&part);
        calls::make_directory(self.fast.as_fd(), &part, Mode::from_raw_mode(0o777))
            .map_err(|error| StageError::io("make the directory", &path, error))?;
        let directory = open_directory(self.fast.as_fd(), &part, &path)?;
        let id = FileId::of(directory.as_fd()).map_err(|error| StageError::io("stat", &path, error))?;
        mover.journal().own(&self.config.fast, &part, Purpose::Begun, Some(&id))?;
        inner.begun.insert(step, (part, id));
        Ok(path)
    }

    /// Where the files of a checkpoint that is begun are to be written.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if none of this step is begun.
    pub fn path(&self, step: u64) -> Result<PathBuf, StageError> {
        self.own_process()?;
        Ok(self.config.fast.join(self.part_of(step)?.0))
    }

    /// Makes a checkpoint durable on the fast tier, gives it its name, and has it drained. When this returns it
    /// survives a power cut, if the fast tier does.
    ///
    /// # Errors
    /// What it must not hold, a sync that failed: the part is gone then, because it is not known what of it is stored.
    /// [`StageError::Refused`] where the name was taken meanwhile. Once it has its name, only the journal can fail; the
    /// checkpoint is there all the same, and is drained when the store is opened next.
    pub fn commit(&self, step: u64) -> Result<PathBuf, StageError> {
        let mover = self.mover()?;
        let (part, id) = self.part_of(step)?;
        let path = self.config.fast.join(self.name(step));
        let published = self.publish(step, &part, &id);
        self.locked().begun.remove(&step);
        if let Err(error) = published {
            // A second failure adds nothing; what stays is removed when the store is opened next.
            let _ = self.discard_begun(&mover, &part, Some(&id));
            return Err(error);
        }
        calls::sync_outside_move(self.fast.as_fd())
            .map_err(|error| StageError::sync("fsync", &self.config.fast, error))?;
        mover.journal().disown(&self.config.fast, &part)?;
        self.drain(&mover, step)?;
        Ok(path)
    }

    fn publish(&self, step: u64, part: &OsStr, id: &FileId) -> Result<(), StageError> {
        let (path, name) = (self.config.fast.join(part), self.name(step));
        let directory = open_directory(self.fast.as_fd(), part, &path)?;
        let there = FileId::of(directory.as_fd()).map_err(|error| StageError::io("stat", &path, error))?;
        if !there.is(id) {
            return Err(StageError::refused(
                format!("{}: something else was put in its place", shown(&path)),
                "others may write to the fast directory; it was left",
            ));
        }
        if look_at(directory.as_fd(), &path, true)? > MANY_FILES {
            // It only hastens: each file's own fsync vouches for it.
            let _ = calls::sync_file_system_outside_move(directory.as_fd());
        }
        stage::existing::sync_tree(directory.as_fd(), &path, false, &Stop::new())?;
        calls::publish(self.fast.as_fd(), part, &name).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                StageError::refused(
                    format!("step {step}: another process has made {}", shown(&self.config.fast.join(&name))),
                    "one program at a time writes to a store's directories",
                )
            } else {
                StageError::io(format!("rename to {}", shown(Path::new(&name))), &path, error)
            }
        })
    }

    /// Gives up a checkpoint that is begun.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if none of this step is begun.
    pub fn abandon(&self, step: u64) -> Result<(), StageError> {
        let mover = self.mover()?;
        let (part, id) = self.part_of(step)?;
        self.locked().begun.remove(&step);
        self.discard_begun(&mover, &part, Some(&id))
    }

    fn part_of(&self, step: u64) -> Result<(OsString, FileId), StageError> {
        self.locked().begun.get(&step).cloned().ok_or_else(|| {
            StageError::invalid(
                format!("step {step} is not begun"),
                "begin it first; once committed it is done",
            )
        })
    }

    /// Removes what was begun by a process that is gone, and what was staged in and no job wants.
    pub(super) fn remove_leftovers(&self, mover: &Mover, jobs: &[JobStatus]) -> Result<(), StageError> {
        for (part, id) in mover.journal().owned(&self.config.fast, Purpose::Begun)? {
            self.discard_begun(mover, &part, id.as_ref())?;
        }
        let wanted = |name: &OsStr| {
            jobs.iter().any(|job| {
                !job.state.is_final() && job.spec.destination.path() == Some(&self.config.fast.join(name))
            })
        };
        let names = calls::list(self.fast.as_fd())
            .map_err(|error| StageError::io("read the directory", &self.config.fast, error))?;
        for (name, _) in names {
            if staged_of(&name).is_some() && !wanted(&name) {
                self.discard_staged(mover, &name)?;
            }
        }
        self.discard_others(mover)
    }

    /// Removes what was begun under a name, if it is that.
    pub(super) fn discard_begun(
        &self,
        mover: &Mover,
        part: &OsStr,
        id: Option<&FileId>,
    ) -> Result<(), StageError> {
        let left = owned::discard(&self.fast, part, &self.config.fast, id)?;
        if let Some(note) = left.note(&self.config.fast.join(part)) {
            tracing::warn!("{note}");
        }
        mover.journal().disown(&self.config.fast, part)
    }

    /// Removes what a job has staged in, if it is what has the name.
    pub(super) fn discard_staged(&self, mover: &Mover, staged: &OsStr) -> Result<(), StageError> {
        self.discard_staged_as(mover, staged, staged)
    }

    /// The same of what has another name since.
    pub(super) fn discard_staged_as(
        &self,
        mover: &Mover,
        staged: &OsStr,
        name: &OsStr,
    ) -> Result<(), StageError> {
        let path = self.config.fast.join(staged);
        let jobs = mover.journal().jobs()?;
        let made =
            |job: &JobRow| (job.spec.destination.path() == Some(&path)).then_some(job.part_id).flatten();
        for id in jobs.iter().rev().filter_map(made) {
            if owned::discard(&self.fast, name, &self.config.fast, Some(&id))? == Left::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// A name for what is to be removed unless it is committed; recorded, with its identity where that is known.
    pub(super) fn begun_name(
        &self,
        mover: &Mover,
        name: &OsStr,
        id: Option<&FileId>,
    ) -> Result<OsString, StageError> {
        let uuid = Uuid::random()
            .map_err(|error| StageError::io("make a name of its own in", &self.config.fast, error))?;
        let part = part_name(name, uuid);
        mover.journal().own(&self.config.fast, &part, Purpose::Begun, id)?;
        Ok(part)
    }
}
