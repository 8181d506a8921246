//! Sorting in memory: distribution by the bits that differ, least significant first.
//!
//! 1. One pass finds the bits in which any two records differ. Bits that all share cost nothing afterwards: of pairs of
//!    vertex numbers below 2^22, 20 of 64 bits are never looked at.
//! 2. The bits that differ are cut into digits of at most [`DIGIT_BITS`], aligned to the lowest bit left.
//! 3. Low digits on which the records are sorted already are left out, such as the sources of neighbours that were pushed in
//!    the order of their sources.
//! 4. For each digit left, records are counted by value, and moved from one buffer to the other in that order.
//!
//! A pass is stable, so after the last one the order is that of the whole key.

use crate::Record;

/// Bits of a digit: 256 destinations, whose cache lines fit the first-level cache.
const DIGIT_BITS: u32 = 8;
const BUCKETS: usize = 1 << DIGIT_BITS;
/// Below this a comparison sort is faster than counting.
const SMALL: usize = 192;

/// A run of bits of one word of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Digit {
    word: usize,
    shift: u32,
}

/// Sorts `records`; `scratch` is grown to as many, and its contents afterwards mean nothing.
pub(crate) fn sort<T: Record>(records: &mut Vec<T>, scratch: &mut Vec<T>) {
    if records.len() <= SMALL {
        records.sort_unstable();
        return;
    }
    let digits = digits(records);
    let sorted = (1..=digits.len()).rev().find(|&count| is_sorted_on(records, &digits[..count]));
    let digits = &digits[sorted.unwrap_or(0)..];
    if digits.is_empty() {
        return;
    }
    scratch.resize(records.len(), T::default());
    for digit in digits {
        distribute(records, scratch, *digit);
        std::mem::swap(records, scratch);
    }
}

/// How many passes [`sort`] would make.
pub(crate) fn passes<T: Record>(records: &[T]) -> usize {
    digits(records).len()
}

/// The digits in which records differ, the least significant first.
fn digits<T: Record>(records: &[T]) -> Vec<Digit> {
    let mut digits = Vec::new();
    let Some(first) = records.first() else { return digits };
    for word in 0..T::WORDS {
        let base = first.word(word);
        let mut differing = records.iter().fold(0, |bits, record| bits | (record.word(word) ^ base));
        while differing != 0 {
            let shift = differing.trailing_zeros();
            digits.push(Digit { word, shift });
            let taken = (BUCKETS as u64 - 1) << shift;
            differing &= !taken;
        }
    }
    digits
}

/// Whether records are in the order of these digits, the lowest of the key.
fn is_sorted_on<T: Record>(records: &[T], digits: &[Digit]) -> bool {
    let Some(top) = digits.last() else { return true };
    let mask = u64::MAX >> (64 - (top.shift + DIGIT_BITS).min(64));
    records.is_sorted_by(|a, b| {
        let (above, below) = (a.word(top.word) & mask, b.word(top.word) & mask);
        let lower =
            || (0..top.word).rev().map(|word| a.word(word)).le((0..top.word).rev().map(|word| b.word(word)));
        above < below || above == below && lower()
    })
}

#[inline(always)]
fn bucket<T: Record>(record: &T, digit: Digit) -> usize {
    (record.word(digit.word) >> digit.shift) as usize & (BUCKETS - 1)
}

fn distribute<T: Record>(from: &[T], to: &mut [T], digit: Digit) {
    let mut next = [0usize; BUCKETS];
    for record in from {
        next[bucket(record, digit)] += 1;
    }
    let mut start = 0;
    for slot in &mut next {
        start += std::mem::replace(slot, start);
    }
    for record in from {
        let slot = &mut next[bucket(record, digit)];
        to[*slot] = *record;
        *slot += 1;
    }
}

/// Removes each record for which `same` holds with the last one kept.
pub(crate) fn deduplicate<T: Record>(records: &mut Vec<T>, same: fn(&T, &T) -> bool) {
    records.dedup_by(|later, kept| same(kept, later));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorts<T: Record>(mut records: Vec<T>) {
        let mut expected = records.clone();
        expected.sort_unstable();
        sort(&mut records, &mut Vec::new());
        assert_eq!(records, expected);
    }

    #[test]
    fn only_bits_that_differ_are_distributed() {
        let records = [0xab00_0000_0012_3400_u64, 0xab00_0000_0077_ff00, 0xab00_0000_0000_0000];
        assert_eq!(digits(&records), [Digit { word: 0, shift: 8 }, Digit { word: 0, shift: 16 }]);
        assert_eq!(digits(&[7_u64; 5]), []);
    }

    #[test]
    fn digits_on_which_records_are_sorted_are_left_out() {
        let records: Vec<u64> = (0..1000).map(|i| (i * 7919 % 64) << 32 | i).collect();
        let digits = digits(&records);
        assert_eq!(digits.len(), 3);
        assert!(is_sorted_on(&records, &digits[..2]) && !is_sorted_on(&records, &digits[..1]));
        assert!(!is_sorted_on(&records, &digits));
        sorts(records);
        sorts((0..1000).map(|i| [i % 3, 7, i]).collect::<Vec<[u64; 3]>>());
        sorts((0..1000).map(|i| [1000 - i, i % 5, i]).collect::<Vec<[u64; 3]>>());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn words_are_sorted(records in prop::collection::vec(any::<u64>(), 0..2000), mask in any::<u64>()) {
            sorts(records.iter().map(|r| r & mask).collect());
            sorts(records.iter().map(|r| (r & mask) as u32).collect());
        }

        #[test]
        fn wide_keys_are_sorted_by_all_their_words(
            records in prop::collection::vec((0..4_u64, any::<u64>(), 0..3_u64), 0..2000)
        ) {
            sorts(records.iter().map(|&(a, b, c)| [a, b, c]).collect());
            sorts(records.iter().map(|&(a, b, _)| u128::from(a) << 64 | u128::from(b)).collect());
            sorts(records.iter().map(|&(a, b, c)| [c as u32, a as u32, b as u32, 7]).collect());
        }
    }
}
