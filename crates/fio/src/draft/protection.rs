//! Options of the metadata of a namespace's blocks, and of the protection information in it.
//!
//! One of them says that there is such metadata; the others have fio's defaults then.

use measure::Workload;
use measure::workload::ZoneMode;
use storage::device::ProtectionAction;
use storage::engine::{Protection, TagChecks};

use super::Draft;
use crate::error::{Fault, Problem};
use crate::values;

/// What was said of metadata.
#[derive(Debug, Clone, Copy)]
pub struct ProtectionDraft {
    /// The first key that was given.
    given: Option<&'static str>,
    action: ProtectionAction,
    protection: Protection,
}

impl Default for ProtectionDraft {
    fn default() -> Self {
        Self { given: None, action: ProtectionAction::Controller, protection: Protection::default() }
    }
}

impl ProtectionDraft {
    /// Who makes protection information; None where nothing was said of metadata.
    pub fn action(&self) -> Option<ProtectionAction> {
        self.given.map(|_| self.action)
    }

    /// What a job does that says anything of it. One that only discards says by it how long a block is.
    pub fn resolve(
        &self,
        draft: &Draft,
        workload: &Workload,
    ) -> Result<Option<(ProtectionAction, Protection)>, Fault> {
        if self.given.is_none() {
            return Ok(None);
        }
        if workload.zonemode == ZoneMode::Zbd {
            let reason = "zones are counted in bytes of data, and blocks that have metadata are not";
            return Err((
                "zonemode",
                Problem::new(reason, "leave pi_act and the other keys of metadata out"),
            ));
        }
        if workload.rw.writes() && !draft.conduct.ring.write_commands.are_writes() {
            let reason = "these commands move no data, and no metadata that would protect them";
            return Err(("write_mode", Problem::new(reason, "write write_mode=write, or leave it out")));
        }
        Ok(Some((self.action, self.protection)))
    }
}

/// Notes that a key was given, and returns what it is about.
fn noted<'d>(draft: &'d mut Draft, option: &'static str) -> &'d mut ProtectionDraft {
    draft.commands.get_or_insert(option);
    draft.protection.given.get_or_insert(option);
    &mut draft.protection
}

/// Who makes and checks protection information.
pub fn pi_act(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let action = match values::switch(value)? {
        true => ProtectionAction::Controller,
        false => ProtectionAction::Host,
    };
    noted(draft, "pi_act").action = action;
    Ok(())
}

/// Which tags are checked.
pub fn pi_chk(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let mut checks = TagChecks::default();
    for word in values::required(value)?.split(',') {
        match word.trim() {
            "GUARD" => checks.guard = true,
            "APPTAG" => checks.application = true,
            "REFTAG" => checks.reference = true,
            word => {
                let reason = format!("'{word}' is not a tag");
                return Err(Problem::new(reason, "write GUARD, REFTAG or APPTAG, or several: GUARD,REFTAG"));
            }
        }
    }
    noted(draft, "pi_chk").protection.tags.checks = checks;
    Ok(())
}

pub fn apptag(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let tag = tag(value)?;
    if tag == u16::MAX {
        let reason = "blocks with this tag are checked by no drive and no program";
        return Err(Problem::new(reason, "write another one"));
    }
    noted(draft, "apptag").protection.tags.application = tag;
    Ok(())
}

pub fn apptag_mask(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let mask = tag(value)?;
    noted(draft, "apptag_mask").protection.tags.mask = mask;
    Ok(())
}

/// Bytes of metadata of a request; 0, which is fio's default, says nothing.
pub fn md_per_io_size(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let bytes = u32::try_from(values::bytes(values::required(value)?)?);
    let bytes = bytes.map_err(|_| Problem::new("it is out of range", "write less, or leave it out"))?;
    if bytes > 0 {
        noted(draft, "md_per_io_size").protection.metadata_bytes = Some(bytes);
    }
    Ok(())
}

/// A number of 16 bits, decimal or with 0x before it.
fn tag(value: Option<&str>) -> Result<u16, Problem> {
    let text = values::required(value)?;
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| Problem::new("it is not a number of 16 bits", "write for instance 0x1234"))
}
