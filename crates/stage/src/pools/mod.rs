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
//! between processes, as it comes.
//!
//! Above the high watermark a pool names the sets that are to go, the oldest first, until the low one is reached:
//! never one that somebody writes to, never one of which [`Evictable`] does not say that its slow copy is durable and
//! verified. Who calls removes them, by `retention`, which checks that again.

mod config;
mod host;
mod ledger;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

pub use self::config::PoolConfig;
pub use self::ledger::Process;

use self::host::{Host, Machine};
use self::ledger::{Ledger, Reserved, Step};
use self::usage::Usage;
use crate::calls;
use crate::error::{StageError, shown};
use crate::names::PathText;
use crate::pace::Stop;
use crate::qos::{Clock, SystemClock};

/// How long a walk is remembered.
const REMEMBERED: Duration = Duration::from_secs(5);
/// How often who waits looks at what other processes have released.
const LOOK: Duration = Duration::from_millis(500);
/// A reservation that is bound to no process lasts so long, unless it is renewed.
const LEASE: Duration = Duration::from_secs(24 * 3600);

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
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

/// A set in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct SetStatus {
    /// Where.
    pub path: PathText,
    /// Whose.
    pub owner: u32,
    /// Bytes on the disk.
    pub bytes: u64,
    /// When its directory last changed, seconds since 1970.
    pub modified: i64,
}

/// A reservation as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct ReservationStatus {
    /// Its number.
    pub id: i64,
    /// Whose.
    pub owner: u32,
    /// The set's name.
    pub label: String,
    /// Bytes reserved.
    pub bytes: u64,
    /// Bytes of them that are written.
    pub used: u64,
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// When it goes, seconds since 1970; none: with its process.
    pub expires: Option<u64>,
    /// The process that it goes with.
    pub pid: Option<u32>,
}

/// A pool and what is in it.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: PathText,
    /// Bytes that it may hold.
    pub quota: u64,
    /// Bytes on the disk.
    pub used: u64,
    /// Bytes reserved and not yet used.
    pub reserved: u64,
    /// Bytes free in its file system.
    pub free: u64,
    /// Bytes above which sets are to be evicted.
    pub high: u64,
    /// Bytes down to which they are.
    pub low: u64,
    /// Used and reserved together are above `high`.
    pub over: bool,
    /// What one user may hold.
    pub reserve_per_user: Option<u64>,
    /// Directories that could not be looked into: what is in them is not in `used`.
    pub unseen: u64,
    /// Sets, the oldest first.
    pub sets: Vec<SetStatus>,
    /// Reservations, the oldest first.
    pub reservations: Vec<ReservationStatus>,
}

/// Who says whether a set's fast copy may go.
pub trait Evictable {
    /// Why it may not; none: its slow copy is durable and verified, and nobody uses it.
    ///
    /// # Errors
    /// It cannot be found out; the set stays.
    fn why_not(&self, set: &Path) -> Result<Option<String>, StageError>;
}

impl<F: Fn(&Path) -> Result<Option<String>, StageError>> Evictable for F {
    fn why_not(&self, set: &Path) -> Result<Option<String>, StageError> {
        self(set)
    }
}

/// What is to go from a pool, and what holds the rest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct Eviction {
    /// Bytes that ought to go.
    pub wanted: u64,
    /// Bytes that `go` comes to.
    pub found: u64,
    /// In this order.
    pub go: Vec<SetStatus>,
    /// Where `found` is less than `wanted`: what holds the room, and why it stays.
    pub stay: Vec<(SetStatus, String)>,
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
    changes: i64,
    usage: Arc<Usage>,
}

#[derive(Debug, Default)]
struct Shared {
    walks: BTreeMap<String, Remembered>,
    /// Who waits for each pool, the first first.
    queues: BTreeMap<String, VecDeque<u64>>,
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

/// Why there is no room at the moment.
struct NoRoom(String);

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

    /// All pools and what is in them.
    ///
    /// # Errors
    /// The kernel's and the ledger's.
    pub fn list(&self) -> Result<Vec<PoolStatus>, StageError> {
        self.pools.keys().map(|name| self.status(name)).collect()
    }

    /// One pool and what is in it.
    ///
    /// # Errors
    /// There is no such pool; the kernel's and the ledger's.
    pub fn status(&self, name: &str) -> Result<PoolStatus, StageError> {
        let pool = self.pool(name)?;
        let balance = self.ledger.step("read the reservations", |step| self.balance(step, name, pool))?;
        let config = &pool.config;
        let used = balance.usage.bytes;
        let share = |share: f64| (config.quota as f64 * share) as u64;
        Ok(PoolStatus {
            name: name.to_owned(),
            path: config.path.as_path().into(),
            quota: config.quota,
            used,
            reserved: balance.reserved,
            free: self.free(pool)?,
            high: share(config.high),
            low: share(config.low),
            over: used + balance.reserved > share(config.high),
            reserve_per_user: config.reserve_per_user,
            unseen: balance.usage.unseen,
            sets: sets(pool, &balance.usage),
            reservations: balance
                .rows
                .into_iter()
                .map(|(row, used)| ReservationStatus {
                    id: row.id,
                    owner: row.owner,
                    label: row.label,
                    bytes: row.bytes,
                    used,
                    created: row.created,
                    expires: row.expires.filter(|_| row.process.is_none()),
                    pid: row.process.map(|process| process.pid),
                })
                .collect(),
        })
    }

    /// Reserves room and makes the directory to write to. Where there is none, waits for it as long as `wait` says, or
    /// not at all; what can never fit is refused at once.
    ///
    /// # Errors
    /// There is no such pool, the user has no place in it, the name is taken or no name; [`StageError::Refused`] where
    /// there is no room (in time), which says what holds it; [`StageError::Stopped`]; the kernel's and the ledger's.
    pub fn reserve(
        &self,
        request: &Request,
        wait: Option<Duration>,
        stop: &Stop,
    ) -> Result<Reservation, StageError> {
        let pool = self.pool(&request.pool)?;
        self.check(pool, request)?;
        let until = wait.map(|wait| self.clock.now().steady + wait);
        let mut shared = self.lock();
        shared.last_ticket += 1;
        let ticket = shared.last_ticket;
        shared.queues.entry(request.pool.clone()).or_default().push_back(ticket);
        let granted = loop {
            let before = self.lock_position(&shared, &request.pool, ticket);
            drop(shared);
            let tried = match before {
                0 => self.try_reserve(pool, request),
                1 => Ok(Err(NoRoom("another request waits for room".to_owned()))),
                n => Ok(Err(NoRoom(format!("{n} other requests wait for room")))),
            };
            shared = self.lock();
            let no_room = match tried {
                Ok(Err(no_room)) => no_room,
                Ok(Ok(row)) => break Ok(row),
                Err(error) => break Err(error),
            };
            let left = until.map(|until| until.saturating_sub(self.clock.now().steady));
            match left {
                _ if stop.asked() => {
                    break Err(StageError::Stopped { what: "the wait for room".to_owned() });
                }
                None | Some(Duration::ZERO) => break Err(refused(request, &no_room, wait.is_some())),
                Some(left) => {
                    let patience = self.clock.patience(left.min(LOOK));
                    shared =
                        self.room.wait_timeout(shared, patience).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        };
        if let Some(queue) = shared.queues.get_mut(&request.pool) {
            queue.retain(|waiting| *waiting != ticket);
        }
        drop(shared);
        // Whoever is next may have room, now that this one has what it wants or has gone.
        self.room.notify_all();
        self.make(pool, granted?)
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
        let expires = (self.clock.now().wall + LEASE).as_secs();
        self.ledger.step("renew a reservation", |step| {
            self.purge(step)?;
            self.own(step, id, owner)?;
            step.renew(id, expires).map_err(|error| self.ledger.failed(error))
        })
    }

    /// To be called when something was removed from a pool: who waits for room looks again at once.
    pub fn room_was_made(&self) {
        self.lock().walks.clear();
        self.room.notify_all();
    }

    /// What is to go from a pool that is above its high watermark, or so that `more` bytes fit: the oldest first, down
    /// to the low watermark, and only what `evictable` lets go.
    ///
    /// # Errors
    /// There is no such pool; the kernel's and the ledger's.
    pub fn evict_candidates(
        &self,
        name: &str,
        more: u64,
        evictable: &dyn Evictable,
    ) -> Result<Eviction, StageError> {
        let status = self.status(name)?;
        let held = status.used + status.reserved;
        let room_for_more = status.quota.saturating_sub(more);
        let over_quota = if held > status.high || held > room_for_more {
            held - held.min(status.low.min(room_for_more))
        } else {
            0
        };
        // What others have reserved on the file system is promised as well.
        let promised = self.promised(self.pool(name)?)?;
        let short = (promised + more).saturating_sub(status.free);
        let wanted = over_quota.max(short);
        let written: BTreeSet<PathBuf> = status
            .reservations
            .iter()
            .map(|row| status.path.0.join(ledger::directory(row.owner, &row.label)))
            .collect();
        let mut eviction = Eviction { wanted, ..Eviction::default() };
        for set in status.sets {
            if eviction.found >= wanted {
                break;
            }
            let why = if written.contains(&set.path.0) {
                Some("it is being written: a reservation is on it".to_owned())
            } else {
                evictable.why_not(&set.path.0).unwrap_or_else(|error| Some(error.to_string()))
            };
            match why {
                None => {
                    eviction.found += set.bytes;
                    eviction.go.push(set);
                }
                Some(why) => eviction.stay.push((set, why)),
            }
        }
        if eviction.found >= wanted {
            eviction.stay.clear();
        }
        Ok(eviction)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_position(&self, shared: &Shared, pool: &str, ticket: u64) -> usize {
        let queue = shared.queues.get(pool);
        queue.and_then(|queue| queue.iter().position(|waiting| *waiting == ticket)).unwrap_or(0)
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

    /// What no waiting would change.
    fn check(&self, pool: &Pool, request: &Request) -> Result<(), StageError> {
        let Request { pool: name, owner, label, bytes, .. } = request;
        let config = &pool.config;
        let plain = |byte: u8| byte != b'/' && !byte.is_ascii_control();
        if label.is_empty() || label.len() > 200 || label.starts_with('.') || !label.bytes().all(plain) {
            return Err(StageError::invalid(
                format!("{label:?} is no name for a set"),
                "up to 200 bytes, not beginning with a dot, without / and control characters",
            ));
        }
        if config.users.as_ref().is_some_and(|users| !users.contains(owner)) {
            return Err(StageError::refused(
                format!("user {owner} has no place in pool {name}"),
                "it is for those whom `users` in its configuration names",
            ));
        }
        let share = config.reserve_per_user.unwrap_or(config.quota);
        if *bytes > share {
            return Err(StageError::refused(
                format!(
                    "{} will never fit into pool {name}: a user may hold {} there",
                    units::bytes(*bytes),
                    units::bytes(share)
                ),
                "write it to the slow tier, or have the pool's quota raised",
            ));
        }
        Ok(())
    }

    /// One attempt: a row, or why there is no room.
    fn try_reserve(&self, pool: &Pool, request: &Request) -> Result<Result<Reserved, NoRoom>, StageError> {
        self.ledger.step("reserve", |step| {
            let balance = self.balance(step, &request.pool, pool)?;
            let directory = ledger::directory(request.owner, &request.label);
            let taken = balance.rows.iter().any(|(row, _)| row.directory() == directory);
            if taken || balance.usage.sets.contains_key(&directory) {
                return Err(StageError::refused(
                    format!("{} is there already", shown(&pool.config.path.join(directory))),
                    "choose another name, or evict it",
                ));
            }
            if let Some(no_room) = self.lacking(step, pool, request, &balance)? {
                return Ok(Err(no_room));
            }
            let now = self.clock.now().wall;
            let mut row = Reserved {
                id: 0,
                pool: request.pool.clone(),
                owner: request.owner,
                label: request.label.clone(),
                bytes: request.bytes,
                created: now.as_secs(),
                expires: request.process.is_none().then(|| (now + LEASE).as_secs()),
                process: request.process.clone(),
            };
            row.id = step.insert(&row).map_err(|error| self.ledger.failed(error))?;
            Ok(Ok(row))
        })
    }

    /// Which of the bounds there is no room within.
    fn lacking(
        &self,
        step: &Step<'_>,
        pool: &Pool,
        request: &Request,
        balance: &Balance,
    ) -> Result<Option<NoRoom>, StageError> {
        let (config, bytes) = (&pool.config, request.bytes);
        let no_room = |what: String| Ok(Some(NoRoom(what)));
        let figures = |used: u64, reserved: u64, most: u64| {
            let (used, reserved, most) = (units::bytes(used), units::bytes(reserved), units::bytes(most));
            format!("{used} used and {reserved} reserved of {most}")
        };
        let (used, reserved) = (balance.usage.bytes, balance.reserved);
        if used.saturating_add(reserved).saturating_add(bytes) > config.quota {
            return no_room(figures(used, reserved, config.quota));
        }
        if let Some(share) = config.reserve_per_user {
            let used = balance.usage.by_owner.get(&request.owner).copied().unwrap_or(0);
            let own = balance.rows.iter().filter(|(row, _)| row.owner == request.owner);
            let reserved: u64 = own.map(|(row, used)| row.bytes.saturating_sub(*used)).sum();
            if used.saturating_add(reserved).saturating_add(bytes) > share {
                return no_room(format!("user {} has {}", request.owner, figures(used, reserved, share)));
            }
        }
        // Last, so that what is written meanwhile is missing in it.
        let promised = self.promised_in(step, pool)?;
        let free = self.free(pool)?;
        if promised.saturating_add(bytes) > free {
            let (free, promised) = (units::bytes(free), units::bytes(promised));
            return no_room(format!("the file system has {free} free, of which {promised} are reserved"));
        }
        Ok(None)
    }

    /// Reserved and not yet used, in all pools of a pool's file system.
    fn promised_in(&self, step: &Step<'_>, pool: &Pool) -> Result<u64, StageError> {
        let beside = self.pools.iter().filter(|(_, other)| other.device == pool.device);
        beside.map(|(name, other)| Ok(self.balance(step, name, other)?.reserved)).sum()
    }

    fn promised(&self, pool: &Pool) -> Result<u64, StageError> {
        self.ledger.step("read the reservations", |step| self.promised_in(step, pool))
    }

    /// Drops the reservations whose holders are gone.
    fn purge(&self, step: &Step<'_>) -> Result<Vec<Reserved>, StageError> {
        let failed = |error| self.ledger.failed(error);
        let now = self.clock.now().wall.as_secs();
        let mut rows = step.rows().map_err(failed)?;
        for row in &rows {
            if self.is_over(row, now) {
                step.delete(row.id).map_err(failed)?;
            }
        }
        rows.retain(|row| !self.is_over(row, now));
        Ok(rows)
    }

    fn is_over(&self, row: &Reserved, now: u64) -> bool {
        match &row.process {
            Some(process) => !self.host.lives(process),
            None => row.expires.is_some_and(|expires| expires <= now),
        }
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
        let walked = usage::walk(pool.root.as_fd());
        let usage =
            Arc::new(walked.map_err(|error| StageError::io("look into it", &pool.config.path, error))?);
        let remembered = Remembered { at: now, changes, usage: Arc::clone(&usage) };
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

    /// Makes the directory of a reservation; gives the reservation back if it cannot.
    fn make(&self, pool: &Pool, row: Reserved) -> Result<Reservation, StageError> {
        let directory = pool.config.path.join(row.directory());
        if let Err(error) = make_directory(pool, row.owner, &row.label) {
            self.release(row.id, row.owner)?;
            return Err(match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::EXIST) => StageError::refused(
                    format!("{} is there already", shown(&directory)),
                    "choose another name, or evict it",
                ),
                _ => StageError::io("make the directory of a reservation", &directory, error),
            });
        }
        Ok(Reservation { id: row.id, directory: PathText(directory), bytes: row.bytes, expires: row.expires })
    }
}

/// A user's directory may be there already, a set's not. Both are the user's; nobody else looks into them.
fn make_directory(pool: &Pool, owner: u32, label: &str) -> std::io::Result<()> {
    let (user, label) = (owner.to_string(), OsStr::new(label));
    let user = OsStr::new(&user);
    let foreign = rustix::process::geteuid().is_root() && owner != 0;
    let root = pool.root.as_fd();
    let made = match calls::make_directory(root, user, Mode::RWXU) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let of_user = calls::open_at(root, user, flags, Mode::empty())?;
    let stat = calls::stat(of_user.as_fd())?;
    if made && foreign {
        calls::set_owner(of_user.as_fd(), owner, stat.stx_gid)?;
    } else if !made && foreign && stat.stx_uid != owner && stat.stx_uid != 0 {
        // Somebody else made a directory of this name in a pool that others may write to.
        return Err(Errno::PERM.into());
    }
    if made {
        calls::sync(root)?;
    }
    calls::make_directory(of_user.as_fd(), label, Mode::RWXU)?;
    if foreign {
        let set = calls::open_at(of_user.as_fd(), label, flags, Mode::empty())?;
        calls::set_owner(set.as_fd(), owner, stat.stx_gid)?;
    }
    calls::sync(of_user.as_fd())
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

/// The oldest first.
fn sets(pool: &Pool, usage: &Usage) -> Vec<SetStatus> {
    let mut sets: Vec<_> = usage.sets.iter().collect();
    sets.sort_by_key(|(path, set)| (set.modified_ns, path.as_path()));
    let status = |(path, set): (&PathBuf, &usage::SetUse)| SetStatus {
        path: PathText(pool.config.path.join(path)),
        owner: set.owner,
        bytes: set.bytes,
        modified: i64::try_from(set.modified_ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX),
    };
    sets.into_iter().map(status).collect()
}

fn refused(request: &Request, NoRoom(why): &NoRoom, waited: bool) -> StageError {
    let waited = if waited { " (it was waited for)" } else { "" };
    StageError::refused(
        format!("no room for {} in pool {}: {why}{waited}", units::bytes(request.bytes), request.pool),
        "wait for it, or evict what is durable: stage pools, stage evict",
    )
}
