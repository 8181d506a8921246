//! Why a layout could not be made or unmade, in classes that become exit codes.

use std::io;
use std::path::PathBuf;

pub use base::ErrorClass;
use base::environment::STATE;
use storage::device::OpenError;
use storage::trust::TrustError;

use crate::spec::SpecError;

/// A program that did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not installed.
    #[error("{program}: not found in PATH")]
    Missing {
        /// Its name.
        program: String,
    },
    /// It could not be started, or waited for.
    #[error("{command}: cannot be run")]
    Start {
        /// Program and arguments.
        command: String,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// It failed. What it said on standard error is part of the message.
    #[error("{command}: {status}: {said}")]
    Failed {
        /// Program and arguments.
        command: String,
        /// How it ended: `exit status: 1`.
        status: String,
        /// What it said.
        said: String,
    },
}

/// A layout that could not be made, unmade or looked at.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The layout makes no sense.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// This machine cannot do it.
    #[error("{setting}={value} is not to be had here: {reason}")]
    Unavailable {
        /// The setting.
        setting: String,
        /// What was asked for.
        value: String,
        /// Why not.
        reason: String,
    },
    /// A drive that is no block device, or that is in use or bears data.
    #[error(transparent)]
    Drive(#[from] OpenError),
    /// A name that leads to no block device.
    #[error("{}: is not a block device of this host", drive.display())]
    NoDrive {
        /// The name.
        drive: PathBuf,
    },
    /// A file that does not fit on the file system of a layout.
    #[error("a file of {} does not fit on {}, which has room for {}", units::bytes(*asked), place.display(), units::bytes(*available))]
    NoRoom {
        /// The drive or mount point.
        place: PathBuf,
        /// The size that was asked for, bytes.
        asked: u64,
        /// The most that fits, bytes.
        available: u64,
    },
    /// Two names of a layout are the same drive.
    #[error("{} and {} are the same drive", first.display(), second.display())]
    SameDrive {
        /// One name.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Another device has the name of one that was checked.
    #[error("{}: is not the drive any more that was checked{}", drive.display(), serial.as_ref().map(|serial| format!(" (serial {serial})")).unwrap_or_default())]
    Replaced {
        /// The name.
        drive: PathBuf,
        /// The serial number of the one that was checked.
        serial: Option<String>,
    },
    /// Something was put on a drive after it was checked.
    #[error("{}: was checked, and since then somebody has put something on it: {signature}", drive.display())]
    Appeared {
        /// The drive.
        drive: PathBuf,
        /// What.
        signature: String,
    },
    /// A journal, or its directory, that others can write.
    #[error(transparent)]
    Distrust(#[from] TrustError),
    /// A layout stands already, or the remains of one.
    #[error("{}: {standing}", journal.display())]
    Stands {
        /// Its journal.
        journal: PathBuf,
        /// What stands, for people.
        standing: String,
        /// Whether it was made to stay (`layout up`).
        by_hand: bool,
    },
    /// Another process works on layouts.
    #[error("{}: {holder} is at work on a layout", lock.display())]
    Locked {
        /// The lock.
        lock: PathBuf,
        /// The process.
        holder: String,
    },
    /// The settings that are to be undone were changed again by a layout of another state directory, which stands.
    #[error("settings of {disk} were changed later by the layout of {}, which stands", journal.display())]
    Newer {
        /// Kernel name of the disk, or `interrupts`.
        disk: String,
        /// The journal of the later layout.
        journal: PathBuf,
    },
    /// A program of the system failed.
    #[error("cannot {what}")]
    Program {
        /// What it was to do.
        what: String,
        /// How it failed.
        #[source]
        source: ProgramError,
    },
    /// The kernel refused a value.
    #[error("{device}: {setting}={value} was refused")]
    Setting {
        /// The drive or layer.
        device: String,
        /// The setting.
        setting: String,
        /// What was asked for.
        value: String,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// The kernel took a value and made another of it.
    #[error("{device}: {setting}={value} was asked for, and {found} came of it")]
    NotTaken {
        /// The drive or layer.
        device: String,
        /// The setting.
        setting: String,
        /// What was asked for.
        value: String,
        /// What is there.
        found: String,
    },
    /// What was made is not what was asked for.
    #[error("{what}: {asked} was asked for, and {found} came of it")]
    Made {
        /// What of it.
        what: String,
        /// What was asked for.
        asked: String,
        /// What is there.
        found: String,
    },
    /// A journal that is not one, or of a later version.
    #[error("{}: {problem}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Part of what was to be undone could not be; the journal keeps it.
    #[error("{} of {} could not be undone: {}", left.len(), left.len() + undone, left.join("; "))]
    Left {
        /// What is left, each with its reason.
        left: Vec<String>,
        /// Changes that were undone.
        undone: usize,
    },
    /// Any other failure of the system.
    #[error("{}: cannot {operation}", path.display())]
    Io {
        /// File or device.
        path: PathBuf,
        /// What was to be done.
        operation: &'static str,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
    /// Somebody asked to stop.
    #[error("interrupted while {what}")]
    Interrupted {
        /// What was under way.
        what: String,
    },
}

impl LayoutError {
    pub(crate) fn io(path: impl Into<PathBuf>, operation: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.into(), operation, source }
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Spec(_)
            | Self::Unavailable { .. }
            | Self::NoDrive { .. }
            | Self::NoRoom { .. }
            | Self::SameDrive { .. } => ErrorClass::Invalid,
            Self::Drive(error) => error.class(),
            Self::Stands { .. }
            | Self::Locked { .. }
            | Self::Newer { .. }
            | Self::Replaced { .. }
            | Self::Appeared { .. } => ErrorClass::Refused,
            Self::Distrust(TrustError::Untrusted { .. }) => ErrorClass::Refused,
            Self::Interrupted { .. } => ErrorClass::Interrupted,
            _ => ErrorClass::Failed,
        }
    }

    /// What to do about it, where there is something to say.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Spec(error) => error.hint(),
            Self::Drive(error) => return error.hint(),
            Self::Stands { by_hand: true, .. } => {
                "`flashwright layout down` takes it down, `flashwright layout show` tells what it is".to_owned()
            }
            Self::Stands { .. } => "`flashwright layout undo` restores what it changed".to_owned(),
            Self::Locked { .. } => "wait until it has ended, or end it".to_owned(),
            Self::NoDrive { .. } => "lsblk lists the block devices of this host".to_owned(),
            Self::NoRoom { .. } => "ask for less, or for no size: then it is as large as fits, less a tenth".to_owned(),
            Self::Newer { journal, .. } => {
                let state = journal.parent().unwrap_or(journal).display();
                format!("settings are undone newest first: take that one down before this, {STATE}={state}")
            }
            Self::Unavailable { .. } => "`flashwright layout survey DRIVE…` tells what is to be had".to_owned(),
            Self::Replaced { .. } | Self::Appeared { .. } => {
                "nothing was written to it; look at what it is, and name the drives again".to_owned()
            }
            Self::Distrust(TrustError::Untrusted { .. }) => {
                format!(
                    "undoing uses the rights of the user who runs it, so the journal must not be writable by others: undo it as \
                     the user who made it, or name a state directory of your own ({STATE})"
                )
            }
            Self::Left { .. } => {
                "remove what stands in the way and run `flashwright layout undo` again; --abandon forgets what \
                 can never be undone"
                    .to_owned()
            }
            Self::Program { source: ProgramError::Missing { program }, .. } => {
                format!("install the package that holds {program}")
            }
            Self::Setting { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "run as root".to_owned()
            }
            Self::Io { path, source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                if path.starts_with("/dev") || path.starts_with("/sys") {
                    return Some("run as root, where root may use the drive".to_owned());
                }
                format!("run as root, or name another directory for the journal: {STATE}")
            }
            Self::Journal { .. } => {
                "it may be of a later version of flashwright; that one can undo it".to_owned()
            }
            _ => return None,
        })
    }
}
