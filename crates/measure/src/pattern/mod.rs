//! The offsets that a workload visits, without a bitmap.
//!
//! fio remembers which blocks it has visited in a bitmap of the device. Here a random order that
//! covers every block once is a *permutation computed on the fly* ([`Cover`]): a full-period
//! generator over the next power of two, its state scrambled by a bijection, values beyond the last
//! block skipped. It needs 16 bytes whatever the device's size, and can be replayed from its seed,
//! which is how verification knows what was written without having kept a list.
//!
//! Every generator yields block numbers in `0..blocks`; the caller multiplies by the block size. All are
//! deterministic from their seed.

mod cover;
mod given;
mod random;
mod scramble;
mod skew;
mod steady;
mod zoned;

pub use cover::Cover;
pub use given::{Given, Strided};
pub use random::{Rng, split_mix};
pub use skew::{Pareto, Zipf};
pub use steady::{Steady, SteadyWrites};
pub use zoned::Zoned;

/// A stream of block numbers.
pub trait Blocks {
    /// The next block, below the number of blocks it was made for.
    fn next_block(&mut self) -> u64;
}

/// Block after block, from the first again after the last.
#[derive(Debug, Clone)]
pub struct Sequential {
    next: u64,
    blocks: u64,
}

impl Sequential {
    /// Over `blocks` blocks, beginning with the first.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        assert!(blocks > 0, "a region has at least one block");
        Self { next: 0, blocks }
    }
}

impl Sequential {
    /// The next block is the first again.
    pub fn restart(&mut self) {
        self.next = 0;
    }
}

impl Blocks for Sequential {
    #[inline]
    fn next_block(&mut self) -> u64 {
        let block = self.next;
        self.next = if block + 1 == self.blocks { 0 } else { block + 1 };
        block
    }
}

/// Every block as likely as any other, each drawn afresh: fio's `norandommap`.
#[derive(Debug, Clone)]
pub struct Uniform {
    rng: Rng,
    blocks: u64,
}

impl Uniform {
    /// Over `blocks` blocks.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(blocks: u64, seed: u64) -> Self {
        assert!(blocks > 0, "a region has at least one block");
        Self { rng: Rng::new(seed), blocks }
    }
}

impl Blocks for Uniform {
    #[inline]
    fn next_block(&mut self) -> u64 {
        self.rng.below(self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequential_wraps_to_the_first_block() {
        let mut s = Sequential::new(3);
        let seen: Vec<u64> = (0..7).map(|_| s.next_block()).collect();
        assert_eq!(seen, [0, 1, 2, 0, 1, 2, 0]);
    }

    proptest! {
        #[test]
        fn every_generator_stays_below_the_number_of_blocks(blocks in 1u64..(1 << 50), seed: u64) {
            let mut all: [Box<dyn Blocks>; 5] = [
                Box::new(Sequential::new(blocks)),
                Box::new(Uniform::new(blocks, seed)),
                Box::new(Cover::new(blocks, seed)),
                Box::new(Zipf::new(blocks, 1.2, seed)),
                Box::new(Pareto::new(blocks, 0.2, seed)),
            ];
            for generator in &mut all {
                for _ in 0..50 {
                    prop_assert!(generator.next_block() < blocks);
                }
            }
        }
    }
}
