//! One rank's parts of all sets, as a tier: what a store and retention on a fast tier see of a directory of sets.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::directory::Directory;
use super::{Lock, Tier};
use crate::error::StageError;
use crate::fault::Barrier;
use crate::owned::Record;
use crate::pace::Stop;
use crate::parts::PartId;
use crate::series::SeriesPosition;
use crate::set::Manifest;
use crate::spec::Place;

/// Has each set's name mean one part of it.
#[derive(Debug)]
pub struct PartTier {
    sets: Arc<dyn Tier>,
    part: OsString,
}

impl PartTier {
    /// This part of each set of a tier.
    #[must_use]
    pub fn new(sets: Arc<dyn Tier>, part: PartId) -> Self {
        Self { sets, part: part.to_string().into() }
    }

    /// Asks the tier that a set's parts are in; the default where there is no such set.
    fn of<T: Default>(
        &self,
        set: &OsStr,
        ask: impl FnOnce(&dyn Tier, &OsStr) -> Result<T, StageError>,
    ) -> Result<T, StageError> {
        match self.sets.within(set)? {
            Some(parts) => ask(&*parts, &self.part),
            None => Ok(T::default()),
        }
    }
}

impl Tier for PartTier {
    fn place(&self, name: &OsStr) -> Place {
        let set = self.sets.place(name);
        set.join(self.part.as_ref()).unwrap_or(set)
    }

    fn lock(&self, stop: &Stop) -> Result<Box<dyn Lock + '_>, StageError> {
        self.sets.lock(stop)
    }

    fn is(&self, fast: &Directory) -> Result<bool, StageError> {
        self.sets.is(fast)
    }

    fn within(&self, name: &OsStr) -> Result<Option<Box<dyn Tier>>, StageError> {
        self.of(name, |parts, part| parts.within(part))
    }

    fn put_record(&self, name: &OsStr, text: &[u8], record: &dyn Record) -> Result<bool, StageError> {
        self.of(name, |parts, part| parts.put_record(part, text, record))
    }

    fn shows(&self, name: &OsStr, probe: &OsStr) -> Result<bool, StageError> {
        self.of(name, |parts, part| parts.shows(part, probe))
    }

    fn make_durable(&self, name: &OsStr, purpose: Barrier) -> Result<(), StageError> {
        self.of(name, |parts, part| parts.make_durable(part, purpose))
    }

    fn reads_again(&self) -> bool {
        self.sets.reads_again()
    }

    fn hold(&self, name: &OsStr) -> Result<Option<OwnedFd>, StageError> {
        self.of(name, |parts, part| parts.hold(part))
    }

    fn names(&self, wanted: &(dyn Fn(&OsStr) -> bool + Sync)) -> Result<Vec<OsString>, StageError> {
        let mut names = self.sets.children(wanted)?;
        let mut failed = None;
        names.retain(|name| {
            self.has(name).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                false
            })
        });
        failed.map_or(Ok(names), Err)
    }

    fn children(&self, wanted: &(dyn Fn(&OsStr) -> bool + Sync)) -> Result<Vec<OsString>, StageError> {
        self.names(wanted)
    }

    fn has(&self, name: &OsStr) -> Result<bool, StageError> {
        self.of(name, |parts, part| parts.has(part))
    }

    fn manifest(&self, name: &OsStr) -> Result<Option<Manifest>, StageError> {
        self.of(name, |parts, part| parts.manifest(part))
    }

    fn durable(&self, name: &OsStr) -> Result<Option<Manifest>, StageError> {
        self.of(name, |parts, part| parts.durable(part))
    }

    fn reads_back(&self, name: &OsStr, manifest: &Manifest) -> Result<bool, StageError> {
        self.of(name, |parts, part| parts.reads_back(part, manifest))
    }

    fn latest(&self) -> Result<Option<OsString>, StageError> {
        self.sets.latest()
    }

    fn move_latest(
        &self,
        name: &OsStr,
        own: &SeriesPosition<'_>,
        record: &dyn Record,
    ) -> Result<Option<OsString>, StageError> {
        self.sets.move_latest(name, own, record)
    }

    fn restore(&self, record: &dyn Record) -> Result<(), StageError> {
        self.sets.restore(record)
    }

    fn remove(&self, name: &OsStr, record: &dyn Record) -> Result<(), StageError> {
        self.of(name, |parts, part| parts.remove(part, record))
    }

    fn sweep(&self, record: &dyn Record) -> Result<(), StageError> {
        self.sets.sweep(record)
    }
}
