//! What is in a pool, who holds it, and what is to go from it.
//!
//! Above the high watermark, or where something larger is to fit, the oldest sets are named until the low watermark is
//! reached. Nothing is removed here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::usage::{self, Usage};
use super::{Balance, Live, Pool, PoolConfig, Pools, Version, ledger};
use stage::error::StageError;
use stage::names::PathText;

/// What was seen of a pool is good enough for figures for so long,
const OF_LATE: Duration = Duration::from_secs(15);
/// and for so many times as long as it took to look.
const LOOK_SHARE: u32 = 20;
/// Sets that are named in an answer at most.
const TOLD: usize = 10_000;

/// A set in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReservationStatus {
    /// Its number.
    pub id: i64,
    /// Whose.
    pub owner: u32,
    /// The set's name; empty where it is another user's and the asker need not know.
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

/// What one user holds in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Holder {
    /// Whose.
    pub owner: u32,
    /// Bytes on the disk.
    pub used: u64,
    /// Bytes reserved and not yet used.
    pub reserved: u64,
}

/// A pool in figures, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFigures {
    /// Its name.
    pub name: String,
    /// Bytes that it may hold.
    pub quota: u64,
    /// Bytes on the disk, as of a look that may be a minute old.
    pub used: u64,
    /// Bytes reserved and not yet used.
    pub reserved: u64,
    /// Bytes free in its file system.
    pub free: u64,
    /// Bytes above which sets are to be evicted.
    pub high: u64,
    /// Bytes down to which they are.
    pub low: u64,
    /// Reservations.
    pub reservations: u64,
    /// Requests that wait for room.
    pub waiting: u64,
    /// Bytes that they ask for.
    pub waiting_bytes: u64,
}

/// A pool and what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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
    /// Requests that wait for room, in the process that answers.
    #[serde(default)]
    pub waiting: u64,
    /// Bytes that they ask for.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Who holds how much, the most first.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// Sets, the oldest first. Of other users' sets, where the asker need not know their names, one for each user.
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

impl Pools {
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
        let balance = self.ledger.step(|step| self.balance(step, name, pool))?;
        let config = &pool.config;
        let used = balance.usage.bytes;
        let (high, low) = watermarks(config);
        let (waiting, waiting_bytes) = self.waiting(name);
        Ok(PoolStatus {
            name: name.to_owned(),
            path: config.path.as_path().into(),
            quota: config.quota,
            used,
            reserved: balance.reserved,
            free: self.free(pool)?,
            high,
            low,
            over: used + balance.reserved > high,
            reserve_per_user: config.reserve_per_user,
            unseen: balance.usage.unseen,
            waiting,
            waiting_bytes,
            holders: holders(&balance),
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
                    expires: row.lease.map(|lease| lease.expires),
                    pid: row.process.map(|process| process.pid),
                })
                .collect(),
        })
    }

    /// All pools in figures. Cheap enough to be asked for again and again: what was seen of a pool counts for a while,
    /// the longer the longer it takes to look, and nobody who reserves waits for it.
    ///
    /// # Errors
    /// The kernel's and the ledger's.
    pub fn figures(&self) -> Result<Vec<PoolFigures>, StageError> {
        self.pools
            .iter()
            .map(|(name, pool)| {
                let Live { rows, version } = self.ledger.step(|step| Ok(self.purge(step)))?;
                let usage = self.usage_of_late(name, pool, &version)?;
                let rows = rows.iter().filter(|row| row.pool == *name);
                let reserved = rows.clone().map(|row| row.bytes.saturating_sub(usage.of(&row.directory())));
                let (high, low) = watermarks(&pool.config);
                let (waiting, waiting_bytes) = self.waiting(name);
                Ok(PoolFigures {
                    name: name.clone(),
                    quota: pool.config.quota,
                    used: usage.bytes,
                    reserved: reserved.sum(),
                    free: self.free(pool)?,
                    high,
                    low,
                    reservations: rows.count() as u64,
                    waiting,
                    waiting_bytes,
                })
            })
            .collect()
    }

    fn usage_of_late(&self, name: &str, pool: &Pool, version: &Version) -> Result<Arc<Usage>, StageError> {
        let now = self.clock.now().steady;
        if let Some(known) = self.lock().walks.get(name)
            && now < known.at + (known.took * LOOK_SHARE).max(OF_LATE)
        {
            return Ok(Arc::clone(&known.usage));
        }
        self.walk(name, pool, version)
    }

    /// How many wait for a pool, and for how much.
    fn waiting(&self, name: &str) -> (u64, u64) {
        let shared = self.lock();
        let queue = shared.queues.get(name).into_iter().flatten();
        queue.fold((0, 0), |(count, bytes), waiting| (count + 1, waiting.bytes.saturating_add(bytes)))
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
        Ok(status.eviction(wanted, evictable))
    }
}

impl PoolStatus {
    /// What is to go so that `wanted` bytes get free: the oldest first, never what is being written, and only what
    /// `evictable` lets go.
    pub fn eviction(&self, wanted: u64, evictable: &dyn Evictable) -> Eviction {
        let place = |row: &ReservationStatus| self.path.0.join(ledger::directory(row.owner, &row.label));
        let written: BTreeSet<PathBuf> = self.reservations.iter().map(place).collect();
        let mut eviction = Eviction { wanted, ..Eviction::default() };
        for set in &self.sets {
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
                    eviction.go.push(set.clone());
                }
                Some(why) => eviction.stay.push((set.clone(), why)),
            }
        }
        if eviction.found >= wanted {
            eviction.stay.clear();
        }
        eviction
    }

    /// As one of its users is told: how much others hold, and not how they call it. An answer has an end: of very many
    /// sets the oldest are named.
    #[must_use]
    pub fn seen_by(mut self, user: u32) -> Self {
        if user != 0 {
            for row in self.reservations.iter_mut().filter(|row| row.owner != user) {
                row.label.clear();
                row.pid = None;
            }
            let mut theirs: BTreeMap<u32, SetStatus> = BTreeMap::new();
            self.sets.retain(|set| {
                if set.owner == user {
                    return true;
                }
                let of_user = theirs.entry(set.owner).or_insert_with(|| SetStatus {
                    path: PathText(self.path.0.join(set.owner.to_string())),
                    bytes: 0,
                    ..set.clone()
                });
                of_user.bytes += set.bytes;
                of_user.modified = of_user.modified.max(set.modified);
                false
            });
            self.sets.extend(theirs.into_values());
        }
        self.sets.truncate(TOLD);
        self
    }
}

/// Bytes at which sets are to be evicted, and down to which.
fn watermarks(config: &PoolConfig) -> (u64, u64) {
    let share = |share: f64| (config.quota as f64 * share) as u64;
    (share(config.high), share(config.low))
}

/// The most first.
fn holders(balance: &Balance) -> Vec<Holder> {
    let mut holders: BTreeMap<u32, Holder> = BTreeMap::new();
    let of = |owner: u32| Holder { owner, used: 0, reserved: 0 };
    for (owner, used) in &balance.usage.by_owner {
        holders.entry(*owner).or_insert_with(|| of(*owner)).used += used;
    }
    for (row, used) in &balance.rows {
        let holder = holders.entry(row.owner).or_insert_with(|| of(row.owner));
        holder.reserved += row.bytes.saturating_sub(*used);
    }
    let mut holders: Vec<Holder> =
        holders.into_values().filter(|holder| holder.used + holder.reserved > 0).collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.used + holder.reserved));
    holders
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
