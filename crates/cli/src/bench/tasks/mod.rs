//! `bench` by several tasks: they start together, their figures are put together.
//!
//! 1. [`share`]: what each task does, and where. 2. Targets are prepared: of a shared file, first the one that is to be made.
//! 3. After a barrier the root names the moment at which all begin, so that what each still has to read and to open does not count
//!    as a late start. All run; meanwhile each says once a second how far it is ([`crate::tasks::rounds`]).
//! 4. [`document`]: begin and end of each task on the root's clock, histograms merged, stragglers named.

pub mod document;
mod share;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::{Progress, RunOptions};
use measure::RunRecord;
use ranks::{ClockOffset, Member, Ranks, now_ns};
use serde::{Deserialize, Serialize};

use super::args::{BenchArgs, OutputFormat};
use super::live;
use super::request::{Job, Request};
use super::run::Bench;
use crate::failure::Failure;
use crate::output::{self, Sink};
use crate::tasks::rounds::{Counters, Rounds, Sign, Together, Watch};
use crate::{signals, tasks};
use document::{Seen, TasksReport};
use share::Division;

/// Exchanges with each rank by which clocks are compared.
const CLOCK_ROUNDS: u32 = 32;

/// How long ranks may take to a barrier where none of them works, and to compare their clocks.
const MEETING_TIMEOUT: Duration = Duration::from_secs(60);

/// How long after the barrier the first request is made. What a rank does before (counters of the host, buffers) takes a few
/// milliseconds, some tens on a busy host.
const START_AHEAD: Duration = Duration::from_millis(100);

/// What a task came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskRun {
    /// What was seen.
    pub record: RunRecord,
    /// When its first thread began, on its own clock, nanoseconds.
    pub began_ns: i64,
    /// When its last thread ended, likewise.
    pub ended_ns: i64,
}

/// Runs what the flags say as one of several tasks.
pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    let sink = args.sink().map_err(Failure::of_root)?;
    let mut request = Request::read(args).map_err(Failure::of_root)?;
    let division = share::check(args, &mut request).map_err(Failure::of_root)?;
    let stop = signals::stop_flag()?;
    let ranks = tasks::join(args.tasks, &stop)?;
    let mut ranks = ranks.ok_or_else(|| Failure::failed("the tasks were not started"))?;
    let clocks = ranks.clock_offsets(CLOCK_ROUNDS, Instant::now() + MEETING_TIMEOUT)?;
    let job = &request.groups[0][0];
    let task = Task { args, job, division, sink: &sink, clocks, asked: &stop, halt: Arc::default() };
    match task.run(&mut ranks, &request) {
        Ok(together) => verdict(ranks, together),
        Err(failure) => {
            let _ = tasks::finish(ranks);
            Err(failure)
        }
    }
}

/// What the command's end is. A rank that is lost leaves the others no way to end together.
fn verdict(ranks: Ranks, together: Together<TaskRun>) -> Result<(), Failure> {
    let is_root = ranks.is_root();
    if let Some(lost) = &together.lost {
        return Err(tasks::lost(lost, is_root));
    }
    let failed = first_failure(&ranks, &together);
    let ended = tasks::finish(ranks);
    match failed {
        Some(failure) => Err(failure),
        None if together.interrupted => {
            Err(Failure::interrupted("interrupted; the figures are of the time before").of_root())
        }
        None => ended,
    }
}

/// The failure of the first rank that has one; only the root knows it.
fn first_failure<T>(ranks: &Ranks, together: &Together<T>) -> Option<Failure> {
    let failed = |(rank, sign): (usize, &Sign<T>)| match &sign.outcome {
        Some(Err(failure)) => Some(failure.told(rank, &ranks.members()[rank].node)),
        _ => None,
    };
    together.signs.iter().enumerate().find_map(failed)
}

/// One of the tasks.
struct Task<'a> {
    args: &'a BenchArgs,
    job: &'a Job,
    division: Division,
    sink: &'a Sink,
    clocks: Vec<ClockOffset>,
    asked: &'a AtomicBool,
    halt: Arc<AtomicBool>,
}

impl Task<'_> {
    /// Prepares, runs, and has the root write the report.
    fn run(&self, ranks: &mut Ranks, request: &Request) -> Result<Together<TaskRun>, Failure> {
        let parts = self.parts(ranks)?;
        let rank = ranks.rank() as usize;
        let own = Request {
            groups: vec![vec![parts[rank].clone()]],
            destroy: share::destroy(&request.destroy, self.job, &parts[rank]),
            allow_unwritten: request.allow_unwritten,
            prepare: None,
            saturate: None,
            global_options: Vec::new(),
            without_effect: Vec::new(),
        };
        let mut bench = None;
        let rounds = self.division.shared.then_some(rank == 0).into_iter().chain([true]);
        for takes_part in rounds {
            self.prepare(ranks, takes_part && bench.is_none(), &own, &mut bench)?;
        }
        let mut bench = bench.ok_or_else(|| Failure::failed("the target was not prepared"))?;
        let start = self.agree_on_start(ranks)?;
        let (counters, members) = (Counters::default(), ranks.members().to_vec());
        let loss = |together: &Together<TaskRun>| {
            // What cannot be written is lost with the rank, which is the error to tell.
            let _ = self.write(&members, &parts, together);
        };
        let watch = Watch { round: &self.say(ranks.is_root()), loss: &loss };
        let work = || run_once(&mut bench, &own.groups[0], &counters, start);
        let together = self.rounds(&counters).run(ranks, &watch, work)?;
        let has_figures = |sign: &Sign<TaskRun>| sign.bytes > 0 || matches!(sign.outcome, Some(Ok(_)));
        if together.lost.is_none() && together.signs.iter().any(has_figures) {
            self.write(&members, &parts, &together)?;
        }
        Ok(together)
    }

    /// Waits for all ranks, and returns when they begin.
    fn agree_on_start(&self, ranks: &mut Ranks) -> Result<Instant, Failure> {
        let until = Instant::now() + MEETING_TIMEOUT;
        ranks.barrier(until)?;
        let named = now_ns() + START_AHEAD.as_nanos() as i64;
        let named = ranks.broadcast(ranks.is_root().then_some(&named.to_le_bytes()), until)?;
        let named = named.try_into().map(i64::from_le_bytes);
        let on_root = named.map_err(|_| Failure::failed("the root named no time to start at"))?;
        let ahead_ns = on_root + self.clocks[ranks.rank() as usize].offset_ns - now_ns();
        Ok(Instant::now() + Duration::from_nanos(ahead_ns.max(0) as u64))
    }

    /// Writes the report.
    fn write(&self, members: &[Member], parts: &[Job], together: &Together<TaskRun>) -> Result<(), Failure> {
        let (clocks, division) = (&self.clocks[..], self.division);
        let report = TasksReport::new(&Seen { members, clocks, parts, division, together });
        self.sink.write(&match self.args.format() {
            OutputFormat::Json => output::document_text(&report)?,
            _ => text::text(&report),
        })
    }

    /// What each task does.
    fn parts(&self, ranks: &Ranks) -> Result<Vec<Job>, Failure> {
        let nodes: Vec<&str> = ranks.members().iter().map(|member| member.node.as_str()).collect();
        let shift = match self.division.reorder {
            false => 0,
            true => share::shift(&nodes).ok_or_else(|| {
                Failure::invalid("--reorder needs another task that wrote the data")
                    .hint("try --tasks 2")
                    .of_root()
            })?,
        };
        let size = ranks.size();
        let owner = |rank: u32| (rank + shift as u32) % size;
        Ok((0..size).map(|rank| share::part(self.job, self.division, rank, owner(rank), size)).collect())
    }

    /// Opens and makes the target at each rank that takes part.
    fn prepare<'r>(
        &'r self,
        ranks: &mut Ranks,
        takes_part: bool,
        own: &'r Request,
        bench: &mut Option<Bench<'r>>,
    ) -> Result<(), Failure> {
        let together = self.rounds(&Counters::default()).run(ranks, &Watch::NONE, || {
            if takes_part {
                *bench = Some(Bench::prepare(own, &self.halt, false)?);
            }
            Ok(())
        })?;
        match (&together.lost, first_failure(ranks, &together)) {
            (Some(lost), _) => Err(tasks::lost(lost, ranks.is_root())),
            (None, Some(failure)) => Err(failure),
            (None, None) if together.failed => Err(Failure::failed("another rank has failed").of_root()),
            (None, None) if together.interrupted => {
                Err(Failure::interrupted("interrupted before anything was measured").of_root())
            }
            (None, None) => Ok(()),
        }
    }

    fn rounds<'c>(&'c self, counters: &'c Counters) -> Rounds<'c> {
        Rounds { asked: self.asked, halt: &self.halt, limit: self.job.workload.request_timeout, counters }
    }

    /// What is said of each round, where it is wanted.
    fn say(&self, is_root: bool) -> impl Fn(u64, u64) {
        let wanted = is_root && (self.args.live || output::is_watched());
        let longest = self.job.workload.runtime;
        let begun = Instant::now();
        let last = std::cell::Cell::new((begun, 0, 0));
        move |bytes, ios| {
            let (then, bytes_then, ios_then) = last.get();
            let step = then.elapsed();
            if !wanted || step < Duration::from_millis(900) {
                return;
            }
            last.set((Instant::now(), bytes, ios));
            let (bytes, ios) = (bytes.saturating_sub(bytes_then), ios.saturating_sub(ios_then));
            live::say(&Progress { measuring: Some(begun.elapsed()), step, bytes, ios }, longest);
        }
    }
}

/// Runs this task's part.
fn run_once(
    bench: &mut Bench<'_>,
    group: &[Job],
    counters: &Counters,
    start: Instant,
) -> Result<TaskRun, Failure> {
    let count = |progress: &Progress| {
        counters.bytes.fetch_add(progress.bytes, Ordering::Relaxed);
        counters.ios.fetch_add(progress.ios, Ordering::Relaxed);
    };
    let options = RunOptions { progress: Some(&count), start: Some(start), ..RunOptions::default() };
    let outcome = bench.group(group, false, options)?;
    let on_clock = |at: Instant| now_ns() - at.elapsed().as_nanos() as i64;
    let (began_ns, ended_ns) = (on_clock(outcome.span.start), on_clock(outcome.span.end));
    let record = outcome
        .records
        .into_iter()
        .flatten()
        .next()
        .ok_or_else(|| Failure::failed("the run gave no record"))?;
    Ok(TaskRun { record, began_ns, ended_ns })
}

/// A time of a rank on the root's clock.
fn on_root_clock(time_ns: i64, clock: ClockOffset) -> i64 {
    time_ns - clock.offset_ns
}
