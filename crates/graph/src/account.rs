//! Where the time of a search went, counted alike for every algorithm.
//!
//! The times overlap: while one thread waits for requests another computes. CPU time and waits are sums over threads; the
//! *span* of waits is the time in which at least one thread waited, which is what a drive costs however many threads sort.

use std::time::{Duration, Instant};

use external::{WaitClock, Waited};
use storage::usage;

/// What a search used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Time from beginning to end.
    pub elapsed: Duration,
    /// CPU time of all threads of the process, in the kernel included.
    pub cpu: Duration,
    /// Time spent waiting for requests.
    pub waited: Waited,
}

/// An account that is not closed.
#[derive(Debug)]
pub struct OpenAccount {
    clock: WaitClock,
    waited: Waited,
    cpu_ns: u64,
    began: Instant,
}

impl Account {
    /// Begins to count.
    #[must_use]
    pub fn open(clock: &WaitClock) -> OpenAccount {
        let (clock, waited) = (clock.clone(), clock.waited());
        OpenAccount { clock, waited, cpu_ns: cpu_ns(), began: Instant::now() }
    }

    /// What is left of the time of `threads` threads that neither computed nor waited for requests: they waited for each
    /// other, or for a CPU. Zero where more threads than those had work.
    #[must_use]
    pub fn idle(&self, threads: usize) -> Duration {
        let all = self.elapsed * u32::try_from(threads).unwrap_or(u32::MAX);
        all.saturating_sub(self.cpu + self.waited.sum)
    }

    /// The share of the time in which at least one thread waited for requests.
    #[must_use]
    pub fn io_share(&self) -> f64 {
        share(self.waited.span, self.elapsed)
    }

    /// The share that was computed of what `threads` threads could have.
    #[must_use]
    pub fn cpu_share(&self, threads: usize) -> f64 {
        share(self.cpu, self.elapsed) / threads.max(1) as f64
    }
}

impl OpenAccount {
    /// What was used until now.
    #[must_use]
    pub fn close(&self) -> Account {
        Account {
            elapsed: self.began.elapsed(),
            cpu: Duration::from_nanos(cpu_ns().saturating_sub(self.cpu_ns)),
            waited: self.clock.waited().since(self.waited),
        }
    }
}

fn cpu_ns() -> u64 {
    let used = usage::process();
    used.user_ns + used.system_ns
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_span_of_waits_is_not_divided_by_threads_that_sort() {
        let second = Duration::from_secs(1);
        // One thread reads for the whole time, a second one sorts for half of it.
        let waited = Waited { span: second, sum: second };
        let account = Account { elapsed: second, cpu: second / 2, waited };
        assert_eq!((account.io_share(), account.cpu_share(2)), (1.0, 0.25));
        assert_eq!(account.idle(2), second / 2);
        assert_eq!(account.idle(1), Duration::ZERO);
        assert_eq!(Account::default().io_share(), 0.0);
    }
}
