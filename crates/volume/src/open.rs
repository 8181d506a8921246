//! From a spec to an open volume.
//!
//! In this order: see that no member is named twice; open each as any device is opened, with its safety
//! rules ([`storage::safety`]), so that a refusal names the member; fit them together; and, where they are to be
//! read only, see that the part which will be read was written on each. Files that were made on the way are
//! removed again if anything fails after that.

use std::collections::HashSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::device::{self, Device, DeviceKind, DeviceSpec, Geometry, OpenOptions, check_written};

use crate::device::Volume;
use crate::error::VolumeError;
use crate::map::{Arrangement, Map};
use crate::stripe::Stripe;

/// Opens what `spec` names: one device, or several as one.
///
/// Everything that [`storage::device::open`] promises of one device holds for each member; `destroy` names
/// members. [`OpenOptions::region`] is a part of the volume.
///
/// # Errors
/// [`VolumeError`]; its class tells a wrong request, a refusal and a failure apart.
pub fn open(spec: &DeviceSpec, options: &OpenOptions) -> Result<Arc<dyn Device>, VolumeError> {
    if spec.members().is_empty() {
        return Ok(device::open(spec, options)?);
    }
    named_once(spec)?;
    let made = Made::before(spec, options);
    let volume = assemble(spec, options)?;
    if !options.access.writes() {
        let region = options.region.clone().unwrap_or(0..volume.size());
        check_written(&*volume, region, options.allow_unwritten)?;
    }
    made.keep();
    Ok(volume)
}

/// Opens the members and fits them together.
fn assemble(spec: &DeviceSpec, options: &OpenOptions) -> Result<Arc<dyn Device>, VolumeError> {
    // What of each member will be read is known when all of them are open.
    let each = OpenOptions { allow_unwritten: true, region: None, ..options.clone() };
    let open_member = |member: &DeviceSpec| match member.members() {
        [] => device::open(member, &each).map_err(VolumeError::from),
        _ => assemble(member, &each),
    };
    let members = spec.members().iter().map(open_member).collect::<Result<Vec<_>, _>>()?;
    let geometry = geometry(&members);
    let text = spec.to_string();
    let (kind, arrangement, size) = match spec {
        DeviceSpec::Stripe { chunk, .. } => {
            let (stripe, size) = striped(&text, *chunk, &members)?;
            (DeviceKind::Stripe, Arrangement::Striped(stripe), size)
        }
        _ => {
            let starts = joined(&text, &members, u64::from(geometry.logical_block))?;
            let size = starts.last().copied().unwrap_or(0);
            (DeviceKind::Separate, Arrangement::Joined(starts), size)
        }
    };
    let spread = Arc::new(Map::new(arrangement, &members));
    Ok(Arc::new(Volume { spec: text, kind, members, spread, size, geometry }))
}

/// What all members take. Where direct requests are made, a piece of a request begins anywhere in its buffer
/// that a block can, so blocks are no smaller than the alignment of memory.
fn geometry(members: &[Arc<dyn Device>]) -> Geometry {
    let most = |of: fn(&Geometry) -> u32| members.iter().map(|m| of(&m.geometry())).max().unwrap_or(1);
    let memory_alignment = most(|g| g.memory_alignment);
    let logical_block = most(|g| g.logical_block).max(memory_alignment);
    Geometry {
        logical_block,
        physical_block: most(|g| g.physical_block).max(logical_block),
        memory_alignment,
    }
}

fn too_small(volume: &str, member: &dyn Device, needed: u64) -> VolumeError {
    let (volume, size) = (volume.to_owned(), member.size());
    VolumeError::TooSmall { volume, member: member.spec().to_owned(), size, needed }
}

/// Members as a stripe, and its size.
fn striped(volume: &str, chunk: u64, members: &[Arc<dyn Device>]) -> Result<(Stripe, u64), VolumeError> {
    for member in members {
        let Geometry { logical_block, memory_alignment, .. } = member.geometry();
        let block = logical_block.max(memory_alignment);
        if !chunk.is_multiple_of(u64::from(block)) {
            let (volume, member) = (volume.to_owned(), member.spec().to_owned());
            return Err(VolumeError::Chunk { volume, member, chunk, block });
        }
        if member.size() < chunk {
            return Err(too_small(volume, &**member, chunk));
        }
    }
    let smallest = members.iter().map(|member| member.size()).min().unwrap_or(0);
    let used = smallest - smallest % chunk;
    let width = members.len() as u32;
    Ok((Stripe::new(chunk, width), offset_of(volume, used.checked_mul(u64::from(width)))?))
}

/// Where each member begins, and where all end, in whole blocks.
fn joined(volume: &str, members: &[Arc<dyn Device>], block: u64) -> Result<Vec<u64>, VolumeError> {
    let (mut starts, mut end) = (vec![0], 0_u64);
    for member in members {
        let used = member.size() - member.size() % block;
        if used == 0 {
            return Err(too_small(volume, &**member, block));
        }
        end = offset_of(volume, end.checked_add(used))?;
        starts.push(end);
    }
    Ok(starts)
}

/// A size, if a file offset holds it (off_t is signed).
fn offset_of(volume: &str, size: Option<u64>) -> Result<u64, VolumeError> {
    size.filter(|size| i64::try_from(*size).is_ok())
        .ok_or_else(|| VolumeError::TooLarge { volume: volume.to_owned() })
}

/// What tells files and devices apart whatever they are called: a device by its number, a file by its file
/// system and inode, what does not exist by its path.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Identity {
    Device(u64),
    File(u64, u64),
    Nothing(PathBuf),
}

impl Identity {
    fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => Self::Device(found.rdev()),
            Ok(found) => Self::File(found.dev(), found.ino()),
            Err(_) => Self::Nothing(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())),
        }
    }
}

/// Refuses a volume of which two members would overwrite each other.
fn named_once(spec: &DeviceSpec) -> Result<(), VolumeError> {
    let mut seen = HashSet::new();
    for leaf in spec.leaves() {
        let Some(path) = leaf.path() else { continue };
        if !seen.insert(Identity::of(path)) {
            return Err(VolumeError::Twice { volume: spec.to_string(), member: leaf.to_string() });
        }
    }
    Ok(())
}

/// Files that opening may make, to be removed unless the volume is [kept](Made::keep).
#[derive(Debug)]
struct Made(Vec<PathBuf>);

impl Made {
    /// The files of `spec` that are not there.
    fn before(spec: &DeviceSpec, options: &OpenOptions) -> Self {
        let missing = |leaf: &&DeviceSpec| match leaf {
            DeviceSpec::File { path, size: Some(_) } => std::fs::symlink_metadata(path).is_err(),
            _ => false,
        };
        let leaves = spec.leaves();
        let paths = leaves.iter().copied().filter(missing).filter_map(DeviceSpec::path);
        Self(if options.access.writes() { paths.map(Path::to_owned).collect() } else { Vec::new() })
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            // Somebody else may have made it meanwhile; what was made here bears the mark.
            if device::was_laid(path) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
