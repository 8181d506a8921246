//! Random numbers that are functions of a seed and a number: the `SplitMix64` generator (Steele, Lea, Flood 2014).

/// Random numbers of one edge or vertex.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    state: u64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Stream {
    /// Those of an edge or vertex of a seed.
    pub const fn of(seed: u64, number: u64) -> Self {
        Self { state: mix(seed.wrapping_add(GOLDEN)) ^ mix(number.wrapping_mul(GOLDEN)) }
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number below `limit`, which is above 0. It deviates from uniform by at most limit / 2^64.
    pub const fn below(&mut self, limit: u64) -> u64 {
        ((self.next() as u128 * limit as u128) >> 64) as u64
    }

    /// A number in (0, 1].
    pub fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// The finalizer of `SplitMix64`: a bijection of 64-bit numbers.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A pseudo-random permutation of the numbers of `bits` bits: rounds of an odd multiplication, an addition and a shifted
/// exclusive or, each of which is invertible within those bits.
pub const fn permuted(seed: u64, bits: u32, number: u64) -> u64 {
    if bits == 0 {
        return number;
    }
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let shift = bits.div_ceil(2);
    let mut keys = Stream::of(seed, u64::MAX);
    let mut value = number;
    let mut round = 0;
    while round < 4 {
        value = value.wrapping_mul(keys.next() | 1).wrapping_add(keys.next()) & mask;
        value ^= if shift < 64 { value >> shift } else { 0 };
        round += 1;
    }
    value
}
