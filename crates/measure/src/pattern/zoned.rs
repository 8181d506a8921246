//! Zones of a region that are visited more often than others.

use super::{Blocks, Rng};
use crate::workload::Zone;

/// Draws a zone by its share of the requests, then a block of it; each draw is afresh, as under fio's `norandommap`.
#[derive(Debug, Clone)]
pub struct Zoned {
    rng: Rng,
    /// For each zone: the percentage at which its share ends, its first block, and its blocks.
    zones: Vec<(u64, u64, u64)>,
}

impl Zoned {
    /// Over `blocks` blocks. A zone too small for a block has one all the same.
    ///
    /// # Panics
    /// If there are no blocks, or if the shares do not come to 100 percent.
    #[must_use]
    pub fn new(blocks: u64, zones: &[Zone], seed: u64) -> Self {
        assert!(blocks > 0, "a region has at least one block");
        assert!(crate::distribution::is_complete(zones), "zones are validated with the workload");
        let (mut percent, mut share) = (0, 0);
        let at = |share: u64| (u128::from(blocks) * u128::from(share) / 100) as u64;
        let zones = zones.iter().map(|zone| {
            let first = at(share).min(blocks - 1);
            percent += u64::from(zone.requests);
            share += u64::from(zone.region);
            (percent, first, (at(share).max(first + 1)) - first)
        });
        Self { rng: Rng::new(seed), zones: zones.collect() }
    }
}

impl Blocks for Zoned {
    #[inline]
    fn next_block(&mut self) -> u64 {
        let drawn = self.rng.below(100);
        let zone = self.zones.iter().find(|(end, ..)| drawn < *end);
        let (_, first, blocks) = *zone.expect("the shares come to 100 percent");
        first + self.rng.below(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_zone_gets_its_share_of_the_requests() {
        let zones = crate::distribution::zones("50/5:30/15:20/").unwrap();
        let mut zoned = Zoned::new(1000, &zones, 7);
        let mut seen = [0_u32; 3];
        for _ in 0..100_000 {
            let zone = match zoned.next_block() {
                0..50 => 0,
                50..200 => 1,
                200..1000 => 2,
                beyond => panic!("block {beyond}"),
            };
            seen[zone] += 1;
        }
        for (seen, share) in seen.into_iter().zip([0.5, 0.3, 0.2]) {
            assert!((f64::from(seen) / 1e5 - share).abs() < 0.01, "{seen} of {share}");
        }
    }

    #[test]
    fn a_region_of_one_block_has_all_zones_in_it() {
        let zones = crate::distribution::zones("50/5:30/15:20/").unwrap();
        let mut zoned = Zoned::new(1, &zones, 7);
        assert!((0..100).all(|_| zoned.next_block() == 0));
    }
}
