//! A chase of pointers, and the clock that it runs against.
//!
//! **Latency of memory** is the time from one load to the next where the next address is what the load returned. A set
//! is laid out as one cycle through all its cache lines in random order (Sattolo 1986), so that no prefetcher knows the
//! next line, and each is visited before any is visited again. lmbench's lat_mem_rd goes backwards in strides,
//! which today's prefetchers follow; Intel's MLC switches them off as root; multichase and this go at random and in
//! huge pages, so that it is not the page tables that are measured.
//!
//! **A cycle's length** is not what /proc/cpuinfo says: clocks change with load, and a virtual machine may be told
//! anything. A chain of additions and exclusive-ors, each of which takes the result of the one before, does one a cycle
//! on every CPU of the last decades. They alternate because no compiler has a formula for that, and their operands
//! are not constants because some CPUs add constants while renaming registers, in no time at all.

use std::hint::black_box;
use std::time::{Duration, Instant};

use measure::pattern::split_mix;

/// Operations of a chain whose time is taken at once: some 16 µs.
const CHAIN: u64 = 40_000;
/// How often it is taken; the fastest counts, since nothing makes a CPU faster than its clock.
const ATTEMPTS: u32 = 5;
/// Parts of a measurement whose median is taken: many and short, so that those in which the CPU was taken away are few.
const PARTS: u32 = 64;
/// How often a part's length is tried: one try may have been interrupted.
const TRIES: u32 = 3;

/// Makes `words` one cycle in random order through every `stride`th word: each holds the index of the next.
/// Nothing else of `words` is changed.
///
/// # Panics
/// If `stride` is 0.
pub fn lay(words: &mut [u64], stride: usize, seed: u64) {
    let mut seed = seed;
    let nodes = words.len().div_ceil(stride);
    for node in 0..nodes {
        words[node * stride] = (node * stride) as u64;
    }
    for node in (1..nodes).rev() {
        // Uniform below `node` by multiply-shift; never itself, which is what makes it one cycle.
        let other = ((u128::from(split_mix(&mut seed)) * node as u128) >> 64) as usize;
        words.swap(node * stride, other * stride);
    }
}

/// Follows the cycle for `loads` loads, and says where it came to. One load depends on the other and on nothing else;
/// the check of bounds is a branch beside it that is never taken.
#[inline(never)]
#[must_use]
pub fn follow(words: &[u64], from: usize, loads: u64) -> usize {
    let mut at = from;
    for _ in 0..loads {
        at = words[at] as usize;
    }
    at
}

/// Nanoseconds a load over a laid cycle of `nodes` nodes: the median of many parts of `time`, after one way around
/// or as far as one comes in `time`.
#[must_use]
pub fn latency_ns(words: &[u64], nodes: usize, time: Duration) -> f64 {
    let part = (time / PARTS).max(Duration::from_micros(20));
    let mut at = 0;
    let mut timed = |loads: u64| {
        let start = Instant::now();
        at = follow(words, at, loads);
        start.elapsed()
    };
    let mut loads = 64;
    let (mut warmed, begun) = (0, Instant::now());
    // Until a part takes long enough to be measured, and the set is where it is going to be.
    loop {
        let took = (0..TRIES).map(|_| timed(loads)).min().unwrap_or_default();
        warmed += loads * u64::from(TRIES);
        let warm = warmed >= nodes as u64 || begun.elapsed() >= time;
        if took >= part && warm {
            break;
        }
        if took < part {
            loads = loads.saturating_mul(2);
        }
    }
    let mut parts: Vec<f64> = (0..PARTS).map(|_| timed(loads).as_nanos() as f64 / loads as f64).collect();
    black_box(at);
    parts.sort_by(f64::total_cmp);
    let middle = parts.len() / 2;
    f64::midpoint(parts[middle - 1], parts[middle])
}

/// Cycles a second of the CPU that the calling thread runs on, just now.
#[must_use]
pub fn frequency_hz() -> f64 {
    let fastest = (0..ATTEMPTS)
        .map(|_| {
            let start = Instant::now();
            black_box(chain(black_box(1), black_box(0x9e37_79b9), black_box(0x7f4a_7c15), CHAIN / 8));
            start.elapsed()
        })
        .min()
        .unwrap_or_default();
    CHAIN as f64 / fastest.as_secs_f64().max(1e-9)
}

/// `rounds` times eight operations of one cycle, each on the result of the one before.
#[inline(never)]
fn chain(start: u64, add: u64, flip: u64, rounds: u64) -> u64 {
    let mut x = start;
    for _ in 0..rounds {
        x = x.wrapping_add(add) ^ flip;
        x = x.wrapping_add(add) ^ flip;
        x = x.wrapping_add(add) ^ flip;
        x = x.wrapping_add(add) ^ flip;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_cycle_visits_every_line_once_and_returns(
            nodes in 1usize..300, stride in 1usize..17, seed in any::<u64>()
        ) {
            let mut words = vec![7; nodes * stride];
            lay(&mut words, stride, seed);
            let mut seen = vec![false; nodes];
            let mut at = 0;
            for _ in 0..nodes {
                prop_assert_eq!(at % stride, 0);
                prop_assert!(!seen[at / stride], "{} twice", at);
                seen[at / stride] = true;
                at = follow(&words, at, 1);
            }
            prop_assert_eq!(at, 0);
            prop_assert_eq!(follow(&words, 0, nodes as u64), 0);
            prop_assert!(words.iter().enumerate().all(|(i, w)| i % stride == 0 || *w == 7));
        }
    }

    #[test]
    fn different_seeds_give_different_cycles() {
        let cycle = |seed| {
            let mut words = vec![0; 1024];
            lay(&mut words, 1, seed);
            words
        };
        assert_eq!(cycle(1), cycle(1));
        assert_ne!(cycle(1), cycle(2));
    }

    #[test]
    fn a_chain_does_what_its_operations_say() {
        let mut x = 5u64;
        for _ in 0..12 {
            x = x.wrapping_add(3) ^ 9;
        }
        assert_eq!(chain(5, 3, 9, 3), x);
        assert_eq!(chain(5, 3, 9, 0), 5);
    }

    #[test]
    fn figures_are_positive_numbers() {
        let mut words = vec![0; 512];
        lay(&mut words, 8, 3);
        let ns = latency_ns(&words, 64, Duration::from_micros(200));
        assert!(ns.is_finite() && ns > 0.0, "{ns}");
        assert!(frequency_hz().is_finite() && frequency_hz() > 0.0);
    }
}
