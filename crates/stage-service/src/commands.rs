//! Commands that do their work without a server: their journals in the state directory, and which of them are at work.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use stage::journal::Journal;
use stage::{JobStatus, StageError};

/// Where in the state directory the journals of commands with `--foreground` are, a directory each.
pub const FOREGROUND: &str = "foreground";

/// A journal of such a command.
#[derive(Debug)]
pub struct CommandJournal {
    /// Its directory.
    pub directory: PathBuf,
    /// The process that has the journal's lock, as far as proc(5) tells.
    pub at_work: Option<String>,
}

/// All journals of such commands in a state directory with their jobs, those of commands at work included. The error is that of
/// a journal that is being made or removed, or that another version of this program made.
#[must_use]
pub fn journals(state: &Path) -> Vec<(CommandJournal, Result<Vec<JobStatus>, StageError>)> {
    let entries = std::fs::read_dir(state.join(FOREGROUND)).into_iter().flatten().flatten();
    let directories =
        entries.map(|entry| entry.path()).filter(|journal| journal.join("journal.db").is_file());
    let read = |directory: PathBuf| {
        // The holder first: jobs that are read after that are not older than what is said of them.
        let at_work = at_work(&directory);
        let jobs = Journal::peek(&directory).map(|rows| rows.into_iter().map(JobStatus::from).collect());
        (CommandJournal { directory, at_work }, jobs)
    };
    directories.map(read).collect()
}

/// The process that has the lock of the journal in this directory, as far as proc(5) tells.
#[must_use]
pub fn at_work(journal: &Path) -> Option<String> {
    let lock = std::fs::File::open(journal.join("lock")).ok()?;
    storage::locks::holder(lock.as_fd(), storage::locks::LockKind::Flock)
}
