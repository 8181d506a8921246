//! How a device is to be opened.

use std::ops::Range;
use std::path::PathBuf;

use crate::nvme::ProtectionAction;

/// Whether the device will be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Access {
    /// Reads only. Nothing is claimed, and nothing can be changed.
    #[default]
    ReadOnly,
    /// Reads and writes. Block devices are claimed exclusively, and nothing that may hold data is
    /// written unless it is named in [`OpenOptions::destroy`].
    ReadWrite,
}

impl Access {
    /// For messages: `reading`, `writing`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::ReadOnly => "reading",
            Self::ReadWrite => "writing",
        }
    }

    /// Whether writes are possible.
    #[must_use]
    pub fn writes(self) -> bool {
        self == Self::ReadWrite
    }
}

/// What a write has made durable when it completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WriteSync {
    /// Nothing, as far as the descriptor goes.
    #[default]
    None,
    /// Its data (O_DSYNC).
    Data,
    /// Its data and the file's times (O_SYNC).
    File,
}

impl WriteSync {
    /// The flag of open(2).
    pub(super) fn flag(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Data => libc::O_DSYNC,
            Self::File => libc::O_SYNC,
        }
    }
}

/// How a device is to be opened. The default reads buffered, and refuses regions never written.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Bypass the page cache (O_DIRECT). Memory has none, and ignores it.
    pub direct: bool,
    /// Whether it will be written.
    pub access: Access,
    /// The devices and files whose contents the user has given up, by any of their names. It lifts the
    /// refusal of old data on exactly those, never the refusal of what is mounted, held or open.
    pub destroy: Vec<PathBuf>,
    /// Read regions of files that were never written. Only what is opened to be read only is looked
    /// at; a region that is first written and then read is checked with
    /// [`check_written`](super::check_written).
    pub allow_unwritten: bool,
    /// The bytes that will be read, where not all of the device.
    pub region: Option<Range<u64>>,
    /// What is written is what belongs there, as a file system's writes are, and not whatever a benchmark
    /// makes up. A labelled volume is then open to writing without its members being named in `destroy`; of all
    /// other devices nothing is known that would make a difference.
    pub as_owner: bool,
    /// Who makes the protection information of an NVMe namespace whose blocks have metadata, by its character device; such a
    /// namespace is not opened where this is None. All other devices ignore it.
    pub protection: Option<ProtectionAction>,
    /// What each write makes durable. Files and block devices obey it. Memory has nothing to make durable, and exports
    /// of other hosts ignore it.
    pub sync: WriteSync,
}

impl OpenOptions {
    /// For reading only, directly.
    #[must_use]
    pub fn reading() -> Self {
        Self { direct: true, ..Self::default() }
    }

    /// For reading and writing, directly.
    #[must_use]
    pub fn writing() -> Self {
        Self { direct: true, access: Access::ReadWrite, ..Self::default() }
    }

    /// The same through the page cache, so that offsets and lengths need no alignment.
    #[must_use]
    pub fn buffered(self) -> Self {
        Self { direct: false, ..self }
    }
}
