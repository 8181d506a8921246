//! Opening the journal: the lock, the tables, the version.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Mode, OFlags};
use storage::locks::Held;
use storage::trust::{self, TrustError};

use crate::error::{StageError, shown};
use crate::fault::{Barrier, Safeguard, leaves_out};

/// Who may write a journal decides what is moved with its user's rights: see [`storage::trust`].
pub(super) fn check_owner(state: &Path) -> Result<(), StageError> {
    let failed = |path: &Path, error| StageError::io("stat", path, error);
    let real = state.canonicalize().map_err(|error| failed(state, error))?;
    let names = ["lock", "journal.db", "journal.db-wal", "journal.db-shm", "journal.db-journal"];
    let checked = trust::check_directory(&real)
        .and_then(|()| names.iter().try_for_each(|name| trust::check_file(&real.join(name))));
    checked.map_err(|error| match error {
        TrustError::Open { path, source } => failed(&path, source),
        TrustError::Untrusted { path, what } => StageError::refused(
            format!("{}: {what}", shown(&path)),
            "who writes a journal has jobs carried out with the rights of its reader: name a state directory of your own \
             (--state), or take that right from others (chmod go-w)",
        ),
    })
}

/// The version of the tables and of what is in them. A journal of another version is refused.
const VERSION: i64 = 5;

const TABLES: &str = "
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    level TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    durable INTEGER,
    finished INTEGER,
    error TEXT,
    notes TEXT NOT NULL DEFAULT '[]',
    part BLOB,
    part_ino INTEGER,
    files_total INTEGER NOT NULL DEFAULT 0,
    files_done INTEGER NOT NULL DEFAULT 0,
    bytes_total INTEGER NOT NULL DEFAULT 0,
    bytes_written INTEGER NOT NULL DEFAULT 0,
    bytes_verified INTEGER NOT NULL DEFAULT 0,
    source BLOB,
    part_born INTEGER,
    source_mount TEXT,
    destination_mount TEXT
);
CREATE INDEX jobs_by_state ON jobs(state);
CREATE TABLE entries (
    job INTEGER NOT NULL,
    path BLOB NOT NULL,
    kind INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    mtime_s INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_s INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    nlink INTEGER NOT NULL,
    digest BLOB,
    chunks BLOB,
    target BLOB,
    object TEXT,
    compared INTEGER NOT NULL,
    PRIMARY KEY (job, compared, path)
) WITHOUT ROWID;
CREATE TABLE chunks (
    job INTEGER NOT NULL,
    path BLOB NOT NULL,
    chunk INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (job, path, chunk)
) WITHOUT ROWID;
CREATE TABLE begun (
    job INTEGER NOT NULL,
    path BLOB NOT NULL,
    identity BLOB NOT NULL,
    destination_ino INTEGER NOT NULL,
    PRIMARY KEY (job, path)
) WITHOUT ROWID;
CREATE TABLE notes (
    job INTEGER NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE expected (
    job INTEGER NOT NULL,
    number INTEGER NOT NULL,
    path BLOB NOT NULL,
    size INTEGER,
    digest BLOB,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE owned (
    directory BLOB NOT NULL,
    name BLOB NOT NULL,
    purpose TEXT NOT NULL,
    ino INTEGER,
    born INTEGER,
    own_name BLOB,
    PRIMARY KEY (directory, name)
) WITHOUT ROWID;
";

/// By which a request finds the jobs that it may be the same as, among thousands of one set. What is in the tables is the same
/// without it, so that it is no version of its own.
const INDEX: &str = "CREATE INDEX IF NOT EXISTS jobs_by_source ON jobs(json_extract(spec, '$.source'));";

pub(super) fn lock(state: &Path) -> Result<Held<OwnedFd>, StageError> {
    let path = state.join("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| StageError::io("open the lock of the journal", &path, errno))?;
    match crate::lock::at_once(file.as_fd(), true, &path) {
        Ok(true) => Ok(Held::new(file)),
        Ok(false) => Err(StageError::io("lock the journal", &path, rustix::io::Errno::NOLCK)),
        Err(StageError::Locked { by, .. }) => Err(StageError::refused(
            format!("{}: {by} works with this journal", crate::error::shown(state)),
            format!("wait for {by}, or end it"),
        )),
        Err(error) => Err(error),
    }
}

/// Opens the journal for the process that has its lock. A new one gets its tables.
pub(super) fn connect(path: &Path) -> Result<Connection, StageError> {
    let failed = |what| failed(path, what);
    // SQLite makes its other files with the same mode.
    let made = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    made.map_err(|error| StageError::io("open the journal", path, error))?;
    let mut connection = Connection::open(path).map_err(failed("cannot be opened"))?;
    (|| {
        connection.busy_timeout(std::time::Duration::from_secs(30))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // A test shows what is lost if commits are not synced.
        let syncs = !leaves_out(Safeguard::Barrier(Barrier::JournalCommit));
        connection.pragma_update(None, "synchronous", if syncs { "FULL" } else { "OFF" })?;
        // 8 MiB of cache, whatever the journal grows to.
        connection.pragma_update(None, "cache_size", -8192)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(())
    })()
    .map_err(failed("cannot be set up"))?;
    if version(&connection, path)? == 0 {
        (|| {
            let step = connection.transaction()?;
            step.execute_batch(TABLES)?;
            step.pragma_update(None, "user_version", VERSION)?;
            step.commit()
        })()
        .map_err(failed("cannot be made"))?;
    }
    check_version(&connection, path)?;
    connection.execute_batch(INDEX).map_err(failed("cannot be made"))?;
    Ok(connection)
}

/// Reads the journal of a state directory that another process may be at work with.
pub(super) fn peek<T>(
    state: &Path,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, StageError> {
    let path = state.join("journal.db");
    read(&connect_to_read(&path)?).map_err(failed(&path, "cannot be read"))
}

/// Opens such a journal for reading alone: a statement that writes fails.
fn connect_to_read(path: &Path) -> Result<Connection, StageError> {
    let failed = |what| failed(path, what);
    // A connection of SQLITE_OPEN_READ_ONLY leaves the files of the write-ahead log behind, where there were none.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = Connection::open_with_flags(path, flags).map_err(failed("cannot be opened"))?;
    (|| {
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.pragma_update(None, "query_only", true)
    })()
    .map_err(failed("cannot be opened"))?;
    check_version(&connection, path)?;
    Ok(connection)
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(rusqlite::Error) -> StageError {
    move |source| crate::lock::database_error(path, what.to_owned(), source)
}

fn version(connection: &Connection, path: &Path) -> Result<i64, StageError> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failed(path, "cannot be read"))
}

fn check_version(connection: &Connection, path: &Path) -> Result<(), StageError> {
    match version(connection, path)? {
        VERSION => Ok(()),
        other => Err(StageError::invalid(
            format!(
                "{}: version {other} of the journal, and {VERSION} is known here",
                crate::error::shown(path)
            ),
            "use the flashwright that made it, or another --state",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Journal;
    use super::*;

    #[test]
    fn a_journal_is_read_beside_its_server_and_one_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path();
        let names = || {
            let mut names: Vec<_> =
                std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let journal = Journal::open(state).unwrap();
        assert!(Journal::peek(state).unwrap().is_empty());
        drop(journal);
        let before = names();
        assert!(Journal::peek(state).unwrap().is_empty());
        assert_eq!(names(), before, "reading leaves nothing");
        let writes = connect_to_read(&state.join("journal.db")).unwrap().execute("DELETE FROM jobs", []);
        assert!(writes.is_err());
        for version in [VERSION - 1, VERSION + 1] {
            let other = Connection::open(state.join("journal.db")).unwrap();
            other.pragma_update(None, "user_version", version).unwrap();
            drop(other);
            let words = format!("version {version} of the journal, and {VERSION} is known here");
            let entries = Journal::peek_entries(state, 1, None, 1).map(drop);
            for refused in [Journal::peek(state).map(drop), entries, Journal::open(state).map(drop)] {
                let error = refused.unwrap_err();
                assert!(error.to_string().contains(&words), "{error}");
            }
        }
    }

    #[test]
    fn a_journal_that_another_user_may_write_is_refused() {
        use std::fs;
        use std::os::unix::fs::{PermissionsExt, chown};

        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        drop(Journal::open(&state).unwrap());
        let refused = |why: &str| {
            let error = Journal::open(&state).unwrap_err();
            assert_eq!(error.class(), crate::error::ErrorClass::Refused, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        };
        let set_mode = |path: &std::path::Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        for mode in [0o770, 0o777, 0o1777, 0o702] {
            set_mode(&state, mode);
            refused("others may write to it");
        }
        set_mode(&state, 0o755);
        set_mode(&state.join("journal.db"), 0o664);
        refused("journal.db: others may write to it");
        // Others cannot reach it.
        set_mode(&state, 0o700);
        drop(Journal::open(&state).unwrap());
        if !rustix::process::geteuid().is_root() {
            println!("SKIP a journal of another user: it takes root to make one");
            return;
        }
        chown(state.join("journal.db"), Some(65_534), None).unwrap();
        refused("journal.db: belongs to uid 65534");
        chown(state.join("journal.db"), Some(0), None).unwrap();
        chown(&state, Some(65_534), None).unwrap();
        refused("state: belongs to uid 65534");
        fs::remove_dir_all(&state).unwrap();
    }
}
