//! NVMe namespaces by the commands that they take.
//!
//! A namespace has two nodes: a block device (`/dev/nvme0n1`) and, from Linux 5.13, a character device (`/dev/ng0n1`) to which
//! commands are sent past the block layer. No system call of the second looks at what the first is used for. So whoever
//! writes must find the first ([`crate::sysfs`]) and ask there.
//!
//! Bytes are those of `linux/nvme_ioctl.h` and of the NVM Express Base Specification 2.0 and NVM Command Set Specification 1.0.

mod command;
mod crc;
mod identify;
mod ioctl;
mod placement;
mod protection;
mod status;

pub(crate) use command::{Command, MOST_RANGES, RANGE_BYTES, URING_COMMAND, range};
#[cfg(test)]
pub(crate) use identify::MetadataFormat;
pub(crate) use identify::{Identity, WITH_METADATA};
pub(crate) use ioctl::{extended_format, identify, namespace_id, submit};
pub(crate) use placement::placement_identifiers;
pub use protection::{
    BlockMetadata, Guard, MetadataTransfer, ProtectionAction, ProtectionFormat, Tag, TagChecks, TagMismatch,
    Tags,
};
pub(crate) use status::words as status_words;
