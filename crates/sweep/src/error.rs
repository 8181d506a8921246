//! What kind of failure an error is, for the exit code.

pub use base::ErrorClass;

use crate::merge::MergeError;
use crate::run::RunError;
use crate::space::SpaceError;
use crate::store::StoreError;

impl SpaceError {
    /// A space that does not read or makes no sense is a wrong request.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        ErrorClass::Invalid
    }
}

impl StoreError {
    /// Naming the wrong file is a wrong request; a lock or another machine is a refusal; the rest
    /// are failures.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Missing { .. }
            | Self::NoDirectory { .. }
            | Self::Exists { .. }
            | Self::Foreign { .. }
            | Self::OtherFormat { .. }
            | Self::Later { .. }
            | Self::Unbegun { .. }
            | Self::NoSuchRow { .. }
            | Self::Contradicts { .. }
            | Self::OtherPlan { .. } => ErrorClass::Invalid,
            Self::Locked { .. } | Self::OtherMachine { .. } => ErrorClass::Refused,
            Self::Lock { .. }
            | Self::Full { .. }
            | Self::Damaged { .. }
            | Self::Database { .. }
            | Self::File { .. } => ErrorClass::Failed,
        }
    }
}

impl MergeError {
    /// Shards of different sweeps are a wrong request; unlike machines are a refusal.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Store(error) => error.class(),
            Self::Whole { .. } | Self::OtherSweep { .. } => ErrorClass::Invalid,
            Self::Running { .. } | Self::UnlikeMachines { .. } => ErrorClass::Refused,
        }
    }
}

impl RunError {
    /// The class of what stopped the session.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Store(error) => error.class(),
            Self::Refused { source, .. } => source.class(),
        }
    }

    /// What to do about it, where there is something to do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Refused { .. } => None,
        }
    }
}
