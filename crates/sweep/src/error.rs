//! What kind of failure an error is, for the exit code.

use measure::TargetError;

use crate::merge::MergeError;
use crate::run::RunError;
use crate::space::SpaceError;
use crate::store::StoreError;

/// Whose fault a failure is, as DESIGN's exit codes tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The work failed: exit code 1.
    Failed,
    /// The request was wrong: exit code 2.
    Invalid,
    /// Refused for safety: exit code 3.
    Refused,
    /// Interrupted, with all that was measured so far kept: exit code 130.
    Interrupted,
}

impl Class {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Invalid => 2,
            Self::Refused => 3,
            Self::Interrupted => 130,
        }
    }
}

impl SpaceError {
    /// A space that does not read or makes no sense is a wrong request.
    #[must_use]
    pub fn class(&self) -> Class {
        Class::Invalid
    }
}

impl StoreError {
    /// Naming the wrong file is a wrong request; a lock or another machine is a refusal; the rest
    /// are failures.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Missing { .. }
            | Self::NoDirectory { .. }
            | Self::Exists { .. }
            | Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::Unbegun { .. }
            | Self::NoSuchRow { .. }
            | Self::Contradicts { .. }
            | Self::OtherPlan { .. } => Class::Invalid,
            Self::Locked { .. } | Self::OtherMachine { .. } => Class::Refused,
            Self::Lock { .. }
            | Self::Full { .. }
            | Self::Damaged { .. }
            | Self::Database { .. }
            | Self::File { .. } => Class::Failed,
        }
    }
}

impl MergeError {
    /// Shards of different sweeps are a wrong request; unlike machines are a refusal.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
            Self::Whole { .. } | Self::OtherSweep { .. } => Class::Invalid,
            Self::Running { .. } | Self::UnlikeMachines { .. } => Class::Refused,
        }
    }
}

impl RunError {
    /// The class of what stopped the session.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
            Self::Refused { source, .. } => class_of_target(source),
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

/// The class of a target's error.
#[must_use]
pub fn class_of_target(error: &TargetError) -> Class {
    match error {
        TargetError::Invalid(_) => Class::Invalid,
        TargetError::Refused(_) => Class::Refused,
        TargetError::Failed(_) => Class::Failed,
        TargetError::Interrupted => Class::Interrupted,
    }
}
