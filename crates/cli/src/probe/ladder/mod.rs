//! `flashwright probe --ladder`: this machine's own memory hierarchy, from the first cache to the last drive.
//!
//! 1. What is to be measured is found and opened first ([`rungs`]), so that a misspelt path or a host that does not
//!    answer is told at once and not after a minute.
//! 2. [`bench::ladder`] measures, [`measure::ladder`] judges.
//! 3. [`text`] prints; with `--html` the page is written as well.

mod rungs;
mod text;

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::ErrorClass;
use bench::ladder::{Plan, Step};

use super::args::{LadderArgs, ProbeArgs};
use crate::failure::Failure;
use crate::output::{self, Sink};
use crate::signals;
use crate::sweep::watch;

/// Fewest rounds that a median has an interval from.
const FEWEST_ROUNDS: u32 = 2;
/// The smallest largest set: below it a curve has no shape.
const SMALLEST_SET: u64 = 64 << 10;
/// Shorter measurements are noise, and a device's would be over before its queue is full.
const SHORTEST: Duration = Duration::from_millis(5);

impl LadderArgs {
    /// Refuses flags of the ladder where there is none.
    pub fn refuse_without_ladder(&self) -> Result<(), Failure> {
        let given = [
            ("remote", !self.remote.is_empty()),
            ("destroy", !self.destroy.is_empty()),
            ("runtime", self.runtime.is_some()),
            ("rounds", self.rounds.is_some()),
            ("max-set", self.max_set.is_some()),
            ("size", self.size.is_some()),
            ("html", self.html.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Failure::invalid(format!("--{flag} needs --ladder"))
                .hint(format!("add --ladder, or drop --{flag}"))),
            None => Ok(()),
        }
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let usual = Plan::default();
        let plan = Plan {
            runtime: self.runtime.unwrap_or(usual.runtime),
            rounds: self.rounds.unwrap_or(usual.rounds),
            largest_set: self.max_set,
        };
        if plan.rounds < FEWEST_ROUNDS {
            return Err(Failure::invalid(format!("--rounds={}: too few for an interval", plan.rounds))
                .hint(format!("{FEWEST_ROUNDS} at least; {} by default", usual.rounds)));
        }
        if plan.runtime < SHORTEST {
            let given = units::nanoseconds(plan.runtime.as_nanos() as f64);
            return Err(Failure::invalid(format!("--runtime={given}: too short to measure anything"))
                .hint("5ms at least; 1s by default"));
        }
        if let Some(set) = plan.largest_set.filter(|set| *set < SMALLEST_SET) {
            return Err(Failure::invalid(format!("--max-set={}: too small", units::bytes_short(set)))
                .hint("64k at least; eight times the last cache by default"));
        }
        Ok(plan)
    }
}

/// Measures and prints.
pub fn ladder(args: &ProbeArgs) -> Result<(), Failure> {
    let flags = &args.ladder;
    let plan = flags.plan()?;
    let page = match &flags.html {
        Some(path) => Some(Sink::of_flag("html", Some(path), flags.force)?),
        None => None,
    };
    let stop = signals::stop_flag()?;
    let rungs::Rungs { devices, absent } = rungs::find(args, &stop)?;
    let bar = watch::seconds(output::is_watched());
    let tell = |step: &Step<'_>| {
        bar.set_length((step.of * 1e3) as u64);
        bar.set_position((step.done * 1e3) as u64);
        bar.set_message(step.what.to_owned());
    };
    let outcome = bench::ladder::run(&plan, devices, &stop, &tell);
    bar.finish_and_clear();
    let mut outcome = outcome.map_err(|error| Failure::of(ErrorClass::Failed, &error).hint(error.hint()))?;
    outcome.ladder.absent.extend(absent);
    let document = &outcome.ladder;
    if let Some(page) = page {
        page.write(&sweep::report::ladder(document, &text::answer(document), &text::method(document)))?;
    }
    if args.json {
        output::print_document(document)?
    } else {
        output::print(&text::text(document))?
    };
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::interrupted("interrupted; the figures are of the time before"));
    }
    match outcome.problems.into_iter().next() {
        Some((name, problem)) => Err(Failure::from(problem).about(name)),
        None => Ok(()),
    }
}
