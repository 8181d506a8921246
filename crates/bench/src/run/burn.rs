//! Threads that compute for a share of their time, and make no requests: fio's `cpuio`.
//!
//! A thread computes for a while, then sleeps as long as makes the share. It takes part in the phases like a thread with
//! requests, so that its CPU time is that of the measured interval. Its end is that of its time, or of the job.

use std::time::Duration;

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Work {
    /// Nothing: the thread spins.
    #[default]
    Spin,
    /// Numbers are sorted, forwards and backwards.
    Sort,
}

/// How much is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burn {
    /// Percent of the time, 1 to 100.
    pub load: u8,
    /// How long the thread spins before it rests. A sort takes as long as it takes.
    pub chunk: Duration,
    /// What is computed.
    pub work: Work,
}

impl Burn {
    /// How long to rest after computing for `worked`.
    pub(super) fn rest(&self, worked: Duration) -> Duration {
        let load = u32::from(self.load.clamp(1, 100));
        worked * (100 - load) / load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_rests_as_long_as_makes_its_share() {
        let burn = |load| Burn { load, chunk: Duration::from_millis(50), work: Work::Spin };
        let worked = Duration::from_millis(50);
        assert_eq!(burn(50).rest(worked), worked);
        assert_eq!(burn(20).rest(worked), 4 * worked);
        assert_eq!(burn(100).rest(worked), Duration::ZERO);
    }
}
