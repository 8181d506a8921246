//! `flashwright stage evict`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use stage::names::PathText;
use stage::pace::Stop;
use stage::retention::{self, OrReading};
use stage::{JobStatus, Place, State};

use super::args::EvictArgs;
use super::desk::{self, shown};
use super::documents::StageEvict;
use super::foreground::Foreground;
use super::request;
use crate::failure::Failure;
use crate::{output, signals};

/// What became of a fast copy.
const EVICTED: &str = "evicted";
/// The same, where an earlier command was interrupted and nothing tells whether it or somebody else removed it.
const GONE: &str = "is not there any more";

/// Removes a fast copy.
pub fn evict(args: &EvictArgs) -> Result<(), Failure> {
    let path = match request::place(args.path.as_os_str())? {
        Place::Path(path) => path.0,
        url => {
            return Err(Failure::invalid(format!("{}: is not on a fast tier", url.shown()))
                .hint("name the fast copy; its slow copy is named by --copy"));
        }
    };
    let (Some(fast), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Failure::invalid(format!("{}: has no name", shown(&path)))
            .hint("name the fast copy of a set: a directory in a directory"));
    };
    let stop = Stop::from(signals::stop_flag()?);
    // What is taken from its name is recorded here, for the same command after a crash.
    let own = Foreground::of_eviction(&args.server, &path)?;
    let mut resumed = None;
    if own.exists() {
        let journal = own.journal()?;
        let is_half_removed = retention::is_half_removed(&journal, fast)?;
        // The command before may have been killed when all was done and nothing was said.
        if is_half_removed || !path.exists() {
            let (slow, copy) = slow_copy_of(args, &path)?;
            retention::finish(fast, &*super::tiers().open(&slow, &stop)?, name, &journal, &stop)?;
            resumed = Some((copy, if is_half_removed { EVICTED } else { GONE }));
        }
        retention::clear(&journal, &stop)?;
        own.end(journal)?;
    }
    match std::fs::symlink_metadata(&path) {
        Err(error)
            if error.kind() == ErrorKind::NotFound
                && let Some((copy, words)) = resumed =>
        {
            return report(args, path, copy, words);
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(Failure::invalid(format!("{}: is not there", shown(&path)))
                .hint("name the fast copy of a set"));
        }
        Err(error) => return Err(Failure::io(&path, "look at it", &error)),
        Ok(facts) if !facts.is_dir() => {
            return Err(Failure::invalid(format!("{}: is no directory, and has no manifest", shown(&path)))
                .hint("sets are evicted: directories that flashwright stage has copied"));
        }
        Ok(_) => {}
    }
    let (slow, copy) = slow_copy_of(args, &path)?;
    let journal = own.journal()?;
    // This journal has no jobs, so the slow copy is read.
    let witness = OrReading(&journal);
    let evicted = retention::evict(fast, &*super::tiers().open(&slow, &stop)?, name, &witness, &stop);
    own.end(journal)?;
    evicted?;
    report(args, path, copy, EVICTED)
}

fn report(args: &EvictArgs, path: PathBuf, copy: Place, words: &str) -> Result<(), Failure> {
    if args.json {
        let copy = match copy {
            Place::Path(path) => path,
            Place::Object(url) => PathText(url.as_str().into()),
        };
        let document = StageEvict { schema: "flashwright.stage-evict/1", path: PathText(path), copy };
        return output::print_document(&document);
    }
    output::print(&format!("{}: {words}; {} has been read back and stays\n", shown(&path), copy.shown()))
}

/// The slow copy that is meant: the tier that it is in, and its place.
fn slow_copy_of(args: &EvictArgs, path: &Path) -> Result<(Place, Place), Failure> {
    let copy = match &args.copy {
        Some(copy) => request::place(copy)?,
        None => slow_copy(args, path)?,
    };
    if copy.name().as_deref() != path.file_name() {
        return Err(Failure::invalid(format!("{} and {}: have different names", shown(path), copy.shown()))
            .hint("what is evicted is the same set on two tiers, under one name"));
    }
    if copy.path().is_some_and(|copy| !copy.is_dir()) {
        return Err(Failure::refused(format!("{}: there is no copy of {}", copy.shown(), shown(path)))
            .hint("copy it first: flashwright stage cp"));
    }
    let Some((slow, _)) = copy.split() else {
        return Err(Failure::invalid(format!("--copy={}: has no name", copy.shown()))
            .hint("name the slow copy of the set: TIER/NAME"));
    };
    Ok((slow, copy))
}

/// Where the newest job that copied it has put it.
fn slow_copy(args: &EvictArgs, path: &Path) -> Result<Place, Failure> {
    let copy_of = |job: &JobStatus| {
        let is_made = matches!(job.state, State::Done | State::Committed);
        let spec = &job.spec;
        // What was staged in has its slow copy where it came from.
        match is_made {
            true if spec.source.path() == Some(path) => Some(spec.destination.clone()),
            true if spec.destination.path() == Some(path) => Some(spec.source.clone()),
            _ => None,
        }
    };
    // Within a journal the last is the newest; of several, nothing but the clock tells.
    let found = desk::known_jobs(&args.server)?
        .into_iter()
        .filter_map(|(_, jobs)| jobs.iter().rev().find_map(|job| Some((job.created, copy_of(job)?))));
    found.max_by_key(|(created, _)| *created).map(|(_, copy)| copy).ok_or_else(|| {
        Failure::refused(format!("{}: no journal knows its slow copy", shown(path)))
            .hint("name its slow copy: --copy PATH")
    })
}
