//! What is served: a device under a name.

use std::sync::Arc;

use nbd::wire::TransmissionFlags;
use storage::device::Device;

use crate::flushes::Flushes;
use crate::terms::{MAX_PAYLOAD, Terms};

/// The unit in which clients that are free to choose should ask, at least.
const PREFERRED: u32 = 4096;

/// A device, and how it may be used.
#[derive(Debug, Clone)]
pub struct Export {
    /// What clients ask for it by; the empty name is the default export.
    pub name: String,
    /// For people who list exports.
    pub description: String,
    /// The device.
    pub device: Arc<dyn Device>,
    /// Whether clients may write; only where the device can be.
    pub writable: bool,
}

impl Export {
    /// What all requests are multiples of: one byte, unless the device is open for direct I/O.
    pub(crate) fn block(&self) -> u32 {
        if self.device.is_direct() { self.device.geometry().logical_block.max(1) } else { 1 }
    }

    /// Whole blocks.
    pub(crate) fn size(&self) -> u64 {
        let size = self.device.size();
        size - size % u64::from(self.block())
    }

    /// What is best asked for at a time.
    pub(crate) fn preferred(&self) -> u32 {
        self.device.geometry().physical_block.max(self.block()).clamp(PREFERRED, MAX_PAYLOAD)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable && self.device.is_writable()
    }

    /// What clients may ask of it ("Transmission flags").
    ///
    /// A flush covers the writes of all connections: memory has nothing to flush, and each connection's engine writes
    /// through the same files. What is reached over NBD has its own servers for that, so there their word counts; where
    /// one of them knows no flush, none could end well here, and a client that was promised it takes that for lost data.
    pub(crate) fn flags(&self) -> TransmissionFlags {
        use TransmissionFlags as Flag;
        let mut flags = Flag::DF;
        if self.every_server(TransmissionFlags::flush) {
            flags |= Flag::FLUSH | Flag::FUA;
        }
        if self.is_writable() {
            flags |= Flag::TRIM | Flag::WRITE_ZEROES | Flag::FAST_ZERO;
        } else {
            flags |= Flag::READ_ONLY;
        }
        if self.every_server(TransmissionFlags::multi_conn) {
            flags |= Flag::MULTI_CONN;
        }
        // Fetching into a cache makes sense where there is one, and costs nothing where all is memory.
        if !self.device.is_direct() {
            flags |= Flag::CACHE;
        }
        Flag::of(flags)
    }

    /// Whether all that are reached over NBD say this of theirs.
    fn every_server(&self, says: fn(TransmissionFlags) -> bool) -> bool {
        let says = |leaf: &Arc<dyn Device>| leaf.remote().is_none_or(|remote| says(remote.export().flags));
        storage::device::leaves(&self.device).iter().all(says)
    }

    /// What a client that was promised this may ask.
    pub(crate) fn terms(&self, structured: bool, allocation: Option<u32>, flushes: &Arc<Flushes>) -> Terms {
        let writable = self.is_writable();
        let flushes = Arc::clone(flushes);
        Terms { size: self.size(), writable, block: self.block(), structured, allocation, flushes }
    }
}
