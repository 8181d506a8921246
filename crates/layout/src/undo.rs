//! The state directory, its lock, and undoing what its journal says.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use storage::trust;

use crate::change::TRIES;
use crate::error::LayoutError;
use crate::journal::{Journal, Standing};
use crate::locks::{GoOn, Locks};
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
const LOCK: &str = "layout.lock";

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
    variable("FLASHWRIGHT_STATE")
        .or_else(|| if is_root { None } else { of_user() })
        .unwrap_or_else(|| PathBuf::from("/var/lib/flashwright"))
}

/// Takes the lock of a state directory. Returns the directory with links resolved, as mountinfo has it.
pub(crate) fn take_state(system: &mut dyn System, state: &Path) -> Result<PathBuf, LayoutError> {
    let made = system.make_directory(state);
    made.map_err(|source| LayoutError::io(state, "make the directory", source))?;
    let state =
        state.canonicalize().map_err(|source| LayoutError::io(state, "resolve the directory", source))?;
    let path = state.join(LOCK);
    // Not for reading: programs have it as standard input, and shall find nothing there.
    let mut lock = trust::open(&path, OpenOptions::new().append(true).create(true).mode(0o600))?;
    wait_for(system, &lock, &path)?;
    // A courtesy: on a full disk the lock holds without it.
    let _ = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
    system.keep_lock(lock);
    Ok(state)
}

/// Locks, or says who has it. Where that process has died, a program that it started lives on, and is waited for: it
/// still writes to the drives. One that lives may have let go already, and a program that another thread of it was just
/// starting holds the lock until it is that program; so it is asked for a while.
fn wait_for(system: &dyn System, lock: &File, path: &Path) -> Result<(), LayoutError> {
    let mut asked = 0;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(source)) => return Err(LayoutError::io(path, "lock", source)),
            Err(TryLockError::WouldBlock) => {}
        }
        let holder = std::fs::read_to_string(path).unwrap_or_default();
        let lives = holder.is_empty() || Path::new("/proc").join(&holder).exists();
        asked += u32::from(lives);
        if asked >= TRIES {
            return Err(LayoutError::Locked { lock: path.to_owned(), holder: format!("process {holder}") });
        }
        system.pause();
    }
}

pub(crate) fn boot(system: &dyn System) -> String {
    system.sysfs().text("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Undoes all that is pending, newest first; what cannot be undone stays in the journal, or is given up.
pub(crate) fn undo_all(
    system: &mut dyn System,
    journal: &mut Journal,
    tell: &mut dyn FnMut(&str),
    abandon: bool,
) -> Result<Undone, LayoutError> {
    let same_boot = journal.boot() == boot(system);
    let is_whole = journal.damaged.is_empty();
    let mut outcome = Undone::default();
    let mut left: Vec<String> =
        journal.damaged.iter().map(|line| format!("line {line} of the journal cannot be read")).collect();
    if abandon {
        outcome.abandoned.append(&mut left);
    }
    for (number, change) in journal.pending().to_vec().into_iter().rev() {
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
    Ok(outcome)
}

/// Undoes what the journal of a state directory says: after a crash, or a layout that was made by hand. Doing it
/// again does nothing.
///
/// # Errors
/// [`LayoutError::Locked`] where a process is at work; [`LayoutError::Left`] with what could not be undone, after
/// all else was.
pub fn undo(state: &Path) -> Result<Undone, LayoutError> {
    undo_on(&mut Host::default(), state, &mut |_| {}, false)
}

/// The same on a system that is not this machine, with words on progress. `abandon` gives up what cannot be undone,
/// because a drive is gone for good.
///
/// # Errors
/// As [`undo`].
pub fn undo_on(
    system: &mut dyn System,
    state: &Path,
    tell: &mut dyn FnMut(&str),
    abandon: bool,
) -> Result<Undone, LayoutError> {
    if !state.join(JOURNAL).exists() {
        return Ok(Undone::default());
    }
    let state = take_state(system, state)?;
    let path = state.join(JOURNAL);
    // It may have been removed while the lock was waited for.
    let Some(mut journal) = Journal::read(&path)? else { return Ok(Undone::default()) };
    let changes: Vec<_> = journal.pending().iter().map(|(_, change)| change).collect();
    let drives: Vec<_> = changes.iter().flat_map(|change| change.drives()).cloned().collect();
    let mut locks = Locks::default();
    let go_on: GoOn<'_> = &|_| Ok(());
    locks.take(system, &drives, go_on)?;
    if changes.iter().any(|change| change.is_of_interrupts()) {
        locks.take_interrupts(system, go_on)?;
    }
    undo_all(system, &mut journal, tell, abandon)
}

/// What stands in a state directory; none where nothing does.
///
/// # Errors
/// Where the journal cannot be read.
pub fn standing(state: &Path) -> Result<Option<Standing>, LayoutError> {
    let Ok(state) = state.canonicalize() else { return Ok(None) };
    Ok(Journal::read(&state.join(JOURNAL))?.map(|journal| journal.standing()))
}
