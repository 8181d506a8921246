//! A graph on a device: a volume, several drives as one, or a drive without a file system.
//!
//! 1. Before anything is read, the device is opened by the rules of [`storage::safety`], so that what may not be written is refused
//!    at once. A labelled volume is opened as its owner. Block devices and members of volumes stay claimed until the graph is
//!    complete; files that are members of anything else are locked here.
//! 2. What lies on the device as a whole is looked at. An earlier graph may be lost; a file system, say, only if all members are
//!    given up by name.
//! 3. When the graph is complete, files of members are no scratch files any more ([`BuildDevice::keep`]). A build that is killed before
//!    finds them as it left them.
//!
//! The work directory of such a build lies in the directory for temporary files, or beside the edge list; its name has the
//! list's and a number made of the spec, so builds on different devices do not meet.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::device::{self, Device, DeviceKind, DeviceSpec, OpenError, OpenOptions, leaves};
use storage::locks::{self, Attempt};
use storage::safety;
use volume::VolumeError;

use crate::GraphError;
use crate::format::{self, PAGE_BYTES};

/// A device that is open to have a graph built on it.
#[derive(Debug)]
pub struct BuildDevice {
    device: Arc<dyn Device>,
    name: PathBuf,
}

impl BuildDevice {
    /// Opens what `spec` names. `destroy` are members whose contents may be lost.
    ///
    /// # Errors
    /// [`GraphError::Open`], also where a member may not be written; [`GraphError::InMemory`]; [`GraphError::Signed`] if something
    /// else than a graph lies on the device; [`GraphError::Busy`] if another process writes a member.
    pub fn open(spec: &DeviceSpec, destroy: &[PathBuf]) -> Result<Self, GraphError> {
        let leaf_specs = spec.leaves();
        if leaf_specs.iter().any(|leaf| matches!(leaf, DeviceSpec::Memory { .. })) {
            return Err(GraphError::InMemory { device: spec.to_string() });
        }
        // Of a volume within something else nobody looks at the contents as a whole, so it is opened as any other user opens it.
        let as_owner = matches!(spec, DeviceSpec::Volume { .. });
        let direct = OpenOptions { destroy: destroy.to_vec(), as_owner, ..OpenOptions::writing() };
        let device = match volume::open(spec, &direct) {
            Err(VolumeError::Open(OpenError::DirectUnsupported { .. })) => {
                volume::open(spec, &direct.clone().buffered())
            }
            opened => opened,
        }?;
        lock_files(&device)?;
        let is_given_up = |leaf: &&DeviceSpec| destroy.iter().any(|given| names(given, leaf));
        if !leaf_specs.iter().all(is_given_up) {
            check_contents(&*device)?;
        }
        Ok(Self { device, name: PathBuf::from(spec.to_string()) })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Whether a graph lies on it.
    pub(super) fn bears_graph(&self) -> Result<bool, GraphError> {
        if self.device.size() < PAGE_BYTES {
            return Ok(false);
        }
        let mut first = vec![0; PAGE_BYTES as usize];
        let read = self.device.read_at(&mut first, 0);
        read.map_err(|source| GraphError::io("look for a graph on", &self.name, source))?;
        Ok(format::is_graph(&first))
    }

    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Where a build from the edge list at `list` has its work directory: in `folder`, or beside the list.
    pub(super) fn work_directory(&self, list: &Path, folder: Option<&Path>) -> PathBuf {
        let folder = folder.unwrap_or_else(|| super::folder_of(list));
        let spec = crc32c::crc32c(self.name.as_os_str().as_encoded_bytes());
        let mut name = OsString::from(list.file_name().unwrap_or_default());
        name.push(format!("-{spec:08x}.build"));
        folder.join(name)
    }

    /// Has files of members bear data from now on, so that no benchmark overwrites them without a word. A labelled volume's are known
    /// by their labels.
    pub(super) fn keep(&self) -> Result<(), GraphError> {
        if self.device.kind() == DeviceKind::Volume {
            return Ok(());
        }
        for leaf in leaves(&self.device).iter().filter(|leaf| leaf.kind() == DeviceKind::File) {
            device::keep_contents(leaf.fd())
                .map_err(|source| GraphError::io("mark as data", Path::new(leaf.spec()), source))?;
        }
        Ok(())
    }
}

/// Locks files that have no label, which the volume would have locked. The lock lasts as long as the device is open.
fn lock_files(device: &Arc<dyn Device>) -> Result<(), GraphError> {
    if device.kind() == DeviceKind::Volume {
        return Ok(());
    }
    for leaf in leaves(device).iter().filter(|leaf| leaf.kind() == DeviceKind::File) {
        let path = PathBuf::from(leaf.spec());
        match locks::try_exclusive(leaf.fd()) {
            Ok(Attempt::Taken | Attempt::Unsupported) => {}
            Ok(Attempt::Held { by }) => {
                let by = by.unwrap_or_else(|| "another process".to_owned());
                return Err(GraphError::Busy { path, by });
            }
            Err(source) => return Err(GraphError::io("lock", &path, source)),
        }
    }
    Ok(())
}

/// Whether `given`, a path or a spec, is what `leaf` names.
fn names(given: &Path, leaf: &DeviceSpec) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    match leaf.path() {
        Some(path) => real(given).is_some_and(|given| real(path) == Some(given)),
        None => given.to_str() == Some(&leaf.to_string()),
    }
}

/// Fails if something known lies on a device that is no graph.
fn check_contents(device: &dyn Device) -> Result<(), GraphError> {
    let read = |bytes: &mut [u8], at: u64| device.read_at(bytes, at);
    let found = safety::signatures_in(&read, device.size())
        .map_err(|source| GraphError::io("look for data on", Path::new(device.spec()), source))?;
    match found.into_iter().find(|signature| signature.kind != safety::GRAPH) {
        None => Ok(()),
        Some(signature) => {
            let device = device.spec().to_owned();
            Err(GraphError::Signed { device, signature: signature.to_string() })
        }
    }
}
