//! `flashwright sweep`: a design space, measured and judged.
//!
//! A sweep goes through these steps, and a resumption through all but the first:
//!
//! 1. [`request`]: space and flags become a plan; every target is looked at before anything is touched.
//! 2. [`session`]: the results file is made *first*, so that whatever happens from then on can be resumed.
//! 3. [`targets`]: scratch files are laid, and targets opened as points need them; [`built`] makes what lies below
//!    them and takes it down again.
//!    With `--machine` the targets are layouts of a simulated machine ([`simulated`]), whose next runs are computed [`ahead`].
//! 4. The library runs what is missing; [`watch`] shows how it goes.
//! 5. [`outcome`]: results.json and report.html are written beside results.db, also after Ctrl-C, and the
//!    gist is printed.

mod ab;
mod ahead;
pub mod args;
mod built;
mod check;
mod context;
mod foreign;
mod inspect;
mod kinds;
mod merge;
mod outcome;
pub mod plan;
mod prepare;
mod request;
mod session;
mod simulated;
pub mod targets;
pub mod watch;

use crate::failure::Failure;
use args::{SweepArgs, SweepCommand};

pub use outcome::{JSON, loaded};
pub use session::shell_word;
pub use simulated::is_simulated;

/// Does what the flags say.
pub fn sweep(args: &SweepArgs) -> Result<(), Failure> {
    match &args.command {
        None => session::start(&args.run),
        Some(SweepCommand::Run(args)) => session::start(args),
        Some(SweepCommand::Plan(args)) => plan::plan(args),
        Some(SweepCommand::Resume(args)) => session::resume(args),
        Some(SweepCommand::Status(args)) => inspect::status(args),
        Some(SweepCommand::Diff(args)) => inspect::diff(args),
        Some(SweepCommand::Merge(args)) => merge::merge(args),
        Some(SweepCommand::Ab(args)) => ab::ab(args),
        Some(SweepCommand::CheckStatistics(args)) => check::check(args),
        Some(SweepCommand::CheckSearch(args)) => check::search(args),
    }
}
