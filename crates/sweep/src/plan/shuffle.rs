//! Random orders that come out the same on every machine and in every version.
//!
//! SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, §4) is written down in this project, and held to its
//! published values by tests, so that no library's change of mind can reorder a recorded sweep. It
//! passes BigCrush, and 2^64 states are more than enough to order a block.

use std::hash::{BuildHasher, RandomState};

use measure::pattern::split_mix;

/// The generator of Steele, Lea and Flood; one `u64` of state.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator whose stream follows from `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream of one block: seed and block number are mixed, so that neighbouring blocks, and
    /// neighbouring seeds, share nothing.
    #[must_use]
    pub fn for_block(seed: u64, pass: u32) -> Self {
        let mut of_seed = Self(seed);
        let mut of_block = Self(of_seed.next_u64() ^ u64::from(pass).wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(of_block.next_u64())
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// A number below `bound`, each as likely as any other (Lemire, "Fast random integer generation
    /// in an interval", 2019: multiply, and reject the few products that would favour some).
    ///
    /// # Panics
    /// Where `bound` is 0: there is no such number.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }
}

/// 0 to `count` − 1 in the order of block `pass` under `seed`: the Fisher–Yates shuffle, in which
/// each order is as likely as any other.
#[must_use]
pub fn permutation(count: u32, seed: u64, pass: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = SplitMix64::for_block(seed, pass);
    for last in (1..order.len()).rev() {
        let chosen = random.below(last as u64 + 1) as usize;
        order.swap(last, chosen);
    }
    order
}

/// The seed of the offsets of one run. Each pass walks other offsets: passes that repeated the same
/// ones would find what the pass before left in the drive's caches, and would be no independent
/// samples. Controls have a stream of their own by their position.
#[must_use]
pub fn run_seed(seed: u64, position: u32) -> u64 {
    let mut random = SplitMix64::new(seed ^ 0x6f66_6673_6574_7300);
    SplitMix64::new(random.next_u64() ^ u64::from(position)).next_u64()
}

/// A seed for a sweep that names none; to be recorded with it. 53 bits, so that programs which read
/// JSON numbers as floating point see the same one.
#[must_use]
pub fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_nanos());
    RandomState::new().hash_one(now) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // Reference values: the test vector for seed 1234567 that accompanies the public-domain C
        // version by Vigna (splitmix64.c), as listed at rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64.
        let mut random = SplitMix64::new(1_234_567);
        let stream: Vec<u64> = (0..5).map(|_| random.next_u64()).collect();
        assert_eq!(
            stream,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    #[test]
    fn every_order_of_four_is_about_as_likely_as_any_other() {
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..24_000 {
            *seen.entry(permutation(4, seed, 1)).or_insert(0u32) += 1;
        }
        assert_eq!(seen.len(), 24);
        // Binomial(24000, 1/24): mean 1000, deviation 31; five deviations either way.
        assert!(seen.values().all(|n| (845..1155).contains(n)), "{seen:?}");
    }

    #[test]
    fn a_bound_is_kept() {
        let mut random = SplitMix64::new(7);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn fresh_seeds_differ_and_survive_floating_point() {
        let (a, b) = (fresh_seed(), fresh_seed());
        assert_ne!(a, b);
        assert_eq!(a as f64 as u64, a);
    }
}
