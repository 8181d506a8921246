//! CPUs: work that any of them may do, and work that belongs to one.

use crate::device::Time;

/// The CPUs of a host.
#[derive(Debug)]
pub(crate) struct Cpus {
    /// CPUs that take any work, a heap by the time at which they are free.
    any: Vec<(Time, u32)>,
    /// When each CPU is free, for work that belongs to it.
    own: Vec<Time>,
    /// Work of the kernel done on each CPU, and of its interrupts, nanoseconds.
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
    /// `cores` CPUs, of which the first `reserved` take no work of others.
    pub fn new(cores: u32, reserved: u32) -> Self {
        let n = cores as usize;
        Self {
            any: (reserved..cores).map(|cpu| (0, cpu)).collect(),
            own: vec![0; n],
            system_ns: vec![0; n],
            interrupt_ns: vec![0; n],
            interrupts: vec![0; n],
        }
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
        let (free, cpu) = self.any[0];
        let end = free.max(now) + time;
        self.any[0] = (end, cpu);
        let len = self.any.len();
        let mut hole = 0;
        loop {
            let child = 2 * hole + 1;
            if child >= len {
                break;
            }
            let least =
                if child + 1 < len && self.any[child + 1] < self.any[child] { child + 1 } else { child };
            if self.any[hole] <= self.any[least] {
                break;
            }
            self.any.swap(hole, least);
            hole = least;
        }
        self.count(cpu, time, work);
        end
    }

    /// Work of `time` on this CPU, after what it has to do; returns when it ends.
    #[inline]
    pub fn run_on(&mut self, cpu: u32, now: Time, time: Time, work: Work) -> Time {
        let free = &mut self.own[cpu as usize];
        *free = (*free).max(now) + time;
        let end = *free;
        self.count(cpu, time, work);
        end
    }

    /// Whether this CPU still works at `now`.
    pub fn is_busy(&self, cpu: u32, now: Time) -> bool {
        self.own[cpu as usize] > now
    }
}
