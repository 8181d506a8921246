//! A lattice with gaps, as roads are.

use std::ops::Range;

use super::random::Stream;
use crate::VertexId;

/// The share of the lattice's edges that are there, in 1/2^64. Above the threshold of 1/2 at which a square lattice falls
/// apart, so that nearly all vertices are connected.
const PRESENT: u64 = u64::MAX / 10 * 7;

/// The edges to the right and down of these vertices, whose numbers run along the rows.
pub fn edges(scale: u32, seed: u64, vertices: Range<u64>) -> Vec<(VertexId, VertexId)> {
    let columns = 1u64 << scale.div_ceil(2);
    let count = 1u64 << scale;
    let mut edges = Vec::new();
    for vertex in vertices {
        let mut stream = Stream::of(seed, vertex);
        let (right, down) = (stream.next() < PRESENT, stream.next() < PRESENT);
        if right && !(vertex + 1).is_multiple_of(columns) {
            edges.push((vertex, vertex + 1));
        }
        if down && vertex + columns < count {
            edges.push((vertex, vertex + columns));
        }
    }
    edges
}
