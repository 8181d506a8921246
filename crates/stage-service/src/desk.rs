//! Where jobs are handed in: a mover in this process, or a server on a socket. Who hands them in need not know which.

use std::time::Duration;

use crate::mover::Mover;
use stage::error::StageError;
use stage::job::{JobId, JobStatus, State};
use stage::spec::{JobSpec, Level};

/// Takes jobs and tells what becomes of them. The promises are those of [`Mover`]'s calls of the same names.
pub trait Desk: Send + Sync {
    /// Accepts a job, durably.
    fn submit(&self, spec: JobSpec) -> Result<JobId, StageError>;

    /// A job, or all of them, the newest last.
    ///
    /// # Errors
    /// There is no such job.
    fn status(&self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError>;

    /// Waits until a job has come this far, has failed, or the time is up.
    ///
    /// # Errors
    /// There is no such job.
    fn wait(&self, id: JobId, level: Level, most: Option<Duration>) -> Result<JobStatus, StageError>;

    /// Gives a job up.
    ///
    /// # Errors
    /// There is no such job, it is durable.
    fn cancel(&self, id: JobId) -> Result<JobStatus, StageError>;

    /// Retries a failed job.
    ///
    /// # Errors
    /// There is no such job, it has not failed.
    fn retry(&self, id: JobId) -> Result<JobStatus, StageError>;
}

impl Desk for Mover {
    fn submit(&self, spec: JobSpec) -> Result<JobId, StageError> {
        Self::submit(self, spec)
    }

    fn status(&self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        Self::status(self, id)
    }

    fn wait(&self, id: JobId, level: Level, most: Option<Duration>) -> Result<JobStatus, StageError> {
        Self::wait(self, id, level, most)
    }

    fn cancel(&self, id: JobId) -> Result<JobStatus, StageError> {
        Self::cancel(self, id)
    }

    fn retry(&self, id: JobId) -> Result<JobStatus, StageError> {
        Self::retry(self, id)
    }
}

/// Hands a job in. One of those `known` to the desk that failed before, between the same places and in the same way, is
/// retried with what it has copied so far.
///
/// # Errors
/// Those of [`Desk::submit`] and [`Desk::retry`].
pub fn submit_or_retry(desk: &dyn Desk, spec: JobSpec, known: &[JobStatus]) -> Result<JobId, StageError> {
    let spec = spec.sealed();
    let failed = known.iter().rev().find(|job| {
        job.spec.source == spec.source
            && job.spec.destination == spec.destination
            && !matches!(job.state, State::Done | State::Cancelled)
    });
    match failed {
        // Committed and not at its end: whether that is still about this source is judged where it is handed in.
        Some(job) if job.state == State::Failed && job.level.is_committed() => desk.submit(spec),
        // What it copied cannot become whole.
        Some(job) if job.state == State::Failed && spec.check_source().is_err() => desk.submit(spec),
        Some(job) if job.state == State::Failed && job.spec.without_expected() == spec.without_expected() => {
            desk.retry(job.id).map(|job| job.id)
        }
        Some(job)
            if job.state == State::Failed
                && job.spec.options.semaphore.is_some()
                && job.spec.without_expected().of_any_semaphore()
                    == spec.without_expected().of_any_semaphore() =>
        {
            match spec.options.semaphore {
                // It was written anew: the job that goes on has to know of it.
                Some(_) => desk.submit(spec),
                None => desk.retry(job.id).map(|job| job.id),
            }
        }
        Some(job) if job.state == State::Failed => {
            // Asked for in another way: what was copied for the old one is given up first.
            desk.cancel(job.id)?;
            desk.submit(spec)
        }
        _ => desk.submit(spec),
    }
}
