//! Jobs of one group that do not all begin together, or that end each other: fio's `startdelay`, `wait_for` and `exitall`.
//!
//! Jobs that begin together are a *cohort*: one call of [`run`], with one interval in which all of them are busy. Cohorts
//! run beside each other, each on a thread of its own. A drive may serve several of them, at times that do not coincide, so
//! its counters are not compared with what one cohort asked of it (`Known::drives_are_shared`).
//!
//! A job is in one cohort with those that begin when it does, belong to its reporting group and end the same others. So
//! a cohort ends as a whole, whoever ends it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use measure::record::RunRecord;

use super::conduct::Aside;
use super::{BenchError, Job, Outcome, RunOptions, run};
use crate::lies::beside;

/// How long a cohort sleeps at most before it looks for a wish to stop.
const LOOK: Duration = Duration::from_millis(50);

/// What ends when a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ends {
    /// Nothing but the job.
    #[default]
    Nothing,
    /// The jobs of its reporting group.
    Group,
    /// All jobs that run beside it.
    Running,
    /// These, and nothing runs after them.
    Everything,
}

/// When a job begins, and what it ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arrangement {
    /// The jobs, by their places among those of the run, at whose end it begins. None for the begin of the run. A job
    /// waits for earlier ones only.
    pub after: Vec<usize>,
    /// How much later it begins.
    pub delay: Duration,
    /// Its reporting group.
    pub group: u32,
    /// What ends with it.
    pub ends: Ends,
}

impl Arrangement {
    /// Whether the job begins with the run and ends nothing.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.after.is_empty() && self.delay.is_zero() && self.ends == Ends::Nothing
    }
}

/// What came of jobs that were arranged.
#[derive(Debug)]
pub struct Arranged {
    /// One record a job, in the jobs' order; None of a job that was ended before it began.
    pub records: Vec<Option<RunRecord>>,
    /// What each job has beside its record; nothing of one that did not run.
    pub asides: Vec<Aside>,
    /// Whether somebody asked to stop before it was over.
    pub interrupted: bool,
    /// When the first thread began and the last one ended.
    pub span: Range<Instant>,
    /// Whether nothing is to run after these.
    pub ends_everything: bool,
}

/// Runs jobs that begin when their arrangements say so, from start to end.
///
/// # Errors
/// As [`run`]; a cohort that fails stops the others.
pub fn run_arranged(
    jobs: &[Job],
    arrangements: &[Arrangement],
    options: RunOptions<'_>,
) -> Result<Arranged, BenchError> {
    assert_eq!(jobs.len(), arrangements.len(), "each job has an arrangement");
    let mut arranged = arranged(jobs, arrangements, options)?;
    let records: Vec<Option<&RunRecord>> = arranged.records.iter().map(Option::as_ref).collect();
    let warnings = beside::same_offsets(&records);
    for (record, warning) in arranged.records.iter_mut().zip(warnings) {
        if let (Some(record), Some(warning)) = (record, warning)
            && !record.has_warning(warning.code)
        {
            record.warnings.push(warning);
            record.warnings.sort_by_key(|warning| warning.code);
        }
    }
    Ok(arranged)
}

/// The records as their cohorts have them.
fn arranged(
    jobs: &[Job],
    arrangements: &[Arrangement],
    options: RunOptions<'_>,
) -> Result<Arranged, BenchError> {
    if arrangements.iter().all(Arrangement::is_plain) {
        let Outcome { records, asides, interrupted, span } = run(jobs, options)?;
        let records = records.into_iter().map(Some).collect();
        return Ok(Arranged { records, asides, interrupted, span, ends_everything: false });
    }
    let cohorts = cohorts(arrangements);
    let shared = Shared {
        ended: Mutex::new(vec![false; jobs.len()]),
        changed: Condvar::new(),
        stops: cohorts.iter().map(|_| AtomicBool::new(false)).collect(),
        ends_everything: AtomicBool::new(false),
    };
    let conduct = |number: usize| shared.conduct(&cohorts, number, jobs, arrangements, options.pass);
    let wants_stop = || options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
    let outcomes: Vec<Result<Option<Outcome>, BenchError>> = std::thread::scope(|scope| {
        let conduct = &conduct;
        let threads: Vec<_> = (0..cohorts.len()).map(|number| scope.spawn(move || conduct(number))).collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            if wants_stop() {
                shared.stop_all();
            }
            shared.wait();
        }
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut records: Vec<Option<RunRecord>> = jobs.iter().map(|_| None).collect();
    let mut asides: Vec<Aside> = jobs.iter().map(|_| Aside::default()).collect();
    let mut spans = Vec::new();
    for (cohort, outcome) in cohorts.iter().zip(outcomes) {
        let Some(outcome) = outcome? else { continue };
        spans.push(outcome.span);
        for ((place, record), aside) in cohort.iter().zip(outcome.records).zip(outcome.asides) {
            (records[*place], asides[*place]) = (Some(record), aside);
        }
    }
    let now = Instant::now();
    let first = spans.iter().map(|span| span.start).min().unwrap_or(now);
    let last = spans.iter().map(|span| span.end).max().unwrap_or(now);
    let ends_everything = shared.ends_everything.load(Ordering::Relaxed);
    Ok(Arranged { records, asides, interrupted: wants_stop(), span: first..last, ends_everything })
}

/// The places of the jobs of each cohort. A job that another waits for is in a cohort of its own, which ends when it ends.
fn cohorts(arrangements: &[Arrangement]) -> Vec<Vec<usize>> {
    let is_awaited = |place: usize| arrangements.iter().any(|a| a.after.contains(&place));
    let mut cohorts: Vec<Vec<usize>> = Vec::new();
    for (place, arrangement) in arrangements.iter().enumerate() {
        let joins = |cohort: &&mut Vec<usize>| {
            arrangements[cohort[0]] == *arrangement && !is_awaited(place) && !is_awaited(cohort[0])
        };
        match cohorts.iter_mut().find(joins) {
            Some(cohort) => cohort.push(place),
            None => cohorts.push(vec![place]),
        }
    }
    cohorts
}

/// What the cohorts of a run share.
#[derive(Debug)]
struct Shared {
    /// Which jobs have ended.
    ended: Mutex<Vec<bool>>,
    changed: Condvar,
    /// Set to stop a cohort.
    stops: Vec<AtomicBool>,
    ends_everything: AtomicBool,
}

impl Shared {
    /// Waits for a cohort's start, runs it, and ends what ends with it. None if it was stopped before it began.
    fn conduct(
        &self,
        cohorts: &[Vec<usize>],
        number: usize,
        jobs: &[Job],
        arrangements: &[Arrangement],
        pass: u32,
    ) -> Result<Option<Outcome>, BenchError> {
        let cohort = &cohorts[number];
        let arrangement = &arrangements[cohort[0]];
        let result = match self.wait_for_start(arrangement, &self.stops[number]) {
            true => {
                let job = |place: &usize| {
                    let mut job = jobs[*place].clone();
                    job.known.drives_are_shared = cohorts.len() > 1;
                    job
                };
                let jobs: Vec<Job> = cohort.iter().map(job).collect();
                let first_ends_all = arrangement.ends != Ends::Nothing;
                let stop = Some(&self.stops[number]);
                run(&jobs, RunOptions { stop, pass, first_ends_all, ..RunOptions::default() }).map(Some)
            }
            false => Ok(None),
        };
        self.end(cohorts, number, arrangements, &result);
        result
    }

    /// Notes that a cohort has ended.
    fn end(
        &self,
        cohorts: &[Vec<usize>],
        number: usize,
        arrangements: &[Arrangement],
        result: &Result<Option<Outcome>, BenchError>,
    ) {
        let own = &arrangements[cohorts[number][0]];
        // What was itself ended ends nothing.
        let was_stopped = self.stops[number].load(Ordering::Relaxed);
        match own.ends {
            _ if result.is_err() => self.stop_all(),
            _ if was_stopped => {}
            Ends::Nothing => {}
            Ends::Group => {
                let of_group = |cohort: &Vec<usize>| arrangements[cohort[0]].group == own.group;
                let others = cohorts.iter().zip(&self.stops).filter(|(cohort, _)| of_group(cohort));
                others.for_each(|(_, stop)| stop.store(true, Ordering::Relaxed));
            }
            Ends::Running => self.stop_all(),
            Ends::Everything => {
                self.ends_everything.store(true, Ordering::Relaxed);
                self.stop_all();
            }
        }
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        cohorts[number].iter().for_each(|place| ended[*place] = true);
        self.changed.notify_all();
    }

    /// Waits until the jobs have ended that a cohort waits for, and then for its delay. False if it is stopped.
    fn wait_for_start(&self, arrangement: &Arrangement, stop: &AtomicBool) -> bool {
        let mut since = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            if !arrangement.after.iter().all(|place| ended[*place]) {
                drop(self.changed.wait_timeout(ended, LOOK));
                since = Instant::now();
                continue;
            }
            drop(ended);
            match arrangement.delay.checked_sub(since.elapsed()) {
                None | Some(Duration::ZERO) => return true,
                Some(left) => std::thread::sleep(left.min(LOOK)),
            }
        }
    }

    fn stop_all(&self) {
        self.stops.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
    }

    /// Waits until a cohort has ended, or a short while.
    fn wait(&self) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_timeout(ended, LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_begin_together_and_end_the_same_others_are_one_cohort() {
        let plain = Arrangement::default();
        let late = Arrangement { delay: Duration::from_secs(4), ..plain.clone() };
        let after = Arrangement { after: vec![1], ..plain.clone() };
        let ending = Arrangement { ends: Ends::Group, ..plain.clone() };
        let arrangements = [plain.clone(), plain.clone(), plain, late.clone(), late, after, ending];
        let expected = vec![vec![0, 2], vec![1], vec![3, 4], vec![5], vec![6]];
        assert_eq!(cohorts(&arrangements), expected, "job 1 is waited for");
    }
}
