//! Makes what is to be made, runs the groups, and undoes what was only for the run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::acts::made::{Removed, is_among_devices};
use bench::acts::{self, Act, ActError, Faults, Names, Nothing, OnFile};
use bench::problem::Problem;
use bench::run::cohorts::{Arranged, Arrangement, run_arranged};
use bench::run::conduct::Aside;
use bench::target::{BenchTarget, TargetOptions};
use bench::{Progress, RunOptions, precondition, saturation, scratch};
use measure::RunRecord;
use measure::precondition::Preconditioned;
use measure::saturation::Saturation;
use storage::device::{self, DeviceSpec, OpenOptions};
use storage::memory::FaultingMemory;
use sweep::store::now_unix_ns;

use super::request::{self, Job, Missing, Request};
use super::{live, prepare};
use crate::failure::Failure;
use crate::{output, paint};

/// What came of a request.
#[derive(Debug)]
pub struct Run<'r> {
    /// The jobs that ran, in their order.
    pub done: Vec<Done<'r>>,
    /// Whether somebody asked to stop.
    pub interrupted: bool,
    /// Why it did not go on.
    pub failure: Option<Failure>,
    /// When it began, nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// When it ended, likewise.
    pub finished_unix_ns: u64,
}

/// A job that ran.
#[derive(Debug)]
pub struct Done<'r> {
    /// What was asked.
    pub job: &'r Job,
    /// Number of its group, from 0.
    pub group: usize,
    /// What was seen.
    pub record: RunRecord,
    /// What there is beside.
    pub aside: Aside,
}

/// Runs a request. An error before anything ran is returned as such; one after that comes with what was
/// measured until then.
pub fn run<'r>(request: &'r Request, stop: &Arc<AtomicBool>, live: bool) -> Result<Run<'r>, Failure> {
    let live = live || output::is_watched();
    for note in request::notes(request) {
        output::tell(&format!("{} {note}\n", paint::warn("note:")));
    }
    let mut bench = Bench::prepare(request, stop, live)?;
    let mut run = Run {
        done: Vec::new(),
        interrupted: false,
        failure: None,
        started_unix_ns: now_unix_ns(),
        finished_unix_ns: 0,
    };
    bench.prepare_target(request)?;
    for (number, group) in request.groups.iter().enumerate() {
        let longest = group.iter().map(|job| job.workload.runtime).max().flatten();
        let say = |progress: &Progress| live::say(progress, longest);
        let progress = live.then_some(&say as &dyn Fn(&Progress));
        let options = RunOptions { progress, ..RunOptions::default() };
        match bench.group(group, request.jobs().count() > 1, options) {
            Ok(arranged) => {
                let records = group.iter().zip(arranged.records).zip(arranged.asides);
                let done = |((job, record), aside): ((_, Option<_>), _)| {
                    Some(Done { job, group: number, record: record?, aside })
                };
                run.done.extend(records.filter_map(done));
                run.interrupted |= arranged.interrupted;
                if arranged.ends_everything {
                    break;
                }
            }
            Err(failure) => run.failure = Some(failure),
        }
        if run.interrupted || run.failure.is_some() {
            break;
        }
    }
    run.finished_unix_ns = now_unix_ns();
    Ok(run)
}

/// Draws the write-saturation curve that a request asks for.
pub fn saturate(
    request: &Request,
    plan: &saturation::Plan,
    stop: &Arc<AtomicBool>,
    live: bool,
) -> Result<(RunRecord, Saturation), Failure> {
    let live = live || output::is_watched();
    let mut bench = Bench::prepare(request, stop, live)?;
    let done = bench.prepare_target(request)?;
    let purge = done.and_then(|done| done.purge.clone());
    let job = request.jobs().next().expect("a workload was read");
    let tell = |seen: &saturation::Seen| {
        if live {
            live::say_saturation(seen, plan.time);
        }
    };
    let target = bench.targets.get_mut(job.target.as_str()).expect("prepared for each job");
    let curve = saturation::run(target, &job.workload, plan, purge, stop, &tell);
    curve.map_err(|problem| bench.told(problem, job))
}

/// The targets of a request, open as long as it runs.
pub(super) struct Bench<'r> {
    targets: BTreeMap<&'r str, BenchTarget>,
    /// What jobs work on that have no target, by the number of their first thread.
    acts: BTreeMap<u64, Arc<dyn device::Device>>,
    stop: &'r Arc<AtomicBool>,
    live: bool,
    /// Files that were made for jobs which want them gone afterwards.
    unlink: Removed,
}

impl<'r> Bench<'r> {
    pub(super) fn prepare(
        request: &'r Request,
        stop: &'r Arc<AtomicBool>,
        live: bool,
    ) -> Result<Self, Failure> {
        let mut bench =
            Self { targets: BTreeMap::new(), acts: BTreeMap::new(), stop, live, unlink: Removed::default() };
        let options = TargetOptions {
            destroy: request.destroy.clone(),
            allow_unwritten: request.allow_unwritten,
            refuse_zeros: true,
            stop: Some(Arc::clone(stop)),
        };
        let mut names = Vec::new();
        request.groups.iter().try_for_each(|group| enough_memory(group)).map_err(Problem::from)?;
        for job in request.jobs() {
            if job.act() == Some(Act::Fault) {
                // Each group has fresh memory, which the ones before it have given back.
                continue;
            }
            if let (Some(act), Some(fio)) = (job.act_alone(), &job.fio) {
                let device = acted_on(act, job, fio, stop, &mut names).map_err(Problem::from)?;
                bench.acts.insert(fio.first_thread, device);
                continue;
            }
            if !bench.targets.contains_key(job.target.as_str()) {
                bench.make(request, job)?;
                bench.targets.insert(&job.target, BenchTarget::new(&job.target, options.clone())?);
            }
        }
        // Where a later section is refused, those that earlier ones have made are removed.
        names.iter().for_each(|names: &Arc<Names>| names.begin());
        Ok(bench)
    }

    /// Makes the target of `job` if it is a file that is not there.
    fn make(&mut self, request: &Request, job: &Job) -> Result<(), Failure> {
        let spec = DeviceSpec::parse(&job.target).map_err(Problem::from)?;
        if !spec.members().is_empty() {
            return self.make_members(request, job, &spec);
        }
        let Some((path, size, lay)) = to_be_made(request, job, &spec) else { return Ok(()) };
        let spec = DeviceSpec::File { path: path.clone(), size: Some(size) };
        let made = device::open(&spec, &OpenOptions { direct: false, ..OpenOptions::writing() });
        let device = made.map_err(Problem::from)?;
        let debris = debris(std::slice::from_ref(&path), &device)?;
        if lay {
            self.lay(&path, size, &device)?;
        }
        if self.live {
            output::tell(&format!(
                "{} made {}, {}\n",
                paint::dim("note:"),
                path.display(),
                units::bytes(size)
            ));
        }
        self.made_for(job, debris);
        Ok(())
    }

    /// Makes the files of a volume that are not there, if a job is going to write it or a job file says how large they
    /// are; and writes all of it, if a job is going to read it as well.
    fn make_members(&mut self, request: &Request, job: &Job, spec: &DeviceSpec) -> Result<(), Failure> {
        let missing = |leaf: &&DeviceSpec| match leaf {
            DeviceSpec::File { path, size: Some(_) } => std::fs::symlink_metadata(path).is_err(),
            _ => false,
        };
        let leaves = spec.leaves();
        let missing = leaves.iter().copied().filter(missing).filter_map(DeviceSpec::path);
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        let sharing = || request.jobs().filter(|other| other.target == job.target);
        let makes = |other: &Job| other.workload.rw.modifies() || matches!(other.missing, Missing::Lay(_));
        if missing.is_empty() || !sharing().any(makes) {
            return Ok(());
        }
        let options =
            OpenOptions { direct: false, destroy: request.destroy.clone(), ..OpenOptions::writing() };
        let device = volume::open(spec, &options).map_err(Problem::from)?;
        let debris = debris(&missing, &device)?;
        if sharing().any(|other| other.workload.rw.reads()) {
            self.lay(&missing[0], device.size(), &device)?;
        }
        self.made_for(job, debris);
        Ok(())
    }

    /// Leaves files that were made for a job where they are, or has them removed after the run.
    fn made_for(&mut self, job: &Job, files: Removed) {
        if job.fio.as_ref().is_some_and(|fio| fio.unlink) {
            files.hand_over(&mut self.unlink);
        } else {
            files.keep();
        }
    }

    /// Writes a file that is going to be read.
    fn lay(&self, path: &Path, size: u64, device: &Arc<dyn device::Device>) -> Result<(), Failure> {
        let bar = crate::sweep::watch::laying(path, size, self.live);
        let told = scratch::lay(device, size, self.stop, &|done, _| bar.set_position(done));
        bar.finish_and_clear();
        told.map_err(Problem::from)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::interrupted("interrupted before anything was measured"));
        }
        Ok(())
    }

    /// Brings the target into the state that was asked for; a request that asks for one has one job.
    fn prepare_target(&mut self, request: &Request) -> Result<Option<Arc<Preconditioned>>, Failure> {
        let (Some(plan), Some(job)) = (request.prepare, request.jobs().next()) else { return Ok(None) };
        let target = self.targets.get_mut(job.target.as_str()).expect("prepared for each job");
        let teller = prepare::Teller::new(&job.target, plan, self.live);
        let tell = |step| teller.tell(step);
        let watch = precondition::Watch { stop: self.stop, tell: &tell };
        let result = precondition::run(target, &job.workload, &plan, watch);
        drop(teller);
        result.map_err(|problem| match problem.class() == base::ErrorClass::Interrupted {
            true => Failure::interrupted("interrupted before anything was measured"),
            false => self.told(problem, job),
        })
    }

    /// Runs the jobs of a group at the same time. `progress` is called about once a second.
    pub(super) fn group(
        &mut self,
        group: &[Job],
        of_several: bool,
        options: RunOptions<'_>,
    ) -> Result<Arranged, Failure> {
        let mut jobs = Vec::new();
        for job in group {
            let prepared = self.prepared(job);
            let mut prepared = prepared.map_err(|p| request::about(self.told(p, job), job, of_several))?;
            if let Some(fio) = &job.fio {
                prepared.conduct = fio.conduct.clone();
            }
            let has_pages = job.act_alone().is_none();
            if has_pages && job.fio.as_ref().is_some_and(|fio| fio.invalidate && !fio.workload.direct) {
                invalidate(&prepared.device).map_err(|f| request::about(f, job, of_several))?;
            }
            jobs.push(prepared);
        }
        let options = RunOptions { stop: Some(self.stop), pass: 1, ..options };
        let of_job = |job: &Job| job.fio.as_ref().map(|fio| fio.arrangement.clone()).unwrap_or_default();
        let arrangements: Vec<Arrangement> = group.iter().map(of_job).collect();
        let outcome = run_arranged(&jobs, &arrangements, options);
        if group.iter().any(|job| job.workload.rw.modifies()) {
            // Two targets may be names of one device.
            self.targets.values_mut().for_each(BenchTarget::contents_changed);
        }
        let outcome = outcome.map_err(|e| Failure::from(Problem::from(e)))?;
        for (job, record) in group.iter().zip(&outcome.records) {
            // What moves no data has written none: operations, and commands without any.
            let has_data = job.fio.as_ref().is_none_or(|fio| fio.conduct.ring.write_commands.are_writes());
            let Some(record) = record.as_ref().filter(|_| has_data && job.act().is_none()) else { continue };
            self.targets.get_mut(job.target.as_str()).expect("prepared for each job").count_written(record);
        }
        Ok(outcome)
    }

    /// The job as the runner takes it.
    fn prepared(&mut self, job: &Job) -> Result<bench::Job, Problem> {
        if let (Some(act), Some(fio)) = (job.act_alone(), &job.fio) {
            let device: Arc<dyn device::Device> = match act {
                Act::Fault => Arc::new(Faults::new(memory_of(job)).map_err(ActError::Memory)?),
                _ => Arc::clone(&self.acts[&fio.first_thread]),
            };
            return Ok(acts::job(device, &job.workload, fio.conduct.clone())?);
        }
        let target = self.targets.get_mut(job.target.as_str()).expect("prepared for each job");
        let protection = job.fio.as_ref().and_then(|fio| fio.conduct.ring.protection);
        target.protect(protection.map(|(action, _)| action));
        let prepared = target.job(&job.workload)?;
        let Some(Act::OnFile(range)) = job.act() else { return Ok(prepared) };
        let device = OnFile::new(range, prepared.device).map_err(|source| ActError::Io {
            operation: "open again",
            path: job.target.clone().into(),
            source,
        })?;
        Ok(acts::job(Arc::new(device), &job.workload, prepared.conduct)?)
    }

    /// A problem with a hint that fits the flags at hand.
    fn told(&self, problem: Problem, job: &Job) -> Failure {
        let missing = matches!(&problem, Problem::Open(device::OpenError::Missing { .. }));
        let hint = match (missing, job.workload.rw.modifies(), DeviceSpec::parse(&job.target)) {
            (true, true, _) if job.workload.size.is_none() => {
                Some("check the name; or give --size=1g to have it made with that size".to_owned())
            }
            (true, false, Ok(spec)) => spec.path().map(|path| {
                let path = path.display();
                format!("check the name; to make it: flashwright bench --rw=write --bs=1m --size=1g --time_based=0 --target {path}")
            }),
            _ => None,
        };
        Failure::from(problem).hint_if(hint)
    }
}

/// Bytes of memory that a job touches whose requests are page faults; 0 of another.
fn memory_of(job: &Job) -> u64 {
    let bytes = job.fio.as_ref().filter(|_| job.act() == Some(Act::Fault)).and_then(|fio| fio.file_bytes());
    bytes.unwrap_or(0)
}

/// Refuses jobs that touch more memory at the same time than there is, before anything runs.
fn enough_memory(group: &[Job]) -> Result<(), ActError> {
    let sum = group.iter().map(memory_of).fold(0, u64::saturating_add);
    if sum == 0 { Ok(()) } else { FaultingMemory::check(sum).map_err(ActError::Memory) }
}

/// What a job works on that has no target, made ready. Names are put to those of earlier jobs as well.
fn acted_on(
    act: Act,
    job: &Job,
    fio: &fio::Job,
    stop: &AtomicBool,
    made: &mut Vec<Arc<Names>>,
) -> Result<Arc<dyn device::Device>, ActError> {
    let workload = &job.workload;
    if let Act::Names(operation) = act {
        let (paths, may_make) = (fio.files.clone(), fio.allow_file_create);
        let names = Names::prepare(operation, paths, workload.bs, may_make, fio.unlink, stop)?;
        let names = Arc::new(names);
        made.push(Arc::clone(&names));
        return Ok(names);
    }
    let size = fio.file_bytes().unwrap_or(workload.max_bs());
    let nothing = Nothing::new(act.word(), size);
    let failed = |source| ActError::Io { operation: "open", path: "/dev/null".into(), source };
    Ok(Arc::new(nothing.map_err(failed)?))
}

/// Path and size of a file that is to be made, and whether it is to be written as well: the largest that any
/// job wants of it.
fn to_be_made(request: &Request, job: &Job, spec: &DeviceSpec) -> Option<(PathBuf, u64, bool)> {
    let path = spec.path()?;
    // `symlink_metadata`: a link to nowhere must not be followed to make a file there. And a misspelt
    // device must not become a file among the devices.
    if std::fs::symlink_metadata(path).is_ok() || is_among_devices(path) {
        return None;
    }
    let sharing = || request.jobs().filter(|other| other.target == job.target);
    let wanted = sharing().filter_map(|other| match (spec, other.missing) {
        (DeviceSpec::File { size: Some(size), .. }, _) => {
            let writes = other.workload.rw.modifies();
            let lay = other.workload.rw.reads() || request.saturate.is_some();
            writes.then_some((*size, lay))
        }
        (_, Missing::Make(size)) => Some((size, false)),
        (_, Missing::Lay(size)) => Some((size, true)),
        (_, Missing::Refuse) => None,
    });
    let (sizes, lays): (Vec<u64>, BTreeSet<bool>) = wanted.unzip();
    Some((path.to_owned(), sizes.into_iter().max()?, lays.contains(&true)))
}

/// The files at `paths` that were made as a device or parts of it, to be removed unless they are kept.
fn debris(paths: &[PathBuf], device: &Arc<dyn device::Device>) -> Result<Removed, Failure> {
    let mut made = Removed::default();
    let leaves = device::leaves(device).iter();
    for leaf in leaves.filter(|leaf| leaf.path().is_some_and(|path| paths.iter().any(|made| made == path))) {
        let path = leaf.path().expect("those that have none were left out");
        let added = made.add(path, leaf.fd());
        added.map_err(|error| Failure::io(path, "look at what was made", &error))?;
    }
    Ok(made)
}

/// Drops a file's pages from the page cache, as fio does before a buffered job.
fn invalidate(device: &Arc<dyn device::Device>) -> Result<(), Failure> {
    device::leaves(device).iter().try_for_each(|leaf| {
        storage::cache::drop_cached(leaf.fd()).map_err(|error| {
            Failure::failed(format!("{}: cannot drop its pages from the cache: {error}", leaf.spec()))
        })
    })
}
