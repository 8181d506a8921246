//! The mover: jobs taken from a journal and carried out, several at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::StageError;
use crate::job::{JobId, JobStatus};
use crate::spec::{JobSpec, Level};

/// How a mover works.
#[derive(Debug, Clone)]
pub struct MoverConfig {
    /// Where the journal is, made if it is not there; one mover at a time has it.
    pub state: PathBuf,
    /// Jobs at once.
    pub jobs: usize,
    /// Threads that copy, for each job.
    pub threads: usize,
}

/// Jobs taken from a journal and carried out. Clones are the same mover; the last one that goes stops it, between
/// two steps, and what is not finished is gone on with by the next.
#[derive(Debug, Clone)]
pub struct Mover(#[allow(dead_code)] Arc<()>);

impl Mover {
    /// Opens the journal and goes on with what is in it.
    ///
    /// # Errors
    /// The journal is somebody else's, or cannot be used.
    pub fn open(_config: &MoverConfig) -> Result<Self, StageError> {
        todo!()
    }

    /// Accepts a job: it is in the journal, durably, when this returns. The same source and destination, asked for
    /// again while the job is under way, is the same job.
    ///
    /// # Errors
    /// What makes no sense or is refused.
    pub fn submit(&self, _spec: JobSpec) -> Result<JobId, StageError> {
        todo!()
    }

    /// A job, or all of them, the newest last.
    ///
    /// # Errors
    /// There is no such job; the journal's.
    pub fn status(&self, _id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        todo!()
    }

    /// Waits until a job has come this far, has failed, or the time is up (none: as long as it takes). The caller looks
    /// at the status to tell which.
    ///
    /// # Errors
    /// There is no such job; the journal's.
    pub fn wait(&self, _id: JobId, _level: Level, _most: Option<Duration>) -> Result<JobStatus, StageError> {
        todo!()
    }

    /// Gives a job up: what was copied goes, the source stays. One that is committed is durable and is not undone.
    ///
    /// # Errors
    /// There is no such job, it is committed; the journal's.
    pub fn cancel(&self, _id: JobId) -> Result<JobStatus, StageError> {
        todo!()
    }

    /// Begins a failed job again, with what it has copied so far.
    ///
    /// # Errors
    /// There is no such job, it has not failed; the journal's.
    pub fn retry(&self, _id: JobId) -> Result<JobStatus, StageError> {
        todo!()
    }

    /// Stops taking jobs, stops those at work between two steps, and waits for them.
    pub fn stop(&self) {
        todo!()
    }
}
