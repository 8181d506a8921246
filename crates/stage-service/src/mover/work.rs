//! Carrying jobs out: the threads, what is known of a job at work, and how its end is journalled.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::Inner;
use crate::error::ServiceError;
use crate::qos::JobPace;
use stage::error::StageError;
use stage::job::{JobId, State, Why};
use stage::journal::JobRow;
use stage::pace::{Progress, Stop};
use stage::runner::{self, Ended, Run, now};
use stage::spec::Place;

/// How often a job is tried in all after errors that may pass.
const ATTEMPTS: u32 = 3;
/// How often the end of a job is journalled in vain before a wait for it ends with that error.
const SETTLE_ATTEMPTS_SILENT: u32 = 3;
/// Time between two such attempts.
const SETTLE_RETRY: Duration = Duration::from_millis(300);
/// Rates are means over about this long.
const RATE_WINDOW: Duration = Duration::from_secs(4);

/// A job at work.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) destination: Place,
    pub(super) progress: Arc<Progress>,
    pub(super) stop: Stop,
    pub(super) cancelled: Arc<AtomicBool>,
    window: Arc<Mutex<RateWindow>>,
    pub(super) pace: Arc<OnceLock<JobPace>>,
    /// It has ended, and why that could not be journalled.
    unsettled: Arc<Mutex<Option<Why>>>,
}

/// Bytes written at two moments, the older one a few seconds ago.
#[derive(Debug)]
struct RateWindow {
    then: (Instant, u64),
    now: (Instant, u64),
}

impl Inner {
    /// What a thread does: one job after another, until the mover stops.
    pub(super) fn work(&self) {
        loop {
            let mut desk = self.desk();
            let (id, live) = loop {
                if self.stopping.asked() {
                    return;
                }
                if let Some(job) = desk.next() {
                    let live = Live::new(job.destination);
                    desk.live.insert(job.id, live.clone());
                    break (job.id, live);
                }
                desk = self.changed.wait(desk).unwrap_or_else(PoisonError::into_inner);
            };
            drop(desk);
            self.carry_out(id, &live);
            self.desk().live.remove(&id);
            self.changed.notify_all();
        }
    }

    /// Runs a job and journals what became of it.
    fn carry_out(&self, id: JobId, live: &Live) {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.attempts(id, live)));
        let ended = ended.unwrap_or_else(|_| Err(ServiceError::Panicked { job: id }.into()));
        let _ = self.journal.count(id, counts_of(&live.progress));
        if let Err(error) = &ended
            && !matches!(error, StageError::Stopped { .. })
        {
            tracing::warn!(job = id, error = %error, "a job has failed");
        }
        let mut tries = 0;
        while let Err(error) = self.settle(id, live, &ended) {
            tries += 1;
            tracing::error!(job = id, error = %error, "what became of a job could not be journalled; that is retried, and resumed at the next start");
            if tries == SETTLE_ATTEMPTS_SILENT {
                // A wait for the job must not last for ever because the journal cannot be written to.
                *live.unsettled.lock().unwrap_or_else(PoisonError::into_inner) = Some(Why::of(&error));
                self.changed.notify_all();
            }
            let desk = self.desk();
            let nap = self.changed.wait_timeout_while(desk, SETTLE_RETRY, |_| !self.stopping.asked());
            drop(nap);
            if self.stopping.asked() {
                return;
            }
        }
    }

    /// Journals what became of a job.
    fn settle(&self, id: JobId, live: &Live, ended: &Result<Ended, StageError>) -> Result<(), StageError> {
        match ended {
            Ok(Ended { notes, source_left }) => {
                self.journal.settle(id, State::Done, now(), source_left.as_ref(), notes)
            }
            Err(StageError::Stopped { .. }) if live.cancelled.load(Relaxed) => {
                self.row(id).and_then(|row| self.give_up(&row))
            }
            // Stopped with the mover: the next one goes on with it.
            Err(StageError::Stopped { .. }) => Ok(()),
            Err(error) => {
                let notes = self.row(id).map(|row| row.notes).unwrap_or_default();
                self.journal.settle(id, State::Failed, now(), Some(&Why::of(error)), &notes)
            }
        }
    }

    fn attempts(&self, id: JobId, live: &Live) -> Result<Ended, StageError> {
        let row = self.journal.with_expected(self.row(id)?)?;
        let fast = row.spec.fast_directory();
        let pace =
            live.pace.get_or_init(|| JobPace::new(&row.spec.options, &self.config.qos, &live.progress, fast));
        let run = Run {
            journal: &self.journal,
            id,
            compares: false,
            spec: &row.spec,
            tiers: &self.config.tiers,
            pace,
            stop: &live.stop,
            progress: &live.progress,
            threads: self.config.threads,
            crew: self.config.crew.as_deref(),
        };
        let mut attempt = 1;
        loop {
            self.journal.begin(id)?;
            live.progress.begin_again();
            match run.run() {
                Err(error) if attempt < ATTEMPTS && may_pass(&error) && !live.stop.asked() => {
                    tracing::info!(job = id, attempt, error = %error, "retried");
                    attempt += 1;
                }
                Ok(mut ended) => {
                    ended.notes.extend(pace.notes());
                    return Ok(ended);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes what a job has copied, and journals that it is not wanted.
    pub(super) fn give_up(&self, row: &JobRow) -> Result<(), StageError> {
        let mut notes = row.notes.clone();
        runner::give_up(&self.journal, row, &self.config.tiers, &self.stopping, &mut notes)?;
        self.journal.settle(row.id, State::Cancelled, now(), None, &notes)
    }
}

/// Is it worth another attempt at once? Lost write-back is: the part's files are copied anew, into new inodes. No room,
/// no rights or a wrong request are not.
fn may_pass(error: &StageError) -> bool {
    match error {
        StageError::Io { source, .. } | StageError::Sync { source, .. } => {
            matches!(
                Errno::from_io_error(source),
                Some(Errno::IO | Errno::STALE | Errno::INTR | Errno::AGAIN | Errno::TIMEDOUT)
            )
        }
        StageError::Corrupt { .. } | StageError::SourceCorrupt { .. } => true,
        _ => false,
    }
}

pub(super) fn counts_of(progress: &Progress) -> [u64; 5] {
    let Progress { files_total, files_done, bytes_total, bytes_written, bytes_verified, .. } = progress;
    [files_total, files_done, bytes_total, bytes_written, bytes_verified].map(|count| count.load(Relaxed))
}

impl Live {
    pub(super) fn new(destination: Place) -> Self {
        let begun = (Instant::now(), 0);
        Self {
            destination,
            progress: Arc::default(),
            stop: Stop::new(),
            cancelled: Arc::default(),
            window: Arc::new(Mutex::new(RateWindow { then: begun, now: begun })),
            pace: Arc::default(),
            unsettled: Arc::default(),
        }
    }

    pub(super) fn unsettled(&self) -> Option<Why> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes a second over the last few seconds. Each call moves the window.
    pub(super) fn rate(&self, written: u64) -> f64 {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now.duration_since(window.now.0) >= RATE_WINDOW / 2 {
            window.then = window.now;
            window.now = (now, written);
        }
        let (then, before) = window.then;
        let seconds = now.duration_since(then).as_secs_f64();
        if seconds > 0.0 { written.saturating_sub(before) as f64 / seconds } else { 0.0 }
    }
}
