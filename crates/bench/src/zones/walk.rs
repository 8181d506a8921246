//! One thread's way through the zones of its region.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use measure::Workload;
use measure::dealing::Region;
use measure::record::ZoneCounts;
use storage::device::Device;
use storage::engine::Op;

use super::ZoneError;
use super::state::State;
use super::table::ZoneTable;
use super::zone::{Access, Busy};

mod reads;
mod writes;

/// What becomes of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It goes there. A mix that finds nothing to read writes.
    At(Op, u64),
    /// It waits for a request of this thread or another.
    Wait,
    /// There is no more.
    Done,
}

/// What a request in flight does in its zone.
#[derive(Debug, Clone, Copy)]
enum Claim {
    Read(usize),
    Write(usize, u64),
    Trim(usize),
}

/// What is done to a zone between two requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Reset,
    Finish,
}

/// Where a sequential thread is.
#[derive(Debug, Clone, Copy)]
struct ZonePlace {
    zone: usize,
    /// Where the next request goes in a zone that does not say so itself.
    next: u64,
    /// It has written in this zone: when that is full, the next one follows.
    has_written: bool,
    /// It has come to the end of the region since it last found something.
    laps: u32,
}

/// See the module's argument.
#[derive(Debug)]
pub(crate) struct Walk {
    table: Arc<ZoneTable>,
    device: Arc<dyn Device>,
    id: u64,
    zones: Range<usize>,
    bs: u64,
    is_random: bool,
    is_mix: bool,
    /// Begins again after the last zone.
    wraps: bool,
    /// A sequential job went past zones that it could not write.
    leaves_out: bool,
    verifies: bool,
    beyond_pointers: bool,
    /// The most zones that it may have opened.
    most_open: usize,
    /// Bytes of data from which on resets are due, and for how many writes there is one.
    resets: Option<(f64, u64)>,
    reads_from: ZonePlace,
    writes_from: ZonePlace,
    /// What is in flight, by slot.
    in_flight: Vec<Option<Claim>>,
    /// The zone that it resets next, once nothing is read there.
    claim: Option<usize>,
    /// Zones whose data it is going to verify.
    kept: HashSet<usize>,
    has_moved: bool,
    has_waited: bool,
    counts: ZoneCounts,
    /// What had happened when it had to wait.
    seen: u64,
    /// The table knows that it waits.
    is_known_to_wait: bool,
}

impl Walk {
    /// Over the zones of a region that `regions_of` has made, with so many requests in flight.
    pub fn new(
        table: &Arc<ZoneTable>,
        device: &Arc<dyn Device>,
        workload: &Workload,
        region: &Region,
        depth: u32,
    ) -> Self {
        let zones = table.numbers(&(region.start..region.start + region.length));
        let frequency = workload.zone_reset_frequency;
        let resets = (frequency > 0.0)
            .then(|| (region.length as f64 * workload.zone_reset_threshold, (1.0 / frequency) as u64));
        let place = ZonePlace { zone: zones.start, next: region.start, has_written: false, laps: 0 };
        let writes = workload.rw.writes();
        let trims = workload.rw.modifies() && !writes;
        // What is moved on one way through the region: of a zone not all may be written.
        let once = if trims { region.length } else { table.lock().writable(&zones, workload.bs) };
        Self {
            id: table.lock().enter(zones.clone(), writes, resets.is_some()),
            table: Arc::clone(table),
            device: Arc::clone(device),
            bs: workload.bs,
            is_random: workload.rw.is_random(),
            is_mix: workload.rw.reads() && writes,
            wraps: workload.time_based || workload.loops > 1 || workload.io_size > Some(once),
            leaves_out: false,
            verifies: workload.verify.is_some() && writes,
            beyond_pointers: workload.read_beyond_wp,
            most_open: match workload.job_max_open_zones {
                0 => usize::MAX,
                most => most as usize,
            },
            resets,
            reads_from: place,
            writes_from: place,
            in_flight: vec![None; depth as usize],
            claim: None,
            kept: HashSet::new(),
            has_moved: false,
            has_waited: false,
            counts: ZoneCounts::default(),
            seen: 0,
            is_known_to_wait: false,
            zones,
        }
    }

    /// Resets all zones that hold data, but those that others keep, before a job that verifies begins. Requests that others have
    /// in flight there are waited for. False if `is_over` said so before.
    pub fn clear(&mut self, is_over: &dyn Fn() -> bool) -> Result<bool, ZoneError> {
        let table = Arc::clone(&self.table);
        for at in self.zones.clone() {
            loop {
                if is_over() {
                    return Ok(false);
                }
                let state = table.lock();
                let zone = &state.zones[at];
                let holds_data = !zone.is_conventional && zone.pointer > zone.start && zone.keepers == 0;
                if !holds_data || zone.access != Access::All {
                    break;
                }
                self.check_lost(&state)?;
                self.seen = state.version;
                let is_reset = match zone.is_free_for(self.id) {
                    true => self.change(&table, state, at, Change::Reset)?,
                    false => {
                        drop(state);
                        false
                    }
                };
                if is_reset {
                    break;
                }
                self.rest();
            }
        }
        Ok(true)
    }

    /// Where the next request goes. At random it goes to the zone of `hint`, if it can.
    pub fn next(&mut self, op: Op, hint: u64, slot: u32) -> Result<Step, ZoneError> {
        let seen_before = self.seen;
        let mut step = match op {
            Op::Read => self.read(hint, slot)?,
            Op::Write => self.write(hint, slot)?,
            Op::Trim => self.trim(hint, slot)?,
            Op::Sync | Op::SyncData => unreachable!("a flush goes to no zone"),
        };
        // The second look at the same state: the first may be one that only begins again with the region.
        let waits_again = step == Step::Wait && self.has_waited && self.seen == seen_before;
        if self.is_in_vain(waits_again) {
            self.counts.ended_early = 1;
            step = Step::Done;
        }
        self.has_moved |= matches!(step, Step::At(..));
        self.has_waited |= step == Step::Wait;
        Ok(step)
    }

    /// Whether it waits, and nothing will happen any more: all walks on the table wait with nothing in flight, and have looked
    /// since it changed last. By the module's argument that never is, but what ends early can be looked into, and what hangs
    /// cannot.
    fn is_in_vain(&mut self, waits: bool) -> bool {
        let waits = waits && self.in_flight.iter().all(Option::is_none);
        if !waits && !self.is_known_to_wait {
            return false;
        }
        self.is_known_to_wait = waits;
        self.table.lock().waits(self.id, waits.then_some(self.seen))
    }

    /// The request in a slot is answered.
    pub fn settle(&mut self, slot: u32) {
        let Some(claim) = self.in_flight[slot as usize].take() else { return };
        let mut state = self.table.lock();
        match claim {
            Claim::Read(at) => state.zones[at].readers -= 1,
            Claim::Write(at, bytes) => {
                let pointer = state.zones[at].pointer + bytes;
                state.set_pointer(at, pointer);
                state.end(at);
            }
            Claim::Trim(at) => {
                let start = state.zones[at].start;
                state.set_pointer(at, start);
                state.end(at);
            }
        }
        self.table.notify(&mut state);
    }

    /// The request in a slot has failed, or its end is not known.
    pub fn fail(&mut self, slot: u32) {
        let Some(claim) = self.in_flight[slot as usize].take() else { return };
        if let Claim::Write(at, _) | Claim::Trim(at) = claim {
            self.table.lock().begin(at, Busy::Changing);
            self.table.look_again(&*self.device, at);
        }
        let mut state = self.table.lock();
        match claim {
            Claim::Read(at) => state.zones[at].readers -= 1,
            Claim::Write(at, _) | Claim::Trim(at) => state.end(at),
        }
        self.table.notify(&mut state);
    }

    /// Waits a little for what it must wait for.
    pub fn rest(&self) {
        self.table.wait(self.seen);
    }

    /// Gives up its places, if others wait for one: it is held back by what is not a zone, and may be for as long as they wait.
    pub fn step_aside(&mut self) {
        let table = Arc::clone(&self.table);
        let mut state = table.lock();
        if state.is_waited_for_by_others(self.id) && self.in_flight.iter().all(Option::is_none) {
            self.let_go(&mut state);
            state.give_up_places(self.id);
            table.notify(&mut state);
        }
    }

    /// The thread makes no more requests of this kind; what it keeps it may still read.
    pub fn retire(&mut self) {
        self.counts.ended_early +=
            u32::from(!self.has_moved && self.has_waited && self.counts.ended_early == 0);
        let table = Arc::clone(&self.table);
        let mut state = table.lock();
        if self.in_flight.iter().all(Option::is_none) {
            self.let_go(&mut state);
            state.leave(self.id);
            table.notify(&mut state);
        }
    }

    /// What it has done to zones beside its requests.
    pub fn counts(&self) -> ZoneCounts {
        self.counts
    }

    /// The zone of a place in the region.
    fn zone_of(&self, at: u64) -> usize {
        ((at / self.table.zone_bytes()) as usize).clamp(self.zones.start, self.zones.end - 1)
    }

    fn wait(&mut self, state: &State) -> Step {
        self.seen = state.version;
        Step::Wait
    }

    /// It has come to an end before its time or size. An error only if it has neither moved nor waited, so that nothing that
    /// others have done is lost with it.
    fn end_early(&mut self, error: ZoneError) -> Result<Step, ZoneError> {
        if !self.has_moved && !self.has_waited {
            return Err(error);
        }
        self.counts.ended_early = 1;
        Ok(Step::Done)
    }

    /// Fails where a request that others wait for will not be answered.
    fn check_lost(&self, state: &State) -> Result<(), ZoneError> {
        match state.is_lost {
            true => Err(ZoneError::Lost { device: self.device.spec().to_owned() }),
            false => Ok(()),
        }
    }

    /// Claims a zone that is read, so that no new reads begin there.
    fn claim(&mut self, state: &mut State, at: usize) {
        if self.claim.is_none() {
            self.claim = Some(at);
            state.set_claim(at, Some(self.id));
        }
        self.seen = state.version;
    }

    /// Gives up the claim to a zone, if there is one.
    fn let_go(&mut self, state: &mut State) {
        if let Some(at) = self.claim.take() {
            state.set_claim(at, None);
        }
    }

    /// Resets or finishes a zone. False where reads have to end first.
    fn change(
        &mut self,
        table: &ZoneTable,
        mut state: MutexGuard<'_, State>,
        at: usize,
        change: Change,
    ) -> Result<bool, ZoneError> {
        if change == Change::Reset && state.zones[at].readers > 0 {
            self.claim(&mut state, at);
            return Ok(false);
        }
        self.let_go(&mut state);
        state.begin(at, Busy::Changing);
        let start = state.zones[at].start;
        drop(state);
        let (bytes, drive) = (table.zone_bytes(), self.device.zones().filter(|_| table.is_real()));
        let (operation, result) = match (change, drive) {
            (Change::Reset, Some(drive)) => ("reset", drive.reset(start, bytes)),
            (Change::Finish, Some(drive)) => ("finish", drive.finish(start, bytes)),
            (_, None) => ("", Ok(())),
        };
        if result.is_err() {
            table.look_again(&*self.device, at);
        }
        let mut state = table.lock();
        match (&result, change) {
            (Ok(()), Change::Reset) => {
                state.set_pointer(at, start);
                self.counts.resets += 1;
            }
            (Ok(()), Change::Finish) => {
                state.finish(at);
                self.counts.finished += 1;
            }
            (Err(_), _) => {}
        }
        state.end(at);
        table.notify(&mut state);
        let device = || self.device.spec().to_owned();
        result.map(|()| true).map_err(|source| ZoneError::Drive {
            operation,
            device: device(),
            at: start,
            source,
        })
    }
}

impl Drop for Walk {
    /// Whatever is in flight has ended by now, but how is not known.
    fn drop(&mut self) {
        for slot in 0..self.in_flight.len() as u32 {
            self.fail(slot);
        }
        let table = Arc::clone(&self.table);
        let mut state = table.lock();
        self.let_go(&mut state);
        for at in self.kept.drain() {
            state.keep(at, false);
        }
        state.leave(self.id);
        state.forget(self.id);
        table.notify(&mut state);
    }
}
