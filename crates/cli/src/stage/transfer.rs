//! `flashwright stage mv`, `cp` and `get`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use stage::mounts::{self, Mount};
use stage::pace::Stop;
use stage::{JobId, JobSpec, JobStatus, Level, Options, Verb};
use stage_service::desk::{Desk, submit_or_retry};

use super::args::{GetArgs, ModeArgs, ServerArgs, TransferArgs};
use super::desk::Server;
use super::foreground::Foreground;
use super::wait::{Carrier, Come};
use super::{crew, request, status, verify, wait, words};
use crate::failure::Failure;
use crate::{output, signals, tasks};

/// Moves or copies.
pub fn transfer(verb: Verb, args: &TransferArgs) -> Result<(), Failure> {
    // Each rank that stores a part of its own works by itself.
    if args.part.is_none() && tasks::is_one_of_several(args.tasks) {
        if verb == Verb::Move {
            return Err(Failure::invalid("several tasks copy, and do not move")
                .hint("copy with stage cp, and remove the source when it has come to its end")
                .of_root());
        }
        return crew::copy(args.tasks, &args.paths, &args.options, &args.mode, &args.server);
    }
    let options = request::options(&args.options);
    let jobs = match (args.part, args.step) {
        (Some(part), Some(step)) => {
            vec![request::part(verb, &args.paths, options, part, step, args.run.clone())?]
        }
        _ => request::jobs(verb, &args.paths, &options, args.mode.no_target_directory)?,
    };
    carry_out(jobs, &args.mode, &args.server)
}

/// Copies from the slow tier to the fast one.
pub fn get(args: &GetArgs) -> Result<(), Failure> {
    let options = Options { inward: true, ..request::options(&args.options) };
    let jobs = request::jobs(Verb::Copy, &args.paths, &options, args.mode.no_target_directory)?;
    carry_out(jobs, &args.mode, &args.server)
}

fn carry_out(jobs: Vec<JobSpec>, mode: &ModeArgs, server: &ServerArgs) -> Result<(), Failure> {
    if mode.foreground {
        let foreground = Foreground::of(server, &jobs)?;
        let stop = signals::stop_flag()?;
        return alone(&foreground, jobs, mode, &stop);
    }
    let server = Server::find(server)?;
    let known = |job: &JobSpec| {
        let state = server.facts().state.0.clone();
        Ok(newest(server.status(None)?, job).map(|job| (job, state)))
    };
    let jobs = left_to_do(jobs, mode, &known)?;
    there(&server, jobs, mode)
}

/// Finds the newest job between the same places, and where its state is.
type Known<'a> = dyn Fn(&JobSpec) -> Result<Option<(JobStatus, PathBuf)>, Failure> + 'a;

/// Those that are not at their destinations yet.
fn left_to_do(jobs: Vec<JobSpec>, mode: &ModeArgs, known: &Known<'_>) -> Result<Vec<JobSpec>, Failure> {
    if !mode.idempotent {
        return Ok(jobs);
    }
    let mut left = Vec::new();
    let stop = Stop::from(signals::stop_flag()?);
    for job in jobs {
        let mounts = [mounts::of_place(&job.source, false), mounts::of_place(&job.destination, true)];
        let mounts @ [_, at] = mounts.each_ref().map(Option::as_ref);
        mounts::check_lasting(&job, mounts)?;
        if verify::is_there(&job, &stop, &|| known(&job))? {
            if mode.wait == Some(Level::Durable) && at.is_some_and(Mount::is_in_memory) {
                return Err(wait::in_memory(&job.destination));
            }
            if !mode.json {
                output::print(&format!("{}: there already, and right\n", job.destination.shown()))?;
            }
        } else {
            left.push(job);
        }
    }
    Ok(left)
}

/// The newest job between the same places.
fn newest(jobs: Vec<JobStatus>, like: &JobSpec) -> Option<JobStatus> {
    jobs.into_iter().rev().find(|job| job.spec.has_places_of(like))
}

/// Hands jobs in at a server, and waits if that is asked for.
fn there(server: &Server, jobs: Vec<JobSpec>, mode: &ModeArgs) -> Result<(), Failure> {
    let ids = hand_in(server, jobs)?;
    let jobs = match mode.wait.filter(|_| !ids.is_empty()) {
        None => look(server, &ids)?,
        Some(level) => {
            let stop = signals::stop_flag()?;
            let stopped = || stop.load(Ordering::Relaxed);
            match wait::follow(server, &ids, level, None, &stopped)? {
                Come::There(jobs) | Come::Late(jobs) => jobs,
                Come::Stopped(_) => {
                    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                    return Err(Failure::interrupted("no longer waiting")
                        .hint(format!("the server goes on with job {}", ids.join(", "))));
                }
            }
        }
    };
    match mode.wait {
        _ if mode.json => {
            status::print_json(Some(server), jobs.clone())?;
            mode.wait.map_or(Ok(()), |level| verdicts(&jobs, level, Carrier::Server))
        }
        None => {
            let lines: String = jobs.iter().map(accepted).collect();
            output::print(&lines)
        }
        Some(level) => told(&jobs, level, Carrier::Server),
    }
}

/// Does jobs in this process, until `stop` is set.
pub fn alone(
    foreground: &Foreground,
    jobs: Vec<JobSpec>,
    mode: &ModeArgs,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let jobs = left_to_do(jobs, mode, &|job| foreground.known(job))?;
    if jobs.is_empty() {
        return if mode.json { status::print_json(None, Vec::new()) } else { Ok(()) };
    }
    if !foreground.exists() {
        // Nothing is begun, and no journal is made, for what is not there.
        jobs.iter().try_for_each(|job| {
            job.check_source()?;
            job.check_parents()?;
            stage::runner::check_request(job)
        })?;
    }
    // The mover goes on with these as soon as it is opened, and may have finished them when it is asked.
    let under_way = foreground.under_way()?;
    let mover = foreground.open(&jobs, jobs.len())?;
    let all = mover.status(None)?;
    let mut ids = Vec::new();
    for job in jobs {
        let known = under_way.iter().find(|known| known.spec.is_same_request(&job));
        ids.push(known.map_or_else(|| submit_or_retry(&mover, job, &all), |known| Ok(known.id))?);
    }
    let stopped = || stop.load(Ordering::Relaxed);
    // As far as its destination allows; what came of it says whether that is durable.
    let level = Level::InMemory;
    let come = wait::follow(&mover, &ids, level, None, &stopped);
    // Between two steps: what has been copied stays for the same command.
    mover.stop();
    drop(mover);
    let jobs = match come? {
        Come::There(jobs) | Come::Late(jobs) => jobs,
        Come::Stopped(jobs) => {
            let lines: Vec<String> = jobs.iter().map(words::unnumbered_line).collect();
            return Err(Failure::interrupted(format!("stopped: {}", lines.join("; ")))
                .hint("the same command goes on where it stopped"));
        }
    };
    foreground.tidy(&jobs);
    if mode.json {
        status::print_json(None, jobs.clone())?;
        return verdicts(&jobs, level, Carrier::Command);
    }
    told(&jobs, level, Carrier::Command)
}

fn hand_in(desk: &dyn Desk, jobs: Vec<JobSpec>) -> Result<Vec<JobId>, Failure> {
    let known = desk.status(None)?;
    let mut ids = Vec::new();
    for job in jobs {
        ids.push(submit_or_retry(desk, job, &known)?);
    }
    Ok(ids)
}

fn look(desk: &dyn Desk, ids: &[JobId]) -> Result<Vec<JobStatus>, Failure> {
    let mut jobs = Vec::new();
    for id in ids {
        jobs.extend(desk.status(Some(*id))?);
    }
    Ok(jobs)
}

fn accepted(job: &JobStatus) -> String {
    format!("job {}: {} → {}\n", job.id, job.spec.source.shown(), job.spec.destination.shown())
}

/// What came of each; the first failure, if there is one, is the command's.
fn told(jobs: &[JobStatus], level: Level, carrier: Carrier) -> Result<(), Failure> {
    for job in jobs.iter().filter(|job| wait::verdict(job, level, carrier).is_ok()) {
        output::print(&format!("{}\n", words::ended(job, level)))?;
        for note in &job.notes {
            output::tell(&format!("note: {note}\n"));
        }
    }
    verdicts(jobs, level, carrier)
}

fn verdicts(jobs: &[JobStatus], level: Level, carrier: Carrier) -> Result<(), Failure> {
    let mut failures = jobs.iter().filter_map(|job| wait::verdict(job, level, carrier).err());
    match failures.next() {
        None => Ok(()),
        Some(first) => {
            for other in failures {
                output::tell(&format!("note: {}\n", other.message()));
            }
            Err(first)
        }
    }
}
