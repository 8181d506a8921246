//! Which copies of a series may go, and what `latest` points to.
//!
//! A **series** is the directories beside each other whose names differ in their last number only: `ckpt-9`,
//! `ckpt-10`. It is ordered by that number. A member that lies on the slow tier is **durable** if its manifest is whole
//! and every file that it lists is there in its size; it is **vouched for** if, besides, somebody has read it back: the
//! journal, whose job did so before it gave the set its name, or a reading of it now. What is not in a series, a single
//! file, and a directory without a manifest are nobody's to remove.
//!
//! Four rules, which hold at every moment, whatever is killed on the way:
//!
//! 1. A fast copy goes only if its slow copy is durable and vouched for, and if it is still what was copied: the same
//!    names, kinds, sizes and times of modification as in the slow copy's manifest, and nothing else.
//! 2. A slow copy goes only if as many newer ones as are to be kept are durable, one of them at least vouched for, and
//!    if no fast copy is left of it. So the last durable one never goes, and no fast copy is left behind that
//!    nothing could ever evict: a `keep_fast` above `keep_slow` counts as `keep_slow`.
//! 3. What goes is renamed first, to a name that says so, and only then taken apart: no half of a set is ever under a
//!    set's name. Whoever comes next and finds such a name takes it apart to its end.
//! 4. `latest` moves only to a set that is durable, by one rename, and never to an older one. What it points to is kept.
//!
//! Who is reading a fast copy holds a shared flock(2) on its directory ([`pin`]); it stays as long as the lock does.
//! Directories are worked on by one process at a time, by an exclusive flock(2) on them, where the file system has
//! such locks.
//!
//! The slow tier is a directory (`retention/directory.rs`) or a prefix in an object store, where the same rules hold
//! with what a store has instead of renames and links (`object/tier.rs`).

mod directory;

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use storage::uuid::Uuid;

use crate::calls;
use crate::error::{StageError, shown};
use crate::journal::Journal;
use crate::names::is_part;
use crate::pace::Stop;
use crate::set::Manifest;
use crate::spec::{self, JobSpec, Level};

use directory::DIRECTORY;
pub(crate) use directory::Tier;

/// The link beside a series that points to its newest durable member; in an object store the object that names it.
pub const LATEST: &str = "latest";

/// In byte 7 of a version 8 UUID (RFC 9562: for whoever makes it to fill) of a name: what has it is to be removed.
const DOOMED: u8 = 0xd0;

/// A member's place in its series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place<'a> {
    before: &'a [u8],
    digits: &'a [u8],
    after: &'a [u8],
}

/// Reads a name as a member of a series: what is before its last number, the number, what is after.
#[must_use]
pub fn place(name: &OsStr) -> Option<Place<'_>> {
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let start = bytes[..end].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    Some(Place { before: &bytes[..start], digits: &bytes[start..end], after: &bytes[end..] })
}

impl Place<'_> {
    /// Are these of one series?
    #[must_use]
    pub fn is_beside(&self, other: &Place<'_>) -> bool {
        self.before == other.before && self.after == other.after
    }

    /// The order within a series: by number, however long, and 7 before 07.
    #[must_use]
    pub fn order(&self, other: &Place<'_>) -> Ordering {
        let number = |digits: &[u8]| {
            let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
            digits[zeros..].to_vec()
        };
        let (a, b) = (number(self.digits), number(other.digits));
        (a.len(), a, self.digits.len()).cmp(&(b.len(), b, other.digits.len()))
    }
}

/// What is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// So many on the fast tier; none: all.
    pub fast: Option<u32>,
    /// So many on the slow tier, one at the least; none: all.
    pub slow: Option<u32>,
    /// Have `latest` point to the newest on the slow tier.
    pub latest: bool,
}

/// Who says that a slow copy was read back and found right.
pub trait Witness {
    /// Has a job copied `fast` to `slow` and read it back? The journal's word.
    ///
    /// # Errors
    /// The journal's.
    fn vouches(&self, fast: &Path, slow: &spec::Place) -> Result<bool, StageError>;

    /// May it be read now, where nobody vouches for it?
    fn may_read(&self) -> bool {
        false
    }
}

impl Witness for Journal {
    fn vouches(&self, fast: &Path, slow: &spec::Place) -> Result<bool, StageError> {
        Ok(self.jobs()?.iter().any(|job| {
            job.level >= Level::Durable
                && job.spec.source.path() == Some(fast)
                && job.spec.destination.is_same(slow)
        }))
    }
}

/// A slow tier: where sets lie beside each other, each with its manifest.
pub(crate) trait Slow {
    /// Where a set is, as people and journals have it.
    fn place(&self, name: &OsStr) -> spec::Place;
    /// The right to work there, as far as there is such a thing.
    fn lock(&self) -> Box<dyn Lock + '_>;
    /// Is it this directory?
    fn is(&self, fast: &Tier) -> Result<bool, StageError>;
    /// The sets of a series, oldest first.
    fn members(&self, series: &Place<'_>) -> Result<Vec<OsString>, StageError>;
    /// The manifest of a set that is durable.
    fn durable(&self, name: &OsStr) -> Result<Option<Manifest>, StageError>;
    /// Is it all there, byte for byte?
    fn reads_back(&self, name: &OsStr, manifest: &Manifest) -> Result<bool, StageError>;
    /// What `latest` points to.
    fn latest(&self) -> Result<Option<OsString>, StageError>;
    /// Rule 4; where it points to now, if it was moved.
    fn move_latest(&self, name: &OsStr, own: &Place<'_>) -> Result<Option<OsString>, StageError>;
    /// Rule 3: has a set be none any more, durably. What is left of it goes with [`Slow::sweep`], or before.
    fn remove(&self, name: &OsStr) -> Result<(), StageError>;
    /// Takes apart what was removed, now or before a crash.
    fn sweep(&self) -> Result<(), StageError>;
}

/// Held by who works on a tier.
pub(crate) trait Lock {}

/// Opens a directory or a prefix of sets.
fn open(slow: &spec::Place, stop: &Stop) -> Result<Box<dyn Slow>, StageError> {
    match slow {
        spec::Place::Path(path) => {
            // What it asks of a file system is soon done.
            let _ = stop;
            Ok(Box::new(Tier::open(&path.0)?))
        }
        #[cfg(feature = "s3")]
        spec::Place::Object(url) => Ok(Box::new(crate::object::ObjectTier::open(url)?.until(stop))),
        #[cfg(not(feature = "s3"))]
        spec::Place::Object(_) => Err(StageError::invalid(
            "this program is built without object stores",
            "build it with the feature s3",
        )),
    }
}

/// The tier that a set is on, a directory or a prefix, and the set's name there; none for what has no name.
///
/// # Errors
/// A URL that makes no sense.
pub fn split(slow: &spec::Place) -> Result<Option<(spec::Place, OsString)>, StageError> {
    match slow {
        spec::Place::Path(path) => Ok(match (path.0.parent(), path.0.file_name()) {
            (Some(above), Some(name)) => Some((spec::Place::Path(above.into()), name.to_owned())),
            _ => None,
        }),
        #[cfg(feature = "s3")]
        spec::Place::Object(url) => Ok(crate::object::ObjectTier::split(url)?
            .map(|(above, name)| (spec::Place::Object(above), name.into()))),
        #[cfg(not(feature = "s3"))]
        spec::Place::Object(_) => Ok(None),
    }
}

/// What was done, for the job's notes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Fast copies that went.
    pub evicted: Vec<PathBuf>,
    /// Slow copies that went; of one in an object store its URL.
    pub removed: Vec<PathBuf>,
    /// What should have gone by number and stayed, and why.
    pub kept: Vec<(PathBuf, String)>,
    /// Where `latest` points to now, if it was moved.
    pub latest: Option<OsString>,
}

impl Outcome {
    /// A line for each thing worth knowing.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let kept = self.kept.iter().map(|(path, why)| format!("{} is kept: {why}", shown(path)));
        kept.collect()
    }
}

/// What a job that is committed asks for: [`tidy`] with its options. To be called after the journal says COMMITTED. A
/// store that does not answer is waited for until `stop` is asked for.
///
/// # Errors
/// The kernel's and the journal's. Nothing is lost by it: the same call, later, goes on.
pub fn after_commit(spec: &JobSpec, witness: &dyn Witness, stop: &Stop) -> Result<Outcome, StageError> {
    let options = &spec.options;
    let keep = Keep { fast: options.keep_fast, slow: options.keep_slow, latest: options.latest };
    if keep == Keep::default() {
        return Ok(Outcome::default());
    }
    let Some((slow, name)) = split(&spec.destination)? else {
        return Ok(Outcome::default());
    };
    let source = spec.source.path().and_then(|source| Some((source.parent()?, source.file_name()?)));
    // A set that has another name at its destination has no series of copies: nothing says which belong together. And
    // what came out of a store is a copy of what is there, not the other way round.
    let (fast, keep) = match source {
        Some((fast, fast_name)) if fast_name == name => (fast, keep),
        _ => (Path::new("/"), Keep { latest: keep.latest, ..Keep::default() }),
    };
    if place(&name).is_none() {
        return Ok(Outcome::default());
    }
    apply(fast, &*open(&slow, stop)?, &name, keep, witness)
}

/// Applies the rules to the series of `name`: `latest`, then the fast copies, then the slow ones.
///
/// # Errors
/// The kernel's and the journal's. Nothing is lost by it: the same call, later, goes on.
pub fn tidy(
    fast: &Path,
    slow: &spec::Place,
    name: &OsStr,
    keep: Keep,
    witness: &dyn Witness,
) -> Result<Outcome, StageError> {
    if place(name).is_none() {
        return Ok(Outcome::default());
    }
    apply(fast, &*open(slow, &Stop::new())?, name, keep, witness)
}

pub(crate) fn apply(
    fast: &Path,
    slow: &dyn Slow,
    name: &OsStr,
    keep: Keep,
    witness: &dyn Witness,
) -> Result<Outcome, StageError> {
    let mut outcome = Outcome::default();
    let Some(place) = place(name) else {
        return Ok(outcome);
    };
    let _alone = slow.lock();
    if keep.latest {
        outcome.latest = slow.move_latest(name, &place)?;
    }
    if keep.fast.is_none() && keep.slow.is_none() {
        return slow.sweep().map(|()| outcome);
    }
    let fast = match Tier::open(fast) {
        Err(StageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        // One directory under two names: there are no two copies in it.
        Ok(fast) if slow.is(&fast)? => return Ok(outcome),
        opened => Some(opened?),
    };
    if let Some(fast) = &fast {
        let _alone = fast.lock();
        let keep_slow = keep.slow.map(|slow| slow.max(1));
        if let Some(most) = keep.fast.into_iter().chain(keep_slow).min().filter(|_| keep.fast.is_some()) {
            evict_surplus(fast, slow, &place, most as usize, witness, &mut outcome)?;
        }
        fast.sweep()?;
    }
    if let Some(most) = keep.slow {
        remove_surplus(fast.as_ref(), slow, &place, most.max(1) as usize, witness, &mut outcome)?;
    }
    slow.sweep()?;
    Ok(outcome)
}

/// Why a fast copy may not go; none: it may (rule 1).
///
/// # Errors
/// The kernel's and the journal's.
pub fn evictable(
    fast: &Path,
    slow: &spec::Place,
    name: &OsStr,
    witness: &dyn Witness,
) -> Result<Option<String>, StageError> {
    held(&Tier::open(fast)?, &*open(slow, &Stop::new())?, name, witness)
}

/// Removes one fast copy, if it may go.
///
/// # Errors
/// [`StageError::Refused`] if it may not, and why; the kernel's and the journal's.
pub fn evict(fast: &Path, slow: &spec::Place, name: &OsStr, witness: &dyn Witness) -> Result<(), StageError> {
    let (fast, slow) = (Tier::open(fast)?, open(slow, &Stop::new())?);
    let _alone = fast.lock();
    let refused = |why: String| StageError::Refused {
        what: format!("{} is not evicted: {why}", shown(&fast.path.join(name))),
        hint: Some(
            "a fast copy goes once its slow copy is durable and verified, and while nobody uses it"
                .to_owned(),
        ),
    };
    if let Some(why) = held(&fast, &*slow, name, witness)? {
        return Err(refused(why));
    }
    if !fast.doom(name, true)? {
        return Err(refused("somebody is reading it".to_owned()));
    }
    fast.sweep()
}

/// Keeps a directory from being evicted for as long as what is returned is not dropped. None where the file system
/// has no such locks, and nothing keeps it.
///
/// # Errors
/// The kernel's.
pub fn pin(directory: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let own = calls::open_at(directory, OsStr::new("."), DIRECTORY, Mode::empty())?;
    match rustix::fs::flock(&own, FlockOperation::LockShared) {
        Ok(()) => Ok(Some(own)),
        Err(Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn evict_surplus(
    fast: &Tier,
    slow: &dyn Slow,
    place: &Place<'_>,
    most: usize,
    witness: &dyn Witness,
    outcome: &mut Outcome,
) -> Result<(), StageError> {
    let members = fast.members(place)?;
    let surplus = members.len().saturating_sub(most);
    for name in &members[..surplus] {
        let path = fast.path.join(name);
        match held(fast, slow, name, witness)? {
            Some(why) => outcome.kept.push((path, why)),
            None if fast.doom(name, true)? => outcome.evicted.push(path),
            None => outcome.kept.push((path, "somebody is reading it".to_owned())),
        }
    }
    Ok(())
}

fn remove_surplus(
    fast: Option<&Tier>,
    slow: &dyn Slow,
    place: &Place<'_>,
    most: usize,
    witness: &dyn Witness,
    outcome: &mut Outcome,
) -> Result<(), StageError> {
    let mut newer = 0;
    let mut vouched = false;
    let latest = slow.latest()?;
    for name in slow.members(place)?.iter().rev() {
        let path = shown_path(&slow.place(name));
        let Some(durable) = slow.durable(name)? else {
            outcome.kept.push((path, "it is not whole; `stage verify` says what it lacks".to_owned()));
            continue;
        };
        if newer < most {
            newer += 1;
            // One reading at most: the newest decides, and the journal vouches for that one as a rule.
            vouched = vouched || vouches(fast, slow, name, &durable, witness)?;
            continue;
        }
        let beside = match fast {
            Some(fast) => fast.has(name)?,
            None => false,
        };
        let why = if !vouched {
            Some("nobody vouches for any of the newer ones".to_owned())
        } else if latest.as_deref() == Some(name) {
            Some("latest points to it".to_owned())
        } else if beside {
            Some("its fast copy is still there".to_owned())
        } else {
            None
        };
        match why {
            Some(why) => outcome.kept.push((path, why)),
            None => {
                slow.remove(name)?;
                outcome.removed.push(path);
            }
        }
    }
    Ok(())
}

/// Rule 1.
fn held(
    fast: &Tier,
    slow: &dyn Slow,
    name: &OsStr,
    witness: &dyn Witness,
) -> Result<Option<String>, StageError> {
    let Some(manifest) = slow.durable(name)? else {
        return Ok(Some("no durable copy of it is on the slow tier".to_owned()));
    };
    if !vouches(Some(fast), slow, name, &manifest, witness)? {
        return Ok(Some("nobody vouches for its slow copy; `stage verify` reads it".to_owned()));
    }
    let directory = fast.directory(name)?;
    Ok(manifest
        .differs_from(directory.as_fd(), &fast.path.join(name), crate::set::Times::Compared)?
        .map(|how| format!("it is not what was copied: {how}")))
}

fn vouches(
    fast: Option<&Tier>,
    slow: &dyn Slow,
    name: &OsStr,
    manifest: &Manifest,
    witness: &dyn Witness,
) -> Result<bool, StageError> {
    if let Some(fast) = fast
        && witness.vouches(&fast.path.join(name), &slow.place(name))?
    {
        return Ok(true);
    }
    if witness.may_read() { slow.reads_back(name, manifest) } else { Ok(false) }
}

fn shown_path(place: &spec::Place) -> PathBuf {
    match place {
        spec::Place::Path(path) => path.0.clone(),
        spec::Place::Object(url) => url.into(),
    }
}

fn doomed_uuid(path: &Path) -> Result<Uuid, StageError> {
    marked_uuid(DOOMED, path)
}

/// A UUID of version 8 that bears a mark in byte 7, so that its name tells what it is a part of.
pub(crate) fn marked_uuid(mark: u8, path: &Path) -> Result<Uuid, StageError> {
    let mut uuid =
        Uuid::random().map_err(|error| StageError::io("make a name of its own in", path, error))?;
    uuid.0[6] = 0x80 | (uuid.0[6] & 0x0f);
    uuid.0[7] = mark;
    Ok(uuid)
}

/// Is this the name of a part that bears the mark?
pub(crate) fn is_marked(name: &OsStr, mark: u8) -> bool {
    let bytes = name.as_bytes();
    is_part(name) && {
        let uuid = &bytes[bytes.len() - ".part".len() - 32..][..32];
        uuid[12] == b'8'
            && crate::names::from_hex(&String::from_utf8_lossy(&uuid[14..16])) == Some(vec![mark])
    }
}

fn is_doomed(name: &OsStr) -> bool {
    is_marked(name, DOOMED)
}
