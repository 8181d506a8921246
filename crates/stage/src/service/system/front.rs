//! The door: accepts, asks the kernel who it is, passes the connection on.
//!
//! One thread does all of it and never waits for anybody but the next connection, so that no user can keep another
//! from the service. What it knows of a user comes from the kernel; no byte that a user sends is read here.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::StageError;
use crate::pace::Stop;
use crate::service::listen::Listening;
use crate::service::metrics::Figures;
use crate::service::own::{in_words, thread};
use crate::service::peer::Peer;
use crate::service::scrape::Scraping;
use crate::service::server::each_round;
use crate::service::system::credentials::Credentials;
use crate::service::system::keeper::Keeper;
use crate::service::system::roster::Roster;
use crate::service::{metrics, notify};

/// How often systemd is told how it goes.
const STATUS: Duration = Duration::from_secs(5);
/// How long workers may take to stop between two steps; below systemd's own TimeoutStopSec of 90 s.
const STOP: Duration = Duration::from_secs(75);

/// Serves until `stop` is asked for, with a keeper of pools where there are any.
///
/// # Errors
/// The socket's. What goes wrong with a worker or a user does not end it.
pub fn serve(
    mut roster: Roster,
    listening: Listening,
    scraping: Option<Scraping>,
    keeper: Option<Keeper>,
    stop: &Stop,
) -> Result<(), StageError> {
    let figures = Arc::new(Mutex::new(Figures::default()));
    if let Some(scraping) = scraping {
        tracing::info!(at = scraping.shown(), "figures for Prometheus");
        let (stop, figures) = (stop.clone(), Arc::clone(&figures));
        let pools = keeper.as_ref().map(Keeper::figures);
        let text = move || {
            // Pools that cannot be looked into keep nobody from the other figures.
            let pools = pools.as_ref().map_or(Ok(Vec::new()), |pools| pools());
            let pools = pools.inspect_err(|error| tracing::warn!(%error, "no figures of pools"));
            let figures = figures.lock().unwrap_or_else(PoisonError::into_inner).text();
            Ok(figures + &metrics::pools_text(&pools.unwrap_or_default()))
        };
        thread("stage-metrics", move || scraping.serve(stop, Arc::new(text)))?;
    }
    let keeping = keeper.map(|keeper| keeper.work(stop)).transpose()?;
    let at = listening.shown();
    tracing::info!(at, since = metrics::now(), "ready for all users");
    notify::ready();
    let watched = notify::interval();
    let mut told = Instant::now();
    let mut alive = Instant::now();
    let mut served = Ok(());
    while !stop.asked() && served.is_ok() {
        served = each_round(&listening.listener, &mut |socket| receive(&mut roster, socket));
        roster.tend();
        let now = roster.figures();
        if told.elapsed() >= STATUS {
            notify::status(&format!("{} workers; {}", now.workers, in_words(&now)));
            told = Instant::now();
        }
        if watched.is_some_and(|watched| alive.elapsed() >= watched / 2) {
            notify::alive();
            alive = Instant::now();
        }
        *figures.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
    notify::stopping();
    drop(listening);
    stop.ask();
    roster.stop(STOP);
    if let Some(keeping) = keeping {
        // It looks up ten times a second; what was granted is in the ledger.
        let _ = keeping.join();
    }
    tracing::info!("stopped");
    served.map_err(|error| StageError::io("take connections", at.as_ref(), error))
}

fn receive(roster: &mut Roster, socket: UnixStream) {
    match whose(&socket) {
        Ok(credentials) => roster.admit(&credentials, socket),
        Err(error) => roster.refuse(&socket, &error),
    }
}

fn whose(socket: &UnixStream) -> Result<Credentials, StageError> {
    let peer = Peer::of(socket)?;
    peer.check_mounts(false)?;
    Ok(Credentials { uid: peer.uid, gid: peer.gid, groups: Peer::groups(socket)? })
}
