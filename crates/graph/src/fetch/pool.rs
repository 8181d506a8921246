//! Pages that were read lately: sets of eight, the least recently used of a set is replaced.

use crate::format::PAGE_BYTES;

/// Pages of a set.
const WAYS: usize = 8;
/// The number of no page.
const VACANT: u64 = u64::MAX;
const PAGE: usize = PAGE_BYTES as usize;

/// See the module's argument.
#[derive(Debug)]
pub struct PagePool {
    pages: Vec<u8>,
    numbers: Vec<u64>,
    used: Vec<u64>,
    clock: u64,
}

impl PagePool {
    /// A pool within this many bytes; None below one set.
    #[must_use]
    pub fn within(bytes: u64) -> Option<Self> {
        let sets = bytes as usize / (WAYS * (PAGE + 16));
        let slots = sets * WAYS;
        (sets > 0).then(|| Self {
            pages: vec![0; slots * PAGE],
            numbers: vec![VACANT; slots],
            used: vec![0; slots],
            clock: 0,
        })
    }

    fn set_of(&self, page: u64) -> usize {
        page as usize % (self.numbers.len() / WAYS) * WAYS
    }

    fn find(&self, page: u64) -> Option<usize> {
        let set = self.set_of(page);
        self.numbers[set..set + WAYS].iter().position(|number| *number == page).map(|way| set + way)
    }

    /// Passes a range to `visit`, page by page, if all of its pages are here; whether they are.
    pub fn visit(&mut self, offset: u64, length: u64, visit: &mut impl FnMut(u64, &[u8])) -> bool {
        let end = offset + length;
        let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        if pages.clone().any(|page| self.find(page).is_none()) {
            return false;
        }
        for page in pages {
            let Some(slot) = self.find(page) else { return false };
            self.clock += 1;
            self.used[slot] = self.clock;
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
            let set = self.set_of(page);
            let oldest = || (set..set + WAYS).min_by_key(|slot| self.used[*slot]).expect("a set has ways");
            let slot = self.find(page).unwrap_or_else(oldest);
            self.clock += 1;
            (self.numbers[slot], self.used[slot]) = (page, self.clock);
            self.pages[slot * PAGE..(slot + 1) * PAGE].copy_from_slice(bytes);
        }
    }
}
