//! `flashwright stage sets`.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};

use stage::complete::{self, SetSurvey};
use stage::pace::Stop;
use stage::parts::SetId;
use stage::retention;
use stage::tier::Tier;
use stage::{Place, StageError};
use stage_service::store::{LeftBehind, StoreConfig, drain_left};

use super::args::SetsArgs;
use super::desk::shown;
use super::documents::{StageSet, StageSets};
use super::foreground::Foreground;
use super::request;
use crate::failure::Failure;
use crate::{output, signals};

/// Drains, completes and removes what is asked for, and shows what there is then.
pub fn sets(args: &SetsArgs) -> Result<(), Failure> {
    let flag = signals::stop_flag()?;
    let stop = Stop::from(flag.clone());
    let place = request::place(&args.slow)?;
    if let Some(fast) = &args.drain {
        drain(args, &request::absolute(fast)?, &flag)?;
    }
    let open = || super::tiers().open(&place, &stop);
    if let Some(name) = &args.remove {
        remove(args, &*open()?, &place, name, &stop)?;
    }
    if args.complete {
        let slow = open()?;
        recorded(args, &place, |journal| {
            for id in complete::sets(&*slow)? {
                complete::complete(&*slow, &id, journal)?;
            }
            retention::latest(&*slow, journal).map(drop)
        })?;
    }
    let slow = open()?;
    let found: Result<Vec<SetSurvey>, StageError> =
        complete::sets(&*slow)?.iter().map(|id| complete::survey(&*slow, id)).collect();
    report(args, &place, &found?)
}

/// Does something whose names on the way are recorded: the same command takes it to its end after a crash.
fn recorded(
    args: &SetsArgs,
    place: &Place,
    work: impl FnOnce(&stage::journal::Journal) -> Result<(), StageError>,
) -> Result<(), Failure> {
    let own = Foreground::of_sets(&args.server, place)?;
    let journal = own.journal()?;
    let done = work(&journal);
    own.end(journal)?;
    Ok(done?)
}

fn remove(args: &SetsArgs, slow: &dyn Tier, place: &Place, name: &str, stop: &Stop) -> Result<(), Failure> {
    let id = SetId::of_name(OsStr::new(name)).ok_or_else(|| {
        Failure::invalid(format!("--remove={name}: not the name of a set"))
            .hint("name it as this command lists it: step-00000007.run-ID")
    })?;
    recorded(args, place, |journal| retention::remove_set(slow, &id, journal, stop))
}

/// Drains what is left on this node's flash, and tells what is not.
fn drain(args: &SetsArgs, fast: &std::path::Path, stop: &AtomicBool) -> Result<(), Failure> {
    let config = StoreConfig { tiers: super::tiers(), ..StoreConfig::new(fast, &args.slow) };
    let go_on = || match stop.load(Ordering::Relaxed) {
        true => Err(StageError::Stopped { what: "by a signal".to_owned() }),
        false => Ok(()),
    };
    let left = drain_left(&config, &request::node(), &go_on)?;
    let lines: Vec<String> = left.iter().flat_map(|left| not_drained(fast, left)).collect();
    match lines.as_slice() {
        [] => Ok(()),
        lines => {
            Err(Failure::failed(lines.join("\n")).hint("what is drained is on the slow tier; the rest stays"))
        }
    }
}

fn not_drained(fast: &std::path::Path, left: &LeftBehind) -> Vec<String> {
    let place = fast.join(left.part.to_string());
    let failed = left
        .failed
        .iter()
        .map(|(id, why)| format!("{}: is not drained: {why}", shown(&place.join(id.to_string()))));
    failed.chain(left.busy.iter().map(|why| format!("{}: {why}", shown(&place)))).collect()
}

fn report(args: &SetsArgs, place: &Place, found: &[SetSurvey]) -> Result<(), Failure> {
    if args.json {
        let sets = found.iter().map(|set| StageSet {
            name: set.id.to_string(),
            step: set.id.step,
            run: set.id.run.to_string(),
            ranks: set.ranks,
            complete: set.is_complete,
            faults: set.faults.clone(),
        });
        return output::print_document(&StageSets {
            schema: "flashwright.stage-sets/1",
            sets: sets.collect(),
        });
    }
    if found.is_empty() {
        return output::print(&format!("{}: no sets of parts\n", place.shown()));
    }
    output::print(&found.iter().map(lines).collect::<String>())
}

fn lines(set: &SetSurvey) -> String {
    let parts = |count: usize| units::counted(count as u64, "part");
    let ranks = set.ranks as usize;
    let state = if set.is_complete {
        format!("complete, {}", parts(ranks))
    } else if ranks == 0 {
        "not complete, no part is there".to_owned()
    } else if set.faults.is_empty() {
        format!("not complete, all {} are there and the record is not: --complete publishes it", parts(ranks))
    } else {
        format!("not complete, {} of {}", ranks - set.faults.len(), parts(ranks))
    };
    let faults = set.faults.iter().map(|fault| format!("  {fault}\n"));
    format!("{}: {state}\n{}", set.id, faults.collect::<String>())
}
