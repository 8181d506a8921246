//! Opening the journal: the lock, the tables, the version.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rusqlite::Connection;
use rustix::fs::{Mode, OFlags};

use crate::error::StageError;

/// The version of the tables. A journal of a later one is refused, never guessed at.
const VERSION: i64 = 2;

/// From version 1 to 2. New journals are made as version 1 and go the same way.
const TO_2: &str = "
ALTER TABLE jobs ADD COLUMN source BLOB;
ALTER TABLE jobs ADD COLUMN part_born INTEGER;
ALTER TABLE jobs ADD COLUMN source_mount TEXT;
ALTER TABLE jobs ADD COLUMN destination_mount TEXT;
ALTER TABLE entries ADD COLUMN object TEXT;
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
    PRIMARY KEY (directory, name)
) WITHOUT ROWID;
";

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
    match crate::lock::at_once(file.as_fd(), true, &path) {
        Ok(true) => Ok(file),
        Ok(false) => Err(StageError::io("lock the journal", &path, rustix::io::Errno::NOLCK)),
        Err(StageError::Locked { by, .. }) => Err(StageError::refused(
            format!("{}: {by} works with this journal", crate::error::shown(state)),
            "talk to the server that has it (leave out --foreground), or give another --state",
        )),
        Err(error) => Err(error),
    }
}

pub(super) fn connect(path: &Path) -> Result<Connection, StageError> {
    let failed = |what: &str| {
        let (what, path) = (what.to_owned(), path.to_owned());
        move |source| crate::lock::database_error(&path, what, source)
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
        0 | 1 => (|| {
            let step = connection.transaction()?;
            if version == 0 {
                step.execute_batch(TABLES)?;
            }
            step.execute_batch(TO_2)?;
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
