//! Which of many points are tried: all of them, or a sample drawn by a seed.

use std::collections::BTreeSet;

/// Are all points to be tried?
pub fn full() -> bool {
    std::env::var("FLASHWRIGHT_CRASH").is_ok_and(|value| value == "full")
}

/// How many of `most` points a run takes: a fifth of them, at least two, so that `make test` takes a minute and a half
/// for them; all with FLASHWRIGHT_CRASH=more. As on NFS a fifteenth, at least four, because both programs have the greater part in common.
pub fn share(most: usize) -> usize {
    let more = std::env::var("FLASHWRIGHT_CRASH").is_ok_and(|value| value == "more");
    if more || full() { most } else { if crate::LIKE_NFS { (most / 15).max(4) } else { (most / 5).max(2) } }
}

/// The seed of `make test`.
pub const USUAL_SEED: u64 = 2009;

/// The seed of this run.
pub fn seed() -> u64 {
    std::env::var("FLASHWRIGHT_CRASH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(USUAL_SEED)
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub struct Random(u64);

impl Random {
    /// The same numbers for the same run and the same name.
    pub fn of(name: &str) -> Self {
        Self(name.bytes().fold(seed(), |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Counts the cases in which a fault really struck. A test in which none did has shown nothing, and fails.
pub struct Struck {
    test: String,
    cases: u64,
    struck: u64,
}

impl Struck {
    pub fn of(test: impl Into<String>) -> Self {
        Self { test: test.into(), cases: 0, struck: 0 }
    }

    /// One more case; returns `struck`.
    pub fn case(&mut self, struck: bool) -> bool {
        self.cases += 1;
        self.struck += u64::from(struck);
        struck
    }
}

impl Drop for Struck {
    fn drop(&mut self) {
        let Self { test, cases, struck } = self;
        assert!(*struck > 0 || std::thread::panicking(), "{test}: nothing was struck in {cases} cases");
    }
}

/// `most` of `0..count`, or all of them in a full run, in order.
pub fn points(name: &str, count: u64, most: usize) -> Vec<u64> {
    if full() || count <= most as u64 {
        return (0..count).collect();
    }
    let mut random = Random::of(name);
    let mut drawn = BTreeSet::new();
    while drawn.len() < most {
        drawn.insert(random.below(count));
    }
    drawn.into_iter().collect()
}
