//! From a spec to an open volume.
//!
//! In this order: see that no member is named twice; open each as any device is opened, with its safety
//! rules ([`storage::safety`]), so that a refusal names the member; of a labelled volume read the labels and see
//! that they make one ([`crate::census`]); fit the members together; and, where they are to be
//! read only, see that the part which will be read was written on each. Files that were made on the way are
//! removed again if anything fails after that.
//!
//! To be written, the members of a labelled volume must be given up by name, like everything that bears data, or be
//! opened on behalf of the volume ([`OpenOptions::as_owner`]); and then both copies of each label must be as they
//! were written, and nothing else may have been made on a member since: whatever broke one copy may have broken the
//! data beside it.
//!
//! One process at a time writes a member. The kernel sees to that where the member is a block device, which is opened
//! exclusively; a file is locked with flock(2) for as long as it is open for writing ([`open_to_write`]).

use std::collections::HashSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::device::{self, Device, DeviceKind, DeviceSpec, Geometry, OpenOptions, Spread, check_written};
use storage::locks::{self, Attempt};
use storage::safety;

use crate::census::{Census, census};
use crate::device::Assembled;
use crate::error::VolumeError;
use crate::label::Label;
use crate::map::{Arrangement, Map};
use crate::session::Session;
use crate::stripe::Stripe;
use crate::sums::{BLOCK, Sums, SumsLimits};
use crate::traces::{read_labels, still_whole};

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
    let labelled = matches!(spec, DeviceSpec::Volume { .. });
    let open_member = |member: &DeviceSpec| match member.members() {
        [] if labelled => open_labelled(member, &each),
        [] => device::open(member, &each).map_err(VolumeError::from),
        _ => assemble(member, &each),
    };
    let members = spec.members().iter().map(open_member).collect::<Result<Vec<_>, _>>()?;
    let text = spec.to_string();
    Ok(match spec {
        DeviceSpec::Volume { .. } => Arc::new(fit_labelled(text, members, SumsLimits::default())?.0),
        DeviceSpec::Stripe { chunk, .. } => Arc::new(fit_striped(text, *chunk, members)?),
        _ => Arc::new(fit_joined(text, members)?),
    })
}

/// Opens a member of a labelled volume.
pub(crate) fn open_labelled(
    member: &DeviceSpec,
    options: &OpenOptions,
) -> Result<Arc<dyn Device>, VolumeError> {
    if !options.access.writes() {
        return Ok(device::open(member, options)?);
    }
    if !options.as_owner {
        let device = open_to_write(member, options)?;
        return if is_given_up(&*device, options) { Ok(device) } else { Err(bears_its_label(&*device)) };
    }
    // The label is what keeps others off; its owner looks at whatever else there may be when all are open.
    open_to_write(member, &OpenOptions { destroy: vec![name_of(member)], ..options.clone() })
}

/// How long a lock on a member is waited for. The kernel closes the files of an io_uring instance some time after the
/// instance itself is closed (io_uring_register(2)), so a volume that was just closed may still be locked.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two attempts.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Opens a member, or a device that becomes one, for writing. A file stays locked until it is closed.
///
/// # Errors
/// [`VolumeError::Locked`] if another open file description has the lock; those of [`device::open`].
pub(crate) fn open_to_write(
    member: &DeviceSpec,
    options: &OpenOptions,
) -> Result<Arc<dyn Device>, VolumeError> {
    let device = device::open(member, options)?;
    if device.kind() != DeviceKind::File {
        return Ok(device);
    }
    let until = Instant::now() + LOCK_TIMEOUT;
    let attempt = loop {
        match locks::try_exclusive(device.fd()) {
            Ok(Attempt::Held { .. }) if Instant::now() < until => std::thread::sleep(LOCK_INTERVAL),
            attempt => break attempt,
        }
    };
    match attempt {
        // Where the file system has no locks, nothing tells two writers apart.
        Ok(Attempt::Taken | Attempt::Unsupported) => Ok(device),
        Ok(Attempt::Held { by }) => Err(VolumeError::Locked { member: device.spec().to_owned(), holder: by }),
        Err(source) => Err(VolumeError::System { operation: "lock a member", source }),
    }
}

/// By what [`OpenOptions::destroy`] names a member: its path, or its spec where it has none, as an export.
pub(crate) fn name_of(member: &DeviceSpec) -> PathBuf {
    member.path().map_or_else(|| PathBuf::from(member.to_string()), Path::to_owned)
}

/// Whether what lies on a device may be lost. Of files and block devices whoever opens them has seen to it; what has
/// no path is given up by its spec.
pub(crate) fn is_given_up(device: &dyn Device, options: &OpenOptions) -> bool {
    matches!(device.kind(), DeviceKind::File | DeviceKind::Block)
        || options.destroy.iter().any(|given| given.as_os_str() == device.spec())
}

fn bears_its_label(device: &dyn Device) -> VolumeError {
    VolumeError::Signed {
        member: device.spec().to_owned(),
        signature: format!("the label of a {}", safety::MEMBER),
    }
}

/// Members as their labels say, whatever order they come in; and the label of the first.
pub(crate) fn fit_labelled(
    spec: String,
    members: Vec<Arc<dyn Device>>,
    limits: SumsLimits,
) -> Result<(Assembled, Label), VolumeError> {
    let candidates = members.iter().map(read_labels).collect::<Result<Vec<_>, _>>()?;
    let Census { order, label } = census(&candidates)?;
    for (member, candidate) in members.iter().zip(&candidates) {
        if member.is_writable() {
            still_whole(&**member, candidate, &label)?;
        }
    }
    let session = Session::default();
    session.watch(&members, &candidates);
    let members: Vec<_> = order.into_iter().map(|at| Arc::clone(&members[at])).collect();
    let mut geometry = geometry(&members);
    let stripe = stripe(&spec, label.chunk, &members)?;
    let spread: Arc<dyn Spread> =
        Arc::new(Map::new(Arrangement::Striped(stripe), label.data_start, &members));
    let sums = Sums::open(&label, &members, &spread, limits)
        .map_err(|source| VolumeError::System { operation: "read the map of checksums", source })?;
    if sums.is_some() && members.iter().any(|member| member.is_direct()) {
        geometry.logical_block = geometry.logical_block.max(BLOCK as u32);
        geometry.physical_block = geometry.physical_block.max(geometry.logical_block);
    }
    let (kind, size) = (DeviceKind::Volume, label.volume_bytes());
    Ok((Assembled { spec, kind, members, spread, size, geometry, session: Some(session), sums }, label))
}

/// Members as a stripe without labels.
fn fit_striped(spec: String, chunk: u64, members: Vec<Arc<dyn Device>>) -> Result<Assembled, VolumeError> {
    let geometry = geometry(&members);
    let stripe = stripe(&spec, chunk, &members)?;
    let smallest = members.iter().map(|member| member.size()).min().unwrap_or(0);
    let used = smallest - smallest % chunk;
    let size = offset_of(&spec, used.checked_mul(members.len() as u64))?;
    let spread = Arc::new(Map::new(Arrangement::Striped(stripe), 0, &members));
    Ok(Assembled {
        spec,
        kind: DeviceKind::Stripe,
        members,
        spread,
        size,
        geometry,
        session: None,
        sums: None,
    })
}

/// Members one after the other.
fn fit_joined(spec: String, members: Vec<Arc<dyn Device>>) -> Result<Assembled, VolumeError> {
    let geometry = geometry(&members);
    let starts = joined(&spec, &members, u64::from(geometry.logical_block))?;
    let size = starts.last().copied().unwrap_or(0);
    let spread = Arc::new(Map::new(Arrangement::Joined(starts), 0, &members));
    Ok(Assembled {
        spec,
        kind: DeviceKind::Separate,
        members,
        spread,
        size,
        geometry,
        session: None,
        sums: None,
    })
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

pub(crate) fn too_small(volume: &str, member: &dyn Device, needed: u64) -> VolumeError {
    let (volume, size) = (volume.to_owned(), member.size());
    VolumeError::TooSmall { volume, member: member.spec().to_owned(), size, needed }
}

/// The arithmetic of a stripe, if its chunks can be had from each member.
pub(crate) fn stripe(volume: &str, chunk: u64, members: &[Arc<dyn Device>]) -> Result<Stripe, VolumeError> {
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
    Ok(Stripe::new(chunk, members.len() as u32))
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
    /// Where the server is, as it is named, and the export's name.
    Export(String, String),
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
pub(crate) fn named_once(spec: &DeviceSpec) -> Result<(), VolumeError> {
    let mut seen = HashSet::new();
    for leaf in spec.leaves() {
        let identity = match (leaf, leaf.path()) {
            (DeviceSpec::Nbd(uri), _) => Identity::Export(uri.host(), uri.export().to_owned()),
            (_, Some(path)) => Identity::of(path),
            (_, None) => continue,
        };
        if !seen.insert(identity) {
            return Err(VolumeError::Twice { volume: spec.to_string(), member: leaf.to_string() });
        }
    }
    Ok(())
}

/// The same for a list of members.
pub(crate) fn members_named_once(members: &[DeviceSpec]) -> Result<(), VolumeError> {
    named_once(&DeviceSpec::Volume { members: members.to_vec() })
}

/// Files that opening may make, to be removed unless the volume is [kept](Made::keep).
#[derive(Debug)]
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    /// The files of `spec` that are not there.
    pub fn before(spec: &DeviceSpec, options: &OpenOptions) -> Self {
        let missing = |leaf: &&DeviceSpec| match leaf {
            DeviceSpec::File { path, size: Some(_) } => std::fs::symlink_metadata(path).is_err(),
            _ => false,
        };
        let leaves = spec.leaves();
        let paths = leaves.iter().copied().filter(missing).filter_map(DeviceSpec::path);
        Self(if options.access.writes() { paths.map(Path::to_owned).collect() } else { Vec::new() })
    }

    pub fn keep(mut self) {
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
