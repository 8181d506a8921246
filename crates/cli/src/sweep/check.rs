//! `flashwright sweep check-statistics`: the decision procedure on simulated machines of known truth.

use measure::simulation::report::statistics;

use super::args::CheckArgs;
use crate::failure::Failure;
use crate::output;

/// Prints how often races answer rightly. Fails if a limit is exceeded by more than the repetitions' error.
pub fn check(args: &CheckArgs) -> Result<(), Failure> {
    let settings: Vec<usize> = args.settings.iter().copied().map(usize::from).collect();
    let statistics = statistics(&settings, args.repetitions as usize, args.seed);
    if args.json {
        output::print_document(&statistics)?;
    } else {
        output::print(&statistics.to_string())?;
    }
    if statistics.holds {
        Ok(())
    } else {
        Err(Failure::failed("a limit of coverage or of false answers is exceeded"))
    }
}
