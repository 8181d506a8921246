//! A source on its way to a set in a store, and what is recorded of its files.

use super::ObjectSet;
use super::resume::{Ledger, Recorder};
use super::sets::chunks_of;
use super::source::{Found, Source};
use stage::digest::{Algorithm, Digest};
use stage::error::StageError;
use stage::journal::Done;
use stage::manifest::Entry;
use stage::tier::Run;

/// Entries in one step of the journal.
pub(super) const STEP: usize = 4096;

/// A source on its way to a set. What an earlier attempt of the same job has stored is not stored again.
pub(super) struct Drain<'a> {
    pub set: &'a ObjectSet,
    pub source: &'a Source<'a>,
    /// What the source was when it was walked, in the order of the bytes of its paths.
    pub found: &'a [Found],
    pub run: &'a Run<'a>,
    pub ledger: Ledger<'a>,
    pub recorder: Recorder<'a>,
}

impl<'a> Drain<'a> {
    pub fn new(set: &'a ObjectSet, source: &'a Source<'a>, found: &'a [Found], run: &'a Run<'a>) -> Self {
        let ledger = Ledger::of(run);
        Self { set, source, found, run, ledger, recorder: Recorder::new(ledger) }
    }

    pub fn algorithm(&self) -> Algorithm {
        self.run.spec.options.digest
    }

    /// The files whose bytes are stored.
    pub fn files(&self) -> impl Iterator<Item = &'a Found> + use<'a> {
        self.found.iter().filter(|found| found.has_bytes())
    }

    /// What is recorded of a file, if the file is still what it was then.
    pub fn recorded(&self, found: &Found) -> Result<Option<Done>, StageError> {
        let done = self.ledger.entry(&found.path)?;
        Ok(done.filter(|done| done.source == found.identity && done.entry.digest.is_some()))
    }

    /// The manifest's entry of what was found, once every file is recorded.
    pub fn entry(&self, found: &Found) -> Result<Entry, StageError> {
        if !found.has_bytes() {
            return Ok(found.entry(self.algorithm(), Vec::new()));
        }
        let done = self.recorded(found)?;
        let done = done.ok_or_else(|| self.source.changed(&found.path, "it was not stored"))?;
        Ok(found.entry(self.algorithm(), chunks_of(&done.entry)))
    }

    /// Records a file with the digests of its chunks; `object` is the ETag of what was read back.
    pub fn record(
        &self,
        found: &Found,
        chunks: Vec<Digest>,
        object: Option<String>,
    ) -> Result<(), StageError> {
        let entry = found.entry(self.algorithm(), chunks);
        self.recorder.add(Done { entry, source: found.identity, object })
    }
}
