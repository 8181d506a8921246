//! `flashwright stage watch`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stage::error::{Cause, Why};
use stage::names::PathText;
use stage::pace::Stop;
use stage::{JobId, JobSpec, JobStatus, Place, StageError, State, Verb};
use stage_service::ServiceError;
use stage_service::desk::Desk;
use stage_service::watch::{Happened, Orders, Pattern, Timing, Watch};

use super::args::WatchArgs;
use super::desk::{Server, shown};
use super::documents::StageWatch;
use super::foreground::Foreground;
use super::{request, verify, words};
use crate::failure::Failure;
use crate::{output, paint, signals};

/// The longest that Ctrl-C, or the end of a job, goes unnoticed.
const STEP: Duration = Duration::from_millis(300);
/// Jobs at once, where there is no server.
const JOBS: usize = 4;

/// Watches until a signal comes, or with `--once` until nothing is left to do.
pub fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let root = request::absolute(&args.directory)?;
    if !root.is_dir() {
        return Err(Failure::invalid(format!("{}: is no directory", shown(&root)))
            .hint("name the directory that semaphores come into"));
    }
    let to = request::place(&args.to)?;
    if let Some(to) = to.path().filter(|to| to.starts_with(&root)) {
        return Err(Failure::invalid(format!("--to={}: lies in the directory that is watched", shown(to)))
            .hint("what is moved there would be found again; name a directory outside of it"));
    }
    let pattern = Pattern::parse(&args.trigger)?;
    if let Some(to) = to.path().filter(|to| !args.options.parents && !to.is_dir()) {
        return Err(Failure::invalid(format!("--to={}: is no directory", shown(to)))
            .hint("make it, mount the tier, or have each set's made: --parents"));
    }
    let orders = orders(args, to);
    let stop = signals::stop_flag()?;
    if args.foreground {
        let foreground = Foreground::named(&args.server, &("watch", PathText(root.clone()), &orders.to))?;
        let mover = foreground.open(&[], JOBS)?;
        let ended = obey(args, &root, pattern, orders, (&mover, foreground.state()), &stop);
        mover.stop();
        return ended;
    }
    let server = Server::find(&args.server)?;
    obey(args, &root, pattern, orders, (&server, &server.facts().state.0), &stop)
}

fn orders(args: &WatchArgs, to: Place) -> Orders {
    let options = request::options(&args.options);
    // What is to be kept on the fast tier cannot be moved away from it.
    let copies = args.copy || options.keep_fast.is_some();
    let verb = if copies { Verb::Copy } else { Verb::Move };
    Orders { to, verb, options, keep_trigger: args.keep_trigger, lists: !args.no_list }
}

fn obey(
    args: &WatchArgs,
    root: &Path,
    pattern: Pattern,
    orders: Orders,
    (desk, state): (&dyn Desk, &Path),
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let timing = Timing { rescan: args.rescan, settle: args.settle };
    let broken_off = Stop::from(Arc::clone(stop));
    let check = |job: &JobSpec, known: &[JobStatus]| is_there(job, known, state, &broken_off);
    if !args.json {
        let kept = if orders.verb == Verb::Copy { "copied" } else { "moved" };
        output::tell(&format!(
            "watching {} for {}: what is vouched for is {kept} to {}\n",
            shown(root),
            pattern.text(),
            orders.to.shown()
        ));
    }
    let mut left = Left::find(args, desk)?;
    let mut watch = Watch::new(root, pattern, timing, orders, desk, &check)?.until(stop);
    let mut gone = false;
    loop {
        match watch.step(STEP) {
            Ok(happened) => {
                if std::mem::take(&mut gone) && !args.json {
                    output::tell("the server is back\n");
                }
                for happened in &happened {
                    left.taken_up(happened);
                    say(args, happened)?;
                }
                for note in left.ended(desk)? {
                    say(args, &Happened::Note(note))?;
                }
            }
            // It may be started again; what it had accepted it has, and semaphores stay until all is durable.
            Err(error) if ServiceError::is_no_answer(&error) => {
                if !std::mem::replace(&mut gone, true) && !args.json {
                    output::tell(&format!("{} {error}; waiting for one\n", paint::warn("note:")));
                }
                std::thread::sleep(STEP);
            }
            Err(error) => return Err(error.into()),
        }
        if stop.load(Ordering::Relaxed) {
            let left = match watch.under_way() {
                0 => "nothing was under way".to_owned(),
                1 => "one set is under way".to_owned(),
                many => format!("{many} sets are under way"),
            };
            let words = format!("no longer watching; {left}");
            if args.once {
                return Err(Failure::interrupted(words)
                    .hint("the same command goes on; what is in the journal is not lost"));
            }
            output::tell(&format!("{words}\n"));
            return Ok(());
        }
        // What an earlier run left behind is finished as well, where this process is the one to do it.
        let over = || -> Result<bool, StageError> {
            Ok(!args.foreground || desk.status(None)?.iter().all(|job| job.state.is_final()))
        };
        if args.once && !gone && watch.is_idle() && over()? {
            for note in left.ended(desk)? {
                say(args, &Happened::Note(note))?;
            }
            return match watch.failures() {
                0 => Ok(()),
                1 => Err(Failure::failed("one semaphore could not be obeyed").hint("it is said above why")),
                many => Err(Failure::failed(format!("{many} times a semaphore could not be obeyed"))
                    .hint("it is said above why")),
            };
        }
    }
}

/// Jobs that an earlier run in this process's journal left under way. Their semaphores may have gone already, and then
/// nothing else tells of their end.
struct Left(Vec<JobId>);

impl Left {
    fn find(args: &WatchArgs, desk: &dyn Desk) -> Result<Self, Failure> {
        let all = if args.foreground { desk.status(None)? } else { Vec::new() };
        Ok(Self(all.iter().filter(|job| !job.state.is_final()).map(|job| job.id).collect()))
    }

    /// One whose semaphore is still there is that semaphore's again.
    fn taken_up(&mut self, happened: &Happened) {
        if let Happened::Submitted { jobs, .. } = happened {
            self.0.retain(|job| !jobs.contains(job));
        }
    }

    /// What became of those that have ended since.
    fn ended(&mut self, desk: &dyn Desk) -> Result<Vec<String>, StageError> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let all = desk.status(None)?;
        let ended = all.iter().filter(|job| job.state.is_final() && self.0.contains(&job.id));
        let told = ended.clone().map(|job| {
            let became = match &job.error {
                Some(why) if job.state != State::Done => format!("failed: {}", why.message),
                Some(why) => format!("done, but {}", why.message),
                None if job.state == State::Done => job.promise().to_owned(),
                None => "given up".to_owned(),
            };
            format!("of an earlier run: {became}, {} ({})", job.spec.destination.shown(), words::amount(job))
        });
        let told = told.collect();
        let ended: Vec<JobId> = ended.map(|job| job.id).collect();
        self.0.retain(|job| !ended.contains(job));
        Ok(told)
    }
}

/// Is what a semaphore that stays asks for at its destination? Its bytes are read, by the word of its manifest or of the
/// journal in `state`.
fn is_there(job: &JobSpec, known: &[JobStatus], state: &Path, stop: &Stop) -> Result<bool, StageError> {
    let is_newest = |made: &&JobStatus| made.state != State::Cancelled && made.spec.has_places_of(job);
    let made = known.iter().rev().find(is_newest);
    // One that is under way or has failed, or what another list vouched for.
    let has_made = |made: &JobStatus| {
        made.state == State::Done && !made.has_left_its_source() && made.spec.is_same_request(job)
    };
    if made.is_some_and(|made| !has_made(made)) {
        return Ok(false);
    }
    verify::is_there(job, stop, &|| Ok(made.map(|made| (made.clone(), state.to_owned())))).map_err(
        |failure| {
            let (message, hint) = (failure.message().to_owned(), failure.remedy().map(str::to_owned));
            let why = Why { message, hint, class: failure.class(), errno: None, cause: Cause::Other };
            ServiceError::Answered(Box::new(why)).into()
        },
    )
}

/// What a semaphore is told of, which is named where the message does not begin with it.
fn about(trigger: &Path, message: &str) -> String {
    let trigger = format!("{}: ", shown(trigger));
    if message.starts_with(&trigger) { message.to_owned() } else { trigger + message }
}

fn say(args: &WatchArgs, happened: &Happened) -> Result<(), Failure> {
    if args.json {
        return output::print_line(&document(happened));
    }
    let line = match happened {
        Happened::Submitted { trigger, .. } if args.foreground => format!("{}: begun", shown(trigger)),
        Happened::Submitted { trigger, jobs } => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!("{}: job {}", shown(trigger), jobs.join(", "))
        }
        Happened::Durable { trigger, jobs } => {
            let promise = jobs.iter().find(|job| job.in_memory).or(jobs.first()).map(JobStatus::promise);
            let mut text = format!("{}: {}", shown(trigger), promise.unwrap_or("durable and verified"));
            for job in jobs {
                text += &format!(", {} ({})", job.spec.destination.shown(), words::amount(job));
            }
            text
        }
        Happened::AlreadyThere { trigger } => format!("{}: there already, and right", shown(trigger)),
        Happened::Failed { trigger, job, state, why } => {
            let (what, remedy) = match state {
                State::Failed if args.foreground => (String::new(), "with the same command, or ".to_owned()),
                State::Failed => {
                    (format!("job {job} failed: "), format!("with: flashwright stage retry {job}, or "))
                }
                _ => (String::new(), String::new()),
            };
            let failed = format!("{} {}: {what}{}", paint::bad("failed:"), shown(trigger), why.message);
            format!("{failed}; it goes on {remedy}when the semaphore changes")
        }
        Happened::Refused { trigger, why } => {
            let hint = why.hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
            format!("{} {}{hint}", paint::bad("refused:"), about(trigger, &why.message))
        }
        Happened::Note(note) => format!("{} {note}", paint::warn("note:")),
    };
    output::print(&format!("{line}\n"))
}

fn document(happened: &Happened) -> StageWatch {
    let (what, trigger, jobs, why, note) = match happened {
        Happened::Submitted { trigger, jobs } => ("submitted", Some(trigger), jobs.clone(), None, None),
        Happened::Durable { trigger, jobs } => {
            ("durable", Some(trigger), jobs.iter().map(|job| job.id).collect(), None, None)
        }
        Happened::AlreadyThere { trigger } => ("already-there", Some(trigger), Vec::new(), None, None),
        Happened::Failed { trigger, job, why, .. } => {
            ("failed", Some(trigger), vec![*job], Some(why.clone()), None)
        }
        Happened::Refused { trigger, why } => ("refused", Some(trigger), Vec::new(), Some(why.clone()), None),
        Happened::Note(note) => ("note", None, Vec::new(), None, Some(note.clone())),
    };
    let trigger = trigger.map(|trigger| PathText(trigger.clone()));
    StageWatch { schema: "flashwright.stage-watch/1", what, trigger, jobs, why, note }
}
