//! Who has reserved what: one SQLite file with `synchronous=FULL`, shared by the processes that reserve.
//!
//! A reservation is there, durably, before its holder may write a byte. It goes when it is released, when the process
//! that it is bound to is gone (its number, its start time and the boot that it belongs to, so that no other process passes
//! for it), or, bound to no process, when its time is up (`lease`). `changes` counts what may have made room or hidden use; who
//! remembers how much lies in a pool forgets it when that has moved.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};

use super::lease::{Lease, Uptime};
use crate::error::{StageError, shown};

/// The version of the tables. A ledger of a later one is refused, never guessed at.
const VERSION: i64 = 2;

const TABLES: &str = "
CREATE TABLE reservations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pool TEXT NOT NULL,
    owner INTEGER NOT NULL,
    label TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    pid INTEGER,
    started INTEGER,
    boot TEXT
);
CREATE TABLE changes (count INTEGER NOT NULL);
INSERT INTO changes VALUES (0);
";

/// What version 2 has besides: when a lease ends by the time of a boot.
const LEASES: &str = "
ALTER TABLE reservations ADD COLUMN lease_boot TEXT;
ALTER TABLE reservations ADD COLUMN lease_until INTEGER;
";

/// A process that cannot be taken for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it was started, in clock ticks since boot (field 22 of proc_pid_stat(5)).
    pub started: u64,
    /// The boot that both belong to (/proc/sys/kernel/random/boot_id).
    pub boot: String,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reserved {
    pub(super) id: i64,
    pub(super) pool: String,
    pub(super) owner: u32,
    pub(super) label: String,
    pub(super) bytes: u64,
    pub(super) created: u64,
    /// Of one that is bound to no process.
    pub(super) lease: Option<Lease>,
    pub(super) process: Option<Process>,
}

impl Reserved {
    /// Where it is written to, relative to the pool.
    pub(super) fn directory(&self) -> PathBuf {
        directory(self.owner, &self.label)
    }
}

/// Where a user's set of a name is, relative to its pool.
pub(super) fn directory(owner: u32, label: &str) -> PathBuf {
    PathBuf::from(owner.to_string()).join(label)
}

/// The ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// One step, which others see whole or not at all.
pub(super) struct Step<'a>(Transaction<'a>);

impl Ledger {
    pub(super) fn open(path: &Path) -> Result<Self, StageError> {
        let failed = |what: &'static str| {
            let path = path.to_owned();
            move |source| StageError::Journal { path, what: what.to_owned(), source }
        };
        let mut connection = Connection::open(path).map_err(failed("the pools' ledger cannot be opened"))?;
        let version = (|| {
            connection.busy_timeout(std::time::Duration::from_secs(30))?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            // Two that open it for the first time at once: the second finds what the first has made.
            let step = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let version: i64 = step.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if version == 0 {
                step.execute_batch(TABLES)?;
            }
            if version < VERSION {
                step.execute_batch(LEASES)?;
                step.pragma_update(None, "user_version", VERSION)?;
            }
            step.commit()?;
            Ok(version)
        })()
        .map_err(failed("the pools' ledger cannot be set up"))?;
        if version > VERSION {
            let what = format!(
                "{}: version {version} of the pools' ledger, and {VERSION} is known here",
                shown(path)
            );
            return Err(StageError::invalid(what, "use the flashwright that made it"));
        }
        Ok(Self { path: path.to_owned(), connection: Mutex::new(connection) })
    }

    /// Nobody else writes until `work` is done; all that it writes is durable when this returns, or none of it is there.
    pub(super) fn step<T>(
        &self,
        what: &str,
        work: impl FnOnce(&Step<'_>) -> Result<T, StageError>,
    ) -> Result<T, StageError> {
        let failed =
            |source| StageError::Journal { path: self.path.clone(), what: format!("cannot {what}"), source };
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let step = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let step = Step(step);
        let worked = work(&step)?;
        step.0.commit().map_err(failed)?;
        Ok(worked)
    }

    /// The error of a statement.
    pub(super) fn failed(&self, source: rusqlite::Error) -> StageError {
        StageError::Journal { path: self.path.clone(), what: "cannot be used".to_owned(), source }
    }
}

impl Step<'_> {
    /// All reservations, the oldest first.
    pub(super) fn rows(&self) -> rusqlite::Result<Vec<Reserved>> {
        self.0
            .prepare_cached(
                "SELECT id, pool, owner, label, bytes, created, expires, pid, started, boot, lease_boot, lease_until
                 FROM reservations ORDER BY id",
            )?
            .query_map([], row_of)?
            .collect()
    }

    pub(super) fn insert(&self, row: &Reserved) -> rusqlite::Result<i64> {
        let process = row.process.as_ref();
        let until = row.lease.as_ref().and_then(|lease| lease.until.as_ref());
        self.0.execute(
            "INSERT INTO reservations
             (pool, owner, label, bytes, created, expires, pid, started, boot, lease_boot, lease_until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                row.pool,
                row.owner,
                row.label,
                row.bytes as i64,
                row.created as i64,
                row.lease.as_ref().map(|lease| lease.expires as i64),
                process.map(|process| process.pid),
                process.map(|process| process.started as i64),
                process.map(|process| &process.boot),
                until.map(|until| &until.boot),
                until.map(|until| until.seconds as i64),
            ],
        )?;
        Ok(self.0.last_insert_rowid())
    }

    /// Was there one to delete?
    pub(super) fn delete(&self, id: i64) -> rusqlite::Result<bool> {
        self.changed()?;
        Ok(self.0.execute("DELETE FROM reservations WHERE id = ?1", [id])? == 1)
    }

    /// Was there one whose lease could be noted?
    pub(super) fn note(&self, id: i64, lease: &Lease) -> rusqlite::Result<bool> {
        let until = lease.until.as_ref();
        let set = "UPDATE reservations SET expires = ?2, lease_boot = ?3, lease_until = ?4 WHERE id = ?1";
        let values = params![
            id,
            lease.expires as i64,
            until.map(|until| &until.boot),
            until.map(|until| until.seconds as i64)
        ];
        Ok(self.0.execute(set, values)? == 1)
    }

    pub(super) fn changes(&self) -> rusqlite::Result<i64> {
        self.0.query_row("SELECT count FROM changes", [], |row| row.get(0))
    }

    pub(super) fn changed(&self) -> rusqlite::Result<()> {
        self.0.execute("UPDATE changes SET count = count + 1", []).map(drop)
    }
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<Reserved> {
    let process = match (row.get(7)?, row.get::<_, Option<i64>>(8)?, row.get(9)?) {
        (Some(pid), Some(started), Some(boot)) => Some(Process { pid, started: started as u64, boot }),
        _ => None,
    };
    let until = match (row.get(10)?, row.get::<_, Option<i64>>(11)?) {
        (Some(boot), Some(seconds)) => Some(Uptime { boot, seconds: seconds as u64 }),
        _ => None,
    };
    let expires: Option<i64> = row.get(6)?;
    Ok(Reserved {
        id: row.get(0)?,
        pool: row.get(1)?,
        owner: row.get(2)?,
        label: row.get(3)?,
        bytes: row.get::<_, i64>(4)? as u64,
        created: row.get::<_, i64>(5)? as u64,
        lease: expires.map(|at| Lease { expires: at as u64, until }),
        process,
    })
}
