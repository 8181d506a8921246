//! Skewed access: a few blocks get most of the requests.
//!
//! Ranks are drawn from the distribution, then scattered over the region by a bijection, so that hot
//! blocks do not lie side by side (fio hashes them for the same reason).

use super::scramble::Scramble;
use super::{Blocks, Rng};

/// Scatters ranks over `blocks` blocks: a bijection found by walking a scrambled power of two until
/// it falls inside.
#[derive(Debug, Clone)]
struct Scatter {
    blocks: u64,
    scramble: Scramble,
}

impl Scatter {
    fn new(blocks: u64, seed: u64) -> Self {
        Self { blocks, scramble: Scramble::new(blocks, &mut (seed ^ 0x5ca7_7e12)) }
    }

    #[inline]
    fn at(&self, rank: u64) -> u64 {
        let mut x = rank;
        loop {
            x = self.scramble.apply(x);
            // A cycle of the bijection that starts inside comes back inside.
            if x < self.blocks {
                return x;
            }
        }
    }
}

/// Rank k (from 1) with probability ∝ k^−θ. Drawn by rejection-inversion (Hörmann and Derflinger,
/// 1996), in constant time and memory for any number of blocks.
#[derive(Debug, Clone)]
pub struct Zipf {
    rng: Rng,
    scatter: Scatter,
    theta: f64,
    blocks: f64,
    h_first: f64,
    h_last: f64,
    cut: f64,
}

impl Zipf {
    /// Over `blocks` blocks with exponent `theta`, which is positive and not 1.
    ///
    /// # Panics
    /// If there are no blocks or `theta` lies outside of its range.
    #[must_use]
    pub fn new(blocks: u64, theta: f64, seed: u64) -> Self {
        assert!(theta > 0.0 && theta != 1.0, "theta is validated with the workload");
        let n = blocks as f64;
        let h_first = h(1.5, theta) - 1.0;
        Self {
            rng: Rng::new(seed),
            scatter: Scatter::new(blocks, seed),
            theta,
            blocks: n,
            h_first,
            h_last: h(n + 0.5, theta),
            cut: 2.0 - h_inverse(h(2.5, theta) - 2.0_f64.powf(-theta), theta),
        }
    }

    #[inline]
    fn rank(&mut self) -> f64 {
        loop {
            let u = self.h_last + self.rng.unit() * (self.h_first - self.h_last);
            let x = h_inverse(u, self.theta);
            let k = x.round().clamp(1.0, self.blocks);
            if k - x <= self.cut || u >= h(k + 0.5, self.theta) - k.powf(-self.theta) {
                return k;
            }
        }
    }
}

/// The integral of x^−θ.
#[inline]
fn h(x: f64, theta: f64) -> f64 {
    (x.powf(1.0 - theta) - 1.0) / (1.0 - theta)
}

#[inline]
fn h_inverse(y: f64, theta: f64) -> f64 {
    (1.0 + y * (1.0 - theta)).powf(1.0 / (1.0 - theta))
}

impl Blocks for Zipf {
    #[inline]
    fn next_block(&mut self) -> u64 {
        let rank = self.rank() as u64 - 1;
        self.scatter.at(rank.min(self.scatter.blocks - 1))
    }
}

/// The power law that fio calls pareto: with input h, a part h of the blocks gets a part 1 − h of the
/// requests (h = 0.2 is the 80/20 rule).
#[derive(Debug, Clone)]
pub struct Pareto {
    rng: Rng,
    scatter: Scatter,
    power: f64,
}

impl Pareto {
    /// Over `blocks` blocks with input `h`, which lies in (0, 1).
    ///
    /// # Panics
    /// If there are no blocks or `h` lies outside of its range.
    #[must_use]
    pub fn new(blocks: u64, h: f64, seed: u64) -> Self {
        assert!(h > 0.0 && h < 1.0, "h is validated with the workload");
        Self { rng: Rng::new(seed), scatter: Scatter::new(blocks, seed), power: h.ln() / (1.0 - h).ln() }
    }
}

impl Blocks for Pareto {
    #[inline]
    fn next_block(&mut self) -> u64 {
        let blocks = self.scatter.blocks;
        let rank = (self.rng.unit().powf(self.power) * blocks as f64) as u64;
        self.scatter.at(rank.min(blocks - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each block is drawn, most frequent first.
    fn frequencies(generator: &mut impl Blocks, blocks: u64, draws: u64) -> Vec<u64> {
        let mut counts = vec![0_u64; blocks as usize];
        for _ in 0..draws {
            counts[generator.next_block() as usize] += 1;
        }
        counts.sort_unstable_by_key(|c| std::cmp::Reverse(*c));
        counts
    }

    #[test]
    fn zipf_frequencies_follow_the_power_law() {
        for theta in [0.8, 1.2, 2.0] {
            let (blocks, draws) = (1000, 400_000);
            let counts = frequencies(&mut Zipf::new(blocks, theta, 5), blocks, draws);
            let total: f64 = (1..=blocks).map(|k| (k as f64).powf(-theta)).sum();
            for rank in [1_u64, 2, 5, 10] {
                let expected = draws as f64 * (rank as f64).powf(-theta) / total;
                let got = counts[rank as usize - 1] as f64;
                assert!((got / expected - 1.0).abs() < 0.1, "theta {theta} rank {rank}: {got} of {expected}");
            }
        }
    }

    #[test]
    fn pareto_02_is_the_eighty_twenty_rule() {
        let counts = frequencies(&mut Pareto::new(1000, 0.2, 5), 1000, 200_000);
        let top: u64 = counts[..200].iter().sum();
        let share = top as f64 / 200_000.0;
        assert!((share - 0.8).abs() < 0.02, "{share}");
    }

    #[test]
    fn scattering_is_a_bijection() {
        for blocks in [1, 2, 3, 1000, 4096, 4097] {
            let scatter = Scatter::new(blocks, 11);
            let mut seen = vec![false; blocks as usize];
            for rank in 0..blocks {
                let block = scatter.at(rank) as usize;
                assert!(!seen[block]);
                seen[block] = true;
            }
        }
    }
}
