//! From a directory or a file to a set in a store: the steps that [the module](super) promises, in their order.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use object_store::path::Path as Key;

use super::commit::now;
use super::drain::{Drain, STEP};
use super::lanes::{Halt, for_each};
use super::resume::{Ledger, UploadLog};
use super::source::{Found, Source};
use super::upload::is_gone;
use super::{LANES, ObjectSet};
use stage::digest::Digest;
use stage::error::StageError;
use stage::journal::Done;
use stage::pace::{Progress, Stop, Unlimited};
use stage::spec::Preserve;

impl Drain<'_> {
    /// Forgets what is recorded of paths that are not in the source any more. With `delete`, their objects go first.
    fn forget_gone(&self, delete: bool, halt: &Halt<'_>) -> Result<(), StageError> {
        let (mut gone, mut keys): (Vec<PathBuf>, Vec<Key>) = Default::default();
        self.ledger.each(&mut |done| {
            halt.check()?;
            let path = done.entry.path.0;
            let at = self.found.binary_search_by(|found| found.path.as_os_str().cmp(path.as_os_str()));
            if at.is_ok_and(|at| self.found[at].has_bytes() || done.object.is_none()) {
                return Ok(());
            }
            if done.object.is_some() {
                keys.push(self.set.key(&path)?);
            }
            gone.push(path);
            Ok(())
        })?;
        if delete && !keys.is_empty() {
            let (set, operation) = (self.set, "delete what the source has no longer");
            set.ask(&set.prefix, operation, halt, set.store.delete(keys))?;
        }
        self.run.journal.forget(self.run.id, &gone)
    }

    /// Records all but the files with bytes, which are recorded one by one.
    fn record_rest(&self) -> Result<(), StageError> {
        let rest: Vec<&Found> = self.found.iter().filter(|found| !found.has_bytes()).collect();
        for some in rest.chunks(STEP) {
            let done = some.iter().map(|found| Ok(Done::new(self.entry(found)?, found.identity)));
            self.ledger.record(&done.collect::<Result<Vec<Done>, StageError>>()?)?;
        }
        self.run.progress.files_done.store(self.files().count() as u64, Relaxed);
        Ok(())
    }

    /// Compares a set that has the name with the source, and reads it back. Returns the digest of its manifest.
    pub fn adopt(&self) -> Result<Digest, StageError> {
        let (set, stop) = (self.set, self.run.stop);
        let halt = Halt::new(stop);
        self.count();
        // In this order: a drain that commits gives its claim back only afterwards.
        if set.claim(self.ledger, &halt)?.is_none() {
            set.unclaim();
        }
        let there = set.manifest(stop)?;
        self.forget_gone(false, &halt)?;
        let digested = self.digest_what_is_not_recorded();
        self.recorder.flush()?;
        digested?;
        self.same_or_refused(&there)?;
        let verified = set.verify_manifest(&there, &Unlimited, stop, &Progress::default())?;
        match verified.faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => self.record_rest().map(|()| there.digest),
        }
    }

    /// Claims the name and stores every file; each is read back. Readers see no set yet.
    ///
    /// Fails with [`StageError::Refused`] where another set, another drain or a strange object has the name.
    pub fn store(&self) -> Result<(), StageError> {
        let (set, halt) = (self.set, Halt::new(self.run.stop));
        self.count();
        self.check_free(&halt)?;
        if let Some(refusal) = set.claim(self.ledger, &halt)? {
            return Err(refusal);
        }
        self.forget_gone(true, &halt)?;
        let mut files: Vec<&Found> = self.files().collect();
        // The large ones first, so that the end is not one of them alone.
        files.sort_by_key(|found| std::cmp::Reverse(found.identity.size));
        let stored = for_each(&files, LANES, self.run.stop, &|found, halt| self.store_file(found, halt));
        // What was stored is recorded even if the rest failed.
        let recorded = self.recorder.flush();
        stored.and(recorded)?;
        self.record_rest()
    }

    /// Puts the manifest, once a listing shows every object; `note` gets its digest before. On an error the set is not
    /// there, unless it was the answer to the last request that was lost: the next attempt finds out. Returns the number
    /// of objects beneath the prefix that are none of the set's.
    pub fn publish(&self, note: &dyn Fn(Digest) -> Result<(), StageError>) -> Result<u64, StageError> {
        let halt = Halt::new(self.run.stop);
        let strangers = self.check_listing(&halt)?;
        self.commit(now(), note, &halt)?;
        self.set.unclaim();
        Ok(strangers)
    }

    /// Counts what is to be done, and what cannot be kept.
    fn count(&self) {
        let (progress, preserve) = (self.run.progress, &self.run.spec.options.preserve);
        let (mut number, mut bytes) = (0, 0);
        for file in self.files() {
            number += 1;
            bytes += file.identity.size;
        }
        progress.files_total.store(number, Relaxed);
        progress.bytes_total.store(bytes, Relaxed);
        if preserve.xattrs || preserve.acls {
            progress.not_preserved.fetch_add(self.found.len() as u64, Relaxed);
        }
        progress.walked.store(true, Relaxed);
    }
}

impl ObjectSet {
    /// Removes what a drain that was not committed has made: uploads under way are aborted, and the objects that are
    /// recorded or that the source still has are deleted. A set that has its manifest stays.
    pub(super) fn abandon(
        &self,
        source: Option<&Source<'_>>,
        ledger: Ledger<'_>,
        stop: &Stop,
    ) -> Result<(), StageError> {
        // A store that cannot be asked, for want of keys perhaps, has nothing of a drain that never got so far.
        if !Self::is_begun(ledger)? {
            return Ok(());
        }
        let halt = Halt::new(stop);
        if self.manifest_if_any(&halt)?.is_some() {
            return Ok(());
        }
        // Nothing of ours can be there beneath another's claim, and nothing of theirs may go.
        if self.claim(ledger, &halt)?.is_some() {
            return Ok(());
        }
        let mut keys = HashSet::new();
        // Files that are gone by now had no upload worth finding; their objects are recorded.
        let found = source.and_then(|source| source.walk(&Preserve::NONE, stop).ok());
        for found in found.unwrap_or_default() {
            if found.has_bytes() {
                let key = self.key(&found.path)?;
                self.abandon_upload(&key, ledger, &halt)?;
                keys.insert(key);
            }
        }
        ledger.each(&mut |done| {
            if done.object.is_some() {
                keys.insert(self.key(&done.entry.path.0)?);
            }
            Ok(())
        })?;
        let keys = keys.into_iter().collect();
        self.ask(&self.prefix, "delete what was stored", &halt, self.store.delete(keys))?;
        self.unclaim();
        Ok(())
    }

    fn abandon_upload(&self, key: &Key, ledger: Ledger<'_>, halt: &Halt<'_>) -> Result<(), StageError> {
        let mut notes = UploadLog::new(ledger, key.as_ref());
        let Some((upload, _)) = notes.load()? else { return Ok(()) };
        match self.wait(halt, self.store.abort(key.clone(), upload.id.clone()))? {
            Ok(()) => notes.forget(&upload),
            // It was completed, and the drain stopped before that was noted: there is an object to delete instead.
            Err(error) if is_gone(&error) => notes.forget(&upload),
            Err(error) => Err(self.failed(key, "abort the upload", &error)),
        }
    }
}
