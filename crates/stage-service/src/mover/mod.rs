//! The mover: jobs taken from a journal and carried out, several at a time. What its threads do is in `work`.

mod work;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::work::{Live, counts_of};
use crate::qos::{JobPace, Qos, QosConfig};
use stage::crew::Crew;
use stage::error::StageError;
use stage::job::{JobId, JobStatus, State, has_reached};
use stage::journal::{Accepted, JobRow, Journal, Judged};
use stage::pace::Stop;
use stage::runner::{self, now};
use stage::spec::{JobSpec, Level, Place};
use stage::tier::Tiers;

/// How a mover works.
#[derive(Clone)]
pub struct MoverConfig {
    /// Where the journal is, made if it is not there; one mover at a time has it.
    pub state: PathBuf,
    /// Jobs at once.
    pub jobs: usize,
    /// Threads that copy, for each job.
    pub threads: usize,
    /// What holds jobs back.
    pub qos: Arc<Qos>,
    /// What opens tiers that are no directories.
    pub tiers: Tiers,
    /// Other processes that copy as well.
    pub crew: Option<Arc<dyn Crew>>,
}

impl MoverConfig {
    /// Two jobs at once, each with as many threads as there are CPUs, up to eight; no limits.
    #[must_use]
    pub fn new(state: impl Into<PathBuf>) -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        Self {
            state: state.into(),
            jobs: 2,
            threads,
            qos: Qos::new(QosConfig::default()),
            tiers: Tiers::default(),
            crew: None,
        }
    }
}

impl fmt::Debug for MoverConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, jobs, threads, .. } = self;
        f.debug_struct("MoverConfig")
            .field("state", state)
            .field("jobs", jobs)
            .field("threads", threads)
            .finish()
    }
}

/// Jobs taken from a journal and carried out. Clones are the same mover; the last one that goes stops it, between
/// two steps, and what is not finished is gone on with by the next.
#[derive(Debug, Clone)]
pub struct Mover(Arc<Owner>);

/// Stops the threads when the last mover goes. They have no part in it themselves.
#[derive(Debug)]
struct Owner {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    config: MoverConfig,
    journal: Journal,
    desk: Mutex<Desk>,
    changed: Condvar,
    /// The mover ends.
    stopping: Stop,
}

/// What is waiting and what is under way.
#[derive(Debug, Default)]
struct Desk {
    waiting: Vec<Waiting>,
    live: HashMap<JobId, Live>,
    /// Jobs that are not at work and are being cancelled, with their destinations.
    given_up: HashMap<JobId, Place>,
}

/// A job that is to be begun.
#[derive(Debug)]
struct Waiting {
    id: JobId,
    priority: i32,
    destination: Place,
}

impl Waiting {
    fn of(id: JobId, spec: &JobSpec) -> Self {
        Self { id, priority: spec.options.priority, destination: spec.destination.clone() }
    }
}

impl Desk {
    /// The job to begin now: the most urgent, and of those the oldest. Jobs with one destination follow one another in
    /// the order in which they were accepted.
    fn next(&mut self) -> Option<Waiting> {
        let mut first: HashMap<&Place, JobId> = HashMap::new();
        for job in &self.waiting {
            let id = first.entry(&job.destination).or_insert(job.id);
            *id = job.id.min(*id);
        }
        let is_free = |job: &Waiting| {
            first[&job.destination] == job.id
                && self.live.values().all(|live| live.destination != job.destination)
                && self.given_up.values().all(|destination| *destination != job.destination)
        };
        let (at, _) = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, job)| is_free(job))
            .max_by_key(|(_, job)| (job.priority, std::cmp::Reverse(job.id)))?;
        Some(self.waiting.swap_remove(at))
    }
}

impl Mover {
    /// Opens the journal and goes on with what is in it.
    ///
    /// # Errors
    /// Another process has the journal, or it cannot be used.
    pub fn open(config: &MoverConfig) -> Result<Self, StageError> {
        let journal = Journal::open(&config.state)?;
        stage::retention::restore(&journal)?;
        let mut desk = Desk::default();
        for row in journal.jobs()? {
            if !row.state.is_final() {
                desk.waiting.push(Waiting::of(row.id, &row.spec));
            }
        }
        let inner = Arc::new(Inner {
            config: config.clone(),
            journal,
            desk: Mutex::new(desk),
            changed: Condvar::new(),
            stopping: Stop::new(),
        });
        let threads = (0..config.jobs.max(1))
            .map(|_| {
                let inner = Arc::clone(&inner);
                std::thread::spawn(move || inner.work())
            })
            .collect();
        Ok(Self(Arc::new(Owner { inner, threads: Mutex::new(threads) })))
    }

    fn inner(&self) -> &Inner {
        &self.0.inner
    }

    /// Accepts a job: it is in the journal, durably, when this returns. The same request, made again while the job is
    /// under way, is the same job as long as what the job publishes is the source as it is now: until it has walked the
    /// source for the last time, and then while nothing in the source has changed. Otherwise it is a new job, which
    /// begins when the other has ended.
    pub fn submit(&self, spec: JobSpec) -> Result<JobId, StageError> {
        self.take(spec, true)
    }

    /// Takes the drain of a checkpoint that a store has committed. It becomes a job even if it can only fail: the
    /// store's next call tells of it, and a retry begins it again.
    ///
    /// # Errors
    /// Those of [`Mover::submit`] that do not depend on what lies where.
    pub(crate) fn submit_drain(&self, spec: JobSpec) -> Result<JobId, StageError> {
        self.take(spec, false)
    }

    fn take(&self, spec: JobSpec, check: bool) -> Result<JobId, StageError> {
        let inner = self.inner();
        let named = spec.options.expected_digest;
        let spec = spec.sealed();
        if named.is_some() && (spec.options.expected.is_empty() || spec.options.expected_digest != named) {
            // A list that was lost on the way must not become a move of whatever is there.
            return Err(StageError::invalid(
                "the list of expected files is not the one that the request was made with",
                "client and server of one version understand each other",
            ));
        }
        for place in [&spec.source, &spec.destination] {
            match place {
                Place::Path(path) if !path.0.is_absolute() => {
                    return Err(StageError::invalid(
                        format!("{}: not an absolute path", stage::error::shown(&path.0)),
                        "a server does not know the directory that it was typed in",
                    ));
                }
                // An address was checked when it was made, out of a request as well.
                Place::Path(_) | Place::Object(_) => {}
            }
        }
        if inner.stopping.asked() {
            return Err(StageError::Stopped { what: "the mover takes no more jobs".to_owned() });
        }
        if check && let Err(refused) = spec.check_source().and_then(|()| runner::check_request(&spec)) {
            // The source of a move that is being finished is gone, its destination is there, and a second request for that
            // move is not a mistake.
            let finishing = |row: &JobRow| {
                let is_open = !row.state.is_final() || row.state == State::Failed && row.level.is_committed();
                is_open && row.spec.is_same_request(&spec)
            };
            if !inner.journal.jobs()?.iter().any(finishing) {
                return Err(refused);
            }
        }
        spec.check_part()?;
        spec.check_parents()?;
        let mut judged = None;
        loop {
            match inner.journal.accept(&spec, now(), judged)? {
                Accepted::New(id) => {
                    inner.desk().waiting.push(Waiting::of(id, &spec));
                    inner.changed.notify_all();
                    return Ok(id);
                }
                Accepted::Same(id, State::Failed) => return self.retry(id).map(|job| job.id),
                Accepted::Same(id, _) => return Ok(id),
                // Not in a transaction of the journal: it walks the source.
                Accepted::Judge(row) => {
                    let row = inner.journal.with_expected(*row)?;
                    let same = runner::is_source_of(&inner.journal, &row, &inner.config.tiers)?;
                    judged = Some(Judged { id: row.id, state: row.state, source: row.source, same });
                }
            }
        }
    }

    /// A job, or all of them, the newest last.
    ///
    /// # Errors
    /// There is no such job.
    pub fn status(&self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        let inner = self.inner();
        match id {
            Some(id) => Ok(vec![inner.status(id)?]),
            None => Ok(inner.journal.jobs()?.into_iter().map(|row| inner.with_progress(row)).collect()),
        }
    }

    /// Waits until a job has come this far, has ended, or the time is up (none: as long as it takes). Of a job that is
    /// committed, `Durable` waits for the source of a move to be gone as well. The returned status tells which it was: a
    /// job whose destination is in memory ends at [`Level::InMemory`].
    ///
    /// # Errors
    /// There is no such job.
    pub fn wait(&self, id: JobId, level: Level, most: Option<Duration>) -> Result<JobStatus, StageError> {
        let inner = self.inner();
        let until = most.and_then(|most| Instant::now().checked_add(most));
        loop {
            // The desk is held between looking and waiting, so that no change falls between the two.
            let desk = inner.desk();
            let row = inner.row(id)?;
            let reached = has_reached(row.state, row.level, level)
                || desk.live.get(&id).is_some_and(|live| live.unsettled().is_some());
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if reached || left == Some(Duration::ZERO) || inner.stopping.asked() {
                drop(desk);
                return inner.status(id);
            }
            // Levels are journalled without the desk, so the wait is short.
            let nap = left.unwrap_or(Duration::MAX).min(Duration::from_millis(100));
            drop(inner.changed.wait_timeout(desk, nap).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Gives a job up: what was copied goes, the source stays. One that is committed is not undone.
    ///
    /// # Errors
    /// There is no such job, it is committed, the mover ends; the journal's, and those of the destination.
    pub fn cancel(&self, id: JobId) -> Result<JobStatus, StageError> {
        let inner = self.inner();
        let mut desk = inner.desk();
        let mut asked = false;
        loop {
            let row = inner.row(id)?;
            match row.state {
                // It came to its end before it noticed.
                State::Committed | State::Done if asked => break,
                State::Committed | State::Done => {
                    return Err(StageError::refused(
                        format!("job {id}: is committed at {} already", row.spec.destination.shown()),
                        "it cannot be given up any more; remove what it made, if it is not wanted",
                    ));
                }
                State::Cancelled => break,
                State::Queued | State::Running | State::Failed => {}
            }
            if let Some(live) = desk.live.get(&id) {
                live.cancelled.store(true, Relaxed);
                live.stop.ask();
                asked = true;
                if live.unsettled().is_some() {
                    break;
                }
            } else if inner.stopping.asked() {
                return Err(StageError::Stopped { what: "the mover ends".to_owned() });
            } else if !desk.given_up.contains_key(&id) {
                desk.waiting.retain(|waiting| waiting.id != id);
                desk.given_up.insert(id, row.spec.destination.clone());
                // A store that does not answer must keep no other request from the desk.
                drop(desk);
                let given_up = inner.give_up(&row);
                desk = inner.desk();
                desk.given_up.remove(&id);
                inner.changed.notify_all();
                given_up?;
                break;
            }
            desk = inner.changed.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
        drop(desk);
        inner.changed.notify_all();
        inner.status(id)
    }

    /// Retries a failed job, with what it has copied so far.
    ///
    /// # Errors
    /// There is no such job, it has not failed.
    pub fn retry(&self, id: JobId) -> Result<JobStatus, StageError> {
        let inner = self.inner();
        let mut desk = inner.desk();
        let row = inner.row(id)?;
        if desk.given_up.contains_key(&id) {
            return Err(StageError::refused(
                format!("job {id}: is being cancelled"),
                "wait for that, then ask for the move again",
            ));
        }
        if row.state != State::Failed {
            return Err(StageError::invalid(
                format!("job {id}: is {}, and only what has failed is begun again", row.state.word()),
                "`flashwright stage status --all` lists them",
            ));
        }
        // A move that failed after its commit goes on there.
        let state = if row.level.is_committed() { State::Committed } else { State::Queued };
        inner.journal.settle(id, state, now(), None, &row.notes)?;
        desk.waiting.push(Waiting::of(id, &row.spec));
        drop(desk);
        inner.changed.notify_all();
        inner.status(id)
    }

    /// Stops taking jobs, stops those at work between two steps, and waits for them.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// The journal, which others may read beside the mover.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.inner().journal
    }
}

impl Owner {
    fn stop(&self) {
        self.inner.stopping.ask();
        for live in self.inner.desk().live.values() {
            live.stop.ask();
        }
        self.inner.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn row(&self, id: JobId) -> Result<JobRow, StageError> {
        self.journal.job(id)?.ok_or_else(|| {
            StageError::invalid(
                format!("job {id}: there is none"),
                "`flashwright stage status --all` lists them",
            )
        })
    }

    fn status(&self, id: JobId) -> Result<JobStatus, StageError> {
        Ok(self.with_progress(self.row(id)?))
    }

    /// A row, and of a job at work what is known better.
    fn with_progress(&self, row: JobRow) -> JobStatus {
        let live = self.desk().live.get(&row.id).cloned();
        let mut status = JobStatus::from(row);
        let Some(live) = live else {
            // A row says `running` until it is settled; after a crash no thread runs it yet.
            if status.state == State::Running {
                status.state = State::Queued;
            }
            return status;
        };
        if let Some(unsettled) = live.unsettled() {
            (status.state, status.error) = (State::Failed, Some(unsettled));
        }
        let [files_total, files_done, bytes_total, bytes_written, bytes_verified] = counts_of(&live.progress);
        JobStatus {
            files_total,
            files_done,
            bytes_total,
            bytes_written,
            bytes_verified,
            walked: live.progress.walked.load(Relaxed),
            bytes_per_s: Some(live.rate(bytes_written)),
            held_back_by: live.pace.get().and_then(JobPace::held_back_by),
            ..status
        }
    }
}
