//! `flashwright stage cancel` and `flashwright stage retry`.

use stage::{JobId, JobStatus, StageError, State};
use stage_service::desk::Desk;

use super::args::JobArgs;
use super::desk::{self, Server};
use super::documents::StageStatus;
use super::{foreground, request};
use crate::failure::Failure;
use crate::output;

/// Gives a job up: the server's, or else what a command without a server has left.
pub fn cancel(args: &JobArgs) -> Result<(), Failure> {
    if desk::number(&args.job).is_none()
        && !is_open_at_server(args)
        && let Some(job) = foreground::give_up(&args.server, &request::place(&args.job)?)?
    {
        let line = format!(
            "{}: cancelled; {} is where it was\n",
            job.spec.destination.shown(),
            job.spec.source.shown()
        );
        return if args.json { super::status::print_json(None, vec![job]) } else { output::print(&line) };
    }
    control(
        args,
        |server, id| server.cancel(id),
        |job| format!("job {}: cancelled; {} is where it was", job.id, job.spec.source.shown()),
    )
}

/// Has a server this job, and can it be given up there?
fn is_open_at_server(args: &JobArgs) -> bool {
    let server = Server::find_or_why(&args.server).ok().and_then(Result::ok);
    let job = server.and_then(|server| desk::job(&server, &args.job).ok());
    job.is_some_and(|job| matches!(job.state, State::Queued | State::Running | State::Failed))
}

/// Begins a failed one again.
pub fn retry(args: &JobArgs) -> Result<(), Failure> {
    control(args, |server, id| server.retry(id), |job| format!("job {}: begun again", job.id))
}

fn control(
    args: &JobArgs,
    act: fn(&Server, JobId) -> Result<JobStatus, StageError>,
    words: fn(&JobStatus) -> String,
) -> Result<(), Failure> {
    let server = Server::needed(&args.server)?;
    let job = desk::job(&server, &args.job)?;
    let job = act(&server, job.id)?;
    if args.json {
        return super::status::print_json(Some(&server), vec![job]);
    }
    output::print(&format!("{}\n", words(&job)))
}

/// The document of these jobs.
pub fn document(server: Option<&Server>, jobs: Vec<JobStatus>) -> StageStatus {
    StageStatus::new(server.map(|server| server.facts().clone()), jobs)
}
