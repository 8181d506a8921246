//! The journal: what was accepted and how far it has come, in one SQLite file with `synchronous=FULL`.
//!
//! A row is written only after what it says is durable: an entry's row after its bytes were synced and read back, a
//! chunk's row after its fdatasync, COMMITTED after the fsync of the directory that the final name is in. So whatever
//! a row says holds after any crash; what it does not say is done again.
//!
//! One process at a time has a journal: the lock is flock(2) on a file beside it, which goes with the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::digest::Digest;
use crate::error::StageError;
use crate::fault::{self, Call};
use crate::job::{JobId, JobStatus, State, Why};
use crate::manifest::{Entry, Kind};
use crate::names::PathText;
use crate::spec::{JobSpec, Level, Options};

/// Jobs that are remembered after they have ended.
const KEPT: i64 = 10_000;

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

/// What tells one state of a source file from another. A file that was written to since has another change time;
/// one that was replaced has another inode. The device's number is left out: it may change when the machine starts
/// again, and everything is looked up beneath one root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Modification time, seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Change time.
    pub ctime: (i64, u32),
    /// Names that it has.
    pub nlink: u32,
}

impl Identity {
    /// Of what statx(2) said. The size of what is no file means nothing: a directory's moves with its entries.
    #[must_use]
    pub fn of(stat: &rustix::fs::Statx) -> Self {
        use rustix::fs::FileType;
        let is_file = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
        Self {
            ino: stat.stx_ino,
            size: if is_file { stat.stx_size } else { 0 },
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            nlink: stat.stx_nlink,
        }
    }

    /// How `later` differs; none if it is the same. A file of several names has its change time moved when one of
    /// them goes, so there it does not count.
    #[must_use]
    pub fn change(&self, later: &Self) -> Option<&'static str> {
        if self.ino != later.ino {
            Some("it was replaced")
        } else if self.size != later.size {
            Some("its size is another")
        } else if self.mtime != later.mtime {
            Some("its modification time is another")
        } else if self.ctime != later.ctime && self.nlink <= 1 && later.nlink <= 1 {
            Some("its change time is another")
        } else {
            None
        }
    }
}

/// An entry that is durable and verified in the part, and the source that it was copied from.
#[derive(Debug, Clone)]
pub struct Done {
    /// As the manifest will have it.
    pub entry: Entry,
    /// The source, when it was read.
    pub source: Identity,
}

/// A job's row.
#[derive(Debug, Clone)]
pub struct JobRow {
    /// Its number.
    pub id: JobId,
    /// What was asked for.
    pub spec: JobSpec,
    /// Where it is.
    pub state: State,
    /// How far.
    pub level: Level,
    /// How often it was begun.
    pub attempts: u32,
    /// When it was accepted, when durable, when finished.
    pub times: (u64, Option<u64>, Option<u64>),
    /// Why it failed.
    pub error: Option<Why>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// The name that the destination has until it is whole.
    pub part: Option<OsString>,
    /// The inode of what has that name.
    pub part_ino: Option<u64>,
    /// Files total and done, bytes total, written, verified.
    pub counts: [u64; 5],
}

/// The journal, open and locked.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    connection: Mutex<Connection>,
    _lock: OwnedFd,
}

impl Journal {
    /// Opens the journal in `state`, which is made, for its owner alone, if it is not there.
    ///
    /// # Errors
    /// Another process has it; it is of a later version; the system would not.
    pub fn open(state: &Path) -> Result<Self, StageError> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state)
            .map_err(|error| StageError::io("make the state directory", state, error))?;
        let lock = lock(state)?;
        let path = state.join("journal.db");
        let journal = Self { connection: Mutex::new(connect(&path)?), path, _lock: lock };
        // SQLite syncs what is in its files; that they have names is for us to see to.
        for directory in [Some(state), state.parent()].into_iter().flatten() {
            if let Ok(open) = crate::calls::open_directory(directory) {
                crate::calls::sync(std::os::fd::AsFd::as_fd(&open))
                    .map_err(|error| StageError::io("fsync", directory, error))?;
            }
        }
        journal.prune()?;
        Ok(journal)
    }

    /// Looks into the journal of a state directory that somebody else may be at work with, changing nothing.
    ///
    /// # Errors
    /// There is none; it cannot be read.
    pub fn peek(state: &Path) -> Result<Vec<JobRow>, StageError> {
        let path = state.join("journal.db");
        let failed = |what: &str| {
            let (what, path) = (what.to_owned(), path.clone());
            move |source| StageError::Journal { path, what, source }
        };
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let connection = Connection::open_with_flags(&path, flags).map_err(failed("cannot be opened"))?;
        connection.busy_timeout(std::time::Duration::from_secs(10)).map_err(failed("cannot be opened"))?;
        rows(&connection, None).map_err(failed("cannot be read"))
    }

    /// Entries of a job in the journal of such a state directory, as [`Journal::entries_after`] has them.
    ///
    /// # Errors
    /// There is none; it cannot be read.
    pub fn peek_entries(
        state: &Path,
        id: JobId,
        after: Option<&Path>,
        most: usize,
    ) -> Result<Vec<Done>, StageError> {
        let path = state.join("journal.db");
        let failed =
            |source| StageError::Journal { path: path.clone(), what: "cannot be read".to_owned(), source };
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let connection = Connection::open_with_flags(&path, flags).map_err(failed)?;
        connection.busy_timeout(std::time::Duration::from_secs(10)).map_err(failed)?;
        page_after(&connection, id, after, most).map_err(failed)
    }

    /// Where the database is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One durable step: all of `change`, or nothing.
    fn step<T>(
        &self,
        what: &str,
        change: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StageError> {
        let struck = fault::before(Call::Journal);
        let verdict =
            struck.map_err(|errno| StageError::io(format!("record that {what}"), &self.path, errno))?;
        let mut connection = self.connection();
        let made = (|| {
            let transaction =
                connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let value = change(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })();
        verdict.made();
        made.map_err(|source| self.failed(format!("cannot record that {what}"), source))
    }

    fn look<T>(
        &self,
        what: &str,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StageError> {
        look(&self.connection()).map_err(|source| self.failed(format!("cannot tell {what}"), source))
    }

    fn failed(&self, what: String, source: rusqlite::Error) -> StageError {
        StageError::Journal { path: self.path.clone(), what, source }
    }

    /// Forgets what ended long ago, so that a journal does not grow with the years.
    fn prune(&self) -> Result<(), StageError> {
        self.step("old jobs are forgotten", |step| {
            let oldest: Option<JobId> = step
                .query_row("SELECT id FROM jobs ORDER BY id DESC LIMIT 1 OFFSET ?1", [KEPT], |row| row.get(0))
                .optional()?;
            let Some(oldest) = oldest else { return Ok(()) };
            const ENDED: &str = "SELECT id FROM jobs WHERE id < ?1 AND state IN ('done', 'cancelled')";
            for table in ["entries", "chunks", "begun", "notes"] {
                step.execute(&format!("DELETE FROM {table} WHERE job IN ({ENDED})"), [oldest])?;
            }
            step.execute(&format!("DELETE FROM jobs WHERE id IN ({ENDED})"), [oldest])?;
            Ok(())
        })
    }

    /// INTENT: a job is accepted. The same request, while one is under way, is that one.
    ///
    /// # Errors
    /// The journal's.
    pub fn accept(&self, spec: &JobSpec, now: u64) -> Result<(JobId, bool), StageError> {
        let text = text(spec);
        self.step("a job is accepted", |step| {
            let mut under_way = step.prepare_cached(
                "SELECT id, spec FROM jobs WHERE state IN ('queued', 'running', 'committed')",
            )?;
            let mut rows = under_way.query([])?;
            while let Some(row) = rows.next()? {
                let other: Option<JobSpec> = serde_json::from_str(&row.get::<_, String>(1)?).ok();
                let same = |other: JobSpec| {
                    (other.verb, &other.source, &other.destination)
                        == (spec.verb, &spec.source, &spec.destination)
                };
                if other.is_some_and(same) {
                    return Ok((row.get(0)?, false));
                }
            }
            step.execute(
                "INSERT INTO jobs (spec, state, level, created) VALUES (?1, 'queued', 'staged', ?2)",
                params![text, now as i64],
            )?;
            Ok((step.last_insert_rowid(), true))
        })
    }

    /// A job's row.
    ///
    /// # Errors
    /// The journal's.
    pub fn job(&self, id: JobId) -> Result<Option<JobRow>, StageError> {
        Ok(self.look("what became of a job", |connection| rows(connection, Some(id)))?.pop())
    }

    /// All jobs, in the order they were accepted.
    ///
    /// # Errors
    /// The journal's.
    pub fn jobs(&self) -> Result<Vec<JobRow>, StageError> {
        self.look("which jobs there are", |connection| rows(connection, None))
    }

    /// Has a job that nobody is at work with go as fast as these options say; what is moved, and how, stays.
    ///
    /// # Errors
    /// The journal's.
    pub fn hurry(&self, id: JobId, options: &Options) -> Result<(), StageError> {
        let Some(row) = self.job(id)? else { return Ok(()) };
        let Options { bwlimit, iops_limit, priority, deadline, background, .. } = *options;
        let options =
            Options { bwlimit, iops_limit, priority, deadline, background, ..row.spec.options.clone() };
        let spec = JobSpec { options, ..row.spec };
        self.step("a job is hurried", |step| {
            step.execute("UPDATE jobs SET spec = ?2 WHERE id = ?1", params![id, text(&spec)])?;
            Ok(())
        })
    }

    /// A job is begun, or begun again.
    ///
    /// # Errors
    /// The journal's.
    pub fn begin(&self, id: JobId) -> Result<(), StageError> {
        self.step("a job begins", |step| {
            step.execute(
                "UPDATE jobs SET state = CASE state WHEN 'committed' THEN state ELSE 'running' END,
                 attempts = attempts + 1, error = NULL, finished = NULL WHERE id = ?1",
                [id],
            )
        })?;
        Ok(())
    }

    /// The name that the destination has until it is whole, before anything has it; what an earlier one had is forgotten.
    ///
    /// # Errors
    /// The journal's.
    pub fn name_part(&self, id: JobId, part: &std::ffi::OsStr) -> Result<(), StageError> {
        self.step("a part has a name", |step| {
            for table in ["entries", "chunks", "begun", "notes"] {
                step.execute(&format!("DELETE FROM {table} WHERE job = ?1"), [id])?;
            }
            step.execute(
                "UPDATE jobs SET part = ?2, part_ino = NULL WHERE id = ?1",
                params![id, part.as_bytes()],
            )
        })?;
        Ok(())
    }

    /// The inode of the part, once it is there.
    ///
    /// # Errors
    /// The journal's.
    pub fn made_part(&self, id: JobId, ino: u64) -> Result<(), StageError> {
        self.step("a part is there", |step| {
            step.execute("UPDATE jobs SET part_ino = ?2 WHERE id = ?1", params![id, ino as i64])
        })?;
        Ok(())
    }

    /// The source is durable where it is.
    ///
    /// # Errors
    /// The journal's.
    pub fn level(&self, id: JobId, level: Level) -> Result<(), StageError> {
        self.step("a level is reached", |step| {
            step.execute("UPDATE jobs SET level = ?2 WHERE id = ?1", params![id, level.word()])
        })?;
        Ok(())
    }

    /// COMMITTED.
    ///
    /// # Errors
    /// The journal's.
    pub fn commit(&self, id: JobId, now: u64) -> Result<(), StageError> {
        self.step("a job is committed", |step| {
            step.execute(
                "UPDATE jobs SET state = 'committed', level = 'durable', durable = ?2 WHERE id = ?1",
                params![id, now as i64],
            )
        })?;
        Ok(())
    }

    /// The end of a job, or a state on the way there. What was needed to go on with it is forgotten once it is done
    /// or cancelled.
    ///
    /// # Errors
    /// The journal's.
    pub fn settle(
        &self,
        id: JobId,
        state: State,
        now: u64,
        why: Option<&Why>,
        notes: &[String],
    ) -> Result<(), StageError> {
        self.step("a job is settled", |step| {
            step.execute(
                "UPDATE jobs SET state = ?2, finished = ?3, error = ?4, notes = ?5 WHERE id = ?1",
                params![
                    id,
                    state.word(),
                    state.is_final().then_some(now as i64),
                    why.map(text),
                    text(&notes)
                ],
            )?;
            if matches!(state, State::Done | State::Cancelled) {
                for table in ["chunks", "begun", "notes"] {
                    step.execute(&format!("DELETE FROM {table} WHERE job = ?1"), [id])?;
                }
                // A set's manifest says from now on what it consists of; of a file there is only this.
                let kept = if state == State::Done { "AND path <> x''" } else { "" };
                step.execute(&format!("DELETE FROM entries WHERE job = ?1 {kept}"), [id])?;
            }
            Ok(())
        })
    }

    /// Counts for those who look at the journal later. They vouch for nothing.
    ///
    /// # Errors
    /// The journal's.
    pub fn count(&self, id: JobId, counts: [u64; 5]) -> Result<(), StageError> {
        let [files_total, files_done, bytes_total, written, verified] = counts.map(|count| count as i64);
        self.look("what to count", |connection| {
            connection.execute(
                "UPDATE jobs SET files_total = ?2, files_done = ?3, bytes_total = ?4, bytes_written = ?5, bytes_verified = ?6
                 WHERE id = ?1",
                params![id, files_total, files_done, bytes_total, written, verified],
            )
        })?;
        Ok(())
    }

    /// Entries that are durable and verified.
    ///
    /// # Errors
    /// The journal's.
    pub fn record(&self, id: JobId, done: &[Done]) -> Result<(), StageError> {
        if done.is_empty() {
            return Ok(());
        }
        self.step("files are durable", |step| {
            let mut insert = step.prepare_cached(
                "INSERT OR REPLACE INTO entries VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)",
            )?;
            let mut forget_chunks = step.prepare_cached("DELETE FROM chunks WHERE job = ?1 AND path = ?2")?;
            let mut forget_begun = step.prepare_cached("DELETE FROM begun WHERE job = ?1 AND path = ?2")?;
            for Done { entry, source } in done {
                let path = entry.path.0.as_os_str().as_bytes();
                let chunks: Option<Vec<u8>> = (!entry.chunks.is_empty())
                    .then(|| entry.chunks.iter().flat_map(|digest| digest.0).collect());
                let other = entry.target.as_ref().or(entry.link_to.as_ref());
                insert.execute(params![
                    id,
                    path,
                    kind_number(entry),
                    entry.size as i64,
                    entry.mode,
                    entry.uid,
                    entry.gid,
                    entry.mtime_s,
                    entry.mtime_ns,
                    source.ctime.0,
                    source.ctime.1,
                    source.ino as i64,
                    source.nlink,
                    entry.digest.map(|digest| digest.0),
                    chunks,
                    other.map(|other| other.0.as_os_str().as_bytes()),
                ])?;
                if !entry.chunks.is_empty() {
                    forget_chunks.execute(params![id, path])?;
                    forget_begun.execute(params![id, path])?;
                }
            }
            Ok(())
        })
    }

    /// What is recorded of a path.
    ///
    /// # Errors
    /// The journal's.
    pub fn entry(&self, id: JobId, path: &Path) -> Result<Option<Done>, StageError> {
        self.look("whether a file is done", |connection| {
            connection
                .prepare_cached("SELECT * FROM entries WHERE job = ?1 AND path = ?2")?
                .query_row(params![id, path.as_os_str().as_bytes()], done_of)
                .optional()
        })
    }

    /// Up to `most` entries whose paths sort after `after`, in the order of their bytes.
    ///
    /// # Errors
    /// The journal's.
    pub fn entries_after(
        &self,
        id: JobId,
        after: Option<&Path>,
        most: usize,
    ) -> Result<Vec<Done>, StageError> {
        self.look("which files are done", |connection| page_after(connection, id, after, most))
    }

    /// Up to `most` entries whose paths sort before `before`, the last first.
    ///
    /// # Errors
    /// The journal's.
    pub fn entries_before(
        &self,
        id: JobId,
        before: Option<&Path>,
        most: usize,
    ) -> Result<Vec<Done>, StageError> {
        self.look("which files are done", |connection| {
            let mut query = connection.prepare_cached(
                "SELECT * FROM entries WHERE job = ?1 AND (?2 IS NULL OR path < ?2) ORDER BY path DESC LIMIT ?3",
            )?;
            let before = before.map(|path| path.as_os_str().as_bytes());
            query.query_map(params![id, before, most as i64], done_of)?.collect()
        })
    }

    /// How many entries there are.
    ///
    /// # Errors
    /// The journal's.
    pub fn entry_count(&self, id: JobId) -> Result<u64, StageError> {
        self.look("how many files are done", |connection| {
            connection
                .query_row("SELECT count(*) FROM entries WHERE job = ?1", [id], |row| row.get::<_, i64>(0))
        })
        .map(|count| count as u64)
    }

    /// Forgets entries: what they name is no longer there, or not to be trusted.
    ///
    /// # Errors
    /// The journal's.
    pub fn forget(&self, id: JobId, paths: &[PathBuf]) -> Result<(), StageError> {
        self.step("files are to be copied again", |step| {
            for path in paths {
                let path = path.as_os_str().as_bytes();
                for table in ["entries", "chunks", "begun"] {
                    step.prepare_cached(&format!("DELETE FROM {table} WHERE job = ?1 AND path = ?2"))?
                        .execute(params![id, path])?;
                }
            }
            Ok(())
        })
    }

    /// A large file is begun: which source, and the inode that it is copied to.
    ///
    /// # Errors
    /// The journal's.
    pub fn begin_large(
        &self,
        id: JobId,
        path: &Path,
        source: &Identity,
        destination_ino: u64,
    ) -> Result<(), StageError> {
        self.step("a large file is begun", |step| {
            let name = path.as_os_str().as_bytes();
            step.execute("DELETE FROM chunks WHERE job = ?1 AND path = ?2", params![id, name])?;
            step.execute(
                "INSERT OR REPLACE INTO begun VALUES (?1, ?2, ?3, ?4)",
                params![id, name, identity_text(source), destination_ino as i64],
            )
        })?;
        Ok(())
    }

    /// The chunks of a large file that are durable and verified, if it was begun with this very source and in this
    /// very inode; otherwise none.
    ///
    /// # Errors
    /// The journal's.
    pub fn chunks(
        &self,
        id: JobId,
        path: &Path,
        source: &Identity,
        destination_ino: u64,
    ) -> Result<Option<BTreeMap<u64, Digest>>, StageError> {
        self.look("which chunks are durable", |connection| {
            let name = path.as_os_str().as_bytes();
            let begun: Option<(Vec<u8>, i64)> = connection
                .prepare_cached("SELECT identity, destination_ino FROM begun WHERE job = ?1 AND path = ?2")?
                .query_row(params![id, name], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            if begun != Some((identity_text(source), destination_ino as i64)) {
                return Ok(None);
            }
            let mut query =
                connection.prepare_cached("SELECT chunk, digest FROM chunks WHERE job = ?1 AND path = ?2")?;
            let chunks = query.query_map(params![id, name], |row| {
                let digest: [u8; 32] = row.get(1)?;
                Ok((row.get::<_, i64>(0)? as u64, Digest(digest)))
            })?;
            chunks.collect::<rusqlite::Result<_>>().map(Some)
        })
    }

    /// Chunks of a large file that are durable and verified.
    ///
    /// # Errors
    /// The journal's.
    pub fn seal(&self, id: JobId, path: &Path, chunks: &[(u64, Digest)]) -> Result<(), StageError> {
        self.step("chunks are durable", |step| {
            let mut insert = step.prepare_cached("INSERT OR REPLACE INTO chunks VALUES (?1, ?2, ?3, ?4)")?;
            for (chunk, digest) in chunks {
                insert.execute(params![id, path.as_os_str().as_bytes(), *chunk as i64, digest.0])?;
            }
            Ok(())
        })
    }

    /// A note of a job's own, such as the number of an upload.
    ///
    /// # Errors
    /// The journal's.
    pub fn note(&self, id: JobId, key: &str) -> Result<Option<Vec<u8>>, StageError> {
        self.look("what was noted", |connection| {
            connection
                .prepare_cached("SELECT value FROM notes WHERE job = ?1 AND key = ?2")?
                .query_row(params![id, key], |row| row.get(0))
                .optional()
        })
    }

    /// Keeps a note.
    ///
    /// # Errors
    /// The journal's.
    pub fn keep_note(&self, id: JobId, key: &str, value: &[u8]) -> Result<(), StageError> {
        self.step("something is noted", |step| {
            step.execute("INSERT OR REPLACE INTO notes VALUES (?1, ?2, ?3)", params![id, key, value])
        })?;
        Ok(())
    }
}

fn lock(state: &Path) -> Result<OwnedFd, StageError> {
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

fn page_after(
    connection: &Connection,
    id: JobId,
    after: Option<&Path>,
    most: usize,
) -> rusqlite::Result<Vec<Done>> {
    let mut query = connection.prepare_cached(
        "SELECT * FROM entries WHERE job = ?1 AND (?2 IS NULL OR path > ?2) ORDER BY path LIMIT ?3",
    )?;
    let after = after.map(|path| path.as_os_str().as_bytes());
    query.query_map(params![id, after, most as i64], done_of)?.collect()
}

/// A job of which no more is known than the journal has.
impl From<JobRow> for JobStatus {
    fn from(row: JobRow) -> Self {
        let [files_total, files_done, bytes_total, bytes_written, bytes_verified] = row.counts;
        Self {
            id: row.id,
            spec: row.spec,
            state: row.state,
            level: row.level,
            error: row.error,
            notes: row.notes,
            attempts: row.attempts,
            created: row.times.0,
            durable: row.times.1,
            finished: row.times.2,
            files_total,
            files_done,
            bytes_total,
            bytes_written,
            bytes_verified,
            walked: matches!(row.state, State::Committed | State::Done),
            bytes_per_s: None,
            held_back_by: None,
        }
    }
}

fn connect(path: &Path) -> Result<Connection, StageError> {
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

fn rows(connection: &Connection, id: Option<JobId>) -> rusqlite::Result<Vec<JobRow>> {
    connection
        .prepare_cached(
            "SELECT id, spec, state, level, attempts, created, durable, finished, error, notes, part, part_ino,
             files_total, files_done, bytes_total, bytes_written, bytes_verified
             FROM jobs WHERE ?1 IS NULL OR id = ?1 ORDER BY id",
        )?
        .query_map([id], job_of)?
        .collect()
}

fn job_of(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let unsigned = |at: usize| row.get::<_, i64>(at).map(|value| value as u64);
    let optional = |at: usize| row.get::<_, Option<i64>>(at).map(|value| value.map(|value| value as u64));
    let error: Option<String> = row.get(8)?;
    Ok(JobRow {
        id: row.get(0)?,
        spec: document(&row.get::<_, String>(1)?, 1)?,
        state: word(row, 2)?,
        level: word(row, 3)?,
        attempts: row.get(4)?,
        times: (unsigned(5)?, optional(6)?, optional(7)?),
        error: error.map(|text| document(&text, 8)).transpose()?,
        notes: document(&row.get::<_, String>(9)?, 9)?,
        part: row.get::<_, Option<Vec<u8>>>(10)?.map(OsString::from_vec),
        part_ino: optional(11)?,
        counts: [unsigned(12)?, unsigned(13)?, unsigned(14)?, unsigned(15)?, unsigned(16)?],
    })
}

fn done_of(row: &Row<'_>) -> rusqlite::Result<Done> {
    let path = |at: usize| {
        row.get::<_, Option<Vec<u8>>>(at)
            .map(|bytes| bytes.map(|bytes| PathText(OsString::from_vec(bytes).into())))
    };
    let number: i64 = row.get(2)?;
    let kind = match number {
        1 => Kind::Directory,
        2 => Kind::Symlink,
        _ => Kind::File,
    };
    let other = path(15)?;
    let (target, link_to) = match number {
        2 => (other, None),
        3 => (None, other),
        _ => (None, None),
    };
    let chunks: Option<Vec<u8>> = row.get(14)?;
    let chunks = chunks.map(|bytes| bytes.chunks_exact(32).filter_map(Digest::from_slice).collect());
    let entry = Entry {
        path: path(1)?.unwrap_or_default(),
        kind,
        size: row.get::<_, i64>(3)? as u64,
        mode: row.get(4)?,
        uid: row.get(5)?,
        gid: row.get(6)?,
        mtime_s: row.get(7)?,
        mtime_ns: row.get(8)?,
        digest: row.get::<_, Option<[u8; 32]>>(13)?.map(Digest),
        chunks: chunks.unwrap_or_default(),
        target,
        link_to,
    };
    let source = Identity {
        ino: row.get::<_, i64>(11)? as u64,
        size: entry.size,
        mtime: (entry.mtime_s, entry.mtime_ns),
        ctime: (row.get(9)?, row.get(10)?),
        nlink: row.get(12)?,
    };
    Ok(Done { entry, source })
}

/// 0 a file, 1 a directory, 2 a symbolic link, 3 another name of a file.
fn kind_number(entry: &Entry) -> i64 {
    match entry.kind {
        Kind::File if entry.link_to.is_some() => 3,
        Kind::File => 0,
        Kind::Directory => 1,
        Kind::Symlink => 2,
    }
}

fn identity_text(identity: &Identity) -> Vec<u8> {
    let Identity { ino, size, mtime, ctime, .. } = identity;
    format!("{ino} {size} {}.{} {}.{}", mtime.0, mtime.1, ctime.0, ctime.1).into_bytes()
}

fn text(document: &impl serde::Serialize) -> String {
    serde_json::to_string(document).expect("plain data becomes JSON")
}

fn document<T: serde::de::DeserializeOwned>(text: &str, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}

fn word<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    document(&format!("\"{}\"", row.get::<_, String>(column)?), column)
}
