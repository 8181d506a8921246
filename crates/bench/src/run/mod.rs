//! Runs workloads on devices in real time.
//!
//! [`run`] takes jobs that are to run at once (one, usually; a group of a fio job file may have more),
//! starts their threads, moves them through ramp, interval and tail, observes the machine at the
//! very transitions, and turns the threads' counts into one [`RunRecord`] a job. A request that fails,
//! is short or is not answered in time fails the run: such a record would be a lie, so there is none.

mod atomic;
mod backlog;
mod batch;
mod budget;
pub mod burn;
pub mod cohorts;
pub mod conduct;
mod control;
mod coordinator;
mod error;
pub mod flow;
mod generator;
pub mod log;
pub(crate) mod nothing;
mod opening;
mod order;
mod pauses;
mod placement;
pub mod priorities;
mod record;
mod requests;
mod schedule;
pub mod search;
mod share;
pub mod steady;
mod tally;
pub mod tolerance;
mod worker;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use measure::pattern::SteadyWrites;
use measure::record::RunRecord;
use measure::workload::{InvalidWorkload, Workload};
use storage::clock::Clock;
use storage::device::{Device, DeviceKind};
use storage::usage;

pub use self::error::BenchError;
use crate::lies::Known;
use crate::observe::{Observed, Observer};
use crate::zones::{self, Zones};
use conduct::{Aside, Conduct};
use control::{Control, Phase};
use coordinator::Coordinator;
use placement::Placement;
use record::{Common, records};
use share::{Share, shares};
use steady::SteadyWatch;
use worker::{Report, Task};

/// A workload and the device that it runs on.
#[derive(Debug, Clone)]
pub struct Job {
    /// The device, opened as the workload needs it.
    pub device: Arc<dyn Device>,
    /// What runs.
    pub workload: Workload,
    /// What is watched while it runs.
    pub observer: Observer,
    /// What is known about the device's contents.
    pub known: Known,
    /// What it is to do beside the workload.
    pub conduct: Conduct,
    /// The zones of its target, which jobs on the same one share.
    pub zones: Zones,
}

/// How a run is watched and stopped.
#[derive(Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// Set to stop; what was measured by then is returned.
    pub stop: Option<&'a AtomicBool>,
    /// Called about once a second with what happened since the last call.
    pub progress: Option<&'a dyn Fn(&Progress)>,
    /// Which repetition this is, from 1; 0 is taken for 1.
    pub pass: u32,
    /// When the threads start, all having been prepared before: the moment that several processes have agreed on. At once
    /// where there is none or it is over.
    pub start: Option<Instant>,
    /// The first job to end ends all.
    pub first_ends_all: bool,
}

impl std::fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions")
            .field("stop", &self.stop)
            .field("pass", &self.pass)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

/// What happened since the last look, all jobs together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Time since the measured interval began; none during the ramp.
    pub measuring: Option<Duration>,
    /// Time since the last look.
    pub step: Duration,
    /// Bytes moved in the step.
    pub bytes: u64,
    /// Requests completed in the step.
    pub ios: u64,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// One record a job, in the jobs' order.
    pub records: Vec<RunRecord>,
    /// What each job has beside its record, likewise.
    pub asides: Vec<Aside>,
    /// Whether somebody asked to stop before it was over.
    pub interrupted: bool,
    /// When the first thread began and the last one ended, all jobs together, ramp and tail included.
    pub span: Range<Instant>,
}

/// Runs jobs at once, from start to end.
///
/// # Errors
/// [`BenchError`] where a workload does not fit its device, and for the first request that fails.
pub fn run(jobs: &[Job], options: RunOptions<'_>) -> Result<Outcome, BenchError> {
    let shares = jobs.iter().map(check).collect::<Result<Vec<_>, _>>()?;
    let allowed = usage::allowed_cpus();
    let place =
        |job: &Job| Placement::new(&job.workload, &job.observer.subject().stack.node_of_cpu, &allowed);
    let places = jobs.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let controls: Vec<_> = shares.iter().map(|s| Arc::new(Control::new(s.len() as u32))).collect();
    let wants_stop = || options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
    for share in shares.iter().flatten() {
        if !share.clear_zones(&wants_stop)? {
            // No thread is to write before all zones are cleared.
            controls.iter().for_each(|control| control.advance(Phase::Stop));
        }
    }
    let prepared: Vec<_> = jobs.iter().map(|job| job.observer.prepare()).collect();
    if let Some(start) = options.start {
        std::thread::sleep(start.saturating_duration_since(Instant::now()));
    }
    let started_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    let threads = start(jobs, &shares, &places, &controls, started_unix_ns)?;
    let coordinator = Coordinator { controls: &controls, shares: &shares, options };
    coordinator.wait_until_filled();
    let before = usage::process();
    let mut observations: Vec<_> = prepared.into_iter().map(|p| p.begin()).collect();
    coordinator.measure();
    let mut steady: Vec<Option<SteadyWatch>> =
        jobs.iter().map(|job| job.conduct.steady.map(SteadyWatch::new)).collect();
    let began = Instant::now();
    coordinator.wait_until_one_is_done(|now| {
        observations.iter_mut().for_each(|o| o.watch(now));
        for (watch, control) in steady.iter_mut().zip(&controls) {
            let is_steady = |watch: &mut SteadyWatch| watch.look(now - began, || control.seen_by());
            if watch.as_mut().is_some_and(is_steady) {
                control.end_early();
            }
        }
    });
    let process = usage::process().since(before);
    let ended: Vec<_> = observations.into_iter().map(|o| o.end()).collect();
    let interrupted = coordinator.wants_stop();
    let all_left = coordinator.wait_for_the_end(interrupted || options.first_ends_all);
    let failure = || controls.iter().find_map(|control| control.take_failure());
    if !all_left {
        // What waits in the kernel cannot be called back. Its thread owns its engine and buffers, and keeps them until
        // the drive answers or the process ends.
        shares.iter().flatten().for_each(Share::lose_zones);
        return Err(failure().expect("threads are left behind only where a job has failed"));
    }
    let mut reports = gather(&shares, threads);
    if let Some(failure) = failure() {
        return Err(failure);
    }
    record::count_whole_where_none_was_measured(jobs, &mut reports);
    let mut seen: Vec<Observed> = ended.into_iter().map(|e| e.conclude()).collect();
    if !interrupted {
        for (((job, shares), reports), observed) in jobs.iter().zip(&shares).zip(&reports).zip(&mut seen) {
            observed.generator_iops = generator::limit_iops(job, shares, reports);
        }
    }
    let common = Common { process, started_unix_ns, pass: options.pass.max(1) };
    let span = span(reports.iter().flatten());
    let records = records(jobs, &reports, &seen, common);
    let asides = reports.iter_mut().zip(steady).map(|(reports, steady)| Aside {
        logs: reports.iter_mut().filter_map(|report| report.summary.log.take()).collect(),
        steadiness: steady.map(SteadyWatch::close),
        searched: reports.iter().filter_map(|report| report.searched).min(),
        by_priority: record::by_priority(reports),
    });
    Ok(Outcome { records, asides: asides.collect(), interrupted, span })
}

/// When the first of these threads began and the last one ended.
fn span<'r>(reports: impl Iterator<Item = &'r Report> + Clone) -> Range<Instant> {
    let (clock, now) = (Clock::get(), Instant::now());
    let at = |ticks: u64| now - Duration::from_nanos(clock.nanoseconds(clock.now().saturating_sub(ticks)));
    let (first, last) =
        (reports.clone().map(|r| r.summary.started).min(), reports.map(|r| r.summary.closed).max());
    first.map_or(now, at)..last.map_or(now, at)
}

/// A running thread; what it reports when it ends, unless it failed.
type Running = JoinHandle<Option<Report>>;

/// Starts all threads of all jobs.
fn start(
    jobs: &[Job],
    shares: &[Vec<Share>],
    places: &[Placement],
    controls: &[Arc<Control>],
    started_unix_ns: u64,
) -> Result<Vec<Running>, BenchError> {
    let mut threads = Vec::new();
    let flows = flows(jobs, shares);
    for (((job, shares), place), control) in jobs.iter().zip(shares).zip(places).zip(controls) {
        for (Share { device, workload, region, zones, announced }, number) in shares.iter().zip(0..) {
            let task = Task {
                device: Arc::clone(device),
                workload: workload.clone(),
                region: *region,
                zones: zones.clone(),
                announced: announced.clone(),
                cpus: place.of(region.job),
                // Later runs have higher generations; passes within a run count on from here.
                generation: started_unix_ns >> 8,
                number,
                conduct: job.conduct.clone(),
                flow: job.conduct.flow.map(|flow| Arc::clone(&flows[&flow.id])),
            };
            let shared = Arc::clone(control);
            let thread = std::thread::Builder::new()
                .name(format!("job-{}", region.job))
                .spawn(move || guarded(&task, &shared));
            match thread {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    controls.iter().for_each(|c| c.advance(Phase::Stop));
                    for thread in threads {
                        let _ = thread.join();
                    }
                    return Err(BenchError::Thread { thread: region.job, source });
                }
            }
        }
    }
    Ok(threads)
}

/// What the threads of each flow share.
fn flows(jobs: &[Job], shares: &[Vec<Share>]) -> BTreeMap<u32, Arc<flow::Shared>> {
    let mut weights: BTreeMap<u32, u64> = BTreeMap::new();
    for (job, shares) in jobs.iter().zip(shares) {
        if let Some(flow) = job.conduct.flow {
            *weights.entry(flow.id).or_default() += u64::from(flow.weight) * shares.len() as u64;
        }
    }
    weights.into_iter().map(|(id, weight)| (id, flow::Shared::new(weight))).collect()
}

/// A thread's work, with its failure told to the others and its end to the coordinator, panics
/// included.
fn guarded(task: &Task, control: &Control) -> Option<Report> {
    struct Leave<'a>(&'a Control, usize);
    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.advance(Phase::Stop);
            }
            self.0.pulses()[self.1].rest();
            self.0.leave();
        }
    }
    let _leave = Leave(control, task.number);
    worker::work(task, control).map_err(|error| control.fail(error)).ok()
}

/// The threads' reports, by job.
fn gather(shares: &[Vec<Share>], threads: Vec<Running>) -> Vec<Vec<Report>> {
    let mut threads = threads.into_iter();
    let report = |thread: Running| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    shares.iter().map(|shares| threads.by_ref().take(shares.len()).filter_map(report).collect()).collect()
}

/// Fails where a device has fewer blocks than a pass to the steady state has regions, or regions that its cache holds.
fn check_regions(job: &Job, plan: SteadyWrites) -> Result<(), BenchError> {
    if job.device.kind() == DeviceKind::Separate {
        let reason = "one file or device is brought into the steady state";
        return Err(
            InvalidWorkload { option: "sprandom", value: "1".to_owned(), reason, hint: "name one" }.into()
        );
    }
    let used = job.device.size().saturating_sub(job.workload.offset);
    let blocks = job.workload.size.unwrap_or(used).min(used) / job.workload.bs;
    let region_bytes = plan.region_blocks(blocks).saturating_mul(job.workload.bs);
    if region_bytes > 0 && region_bytes >= job.conduct.cache_bytes {
        return Ok(());
    }
    let device = job.device.spec().to_owned();
    Err(BenchError::SmallRegions {
        device,
        regions: plan.regions,
        region_bytes,
        cache_bytes: job.conduct.cache_bytes,
    })
}

/// Whether a job can run at all, and what its threads get of it.
fn check(job: &Job) -> Result<Vec<Share>, BenchError> {
    let workload = &job.workload;
    workload.validate()?;
    let device = job.device.spec().to_owned();
    if workload.rw.modifies() && !job.device.is_writable() {
        return Err(BenchError::ReadOnly { device });
    }
    zones::check_is_asked(&job.device, workload)?;
    if let Some(plan) = job.conduct.steady_writes {
        check_regions(job, plan)?;
    }
    if job.conduct.atomic {
        atomic::check(job)?;
    }
    // A copy that reads each block back at once finds its own, or another's of the same kind. In a zone that is not reset no
    // block is written twice.
    let is_known = workload.verify_backlog > 0 || job.conduct.any_generation || workload.is_zbd();
    if workload.verify.is_some() && workload.regions_overlap() && !is_known {
        return Err(BenchError::VerifyOverlap { numjobs: workload.numjobs });
    }
    if job.device.is_direct() {
        let block = job.device.geometry().logical_block;
        let aligned = |option, value: u64| match value % u64::from(block) {
            0 => Ok(()),
            _ => Err(BenchError::Misaligned { option, value, block, device: device.clone() }),
        };
        aligned("bs", workload.bs)?;
        for share in workload.bssplit.iter().chain(&workload.write_bssplit) {
            aligned("bssplit", share.bs)?;
        }
        aligned("blockalign", workload.blockalign.unwrap_or(0))?;
        aligned("zoneskip", workload.zoneskip)?;
        aligned("rw_step", workload.rw_step.unsigned_abs())?;
        aligned("offset", workload.offset)?;
        aligned("offset_increment", workload.offset_increment.unwrap_or(0))?;
    }
    shares(job)
}
