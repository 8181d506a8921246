//! Why a target was not prepared, or did not run: one type for front doors, with what to do about it.

use std::io;

pub use base::ErrorClass;
use measure::{TargetError, UnansweredRequest};
use storage::device::{OpenError, SpecError};
use volume::VolumeError;

use crate::acts::ActError;
use crate::run::BenchError;

/// Why a target did not run.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The spec could not be read.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The device could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The devices could not be put together.
    #[error(transparent)]
    Volume(VolumeError),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] BenchError),
    /// What its requests work on could not be made ready.
    #[error(transparent)]
    Act(#[from] ActError),
    /// It could not be prepared.
    #[error(transparent)]
    Precondition(#[from] PreconditionError),
    /// A raw device is to be read that was never written, by all that can be seen.
    #[error(
        "{device}: {zero} of {blocks} blocks drawn from the region are zeros, as blocks are that were never written: a drive answers reads of them from nothing"
    )]
    NeverWritten {
        /// The device's spec.
        device: String,
        /// Blocks of zeros.
        zero: usize,
        /// Blocks drawn.
        blocks: usize,
    },
    /// The device could not be looked at.
    #[error("look at {device}: {operation}")]
    Look {
        /// The device's spec.
        device: String,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl From<VolumeError> for Problem {
    fn from(error: VolumeError) -> Self {
        match error {
            // What is wrong with one device is the same, whatever it was opened for.
            VolumeError::Open(error) => Self::Open(error),
            error => Self::Volume(error),
        }
    }
}

impl From<Problem> for TargetError {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Run(BenchError::Unanswered(ref request)) => {
                Self::Unanswered { request: Box::new(request.clone()), source: Box::new(problem) }
            }
            _ => Self::new(problem.class(), Box::new(problem)),
        }
    }
}

impl Problem {
    /// What kind of problem it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Spec(_) => ErrorClass::Invalid,
            Self::Open(error) => error.class(),
            Self::Act(error) => error.class(),
            Self::Volume(error) => error.class(),
            Self::Run(error) if error.is_about_the_request() => ErrorClass::Invalid,
            Self::Precondition(error) if error.is_about_the_request() => ErrorClass::Invalid,
            Self::Precondition(PreconditionError::Interrupted) => ErrorClass::Interrupted,
            Self::NeverWritten { .. } => ErrorClass::Refused,
            Self::Run(_) | Self::Precondition(_) | Self::Look { .. } => ErrorClass::Failed,
        }
    }

    /// The request that was not answered, where that is the problem.
    #[must_use]
    pub fn unanswered(&self) -> Option<&UnansweredRequest> {
        match self {
            Self::Run(BenchError::Unanswered(request)) => Some(request),
            _ => None,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Spec(error) => Some(error.hint()),
            Self::Open(error) => error.hint(),
            Self::Act(error) => error.hint(),
            Self::Volume(error) => error.hint(),
            Self::Run(error) => error.hint(),
            Self::Precondition(error) => error.hint(),
            Self::NeverWritten { device, .. } => Some(format!(
                "add --allow-unwritten to measure it anyway; or, if nothing on it is needed, write the whole region first \
                 (--rw=write --bs=1m --time_based=0 --destroy {device})"
            )),
            Self::Look { source, .. } => {
                storage::remote::told_by(source).and_then(storage::remote::RemoteError::hint)
            }
        }
    }
}

/// Why a target was not prepared.
#[derive(Debug, thiserror::Error)]
pub enum PreconditionError {
    /// Memory has no state to bring it into.
    #[error("{device} is memory: there is nothing to purge")]
    Memory {
        /// The device's spec.
        device: String,
    },
    /// The rounds are the workload's own writes, and it has none.
    #[error(
        "precondition=steady repeats the workload until its writes are steady, and rw={rw} writes nothing"
    )]
    NoWrites {
        /// The workload's direction.
        rw: &'static str,
    },
    /// The device would not discard.
    #[error("purge {device}: discard {length} bytes at {offset}")]
    Discard {
        /// The device's spec.
        device: String,
        /// Where, bytes.
        offset: u64,
        /// How much, bytes.
        length: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Somebody asked to stop.
    #[error("interrupted while the target was prepared")]
    Interrupted,
}

impl PreconditionError {
    /// Whether the request was wrong, so that nothing was tried.
    #[must_use]
    pub fn is_about_the_request(&self) -> bool {
        matches!(self, Self::Memory { .. } | Self::NoWrites { .. })
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Memory { .. } => Some("drop --purge".into()),
            Self::NoWrites { .. } => Some("a reading test wants --precondition=fill".into()),
            Self::Discard { .. } => {
                Some("drop --purge where the drive, or a layer above it, takes no discards".into())
            }
            Self::Interrupted => None,
        }
    }
}
