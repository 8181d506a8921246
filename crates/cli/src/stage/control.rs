//! `flashwright stage cancel` and `flashwright stage retry`.

use stage::{JobId, JobStatus, StageError};
use stage_service::desk::Desk;

use super::args::JobArgs;
use super::desk::{self, Server};
use super::documents::StageStatus;
use crate::failure::Failure;
use crate::output;

/// Gives a job up.
pub fn cancel(args: &JobArgs) -> Result<(), Failure> {
    control(
        args,
        |server, id| server.cancel(id),
        |job| format!("job {}: cancelled; {} is where it was", job.id, job.spec.source.shown()),
    )
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
