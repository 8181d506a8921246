//! A user's own server: the mover in this process, behind a socket for this user.
//!
//! In this order: open the journal (which keeps a second server out, and goes on with what is unfinished), take the
//! socket, say that it is ready, answer. At the end the other way round: take no more connections, stop between two steps,
//! let the journal go. What is unfinished then, the next start goes on with, as after a kill.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::house::{House, Limits};
use crate::lines::POLL_INTERVAL;
use crate::listen::Listening;
use crate::metrics::Figures;
use crate::mover::{Mover, MoverConfig};
use crate::notify;
use crate::pool_desk::{Kept, PoolDesk};
use crate::pools::Pools;
use crate::protocol::{PROTOCOL, ServerFacts};
use crate::scrape::{Answering, Scraping};
use crate::server::each_round;
use stage::error::StageError;
use stage::names::PathText;
use stage::pace::Stop;

/// How often the journal is looked at, unless looking takes so long that it would be a burden.
const PULSE: Duration = Duration::from_secs(1);
/// At most this part of the time goes into looking.
const PULSE_SHARE: u32 = 20;

/// Serves until `stop` is asked for; with `pools`, keeps them.
pub fn serve(
    config: &MoverConfig,
    limits: Limits,
    listening: Listening,
    scraping: Option<Scraping>,
    pools: Option<Pools>,
    stop: &Stop,
) -> Result<(), StageError> {
    let mover = Mover::open(config)?;
    let facts = facts(&config.state);
    // Root may ask as well; the reservation is this server's user's all the same, because the server makes the directories.
    let pools = pools.map(|pools| Arc::new(Kept::new(Arc::new(pools), facts.uid)) as Arc<dyn PoolDesk>);
    let house = House::new(Arc::new(mover.clone()), facts, limits, stop.clone());
    let house = Arc::new(house.governed_by(&config.qos).with_pools(pools));
    let served = attend(&house, &listening, scraping);
    notify::stopping();
    // No client is to connect to a server that does not answer any more.
    drop(listening);
    stop.ask();
    house.farewell();
    mover.stop();
    tracing::info!("stopped");
    served
}

/// What this process says of itself.
pub(super) fn facts(state: &Path) -> ServerFacts {
    ServerFacts {
        protocol: PROTOCOL.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        state: PathText(state.to_owned()),
        pools: false,
    }
}

fn attend(house: &Arc<House>, listening: &Listening, scraping: Option<Scraping>) -> Result<(), StageError> {
    // The first look at the journal: what is counted, is counted from here on.
    house.figures()?;
    let pulse = {
        let house = Arc::clone(house);
        thread("stage-pulse", move || beat(&house))?
    };
    if let Some(scraping) = scraping {
        tracing::info!(at = scraping.shown(), "figures for Prometheus");
        let (stop, house) = (house.stop.clone(), Arc::clone(house));
        let figures: Arc<Answering> = Arc::new(move || house.metrics());
        thread("stage-metrics", move || scraping.serve(&stop, &figures))?;
    }
    let at = listening.shown();
    tracing::info!(at, state = stage::error::shown(&house.facts.state.0), "ready");
    notify::ready();
    let mut served = Ok(());
    while !house.stop.asked() && served.is_ok() {
        served = each_round(&listening.listener, &mut |socket| house.receive(socket));
        house.counts.rounds.fetch_add(1, Relaxed);
    }
    house.stop.ask();
    let _ = pulse.join();
    served.map_err(|error| StageError::io("take connections", at.as_ref(), error))
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StageError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| StageError::io("start a thread", name.as_ref(), error))
}

/// How it goes, in a line, for `systemctl status`.
fn in_words(figures: &Figures) -> String {
    format!(
        "{} running, {} queued, {} failed; {} MB/s",
        figures.running + figures.committed,
        figures.queued,
        figures.failed,
        (figures.write_rate / 1e6).round(),
    )
}

/// Reads the journal periodically: counts and logs what happened, and tells systemd that the mover is alive if its journal
/// answers and connections are accepted. If they are not, systemd hears nothing and restarts the server.
fn beat(house: &House) {
    let watched = notify::interval();
    let mut rounds = 0;
    while !house.stop.asked() {
        let began = Instant::now();
        let now = house.counts.rounds.load(Relaxed);
        let looked = house.figures();
        let took = began.elapsed();
        match &looked {
            Ok(figures) => {
                notify::status(&in_words(figures));
                if now != rounds {
                    notify::alive();
                }
            }
            Err(error) => tracing::error!(%error, "the journal does not answer"),
        }
        rounds = now;
        let pause = PULSE.max(took * PULSE_SHARE);
        let pause = watched.map_or(pause, |watched| pause.min(watched));
        while !house.stop.asked() && began.elapsed() < pause {
            std::thread::sleep(POLL_INTERVAL.min(pause));
        }
    }
    // What ended since, so that the log has it.
    if let Ok(figures) = house.figures() {
        notify::status(&in_words(&figures));
    }
}
