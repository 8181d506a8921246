//! Requests that move no data to a drive: fio's engines `null`, `filecreate`, `filestat`, `filedelete`, `dircreate`, `dirstat`,
//! `dirdelete`, `falloc`, `ftruncate`, `page_fault` and `cpuio`.
//!
//! Each is a [`Device`] whose calls do what the engine does ([`Device::performs`]), so that the loop, the clock, rates, logs
//! and figures are those of every other job. Such a device has the kind `operations`: bytes are counted as fio counts
//! them, though none is moved, and nothing is concluded from them about a drive.
//!
//! - [`Nothing`] answers every request at once: what flashwright itself costs.
//! - [`Names`] makes, looks up or removes one name a request.
//! - [`OnFile`] allocates ranges of a file, or sets its length.
//! - [`Faults`] copies to and from memory that is there once it is touched.
//! - `cpuio` makes no requests: [`Burn`](crate::run::burn::Burn).
//!
//! What is removed is what the run itself has made ([`made`]).

mod faults;
pub mod made;
pub mod names;
mod on_file;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base::ErrorClass;
use storage::device::Device;

use crate::lies::Known;
use crate::observe::Observer;
use crate::run::conduct::Conduct;
use crate::run::{BenchError, Job};
use crate::zones::Zones;
use measure::Workload;

pub use crate::run::nothing::Nothing;
pub use faults::Faults;
pub use names::{Names, Operation};
pub use on_file::{OnFile, Range};

/// What the requests of a job do, where they are no transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing: fio's `null`.
    Nothing,
    /// There are none, and the threads compute: fio's `cpuio`.
    Compute,
    /// Copies to and from memory of the job's own, whose pages are made meanwhile: fio's `page_fault`.
    Fault,
    /// Something with a name each.
    Names(Operation),
    /// Something with the extent of a file.
    OnFile(Range),
}

impl Act {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Nothing, Self::Compute, Self::Fault];
        let others = others.into_iter().chain(Range::ALL.map(Self::OnFile));
        others.chain(Operation::ALL.map(Self::Names))
    }

    /// The act of one of fio's engines; None for one that moves data.
    #[must_use]
    pub fn of_engine(word: &str) -> Option<Self> {
        Self::all().find(|act| act.word() == word)
    }

    /// fio's name of the engine.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Nothing => "null",
            Self::Compute => "cpuio",
            Self::Fault => Faults::WORD,
            Self::Names(operation) => operation.word(),
            Self::OnFile(range) => range.word(),
        }
    }

    /// Whether it works on a file or device that holds data, which is opened, made and guarded like any other.
    #[must_use]
    pub fn is_on_file(self) -> bool {
        matches!(self, Self::OnFile(_))
    }
}

/// What could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// A name is there already.
    #[error("{}: is there already, and {act} {why}", .path.display())]
    Exists {
        /// The name.
        path: PathBuf,
        /// The engine.
        act: &'static str,
        /// Why that is in the way.
        why: &'static str,
    },
    /// A name is missing, and is not to be made.
    #[error("{}: is missing, and allow_file_create=0 makes none", .0.display())]
    Missing(PathBuf),
    /// A name is missing, and would be made among devices.
    #[error("{}: is missing, and no file is made among devices", .0.display())]
    AmongDevices(PathBuf),
    /// There is not so much memory.
    #[error("ioengine=page_fault: {0}")]
    Memory(io::Error),
    /// A wish to stop came first.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// The workload cannot be run.
    #[error(transparent)]
    Run(#[from] BenchError),
    /// The file system said no.
    #[error("{operation} {}", .path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// With which name.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl ActError {
    /// What kind of problem it is.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Exists { .. } => ErrorClass::Refused,
            Self::Missing(_) | Self::AmongDevices(_) | Self::Run(_) | Self::Memory(_) => ErrorClass::Invalid,
            Self::Interrupted => ErrorClass::Interrupted,
            Self::Io { .. } => ErrorClass::Failed,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { .. } => Some("name another directory=, or move it away".to_owned()),
            Self::Missing(_) => Some("make it first, or leave allow_file_create out".to_owned()),
            Self::Run(error) => error.hint(),
            Self::Memory(_) => Some("lower size, or numjobs: each copy has memory of its own".to_owned()),
            Self::AmongDevices(_) => Some("check the name of the device".to_owned()),
            Self::Io { .. } | Self::Interrupted => None,
        }
    }
}

/// The job that runs a workload on a device of this module.
///
/// # Errors
/// [`ActError`] where the workload contradicts itself, or nothing is known of what lies below.
pub fn job(device: Arc<dyn Device>, workload: &Workload, conduct: Conduct) -> Result<Job, ActError> {
    workload.validate().map_err(BenchError::from)?;
    let observer = Observer::of(&*device).map_err(|source| ActError::Io {
        operation: "find what lies below",
        path: device.spec().into(),
        source,
    })?;
    Ok(Job {
        device,
        workload: workload.clone(),
        observer,
        known: Known::default(),
        conduct,
        zones: Zones::default(),
    })
}
