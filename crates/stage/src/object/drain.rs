//! From a directory or a file to a set in a store: the order of steps that [the module](super) promises.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::commit::now;
use super::expected::listed;
use super::lanes::{Halt, over};
use super::resume::{Log, Resume, STORED};
use super::source::{Found, Source};
use super::upload::Work;
use super::{LANES, ObjectSet};
use crate::digest::{Algorithm, Digest};
use crate::error::StageError;
use crate::manifest::Entry;
use crate::pace::{Pace, Progress, Stop, Unlimited};
use crate::spec::{Expected, Preserve};

/// How a set is stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct DrainOptions<'a> {
    /// How bytes are digested.
    pub digest: Algorithm,
    /// Names of one file are stored as such where `links` is set. Modes, owners and times are in the manifest anyway;
    /// extended attributes and access control lists are not, and count as not preserved where they are asked for.
    pub preserve: Preserve,
    /// What must be there. Where it lists anything, nothing else of a directory is stored.
    pub expected: &'a [Expected],
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
    /// Stores a source as this set. When it returns, the set is there for whoever looks, was read back, and the
    /// source was what it is in the set; the source may be removed. What was stored by an earlier run with the same
    /// `resume` is not stored again.
    ///
    /// # Errors
    /// [`StageError::Refused`] where another set has the name; [`StageError::SourceChanged`]; [`StageError::Corrupt`]
    /// for what reads back other than it was written; the kernel's and the store's. On an error the set is not there,
    /// unless it was the answer to the last request that was lost: asking again tells.
    #[allow(clippy::too_many_arguments, reason = "what every engine is given")]
    pub fn drain(
        &self,
        source: &Source<'_>,
        options: &DrainOptions<'_>,
        resume: &dyn Resume,
        pace: &dyn Pace,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<Drained, StageError> {
        self.name()?;
        let listed = listed(options.expected);
        let source = &source.only(listed.as_ref());
        let found = source.walk(&options.preserve)?;
        count(&found, options, progress);
        let log = Log::load(resume, STORED)?;
        let work = Work { set: self, source, algorithm: options.digest, resume, log, pace, progress };
        work.has_what_is_expected(&found, options.expected)?;
        let halt = Halt::new(stop);
        self.check_free(&found, resume, &halt)?;
        // In this order: whoever commits gives its claim back only afterwards.
        let refusal = self.claim(resume, &halt)?;
        if let Some(there) = &self.manifest_if_any(&halt)? {
            if refusal.is_none() {
                self.unclaim();
            }
            work.digest_what_is_not_stored(&found, stop)?;
            self.same_or_refused(there, &work, &found)?;
            work.is_what_is_expected(&found, options.expected, &halt)?;
            source.check_all(&found, &options.preserve)?;
            let verified = self.verify_manifest(there, &Unlimited, stop, &Progress::default())?;
            if let Some(fault) = verified.faults.into_iter().next() {
                return Err(fault);
            }
            return Ok(work.drained(&found, there.digest, true, 0));
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let mut files: Vec<&Found> = found.iter().filter(|found| found.has_bytes()).collect();
        // The large ones first, so that the end is not one of them alone.
        files.sort_by_key(|found| std::cmp::Reverse(found.identity.size));
        let stored = over(&files, LANES, stop, &|found, halt| work.store(found, halt));
        // What was stored is remembered even if the rest failed.
        let noted = work.log.flush();
        stored?;
        noted?;
        work.is_what_is_expected(&found, options.expected, &halt)?;
        source.check_all(&found, &options.preserve)?;
        let strangers = self.check_listing(&work, &found, &halt)?;
        let digest = self.commit(&work, &found, now(), &halt)?;
        self.unclaim();
        Ok(work.drained(&found, digest, false, strangers))
    }

    /// Gives a drain that was not committed to its end up: uploads that are under way are aborted, and objects that
    /// the notes know of are deleted. A set that has its manifest stays.
    ///
    /// # Errors
    /// The store's and the journal's. What is gone already is none.
    pub fn abandon(&self, source: &Source<'_>, resume: &dyn Resume, stop: &Stop) -> Result<(), StageError> {
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
        for found in source.walk(&Preserve::NONE).unwrap_or_default() {
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

/// Counts what is to be done, and what cannot be kept.
fn count(found: &[Found], options: &DrainOptions<'_>, progress: &Progress) {
    let files = found.iter().filter(|found| found.has_bytes());
    let (mut number, mut bytes) = (0, 0);
    for file in files {
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

    fn drained(&self, found: &[Found], digest: Digest, already: bool, strangers: u64) -> Drained {
        let files = found.iter().filter(|found| found.has_bytes());
        let (number, bytes) =
            files.fold((0, 0), |(number, bytes), file| (number + 1, bytes + file.identity.size));
        Drained { digest, files: number, bytes, already, strangers }
    }
}
