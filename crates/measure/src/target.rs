//! The one thing that a sweep needs to know about a drive or a simulator: that it runs a workload.

use std::error::Error;

use base::ErrorClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::{RunRecord, TargetFacts};
use crate::workload::Workload;

/// Something that runs workloads and reports what was seen: a device in real time, or a described
/// machine in virtual time.
pub trait Target {
    /// What it is, without running anything.
    fn facts(&self) -> &TargetFacts;

    /// Runs `workload` once.
    ///
    /// # Errors
    /// [`TargetError`]; a run with failed or short requests is an error, never a record.
    fn run(&mut self, workload: &Workload) -> Result<RunRecord, TargetError>;
}

/// A request that a drive or a server did not answer in the time that was allowed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnansweredRequest {
    /// What it was to do: `read`, `write`, `trim`, `fdatasync`, `fsync`. None where several were waited for together, and
    /// some of them may have been answered.
    pub operation: Option<String>,
    /// Spec of the device, file or export that does not answer.
    pub target: String,
    /// Where on it, bytes. None where the operation is not known, or has no place.
    pub offset: Option<u64>,
    /// How long it was waited for, which is the limit (`request_timeout`), seconds.
    pub seconds: f64,
}

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The workload makes no sense here; nothing was touched.
    #[error("the workload does not fit the target")]
    Invalid(#[source] Box<dyn Error + Send + Sync>),
    /// The figure would lie, or data would be lost; nothing was touched.
    #[error("refused")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
    /// The run failed.
    #[error("the run failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// The drive did not answer a request in the time that was allowed, and may still answer it, into memory of this process.
    /// Nothing more is to be measured by this process, and nothing below the target taken down.
    #[error("the run failed")]
    Unanswered {
        /// Which request.
        request: Box<UnansweredRequest>,
        /// The error in words.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl TargetError {
    /// An error of a class, whose causes are `source` and its own.
    #[must_use]
    pub fn new(class: ErrorClass, source: Box<dyn Error + Send + Sync>) -> Self {
        match class {
            ErrorClass::Invalid => Self::Invalid(source),
            ErrorClass::Refused => Self::Refused(source),
            ErrorClass::Failed => Self::Failed(source),
            ErrorClass::Interrupted => Self::Interrupted,
        }
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid(_) => ErrorClass::Invalid,
            Self::Refused(_) => ErrorClass::Refused,
            Self::Failed(_) | Self::Unanswered { .. } => ErrorClass::Failed,
            Self::Interrupted => ErrorClass::Interrupted,
        }
    }
}
