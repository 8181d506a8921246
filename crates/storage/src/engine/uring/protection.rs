//! Protection information of a ring of NVMe commands: of one namespace, whose blocks have metadata.
//!
//! 1. Before a write is the kernel's, its tuples are made in its slot, or in the slot's metadata, which is zeros but for them; a
//!    write that is made again has them already.
//! 2. Its command says what the controller is to check or to make, and where metadata is that lies apart.
//! 3. When a read has come back whole, and its buffer is the caller's again, its tuples are checked; a request of which one is wrong
//!    has failed.
//!
//! The first and third are left out where the controller makes the tuples. Metadata that lies apart has a buffer for each slot,
//! so that none is looked at while the kernel has it.

use std::sync::Arc;

use super::IoUring;
use super::form::Form;
use crate::device::{AlignedBuffer, Device, route};
use crate::engine::{EngineConfig, Misfit, Op, RequestError, RequestFailure};
use crate::kernel::Kernel;
use crate::nvme::{BlockMetadata, Command, MetadataTransfer, TagChecks, TagMismatch, Tags};

/// What a job has to say of its blocks' metadata. Who makes protection information was said when the device was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protection {
    /// The application tag of what is written, and which tags are checked.
    pub tags: Tags,
    /// The most bytes of metadata of a request, where it lies in a buffer of its own; as many as are needed where this is None.
    pub metadata_bytes: Option<u32>,
}

impl Default for Protection {
    /// As in fio: nothing is checked, and the application tag is 0x1234.
    fn default() -> Self {
        let tags = Tags { application: 0x1234, mask: 0xffff, checks: TagChecks::default() };
        Self { tags, metadata_bytes: None }
    }
}

/// See the module's argument.
#[derive(Debug)]
pub(super) struct Protected {
    metadata: BlockMetadata,
    tags: Tags,
    /// Where the metadata of each slot is; empty where none lies apart.
    separate: Vec<AlignedBuffer>,
}

impl Protected {
    /// Of `device`; None if its blocks have no metadata.
    ///
    /// # Errors
    /// A [`Misfit`], where the device and what the job says of it do not go together.
    pub fn of(device: &Arc<dyn Device>, config: &EngineConfig) -> Result<Option<Self>, Misfit> {
        let spec = || device.spec().to_owned();
        let metadata = device.namespace().and_then(|namespace| namespace.metadata);
        let (metadata, protection) = match (metadata, config.protection) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(Misfit::NoMetadata { device: spec() }),
            (Some(_), None) => return Err(Misfit::Metadata { device: spec() }),
            (Some(metadata), Some(protection)) => (metadata, protection),
        };
        let checks = protection.tags.checks;
        match metadata.protection {
            None if checks != TagChecks::default() => {
                return Err(Misfit::NoProtection { device: spec() });
            }
            Some(format) if checks.reference && !format.has_references() => {
                return Err(Misfit::NoReferences { device: spec() });
            }
            _ => {}
        }
        let needed = metadata.separate_bytes(config.slot_bytes / metadata.block_bytes() as usize);
        if let Some(given) = protection.metadata_bytes.filter(|given| (*given as usize) < needed) {
            return Err(Misfit::ShortMetadata { given, needed, device: spec() });
        }
        let slots = if needed > 0 { config.depth } else { 0 };
        let separate = (0..slots).map(|_| AlignedBuffer::zeroed(needed, 4096)).collect();
        Ok(Some(Self { metadata, tags: protection.tags, separate }))
    }

    /// A read or write of a slot's, from a block on.
    pub fn on(&self, command: Command, slot: u32, block: u64) -> Command {
        let separate = self.separate.get(slot as usize).map_or(0, AlignedBuffer::address);
        self.metadata.on(command, block, separate, &self.tags)
    }

    /// Makes the metadata that lies apart, and the tuples, of what a slot is about to write to an offset.
    pub fn seal(&mut self, slot: u32, offset: u64, blocks: &mut [u8]) {
        let separate = self.separate.get_mut(slot as usize).map_or(&mut [][..], |buffer| &mut buffer[..]);
        // A read may have left the metadata of other blocks in it.
        separate.fill(0);
        if !self.metadata.is_sealed_here() {
            return;
        }
        let first = offset / u64::from(self.metadata.block_bytes());
        self.metadata.seal(blocks, separate, first, self.tags.application);
    }

    /// Checks the tuples of what a slot has read from an offset; the first that is wrong.
    pub fn check(&self, slot: u32, offset: u64, blocks: &[u8]) -> Option<TagMismatch> {
        if !self.metadata.is_sealed_here() {
            return None;
        }
        let first = offset / u64::from(self.metadata.block_bytes());
        let separate = self.separate.get(slot as usize).map_or(&[][..], |buffer| &buffer[..]);
        self.metadata.check(blocks, separate, first, &self.tags)
    }

    /// Gives the buffers up for ever, because the kernel may still write to them.
    pub fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.separate));
    }

    /// Words for the record.
    pub fn features(&self) -> impl Iterator<Item = String> {
        let place = match self.metadata.transfer {
            MetadataTransfer::None => None,
            MetadataTransfer::Interleaved => Some("in each block"),
            MetadataTransfer::Separate => Some("in buffers of its own"),
        };
        let bytes = self.metadata.bytes;
        let place = place.map(|place| format!("{bytes} bytes of metadata {place}"));
        let protection = self.metadata.protection.map(|format| {
            let by = if self.metadata.is_sealed_here() { "host" } else { "controller" };
            let checks: Vec<_> = self.tags.checks.words().collect();
            let checks = if checks.is_empty() { "nothing".to_owned() } else { checks.join(",") };
            format!("protection information of type {} by the {by}, which checks {checks}", format.kind)
        });
        place.into_iter().chain(protection)
    }
}

impl<K: Kernel, F: Form> IoUring<K, F> {
    /// Makes the protection information of an idle slot's write.
    pub(super) fn seal(&mut self, slot: u32, offset: u64, length: u32) {
        let data = &mut self.slots.buffer_mut(slot)[..length as usize];
        self.form.seal(slot, offset, data);
    }

    /// What the request comes to that a slot has just done as asked.
    pub(super) fn examine(&mut self, slot: u32) -> Result<(), RequestFailure> {
        let (op, offset, length) = self.slots.last_request(slot);
        if op != Op::Read {
            return Ok(());
        }
        match self.form.check(slot, offset, &self.slots.buffer(slot)[..length as usize]) {
            None => Ok(()),
            Some(wrong) => {
                let (device, cause) = (self.slots.device.spec().to_owned(), RequestError::Os(wrong));
                Err(RequestFailure { op, device, offset, length, member: None, cause })
            }
        }
    }
}

/// Refuses metadata of what is made of several devices: a block's number on its member is in its reference tag.
pub(super) fn check_alone(device: &Arc<dyn Device>, config: &EngineConfig) -> Result<(), Misfit> {
    match config.protection {
        Some(_) if route(&**device).is_some() => {
            Err(Misfit::MetadataOfSeveral { device: device.spec().to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
