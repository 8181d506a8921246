//! A map that is larger than the controller's memory: which entries are in memory, least recently used first out.

use std::collections::HashMap;

use super::ftl::NONE;
use super::hash::PageHash;

/// An entry in memory: one of the list of all by use, and of the list of those of its page of the map.
#[derive(Debug, Clone, Copy)]
struct Slot {
    logical: u32,
    dirty: bool,
    newer: u32,
    older: u32,
    sibling_before: u32,
    sibling_after: u32,
}

/// The entries of the map that are in memory. An entry that is still being read from flash counts as present: what waits for
/// it is known to the drive.
#[derive(Debug)]
pub struct MappingCache {
    capacity: usize,
    entries_per_page: u32,
    slot_of: HashMap<u32, u32, PageHash>,
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
    /// An entry of each page of the map.
    first_of_page: Vec<u32>,
}

/// What a look-up finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup {
    /// The entry is in memory.
    pub hit: bool,
    /// A page of the map, by its number, that must be written back because an entry of it made room.
    pub write_back: Option<u32>,
}

impl MappingCache {
    /// Room for `capacity` entries of a map of `pages` logical pages.
    #[must_use]
    pub fn new(capacity: u32, entries_per_page: u32, pages: u32) -> Self {
        Self {
            capacity: capacity as usize,
            entries_per_page,
            slot_of: HashMap::default(),
            slots: Vec::new(),
            newest: NONE,
            oldest: NONE,
            first_of_page: vec![NONE; pages.div_ceil(entries_per_page) as usize],
        }
    }

    /// The page of the map with the entry of `logical`.
    #[must_use]
    pub fn page_of(&self, logical: u32) -> u32 {
        logical / self.entries_per_page
    }

    /// Finds the entry of `logical`, or makes room for it; `dirty` if it is about to change.
    pub fn look_up(&mut self, logical: u32, dirty: bool) -> Lookup {
        if let Some(slot) = self.slot_of.get(&logical).copied() {
            self.unlink(slot);
            self.link(slot);
            self.slots[slot as usize].dirty |= dirty;
            return Lookup { hit: true, write_back: None };
        }
        let none = NONE;
        let entry =
            Slot { logical, dirty, newer: none, older: none, sibling_before: none, sibling_after: none };
        let mut write_back = None;
        let slot = if self.slots.len() < self.capacity {
            self.slots.push(entry);
            self.slots.len() as u32 - 1
        } else {
            let slot = self.oldest;
            let evicted = self.slots[slot as usize];
            let page = self.page_of(evicted.logical);
            self.unlink(slot);
            self.leave_page(slot);
            self.slot_of.remove(&evicted.logical);
            self.slots[slot as usize] = entry;
            if evicted.dirty {
                self.clean(page);
                write_back = Some(page);
            }
            slot
        };
        self.slot_of.insert(logical, slot);
        self.link(slot);
        self.join_page(slot);
        Lookup { hit: false, write_back }
    }

    /// Marks all entries of `page` as written back.
    fn clean(&mut self, page: u32) {
        let mut slot = self.first_of_page[page as usize];
        while slot != NONE {
            self.slots[slot as usize].dirty = false;
            slot = self.slots[slot as usize].sibling_after;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn link(&mut self, slot: u32) {
        let older = std::mem::replace(&mut self.newest, slot);
        let entry = &mut self.slots[slot as usize];
        (entry.newer, entry.older) = (NONE, older);
        match older {
            NONE => self.oldest = slot,
            older => self.slots[older as usize].newer = slot,
        }
    }

    fn join_page(&mut self, slot: u32) {
        let page = self.page_of(self.slots[slot as usize].logical);
        let after = std::mem::replace(&mut self.first_of_page[page as usize], slot);
        self.slots[slot as usize].sibling_after = after;
        if after != NONE {
            self.slots[after as usize].sibling_before = slot;
        }
    }

    fn leave_page(&mut self, slot: u32) {
        let Slot { logical, sibling_before, sibling_after, .. } = self.slots[slot as usize];
        match sibling_before {
            NONE => {
                let page = self.page_of(logical);
                self.first_of_page[page as usize] = sibling_after;
            }
            before => self.slots[before as usize].sibling_after = sibling_after,
        }
        if sibling_after != NONE {
            self.slots[sibling_after as usize].sibling_before = sibling_before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_used_longest_ago_makes_room() {
        let mut cache = MappingCache::new(2, 4, 100);
        assert!(!cache.look_up(1, false).hit);
        assert!(!cache.look_up(2, false).hit);
        assert!(cache.look_up(1, false).hit);
        assert!(!cache.look_up(3, false).hit);
        assert!(cache.look_up(1, false).hit);
        assert!(!cache.look_up(2, false).hit);
    }

    #[test]
    fn one_write_back_cleans_all_entries_of_its_page() {
        let mut cache = MappingCache::new(2, 4, 100);
        cache.look_up(0, true);
        cache.look_up(1, true);
        assert_eq!(cache.look_up(8, false).write_back, Some(0));
        assert_eq!(cache.look_up(12, false).write_back, None);
    }
}
