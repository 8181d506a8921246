//! Why a volume could not be opened.

use storage::device::{OpenError, OpenErrorClass};

/// A volume that could not be opened. Each message names the member at fault.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A device could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The same file or device more than once.
    #[error("{member} is named twice in {volume}")]
    Twice {
        /// Spec of the volume.
        volume: String,
        /// Spec of the member.
        member: String,
    },
    /// Requests would be cut where the member cannot be.
    #[error(
        "{volume}: chunk={} is not a multiple of the {block}-byte blocks of {member}",
        units::bytes_short(*chunk)
    )]
    Chunk {
        /// Spec of the volume.
        volume: String,
        /// Spec of the member.
        member: String,
        /// The chunk, bytes.
        chunk: u64,
        /// The member's block, bytes.
        block: u32,
    },
    /// A member with room for nothing.
    #[error("{member} has {}, less than the {} that a member of {volume} must have", units::bytes(*size), units::bytes(*needed))]
    TooSmall {
        /// Spec of the volume.
        volume: String,
        /// Spec of the member.
        member: String,
        /// Its size, bytes.
        size: u64,
        /// The least that would do, bytes.
        needed: u64,
    },
    /// More bytes than an offset can name.
    #[error("{volume}: its members together have more bytes than a file offset holds")]
    TooLarge {
        /// Spec of the volume.
        volume: String,
    },
}

impl VolumeError {
    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> OpenErrorClass {
        match self {
            Self::Open(error) => error.class(),
            Self::Twice { .. } | Self::Chunk { .. } | Self::TooSmall { .. } | Self::TooLarge { .. } => {
                OpenErrorClass::Invalid
            }
        }
    }

    /// What to do about it, where there is something to say.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Open(error) => error.hint(),
            Self::Twice { .. } => Some("name each device once".to_owned()),
            Self::Chunk { block, .. } => Some(format!("use a multiple of {block}: stripe(chunk=64k):…")),
            Self::TooSmall { .. } => Some("leave it out, or lower the chunk".to_owned()),
            Self::TooLarge { .. } => Some("leave members out".to_owned()),
        }
    }
}
