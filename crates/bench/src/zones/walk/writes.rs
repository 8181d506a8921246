//! Which zone a write goes to.

use std::sync::Arc;

use storage::engine::Op;

use super::{Change, Claim, Step, Walk, ZonePlace};
use crate::zones::ZoneError;
use crate::zones::state::State;
use crate::zones::zone::{Access, Busy, Set, ZoneState};

/// What is next for a write.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Write(usize),
    /// Into a conventional zone.
    Anywhere(u64),
    Change(usize, Change),
    /// For a request in flight.
    Wait,
    /// For data that are kept.
    WaitForKept,
    /// For a place among the open zones.
    WaitForPlace,
    /// All of the region is written.
    End,
    /// None, and none will be.
    Nothing,
}

impl Walk {
    pub(super) fn write(&mut self, hint: u64, slot: u32) -> Result<Step, ZoneError> {
        let table = Arc::clone(&self.table);
        loop {
            let mut state = table.lock();
            self.check_lost(&state)?;
            let turn = match self.claim {
                Some(at) => Turn::Change(at, Change::Reset),
                None => self.choose(&mut state, hint),
            };
            // Until the zone is reset or finished that it is about to open, it stays where it is in the line.
            if !matches!(turn, Turn::WaitForPlace | Turn::Change(..)) && state.leave_line(self.id) {
                table.notify(&mut state);
            }
            match turn {
                Turn::Anywhere(offset) => {
                    self.in_flight[slot as usize] = None;
                    return Ok(Step::At(Op::Write, offset));
                }
                Turn::Write(at) => {
                    state.open(at, self.id);
                    state.begin(at, Busy::Writing(self.id));
                    if self.verifies && self.kept.insert(at) {
                        state.keep(at, true);
                    }
                    self.in_flight[slot as usize] = Some(Claim::Write(at, self.bs));
                    return Ok(Step::At(Op::Write, state.zones[at].pointer));
                }
                Turn::Change(at, change) => {
                    if !self.change(&table, state, at, change)? {
                        return Ok(Step::Wait);
                    }
                }
                Turn::Wait => return Ok(self.wait(&state)),
                Turn::WaitForKept => {
                    // Who keeps them may need the place to go on.
                    if state.give_up_places(self.id) {
                        table.notify(&mut state);
                    }
                    return Ok(self.wait(&state));
                }
                Turn::WaitForPlace => {
                    state.join_line(self.id);
                    return Ok(self.wait(&state));
                }
                Turn::End if self.has_moved || self.verifies => {
                    // Others that verify have written all of it, or zones of it could not be written.
                    self.counts.ended_early = u32::from(!self.has_moved || self.leaves_out);
                    return Ok(Step::Done);
                }
                Turn::End | Turn::Nothing => {
                    let error = self.none_to_write(&state);
                    return self.end_early(error);
                }
            }
        }
    }

    fn none_to_write(&self, state: &State) -> ZoneError {
        let device = self.device.spec().to_owned();
        match state.partly_written() {
            (open, limit) if open >= limit => ZoneError::AlreadyOpen { device, open, limit },
            _ => ZoneError::NoneToWrite { device },
        }
    }

    /// The zone that the next write goes to, or what has to be done first.
    fn choose(&mut self, state: &mut State, hint: u64) -> Turn {
        let turn = match self.is_random {
            true => self.choose_near(state, hint),
            false => self.choose_next(state),
        };
        if let (Turn::Write(at), Some((threshold, period))) = (turn, self.resets) {
            let zone = &state.zones[at];
            let holds_data = zone.pointer > zone.start && zone.keepers == 0;
            if holds_data && state.reset_is_due(&self.zones, threshold, period) {
                return Turn::Change(at, Change::Reset);
            }
        }
        turn
    }

    /// What a write to this zone takes; None if there can be none now.
    fn turn_in(&self, state: &State, at: usize) -> Option<Turn> {
        let zone = &state.zones[at];
        let is_writable = !zone.is_conventional && zone.access == Access::All && zone.is_free_for(self.id);
        if !is_writable || !state.permits(at, self.id, self.most_open) {
            return None;
        }
        if zone.room() >= self.bs {
            return Some(Turn::Write(at));
        }
        let is_kept = self.verifies || zone.keepers > 0;
        (!is_kept).then_some(Turn::Change(at, Change::Reset))
    }

    /// A write at random: to the zone that was drawn; to an open one, if that cannot be opened; else to the next that takes it.
    fn choose_near(&self, state: &State, hint: u64) -> Turn {
        let drawn = self.zone_of(hint);
        if state.zones[drawn].is_conventional && state.zones[drawn].access == Access::All {
            return Turn::Anywhere(hint);
        }
        let turn = |at: usize| self.turn_in(state, at);
        if let Some(turn) = turn(drawn) {
            return turn;
        }
        let found = match state.may_open_empty(self.id, self.most_open) {
            true => {
                let after = |set| state.after(set, drawn, &self.zones);
                let mut writes = after(Set::Roomy).filter_map(turn);
                let write = writes.find(|turn| matches!(turn, Turn::Write(_)));
                // What others have room for in smaller blocks comes last.
                write.or_else(|| after(Set::Spent).chain(after(Set::Roomy)).find_map(turn))
            }
            false => self.turn_in_open(state, drawn),
        };
        found.unwrap_or_else(|| self.cannot_write(state))
    }

    /// A write to a zone that is open, or at least partly written, in place of one that cannot be opened.
    fn turn_in_open(&self, state: &State, drawn: usize) -> Option<Turn> {
        let open = state.open_zones();
        // As far along the open zones as the zone that was drawn is along all.
        let first = (drawn - self.zones.start) * open.len() / self.zones.len();
        let others = open[first..].iter().chain(&open[..first]).copied();
        let turn = |at: usize| self.turn_in(state, at);
        others.filter(|at| self.zones.contains(at)).find_map(turn).or_else(|| {
            let may_take_place = state.may_take_place(self.id, self.most_open);
            let mut partly = state.after(Set::Partly, drawn, &self.zones);
            if may_take_place { partly.find_map(turn) } else { None }
        })
    }

    /// A sequential write: to the zone under way, and after its end to the next.
    fn choose_next(&mut self, state: &State) -> Turn {
        for _ in 0..=2 * self.zones.len() {
            if self.writes_from.zone == self.zones.end {
                if !self.wraps || self.verifies {
                    return Turn::End;
                }
                self.enter(self.zones.start, state);
            }
            let at = self.writes_from.zone;
            let zone = &state.zones[at];
            if zone.access != Access::All {
                self.leaves_out = true;
                self.enter(at + 1, state);
            } else if zone.is_conventional {
                let offset = self.writes_from.next;
                if offset + self.bs <= zone.start + self.table.zone_bytes() {
                    self.writes_from.next += self.bs;
                    return Turn::Anywhere(offset);
                }
                self.enter(at + 1, state);
            } else if !zone.is_free_for(self.id) {
                return Turn::Wait;
            } else if self.leaves_alone(zone) {
                // What is left is less than a block, and would keep it open.
                let is_left_open = zone.is_open() && (self.writes_from.has_written || self.verifies);
                self.leaves_out |= !self.verifies && !self.writes_from.has_written;
                self.enter(at + 1, state);
                if is_left_open {
                    return Turn::Change(at, Change::Finish);
                }
            } else if !state.permits(at, self.id, self.most_open) {
                let Some(turn) = self.turn_in_open(state, at) else { return self.cannot_write(state) };
                // A detour: when that zone is full, its place is this one's. What is left of it is not worth a reset.
                return match turn {
                    Turn::Change(open, Change::Reset) if state.zones[open].is_open() => {
                        Turn::Change(open, Change::Finish)
                    }
                    turn => turn,
                };
            } else if zone.room() >= self.bs {
                self.writes_from.has_written = true;
                return Turn::Write(at);
            } else {
                return Turn::Change(at, Change::Reset);
            }
        }
        self.cannot_write(state)
    }

    /// Whether a sequential job goes past a zone: it is full, and was filled by the job itself or must be kept.
    fn leaves_alone(&self, zone: &ZoneState) -> bool {
        zone.room() < self.bs && (self.writes_from.has_written || self.verifies || zone.keepers > 0)
    }

    /// Goes on to a zone.
    fn enter(&mut self, zone: usize, state: &State) {
        let next = state.zones.get(zone).map_or(0, |zone| zone.start);
        self.writes_from = ZonePlace { zone, next, ..self.writes_from };
        self.writes_from.has_written = false;
    }

    /// No zone takes a write now. In this order: what only stands in the way is finished; what somebody comes back with is
    /// waited for; else there is nothing.
    fn cannot_write(&self, state: &State) -> Turn {
        let has_one =
            state.any(Set::Roomy, &self.zones) || (!self.verifies && state.any(Set::Spent, &self.zones));
        let may_open = state.may_open_empty(self.id, self.most_open);
        if has_one && !may_open {
            let is_remainder = |at: &usize| {
                let zone = &state.zones[*at];
                self.zones.contains(at)
                    && zone.is_free_for(self.id)
                    && zone.room() < self.bs
                    && zone.is_open_for(self.id)
            };
            let remainder = state.open_zones().iter().copied().find(is_remainder);
            // Only a limit of partly written zones keeps one from being opened that may have a place.
            let has_place = state.may_take_place(self.id, self.most_open);
            let in_the_way = remainder.or_else(|| if has_place { state.stranded() } else { None });
            if let Some(at) = in_the_way {
                return Turn::Change(at, Change::Finish);
            }
        }
        // Before what is in flight, as others may always have something in flight where this one could write.
        if has_one && !may_open && state.place_will_be_free(self.id, self.most_open) {
            return Turn::WaitForPlace;
        }
        if state.any(Set::Busy, &self.zones) {
            return Turn::Wait;
        }
        // Those that keep data wait for nobody's: they read it back and leave.
        if !self.verifies && state.any(Set::Kept, &self.zones) {
            return Turn::WaitForKept;
        }
        if self.verifies && !has_one { Turn::End } else { Turn::Nothing }
    }
}
