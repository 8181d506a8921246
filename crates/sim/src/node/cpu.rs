//! CPUs: work that any of them may do, and work that belongs to one. Each CPU has one clock for both.

use crate::device::Time;

/// The CPUs of a host.
#[derive(Debug)]
pub(crate) struct Cpus {
    /// When each CPU is free.
    free_at: Vec<Time>,
    /// CPUs below this one take no work that any CPU may do.
    first_shared: u32,
    /// A tournament of the others: the CPU of node `n` is the one of nodes `2n` and `2n + 1` that is free first, and node 1 is the root.
    winners: Vec<u32>,
    /// Work of the kernel given to each CPU, and of its interrupts, nanoseconds.
    pub system_ns: Vec<u64>,
    pub interrupt_ns: Vec<u64>,
    pub interrupts: Vec<u64>,
}

/// What work is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    System,
    Interrupt,
}

impl Cpus {
    /// `cores` CPUs, of which the first `reserved`, fewer than all, take only work that belongs to them.
    pub fn new(cores: u32, reserved: u32) -> Self {
        let n = cores as usize;
        let leaves = reserved..cores;
        let mut winners: Vec<u32> = leaves.clone().chain(leaves).collect();
        for node in (1..winners.len() / 2).rev() {
            winners[node] = winners[2 * node].min(winners[2 * node + 1]);
        }
        Self {
            free_at: vec![0; n],
            first_shared: reserved,
            winners,
            system_ns: vec![0; n],
            interrupt_ns: vec![0; n],
            interrupts: vec![0; n],
        }
    }

    /// Time that each CPU has worked until `now`, nanoseconds. Work begins when it is given or when the work before it ends, so what
    /// is left of it fills the time from `now` to its end.
    pub fn busy_ns(&self, now: Time) -> Vec<u64> {
        let given =
            self.system_ns.iter().zip(&self.interrupt_ns).map(|(system, interrupt)| system + interrupt);
        given.zip(&self.free_at).map(|(given, free)| given - free.saturating_sub(now)).collect()
    }

    fn count(&mut self, cpu: u32, time: Time, work: Work) {
        let cpu = cpu as usize;
        match work {
            Work::System => self.system_ns[cpu] += time,
            Work::Interrupt => {
                self.interrupt_ns[cpu] += time;
                self.interrupts[cpu] += 1;
            }
        }
    }

    /// Work of `time` on the CPU that is free first; returns when it ends.
    #[inline]
    pub fn run_anywhere(&mut self, now: Time, time: Time, work: Work) -> Time {
        // With one CPU the root is its leaf.
        self.run_on(self.winners[1], now, time, work)
    }

    /// Work of `time` on this CPU, after what it has to do; returns when it ends.
    #[inline]
    pub fn run_on(&mut self, cpu: u32, now: Time, time: Time, work: Work) -> Time {
        let free = &mut self.free_at[cpu as usize];
        *free = (*free).max(now).saturating_add(time);
        let end = *free;
        self.count(cpu, time, work);
        if cpu >= self.first_shared {
            self.replay(cpu);
        }
        end
    }

    /// Decides the matches again that this CPU takes part in.
    #[inline]
    fn replay(&mut self, cpu: u32) {
        let mut node = (self.winners.len() / 2 + (cpu - self.first_shared) as usize) / 2;
        while node > 0 {
            let (one, other) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let key = |cpu: u32| (self.free_at[cpu as usize], cpu);
            self.winners[node] = if key(other) < key(one) { other } else { one };
            node /= 2;
        }
    }

    /// Whether this CPU still works at `now`.
    pub fn is_busy(&self, cpu: u32, now: Time) -> bool {
        self.free_at[cpu as usize] > now
    }
}
