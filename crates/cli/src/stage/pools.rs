//! `flashwright stage pools`.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use stage::pace::Stop;
use stage::pools::{PoolStatus, Pools, Request, Reservation};

use super::args::{
    PoolPlaceArgs, PoolsArgs, PoolsCommand, PoolsListArgs, ReleaseArgs, ReserveArgs, ServerArgs,
};
use super::desk::{self, shown};
use super::documents::{StagePools, StageReservation};
use super::request;
use crate::failure::Failure;
use crate::{output, paint, signals};

/// Where pools are described, where nobody says so: the user's file, then the host's.
const HOST_CONFIG: &str = "/etc/flashwright/pools.toml";

/// Shows pools, reserves room in them, gives it back.
pub fn pools(args: &PoolsArgs) -> Result<(), Failure> {
    match &args.command {
        Some(PoolsCommand::List(args)) => list(args),
        Some(PoolsCommand::Reserve(args)) => reserve(args),
        Some(PoolsCommand::Release(args)) => release(args),
        None => list(&PoolsListArgs::default()),
    }
}

fn open(args: &PoolPlaceArgs) -> Result<Pools, Failure> {
    let config = match &args.config {
        Some(config) => request::absolute(config)?,
        None => usual_config()?,
    };
    let ledger = match &args.ledger {
        Some(ledger) => request::absolute(ledger)?,
        None => desk::state(&ServerArgs::default())?.join("pools.db"),
    };
    if let Some(folder) = ledger.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, "make it", &error))?;
    }
    Ok(Pools::open(&config, &ledger)?)
}

fn usual_config() -> Result<PathBuf, Failure> {
    let base = std::env::var_os("XDG_CONFIG_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    let own = base.map(|base| base.join("flashwright/pools.toml"));
    let mut known = own.iter().cloned().chain([PathBuf::from(HOST_CONFIG)]);
    if let Some(found) = known.find(|path| path.is_file()) {
        return Ok(found);
    }
    let own = own.as_deref().map_or_else(String::new, |own| format!("{} nor ", shown(own)));
    Err(Failure::failed(format!("no pools are described: there is neither {own}{HOST_CONFIG}"))
        .hint("name the file that describes them: --config FILE.toml"))
}

fn list(args: &PoolsListArgs) -> Result<(), Failure> {
    let pools = open(&args.place)?.list()?;
    if args.json {
        return print(&StagePools { schema: "flashwright.stage-pools/1", pools });
    }
    let text: String = pools.iter().map(words).collect();
    output::print(if text.is_empty() { "no pools\n" } else { &text })
}

fn reserve(args: &ReserveArgs) -> Result<(), Failure> {
    let pools = open(&args.place)?;
    let request = Request {
        pool: args.pool.clone(),
        owner: rustix::process::geteuid().as_raw(),
        label: args.name.clone(),
        bytes: args.size,
        process: None,
    };
    let stop = Stop::from(signals::stop_flag()?);
    let reservation = pools.reserve(&request, args.wait, &stop)?;
    if args.json {
        return print(&StageReservation { schema: "flashwright.stage-reservation/1", reservation });
    }
    output::tell(&format!("{}\n", reserved(&reservation)));
    // The directory alone, for `cd "$(…)"`.
    output::print(&format!("{}\n", shown(&reservation.directory.0)))
}

fn reserved(reservation: &Reservation) -> String {
    let until = reservation.expires.map_or_else(String::new, |at| {
        let left = Duration::from_secs(at).saturating_sub(UNIX_EPOCH.elapsed().unwrap_or_default());
        format!(" for {}", units::seconds(left))
    });
    format!("reservation {}: {}{until}", reservation.id, units::bytes(reservation.bytes))
}

fn release(args: &ReleaseArgs) -> Result<(), Failure> {
    open(&args.place)?.release(args.id, rustix::process::geteuid().as_raw())?;
    output::print(&format!("reservation {}: released; what was written stays\n", args.id))
}

fn print(document: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::failed(format!("cannot write it as JSON: {error}")))?;
    output::print(&format!("{text}\n"))
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
    for set in &pool.sets {
        text += &format!("  {:>10}  {}\n", units::bytes(set.bytes), shown(&set.path.0));
    }
    for row in &pool.reservations {
        let used = units::bytes(row.used);
        let bytes = units::bytes(row.bytes);
        text += &format!(
            "  reservation {}: {} of {bytes} written by uid {}, {}\n",
            row.id, used, row.owner, row.label
        );
    }
    text
}
