//! Which way each of many searches goes, so that all together read the fewest pages.
//!
//! For each page of the lists two words say which searches would read it: going top-down, because a list of their front lies on
//! it, and going bottom-up, because the list of a vertex that has none of their front among its heads begins on it. A page
//! that one search reads costs the others nothing. So each search begins with the way that reads less for it alone, and then
//! turns as long as that makes the union of all pages smaller.

use crate::format::{Header, List, PAGE_BYTES, SectionKind};

/// Rounds of turning; the union shrinks with each turn, and hardly after the second round.
const MOST_ROUNDS: usize = 4;

/// See the module's argument.
#[derive(Debug)]
pub(super) struct Choice {
    first_page: u64,
    down: Vec<u64>,
    up: Vec<u64>,
}

impl Choice {
    pub fn of(header: &Header) -> Self {
        let pages = pages_of(header) as usize;
        let first_page = header.section(SectionKind::Adjacency).offset / PAGE_BYTES;
        Self { first_page, down: vec![0; pages], up: vec![0; pages] }
    }

    /// Bytes of memory.
    pub fn memory_bytes(header: &Header) -> u64 {
        pages_of(header) * 16
    }

    /// Pages of all lists.
    pub fn pages(&self) -> u64 {
        self.down.len() as u64
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.down.fill(0);
        self.up.fill(0);
    }

    /// A list of the front of some searches.
    pub fn add_front(&mut self, list: List, searches: u64) {
        let end = list.offset + list.degree * 4;
        for page in list.offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            self.down[(page - self.first_page) as usize] |= searches;
        }
    }

    /// The list of a vertex that some searches miss.
    pub fn add_missing(&mut self, list: List, searches: u64) {
        self.up[(list.offset / PAGE_BYTES - self.first_page) as usize] |= searches;
    }

    /// Pages that each search would read top-down.
    pub fn down_alone(&self) -> [u64; 64] {
        counts(&self.down)
    }

    /// Pages that are read if these searches go top-down and those bottom-up.
    pub fn union(&self, down: u64, up: u64) -> u64 {
        self.down.iter().zip(&self.up).map(|(d, u)| u64::from(d & down | u & up != 0)).sum()
    }

    /// The searches that go top-down, and those that go bottom-up.
    pub fn choose(&self, active: u64) -> (u64, u64) {
        let alone = counts(&self.down).into_iter().zip(counts(&self.up));
        let upwards = |(search, (down, up))| if up < down { 1_u64 << search } else { 0 };
        let mut up = (0..).zip(alone).map(upwards).sum::<u64>() & active;
        let mut least = self.union(active & !up, up);
        for _ in 0..MOST_ROUNDS {
            let before = least;
            for turned in (0..64).map(|search| 1 << search).filter(|bit| active & bit != 0) {
                let pages = self.union(active & !(up ^ turned), up ^ turned);
                if pages < least {
                    (least, up) = (pages, up ^ turned);
                }
            }
            if least == before {
                break;
            }
        }
        (active & !up, up)
    }
}

fn pages_of(header: &Header) -> u64 {
    header.section(SectionKind::Adjacency).length.div_ceil(PAGE_BYTES)
}

fn counts(words: &[u64]) -> [u64; 64] {
    let mut counts = [0; 64];
    for word in words {
        let mut left = *word;
        while left != 0 {
            counts[left.trailing_zeros() as usize] += 1;
            left &= left - 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_takes_the_pages_that_another_reads_anyway() {
        // Alone, the second search would go top-down and read page 3; the first needs pages 0 to 2 bottom-up in any case.
        let choice = Choice {
            first_page: 0,
            down: vec![0b01, 0b01, 0b01, 0b11, 0b01],
            up: vec![0b11, 0b11, 0b01, 0, 0],
        };
        assert_eq!(choice.down_alone()[..3], [5, 1, 0]);
        assert_eq!(choice.union(0b10, 0b01), 4);
        assert_eq!(choice.choose(0b11), (0, 0b11));
        assert_eq!(choice.choose(0b10), (0b10, 0));
    }

    #[test]
    fn a_long_list_counts_with_all_its_pages_or_its_first() {
        let mut choice = Choice { first_page: 2, down: vec![0; 4], up: vec![0; 4] };
        choice.add_front(List { offset: 2 * PAGE_BYTES, degree: 1025 }, 1);
        choice.add_missing(List { offset: 4 * PAGE_BYTES, degree: 2000 }, 2);
        assert_eq!((choice.down.clone(), choice.up.clone()), (vec![1, 1, 0, 0], vec![0, 0, 2, 0]));
        choice.clear();
        assert_eq!(choice.union(u64::MAX, u64::MAX), 0);
    }
}
