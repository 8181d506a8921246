//! Pools: named areas of a fast tier, with a quota, watermarks, and room that is reserved before it is written to.
//!
//! A pool is a directory; a user's sets lie in `POOL/UID/NAME`. Who wants to write a set reserves its bytes first, and
//! is given that directory or told that it does not fit: a checkpoint that does not fit is refused before its first byte,
//! never cut off by a full disk half way.
//!
//! Two invariants, checked in one transaction of the ledger with each grant, against what really lies in the pool:
//!
//! 1. used + reserved and not yet used ≤ quota, and the same of each user's share;
//! 2. reserved and not yet used, in all pools of a file system together, ≤ its free space.
//!
//! *Used* is blocks on the disk (`usage`), whoever wrote them and whether or not they were reserved; what is used of a
//! reservation is what lies in its directory. A walk is remembered for a few seconds, until a reservation goes: of a
//! reservation that is still there, what is written after the walk counts as reserved instead of used, which
//! comes to the same sum, and is missing in the free space besides, which errs on the safe side.
//!
//! Reservations go when they are released, when their process dies, or when their time is up (`ledger`). What was
//! written stays, and counts as used. Who waits for room is served in the order in which he came, within one process;
//! between processes, as it comes. Who waits for room in his own share alone keeps nobody else waiting.
//!
//! The ledger is a file that whoever may write to it could change at will. Users who are to share a pool without trusting
//! each other therefore have a service keep it (`service::system::keeper`), whose ledger nobody else can open.
//!
//! `room` grants, `tell` says what is there. Above the high watermark a pool names the sets that are to go, the oldest first, until the low one is reached:
//! never one that somebody writes to, never one of which [`Evictable`] does not say that its slow copy is durable and
//! verified. Who calls removes them, by `retention`, which checks that again.

mod config;
mod host;
mod lease;
mod ledger;
mod room;
mod tell;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::config::PoolConfig;
pub use self::ledger::Process;
pub use self::tell::{Evictable, Eviction, Holder, PoolFigures, PoolStatus, ReservationStatus, SetStatus};

use self::host::{Host, Machine};
use self::lease::Lease;
use self::ledger::{Ledger, Reserved, Step};
use self::usage::Usage;
use crate::calls;
use crate::error::{StageError, shown};
use crate::names::PathText;
use crate::qos::{Clock, SystemClock};

/// How long a walk is remembered.
const REMEMBERED: Duration = Duration::from_secs(5);
/// How often who waits looks at what other processes have released.
const LOOK: Duration = Duration::from_millis(500);
/// What is asked of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Which.
    pub pool: String,
    /// For whom. The caller has made sure that it is he who asks (SO_PEERCRED), or is he himself.
    pub owner: u32,
    /// The set's name, which is the last part of its directory.
    pub label: String,
    /// Bytes that will be written.
    pub bytes: u64,
    /// The reservation goes with this process; none: with its time.
    pub process: Option<Process>,
}

/// Room that has been reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Reservation {
    /// Its number, for [`Pools::release`].
    pub id: i64,
    /// Where to write: an empty directory of the owner's.
    pub directory: PathText,
    /// Bytes that may be written there.
    pub bytes: u64,
    /// When it goes if nobody renews it, seconds since 1970; none: when its process ends.
    pub expires: Option<u64>,
}

#[derive(Debug)]
struct Pool {
    config: PoolConfig,
    root: OwnedFd,
    /// The file system.
    device: (u32, u32),
}

#[derive(Debug)]
struct Remembered {
    at: Duration,
    /// How long the walk took.
    took: Duration,
    changes: i64,
    usage: Arc<Usage>,
}

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    owner: u32,
    bytes: u64,
    /// What it lacks is room in its own user's share, so that it keeps nobody else waiting.
    in_share: bool,
}

#[derive(Debug, Default)]
struct Shared {
    walks: BTreeMap<String, Remembered>,
    /// Who waits for each pool, the first first.
    queues: BTreeMap<String, VecDeque<Waiting>>,
    last_ticket: u64,
}

/// All pools of a configuration.
#[derive(Debug)]
pub struct Pools {
    pools: BTreeMap<String, Pool>,
    ledger: Ledger,
    shared: Mutex<Shared>,
    room: Condvar,
    clock: Arc<dyn Clock>,
    host: Box<dyn Host>,
}

/// What a pool's figures come to at one moment.
struct Balance {
    usage: Arc<Usage>,
    /// Of this pool, with what is used of each.
    rows: Vec<(Reserved, u64)>,
    reserved: u64,
}

impl Pools {
    /// Opens the pools of a configuration file, and the ledger, which is made if it is not there. All who reserve in a
    /// pool must have the same ledger.
    ///
    /// # Errors
    /// The configuration makes no sense, a pool's directory is not there, the ledger cannot be used.
    pub fn open(config: &Path, ledger: &Path) -> Result<Self, StageError> {
        Self::open_on(config, ledger, Arc::new(SystemClock), Box::new(Machine))
    }

    /// Opens the pools that a service keeps for others than its own user: as [`Pools::open`], and their directories must
    /// be such that nobody but the service can put anything in the place of a user's directory.
    ///
    /// # Errors
    /// Those of [`Pools::open`]; [`StageError::Refused`] where others may write to a pool's own directory.
    pub fn open_for_all(config: &Path, ledger: &Path) -> Result<Self, StageError> {
        let pools = Self::open(config, ledger)?;
        pools.pools.values().try_for_each(room::check_closed)?;
        Ok(pools)
    }

    fn open_on(
        config: &Path,
        ledger: &Path,
        clock: Arc<dyn Clock>,
        host: Box<dyn Host>,
    ) -> Result<Self, StageError> {
        let text = std::fs::read_to_string(config).map_err(|e| StageError::io("read it", config, e))?;
        // Without /etc/passwd only users' numbers are known.
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let mut pools = BTreeMap::new();
        for (name, config) in config::parse(config, &text, &passwd)? {
            let root = calls::open_directory(&config.path)
                .map_err(|error| StageError::io(format!("open pool {name}"), &config.path, error))?;
            let stat = calls::stat(root.as_fd())
                .map_err(|error| StageError::io(format!("open pool {name}"), &config.path, error))?;
            let device = (stat.stx_dev_major, stat.stx_dev_minor);
            pools.insert(name, Pool { config, root, device });
        }
        disjoint(&pools)?;
        let ledger = Ledger::open(ledger)?;
        Ok(Self { pools, ledger, shared: Mutex::default(), room: Condvar::new(), clock, host })
    }

    /// Gives a reservation back. What was written stays, and counts as used. One that is not there any more is no
    /// error: it was released before, or its time was up.
    ///
    /// # Errors
    /// It is another user's; the ledger's.
    pub fn release(&self, id: i64, owner: u32) -> Result<(), StageError> {
        self.ledger.step("release a reservation", |step| {
            self.own(step, id, owner)?;
            step.delete(id).map_err(|error| self.ledger.failed(error))
        })?;
        self.room_was_made();
        Ok(())
    }

    /// Has a reservation that is bound to no process last for a day from now on; false if it is gone.
    ///
    /// # Errors
    /// It is another user's; the ledger's.
    pub fn renew(&self, id: i64, owner: u32) -> Result<bool, StageError> {
        let lease = self.lease();
        self.ledger.step("renew a reservation", |step| {
            self.purge(step)?;
            self.own(step, id, owner)?;
            step.note(id, &lease).map_err(|error| self.ledger.failed(error))
        })
    }

    /// To be called when something was removed from a pool: who waits for room looks again at once.
    pub fn room_was_made(&self) {
        self.lock().walks.clear();
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self, name: &str) -> Result<&Pool, StageError> {
        self.pools.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.pools.keys().map(String::as_str).collect();
            StageError::invalid(
                format!("there is no pool {name:?}"),
                format!("there are: {}", names.join(", ")),
            )
        })
    }

    fn free(&self, pool: &Pool) -> Result<u64, StageError> {
        let asked = self.host.free(pool.root.as_fd());
        asked.map_err(|error| StageError::io("ask for free space", &pool.config.path, error))
    }

    /// Reserved and not yet used, in all pools of a pool's file system.
    fn promised_in(&self, step: &Step<'_>, pool: &Pool) -> Result<u64, StageError> {
        let beside = self.pools.iter().filter(|(_, other)| other.device == pool.device);
        beside.map(|(name, other)| Ok(self.balance(step, name, other)?.reserved)).sum()
    }

    fn promised(&self, pool: &Pool) -> Result<u64, StageError> {
        self.ledger.step("read the reservations", |step| self.promised_in(step, pool))
    }

    /// One that begins now.
    fn lease(&self) -> Lease {
        Lease::begin(self.clock.now().wall.as_secs(), self.host.uptime().as_ref())
    }

    /// Drops the reservations whose holders are gone, or whose time is up, and notes what a set clock has changed.
    fn purge(&self, step: &Step<'_>) -> Result<Vec<Reserved>, StageError> {
        let failed = |error| self.ledger.failed(error);
        let (wall, uptime) = (self.clock.now().wall.as_secs(), self.host.uptime());
        let mut rows = Vec::new();
        for mut row in step.rows().map_err(failed)? {
            let over = match (&row.process, &row.lease) {
                (Some(process), _) => !self.host.lives(process),
                (None, Some(lease)) => {
                    let now = lease.now(wall, uptime.as_ref());
                    if let Some(anew) = now.as_ref().filter(|now| *now != lease) {
                        step.note(row.id, anew).map_err(failed)?;
                    }
                    row.lease = now;
                    row.lease.is_none()
                }
                (None, None) => false,
            };
            if over {
                step.delete(row.id).map_err(failed)?;
            } else {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn balance(&self, step: &Step<'_>, name: &str, pool: &Pool) -> Result<Balance, StageError> {
        let rows = self.purge(step)?;
        let changes = step.changes().map_err(|error| self.ledger.failed(error))?;
        let usage = self.usage(name, pool, changes)?;
        let rows: Vec<(Reserved, u64)> = rows
            .into_iter()
            .filter(|row| row.pool == name)
            .map(|row| {
                let used = usage.of(&row.directory());
                (row, used)
            })
            .collect();
        let reserved = rows.iter().map(|(row, used)| row.bytes.saturating_sub(*used)).sum();
        Ok(Balance { usage, rows, reserved })
    }

    fn usage(&self, name: &str, pool: &Pool, changes: i64) -> Result<Arc<Usage>, StageError> {
        let now = self.clock.now().steady;
        if let Some(known) = self.lock().walks.get(name)
            && known.changes == changes
            && now < known.at + REMEMBERED
        {
            return Ok(Arc::clone(&known.usage));
        }
        self.walk(name, pool, changes)
    }

    fn walk(&self, name: &str, pool: &Pool, changes: i64) -> Result<Arc<Usage>, StageError> {
        let begun = self.clock.now().steady;
        let walked = usage::walk(pool.root.as_fd());
        let usage =
            Arc::new(walked.map_err(|error| StageError::io("look into it", &pool.config.path, error))?);
        let took = self.clock.now().steady.saturating_sub(begun);
        let remembered = Remembered { at: begun, took, changes, usage: Arc::clone(&usage) };
        self.lock().walks.insert(name.to_owned(), remembered);
        Ok(usage)
    }

    fn own(&self, step: &Step<'_>, id: i64, owner: u32) -> Result<(), StageError> {
        let rows = step.rows().map_err(|error| self.ledger.failed(error))?;
        match rows.into_iter().find(|row| row.id == id) {
            Some(row) if row.owner != owner && owner != 0 => Err(StageError::refused(
                format!("reservation {id} is another user's"),
                "it is his to release, or root's",
            )),
            _ => Ok(()),
        }
    }
}

/// Two pools in each other would count the same bytes twice, and each promise the other's room.
fn disjoint(pools: &BTreeMap<String, Pool>) -> Result<(), StageError> {
    let real =
        |pool: &Pool| std::fs::canonicalize(&pool.config.path).unwrap_or_else(|_| pool.config.path.clone());
    for (a, one) in pools {
        for (b, other) in pools {
            if a != b && real(one).starts_with(real(other)) {
                return Err(StageError::invalid(
                    format!("pool.{a}: {} lies in pool.{b}", shown(&one.config.path)),
                    "give each pool a directory of its own",
                ));
            }
        }
    }
    Ok(())
}
