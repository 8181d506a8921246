//! Where jobs are handed in: a mover in this process, or a server on a socket. Who hands them in need not know which.

use std::path::Path;
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

    /// All jobs that have not ended and all that this semaphore has asked for, the newest last. The answer to [`Desk::status`]
    /// may be without some of those that are done.
    fn known_to(&self, semaphore: &Path) -> Result<Vec<JobStatus>, StageError> {
        let _ = semaphore;
        self.status(None)
    }

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

/// Hands a job in; a failed one of the same request is retried instead, with what it has copied so far. `known`: all jobs of
/// the desk, the oldest first.
///
/// # Errors
/// Those of [`Desk::submit`] and [`Desk::retry`].
pub fn submit_or_retry(desk: &dyn Desk, spec: JobSpec, known: &[JobStatus]) -> Result<JobId, StageError> {
    let spec = spec.sealed();
    let unfinished = known
        .iter()
        .rev()
        .find(|job| job.spec.has_places_of(&spec) && !matches!(job.state, State::Done | State::Cancelled));
    let Some(failed) = unfinished.filter(|job| job.state == State::Failed) else {
        return desk.submit(spec);
    };
    // Committed and not at its end: whether that is still about this source is judged where it is handed in. Or what it copied
    // cannot become whole.
    if failed.level.is_committed() || spec.check_source().is_err() {
        return desk.submit(spec);
    }
    let (mut before, now) = (failed.spec.without_expected(), spec.without_expected());
    // Who asks without one leaves the job its own.
    before.options.semaphore = before.options.semaphore.filter(|_| now.options.semaphore.is_some());
    if before == now {
        return desk.retry(failed.id).map(|job| job.id);
    }
    // The job goes on where it is handed in for a semaphore that was written anew, and knows of that then. Of a job that was
    // asked for in another way, what was copied is given up first.
    if before.options.semaphore.is_none() || before.of_any_semaphore() != now.of_any_semaphore() {
        desk.cancel(failed.id)?;
    }
    desk.submit(spec)
}
