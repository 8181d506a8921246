//! One pass of writes that leaves flash as random writes leave it in the long run: fio's `sprandom`.
//!
//! Under random writes the parts of a drive that were written longest ago have the fewest blocks that are still valid, and
//! what is collected next has the fewest of all. In the steady state the space whose validity is v is proportional to 1/v,
//! from the validity g of what is collected up to 1 (P. Desnoyers, "Analytic Models of SSD Write Performance", ACM
//! Transactions on Storage 8(2), 2012). With a over-provisioned capacity of α times the addressed one the mean validity is
//! 1/α, so that
//!
//! ```text
//! (1 − g) / ln(1/g) = 1/α,   and the validity at a share q of the space, oldest first, is g^(1 − q).
//! ```
//!
//! The pass makes that at once:
//!
//! 1. The physical capacity is cut into regions, which are filled one after the other.
//! 2. A region is filled with blocks of a random order that has each block once ([`Cover`]).
//! 3. Of the blocks of a region so many as are invalid there in the steady state are written again in the next one: drawn
//!    from all of its blocks, so many exactly.
//!
//! The pass ends when each block was written once. Its last region is not written again, and is smaller by as much.

use super::{Blocks, Cover, Rng};

/// How a drive is brought into the steady state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyWrites {
    /// Over-provisioning: how much larger the physical capacity is than the addressed one. Above 0, below 1.
    pub over_provisioning: f64,
    /// Regions, at least 2.
    pub regions: u32,
    /// Blocks are written again at the end of the next region in place of its beginning: a drive's cache of less than a
    /// region has forgotten them by then.
    pub defers: bool,
}

impl SteadyWrites {
    /// Blocks that a pass over `blocks` blocks writes to each of its regions; 0 where there are fewer blocks than regions.
    #[must_use]
    pub fn region_blocks(&self, blocks: u64) -> u64 {
        (blocks as f64 * (1.0 + self.over_provisioning) / f64::from(self.regions)) as u64
    }

    /// Blocks that a pass over `blocks` blocks writes.
    #[must_use]
    pub fn writes(&self, blocks: u64) -> u64 {
        let each = self.region_blocks(blocks);
        let g = self.collected_validity();
        let again: u64 = (0..self.regions).map(|region| self.written_again(region, each, g)).sum();
        blocks + again
    }

    /// The validity of what is collected in the steady state: the root g < 1 of `(1 − g) / ln(1/g) = 1/α`.
    #[must_use]
    pub fn collected_validity(&self) -> f64 {
        let alpha = 1.0 + self.over_provisioning;
        // The mean validity grows with g, from 0 to 1.
        let (mut low, mut high) = (f64::MIN_POSITIVE, 1.0 - f64::EPSILON);
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            if (1.0 - middle) / -middle.ln() < 1.0 / alpha { low = middle } else { high = middle }
        }
        low
    }

    /// Blocks of a region, of `each`, that are written again in the one after it: those that are invalid at its share of the
    /// space, with what is collected at validity `g`. None of the last region: nothing comes after it.
    fn written_again(&self, region: u32, each: u64, g: f64) -> u64 {
        if region + 1 >= self.regions {
            return 0;
        }
        let validity = |share: f64| g.powf(1.0 - share);
        let n = f64::from(self.regions);
        let (from, to) = (f64::from(region) / n, f64::from(region + 1) / n);
        // The mean of g^(1 − q) between the two.
        let mean = (validity(to) - validity(from)) / (-g.ln() * (to - from));
        ((1.0 - mean) * each as f64).round().clamp(0.0, each as f64) as u64
    }
}

/// The order of such a pass; the next pass follows it. See the module's argument.
#[derive(Debug, Clone)]
pub struct Steady {
    plan: SteadyWrites,
    collected_validity: f64,
    blocks: u64,
    /// Writes to each region.
    each: u64,
    cover: Cover,
    rng: Rng,
    /// Blocks of the order that are left in this pass.
    fresh_left: u64,
    region: u32,
    /// Writes that are left in this region: of blocks of the order, and of blocks that are written again.
    fresh_in_region: u64,
    again: std::vec::IntoIter<u64>,
    /// Blocks of this region that are written again in the next, how many are still to be drawn, and of how many writes.
    drawn: Vec<u64>,
    to_draw: u64,
    draws_left: u64,
}

impl Steady {
    /// Over `blocks` blocks.
    ///
    /// # Panics
    /// If there are fewer than regions.
    #[must_use]
    pub fn new(plan: SteadyWrites, blocks: u64, seed: u64) -> Self {
        let each = plan.region_blocks(blocks);
        assert!(each > 0 && plan.regions > 0, "plans are compared with the device first");
        let mut steady = Self {
            plan,
            collected_validity: plan.collected_validity(),
            blocks,
            each,
            cover: Cover::new(blocks, seed),
            rng: Rng::new(seed ^ 0x0073_7072_616e_646f),
            fresh_left: blocks,
            region: 0,
            fresh_in_region: 0,
            again: Vec::new().into_iter(),
            drawn: Vec::new(),
            to_draw: 0,
            draws_left: 0,
        };
        steady.begin_region(0);
        steady
    }

    /// Begins a region with the blocks that were drawn from the one before.
    fn begin_region(&mut self, region: u32) {
        let again = std::mem::take(&mut self.drawn);
        // The last region takes all that is left: regions are rounded down to whole blocks.
        let room = if region + 1 == self.plan.regions { u64::MAX } else { self.each - again.len() as u64 };
        self.fresh_in_region = room.min(self.fresh_left);
        self.region = region;
        self.draws_left = self.fresh_in_region + again.len() as u64;
        self.to_draw =
            self.plan.written_again(region, self.each, self.collected_validity).min(self.draws_left);
        self.drawn = Vec::with_capacity(self.to_draw as usize);
        self.again = again.into_iter();
    }

    #[inline]
    fn fresh(&mut self) -> Option<u64> {
        if self.fresh_in_region == 0 {
            return None;
        }
        self.fresh_in_region -= 1;
        self.fresh_left -= 1;
        Some(self.cover.next_block())
    }

    /// Notes, so that each write of the region is as likely to be noted, whether a block is written again.
    #[inline]
    fn draw(&mut self, block: u64) -> u64 {
        if self.rng.below(self.draws_left) < self.to_draw {
            self.to_draw -= 1;
            self.drawn.push(block);
        }
        self.draws_left -= 1;
        block
    }
}

impl Blocks for Steady {
    #[inline]
    fn next_block(&mut self) -> u64 {
        loop {
            let next = match self.plan.defers {
                true => self.fresh().or_else(|| self.again.next()),
                false => self.again.next().or_else(|| self.fresh()),
            };
            if let Some(block) = next {
                return self.draw(block);
            }
            if self.region + 1 == self.plan.regions {
                self.fresh_left = self.blocks;
                self.begin_region(0);
            } else {
                self.begin_region(self.region + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(over_provisioning: f64, regions: u32, defers: bool) -> SteadyWrites {
        SteadyWrites { over_provisioning, regions, defers }
    }

    /// The shares of blocks of each region that are valid once a pass is over.
    fn validity(plan: SteadyWrites, blocks: u64, seed: u64) -> Vec<f64> {
        let mut order = Steady::new(plan, blocks, seed);
        let writes: Vec<u64> = (0..plan.writes(blocks)).map(|_| order.next_block()).collect();
        let mut last = vec![None; blocks as usize];
        for (at, block) in writes.iter().enumerate() {
            last[*block as usize] = Some(at);
        }
        assert!(last.iter().all(Option::is_some), "a block was not written");
        let each = plan.region_blocks(blocks) as usize;
        let mut regions = vec![(0_u64, 0_u64); plan.regions as usize];
        for (at, block) in writes.iter().enumerate() {
            let region = (at / each).min(plan.regions as usize - 1);
            regions[region].0 += 1;
            regions[region].1 += u64::from(last[*block as usize] == Some(at));
        }
        regions.iter().map(|(all, valid)| *valid as f64 / (*all).max(1) as f64).collect()
    }

    #[test]
    fn the_validity_of_what_is_collected_is_that_of_the_model() {
        // α / (α + W(−α e^(−α))) is the write amplification, which is 1 / (1 − g).
        for (over_provisioning, amplification) in
            [(0.07, 7.81), (0.15, 4.02), (0.28, 2.48), (1.0 - 1e-9, 1.255)]
        {
            let plan = plan(over_provisioning, 100, false);
            let g = plan.collected_validity();
            let alpha = 1.0 + over_provisioning;
            assert!(((1.0 - g) / -g.ln() - 1.0 / alpha).abs() < 1e-9, "{over_provisioning}: {g}");
            assert!(
                (1.0 / (1.0 - g) / amplification - 1.0_f64).abs() < 0.01,
                "{over_provisioning}: {}",
                1.0 / (1.0 - g)
            );
        }
    }

    #[test]
    fn after_a_pass_each_region_is_as_valid_as_in_the_steady_state() {
        for defers in [false, true] {
            let plan = plan(0.15, 20, defers);
            let found = validity(plan, 100_000, 3);
            let g = plan.collected_validity();
            for (region, found) in found.iter().enumerate().take(19) {
                let expected = g.powf(1.0 - (region as f64 + 0.5) / 20.0);
                assert!((found - expected).abs() < 0.002, "region {region}: {found}, expected {expected}");
            }
            assert!(found[19] > 0.9999, "nothing comes after the last one");
            assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{found:?}");
        }
    }

    #[test]
    fn a_pass_writes_the_physical_capacity_but_for_what_the_last_region_would_lose() {
        let plan = plan(0.15, 100, false);
        let (blocks, writes) = (1_000_000, plan.writes(1_000_000));
        assert!((1_149_000..=1_150_000).contains(&writes), "{writes}");
        let mut order = Steady::new(plan, blocks, 1);
        let first: Vec<u64> = (0..writes).map(|_| order.next_block()).collect();
        let second: Vec<u64> = (0..writes).map(|_| order.next_block()).collect();
        assert_ne!(first[..100], second[..100], "passes differ");
    }

    proptest! {
        #[test]
        fn every_block_is_written_whatever_the_plan(
            blocks in 64u64..3000, regions in 2u32..64, percent in 1u32..100, defers: bool, seed: u64,
        ) {
            let plan = plan(f64::from(percent) / 100.0, regions, defers);
            let found = validity(plan, blocks, seed);
            prop_assert!(found.iter().all(|share| (0.0..=1.0).contains(share)));
        }
    }
}
