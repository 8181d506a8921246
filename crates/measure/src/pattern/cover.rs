//! Every block once, in random order, before any again: a permutation without a table.
//!
//! Let 2^k be the smallest power of two that is not below the number of blocks.
//!
//! 1. A linear congruential generator modulo 2^k with multiplier ≡ 5 (mod 8) and odd increment visits
//!    each of the 2^k states once a period (Hull and Dobell, 1962).
//! 2. Its low bits have short periods, so each state goes through a bijection of k bits
//!    ([`super::scramble`]). A bijection keeps "each once".
//! 3. Results at or beyond the number of blocks are skipped; fewer than half are, on average.
//!
//! After the last block of a pass the constants are drawn anew, so that passes differ.

use super::Blocks;
use super::random::split_mix;
use super::scramble::Scramble;

/// A random order over `blocks` blocks; see the module's argument.
#[derive(Debug, Clone)]
pub struct Cover {
    blocks: u64,
    state: u64,
    multiplier: u64,
    increment: u64,
    scramble: Scramble,
    /// Blocks of this pass that were yielded.
    yielded: u64,
    pass: u64,
    seed: u64,
}

impl Cover {
    /// An order over `blocks` blocks that follows from `seed`.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(blocks: u64, seed: u64) -> Self {
        let mut cover = Self {
            blocks,
            state: 0,
            multiplier: 0,
            increment: 0,
            scramble: Scramble::new(blocks, &mut 0),
            yielded: 0,
            pass: 0,
            seed,
        };
        cover.start_pass();
        cover
    }

    /// How many passes over all blocks are complete.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.pass + u64::from(self.yielded == self.blocks)
    }

    /// How many blocks of the pass under way were yielded.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.yielded % self.blocks
    }

    /// Begins `passes` passes further on, at the first block of that pass.
    pub fn skip_passes(&mut self, passes: u64) {
        self.pass += passes;
        self.start_pass();
    }

    #[cold]
    fn start_pass(&mut self) {
        let mut source = self.seed ^ self.pass.wrapping_mul(0xd134_2543_de82_ef95);
        self.multiplier = (split_mix(&mut source) & !7) | 5;
        self.increment = split_mix(&mut source) | 1;
        self.state = split_mix(&mut source) & self.scramble.mask();
        self.scramble.redraw(&mut source);
        self.yielded = 0;
    }
}

impl Blocks for Cover {
    #[inline]
    fn next_block(&mut self) -> u64 {
        if self.yielded == self.blocks {
            self.pass += 1;
            self.start_pass();
        }
        loop {
            let block = self.scramble.apply(self.state);
            let next = self.state.wrapping_mul(self.multiplier).wrapping_add(self.increment);
            self.state = next & self.scramble.mask();
            if block < self.blocks {
                self.yielded += 1;
                return block;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_pass_visits_every_block_exactly_once(blocks in 1u64..5000, seed: u64) {
            let mut cover = Cover::new(blocks, seed);
            for pass in 0..3 {
                prop_assert_eq!(cover.passes(), pass);
                let mut seen = vec![false; blocks as usize];
                for _ in 0..blocks {
                    let block = cover.next_block() as usize;
                    prop_assert!(!seen[block], "block {} came twice", block);
                    seen[block] = true;
                }
                prop_assert_eq!((cover.passes(), cover.position()), (pass + 1, 0));
            }
        }

        #[test]
        fn skipping_passes_lands_where_walking_does(blocks in 1u64..500, seed: u64, passes in 0u64..4) {
            let (mut walked, mut skipped) = (Cover::new(blocks, seed), Cover::new(blocks, seed));
            for _ in 0..blocks * passes {
                walked.next_block();
            }
            skipped.skip_passes(passes);
            for _ in 0..blocks {
                prop_assert_eq!(walked.next_block(), skipped.next_block());
            }
        }

        #[test]
        fn the_same_seed_replays_the_same_order(blocks in 1u64..(1 << 40), seed: u64) {
            let (mut a, mut b) = (Cover::new(blocks, seed), Cover::new(blocks, seed));
            for _ in 0..100 {
                prop_assert_eq!(a.next_block(), b.next_block());
            }
        }
    }

    #[test]
    fn the_order_looks_random() {
        // Of successive blocks, few are neighbours, and a prefix falls evenly into cells.
        let blocks = 1 << 18;
        let mut cover = Cover::new(blocks, 42);
        let order: Vec<u64> = (0..blocks / 4).map(|_| cover.next_block()).collect();
        let near = order.windows(2).filter(|w| w[0].abs_diff(w[1]) < 64).count() as f64;
        let expected = order.len() as f64 * 128.0 / blocks as f64;
        assert!(near < expected * 2.0 + 10.0, "{near} of {expected} expected near pairs");
        let mut cells = [0_u32; 64];
        order.iter().for_each(|b| cells[(b * 64 / blocks) as usize] += 1);
        let mean = order.len() as f64 / 64.0;
        let chi2: f64 = cells.iter().map(|c| (f64::from(*c) - mean).powi(2) / mean).sum();
        // Sampling without replacement only lowers the statistic; 113 is the 99.99 % point with it.
        assert!(chi2 < 113.0, "chi2 = {chi2}");
    }

    #[test]
    fn successive_passes_differ() {
        let mut cover = Cover::new(1000, 1);
        let first: Vec<u64> = (0..1000).map(|_| cover.next_block()).collect();
        let second: Vec<u64> = (0..1000).map(|_| cover.next_block()).collect();
        assert_ne!(first, second);
    }

    #[test]
    fn the_largest_regions_work() {
        for blocks in [1, 2, 3, u64::MAX >> 12, (1 << 52) + 1] {
            let mut cover = Cover::new(blocks, 9);
            for _ in 0..100 {
                assert!(cover.next_block() < blocks);
            }
        }
    }
}
