//! Pools: named areas of a fast tier, with a quota, watermarks, and room that is reserved before it is written to.
//!
//! A pool is a directory; a user's sets lie in `POOL/UID/NAME`. A program that is to write a set reserves its bytes first,
//! and is given that directory or refused: a checkpoint that does not fit is refused before its first byte, never cut off
//! by a full disk half way.
//!
//! Two invariants, checked in one transaction of the ledger with each grant, against what lies in the pool:
//!
//! 1. used + reserved and not yet used ≤ quota, and the same of each user's share;
//! 2. reserved and not yet used, in all pools of a file system together, ≤ its free space.
//!
//! *Used* is blocks on the disk (`usage`), of any writer, reserved or not; what is used of a reservation is what lies
//! in its directory. A walk is remembered for a few seconds, until a reservation goes. What is written into a reservation
//! after the walk counts as reserved instead of used, which comes to the same sum, and is missing in the free
//! space besides, which errs on the safe side.
//!
//! A reservation goes when it is released or its time is up (`ledger`). What was written stays, and counts as used.
//! Requests of one process are served in the order in which they came. A process works for one user, so that no user
//! waits behind another.
//!
//! Users who share a pool need not trust each other: the ledger (`ledger`) has a file for each, which the kernel keeps the
//! others from, and of each user no more is counted than that user's share. Where the pool's directory is under a project quota
//! of XFS or ext4, the file system itself keeps all users together within it: statvfs(2) then tells the quota's figures, so
//! *free* is what the quota has left, and *used* is at least what the quota counts, closed directories included.
//!
//! `room` grants, `tell` says what is there and which sets are to be evicted. [`crate::full`] asks
//! [`stage::retention`] whether those may go.

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

pub use self::config::{PoolConfig, ledger_of};
pub use self::tell::{Eviction, Holder, PoolStatus, ReservationStatus, SetStatus, WhyNot};

use self::host::{Host, Machine};
use self::lease::Lease;
use self::ledger::{Ledger, Reserved, Step};
use self::usage::Usage;
use crate::qos::{Clock, SystemClock};
use stage::calls;
use stage::error::{StageError, shown};
use stage::names::PathText;

/// How long a walk is remembered for grants.
const REMEMBERED: Duration = Duration::from_secs(5);
/// How long it is good enough for figures: so long,
const FIGURES_REMEMBERED: Duration = Duration::from_secs(15);
/// and so many times as long as the walk took.
const FIGURES_WALK_SHARE: u32 = 20;
/// Interval at which a waiting request checks what other processes have released.
const POLL: Duration = Duration::from_millis(500);

/// A request for room for one set of the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// In which pool.
    pub pool: String,
    /// The set's name.
    pub name: String,
    /// Bytes that will be written.
    pub bytes: u64,
    /// How long to wait for room; none: not at all.
    pub wait: Option<Duration>,
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
    /// When it goes unless it is renewed, seconds since 1970.
    pub expires: u64,
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
    version: Version,
    usage: Arc<Usage>,
}

/// What a walk that is remembered was made at: it holds while no reservation has gone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    /// Of the ledger.
    changes: u64,
    /// Reservations whose time is up and that are still in their users' files.
    expired: Vec<(u32, i64)>,
}

/// The reservations that hold.
struct Live {
    rows: Vec<Reserved>,
    version: Version,
}

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Shared {
    walks: BTreeMap<String, Remembered>,
    /// Requests that wait for each pool, the oldest first.
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

    fn open_on(
        config: &Path,
        ledger: &Path,
        clock: Arc<dyn Clock>,
        host: Box<dyn Host>,
    ) -> Result<Self, StageError> {
        let (text, describer) =
            config::read_file(config).map_err(|error| StageError::io("read it", config, error))?;
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
        let ledger = Ledger::open(ledger, describer)?;
        Ok(Self { pools, ledger, shared: Mutex::default(), room: Condvar::new(), clock, host })
    }

    /// Gives a reservation back. What was written stays, and counts as used. One that is gone already is not an error.
    ///
    /// # Errors
    /// It is another user's.
    pub fn release(&self, id: i64, owner: u32) -> Result<(), StageError> {
        self.ledger.step(|step| {
            check_owner(step, id, owner)?;
            step.delete(id, owner);
            Ok(())
        })?;
        self.room_was_made();
        Ok(())
    }

    /// Extends a reservation to a day from now on. False if it is gone.
    ///
    /// # Errors
    /// It is another user's.
    pub fn renew(&self, id: i64, owner: u32) -> Result<bool, StageError> {
        let lease = self.lease();
        self.ledger.step(|step| {
            self.purge(step);
            check_owner(step, id, owner)?;
            Ok(step.note(id, owner, &lease))
        })
    }

    /// Room was given back: waiting requests are tried at once.
    fn room_was_made(&self) {
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
    fn promised(&self, live: &Live, pool: &Pool) -> Result<u64, StageError> {
        let beside = self.pools.iter().filter(|(_, other)| other.device == pool.device);
        beside.map(|(name, other)| Ok(self.balance(live, name, other, false)?.reserved)).sum()
    }

    /// A lease that begins now.
    fn lease(&self) -> Lease {
        Lease::begin(self.clock.now().wall.as_secs(), self.host.uptime().as_ref())
    }

    /// The reservations that hold. Those whose time is up are removed where this process may write them, and what a set
    /// clock has changed is noted.
    fn purge(&self, step: &mut Step<'_>) -> Live {
        let (wall, uptime) = (self.clock.now().wall.as_secs(), self.host.uptime());
        let (mut rows, mut expired) = (Vec::new(), Vec::new());
        let mut claimed: BTreeMap<(String, u32), u64> = BTreeMap::new();
        for mut row in step.rows() {
            let Some(pool) = self.pools.get(&row.pool) else { continue };
            let Some(lease) = row.lease.now(wall, uptime.as_ref()) else {
                step.delete(row.id, row.owner);
                expired.push((row.owner, row.id));
                continue;
            };
            if lease != row.lease {
                step.note(row.id, row.owner, &lease);
                row.lease = lease;
            }
            // A user's file may say anything; it cannot claim more than the user may hold.
            let claimed = claimed.entry((row.pool.clone(), row.owner)).or_default();
            let sum = claimed.saturating_add(row.bytes);
            if sum <= pool.config.share() {
                *claimed = sum;
                rows.push(row);
            }
        }
        Live { rows, version: Version { changes: step.changes(), expired } }
    }

    /// What a pool comes to; `figures`: an older walk will do.
    fn balance(&self, live: &Live, name: &str, pool: &Pool, figures: bool) -> Result<Balance, StageError> {
        let usage = self.usage(name, pool, &live.version, figures)?;
        let rows = live.rows.iter().filter(|row| row.pool == name);
        let rows: Vec<(Reserved, u64)> = rows.map(|row| (row.clone(), usage.of(&row.directory()))).collect();
        let reserved = rows.iter().map(|(row, used)| row.bytes.saturating_sub(*used)).sum();
        Ok(Balance { usage, rows, reserved })
    }

    fn usage(
        &self,
        name: &str,
        pool: &Pool,
        version: &Version,
        figures: bool,
    ) -> Result<Arc<Usage>, StageError> {
        let now = self.clock.now().steady;
        if let Some(known) = self.lock().walks.get(name) {
            let is_recent = if figures {
                now < known.at + (known.took * FIGURES_WALK_SHARE).max(FIGURES_REMEMBERED)
            } else {
                known.version == *version && now < known.at + REMEMBERED
            };
            if is_recent {
                return Ok(Arc::clone(&known.usage));
            }
        }
        self.walk(name, pool, version)
    }

    fn walk(&self, name: &str, pool: &Pool, version: &Version) -> Result<Arc<Usage>, StageError> {
        let begun = self.clock.now().steady;
        let failed = |error| StageError::io("look into it", &pool.config.path, error);
        let mut walked = usage::walk(pool.root.as_fd()).map_err(failed)?;
        // Under a project quota the file system knows what is in closed directories as well.
        if let Some(counted) = self.host.quota_used(&pool.config.path).map_err(failed)? {
            walked.bytes = walked.bytes.max(counted);
        }
        let usage = Arc::new(walked);
        let took = self.clock.now().steady.saturating_sub(begun);
        let remembered = Remembered { at: begun, took, version: version.clone(), usage: Arc::clone(&usage) };
        self.lock().walks.insert(name.to_owned(), remembered);
        Ok(usage)
    }
}

fn check_owner(step: &Step<'_>, id: i64, owner: u32) -> Result<(), StageError> {
    // Numbers are each user's own. A number that this user had before is not another user's.
    if step.had(id, owner) || step.rows().iter().all(|row| row.id != id) {
        return Ok(());
    }
    Err(StageError::refused(format!("reservation {id} is another user's"), "it is that user's to release"))
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
