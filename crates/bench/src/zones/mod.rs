//! Where requests go on a zoned drive: fio's `zonemode=zbd`.
//!
//! A sequential zone takes writes at its write pointer only. So the order of blocks says which zone a write is for, and the
//! zone where in it:
//!
//! 1. At most one write is in flight in a zone, at its pointer. The pointer moves when the write has completed.
//! 2. No more zones are open than drive and workload allow, over all jobs of the process. A write for a zone that cannot be
//!    opened goes to one that is open.
//! 3. A zone without room for a block is reset when the next write comes to it. A zone is reset, or trimmed, only while no
//!    request of any job is in flight in it.
//! 4. Reads stay below the pointers, unless `read_beyond_wp` says otherwise; where a zone holds nothing, they go to the
//!    nearest that does.
//! 5. A job that verifies resets the zones of its region before the run, and none after that: it ends when they are full.
//!    No other job resets a zone that such a job has written.
//!
//! **Places.** A zone that is written has one of the places that `max_open_zones` and the drive allow, from its first write
//! until it is full, reset or finished, or until the job that took the place ends. What stays partly written then has no place:
//! a drive closes such a zone by itself where it has a limit of open ones alone. Where it has one of partly written ones
//! (*active*), these count against that, whoever left them; a job that cannot go on without another finishes one that this
//! process has left, never one that it found. Who finds no place stands in a line, and the first of it has the next one.
//!
//! **Waits.** Each has somebody who comes back, or an end:
//!
//! | waits | for | that comes, because |
//! |---|---|---|
//! | write, trim | a request in flight in a zone of its region, or a claim to one | the drive answers, or the run fails |
//! | claim (a zone that is to be reset, where no read begins any more) | the reads that are in flight there | the same |
//! | write | a place | who has one has room to write, or gives it up: at its end, or when its flow holds it back; what finishes or resets a zone to have one takes it, or leaves it to others, at the end of that |
//! | write | data that are kept to be verified | jobs that verify wait for none that are kept, so they end; who waits for them has no place |
//! | read, trim | data | there is a job that writes in its zones, and which waits for no reader |
//!
//! None of those is held back by its flow for one that waits: a part of a flow whose request waits is left out of the
//! proportion. A job that has nobody to wait for ends; if it has neither moved anything nor waited, with an error, else
//! early, which its record says (`ended_early`). So does one that would wait while all others wait, too (`Walk::next`).
//!
//! `table` knows the zones of a device; all jobs of a process share one. `state` is what changes of them. A drive that is
//! open for writing is claimed (`storage::device`), so that no second process moves its pointers meanwhile. Where the target
//! is no zoned drive, the zones are the table's alone: they begin empty, keep their state as long as the target is open, and
//! nothing is asked of the device but reads, writes and, for a trim, discards.
//!
//! `walk` takes the requests of a thread through them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use measure::Workload;
use measure::dealing::{Region, TooSmall, regions};
use storage::device::{Device, leaves};

mod error;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod walk;
mod zone;

pub use error::ZoneError;
pub(crate) use table::{Announcement, ZoneTable};
pub(crate) use walk::{Step, Walk};

/// The zones of a target, shared by the jobs that run on it.
#[derive(Debug, Clone, Default)]
pub struct Zones(Arc<Mutex<HashMap<String, Arc<ZoneTable>>>>);

impl Zones {
    /// The zones of a device as they are now, for a job that is about to run.
    pub(crate) fn of(
        &self,
        device: &Arc<dyn Device>,
        workload: &Workload,
    ) -> Result<Arc<ZoneTable>, ZoneError> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = match tables.get(device.spec()) {
            // While a job uses it, what it says is true.
            Some(table) if Arc::strong_count(table) > 1 && !table.is_lost() => Arc::clone(table),
            Some(table) if table.is_kept_account_of(device, workload) && !table.is_lost() => {
                table.forget_jobs();
                Arc::clone(table)
            }
            _ => {
                let table = Arc::new(ZoneTable::of(device, workload)?);
                tables.insert(device.spec().to_owned(), Arc::clone(&table));
                table
            }
        };
        table.admit(device, workload)?;
        Ok(table)
    }

    /// What can be read of a range of a device, as far as data are known to lie there.
    pub(crate) fn readable(
        &self,
        device: &Arc<dyn Device>,
        workload: &Workload,
        range: &Range<u64>,
    ) -> Result<Vec<Range<u64>>, ZoneError> {
        Ok(self.of(device, workload)?.readable(range))
    }

    /// The contents of a device were given back past its zones: such as are kept account of hold nothing any more.
    pub(crate) fn forget_data(&self) {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|_, table| table.is_real() || Arc::strong_count(table) > 1);
    }
}

/// The regions of a workload's jobs on a device, each of whole zones.
pub(crate) fn regions_of(table: &ZoneTable, workload: &Workload, size: u64) -> Result<Vec<Region>, TooSmall> {
    let zone = table.zone_bytes();
    // A zone takes the place of a block when the device is divided.
    let in_zones = Workload { bs: zone, bssplit: Vec::new(), write_bssplit: Vec::new(), ..workload.clone() };
    let whole = |region: Region| {
        let start = region.start.checked_next_multiple_of(zone).unwrap_or(u64::MAX);
        let end = (region.start + region.length) / zone * zone;
        match end.checked_sub(start) {
            Some(length) if length > 0 => Ok(Region { start, length, ..region }),
            _ => Err(TooSmall { needed: start.saturating_add(zone) }),
        }
    };
    regions(&in_zones, size)?.into_iter().map(whole).collect()
}

/// The drive below a device whose zones take writes at their write pointers only, if there is one.
fn host_managed(device: &Arc<dyn Device>) -> Option<&Arc<dyn Device>> {
    leaves(device).iter().find(|leaf| leaf.zones().is_some_and(|drive| drive.facts().is_host_managed))
}

/// Refuses to write to zones that take writes at their pointers only, where nobody said that they are such.
pub(crate) fn check_is_asked(device: &Arc<dyn Device>, workload: &Workload) -> Result<(), ZoneError> {
    match host_managed(device).filter(|_| workload.rw.writes() && !workload.is_zbd()) {
        Some(leaf) => Err(ZoneError::NotAsked { device: leaf.spec().to_owned() }),
        None => Ok(()),
    }
}

/// Refuses to fill such zones from one end of a region to the other.
pub(crate) fn check_can_be_filled(device: &Arc<dyn Device>) -> Result<(), ZoneError> {
    match host_managed(device) {
        Some(leaf) => Err(ZoneError::Fill { device: leaf.spec().to_owned() }),
        None => Ok(()),
    }
}
