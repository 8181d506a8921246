//! Which volumes there are on a set of devices, as data: `flashwright.volumes/1` and `flashwright.volume-check/1`.
//!
//! Looking opens devices to be read only. What cannot be opened is left out where everything is looked through, and
//! is an error where it was named.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use storage::device::{self, Device, DeviceSpec, OpenError, OpenOptions};
use storage::sysfs::{BlockDevice, Sysfs};

use crate::census::{Candidate, Flaw, called, census};
use crate::create::Mended;
use crate::error::VolumeError;
use crate::label::{Label, LabelPosition, State};
use crate::open::{fit_labelled, members_named_once};
use crate::sums::{DataFinding, Progress, SumsLimits};
use crate::traces::{no_other_signature, read_labels};
use storage::uuid::Uuid;

/// The format of `volume show --json` and `volume create --json`.
pub const SCHEMA: &str = "flashwright.volumes/1";
/// The format of `volume check --json`.
pub const CHECK_SCHEMA: &str = "flashwright.volume-check/1";
/// The format of `volume check --data --json`.
pub const DATA_SCHEMA: &str = "flashwright.volume-data/1";

/// The volumes on some devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Volumes {
    /// `flashwright.volumes/1`.
    pub schema: String,
    /// In the order in which their first members were met.
    pub volumes: Vec<VolumeFound>,
    /// Devices with a label of which neither copy can be read.
    pub unreadable: Vec<Unreadable>,
}

/// A volume, whole or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeFound {
    /// Its UUID.
    pub uuid: String,
    /// Its name; may be empty.
    pub name: String,
    /// Whether it can be opened as it is here.
    pub whole: bool,
    /// Why it cannot; null where it can.
    pub problem: Option<String>,
    /// What to do about that.
    pub hint: Option<String>,
    /// The device spec by which it is opened; null where it cannot be.
    pub spec: Option<String>,
    /// Whether whoever wrote it last has closed it; if not, it is being written, or they were stopped.
    pub clean: bool,
    /// How many members it has.
    pub width: u32,
    /// Bytes that one member holds before the next.
    pub chunk_bytes: u64,
    /// Bytes of the volume.
    pub size_bytes: u64,
    /// Bytes of each member that hold its data.
    pub member_data_bytes: u64,
    /// Where they begin on each member, bytes.
    pub data_start_bytes: u64,
    /// Whether checksums of its data are kept.
    pub checksums: bool,
    /// When it was made, seconds since 1970.
    pub created_unix_s: u64,
    /// The members that are here, in their order.
    pub members: Vec<MemberFound>,
}

/// A member that is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberFound {
    /// The device's spec.
    pub spec: String,
    /// Its bytes.
    pub size_bytes: u64,
    /// Which member it is, from 1.
    pub position: u32,
    /// Its UUID.
    pub uuid: String,
    /// How often its label was written.
    pub generation: u64,
    /// The last epoch whose writes may be on it.
    pub epoch: u64,
    /// `ready`; `open` while it is being written, and where whoever wrote it was stopped; `creating` where the volume was
    /// never completed.
    pub state: String,
    /// What is wrong with the copy of the label at the beginning; null where nothing is.
    pub head_fault: Option<String>,
    /// What is wrong with the one at the end.
    pub tail_fault: Option<String>,
}

/// A device whose label cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unreadable {
    /// The device's spec.
    pub spec: String,
    /// What is wrong with it.
    pub problem: String,
}

/// What became of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// `flashwright.volume-check/1`.
    pub schema: String,
    /// Whether nothing is wrong, or nothing is any more.
    pub sound: bool,
    /// The volume.
    pub volume: VolumeFound,
    /// What is wrong.
    pub problems: Vec<String>,
    /// What was put right.
    pub repaired: Vec<String>,
}

/// What reading all data of a volume has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataCheck {
    /// `flashwright.volume-data/1`.
    pub schema: String,
    /// Whether all was read, and nothing is wrong with the data or the labels.
    pub sound: bool,
    /// Whether it was stopped before all was read.
    pub interrupted: bool,
    /// The volume.
    pub volume: VolumeFound,
    /// What is wrong with its labels, or lies on its members besides.
    pub problems: Vec<String>,
    /// Bytes of data that were read, of the regions that have checksums. Unreadable blocks are not among them.
    pub read_bytes: u64,
    /// Bytes of those whose blocks have a checksum, and were compared with it, whether or not they fit.
    pub verified_bytes: u64,
    /// Blocks that were given a new checksum after a crash, since the volume was made.
    pub resealed_blocks: u64,
    /// What is wrong, by the offset in the volume; the first 10,000.
    pub findings: Vec<DataFinding>,
    /// How many there are.
    pub finding_count: u64,
}

impl VolumeFound {
    /// Of candidates with labels of one volume.
    fn of(candidates: &[Candidate]) -> Option<Self> {
        let flaw = census(candidates).err();
        let mut members: Vec<(&Candidate, &Label)> =
            candidates.iter().filter_map(|candidate| Some((candidate, candidate.label()?))).collect();
        members.sort_by_key(|(_, label)| label.position);
        let (_, label) = members.first()?;
        let specs = members.iter().filter_map(|(candidate, _)| DeviceSpec::parse(&candidate.spec).ok());
        let spec = DeviceSpec::Volume { members: specs.collect() };
        Some(Self {
            uuid: label.volume.to_string(),
            name: label.name.clone(),
            whole: flaw.is_none(),
            spec: flaw.is_none().then(|| spec.to_string()),
            hint: flaw.as_ref().map(Flaw::hint),
            problem: flaw.map(|flaw| flaw.to_string()),
            clean: members.iter().all(|(_, label)| label.state == State::Ready),
            width: label.width,
            chunk_bytes: label.chunk,
            size_bytes: label.volume_bytes(),
            member_data_bytes: label.data_bytes,
            data_start_bytes: label.data_start,
            checksums: label.sums.is_some(),
            created_unix_s: label.created,
            members: members.iter().map(|(candidate, label)| MemberFound::of(candidate, label)).collect(),
        })
    }
}

impl MemberFound {
    fn of(candidate: &Candidate, label: &Label) -> Self {
        let fault = |place| candidate.fault(place).map(|fault| fault.to_string());
        Self {
            spec: candidate.spec.clone(),
            size_bytes: candidate.size,
            position: label.position + 1,
            uuid: label.member.to_string(),
            generation: label.generation,
            epoch: label.epoch.number,
            state: match label.state {
                State::Creating => "creating".to_owned(),
                State::Ready => "ready".to_owned(),
                State::Open => "open".to_owned(),
            },
            head_fault: fault(LabelPosition::Head),
            tail_fault: fault(LabelPosition::Tail),
        }
    }
}

/// What the volumes of `candidates` are.
#[must_use]
pub fn volumes_of(candidates: &[Candidate]) -> Volumes {
    let mut order: Vec<Uuid> = Vec::new();
    for label in candidates.iter().filter_map(Candidate::label) {
        if !order.contains(&label.volume) {
            order.push(label.volume);
        }
    }
    let of = |uuid: Uuid| {
        let its = candidates.iter().filter(|c| c.label().is_some_and(|label| label.volume == uuid));
        VolumeFound::of(&its.cloned().collect::<Vec<_>>())
    };
    let unreadable = candidates
        .iter()
        .filter(|candidate| candidate.label().is_none() && candidate.bears_a_label())
        .filter_map(|candidate| {
            let problem = census(std::slice::from_ref(candidate)).err()?.to_string();
            Some(Unreadable { spec: candidate.spec.clone(), problem })
        });
    Volumes {
        schema: SCHEMA.to_owned(),
        volumes: order.into_iter().filter_map(of).collect(),
        unreadable: unreadable.collect(),
    }
}

/// Opens a device to be read, past the page cache where it can be.
fn open_to_read(spec: &DeviceSpec) -> Result<Arc<dyn Device>, VolumeError> {
    let options = OpenOptions { allow_unwritten: true, ..OpenOptions::default() };
    match device::open(spec, &options) {
        Err(OpenError::DirectUnsupported { .. }) => {
            Ok(device::open(spec, &OpenOptions { direct: false, ..options })?)
        }
        opened => Ok(opened?),
    }
}

/// Reads the labels of a device.
fn look_at(spec: &DeviceSpec) -> Result<Candidate, VolumeError> {
    read_labels(&open_to_read(spec)?)
}

/// The volumes on `devices`, each of which can be read.
///
/// # Errors
/// [`VolumeError`] of the first that cannot be read, or is named twice.
pub fn look(devices: &[DeviceSpec]) -> Result<Volumes, VolumeError> {
    members_named_once(devices)?;
    Ok(volumes_of(&devices.iter().map(look_at).collect::<Result<Vec<_>, _>>()?))
}

/// The volumes on all block devices of this machine that can be read. Of what is stacked only the top is looked
/// at: the paths below a multipath device are not two members.
#[must_use]
pub fn look_everywhere() -> Volumes {
    let is_top = |device: &BlockDevice| device.holders.is_empty() && device.size_bytes > 0;
    let devices = Sysfs::host().block_devices();
    let paths = devices.iter().filter(|device| is_top(device)).map(BlockDevice::dev_path);
    let candidates = paths.filter_map(|path| look_at(&DeviceSpec::from(PathBuf::from(path))).ok());
    volumes_of(&candidates.filter(Candidate::bears_a_label).collect::<Vec<_>>())
}

/// Reads the labels and then all data of the one volume that `members` are, and compares the data with their checksums.
/// `progress` is called before data are read and every 200 ms, and stops the work by returning false. Nothing is written.
///
/// # Errors
/// [`VolumeError`] where they are no volume, or one that keeps no checksums.
pub fn check_data(
    members: &[DeviceSpec],
    progress: impl FnMut(Progress) -> bool,
) -> Result<DataCheck, VolumeError> {
    members_named_once(members)?;
    check_data_on(members.iter().map(open_to_read).collect::<Result<_, _>>()?, progress)
}

/// The same on open devices.
///
/// # Errors
/// As [`check_data`].
pub fn check_data_on(
    members: Vec<Arc<dyn Device>>,
    progress: impl FnMut(Progress) -> bool,
) -> Result<DataCheck, VolumeError> {
    let labels = check_on(&members, &[])?;
    let (volume, label) = fit_labelled(String::new(), members, SumsLimits::default())?;
    let Some(sums) = &volume.sums else { return Err(VolumeError::NoSums { volume: called(&label) }) };
    let data = crate::sums::scrub(sums, progress);
    Ok(DataCheck {
        schema: DATA_SCHEMA.to_owned(),
        sound: labels.sound && data.finding_count == 0 && !data.interrupted,
        interrupted: data.interrupted,
        volume: labels.volume,
        problems: labels.problems,
        read_bytes: data.read_bytes,
        verified_bytes: data.verified_bytes,
        resealed_blocks: data.resealed_blocks,
        findings: data.findings,
        finding_count: data.finding_count,
    })
}

/// Looks closely at the one volume that `members` are: labels, both copies, sizes, and what else was made there.
/// `repaired` is what was put right just before.
///
/// # Errors
/// [`VolumeError`] where they are none, or one is named twice.
pub fn check(members: &[DeviceSpec], repaired: &[Mended]) -> Result<Check, VolumeError> {
    members_named_once(members)?;
    check_on(&members.iter().map(open_to_read).collect::<Result<Vec<_>, _>>()?, repaired)
}

/// The same on open devices.
fn check_on(members: &[Arc<dyn Device>], repaired: &[Mended]) -> Result<Check, VolumeError> {
    let candidates = members.iter().map(read_labels).collect::<Result<Vec<_>, _>>()?;
    census(&candidates)?;
    let mut problems = Vec::new();
    for (member, candidate) in members.iter().zip(&candidates) {
        for place in LabelPosition::BOTH {
            if let Some(fault) = candidate.fault(place) {
                problems.push(format!(
                    "the copy of the label at the {} of {} {fault}",
                    place.word(),
                    candidate.spec
                ));
            }
        }
        if let Some(label) = candidate.label()
            && let Err(error) = no_other_signature(&**member, label)
        {
            problems.push(base::with_causes(&error));
        }
    }
    let repair = |m: &Mended| {
        format!("the copy of the label at the {} of {}, which {}", m.place.word(), m.member, m.fault)
    };
    let Some(volume) = VolumeFound::of(&candidates) else {
        return Err(Flaw::Unlabelled { member: "nothing".to_owned() }.into());
    };
    Ok(Check {
        schema: CHECK_SCHEMA.to_owned(),
        sound: problems.is_empty(),
        volume,
        problems,
        repaired: repaired.iter().map(repair).collect(),
    })
}
