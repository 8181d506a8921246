//! Orders that are given block by block, or zone by zone.

use super::{Blocks, Cover, Sequential, Uniform};
use crate::workload::Sequence;

/// The blocks of a sequence, again and again: fio's `random_distribution=sequence`. A block beyond the last one is taken
/// from the first on again.
#[derive(Debug, Clone)]
pub struct Given {
    sequence: Sequence,
    at: usize,
    base: u64,
    blocks: u64,
}

impl Given {
    /// Over `blocks` blocks.
    ///
    /// # Panics
    /// If there are no blocks, or the sequence is empty.
    #[must_use]
    pub fn new(blocks: u64, sequence: &Sequence) -> Self {
        assert!(blocks > 0, "a region has at least one block");
        assert!(!sequence.blocks.is_empty(), "sequences are validated with the workload");
        Self { sequence: sequence.clone(), at: 0, base: 0, blocks }
    }
}

impl Blocks for Given {
    #[inline]
    fn next_block(&mut self) -> u64 {
        let given = &self.sequence.blocks;
        let block = (u128::from(self.base) + u128::from(given[self.at])) % u128::from(self.blocks);
        self.at += 1;
        if self.at == given.len() {
            self.at = 0;
            if self.sequence.strided {
                self.base = (self.base + given.len() as u64) % self.blocks;
            }
        }
        block as u64
    }
}

/// How the blocks of a zone are visited.
#[derive(Debug, Clone)]
enum Within {
    Sequential(Sequential),
    Uniform(Uniform),
    Cover(Cover),
}

/// Zone after zone: so many blocks are visited within a range, then comes the range that begins after a gap; from the first
/// again after the last. fio's `zonemode=strided`.
#[derive(Debug, Clone)]
pub struct Strided {
    within: Within,
    /// Blocks that are visited before the next zone.
    size: u64,
    /// From the beginning of a zone to that of the next.
    distance: u64,
    zones: u64,
    zone: u64,
    /// Blocks visited in this zone.
    visited: u64,
}

impl Strided {
    /// Over `blocks` blocks: `size` visits to each range of `range` blocks, then `skip` blocks that are left out. `order`
    /// is none for a walk, else the seed of a random order, in which blocks are drawn afresh or each is visited once.
    /// What is left at the end, and is no whole zone, is not visited.
    ///
    /// # Panics
    /// If a range is empty, or larger than all blocks.
    #[must_use]
    pub fn new(blocks: u64, size: u64, range: u64, skip: u64, order: Option<(u64, bool)>) -> Self {
        assert!((1..=blocks).contains(&range) && size > 0, "zones are validated with the workload");
        let within = match order {
            None => Within::Sequential(Sequential::new(range)),
            Some((seed, true)) => Within::Uniform(Uniform::new(range, seed)),
            Some((seed, false)) => Within::Cover(Cover::new(range, seed)),
        };
        let distance = range.saturating_add(skip);
        // A walk comes no farther than what is moved in a zone.
        let reach = if order.is_none() { range.min(size) } else { range };
        Self { within, size, distance, zones: (blocks - reach) / distance + 1, zone: 0, visited: 0 }
    }
}

impl Blocks for Strided {
    #[inline]
    fn next_block(&mut self) -> u64 {
        if self.visited == self.size {
            (self.visited, self.zone) = (0, (self.zone + 1) % self.zones);
            if let Within::Sequential(order) = &mut self.within {
                order.restart();
            }
        }
        self.visited += 1;
        let block = match &mut self.within {
            Within::Sequential(order) => order.next_block(),
            Within::Uniform(order) => order.next_block(),
            Within::Cover(order) => order.next_block(),
        };
        self.zone * self.distance + block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(mut order: impl Blocks, count: usize) -> Vec<u64> {
        (0..count).map(|_| order.next_block()).collect()
    }

    #[test]
    fn a_sequence_is_repeated_or_goes_on_group_by_group() {
        let sequence = |strided| Sequence { blocks: vec![2, 0, 1], strided };
        assert_eq!(drawn(Given::new(12, &sequence(false)), 6), [2, 0, 1, 2, 0, 1]);
        assert_eq!(drawn(Given::new(12, &sequence(true)), 6), [2, 0, 1, 5, 3, 4]);
        assert_eq!(drawn(Given::new(4, &sequence(true)), 6), [2, 0, 1, 1, 3, 0], "from the first again");
        assert!(
            drawn(Given::new(3, &Sequence { blocks: vec![7, u64::MAX], strided: true }), 100)
                .iter()
                .all(|b| *b < 3)
        );
    }

    // The orders that fio 3.33 logs with these options, in blocks of 256 KiB of a file of 64 MiB.
    #[test]
    fn zones_are_visited_as_fio_visits_them() {
        let walk = drawn(Strided::new(256, 4, 4, 28, None), 34);
        assert_eq!(walk[..10], [0, 1, 2, 3, 32, 33, 34, 35, 64, 65]);
        assert_eq!(walk[28..], [224, 225, 226, 227, 0, 1]);
        let wide = drawn(Strided::new(256, 4, 8, 28, None), 34);
        assert_eq!(wide[..9], [0, 1, 2, 3, 36, 37, 38, 39, 72]);
        assert_eq!(wide[28..], [252, 253, 254, 255, 0, 1]);
    }

    #[test]
    fn every_block_of_a_zone_is_visited_before_the_next_zone() {
        let order = drawn(Strided::new(256, 8, 4, 28, Some((7, false))), 16);
        for (zone, blocks) in order.chunks(8).enumerate() {
            for half in blocks.chunks(4) {
                let mut seen: Vec<u64> = half.iter().map(|block| block - 32 * zone as u64).collect();
                seen.sort_unstable();
                assert_eq!(seen, [0, 1, 2, 3]);
            }
        }
        assert!(
            drawn(Strided::new(100, 5, 4, 28, Some((7, true))), 500).iter().all(|b| b % 32 < 4 && *b < 100)
        );
    }
}
