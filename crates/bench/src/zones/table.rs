//! The zones of a device, shared by all jobs that use it.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use measure::Workload;
use storage::device::{Device, Zone, ZoneCondition, ZoneKind, Zoned, all_zones, leaves};

use super::ZoneError;
use super::state::State;
use super::zone::Access;

/// How long a thread sleeps at most before it looks whether its run is over.
const LOOK: Duration = Duration::from_millis(20);

/// The most zones that are kept account of: some tens of megabytes. Drives have fewer.
const MOST_MADE_UP: u64 = 1 << 18;

/// See the module's argument.
#[derive(Debug)]
pub(crate) struct ZoneTable {
    zone_bytes: u64,
    /// How much can be written of every zone but a shorter last one.
    capacity: u64,
    /// Whether the zones are those of a drive.
    is_real: bool,
    state: Mutex<State>,
    changed: Condvar,
}

/// That a thread is going to write. What reads or trims its zones waits for it, until it has begun or never will.
#[derive(Debug)]
pub(crate) struct Announcement {
    table: Arc<ZoneTable>,
    number: u64,
}

impl Announcement {
    /// The thread has begun.
    pub fn withdraw(&self) {
        let mut state = self.table.lock();
        state.withdraw(self.number);
        self.table.notify(&mut state);
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl ZoneTable {
    /// The zones of a drive as it reports them; of other targets such as the workload asks for, all empty.
    pub fn of(device: &Arc<dyn Device>, workload: &Workload) -> Result<Self, ZoneError> {
        let spec = || device.spec().to_owned();
        let (zone_bytes, zones) = match device.zones() {
            Some(drive) => {
                let zones = all_zones(drive, device.size()).map_err(|source| ZoneError::Drive {
                    operation: "report",
                    device: spec(),
                    at: 0,
                    source,
                })?;
                (drive.facts().zone_bytes, zones)
            }
            None if leaves(device).iter().any(|leaf| leaf.zones().is_some()) => {
                return Err(ZoneError::Spread { device: spec() });
            }
            None => {
                let zone = workload.zonesize.ok_or_else(|| ZoneError::NoSize { device: spec() })?;
                let count = device.size() / zone;
                if count > MOST_MADE_UP {
                    return Err(ZoneError::TooMany {
                        device: spec(),
                        zone_bytes: zone,
                        count,
                        most: MOST_MADE_UP,
                    });
                }
                (zone, made_up(count, zone, workload.zonecapacity.unwrap_or(zone)))
            }
        };
        let whole = zones.iter().filter(|zone| zone.length == zone_bytes);
        Ok(Self {
            zone_bytes,
            capacity: whole.map(|zone| zone.capacity).min().unwrap_or(zone_bytes),
            is_real: device.zones().is_some(),
            state: Mutex::new(State::new(&zones)),
            changed: Condvar::new(),
        })
    }

    /// Bytes from the beginning of a zone to that of the next.
    pub fn zone_bytes(&self) -> u64 {
        self.zone_bytes
    }

    /// Whether the zones are those of a drive.
    pub fn is_real(&self) -> bool {
        self.is_real
    }

    /// Whether these are zones that nothing but this table knows of, and such as the workload asks for.
    pub fn is_kept_account_of(&self, device: &Arc<dyn Device>, workload: &Workload) -> bool {
        !self.is_real
            && device.zones().is_none()
            && workload.zonesize == Some(self.zone_bytes)
            && workload.zonecapacity.unwrap_or(self.zone_bytes) == self.capacity
    }

    /// The next job may have another limit, and no zone is open any more.
    pub fn forget_jobs(&self) {
        self.lock().forget_jobs();
    }

    /// A request in flight will not be answered: what waits for it is told, and the next run asks the drive anew.
    pub fn lose(&self) {
        let mut state = self.lock();
        state.is_lost = true;
        self.notify(&mut state);
    }

    pub fn is_lost(&self) -> bool {
        self.lock().is_lost
    }

    /// Whether a job can work on these zones; its limit holds from now on, for all.
    pub fn admit(&self, device: &Arc<dyn Device>, workload: &Workload) -> Result<(), ZoneError> {
        let spec = || device.spec().to_owned();
        if let Some(asked) = workload.zonesize.filter(|asked| *asked != self.zone_bytes) {
            return Err(ZoneError::OtherSize { device: spec(), asked, actual: self.zone_bytes });
        }
        let (bs, zone_bytes, capacity) = (workload.bs, self.zone_bytes, self.capacity);
        let trims = workload.rw.modifies() && !workload.rw.writes();
        if !zone_bytes.is_multiple_of(bs) || (trims && bs != zone_bytes) || (!trims && bs > capacity) {
            return Err(ZoneError::Block { device: spec(), bs, zone_bytes, capacity, trims });
        }
        let facts = device.zones().map(Zoned::facts).filter(|facts| facts.is_host_managed);
        if facts.is_some() && workload.rw.writes() && !device.is_direct() {
            return Err(ZoneError::Buffered { device: spec() });
        }
        if !workload.rw.writes() && workload.max_open_zones == 0 {
            return Ok(());
        }
        let counted = facts.filter(|_| !workload.ignore_zone_limits);
        let limit_of =
            |limit: Option<u32>| limit.filter(|limit| *limit > 0).map_or(usize::MAX, |limit| limit as usize);
        let partly = limit_of(counted.map(|facts| facts.max_active));
        let of_drive = limit_of(counted.map(|facts| facts.max_open)).min(partly);
        let asked = workload.max_open_zones;
        let limit = match asked {
            0 => of_drive,
            asked if asked as usize > of_drive => {
                return Err(ZoneError::TooManyOpen { device: spec(), asked, limit: of_drive });
            }
            asked => asked as usize,
        };
        let mut state = self.lock();
        let (open, is_first) = (state.open_zones().len(), !state.has_limit());
        if is_first && open > limit {
            return Err(ZoneError::AlreadyOpen { device: spec(), open, limit });
        }
        let block = if workload.rw.writes() { bs } else { u64::MAX };
        state.admit(block, limit, partly);
        Ok(())
    }

    /// A thread is going to write in a range of the device.
    pub fn announce(self: &Arc<Self>, range: Range<u64>) -> Announcement {
        let number = self.lock().announce(self.numbers(&range));
        Announcement { table: Arc::clone(self), number }
    }

    /// The zones of a range of whole ones.
    pub fn numbers(&self, range: &Range<u64>) -> Range<usize> {
        (range.start / self.zone_bytes) as usize..(range.end / self.zone_bytes) as usize
    }

    /// What can be read within a range, as far as data are known to lie there.
    pub fn readable(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let state = self.lock();
        let mut found: Vec<Range<u64>> = Vec::new();
        let last = range.end.div_ceil(self.zone_bytes).min(state.zones.len() as u64);
        for zone in &state.zones[(range.start / self.zone_bytes).min(last) as usize..last as usize] {
            let end = if zone.is_conventional { zone.start + self.zone_bytes } else { zone.data_end };
            let (start, end) = (zone.start.max(range.start), end.min(range.end));
            if zone.access == Access::Nothing || start >= end {
                continue;
            }
            match found.last_mut().filter(|before| before.end == start) {
                Some(before) => before.end = end,
                None => found.push(start..end),
            }
        }
        found
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait for a zone.
    pub(super) fn notify(&self, state: &mut State) {
        state.version += 1;
        self.changed.notify_all();
    }

    /// Waits a little for what has changed since `version`.
    pub(super) fn wait(&self, version: u64) {
        let state = self.lock();
        if state.version == version {
            drop(self.changed.wait_timeout(state, LOOK));
        }
    }

    /// Asks the drive where the pointer of a zone is, after a request whose end is not known. A zone of which it says nothing is
    /// used no more. Zones that are kept account of have their pointer where it was.
    pub(super) fn look_again(&self, device: &dyn Device, at: usize) {
        let start = self.lock().zones[at].start;
        let reported = device.zones().filter(|_| self.is_real).map(|drive| drive.report(start, 1));
        let mut state = self.lock();
        match reported {
            None => {}
            Some(Ok(zones)) if zones.first().is_some_and(|zone| zone.start == start) => {
                state.learn(at, &zones[0]);
            }
            Some(_) => state.lose(at),
        }
    }
}

/// Empty zones that nobody but a table knows of.
fn made_up(count: u64, length: u64, capacity: u64) -> Vec<Zone> {
    let zone = |number: u64| Zone {
        start: number * length,
        length,
        capacity,
        pointer: number * length,
        kind: ZoneKind::Sequential,
        condition: ZoneCondition::Empty,
    };
    (0..count).map(zone).collect()
}
