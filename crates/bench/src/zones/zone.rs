//! A zone as the walks see it: where its data end, what goes on in it, and in which sets that puts it.

use storage::device::{Zone, ZoneCondition, ZoneKind};

/// What may be done in a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    All,
    Reads,
    Nothing,
}

/// What goes on in a zone that has a write pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    Idle,
    /// A write of this walk is in flight.
    Writing(u64),
    /// It is being reset or finished, or its pointer is not known.
    Changing,
}

/// Sets of zones, kept so that no request has to look at all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    /// There is something to read.
    Holding,
    /// A block can be written.
    Roomy,
    /// None can be written before it is reset, and no job keeps its data.
    Spent,
    /// It takes one of the zones that the drive may have partly written.
    Partly,
    /// Something goes on, or is about to.
    Busy,
    /// A job keeps its data.
    Kept,
}

pub(super) const SETS: [Set; 6] = [Set::Holding, Set::Roomy, Set::Spent, Set::Partly, Set::Busy, Set::Kept];

/// A zone.
#[derive(Debug)]
pub(super) struct ZoneState {
    pub start: u64,
    /// Where what can be written ends.
    pub capacity_end: u64,
    /// Where the next write goes.
    pub pointer: u64,
    /// Where what was written ends: before the pointer in a zone that was finished.
    pub data_end: u64,
    pub is_conventional: bool,
    pub access: Access,
    pub busy: Busy,
    /// Reads in flight.
    pub readers: u32,
    /// The walk that is going to reset it once nothing is read there.
    pub claimed_by: Option<u64>,
    /// Walks that are going to verify what they have written there.
    pub keepers: u32,
    /// Its place among the open zones.
    pub open_at: Option<usize>,
    /// The walk that has taken the place.
    pub opener: Option<u64>,
    /// A walk has written in it.
    pub is_ours: bool,
    /// The sets that it is in, a bit each.
    pub sets: u8,
}

impl ZoneState {
    pub fn new(zone: &Zone) -> Self {
        let end = zone.start + zone.capacity;
        let pointer = match zone.condition {
            ZoneCondition::Empty => zone.start,
            ZoneCondition::Full => end,
            _ => zone.pointer.clamp(zone.start, zone.start + zone.length),
        };
        Self {
            start: zone.start,
            capacity_end: end,
            pointer,
            data_end: pointer.min(end),
            // What a drive only prefers it does not enforce, and fio, too, takes for conventional.
            is_conventional: zone.kind != ZoneKind::Sequential,
            access: match zone.condition {
                ZoneCondition::Offline => Access::Nothing,
                ZoneCondition::ReadOnly => Access::Reads,
                _ => Access::All,
            },
            busy: Busy::Idle,
            readers: 0,
            claimed_by: None,
            keepers: 0,
            open_at: None,
            opener: None,
            is_ours: false,
            sets: 0,
        }
    }

    /// Bytes that can be written before it is full.
    pub fn room(&self) -> u64 {
        self.capacity_end.saturating_sub(self.pointer)
    }

    pub fn is_open(&self) -> bool {
        self.open_at.is_some()
    }

    /// Whether it has a place that no other walk has taken.
    pub fn is_open_for(&self, walk: u64) -> bool {
        self.is_open() && self.opener.is_none_or(|opener| opener == walk)
    }

    pub fn is_free_for(&self, walk: u64) -> bool {
        self.busy == Busy::Idle && self.claimed_by.is_none_or(|other| other == walk)
    }

    /// Whether it is in a set, where `block` bytes are the least that is written at a time.
    pub fn belongs_to(&self, set: Set, block: u64) -> bool {
        let is_sequential = !self.is_conventional && self.access == Access::All;
        match set {
            Set::Holding => {
                self.access != Access::Nothing && (self.is_conventional || self.data_end > self.start)
            }
            Set::Roomy => is_sequential && self.room() >= block,
            Set::Spent => is_sequential && self.room() < block && self.keepers == 0,
            Set::Partly => {
                let is_partly_written = self.pointer > self.start && self.pointer < self.capacity_end;
                is_sequential && (self.is_open() || is_partly_written)
            }
            Set::Busy => self.busy != Busy::Idle || self.claimed_by.is_some(),
            Set::Kept => self.keepers > 0,
        }
    }
}
