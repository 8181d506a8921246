//! What goes on after a crash: sets that a process has taken aside or begun to remove, and probes that it has left.

use std::ffi::OsStr;
use std::path::Path;

use super::synced;
use crate::calls;
use crate::error::{StageError, shown};
use crate::journal::{Journal, Purpose};
use crate::owned::Record;
use crate::pace::Stop;
use crate::tier::Tier;
use crate::tier::directory::Directory;

/// Gives all sets their names back that a process took aside before it died, as a journal knows them. A directory that is
/// not there is left to a later attempt, which `tidy` and `evict` make as well.
pub fn restore(journal: &Journal) -> Result<(), StageError> {
    for path in journal.directories_of(Purpose::Aside)? {
        let restored = Directory::open(&path).and_then(|directory| directory.restore(journal));
        if let Err(error) = restored {
            tracing::warn!(%error, "a set that was about to be removed has not got its name back");
        }
    }
    Ok(())
}

/// Has a process that died begun to take a set of this directory apart, as its journal knows it? What was only taken aside
/// has its name back after this ([`restore`]).
pub fn is_half_removed(journal: &Journal, fast: &Path) -> Result<bool, StageError> {
    restore(journal)?;
    Ok(journal.doomed(fast)?.iter().any(|(_, id)| id.is_some()))
}

/// Finishes what a process that died had begun to remove, as its journal knows it ([`is_half_removed`]). The copy in `slow` is
/// read again first: that process may have decided by another, and it may have gone since.
///
/// # Errors
/// [`StageError::Refused`] if the copy is not there or not whole: what is left of the set stays then. The journal's; a call
/// that failed; [`StageError::Locked`] if another process works there.
pub fn finish(
    fast: &Path,
    slow: &dyn Tier,
    name: &OsStr,
    journal: &Journal,
    stop: &Stop,
) -> Result<(), StageError> {
    let fast = Directory::open(fast)?.until(stop);
    let _alone = fast.lock(stop)?;
    let is_whole = match synced(slow, name)? {
        Some(manifest) => slow.reads_back(name, &manifest)?,
        None => false,
    };
    if !is_whole {
        return Err(StageError::refused(
            format!(
                "{}: its removal was interrupted, and {} is not whole",
                shown(&fast.path.join(name)),
                slow.place(name).shown()
            ),
            "what is left of the set has its name, or .NAME.UUID.part; name the copy that is whole: --copy PATH",
        ));
    }
    fast.sweep(journal)
}

/// Removes the probes that a process which died has left in sets, as its journal knows them.
///
/// # Errors
/// The journal's; a call that failed; [`StageError::Locked`] if another process works there.
pub fn clear(journal: &Journal, stop: &Stop) -> Result<(), StageError> {
    for path in journal.directories_of(Purpose::Doomed)? {
        let directory = match Directory::open(&path) {
            Err(StageError::Io { source, .. }) if calls::is_not_there(&source) => continue,
            opened => opened?,
        };
        let _alone = directory.lock(stop)?;
        for (part, id) in journal.doomed(&path)? {
            if id.is_none() {
                directory.take_apart(&part, None, journal)?;
            }
        }
    }
    Ok(())
}
