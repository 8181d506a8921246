//! Pages, hosts and links.
//!
//! Pages are numbered host by host, as crawlers' sorted addresses are. Hosts have 256 pages. The number of links of a page
//! is heavy-tailed (Pareto, exponent 2.1) with the asked mean. Of the links, 80 % lead to near pages of the same host, at a
//! distance that is geometrically distributed; the others to a host drawn by a power law and, there, mostly to its
//! first page. A page in 16 has no link but the one from its predecessor, which makes long chains.

use std::ops::Range;

use super::random::{Stream, permuted};
use crate::VertexId;

/// Pages of a host, as a power of two.
const HOST_BITS: u32 = 8;
/// Exponent of the distribution of links.
const EXPONENT: f64 = 2.1;
/// Out of 16: links within the host; links to a host's first page among the others; pages of a chain.
const LOCAL_OF_16: u64 = 13;
const FRONT_OF_16: u64 = 12;
/// The most links of a page, in multiples of the mean.
const MOST_OF_MEAN: f64 = 1000.0;

/// Links of these pages.
pub fn edges(scale: u32, edge_factor: u32, seed: u64, pages: Range<u64>) -> Vec<(VertexId, VertexId)> {
    let count = 1u64 << scale;
    let host_bits = HOST_BITS.min(scale);
    let hosts = count >> host_bits;
    let mean = f64::from(edge_factor);
    // The mean of a Pareto distribution from `least` on is least * a / (a - 1), a = EXPONENT - 1.
    let least = mean * (EXPONENT - 2.0) / (EXPONENT - 1.0);
    let mut edges = Vec::new();
    for page in pages {
        let mut stream = Stream::of(seed, page);
        if page + 1 < count {
            edges.push((page, page + 1));
        }
        if stream.below(16) == 0 {
            continue;
        }
        let drawn = least * stream.fraction().powf(-1.0 / (EXPONENT - 1.0));
        let links = drawn.min(mean * MOST_OF_MEAN).round() as u64;
        let first = (page >> host_bits) << host_bits;
        for _ in 0..links {
            let target = if stream.below(16) < LOCAL_OF_16 {
                let distance = 1 + u64::from(stream.next().trailing_zeros()) * 4 + stream.below(4);
                let is_ahead = stream.below(2) == 0;
                let at = page - first;
                let size = 1 << host_bits;
                first + (if is_ahead { at + distance } else { at + size - distance % size }) % size
            } else {
                // A squared fraction prefers small ranks: density ~ rank^(-1/2); four times, rank^(-3/4).
                let rank = (stream.fraction().powi(4) * hosts as f64) as u64;
                let host = permuted(seed, scale - host_bits, rank.min(hosts - 1));
                let within = if stream.below(16) < FRONT_OF_16 { 0 } else { stream.below(1 << host_bits) };
                (host << host_bits) + within
            };
            edges.push((page, target));
        }
    }
    edges
}
