//! From a directory or a file to a set in a store: the steps that [the module](super) promises.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::commit::now;
use super::lanes::{Halt, over};
use super::resume::{Log, Resume, STORED};
use super::source::{Found, Source};
use super::upload::Work;
use super::{LANES, ObjectSet};
use stage::digest::{Algorithm, Digest};
use stage::error::StageError;
use stage::journal::Done;
use stage::manifest::Entry;
use stage::pace::{Pace, Progress, Stop, Unlimited};
use stage::spec::Preserve;

/// Entries in one step of the journal.
const STEP: usize = 4096;

/// How a set is stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct DrainOptions {
    /// How bytes are digested.
    pub digest: Algorithm,
    /// Names of one file are stored as such where `links` is set. Modes, owners and times are in the manifest anyway;
    /// extended attributes and access control lists are not, and count as not preserved where they are asked for.
    pub preserve: Preserve,
}

/// A source on its way to a set. What was stored by an earlier run with the same `resume` is not stored again.
pub(crate) struct Drain<'a> {
    pub set: &'a ObjectSet,
    pub source: &'a Source<'a>,
    /// What the source was when it was walked.
    pub found: &'a [Found],
    pub options: DrainOptions,
    pub resume: &'a dyn Resume,
    pub pace: &'a dyn Pace,
    pub stop: &'a Stop,
    pub progress: &'a Progress,
    /// Takes what is stored and read back.
    pub record: &'a dyn Fn(&[Done]) -> Result<(), StageError>,
}

impl<'a> Drain<'a> {
    fn work(&self) -> Result<Work<'a>, StageError> {
        let Self { set, source, resume, pace, progress, .. } = *self;
        let log = Log::load(resume, STORED)?;
        Ok(Work { set, source, algorithm: self.options.digest, resume, log, pace, progress })
    }

    /// The files whose bytes are stored.
    fn files(&self) -> impl Iterator<Item = &'a Found> {
        self.found.iter().filter(|found| found.has_bytes())
    }

    /// Has the journal hold what the source was, for its removal and for what compares.
    fn record(&self, work: &Work<'_>) -> Result<(), StageError> {
        for some in self.found.chunks(STEP) {
            let done = some.iter().map(|found| {
                let entry = work.entry(found)?;
                Ok(Done { entry, source: found.identity })
            });
            (self.record)(&done.collect::<Result<Vec<Done>, StageError>>()?)?;
        }
        self.progress.files_done.store(self.files().count() as u64, Relaxed);
        Ok(())
    }

    /// Compares a set that has the name with the source, and reads it back. What tells the set from another.
    pub fn adopt(&self) -> Result<Digest, StageError> {
        let (set, work, halt) = (self.set, self.work()?, Halt::new(self.stop));
        // In this order: whoever commits gives its claim back only afterwards.
        if set.claim(self.resume, &halt)?.is_none() {
            set.unclaim();
        }
        let there = set.manifest(self.stop)?;
        work.digest_what_is_not_stored(self.found, self.stop)?;
        set.same_or_refused(&there, &work, self.found)?;
        let verified = set.verify_manifest(&there, &Unlimited, self.stop, &Progress::default())?;
        match verified.faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => self.record(&work).map(|()| there.digest),
        }
    }

    /// Claims the name and stores every file; each is read back. Nothing is visible yet to whoever looks for sets.
    ///
    /// Fails with [`StageError::Refused`] where another set, another drain or a strange object has the name.
    pub fn store(&self) -> Result<(), StageError> {
        let (set, work, halt) = (self.set, self.work()?, Halt::new(self.stop));
        self.count();
        set.check_free(self.found, self.resume, &halt)?;
        if let Some(refusal) = set.claim(self.resume, &halt)? {
            return Err(refusal);
        }
        let mut files: Vec<&Found> = self.files().collect();
        // The large ones first, so that the end is not one of them alone.
        files.sort_by_key(|found| std::cmp::Reverse(found.identity.size));
        let stored = over(&files, LANES, self.stop, &|found, halt| work.store(found, halt));
        // What was stored is remembered even if the rest failed.
        let noted = work.log.flush();
        stored.and(noted)?;
        self.record(&work)
    }

    /// Puts the manifest, once a listing shows every object; `note` is given
    /// what will tell the set from another, before. On an error the set is not there, unless it was the answer to the
    /// last request that was lost: asking again tells. Returns the number of strange objects beneath its prefix.
    pub fn publish(&self, note: &dyn Fn(Digest) -> Result<(), StageError>) -> Result<u64, StageError> {
        let (set, work, halt) = (self.set, self.work()?, Halt::new(self.stop));
        let strangers = set.check_listing(&work, self.found, &halt)?;
        set.commit(&work, self.found, now(), note, &halt)?;
        set.unclaim();
        Ok(strangers)
    }

    /// Counts what is to be done, and what cannot be kept.
    fn count(&self) {
        let Self { found, options, progress, .. } = self;
        let (mut number, mut bytes) = (0, 0);
        for file in self.files() {
            number += 1;
            bytes += file.identity.size;
        }
        progress.files_total.store(number, Relaxed);
        progress.bytes_total.store(bytes, Relaxed);
        if options.preserve.xattrs || options.preserve.acls {
            progress.not_preserved.fetch_add(found.len() as u64, Relaxed);
        }
        progress.walked.store(true, Relaxed);
    }
}

/// A set that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained {
    /// What tells its manifest from another.
    pub digest: Digest,
    /// Files whose bytes are stored.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// It was there already, from an earlier run.
    pub already: bool,
    /// Objects beneath its prefix that are none of its: what earlier attempts with other files left.
    pub strangers: u64,
}

impl ObjectSet {
    /// Stores a source as this set without a job: the steps that a move makes, one after another.
    ///
    /// # Errors
    /// [`StageError::Refused`] where another set has the name; [`StageError::SourceChanged`]; [`StageError::Corrupt`].
    /// On an error the set is not there, unless it was the answer to the last request that was lost.
    pub fn drain(
        &self,
        source: &Source<'_>,
        options: &DrainOptions,
        resume: &dyn Resume,
        pace: &dyn Pace,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<Drained, StageError> {
        let found = &source.walk(&options.preserve, stop)?;
        let (set, options, record) = (self, *options, &|_: &[Done]| Ok(()));
        let drain = Drain { set, source, found, options, resume, pace, stop, progress, record };
        let count = |(files, bytes), file: &Found| (files + 1, bytes + file.identity.size);
        let (files, bytes) = drain.files().fold((0, 0), count);
        if self.manifest_if_any(&Halt::new(stop))?.is_some() {
            let digest = drain.adopt()?;
            source.check_all(found, &options.preserve, stop)?;
            return Ok(Drained { digest, files, bytes, already: true, strangers: 0 });
        }
        drain.store()?;
        source.check_all(found, &options.preserve, stop)?;
        let digest = std::cell::Cell::new(Digest([0; 32]));
        let strangers = drain.publish(&|is| {
            digest.set(is);
            Ok(())
        })?;
        Ok(Drained { digest: digest.get(), files, bytes, already: false, strangers })
    }

    /// Gives a drain that was not committed to its end up: uploads that are under way are aborted, and objects that
    /// the notes know of are deleted. A set that has its manifest stays.
    ///
    /// # Errors
    /// The store's and the journal's. What is gone already is none.
    pub(crate) fn abandon(
        &self,
        source: Option<&Source<'_>>,
        resume: &dyn Resume,
        stop: &Stop,
    ) -> Result<(), StageError> {
        let halt = Halt::new(stop);
        if self.manifest_if_any(&halt)?.is_some() {
            return Ok(());
        }
        // Nothing of ours can be there beneath another's claim, and nothing of theirs may go.
        if self.claim(resume, &halt)?.is_some() {
            return Ok(());
        }
        let log = Log::load(resume, STORED)?;
        let mut keys = Vec::new();
        // Files that are gone by now had no upload worth finding; their objects are in the log.
        let found = source.and_then(|source| source.walk(&Preserve::NONE, stop).ok());
        for found in found.unwrap_or_default() {
            if found.has_bytes() {
                let key = self.key(&found.path)?;
                self.abandon_upload(&key, resume, &halt)?;
                keys.push(key);
            }
        }
        for path in log.paths() {
            keys.push(self.key(&path)?);
        }
        keys.sort_unstable();
        keys.dedup();
        self.ask(&self.prefix, "delete what was stored", &halt, self.store.delete(keys))?;
        self.unclaim();
        Ok(())
    }

    fn abandon_upload(
        &self,
        key: &object_store::path::Path,
        resume: &dyn Resume,
        halt: &Halt<'_>,
    ) -> Result<(), StageError> {
        let mut notes = super::resume::UploadLog::new(resume, key.as_ref());
        let Some((upload, _)) = notes.load()? else { return Ok(()) };
        match self.wait(halt, self.store.abort(key.clone(), upload.id.clone()))? {
            Ok(()) => notes.forget(&upload),
            // It was completed, and the drain stopped before that was noted: there is an object to delete instead.
            Err(error) if super::upload::is_gone(&error) => notes.forget(&upload),
            Err(error) => Err(self.failed(key, "abort the upload", &error)),
        }
    }
}

impl Work<'_> {
    /// The manifest's entry of what was found, once every file is in the log.
    pub(super) fn entry(&self, found: &Found) -> Result<Entry, StageError> {
        let chunks = if found.has_bytes() { self.chunks(&found.path)? } else { Vec::new() };
        Ok(found.entry(self.algorithm, chunks))
    }

    fn chunks(&self, path: &Path) -> Result<Vec<Digest>, StageError> {
        match self.log.get(path) {
            Some(stored) => Ok(stored.chunks),
            None => Err(self.source.changed(path, "it was not stored")),
        }
    }
}
