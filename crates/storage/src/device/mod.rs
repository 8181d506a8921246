//! One [`Device`] for files, block devices, NVMe namespaces, memory and exports of other hosts.
//!
//! [`open`] turns a [`DeviceSpec`] into a device. What it hands out keeps three promises: the bounds and
//! alignment in [`Geometry`] are what the kernel will accept; a device that is
//! [`writable`](Device::is_writable) may be written without destroying what nobody gave up
//! ([`crate::safety`]); and a file opened to be read was written throughout, unless that was waived
//! ([`crate::extents`]).

mod block;
mod channel;
mod contents;
mod error;
mod file;
mod mark;
mod memory_device;
mod namespace;
mod open;
mod options;
mod scratch;
mod spread;
pub(crate) mod sys;
pub(crate) mod zeroes;
mod zones;

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

pub use crate::nvme::{BlockMetadata, Guard, MetadataTransfer, ProtectionAction, ProtectionFormat};
pub use crate::spec::{DeviceSpec, SpecError};
pub use channel::AlignedBuffer;
pub use error::{ErrorClass, OpenError};
pub use mark::{keep_contents, was_laid};
pub(crate) use memory_device::available_memory;
pub use memory_device::open_memory;
pub use namespace::{Namespace, longest_request, namespace_bytes};
pub use open::{check_written, open};
pub(crate) use open::{failed, open_error};
pub use options::{Access, OpenOptions, WriteSync};
pub use scratch::ScratchFile;
pub use spread::{Piece, Spread, WrongPiece, leaves, piece_of, route, targets};
pub use sys::{LoopBacking, allocate_range, atomic_writes, loop_backing, space};
pub use zeroes::ZeroOptions;
pub use zones::{
    Zone, ZoneCondition, ZoneKind, Zoned, all_zones, discard_pieces, whole_zones, zone_bytes_of,
};

/// What kind of thing a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A regular file on a mounted file system.
    File,
    /// A block device; an NVMe namespace, by its character device as well.
    Block,
    /// Memory of this process.
    Memory,
    /// An export of another host, over NBD.
    Nbd,
    /// Several devices as one, chunk by chunk.
    Stripe,
    /// Several devices one by one; as an address space, one after the other.
    Separate,
    /// Several devices as one, chunk by chunk, behind labels that say how.
    Volume,
    /// Nothing that holds bytes: see [`Device::performs`].
    Operations,
}

impl DeviceKind {
    /// The word used in records: `file`, `block`, `memory`, `nbd`, `stripe`, `separate`, `volume`,
    /// `operations`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Block => "block",
            Self::Memory => "memory",
            Self::Nbd => "nbd",
            Self::Stripe => "stripe",
            Self::Separate => "separate",
            Self::Volume => "volume",
            Self::Operations => "operations",
        }
    }
}

/// What a device asks of requests, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Smallest unit that can be read or written; offsets and lengths of direct requests are
    /// multiples of it. 1 where the device is not opened for direct I/O. A power of two, but where a namespace's blocks have
    /// metadata behind their data: 520, for instance.
    pub logical_block: u32,
    /// Unit that the medium writes without reading first.
    pub physical_block: u32,
    /// Alignment of buffers for direct requests.
    pub memory_alignment: u32,
}

/// Something of a fixed size that can be read and written at offsets.
///
/// `read_at` and `write_at` are the plain synchronous path (laying files, labels, checks). What is
/// measured goes through an engine, which needs the [`fd`](Device::fd).
pub trait Device: Send + Sync + Debug {
    /// The device spec as it was typed.
    fn spec(&self) -> &str;
    /// What it is.
    fn kind(&self) -> DeviceKind;
    /// Where it is, if it has a name in the file system.
    fn path(&self) -> Option<&Path>;
    /// Usable bytes.
    fn size(&self) -> u64;
    /// What it asks of requests.
    fn geometry(&self) -> Geometry;
    /// Whether it was opened with O_DIRECT.
    fn is_direct(&self) -> bool;
    /// Whether it may be written.
    fn is_writable(&self) -> bool;
    /// The descriptor that engines drive; of a device that is made of others, that of the first, which
    /// stands for no more than itself. Open for the device's whole life.
    fn fd(&self) -> BorrowedFd<'_>;
    /// The bytes themselves, where the device is memory; engines then copy instead of asking the kernel.
    fn memory(&self) -> Option<&crate::memory::SharedMemory> {
        None
    }
    /// The export, where the device is one of another host; engines then send requests instead of asking the kernel.
    fn remote(&self) -> Option<&Arc<crate::remote::Remote>> {
        None
    }
    /// The namespace, where the device takes NVMe commands; its descriptor takes nothing else.
    fn namespace(&self) -> Option<&Namespace> {
        None
    }
    /// The descriptor by which others are kept out, where that is not [`fd`](Device::fd). Who sends requests holds it
    /// open until the last of them is over, also should this process end before.
    fn claim(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Where its bytes lie, where it is made of others.
    fn spread(&self) -> Option<&Arc<dyn Spread>> {
        None
    }
    /// The devices that it was made of, which may be made of others in turn; empty where there are none.
    fn members(&self) -> &[Arc<dyn Device>] {
        &[]
    }
    /// Whether the device verifies what it reads and keeps checksums of what is written. Every request must then be made
    /// by the device's own calls: what goes past it to the members is neither verified nor covered by a checksum.
    fn verifies(&self) -> bool {
        false
    }
    /// The word for what a request does here, where it moves no data: making a file, for instance, or nothing at all.
    /// Every request is then one call of the device, made on the thread that hands it over, at any depth.
    fn performs(&self) -> Option<&'static str> {
        None
    }
    /// The zones, where the device is a drive that has some.
    fn zones(&self) -> Option<&dyn Zoned> {
        None
    }
    /// What was found on the device since it was opened that its user should know and that is no error, a line each.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
    /// What the device must do before it is written for the first time; nothing, any later time. Its own calls see to
    /// it themselves, and engines, which go past it to the members, ask for it with each write and discard until it
    /// was done.
    ///
    /// # Errors
    /// The device's; nothing may be written then.
    fn begin_writing(&self) -> io::Result<()> {
        Ok(())
    }
    /// Tells that an engine's write, discard or sync failed on the way past the device to its members.
    fn writing_failed(&self) {}
    /// Reads exactly `buffer.len()` bytes at `offset`.
    ///
    /// # Errors
    /// The kernel's, or `UnexpectedEof` where the device ends first.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `buffer` at `offset`.
    ///
    /// # Errors
    /// The kernel's, or `WriteZero` where the device ends first.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
    /// Makes completed writes durable (fdatasync(2)).
    ///
    /// # Errors
    /// The kernel's. After a failure nothing may be assumed about earlier writes, and calling again
    /// does not help (`docs/faults.md`).
    fn sync_data(&self) -> io::Result<()>;
    /// Gives the range back to the medium: BLKDISCARD on a block device, a reset of whole zones on one that has sequential
    /// zones, a punched hole in a file.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` where the device cannot discard.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Makes the range read as zeros, by the fastest means that the device has; by writing zeros where it has
    /// none.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` where it would be no faster than writing and
    /// [`fast_only`](ZeroOptions::fast_only) is set, of which nothing was changed then.
    fn write_zeroes(&self, offset: u64, length: u64, how: ZeroOptions) -> io::Result<()> {
        zeroes::write(|bytes, at| self.write_at(bytes, at), offset, length, how)
    }
}

/// Whether requests must be made by the device's own calls, and not by the kernel's on its descriptor.
pub(crate) fn is_called(device: &dyn Device) -> bool {
    device.verifies() || device.performs().is_some()
}
