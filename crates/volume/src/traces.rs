//! What is checked on each member before a label is written: that its copies are whole, and that nothing else lies beside them.

use std::sync::Arc;

use storage::device::Device;
use storage::safety;

use crate::census::Candidate;
use crate::error::VolumeError;
use crate::label::{Label, LabelPosition};

/// Both copies of a member's label.
pub(crate) fn read_labels(member: &Arc<dyn Device>) -> Result<Candidate, VolumeError> {
    Candidate::read(&**member).map_err(|source| VolumeError::label("read", &**member, source))
}

/// Refuses to write to a member on which somebody else left traces.
pub(crate) fn still_whole(
    member: &dyn Device,
    candidate: &Candidate,
    label: &Label,
) -> Result<(), VolumeError> {
    no_damage(member, candidate)?;
    no_other_signature(member, label)
}

/// Refuses to write to a member of which somebody else broke a copy of the label.
pub(crate) fn no_damage(member: &dyn Device, candidate: &Candidate) -> Result<(), VolumeError> {
    let damaged = |place: &LabelPosition| candidate.fault(*place).is_some_and(|fault| fault.is_damage());
    let Some(place) = LabelPosition::BOTH.into_iter().find(damaged) else { return Ok(()) };
    let fault = candidate.fault(place).map(|fault| fault.to_string()).unwrap_or_default();
    Err(VolumeError::OneCopy { member: member.spec().to_owned(), place: place.word(), fault })
}

/// Refuses a member on which something else was made since. What lies in the volume is none of a member's concern.
pub(crate) fn no_other_signature(member: &dyn Device, label: &Label) -> Result<(), VolumeError> {
    let data = label.data();
    let read = |buffer: &mut [u8], at: u64| {
        member.read_at(buffer, at)?;
        let end = at + buffer.len() as u64;
        let (from, to) = (data.start.clamp(at, end), data.end.clamp(at, end));
        buffer[(from - at) as usize..(to - at) as usize].fill(0);
        Ok(())
    };
    let found = safety::signatures_in(&read, member.size())
        .map_err(|source| VolumeError::label("look for signatures beside", member, source))?;
    match found.into_iter().find(|signature| signature.kind != safety::MEMBER) {
        None => Ok(()),
        Some(signature) => Err(VolumeError::Overwritten {
            member: member.spec().to_owned(),
            signature: signature.to_string(),
        }),
    }
}
