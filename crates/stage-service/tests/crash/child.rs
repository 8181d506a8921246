//! The process that is struck: this binary, run again with an order in its environment.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stage::fault::{self, Call, Effect, Fault, Meanwhile, Plan, Safeguard};
use stage::{JobSpec, JobStatus, Level, State};
use stage_service::{Mover, MoverConfig};

use crate::device;

#[path = "child/change.rs"]
pub mod change;

pub use change::Change;

const VARIABLE: &str = "FLASHWRIGHT_CHILD_CRASH";

/// All calls, so that they can be named in an order.
const CALLS: [Call; 24] = [
    Call::Openat,
    Call::Mkdirat,
    Call::Fallocate,
    Call::Read,
    Call::Write,
    Call::Fdatasync,
    Call::Fsync,
    Call::Syncfs,
    Call::SyncFileRange,
    Call::Ftruncate,
    Call::Fchown,
    Call::Fchmod,
    Call::Utimens,
    Call::Setxattr,
    Call::Getxattr,
    Call::Renameat,
    Call::Unlinkat,
    Call::Linkat,
    Call::Symlinkat,
    Call::Statx,
    Call::Getdents,
    Call::Lseek,
    Call::Ficlone,
    Call::Journal,
];

/// A call by its name.
pub fn call(name: &str) -> Call {
    CALLS.into_iter().find(|call| format!("{call:?}") == name).unwrap_or_else(|| panic!("no call {name}"))
}

/// [`Effect`], as an order says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hit {
    Errno(i32),
    Short(usize),
    Kill,
    KillAfter,
    Skip,
    Meanwhile,
}

/// [`Fault`], as an order says it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Strike {
    /// Any call where it is none.
    pub call: Option<String>,
    pub after: u64,
    pub times: u64,
    pub hit: Hit,
}

impl Strike {
    /// The `n`th of all calls, from 0.
    pub fn nth(n: u64, hit: Hit) -> Self {
        Self { call: None, after: n, times: 1, hit }
    }

    /// The `n`th call of its kind, from 0.
    pub fn nth_of(call: Call, n: u64, hit: Hit) -> Self {
        Self { call: Some(format!("{call:?}")), after: n, times: 1, hit }
    }

    fn fault(&self) -> Fault {
        let effect = match self.hit {
            Hit::Errno(errno) => Effect::Errno(errno),
            Hit::Short(bytes) => Effect::Short(bytes),
            Hit::Kill => Effect::Kill,
            Hit::KillAfter => Effect::KillAfter,
            Hit::Skip => Effect::Skip,
            Hit::Meanwhile => Effect::Meanwhile,
        };
        Fault { call: self.call.as_deref().map(call), after: self.after, times: self.times, effect }
    }
}

/// What a child is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub state: PathBuf,
    /// What is submitted, unless there is a job in the journal already.
    pub spec: Option<JobSpec>,
    /// Failed jobs are begun again.
    pub retry: bool,
    /// It is submitted even if there are jobs in the journal.
    pub again: bool,
    /// It is submitted once more right after the changes were made, while the job is at work.
    pub again_after_change: bool,
    pub threads: usize,
    pub strikes: Vec<Strike>,
    pub changes: Vec<Change>,
    /// Only the jobs' first step towards this level is waited for, and standard output says when it is reached.
    pub say: Option<Level>,
    /// No plan at all: nothing is struck and no call remembered, which would take memory.
    pub quiet: bool,
    /// The barrier or check that is left out, by its word.
    pub left_out: Option<String>,
    /// What is left out is made after the step that it has to come before.
    pub late: bool,
    /// Gets a byte each time that something is left out.
    pub mark: Option<PathBuf>,
    /// No file system's syncfs is trusted.
    pub distrust: bool,
    /// Every file system's syncfs is trusted.
    pub trust: bool,
    /// renameat2(2) does not know RENAME_NOREPLACE.
    pub lacks_noreplace: bool,
    /// Data that was not synced is reported as a hole.
    pub hide: bool,
    /// The barrier at which the child dies.
    pub kill_at: Option<String>,
    /// What was changed and not synced is listed, at each step that rests on syncs.
    pub strict: bool,
    /// Files and directories that others have changed and not synced.
    pub dirty: Vec<stage::names::PathText>,
    /// This fast copy is evicted for the copy of its name in that directory, and nothing else is done.
    pub evict: Option<(PathBuf, PathBuf)>,
    report: PathBuf,
}

impl Order {
    /// Submit and carry out, with nothing in the way.
    pub fn to(state: &Path, spec: &JobSpec) -> Self {
        Self { spec: Some(spec.clone()), ..Self::go_on(state) }
    }

    /// Go on with what is in the journal.
    pub fn go_on(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            spec: None,
            retry: false,
            again: false,
            again_after_change: false,
            threads: 1,
            strikes: Vec::new(),
            changes: Vec::new(),
            say: None,
            quiet: false,
            left_out: None,
            late: false,
            mark: None,
            distrust: false,
            trust: false,
            lacks_noreplace: false,
            hide: false,
            kill_at: None,
            strict: false,
            dirty: Vec::new(),
            evict: None,
            report: state.with_extension("report"),
        }
    }

    /// With more than one thread the calls of a run are not those of the next, in their order.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    pub fn strike(mut self, strikes: impl IntoIterator<Item = Strike>) -> Self {
        self.strikes.extend(strikes);
        self
    }

    /// Syncs every file by itself, as on NFS.
    pub fn distrustful(mut self) -> Self {
        self.distrust = true;
        self
    }

    pub fn meanwhile(mut self, changes: impl IntoIterator<Item = Change>) -> Self {
        self.changes.extend(changes);
        self
    }
}

impl Order {
    /// What the child that was given this order has left.
    pub fn report(&self) -> Report {
        serde_json::from_slice(&fs::read(&self.report).expect("the child left a report")).expect("a report")
    }
}

/// [`fault::Unsynced`], as a report says it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// [`fault::Moment::word`].
    pub before: String,
    pub about: Vec<stage::names::PathText>,
    pub unsynced: Vec<stage::names::PathText>,
}

/// What a child that lived to its end has to tell.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Each call in order, by its name.
    pub calls: Vec<String>,
    /// Faults that struck.
    pub fired: u64,
    /// What was changed and not synced at each step that rests on syncs.
    pub steps: Vec<Step>,
    /// The job that the request became, or was already.
    pub submitted: Option<stage::JobId>,
    /// The same of the request after the changes.
    pub again: Option<stage::JobId>,
    /// Why the mover did not open, or did not take the job.
    pub refused: Option<stage::job::Why>,
    pub jobs: Vec<JobStatus>,
    /// Files and directories whose sync failed: device and inode. Not the directories of source and destination.
    pub failed_syncs: Vec<(u64, u64)>,
    /// Those of them that were synced again.
    pub synced_again: Vec<(u64, u64)>,
    /// Files of [`Change::Hold`].
    pub held: Vec<(u64, u64)>,
    /// A change that could not be made.
    pub change_failed: Option<String>,
    /// Most memory that was resident, bytes.
    pub most_resident: u64,
}

impl Report {
    /// The job, of which there is one.
    pub fn job(&self) -> &JobStatus {
        match &self.jobs[..] {
            [job] => job,
            jobs => panic!("one job expected, not {jobs:?}; refused: {:?}", self.refused),
        }
    }
}

/// How a child ended.
#[derive(Debug)]
pub enum Ended {
    /// By SIGKILL.
    Killed,
    /// With a report.
    Told(Box<Report>),
}

impl Ended {
    pub fn told(self) -> Report {
        match self {
            Self::Told(report) => *report,
            Self::Killed => panic!("the child was killed, and no fault was to do that"),
        }
    }
}

/// The command that runs a child.
pub fn command(order: &Order) -> Command {
    command_of(&std::env::current_exe().expect("this binary has a path"), order)
}

fn command_of(binary: &Path, order: &Order) -> Command {
    // In a file, because a string of the environment has 128 KiB at most: execve(2).
    let written = order.report.with_extension("order");
    fs::write(&written, serde_json::to_vec(order).expect("an order is a document")).expect("room for it");
    let mut command = Command::new(binary);
    command
        .args(["child::does_as_it_is_told", "--exact", "--nocapture", "--test-threads=1", "--quiet"])
        .env(VARIABLE, &written)
        .stdin(Stdio::null());
    command
}

/// Runs a child to its end.
pub fn run(order: &Order) -> Ended {
    finish(command(order), order)
}

/// Runs a child to its end with somebody else's rights.
///
/// # Errors
/// This binary is where they may not execute it.
pub fn run_as(order: &Order, uid: u32, gid: u32) -> std::io::Result<Ended> {
    // Build directories are often closed to others.
    let place = tempfile::Builder::new().prefix("flashwright-as").tempdir()?;
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let binary = place.path().join("crash");
    let this = std::env::current_exe()?;
    // Copied by another process: what this one has open for writing, children of other threads inherit, and cannot be executed.
    if fs::hard_link(&this, &binary).is_err() {
        let made = device::tool("install").args(["-m", "755"]).args([&this, &binary]).status()?;
        assert!(made.success(), "install: {made}");
    }
    // Another user's rights by a program: the standard library would fork this process, whose drives are gigabytes of memory.
    let with_rights_of = |command: &Command| {
        let mut other = device::tool("setpriv");
        other.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
        other.arg(command.get_program()).args(command.get_args()).current_dir("/");
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
        other
    };
    let listed = with_rights_of(Command::new(&binary).arg("--list")).stdout(Stdio::null()).status()?;
    if !listed.success() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    Ok(finish(with_rights_of(&command_of(&binary, order)), order))
}

fn finish(mut command: Command, order: &Order) -> Ended {
    let _ = fs::remove_file(&order.report);
    let output = command.output().expect("this binary runs");
    if output.status.signal() == Some(9) {
        return Ended::Killed;
    }
    let text = fs::read(&order.report).unwrap_or_else(|error| {
        panic!(
            "the child left no report ({error}) and ended with {}:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    Ended::Told(Box::new(serde_json::from_slice(&text).expect("a report is a document")))
}

/// Not a test of its own: what a child does. Without an order there is nothing to do.
#[test]
fn does_as_it_is_told() {
    let Some(written) = std::env::var_os(VARIABLE) else { return };
    let order = fs::read(written).expect("the order that was written");
    let order: Order = serde_json::from_slice(&order).expect("an order is a document");
    let mut plan = plan_of(&order);
    let failure = std::sync::Arc::new(Mutex::new(None));
    let (changes, failed) = (order.changes.clone(), failure.clone());
    plan.meanwhile = Some(Meanwhile(Box::new(move || {
        // Whoever asks again is let in before the call that this is about.
        let _changed = Changed;
        for change in &changes {
            if let Err(error) = change.make() {
                *failed.lock().unwrap() = Some(format!("{change:?}: {error}"));
                return;
            }
        }
    })));
    fault::install((!order.quiet).then_some(plan));
    let mut report = Report::default();
    match carry_out(&order, &mut report.submitted, &mut report.again) {
        Ok(jobs) => report.jobs = jobs,
        Err(error) => report.refused = Some(stage::job::Why::of(&error)),
    }
    report.fired = fault::fired();
    let plan = fault::install(None).unwrap_or_default();
    let texts = |paths: Vec<PathBuf>| paths.into_iter().map(stage::names::PathText).collect();
    let dirty = plan.steps.into_iter().filter(|step| !step.paths.is_empty());
    let steps = dirty.map(|step| Step {
        before: step.before.word().to_owned(),
        about: texts(step.about),
        unsynced: texts(step.paths),
    });
    report.steps = steps.collect();
    report.calls = plan.calls.iter().flatten().map(|call| format!("{call:?}")).collect();
    tell_syncs(&mut report, plan.syncs.unwrap_or_default(), &order);
    report.held = change::held();
    report.change_failed = failure.lock().unwrap().take();
    report.most_resident = most_resident();
    fs::write(&order.report, serde_json::to_vec(&report).expect("a report is a document"))
        .expect("room for it");
}

/// The plan of an order, but for what happens meanwhile.
fn plan_of(order: &Order) -> Plan {
    let mut plan = Plan::new(order.strikes.iter().map(Strike::fault));
    plan.calls = Some(Vec::new());
    plan.lacks_noreplace = order.lacks_noreplace || crate::LIKE_NFS;
    plan.syncs = Some(Vec::new());
    plan.syncfs_vouches = (order.distrust || order.trust || crate::LIKE_NFS).then_some(order.trust);
    plan.hide_unsynced_data = order.hide;
    plan.kill_at = order.kill_at.as_deref().map(|word| fault::Barrier::parse(word).expect("a barrier"));
    plan.unsynced = order.strict.then(|| {
        let open = |path: &stage::names::PathText| File::open(&path.0).ok().map(OwnedFd::from);
        order.dirty.iter().filter_map(open).collect()
    });
    plan.late = order.late;
    plan.mark = order.mark.as_ref().map(|path| {
        File::options().append(true).create(true).open(path).expect("there is room for a mark").into()
    });
    plan.left_out = order.left_out.as_deref().map(|word| {
        let barrier = fault::Barrier::parse(word).map(Safeguard::Barrier);
        let check = || fault::Check::parse(word).map(Safeguard::Check);
        barrier.or_else(check).unwrap_or_else(|| panic!("no barrier or check {word}"))
    });
    plan
}

static CHANGED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Says so when the changes have been made, and gives a request that follows them time to come in.
struct Changed;

impl Drop for Changed {
    fn drop(&mut self) {
        CHANGED.store(true, std::sync::atomic::Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn evict(state: &Path, set: &Path, slow: &Path) -> Result<(), stage::StageError> {
    let journal = stage::journal::Journal::open(state)?;
    stage::retention::restore(&journal)?;
    let slow = stage::tier::directory::Directory::open(slow)?;
    let (fast, name) = (set.parent().expect("a directory"), set.file_name().expect("a name"));
    let witness = stage::retention::OrReading(&journal);
    stage::retention::evict(fast, &slow, name, &witness, &stage::pace::Stop::new())
}

fn carry_out(
    order: &Order,
    submitted: &mut Option<stage::JobId>,
    again: &mut Option<stage::JobId>,
) -> Result<Vec<JobStatus>, stage::StageError> {
    if let Some((set, slow)) = &order.evict {
        return evict(&order.state, set, slow).map(|()| Vec::new());
    }
    let mover = Mover::open(&MoverConfig {
        jobs: 1,
        threads: order.threads,
        tiers: stage_object::tiers(),
        ..MoverConfig::new(&order.state)
    })?;
    let before: Vec<_> = mover.status(None)?;
    if order.retry {
        for job in before.iter().filter(|job| job.state == State::Failed) {
            mover.retry(job.id)?;
        }
    }
    if let (Some(spec), true) = (&order.spec, before.is_empty() || order.again) {
        let id = mover.submit(spec.clone())?;
        *submitted = Some(id);
        if let Some(level) = order.say {
            let status = mover.wait(id, level, None)?;
            println!("\ncrash-child: {} {}", status.level.word(), status.state.word());
        }
    }
    loop {
        if let (true, None, Some(spec)) = (order.again_after_change, *again, &order.spec)
            && CHANGED.load(std::sync::atomic::Ordering::SeqCst)
        {
            *again = Some(mover.submit(spec.clone())?);
        }
        let jobs = mover.status(None)?;
        if jobs.iter().all(|job| job.state.is_final()) {
            mover.stop();
            return mover.status(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn tell_syncs(report: &mut Report, syncs: Vec<fault::Synced>, order: &Order) {
    // What cannot be made anew.
    let places = order.spec.iter().flat_map(|spec| [spec.source.path(), spec.destination.path()]).flatten();
    let parents = places.filter_map(Path::parent).chain([order.state.as_path()]);
    let kept: Vec<_> =
        parents.filter_map(|path| fs::metadata(path).ok()).map(|one| (one.dev(), one.ino())).collect();
    let identity = |file: &OwnedFd| {
        let metadata = File::from(file.try_clone().ok()?).metadata().ok()?;
        let inode = (metadata.dev(), metadata.ino());
        (!kept.contains(&inode)).then_some(inode)
    };
    for sync in &syncs {
        let Some(file) = identity(&sync.file) else { continue };
        if report.failed_syncs.contains(&file) {
            report.synced_again.push(file);
        }
        if sync.failed {
            report.failed_syncs.push(file);
        }
    }
}

/// VmHWM of proc(5).
fn most_resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}
