//! One connection: questions in, answers out, until the client goes, misbehaves or the server stops.
//!
//! A connection has a thread, and nothing that a client does or leaves undone keeps it for ever: lines have a bound and a
//! time, writes have a time, and a wait checks several times a second whether the client is still connected.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::house::{House, LINE_TIME};
use crate::lines::{Line, Lines, POLL_INTERVAL};
use crate::pool_desk::{self, PoolDesk};
use crate::pools::Wish;
use crate::protocol::{Answer, JOBS, LINE_BYTES, PROTOCOL, Reply, Request};
use stage::error::StageError;
use stage::job::{JobId, JobStatus};
use stage::names::shown;
use stage::spec::{Expected, JobSpec, Level};

/// `follow` answers at most so often.
const FOLLOW_AT_MOST: Duration = Duration::from_millis(100);
/// And at least so often, so that a client that follows learns that the server is there.
const FOLLOW_AT_LEAST: Duration = Duration::from_secs(60);

/// What follows a question.
enum Next {
    /// This answer, and then the next question.
    Say(Answer),
    /// Nothing: the client is gone, or the server stops and the client is to ask its successor.
    End,
}

pub(super) struct Session<'a> {
    house: &'a House,
    lines: Lines,
    /// For the next job, and what it takes of the server's bound.
    expected: Vec<Expected>,
    expected_bytes: usize,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.house.counts.expected_bytes.fetch_sub(self.expected_bytes, Relaxed);
    }
}

impl<'a> Session<'a> {
    /// Answers all that is asked over `socket`.
    pub fn hold(house: &'a House, socket: UnixStream) {
        if socket.set_nonblocking(false).and_then(|()| socket.set_write_timeout(Some(LINE_TIME))).is_err() {
            return;
        }
        let mut session =
            Self { house, lines: Lines::new(socket, LINE_BYTES), expected: Vec::new(), expected_bytes: 0 };
        // An error of the socket is the end of the client, which cannot be answered.
        let _ = session.converse();
    }

    fn converse(&mut self) -> std::io::Result<()> {
        let stop = self.house.stop.clone();
        loop {
            let line = match self.lines.next(None, self.house.limits.line, &|| stop.asked())? {
                Line::Whole(line) => line,
                Line::Ended | Line::Stopped => return Ok(()),
                Line::TooLong => {
                    let error = StageError::invalid(
                        format!("a request has more than {LINE_BYTES} bytes"),
                        "hand a list of files over in pieces: expect",
                    );
                    return self.lines.say(&Answer::refusal(&error));
                }
                Line::Late => {
                    let error = StageError::Refused {
                        what: "a request was begun and not finished in time".to_owned(),
                        hint: None,
                    };
                    return self.lines.say(&Answer::refusal(&error));
                }
            };
            self.house.counts.requests.fetch_add(1, Relaxed);
            match self.answer(&line)? {
                Next::Say(answer) => {
                    if matches!(answer, Answer::Error(_)) {
                        self.house.counts.request_errors.fetch_add(1, Relaxed);
                    }
                    self.lines.say(&answer)?;
                }
                Next::End => return Ok(()),
            }
        }
    }

    fn answer(&mut self, line: &[u8]) -> std::io::Result<Next> {
        let request = match self.read(line) {
            Ok(request) => request,
            Err(error) => return Ok(Next::Say(Answer::refusal(&error))),
        };
        let reply = match request {
            Request::Wait { id, level, timeout_ms } => {
                return Ok(self.wait(id, level, timeout_ms.map(Duration::from_millis)));
            }
            Request::Follow { interval_ms } => return self.follow(Duration::from_millis(interval_ms)),
            Request::PoolReserve { pool, name, bytes, wait_ms } => {
                let wait = wait_ms.map(Duration::from_millis);
                return Ok(self.reserve(&Wish { pool, name, bytes, wait }));
            }
            Request::Pools => self.pools().and_then(PoolDesk::list).map(Reply::Pools),
            Request::PoolRelease { id } => {
                self.pools().and_then(|pools| pools.release(id)).map(|()| Reply::Released { id })
            }
            Request::PoolRenew { id } => {
                self.pools().and_then(|pools| pools.renew(id)).map(|there| Reply::Renewed { id, there })
            }
            Request::Hello { version } => self.hello(&version),
            Request::Expect { .. } => Ok(Reply::Expected { files: self.expected.len() }),
            Request::Submit { spec } => self.submit(*spec),
            Request::Status { id } => self.jobs(id).map(Reply::Jobs),
            Request::KnownTo { semaphore } => self.known_to(&semaphore.0).map(Reply::Jobs),
            Request::Cancel { id } => self.cancel(id),
            Request::Retry { id } => self.house.desk.retry(id).map(|status| Reply::Job(Box::new(status))),
            Request::Doctor => self.house.examine().map(Reply::Findings),
            Request::Metrics => self.house.metrics().map(Reply::Metrics),
        };
        Ok(Next::Say(reply.map_or_else(|error| Answer::refusal(&error), Answer::Ok)))
    }

    /// Takes a line apart; its list is kept for the next job. One line after another in all of the server, until the list
    /// is counted: in memory it is several times as large as the line.
    fn read(&mut self, line: &[u8]) -> Result<Request, StageError> {
        let _alone = self.house.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut request = Request::of_line(line).map_err(|error| {
            let what = format!("not a request of {PROTOCOL}: {}", shown(error.to_string().as_bytes()));
            StageError::invalid(what, "client and server of one version understand each other")
        })?;
        match &mut request {
            Request::Expect { files } => self.expect(std::mem::take(files))?,
            Request::Submit { spec } => self.expect(std::mem::take(&mut spec.options.expected))?,
            _ => {}
        }
        Ok(request)
    }

    fn hello(&self, version: &str) -> Result<Reply, StageError> {
        if version == PROTOCOL {
            return Ok(Reply::Hello(self.house.facts.clone()));
        }
        Err(StageError::invalid(
            format!("the server speaks {PROTOCOL}, the client {}", shown(version.as_bytes())),
            "use a client of the server's version, or restart the server after an update",
        ))
    }

    fn expect(&mut self, files: Vec<Expected>) -> Result<(), StageError> {
        let bytes = |file: &Expected| 2 * size_of::<Expected>() + file.path.0.as_os_str().len();
        let more: usize = files.iter().map(bytes).sum();
        let all = self.house.counts.expected_bytes.fetch_add(more, Relaxed) + more;
        self.expected_bytes += more;
        let most = self.house.limits.expected_bytes;
        if all > most {
            let is_own = self.expected_bytes > most;
            self.forget_expected();
            let what = format!("lists of files take more than {most} bytes of the server's memory");
            let hint = "submit fewer lists at a time, or work without a server: --foreground";
            return Err(match is_own {
                true => StageError::refused(what, hint),
                false => StageError::Busy { what, hint: hint.to_owned() },
            });
        }
        self.expected.extend(files);
        Ok(())
    }

    fn forget_expected(&mut self) {
        self.expected = Vec::new();
        self.house.counts.expected_bytes.fetch_sub(std::mem::take(&mut self.expected_bytes), Relaxed);
    }

    fn submit(&mut self, mut spec: JobSpec) -> Result<Reply, StageError> {
        spec.options.expected = std::mem::take(&mut self.expected);
        let submitted = self.hand_in(spec);
        // Also where it was refused: a list belongs to one request.
        self.forget_expected();
        submitted
    }

    fn hand_in(&self, spec: JobSpec) -> Result<Reply, StageError> {
        let most = self.house.limits.jobs;
        // Each accepted request counts until the jobs are counted anew, also one that became a job that is there already.
        let mut open = self.house.counts.open_jobs.load(Relaxed);
        if open >= most {
            open = self.house.count_open(&self.house.desk.status(None)?);
        }
        if open >= most {
            return Err(StageError::Busy {
                what: format!("{open} jobs are under way or queued, and {most} may be"),
                hint: "wait for some of them: stage status; or raise --max-jobs of the server".to_owned(),
            });
        }
        let (source, destination) = (spec.source.shown(), spec.destination.shown());
        let id = self.house.desk.submit(spec)?;
        self.house.counts.open_jobs.fetch_add(1, Relaxed);
        self.house.counts.submitted.fetch_add(1, Relaxed);
        tracing::info!(id, source, destination, "accepted");
        Ok(Reply::Submitted { id })
    }

    fn pools(&self) -> Result<&dyn PoolDesk, StageError> {
        self.house.pools.as_deref().ok_or_else(pool_desk::none_here)
    }

    /// Reserves room, as long as the client is connected. What is granted while it leaves is given back.
    fn reserve(&self, wish: &Wish) -> Next {
        let left = || self.lines.has_gone() || self.house.stop.asked();
        let pools = match self.pools() {
            Ok(pools) => pools,
            Err(error) => return Next::Say(Answer::refusal(&error)),
        };
        match pools.reserve(wish, &|| !left()) {
            Ok(reservation) if self.lines.has_gone() => {
                if let Err(error) = pools.release(reservation.id) {
                    tracing::warn!(%error, id = reservation.id, "a reservation whose client is gone stays");
                }
                Next::End
            }
            Ok(reservation) => Next::Say(Answer::Ok(Reply::Reserved(reservation))),
            Err(StageError::Stopped { .. }) if left() => Next::End,
            Err(error) => Next::Say(Answer::refusal(&error)),
        }
    }

    fn cancel(&self, id: JobId) -> Result<Reply, StageError> {
        let status = self.house.desk.cancel(id)?;
        tracing::info!(id, "cancelled");
        Ok(Reply::Job(Box::new(status)))
    }

    fn jobs(&self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        let jobs = self.house.desk.status(id)?;
        Ok(if id.is_some() { jobs } else { shortened(jobs, |_| false) })
    }

    fn known_to(&self, semaphore: &Path) -> Result<Vec<JobStatus>, StageError> {
        let is_its_own =
            |job: &JobStatus| job.spec.options.semaphore.as_ref().is_some_and(|it| *it.path.0 == *semaphore);
        Ok(shortened(self.house.desk.status(None)?, is_its_own))
    }

    /// Waits in slices, so that a client that has gone is noticed between them.
    fn wait(&self, id: JobId, level: Level, most: Option<Duration>) -> Next {
        let began = Instant::now();
        loop {
            let left = most.map(|most| most.saturating_sub(began.elapsed()));
            let slice = left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL));
            match self.house.desk.wait(id, level, Some(slice)) {
                Ok(status) => {
                    if status.has_reached(level) || left.is_some_and(|left| left <= slice) {
                        return Next::Say(Answer::Ok(Reply::Job(Box::new(status))));
                    }
                }
                Err(error) => return Next::Say(Answer::refusal(&error)),
            }
            if self.lines.has_gone() || self.house.stop.asked() {
                return Next::End;
            }
        }
    }

    fn follow(&mut self, every: Duration) -> std::io::Result<Next> {
        let every = every.clamp(FOLLOW_AT_MOST, FOLLOW_AT_LEAST);
        loop {
            match self.jobs(None) {
                Ok(jobs) => self.lines.say(&Answer::Ok(Reply::Jobs(jobs)))?,
                Err(error) => return Ok(Next::Say(Answer::refusal(&error))),
            }
            let said = Instant::now();
            while said.elapsed() < every {
                std::thread::sleep(POLL_INTERVAL.min(every.saturating_sub(said.elapsed())));
                if self.lines.has_gone() || self.house.stop.asked() {
                    return Ok(Next::End);
                }
            }
        }
    }
}

/// Many jobs, as they fit into an answer: all that are under way, then those that are sought, of the others the newest.
fn shortened(mut jobs: Vec<JobStatus>, is_sought: impl Fn(&JobStatus) -> bool) -> Vec<JobStatus> {
    let mut over = jobs.len().saturating_sub(JOBS);
    for may_be_sought in [false, true] {
        jobs.retain(|job| {
            let goes = over > 0 && job.state.is_final() && (may_be_sought || !is_sought(job));
            over -= usize::from(goes);
            !goes
        });
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job;
    use stage::job::State;

    /// Also where all that is told is sought.
    #[test]
    fn an_answer_has_so_many_jobs_and_those_that_are_sought_before_others() {
        type IsSought = fn(&JobStatus) -> bool;
        let cases: [(IsSought, [JobId; 3]); 3] =
            [(|_| false, [3, 4, 5]), (|job| job.id <= 2, [1, 2, 5]), (|_| true, [3, 4, 5])];
        for (is_sought, first) in cases {
            let jobs = (1..=JOBS as JobId + 2).map(|id| job(id, State::Done)).collect();
            let told = shortened(jobs, is_sought);
            let ids: Vec<JobId> = told.iter().take(3).map(|job| job.id).collect();
            assert_eq!((told.len(), ids), (JOBS, first.to_vec()));
        }
    }
}
