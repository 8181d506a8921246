//! Opening the journal: the lock, the tables, the version.

use std::os::fd::OwnedFd;
use std::path::Path;

use rusqlite::Connection;
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::error::StageError;

/// The version of the tables. A journal of a later one is refused, never guessed at.
const VERSION: i64 = 1;

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
    bytes_verified INTEGER NOT NULL DEFAULT 0
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
    PRIMARY KEY (job, path)
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
";

pub(super) fn lock(state: &Path) -> Result<OwnedFd, StageError> {
    let path = state.join("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| StageError::io("open the lock of the journal", &path, errno))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StageError::refused(
            format!("{}: another process works with this journal", crate::error::shown(state)),
            "talk to the server that has it (leave out --foreground), or give another --state",
        )),
        Err(errno) => Err(StageError::io("lock the journal", &path, errno)),
    }
}

pub(super) fn connect(path: &Path) -> Result<Connection, StageError> {
    let failed = |what: &str| {
        let (what, path) = (what.to_owned(), path.to_owned());
        move |source| StageError::Journal { path, what, source }
    };
    let mut connection = Connection::open(path).map_err(failed("cannot be opened"))?;
    (|| {
        connection.busy_timeout(std::time::Duration::from_secs(30))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // 8 MiB of cache, whatever the journal grows to.
        connection.pragma_update(None, "cache_size", -8192)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(())
    })()
    .map_err(failed("cannot be set up"))?;
    let version: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(failed("cannot be read"))?;
    match version {
        0 => (|| {
            let step = connection.transaction()?;
            step.execute_batch(TABLES)?;
            step.pragma_update(None, "user_version", VERSION)?;
            step.commit()
        })()
        .map_err(failed("cannot be made"))?,
        VERSION => {}
        later => {
            return Err(StageError::invalid(
                format!(
                    "{}: version {later} of the journal, and {VERSION} is known here",
                    crate::error::shown(path)
                ),
                "use the flashwright that made it, or another --state",
            ));
        }
    }
    Ok(connection)
}
