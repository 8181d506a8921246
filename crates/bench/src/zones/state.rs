//! What is known of the zones of a device, and which job may write where: the argument is the module's above.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use storage::device::{Zone, ZoneCondition};

use super::zone::{Access, Busy, SETS, Set, ZoneState};

/// How much of a range holds data, and when a zone of it is reset next (`zone_reset_frequency`).
#[derive(Debug)]
struct Account {
    zones: Range<usize>,
    bytes: u64,
    writes_left: u64,
}

/// A walk that writes.
#[derive(Debug)]
struct Writer {
    zones: Range<usize>,
    /// How many places it has taken.
    opened: usize,
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    pub zones: Vec<ZoneState>,
    sets: [BTreeSet<usize>; SETS.len()],
    /// The zones that have a place.
    open: Vec<usize>,
    /// How many may have one: the least that a job has said; None until one has.
    limit: Option<usize>,
    /// How many zones the drive may have partly written.
    partly_limit: usize,
    /// The least that is written at a time.
    block: u64,
    writers: HashMap<u64, Writer>,
    /// All walks; of each that waits with nothing in flight, since which change.
    walks: HashMap<u64, Option<u64>>,
    /// The walks that wait for a place, the first of which has the next one.
    line: VecDeque<u64>,
    accounts: Vec<Account>,
    /// Threads that are going to write, and have yet to begin, with their zones.
    announced: Vec<(u64, Range<usize>)>,
    /// Counts changes that a thread may wait for.
    pub version: u64,
    next_number: u64,
    /// A request in flight will not be answered, so that nothing of this is true any more.
    pub is_lost: bool,
    /// How many walks have waited in vain.
    #[cfg(test)]
    pub in_vain: u32,
}

impl State {
    /// Of these zones; those that a command has opened have places already.
    pub fn new(zones: &[Zone]) -> Self {
        let mut state = Self {
            zones: zones.iter().map(ZoneState::new).collect(),
            sets: Default::default(),
            open: Vec::new(),
            limit: None,
            partly_limit: usize::MAX,
            block: u64::MAX,
            writers: HashMap::new(),
            walks: HashMap::new(),
            line: VecDeque::new(),
            accounts: Vec::new(),
            announced: Vec::new(),
            version: 0,
            next_number: 0,
            is_lost: false,
            #[cfg(test)]
            in_vain: 0,
        };
        for (at, zone) in zones.iter().enumerate() {
            if zone.condition == ZoneCondition::ExplicitlyOpen && !state.zones[at].is_conventional {
                state.zones[at].open_at = Some(state.open.len());
                state.open.push(at);
            }
        }
        state.refresh_all();
        state
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    // Sets.

    fn refresh_all(&mut self) {
        for at in 0..self.zones.len() {
            self.refresh(at);
        }
    }

    /// To be called whenever a zone has changed.
    fn refresh(&mut self, at: usize) {
        let zone = &mut self.zones[at];
        let bit = |set: Set| u8::from(zone.belongs_to(set, self.block)) << set as u8;
        let now = SETS.into_iter().map(bit).sum::<u8>();
        let changed = std::mem::replace(&mut zone.sets, now) ^ now;
        for (number, set) in self.sets.iter_mut().enumerate().filter(|(number, _)| changed >> number & 1 == 1)
        {
            match now >> number & 1 {
                1 => set.insert(at),
                _ => set.remove(&at),
            };
        }
    }

    /// The zones of a set within a range.
    pub fn within<'s>(
        &'s self,
        set: Set,
        zones: &Range<usize>,
    ) -> impl DoubleEndedIterator<Item = usize> + use<'s> {
        self.sets[set as usize].range(zones.clone()).copied()
    }

    /// The same from one zone on, and then those before it.
    pub fn after<'s>(
        &'s self,
        set: Set,
        from: usize,
        zones: &Range<usize>,
    ) -> impl Iterator<Item = usize> + use<'s> {
        self.within(set, &(from..zones.end)).chain(self.within(set, &(zones.start..from)))
    }

    pub fn any(&self, set: Set, zones: &Range<usize>) -> bool {
        self.within(set, zones).next().is_some()
    }

    // Walks.

    /// A job of this block size is going to write, with so many open zones at most where the drive lets it have so many partly
    /// written.
    pub fn admit(&mut self, block: u64, limit: usize, partly_limit: usize) {
        self.limit = Some(self.limit.map_or(limit, |other| other.min(limit)));
        self.partly_limit = self.partly_limit.min(partly_limit);
        if block < self.block {
            self.block = block;
            self.refresh_all();
        }
    }

    pub fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// What jobs have said holds no longer, as there are none.
    pub fn forget_jobs(&mut self) {
        (self.limit, self.block) = (None, u64::MAX);
        while let Some(at) = self.open.last().copied() {
            self.close(at);
        }
        self.refresh_all();
    }

    /// A number for a walk over some zones, which writes or does not.
    pub fn enter(&mut self, zones: Range<usize>, writes: bool, counts_data: bool) -> u64 {
        let walk = self.number();
        self.walks.insert(walk, None);
        if writes {
            self.writers.insert(walk, Writer { zones: zones.clone(), opened: 0 });
        }
        if counts_data && !self.accounts.iter().any(|account| account.zones == zones) {
            let held = |zone: &ZoneState| {
                if zone.is_conventional { 0 } else { zone.pointer.min(zone.capacity_end) - zone.start }
            };
            let bytes = self.zones[zones.clone()].iter().map(held).sum();
            self.accounts.push(Account { zones, bytes, writes_left: 0 });
        }
        walk
    }

    /// The walk writes no more: it gives up its places, and what of the line it has.
    pub fn leave(&mut self, walk: u64) {
        self.give_up_places(walk);
        self.leave_line(walk);
        if let Some(since) = self.walks.get_mut(&walk) {
            *since = None;
        }
        self.writers.remove(&walk);
        if self.writers.is_empty() {
            self.accounts.clear();
        }
    }

    /// Nothing of the walk is left.
    pub fn forget(&mut self, walk: u64) {
        self.walks.remove(&walk);
    }

    /// A walk with nothing in flight waits since some change, or waits no more. Whether all do, since the last one, with nobody
    /// to come: what each of them would do depends on what is written here alone, and that stays as it is.
    pub fn waits(&mut self, walk: u64, since: Option<u64>) -> bool {
        self.walks.insert(walk, since);
        let is_in_vain =
            self.announced.is_empty() && self.walks.values().all(|since| *since == Some(self.version));
        #[cfg(test)]
        (self.in_vain += u32::from(is_in_vain));
        is_in_vain
    }

    /// A thread is going to write in these zones.
    pub fn announce(&mut self, zones: Range<usize>) -> u64 {
        let number = self.number();
        self.announced.push((number, zones));
        number
    }

    /// It has begun, or never will.
    pub fn withdraw(&mut self, number: u64) {
        self.announced.retain(|(other, _)| *other != number);
    }

    /// Whether another walk writes in one of these zones, or is going to.
    pub fn is_written_by_others(&self, walk: u64, zones: &Range<usize>) -> bool {
        let meets = |other: &Range<usize>| other.start < zones.end && zones.start < other.end;
        self.announced.iter().any(|(_, other)| meets(other))
            || self.writers.iter().any(|(other, writer)| *other != walk && meets(&writer.zones))
    }

    /// How much can be written of some zones in whole blocks.
    pub fn writable(&self, zones: &Range<usize>, block: u64) -> u64 {
        self.zones[zones.clone()].iter().map(|zone| (zone.capacity_end - zone.start) / block * block).sum()
    }

    /// Whether nothing is left of any walk.
    #[cfg(test)]
    pub fn is_left_by_all(&self) -> bool {
        self.writers.is_empty() && self.walks.is_empty() && self.line.is_empty() && self.announced.is_empty()
    }

    /// What holds at any time.
    #[cfg(test)]
    pub fn check(&self) {
        for set in SETS {
            let expected = (0..self.zones.len()).filter(|at| self.zones[*at].belongs_to(set, self.block));
            let expected: BTreeSet<usize> = expected.collect();
            assert_eq!(self.sets[set as usize], expected, "{set:?}");
        }
        assert!(self.open.len() <= self.limit.unwrap_or(usize::MAX), "{:?} of {:?}", self.open, self.limit);
        assert!(self.sets[Set::Partly as usize].len() <= self.partly_limit, "{:?}", self.sets);
        let opened: usize = self.writers.values().map(|writer| writer.opened).sum();
        let taken = self.open.iter().filter(|at| self.zones[**at].opener.is_some()).count();
        assert_eq!(opened, taken, "{:?}", self.writers);
    }

    // Places.

    /// The zones that have a place.
    pub fn open_zones(&self) -> &[usize] {
        &self.open
    }

    /// How many zones the drive has partly written, and how many it may.
    pub fn partly_written(&self) -> (usize, usize) {
        (self.sets[Set::Partly as usize].len(), self.partly_limit)
    }

    fn opened_by(&self, walk: u64) -> usize {
        self.writers.get(&walk).map_or(0, |writer| writer.opened)
    }

    /// Whether a walk may take one more place, that may have so many.
    pub fn may_take_place(&self, walk: u64, most: usize) -> bool {
        self.open.len() < self.limit.unwrap_or(usize::MAX)
            && self.opened_by(walk) < most
            && self.line.front().is_none_or(|first| *first == walk)
    }

    /// Whether it may open a zone that is empty.
    pub fn may_open_empty(&self, walk: u64, most: usize) -> bool {
        let (partly, limit) = self.partly_written();
        self.may_take_place(walk, most) && partly < limit
    }

    /// Whether it may write in this zone, as far as open zones are counted.
    pub fn permits(&self, at: usize, walk: u64, most: usize) -> bool {
        let is_partly = self.zones[at].belongs_to(Set::Partly, self.block);
        self.zones[at].is_open()
            || if is_partly { self.may_take_place(walk, most) } else { self.may_open_empty(walk, most) }
    }

    /// Whether another walk is about to leave what this one needs to open a zone: one before it in the line, one that has
    /// places, or one that finishes or resets a zone that was left partly written, or has claimed one for that.
    pub fn place_will_be_free(&self, walk: u64, most: usize) -> bool {
        let is_first = self.line.front().is_none_or(|first| *first == walk);
        let is_held = self.writers.iter().any(|(other, writer)| *other != walk && writer.opened > 0);
        let is_changing = |at: usize| {
            let zone = &self.zones[at];
            zone.busy == Busy::Changing || zone.claimed_by.is_some_and(|other| other != walk)
        };
        self.opened_by(walk) < most
            && (!is_first || is_held || self.within(Set::Partly, &(0..self.zones.len())).any(is_changing))
    }

    /// A zone that a walk has left partly written, and that takes away what another needs to open one.
    pub fn stranded(&self) -> Option<usize> {
        let is_stranded = |at: &usize| {
            let zone = &self.zones[*at];
            zone.is_ours && !zone.is_open() && zone.busy == Busy::Idle && zone.claimed_by.is_none()
        };
        self.within(Set::Partly, &(0..self.zones.len())).find(is_stranded)
    }

    pub fn join_line(&mut self, walk: u64) {
        if !self.line.contains(&walk) {
            self.line.push_back(walk);
        }
    }

    /// Whether the walk was in the line.
    pub fn leave_line(&mut self, walk: u64) -> bool {
        let length = self.line.len();
        self.line.retain(|other| *other != walk);
        self.line.len() < length
    }

    /// Whether another walk waits for a place.
    pub fn is_waited_for_by_others(&self, walk: u64) -> bool {
        self.line.iter().any(|other| *other != walk)
    }

    /// A walk takes a place for a zone.
    pub fn open(&mut self, at: usize, walk: u64) {
        let zone = &mut self.zones[at];
        zone.is_ours = true;
        if zone.open_at.is_none() {
            (zone.open_at, zone.opener) = (Some(self.open.len()), Some(walk));
            self.open.push(at);
            if let Some(writer) = self.writers.get_mut(&walk) {
                writer.opened += 1;
            }
            self.refresh(at);
        }
    }

    fn close(&mut self, at: usize) {
        let Some(place) = self.zones[at].open_at.take() else { return };
        self.open.swap_remove(place);
        if let Some(moved) = self.open.get(place) {
            self.zones[*moved].open_at = Some(place);
        }
        let opener = self.zones[at].opener.take();
        if let Some(writer) = opener.and_then(|walk| self.writers.get_mut(&walk)) {
            writer.opened -= 1;
        }
        self.refresh(at);
    }

    /// A walk needs its places no more. The zones stay partly written. One in which another writes just now is that one's.
    /// Whether there was one.
    pub fn give_up_places(&mut self, walk: u64) -> bool {
        let own: Vec<usize> =
            self.open.iter().copied().filter(|at| self.zones[*at].opener == Some(walk)).collect();
        for at in &own {
            let at = *at;
            match self.zones[at].busy {
                Busy::Writing(other) if other != walk => {
                    self.zones[at].opener = Some(other);
                    for (walk, change) in [(walk, -1), (other, 1)] {
                        if let Some(writer) = self.writers.get_mut(&walk) {
                            writer.opened = writer.opened.saturating_add_signed(change);
                        }
                    }
                }
                _ => self.close(at),
            }
        }
        !own.is_empty()
    }

    // Zones.

    /// Moves a zone's pointer; what lies below it is data. An empty and a full zone are not open.
    pub fn set_pointer(&mut self, at: usize, pointer: u64) {
        let end = self.zones[at].capacity_end;
        self.zones[at].data_end = pointer.min(end);
        self.move_pointer(at, pointer);
    }

    /// A zone takes no more, whatever it holds.
    pub fn finish(&mut self, at: usize) {
        self.move_pointer(at, self.zones[at].capacity_end);
    }

    fn move_pointer(&mut self, at: usize, pointer: u64) {
        let zone = &mut self.zones[at];
        let (before, end) = (zone.pointer.min(zone.capacity_end), zone.capacity_end);
        zone.pointer = pointer;
        let (start, after) = (zone.start, pointer.min(end));
        for account in self.accounts.iter_mut().filter(|account| account.zones.contains(&at)) {
            account.bytes = account.bytes - (before - start) + (after - start);
        }
        if pointer == start || pointer >= end {
            self.close(at);
        }
        self.refresh(at);
    }

    /// A zone is as the drive says it is.
    pub fn learn(&mut self, at: usize, zone: &Zone) {
        let now = ZoneState::new(zone);
        self.zones[at].access = now.access;
        if zone.condition == ZoneCondition::Full {
            self.finish(at);
        } else {
            self.set_pointer(at, now.pointer);
        }
        if now.access != Access::All {
            self.close(at);
            self.refresh(at);
        }
    }

    /// Nothing is known of a zone any more, so it is not used.
    pub fn lose(&mut self, at: usize) {
        self.zones[at].access = Access::Nothing;
        self.close(at);
        self.refresh(at);
    }

    /// Something begins in a zone.
    pub fn begin(&mut self, at: usize, busy: Busy) {
        self.zones[at].busy = busy;
        self.refresh(at);
    }

    /// It is over.
    pub fn end(&mut self, at: usize) {
        self.begin(at, Busy::Idle);
    }

    pub fn set_claim(&mut self, at: usize, walk: Option<u64>) {
        self.zones[at].claimed_by = walk;
        self.refresh(at);
    }

    /// One more walk keeps a zone's data, or one less.
    pub fn keep(&mut self, at: usize, is_kept: bool) {
        let keepers = &mut self.zones[at].keepers;
        *keepers = if is_kept { *keepers + 1 } else { *keepers - 1 };
        self.refresh(at);
    }

    /// Whether the next write of a walk over these zones resets the zone that it goes to: from `threshold` bytes of data on one
    /// write of `period` does.
    pub fn reset_is_due(&mut self, zones: &Range<usize>, threshold: f64, period: u64) -> bool {
        let Some(account) = self.accounts.iter_mut().find(|account| account.zones == *zones) else {
            return false;
        };
        if (account.bytes as f64) < threshold {
            return false;
        }
        if account.writes_left == 0 {
            account.writes_left = period;
        }
        account.writes_left -= 1;
        account.writes_left == 0
    }
}
