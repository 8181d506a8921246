//! Moves to and from an object store ([`crate::object`]). The steps are those of [`super`]; the commit point of a
//! set in a store is its manifest object, so going there knows no part, and COMMITTED follows the put of the manifest.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{FileType, Mode, OFlags};

use super::find::{Destination, Source, inode};
use super::{Notes, Part, Run, now};
use crate::calls;
use crate::digest::Digest;
use crate::error::StageError;
use crate::job::{JobId, State};
use crate::journal::{Done, Identity, JobRow, Journal};
use crate::manifest::{self, Kind};
use crate::object::{self, DrainOptions, Environment, FetchOptions, Manifest, ObjectSet, Resume};
use crate::retention;
use crate::small::{create, joined};
use crate::spec::Verb;
use crate::tree::entry_of;

/// The note of which set was fetched: its manifest's digest.
const FETCHED: &str = "object/fetched";
/// The note of which set was stored.
const STORED: &str = "object/stored";
/// Entries in one step of the journal.
const STEP: usize = 4096;

/// What a drain remembers, in the journal.
struct Notebook<'a> {
    journal: &'a Journal,
    id: JobId,
}

impl Resume for Notebook<'_> {
    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, StageError> {
        self.journal.note(self.id, key)
    }

    fn save(&self, key: &str, value: &[u8]) -> Result<(), StageError> {
        self.journal.keep_note(self.id, key, value)
    }
}

impl Run<'_> {
    /// From files to objects.
    pub(super) fn to_object(
        &self,
        row: &JobRow,
        path: &Path,
        url: &str,
        notes: &mut Notes,
    ) -> Result<(), StageError> {
        let set = ObjectSet::open(url, &Environment::of_process())?;
        if row.state == State::Committed {
            // Whoever has deleted it since takes the source with it, if nobody looks.
            let stored = self.journal.note(self.id, STORED)?.and_then(|noted| Digest::from_slice(&noted));
            if stored.is_none() || set.digest(self.stop)? != stored {
                notes.push(format!(
                    "{} is not there any more as it was committed; the source was left alone",
                    self.spec.destination.shown()
                ));
                return Ok(());
            }
        } else {
            let source = Source::open(path)?;
            self.local(&source)?;
            // Before anything is read: what goes in the end is what was there now.
            let root = source.open_root()?;
            self.identities(&source, &root)?;
            let what = match source.is_directory {
                true => object::Source::directory(root.as_fd(), path),
                false => object::Source::file(source.parent.as_fd(), &source.name, path),
            };
            let wanted = &self.spec.options;
            let options =
                DrainOptions { digest: wanted.digest, preserve: wanted.preserve, expected: &wanted.expected };
            let notebook = Notebook { journal: self.journal, id: self.id };
            let drained = set.drain(&what, &options, &notebook, self.pace, self.stop, self.progress)?;
            if drained.already {
                notes.push("it was there already, and the same, byte for byte".to_owned());
            }
            if drained.strangers > 0 {
                notes.push(format!(
                    "{} objects beneath it are none of its: earlier attempts left them",
                    drained.strangers
                ));
            }
            self.progress.files_done.store(drained.files, Relaxed);
            self.journal.keep_note(self.id, STORED, &drained.digest.0)?;
            self.journal.commit(self.id, now())?;
        }
        if self.spec.verb == Verb::Move {
            super::remove::remove(self, path, notes)?;
        }
        self.semaphore((self.spec.verb == Verb::Move).then_some(path))?;
        notes.extend(retention::after_commit(self.spec, self.journal, self.stop)?.notes());
        Ok(())
    }

    /// From objects to files.
    pub(super) fn out_of_object(
        &self,
        row: &JobRow,
        url: &str,
        path: &Path,
        notes: &mut Notes,
    ) -> Result<(), StageError> {
        let destination = Destination::of(path)?;
        let set = ObjectSet::open(url, &Environment::of_process())?;
        if row.state != State::Committed {
            self.fetch(row, &set, &destination, notes)?;
        }
        if self.spec.verb == Verb::Move {
            let parent = destination.open()?;
            if row_part(self)?.is_some_and(|ino| {
                inode(&parent, &destination.name, &destination.parent).ok().flatten() == Some(ino)
            }) {
                // Another set may have the name by now: only the one that was fetched goes.
                match self.journal.note(self.id, FETCHED)?.and_then(|noted| Digest::from_slice(&noted)) {
                    Some(digest) => set.delete_only(digest, self.stop)?,
                    None => {
                        return Err(StageError::Refused {
                            what: format!(
                                "{url}: which set was fetched from there is not in the journal; it stays"
                            ),
                            hint: None,
                        });
                    }
                };
            } else {
                notes.push("the destination is not there any more as it was committed; the set was left in the store".to_owned());
            }
        }
        notes.extend(retention::after_commit(self.spec, self.journal, self.stop)?.notes());
        Ok(())
    }

    fn fetch(
        &self,
        row: &JobRow,
        set: &ObjectSet,
        destination: &Destination,
        notes: &mut Notes,
    ) -> Result<(), StageError> {
        destination.make_parents()?;
        let parent = destination.open()?;
        let there = destination.inode(&parent)?;
        if there.is_some() && there == row.part_ino {
            self.read_again(&parent, destination)?;
            notes.push(
                "it had its name when the work was interrupted; all of it was read back again".to_owned(),
            );
            return self.committed(&parent, destination);
        }
        if there.is_some() {
            return Err(super::publish::taken(&destination.path()));
        }
        let found = set.manifest(self.stop)?;
        let part = self.fetched_into(row, &found, &parent, destination)?;
        let shown = destination.parent.join(&part.name);
        let options = FetchOptions { preserve: self.spec.options.preserve, resumed: part.resumed };
        let notebook = Notebook { journal: self.journal, id: self.id };
        let (pace, stop, progress) = (self.pace, self.stop, self.progress);
        if found.is_file() {
            let file = match part.resumed {
                true => calls::open_at(parent.as_fd(), &part.name, OFlags::RDWR, Mode::empty()),
                false => create(parent.as_fd(), &part.name, OFlags::RDWR),
            };
            let file = file.map_err(|error| StageError::io("create", &shown, error))?;
            self.part_is(&parent, &part.name, destination)?;
            set.fetch_file(&found, file.as_fd(), &shown, &options, &notebook, pace, stop, progress)?;
        } else {
            let root =
                calls::open_at(parent.as_fd(), &part.name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                    .map_err(|error| StageError::io("open the directory", &shown, error))?;
            set.fetch_into(&found, root.as_fd(), &shown, &options, &notebook, pace, stop, progress)?;
            if !self.spec.options.no_manifest {
                self.keep_manifest(&root, &shown, &found)?;
            }
        }
        self.record_fetched(&found)?;
        self.stop.check()?;
        destination.publish(&parent, &part.name)?;
        self.committed(&parent, destination)
    }

    /// Where the set is fetched into: what an earlier attempt has begun with this very set, or a new part.
    fn fetched_into(
        &self,
        row: &JobRow,
        found: &Manifest,
        parent: &OwnedFd,
        destination: &Destination,
    ) -> Result<Part, StageError> {
        if let Some(name) = &row.part {
            let there = inode(parent, name, &destination.parent)?;
            let noted = self.journal.note(self.id, FETCHED)?.and_then(|noted| Digest::from_slice(&noted));
            if there.is_some() && there == row.part_ino && noted == Some(found.digest) {
                return Ok(Part { name: name.clone(), resumed: true });
            }
            super::discard(parent, name, &destination.parent)?;
        }
        let part = self.new_part(parent, destination, !found.is_file())?;
        self.journal.keep_note(self.id, FETCHED, &found.digest.0)?;
        Ok(part)
    }

    /// The manifest as the store has it, beside what it lists.
    fn keep_manifest(&self, root: &OwnedFd, shown: &Path, found: &Manifest) -> Result<(), StageError> {
        let shown = shown.join(manifest::NAME);
        let failed = |error| StageError::io("write", &shown, error);
        // An earlier attempt's.
        match calls::remove_file(root.as_fd(), manifest::NAME.as_ref()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let file = create(root.as_fd(), manifest::NAME.as_ref(), OFlags::WRONLY).map_err(failed)?;
        calls::write_at(file.as_fd(), &found.text, 0).map_err(failed)?;
        calls::sync(file.as_fd()).map_err(|error| StageError::io("fsync", &shown, error))?;
        let root_entry = found.entries.iter().find(|entry| entry.path.0.as_os_str().is_empty());
        if let (true, Some(entry)) = (self.spec.options.preserve.times, root_entry) {
            let modified = (entry.mtime_s, entry.mtime_ns);
            calls::set_times(root.as_fd(), modified, modified)
                .map_err(|error| StageError::io("set the times", &shown, error))?;
        }
        calls::sync(root.as_fd()).map_err(|error| StageError::io("fsync", &shown, error))
    }

    /// What was fetched, so that it can be read again after a crash between the rename and COMMITTED.
    fn record_fetched(&self, found: &Manifest) -> Result<(), StageError> {
        for some in found.entries.chunks(STEP) {
            let done: Vec<Done> = some
                .iter()
                .map(|entry| {
                    let source = Identity {
                        ino: 0,
                        size: entry.size,
                        mtime: (entry.mtime_s, entry.mtime_ns),
                        ctime: (0, 0),
                        nlink: 1,
                    };
                    Done { entry: entry.clone(), source }
                })
                .collect();
            self.journal.record(self.id, &done)?;
        }
        Ok(())
    }

    /// Records what the source is now, for its removal: nothing that is different then is removed.
    fn identities(&self, source: &Source, root: &OwnedFd) -> Result<(), StageError> {
        if self.spec.verb != Verb::Move {
            return Ok(());
        }
        let failed = |path: &Path| {
            let path = joined(&source.path, path);
            move |error| StageError::io("look at", &path, error)
        };
        let only = self.only();
        let mut done = Vec::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(path) = waiting.pop() {
            self.stop.check()?;
            let beneath = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            if !source.is_directory {
                let stat = calls::stat(root.as_fd()).map_err(failed(&path))?;
                done.push(Done { entry: entry_of(&path, Kind::File, &stat), source: Identity::of(&stat) });
                break;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory =
                calls::open_beneath(root.as_fd(), beneath, flags, Mode::empty()).map_err(failed(&path))?;
            let stat = calls::stat(directory.as_fd()).map_err(failed(&path))?;
            done.push(Done { entry: entry_of(&path, Kind::Directory, &stat), source: Identity::of(&stat) });
            let mut list = calls::List::of(directory.as_fd()).map_err(failed(&path))?;
            while let Some((name, _)) = list.next().map_err(failed(&path))? {
                let below = path.join(&name);
                // As the drain does: what it does not store must not be removed.
                let listed = only.as_ref().is_none_or(|only| crate::names::is_among(only, &below));
                if below == Path::new(manifest::NAME) || crate::names::is_part(&name) || !listed {
                    continue;
                }
                let stat = calls::stat_at(directory.as_fd(), &name).map_err(failed(&below))?;
                match FileType::from_raw_mode(stat.stx_mode.into()) {
                    FileType::Directory => waiting.push(below),
                    FileType::Symlink => {
                        let mut entry = entry_of(&below, Kind::Symlink, &stat);
                        entry.target = Some(crate::names::PathText(PathBuf::new()));
                        done.push(Done { entry, source: Identity::of(&stat) });
                    }
                    // What is of another kind, the drain refuses.
                    _ => done.push(Done {
                        entry: entry_of(&below, Kind::File, &stat),
                        source: Identity::of(&stat),
                    }),
                }
            }
            if done.len() >= STEP {
                self.journal.record(self.id, &std::mem::take(&mut done))?;
            }
        }
        self.journal.record(self.id, &done)
    }

    fn part_is(&self, parent: &OwnedFd, part: &OsStr, destination: &Destination) -> Result<(), StageError> {
        let ino = inode(parent, part, &destination.parent)?;
        self.journal.made_part(self.id, ino.unwrap_or(0))
    }
}

fn row_part(run: &Run<'_>) -> Result<Option<u64>, StageError> {
    Ok(run.row()?.part_ino)
}

/// Gives up a job that stores objects: what it has stored goes, unless the set is there.
pub fn abandon(journal: &Journal, row: &JobRow, url: &str) -> Result<(), StageError> {
    let Some(path) = row.spec.source.path() else { return Ok(()) };
    let Ok(source) = Source::open(path) else { return Ok(()) };
    let root = source.open_root()?;
    let what = match source.is_directory {
        true => object::Source::directory(root.as_fd(), path),
        false => object::Source::file(source.parent.as_fd(), &source.name, path),
    };
    let set = ObjectSet::open(url, &Environment::of_process())?;
    set.abandon(&what, &Notebook { journal, id: row.id }, &crate::pace::Stop::new())
}
