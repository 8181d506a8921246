//! results.db: one SQLite file holds all of one sweep.
//!
//! What it guarantees:
//!
//! 1. **A run is stored whole and durably before the next starts.** Figures and record go in with one
//!    transaction. `journal_mode=DELETE` with `synchronous=EXTRA` syncs the journal, the database and
//!    the directory, so what was committed survives `kill -9` and loss of power; what was not is
//!    rolled back by whoever opens the file next.
//! 2. **No run twice, none that was not planned.** `UNIQUE (point, pass)` and a reference into the
//!    plan, both held by the database.
//! 3. **One process runs the sweep**, by a lock that dies with its holder (`lock`).
//! 4. **Reading costs what is asked for.** Runs are read without touching records.
//! 5. **No other file is taken for a results file**: application id and format are checked on
//!    opening.
//!
//! Why not a write-ahead log, which needs fewer syncs: it keeps committed runs in a second file, which
//! is left behind by `kill -9` and lost by those who copy only `results.db`; its shared memory does not
//! work on network file systems; and a reader without the right to write cannot open it. The syncs
//! that it would save fall between two runs, not into them. The price is that a reader holds up the
//! commit while it reads, so readers read quickly and close, and the writer waits for them.
//!
//! Reading: [`Store::open_read_only`], also while the sweep runs. Writing: [`Store::create`] once,
//! [`Store::open`] to go on.

mod absorb;
mod details;
mod error;
mod lock;
mod read;
mod rows;
mod schema;
mod write;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

pub use error::StoreError;
pub use lock::running;
pub use read::RecordOf;
pub use rows::{Completeness, Failure, Machine, Meta, MissingPoint, Session};
pub use write::Measured;

use crate::plan::Plan;
use lock::SweepLock;
use schema::Kind;

/// The file's name inside a sweep's directory.
pub const FILE_NAME: &str = "results.db";

/// A note: the directory in which the sweep began, where it lays a scratch file that no target names.
pub const NOTE_HERE: &str = "scratch directory";
/// The note that says which drives lie below, each with model and size: machines that differ in it are not alike.
pub const NOTE_DRIVES: &str = "drives";

/// The note that says how long a shard has measured in blocks, nanoseconds; the shard's number follows.
pub(crate) const NOTE_TIME_USED: &str = "measured ns, shard ";

/// How long a commit waits for readers, and a reader for a commit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// An open results file.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// Held by whoever may add runs; none in a store opened for reading.
    lock: Option<SweepLock>,
}

/// The results file that a user means: the path itself, or `results.db` in that directory.
#[must_use]
pub fn locate(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() }
}

/// Now, in nanoseconds since 1970-01-01 UTC.
#[must_use]
pub fn now_unix_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

impl Store {
    /// Makes a results file with the whole plan in it, and takes its lock. A file that an earlier
    /// attempt left empty is used; anything else that is there is left alone.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::Foreign`] or [`StoreError::OtherFormat`] where there is a file
    /// already, [`StoreError::Locked`] where another process is at it, [`StoreError::Full`], and
    /// failures of the database.
    pub fn create(path: &Path, meta: &Meta, plan: &Plan) -> Result<Self, StoreError> {
        let path = locate(path);
        // The lock file must not be the debris of a path that cannot hold a sweep.
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                return Err(StoreError::NoDirectory { path: parent.to_owned() });
            }
            _ => {}
        }
        let lock = SweepLock::take(&path)?;
        let is_new = !path.exists();
        let made = Self::fill(path.clone(), lock, meta, plan);
        if made.is_err() && is_new {
            // Nothing of a sweep that never began is left behind; where even removing fails, the
            // empty file is taken for what it is the next time.
            let _ = std::fs::remove_file(&path);
        }
        made
    }

    fn fill(path: PathBuf, lock: SweepLock, meta: &Meta, plan: &Plan) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut store = Self::connect(path, flags, Some(lock))?;
        match store.kind()? {
            Kind::Empty => store.insert_plan(meta, plan)?,
            Kind::Results => return Err(StoreError::Exists { path: store.path }),
            other => return Err(store.not_results(&other)),
        }
        Ok(store)
    }

    /// Opens a results file to go on with its sweep, and takes its lock. An unfinished commit of a
    /// killed process is rolled back.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Locked`] where another process runs the sweep.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let path = locate(path);
        require_file(&path)?;
        let lock = SweepLock::take(&path)?;
        let store = Self::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, Some(lock))?;
        store.require_results()?;
        Ok(store)
    }

    /// Opens a results file to read it, also while its sweep runs, and also where the reader may not
    /// write.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let path = locate(path);
        require_file(&path)?;
        match Self::connect_to_read(&path) {
            Err(StoreError::Database { source, .. }) if needs_rollback(&source) => {}
            opened_or_not => return opened_or_not,
        }
        // A commit was cut short by kill -9; until it is rolled back nobody can read. Opening for
        // writing does that, under the lock, so that it is not taken from a living writer.
        drop(Self::open(&path)?);
        Self::connect_to_read(&path)
    }

    fn connect_to_read(path: &Path) -> Result<Self, StoreError> {
        let store = Self::connect(path.to_owned(), OpenFlags::SQLITE_OPEN_READ_ONLY, None)?;
        store.require_results()?;
        Ok(store)
    }

    /// The lock, for a program that does part of the sweep: who holds the file keeps everybody else from the sweep,
    /// also when this process was killed.
    ///
    /// # Errors
    /// [`StoreError::Lock`] where the store was opened for reading, or no descriptor is to be had.
    pub fn lock(&self) -> Result<std::fs::File, StoreError> {
        let shared = match &self.lock {
            Some(lock) => lock.share(),
            None => Err(std::io::ErrorKind::PermissionDenied.into()),
        };
        shared.map_err(|source| StoreError::Lock { path: self.path.clone(), source })
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether runs may be added.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.lock.is_some()
    }

    fn connect(path: PathBuf, flags: OpenFlags, lock: Option<SweepLock>) -> Result<Self, StoreError> {
        refuse_scraps(&path)?;
        // Without SQLITE_OPEN_URI a name like `file:x?mode=memory` is a name and nothing else.
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let connection = Connection::open_with_flags(&path, flags)
            .and_then(|connection| configure(&connection).map(|()| connection))
            .map_err(|source| StoreError::from_sql(&path, "open it", source))?;
        Ok(Self { connection, path, lock })
    }

    fn kind(&self) -> Result<Kind, StoreError> {
        schema::kind(&self.connection).map_err(self.sql("read its header"))
    }

    fn require_results(&self) -> Result<(), StoreError> {
        match self.kind()? {
            Kind::Results => Ok(()),
            other => Err(self.not_results(&other)),
        }
    }

    fn not_results(&self, kind: &Kind) -> StoreError {
        let path = self.path.clone();
        match *kind {
            Kind::OtherFormat(found) => StoreError::OtherFormat { path, found, known: schema::FORMAT },
            Kind::Empty => StoreError::Unbegun { path },
            _ => StoreError::Foreign { path, what: "it is an SQLite database of something else" },
        }
    }

    /// Turns SQLite's failure of `operation` into this store's.
    fn sql(&self, operation: &'static str) -> impl FnOnce(rusqlite::Error) -> StoreError + '_ {
        move |source| StoreError::from_sql(&self.path, operation, source)
    }
}

fn require_file(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path) {
        Ok(facts) if facts.is_file() => Ok(()),
        Ok(_) => Err(StoreError::Foreign { path: path.to_owned(), what: "it is no regular file" }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(StoreError::Missing { path: path.to_owned() })
        }
        Err(source) => Err(StoreError::File { path: path.to_owned(), operation: "open it", source }),
    }
}

/// Refuses files that are too short for a database and not empty. SQLite takes a file of one byte for
/// an empty database and would overwrite it (`unixFileSize` in its os_unix.c). Asked of the file's
/// length and not of its content: opening and closing the file here would drop the locks that this
/// process's other connections hold on it.
fn refuse_scraps(path: &Path) -> Result<(), StoreError> {
    /// The smallest page, and so the smallest database.
    const SMALLEST: u64 = 512;
    match std::fs::metadata(path) {
        Ok(facts) if (1..SMALLEST).contains(&facts.len()) => {
            Err(StoreError::Foreign { path: path.to_owned(), what: "it is no SQLite database" })
        }
        _ => Ok(()),
    }
}

/// Settings of a connection; none of them touches the file.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "EXTRA")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Results files travel; functions that a stranger put into the schema are not to be called.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Whether a reader was refused because a killed writer's commit must be rolled back first.
fn needs_rollback(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|e| {
        e.extended_code == rusqlite::ffi::SQLITE_READONLY_ROLLBACK
            || e.extended_code == rusqlite::ffi::SQLITE_READONLY_RECOVERY
    })
}

#[cfg(test)]
mod tests;
