//! Moves or copies one thing with a journal, or goes on with what the journal has: `move STATE mv|cp SOURCE DESTINATION`.
//!
//! Killed at any moment and run again with the same words, it comes to the same end; `tools/crash/inject.py` does that.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use stage::{JobSpec, Level, Options, Place, Preserve, StageError, State, Verb};
use stage_service::{Mover, MoverConfig};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [state, verb, source, destination] = &arguments[..] else {
        eprintln!("usage: move STATE mv|cp SOURCE DESTINATION");
        return ExitCode::from(2);
    };
    let verb = if verb == "mv" { Verb::Move } else { Verb::Copy };
    match carry_out(Path::new(state), verb, Path::new(source), Path::new(destination)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(state: &Path, verb: Verb, source: &Path, destination: &Path) -> Result<bool, StageError> {
    let mover = Mover::open(&MoverConfig::new(state))?;
    let mut known = mover.status(None)?;
    if known.is_empty() {
        let place = |path: &Path| {
            Place::of_path(path)
                .map_err(|error| StageError::io("find the current directory for", path, error))
        };
        let options = Options { preserve: Preserve::ALL, ..Options::default() };
        let spec = JobSpec { verb, source: place(source)?, destination: place(destination)?, options };
        mover.submit(spec)?;
        known = mover.status(None)?;
    }
    let mut all = true;
    for job in known {
        if job.state == State::Failed {
            mover.retry(job.id)?;
        }
        let ended = mover.wait(job.id, Level::Durable, None)?;
        println!("{} {}", ended.state.word(), ended.spec.destination.shown());
        if let Some(why) = &ended.error {
            eprintln!("{}", why.message);
        }
        all &= ended.state == State::Done && ended.error.is_none();
    }
    Ok(all)
}
