//! Checkpoints of one program on two tiers: written to the fast one, drained to the slow one behind its back.
//!
//! A checkpoint has a number, its step, and is a directory:
//!
//! 1. [`Store::begin`] makes a hidden one on the fast tier, which the program fills.
//! 2. [`Store::commit`] makes every file and directory in it durable, gives it its name, `step-00000100`, makes that
//!    durable, and has a [`Mover`] copy it to the slow tier: verified, whole, with its manifest. From then on the program
//!    may die: whoever opens the store next goes on draining.
//! 3. What retention allows goes, as [`crate::retention`] has it.
//!
//! One process at a time writes to a store: it holds an exclusive flock(2) on `store.lock` in the state directory.
//! What a process that died had begun and not committed is removed by the next that gets the lock; its parts bear a
//! mark in their names ([`crate::retention`] has its own), so that nobody else's are touched. A drain that fails is
//! told at the next call, once, and to everyone who waits for it; opening the store again, or [`Store::retry`], tries
//! it again.
//!
//! **fork(2)**: the threads that drain are not there in a child, and its copy of the lock is the parent's. Every call
//! of a child is refused, and dropping the store there does nothing. A child that outlives its parent keeps the store
//! locked until it ends or executes another program.

mod drain;
mod files;
mod restore;
mod slow;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::Mode;

use crate::calls;
use crate::error::{StageError, shown};
use crate::job::{JobId, JobStatus};
use crate::mover::Mover;
use crate::names::{PathText, part_name};
use crate::retention::{self, is_marked, marked_uuid};
use crate::runner::discard;
use crate::spec::{Level, Options, Place};

use files::{is_directory, look_at, open_directory, same, steps_in, sync_tree, tier};
use slow::Slow;

/// The state directory, where none is named: in the fast directory.
pub const STATE: &str = ".flashwright";
/// In a part's name: begun and not committed ([`marked_uuid`]).
const BEGUN: u8 = 0x5e;
/// Between two looks at whether somebody wants to stop.
const SLICE: Duration = Duration::from_millis(50);
/// More files than this are first written back together: one commit of the file system's journal for many.
const MANY_FILES: usize = 32;

/// Where a store is and how it works.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The directory on the fast tier; made if its parent is there.
    pub fast: PathBuf,
    /// The directory on the slow tier, made if its parent is there; or `s3://BUCKET/PREFIX` ([`crate::object`]).
    pub slow: PathBuf,
    /// Where the journal is; `.flashwright` in the fast directory where none is named.
    pub state: Option<PathBuf>,
    /// So many stay on the fast tier once they are durable; all where there is no number.
    pub keep_fast: Option<u32>,
    /// So many stay on the slow tier, one at the least; all where there is no number.
    pub keep_slow: Option<u32>,
    /// How checkpoints are drained: limits, digest, priority. What concerns retention is set by the store.
    pub options: Options,
    /// Look, and restore what is on the fast tier; several may at once, beside one that writes.
    pub read_only: bool,
    /// Checkpoints drained at once.
    pub jobs: usize,
    /// Threads for each.
    pub threads: usize,
}

impl StoreConfig {
    /// A store that keeps everything and drains in the background, without a limit.
    #[must_use]
    pub fn new(fast: impl Into<PathBuf>, slow: impl Into<PathBuf>) -> Self {
        Self {
            fast: fast.into(),
            slow: slow.into(),
            state: None,
            keep_fast: None,
            keep_slow: None,
            options: Options { background: true, ..Options::default() },
            read_only: false,
            jobs: 1,
            threads: 2,
        }
    }
}

/// A checkpoint, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// Its number.
    pub step: u64,
    /// It is on the fast tier under its name.
    pub fast: bool,
    /// It is on the slow tier under its name, with a manifest that is whole.
    pub slow: bool,
}

/// Asked now and then by what takes long; an error ends it.
pub type GoOn<'a> = &'a dyn Fn() -> Result<(), StageError>;

/// Nobody wants to stop.
///
/// # Errors
/// None.
pub fn always() -> Result<(), StageError> {
    Ok(())
}

/// Checkpoints on two tiers. See the module.
#[derive(Debug)]
pub struct Store {
    config: StoreConfig,
    fast: OwnedFd,
    slow: Arc<Slow>,
    /// The process that opened it; a child of fork(2) has another number.
    process: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// None where it is read-only or closed.
    mover: Option<Mover>,
    lock: Option<File>,
    /// What was in the object store when this was opened. Which is asked about before a step is begun: a store may be
    /// far away, and a program that computes is not to wait for it.
    stored: BTreeSet<u64>,
    /// The newest job of each step.
    jobs: BTreeMap<u64, JobId>,
    /// Begun and not committed: the part's name.
    begun: BTreeMap<u64, OsString>,
    /// Jobs whose failure has been told.
    told: BTreeSet<JobId>,
    /// What was restored, and is not to be evicted while this store is open.
    pins: BTreeMap<u64, OwnedFd>,
    closed: bool,
}

/// `step-00000100`.
#[must_use]
pub fn step_name(step: u64) -> OsString {
    format!("step-{step:08}").into()
}

/// The step of a name that [`step_name`] makes.
#[must_use]
pub fn step_of(name: &OsStr) -> Option<u64> {
    let step = name.to_str()?.strip_prefix("step-")?.parse().ok()?;
    (step_name(step) == name).then_some(step)
}

/// Where a step is staged in before its bytes are known to be right.
fn staged_name(step: u64) -> OsString {
    let mut name = OsString::from(".");
    name.push(step_name(step));
    name.push(".staged");
    name
}

fn step_staged(name: &OsStr) -> Option<u64> {
    step_of(OsStr::from_bytes(name.as_bytes().strip_prefix(b".")?.strip_suffix(b".staged")?))
}

fn absolute(path: &Path) -> Result<PathBuf, StageError> {
    std::path::absolute(path).map_err(|error| StageError::io("find the current directory for", path, error))
}

impl Store {
    /// Opens a store, makes its directories, removes what a process that died had begun, and goes on draining.
    ///
    /// # Errors
    /// [`StageError::Invalid`] for directories and numbers that make no sense, [`StageError::Refused`] if another
    /// process writes to it; the kernel's and the journal's.
    pub fn open(mut config: StoreConfig) -> Result<Self, StageError> {
        for path in [Some(&mut config.fast), config.state.as_mut()].into_iter().flatten() {
            *path = absolute(path)?;
        }
        let slow = match Place::of_name(config.slow.clone())? {
            Place::Path(path) => Place::Path(PathText(absolute(&path.0)?)),
            url => url,
        };
        if config.keep_slow == Some(0) {
            return Err(StageError::invalid(
                "keep_slow 0: the last durable checkpoint is never removed",
                "1 or more; none at all to keep all",
            ));
        }
        let fast = tier("fast", &config.fast, config.read_only)?;
        let slow = Slow::open(&slow, config.read_only)?;
        if let Slow::Directory { directory, .. } = &slow
            && same(&fast, directory).map_err(|error| StageError::io("stat", &config.fast, error))?
        {
            return Err(StageError::invalid(
                format!("fast and slow are one directory: {}", shown(&config.fast)),
                "name two, on different devices",
            ));
        }
        let inner = Mutex::default();
        let store = Self { config, fast, slow: Arc::new(slow), process: std::process::id(), inner };
        if !store.config.read_only {
            store.begin_draining()?;
        }
        Ok(store)
    }

    fn state(&self) -> PathBuf {
        self.config.state.clone().unwrap_or_else(|| self.config.fast.join(STATE))
    }

    /// What was begun by a process that is gone, and what was staged in and is wanted by nobody any more.
    fn remove_leftovers(&self, jobs: &[JobStatus]) -> Result<(), StageError> {
        let wanted = |name: &OsStr| {
            jobs.iter().any(|job| {
                !job.state.is_final() && job.spec.destination.path() == Some(&self.config.fast.join(name))
            })
        };
        let names = calls::list(self.fast.as_fd())
            .map_err(|error| StageError::io("read the directory", &self.config.fast, error))?;
        for (name, _) in names {
            if is_marked(&name, BEGUN) || (step_staged(&name).is_some() && !wanted(&name)) {
                discard(&self.fast, &name, &self.config.fast)?;
            }
        }
        Ok(())
    }

    /// Begins a checkpoint: a new, empty, hidden directory on the fast tier, for the program to fill.
    ///
    /// # Errors
    /// [`StageError::Refused`] where there is one of this step; a drain that has failed since the last call; the kernel's.
    pub fn begin(&self, step: u64) -> Result<PathBuf, StageError> {
        self.mover()?;
        self.tell_failures()?;
        let name = step_name(step);
        if is_directory(&self.fast, &name) || self.may_be_stored(step) && self.slow.has(step)? {
            return Err(StageError::refused(
                format!("step {step}: there is a checkpoint of this step, and it is not written over"),
                "go on counting, or remove that one from both tiers first",
            ));
        }
        let part = part_name(&name, marked_uuid(BEGUN, &self.config.fast)?);
        {
            let mut inner = self.locked();
            if inner.begun.contains_key(&step) {
                return Err(StageError::refused(
                    format!("step {step} is begun already"),
                    "commit or abandon that one first",
                ));
            }
            inner.begun.insert(step, part.clone());
        }
        let path = self.config.fast.join(&part);
        calls::make_directory(self.fast.as_fd(), &part, Mode::from_raw_mode(0o777)).map_err(|error| {
            self.locked().begun.remove(&step);
            StageError::io("make the directory", &path, error)
        })?;
        Ok(path)
    }

    /// Where the files of a checkpoint that is begun are to be written.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if none of this step is begun.
    pub fn path(&self, step: u64) -> Result<PathBuf, StageError> {
        self.own_process()?;
        Ok(self.config.fast.join(self.part_of(step)?))
    }

    /// Must the slow tier be asked whether it has this step?
    fn may_be_stored(&self, step: u64) -> bool {
        let inner = self.locked();
        matches!(*self.slow, Slow::Directory { .. })
            || inner.stored.contains(&step)
            || inner.jobs.contains_key(&step)
    }

    fn part_of(&self, step: u64) -> Result<OsString, StageError> {
        self.locked().begun.get(&step).cloned().ok_or_else(|| {
            StageError::invalid(
                format!("step {step} is not begun"),
                "begin it first; once committed it is done",
            )
        })
    }

    /// Makes a checkpoint durable on the fast tier, gives it its name, and has it drained. When this returns it
    /// survives a power cut, if the fast tier does.
    ///
    /// # Errors
    /// What it must not hold, a sync that failed: the part is gone then, because nobody knows what of it is stored.
    /// [`StageError::Refused`] where the name was taken meanwhile. Once it has its name, only the journal can fail; the
    /// checkpoint is there all the same, and is drained when the store is opened next.
    pub fn commit(&self, step: u64) -> Result<PathBuf, StageError> {
        let mover = self.mover()?;
        let part = self.part_of(step)?;
        let path = self.config.fast.join(step_name(step));
        let published = self.publish(step, &part);
        self.locked().begun.remove(&step);
        if let Err(error) = published {
            // A second failure adds nothing; what stays is removed when the store is opened next.
            let _ = discard(&self.fast, &part, &self.config.fast);
            return Err(error);
        }
        calls::sync(self.fast.as_fd()).map_err(|error| StageError::io("fsync", &self.config.fast, error))?;
        self.drain(&mover, step)?;
        Ok(path)
    }

    fn publish(&self, step: u64, part: &OsStr) -> Result<(), StageError> {
        let (path, name) = (self.config.fast.join(part), step_name(step));
        let directory = open_directory(self.fast.as_fd(), part, &path)?;
        if look_at(directory.as_fd(), &path, true)? > MANY_FILES {
            // It only hastens: each file's own fsync vouches for it.
            let _ = calls::sync_file_system(directory.as_fd());
        }
        sync_tree(directory.as_fd(), &path)?;
        calls::publish(self.fast.as_fd(), part, &name).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                StageError::refused(
                    format!("step {step}: somebody else has made {}", shown(&self.config.fast.join(&name))),
                    "one program at a time writes to a store's directories",
                )
            } else {
                StageError::io(format!("rename to {}", shown(Path::new(&name))), &path, error)
            }
        })
    }

    /// Gives up a checkpoint that is begun.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if none of this step is begun; the kernel's.
    pub fn abandon(&self, step: u64) -> Result<(), StageError> {
        self.mover()?;
        let part = self.part_of(step)?;
        self.locked().begun.remove(&step);
        discard(&self.fast, &part, &self.config.fast)
    }

    /// The newest checkpoint that has come this far; at `local` and below, on either tier.
    ///
    /// # Errors
    /// A drain that has failed since the last call; the kernel's.
    pub fn latest(&self, level: Level) -> Result<Option<u64>, StageError> {
        self.tell_failures()?;
        let newest =
            self.list()?.into_iter().rev().find(|step| step.slow || (step.fast && level < Level::Durable));
        Ok(newest.map(|step| step.step))
    }

    /// Every checkpoint that has a name, oldest first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn list(&self) -> Result<Vec<Step>, StageError> {
        self.own_process()?;
        let mut steps = BTreeMap::new();
        for step in steps_in(&self.fast, &self.config.fast)? {
            steps.insert(step, Step { step, fast: true, slow: false });
        }
        for step in self.slow.steps()? {
            let whole = self.slow.is_whole(step)?;
            if whole || steps.contains_key(&step) {
                steps.entry(step).or_insert(Step { step, fast: false, slow: false }).slow = whole;
            }
        }
        Ok(steps.into_values().collect())
    }

    /// Lets a restored checkpoint be evicted again.
    pub fn release(&self, step: u64) {
        if self.own_process().is_ok() {
            self.locked().pins.remove(&step);
        }
    }

    /// Removes a fast copy, if its slow copy is durable and nobody has restored it. Where the journal does not vouch
    /// for the slow copy it is read.
    ///
    /// # Errors
    /// [`StageError::Refused`] if it may not go, and why; the kernel's.
    pub fn evict(&self, step: u64) -> Result<(), StageError> {
        let mover = self.mover()?;
        retention::evict(&self.config.fast, &self.slow.tier(), &step_name(step), &OrReading(mover.journal()))
    }

    /// Stops draining, between two steps, and lets others have the store. What is not drained is gone on with by the
    /// next who opens it; what is begun and not committed is gone.
    ///
    /// # Errors
    /// A drain that has failed and that nobody has been told of.
    pub fn close(&self) -> Result<(), StageError> {
        self.own_process()?;
        if self.locked().closed {
            return Ok(());
        }
        let told = self.tell_failures();
        self.end();
        told
    }

    fn end(&self) {
        let (mover, begun) = {
            let mut inner = self.locked();
            inner.closed = true;
            inner.pins.clear();
            (inner.mover.take(), std::mem::take(&mut inner.begun))
        };
        for part in begun.values() {
            let _ = discard(&self.fast, part, &self.config.fast);
        }
        if let Some(mover) = mover {
            mover.stop();
        }
        self.locked().lock = None;
    }

    fn own_process(&self) -> Result<(), StageError> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(StageError::refused(
            format!("this store was opened by process {}, of which this one is a fork", self.process),
            "open a store of its own, to be read only, in each process; or start processes without fork",
        ))
    }

    fn mover(&self) -> Result<Mover, StageError> {
        self.own_process()?;
        let inner = self.locked();
        inner.mover.clone().ok_or_else(|| {
            let (what, hint) = if inner.closed {
                ("this store is closed", "open it again")
            } else {
                ("this store is open to be read only", "open it without read_only")
            };
            StageError::refused(what, hint)
        })
    }

    fn no_such(&self, step: u64) -> StageError {
        let there = self.list().unwrap_or_default();
        let there: Vec<String> = there.iter().rev().take(5).map(|step| step.step.to_string()).collect();
        let hint = if there.is_empty() {
            "there is none at all".to_owned()
        } else {
            format!("the newest are {}", there.join(", "))
        };
        StageError::invalid(format!("step {step}: there is no such checkpoint"), hint)
    }

    /// Only ever called by the process that opened it: a child of fork(2) may find it locked for ever.
    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            self.end();
        } else {
            // A child of fork(2): the mover's threads are not here, and waiting for them would never end.
            std::mem::forget(std::mem::take(&mut self.inner));
            std::mem::forget(Arc::clone(&self.slow));
        }
    }
}

/// The journal as witness; what it does not know may be read.
struct OrReading<'a>(&'a crate::journal::Journal);

impl retention::Witness for OrReading<'_> {
    fn vouches(&self, fast: &Path, slow: &Place) -> Result<bool, StageError> {
        self.0.vouches(fast, slow)
    }

    fn may_read(&self) -> bool {
        true
    }
}
