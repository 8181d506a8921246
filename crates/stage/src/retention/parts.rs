//! What follows when a part of a set is durable: the set is completed if it can be, and what is kept is applied to this
//! rank's fast copies and to whole sets on the slow tier.
//!
//! The rules of the [module](super) hold, a fast copy being this rank's part and its slow copy that part of the set. On the
//! slow tier only complete sets are counted and removed: the newest complete one never goes, and of an incomplete one
//! nothing does.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use super::{Keep, Outcome, Witness, tidy_fast, tidy_slow};
use crate::complete::{Completion, complete, record_of, sets};
use crate::error::StageError;
use crate::owned::Record;
use crate::pace::Stop;
use crate::parts::{PartRecord, SetId};
use crate::series::place;
use crate::spec::JobSpec;
use crate::tier::parts::PartTier;
use crate::tier::{Tier, Tiers};

/// Attempts to have `latest` lead to the newest complete set, which another node may complete in between.
const TRIES: u32 = 8;

/// See [`super::after_commit`].
pub(super) fn after_commit(
    spec: &JobSpec,
    record: &PartRecord,
    keep: Keep,
    tiers: &Tiers,
    witness: &dyn Witness,
    stop: &Stop,
) -> Result<Outcome, StageError> {
    let mut outcome = Outcome::default();
    let Some((above, name)) = spec.set_of_part() else { return Ok(outcome) };
    let slow: Arc<dyn Tier> = tiers.open(&above, stop)?.into();
    let completion = complete(&*slow, &record.set(), witness.record())?;
    let source = spec.source.path().and_then(|source| Some((source.parent()?, source.file_name()?)));
    if let Some((fast, fast_name)) = source
        && fast_name == name
    {
        let own = PartTier::new(Arc::clone(&slow), record.part()?);
        tidy_own(fast, &own, &name, keep, witness, stop, &mut outcome)?;
    } else if keep.fast.is_some() {
        let why = format!("the source's name is not {}", record.set());
        outcome.not_applied = Some(format!("what is to be kept on the fast tier was not applied: {why}"));
    }
    match completion {
        Completion::Lacks(faults) => {
            let told = faults.iter().filter(|fault| fault.node.is_some());
            let told: Vec<String> = told.map(ToString::to_string).collect();
            if !told.is_empty() {
                outcome.not_applied = Some(format!("{} is not complete: {}", record.set(), told.join("; ")));
            }
        }
        Completion::Made | Completion::There => {
            let _alone = slow.lock(stop)?;
            slow.restore(witness.record())?;
            if keep.latest {
                outcome.latest = latest(&*slow, witness.record())?;
            }
            tidy_slow(None, &*slow, &name, keep, witness, &mut outcome)?;
        }
    }
    Ok(outcome)
}

/// Applies what is to be kept to this rank's fast copies.
fn tidy_own(
    fast: &Path,
    own: &PartTier,
    name: &OsStr,
    keep: Keep,
    witness: &dyn Witness,
    stop: &Stop,
    outcome: &mut Outcome,
) -> Result<(), StageError> {
    match (keep.fast, place(name)) {
        (Some(_), Some(place)) => tidy_fast(fast, own, &place, keep, witness, stop, outcome).map(drop),
        _ => Ok(()),
    }
}

/// Removes a set, complete or not: what retention leaves because it may still be completed, too. The parts that ranks drain
/// later are a set of that name again.
///
/// # Errors
/// [`StageError::Refused`] for the newest complete set, and for the one that `latest` leads to; [`StageError::Invalid`] if
/// there is no such set.
pub fn remove_set(slow: &dyn Tier, id: &SetId, record: &dyn Record, stop: &Stop) -> Result<(), StageError> {
    let _alone = slow.lock(stop)?;
    slow.restore(record)?;
    slow.sweep(record)?;
    let name = id.to_string();
    let all = sets(slow)?;
    if !all.contains(id) {
        return Err(StageError::invalid(
            format!("{name}: there is no such set"),
            "`stage sets` lists what there is",
        ));
    }
    if newest_complete(slow, all)?.as_ref() == Some(id) {
        return Err(StageError::refused(
            format!("{name}: is the newest complete set, and stays"),
            "a restart would begin with nothing, or with an older step",
        ));
    }
    if slow.latest()?.is_some_and(|latest| latest == name.as_str()) {
        return Err(StageError::refused(
            format!("{name}: latest leads to it, and it stays"),
            "`stage sets --complete` moves latest to the newest complete set",
        ));
    }
    slow.remove(OsStr::new(&name), record)?;
    slow.sweep(record)
}

fn newest_complete(slow: &dyn Tier, all: Vec<SetId>) -> Result<Option<SetId>, StageError> {
    for id in all.into_iter().rev() {
        if record_of(slow, &id)?.is_some() {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Has `latest` lead to the newest complete set. Nodes need not have locks in common: of two that move it at once the one
/// that was late looks again, and finds the set that the other has completed.
pub fn latest(slow: &dyn Tier, record: &dyn Record) -> Result<Option<std::ffi::OsString>, StageError> {
    let mut moved = None;
    for _ in 0..TRIES {
        let Some(newest) = newest_complete(slow, sets(slow)?)?.map(|id| id.to_string()) else { break };
        let Some(place) = place(OsStr::new(&newest)) else { break };
        match slow.move_latest(OsStr::new(&newest), &place, record)? {
            Some(name) => moved = Some(name),
            None => break,
        }
    }
    Ok(moved)
}
