//! The next runs of a simulated sweep, computed before their turn on all CPUs.
//!
//! A run in virtual time follows from machine, layout and workload alone, so that it may be computed whenever there is a CPU for it; when it
//! began is put in when its turn comes. The records are those of one thread, whatever the number of CPUs.
//!
//! Each of the threads computes every n-th run of the list, in order, and holds a few results at most. So memory is bounded, and the
//! result whose turn it is comes from a thread that is known. A thread ends when its results are not wanted any more, with the run that it
//! is in, which the interruption of the sweep ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use ::sim::{Layout, Machine, SimTarget, Stop};
use measure::record::RunRecord;
use measure::{Target, TargetError, Workload};

/// Results that a thread holds beside the one that it computes.
const RESULTS_HELD: usize = 2;
/// Memory that the runs of all threads may take together, bytes; one runs whatever it takes.
const RUNS_BYTES: u64 = 2 << 30;

/// One run: the key of its layout, the layout, and what runs there.
pub type Job = (String, Layout, Workload);

type Computed = Result<RunRecord, TargetError>;

/// Runs that are computed before their turn.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Those to come: key and workload of each, and the thread that computes it.
    queue: VecDeque<(String, Workload, usize)>,
    threads: Vec<Receiver<Computed>>,
}

/// How many runs of `machine` may be computed side by side.
pub fn threads(machine: &Machine) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let room = RUNS_BYTES / machine.run_bytes().max(1);
    usize::try_from(room).unwrap_or(usize::MAX).clamp(1, cpus)
}

impl Ahead {
    /// Begins to compute `jobs` on so many threads.
    pub fn new(machine: &Arc<Machine>, interrupt: &Arc<AtomicBool>, threads: usize, jobs: Vec<Job>) -> Self {
        let mut parts: Vec<Vec<(Layout, Workload)>> = vec![Vec::new(); threads.min(jobs.len())];
        let mut queue = VecDeque::with_capacity(jobs.len());
        for (number, (key, layout, workload)) in jobs.into_iter().enumerate() {
            let thread = number % parts.len();
            queue.push_back((key, workload.clone(), thread));
            parts[thread].push((layout, workload));
        }
        let begin = |part: Vec<(Layout, Workload)>| {
            let (sender, receiver) = sync_channel(RESULTS_HELD);
            let (machine, interrupt) = (Arc::clone(machine), Arc::clone(interrupt));
            std::thread::spawn(move || compute(&machine, &interrupt, part, &sender));
            receiver
        };
        Self { queue, threads: parts.into_iter().map(begin).collect() }
    }

    /// The result of a run whose turn it is; none where it was not among those to come. Those before it were left out of the
    /// sweep, and are dropped.
    pub fn take(&mut self, key: &str, workload: &Workload) -> Option<Computed> {
        let is_it = |(own, its, _): &(String, Workload, usize)| own == key && its == workload;
        let place = self.queue.iter().position(is_it)?;
        let mut result = None;
        for (.., thread) in self.queue.drain(..=place) {
            // A thread that is gone has panicked; the run itself then says why.
            result = self.threads[thread].recv().ok();
        }
        result
    }
}

fn compute(
    machine: &Arc<Machine>,
    interrupt: &Arc<AtomicBool>,
    part: Vec<(Layout, Workload)>,
    results: &SyncSender<Computed>,
) {
    for (layout, workload) in part {
        let target = SimTarget::new(Arc::clone(machine), layout, Stop::default());
        let result = match target {
            Ok(target) => target.interrupted_by(Arc::clone(interrupt)).run(&workload),
            Err(error) => Err(TargetError::Invalid(Box::new(error))),
        };
        if results.send(result).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs that differ in depth and seed, each with a key of its own.
    fn jobs(machine: &Machine) -> Vec<Job> {
        let job = |n: u32| {
            let workload = Workload { iodepth: 1 + n % 5, randseed: u64::from(n), ..Workload::default() };
            (format!("key={n}"), Layout::all(machine), workload)
        };
        (0..11).map(job).collect()
    }

    fn machine() -> Arc<Machine> {
        Arc::new(Machine::brought("dash-one-drive", &|_, _| {}).expect("is brought"))
    }

    fn records(threads: usize, left_out: impl Fn(usize) -> bool) -> Vec<(usize, RunRecord)> {
        let machine = machine();
        let mut ahead = Ahead::new(&machine, &Arc::default(), threads, jobs(&machine));
        let wanted = jobs(&machine).into_iter().enumerate().filter(|(n, _)| !left_out(*n));
        wanted
            .map(|(n, (key, _, workload))| (n, ahead.take(&key, &workload).expect("comes").expect("runs")))
            .collect()
    }

    #[test]
    fn records_are_those_of_one_thread_and_of_the_target_itself() {
        let machine = machine();
        let alone: Vec<(usize, RunRecord)> = jobs(&machine)
            .into_iter()
            .enumerate()
            .map(|(n, (_, layout, workload))| {
                let target = SimTarget::new(Arc::clone(&machine), layout, Stop::default());
                (n, target.expect("can be").run(&workload).expect("runs"))
            })
            .collect();
        for threads in [1, 3, 40] {
            assert_eq!(records(threads, |_| false), alone, "{threads} threads");
        }
        let some = records(3, |n| n % 4 == 1 || n == 10);
        assert_eq!(some, alone.into_iter().filter(|(n, _)| n % 4 != 1 && *n != 10).collect::<Vec<_>>());
    }

    #[test]
    fn a_run_that_was_not_named_or_comes_a_second_time_is_not_among_those_to_come() {
        let machine = machine();
        let jobs = jobs(&machine);
        let mut ahead = Ahead::new(&machine, &Arc::default(), 2, jobs.clone());
        let (key, _, workload) = &jobs[3];
        assert!(ahead.take("key=99", workload).is_none());
        assert!(ahead.take(key, workload).is_some_and(|result| result.is_ok()));
        assert!(ahead.take(key, workload).is_none());
        assert!(Ahead::default().take(key, workload).is_none());
    }

    #[test]
    fn an_interruption_ends_the_runs_in_progress() {
        let machine = machine();
        let interrupt = Arc::new(AtomicBool::new(true));
        let jobs = jobs(&machine);
        let mut ahead = Ahead::new(&machine, &interrupt, 2, jobs.clone());
        for (key, _, workload) in &jobs {
            let result = ahead.take(key, workload).expect("is among them");
            assert!(matches!(result, Err(TargetError::Interrupted)), "{key}");
        }
    }

    #[test]
    fn runs_side_by_side_have_their_bound_of_memory() {
        let large = Machine::brought("mqsim-default", &|_, _| {}).expect("is brought");
        assert!(large.run_bytes() > 500 << 20, "{}", large.run_bytes());
        assert!(threads(&large) <= 4);
    }
}
