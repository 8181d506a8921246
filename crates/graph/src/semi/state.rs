//! What a search knows of each vertex. Threads share it through relaxed atomics: a level ends with all threads joined,
//! which orders everything before the next one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::UNREACHED;

/// A bit for each vertex.
#[derive(Debug)]
pub(super) struct Bits(Vec<AtomicU64>);

impl Bits {
    pub fn new(vertices: u64) -> Self {
        Self((0..vertices.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    #[inline]
    pub fn has(&self, vertex: u32) -> bool {
        self.word(vertex as usize / 64) >> (vertex % 64) & 1 != 0
    }

    /// Sets a bit; whether it was clear.
    #[inline]
    pub fn set(&self, vertex: u32) -> bool {
        let bit = 1 << (vertex % 64);
        self.0[vertex as usize / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    pub fn set_word(&self, at: usize, word: u64) {
        self.0[at].store(word, Ordering::Relaxed);
    }

    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    pub fn words(&self) -> usize {
        self.0.len()
    }

    /// Set bits of some words, ascending.
    pub fn ones(&self, words: std::ops::Range<usize>) -> impl Iterator<Item = u32> + '_ {
        words.flat_map(|at| ones_of(self.word(at)).map(move |bit| (at * 64) as u32 + bit))
    }
}

/// Positions of set bits, ascending.
pub(super) fn ones_of(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros();
            word &= word - 1;
            bit
        })
    })
}

/// See the module's argument.
#[derive(Debug)]
pub(super) struct State {
    pub parents: Vec<AtomicU32>,
    pub visited: Bits,
    pub front: Bits,
    pub next: Bits,
    /// In a bottom-up level, vertices without a parent among their heads.
    pub pending: Bits,
}

impl State {
    pub fn new(vertices: u64) -> Self {
        Self {
            parents: (0..vertices).map(|_| AtomicU32::new(UNREACHED)).collect(),
            visited: Bits::new(vertices),
            front: Bits::new(vertices),
            next: Bits::new(vertices),
            pending: Bits::new(vertices),
        }
    }

    /// Bytes of memory for a graph of this many vertices.
    pub fn memory_bytes(vertices: u64) -> u64 {
        4 * vertices + 4 * vertices.div_ceil(64) * 8
    }

    pub fn clear(&self) {
        self.parents.iter().for_each(|parent| parent.store(UNREACHED, Ordering::Relaxed));
        [&self.visited, &self.front, &self.next, &self.pending].into_iter().for_each(Bits::clear);
    }

    /// Gives a vertex its parent, unless it was visited; whether it got it.
    #[inline]
    pub fn claim(&self, vertex: u32, parent: u32) -> bool {
        let is_new = !self.visited.has(vertex) && self.visited.set(vertex);
        if is_new {
            self.parents[vertex as usize].store(parent, Ordering::Relaxed);
        }
        is_new
    }

    /// Makes the vertices that a level found the front of the next one; how many there are.
    pub fn advance(&self) -> u64 {
        let mut count = 0;
        for word in 0..self.next.words() {
            let next = self.next.word(word);
            count += u64::from(next.count_ones());
            self.front.set_word(word, next);
            self.next.set_word(word, 0);
        }
        count
    }

    pub fn parent(&self, vertex: u32) -> u32 {
        self.parents[vertex as usize].load(Ordering::Relaxed)
    }

    pub fn into_parents(self) -> Vec<u32> {
        // In place: both have the same size and alignment.
        self.parents.into_iter().map(AtomicU32::into_inner).collect()
    }
}
