//! Which requests have a priority of their own: fio's `cmdprio_percentage` and `cmdprio_bssplit`.
//!
//! The kernel takes a priority with each request of io_uring and libaio. It is drawn from a generator of its own, so that
//! offsets, sizes and data are those of the same job without priorities.

use measure::pattern::Rng;
use storage::engine::Op;
use storage::usage::IoPriority;

/// Shares of the requests of one direction, and their priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityShare {
    /// Requests of this size only; of any where left out.
    pub bytes: Option<u64>,
    /// How many of them, 0 to 100.
    pub percent: u8,
    /// What they have.
    pub priority: IoPriority,
}

/// The shares of reads and of writes. What is left has the thread's priority.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestPriorities {
    /// Of reads.
    pub reads: Vec<PriorityShare>,
    /// Of writes.
    pub writes: Vec<PriorityShare>,
}

impl RequestPriorities {
    /// In a line: `reads 20 % rt/0`.
    pub(super) fn words(&self) -> String {
        let word = |share: &PriorityShare| {
            let size = share.bytes.map(|bytes| format!(" of {}", units::bytes_short(bytes)));
            format!("{} %{} {}", share.percent, size.unwrap_or_default(), share.priority)
        };
        let list = |name: &str, shares: &[PriorityShare]| {
            let words: Vec<String> = shares.iter().map(word).collect();
            (!words.is_empty()).then(|| format!("{name} {}", words.join(", ")))
        };
        let parts = [list("reads", &self.reads), list("writes", &self.writes)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// Priorities being drawn.
#[derive(Debug)]
pub(super) struct Draw {
    priorities: RequestPriorities,
    rng: Rng,
}

impl Draw {
    pub fn new(priorities: &RequestPriorities, seed: u64) -> Self {
        Self { priorities: priorities.clone(), rng: Rng::new(seed ^ 0x0070_7269_6f72) }
    }

    /// The priority of a request of `bytes`; that of its thread where it has none of its own.
    pub fn next(&mut self, op: Op, bytes: u64) -> IoPriority {
        let shares = match op {
            Op::Read => &self.priorities.reads,
            Op::Write => &self.priorities.writes,
            Op::Trim | Op::SyncData | Op::Sync => return IoPriority::UNSET,
        };
        let mut ticket = self.rng.below(100);
        for share in shares.iter().filter(|share| share.bytes.is_none_or(|size| size == bytes)) {
            match ticket.checked_sub(u64::from(share.percent)) {
                Some(rest) => ticket = rest,
                None => return share.priority,
            }
        }
        IoPriority::UNSET
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::usage::IoClass;

    fn priority(class: IoClass, level: u16) -> IoPriority {
        IoPriority::new(class, level, 0).expect("in range")
    }

    fn share(bytes: Option<u64>, percent: u8, priority: IoPriority) -> PriorityShare {
        PriorityShare { bytes, percent, priority }
    }

    #[test]
    fn as_many_requests_of_a_size_have_a_priority_as_its_share_says() {
        let (high, low) = (priority(IoClass::RealTime, 1), priority(IoClass::Idle, 0));
        let reads =
            vec![share(Some(4096), 25, high), share(Some(4096), 60, low), share(Some(8192), 100, low)];
        let priorities = RequestPriorities { reads, writes: Vec::new() };
        let mut draw = Draw::new(&priorities, 7);
        let mut of = |op, bytes| {
            let drawn: Vec<IoPriority> = (0..10_000).map(|_| draw.next(op, bytes)).collect();
            [high, low].map(|one| drawn.iter().filter(|drawn| **drawn == one).count())
        };
        let [first, second] = of(Op::Read, 4096);
        assert!((2350..2650).contains(&first) && (5850..6150).contains(&second), "{first}, {second}");
        assert_eq!(of(Op::Read, 8192), [0, 10_000]);
        assert_eq!(of(Op::Read, 16_384), [0, 0]);
        assert_eq!(of(Op::Write, 4096), [0, 0]);
        assert_eq!(priorities.words(), "reads 25 % of 4k rt/1, 60 % of 4k idle, 100 % of 8k idle");
    }
}
