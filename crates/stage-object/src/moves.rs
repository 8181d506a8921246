//! A set as the destination and as the source of a move ([`stage::tier`]). The commit point of a set in a store is its
//! manifest object, so that going there knows no part.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Mode, OFlags};

use stage::calls;
use stage::digest::Digest;
use stage::error::StageError;
use stage::fault::{Barrier, Check, Moment, comes_to, enforced};
use stage::fingerprint::Fingerprint;
use stage::journal::{Digests, JobRow, Journal, PART_IN_DOUBT};
use stage::manifest::{self, Header};
use stage::metadata::{self, Adopted};
use stage::owned::FileId;
use stage::pace::{Progress, Stop, Unlimited};
use stage::set::Times;
use stage::spec::Verb;
use stage::tier::{
    self, At, Destination, Local, Notes, Objects, Part, Run, SOURCE_IDENTITY, There, Tier, Tiers,
};

use crate::drain::{Drain, STEP};
use crate::fetch::recorded_without_copy;
use crate::resume::Ledger;
use crate::source::{Found, Source};
use crate::{Environment, Manifest, ObjectSet, ObjectTier};

/// The note of which set was stored: its manifest's digest, from before the manifest is put.
const STORED: &str = "object/stored";

/// Directories, and the object stores that URLs name, with the settings of this process.
#[must_use]
pub fn tiers() -> Tiers {
    tiers_with(Environment::of_process)
}

/// [`tiers`] with settings that `environment` gives whenever a store is opened.
#[must_use]
pub fn tiers_with(environment: fn() -> Environment) -> Tiers {
    Tiers::with(std::sync::Arc::new(Stores(environment)))
}

struct Stores(fn() -> Environment);

impl Stores {
    fn set(&self, url: &str) -> Result<ObjectSet, StageError> {
        ObjectSet::open(url, &(self.0)())
    }
}

impl Objects for Stores {
    fn tier(&self, url: &str, stop: &Stop) -> Result<Box<dyn Tier>, StageError> {
        Ok(Box::new(ObjectTier::of(self.set(url)?).until(stop)))
    }

    fn destination(&self, url: &str) -> Result<Box<dyn Destination>, StageError> {
        Ok(Box::new(SetToBe::of(self.set(url)?)))
    }

    fn digest(&self, url: &str) -> Result<Option<Digest>, StageError> {
        self.set(url)?.digest(&Stop::new())
    }

    fn source(&self, url: &str) -> Result<Box<dyn tier::Source>, StageError> {
        Ok(Box::new(SetThatIs::of(self.set(url)?)))
    }
}

/// What is stored, kept open.
struct Stored {
    root: OwnedFd,
    /// The name in `root`, of a file.
    file: Option<OsString>,
    path: PathBuf,
    found: Vec<Found>,
}

impl Stored {
    fn of(local: &Local<'_>) -> Result<Self, StageError> {
        let (path, file) = (local.path.to_owned(), (!local.is_directory).then(|| local.name.to_owned()));
        let root = match local.is_directory {
            true => {
                calls::open_at(local.parent, local.name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            }
            false => local.parent.try_clone_to_owned(),
        };
        let root = root.map_err(|error| StageError::io("open", local.path, error))?;
        Ok(Self { root, file, path, found: Vec::new() })
    }

    fn source(&self, verb: Verb) -> Source<'_> {
        let source = match &self.file {
            None => Source::directory(self.root.as_fd(), &self.path),
            Some(name) => Source::file(self.root.as_fd(), name, &self.path),
        };
        if verb == Verb::Move { source.of_one_file_system() } else { source }
    }
}

/// A set that is to be.
pub(crate) struct SetToBe {
    set: ObjectSet,
    stored: Option<Stored>,
}

impl SetToBe {
    pub fn of(set: ObjectSet) -> Self {
        Self { set, stored: None }
    }

    fn walk(&mut self, run: &Run<'_>, source: &dyn tier::Source) -> Result<(), StageError> {
        let local = source.local().ok_or_else(|| {
            StageError::invalid(
                format!("{}: from one object store to another", run.spec.destination.shown()),
                "one of the two has to be a file or a directory",
            )
        })?;
        let mut stored = Stored::of(&local)?;
        let listed = run.spec.listed();
        let source = stored.source(run.spec.verb).only(listed.as_ref());
        stored.found = source.walk(&run.spec.options.preserve, run.stop)?;
        self.stored = Some(stored);
        Ok(())
    }

    /// Does a step of the drain of what was walked.
    fn step<T>(
        &self,
        run: &Run<'_>,
        step: impl FnOnce(&Drain<'_>) -> Result<T, StageError>,
    ) -> Result<T, StageError> {
        let stored = self.stored.as_ref().expect("it is walked before it is stored");
        let listed = run.spec.listed();
        let source = stored.source(run.spec.verb).only(listed.as_ref());
        step(&Drain::new(&self.set, &source, &stored.found, run))
    }

    fn noted(&self, run: &Run<'_>) -> Result<Option<Digest>, StageError> {
        Ok(run.journal.note(run.id, STORED)?.and_then(|noted| Digest::from_slice(&noted)))
    }
}

impl Destination for SetToBe {
    fn there(&mut self, run: &Run<'_>, _: &JobRow) -> Result<There, StageError> {
        self.set.name()?;
        let there = self.set.manifest_text(&crate::lanes::Halt::new(run.stop))?;
        let own = self.noted(run)?;
        Ok(match there {
            None => There::Nothing,
            Some(_) if own.is_some() && self.set.digest(run.stop)? == own => There::Own,
            Some(_) => There::Other,
        })
    }

    fn read_back(&mut self, run: &Run<'_>, _: &JobRow) -> Result<(), StageError> {
        let verified = self.set.verify(&Unlimited, run.stop, &Progress::default())?;
        verified.faults.into_iter().next().map_or(Ok(()), Err)
    }

    fn check(&self, _: &Run<'_>, _: &dyn tier::Source) -> Result<(), StageError> {
        Ok(())
    }

    fn adopt(
        &mut self,
        run: &Run<'_>,
        _: &JobRow,
        source: &mut dyn tier::Source,
        _: &mut Notes,
    ) -> Result<(), StageError> {
        source.make_durable(run)?;
        self.set.make_durable(Barrier::AdoptedObjects, run.stop)?;
        comes_to(Moment::Compared, Vec::new);
        self.walk(run, source)?;
        let digest = self.step(run, |drain| drain.adopt())?;
        run.journal.keep_note(run.id, STORED, &digest.0)?;
        let copied = run.recorded(&mut |_| Ok(()))?;
        source.is_what_was_copied(run, copied)
    }

    fn put(
        &mut self,
        run: &Run<'_>,
        _: &JobRow,
        source: &mut dyn tier::Source,
        _: &mut Notes,
    ) -> Result<Fingerprint, StageError> {
        self.walk(run, source)?;
        self.step(run, |drain| drain.store())?;
        run.recorded(&mut |_| Ok(()))
    }

    fn publish(&mut self, run: &Run<'_>, notes: &mut Notes) -> Result<(), StageError> {
        let strangers = self.step(run, |drain| {
            let note = |digest: Digest| run.journal.keep_note(run.id, STORED, &digest.0);
            drain.publish(&note)
        })?;
        if strangers > 0 {
            notes.push(format!(
                "{strangers} objects beneath it are not of this set: sets with names beneath its own, or what earlier \
                 attempts left"
            ));
        }
        Ok(())
    }

    fn settle(&mut self, run: &Run<'_>) -> Result<(), StageError> {
        // What the store has answered is durable, and was noted before it was put. In a directory, a run that was killed
        // may have made directories that it did not sync.
        self.set.make_durable(Barrier::StoredObjects, run.stop)
    }

    fn is_as_committed(&mut self, run: &Run<'_>, _: &JobRow) -> Result<bool, StageError> {
        let noted = self.noted(run)?;
        Ok(noted.is_some() && self.set.digest(run.stop)? == noted)
    }

    /// A set in a store is what its manifest lists.
    fn has_manifest(&self, _: &Run<'_>) -> Result<bool, StageError> {
        Ok(true)
    }

    fn give_up(
        &mut self,
        journal: &Journal,
        row: &JobRow,
        stop: &Stop,
        _: &mut Notes,
    ) -> Result<(), StageError> {
        // What is gone by now had no upload worth finding; its objects are in the log.
        let found = row
            .spec
            .source
            .path()
            .and_then(|path| stage::runner::Source::open(path, row.spec.watched()).ok());
        let stored = found.map(|source| Stored::of(&source.local())).transpose()?;
        let source = stored.as_ref().map(|stored| stored.source(row.spec.verb));
        self.set.abandon(source.as_ref(), Ledger::new(journal, row.id), stop)
    }
}

/// A set that is there.
pub(crate) struct SetThatIs {
    set: ObjectSet,
    manifest: Option<Manifest>,
}

impl SetThatIs {
    pub fn of(set: ObjectSet) -> Self {
        Self { set, manifest: None }
    }

    fn manifest(&self) -> &Manifest {
        self.manifest.as_ref().expect("it is opened first")
    }

    /// What is recorded has the set's own digests.
    fn note_digests(&self, run: &Run<'_>) -> Result<(), StageError> {
        let Header { algorithm, chunk_bytes, .. } = self.manifest().header;
        run.journal.take_over_digests(run.id, Digests { algorithm, chunk_bytes })
    }

    /// Records what the set consists of, which a copy that was adopted consists of as well.
    fn record(&self, run: &Run<'_>) -> Result<(), StageError> {
        self.note_digests(run)?;
        for some in self.manifest().entries.chunks(STEP) {
            run.journal.record(run.entries(), &some.iter().map(recorded_without_copy).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

impl tier::Source for SetThatIs {
    fn open(&mut self, run: &Run<'_>) -> Result<(), StageError> {
        self.manifest = Some(self.set.manifest(run.stop)?);
        Ok(())
    }

    fn is_directory(&self) -> bool {
        !self.manifest().is_file()
    }

    fn local(&self) -> Option<Local<'_>> {
        None
    }

    fn identity(&self) -> Option<Digest> {
        Some(self.manifest().digest)
    }

    fn goes_on_in(&self, run: &Run<'_>, _: &FileId) -> Result<bool, StageError> {
        let noted = run.journal.note(run.id, SOURCE_IDENTITY)?;
        Ok(noted.and_then(|noted| Digest::from_slice(&noted)) == self.identity())
    }

    fn make_durable(&mut self, _: &Run<'_>) -> Result<(), StageError> {
        Ok(())
    }

    fn copy_into(
        &mut self,
        run: &Run<'_>,
        part: &Part<'_>,
        _: &mut Notes,
    ) -> Result<Fingerprint, StageError> {
        let (found, options) = (self.manifest(), &run.spec.options);
        self.note_digests(run)?;
        self.set.fetch(found, run, part)?;
        if !found.is_file() && !options.no_manifest {
            keep_manifest(part.file, &part.at.path.join(part.at.name), found, options.preserve.times)?;
        }
        run.journal.keep_note(run.id, PART_IN_DOUBT, b"")?;
        Ok(Fingerprint::of_digest(&self.manifest().digest))
    }

    fn adopt(
        &mut self,
        run: &Run<'_>,
        there: &At<'_>,
        is_still: &dyn Fn() -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        let path = there.path.join(there.name);
        let taken = || stage::runner::taken(&path);
        if !self.is_directory() {
            return Err(taken());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root =
            calls::open_at(there.parent.as_fd(), there.name, flags, Mode::empty()).map_err(|_| taken())?;
        let manifest = stage::set::Manifest::of_text(&self.manifest().text, &path)?;
        if manifest.differs_from(root.as_fd(), &path, Times::Ignored)?.is_some() {
            return Err(taken());
        }
        match manifest.verify(root.as_fd(), &path, &|| run.stop.check()) {
            Err(StageError::Corrupt { .. }) => return Err(taken()),
            verified => verified?,
        }
        let own = match stage::set::Manifest::misnamed(root.as_fd(), &path)? {
            Some(_) => return Err(taken()),
            None => stage::set::Manifest::read(root.as_fd(), &path)?,
        };
        if let Some(own) = own
            && !own.same_bytes(&manifest)?
        {
            // Of other digests, perhaps: then it has to fit what is there by itself.
            let differs = own.differs_from(root.as_fd(), &path, Times::Ignored)?.is_some();
            match own.verify(root.as_fd(), &path, &|| run.stop.check()) {
                Err(StageError::Corrupt { .. }) => return Err(taken()),
                verified => verified?,
            }
            if differs {
                return Err(taken());
            }
        }
        is_still()?;
        if self.adopt_metadata(run, root.as_fd(), &path)? {
            stage::existing::make_durable(&path, Some(Barrier::FetchedMetadata), run.stop)?;
        }
        let (files, bytes) =
            self.manifest().files().fold((0, 0), |(files, bytes), file| (files + 1, bytes + file.size));
        run.progress.files_total.store(files, Relaxed);
        run.progress.files_done.store(files, Relaxed);
        run.progress.bytes_total.store(bytes, Relaxed);
        run.progress.bytes_verified.store(bytes, Relaxed);
        run.progress.walked.store(true, Relaxed);
        self.record(run)
    }

    fn is_what_was_copied(&mut self, run: &Run<'_>, copied: Fingerprint) -> Result<(), StageError> {
        // Before the store is asked, so that a request that comes from now on is compared with it.
        run.journal.vouch_for(run.id, Some(copied))?;
        if self.set.digest(run.stop)? != self.identity() && enforced(Check::SourceAfterRead) {
            return Err(StageError::SourceChanged {
                path: run.spec.source.shown(),
                how: "another set has its name".to_owned(),
            });
        }
        Ok(())
    }

    fn remove(
        &mut self,
        run: &Run<'_>,
        _: &dyn Destination,
        _: &mut Notes,
    ) -> Result<Option<StageError>, StageError> {
        // Another set may have the name by now: only the one that was fetched goes.
        let noted = run.journal.note(run.id, SOURCE_IDENTITY)?;
        match noted.and_then(|noted| Digest::from_slice(&noted)) {
            Some(digest) => self.set.delete_only(digest, run.stop).map(|_| None),
            None => Err(StageError::Refused {
                what: format!(
                    "{}: which set was fetched from there is not in the journal; it stays",
                    run.spec.source.shown()
                ),
                hint: None,
            }),
        }
    }
}

impl SetThatIs {
    /// Gives a directory that equals the set the metadata that was asked for, where it has other. Was anything set?
    fn adopt_metadata(&self, run: &Run<'_>, root: BorrowedFd<'_>, path: &Path) -> Result<bool, StageError> {
        let mut changed = false;
        for entry in &self.manifest().entries {
            run.stop.check()?;
            let name = &entry.path.0;
            let shown = if name.as_os_str().is_empty() { path.to_owned() } else { path.join(name) };
            let preserve = run.spec.options.preserve;
            match metadata::adopt(None, root, name, entry, preserve, &shown, run.progress)? {
                Adopted::Unchanged => {}
                Adopted::Changed => changed = true,
                Adopted::Refused => return Err(stage::runner::taken(path)),
            }
        }
        Ok(changed)
    }
}

/// The manifest as the store has it, beside what it lists.
fn keep_manifest(root: &OwnedFd, shown: &Path, found: &Manifest, times: bool) -> Result<(), StageError> {
    let directory = shown;
    let shown = shown.join(manifest::NAME);
    let failed = |error| StageError::io("write", &shown, error);
    let file = calls::create(root.as_fd(), manifest::NAME.as_ref(), OFlags::WRONLY).map_err(failed)?;
    calls::write_at(file.as_fd(), &found.text, 0).map_err(failed)?;
    calls::sync(file.as_fd(), Barrier::FetchedManifest)
        .map_err(|error| StageError::sync("fsync", &shown, error))?;
    let root_entry = found.entries.iter().find(|entry| entry.path.0.as_os_str().is_empty());
    if let (true, Some(entry)) = (times, root_entry) {
        let modified = (entry.mtime_s, entry.mtime_ns);
        calls::set_times(root.as_fd(), modified, modified)
            .map_err(|error| StageError::io("set the times", directory, error))?;
    }
    calls::sync(root.as_fd(), Barrier::FetchedRoot)
        .map_err(|error| StageError::sync("fsync", directory, error))
}
