//! Several processes that carry out one command: those that `--tasks` starts, or those that mpirun has started.
//!
//! Each of them runs the same command line, and rank 0 (the root) prints what came of it. [`join`] has them meet;
//! [`rounds`] keeps them in touch while they work.

pub mod rounds;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ranks::{Launch, Launcher, Lost, Ranks, RanksError, launched, local};

use crate::failure::Failure;
use crate::output;

/// How long processes may take until all of them have joined, and until all have ended after the last word.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether this command is carried out by several processes.
pub fn is_one_of_several(tasks: Option<u32>) -> bool {
    tasks.is_some() || is_started_with_others()
}

/// Whether this process was started as one of several.
pub fn is_started_with_others() -> bool {
    local::is_child() || launched().is_some_and(|launch| launch.size > 1)
}

/// The processes that carry out this command together. None if this one does it alone. `stop` is set by the signals that
/// end the command.
///
/// # Errors
/// mpirun and `--tasks` together; mpirun where this program has no MPI; srun where the processes cannot meet; a process that does not
/// start.
pub fn join(tasks: Option<u32>, stop: &Arc<AtomicBool>) -> Result<Option<Ranks>, Failure> {
    let until = Instant::now() + JOIN_TIMEOUT;
    if let Some(ranks) = local::join(until)? {
        return Ok(Some(ranks));
    }
    if let Some(launch) = launched() {
        let (size, launcher) = (launch.size, launch.launcher.name());
        if launch.launcher == Launcher::SrunAlone {
            return Err(srun_alone(size));
        }
        if let Some(tasks) = tasks {
            return Err(Failure::invalid(format!(
                "--tasks={tasks}: {launcher} has started {size} processes already"
            ))
            .hint(format!("leave --tasks out, or start the command without {launcher}"))
            .of_root());
        }
        if launch.size > 1 || cfg!(feature = "mpi") {
            return of_launcher(launch, stop, until);
        }
    }
    let Some(tasks) = tasks else { return Ok(None) };
    if tasks == 0 {
        return Err(Failure::invalid("--tasks=0: it takes one at least").hint("try --tasks 4"));
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let pass_on: local::Listener = Arc::new(|rank, line| output::tell(&format!("rank {rank}: {line}\n")));
    Ok(Some(local::start(tasks - 1, &arguments, &pass_on, until)?))
}

/// Of processes of srun that no PMI tells of each other: each would do all of the work, on the same files.
fn srun_alone(size: u32) -> Failure {
    Failure::invalid(format!(
        "srun has started {size} processes without PMI: each would believe that it is alone, and do all of it"
    ))
    .hint(
        "srun --mpi=pmix with a program that is built with `--features mpi`, or mpirun; where each is to work alone, \
         on files of its own: srun env -u SLURM_STEP_ID flashwright …",
    )
    .of_root()
}

#[cfg(feature = "mpi")]
fn of_launcher(_launch: Launch, stop: &Arc<AtomicBool>, until: Instant) -> Result<Option<Ranks>, Failure> {
    Ok(ranks::mpi::join(stop, until)?)
}

#[cfg(not(feature = "mpi"))]
fn of_launcher(launch: Launch, _stop: &Arc<AtomicBool>, _until: Instant) -> Result<Option<Ranks>, Failure> {
    let (size, launcher) = (launch.size, launch.launcher.name());
    Err(Failure::invalid(format!(
        "{launcher} has started {size} processes, and this program is built without MPI: each would do all of it"
    ))
    .hint("build it with `cargo build --release -p flashwright --features mpi`; on one host, --tasks N needs no MPI")
    .of_root())
}

/// Ends the processes' work together. Those that end without the others are named.
pub fn finish(ranks: Ranks) -> Result<(), Failure> {
    Ok(ranks.finish(Instant::now() + JOIN_TIMEOUT)?)
}

/// The error of a rank that is lost, at every rank: the root tells it, unless it is the one that is lost.
pub fn lost(lost: &Lost, is_root: bool) -> Failure {
    let failure = Failure::failed(lost.to_string());
    if is_root || lost.rank == 0 { failure } else { failure.of_root() }
}

impl From<RanksError> for Failure {
    fn from(error: RanksError) -> Self {
        Self::of(base::ErrorClass::Failed, &error).hint_if(error.hint())
    }
}
