//! The order of a move between two directories, in which every step rests on the one before it being durable.
//!
//! 1. Source and destination are on the mounts that INTENT holds ([`crate::mounts`]), or the job is refused. The source is
//!    found and looked at; the destination's directory is there, or is made if that was asked for, each new directory's
//!    parent synced.
//! 2. A name for the part is journalled, then the part is made: `.NAME.UUID.part`, in the directory that the destination
//!    will be in; which one it is is journalled.
//! 3. Files are copied into it, synced, read back around the cache, and only then recorded (`crate::pipeline`).
//! 4. Directories get their metadata, the set its manifest; all of it is synced, the manifest read back. Then the whole
//!    source is walked again: what changed since it was read is copied again, from step 3, a bounded number of times.
//! 5. The part is renamed to its name, over nothing; the directory is synced; COMMITTED is journalled.
//! 6. Of a move, the source goes, each file only if it is still the one that was copied; DONE.
//!
//! What a crash leaves is told from the journal and two names:
//!
//! | journal | part | destination | so |
//! |---|---|---|---|
//! | no part named | – | – | begin at 1 |
//! | part named, not identified | any | – | what has that name goes if it is empty, else it stays, and it is said; begin at 2 |
//! | part identified | is that one | – | go on at 3 with what is recorded |
//! | the same, and in doubt: a sync of its directories began, and syncfs does not vouch | is that one | – | it goes; begin at 2 |
//! | part identified | – | is that one | it was renamed: read all of it back, then step 5's sync and COMMITTED |
//! | part identified | is that one | is that one | a file was linked to its name: likewise, and the part's name goes |
//! | part identified | is that one | an empty directory of mode 1700 | the name was claimed: go on at 3 |
//! | part identified | another, or – | – | it was taken away: what has its name stays, and it is said; begin at 2 |
//! | COMMITTED | – | is that one | of a move, read all of it back; step 6 |
//! | COMMITTED | – | anything else, or of other bytes | the source is kept, and it is said |
//!
//! A destination that is there already is compared with the source, and adopted if it is the same (`adopt`). Until then
//! the part of an earlier attempt stays with its entries: if the destination is refused, and goes, step 3 goes on with it.
//!
//! A part is identified by inode and time of birth ([`crate::owned`]), and nothing is put into it before the journal has
//! them. A crash between its making and that record leaves an empty directory or a file of no bytes, under a name with a
//! random UUID: rmdir(2) and unlink(2) of what is empty lose nothing, whosever it is.

mod adopt;
mod against;
mod directory;
mod find;
mod publish;
mod remove;
mod source;
mod tree;

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use storage::uuid::Uuid;

use crate::calls;
use crate::error::{RETRY, StageError};
use crate::fault::{Barrier, Check, Moment, comes_to, enforced};
use crate::fingerprint::Fingerprint;
use crate::fs_kind;
use crate::job::{State, Why};
use crate::journal::{JobRow, Journal, PART_IN_DOUBT};
use crate::manifest::Kind;
use crate::mounts;
use crate::names;
use crate::owned::{self, FileId};
use crate::pace::Stop;
use crate::pipeline::{By, Pipeline};
use crate::retention;
use crate::spec::{Level, Place, Verb};
use crate::tier::{self, SOURCE_IDENTITY, There, Tiers};

use directory::AtPath;
use find::Destination;
use tree::Tree;

pub use crate::tier::{Notes, Run};
pub use find::{Source, check_request};
pub use publish::taken;
pub use source::{fingerprint_of, is_source_of};

/// How often a source is copied, or what of it changed, before the job fails.
const ROUNDS: u32 = 3;

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn destination_of(place: &Place, tiers: &Tiers) -> Result<Box<dyn tier::Destination>, StageError> {
    match place {
        Place::Path(path) => Ok(Box::new(AtPath::of(&path.0)?)),
        Place::Object(url) => tiers.objects()?.destination(url.as_str()),
    }
}

/// Removes what a job that is given up has made, and nothing else. `stop` ends it where it waits for a store.
pub fn give_up(
    journal: &Journal,
    row: &JobRow,
    tiers: &Tiers,
    stop: &Stop,
    notes: &mut Notes,
) -> Result<(), StageError> {
    adopt::clear_probe(journal, row.id, &row.spec)?;
    destination_of(&row.spec.destination, tiers)?.give_up(journal, row, stop, notes)
}

/// How a job came to its end.
#[derive(Debug)]
pub struct Ended {
    /// What is worth knowing and no failure.
    pub notes: Notes,
    /// Why its source was left alone, though all else is done.
    pub source_left: Option<Why>,
}

impl Run<'_> {
    /// Does what is left of the job.
    ///
    /// # Errors
    /// What keeps it from being done. The source is whole then, unless the job was committed.
    pub fn run(&self) -> Result<Ended, StageError> {
        let row = self.row()?;
        let mut notes = Notes::new();
        let [on, at] = &row.mounts;
        if let Some(path) = self.spec.source.local_path() {
            mounts::check(&path, on.as_ref())?;
        }
        if let Some(path) = self.spec.destination.local_path() {
            mounts::check(path.parent().unwrap_or(&path), at.as_ref())?;
        }
        mounts::check_lasting(self.spec, [on.as_ref(), at.as_ref()])?;
        let mut source: Box<dyn tier::Source> = match &self.spec.source {
            Place::Path(path) => Box::new(Tree::of(&path.0)),
            Place::Object(url) => self.tiers.objects()?.source(url.as_str())?,
        };
        let mut destination = destination_of(&self.spec.destination, self.tiers)?;
        let mut copy = None;
        let goes_on = row.state == State::Committed;
        if !goes_on {
            mounts::check_semaphore(self.spec, at.as_ref())?;
            copy = self.bring(&row, &mut *source, &mut *destination, &mut notes)?;
            destination.settle(self)?;
            self.journal.commit(self.id, now())?;
        } else {
            self.count_committed()?;
        }
        if let Some(at) = at.as_ref().filter(|at| at.is_in_memory()) {
            notes.push(format!(
                "{}: is in memory ({}): the copy lasts until that is unmounted or the host stops",
                self.spec.destination.shown(),
                at.kind
            ));
        }
        let source_left = self.clear_up(&mut *source, &mut *destination, copy, goes_on, &mut notes)?;
        Ok(Ended { notes, source_left })
    }

    /// Counts what the copy holds, as the journal has it: a committed job that goes on copies nothing.
    fn count_committed(&self) -> Result<(), StageError> {
        use std::sync::atomic::Ordering::Relaxed;
        let (mut files, mut bytes) = (0, 0);
        self.each(|done| {
            files += u64::from(done.entry.kind != Kind::Directory);
            if done.entry.kind == Kind::File && done.entry.link_to.is_none() {
                bytes += done.entry.size;
            }
            Ok(())
        })?;
        let progress = self.progress;
        for (count, found) in [
            (&progress.files_total, files),
            (&progress.files_done, files),
            (&progress.bytes_total, bytes),
            (&progress.bytes_written, bytes),
            (&progress.bytes_verified, bytes),
        ] {
            count.store(found, Relaxed);
        }
        progress.walked.store(true, Relaxed);
        Ok(())
    }

    /// Steps 1 to 5, until the name is there. Of a move, the copy is held from before it is compared or called committed.
    fn bring(
        &self,
        row: &JobRow,
        source: &mut dyn tier::Source,
        destination: &mut dyn tier::Destination,
        notes: &mut Notes,
    ) -> Result<Option<OwnedFd>, StageError> {
        let there = destination.there(self, row)?;
        if there == There::Own {
            let copy = remove::hold(self)?;
            destination.read_back(self, row)?;
            notes.push(
                "it had its name when the work was interrupted; all of it was read back again".to_owned(),
            );
            return Ok(copy);
        }
        source.open(self)?;
        destination.check(self, source)?;
        if there == There::Other || there == There::Claim && !source.is_directory() {
            let copy = remove::hold(self)?;
            destination.adopt(self, row, source, notes)?;
            notes.push("it was there already, and the same, byte for byte".to_owned());
            return Ok(copy);
        }
        self.one_state(row, source, destination, notes)?;
        self.stop.check()?;
        destination.publish(self, notes)?;
        let copy = remove::hold(self)?;
        let lost = self.progress.not_preserved.load(std::sync::atomic::Ordering::Relaxed);
        if lost > 0 {
            notes.push(format!("{lost} owners or attributes could not be kept: it takes privilege, or the file system has none"));
        }
        Ok(copy)
    }

    /// Steps 3 and 4, until what was copied is one state of the source, and is the source's state still. What changed
    /// meanwhile is copied again.
    fn one_state(
        &self,
        row: &JobRow,
        source: &mut dyn tier::Source,
        destination: &mut dyn tier::Destination,
        notes: &mut Notes,
    ) -> Result<(), StageError> {
        for round in 1.. {
            self.journal.vouch_for(self.id, None)?;
            // Each time: what was written since has to be durable before its holes are believed.
            source.make_durable(self)?;
            let copied = destination.put(self, row, source, notes).and_then(|copied| {
                self.meets_expectations()?;
                source.is_what_was_copied(self, copied)
            });
            match copied {
                Err(changed @ StageError::SourceChanged { .. }) if round < ROUNDS => {
                    tracing::info!(job = self.id, round, error = %changed, "what changed is copied again");
                }
                copied => return copied,
            }
            let was_directory = source.is_directory();
            source.open(self)?;
            destination.check(self, source)?;
            if source.is_directory() != was_directory {
                return Err(StageError::SourceChanged {
                    path: self.spec.source.shown(),
                    how: "it is something else".to_owned(),
                });
            }
            self.progress.begin_again();
        }
        unreachable!("the last round returns")
    }

    fn row(&self) -> Result<JobRow, StageError> {
        self.journal
            .job(self.id)?
            .ok_or_else(|| StageError::Stopped { what: "the job is not in the journal".to_owned() })
    }

    /// Makes the source durable where it is: its writer may not have done so, and holes are told from data only then.
    /// A directory is not called local, and false is returned, if one syncfs(2) does not vouch for all of it: its file
    /// system is not known to report errors that way, or something else is mounted in it. The job then goes from staged
    /// to durable.
    fn local(&self, source: &Source) -> Result<bool, StageError> {
        let failed = |error| StageError::source_sync(&source.path, error);
        let root = source.open_root()?;
        let one_file_system = !source.is_directory || matches!(mounts::below(root.as_fd()), Ok(None));
        if one_file_system && fs_kind::sync_vouches(&root).map_err(failed)? {
            calls::sync_file_system(root.as_fd(), Barrier::SourceFileSystem).map_err(failed)?;
        } else if source.is_directory {
            return Ok(false);
        } else {
            calls::sync_source(root.as_fd(), Barrier::SourceFile).map_err(failed)?;
        }
        self.journal.level(self.id, Level::Local)?;
        Ok(true)
    }

    /// Step 2, or the part that an earlier attempt left.
    fn part(
        &self,
        row: &JobRow,
        source: &dyn tier::Source,
        parent: &OwnedFd,
        destination: &Destination,
        notes: &mut Notes,
    ) -> Result<Part, StageError> {
        if let Some(part) = self.earlier_part(row, parent, destination)?
            && source.goes_on_in(self, &part.id)?
        {
            return Ok(part);
        }
        destination.discard_part(parent, row, notes)?;
        self.new_part(parent, destination, source)
    }

    /// The part that an earlier attempt left, if it is there and not in doubt.
    fn earlier_part(
        &self,
        row: &JobRow,
        parent: &OwnedFd,
        destination: &Destination,
    ) -> Result<Option<Part>, StageError> {
        let (Some(name), Some(id)) = (&row.part, row.part_id) else { return Ok(None) };
        // A sync of it began, or failed, that cannot be made of another inode.
        if self.journal.note(self.id, PART_IN_DOUBT)?.is_some_and(|doubt| !doubt.is_empty()) {
            return Ok(None);
        }
        let file = owned::open(parent.as_fd(), name, &id)
            .map_err(|error| StageError::io("open", &destination.parent.join(name), error))?;
        Ok(file.map(|file| Part { name: name.clone(), id, file, resumed: true }))
    }

    /// Step 2: a name that is journalled, then what has it, then which one that is.
    fn new_part(
        &self,
        parent: &OwnedFd,
        destination: &Destination,
        source: &dyn tier::Source,
    ) -> Result<Part, StageError> {
        let uuid = Uuid::random()
            .map_err(|error| StageError::io("get a UUID", Path::new("/proc/sys/kernel/random"), error))?;
        let name = names::part_name(&destination.name, uuid);
        comes_to(Moment::Forgotten, Vec::new);
        self.journal.name_part(self.id, &name)?;
        let shown = destination.parent.join(&name);
        if let Some(identity) = source.identity() {
            self.journal.keep_note(self.id, SOURCE_IDENTITY, &identity.0)?;
        }
        let file = if source.is_directory() {
            calls::make_directory(parent.as_fd(), &name, Mode::RWXU)
                .map_err(|error| StageError::io("make the directory", &shown, error))?;
            let file =
                calls::open_at(parent.as_fd(), &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                    .map_err(|error| StageError::io("open the directory", &shown, error))?;
            // The name may have been given to another directory since. An empty one holds nothing that could be lost.
            let mut list =
                calls::List::of(file.as_fd()).map_err(|error| StageError::io("list", &shown, error))?;
            if list.next().map_err(|error| StageError::io("list", &shown, error))?.is_some() {
                return Err(replaced(&shown));
            }
            file
        } else {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            calls::open_at(parent.as_fd(), &name, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|error| StageError::io("create", &shown, error))?
        };
        let id = FileId::of(file.as_fd()).map_err(|error| StageError::io("look at", &shown, error))?;
        self.journal.made_part(self.id, &id)?;
        Ok(Part { name, id, file, resumed: false })
    }

    fn copy_file(
        &self,
        pipeline: &Pipeline<'_>,
        source: &Source,
        part: &tier::Part<'_>,
    ) -> Result<Fingerprint, StageError> {
        use crate::small::{Copied, Copier};
        use crate::tree::Directory;
        // A file is the one entry with the empty path, in the directory that it is in, under the part's name there.
        let duplicate =
            |fd: &OwnedFd| fd.try_clone().map_err(|error| StageError::io("duplicate", &source.path, error));
        let directory = std::sync::Arc::new(Directory {
            source: duplicate(&source.parent)?,
            copy: duplicate(part.at.parent)?,
            path: PathBuf::new(),
        });
        let name = source.name.as_os_str();
        let mut copier = Copier::default();
        let done = match copier.copy_as(
            &directory,
            name,
            Some((part.at.name, part.file)),
            PathBuf::new(),
            false,
            &pipeline.terms,
        )? {
            Copied::Written(written) => {
                let shown = pipeline.terms.part;
                if !pipeline.terms.sync_each {
                    calls::sync(part.file.as_fd(), Barrier::SingleFile)
                        .map_err(|error| StageError::sync("fsync", shown, error))?;
                }
                copier.verify(&written, &pipeline.terms)?;
                self.progress.files_done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                written.done
            }
            other => {
                if let Copied::Large(size) = other {
                    pipeline.found(size);
                }
                let mut lane = crate::large::Lane::new(&pipeline.lane)?;
                let copy = Some((part.at.name, part.file));
                pipeline.copy_large_as(
                    By::Lane(&mut lane),
                    &directory,
                    name,
                    copy,
                    PathBuf::new(),
                    &mut || {},
                )?
            }
        };
        self.progress.walked.store(true, std::sync::atomic::Ordering::Relaxed);
        self.journal.record(self.entries(), &[done])?;
        self.recorded(&mut |_| Ok(()))
    }

    /// Step 6, and what else follows when all is durable. Why the source was left alone, if it was. A run `goes_on` with what
    /// another has committed.
    fn clear_up(
        &self,
        source: &mut dyn tier::Source,
        destination: &mut dyn tier::Destination,
        copy: Option<OwnedFd>,
        goes_on: bool,
        notes: &mut Notes,
    ) -> Result<Option<Why>, StageError> {
        let _copy = match copy {
            None => remove::hold(self)?,
            held => held,
        };
        let row = self.row()?;
        if enforced(Check::CommittedDestination)
            && let Some(lost) = self.lost(destination, &row, goes_on)?
        {
            return Ok(Some(Why::of(&lost)));
        }
        if self.spec.verb == Verb::Move
            && let Some(lost) = source.remove(self, &*destination, notes)?
        {
            return Ok(Some(Why::of(&lost)));
        }
        // The journal's: while the job was at work, the semaphore may have been written anew.
        // One of an earlier version of this program may have asked for a copy in memory, which is not durable.
        if let Some(semaphore) = &row.spec.options.semaphore
            && !semaphore.stays
            && row.level == Level::Durable
        {
            let moved = self.spec.source.path().filter(|_| self.spec.verb == Verb::Move);
            remove::semaphore(self, semaphore, moved, notes)?;
        }
        let outcome = retention::after_commit(self.spec, self.tiers, self.journal, self.stop)?;
        notes.extend(outcome.notes());
        Ok(None)
    }

    /// Why removing the source would lose data, if it would: the copy is gone, or is not what it was. A run that goes on
    /// may come long after the copy was read, and reads it again.
    fn lost(
        &self,
        destination: &mut dyn tier::Destination,
        row: &JobRow,
        goes_on: bool,
    ) -> Result<Option<StageError>, StageError> {
        let shown = self.spec.destination.shown();
        if !destination.is_as_committed(self, row)? {
            let what =
                format!("{shown}: is not there any more as it was committed; the source was left alone");
            let hint = "move what is at the source again; what of it had gone before is in the copy alone";
            return Ok(Some(StageError::refused(what, hint)));
        }
        if !goes_on || self.spec.verb != Verb::Move || !enforced(Check::CommittedBytes) {
            return Ok(None);
        }
        // Before all of the copy is read. Nothing is lost with a source that has gone.
        if !remove::may_go(self)? {
            return Ok(None);
        }
        for count in [&self.progress.files_done, &self.progress.bytes_verified] {
            count.store(0, std::sync::atomic::Ordering::Relaxed);
        }
        match destination.read_back(self, row) {
            Ok(()) => self.count_committed().map(|()| None),
            // An earlier run may have removed some of the source, and the copy be all that is left of that.
            Err(error) if is_not_what_was_copied(&error) => Ok(Some(StageError::refused(
                format!("{shown}: is not what was committed any more; the source was left alone: {error}"),
                "compare the two before anything is removed: what of the source had gone before is in the copy alone",
            ))),
            Err(error) => Err(error),
        }
    }
}

/// Of a copy that was read: does it lack something, or have other bytes?
fn is_not_what_was_copied(error: &StageError) -> bool {
    match error {
        StageError::Corrupt { .. } => true,
        StageError::Io { source, .. } => calls::is_not_there(source),
        _ => false,
    }
}

/// A name of the job's own was taken by something else.
fn replaced(path: &Path) -> StageError {
    StageError::refused(
        format!("{}: something else was put in its place", crate::error::shown(path)),
        format!("others may write to this directory; take that away, then: {RETRY}"),
    )
}

/// The part of this attempt.
struct Part {
    name: OsString,
    /// Which file or directory it is.
    id: FileId,
    /// It, open: a directory for reading, a file for writing as well.
    file: OwnedFd,
    /// It is an earlier attempt's, and what is recorded is in it.
    resumed: bool,
}
