//! Fast copies of parts that retention cannot judge, because their sets went from the slow tier while they were in use.
//!
//! A rank cannot see what other ranks have on their fast tiers, so a set goes from the slow tier while some rank may still
//! keep its part restored, and nothing is left there to compare that part with. What was staged in is not vouched for by a
//! drain of this node either. When a store is opened, such a copy goes if
//!
//! 1. as many newer ones as `keep_fast` says are on this tier, and a set of a newer step is complete on the slow tier;
//! 2. no process has it restored;
//! 3. it was staged in, and is what its own manifest says; or it was drained, its part is not on the slow tier any more,
//!    and it is in the state that the journal has of the source of that drain.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;

use super::files::{is_directory, open_directory};
use super::{Store, staged_name};
use crate::mover::Mover;
use stage::calls;
use stage::error::StageError;
use stage::journal::JobRow;
use stage::lock;
use stage::owned::FileId;
use stage::parts::SetId;
use stage::runner::fingerprint_of;
use stage::set::{Manifest, Times};

impl Store {
    /// Has a set of a newer step been completed? Then retention may have removed the set of this one.
    pub(super) fn is_superseded(&self, step: u64) -> Result<bool, StageError> {
        match self.config.member {
            Some(_) => Ok(self.latest_set()?.is_some_and(|(newest, _)| newest.step > step)),
            None => Ok(false),
        }
    }

    /// Removes what is left of sets that have gone. To be called before anything is drained.
    pub(super) fn discard_surplus(&self, mover: &Mover) -> Result<(), StageError> {
        let (Some(_), Some(keep)) = (&self.config.member, self.config.keep_fast) else { return Ok(()) };
        let names = calls::list(self.fast.as_fd())
            .map_err(|error| StageError::io("read the directory", &self.config.fast, error))?;
        let mut sets: Vec<(SetId, OsString)> = names
            .into_iter()
            .filter(|(name, _)| is_directory(&self.fast, name))
            .filter_map(|(name, _)| Some((SetId::of_name(&name)?, name)))
            .collect();
        sets.sort();
        sets.truncate(sets.len().saturating_sub(keep as usize));
        if sets.is_empty() {
            return Ok(());
        }
        let jobs = mover.journal().jobs()?;
        for (id, name) in sets {
            if self.is_superseded(id.step)? {
                self.discard_unused(&jobs, &name)?;
            }
        }
        Ok(())
    }

    fn discard_unused(&self, jobs: &[JobRow], name: &OsStr) -> Result<(), StageError> {
        let path = self.config.fast.join(name);
        let copy = open_directory(self.fast.as_fd(), name, &path)?;
        match lock::at_once(copy.as_fd(), true, &path) {
            Err(StageError::Locked { .. }) => return Ok(()),
            locked => locked?,
        };
        let id = FileId::of(copy.as_fd()).map_err(|error| StageError::io("stat", &path, error))?;
        let staged = self.config.fast.join(staged_name(name));
        let is_staged = jobs.iter().any(|job| {
            let is_made = job.level.is_committed() && job.part_id.is_some_and(|made| made.is(&id));
            is_made && job.spec.destination.path() == Some(&staged)
        });
        let is_unchanged = if is_staged {
            match Manifest::read(copy.as_fd(), &path)? {
                Some(manifest) => manifest.differs_from(copy.as_fd(), &path, Times::Compared)?.is_none(),
                None => false,
            }
        } else {
            let place = self.slow.place(name);
            let drain = jobs.iter().rev().find(|job| {
                job.spec.source.path() == Some(&path)
                    && job.spec.destination == place
                    && job.level.is_committed()
            });
            match drain {
                Some(job) if !self.slow.has(name)? => {
                    job.source.is_some() && job.source == fingerprint_of(&job.spec, &self.config.tiers)?
                }
                _ => false,
            }
        };
        if is_unchanged { self.set_aside(name) } else { Ok(()) }
    }
}
