//! `flashwright stage pools`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use stage::pace::Stop;
use stage_service::pool_desk::{Kept, PoolDesk, Relayed};
use stage_service::pools::{PoolStatus, Pools, Reservation, Wish, ledger_of};
use stage_service::{Client, ServiceError};

use super::args::{
    PoolPlaceArgs, PoolsArgs, PoolsCommand, PoolsListArgs, ReleaseArgs, ReserveArgs, ServerArgs,
};
use super::desk::{self, shown};
use super::documents::{StagePools, StageReservation};
use super::request;
use crate::failure::Failure;
use crate::{output, paint, signals};

/// Where the host's pools are described, where nobody says so.
const HOST_CONFIG: &str = "/etc/flashwright/pools.toml";
/// The ledger's directory in a state directory.
const LEDGER: &str = "pools";

/// Shows pools, reserves room in them, gives it back.
pub fn pools(args: &PoolsArgs) -> Result<(), Failure> {
    match &args.command {
        Some(PoolsCommand::List(args)) => list(args),
        Some(PoolsCommand::Reserve(args)) => reserve(args),
        Some(PoolsCommand::Release(args)) => release(args),
        Some(PoolsCommand::Renew(args)) => renew(args),
        None => list(&args.list),
    }
}

/// The server that keeps pools; where there is none, or files are named, the ledger's file.
fn desk(args: &PoolPlaceArgs) -> Result<Box<dyn PoolDesk>, Failure> {
    if args.config.is_some() || args.ledger.is_some() {
        return open(args);
    }
    match Client::connect(desk::socket(&args.server)?.as_deref()) {
        // A server that keeps no pools answers so to each request about them.
        Ok(client) if client.server().pools || args.server.socket.is_some() => {
            Ok(Box::new(Relayed::new(client.socket().to_owned())))
        }
        // Whoever names a socket means that server and no file.
        Err(error) if args.server.socket.is_none() && ServiceError::is_no_server(&error) => open(args),
        Err(error) => Err(error.into()),
        Ok(_) => open(args),
    }
}

fn open(args: &PoolPlaceArgs) -> Result<Box<dyn PoolDesk>, Failure> {
    let config = match &args.config {
        Some(config) => request::file("--config", config)?,
        None => usual_config()?,
    };
    let ledger = match &args.ledger {
        Some(ledger) => existing(request::absolute(ledger)?)?,
        None => ledger(&config, &desk::state(&args.server)?)?,
    };
    let pools = Pools::open(&config, &ledger)?;
    Ok(Box::new(Kept::new(Arc::new(pools), rustix::process::geteuid().as_raw())))
}

/// A ledger that is named has to be there: one that is made in its place, where it is not mounted, holds no reservations.
fn existing(ledger: PathBuf) -> Result<PathBuf, Failure> {
    if ledger.is_dir() {
        return Ok(ledger);
    }
    Err(Failure::invalid(format!("--ledger={}: is not a directory", shown(&ledger)))
        .hint("name the directory of the reservations, or make it first (mode 1777 where users share it)"))
}

/// The pools without a server, for a diagnosis: none where none are described.
pub fn without_server(server: &ServerArgs) -> Option<Result<Vec<PoolStatus>, Failure>> {
    own_config().or_else(host_config)?;
    let place = PoolPlaceArgs { server: server.clone(), ..PoolPlaceArgs::default() };
    // To look is not to begin: without a ledger nobody has reserved anything.
    let ledger = desk::state(server).and_then(|state| ledger(&usual_config()?, &state));
    ledger.ok().filter(|ledger| ledger.is_dir())?;
    Some(open(&place).and_then(|desk| Ok(desk.list()?)))
}

/// The ledger of the pools that a file describes: the one that it names, or one in the state directory.
pub fn ledger(config: &Path, state: &Path) -> Result<PathBuf, Failure> {
    Ok(ledger_of(config)?.unwrap_or_else(|| state.join(LEDGER)))
}

/// The user's own description of pools, if it is there.
pub fn own_config() -> Option<PathBuf> {
    usual_own_config().filter(|path| path.is_file())
}

/// The host's, if it is there.
pub fn host_config() -> Option<PathBuf> {
    Some(PathBuf::from(HOST_CONFIG)).filter(|path| path.is_file())
}

fn usual_own_config() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    base.map(|base| base.join("flashwright/pools.toml"))
}

fn usual_config() -> Result<PathBuf, Failure> {
    own_config().or_else(host_config).ok_or_else(|| {
        let own = usual_own_config().map_or_else(String::new, |own| format!("{} nor ", shown(&own)));
        Failure::failed(format!(
            "no server keeps pools, and none are described: there is neither {own}{HOST_CONFIG}"
        ))
        .hint("name the file that describes them: --config FILE.toml")
    })
}

fn list(args: &PoolsListArgs) -> Result<(), Failure> {
    let pools = desk(&args.place)?.list()?;
    if args.json {
        return output::print_document(&StagePools { schema: "flashwright.stage-pools/1", pools });
    }
    let text: String = pools.iter().map(words).collect();
    output::print(if text.is_empty() { "no pools\n" } else { &text })
}

fn reserve(args: &ReserveArgs) -> Result<(), Failure> {
    let wish = Wish { pool: args.pool.clone(), name: args.name.clone(), bytes: args.size, wait: args.wait };
    let stop = Stop::from(signals::stop_flag()?);
    let reservation = desk(&args.place)?.reserve(&wish, &|| !stop.asked())?;
    if args.json {
        return output::print_document(&StageReservation {
            schema: "flashwright.stage-reservation/1",
            reservation,
        });
    }
    output::tell(&format!("{}\n", reserved(&reservation)));
    // The directory alone, for `dir=$(…) && cd "$dir"`.
    output::print(&format!("{}\n", shown(&reservation.directory.0)))
}

fn reserved(reservation: &Reservation) -> String {
    let expires = Duration::from_secs(reservation.expires);
    let left = units::seconds(expires.saturating_sub(UNIX_EPOCH.elapsed().unwrap_or_default()));
    format!("reservation {}: {} for {left}", reservation.id, units::bytes(reservation.bytes))
}

fn release(args: &ReleaseArgs) -> Result<(), Failure> {
    let desk = desk(&args.place)?;
    // For programs that release twice, a release of what is gone succeeds. A renewal tells whether it is there.
    if !desk.renew(args.id)? {
        return Err(gone(args.id, "`flashwright stage pools list` shows what is reserved"));
    }
    desk.release(args.id)?;
    output::print(&format!("reservation {}: released; what was written stays\n", args.id))
}

fn renew(args: &ReleaseArgs) -> Result<(), Failure> {
    if !desk(&args.place)?.renew(args.id)? {
        return Err(gone(args.id, "reserve again"));
    }
    output::print(&format!("reservation {}: lasts for a day from now on\n", args.id))
}

fn gone(id: i64, then: &str) -> Failure {
    Failure::failed(format!("reservation {id}: is not there"))
        .hint(format!("it was released, its day was over, or it never was; {then}"))
}

fn words(pool: &PoolStatus) -> String {
    let over =
        if pool.over { format!("  {}", paint::warn("above its high watermark")) } else { String::new() };
    let mut text = format!(
        "{} ({}): {} of {} used, {} reserved, {} free on the drive{over}\n",
        paint::title(&pool.name),
        shown(&pool.path.0),
        units::bytes(pool.used),
        units::bytes(pool.quota),
        units::bytes(pool.reserved),
        units::bytes(pool.free),
    );
    if pool.waiting > 0 {
        text += &format!("  waiting: {} for {}\n", pool.waiting, units::bytes(pool.waiting_bytes));
    }
    for holder in &pool.holders {
        let most =
            pool.reserve_per_user.map_or_else(String::new, |most| format!(" of {}", units::bytes(most)));
        let (used, reserved) = (units::bytes(holder.used), units::bytes(holder.reserved));
        text += &format!("  uid {}: {used} used, {reserved} reserved{most}\n", holder.owner);
    }
    for set in &pool.sets {
        text += &format!("  {:>10}  {}\n", units::bytes(set.bytes), shown(&set.path.0));
    }
    for row in &pool.reservations {
        let used = units::bytes(row.used);
        let bytes = units::bytes(row.bytes);
        let label = if row.label.is_empty() { String::new() } else { format!(", {}", row.label) };
        text += &format!("  reservation {}: {used} of {bytes} written by uid {}{label}\n", row.id, row.owner);
    }
    text
}
