//! What is in a pool, who holds it, and what is to be evicted from it. Nothing is removed here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::usage::{self, Usage};
use super::{Balance, Pool, Pools, ledger};
use stage::error::StageError;
use stage::names::PathText;

/// Sets that are named in an answer at most.
const SETS_MAX: usize = 10_000;

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
    /// When it goes unless it is renewed, seconds since 1970.
    pub expires: u64,
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

/// Says why a set's fast copy may not go. None: its slow copy is durable and verified, and no process reads the fast one.
pub type WhyNot<'a> = dyn Fn(&Path) -> Result<Option<String>, StageError> + 'a;

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
    pub fn list(&self) -> Result<Vec<PoolStatus>, StageError> {
        self.pools.iter().map(|(name, pool)| self.status_of(name, pool, false)).collect()
    }

    /// The same for metrics, cheap enough to be asked for all the time: an older walk counts, the longer the longer it took.
    pub fn figures(&self) -> Result<Vec<PoolStatus>, StageError> {
        self.pools.iter().map(|(name, pool)| self.status_of(name, pool, true)).collect()
    }

    fn status_of(&self, name: &str, pool: &Pool, figures: bool) -> Result<PoolStatus, StageError> {
        // A walk takes its time, and no request for room is to wait for it: it is made outside of the ledger's step.
        let live = self.ledger.step(|step| Ok(self.purge(step)))?;
        let balance = self.balance(&live, name, pool, figures)?;
        let config = &pool.config;
        let used = balance.usage.bytes;
        let share = |share: f64| (config.quota as f64 * share) as u64;
        let (high, low) = (share(config.high), share(config.low));
        let (waiting, waiting_bytes) = self.waiting(name);
        let (holders, sets) = (holders(&balance), sets(pool, &balance.usage));
        let reservation = |(row, used): (ledger::Reserved, u64)| ReservationStatus {
            id: row.id,
            owner: row.owner,
            label: row.label,
            bytes: row.bytes,
            used,
            created: row.created,
            expires: row.lease.expires,
        };
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
            holders,
            sets,
            reservations: balance.rows.into_iter().map(reservation).collect(),
        })
    }

    /// How many requests wait for a pool, and for how many bytes.
    fn waiting(&self, name: &str) -> (u64, u64) {
        let shared = self.lock();
        let queue = shared.queues.get(name).into_iter().flatten();
        queue.fold((0, 0), |(count, bytes), waiting| (count + 1, waiting.bytes.saturating_add(bytes)))
    }
}

impl PoolStatus {
    /// What is to go so that `wanted` bytes get free: the oldest sets first, never one with a reservation on it, and only
    /// those of which `why_not` has nothing to say.
    pub fn eviction(&self, wanted: u64, why_not: &WhyNot<'_>) -> Eviction {
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
                why_not(&set.path.0).unwrap_or_else(|error| Some(error.to_string()))
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

    /// What one of its users may see: how much others hold, without the names of their sets. Of very many sets the oldest are
    /// listed.
    #[must_use]
    pub fn seen_by(mut self, user: u32) -> Self {
        if user != 0 {
            for row in self.reservations.iter_mut().filter(|row| row.owner != user) {
                row.label.clear();
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
        self.sets.truncate(SETS_MAX);
        self
    }
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
