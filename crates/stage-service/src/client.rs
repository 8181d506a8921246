//! The other end of the socket, for programs.
//!
//! A client trusts the server that it connects to with the names of its files, and no more: the server works with the rights
//! that the kernel says the client has. It connects to servers of its own user and of root; root's client connects to another
//! user's server only if its user named the socket. Answers are bounded nevertheless. A wait survives the server: if it dies
//! and comes back, the client asks again, since the job is in the journal under the same number.

use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::doctor::Finding;
use crate::error::ServiceError;
use crate::lines::{Line, Lines};
use crate::place::{Choice, Surroundings};
use crate::pools::{PoolStatus, Reservation, Wish};
use crate::protocol::{ANSWER_BYTES, Answer, LINE_BYTES, PROTOCOL, Reply, Request, ServerFacts};
use stage::error::StageError;
use stage::job::{JobId, JobStatus};
use stage::spec::{Expected, JobSpec, Level};

/// How long an answer may take to whatever is answered at once. The journal's disk may be slow: this only keeps a
/// client from hanging for ever on a server that has stopped (SIGSTOP, a debugger).
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// How long a wait goes on without a server, for one that is restarted.
const COMES_BACK: Duration = Duration::from_secs(60);

/// How long one request of a longer wait takes at most, so that a server that has gone is noticed.
const SLICE: Duration = Duration::from_secs(10);

/// Makes a request and returns what its reply holds. A reply to another request is an error.
macro_rules! ask {
    ($client:ident, $request:expr, $reply:pat => $value:expr) => {
        match $client.ask($request, ANSWER_TIME)? {
            $reply => Ok($value),
            other => Err($client.unexpected(&other)),
        }
    };
}

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    choice: Choice,
    lines: Lines,
    server: ServerFacts,
}

impl Client {
    /// Connects to the named socket, or to the first that answers of those that [`Surroundings::tried`] says.
    ///
    /// # Errors
    /// [`ServiceError::NoServer`] where no server listens; [`StageError::Refused`] where a stranger does; the server speaks
    /// another version, or refuses.
    pub fn connect(socket: Option<&Path>) -> Result<Self, StageError> {
        let (sockets, choice) = Surroundings::here().tried(socket)?;
        Self::connect_to(&sockets, choice)
    }

    fn connect_to(sockets: &[PathBuf], choice: Choice) -> Result<Self, StageError> {
        let mut tried = Vec::new();
        for path in sockets {
            match UnixStream::connect(path) {
                Ok(stream) => return Self::greet(path, choice, stream),
                Err(error) => tried.push(format!("{} ({error})", stage::error::shown(path))),
            }
        }
        Err(ServiceError::NoServer { tried: tried.join(", ") }.into())
    }

    fn greet(path: &Path, choice: Choice, stream: UnixStream) -> Result<Self, StageError> {
        check_server(path, choice, &stream)?;
        let set = stream.set_write_timeout(Some(ANSWER_TIME));
        set.map_err(|error| StageError::io("set a time for writing", path, error))?;
        let mut client = Self {
            socket: path.to_owned(),
            choice,
            lines: Lines::new(stream, ANSWER_BYTES),
            server: ServerFacts::default(),
        };
        match client.ask(&Request::Hello { version: PROTOCOL.to_owned() }, ANSWER_TIME)? {
            Reply::Hello(facts) => client.server = facts,
            other => return Err(client.unexpected(&other)),
        }
        Ok(client)
    }

    /// Who answers.
    #[must_use]
    pub fn server(&self) -> &ServerFacts {
        &self.server
    }

    /// The socket that it was reached by.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks for a move; it is in the server's journal, durably, when this returns.
    pub fn submit(&mut self, spec: &JobSpec) -> Result<JobId, StageError> {
        let spec = spec.clone().sealed();
        for files in pieces(&spec.options.expected) {
            match self.ask(&Request::Expect { files: files.to_vec() }, ANSWER_TIME)? {
                Reply::Expected { .. } => {}
                other => return Err(self.unexpected(&other)),
            }
        }
        ask!(self, &Request::Submit { spec: Box::new(spec) }, Reply::Submitted { id } => id)
    }

    /// A job, or all of them, the newest last.
    ///
    /// # Errors
    /// There is no such job.
    pub fn status(&mut self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        ask!(self, &Request::Status { id }, Reply::Jobs(jobs) => jobs)
    }

    /// All jobs, the newest last; where they are too many, those that this semaphore has asked for before others.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn known_to(&mut self, semaphore: &Path) -> Result<Vec<JobStatus>, StageError> {
        ask!(self, &Request::KnownTo { semaphore: semaphore.into() }, Reply::Jobs(jobs) => jobs)
    }

    /// Waits until a job has come this far, has ended, or the time is up (none: as long as it takes): the caller looks
    /// at the status to tell which. A server that dies meanwhile and comes back within a minute is asked again.
    ///
    /// # Errors
    /// There is no such job.
    pub fn wait(&mut self, id: JobId, level: Level, most: Option<Duration>) -> Result<JobStatus, StageError> {
        let until = most.map(|most| Instant::now() + most);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            let timeout_ms = Some(u64::try_from(slice.as_millis()).unwrap_or(u64::MAX));
            let status = match self.ask(&Request::Wait { id, level, timeout_ms }, slice + ANSWER_TIME) {
                Ok(Reply::Job(status)) => status,
                Ok(other) => return Err(self.unexpected(&other)),
                Err(error) if matches!(error.foreign(), Some(ServiceError::Lost { .. })) => {
                    self.reconnect(until)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let up = until.is_some_and(|until| Instant::now() >= until);
            if status.has_reached(level) || up {
                return Ok(*status);
            }
        }
    }

    fn connect_anew(&self) -> Result<Self, StageError> {
        Self::connect_to(std::slice::from_ref(&self.socket), self.choice)
    }

    /// Reconnects, while the time is not up and a server may still come back.
    fn reconnect(&mut self, until: Option<Instant>) -> Result<(), StageError> {
        let give_up = Instant::now() + COMES_BACK;
        let give_up = until.map_or(give_up, |until| until.min(give_up));
        loop {
            match self.connect_anew() {
                Ok(client) => {
                    *self = client;
                    return Ok(());
                }
                Err(error) if ServiceError::is_no_answer(&error) => {
                    if Instant::now() >= give_up {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands `see` the jobs at each interval, until it breaks off or the server goes.
    pub fn follow(
        &mut self,
        every: Duration,
        see: &mut dyn FnMut(&[JobStatus]) -> ControlFlow<()>,
    ) -> Result<(), StageError> {
        let interval_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        let mut reply = self.ask(&Request::Follow { interval_ms }, ANSWER_TIME)?;
        loop {
            let Reply::Jobs(jobs) = reply else { return Err(self.unexpected(&reply)) };
            if see(&jobs).is_break() {
                break;
            }
            reply = self.answer(every.saturating_add(ANSWER_TIME))?;
        }
        // The server goes on sending over this connection; the next question needs one of its own.
        *self = self.connect_anew()?;
        Ok(())
    }

    /// Gives a job up.
    ///
    /// # Errors
    /// There is no such job, it is committed.
    pub fn cancel(&mut self, id: JobId) -> Result<JobStatus, StageError> {
        self.one_job(&Request::Cancel { id })
    }

    /// Retries a failed job.
    ///
    /// # Errors
    /// There is no such job, it has not failed.
    pub fn retry(&mut self, id: JobId) -> Result<JobStatus, StageError> {
        self.one_job(&Request::Retry { id })
    }

    fn one_job(&mut self, request: &Request) -> Result<JobStatus, StageError> {
        ask!(self, request, Reply::Job(status) => *status)
    }

    /// What is stuck, and why, as the server sees it.
    pub fn doctor(&mut self) -> Result<Vec<Finding>, StageError> {
        ask!(self, &Request::Doctor, Reply::Findings(findings) => findings)
    }

    /// The figures of the caller's own jobs, in Prometheus' text.
    pub fn metrics(&mut self) -> Result<String, StageError> {
        ask!(self, &Request::Metrics, Reply::Metrics(text) => text)
    }

    /// The pools that the server keeps, and what is in them.
    pub fn pools(&mut self) -> Result<Vec<PoolStatus>, StageError> {
        ask!(self, &Request::Pools, Reply::Pools(pools) => pools)
    }

    /// Reserves room in a pool. Once `wanted` says no, it is given up, and this client is of no use any more: the server
    /// learns it by the end of the connection, and gives back what it may have reserved meanwhile.
    ///
    /// # Errors
    /// There is no room (in time); what else the server has against it; those of the way to it;
    /// [`StageError::Stopped`].
    pub fn reserve(&mut self, wish: &Wish, wanted: &dyn Fn() -> bool) -> Result<Reservation, StageError> {
        let Wish { pool, name, bytes, wait } = wish.clone();
        let wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self.send(&Request::PoolReserve { pool, name, bytes, wait_ms })?;
        let most = wait.unwrap_or_default().saturating_add(ANSWER_TIME);
        match self.answer_while(most, wanted)? {
            Some(Reply::Reserved(reservation)) => Ok(reservation),
            Some(other) => Err(self.unexpected(&other)),
            None => {
                // Both ways, so that the server sees at once that the client is gone.
                self.lines.hang_up();
                Err(StageError::Stopped { what: "the wait for room".to_owned() })
            }
        }
    }

    /// Gives a reservation back; what was written stays.
    ///
    /// # Errors
    /// It is another user's.
    pub fn release(&mut self, id: i64) -> Result<(), StageError> {
        ask!(self, &Request::PoolRelease { id }, Reply::Released { .. } => ())
    }

    /// Has a reservation last for a day from now on; false if it is gone.
    ///
    /// # Errors
    /// It is another user's.
    pub fn renew(&mut self, id: i64) -> Result<bool, StageError> {
        ask!(self, &Request::PoolRenew { id }, Reply::Renewed { there, .. } => there)
    }

    fn ask(&mut self, request: &Request, most: Duration) -> Result<Reply, StageError> {
        self.send(request)?;
        self.answer(most)
    }

    fn send(&mut self, request: &Request) -> Result<(), StageError> {
        if let Err(error) = self.lines.say(request) {
            // A server that refuses says why before it closes; that is worth more than `broken pipe`.
            if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
                return Err(self.lost(&format!("cannot send a request: {error}")));
            }
        }
        Ok(())
    }

    fn answer(&mut self, most: Duration) -> Result<Reply, StageError> {
        let reply = self.answer_while(most, &|| true)?;
        reply.ok_or_else(|| self.lost("the server does not answer"))
    }

    /// None once it is not wanted any more.
    fn answer_while(
        &mut self,
        most: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Option<Reply>, StageError> {
        let line = match self.lines.next(Some(most), ANSWER_TIME, &|| !wanted()) {
            Ok(Line::Whole(line)) => line,
            Ok(Line::Ended) => return Err(self.lost("the server closed the connection")),
            Ok(Line::Late) => return Err(self.lost("the server does not answer")),
            Ok(Line::Stopped) => return Ok(None),
            Ok(Line::TooLong) => return Err(self.lost("the answer is longer than an answer may be")),
            Err(error) => return Err(self.lost(&format!("cannot read an answer: {error}"))),
        };
        match serde_json::from_slice(&line) {
            Ok(Answer::Ok(reply)) => Ok(Some(reply)),
            Ok(Answer::Error(why)) => Err(ServiceError::Answered(Box::new(why)).into()),
            Err(error) => Err(self.lost(&format!("what was answered is not {PROTOCOL}: {error}"))),
        }
    }

    fn lost(&self, what: &str) -> StageError {
        ServiceError::Lost { socket: stage::error::shown(&self.socket), what: what.to_owned() }.into()
    }

    fn unexpected(&self, reply: &Reply) -> StageError {
        let answer = serde_json::to_string(reply).unwrap_or_default();
        let begun: String = answer.chars().take(60).collect();
        self.lost(&format!("an answer to another question: {begun}"))
    }
}

/// A list in parts that fit into requests each: a path of n bytes is written in 6 n at most.
fn pieces(mut files: &[Expected]) -> impl Iterator<Item = &[Expected]> {
    let written = |file: &Expected| 6 * file.path.0.as_os_str().len() + 128;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = files.iter().take_while(|file| {
            bytes += written(file);
            bytes < LINE_BYTES / 2
        });
        let (piece, rest) = files.split_at(fits.count().max(1).min(files.len()));
        files = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// A job's answer is believed, so it must come from this user's server or from root's: any user may listen at a path in a
/// directory of their own. Root may name another user's. The kernel tells which process began to listen on a socket
/// (SO_PEERCRED).
fn check_server(path: &Path, choice: Choice, stream: &UnixStream) -> Result<(), StageError> {
    let credentials = storage::peer::credentials(std::os::fd::AsFd::as_fd(stream))
        .map_err(|error| StageError::io("ask whose it is", path, error))?;
    let me = rustix::process::geteuid();
    if credentials.user == me.as_raw() || credentials.user == 0 || me.is_root() && choice == Choice::Named {
        return Ok(());
    }
    let hint = if me.is_root() {
        "if that user's server is meant, name its socket: --socket PATH"
    } else {
        "name your own server's socket"
    };
    Err(StageError::refused(
        format!("{}: uid {} listens there", stage::error::shown(path), credentials.user),
        hint,
    ))
}
