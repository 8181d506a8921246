//! Why a volume could not be opened.

use std::io;

use storage::device::{Device, ErrorClass, OpenError};

use crate::census::Flaw;

/// A volume that could not be opened or made. Each message names the member at fault.
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
    /// Labels that do not make a volume.
    #[error(transparent)]
    Flaw(#[from] Flaw),
    /// A member of which one copy of the label is lost.
    #[error("the copy of the label at the {place} of {member} {fault}, so the volume is not written")]
    OneCopy {
        /// Spec of the member.
        member: String,
        /// `head` or `tail`.
        place: &'static str,
        /// What is wrong with it.
        fault: String,
    },
    /// A member on which something else was made.
    #[error("{member} bears, beside the label of its volume, {signature}: something was made on it since")]
    Overwritten {
        /// Spec of the member.
        member: String,
        /// What it bears.
        signature: String,
    },
    /// A device that bears data and has no path by which it could be given up.
    #[error("{member} bears {signature}")]
    Signed {
        /// Spec of the member.
        member: String,
        /// What it bears.
        signature: String,
    },
    /// A file that is open as a member elsewhere, for writing.
    #[error(
        "{member} is being written by {}",
        holder.as_deref().unwrap_or("a process that this host does not show")
    )]
    Locked {
        /// Spec of the member.
        member: String,
        /// The process that holds the lock, with its name; None if proc(5) does not show it.
        holder: Option<String>,
    },
    /// A file of which only a part was to be used.
    #[error("{member}: the file has {actual} bytes, more than that; a label stands at the end of the file")]
    PartOfFile {
        /// Spec of the member.
        member: String,
        /// Bytes of the file.
        actual: u64,
    },
    /// A name that does not fit into a label.
    #[error("'{}' is no name for a volume: {why}", name.escape_debug())]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A device that could not be read or written.
    #[error("cannot {operation} the label of {member}")]
    Label {
        /// `read`, `write`, `sync`, ….
        operation: &'static str,
        /// Spec of the member.
        member: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A step of the system's that has nothing to do with a member.
    #[error("cannot {operation}")]
    System {
        /// What was to be done.
        operation: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Checksums of blocks that would lie on two members.
    #[error("chunk={} is not a multiple of 4096 bytes, which each checksum covers", units::bytes_short(*chunk))]
    SumsChunk {
        /// The chunk, bytes.
        chunk: u64,
    },
    /// Checksums of parts of a member's blocks.
    #[error("{member} has blocks of {block} bytes, more than the 4096 that each checksum covers")]
    SumsBlock {
        /// Spec of the member.
        member: String,
        /// Its block, bytes.
        block: u64,
    },
    /// Data that cannot be verified.
    #[error("volume {volume} keeps no checksums, so its data cannot be verified")]
    NoSums {
        /// The volume.
        volume: String,
    },
    /// More bytes than an offset can name.
    #[error("{volume}: its members together have more bytes than a file offset holds")]
    TooLarge {
        /// Spec of the volume.
        volume: String,
    },
}

impl VolumeError {
    /// A label that could not be read or written.
    pub(crate) fn label(operation: &'static str, member: &dyn Device, source: io::Error) -> Self {
        Self::Label { operation, member: member.spec().to_owned(), source }
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Open(error) => error.class(),
            Self::Flaw(flaw) => flaw.class(),
            Self::OneCopy { .. } | Self::Overwritten { .. } | Self::Signed { .. } | Self::Locked { .. } => {
                ErrorClass::Refused
            }
            Self::Label { .. } | Self::System { .. } => ErrorClass::Failed,
            Self::Twice { .. }
            | Self::Chunk { .. }
            | Self::TooSmall { .. }
            | Self::PartOfFile { .. }
            | Self::Name { .. }
            | Self::SumsChunk { .. }
            | Self::SumsBlock { .. }
            | Self::NoSums { .. }
            | Self::TooLarge { .. } => ErrorClass::Invalid,
        }
    }

    /// What to do about it, where there is something to say.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Open(error) => error.hint(),
            Self::Flaw(flaw) => Some(flaw.hint()),
            Self::OneCopy { .. } => Some(
                "reading works; find out who wrote there, then flashwright volume check --repair SPEC,SPEC".to_owned(),
            ),
            Self::Overwritten { .. } => Some(
                "reading works; if it is a remnant wipe it (wipefs), and compare what is in the volume with a copy"
                    .to_owned(),
            ),
            Self::Signed { member, .. } => {
                Some(format!("if its contents may be lost add --destroy '{member}'"))
            }
            Self::Locked { .. } => Some("reading works; write when that process has ended".to_owned()),
            Self::PartOfFile { .. } => Some("leave size out".to_owned()),
            Self::Name { .. } => Some("a name has 64 bytes at most, none of them a control character".to_owned()),
            Self::Label { .. } | Self::System { .. } => None,
            Self::Twice { .. } => Some("name each device once".to_owned()),
            Self::Chunk { block, .. } => Some(format!("use a multiple of {block}: stripe(chunk=64k):…")),
            Self::TooSmall { .. } => Some("leave it out, or lower the chunk".to_owned()),
            Self::TooLarge { .. } => Some("leave members out".to_owned()),
            Self::SumsChunk { .. } => Some("use a multiple of 4k, or leave --checksums out".to_owned()),
            Self::SumsBlock { .. } => Some("leave --checksums out, or the member".to_owned()),
            Self::NoSums { .. } => {
                Some("only a volume that was made by flashwright volume create --checksums has them".to_owned())
            }
        }
    }
}
