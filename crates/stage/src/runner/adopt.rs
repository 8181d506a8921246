//! A destination that is there already: adopted if it is the same, byte for byte, else refused.
//!
//! What asks for moves asks twice: Slurm runs a job's stage-out again when its controller restarts. So a destination
//! that is what the move would have made is a success; anything else is refused, and never written over. Names, kinds and
//! bytes have to be equal. Metadata that was asked for and differs is set, and synced. A manifest has to fit.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;
use storage::uuid::Uuid;

use super::Run;
use super::find::{Destination, Source};
use super::publish::{PAGE, taken};
use crate::calls;
use crate::digest::CHUNK_BYTES;
use crate::distinct::{self, Shown};
use crate::error::{RETRY, StageError};
use crate::existing::make_durable_at;
use crate::fault::{Barrier, Check, enforced};
use crate::fingerprint::Fingerprint;
use crate::job::JobId;
use crate::journal::{Done, Identity, Journal};
use crate::manifest::{self, Entry, Kind};
use crate::metadata::{self, Adopted};
use crate::names::{joined, part_name};
use crate::owned;
use crate::pace::Stop;
use crate::spec::{JobSpec, Place, Verb};
use crate::tier::At;
use crate::tree::{Seen, Walk, entry_of, kind_of};
use crate::verify::Reader;

impl Run<'_> {
    /// Journals the name of the file that [`Self::is_distinct`] makes in the source.
    pub(super) fn begin_adoption(&self, destination: &Destination) -> Result<(), StageError> {
        let uuid = Uuid::random()
            .map_err(|error| StageError::io("get a UUID", Path::new("/proc/sys/kernel/random"), error))?;
        self.journal.begin_adoption(self.id, &part_name(&destination.name, uuid))
    }

    /// Compares source and destination, and records the source if they are the same. `is_still` has to hold once all is
    /// compared.
    pub(super) fn adopt(
        &self,
        source: &Source,
        there: &At<'_>,
        is_still: &dyn Fn() -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        if self.spec.verb == Verb::Move {
            self.is_distinct(source, there)?;
        }
        let destination = &Destination { parent: there.path.to_owned(), name: there.name.to_owned() };
        let adopting = Adopting { run: self, source, destination, parent: there.parent };
        if source.is_directory {
            adopting.directory()?;
        } else {
            adopting.file()?;
        }
        let copied = self.recorded(&mut |_| Ok(()))?;
        self.is_what_was_copied(source, copied)?;
        if self.spec.options.inward && source.is_directory {
            self.is_as_its_manifest_says(&source.open_root()?, &source.path, false)?;
        }
        is_still()?;
        adopting.metadata()
    }
}

/// The state of a destination that exists, from before it is synced. What writes to it later, or is still at it, moves
/// this state, so that nothing is adopted that was not synced and compared.
pub(super) struct Standing {
    is_directory: bool,
    state: Fingerprint,
}

impl Standing {
    pub(super) fn of(there: &At<'_>, is_directory: bool, stop: &Stop) -> Result<Self, StageError> {
        let (state, _) = Self::look(there, is_directory, stop)?;
        Ok(Self { is_directory, state })
    }

    /// Refuses a destination that has changed since.
    pub(super) fn is_still(&self, there: &At<'_>, stop: &Stop) -> Result<(), StageError> {
        let (state, latest) = Self::look(there, self.is_directory, stop)?;
        if state == self.state || !enforced(Check::AdoptedLater) {
            return Ok(());
        }
        Err(StageError::refused(
            format!(
                "{}: changed while the destination was compared with the source",
                crate::error::shown(&joined(&there.path.join(there.name), &latest))
            ),
            format!("wait until nothing writes to the destination, then: {RETRY}"),
        ))
    }

    /// The state now, and the path that changed last.
    fn look(there: &At<'_>, is_directory: bool, stop: &Stop) -> Result<(Fingerprint, PathBuf), StageError> {
        let shown = there.path.join(there.name);
        let (mut state, mut latest) = (Fingerprint::default(), None);
        let mut add = |path: &Path, stat: &Statx| {
            let Some(kind) = kind_of(stat) else { return Err(taken(&shown)) };
            let now = Identity::of(stat);
            state.add(path, kind, &now, false);
            if latest.as_ref().is_none_or(|(ctime, _)| *ctime <= now.ctime) {
                latest = Some((now.ctime, path.to_owned()));
            }
            Ok(())
        };
        let walk = Walk { source: &shown, across: false, only: None, stop };
        if is_directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let root = calls::open_at(there.parent.as_fd(), there.name, flags, Mode::empty())
                .map_err(|_| taken(&shown))?;
            walk.each(root.as_fd(), None, &mut |seen| add(seen.path, seen.stat))?;
            // A walk passes over it.
            match calls::stat_at(root.as_fd(), manifest::NAME.as_ref()) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {}
                stat => {
                    let stat =
                        stat.map_err(|error| StageError::io("look at", &shown.join(manifest::NAME), error))?;
                    add(manifest::NAME.as_ref(), &stat)?;
                }
            }
        } else {
            walk.each(there.parent.as_fd(), Some(there.name), &mut |seen| add(seen.path, seen.stat))?;
        }
        Ok((state, latest.map(|(_, path)| path).unwrap_or_default()))
    }
}

impl Run<'_> {
    /// What is to be removed and what stays have to be two things ([`crate::distinct`]).
    fn is_distinct(&self, source: &Source, there: &At<'_>) -> Result<(), StageError> {
        let Some(probe) = self.journal.probe(self.id)? else { return Ok(()) };
        let shown = there.path.join(there.name);
        if !source.is_directory {
            let above = source.path.parent().unwrap_or(&source.path);
            let source = Shown { directory: source.parent.as_fd(), path: above };
            return distinct::files(source, Shown { directory: there.parent.as_fd(), path: &shown }, &probe);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let copy = calls::open_at(there.parent.as_fd(), there.name, flags, Mode::empty())
            .map_err(|_| taken(&shown))?;
        let root = source.open_root()?;
        let source = Shown { directory: root.as_fd(), path: &source.path };
        distinct::directories(source, Shown { directory: copy.as_fd(), path: &shown }, &probe)
    }
}

struct Adopting<'a> {
    run: &'a Run<'a>,
    source: &'a Source,
    destination: &'a Destination,
    parent: &'a OwnedFd,
}

impl Adopting<'_> {
    fn taken(&self) -> StageError {
        taken(&self.destination.path())
    }

    fn file(&self) -> Result<(), StageError> {
        let stat = calls::stat_at(self.source.parent.as_fd(), &self.source.name)
            .map_err(|error| StageError::io("look at", &self.source.path, error))?;
        let entry = entry_of(Path::new(""), Kind::File, &stat);
        let mut reader = Reader::new(CHUNK_BYTES);
        let places = [
            (&self.source.parent, self.source.name.as_os_str(), self.source.path.clone()),
            (self.parent, self.destination.name.as_os_str(), self.destination.path()),
        ];
        let done = self.compare(
            &mut reader,
            entry,
            Identity::of(&stat),
            places.each_ref().map(|(d, n, s)| (*d, Path::new(*n), s.as_path())),
        )?;
        self.count(&done, &mut HashSet::new());
        self.run.progress.walked.store(true, Relaxed);
        self.run.journal.record(self.run.entries(), &[done])
    }

    fn directory(&self) -> Result<(), StageError> {
        let shown = self.destination.path();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = calls::open_at(self.parent.as_fd(), &self.destination.name, flags, Mode::empty())
            .map_err(|_| self.taken())?;
        let source = self.source.open_root()?;
        let only = self.run.spec.listed();
        let (mut reader, mut done, mut entries) = (Reader::new(CHUNK_BYTES), Vec::new(), 0_u64);
        let mut linked = HashSet::new();
        self.source.each(&self.run.walk(&self.source.path, only.as_ref()), &mut |seen| {
            self.run.stop.check()?;
            let one = self.one(&mut reader, &source, &root, seen)?;
            self.count(&one, &mut linked);
            done.push(one);
            entries += 1;
            if done.len() == PAGE {
                self.run.journal.record(self.run.entries(), &std::mem::take(&mut done))?;
            }
            Ok(())
        })?;
        self.run.journal.record(self.run.entries(), &done)?;
        self.run.progress.walked.store(true, Relaxed);
        // Everything of the source is there. If there are as many entries, nothing else is.
        let mut there = 0_u64;
        let walk = Walk { source: &shown, across: false, only: None, stop: self.run.stop };
        walk.each(root.as_fd(), None, &mut |_| {
            there += 1;
            Ok(())
        })?;
        if there != entries && enforced(Check::AdoptedNames) {
            return Err(self.taken());
        }
        self.manifest(&root, &shown)
    }

    /// A manifest of the destination has to be one of what was compared: it is what `verify` goes by later.
    fn manifest(&self, root: &OwnedFd, shown: &Path) -> Result<(), StageError> {
        match self.run.is_as_its_manifest_says(root, shown, true) {
            Err(error @ (StageError::Refused { .. } | StageError::Corrupt { .. })) => {
                Err(StageError::Exists {
                    what: format!(
                        "{}: equals the source, and its manifest is of other files: {error}",
                        crate::error::shown(shown)
                    ),
                    hint: format!("remove its {}, or name another destination", crate::manifest::NAME),
                })
            }
            compared => compared,
        }
    }

    /// Gives the destination the metadata that was asked for, where it has others, and makes that durable. Last, so that a
    /// destination that is refused is not touched.
    fn metadata(&self) -> Result<(), StageError> {
        let mut changed = false;
        if self.source.is_directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let root = calls::open_at(self.parent.as_fd(), &self.destination.name, flags, Mode::empty())
                .map_err(|_| self.taken())?;
            let source = self.source.open_root()?;
            self.run.each(|done| {
                let path = &done.entry.path.0;
                changed |= self.metadata_of(&source, path, &root, path, &done.entry)?;
                Ok(())
            })?;
        } else if let Some(done) = self.run.journal.entry(self.run.entries(), Path::new(""))? {
            let (from, to) = (Path::new(&self.source.name), Path::new(&self.destination.name));
            changed = self.metadata_of(&self.source.parent, from, self.parent, to, &done.entry)?;
        }
        if !changed {
            return Ok(());
        }
        let (name, path) = (&self.destination.name, self.destination.path());
        let purpose = Some(Barrier::AdoptedMetadata);
        make_durable_at(self.parent.as_fd(), name, &path, purpose, self.run.stop)
    }

    /// Was anything set?
    fn metadata_of(
        &self,
        source: &OwnedFd,
        name: &Path,
        root: &OwnedFd,
        path: &Path,
        entry: &Entry,
    ) -> Result<bool, StageError> {
        let preserve = self.run.spec.options.preserve;
        let has_attributes = (preserve.xattrs || preserve.acls) && entry.kind != Kind::Symlink;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let beneath = if name.as_os_str().is_empty() { Path::new(".") } else { name };
        let source = has_attributes
            .then(|| calls::open_beneath(source.as_fd(), beneath, flags, Mode::empty()))
            .transpose()
            .map_err(|error| StageError::io("open", &joined(&self.source.path, &entry.path.0), error))?;
        let source = source.as_ref().map(|source| source.as_fd());
        let shown = joined(&self.destination.path(), &entry.path.0);
        match metadata::adopt(source, root.as_fd(), path, entry, preserve, &shown, self.run.progress)? {
            Adopted::Unchanged => Ok(false),
            Adopted::Changed => Ok(true),
            Adopted::Refused => Err(self.taken()),
        }
    }

    /// Counts an entry that is at the destination, as a resumed move counts what it keeps: bytes of a file of several names
    /// (`linked`, by inode) once.
    fn count(&self, done: &Done, linked: &mut HashSet<u64>) {
        let progress = self.run.progress;
        if done.entry.kind == Kind::Directory {
            return;
        }
        progress.files_total.fetch_add(1, Relaxed);
        progress.files_done.fetch_add(1, Relaxed);
        let is_first = done.source.nlink == 1 || linked.insert(done.source.ino);
        if done.entry.kind == Kind::File && is_first {
            for count in [&progress.bytes_total, &progress.bytes_written, &progress.bytes_verified] {
                count.fetch_add(done.entry.size, Relaxed);
            }
        }
    }

    /// Compares an entry of the source with what has its path at the destination.
    fn one(
        &self,
        reader: &mut Reader,
        source: &OwnedFd,
        root: &OwnedFd,
        seen: &Seen<'_>,
    ) -> Result<Done, StageError> {
        let path = seen.path;
        let (shown, shown_there) = (joined(&self.source.path, path), joined(&self.destination.path(), path));
        let beneath = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let there = match calls::open_beneath(root.as_fd(), beneath, OFlags::PATH, Mode::empty()) {
            Err(error) if calls::is_not_there(&error) => return Err(self.taken()),
            opened => opened.map_err(|error| StageError::io("look at", &shown_there, error))?,
        };
        let stat =
            calls::stat(there.as_fd()).map_err(|error| StageError::io("look at", &shown_there, error))?;
        let Some(kind) = seen.kind().filter(|kind| kind_of(&stat) == Some(*kind)) else {
            return Err(self.taken());
        };
        let mut entry = entry_of(path, kind, seen.stat);
        if let (Kind::Symlink, Some((directory, name))) = (kind, seen.place) {
            let from = calls::read_link(directory, name)
                .map_err(|error| StageError::io("read the link", &shown, error))?;
            let to = calls::read_link(there.as_fd(), OsStr::new(""))
                .map_err(|error| StageError::io("read the link", &shown_there, error))?;
            if from != to {
                return Err(self.taken());
            }
            entry.target = Some(crate::names::PathText(from.into()));
        }
        let identity = Identity::of(seen.stat);
        if kind != Kind::File {
            return Ok(Done::new(entry, identity));
        }
        self.compare(reader, entry, identity, [(source, path, &shown), (root, path, &shown_there)])
    }

    /// Digests a file in both places; it must be the same.
    fn compare(
        &self,
        reader: &mut Reader,
        mut entry: Entry,
        identity: Identity,
        places: [(&OwnedFd, &Path, &Path); 2],
    ) -> Result<Done, StageError> {
        let algorithm = self.run.spec.options.digest;
        let mut digests = [Vec::new(), Vec::new()];
        for ((directory, path, shown), digests) in places.into_iter().zip(&mut digests) {
            let read =
                reader.chunks(directory.as_fd(), path, shown, entry.size, algorithm, &mut |_, digest| {
                    self.run.stop.check()?;
                    digests.push(digest);
                    Ok(())
                });
            match read {
                Err(StageError::Corrupt { .. }) => return Err(self.taken()),
                read => read?,
            }
        }
        let [from, to] = digests;
        if from != to && enforced(Check::AdoptedBytes) {
            return Err(self.taken());
        }
        entry.digest = Some(algorithm.of_chunks(&from));
        entry.chunks = if from.len() > 1 { from } else { Vec::new() };
        Ok(Done::new(entry, identity))
    }
}

/// Removes the probe that an interrupted attempt of a move left in its source.
pub(super) fn clear_probe(journal: &Journal, id: JobId, spec: &JobSpec) -> Result<(), StageError> {
    let (Verb::Move, Place::Path(path)) = (spec.verb, &spec.source) else { return Ok(()) };
    let Some(probe) = journal.probe(id)? else { return Ok(()) };
    // A source that cannot be opened is reported by the step that needs it.
    let Ok(source) = Source::open(&path.0, spec.watched()) else { return Ok(()) };
    if source.is_directory {
        owned::discard(&source.open_root()?, &probe, &path.0, None)?;
    } else {
        let above = path.0.parent().unwrap_or(&path.0);
        owned::discard(&source.parent, &probe, above, None)?;
    }
    Ok(())
}
