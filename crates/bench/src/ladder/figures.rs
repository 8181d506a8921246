//! The papers' four figures of a set in memory, by one CPU.
//!
//! Sequential: the whole set, over and over, in vectors, by ordinary loads and stores; a store to a line that is not
//! in the first cache fetches it first, and only the bytes written are counted. Random: cache lines of 64 bytes, read or
//! written whole, at places that are computed and not loaded, so that the CPU overlaps as many as it can: the count to
//! a drive's IOPS at depth. Of the parts of a measurement the fastest counts, because disturbances only slow.

use std::hint::black_box;
use std::time::{Duration, Instant};

use storage::words;

/// Bytes of a random request.
pub const LINE: usize = 64;
const LINE_WORDS: usize = LINE / 8;
/// Parts of a measurement: many and short, so that there are some in which nothing took the CPU away.
const PARTS: u32 = 64;
/// How often a part's length is tried: one try may have been interrupted.
const TRIES: u32 = 3;
/// Odd constants that make a counter look random (from SplitMix64).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX: u64 = 0xbf58_476d_1ce4_e5b9;

/// The four figures in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Four {
    /// Bytes a second.
    pub sequential_write: f64,
    /// Bytes a second.
    pub sequential_read: f64,
    /// Lines a second.
    pub random_write: f64,
    /// Lines a second.
    pub random_read: f64,
}

/// Takes all four over `set`, each for about `time`. What is in the set is lost.
///
/// # Panics
/// If the set holds no whole line: no number of accesses to nothing would ever take time.
#[must_use]
pub fn four(set: &mut [u64], time: Duration) -> Four {
    assert!(set.len() >= LINE_WORDS, "a set of {} words holds no line", set.len());
    let bytes = size_of_val(set) as f64;
    let sequential_write = bytes
        * fastest(time, |passes| {
            for pass in 0..passes {
                words::fill(black_box(&mut *set), black_box(pass));
            }
        });
    let sequential_read = bytes
        * fastest(time, |passes| {
            for _ in 0..passes {
                black_box(words::sum(black_box(&*set)));
            }
        });
    let random_write = fastest(time, |lines| write_lines(black_box(&mut *set), lines, lines));
    let random_read = fastest(time, |lines| {
        black_box(read_lines(black_box(&*set), lines, lines));
    });
    Four { sequential_write, sequential_read, random_write, random_read }
}

/// How often a second `work` can be done, which is told how often to do it.
fn fastest(time: Duration, mut work: impl FnMut(u64)) -> f64 {
    let part = (time / PARTS).max(Duration::from_micros(20));
    let mut timed = |count: u64| {
        let start = Instant::now();
        work(count);
        start.elapsed()
    };
    let mut count = 1u64;
    let begun = Instant::now();
    // Until a part takes long enough to be measured; this warms the set as well.
    let mut least = loop {
        let took = (0..TRIES).map(|_| timed(count)).min().unwrap_or_default();
        if took >= part {
            break took;
        }
        count = count.saturating_mul(2);
    };
    while begun.elapsed() < time {
        least = least.min(timed(count));
    }
    count as f64 / least.as_secs_f64()
}

/// Reads whole lines at random places.
#[inline(never)]
#[must_use]
pub fn read_lines(set: &[u64], count: u64, seed: u64) -> u64 {
    let (lines, _) = set.as_chunks::<LINE_WORDS>();
    let mut sum = 0u64;
    if lines.is_empty() {
        return sum;
    }
    let mut counter = seed;
    for _ in 0..count {
        let line = &lines[place(&mut counter, lines.len())];
        sum = sum.wrapping_add(line.iter().fold(0, |all, word| all ^ word));
    }
    sum
}

/// Writes whole lines at random places.
#[inline(never)]
pub fn write_lines(set: &mut [u64], count: u64, seed: u64) {
    let (lines, _) = set.as_chunks_mut::<LINE_WORDS>();
    if lines.is_empty() {
        return;
    }
    let mut counter = seed;
    for _ in 0..count {
        let place = place(&mut counter, lines.len());
        lines[place] = [counter; LINE_WORDS];
    }
}

/// A place below `count`. From one to the next there is one addition to wait for; the rest overlaps.
#[inline(always)]
fn place(counter: &mut u64, count: usize) -> usize {
    *counter = counter.wrapping_add(STEP);
    let mixed = (*counter ^ (*counter >> 30)).wrapping_mul(MIX);
    ((u128::from(mixed) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_places_cover_the_set_evenly() {
        let mut counter = 1;
        let mut seen = [0u32; 64];
        for _ in 0..64_000 {
            seen[place(&mut counter, 64)] += 1;
        }
        // A thousand each, sd 31: six sd either way.
        assert!(seen.iter().all(|n| (810..1190).contains(n)), "{seen:?}");
    }

    #[test]
    fn lines_are_written_whole_and_read_whole() {
        let mut set = vec![0; 8 * 16];
        write_lines(&mut set, 1000, 5);
        for line in set.chunks_exact(8) {
            assert!(line.iter().all(|word| *word == line[0]) && line[0] != 0, "{line:?}");
        }
        // Of eight equal words the exclusive or is nothing, of one that differs it is something.
        assert_eq!(read_lines(&set, 100, 5), 0);
        set.iter_mut().step_by(8).for_each(|word| *word = 0);
        assert_ne!(read_lines(&set, 1, 5), 0);
    }

    #[test]
    fn a_set_of_any_size_has_four_figures() {
        for count in [LINE_WORDS, LINE_WORDS + 1, 4096] {
            let four = four(&mut vec![1; count], Duration::from_micros(100));
            for figure in [four.sequential_write, four.sequential_read, four.random_write, four.random_read] {
                assert!(figure.is_finite() && figure > 0.0, "{count}: {four:?}");
            }
        }
    }
}
