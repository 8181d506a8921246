//! What is in a pool, who holds it, and what is to go from it.
//!
//! Above the high watermark, or where something larger is to fit, the oldest sets are named until the low watermark is
//! reached. Nothing is removed here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::usage::{self, Usage};
use super::{Pool, Pools, ledger};
use crate::error::StageError;
use crate::names::PathText;

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
