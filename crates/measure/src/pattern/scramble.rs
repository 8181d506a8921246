//! A bijection of the numbers below a power of two, by which regular orders are made to look random.
//!
//! Xor-shift, odd multiplication, xor-shift, odd multiplication, xor-shift: each step can be undone, so
//! that no two numbers meet.

use super::random::split_mix;

/// A bijection of the k-bit numbers, 2^k being the smallest power of two that holds all blocks.
#[derive(Debug, Clone)]
pub(super) struct Scramble {
    mask: u64,
    /// Half the bits, rounded up: the shift that makes xor-shift mix the upper half into the lower.
    shift: u32,
    factors: [u64; 2],
}

impl Scramble {
    /// One over enough bits for `blocks` blocks, with factors drawn from `source`.
    ///
    /// # Panics
    /// If there are no blocks.
    pub fn new(blocks: u64, source: &mut u64) -> Self {
        assert!(blocks > 0, "a region has at least one block");
        let bits = (64 - (blocks - 1).leading_zeros()).max(1);
        Self { mask: u64::MAX >> (64 - bits), shift: bits.div_ceil(2), factors: Self::draw(source) }
    }

    /// Draws other factors for the same numbers.
    pub fn redraw(&mut self, source: &mut u64) {
        self.factors = Self::draw(source);
    }

    fn draw(source: &mut u64) -> [u64; 2] {
        [split_mix(source) | 1, split_mix(source) | 1]
    }

    /// The largest number.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Where `x`, at most [`mask`](Self::mask), goes.
    #[inline]
    pub fn apply(&self, mut x: u64) -> u64 {
        x ^= x >> self.shift;
        x = x.wrapping_mul(self.factors[0]) & self.mask;
        x ^= x >> self.shift;
        x = x.wrapping_mul(self.factors[1]) & self.mask;
        x ^ (x >> self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_numbers_meet() {
        for blocks in [1, 2, 3, 8, 1000, 4096, 4097] {
            let scramble = Scramble::new(blocks, &mut 11);
            let mut seen = vec![false; scramble.mask() as usize + 1];
            for x in 0..=scramble.mask() {
                let to = scramble.apply(x) as usize;
                assert!(!seen[to], "{blocks} blocks: {to} is met twice");
                seen[to] = true;
            }
        }
    }
}
