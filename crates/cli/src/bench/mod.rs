//! `flashwright bench`: one workload, or the groups of a job file, run once and told.
//!
//! 1. [`request`]: from flags, a TOML file or a job file to groups of jobs, each with a target.
//! 2. [`run`]: files that are to be made are made, then the groups run one after the other.
//!    Before them the target is brought into the state asked for ([`prepare`]).
//! 3. [`figures`], [`text`]: what came of it, for programs and for people; fio's forms come from
//!    [`fio::json`].
//!
//! Several processes that do it together are [`tasks`].
//!
//! What a job file asks for beside figures, such as logs, is [`aside`].
//! `--dry-run` says what would run ([`dry_run`]). `--cmdhelp` lists the keys of fio's job files ([`cmdhelp`]). With `--wsat` the one run is a write-saturation curve, told by [`wsat`].

pub mod args;
mod aside;
mod cmdhelp;
mod dry_run;
pub mod figures;
mod live;
mod prepare;
mod request;
mod run;
pub mod tasks;
pub mod text;
pub mod wsat;

use bench::run::conduct::Aside;
use bench::run::search::Searched;
use fio::json::{GlobalInfo, JobResult, document};
use storage::device::DeviceSpec;

use crate::failure::Failure;
use crate::{output, signals};
use ::sim::SimRun;
use args::{BenchArgs, OutputFormat};
use figures::BenchReport;
use request::{Job, Missing, Request};
use run::{Done, Run};

/// What is said of figures that end where Ctrl-C was pressed.
pub const INTERRUPTED: &str = "interrupted; the figures are of the time before";

pub use request::workload;

/// Runs what the flags say.
pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    if let Some(key) = &args.cmdhelp {
        return args.sink()?.write(&cmdhelp::cmdhelp(key)?);
    }
    if crate::tasks::is_one_of_several(args.tasks) {
        return tasks::bench(args);
    }
    if let Some(flag) = args.first_of_tasks() {
        return Err(Failure::invalid(format!("--{flag} needs several tasks"))
            .hint("start them with --tasks N, or with mpirun"));
    }
    if args.dry_run {
        return args.sink()?.write(&dry_run::text(&Request::read(args)?));
    }
    if args.prepare.wsat {
        return wsat::wsat(args);
    }
    let sink = args.sink()?;
    let request = Request::read(args)?;
    let specs: Vec<DeviceSpec> =
        request.groups.iter().flatten().filter_map(|job| job.target.parse().ok()).collect();
    let targets = specs.iter().flat_map(DeviceSpec::leaves).filter_map(DeviceSpec::path);
    sink.is_none_of(targets.chain(args.file.as_deref()))?;
    aside::check(&request, args.force)?;
    let stop = signals::stop_flag()?;
    let run = run::run(&request, &stop, args.live)?;
    let told = aside::tell(&run);
    if !run.done.is_empty() {
        sink.write(&rendered(args.format(), &request, &run)?)?;
    }
    told?;
    match run.failure {
        Some(failure) => Err(failure),
        None if run.interrupted => Err(Failure::interrupted(INTERRUPTED)),
        None => Ok(()),
    }
}

fn rendered(format: OutputFormat, request: &Request, run: &Run<'_>) -> Result<String, Failure> {
    match format {
        OutputFormat::Text => Ok(text::text(run)),
        OutputFormat::Json => output::document_text(&BenchReport::new(run)),
        OutputFormat::FioJson => output::document_text(&fio(request, run, false)),
        OutputFormat::FioJsonPlus => output::document_text(&fio(request, run, true)),
    }
}

fn fio(request: &Request, run: &Run<'_>, plus: bool) -> fio::json::Document {
    let results: Vec<JobResult<'_>> = run
        .done
        .iter()
        .map(|done| match &done.job.fio {
            Some(job) => JobResult::of_job(job, &done.record)
                .with_steadiness(done.aside.steadiness.as_ref())
                .with_priorities(done.aside.by_priority.clone())
                .with_depth(job.conduct.latency, done.aside.searched.and_then(Searched::depth)),
            None => JobResult::of_workload(&done.record),
        })
        .collect();
    let info = GlobalInfo {
        started_unix_ns: run.started_unix_ns,
        finished_unix_ns: run.finished_unix_ns,
        options: request.global_options.clone(),
        plus,
    };
    document(&results, &info)
}

/// The result of one run that something else made, as `bench` would tell it.
pub fn presented(SimRun { record, interrupted }: SimRun, json: bool) -> Result<String, Failure> {
    let job = Job {
        name: record.workload.name.clone(),
        target: record.target.spec.clone(),
        workload: record.workload.clone(),
        missing: Missing::Refuse,
        fio: None,
    };
    let (began, length) = (record.started_unix_ns, record.total.elapsed_ns);
    let run = Run {
        done: vec![Done { job: &job, group: 0, record, aside: Aside::default() }],
        interrupted,
        failure: None,
        started_unix_ns: began,
        finished_unix_ns: began + length,
    };
    if json { output::document_text(&BenchReport::new(&run)) } else { Ok(text::text(&run)) }
}
