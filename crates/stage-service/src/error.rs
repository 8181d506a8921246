//! Errors of the way to a server, and of jobs that others wait for.

use stage::error::{Cause, ErrorClass, Foreign, Why};

/// What can go wrong between a client, a server and its jobs; within a [`stage::StageError`] everywhere.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// No server listens.
    #[error("no server answers at {tried}")]
    NoServer {
        /// The sockets that were tried, each with the kernel's word.
        tried: String,
    },
    /// The connection was lost, or the answer does not fit the question.
    #[error("{socket}: {what}")]
    Lost {
        /// The server's socket, as a person reads it.
        socket: String,
        /// What went wrong.
        what: String,
    },
    /// The server's answer is that it could not be done.
    #[error("{}", .0.message)]
    Answered(Box<Why>),
    /// A job failed, whose failure the journal has kept, or was cancelled.
    #[error("{what}: {}", why.as_ref().map_or("it was cancelled", |why| &why.message))]
    Job {
        /// What is not done because of it.
        what: String,
        /// Why it failed; none if it was cancelled.
        why: Option<Box<Why>>,
    },
    /// A thread that worked for a job has panicked.
    #[error("job {job}: a bug: a thread that worked for it panicked")]
    Panicked {
        /// The job's number.
        job: stage::JobId,
    },
}

impl ServiceError {
    /// Has a server no room for this now, so that it may be asked again later?
    #[must_use]
    pub fn is_busy(error: &stage::StageError) -> bool {
        matches!(error.foreign(), Some(Self::Answered(why)) if why.cause == Cause::Busy)
    }

    /// Did a server, or an object store, not answer as it should, so that it may be asked again later?
    #[must_use]
    pub fn is_no_answer(error: &stage::StageError) -> bool {
        match error.foreign() {
            Some(Self::NoServer { .. } | Self::Lost { .. }) => true,
            Some(Self::Answered(_) | Self::Job { .. } | Self::Panicked { .. }) => false,
            None => matches!(error, stage::StageError::Foreign(_)),
        }
    }

    /// Does no server listen?
    #[must_use]
    pub fn is_no_server(error: &stage::StageError) -> bool {
        matches!(error.foreign(), Some(Self::NoServer { .. }))
    }

    fn why(&self) -> Option<&Why> {
        match self {
            Self::Answered(why) | Self::Job { why: Some(why), .. } => Some(why),
            _ => None,
        }
    }
}

impl Foreign for ServiceError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Job { why: None, .. } => ErrorClass::Interrupted,
            other => other.why().map_or(ErrorClass::Failed, |why| why.class),
        }
    }

    fn cause(&self) -> Cause {
        self.why().map_or(Cause::Other, |why| why.cause)
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoServer { .. } => Some(
                "start one: flashwright stage serve; or have it done at once, without one: --foreground"
                    .to_owned(),
            ),
            other => other.why().and_then(|why| why.hint.clone()),
        }
    }

    fn errno(&self) -> Option<i32> {
        self.why().and_then(|why| why.errno)
    }
}
