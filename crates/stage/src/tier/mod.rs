//! What a move and its retention ask of the places that sets lie in.
//!
//! - [`Tier`]: sets beside each other, as retention sees them.
//! - [`Destination`]: the one name that a move is to fill.
//! - [`Source`]: what a move takes there.
//!
//! A directory is all three ([`directory`], and the runner for what is copied). What is an object store, the program
//! hands in ([`Tiers`]): nothing here knows one.

pub mod directory;
pub mod parts;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use crate::crew::Crew;
use crate::digest::Digest;
use crate::error::StageError;
use crate::fault::Barrier;
use crate::fingerprint::Fingerprint;
use crate::job::JobId;
use crate::journal::{Entries, JobRow, Journal};
use crate::owned::{FileId, Record};
use crate::pace::{Pace, Progress, Stop};
use crate::series::SeriesPosition;
use crate::set::Manifest;
use crate::spec::{JobSpec, Place};
use directory::Directory;

/// The note of which source a part is filled from, where the source tells ([`Source::identity`]).
pub const SOURCE_IDENTITY: &str = "source";

/// What is worth knowing about a job that is done.
pub type Notes = Vec<String>;

/// What a job is run with.
pub struct Run<'a> {
    /// Its journal.
    pub journal: &'a Journal,
    /// Its number.
    pub id: JobId,
    /// What is recorded is a destination that exists, which is being compared, and not the part.
    pub compares: bool,
    /// What was asked for.
    pub spec: &'a JobSpec,
    /// What opens places that are no directories.
    pub tiers: &'a Tiers,
    /// What holds it back.
    pub pace: &'a dyn Pace,
    /// What ends it between two steps.
    pub stop: &'a Stop,
    /// What is counted.
    pub progress: &'a Progress,
    /// Threads that copy.
    pub threads: usize,
    /// Other processes that copy as well.
    pub crew: Option<&'a dyn Crew>,
}

impl Run<'_> {
    /// The entries that this run records.
    #[must_use]
    pub const fn entries(&self) -> Entries {
        Entries { job: self.id, compared: self.compares }
    }

    /// The same job, while a destination that exists is compared.
    #[must_use]
    pub const fn comparing(&self) -> Self {
        Self { compares: true, ..*self }
    }
}

/// What has the destination's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum There {
    /// Nothing.
    Nothing,
    /// What this job made, before a crash.
    Own,
    /// An empty directory by which a mover has claimed the name.
    Claim,
    /// Something else.
    Other,
}

/// A name that a move is to fill. The runner calls these in the order in which they stand, and decides which.
pub trait Destination {
    /// Gets ready, and tells what has the name.
    fn there(&mut self, run: &Run<'_>, row: &JobRow) -> Result<There, StageError>;

    /// Reads back what this job published before a crash.
    ///
    /// # Errors
    /// [`StageError::Corrupt`].
    fn read_back(&mut self, run: &Run<'_>, row: &JobRow) -> Result<(), StageError>;

    /// Refuses what would lose the source: a destination that is the source, or lies in it.
    ///
    /// # Errors
    /// [`StageError::Refused`].
    fn check(&self, run: &Run<'_>, source: &dyn Source) -> Result<(), StageError>;

    /// Compares what has the name with the source, byte for byte, and records the source if they are the same. What an
    /// earlier attempt copied is removed then, and only then.
    ///
    /// # Errors
    /// [`StageError::Refused`] if they are not.
    fn adopt(
        &mut self,
        run: &Run<'_>,
        row: &JobRow,
        source: &mut dyn Source,
        notes: &mut Notes,
    ) -> Result<(), StageError>;

    /// Copies what is not recorded yet under no visible name, makes it durable, reads it back and records it. Called
    /// again if the source changed meanwhile. Returns the state of the source that is recorded then.
    ///
    /// # Errors
    /// What keeps it from that; what was recorded is gone on with by the next run.
    fn put(
        &mut self,
        run: &Run<'_>,
        row: &JobRow,
        source: &mut dyn Source,
        notes: &mut Notes,
    ) -> Result<Fingerprint, StageError>;

    /// Gives the set its name, over nothing.
    ///
    /// # Errors
    /// [`StageError::Refused`] if something has the name by now.
    fn publish(&mut self, run: &Run<'_>, notes: &mut Notes) -> Result<(), StageError>;

    /// Makes the name durable and journals what tells the set from another that has it later. COMMITTED follows.
    fn settle(&mut self, run: &Run<'_>) -> Result<(), StageError>;

    /// Is what was committed still there?
    fn is_as_committed(&mut self, run: &Run<'_>, row: &JobRow) -> Result<bool, StageError>;

    /// Has what was committed a manifest? After [`Destination::is_as_committed`].
    fn has_manifest(&self, run: &Run<'_>) -> Result<bool, StageError>;

    /// Removes what a job that is given up has made, and nothing else, until `stop` is asked for.
    fn give_up(
        &mut self,
        journal: &Journal,
        row: &JobRow,
        stop: &Stop,
        notes: &mut Notes,
    ) -> Result<(), StageError>;
}

/// What a move takes from.
pub trait Source {
    /// Finds and opens it.
    fn open(&mut self, run: &Run<'_>) -> Result<(), StageError>;

    /// Is it a set of many files? After [`Source::open`].
    fn is_directory(&self) -> bool;

    /// It as a file system has it. None if it lies in a store. After [`Source::open`].
    fn local(&self) -> Option<Local<'_>>;

    /// What tells it from another that has its name later. None if each of its files is told by itself.
    fn identity(&self) -> Option<Digest>;

    /// Can a part that was begun with this source be gone on with?
    fn goes_on_in(&self, run: &Run<'_>, part: &FileId) -> Result<bool, StageError>;

    /// Makes it durable where it is.
    fn make_durable(&mut self, run: &Run<'_>) -> Result<(), StageError>;

    /// Copies it into a part: all that is not recorded.
    fn copy_into(
        &mut self,
        run: &Run<'_>,
        part: &Part<'_>,
        notes: &mut Notes,
    ) -> Result<Fingerprint, StageError>;

    /// Compares what has this name with the source, byte for byte, and records the source if they are the same. After the
    /// comparison, and before metadata is set, `is_still` tells whether what was compared is still what it was.
    ///
    /// # Errors
    /// [`StageError::Refused`] if they are not; that of `is_still`.
    fn adopt(
        &mut self,
        run: &Run<'_>,
        there: &At<'_>,
        is_still: &dyn Fn() -> Result<(), StageError>,
    ) -> Result<(), StageError>;

    /// Looks at all of it once more: is it what was copied, and nothing else?
    ///
    /// # Errors
    /// [`StageError::SourceChanged`] with the first path that differs.
    fn is_what_was_copied(&mut self, run: &Run<'_>, copied: Fingerprint) -> Result<(), StageError>;

    /// Removes what was copied. What is no longer that stays, and a note says so. So does a manifest, which is not copied,
    /// unless the copy has one. What of the copy was lost, if something was: that of the source stays.
    fn remove(
        &mut self,
        run: &Run<'_>,
        copy: &dyn Destination,
        notes: &mut Notes,
    ) -> Result<Option<StageError>, StageError>;
}

/// A source in a file system.
#[derive(Debug, Clone, Copy)]
pub struct Local<'a> {
    /// As it was given.
    pub path: &'a Path,
    /// The directory that it is in.
    pub parent: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a OsStr,
    /// Is it a directory?
    pub is_directory: bool,
    /// Its device and inode.
    pub inode: (u32, u32, u64),
}

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// The directory.
    pub parent: &'a OwnedFd,
    /// The directory's path, for messages.
    pub path: &'a Path,
    /// The name.
    pub name: &'a OsStr,
}

/// What something is copied into until it is whole.
#[derive(Debug)]
pub struct Part<'a> {
    /// Its name.
    pub at: At<'a>,
    /// Which file or directory it is.
    pub id: FileId,
    /// It, open: a directory for reading, a file for writing as well.
    pub file: &'a OwnedFd,
    /// An earlier attempt made it, and what is recorded is in it.
    pub resumed: bool,
}

/// Sets beside each other, each with its manifest.
pub trait Tier: fmt::Debug + Send + Sync {
    /// Where a set is, as people and journals have it.
    fn place(&self, name: &OsStr) -> Place;

    /// The right to work there, as far as there is such a thing.
    ///
    /// # Errors
    /// [`StageError::Locked`] if another process keeps it; `stop` was asked.
    fn lock(&self, stop: &Stop) -> Result<Box<dyn Lock + '_>, StageError>;

    /// Is it this directory?
    fn is(&self, fast: &Directory) -> Result<bool, StageError>;

    /// Does a set show this name, which was made in another set a moment ago? False if there is no such set, or if it is
    /// not a directory.
    fn shows(&self, name: &OsStr, probe: &OsStr) -> Result<bool, StageError> {
        let _ = (name, probe);
        Ok(false)
    }

    /// Makes a set durable that another program may have put there. Nothing to do for what is durable once it is there.
    /// `purpose` is what it is needed for.
    fn make_durable(&self, name: &OsStr, purpose: Barrier) -> Result<(), StageError> {
        let _ = (name, purpose);
        Ok(())
    }

    /// Is a set read once more before its fast copy goes, although the journal says that it was read back when it was
    /// made? A store compares what it holds with its own checksums; a directory does not.
    fn reads_again(&self) -> bool {
        false
    }

    /// Keeps a set from being removed for as long as what is returned is not dropped: its fast copy is about to go for its
    /// sake. None where there are no such locks, or no such set.
    ///
    /// # Errors
    /// [`StageError::Locked`] if it is being removed.
    fn hold(&self, name: &OsStr) -> Result<Option<OwnedFd>, StageError> {
        let _ = name;
        Ok(None)
    }

    /// The names of the sets for which `wanted` is true, in their order.
    fn names(&self, wanted: &(dyn Fn(&OsStr) -> bool + Sync)) -> Result<Vec<OsString>, StageError>;

    /// The names of directories or prefixes for which `wanted` is true, in their order, whether they are sets or not.
    fn children(&self, wanted: &(dyn Fn(&OsStr) -> bool + Sync)) -> Result<Vec<OsString>, StageError>;

    /// The tier that the parts of a set are in. None if nothing has its name.
    fn within(&self, name: &OsStr) -> Result<Option<Box<dyn Tier>>, StageError>;

    /// Has a set of parts be complete: gives it this manifest, if it has none, durably. False if it has the same already.
    ///
    /// # Errors
    /// [`StageError::Refused`] if it has another.
    fn put_record(&self, name: &OsStr, text: &[u8], record: &dyn Record) -> Result<bool, StageError>;

    /// Is a set of this name there?
    fn has(&self, name: &OsStr) -> Result<bool, StageError>;

    /// The manifest of a set. None if there is no set, or if its manifest is not whole.
    fn manifest(&self, name: &OsStr) -> Result<Option<Manifest>, StageError>;

    /// The manifest of a set that is durable.
    fn durable(&self, name: &OsStr) -> Result<Option<Manifest>, StageError>;

    /// Is it all there, byte for byte?
    fn reads_back(&self, name: &OsStr, manifest: &Manifest) -> Result<bool, StageError>;

    /// What `latest` points to.
    fn latest(&self) -> Result<Option<OsString>, StageError>;

    /// Has `latest` point to a set that is durable, and never to an older one. Where it points to now, if it was moved.
    fn move_latest(
        &self,
        name: &OsStr,
        own: &SeriesPosition<'_>,
        record: &dyn Record,
    ) -> Result<Option<OsString>, StageError>;

    /// Gives sets their names back that a process took away before a crash, and had not compared once more.
    fn restore(&self, record: &dyn Record) -> Result<(), StageError> {
        let _ = record;
        Ok(())
    }

    /// Has a set be none any more. What is left of it goes with [`Tier::sweep`], which makes that durable, or before.
    fn remove(&self, name: &OsStr, record: &dyn Record) -> Result<(), StageError>;

    /// Takes apart what was removed, now or before a crash.
    fn sweep(&self, record: &dyn Record) -> Result<(), StageError>;

    /// The sets of a series, oldest first.
    fn members(&self, series: &SeriesPosition<'_>) -> Result<Vec<OsString>, StageError> {
        use crate::series::place;
        let beside = |name: &OsStr| place(name).is_some_and(|place| place.is_beside(series));
        let mut members = self.names(&beside)?;
        members.sort_by(|a, b| match (place(a), place(b)) {
            (Some(a), Some(b)) => a.order(&b),
            _ => a.cmp(b),
        });
        Ok(members)
    }
}

/// Held by what works on a tier.
pub trait Lock {}

/// Opens what lies in object stores.
pub trait Objects: Send + Sync {
    /// The sets beneath a URL; `stop` ends what it waits for.
    ///
    /// # Errors
    /// A URL or a setting that makes no sense.
    fn tier(&self, url: &str, stop: &Stop) -> Result<Box<dyn Tier>, StageError>;

    /// A set that is to be.
    ///
    /// # Errors
    /// As [`Objects::tier`].
    fn destination(&self, url: &str) -> Result<Box<dyn Destination>, StageError>;

    /// A set that is there.
    ///
    /// # Errors
    /// As [`Objects::tier`].
    fn source(&self, url: &str) -> Result<Box<dyn Source>, StageError>;

    /// What tells the set that is there from another. None if there is none.
    ///
    /// # Errors
    /// As [`Objects::tier`]; the store does not answer.
    fn digest(&self, url: &str) -> Result<Option<Digest>, StageError>;
}

/// The tiers that a program knows: directories, and what it was given besides.
#[derive(Clone, Default)]
pub struct Tiers(Option<Arc<dyn Objects>>);

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tiers").field(&self.0.is_some()).finish()
    }
}

impl Tiers {
    /// Directories and object stores.
    #[must_use]
    pub fn with(objects: Arc<dyn Objects>) -> Self {
        Self(Some(objects))
    }

    /// What opens object stores.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if the program has nothing that does.
    pub fn objects(&self) -> Result<&dyn Objects, StageError> {
        self.0.as_deref().ok_or_else(|| {
            StageError::invalid("this program is built without object stores", "build it with the feature s3")
        })
    }

    /// Opens a directory or a prefix of sets.
    ///
    /// # Errors
    /// There is no such directory; a URL that makes no sense.
    pub fn open(&self, place: &Place, stop: &Stop) -> Result<Box<dyn Tier>, StageError> {
        match place {
            Place::Path(path) => Ok(Box::new(Directory::open(&path.0)?.until(stop))),
            Place::Object(url) => self.objects()?.tier(url.as_str(), stop),
        }
    }
}
