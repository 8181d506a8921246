//! Making a volume, mending a label, and wiping labels.
//!
//! A volume comes into being in four steps, each on all members and durable on all of them before the next begins:
//!
//! 1. whatever is known to lie on a member is cleared, labels of an earlier volume among it: the first 2 MiB, then
//!    the last 1 MiB; a member on which nothing is found is left as it is; then, where checksums are to be kept, an
//!    empty map of them is written;
//! 2. heads, then tails, that say *creating*, generation 1;
//! 3. heads that say *ready*, generation 2;
//! 4. tails that say *ready*, generation 2, all of epoch 1.
//!
//! A volume is whole when every member says that it is ready, in either copy. So whoever is stopped before the last
//! head of step 3 leaves a half-made volume, which is told as such, never opened, and made again by the same command;
//! and whoever is stopped after it leaves a whole one, of which tails are stale, or one is torn, and `check --repair` writes
//! them again. There is no moment at which data could be on a volume that is not whole, and none at which a torn write
//! takes both copies of a label: one is written after the other is durable.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use storage::device::{self, Device, DeviceKind, DeviceSpec, OpenError, OpenOptions};
use storage::safety::{self, Signature};

use crate::census::Candidate;
use crate::error::VolumeError;
use crate::label::{self, DATA_START, Epoch, LONGEST_NAME, Label, LabelPosition, State};
use crate::open::{
    Made, fit_labelled, is_given_up, members_named_once, name_of, named_once, open_labelled, open_to_write,
    stripe, too_small,
};
use crate::sums::{BLOCK, SumsLayout, SumsLimits};
use crate::traces::{no_other_signature, read_labels};
use storage::uuid::Uuid;

/// What is cleared at the beginning of a member that bears something, bytes; and at its end.
const HEAD: u64 = 2 << 20;
const TAIL: u64 = 1 << 20;

/// A volume that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    /// What it is called; may be empty.
    pub name: String,
    /// Bytes that one member holds before the next.
    pub chunk: u64,
    /// How checksums of the data are laid out, if they are to be kept.
    pub checksums: Option<SumsLayout>,
}

impl Default for NewVolume {
    /// Without a name, in chunks of 64 KiB, without checksums.
    fn default() -> Self {
        Self { name: String::new(), chunk: storage::spec::DEFAULT_CHUNK, checksums: None }
    }
}

/// Makes a volume of the members of `spec`, and returns the label of the first.
///
/// `destroy` names the devices whose contents may be lost. Members that a half-made volume was left on are taken
/// without being named, for there is nothing in it.
///
/// # Errors
/// [`VolumeError`]; what was written until then is no volume.
pub fn create(spec: &DeviceSpec, new: &NewVolume, destroy: &[PathBuf]) -> Result<Label, VolumeError> {
    named_once(spec)?;
    let options = OpenOptions { destroy: destroy.to_vec(), ..OpenOptions::writing() };
    let made = Made::before(spec, &options);
    let open = |member: &DeviceSpec| {
        let mut options = options.clone();
        if is_half_made(member) {
            options.destroy.push(name_of(member));
        }
        open_new(member, &options)
    };
    let members = spec.members().iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let label = create_on(&members, new)?;
    made.keep();
    Ok(label)
}

/// Opens a member-to-be, directly where it can be.
fn open_new(member: &DeviceSpec, options: &OpenOptions) -> Result<Arc<dyn Device>, VolumeError> {
    let device = match open_to_write(member, options) {
        Err(VolumeError::Open(OpenError::DirectUnsupported { .. })) => {
            open_to_write(member, &OpenOptions { direct: false, ..options.clone() })?
        }
        opened => opened?,
    };
    if let (DeviceSpec::File { path, size: Some(size) }, DeviceKind::File) = (member, device.kind()) {
        let actual = std::fs::metadata(path).map_or(*size, |facts| facts.len());
        if actual > *size {
            return Err(VolumeError::PartOfFile { member: member.to_string(), actual });
        }
    }
    // Files and block devices are looked at by whoever opens them.
    if !is_given_up(&*device, options)
        && let Some(signature) = signatures(&*device)?.first()
    {
        let (member, signature) = (device.spec().to_owned(), signature.to_string());
        return Err(VolumeError::Signed { member, signature });
    }
    Ok(device)
}

/// Whether nothing but the label of a volume that never came to be lies on the device.
fn is_half_made(member: &DeviceSpec) -> bool {
    let options = OpenOptions { allow_unwritten: true, ..OpenOptions::default() };
    let Ok(device) = device::open(member, &options) else { return false };
    let Ok(candidate) = Candidate::read(&*device) else { return false };
    let creating = |label: &Label| label.state == State::Creating;
    candidate.label().is_some_and(|label| creating(label) && no_other_signature(&*device, label).is_ok())
}

fn signatures(device: &dyn Device) -> Result<Vec<Signature>, VolumeError> {
    let read = |buffer: &mut [u8], at: u64| device.read_at(buffer, at);
    safety::signatures_in(&read, device.size())
        .map_err(|source| VolumeError::label("look for signatures beside", device, source))
}

/// Makes a volume of open devices, in their order, whatever lies on them, and returns the label of the first.
pub fn create_on(members: &[Arc<dyn Device>], new: &NewVolume) -> Result<Label, VolumeError> {
    let labels = labels(members, new)?;
    let mut used = Vec::new();
    for member in members {
        if bears_something(&**member)? {
            used.push(Arc::clone(member));
        }
    }
    for (place, bytes) in [(LabelPosition::Head, HEAD), (LabelPosition::Tail, TAIL)] {
        for member in &used {
            clear(&**member, place, bytes)?;
        }
        sync(&used)?;
    }
    if new.checksums.is_some() {
        crate::sums::write_empty_map(&labels[0], members)
            .map_err(|source| VolumeError::System { operation: "write the map of checksums", source })?;
        sync(members)?;
    }
    let creating = |label: &Label| Label { state: State::Creating, generation: 1, ..label.clone() };
    for place in LabelPosition::BOTH {
        write_all(members, &labels.iter().map(creating).collect::<Vec<_>>(), place)?;
    }
    for place in LabelPosition::BOTH {
        write_all(members, &labels, place)?;
    }
    Ok(labels[0].clone())
}

/// The labels of all members, as they will be when the volume is ready.
fn labels(members: &[Arc<dyn Device>], new: &NewVolume) -> Result<Vec<Label>, VolumeError> {
    check_name(&new.name)?;
    if let Some(sums) = new.checksums {
        assert!(sums.makes_sense(), "{sums:?}");
        check_blocks(members, new.chunk)?;
    }
    // One chunk and its checksums, between labels that stand at multiples of their size.
    let sums_bytes = new.checksums.map_or(0, |sums| sums.bytes_for(new.chunk));
    let end = DATA_START.saturating_add(new.chunk).saturating_add(sums_bytes);
    let needed = end.div_ceil(label::BYTES).saturating_add(1).saturating_mul(label::BYTES);
    if let Some(member) = members.iter().find(|member| member.size() < needed) {
        return Err(too_small("the volume", &**member, needed));
    }
    stripe("the volume", new.chunk, members)?;
    let room = |member: &Arc<dyn Device>| {
        let end = LabelPosition::Tail.offset(member.size()).unwrap_or(0);
        let data = end.saturating_sub(DATA_START);
        new.checksums.map_or(data - data % new.chunk, |sums| sums.data_for(data, new.chunk))
    };
    // The smallest bounds what the others hold: every member has as many chunks.
    let data_bytes = members.iter().map(room).min().unwrap_or(0);
    let system = |operation| move |source| VolumeError::System { operation, source };
    let volume = Uuid::random().map_err(system("draw a UUID"))?;
    let epoch = Epoch::after(0).map_err(system("draw a UUID"))?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let width = members.len() as u32;
    let label = |(position, member): (usize, &Arc<dyn Device>)| {
        Ok(Label {
            state: State::Ready,
            generation: 2,
            epoch,
            next: epoch,
            volume,
            member: Uuid::random().map_err(system("draw a UUID"))?,
            position: position as u32,
            width,
            chunk: new.chunk,
            data_start: DATA_START,
            data_bytes,
            member_bytes: member.size(),
            created,
            name: new.name.clone(),
            sums: new.checksums,
        })
    };
    let all = data_bytes.checked_mul(u64::from(width)).filter(|all| i64::try_from(*all).is_ok());
    if all.is_none() {
        return Err(VolumeError::TooLarge { volume: "the volume".to_owned() });
    }
    members.iter().enumerate().map(label).collect()
}

/// Refuses checksums where a block of theirs would lie on two members, or be a part of a member's block.
fn check_blocks(members: &[Arc<dyn Device>], chunk: u64) -> Result<(), VolumeError> {
    let block = |member: &Arc<dyn Device>| u64::from(member.geometry().logical_block);
    if let Some(member) = members.iter().find(|member| block(member) > BLOCK) {
        let (member, block) = (member.spec().to_owned(), block(member));
        return Err(VolumeError::SumsBlock { member, block });
    }
    if chunk.is_multiple_of(BLOCK) { Ok(()) } else { Err(VolumeError::SumsChunk { chunk }) }
}

fn check_name(name: &str) -> Result<(), VolumeError> {
    let why = match () {
        () if name.len() > LONGEST_NAME => "it is longer than 64 bytes",
        () if name.chars().any(char::is_control) => "it has control characters",
        () => return Ok(()),
    };
    Err(VolumeError::Name { name: name.to_owned(), why })
}

/// Whether anything is known to lie on a device, be it a label that is damaged.
fn bears_something(member: &dyn Device) -> Result<bool, VolumeError> {
    let found = Candidate::read(member).map_err(|source| VolumeError::label("read", member, source))?;
    Ok(found.bears_a_label() || !signatures(member)?.is_empty())
}

/// Zeroes one end of a member.
fn clear(member: &dyn Device, place: LabelPosition, bytes: u64) -> Result<(), VolumeError> {
    let bytes = bytes.min(member.size());
    let start = match place {
        LabelPosition::Head => 0,
        LabelPosition::Tail => member.size() - bytes,
    };
    let zeros = vec![0; bytes as usize];
    member.write_at(&zeros, start).map_err(|source| VolumeError::label("clear the place for", member, source))
}

/// Writes one copy on all members, and makes all of them durable.
fn write_all(members: &[Arc<dyn Device>], labels: &[Label], place: LabelPosition) -> Result<(), VolumeError> {
    for (member, label) in members.iter().zip(labels) {
        label::write(&**member, place, label)
            .map_err(|source| VolumeError::label("write", &**member, source))?;
    }
    sync(members)
}

fn sync(members: &[Arc<dyn Device>]) -> Result<(), VolumeError> {
    for member in members {
        member.sync_data().map_err(|source| VolumeError::label("sync", &**member, source))?;
    }
    Ok(())
}

/// A copy that was written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// The member.
    pub member: String,
    /// Which copy.
    pub place: LabelPosition,
    /// What was wrong with it.
    pub fault: String,
}

/// Writes again each copy of a label that is not what the other copy says, of a volume that is whole.
///
/// # Errors
/// [`VolumeError`]: where the volume is not whole, or something else was made on a member since.
pub fn repair(spec: &DeviceSpec) -> Result<Vec<Mended>, VolumeError> {
    named_once(spec)?;
    let options = OpenOptions { direct: false, as_owner: true, ..OpenOptions::writing() };
    let open = |member: &DeviceSpec| open_labelled(member, &options);
    repair_on(&spec.members().iter().map(open).collect::<Result<Vec<_>, _>>()?)
}

/// The same on open devices.
///
/// # Errors
/// As [`repair`].
pub fn repair_on(members: &[Arc<dyn Device>]) -> Result<Vec<Mended>, VolumeError> {
    let candidates = members.iter().map(read_labels).collect::<Result<Vec<_>, _>>()?;
    crate::census::census(&candidates)?;
    let mut mended = Vec::new();
    for (member, candidate) in members.iter().zip(&candidates) {
        let Some(label) = candidate.label() else { continue };
        no_other_signature(&**member, label)?;
        for place in LabelPosition::BOTH {
            let Some(fault) = candidate.fault(place) else { continue };
            label::write(&**member, place, label)
                .and_then(|()| member.sync_data())
                .map_err(|source| VolumeError::label("write", &**member, source))?;
            mended.push(Mended { member: candidate.spec.clone(), place, fault: fault.to_string() });
        }
    }
    // What was written is what is there.
    fit_labelled(String::new(), members.to_vec(), SumsLimits::default())?;
    Ok(mended)
}

/// Wipes the labels of `members`, each of which must be named in `destroy`; returns those that bore one.
///
/// # Errors
/// [`VolumeError`]: the first member that is given twice, is not named in `destroy`, has no label, or cannot be written.
/// Nothing is wiped before all of them are open.
pub fn destroy(members: &[DeviceSpec], destroy: &[PathBuf]) -> Result<Vec<String>, VolumeError> {
    members_named_once(members)?;
    let options = OpenOptions { direct: false, destroy: destroy.to_vec(), ..OpenOptions::writing() };
    let open = |member: &DeviceSpec| {
        // To read it first needs no permission, and a device without a label is none of this command's business.
        let reading = OpenOptions { allow_unwritten: true, ..OpenOptions::default() };
        let found = read_labels(&device::open(member, &reading)?)?;
        if !found.bears_a_label() {
            return Err(crate::census::Flaw::Unlabelled { member: member.to_string() }.into());
        }
        open_to_write(member, &options)
    };
    let devices = members.iter().map(open).collect::<Result<Vec<_>, VolumeError>>()?;
    destroy_on(&devices)?;
    Ok(devices.iter().map(|device| device.spec().to_owned()).collect())
}

/// Wipes the labels of open devices: all heads, then all tails.
pub fn destroy_on(members: &[Arc<dyn Device>]) -> Result<(), VolumeError> {
    for place in LabelPosition::BOTH {
        for member in members {
            label::wipe(&**member, place).map_err(|source| VolumeError::label("wipe", &**member, source))?;
        }
        sync(members)?;
    }
    Ok(())
}
