//! Faults on demand: what a hostile kernel, a full disk or a power button does, at a chosen system call.
//!
//! Every call that matters for durability goes through [`crate::calls`], and each of those asks here first. A
//! [`Plan`] says which of them is struck and how: it fails with an `errno`, moves fewer bytes than asked, or the
//! process is killed on the spot, as by `kill -9`. Tests count the calls of a move first, then strike each of them.
//!
//! Nothing in the product makes a plan: no flag, no variable. Without one a call costs one relaxed load.

mod labels;

use std::cell::Cell;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

pub use labels::{Barrier, Check, Moment};

/// What is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the system call of its name")]
pub enum Call {
    Openat,
    Mkdirat,
    Fallocate,
    Read,
    Write,
    Fdatasync,
    Fsync,
    Syncfs,
    SyncFileRange,
    Ftruncate,
    Fchown,
    Fchmod,
    Utimens,
    Setxattr,
    Getxattr,
    Renameat,
    Unlinkat,
    Linkat,
    Symlinkat,
    Statx,
    Getdents,
    Lseek,
    /// ioctl_ficlone(2).
    Ficlone,
    /// A durable step of the journal; not one system call, but a step between which a crash may fall.
    Journal,
}

/// How it is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The call fails with this and does nothing.
    Errno(i32),
    /// At most this many bytes are moved.
    Short(usize),
    /// The process dies before the call, as by SIGKILL.
    Kill,
    /// The process dies right after the call has been made.
    KillAfter,
    /// A sync is not made and said to have been: what a tool without fsync does. For tests of the tests, which must
    /// notice it. Other calls are made all the same.
    Skip,
    /// [`Plan::meanwhile`] is run before the call, which is then made, or struck by a later fault of the plan.
    Meanwhile,
}

/// One planned fault.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Which call; any of them where it is none.
    pub call: Option<Call>,
    /// How many such calls go through first.
    pub after: u64,
    /// How many in a row are then struck.
    pub times: u64,
    /// How.
    pub effect: Effect,
}

/// What another program does to the same files between two calls.
pub struct Meanwhile(pub Box<dyn FnMut() + Send>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

/// A sync of one file that was asked for. The descriptor keeps the inode's number from being given to another file.
#[derive(Debug)]
pub struct Synced {
    /// The file or directory.
    pub file: OwnedFd,
    /// It failed, by plan or by the kernel.
    pub failed: bool,
}

/// What was changed and not synced when a job came to a step that rests on syncs: [`Plan::unsynced`].
#[derive(Debug, Clone)]
pub struct Unsynced {
    /// The step.
    pub before: Moment,
    /// What the step is about: absolute paths, or paths beneath the part.
    pub about: Vec<PathBuf>,
    /// Files and directories that have a name still.
    pub paths: Vec<PathBuf>,
}

/// One safeguard that a plan leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Safeguard {
    /// The sync is not made and reported as made.
    Barrier(Barrier),
    /// The check is not made and reported as passed.
    Check(Check),
}

/// What is to happen, and what has.
#[derive(Debug, Default)]
pub struct Plan {
    /// What is left out.
    pub left_out: Option<Safeguard>,
    /// A sync that is left out is made after all, but only when the step is behind that it has to come before
    /// ([`Barrier::before`]).
    pub late: bool,
    /// Gets a byte each time that something is left out, so that a process that dies leaves the count.
    pub mark: Option<OwnedFd>,
    /// Syncs that are late, each with whether it is of the whole file system.
    deferred: Vec<(OwnedFd, bool)>,
    /// How many calls ago the step was that late syncs wait for.
    since_step: Option<u32>,
    /// The process dies when it comes to this sync, before it is made.
    pub kill_at: Option<Barrier>,
    /// Every file and directory that was changed and not synced since, where it is some: what may be lost on the
    /// strictest file system that POSIX allows.
    pub unsynced: Option<Vec<OwnedFd>>,
    /// What of it was left at each step before which something has to be durable.
    pub steps: Vec<Unsynced>,
    /// Data of a file that was not synced by itself is reported as a hole (openzfs/zfs#15526). Needs [`Plan::syncs`].
    pub hide_unsynced_data: bool,
    /// Every file system's syncfs is trusted, or none, so that every file is synced by itself, as on NFS.
    pub syncfs_vouches: Option<bool>,
    /// The faults.
    pub faults: Vec<Fault>,
    seen: Vec<u64>,
    /// Each call so far, in order, where [`Plan::recording`] was asked for.
    pub calls: Option<Vec<Call>>,
    /// Each sync of one file so far, in order, where it is some.
    pub syncs: Option<Vec<Synced>>,
    /// What [`Effect::Meanwhile`] runs.
    pub meanwhile: Option<Meanwhile>,
    /// renameat2(2) answers EINVAL to RENAME_NOREPLACE, as on NFS and Lustre.
    pub lacks_noreplace: bool,
    fired: u64,
}

impl Plan {
    /// Strikes these.
    #[must_use]
    pub fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        let faults: Vec<Fault> = faults.into_iter().collect();
        Self { seen: vec![0; faults.len()], faults, ..Self::default() }
    }

    /// Strikes nothing, and remembers every call.
    #[must_use]
    pub fn recording() -> Self {
        Self { calls: Some(Vec::new()), ..Self::default() }
    }

    /// The effect on this call, and whether [`Effect::Meanwhile`] is due before it.
    fn strike(&mut self, call: Call) -> (bool, Option<Effect>) {
        if let Some(calls) = &mut self.calls {
            calls.push(call);
        }
        let mut meanwhile = false;
        let mut struck = None;
        for (fault, seen) in self.faults.iter().zip(&mut self.seen) {
            if fault.call.is_none_or(|wanted| wanted == call) {
                *seen += 1;
                if *seen > fault.after && *seen - fault.after <= fault.times {
                    match fault.effect {
                        Effect::Meanwhile => meanwhile = true,
                        effect if struck.is_none() => struck = Some(effect),
                        _ => continue,
                    }
                    self.fired += 1;
                }
            }
        }
        (meanwhile, struck)
    }
}

static ACTIVE: AtomicBool = AtomicBool::new(false);
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

/// Puts a plan into force for this whole process, and returns the one that was.
pub fn install(plan: Option<Plan>) -> Option<Plan> {
    ACTIVE.store(plan.is_some(), Ordering::SeqCst);
    std::mem::replace(&mut *PLAN.lock().unwrap_or_else(PoisonError::into_inner), plan)
}

/// Asks the plan in force; the default without one.
#[inline]
fn asked<T: Default>(ask: impl FnOnce(&mut Plan) -> T) -> T {
    if !ACTIVE.load(Ordering::Relaxed) {
        return T::default();
    }
    PLAN.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(ask).unwrap_or_default()
}

/// How many faults of the plan in force have struck.
#[must_use]
pub fn fired() -> u64 {
    asked(|plan| plan.fired)
}

/// Does the plan in force have no file system know RENAME_NOREPLACE?
#[inline]
pub fn lacks_noreplace() -> bool {
    asked(|plan| plan.lacks_noreplace)
}

/// What a call is to do, as the plan has it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Verdict {
    /// At most this many bytes.
    pub short: Option<usize>,
    /// A sync is to be said to have been made, and not to be made.
    pub skip: bool,
    kill_after: bool,
}

impl Verdict {
    /// To be said when the call has been made.
    pub fn made(self) {
        if self.kill_after {
            die_between_changes();
        }
    }
}

/// Asks the plan about a call that is about to be made.
#[inline]
pub fn before(call: Call) -> Result<Verdict, Errno> {
    if ACTIVE.load(Ordering::Relaxed) { planned(call) } else { Ok(Verdict::default()) }
}

#[cold]
fn planned(call: Call) -> Result<Verdict, Errno> {
    make_late_syncs();
    let (due, struck) = asked(|plan| plan.strike(call));
    if due {
        // Not under the lock: it may make calls itself, while other threads make theirs.
        if let Some(mut meanwhile) = asked(|plan| plan.meanwhile.take()) {
            {
                let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
                IS_CHANGING.set(true);
                (meanwhile.0)();
                IS_CHANGING.set(false);
            }
            asked(|plan| plan.meanwhile = Some(meanwhile));
        }
    }
    match struck {
        None | Some(Effect::Meanwhile) => Ok(Verdict::default()),
        Some(Effect::Errno(errno)) => Err(Errno::from_raw_os_error(errno)),
        Some(Effect::Short(most)) => Ok(Verdict { short: Some(most), ..Verdict::default() }),
        Some(Effect::Skip) => Ok(Verdict { skip: true, ..Verdict::default() }),
        Some(Effect::Kill) => die_between_changes(),
        Some(Effect::KillAfter) => Ok(Verdict { kill_after: true, ..Verdict::default() }),
    }
}

/// Must this check be made? False if the plan leaves it out: then it counts as passed.
#[inline]
#[must_use]
pub fn enforced(check: Check) -> bool {
    !leaves_out(Safeguard::Check(check))
}

/// Does the plan leave this out?
#[inline]
#[must_use]
pub fn leaves_out(safeguard: Safeguard) -> bool {
    asked(|plan| {
        if plan.kill_at.is_some_and(|barrier| safeguard == Safeguard::Barrier(barrier)) {
            die();
        }
        let left_out = plan.left_out == Some(safeguard);
        if let (true, Some(mark)) = (left_out, &plan.mark) {
            let _ = rustix::io::write(mark, b".");
        }
        left_out
    })
}

/// Does the plan leave this sync out, of a file or with `all` of its file system? A late one is made after the step.
#[inline]
#[must_use]
pub fn leaves_out_sync(barrier: Barrier, file: BorrowedFd<'_>, all: bool) -> bool {
    let left_out = leaves_out(Safeguard::Barrier(barrier));
    if left_out {
        asked(|plan| {
            if let (true, Ok(file)) = (plan.late, file.try_clone_to_owned()) {
                plan.deferred.push((file, all));
            }
        });
    }
    left_out
}

/// Says that a step comes next that rests on syncs, and what it is about.
#[inline]
pub fn comes_to(before: Moment, about: impl FnOnce() -> Vec<PathBuf>) {
    asked(|plan| {
        if let Some(unsynced) = &plan.unsynced {
            let paths = unsynced.iter().filter_map(path_of).collect();
            plan.steps.push(Unsynced { before, about: about(), paths });
        }
        let awaited =
            matches!(plan.left_out, Some(Safeguard::Barrier(barrier)) if barrier.before() == before);
        if awaited && plan.late {
            plan.since_step = Some(0);
        }
    });
}

/// The path of what a name in an open directory is.
#[must_use]
pub fn path_at(directory: BorrowedFd<'_>, name: &std::ffi::OsStr) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap_or_default().join(name)
}

/// The path of what is open, unless it has been removed.
fn path_of(file: &OwnedFd) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    (!path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)")).then_some(path)
}

/// Makes the syncs that are late, once the step's own call has been made.
fn make_late_syncs() {
    let due = asked(|plan| match &mut plan.since_step {
        Some(0) => {
            plan.since_step = Some(1);
            Vec::new()
        }
        Some(_) => {
            plan.since_step = None;
            std::mem::take(&mut plan.deferred)
        }
        None => Vec::new(),
    });
    for (file, all) in due {
        let made = if all { rustix::fs::syncfs(&file) } else { rustix::fs::fsync(&file) };
        if made.is_ok() {
            durable(file.as_fd(), all);
            synced(file.as_fd(), false);
        }
    }
}

/// Whether syncfs(2) is trusted, as far as the plan is concerned.
#[must_use]
pub fn syncfs_vouches() -> Option<bool> {
    asked(|plan| plan.syncfs_vouches)
}

/// Does the plan report this file's data as a hole?
#[must_use]
pub fn hides_data(file: BorrowedFd<'_>) -> bool {
    asked(|plan| {
        let synced = |sync: &Synced| !sync.failed && inode(sync.file.as_fd()) == inode(file);
        plan.hide_unsynced_data && !plan.syncs.iter().flatten().any(synced)
    })
}

fn inode(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    rustix::fs::fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Tells the plan that a file or directory was changed: [`Plan::unsynced`].
#[inline]
pub fn changed(file: BorrowedFd<'_>) {
    with_unsynced(|unsynced| {
        let known = unsynced.iter().any(|other| inode(other.as_fd()) == inode(file));
        if let (false, Ok(file)) = (known, file.try_clone_to_owned()) {
            unsynced.push(file);
        }
    });
}

/// Tells the plan that a file or directory is durable, or with `all` its file system.
#[inline]
pub fn durable(file: BorrowedFd<'_>, all: bool) {
    with_unsynced(|unsynced| {
        let this = inode(file);
        unsynced.retain(|other| {
            let other = inode(other.as_fd());
            let same = other.map(|(device, _)| device) == this.map(|(device, _)| device);
            !(same && (all || other == this))
        });
    });
}

fn with_unsynced(work: impl FnOnce(&mut Vec<OwnedFd>)) {
    asked(|plan| plan.unsynced.as_mut().map_or((), work));
}

/// Tells the plan how the sync of one file ended: [`Plan::syncs`].
#[inline]
pub fn synced(file: BorrowedFd<'_>, failed: bool) {
    asked(|plan| {
        if let (Some(syncs), Ok(file)) = (&mut plan.syncs, file.try_clone_to_owned()) {
            syncs.push(Synced { file, failed });
        }
    });
}

/// Held while [`Plan::meanwhile`] runs.
static CHANGING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread runs it, and so is in the middle of a change itself.
    static IS_CHANGING: Cell<bool> = const { Cell::new(false) };
}

/// The world's changes are another process's, which does not die with this one: what a thread has begun of them is done first.
fn die_between_changes() -> ! {
    let _whole = (!IS_CHANGING.get()).then(|| CHANGING.lock());
    die()
}

fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}
