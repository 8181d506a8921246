//! The state directory, and undoing what its journal says.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::LayoutError;
use crate::journal::{Journal, Standing};
use crate::locks::{Locks, take_state};
use crate::order;
use crate::stop::Stop;
use crate::system::{Host, System};

/// What was undone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Undone {
    /// The changes that were undone, in the order of undoing, for people.
    pub undone: Vec<String>,
    /// Changes that were given up, each with the reason (only where that was asked for).
    pub abandoned: Vec<String>,
}

/// The name of the journal in its directory.
pub(crate) const JOURNAL: &str = "layout.journal";

/// The directory of the journal: `$FLASHWRIGHT_STATE`, else `/var/lib/flashwright` for root, else
/// `$XDG_STATE_HOME/flashwright` or `~/.local/state/flashwright` (XDG Base Directory Specification).
#[must_use]
pub fn state_dir() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let status = storage::sysfs::Sysfs::host().text("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let is_root = uids.split_whitespace().nth(1) == Some("0");
    let of_user = || {
        let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
        state.or_else(|| Some(variable("HOME")?.join(".local/state"))).map(|path| path.join("flashwright"))
    };
    variable(base::environment::STATE)
        .or_else(|| if is_root { None } else { of_user() })
        .unwrap_or_else(|| PathBuf::from("/var/lib/flashwright"))
}

/// The running system's name for its boot. Without it, whether a setting is still that which the journal knows cannot be told, and
/// taking it for one of an earlier boot would forget its value.
pub(crate) fn boot(system: &dyn System) -> Result<String, LayoutError> {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    let missing = || LayoutError::io(FILE, "read", std::io::ErrorKind::NotFound.into());
    system.sysfs().text(FILE).ok_or_else(missing)
}

/// Undoes all that is pending, newest first; what cannot be undone stays in the journal, or is given up. `stop` ends it
/// between two changes.
pub(crate) fn undo_all(
    system: &mut dyn System,
    journal: &mut Journal,
    stop: &Stop,
    tell: &mut dyn FnMut(&str),
    abandon: bool,
) -> Result<Undone, LayoutError> {
    let same_boot = journal.boot() == boot(system)?;
    let is_whole = journal.damaged.is_empty();
    let mut outcome = Undone::default();
    let mut left: Vec<String> =
        journal.damaged.iter().map(|line| format!("line {line} of the journal cannot be read")).collect();
    if abandon {
        outcome.abandoned.append(&mut left);
    }
    for (number, change) in journal.pending().to_vec().into_iter().rev() {
        stop.check("undoing; what is left is in the journal")?;
        tell(&format!("undo: {change}"));
        let undone = match change.objection(&system.sysfs(), journal.state()) {
            Some(why) => Err(format!("{why}, which no layout changes")),
            None => change.undo(system, same_boot),
        };
        match undone {
            Ok(()) => outcome.undone.push(change.to_string()),
            Err(reason) if abandon => outcome.abandoned.push(format!("{change}: {reason}")),
            Err(reason) => {
                left.push(format!("{change}: {reason}"));
                continue;
            }
        }
        // A damaged journal is kept whole for whoever looks into it.
        if is_whole {
            journal.undone(system, number)?;
        }
    }
    if !left.is_empty() {
        return Err(LayoutError::Left { left, undone: outcome.undone.len() });
    }
    journal.remove(system)?;
    // Entries without a journal do not count; what stays of them is removed with the next layout.
    let _ = order::leave(system, journal.path());
    Ok(outcome)
}

/// Undoes what the journal of a state directory says: after a crash, or a layout that was made by hand. Doing it
/// again does nothing. `stop` ends waits for locks, and the undoing between two changes.
///
/// # Errors
/// As [`undo_on`].
pub fn undo(state: &Path, stop: &Stop) -> Result<Undone, LayoutError> {
    undo_on(&mut Host::default(), state, stop, &mut |_| {}, false)
}

/// The same on a system that is not this machine, with words on progress. `abandon` gives up what cannot be undone,
/// because a drive is gone for good.
///
/// # Errors
/// [`LayoutError::Locked`] if another process is at work; [`LayoutError::Newer`] if a layout of another state directory
/// changed the same settings later and stands; [`LayoutError::Left`] with what could not be undone, after all else was;
/// [`LayoutError::Interrupted`] by `stop`, with the rest in the journal.
pub fn undo_on(
    system: &mut dyn System,
    state: &Path,
    stop: &Stop,
    tell: &mut dyn FnMut(&str),
    abandon: bool,
) -> Result<Undone, LayoutError> {
    let Ok(real) = state.canonicalize() else { return Ok(Undone::default()) };
    let path = real.join(JOURNAL);
    if !path.exists() && !order::has_entries(system, &path)? {
        return Ok(Undone::default());
    }
    let state = take_state(system, state, stop)?;
    let path = state.join(JOURNAL);
    // It may have been removed while the lock was waited for, or never been written after its entries were.
    let Some(mut journal) = Journal::read(&path)? else {
        let _ = order::leave(system, &path);
        return Ok(Undone::default());
    };
    let changes: Vec<_> = journal.pending().iter().map(|(_, change)| change).collect();
    let drives: Vec<_> = changes.iter().flat_map(|change| change.drives()).cloned().collect();
    let mut locks = Locks::default();
    locks.take(system, &drives, stop)?;
    if changes.iter().any(|change| change.is_of_interrupts()) {
        locks.take_interrupts(system, stop)?;
    }
    order::check_newest(system, &locks, &path)?;
    undo_all(system, &mut journal, stop, tell, abandon)
}

/// What stands in a state directory; none where nothing does.
///
/// # Errors
/// Where the journal cannot be read.
pub fn standing(state: &Path) -> Result<Option<Standing>, LayoutError> {
    let Ok(state) = state.canonicalize() else { return Ok(None) };
    Ok(Journal::read(&state.join(JOURNAL))?.map(|journal| journal.standing()))
}
