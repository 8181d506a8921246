//! The keeper of the pools that all users of a host share.
//!
//! A pool's ledger belongs to whoever can write to it: with it one could take another's reservation, or promise oneself
//! the room of all. So it lies in a directory that root alone may enter, `STATE/pools`, and a thread of the service's door works
//! on it for those who ask over a socket, `STATE/pools.sock`. Everybody may connect; whose reservation it is, the kernel
//! says (SO_PEERCRED). A user's process passes its user's requests on and cannot speak for another: it has that user's
//! credentials and no others. Whoever connects by himself gets no more.
//!
//! With root's rights is done: to walk the pools, whose sets are closed to others, and to make directories for users, where
//! no user can put anything in their place ([`crate::pools::Pools::open_for_all`]). No path in it comes from a request but the
//! name of a set, which has no slash in it.
//!
//! Nobody can keep others from it: connections have a number, each user a smaller one; lines have a bound and a time; who
//! is silent is cut off. A request that waits for its own user's share keeps nobody else waiting.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::desk::Desk;
use crate::error::StageError;
use crate::job::{JobId, JobStatus};
use crate::pace::Stop;
use crate::pools::{PoolFigures, Pools};
use crate::service::listen::{Access, Listening};
use crate::service::own::{facts, thread};
use crate::service::peer::Peer;
use crate::service::pools::Kept;
use crate::service::protocol::ServerFacts;
use crate::service::server::{House, Limits, each_round, turn_away};
use crate::service::session::Session;
use crate::spec::{JobSpec, Level};

/// Connections at a time, of all users and of each.
const CONNECTIONS: usize = 1024;
const CONNECTIONS_OF_USER: usize = 64;
/// How long one may be silent between two requests.
const IDLE: Duration = Duration::from_secs(30);

/// Where users' processes ask, of a service with this state directory.
#[must_use]
pub fn socket(state: &Path) -> PathBuf {
    state.join("pools.sock")
}

/// Keeps pools, once the front has it work.
#[derive(Debug)]
pub struct Keeper {
    pools: Arc<Pools>,
    listening: Listening,
    state: PathBuf,
}

impl Keeper {
    /// Opens the pools that `config` describes, with a ledger in the service's state directory.
    ///
    /// # Errors
    /// The configuration's; a pool's directory that others may write to; the kernel's.
    pub fn open(config: &Path, state: &Path) -> Result<Self, StageError> {
        let directory = state.join("pools");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| StageError::io("make the directory", &directory, error))?;
        let pools = Arc::new(Pools::open_for_all(config, &directory.join("pools.db"))?);
        let listening = Listening::bind(&socket(state), Access::All)?;
        Ok(Self { pools, listening, state: state.to_owned() })
    }

    /// What can tell the figures of the pools while they are kept.
    pub(super) fn figures(&self) -> impl Fn() -> Result<Vec<PoolFigures>, StageError> + Send + Sync + use<> {
        let pools = Arc::clone(&self.pools);
        move || pools.figures()
    }

    /// Works, in a thread of its own, until `stop` is asked for.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(super) fn work(self, stop: &Stop) -> Result<JoinHandle<()>, StageError> {
        let stop = stop.clone();
        thread("stage-pools", move || {
            let seats = Arc::<Seats>::default();
            tracing::info!(at = self.listening.shown(), "pools are kept");
            while !stop.asked() {
                let round = each_round(&self.listening.listener, &mut |socket| {
                    if let Err(error) = self.seat(&socket, &seats, &stop) {
                        turn_away(&socket, &error);
                    }
                });
                if let Err(error) = round {
                    tracing::error!(%error, "the keeper of the pools takes no connections");
                    std::thread::sleep(IDLE.min(Duration::from_secs(1)));
                }
            }
        })
    }

    fn seat(&self, socket: &UnixStream, seats: &Arc<Seats>, stop: &Stop) -> Result<(), StageError> {
        let uid = Peer::of(socket)?.uid;
        let seat = Seat::take(seats, uid)?;
        let limits = Limits { idle: Some(IDLE), ..Limits::default() };
        let facts = ServerFacts { pools: true, ..facts(&self.state, true) };
        let house = House::new(Arc::new(NoJobs), facts, limits, stop.clone());
        let house = house.with_pools(Some(Arc::new(Kept::new(Arc::clone(&self.pools), uid))));
        let failed = |error| StageError::io("take the connection", "pools".as_ref(), error);
        let socket = socket.try_clone().map_err(failed)?;
        let started = std::thread::Builder::new().name("stage-pools".to_owned()).spawn(move || {
            let _seat = seat;
            Session::hold(&house, socket);
        });
        started.map(drop).map_err(failed)
    }
}

/// Who has how many connections.
#[derive(Debug, Default)]
struct Seats(Mutex<BTreeMap<u32, usize>>);

impl Seats {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place, given back when it ends, however it ends.
struct Seat {
    seats: Arc<Seats>,
    uid: u32,
}

impl Seat {
    fn take(seats: &Arc<Seats>, uid: u32) -> Result<Self, StageError> {
        let mut taken = seats.lock();
        let all: usize = taken.values().sum();
        let theirs = taken.get(&uid).copied().unwrap_or_default();
        if theirs >= CONNECTIONS_OF_USER || all >= CONNECTIONS {
            return Err(StageError::refused(
                format!("{all} connections ask for pools, {theirs} of them of uid {uid}"),
                "try again when some of them have their answer",
            ));
        }
        *taken.entry(uid).or_default() += 1;
        drop(taken);
        Ok(Self { seats: Arc::clone(seats), uid })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        if let Some(theirs) = taken.get_mut(&self.uid) {
            *theirs -= 1;
            if *theirs == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

/// A desk that knows pools alone: nothing is moved with root's rights for whoever asks.
struct NoJobs;

impl NoJobs {
    fn refuse<T>() -> Result<T, StageError> {
        Err(StageError::refused("pools alone are asked for here", "ask the service's own socket"))
    }
}

impl Desk for NoJobs {
    fn submit(&self, _: JobSpec) -> Result<JobId, StageError> {
        Self::refuse()
    }

    fn status(&self, _: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        Self::refuse()
    }

    fn wait(&self, _: JobId, _: Level, _: Option<Duration>) -> Result<JobStatus, StageError> {
        Self::refuse()
    }

    fn cancel(&self, _: JobId) -> Result<JobStatus, StageError> {
        Self::refuse()
    }

    fn retry(&self, _: JobId) -> Result<JobStatus, StageError> {
        Self::refuse()
    }
}
