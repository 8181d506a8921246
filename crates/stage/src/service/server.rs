//! Takes connections, one thread each, no more than a limit, from whom it may.
//!
//! A server works with the rights of its process. It therefore answers only that user and root (SO_PEERCRED: what the
//! kernel saw at connect(2)), and only in its own mount namespace, because in another one the same path is another file.
//! A connection beyond the limit is told so and closed. The accepting thread never reads from a client.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use crate::desk::Desk;
use crate::error::StageError;
use crate::pace::Stop;
use crate::qos::Qos;
use crate::service::doctor::{self, Finding};
use crate::service::full;
use crate::service::lines::{LOOK, readable};
use crate::service::metrics::{Figures, Ledger, pools_text};
use crate::service::peer::Peer;
use crate::service::pools::PoolDesk;
use crate::service::protocol::ServerFacts;
use crate::service::session::{LINE_TIME, Session, refusal};

/// How long a server that stops waits for the answers under way.
const FAREWELL: Duration = Duration::from_secs(5);

/// What clients may take up.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Jobs that have not ended.
    pub jobs: usize,
    /// How long a connection may be silent between two requests; for ever where nothing is said.
    pub idle: Option<Duration>,
    /// How long a request's line may take from its first byte to its last.
    pub line: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 128, jobs: 100_000, idle: None, line: LINE_TIME }
    }
}

/// What is counted as it happens.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub requests: AtomicU64,
    pub request_errors: AtomicU64,
    pub refused: AtomicU64,
    pub submitted: AtomicU64,
    pub connections: AtomicUsize,
    /// Jobs that have not ended, as of the last look at the journal, and those accepted since.
    pub open_jobs: AtomicUsize,
    /// How often the accepting thread has gone round: it lives.
    pub rounds: AtomicU64,
}

/// What all sessions share.
pub struct House {
    pub(super) desk: Arc<dyn Desk>,
    pub(super) facts: ServerFacts,
    pub(super) limits: Limits,
    pub(super) stop: Stop,
    pub(super) counts: Counts,
    pub(super) ledger: Ledger,
    pub(super) pools: Option<Arc<dyn PoolDesk>>,
    qos: Option<Arc<Qos>>,
}

impl House {
    /// With a desk that takes jobs, until `stop` is asked for.
    #[must_use]
    pub fn new(desk: Arc<dyn Desk>, facts: ServerFacts, limits: Limits, stop: Stop) -> Self {
        let (counts, ledger) = (Counts::default(), Ledger::default());
        Self { desk, facts, limits, stop, counts, ledger, pools: None, qos: None }
    }

    /// With pools, where there are any.
    #[must_use]
    pub fn with_pools(mut self, pools: Option<Arc<dyn PoolDesk>>) -> Self {
        self.facts.pools = pools.is_some();
        Self { pools, ..self }
    }

    /// With the figures of what holds jobs back.
    #[must_use]
    pub fn governed_by(self, qos: &Arc<Qos>) -> Self {
        Self { qos: Some(Arc::clone(qos)), ..self }
    }

    /// What is stuck, as this process sees it.
    pub(super) fn examine(&self) -> Result<Vec<Finding>, StageError> {
        let jobs = self.desk.status(None)?;
        let full = match &self.pools {
            Some(pools) => match pools.list() {
                Ok(pools) => full::findings(&pools, &jobs, self.facts.uid),
                Err(error) => vec![full::unknown(&error)],
            },
            None => Vec::new(),
        };
        let mut findings = doctor::diagnose(&doctor::look(&self.facts.state.0, jobs));
        findings.extend(full);
        findings.sort_by_key(|finding| !finding.stuck);
        Ok(findings)
    }

    /// The figures as they are now.
    pub(super) fn figures(&self) -> Result<Figures, StageError> {
        let jobs = self.desk.status(None)?;
        let now = crate::service::metrics::now();
        let mut figures = self.ledger.take_in(&jobs, now);
        self.counts.open_jobs.store(jobs.iter().filter(|job| !job.state.is_final()).count(), Relaxed);
        if let Some(qos) = &self.qos {
            figures.govern(&qos.status());
        }
        figures.fsync_failures = crate::calls::failed_syncs() as f64;
        figures.requests = self.counts.requests.load(Relaxed) as f64;
        figures.request_errors = self.counts.request_errors.load(Relaxed) as f64;
        figures.connections_refused = self.counts.refused.load(Relaxed) as f64;
        figures.jobs_submitted = self.counts.submitted.load(Relaxed) as f64;
        figures.connections = self.counts.connections.load(Relaxed) as f64;
        Ok(figures)
    }

    /// The figures as text, those of the pools that this process keeps behind them. Pools that cannot be looked into
    /// keep nobody from the others.
    pub(super) fn metrics(&self) -> Result<String, StageError> {
        let pools = self.pools.as_ref().map_or(Ok(Vec::new()), |pools| pools.figures());
        let pools = pools.inspect_err(|error| tracing::warn!(%error, "no figures of pools"));
        Ok(self.figures()?.text() + &pools_text(&pools.unwrap_or_default()))
    }

    /// Takes a connection that this process has accepted.
    pub fn receive(self: &Arc<Self>, socket: UnixStream) {
        match self.may_enter(&socket, true) {
            Ok(()) => self.seat(socket),
            Err(error) => self.refuse(&socket, &error),
        }
    }

    /// Takes a connection that a front door has accepted, which has looked at where the caller lives; this process
    /// may not be allowed to.
    pub fn receive_passed(self: &Arc<Self>, socket: UnixStream) {
        match self.may_enter(&socket, false) {
            Ok(()) => self.seat(socket),
            Err(error) => self.refuse(&socket, &error),
        }
    }

    fn refuse(&self, socket: &UnixStream, error: &StageError) {
        self.counts.refused.fetch_add(1, Relaxed);
        tracing::warn!(%error, "a connection was refused");
        turn_away(socket, error);
    }

    /// A thread of its own answers, or it is told why not.
    fn seat(self: &Arc<Self>, socket: UnixStream) {
        let seat = Seat::take(self);
        if self.counts.connections.load(Relaxed) > self.limits.connections {
            let what = format!("{} connections are open, as many as may be", self.limits.connections);
            return self.refuse(&socket, &StageError::refused(what, "close some; each `stage wait` has one"));
        }
        let started = std::thread::Builder::new().name("stage-session".to_owned()).spawn(move || {
            Session::hold(&seat.0, socket);
        });
        if let Err(error) = started {
            // The socket went with the closure, and the client sees that it is closed.
            tracing::warn!(%error, "no thread for a connection");
        }
    }

    fn may_enter(&self, socket: &UnixStream, look: bool) -> Result<(), StageError> {
        let peer = Peer::of(socket)?;
        if peer.uid != self.facts.uid && peer.uid != 0 {
            return Err(StageError::refused(
                format!("this server works for uid {}, and {} asks", self.facts.uid, peer.uid),
                "start your own: flashwright stage serve",
            ));
        }
        if look { peer.check_mounts(true) } else { Ok(()) }
    }

    /// Waits for the sessions under way, but not for ever.
    pub(super) fn farewell(&self) {
        let since = Instant::now();
        while self.counts.connections.load(Relaxed) > 0 && since.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A connection's place, given back when it ends, however it ends.
struct Seat(Arc<House>);

impl Seat {
    fn take(house: &Arc<House>) -> Self {
        house.counts.connections.fetch_add(1, Relaxed);
        Self(Arc::clone(house))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.counts.connections.fetch_sub(1, Relaxed);
    }
}

/// Says why, without ever waiting for the client: a socket's buffer that was never written to takes a line.
pub(super) fn turn_away(socket: &UnixStream, error: &StageError) {
    use std::io::Write;
    if socket.set_nonblocking(true).is_ok()
        && let Ok(mut line) = serde_json::to_vec(&refusal(error))
    {
        line.push(b'\n');
        let _ = (&*socket).write_all(&line);
    }
}

/// Waits a moment for a connection, and takes it.
pub(super) fn each_round(listener: &UnixListener, each: &mut dyn FnMut(UnixStream)) -> io::Result<()> {
    if !readable(listener, LOOK)? {
        return Ok(());
    }
    match listener.accept() {
        Ok((socket, _)) => each(socket),
        Err(error) => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            // Whoever connected has gone again, or a signal came.
            Some(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {}
            // Out of descriptors or memory: that passes when others close. Without a pause this would spin.
            Some(
                rustix::io::Errno::MFILE
                | rustix::io::Errno::NFILE
                | rustix::io::Errno::NOBUFS
                | rustix::io::Errno::NOMEM,
            ) => {
                tracing::warn!(%error, "cannot take a connection");
                std::thread::sleep(LOOK);
            }
            _ => return Err(error),
        },
    }
    Ok(())
}
