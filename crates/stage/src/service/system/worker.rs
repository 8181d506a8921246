//! A worker: the mover with one user's rights, for connections that the front passes.
//!
//! [`become_user`] comes first of all that the process does, [`run`] then. It ends when the front's end of the channel
//! closes; what is unfinished then is in the journal, and the next worker goes on with it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::fs::Mode;

use crate::error::StageError;
use crate::mover::{Mover, MoverConfig};
use crate::pace::Stop;
use crate::service::lines::{LOOK, readable};
use crate::service::own::{Pulse, facts};
use crate::service::pools::{PoolDesk, Relayed};
use crate::service::server::{House, Limits, turn_away};
use crate::service::system::channel::{self, Passed, Report};
use crate::service::system::credentials::Credentials;

/// What the file mode of new directories leaves out; jobs set the modes of what they copy themselves.
const UMASK: Mode = Mode::RWXG.union(Mode::RWXO);

/// How long a worker of an earlier front may take to end.
const LAST_ENDS: Duration = Duration::from_secs(30);
/// Connections that are told why there is no worker.
const TOLD: usize = 256;

/// Takes on the user's rights for good, and gives the channel to the front: standard input.
///
/// # Errors
/// Standard input is no such channel; the rights could not be taken on, or not those alone.
pub fn become_user(credentials: &Credentials) -> Result<OwnedFd, StageError> {
    let stdin = std::io::stdin();
    if !channel::is_end(&stdin) {
        return Err(StageError::invalid(
            "stage worker: standard input is no channel",
            "stage serve --system starts workers; there is no use for it by hand",
        ));
    }
    let channel = rustix::io::fcntl_dupfd_cloexec(&stdin, 3)
        .map_err(|error| StageError::io("dup", "standard input".as_ref(), error))?;
    credentials.assume()?;
    rustix::process::umask(UMASK);
    Ok(channel)
}

/// Works until the front goes; `pools` are the system's, as this process's user has them.
///
/// # Errors
/// The journal's; whoever waits for an answer then is told.
pub fn run(
    config: &MoverConfig,
    limits: Limits,
    channel: OwnedFd,
    pools: Option<Relayed>,
    stop: &Stop,
) -> Result<(), StageError> {
    let mover = match open_after_the_last(config) {
        Ok(mover) => mover,
        Err(error) => {
            tell_all(&channel, &error);
            return Err(error);
        }
    };
    let channel = Arc::new(channel);
    let house = House::new(Arc::new(mover.clone()), facts(&config.state, true), limits, stop.clone());
    let pools = pools.map(|pools| Arc::new(pools) as Arc<dyn PoolDesk>);
    let house = Arc::new(house.governed_by(&config.qos).with_pools(pools));
    house.figures()?;
    let pulse = {
        let (channel, counted) = (Arc::clone(&channel), Arc::clone(&house));
        Pulse::start(&house, move |figures, received| {
            let open_jobs = counted.counts.open_jobs.load(Relaxed) as u64;
            // If the front has gone, the other thread learns it.
            let _ = channel::report(&*channel, &Report { received, open_jobs, figures: figures.clone() });
        })?
    };
    let served = attend(&house, &channel);
    house.stop.ask();
    pulse.end();
    house.farewell();
    mover.stop();
    served
}

/// Opens the journal. A worker of an earlier front may still be about to end, between two steps of its jobs: its end is
/// waited for, and those who have connected wait with us.
fn open_after_the_last(config: &MoverConfig) -> Result<Mover, StageError> {
    let begun = Instant::now();
    loop {
        match Mover::open(config) {
            // What is refused here is a journal that somebody else has.
            Err(StageError::Refused { .. }) if begun.elapsed() < LAST_ENDS => std::thread::sleep(LOOK),
            opened => return opened,
        }
    }
}

/// Takes connections until the front goes. `rounds` counts those that have come, once they are seated.
fn attend(house: &Arc<House>, channel: &OwnedFd) -> Result<(), StageError> {
    let failed = |error: std::io::Error| StageError::io("listen to the front", "channel".as_ref(), error);
    while !house.stop.asked() {
        if !readable(channel, LOOK).map_err(failed)? {
            continue;
        }
        match channel::take(channel).map_err(failed)? {
            Passed::Connection(connection) => {
                house.receive_passed(connection);
                house.counts.rounds.fetch_add(1, Relaxed);
            }
            Passed::Lost => {
                house.counts.rounds.fetch_add(1, Relaxed);
            }
            Passed::Nothing => {}
            Passed::End => break,
        }
    }
    Ok(())
}

/// Tells those who were passed on already why there will be no answer. Not whoever comes meanwhile: they would keep this
/// one from ending, and so the next from being tried.
fn tell_all(channel: &OwnedFd, error: &StageError) {
    for _ in 0..TOLD {
        if !readable(channel, Duration::ZERO).unwrap_or(false) {
            return;
        }
        match channel::take(channel) {
            Ok(Passed::Connection(connection)) => turn_away(&connection, error),
            Ok(Passed::Lost) => {}
            _ => return,
        }
    }
}
