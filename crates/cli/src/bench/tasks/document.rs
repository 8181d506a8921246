//! The result of `bench` by several tasks for programs: `flashwright.bench-tasks/1`.
//!
//! Bandwidth is what IOR calls so: all bytes over the time from the first task's begin to the last one's end, each on the
//! root's clock. The sum of the tasks' own bandwidths stands beside it; the two differ by what stragglers cost.
//! Percentiles are of the tasks' histograms put together.

use std::collections::BTreeMap;

use measure::remedy::OptionsBy;
use measure::{RunRecord, WarningCode};
use ranks::{ClockOffset, Member};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::figures::{BenchWarning, CpuPerIo, Figures, warnings};
use super::super::request::Job;
use super::share::Division;
use super::{TaskRun, on_root_clock};
use crate::tasks::rounds::{Sign, Together};

/// The name of the format.
pub const SCHEMA: &str = "flashwright.bench-tasks/1";

/// Below this share of the median task's bandwidth a task is a straggler.
pub const STRAGGLER_MAX_SHARE: f64 = 0.8;

/// What the tasks came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TasksReport {
    /// `flashwright.bench-tasks/1`.
    pub schema: String,
    /// Whether it was stopped before its end; the figures are then of the time before.
    pub interrupted: bool,
    /// The task without which the others ended, and why. The figures are then what was known of each within a second before.
    pub lost: Option<String>,
    /// Nodes.
    pub nodes: u32,
    /// Tasks.
    pub tasks: u32,
    /// The fewest and the most tasks on a node.
    pub tasks_per_node: [u32; 2],
    /// Whether all tasks have one target.
    pub shared: bool,
    /// Whether each task read what another one wrote.
    pub reorder: bool,
    /// Bytes that all tasks moved, ramp and tail included.
    pub aggregate_bytes: u64,
    /// From the first task's begin to the last one's end, nanoseconds; of a lost run the longest time of a task.
    pub elapsed_ns: u64,
    /// The first by the second.
    pub bandwidth_bytes_per_s: f64,
    /// The sum of the tasks' own bandwidths.
    pub bandwidth_sum_bytes_per_s: f64,
    /// From the first task's begin to the last one's, nanoseconds.
    pub begin_spread_ns: u64,
    /// From the first task's end to the last one's, nanoseconds.
    pub end_spread_ns: u64,
    /// The largest error that the comparison of clocks leaves in these times, nanoseconds.
    pub clock_error_ns: u64,
    /// All tasks' counts put together. None if no task came to its end.
    pub figures: Option<Figures>,
    /// The warnings of all tasks, each code once.
    pub warnings: Vec<BenchWarning>,
    /// Tasks whose own bandwidth is below 0.8 of the median task's, slowest first.
    pub stragglers: Vec<u32>,
    /// Each task.
    pub by_task: Vec<TaskFigures>,
}

/// One of the tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskFigures {
    /// Its rank.
    pub rank: u32,
    /// Its node.
    pub node: String,
    /// Its target.
    pub target: String,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Its begin after that of the first task, nanoseconds. None if it did not come to its end.
    pub began_ns: Option<u64>,
    /// Its own time, nanoseconds.
    pub elapsed_ns: u64,
    /// The one by the other.
    pub bandwidth_bytes_per_s: f64,
    /// How far its clock was ahead of the root's, nanoseconds.
    pub clock_offset_ns: i64,
    /// Round trip of the message by which the clocks were compared, nanoseconds.
    pub clock_round_trip_ns: i64,
    /// Its record, if it came to its end.
    pub record: Option<RunRecord>,
}

/// What the report is made of.
pub struct Seen<'a> {
    /// Where the tasks ran.
    pub members: &'a [Member],
    /// Their clocks.
    pub clocks: &'a [ClockOffset],
    /// What each did.
    pub parts: &'a [Job],
    /// How the work was divided.
    pub division: Division,
    /// What they came to.
    pub together: &'a Together<TaskRun>,
}

impl TasksReport {
    /// The report.
    pub fn new(seen: &Seen<'_>) -> Self {
        let by_task = tasks(seen);
        let records: Vec<&RunRecord> = by_task.iter().filter_map(|task| task.record.as_ref()).collect();
        let elapsed = by_task.iter().map(|task| task.began_ns.unwrap_or(0) + task.elapsed_ns);
        let elapsed_ns = elapsed.clone().max().unwrap_or(0);
        let spread = |times: Vec<u64>| times.iter().max().unwrap_or(&0) - times.iter().min().unwrap_or(&0);
        let aggregate_bytes = by_task.iter().map(|task| task.bytes).sum();
        let mut on_node: BTreeMap<&str, u32> = BTreeMap::new();
        seen.members.iter().for_each(|member| *on_node.entry(&member.node).or_default() += 1);
        let round_trip = seen.clocks.iter().map(|clock| clock.round_trip_ns).max().unwrap_or(0);
        Self {
            schema: SCHEMA.to_owned(),
            interrupted: seen.together.interrupted,
            lost: seen.together.lost.as_ref().map(ToString::to_string),
            nodes: on_node.len() as u32,
            tasks: seen.members.len() as u32,
            tasks_per_node: [on_node.values().min(), on_node.values().max()].map(|n| *n.unwrap_or(&0)),
            shared: seen.division.shared,
            reorder: seen.division.reorder,
            aggregate_bytes,
            elapsed_ns,
            bandwidth_bytes_per_s: rate(aggregate_bytes, elapsed_ns),
            bandwidth_sum_bytes_per_s: by_task.iter().map(|task| task.bandwidth_bytes_per_s).sum(),
            begin_spread_ns: spread(by_task.iter().filter_map(|task| task.began_ns).collect()),
            end_spread_ns: spread(elapsed.collect()),
            clock_error_ns: round_trip.unsigned_abs().div_ceil(2),
            figures: (!records.is_empty()).then(|| together(&records)),
            warnings: warnings(records.iter().copied(), OptionsBy::Flags),
            stragglers: stragglers(&by_task),
            by_task,
        }
    }
}

fn tasks(seen: &Seen<'_>) -> Vec<TaskFigures> {
    let signs = &seen.together.signs;
    let run = |sign: &Sign<TaskRun>| sign.outcome.clone().and_then(Result::ok);
    let times = |rank: usize, run: &TaskRun| {
        [run.began_ns, run.ended_ns].map(|time| on_root_clock(time, seen.clocks[rank]))
    };
    let runs: Vec<Option<TaskRun>> = signs.iter().map(run).collect();
    let begins = runs.iter().enumerate().filter_map(|(rank, run)| Some(times(rank, run.as_ref()?)[0]));
    let first = begins.min().unwrap_or(0);
    let on_same_node = |rank: usize| {
        let node = &seen.members[rank].node;
        seen.members.iter().filter(|member| member.node == *node).count()
    };
    let task = |(rank, (sign, run)): (usize, (&Sign<TaskRun>, Option<TaskRun>))| {
        let span = run.as_ref().map(|run| times(rank, run));
        let elapsed_ns = span.map_or(sign.elapsed_ns, |[began, ended]| (ended - began).unsigned_abs());
        let total = run.as_ref().map(|run| &run.record.total);
        let bytes = total.map_or(sign.bytes, |total| total.read_bytes + total.write_bytes + total.trim_bytes);
        TaskFigures {
            rank: rank as u32,
            node: seen.members[rank].node.clone(),
            target: seen.parts[rank].target.clone(),
            bytes,
            began_ns: span.map(|[began, _]| (began - first).unsigned_abs()),
            elapsed_ns,
            bandwidth_bytes_per_s: rate(bytes, elapsed_ns),
            clock_offset_ns: seen.clocks[rank].offset_ns,
            clock_round_trip_ns: seen.clocks[rank].round_trip_ns,
            record: run.map(|run| of_several(run.record, on_same_node(rank) > 1)),
        }
    };
    signs.iter().zip(runs).enumerate().map(task).collect()
}

/// A record without what a task says of the others' traffic on the drive that they share.
fn of_several(mut record: RunRecord, shares_node: bool) -> RunRecord {
    record.warnings.retain(|warning| !(shares_node && warning.code == WarningCode::OtherTraffic));
    record
}

/// The figures of all tasks, each a process with CPU time of its own.
fn together(records: &[&RunRecord]) -> Figures {
    let figures = Figures::of(records);
    let each = |of: fn(&RunRecord) -> u64| {
        records.iter().map(|record| of(record)).sum::<u64>() as f64 / figures.ios.max(1) as f64
    };
    let cpu_ns_per_io = CpuPerIo { user: each(|r| r.process.user_ns), system: each(|r| r.process.system_ns) };
    Figures { cpu_ns_per_io, ..figures }
}

fn stragglers(tasks: &[TaskFigures]) -> Vec<u32> {
    let mut order: Vec<&TaskFigures> = tasks.iter().collect();
    order.sort_by(|a, b| a.bandwidth_bytes_per_s.total_cmp(&b.bandwidth_bytes_per_s));
    // Of an even number the upper of the two in the middle, so that of two tasks the slower one can be named.
    let median = order.get(order.len() / 2).map_or(0.0, |task| task.bandwidth_bytes_per_s);
    let is_slow = |task: &&&TaskFigures| task.bandwidth_bytes_per_s < STRAGGLER_MAX_SHARE * median;
    order.iter().take_while(is_slow).map(|task| task.rank).collect()
}

fn rate(bytes: u64, elapsed_ns: u64) -> f64 {
    if elapsed_ns == 0 { 0.0 } else { bytes as f64 * 1e9 / elapsed_ns as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::request::Missing;
    use measure::record::{DirectionCounts, TotalCounts};
    use measure::{Histogram, Workload};

    const MIB: u64 = 1 << 20;

    /// A task that wrote `bytes` from `began_ns` to `ended_ns` on its own clock, each request with this latency.
    fn sign(bytes: u64, began_ns: i64, ended_ns: i64, latency_ns: u64) -> Sign<TaskRun> {
        let mut latency = Histogram::new();
        (0..bytes / MIB).for_each(|_| latency.record(latency_ns));
        let write = DirectionCounts { bytes, ios: bytes / MIB, latency };
        let total = TotalCounts { write_bytes: bytes, ..TotalCounts::default() };
        let record = RunRecord { write, total, ..RunRecord::default() };
        let outcome = serde_json::json!({ "Ok": TaskRun { record, began_ns, ended_ns } });
        let sign = serde_json::json!({ "bytes": bytes, "ios": 0, "elapsed_ns": 1, "stopping": false, "outcome": outcome });
        serde_json::from_value(sign).expect("a sign")
    }

    fn report(signs: Vec<Sign<TaskRun>>, nodes: &[&str], offsets_ns: &[i64]) -> TasksReport {
        let member = |node: &&str| Member { node: (*node).to_owned(), rank_on_node: 0, pid: 1 };
        let members: Vec<Member> = nodes.iter().map(member).collect();
        let clock = |offset_ns: &i64| ClockOffset { offset_ns: *offset_ns, round_trip_ns: 200 };
        let clocks: Vec<ClockOffset> = offsets_ns.iter().map(clock).collect();
        let job = Job {
            name: String::new(),
            target: "f".to_owned(),
            workload: Workload::default(),
            missing: Missing::Refuse,
            fio: None,
        };
        let (parts, division) = (vec![job; nodes.len()], Division { shared: false, reorder: false });
        let together = Together { signs, lost: None, failed: false, interrupted: false };
        TasksReport::new(&Seen {
            members: &members,
            clocks: &clocks,
            parts: &parts,
            division,
            together: &together,
        })
    }

    #[test]
    fn bandwidth_is_of_the_time_from_the_first_begin_to_the_last_end_on_the_clock_of_the_root() {
        let second = 1_000_000_000;
        // The second task's clock is an hour ahead; it begins half a second after the first one.
        let hour = 3600 * second;
        let late = hour + second / 2;
        let signs = vec![sign(100 * MIB, 0, second, 10), sign(100 * MIB, late, late + second / 2, 10)];
        let report = report(signs, &["a", "b"], &[0, hour]);
        assert_eq!(report.elapsed_ns, second as u64);
        assert_eq!(report.bandwidth_bytes_per_s, (200 * MIB) as f64);
        assert_eq!(report.bandwidth_sum_bytes_per_s, (300 * MIB) as f64);
        assert_eq!((report.begin_spread_ns, report.end_spread_ns), (second as u64 / 2, 0));
        assert_eq!((report.nodes, report.tasks, report.tasks_per_node), (2, 2, [1, 1]));
        assert_eq!(report.clock_error_ns, 100);
    }

    #[test]
    fn percentiles_are_those_of_all_requests_and_not_a_mean_of_the_tasks_own() {
        let signs = vec![sign(90 * MIB, 0, 100, 1_000), sign(10 * MIB, 0, 100, 1_000_000)];
        let figures = report(signs, &["a", "a"], &[0, 0]).figures.expect("two tasks ended");
        assert!(figures.latency_ns.p50 < 1_100, "{:?}", figures.latency_ns);
        assert!(figures.latency_ns.p95 > 900_000, "{:?}", figures.latency_ns);
    }

    #[test]
    fn traffic_of_tasks_on_the_same_node_is_no_other_traffic() {
        let with_traffic = || {
            let mut sign = sign(MIB, 0, 100, 10);
            let Some(Ok(run)) = &mut sign.outcome else { panic!("it ended") };
            run.record
                .warn(measure::Warning::new(WarningCode::OtherTraffic, "8 MiB beyond the 4 MiB asked for"));
            sign
        };
        assert!(report(vec![with_traffic(), with_traffic()], &["a", "a"], &[0, 0]).warnings.is_empty());
        assert_eq!(report(vec![with_traffic(), with_traffic()], &["a", "b"], &[0, 0]).warnings.len(), 1);
    }

    #[test]
    fn slow_tasks_are_named_slowest_first() {
        let times = [100, 130, 100, 400, 100];
        let signs = times.iter().map(|time| sign(MIB, 0, *time, 10)).collect();
        assert_eq!(report(signs, &["a"; 5], &[0; 5]).stragglers, [3, 1]);
    }
}
