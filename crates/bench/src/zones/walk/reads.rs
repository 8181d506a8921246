//! Where there is something to read or to trim.

use std::sync::Arc;

use storage::engine::Op;

use super::{Claim, Step, Walk, ZonePlace};
use crate::zones::ZoneError;
use crate::zones::state::State;
use crate::zones::zone::{Access, Busy, Set, ZoneState};

impl Walk {
    /// How far a zone can be read from its beginning.
    fn readable(&self, zone: &ZoneState) -> u64 {
        match zone.access {
            Access::Nothing => 0,
            _ if zone.busy == Busy::Changing || zone.claimed_by.is_some() => 0,
            _ if zone.is_conventional => self.table.zone_bytes(),
            _ if self.beyond_pointers => zone.capacity_end - zone.start,
            _ => zone.data_end - zone.start,
        }
    }

    pub(super) fn read(&mut self, hint: u64, slot: u32) -> Result<Step, ZoneError> {
        if self.claim.is_some() {
            // Nobody reads in a zone that is going to be reset, so that comes first.
            return self.write(hint, slot);
        }
        let table = Arc::clone(&self.table);
        let mut state = table.lock();
        let found = match self.is_random {
            true => self.readable_near(&state, hint),
            false => self.readable_next(&state),
        };
        if let Some((at, offset)) = found {
            self.in_flight[slot as usize] = None;
            if !state.zones[at].is_conventional {
                state.zones[at].readers += 1;
                self.in_flight[slot as usize] = Some(Claim::Read(at));
            }
            return Ok(Step::At(Op::Read, offset));
        }
        let is_over = !self.is_random && self.reads_from.zone == self.zones.end && self.has_moved;
        if self.is_mix && !state.any(Set::Busy, &self.zones) {
            drop(state);
            return self.write(hint, slot);
        }
        self.nothing_found(&state, is_over, false)
    }

    /// What a thread does that has found no zone with anything in it. Those that write in its zones are waited for: they wait
    /// for no reader, but for requests in flight.
    fn nothing_found(&mut self, state: &State, is_over: bool, trims: bool) -> Result<Step, ZoneError> {
        self.check_lost(state)?;
        let comes_back =
            state.any(Set::Busy, &self.zones) || state.is_written_by_others(self.id, &self.zones);
        if is_over {
            Ok(Step::Done)
        } else if comes_back {
            Ok(self.wait(state))
        } else {
            self.end_early(ZoneError::Empty { device: self.device.spec().to_owned(), trims })
        }
    }

    /// A block in the zone that was drawn, or in the nearest that holds one.
    fn readable_near(&self, state: &State, hint: u64) -> Option<(usize, u64)> {
        let drawn = self.zone_of(hint);
        let into = hint.saturating_sub(state.zones[drawn].start) / self.bs;
        let block = |at: usize| {
            let zone = &state.zones[at];
            let blocks = self.readable(zone) / self.bs;
            (blocks > 0).then(|| (at, zone.start + into % blocks * self.bs))
        };
        block(drawn).or_else(|| match self.beyond_pointers {
            true => {
                nearest(drawn, drawn + 1..self.zones.end, (self.zones.start..drawn).rev()).find_map(block)
            }
            false => self.holding_near(state, drawn).find_map(block),
        })
    }

    /// The zones of the region that hold data, those that are nearest to one of them first.
    fn holding_near<'s>(&self, state: &'s State, from: usize) -> impl Iterator<Item = usize> + use<'s> {
        let after = state.within(Set::Holding, &(from..self.zones.end));
        let before = state.within(Set::Holding, &(self.zones.start..from)).rev();
        nearest(from, after, before)
    }

    /// The next block of a walk that leaves out what holds nothing.
    fn readable_next(&mut self, state: &State) -> Option<(usize, u64)> {
        for _ in 0..=2 * self.zones.len() {
            if self.reads_from.zone == self.zones.end {
                // A mix ends with its writes.
                let wraps = self.wraps || self.is_mix;
                if !wraps || self.reads_from.laps > 0 {
                    // Where nothing was found on all the way, the next request looks again.
                    self.reads_from.laps = 0;
                    if wraps || !self.has_moved {
                        self.begin_reads_at(self.zones.start, state);
                    }
                    return None;
                }
                self.begin_reads_at(self.zones.start, state);
                self.reads_from.laps = 1;
            }
            let (at, offset) = (self.reads_from.zone, self.reads_from.next);
            let zone = &state.zones[at];
            if offset + self.bs <= zone.start + self.readable(zone) {
                self.reads_from.next += self.bs;
                self.reads_from.laps = 0;
                return Some((at, offset));
            }
            let next = match self.beyond_pointers {
                true => Some(at + 1),
                false => state.within(Set::Holding, &(at + 1..self.zones.end)).next(),
            };
            self.begin_reads_at(next.unwrap_or(self.zones.end), state);
        }
        None
    }

    fn begin_reads_at(&mut self, zone: usize, state: &State) {
        let next = state.zones.get(zone).map_or(0, |zone| zone.start);
        self.reads_from = ZonePlace { zone, next, ..self.reads_from };
    }

    /// A zone that is given back as a whole.
    pub(super) fn trim(&mut self, hint: u64, slot: u32) -> Result<Step, ZoneError> {
        let table = Arc::clone(&self.table);
        let mut state = table.lock();
        self.check_lost(&state)?;
        let found = match self.claim {
            Some(at) => Some(at),
            None => self.to_trim(&state, hint),
        };
        let Some(at) = found else {
            let is_over = !self.is_random && self.reads_from.zone == self.zones.end && !self.wraps;
            return self.nothing_found(&state, is_over, true);
        };
        if state.zones[at].readers > 0 {
            // They end, and no others begin.
            self.claim(&mut state, at);
            return Ok(Step::Wait);
        }
        self.let_go(&mut state);
        self.reads_from.zone = at + 1;
        self.in_flight[slot as usize] = None;
        if !state.zones[at].is_conventional {
            state.begin(at, Busy::Changing);
            self.in_flight[slot as usize] = Some(Claim::Trim(at));
        }
        Ok(Step::At(Op::Trim, state.zones[at].start))
    }

    /// The next zone to be trimmed; at random one in which nothing is read, if there is one.
    fn to_trim(&self, state: &State, hint: u64) -> Option<usize> {
        let can_be_trimmed = |zone: &ZoneState| {
            let is_held = zone.keepers > 0 || !zone.is_free_for(self.id);
            zone.access == Access::All && (zone.is_conventional || !is_held)
        };
        if !self.is_random {
            let rest = self.reads_from.zone..self.zones.end;
            let again = if self.wraps { self.zones.start..self.reads_from.zone } else { 0..0 };
            return rest.chain(again).find(|at| can_be_trimmed(&state.zones[*at]));
        }
        let drawn = self.zone_of(hint);
        // A conventional zone holds what nobody knows of; it is trimmed where it was drawn.
        let is_one = |at: &usize| {
            let zone = &state.zones[*at];
            can_be_trimmed(zone) && (*at == drawn || !zone.is_conventional)
        };
        let mut read = None;
        let unread = self.holding_near(state, drawn).filter(is_one).find(|at| {
            let is_read = state.zones[*at].readers > 0;
            if is_read {
                read.get_or_insert(*at);
            }
            !is_read
        });
        unread.or(read)
    }
}

/// Two ways from a number, up and down, as one, what is nearest first.
fn nearest(
    from: usize,
    after: impl Iterator<Item = usize>,
    before: impl Iterator<Item = usize>,
) -> impl Iterator<Item = usize> {
    let (mut after, mut before) = (after.peekable(), before.peekable());
    std::iter::from_fn(move || match (after.peek(), before.peek()) {
        (Some(up), Some(down)) if *up - from > from - *down => before.next(),
        (Some(_), _) => after.next(),
        (None, _) => before.next(),
    })
}
