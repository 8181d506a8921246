//! What a fio job file may ask of a run beside its workload, and what comes of it.
//!
//! Little of it changes which requests are made, so it is no part of [`Workload`](measure::Workload): logs of what was seen
//! ([`super::log`]), a rate below which the run fails ([`Floor`]), an end where the figures are steady
//! ([`super::steady`]), jobs that keep in proportion to each other ([`super::flow`]), where buffers lie, threads that
//! compute in place of making requests ([`super::burn`]), a queue depth that is searched ([`super::search`]), priorities
//! ([`super::priorities`]), failures that it lives with ([`super::tolerance`]), whether writes are atomic, whether what
//! was written is read back, and of which write it may be, and flags of rings and commands ([`RingConduct`]).

use std::collections::BTreeMap;
use std::time::Duration;

use measure::Histogram;
use measure::pattern::SteadyWrites;
use measure::workload::NumberList;
use storage::device::ProtectionAction;
use storage::engine::{Placement, Protection, WriteCommands};
use storage::usage::{IoPriority, MemoryPolicy};

use super::burn::Burn;
use super::flow::Flow;
use super::log::{Log, LogPlan};
use super::priorities::RequestPriorities;
use super::search::{LatencyGoal, Searched};
use super::steady::{Steadiness, SteadyPlan};
use super::tally::{Direction, Directions};
use super::tolerance::Tolerance;

/// See the module's argument. By default nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conduct {
    /// What is logged.
    pub log: Option<LogPlan>,
    /// What each thread must reach.
    pub floor: Option<Floor>,
    /// When the job ends before its time. It runs by itself then.
    pub steady: Option<SteadyPlan>,
    /// The share of the requests of all jobs of a flow.
    pub flow: Option<Flow>,
    /// Where the buffers of its threads lie.
    pub memory: Option<MemoryPolicy>,
    /// What its threads compute in place of making requests.
    pub burn: Option<Burn>,
    /// The queue depth is searched that keeps to this.
    pub latency: Option<LatencyGoal>,
    /// The priority of its threads' requests.
    pub priority: Option<IoPriority>,
    /// Requests that have a priority of their own.
    pub request_priorities: Option<RequestPriorities>,
    /// Failures that it lives with.
    pub tolerance: Option<Tolerance>,
    /// What is written with `verify` is not read back (`do_verify=0`).
    pub leaves_unverified: bool,
    /// Writes are atomic (`atomic=1`), or the run fails.
    pub atomic: bool,
    /// A block that is read back may be of any write (`verify_write_sequence=0`).
    pub any_generation: bool,
    /// Blocks are written in an order, and as often, that brings flash into the steady state of random writes
    /// (`sprandom`).
    pub steady_writes: Option<SteadyWrites>,
    /// Bytes of the drive's cache, which a region of those writes must not be smaller than (`spr_cs`); 0 for none.
    pub cache_bytes: u64,
    /// How many blocks of a `verify_backlog` are read back at once; 0 for all.
    pub verify_backlog_batch: u32,
    /// How requests are put into rings.
    pub ring: RingConduct,
}

/// What a job file may ask of the engines `io_uring` and `io_uring_cmd` beside the workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RingConduct {
    /// The CPU of the thread that submits (`sqthread_poll_cpu`).
    pub sqthread_poll_cpu: Option<u32>,
    /// Reads come from the medium (`readfua`).
    pub read_fua: bool,
    /// Which commands make writes (`write_mode`).
    pub write_commands: WriteCommands,
    /// Writes are appended to their zones (`write_mode=zone_append`).
    pub appends: bool,
    /// How many discards are ranges of one command (`num_range`); None where each is a call of its own.
    pub ranges_per_trim: Option<u32>,
    /// Where data are placed that are written (`fdp`).
    pub placement: Option<Placement>,
    /// What becomes of the metadata of a namespace's blocks (`pi_act`, `pi_chk`, `apptag`), and who makes the protection
    /// information in it.
    pub protection: Option<(ProtectionAction, Protection)>,
}

/// What a job has beside its record.
#[derive(Debug, Default)]
pub struct Aside {
    /// One a thread, where logs were asked for.
    pub logs: Vec<Log>,
    /// How steady it was, where that was to end it.
    pub steadiness: Option<Steadiness>,
    /// What the search for a depth came to, where there was one: the least of its threads.
    pub searched: Option<Searched>,
    /// Latencies of reads, writes and discards by priority, where requests had priorities of their own.
    pub by_priority: [ByPriority; 3],
}

/// Latencies by priority, as the kernel numbers it.
pub type ByPriority = BTreeMap<u16, Histogram>;

/// Adds the latencies of `part`, priority by priority.
pub fn merge_priorities(sum: &mut ByPriority, part: &ByPriority) {
    for (priority, latency) in part {
        sum.entry(*priority).or_default().merge(latency);
    }
}

/// A memory policy as fio's `numa_mem_policy` has it.
pub(super) fn memory_words(policy: &MemoryPolicy) -> String {
    let list = |nodes: &[u32]| {
        NumberList::new(nodes.iter().copied()).map_or_else(String::new, |list| list.to_string())
    };
    match policy {
        MemoryPolicy::Default => "default".to_owned(),
        MemoryPolicy::Local => "local".to_owned(),
        MemoryPolicy::Prefer(node) => format!("prefer:{node}"),
        MemoryPolicy::Bind(nodes) => format!("bind:{}", list(nodes)),
        MemoryPolicy::Interleave(nodes) => format!("interleave:{}", list(nodes)),
    }
}

/// A rate that each thread must keep to: fio's `rate_min` and `rate_iops_min`. Directions are reads, writes and discards;
/// 0 asks for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Floor {
    /// Bytes a second.
    pub bytes: [u64; 3],
    /// Requests a second.
    pub ios: [u64; 3],
    /// How long a rate is measured before it is judged (`rate_cycle`).
    pub cycle: Duration,
}

impl Floor {
    /// What it asks of these directions; None if that is nothing.
    pub fn of(self, directions: &[usize]) -> Option<Self> {
        let only = |rates: [u64; 3]| [0, 1, 2].map(|at| if directions.contains(&at) { rates[at] } else { 0 });
        let floor = Self { bytes: only(self.bytes), ios: only(self.ios), ..self };
        (floor.bytes != [0; 3] || floor.ios != [0; 3]).then_some(floor)
    }
}

/// How long a thread may take to come up to its rate, as in fio.
const GRACE: Duration = Duration::from_secs(2);

/// A thread that is slower than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooSlow {
    /// `rate_min` or `rate_iops_min`.
    pub option: &'static str,
    pub direction: Direction,
    pub wanted: u64,
    pub got: u64,
}

/// A floor being watched over.
#[derive(Debug)]
pub(super) struct FloorWatch {
    floor: Floor,
    /// When the cycle under way began, nanoseconds of the interval.
    since_ns: u64,
    bytes: [u64; 3],
    ios: [u64; 3],
}

impl FloorWatch {
    pub fn new(floor: Floor) -> Self {
        Self { floor, since_ns: 0, bytes: [0; 3], ios: [0; 3] }
    }

    /// The interval, and what is counted in it, begin again.
    pub fn restart(&mut self) {
        *self = Self::new(self.floor);
    }

    /// Judges the cycle that ends `now_ns` after the interval began. As fio does, it is called after requests have
    /// completed, so that a cycle without any is part of the one that ends with the next request.
    pub fn look(&mut self, now_ns: u64, counts: &Directions) -> Option<TooSlow> {
        let spent = now_ns.saturating_sub(self.since_ns);
        if now_ns < GRACE.as_nanos() as u64 || u128::from(spent) < self.floor.cycle.as_nanos() {
            return None;
        }
        let (bytes, ios) = ([0, 1, 2].map(|at| counts[at].bytes), [0, 1, 2].map(|at| counts[at].ios));
        let rate = |now: u64, before: u64| {
            (u128::from(now - before) * 1_000_000_000 / u128::from(spent.max(1))) as u64
        };
        let each = [Direction::Read, Direction::Write, Direction::Trim].into_iter().enumerate();
        let slow = each.clone().find_map(|(at, direction)| {
            let (wanted, got) = (self.floor.bytes[at], rate(bytes[at], self.bytes[at]));
            (got < wanted).then_some(TooSlow { option: "rate_min", direction, wanted, got })
        });
        let slow = slow.or_else(|| {
            each.clone().find_map(|(at, direction)| {
                let (wanted, got) = (self.floor.ios[at], rate(ios[at], self.ios[at]));
                (got < wanted).then_some(TooSlow { option: "rate_iops_min", direction, wanted, got })
            })
        });
        (self.since_ns, self.bytes, self.ios) = (now_ns, bytes, ios);
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tally::Counts;

    const SECOND: u64 = 1_000_000_000;

    fn counts(reads: u64, writes: u64) -> Directions {
        let of = |ios| Counts { bytes: ios * 4096, ios, ..Counts::default() };
        [of(reads), of(writes), Counts::default()]
    }

    #[test]
    fn a_rate_is_judged_over_whole_cycles_after_two_seconds() {
        let floor = Floor { bytes: [8192, 0, 0], ios: [0; 3], cycle: Duration::from_secs(1) };
        let mut watch = FloorWatch::new(floor);
        assert_eq!(watch.look(SECOND * 3 / 2, &counts(0, 0)), None, "it may still come up to its rate");
        assert_eq!(watch.look(2 * SECOND, &counts(4, 0)), None, "two requests a second");
        assert_eq!(watch.look(5 * SECOND / 2, &counts(4, 0)), None, "a cycle is a second");
        assert_eq!(watch.look(4 * SECOND, &counts(8, 0)), None, "a late request ends a long cycle");
        let slow = watch.look(5 * SECOND, &counts(9, 0)).expect("is too slow");
        assert_eq!((slow.option, slow.direction, slow.wanted), ("rate_min", Direction::Read, 8192));
        assert_eq!(slow.got, 4096);
    }

    #[test]
    fn requests_have_a_floor_of_their_own_in_each_direction() {
        let floor = Floor { bytes: [0; 3], ios: [0, 3, 0], cycle: Duration::from_secs(1) };
        let mut watch = FloorWatch::new(floor);
        assert_eq!(watch.look(2 * SECOND, &counts(0, 6)), None);
        let slow = watch.look(3 * SECOND, &counts(9, 8)).expect("is too slow");
        assert_eq!((slow.option, slow.direction, slow.got), ("rate_iops_min", Direction::Write, 2));
    }
}
