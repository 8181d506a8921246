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
//! 1. A fast copy goes only if its slow copy is durable and vouched for, in a directory synced and read again at that
//!    moment (the journal's word is about the past), and if it is still what was copied: the same
//!    names, kinds, sizes, times of modification and hard links as in the slow copy's manifest, and nothing else. A file
//!    that is made in the one does not appear in the other ([`crate::distinct`]): a path, a link or a mount that leads back
//!    to the fast copy is not a copy.
//! 2. A slow copy goes only if as many newer ones as are to be kept are durable, one of them at least vouched for, and
//!    if no fast copy is left of it. So the last durable one never goes, and no fast copy is left behind that
//!    nothing could ever evict: a `keep_fast` above `keep_slow` counts as `keep_slow`. The set for which the rules are
//!    applied stays in any case: after a move it may be the only copy.
//! 3. What goes is renamed first, compared once more, and only then taken apart: no half of a set is ever under a set's
//!    name. The journal holds the new name and which directory has it before the rename. After a crash before the
//!    comparison the set gets its name back; after it, it is taken apart to its end, with that record, and never by its
//!    name alone.
//! 4. `latest` moves only to a set that is durable, by one rename, and never to an older one. What it points to is kept.
//!
//! Who is reading a fast copy holds a shared flock(2) on its directory ([`pin`]); it stays as long as the lock does. So does
//! who removes another copy for its sake: of two equal copies, each to be removed because of the other, one stays.
//! Directories are worked on by one process at a time, by an exclusive flock(2) on them, where the file system has
//! such locks.
//!
//! The slow tier is whatever is a [`Tier`]: a directory, or a prefix in an object store, where the same rules hold with
//! what a store has instead of renames and links.

mod interrupted;
mod parts;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

pub use self::interrupted::{clear, finish, is_half_removed, restore};
pub use self::parts::{latest, remove_set};

use crate::calls;
use crate::error::{StageError, shown};
use crate::fault::{Barrier, Check, enforced};
use crate::journal::Journal;
use crate::lock;
use crate::mounts::{self, Mount};
use crate::owned::Record;
use crate::pace::{GoOn, Stop};
use crate::parts::SetId;
pub use crate::series::{LATEST, SeriesPosition, place};
use crate::set::Manifest;
use crate::spec::{self, JobSpec};
use crate::tier::directory::{DIRECTORY, Directory, Doomed, Kept};
use crate::tier::{Tier, Tiers};

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

/// Who says that a slow copy was read back and found right when it was made. Before a fast copy goes, its slow copy in
/// a directory is read once more all the same.
pub trait Witness {
    /// Has a job copied `fast` to `slow` and read it back? The journal's word.
    fn vouches(&self, fast: &Path, slow: &spec::Place) -> Result<bool, StageError>;

    /// Where names of sets that go are recorded. The default keeps no record: what is not removed at once then stays.
    fn record(&self) -> &dyn Record {
        &()
    }

    /// May it be read now, where nobody vouches for it?
    fn may_read(&self) -> bool {
        false
    }
}

/// The journal as witness; what it does not know may be read.
#[derive(Debug)]
pub struct OrReading<'a>(pub &'a Journal);

impl Witness for OrReading<'_> {
    fn vouches(&self, fast: &Path, slow: &spec::Place) -> Result<bool, StageError> {
        self.0.vouches(fast, slow)
    }

    fn record(&self) -> &dyn Record {
        self.0
    }

    fn may_read(&self) -> bool {
        true
    }
}

impl Witness for Journal {
    fn vouches(&self, fast: &Path, slow: &spec::Place) -> Result<bool, StageError> {
        Ok(self.jobs()?.iter().any(|job| {
            job.level.is_committed() && job.spec.source.path() == Some(fast) && job.spec.destination == *slow
        }))
    }

    fn record(&self) -> &dyn Record {
        self
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
    /// What was asked for and does not apply to this set, and why.
    pub not_applied: Option<String>,
}

impl Outcome {
    /// A line for each thing worth knowing.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let kept = self.kept.iter().map(|(path, why)| format!("{} is kept: {why}", shown(path)));
        kept.chain(self.not_applied.clone()).collect()
    }
}

/// What a job that is committed asks for: [`tidy`] with its options. To be called after the journal says COMMITTED. A
/// store that does not answer is waited for until `stop` is asked for.
///
/// # Errors
/// The kernel's and the journal's. Nothing is lost by it: the same call, later, goes on.
pub fn after_commit(
    spec: &JobSpec,
    tiers: &Tiers,
    witness: &dyn Witness,
    stop: &Stop,
) -> Result<Outcome, StageError> {
    let options = &spec.options;
    let keep = Keep { fast: options.keep_fast, slow: options.keep_slow, latest: options.latest };
    if let Some(record) = &options.part {
        return unless_locked(parts::after_commit(spec, record, keep, tiers, witness, stop), None);
    }
    if keep == Keep::default() {
        return Ok(Outcome::default());
    }
    let asked = match (keep.latest, keep.fast.is_some() || keep.slow.is_some()) {
        (true, true) => "`latest` and what is to be kept were",
        (true, false) => "`latest` was",
        (false, _) => "what is to be kept was",
    };
    let note =
        |what: &str, why: &str| Some(format!("{}: {what} not applied: {why}", spec.destination.shown()));
    let none = |why: &str| Outcome { not_applied: note(asked, why), ..Outcome::default() };
    let Some((slow, name)) = spec.destination.split() else {
        return Ok(none("it has no name"));
    };
    if place(&name).is_none() {
        return Ok(none("sets are ordered by the last number in their names, and it has none"));
    }
    let source = spec.source.path().and_then(|source| Some((source.parent()?, source.file_name()?)));
    // A set that has another name at its destination has no series of copies: nothing says which belong together. And
    // what came out of a store is a copy of what is there, not the other way round.
    let (fast, keep, not_applied) = match source {
        Some((fast, fast_name)) if fast_name == name => (fast, keep, None),
        _ if keep.fast.is_none() && keep.slow.is_none() => (Path::new("/"), keep, None),
        _ => {
            let why = "its source has another name, or is in an object store";
            let keep = Keep { latest: keep.latest, ..Keep::default() };
            (Path::new("/"), keep, note("what is to be kept was", why))
        }
    };
    unless_locked(tidy(fast, &*tiers.open(&slow, stop)?, &name, keep, witness, stop), not_applied)
}

/// What was applied, or that another process keeps the directory locked.
fn unless_locked(
    applied: Result<Outcome, StageError>,
    not_applied: Option<String>,
) -> Result<Outcome, StageError> {
    match applied {
        // Anybody who may read the directory may hold its lock, and is not to hold up a job that is durable.
        Err(StageError::Locked { path, by }) => {
            let why = format!("it is locked by {by}; the next set that is durable has it seen to");
            Ok(Outcome { kept: vec![(path.into(), why)], not_applied, ..Outcome::default() })
        }
        applied => applied
            .map(|outcome| Outcome { not_applied: not_applied.or(outcome.not_applied.clone()), ..outcome }),
    }
}

/// Applies the rules to the series of `name`: `latest`, then the fast copies, then the slow ones.
///
/// # Errors
/// A call that failed, of either tier or of the journal. Nothing is lost by it: the same call, later, goes on.
pub fn tidy(
    fast: &Path,
    slow: &dyn Tier,
    name: &OsStr,
    keep: Keep,
    witness: &dyn Witness,
    stop: &Stop,
) -> Result<Outcome, StageError> {
    let mut outcome = Outcome::default();
    let Some(place) = place(name) else {
        return Ok(outcome);
    };
    let _alone = slow.lock(stop)?;
    slow.restore(witness.record())?;
    if keep.latest {
        outcome.latest = slow.move_latest(name, &place, witness.record())?;
    }
    if keep.fast.is_none() && keep.slow.is_none() {
        return slow.sweep(witness.record()).map(|()| outcome);
    }
    let fast = match tidy_fast(fast, slow, &place, keep, witness, stop, &mut outcome)? {
        FastTier::Same => return Ok(outcome),
        FastTier::Absent => None,
        FastTier::Open(fast) => Some(fast),
    };
    tidy_slow(fast.as_ref(), slow, name, keep, witness, &mut outcome)?;
    Ok(outcome)
}

/// The fast tier of a series.
enum FastTier {
    /// It is the slow one, under another name: there are no two copies in it.
    Same,
    /// There is no such directory.
    Absent,
    /// It is open.
    Open(Directory),
}

/// The fast copies of a series.
fn tidy_fast(
    fast: &Path,
    slow: &dyn Tier,
    place: &SeriesPosition<'_>,
    keep: Keep,
    witness: &dyn Witness,
    stop: &Stop,
    outcome: &mut Outcome,
) -> Result<FastTier, StageError> {
    let fast = match Directory::open(fast).map(|fast| fast.until(stop)) {
        Err(StageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(FastTier::Absent);
        }
        Ok(fast) if slow.is(&fast)? => return Ok(FastTier::Same),
        opened => opened?,
    };
    let alone = fast.lock(stop)?;
    fast.restore(witness.record())?;
    // What an interrupted eviction left in a set would make it another than was copied.
    fast.sweep(witness.record())?;
    let keep_slow = keep.slow.map(|slow| slow.max(1));
    if let Some(most) = keep.fast.into_iter().chain(keep_slow).min().filter(|_| keep.fast.is_some()) {
        evict_surplus(&fast, slow, place, most as usize, witness, outcome)?;
    }
    fast.sweep(witness.record())?;
    drop(alone);
    Ok(FastTier::Open(fast))
}

/// The slow copies of a series.
fn tidy_slow(
    fast: Option<&Directory>,
    slow: &dyn Tier,
    name: &OsStr,
    keep: Keep,
    witness: &dyn Witness,
    outcome: &mut Outcome,
) -> Result<(), StageError> {
    if let Some(most) = keep.slow {
        remove_surplus(fast, slow, name, most.max(1) as usize, witness, outcome)?;
    }
    slow.sweep(witness.record())
}

/// Why a fast copy may not go; none: it may (rule 1).
pub fn evictable(
    fast: &Path,
    slow: &dyn Tier,
    name: &OsStr,
    witness: &dyn Witness,
) -> Result<Option<String>, StageError> {
    Ok(held(&Directory::open(fast)?, slow, name, witness, Intent::Tell)?.err())
}

/// Removes one fast copy, if it may go.
///
/// # Errors
/// [`StageError::Refused`] if it may not, and why.
pub fn evict(
    fast: &Path,
    slow: &dyn Tier,
    name: &OsStr,
    witness: &dyn Witness,
    stop: &Stop,
) -> Result<(), StageError> {
    let fast = Directory::open(fast)?.until(stop);
    let _alone = fast.lock(stop)?;
    fast.restore(witness.record())?;
    fast.sweep(witness.record())?;
    let refused = |why: String| StageError::Refused {
        what: format!("{} is not evicted: {why}", shown(&fast.path.join(name))),
        hint: Some(
            "a fast copy goes once its slow copy is durable and verified, and while nobody uses it"
                .to_owned(),
        ),
    };
    let evicted = match take(&fast, slow, name, witness) {
        Ok(Ok((part, id))) => fast.take_apart(&part, Some(&id), witness.record()),
        Ok(Err(kept)) => Err(refused(kept.words())),
        Err(error) => Err(error),
    };
    // The probe's record goes with the probe, whatever came of it; the first error is the one that is told.
    let swept = fast.sweep(witness.record());
    evicted.and(swept)
}

/// Keeps a directory from being evicted for as long as what is returned is not dropped. None where the file system
/// has no such locks, and nothing keeps it.
///
/// # Errors
/// [`StageError::Locked`] if another process keeps it locked; what `go_on` says.
pub fn pin(directory: BorrowedFd<'_>, path: &Path, go_on: GoOn<'_>) -> Result<Option<OwnedFd>, StageError> {
    let own = calls::open_at(directory, OsStr::new("."), DIRECTORY, Mode::empty())
        .map_err(|error| StageError::io("open the directory", path, error))?;
    Ok(lock::wait(own.as_fd(), false, path, go_on)?.then_some(own))
}

fn evict_surplus(
    fast: &Directory,
    slow: &dyn Tier,
    place: &SeriesPosition<'_>,
    most: usize,
    witness: &dyn Witness,
    outcome: &mut Outcome,
) -> Result<(), StageError> {
    let members = fast.members(place)?;
    let surplus = members.len().saturating_sub(most);
    for name in &members[..surplus] {
        let path = fast.path.join(name);
        match take(fast, slow, name, witness)? {
            Err(kept) => outcome.kept.push((path, kept.words())),
            // At once: what was compared may change while other sets are.
            Ok((part, id)) => {
                fast.take_apart(&part, Some(&id), witness.record())?;
                outcome.evicted.push(path);
            }
        }
    }
    Ok(())
}

/// `committed` is the set for which the rules are applied: it was made durable and read back just now.
fn remove_surplus(
    fast: Option<&Directory>,
    slow: &dyn Tier,
    committed: &OsStr,
    most: usize,
    witness: &dyn Witness,
    outcome: &mut Outcome,
) -> Result<(), StageError> {
    let Some(place) = place(committed) else { return Ok(()) };
    let mut newer = Vec::new();
    let mut vouched = None;
    let latest = slow.latest()?;
    for name in slow.members(&place)?.iter().rev() {
        let path = shown_path(&slow.place(name));
        let Some(durable) = slow.durable(name)? else {
            // Of a set of parts others may be on their way.
            if SetId::of_name(name).is_none() {
                outcome.kept.push((path, "it is not whole; `stage verify` says what it lacks".to_owned()));
            }
            continue;
        };
        if newer.len() < most {
            newer.push((name.clone(), durable));
            continue;
        }
        if vouched.is_none() {
            let mut found = false;
            for (name, manifest) in &newer {
                if !found && name != committed {
                    slow.make_durable(name, Barrier::NewerSet)?;
                }
                found = found || vouches(fast, slow, name, manifest, witness, name == committed)?;
            }
            vouched = Some(found);
        }
        let beside = match fast {
            Some(fast) => fast.has(name)?,
            None => false,
        };
        let why = if name == committed {
            Some("it was stored just now, and as many newer ones as are to be kept are there".to_owned())
        } else if vouched != Some(true) {
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
            None => match slow.remove(name, witness.record()) {
                Err(StageError::Locked { by, .. }) => {
                    outcome.kept.push((path, format!("it is locked by {by}")));
                }
                removed => {
                    removed?;
                    outcome.removed.push(path);
                }
            },
        }
    }
    Ok(())
}

/// Why somebody asks whether a fast copy may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intent {
    /// To be told: nothing is synced or read that is not in doubt.
    Tell,
    /// It goes at once.
    Remove,
}

/// Has a fast copy lose its name, if it may go.
fn take(
    fast: &Directory,
    slow: &dyn Tier,
    name: &OsStr,
    witness: &dyn Witness,
) -> Result<Doomed, StageError> {
    // Nothing is made in what another process reads. Whether it does is asked again when the set loses its name.
    if let Err(StageError::Locked { .. }) = lock::at_once(fast.directory(name)?.as_fd(), true, &fast.path) {
        return Ok(Err(Kept::Held));
    }
    // The slow copy may be the fast copy of another eviction, and about to go for the sake of this one.
    let _slow_copy = match slow.hold(name) {
        Err(StageError::Locked { by, .. }) => {
            return Ok(Err(Kept::Because(format!(
                "its slow copy is locked by {by}, and may be about to go"
            ))));
        }
        held => held?,
    };
    let manifest = match held(fast, slow, name, witness, Intent::Remove)? {
        Ok(manifest) => manifest,
        Err(why) => return Ok(Err(Kept::Because(why))),
    };
    // Nobody finds it under its name any more: what was written to it until then is seen. Where there are no locks, who
    // removes the slow copy for its sake has renamed that before it looks for this one, and one of both sees the other.
    fast.doom(name, witness.record(), &|set| {
        if slow.reads_again() && slow.durable(name)?.is_none() {
            return Ok(Some("its slow copy is not there any more".to_owned()));
        }
        Ok(changed(set, &fast.path.join(name), &manifest)?.filter(|_| enforced(Check::EvictedNames)))
    })
}

/// Rule 1: the manifest of the slow copy, or why the fast one stays.
fn held(
    fast: &Directory,
    slow: &dyn Tier,
    name: &OsStr,
    witness: &dyn Witness,
    intent: Intent,
) -> Result<Result<Manifest, String>, StageError> {
    let remove = intent == Intent::Remove;
    let (directory, path) = (fast.directory(name)?, fast.path.join(name));
    let (from, to) = (Mount::nearest(&fast.path), mounts::of_place(&slow.place(name), true));
    if let Some(how) = mounts::is_lost_with(from.as_ref(), to.as_ref()) {
        return Ok(Err(format!("its slow copy {how}, and it is not")));
    }
    let there = if remove { synced(slow, name)? } else { slow.durable(name)? };
    let Some(manifest) = there else {
        return Ok(Err("no durable copy of it is on the slow tier".to_owned()));
    };
    if let Some(how) = changed(directory.as_fd(), &path, &manifest)? {
        return Ok(Err(how));
    }
    // The largest part of the work last; it may take hours, in which the fast copy may be written to.
    if !vouches(Some(fast), slow, name, &manifest, witness, !remove)? {
        return Ok(Err("nobody vouches for its slow copy; `stage verify` reads it".to_owned()));
    }
    if let Some(how) = changed(directory.as_fd(), &path, &manifest)? {
        return Ok(Err(how));
    }
    // Stores through a shared mapping move no time of a file in memory.
    let is_in_memory = from.is_none_or(|from| from.is_in_memory());
    if remove && is_in_memory && enforced(Check::EvictedBytesInMemory) {
        match manifest.verify(directory.as_fd(), &path, &|| fast.go_on()) {
            Err(error @ StageError::Corrupt { .. }) => {
                return Ok(Err(format!("it is not what was copied: {error}")));
            }
            read => read?,
        }
    }
    // Last: it moves the time of change of a set that is about to go, and of no other. One that stays may be the source of
    // a copy.
    if remove && fast.shows_in(slow, name, witness.record())? && enforced(Check::EvictedItself) {
        let why = "a file that is made in it appears in its slow copy, so both may be one";
        return Ok(Err(why.to_owned()));
    }
    Ok(Ok(manifest))
}

/// The manifest of a slow copy that is made durable before it is compared: what is there may be in the page cache alone,
/// whoever put it there.
fn synced(slow: &dyn Tier, name: &OsStr) -> Result<Option<Manifest>, StageError> {
    slow.make_durable(name, Barrier::SlowCopy)?;
    slow.durable(name)
}

/// How a fast copy is not what its slow copy was made of.
fn changed(set: BorrowedFd<'_>, path: &Path, manifest: &Manifest) -> Result<Option<String>, StageError> {
    let difference = match Manifest::misnamed(set, path)? {
        None => manifest.differs_from(set, path, crate::set::Times::Compared)?,
        misnamed => misnamed,
    };
    Ok(difference.map(|how| format!("it is not what was copied: {how}")))
}

/// Was a set read back? The journal's word is enough for one that was made just now (`recent`), and for one in a tier that
/// need not be read again.
fn vouches(
    fast: Option<&Directory>,
    slow: &dyn Tier,
    name: &OsStr,
    manifest: &Manifest,
    witness: &dyn Witness,
    recent: bool,
) -> Result<bool, StageError> {
    let word = match fast {
        // Each part was read back before it got its name, and the set is complete only then.
        _ if manifest.set().is_some() => true,
        Some(fast) => witness.vouches(&fast.path.join(name), &slow.place(name))?,
        None => false,
    };
    if word && (recent || !slow.reads_again()) {
        return Ok(true);
    }
    if !word && !witness.may_read() {
        return Ok(false);
    }
    slow.reads_back(name, manifest)
}

fn shown_path(place: &spec::Place) -> PathBuf {
    match place {
        spec::Place::Path(path) => path.0.clone(),
        spec::Place::Object(url) => url.as_str().into(),
    }
}
