//! What can go wrong with data outside memory.

use storage::device::{ErrorClass, OpenError};
use storage::engine::{EngineError, RequestFailure};

/// A failure of temporary space, or of a structure on it. Each message names the device and, where there is one, the offset.
#[derive(Debug, thiserror::Error)]
pub enum ExternalError {
    /// The scratch file could not be made or opened.
    #[error("opening temporary space in {place}")]
    Open {
        /// The directory.
        place: String,
        /// Why.
        #[source]
        source: Box<OpenError>,
    },
    /// The scratch file cannot grow.
    #[error("temporary space in {place} cannot grow beyond {}", units::bytes(*used))]
    Grow {
        /// The directory.
        place: String,
        /// What it has, bytes.
        used: u64,
        /// Why.
        #[source]
        source: Box<OpenError>,
    },
    /// The device is opened for reading only.
    #[error("{device} is open for reading only, and temporary space is written")]
    ReadOnly {
        /// The device's spec.
        device: String,
    },
    /// Blocks of a size that the device or a record does not allow.
    #[error("blocks of {block_bytes} bytes are not possible on {device}: {reason}")]
    BlockSize {
        /// The device's spec.
        device: String,
        /// The size asked for, bytes.
        block_bytes: usize,
        /// Why not.
        reason: String,
    },
    /// No block is free.
    #[error("temporary space {device} is full: all {} of it are in use", units::bytes(*size))]
    Full {
        /// The device's spec.
        device: String,
        /// Its size, bytes.
        size: u64,
    },
    /// The budget does not hold the buffers that the work needs.
    #[error("{what} needs at least {} of memory, and was given {}", units::bytes(*needed), units::bytes(*given))]
    TooLittleMemory {
        /// `sorting`, `a priority queue`, ….
        what: &'static str,
        /// The least that would do, bytes.
        needed: u64,
        /// The budget, bytes.
        given: u64,
    },
    /// The bytes read are not the bytes written.
    #[error(
        "the block at offset {offset} of {device} is corrupt: its {length} bytes have the checksum {found:#010x}, \
         those written had {expected:#010x}"
    )]
    Corrupt {
        /// The device's spec.
        device: String,
        /// Where the block begins, bytes.
        offset: u64,
        /// Its length, bytes.
        length: u32,
        /// CRC-32C of what was written.
        expected: u32,
        /// CRC-32C of what was read.
        found: u32,
    },
    /// A position behind the last record.
    #[error("record {index} was asked for, of {length}")]
    OutOfRange {
        /// The position.
        index: u64,
        /// How many records there are.
        length: u64,
    },
    /// A request failed.
    #[error(transparent)]
    Request(#[from] Box<RequestFailure>),
    /// The I/O engine could not be set up or driven.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A thread could not be started.
    #[error("starting a thread for {what}")]
    Thread {
        /// What it was to do.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An earlier failure, already reported, left the structure without part of its records.
    #[error("{what} failed earlier and holds only a part of its records")]
    Poisoned {
        /// `sorting`, `a priority queue`, ….
        what: &'static str,
    },
}

impl ExternalError {
    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Open { source, .. } | Self::Grow { source, .. } => source.class(),
            Self::ReadOnly { .. }
            | Self::BlockSize { .. }
            | Self::TooLittleMemory { .. }
            | Self::OutOfRange { .. } => ErrorClass::Invalid,
            Self::Full { .. }
            | Self::Corrupt { .. }
            | Self::Request(_)
            | Self::Engine(_)
            | Self::Thread { .. }
            | Self::Poisoned { .. } => ErrorClass::Failed,
        }
    }
}
