//! Locks that other processes may hold: flock(2) needs no more than the right to read, so no wait for one is without a
//! bound, and its error names the process that holds it.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use storage::locks::{LockKind, holder};

use crate::error::{StageError, shown};
use crate::pace::GoOn;

/// How long a lock is waited for. Who holds one rightly removes a set meanwhile, or renames one.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(10) };
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(20);

/// Takes a lock on `file`, whose path is for messages. False where the file system has no such locks.
///
/// # Errors
/// [`StageError::Locked`] if another holds it all the while; what `go_on` says, which is asked before each attempt.
pub fn wait(file: BorrowedFd<'_>, exclusive: bool, path: &Path, go_on: GoOn<'_>) -> Result<bool, StageError> {
    let until = Instant::now() + PATIENCE;
    loop {
        go_on()?;
        match at_once(file, exclusive, path) {
            Err(StageError::Locked { .. }) if Instant::now() < until => std::thread::sleep(AGAIN),
            taken => return taken,
        }
    }
}

/// Takes a lock if it is free. False where the file system has no such locks.
///
/// # Errors
/// [`StageError::Locked`] if another holds it.
pub fn at_once(file: BorrowedFd<'_>, exclusive: bool, path: &Path) -> Result<bool, StageError> {
    let operation = match exclusive {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Err(StageError::Locked {
            path: shown(path),
            by: holder(file, LockKind::Flock).unwrap_or_else(unknown),
        }),
        Err(Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(StageError::io("lock", path, errno)),
    }
}

fn unknown() -> String {
    "a process that this host does not know".to_owned()
}

/// The error of a database that cannot be used; of one that another keeps locked, with its name.
pub fn database_error(path: &Path, mut what: String, source: rusqlite::Error) -> StageError {
    let is_busy = source.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
    if is_busy && let Some(holder) = database_holder(path) {
        what.push_str(&format!(" ({holder} has it)"));
    }
    StageError::Journal { path: path.to_owned(), what, source }
}

/// Who locks a database: SQLite has its locks on the file, and beside it where there is a write-ahead log.
fn database_holder(path: &Path) -> Option<String> {
    ["", "-shm"].iter().find_map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let file = std::fs::File::open(name).ok()?;
        holder(std::os::fd::AsFd::as_fd(&file), LockKind::Posix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls;
    use crate::pace::Stop;
    use std::os::fd::AsFd;

    #[test]
    fn a_database_that_another_keeps_locked_is_given_up_with_its_name() {
        let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let path = folder.path().join("ledger.db");
        let mut theirs = rusqlite::Connection::open(&path).unwrap();
        theirs.pragma_update(None, "journal_mode", "WAL").unwrap();
        theirs.execute_batch("CREATE TABLE t (x)").unwrap();
        let held = theirs.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
        let ours = rusqlite::Connection::open(&path).unwrap();
        ours.busy_timeout(Duration::ZERO).unwrap();
        let error = ours.execute_batch("BEGIN IMMEDIATE").unwrap_err();
        let error = database_error(&path, "cannot be used".to_owned(), error).to_string();
        assert!(error.contains(&format!("(process {} (", std::process::id())), "{error}");
        drop(held);
    }

    #[test]
    fn a_lock_that_another_holds_is_waited_for_until_someone_asks_to_stop() {
        let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let open = || calls::open_directory(folder.path()).unwrap();
        let (theirs, ours, stop) = (open(), open(), Stop::new());
        assert!(at_once(theirs.as_fd(), true, folder.path()).unwrap());
        let error = at_once(ours.as_fd(), false, folder.path()).unwrap_err().to_string();
        let me = format!("process {} (", std::process::id());
        assert!(error.contains("is locked by ") && error.contains(&me), "{error}");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(ours.as_fd(), true, folder.path(), &|| stop.check()));
            std::thread::sleep(3 * AGAIN);
            assert!(!waiting.is_finished());
            stop.ask();
            assert!(matches!(waiting.join().unwrap(), Err(StageError::Stopped { .. })));
            let waiting = scope.spawn(|| wait(ours.as_fd(), true, folder.path(), &|| Ok(())));
            std::thread::sleep(3 * AGAIN);
            drop(theirs);
            assert!(waiting.join().unwrap().unwrap());
        });
    }
}
