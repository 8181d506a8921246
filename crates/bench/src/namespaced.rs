//! For tests: a file that says of itself that it is an NVMe namespace.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use storage::device::{BlockMetadata, Device, DeviceKind, Geometry, Namespace, OpenOptions, open};
use storage::sysfs::DeviceNumber;

#[derive(Debug)]
struct Namespaced {
    below: Arc<dyn Device>,
    namespace: Namespace,
}

/// A namespace whose block device has this number.
pub(crate) fn namespaced(twin: Option<DeviceNumber>) -> Arc<dyn Device> {
    with_metadata(twin, None)
}

/// The same, whose blocks have this metadata.
pub(crate) fn with_metadata(twin: Option<DeviceNumber>, metadata: Option<BlockMetadata>) -> Arc<dyn Device> {
    let block_bytes = metadata.map_or(512, |metadata| metadata.block_bytes());
    let namespace = Namespace { nsid: 1, block_bytes, metadata, most_bytes: 64 << 10, twin };
    let below = open(&"mem:8m".parse().expect("a spec"), &OpenOptions::writing()).expect("memory");
    Arc::new(Namespaced { below, namespace })
}

/// Labelled and joined to one device.
pub(crate) fn joined(members: Vec<Arc<dyn Device>>) -> Arc<dyn Device> {
    volume::create_on(&members, &volume::NewVolume::default()).expect("labels");
    let (volume, _) = volume::Volume::of_members(members).expect("a volume");
    Arc::clone(volume.device())
}

impl Device for Namespaced {
    fn spec(&self) -> &str {
        "namespaced"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 512, physical_block: 4096, memory_alignment: 512 }
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.below.fd()
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.below.write_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.below.sync_data()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.below.discard(offset, length)
    }
}
