//! The process that is struck: this binary, run again with an order in its environment.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stage::fault::{self, Call, Effect, Fault, Meanwhile, Plan};
use stage::{JobSpec, JobStatus, Level, State};
use stage_service::{Mover, MoverConfig};

const VARIABLE: &str = "FLASHWRIGHT_CRASH_ORDER";

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

/// What somebody else does to the files between two calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Change {
    /// Bytes are written over what is there; time of modification is set back to what it was where asked.
    Write { path: stage::names::PathText, offset: u64, bytes: Vec<u8>, keep_times: bool },
    /// The length is set.
    Truncate { path: stage::names::PathText, bytes: u64 },
    /// A file goes.
    Remove { path: stage::names::PathText },
    /// A directory goes with all in it.
    RemoveAll { path: stage::names::PathText },
    /// A name is given to something else.
    Rename { from: stage::names::PathText, to: stage::names::PathText },
    /// A symbolic link is made.
    Symlink { path: stage::names::PathText, target: stage::names::PathText },
    /// A new file is made.
    Create { path: stage::names::PathText, bytes: Vec<u8> },
    /// There is nothing of this name, or the changes end here.
    Absent { path: stage::names::PathText },
    /// Parts in a directory are renamed away, and a directory with a file of these bytes has the name of each. Where there
    /// is none, the changes end here.
    SwapPart { directory: stage::names::PathText, bytes: Vec<u8> },
    /// A directory with a file of these bytes is made and then renamed to a name.
    Plant { made: stage::names::PathText, to: stage::names::PathText, bytes: Vec<u8> },
    /// A file is made and synced by itself.
    Sync { path: stage::names::PathText },
    /// A bit changes in the file of this name below, or in the only file where the name is empty; a link leads elsewhere.
    Rot { below: stage::names::PathText, name: String },
    /// Every file below that is copied with others in a batch is held open, and its inode is told in the report.
    Hold { path: stage::names::PathText },
}

impl Change {
    pub fn make(&self) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        match self {
            Self::Write { path, offset, bytes, keep_times } => {
                let file = File::options().write(true).open(&path.0)?;
                let before = file.metadata()?;
                file.write_all_at(bytes, *offset)?;
                if *keep_times {
                    file.set_modified(before.modified()?)?;
                }
                Ok(())
            }
            Self::Truncate { path, bytes } => File::options().write(true).open(&path.0)?.set_len(*bytes),
            Self::Remove { path } => fs::remove_file(&path.0),
            Self::RemoveAll { path } => fs::remove_dir_all(&path.0),
            Self::Rename { from, to } => fs::rename(&from.0, &to.0),
            Self::Symlink { path, target } => std::os::unix::fs::symlink(&target.0, &path.0),
            Self::Create { path, bytes } => fs::write(&path.0, bytes),
            Self::Absent { path } if fs::symlink_metadata(&path.0).is_ok() => {
                Err(std::io::ErrorKind::AlreadyExists.into())
            }
            Self::Absent { .. } => Ok(()),
            Self::SwapPart { directory, bytes } => swap_part(&directory.0, bytes),
            Self::Plant { made, to, bytes } => {
                fs::create_dir(&made.0)?;
                fs::write(made.0.join("planted"), bytes)?;
                fs::rename(&made.0, &to.0).or_else(|_| {
                    // Another file system.
                    fs::create_dir(&to.0)?;
                    fs::write(to.0.join("planted"), bytes)
                })
            }
            Self::Sync { path } => {
                fs::write(&path.0, b"sentinel")?;
                File::open(&path.0)?.sync_all()
            }
            Self::Rot { below, name } => {
                if rot(&below.0, name)? {
                    Ok(())
                } else {
                    Err(std::io::ErrorKind::NotFound.into())
                }
            }
            Self::Hold { path } => hold(&path.0),
        }
    }
}

fn swap_part(directory: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let part = fs::read_dir(directory)?
        .flatten()
        .find(|one| stage::names::is_part(&one.file_name()) && !one.path().join("planted").exists())
        .ok_or(std::io::ErrorKind::NotFound)?;
    fs::rename(part.path(), directory.join(format!("taken-{}", part.file_name().len())))?;
    fs::create_dir(part.path())?;
    fs::write(part.path().join("planted"), bytes)
}

fn rot(below: &Path, name: &str) -> std::io::Result<bool> {
    use std::os::unix::fs::FileExt;
    for one in fs::read_dir(below)? {
        let path = one?.path();
        let kind = fs::symlink_metadata(&path)?.file_type();
        let wanted = path.file_name().is_some_and(|its| name.is_empty() || its == name);
        if kind.is_dir() {
            // The checkpoint before is nobody's copy.
            if !path.ends_with("ckpt-6") && rot(&path, name)? {
                return Ok(true);
            }
        } else if wanted && kind.is_symlink() {
            fs::remove_file(&path)?;
            std::os::unix::fs::symlink("elsewhere", &path)?;
            return Ok(true);
        } else if wanted && kind.is_file() {
            let file = File::options().read(true).write(true).open(&path)?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, 5)?;
            file.write_all_at(&[byte[0] ^ 4], 5)?;
            return Ok(true);
        }
    }
    Ok(false)
}

static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

fn hold(path: &Path) -> std::io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        for one in fs::read_dir(path)? {
            hold(&one?.path())?;
        }
    } else if metadata.is_file() && metadata.len() < 4 << 20 {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).push(File::open(path)?);
    }
    Ok(())
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
    /// No file system's syncfs is trusted.
    pub distrust: bool,
    /// renameat2(2) does not know RENAME_NOREPLACE.
    pub lacks_noreplace: bool,
    /// Data that was not synced is reported as a hole.
    pub hide: bool,
    /// The barrier at which the child dies.
    pub kill_at: Option<String>,
    /// What was changed and not synced is listed.
    pub strict: bool,
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
            distrust: false,
            lacks_noreplace: false,
            hide: false,
            kill_at: None,
            strict: false,
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

/// What a child that lived to its end has to tell.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Each call in order, by its name.
    pub calls: Vec<String>,
    /// Faults that struck.
    pub fired: u64,
    /// Files and directories that were changed and not synced, and have a name still.
    pub unsynced: Vec<String>,
    /// How often the barrier or check was left out.
    pub times_left_out: u64,
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
    if fs::hard_link(&this, &binary).is_err() {
        fs::copy(&this, &binary)?;
    }
    let mut command = command_of(&binary, order);
    command.uid(uid).gid(gid);
    command.current_dir("/");
    Command::new(&binary).arg("--list").stdout(Stdio::null()).uid(uid).gid(gid).status()?;
    Ok(finish(command, order))
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
    let mut plan = Plan::new(order.strikes.iter().map(Strike::fault));
    plan.calls = Some(Vec::new());
    plan.lacks_noreplace = order.lacks_noreplace || crate::LIKE_NFS;
    plan.syncs = Some(Vec::new());
    plan.distrust_syncfs = order.distrust || crate::LIKE_NFS;
    plan.hide_unsynced_data = order.hide;
    plan.kill_at = order.kill_at.as_deref().map(|word| fault::Barrier::parse(word).expect("a barrier"));
    plan.unsynced = order.strict.then(Vec::new);
    plan.left_out = order.left_out.as_deref().map(|word| {
        let barrier = fault::Barrier::parse(word).map(fault::Safeguard::Barrier);
        let check = || fault::Check::parse(word).map(fault::Safeguard::Check);
        barrier.or_else(check).unwrap_or_else(|| panic!("no barrier or check {word}"))
    });
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
    report.times_left_out = plan.times_left_out;
    report.unsynced = plan.unsynced.iter().flatten().filter_map(name_of).collect();
    report.calls = plan.calls.iter().flatten().map(|call| format!("{call:?}")).collect();
    tell_syncs(&mut report, plan.syncs.unwrap_or_default(), &order);
    report.held = HELD
        .lock()
        .unwrap()
        .iter()
        .filter_map(|file| file.metadata().ok())
        .map(|metadata| (metadata.dev(), metadata.ino()))
        .collect();
    report.change_failed = failure.lock().unwrap().take();
    report.most_resident = most_resident();
    fs::write(&order.report, serde_json::to_vec(&report).expect("a report is a document"))
        .expect("room for it");
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

/// Reads what is stored, and takes no journal's word.
struct Reading;

impl stage::owned::Record for Reading {}

impl stage::retention::Witness for Reading {
    fn vouches(&self, _: &Path, _: &stage::Place) -> Result<bool, stage::StageError> {
        Ok(false)
    }

    fn may_read(&self) -> bool {
        true
    }
}

fn evict(set: &Path, slow: &Path) -> Result<(), stage::StageError> {
    let slow = stage::tier::directory::Directory::open(slow)?;
    let (fast, name) = (set.parent().expect("a directory"), set.file_name().expect("a name"));
    stage::retention::evict(fast, &slow, name, &Reading, &stage::pace::Stop::new())
}

fn carry_out(
    order: &Order,
    submitted: &mut Option<stage::JobId>,
    again: &mut Option<stage::JobId>,
) -> Result<Vec<JobStatus>, stage::StageError> {
    if let Some((set, slow)) = &order.evict {
        return evict(set, slow).map(|()| Vec::new());
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

/// The path of what is open, unless it has been removed.
fn name_of(file: &OwnedFd) -> Option<String> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?.display().to_string();
    (!path.ends_with(" (deleted)")).then_some(path)
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
