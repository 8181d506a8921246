//! Why a device could not be opened, in three classes that become exit codes.

use std::io;
use std::path::PathBuf;

pub use base::ErrorClass;

use crate::extents::WrittenState;
use crate::nvme::WITH_METADATA;
use crate::remote::RemoteError;
use crate::safety::Refusal;

/// A device that could not be opened. Each message names the path or spec; [`OpenError::hint`] says
/// what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is nothing at the path.
    #[error("{}: no such file or device", path.display())]
    Missing {
        /// What was asked for.
        path: PathBuf,
    },
    /// The directory that is to hold it is not there.
    #[error("{}: there is no such directory", path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// Something that holds no bytes at offsets.
    #[error("{}: is {what}, not a file or block device", path.display())]
    NotATarget {
        /// What was asked for.
        path: PathBuf,
        /// What it is: `a directory`, `a FIFO`, ….
        what: &'static str,
    },
    /// A file or device without a byte, or with less than one block.
    #[error("{}: has {size} bytes, too few for one request of {needed}", path.display())]
    TooSmall {
        /// What was asked for.
        path: PathBuf,
        /// Its size, bytes.
        size: u64,
        /// The smallest request, bytes.
        needed: u64,
    },
    /// The size in the spec is larger than what is there.
    #[error("{}: size={asked_short} is more than the {} it has", path.display(), units::bytes(*actual), asked_short = units::bytes_short(*asked))]
    SizeMismatch {
        /// What was asked for.
        path: PathBuf,
        /// Bytes in the spec.
        asked: u64,
        /// Bytes of the file or device.
        actual: u64,
    },
    /// The file system, or this file, has no direct I/O.
    #[error("{}: direct=1 is not possible here ({reason})", path.display())]
    DirectUnsupported {
        /// What was asked for.
        path: PathBuf,
        /// Who says so.
        reason: &'static str,
    },
    /// More memory than there is.
    #[error("mem:{}: only {} of memory are free", units::bytes_short(*asked), units::bytes(*available))]
    NotEnoughMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that could be had.
        available: u64,
    },
    /// The file system is full, or a quota or limit is reached; what had been made was removed.
    #[error("{}: no space for {} ({} free)", path.display(), units::bytes(*asked), units::bytes(*available))]
    NoSpace {
        /// The file that was to be made.
        path: PathBuf,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free for this user.
        available: u64,
        /// The kernel's word, where it was asked.
        #[source]
        source: Option<io::Error>,
    },
    /// Writing would destroy a file that is not known to be scratch.
    #[error("{}: holds {} that were not laid by flashwright; writing would destroy them", path.display(), units::bytes(*size))]
    WouldOverwrite {
        /// The file.
        path: PathBuf,
        /// Its size, bytes.
        size: u64,
    },
    /// The device is in use, or bears data.
    #[error(transparent)]
    InUse(#[from] Refusal),
    /// What uses a namespace cannot be found out.
    #[error("refusing to write to {}: {why}, so what uses the namespace cannot be told", path.display())]
    Unguarded {
        /// The character device of the namespace.
        path: PathBuf,
        /// What is wrong with its block device.
        why: String,
    },
    /// Reading would measure memory, not the medium.
    #[error("{}: {state} in the {} from {offset} on were never written, so reading them measures nothing", path.display(), units::bytes(*length))]
    Unwritten {
        /// The file.
        path: PathBuf,
        /// Where the part that was to be read begins, bytes.
        offset: u64,
        /// Its length, bytes.
        length: u64,
        /// What of it is unwritten.
        state: WrittenState,
    },
    /// Permission is lacking, or the medium or mount is read-only.
    #[error("{}: not permitted to open for {access}", path.display())]
    Denied {
        /// What was asked for.
        path: PathBuf,
        /// `reading` or `writing`.
        access: &'static str,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// What the path leads to changed between two looks at it.
    #[error("{}: was replaced by something else while it was being opened", path.display())]
    Replaced {
        /// What was asked for.
        path: PathBuf,
    },
    /// The export of another host cannot be used.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Several devices where one is needed.
    #[error("{spec}: is several devices, and one is needed here")]
    MadeOfOthers {
        /// What was asked for.
        spec: String,
    },
    /// Any other failure of the system.
    #[error("{target}: {operation} failed")]
    Io {
        /// Path or spec.
        target: String,
        /// The system call or step.
        operation: &'static str,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Missing { .. }
            | Self::NoDirectory { .. }
            | Self::NotATarget { .. }
            | Self::TooSmall { .. }
            | Self::SizeMismatch { .. }
            | Self::MadeOfOthers { .. }
            | Self::DirectUnsupported { .. } => ErrorClass::Invalid,
            Self::Remote(
                RemoteError::ReadOnly { .. } | RemoteError::NotShared { .. } | RemoteError::TooSmall { .. },
            ) => ErrorClass::Invalid,
            Self::WouldOverwrite { .. }
            | Self::InUse(_)
            | Self::Unguarded { .. }
            | Self::Unwritten { .. } => ErrorClass::Refused,
            Self::NotEnoughMemory { .. }
            | Self::NoSpace { .. }
            | Self::Denied { .. }
            | Self::Replaced { .. }
            | Self::Remote(_)
            | Self::Io { .. } => ErrorClass::Failed,
        }
    }

    /// What to do about it, where there is something to say.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing { path } if path.as_os_str().as_encoded_bytes().contains(&b'?') => {
                format!("check the name; a file that is made with a size is file:{}", path.display())
            }
            Self::Missing { path } if path.starts_with("/dev") => {
                "check the name; `flashwright probe` shows the drives of this machine".to_owned()
            }
            Self::Missing { path } => {
                format!("check the name; to make a file of it write to file:{}?size=1g", path.display())
            }
            Self::NoDirectory { .. } => "make it first, or name a file in another one".to_owned(),
            Self::NotATarget { path, what: "a directory" } => {
                format!("name a file in it: file:{}/scratch?size=1g", path.display())
            }
            Self::NotATarget { what: WITH_METADATA, .. } => {
                "a job file with ioengine=io_uring_cmd and pi_act=1, or pi_act=0, reads and writes it".to_owned()
            }
            Self::NotATarget { .. } => {
                "name a regular file, a block device such as /dev/nvme0n1, an NVMe namespace such as /dev/ng0n1, or mem:1g".to_owned()
            }
            Self::TooSmall { path, .. } if path.starts_with("/dev") => "name another target".to_owned(),
            Self::TooSmall { path, .. } => {
                format!("remove it and write to file:{}?size=1g, or name another target", path.display())
            }
            Self::SizeMismatch { path, .. } => {
                format!("leave size out, or remove {} to have it made anew", path.display())
            }
            Self::DirectUnsupported { .. } => {
                "use --direct=0, which measures the page cache as well, or a file system on the drive"
                    .to_owned()
            }
            Self::NotEnoughMemory { .. } => "ask for less, or free memory".to_owned(),
            Self::NoSpace { .. } => "free space, ask for less, or name another directory".to_owned(),
            Self::WouldOverwrite { path, .. } => format!(
                "if its contents may be lost add --destroy {}; otherwise name a new file",
                path.display()
            ),
            Self::InUse(refusal) => return refusal.hint(),
            Self::Unguarded { .. } => {
                "write to the namespace's block device, such as /dev/nvme0n1, or only read".to_owned()
            }
            Self::Remote(error) => return error.hint(),
            Self::Unwritten { .. } => {
                "write the whole region first (--rw=write --bs=1m --time_based=0), or add --allow-unwritten to measure it anyway"
                    .to_owned()
            }
            Self::Denied { source, .. } if source.raw_os_error() == Some(libc::EROFS) => {
                "the mount or device is read-only".to_owned()
            }
            Self::Denied { source, .. } if source.raw_os_error() == Some(libc::ETXTBSY) => {
                "a program is being run from it, or it is swapped to".to_owned()
            }
            Self::Denied { path, .. } if path.starts_with("/dev") => {
                "run as a user who may, for instance root or a member of group disk".to_owned()
            }
            Self::Denied { .. } => "run as a user who may, or name a file in another directory".to_owned(),
            Self::MadeOfOthers { .. } => "name one of them".to_owned(),
            Self::Replaced { .. } => "try again when nothing else changes it".to_owned(),
            Self::Io { source, .. } if source.raw_os_error() == Some(libc::EMFILE) => {
                "raise the number of open files (ulimit -n)".to_owned()
            }
            // What the block layer makes of a block whose protection information does not fit it, and dm-integrity of its tags.
            Self::Io { source, target, .. } if source.raw_os_error() == Some(libc::EILSEQ) => format!(
                "a block there does not fit its protection information, or its tag of dm-integrity; if nothing on it is needed add --destroy {target}"
            ),
            Self::Io { .. } => return None,
        })
    }
}
