//! Pages that were read lately, in sets of eight; which of a set is replaced is drawn at random.
//!
//! A search whose front moves slowly, as on roads, reads the same pages level after level in the same order. As soon as they are
//! one more than the pool holds, replacing what was used longest ago replaces just what is wanted next, and the pool serves
//! nothing. Drawn at random, what is found falls gently as memory gets short. Where all that is wanted fits, both are as good.

use crate::format::PAGE_BYTES;

/// Pages of a set.
const WAYS: usize = 8;
/// The number of no page.
const VACANT: u64 = u64::MAX;
const PAGE: usize = PAGE_BYTES as usize;
/// Bytes of memory of a set.
const SET_BYTES: usize = WAYS * (PAGE + size_of::<u64>());

/// See the module's argument.
#[derive(Debug)]
pub struct PagePool {
    pages: Vec<u8>,
    numbers: Vec<u64>,
    /// State of the generator (xorshift, Marsaglia 2003): never 0, and the same draws in each run.
    draws: u64,
}

impl PagePool {
    /// What a pool takes that has room for lists of this many bytes, and for where they begin and end within pages.
    #[must_use]
    pub fn bytes_for(lists: u64) -> u64 {
        (lists.div_ceil(PAGE_BYTES) + 1).div_ceil(WAYS as u64) * SET_BYTES as u64
    }

    /// A pool within this many bytes; None below one set.
    #[must_use]
    pub fn within(bytes: u64) -> Option<Self> {
        let sets = bytes as usize / SET_BYTES;
        let slots = sets * WAYS;
        (sets > 0).then(|| Self {
            pages: vec![0; slots * PAGE],
            numbers: vec![VACANT; slots],
            draws: 0x9e37_79b9_7f4a_7c15,
        })
    }

    fn set_of(&self, page: u64) -> usize {
        page as usize % (self.numbers.len() / WAYS) * WAYS
    }

    fn find(&self, page: u64) -> Option<usize> {
        let set = self.set_of(page);
        self.numbers[set..set + WAYS].iter().position(|number| *number == page).map(|way| set + way)
    }

    /// The slot that a new page gets: a vacant one, else one at random.
    fn slot_for(&mut self, page: u64) -> usize {
        let set = self.set_of(page);
        if let Some(way) = self.numbers[set..set + WAYS].iter().position(|number| *number == VACANT) {
            return set + way;
        }
        self.draws ^= self.draws << 13;
        self.draws ^= self.draws >> 7;
        self.draws ^= self.draws << 17;
        set + (self.draws >> 32) as usize % WAYS
    }

    /// Passes a range to `visit`, page by page, if all of its pages are here; whether they are.
    pub fn visit(&self, offset: u64, length: u64, visit: &mut impl FnMut(u64, &[u8])) -> bool {
        let end = offset + length;
        let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        if pages.clone().any(|page| self.find(page).is_none()) {
            return false;
        }
        for page in pages {
            let Some(slot) = self.find(page) else { return false };
            let from = offset.max(page * PAGE_BYTES) - page * PAGE_BYTES;
            let to = end.min((page + 1) * PAGE_BYTES) - page * PAGE_BYTES;
            let bytes = &self.pages[slot * PAGE..(slot + 1) * PAGE];
            visit(page * PAGE_BYTES + from, &bytes[from as usize..to as usize]);
        }
        true
    }

    /// Keeps whole pages that were read at `offset`.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        for (i, bytes) in bytes.chunks_exact(PAGE).enumerate() {
            let page = offset / PAGE_BYTES + i as u64;
            let slot = self.find(page).unwrap_or_else(|| self.slot_for(page));
            self.numbers[slot] = page;
            self.pages[slot * PAGE..(slot + 1) * PAGE].copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds over pages in ascending order, each put where it was not found; what was found of the last ten rounds.
    fn found_of_last_rounds(pool: &mut PagePool, pages: u64) -> f64 {
        let (rounds, mut found) = (20, 0);
        for round in 0..rounds {
            for page in 0..pages {
                let bytes = [page as u8; PAGE];
                let is_found =
                    pool.visit(page * PAGE_BYTES, PAGE_BYTES, &mut |_, kept| assert_eq!(kept, bytes));
                if !is_found {
                    pool.put(page * PAGE_BYTES, &bytes);
                }
                found += u64::from(is_found && round >= rounds / 2);
            }
        }
        found as f64 / (pages * rounds / 2) as f64
    }

    #[test]
    fn a_round_that_is_larger_than_the_pool_finds_a_part_of_its_pages() {
        let sets = 64;
        let mut pool = PagePool::within(sets * SET_BYTES as u64).expect("has room");
        let slots = pool.numbers.len() as u64;
        assert_eq!(found_of_last_rounds(&mut pool, slots), 1.0, "all that fits is kept");
        // The least recently used would be replaced just before it is wanted: nothing would be found.
        let share = found_of_last_rounds(&mut pool, slots * 5 / 4);
        assert!(share > 0.4, "{share}");
    }

    #[test]
    fn a_range_is_visited_whole_or_not_at_all() {
        let mut pool = PagePool::within(1 << 20).expect("has room");
        pool.put(2 * PAGE_BYTES, &[7; 2 * PAGE]);
        let mut parts = Vec::new();
        let mut visit = |offset: u64, bytes: &[u8]| parts.push((offset, bytes.len()));
        assert!(!pool.visit(3 * PAGE_BYTES + 8, PAGE_BYTES, &mut visit));
        assert!(pool.visit(3 * PAGE_BYTES - 8, 16, &mut visit));
        assert_eq!(parts, [(3 * PAGE_BYTES - 8, 8), (3 * PAGE_BYTES, 8)]);
        assert!(PagePool::within(PAGE_BYTES).is_none());
    }
}
