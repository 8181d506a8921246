//! `flashwright stage status`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stage::{JobId, JobStatus, State};
use stage_service::commands::CommandJournal;
use stage_service::desk::Desk;

use super::args::StatusArgs;
use super::desk::{self, Server};
use super::screen::{self, Screen};
use super::{control, words};
use crate::failure::Failure;
use crate::{output, paint, signals};

/// Of jobs that have ended well, so many are shown.
const RECENT: usize = 5;
/// Between two pictures.
const PICTURE: Duration = Duration::from_millis(250);
/// Between two lines about a job that only gets on, where lines are printed.
const LINE: Duration = Duration::from_secs(10);

/// Shows jobs.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    let server = match Server::needed(&args.server) {
        Err(failure) if args.job.is_none() && !args.json => {
            output::print(&of_commands(&desk::journals_of_commands(&args.server)?))?;
            return Err(failure);
        }
        found => found?,
    };
    let one = args.job.as_deref().map(|what| desk::job(&server, what)).transpose()?.map(|job| job.id);
    if args.follow {
        return follow(&server, args, one);
    }
    let jobs = server.status(one)?;
    if args.json {
        return print_json(Some(&server), jobs);
    }
    output::print(&(table(&server, &jobs, args.all || one.is_some()).join("\n") + "\n"))
}

/// Jobs of commands without a server that have not ended well. Nothing is said of the others.
fn of_commands(journals: &[(CommandJournal, Vec<JobStatus>)]) -> String {
    let mut lines = String::new();
    for (journal, jobs) in journals {
        for job in jobs.iter().filter(|job| !matches!(job.state, State::Done | State::Cancelled)) {
            // How far a job has come is in the journal only when it has ended.
            let how = match job.state {
                State::Failed => words::unnumbered_line(job),
                _ if journal.at_work.is_some() => job.spec.destination.shown(),
                _ => format!("{}: not finished", job.spec.destination.shown()),
            };
            lines.push_str(&match (&journal.at_work, job.state) {
                (None, _) => format!("{how}; the same command goes on (--foreground)\n"),
                (Some(process), State::Failed) => format!("{how}; its command is at work, {process}\n"),
                (Some(process), _) => format!("{how}: at work, {process}\n"),
            });
        }
    }
    lines
}

/// Prints the document of these jobs.
pub fn print_json(server: Option<&Server>, jobs: Vec<JobStatus>) -> Result<(), Failure> {
    output::print_document(&control::document(server, jobs))
}

fn table(server: &Server, jobs: &[JobStatus], all: bool) -> Vec<String> {
    let width = output::width();
    let facts = server.facts();
    let mut lines = vec![paint::dim(&words::end_of(
        &format!("your server, pid {}: {}", facts.pid, words::summary(jobs)),
        width,
    ))];
    let (shown, left_out) = words::worth_showing(jobs, if all { usize::MAX } else { RECENT });
    for job in shown {
        lines.extend(words::block(job, width, now()));
    }
    if left_out > 0 {
        lines.push(paint::dim(&words::end_of(
            &format!("{left_out} more have ended: --all shows them"),
            width,
        )));
    }
    lines
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn follow(server: &Server, args: &StatusArgs, one: Option<JobId>) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let screen = if args.json { None } else { Screen::take()? };
    let mut log = Log::default();
    loop {
        let jobs = server.status(one)?;
        let ended = one.is_some() && jobs.iter().all(|job| job.state.is_final());
        let over = ended || stop.load(Ordering::Relaxed);
        match &screen {
            Some(screen) => {
                let lines = table(server, &jobs, args.all || one.is_some());
                screen.show(&lines)?;
            }
            None if args.json => output::print_line(&control::document(Some(server), jobs.clone()))?,
            None => output::print(&log.lines(&jobs))?,
        }
        if over {
            return match screen {
                Some(screen) => screen::leave(screen, &table(server, &jobs, args.all || one.is_some())),
                None => Ok(()),
            };
        }
        std::thread::sleep(PICTURE);
    }
}

/// What has been said of each job, where lines are printed.
#[derive(Debug, Default)]
struct Log {
    said: BTreeMap<JobId, (State, &'static str, Instant)>,
}

impl Log {
    /// Lines for what is new: a job, another state or phase, or some time gone by.
    fn lines(&mut self, jobs: &[JobStatus]) -> String {
        let mut text = String::new();
        let first = self.said.is_empty();
        for job in jobs {
            let phase = words::phase(job);
            let new = match self.said.get(&job.id) {
                // What had ended before anybody looked is no news.
                None => !(first && matches!(job.state, State::Done | State::Cancelled)),
                Some((state, at, when)) => {
                    *state != job.state || *at != phase || (!job.state.is_final() && when.elapsed() >= LINE)
                }
            };
            let known = self.said.contains_key(&job.id);
            if new {
                text.push_str(&words::line(job));
                text.push('\n');
            }
            if new || !known {
                self.said.insert(job.id, (job.state, phase, Instant::now()));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::tests::job;
    use super::*;

    #[test]
    fn lines_are_printed_for_what_is_new_alone() {
        let mut log = Log::default();
        let (mut running, done) = (job(State::Running), JobStatus { id: 1, ..job(State::Done) });
        let first = log.lines(&[done.clone(), running.clone()]);
        assert_eq!(
            first,
            "job 7 (/lustre/project/run/ckpt-7): copying, 62 %, 1.00 MB/s, 40 s left, 12 files, 100 MiB, verified 50 %\n"
        );
        running.bytes_written += 1;
        assert_eq!(log.lines(&[done.clone(), running.clone()]), "");
        running.state = State::Done;
        assert!(log.lines(&[done, running]).starts_with("job 7 (/lustre/project/run/ckpt-7): done"));
    }
}
