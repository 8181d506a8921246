//! Graph500's generator: each bit of both ends chooses a quadrant of the adjacency matrix.

use std::ops::Range;

use super::random::{Stream, permuted};
use crate::VertexId;

/// Graph500's probabilities of three quadrants, in 1/2^32; the fourth has 0.05.
const A: u64 = share(57);
const B: u64 = share(19);
const C: u64 = share(19);

const fn share(percent: u64) -> u64 {
    (percent << 32) / 100
}

/// Edges of these numbers.
pub fn edges(scale: u32, seed: u64, numbers: Range<u64>) -> Vec<(VertexId, VertexId)> {
    let edge = |number| {
        let mut stream = Stream::of(seed, number);
        let (mut source, mut target) = (0, 0);
        let mut drawn = 0;
        for bit in 0..scale {
            // 64 bits are two draws.
            drawn = if bit.is_multiple_of(2) { stream.next() } else { drawn >> 32 };
            let (down, right) = quadrant(drawn & 0xffff_ffff);
            source = (source << 1) | down;
            target = (target << 1) | right;
        }
        (permuted(seed, scale, source), permuted(seed, scale, target))
    };
    numbers.map(edge).collect()
}

const fn quadrant(draw: u64) -> (u64, u64) {
    let down = draw >= A + B;
    let right = (draw >= A && !down) || draw >= A + B + C;
    (down as u64, right as u64)
}
