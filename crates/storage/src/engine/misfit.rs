//! Engines and devices that do not go together, as far as NVMe commands are concerned: a wrong request, with what to write.

use std::io;
use std::sync::Arc;

use base::IoEngine;

use super::{EngineConfig, EngineError};
use crate::device::{Device, is_called, leaves, route, targets};

/// Why an engine does not drive a device. It is the source of the [`EngineError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// Commands for what takes none.
    #[error("ioengine={engine} sends NVMe commands, and {device} is not a namespace by its character device")]
    TakesNoCommands {
        /// The engine.
        engine: &'static str,
        /// The device's spec.
        device: String,
    },
    /// Requests for what takes commands only.
    #[error("ioengine={engine} is not possible on {device}, which takes NVMe commands only")]
    TakesCommandsOnly {
        /// The engine.
        engine: &'static str,
        /// The device's spec.
        device: String,
    },
    /// No request is split on its way to a namespace.
    #[error("bs={bs} is more than one command to {device} moves, which is {most} bytes")]
    TooLong {
        /// Bytes of a request.
        bs: usize,
        /// The device's spec.
        device: String,
        /// The most bytes of one.
        most: u64,
    },
    /// The ranges of a command lie in the buffer of one slot, where each member's command would have them.
    #[error("num_range={ranges}: {device} has several members, and the ranges of a command are of one drive")]
    RangesOfSeveral {
        /// The most ranges of a command.
        ranges: u32,
        /// The device's spec.
        device: String,
    },
    /// The kernel, or the file's driver, does not pass commands on.
    #[error("ioengine={engine}: this kernel passes no NVMe commands through io_uring")]
    NotPassed {
        /// The engine.
        engine: &'static str,
    },
    /// Placement on a drive that has none.
    #[error("fdp=1: {device} does not place data ({why})")]
    NoPlacement {
        /// The device's spec.
        device: String,
        /// What it answered.
        why: String,
    },
    /// A placement identifier that there is not.
    #[error("fdp_pli={place}: {device} has {count} placement identifiers, counted from 0")]
    NoSuchPlace {
        /// Its place in the list.
        place: u16,
        /// The device's spec.
        device: String,
        /// How many there are.
        count: usize,
    },
    /// Blocks have metadata, and nothing says what becomes of it.
    #[error("{device}: its blocks have metadata, and nothing says what is to become of it")]
    Metadata {
        /// The device's spec.
        device: String,
    },
    /// What is said of metadata is of none.
    #[error(
        "{device}: its blocks have no metadata that pi_act, pi_chk, apptag or md_per_io_size could be about"
    )]
    NoMetadata {
        /// The device's spec.
        device: String,
    },
    /// Tags are to be checked that there are none of.
    #[error("pi_chk: the metadata of {device} is not protection information")]
    NoProtection {
        /// The device's spec.
        device: String,
    },
    /// Reference tags are to be checked where they count no blocks.
    #[error("pi_chk=REFTAG: protection of type 3, as of {device}, has no reference tags that are checked")]
    NoReferences {
        /// The device's spec.
        device: String,
    },
    /// The buffers of metadata are too short.
    #[error("md_per_io_size={given}: the metadata of a request to {device} is {needed} bytes")]
    ShortMetadata {
        /// Bytes that were given.
        given: u32,
        /// The bytes of a request.
        needed: usize,
        /// The device's spec.
        device: String,
    },
    /// Metadata of what is made of several devices.
    #[error("pi_act: {device} is made of several devices, and metadata is of the blocks of one namespace")]
    MetadataOfSeveral {
        /// The device's spec.
        device: String,
    },
    /// Zones that there are not.
    #[error("write_mode=zone_append: {device} has no zones")]
    NoZones {
        /// The device's spec.
        device: String,
    },
    /// A CPU for the polling thread that there is not, or that the process may not use.
    #[error("sqthread_poll_cpu={cpu}: no thread can be bound to this CPU")]
    NoSuchCpu {
        /// Its number.
        cpu: u32,
    },
}

impl Misfit {
    /// What to write instead.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::TakesNoCommands { .. } => {
                "name a node such as /dev/ng0n1, or write ioengine=io_uring".to_owned()
            }
            Self::TakesCommandsOnly { .. } => {
                "write ioengine=io_uring_cmd, or name the namespace's block device, such as /dev/nvme0n1"
                    .to_owned()
            }
            Self::TooLong { most, .. } => {
                format!("write bs={} or less (queue/max_hw_sectors_kb)", units::bytes_short(*most))
            }
            Self::RangesOfSeveral { .. } => "leave num_range out, or name one drive".to_owned(),
            Self::NotPassed { .. } => {
                "it takes Linux 6.1; or name the namespace's block device with ioengine=io_uring".to_owned()
            }
            Self::NoPlacement { .. } => {
                "leave fdp out, or switch placement on for the namespace's endurance group".to_owned()
            }
            Self::NoSuchPlace { .. } => "name others, or leave fdp_pli out for all".to_owned(),
            Self::Metadata { .. } => "write pi_act=1 or pi_act=0 in a job file".to_owned(),
            Self::NoMetadata { .. } => {
                "leave them out, or format the namespace with metadata (nvme format)".to_owned()
            }
            Self::NoProtection { .. } => "leave pi_chk out".to_owned(),
            Self::NoReferences { .. } => "write pi_chk=GUARD,APPTAG".to_owned(),
            Self::ShortMetadata { needed, .. } => format!("write md_per_io_size={needed}, or leave it out"),
            Self::MetadataOfSeveral { .. } => "write a section for each namespace".to_owned(),
            Self::NoZones { .. } => "write write_mode=write, or leave it out".to_owned(),
            Self::NoSuchCpu { .. } => {
                "name one of the CPUs that the process may use, or leave it out".to_owned()
            }
        }
    }

    /// The error of an engine that was opened for it.
    pub(super) fn of(self, engine: &'static str) -> EngineError {
        let source = io::Error::new(io::ErrorKind::InvalidInput, self);
        EngineError { engine, operation: super::slots::CONFIGURE, source }
    }
}

impl EngineError {
    /// Engine and device that do not go together, where that is the reason.
    #[must_use]
    pub fn misfit(&self) -> Option<&Misfit> {
        self.source.get_ref()?.downcast_ref()
    }
}

/// The most bytes of a slot's request that go to one member: all of it where members are not divided into chunks.
fn longest_part(device: &dyn Device, config: &EngineConfig) -> usize {
    let spread = route(device).filter(|spread| spread.members().len() > 1);
    let chunk = spread.and_then(|spread| spread.chunk()).and_then(|chunk| usize::try_from(chunk).ok());
    config.slot_bytes.min(chunk.unwrap_or(usize::MAX))
}

/// Refuses to send commands to what takes none, and requests to what takes commands only; and commands that are too long.
/// A device that makes requests itself is none of the engine's concern, whatever lies below it.
pub(super) fn check(
    engine: &'static str,
    device: &Arc<dyn Device>,
    config: &EngineConfig,
) -> Result<(), EngineError> {
    let sends_commands = IoEngine::from_word(engine).is_some_and(IoEngine::sends_commands);
    let bs = longest_part(&**device, config);
    let mut driven = targets(device).iter().filter(|target| !is_called(&***target)).flat_map(leaves);
    let misfit = driven.find_map(|leaf| {
        let device = leaf.spec().to_owned();
        match leaf.namespace() {
            None => sends_commands.then_some(Misfit::TakesNoCommands { engine, device }),
            Some(_) if !sends_commands => Some(Misfit::TakesCommandsOnly { engine, device }),
            Some(namespace) => {
                let most = namespace.most_bytes;
                (bs as u64 > most).then_some(Misfit::TooLong { bs, device, most })
            }
        }
    });
    misfit.map_or(Ok(()), |misfit| Err(misfit.of(engine)))
}
