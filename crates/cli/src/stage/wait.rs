//! `flashwright stage wait`, and waiting for others.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stage::job::Remedy;
use stage::{JobId, JobStatus, Level, Place, State};
use stage_service::desk::Desk;

use super::args::WaitArgs;
use super::desk::{self, Server};
use super::{request, status, words};
use crate::failure::Failure;
use crate::{output, signals};

/// Between two looks at jobs, where somebody watches or may press Ctrl-C.
const LOOK: Duration = Duration::from_millis(200);

/// Waits for a job.
pub fn wait(args: &WaitArgs) -> Result<(), Failure> {
    let server = Server::needed(&args.server)?;
    let id = desk::job(&server, &args.job)?.id;
    let stop = signals::stop_flag()?;
    let until = args.timeout.map(|timeout| Instant::now() + timeout);
    let come =
        follow(&server, &[id], args.level, until, &|| stop.load(std::sync::atomic::Ordering::Relaxed))?;
    let job = match come {
        Come::Stopped(_) => {
            return Err(Failure::interrupted("no longer waiting").hint(format!("job {id} goes on")));
        }
        Come::Late(jobs) | Come::There(jobs) => jobs.into_iter().next(),
    };
    let Some(job) = job else { return Ok(()) };
    let verdict =
        verdict(&job, args.level, Carrier::Server).and_then(|()| is_of_these_bytes(&args.job, &job));
    if args.json {
        status::print_json(Some(&server), vec![job])?;
        return verdict;
    }
    verdict?;
    output::print(&format!("{}\n", words::ended(&job, args.level)))
}

/// Whoever asks for a source by its path asks for what is there now.
fn is_of_these_bytes(what: &OsStr, job: &JobStatus) -> Result<(), Failure> {
    // What a semaphore's list names is not in a status.
    let by_source = desk::number(what).is_none()
        && request::place(what)? == job.spec.source
        && job.spec.options.expected_digest.is_none();
    let Some(copied) = job.source.filter(|_| by_source && job.level.is_committed()) else { return Ok(()) };
    match stage::runner::fingerprint_of(&job.spec, &super::tiers())? {
        Some(now) if now != copied => Err(Failure::failed(format!(
            "{}: has changed since job {} copied it; {} is what it was then",
            job.spec.source.shown(),
            job.id,
            job.spec.destination.shown()
        ))
        .hint(format!(
            "copy it under another name; `flashwright stage wait {}` is about what was copied",
            job.id
        ))),
        _ => Ok(()),
    }
}

/// What waiting came to, with the jobs as they were then.
#[derive(Debug)]
pub enum Come {
    /// Each has come so far, or has ended.
    There(Vec<JobStatus>),
    /// The time is up.
    Late(Vec<JobStatus>),
    /// Somebody wants no more of it.
    Stopped(Vec<JobStatus>),
}

/// Waits until all of these have come so far or have ended, with a bar where somebody watches.
pub fn follow(
    desk: &dyn Desk,
    ids: &[JobId],
    level: Level,
    until: Option<Instant>,
    stopped: &dyn Fn() -> bool,
) -> Result<Come, Failure> {
    let bar = Bar::new();
    // Waiting is done by short waits for the first that is not there yet, so that its end is told at once.
    loop {
        let mut jobs = Vec::new();
        for id in ids {
            jobs.extend(desk.status(Some(*id))?);
        }
        bar.show(&jobs);
        let Some(next) = jobs.iter().find(|job| !job.has_reached(level)) else {
            bar.end();
            return Ok(Come::There(jobs));
        };
        if stopped() {
            bar.end();
            return Ok(Come::Stopped(jobs));
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            bar.end();
            return Ok(Come::Late(jobs));
        }
        let slice = left.unwrap_or(LOOK).min(LOOK);
        let begun = Instant::now();
        let job = desk.wait(next.id, level, Some(slice))?;
        if !job.has_reached(level) {
            // Committed, and its source still there: a server has answered at once.
            std::thread::sleep(slice.saturating_sub(begun.elapsed()));
        }
    }
}

/// Who carries a job out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// A server, which has a number for it.
    Server,
    /// This command, without one.
    Command,
}

/// Is it what was waited for?
pub fn verdict(job: &JobStatus, level: Level, carrier: Carrier) -> Result<(), Failure> {
    match (job.state, &job.error) {
        (State::Failed, Some(why)) => {
            let remedy = match carrier {
                Carrier::Server => Remedy::Retry(job.id),
                Carrier::Command => Remedy::SameCommand,
            };
            let mut failure = Failure::new(why.class, &why.message);
            if job.level.is_committed() {
                let copy = job.spec.destination.shown();
                failure = failure.about(format!("{copy} is {}, but", job.promise()));
            }
            if carrier == Carrier::Server {
                failure = failure.about(format!("job {}", job.id));
            }
            Err(failure.hint_if(why.hint.as_deref().map(|hint| remedy.spell(hint))))
        }
        // [`JobStatus::has_left_its_source`].
        (State::Done, Some(why)) => {
            let failure = Failure::new(why.class, &why.message).hint_if(why.hint.as_deref());
            Err(if carrier == Carrier::Server { failure.about(format!("job {}", job.id)) } else { failure })
        }
        (State::Cancelled, _) => Err(Failure::failed(format!("job {}: was cancelled", job.id))),
        _ if job.level >= level => Ok(()),
        (State::Failed, None) => Err(Failure::failed(format!("job {}: failed", job.id))),
        _ if job.level == Level::InMemory => Err(in_memory(&job.spec.destination)),
        _ => {
            let words = words::line(job);
            Err(Failure::failed(format!("{words}; it is not {} yet", level.word()))
                .hint("it goes on; wait again, or see: flashwright stage status --follow"))
        }
    }
}

/// What was to be durable is in memory.
pub fn in_memory(destination: &Place) -> Failure {
    Failure::failed(format!("{}: is in memory, and is not durable", destination.shown()))
        .hint("copy it to a destination on a disk; or do not wait for durable")
}

/// A line on standard error, where somebody watches.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// Not drawn yet.
    pub fn new() -> Self {
        let watched = output::is_watched();
        let target = if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        // The template is ours; without it a bar in the library's own style does as well.
        Self(match ProgressStyle::with_template("{wide_msg}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    /// Shows jobs, as one where there are several.
    pub fn show(&self, jobs: &[JobStatus]) {
        if self.0.is_hidden() {
            return;
        }
        let Some(one) = jobs.iter().find(|job| !job.state.is_final()).or(jobs.last()) else { return };
        let mut sum = one.clone();
        if jobs.len() > 1 {
            let of = |count: fn(&JobStatus) -> u64| jobs.iter().map(count).sum();
            sum.files_total = of(|job| job.files_total);
            sum.bytes_total = of(|job| job.bytes_total);
            sum.bytes_written = of(|job| job.bytes_written);
            sum.bytes_verified = of(|job| job.bytes_verified);
            sum.walked = jobs.iter().all(|job| job.walked);
            let rate: f64 = jobs.iter().filter_map(|job| job.bytes_per_s).sum();
            sum.bytes_per_s = Some(rate);
        }
        let bar = anstream::adapter::strip_str(&words::bar(&sum, 20)).to_string();
        let mut parts = vec![bar, words::phase(&sum).to_owned()];
        parts.extend(words::progress(&sum));
        parts.extend(sum.held_back_by.as_ref().map(|by| format!("held back by {by}")));
        // What does not fit is left out whole: the template would cut it in a word.
        self.0.set_message(words::joined(&parts, output::watched_width()));
        self.0.tick();
    }

    /// Takes it away.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
