//! When requests are due under a rate.

use std::time::Duration;

use measure::pattern::Rng;
use measure::workload::{RateProcess, Workload};
use storage::clock::Clock;

/// When requests are due under a rate.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Mean distance, ticks; fractions are carried over so that the mean rate is exact.
    mean: f64,
    carry: f64,
    poisson: Option<Rng>,
}

impl Schedule {
    pub fn new(workload: &Workload, clock: Clock, job: u64) -> Self {
        let mean_bs = workload.mean_bs();
        let per_second = match (workload.rate_iops, workload.rate) {
            (Some(iops), _) => iops as f64,
            (None, Some(bytes)) => bytes as f64 / mean_bs,
            (None, None) => f64::INFINITY,
        };
        let poisson = workload.rate_process == RateProcess::Poisson;
        Self {
            mean: clock.ticks(Duration::from_secs(1)) as f64 / per_second,
            carry: 0.0,
            poisson: poisson.then(|| Rng::new(workload.randseed.wrapping_add(job) ^ 0x0070_6f69_7373_6f6e)),
        }
    }

    /// Ticks from one request to the next.
    pub fn gap(&mut self) -> u64 {
        let gap = match &mut self.poisson {
            Some(rng) => self.mean * rng.exponential(),
            None => self.mean,
        };
        self.carry += gap;
        let whole = self.carry.floor();
        self.carry -= whole;
        whole as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_keeps_its_mean_rate_to_the_tick() {
        let clock = Clock::get();
        for rate_process in [RateProcess::Linear, RateProcess::Poisson] {
            let workload = Workload { rate_iops: Some(3_000_000), rate_process, ..Workload::default() };
            let mut schedule = Schedule::new(&workload, clock, 0);
            let ticks: u64 = (0..300_000).map(|_| schedule.gap()).sum();
            let seconds = clock.nanoseconds(ticks) as f64 / 1e9;
            assert!((seconds / 0.1 - 1.0).abs() < 0.02, "{rate_process:?}: {seconds} s");
        }
    }
}
