//! `flashwright sweep check-statistics` and `check-search`: decisions and searches on simulated machines of known truth.

use base::ErrorClass;
use measure::simulation::report::statistics;
use sweep::check_search::{self, Truth};
use sweep::store::Store;

use super::args::{CheckArgs, CheckSearchArgs};
use super::outcome::loaded;
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

/// Prints how near a screened sweep comes to the best of points whose figures are known. Fails if it comes near in too few searches.
pub fn search(args: &CheckSearchArgs) -> Result<(), Failure> {
    let store = Store::open_read_only(&args.results)?;
    let points = store.points()?;
    let truth = Truth::of(points, &loaded(&store)?.points).ok_or_else(|| {
        let message = format!("{}: not every point has a figure", args.results.display());
        Failure::invalid(message).hint("take the results of a sweep with --search exhaustive")
    })?;
    let written = truth.points.iter().filter_map(|point| point.workload.runtime).max();
    let runtime = args.runtime.or(written).unwrap_or(std::time::Duration::from_secs(1));
    let seeds = args.seeds as usize;
    let found = check_search::check(&truth, args.world, runtime.as_secs_f64(), seeds, args.seed)
        .map_err(|error| Failure::of(ErrorClass::Failed, &error))?;
    if args.json {
        output::print_document(&found)?
    } else {
        output::print(&found.to_string())?
    }
    match found.missed() {
        None => Ok(()),
        Some(near) => Err(Failure::failed(format!(
            "all recommendations are within 2 % of the best in {} of the screened searches; at least {} are wanted",
            units::percent(near),
            units::percent(check_search::NEAR_SEEDS)
        ))),
    }
}
