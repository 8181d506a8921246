//! Checkpoints of one program on two tiers: written to the fast one, drained to the slow one in the background.
//!
//! A checkpoint has a number, its step, and is a directory:
//!
//! 1. [`Store::begin`] makes a hidden one on the fast tier, which the program fills.
//! 2. [`Store::commit`] makes every file and directory in it durable, gives it its name, `step-00000100`, makes that
//!    durable, and has a [`Mover`] copy it to the slow tier: verified, whole, with its manifest. From then on the program
//!    may die: the next process that opens the store goes on draining.
//! 3. What retention allows goes, as [`stage::retention`] has it.
//!
//! With a [`Member`] a checkpoint is one rank's part of a set that many nodes write ([`stage::parts`]): the store's own
//! directory on the fast tier is `FAST/rank-000003-of-000008`, and its parts on the slow tier are
//! `SLOW/step-00000100.run-RUN/rank-000003-of-000008`. Its `latest` and `restore` know sets that are complete alone.
//!
//! One process at a time writes to a store: it holds an exclusive flock(2) on `.flashwright/store.lock` in the fast
//! directory, wherever its state directory is.
//! What a process that died had begun and not committed is removed by the next that gets the lock; the journal
//! holds which directories they are, so that nothing else is touched. A drain that fails is
//! told at the next call, once, and to everyone who waits for it; opening the store again, or [`Store::retry`], tries
//! it again.
//!
//! **fork(2)**: the threads that drain are not there in a child, and its copy of the lock is the parent's. Every call
//! of a child is refused, and dropping the store there does nothing. A child that outlives its parent keeps the store
//! locked until it ends or executes another program.

mod drain;
mod files;
mod partner;
mod restore;
mod sets;
mod surplus;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::mover::Mover;
use stage::error::{StageError, shown};
use stage::job::JobId;
use stage::mounts::{self, Mount};
use stage::names::PathText;
use stage::owned::FileId;
use stage::pace::Stop;
use stage::parts::{PartId, RunId, SetId};
use stage::retention;
use stage::spec::{Level, Options, Place};
use stage::tier::directory::Directory;
use stage::tier::parts::PartTier;
use stage::tier::{Tier, Tiers};
use storage::locks::Held;

use files::{steps_in, tier};
use partner::Partner;

/// The state directory, where none is named: in the fast directory.
pub const STATE: &str = ".flashwright";
/// Interval at which a wait checks whether it is to stop.
const SLICE: Duration = Duration::from_millis(50);

/// Where a store is and how it works.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The directory on the fast tier; made if its parent is there, or with `options.parents`.
    pub fast: PathBuf,
    /// The directory on the slow tier, made if its parent is there; or `s3://BUCKET/PREFIX`, which `tiers` opens.
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
    /// Which part of each set this process writes; none: each checkpoint is this process's alone.
    pub member: Option<Member>,
    /// What opens tiers that are no directories.
    pub tiers: Tiers,
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
            member: None,
            tiers: Tiers::default(),
        }
    }
}

/// A process among those that write sets together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The identity of this launch of the program, the same in all of its processes.
    pub run: RunId,
    /// This process's rank, and their number.
    pub part: PartId,
    /// The host, as faults name it.
    pub node: String,
    /// The fast directory of another node, reachable by a path here: each part is kept there as well until it is durable.
    pub partner: Option<PathBuf>,
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

pub use partner::{LeftBehind, drain_left};
pub use sets::run_of_environment;
pub use stage::pace::{GoOn, always};

/// Checkpoints on two tiers. See the module.
#[derive(Debug)]
pub struct Store {
    config: StoreConfig,
    fast: OwnedFd,
    partner: Option<Partner>,
    slow: Arc<dyn Tier>,
    slow_place: Place,
    /// The mount of the slow tier if that is in memory. Nothing becomes durable there.
    slow_in_memory: Option<Mount>,
    /// The process that opened it; a child of fork(2) has another number.
    process: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// None where it is read-only or closed.
    mover: Option<Mover>,
    lock: Option<Held<File>>,
    /// What was in the object store when this was opened. Which is asked about before a step is begun: a store may be
    /// far away, and a program that computes is not to wait for it.
    stored: BTreeSet<u64>,
    /// The newest job of each step.
    jobs: BTreeMap<u64, JobId>,
    /// Drains of parts that earlier runs of the program have left.
    earlier: BTreeMap<SetId, JobId>,
    /// Copies on a partner's flash, by the set's name.
    kept: BTreeMap<OsString, JobId>,
    /// Begun and not committed: the part's name, and which directory it is.
    begun: BTreeMap<u64, (OsString, FileId)>,
    /// Jobs whose failure has been reported.
    reported: BTreeSet<JobId>,
    /// What was restored, and is not to be evicted while this store is open.
    pins: BTreeMap<OsString, OwnedFd>,
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

/// Where a checkpoint is staged in before its bytes are known to be right.
fn staged_name(of: &OsStr) -> OsString {
    let mut name = OsString::from(".");
    name.push(of);
    name.push(".staged");
    name
}

/// The name of the checkpoint that is staged in under this one.
fn staged_of(name: &OsStr) -> Option<&OsStr> {
    let of = OsStr::from_bytes(name.as_bytes().strip_prefix(b".")?.strip_suffix(b".staged")?);
    (step_of(of).is_some() || SetId::of_name(of).is_some() || sets::part_of(of).is_some()).then_some(of)
}

fn absolute(path: &Path) -> Result<PathBuf, StageError> {
    std::path::absolute(path).map_err(|error| StageError::io("find the current directory for", path, error))
}

impl Store {
    /// Opens a store, makes its directories, removes what a process that died had begun, and goes on draining.
    ///
    /// # Errors
    /// [`StageError::Invalid`] for directories and numbers that make no sense, [`StageError::Refused`] if another
    /// process writes to it.
    pub fn open(mut config: StoreConfig) -> Result<Self, StageError> {
        for path in [Some(&mut config.fast), config.state.as_mut()].into_iter().flatten() {
            *path = match Place::of_name(&path)? {
                Place::Path(path) => absolute(&path.0)?,
                Place::Object(url) => {
                    let hint = "the slow tier alone may be in an object store";
                    return Err(StageError::invalid(format!("{url}: not a directory"), hint));
                }
            };
        }
        let slow_place = match Place::of_name(&config.slow)? {
            Place::Path(path) => Place::Path(PathText(absolute(&path.0)?)),
            url => url,
        };
        if config.keep_slow == Some(0) {
            return Err(StageError::invalid(
                "keep_slow 0: the last durable checkpoint is never removed",
                "1 or more; none at all to keep all",
            ));
        }
        let mut node = None;
        if let Some(member) = &config.member {
            tier("fast", &config.fast, config.read_only, config.options.parents)?;
            let within = config.fast.join(member.part.to_string());
            node = Some(std::mem::replace(&mut config.fast, within));
        }
        let fast = tier("fast", &config.fast, config.read_only, config.options.parents)?;
        let partner = Partner::open(&mut config, node.as_deref())?;
        if let Some(path) = slow_place.path() {
            tier("slow", path, config.read_only, config.options.parents)?;
        }
        let mut slow: Arc<dyn Tier> = config.tiers.open(&slow_place, &Stop::new())?.into();
        if let Some(member) = &config.member {
            slow = Arc::new(PartTier::new(slow, member.part));
        }
        if slow.is(&Directory::open(&config.fast)?)? {
            return Err(StageError::invalid(
                format!("fast and slow are one directory: {}", shown(&config.fast)),
                "name two, on different devices",
            ));
        }
        let on_fast = Mount::nearest(&config.fast);
        let on_slow = mounts::of_place(&slow_place.join(Path::new("step"))?, true);
        if let Some(how) = mounts::is_lost_with(on_fast.as_ref(), on_slow.as_ref()) {
            return Err(StageError::refused(
                format!("the slow tier {} {how}, and the fast one is not", slow_place.shown()),
                "name a slow tier on a disk: a restart would lose all that is stored there",
            ));
        }
        let slow_in_memory = on_slow.filter(Mount::is_in_memory);
        let (process, inner) = (std::process::id(), Mutex::default());
        let store = Self { config, fast, partner, slow, slow_place, slow_in_memory, process, inner };
        if !store.config.read_only {
            store.begin_draining()?;
        }
        Ok(store)
    }

    /// The slow tier is an object store, which may be far away.
    fn is_remote(&self) -> bool {
        self.slow_place.path().is_none()
    }

    /// The checkpoints that have a name on the slow tier, oldest first.
    fn stored_steps(&self) -> Result<Vec<u64>, StageError> {
        let names = self.slow.names(&|name| self.step_of(name).is_some())?;
        let mut steps: Vec<u64> = names.iter().filter_map(|name| self.step_of(name)).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The name of a checkpoint of this store: the step's, or the set's that this process writes a part of.
    fn name(&self, step: u64) -> OsString {
        match &self.config.member {
            Some(member) => SetId { step, run: member.run.clone() }.to_string().into(),
            None => step_name(step),
        }
    }

    /// The step of a name that [`Store::name`] makes.
    fn step_of(&self, name: &OsStr) -> Option<u64> {
        match &self.config.member {
            Some(member) => SetId::of_name(name).filter(|id| id.run == member.run).map(|id| id.step),
            None => step_of(name),
        }
    }

    /// The checkpoints of this store on the fast tier, oldest first.
    fn steps_here(&self) -> Result<Vec<u64>, StageError> {
        steps_in(&self.fast, &self.config.fast, &|name| self.step_of(name))
    }

    fn state(&self) -> PathBuf {
        self.config.state.clone().unwrap_or_else(|| self.config.fast.join(STATE))
    }

    /// Has the slow tier a checkpoint of this step? An object store is asked only if it may have one.
    fn is_stored(&self, step: u64) -> Result<bool, StageError> {
        let may_be = {
            let inner = self.locked();
            !self.is_remote() || inner.stored.contains(&step) || inner.jobs.contains_key(&step)
        };
        Ok(may_be && self.slow.has(&self.name(step))?)
    }

    /// The newest checkpoint that has come this far; at `local` and below, on either tier. On a slow tier in memory none is
    /// durable. Of sets that many nodes write, at every level the newest that is complete on the slow tier, of whatever run.
    ///
    /// # Errors
    /// A drain that has failed since the last call.
    pub fn latest(&self, level: Level) -> Result<Option<u64>, StageError> {
        self.report_failures()?;
        if self.config.member.is_some() {
            let is_lost = level == Level::Durable && self.slow_in_memory.is_some();
            return Ok(self.latest_set()?.filter(|_| !is_lost).map(|(id, _)| id.step));
        }
        let has_come = |step: &Step| match level {
            Level::Durable => step.slow && self.slow_in_memory.is_none(),
            _ => step.slow || (step.fast && !level.is_committed()),
        };
        let newest = self.list()?.into_iter().rev().find(has_come);
        Ok(newest.map(|step| step.step))
    }

    /// Every checkpoint that has a name, oldest first.
    pub fn list(&self) -> Result<Vec<Step>, StageError> {
        self.own_process()?;
        let mut steps = BTreeMap::new();
        for step in self.steps_here()? {
            steps.insert(step, Step { step, fast: true, slow: false });
        }
        for step in self.stored_steps()? {
            // In an object store the manifest is what gives a set its name, and it was read back when it was put.
            let whole = self.is_remote() || self.slow.manifest(&self.name(step))?.is_some();
            if whole || steps.contains_key(&step) {
                steps.entry(step).or_insert(Step { step, fast: false, slow: false }).slow = whole;
            }
        }
        Ok(steps.into_values().collect())
    }

    /// Allows the eviction of a checkpoint that was restored.
    pub fn release(&self, step: u64) {
        if self.own_process().is_ok() {
            self.locked().pins.retain(|name, _| sets::step_of_any(name) != Some(step));
        }
    }

    /// Removes a fast copy, if its slow copy is durable and no process has restored it. Where the journal does not vouch
    /// for the slow copy it is read.
    ///
    /// # Errors
    /// [`StageError::Refused`] if it may not go, and why.
    pub fn evict(&self, step: u64) -> Result<(), StageError> {
        let mover = self.mover()?;
        let stop = Stop::new();
        let mut slow: Arc<dyn Tier> = self.config.tiers.open(&self.slow_place, &stop)?.into();
        if let Some(member) = &self.config.member {
            slow = Arc::new(PartTier::new(slow, member.part));
        }
        retention::evict(
            &self.config.fast,
            &*slow,
            &self.name(step),
            &retention::OrReading(mover.journal()),
            &stop,
        )
    }

    /// Stops draining, between two steps, and lets others have the store. What is not drained is gone on with by the
    /// next who opens it; what is begun and not committed is gone.
    ///
    /// # Errors
    /// A drain has failed that was not reported yet.
    pub fn close(&self) -> Result<(), StageError> {
        self.own_process()?;
        if self.locked().closed {
            return Ok(());
        }
        let reported = self.report_failures();
        self.end();
        reported
    }

    fn end(&self) {
        let (mover, begun) = {
            let mut inner = self.locked();
            inner.closed = true;
            inner.pins.clear();
            (inner.mover.take(), std::mem::take(&mut inner.begun))
        };
        if let Some(mover) = mover {
            for (part, id) in begun.values() {
                let _ = self.discard_begun(&mover, part, Some(id));
            }
            let _ = self.discard_others(&mover);
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use stage::error::ErrorClass;
    use stage::job::State;

    fn config(folder: &Path, state: &str) -> StoreConfig {
        let state = Some(folder.join(state));
        StoreConfig { state, ..StoreConfig::new(folder.join("fast"), folder.join("slow")) }
    }

    #[test]
    fn a_fast_directory_has_one_writer_wherever_its_state_directory_is() {
        let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let first = Store::open(config(folder.path(), "state-1")).unwrap();
        let begun = first.begin(1).unwrap();
        std::fs::write(begun.join("x"), "x").unwrap();
        for state in ["state-2", "state-1", "fast/.flashwright"] {
            let error = Store::open(config(folder.path(), state)).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Refused, "{error}");
            assert!(error.to_string().contains(&format!("process {} (", std::process::id())), "{error}");
        }
        assert_eq!(std::fs::read(begun.join("x")).unwrap(), b"x");
        first.commit(1).unwrap();
        first.close().unwrap();
        Store::open(config(folder.path(), "state-2")).unwrap();
    }

    #[test]
    fn a_checkpoint_that_a_reader_keeps_locked_is_not_waited_for_without_a_bound() {
        let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let store = Store::open(config(folder.path(), "state")).unwrap();
        std::fs::write(store.begin(1).unwrap().join("x"), "x").unwrap();
        let path = store.commit(1).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(stage::lock::at_once(reader.as_fd(), true, &path).unwrap());
        let error = store.restore(1, false, &always).unwrap_err();
        assert!(matches!(error, StageError::Locked { .. }), "{error}");
        let stop = Stop::new();
        stop.ask();
        let error = store.restore(1, false, &|| stop.check()).unwrap_err();
        assert!(matches!(error, StageError::Stopped { .. }), "{error}");
        drop(reader);
        store.restore(1, false, &always).unwrap();
    }

    #[test]
    fn on_a_slow_tier_in_memory_nothing_is_durable() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            println!("SKIP a store in memory: there is no /dev/shm");
            return;
        };
        if !Mount::nearest(folder.path()).is_some_and(|mount| mount.is_in_memory()) {
            println!("SKIP a store in memory: /dev/shm is not");
            return;
        }
        let store = Store::open(config(folder.path(), "state")).unwrap();
        std::fs::write(store.begin(1).unwrap().join("x"), "x").unwrap();
        store.commit(1).unwrap();
        assert!(store.wait(Some(1), Level::Local, None, &always).unwrap());
        for step in [Some(1), None] {
            let error = store.wait(step, Level::Durable, None, &always).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Refused, "{error}");
            assert!(error.to_string().ends_with(", and step 1 is not durable there"), "{error}");
        }
        assert!(store.wait(Some(1), Level::InMemory, None, &always).unwrap());
        let (_, job) = store.progress().unwrap().pop().unwrap();
        assert_eq!((job.state, job.level, job.durable), (State::Done, Level::InMemory, None));
        assert_eq!(store.latest(Level::Durable).unwrap(), None);
        assert_eq!(store.latest(Level::InMemory).unwrap(), Some(1));
        assert_eq!(store.latest(Level::Local).unwrap(), Some(1));
    }

    #[test]
    fn a_url_is_no_fast_directory() {
        let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        for fast in ["s3://bucket/x", "s3:/bucket/x", "http://host/x"] {
            let error = Store::open(StoreConfig::new(fast, folder.path())).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Invalid, "{fast}: {error}");
        }
    }
}
