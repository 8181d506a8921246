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

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use storage::uuid::Uuid;

use crate::calls;
use crate::error::{StageError, shown};
use crate::journal::Journal;
use crate::names::{is_part, part_name};
use crate::runner::discard;
use crate::set::Manifest;
use crate::spec::{JobSpec, Level};

/// The link beside a series that points to its newest durable member.
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
    fn vouches(&self, fast: &Path, slow: &Path) -> Result<bool, StageError>;

    /// May it be read now, where nobody vouches for it?
    fn may_read(&self) -> bool {
        false
    }
}

impl Witness for Journal {
    fn vouches(&self, fast: &Path, slow: &Path) -> Result<bool, StageError> {
        Ok(self.jobs()?.iter().any(|job| {
            job.level >= Level::Durable
                && job.spec.source.path() == Some(fast)
                && job.spec.destination.path() == Some(slow)
        }))
    }
}

/// What was done, for the job's notes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Fast copies that went.
    pub evicted: Vec<PathBuf>,
    /// Slow copies that went.
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

/// What a job that is committed asks for: [`tidy`] with its options. To be called after the journal says COMMITTED.
///
/// # Errors
/// The kernel's and the journal's. Nothing is lost by it: the same call, later, goes on.
pub fn after_commit(spec: &JobSpec, witness: &dyn Witness) -> Result<Outcome, StageError> {
    let options = &spec.options;
    let keep = Keep { fast: options.keep_fast, slow: options.keep_slow, latest: options.latest };
    let (Some(source), Some(destination)) = (spec.source.path(), spec.destination.path()) else {
        return Ok(Outcome::default());
    };
    if keep == Keep::default() {
        return Ok(Outcome::default());
    }
    let (Some(fast), Some(slow)) = (source.parent(), destination.parent()) else {
        return Ok(Outcome::default());
    };
    let (Some(name), Some(fast_name)) = (destination.file_name(), source.file_name()) else {
        return Ok(Outcome::default());
    };
    // A set that has another name at its destination has no series of copies: nothing says which belong together.
    let keep = if name == fast_name { keep } else { Keep { latest: keep.latest, ..Keep::default() } };
    tidy(fast, slow, name, keep, witness)
}

/// Applies the rules to the series of `name`: `latest`, then the fast copies, then the slow ones.
///
/// # Errors
/// The kernel's and the journal's. Nothing is lost by it: the same call, later, goes on.
pub fn tidy(
    fast: &Path,
    slow: &Path,
    name: &OsStr,
    keep: Keep,
    witness: &dyn Witness,
) -> Result<Outcome, StageError> {
    let mut outcome = Outcome::default();
    let Some(place) = place(name) else {
        return Ok(outcome);
    };
    let slow = Tier::open(slow)?;
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
        Ok(fast) if fast.is(&slow)? => return Ok(outcome),
        opened => Some(opened?),
    };
    if let Some(fast) = &fast {
        let _alone = fast.lock();
        let keep_slow = keep.slow.map(|slow| slow.max(1));
        if let Some(most) = keep.fast.into_iter().chain(keep_slow).min().filter(|_| keep.fast.is_some()) {
            evict_surplus(fast, &slow, &place, most as usize, witness, &mut outcome)?;
        }
        fast.sweep()?;
    }
    if let Some(most) = keep.slow {
        remove_surplus(fast.as_ref(), &slow, &place, most.max(1) as usize, witness, &mut outcome)?;
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
    slow: &Path,
    name: &OsStr,
    witness: &dyn Witness,
) -> Result<Option<String>, StageError> {
    held(&Tier::open(fast)?, &Tier::open(slow)?, name, witness)
}

/// Removes one fast copy, if it may go.
///
/// # Errors
/// [`StageError::Refused`] if it may not, and why; the kernel's and the journal's.
pub fn evict(fast: &Path, slow: &Path, name: &OsStr, witness: &dyn Witness) -> Result<(), StageError> {
    let (fast, slow) = (Tier::open(fast)?, Tier::open(slow)?);
    let _alone = fast.lock();
    let refused = |why: String| StageError::Refused {
        what: format!("{} is not evicted: {why}", shown(&fast.path.join(name))),
        hint: Some(
            "a fast copy goes once its slow copy is durable and verified, and while nobody uses it"
                .to_owned(),
        ),
    };
    if let Some(why) = held(&fast, &slow, name, witness)? {
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
    slow: &Tier,
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
    slow: &Tier,
    place: &Place<'_>,
    most: usize,
    witness: &dyn Witness,
    outcome: &mut Outcome,
) -> Result<(), StageError> {
    let mut newer = 0;
    let mut vouched = false;
    let latest = slow.latest()?;
    for name in slow.members(place)?.iter().rev() {
        let path = slow.path.join(name);
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
                slow.doom(name, false)?;
                outcome.removed.push(path);
            }
        }
    }
    Ok(())
}

/// Rule 1.
fn held(fast: &Tier, slow: &Tier, name: &OsStr, witness: &dyn Witness) -> Result<Option<String>, StageError> {
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
    slow: &Tier,
    name: &OsStr,
    manifest: &Manifest,
    witness: &dyn Witness,
) -> Result<bool, StageError> {
    let path = slow.path.join(name);
    if let Some(fast) = fast
        && witness.vouches(&fast.path.join(name), &path)?
    {
        return Ok(true);
    }
    if !witness.may_read() {
        return Ok(false);
    }
    let directory = slow.directory(name)?;
    match manifest.verify(directory.as_fd(), &path, &crate::store::always) {
        Ok(()) => Ok(true),
        Err(StageError::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// A directory of sets.
struct Tier {
    path: PathBuf,
    directory: OwnedFd,
}

/// The right to work on a directory, where the file system has locks.
struct Alone<'a>(Option<BorrowedFd<'a>>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some(directory) = self.0 {
            let _ = rustix::fs::flock(directory, FlockOperation::Unlock);
        }
    }
}

impl Tier {
    fn open(path: &Path) -> Result<Self, StageError> {
        let directory =
            calls::open_directory(path).map_err(|error| StageError::io("open the directory", path, error))?;
        Ok(Self { path: path.to_owned(), directory })
    }

    fn is(&self, other: &Self) -> Result<bool, StageError> {
        let identity = |tier: &Self| {
            calls::stat(tier.directory.as_fd())
                .map(|found| (found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
                .map_err(|error| StageError::io("stat", &tier.path, error))
        };
        Ok(identity(self)? == identity(other)?)
    }

    fn failed<'a>(
        &'a self,
        operation: &'a str,
        name: &'a OsStr,
    ) -> impl FnOnce(io::Error) -> StageError + 'a {
        move |error| StageError::io(operation, &self.path.join(name), error)
    }

    fn lock(&self) -> Alone<'_> {
        let locked =
            rustix::io::retry_on_intr(|| rustix::fs::flock(&self.directory, FlockOperation::LockExclusive));
        Alone(locked.is_ok().then(|| self.directory.as_fd()))
    }

    fn directory(&self, name: &OsStr) -> Result<OwnedFd, StageError> {
        calls::open_at(self.directory.as_fd(), name, DIRECTORY, Mode::empty())
            .map_err(self.failed("open", name))
    }

    fn names(&self) -> Result<Vec<(OsString, FileType)>, StageError> {
        calls::list(self.directory.as_fd())
            .map_err(|error| StageError::io("read the directory", &self.path, error))
    }

    /// The directories of a series, oldest first.
    fn members(&self, series: &Place<'_>) -> Result<Vec<OsString>, StageError> {
        let mut members = Vec::new();
        for (name, _) in self.names()? {
            let beside = place(&name).is_some_and(|place| place.is_beside(series));
            if beside && !is_part(&name) && self.has(&name)? {
                members.push(name);
            }
        }
        members.sort_by(|a, b| match (place(a), place(b)) {
            (Some(a), Some(b)) => a.order(&b),
            _ => a.cmp(b),
        });
        Ok(members)
    }

    /// Is a directory of this name here? File systems need not tell kinds when they list names. What cannot be told is
    /// an error: a copy that is overlooked is one that the rules do not protect.
    fn has(&self, name: &OsStr) -> Result<bool, StageError> {
        match calls::stat_at(self.directory.as_fd(), name) {
            Ok(found) => Ok(FileType::from_raw_mode(u32::from(found.stx_mode)) == FileType::Directory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("stat", name)(error)),
        }
    }

    /// The manifest of a set that is durable here.
    fn durable(&self, name: &OsStr) -> Result<Option<Manifest>, StageError> {
        if !self.has(name)? {
            return Ok(None);
        }
        let directory = self.directory(name)?;
        let path = self.path.join(name);
        let Some(manifest) = Manifest::read(directory.as_fd(), &path)? else {
            return Ok(None);
        };
        let differs = manifest.differs_from(directory.as_fd(), &path, crate::set::Times::Ignored)?;
        Ok(differs.is_none().then_some(manifest))
    }

    fn latest(&self) -> Result<Option<OsString>, StageError> {
        match calls::read_link(self.directory.as_fd(), OsStr::new(LATEST)) {
            Ok(target) => Ok(Some(target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read the link", OsStr::new(LATEST))(error)),
        }
    }

    /// Rule 4.
    fn move_latest(&self, name: &OsStr, own: &Place<'_>) -> Result<Option<OsString>, StageError> {
        if self.durable(name)?.is_none() {
            return Ok(None);
        }
        let current = match self.latest() {
            Err(StageError::Io { source, .. })
                if source.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
            {
                return Err(StageError::refused(
                    format!("{} is no symbolic link, and is left as it is", shown(&self.path.join(LATEST))),
                    "give it another name, then the next set that is durable has `latest` point to it",
                ));
            }
            current => current?,
        };
        if let Some(current) = current {
            let newer = place(&current)
                .is_some_and(|current| current.is_beside(own) && current.order(own) == Ordering::Greater);
            if current == name || (newer && self.has(&current)?) {
                // Who moved it may have died before the name was durable.
                self.sync()?;
                return Ok(None);
            }
        }
        let directory = self.directory.as_fd();
        // Nobody else is at it (`lock`): what has such a name is of somebody who died before the rename.
        for (name, kind) in self.names()? {
            if kind == FileType::Symlink && is_doomed(&name) && name.as_bytes().starts_with(b".latest.") {
                calls::remove_file(directory, &name).map_err(self.failed("remove", &name))?;
            }
        }
        let part = part_name(OsStr::new(LATEST), doomed_uuid(&self.path)?);
        calls::symlink(name, directory, &part).map_err(self.failed("make the link", &part))?;
        calls::replace(directory, &part, OsStr::new(LATEST))
            .map_err(self.failed("rename to latest", &part))?;
        self.sync()?;
        Ok(Some(name.to_owned()))
    }

    fn sync(&self) -> Result<(), StageError> {
        calls::sync(self.directory.as_fd()).map_err(|error| StageError::io("fsync", &self.path, error))
    }

    /// Rule 3: has a set lose its name, durably. False if somebody is reading it, or it went meanwhile.
    fn doom(&self, name: &OsStr, unless_pinned: bool) -> Result<bool, StageError> {
        let set = self.directory(name)?;
        if unless_pinned {
            let lock = rustix::fs::flock(&set, FlockOperation::NonBlockingLockExclusive);
            if lock == Err(Errno::WOULDBLOCK) {
                return Ok(false);
            }
        }
        let part = part_name(name, doomed_uuid(&self.path)?);
        match calls::publish(self.directory.as_fd(), name, &part) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.failed("rename, to remove it,", name)(error)),
        }
        self.sync()?;
        Ok(true)
    }

    /// Takes apart what was doomed, now or before a crash.
    fn sweep(&self) -> Result<(), StageError> {
        for (name, _) in self.names()? {
            if is_doomed(&name) {
                discard(&self.directory, &name, &self.path)?;
            }
        }
        Ok(())
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
