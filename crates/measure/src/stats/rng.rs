//! A seeded generator, so that a resampled figure is the same tomorrow.
//!
//! SplitMix64 ([`split_mix`]); its period of 2^64 is far above the draws of any bootstrap here.

use crate::pattern::split_mix;

/// The state is the counter.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Uniform in `0..n` by multiply-shift; the bias is below n/2^64, which no resample can show.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed in Python from the paper's definition with arbitrary-precision integers:
    /// `s=(s+0x9e3779b97f4a7c15)%2**64; z=s; z=(z^(z>>30))*0xbf58476d1ce4e5b9%2**64;
    /// z=(z^(z>>27))*0x94d049bb133111eb%2**64; z^(z>>31)` from s = 1234567.
    #[test]
    fn the_sequence_is_that_of_the_paper() {
        let mut rng = SplitMix64::new(1_234_567);
        assert_eq!(
            [rng.next_u64(), rng.next_u64(), rng.next_u64()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn every_value_below_n_comes_up_equally_often() {
        let mut rng = SplitMix64::new(7);
        let mut counts = [0u32; 5];
        for _ in 0..50_000 {
            counts[rng.below(5)] += 1;
        }
        // Ten thousand each, sd 89: five sd either way.
        assert!(counts.iter().all(|c| (9_550..10_450).contains(c)), "{counts:?}");
    }
}
