//! From the flags of preconditioning to plans, how it goes, and what was done in words.

use std::cell::RefCell;

use bench::precondition::{self, Step};
use bench::saturation;
use indicatif::ProgressBar;
use measure::Workload;
use measure::precondition::{Precondition, Preconditioned, PurgeMethod};
use measure::workload::Rw;

use super::args::PrepareArgs;
use super::live;
use crate::failure::Failure;
use crate::{output, paint};

/// What is to be done before the run, and in its place.
pub fn plans(args: &PrepareArgs) -> Result<(Option<precondition::Plan>, Option<saturation::Plan>), Failure> {
    let how = args.precondition.unwrap_or_default();
    check(args, how)?;
    let usual = precondition::Plan::default();
    let plan = precondition::Plan {
        purge: args.purge,
        how,
        round: args.round_time.unwrap_or(usual.round),
        max_rounds: args.max_rounds.unwrap_or(usual.max_rounds),
    };
    let prepare = (plan.purge || plan.how != Precondition::None).then_some(plan);
    let usual = saturation::Plan::default();
    let saturate = args.wsat.then(|| saturation::Plan {
        capacities: args.capacities.unwrap_or(usual.capacities),
        until_steady: args.until_steady.unwrap_or(usual.until_steady),
        round: plan.round,
        ..usual
    });
    Ok((prepare, saturate))
}

/// Refuses flags that would change nothing, because whoever gave them meant something.
fn check(args: &PrepareArgs, how: Precondition) -> Result<(), Failure> {
    let refuse = |message: &str, hint: &str| Err(Failure::invalid(message).hint(hint));
    let needs = |flag: &str, what: &str| {
        Err(Failure::invalid(format!("--{flag} needs {what}")).hint(format!("add {what}, or drop --{flag}")))
    };
    if args.wsat && how != Precondition::None {
        return refuse(
            &format!("--precondition={} cannot be combined with --wsat", how.word()),
            "a write-saturation curve begins with a fresh drive: --purge",
        );
    }
    if args.round_time.is_some() && !args.wsat && how != Precondition::Steady {
        return needs("round_time", "--precondition=steady or --wsat");
    }
    match (args.max_rounds, args.capacities) {
        (Some(_), _) if how != Precondition::Steady => needs("max_rounds", "--precondition=steady"),
        (Some(rounds), _) if rounds < 5 => refuse(
            &format!("--max_rounds={rounds}: steadiness is judged over five rounds"),
            "SNIA's 25 is the default",
        ),
        (_, Some(_)) if !args.wsat => needs("capacities", "--wsat"),
        (_, Some(0)) => refuse("--capacities=0: must be above zero", "SNIA's 4 is the default"),
        _ if args.until_steady.is_some() && !args.wsat => needs("until_steady", "--wsat"),
        _ => Ok(()),
    }
}

/// A saturation writes, and nothing else.
pub fn check_saturation(workload: &Workload) -> Result<(), Failure> {
    if matches!(workload.rw, Rw::Write | Rw::RandWrite) {
        return Ok(());
    }
    Err(Failure::invalid(format!("--rw={} cannot be combined with --wsat", workload.rw.word()))
        .hint("a write-saturation curve is of rw=randwrite, or write"))
}

/// Says how it goes, where somebody watches.
pub struct Teller<'a> {
    target: &'a str,
    plan: precondition::Plan,
    live: bool,
    bar: RefCell<Option<ProgressBar>>,
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<'a> Teller<'a> {
    /// For the preparation of `target`.
    pub fn new(target: &'a str, plan: precondition::Plan, live: bool) -> Self {
        Self { target, plan, live, bar: RefCell::new(None) }
    }

    fn clear(&self) {
        if let Some(bar) = self.bar.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }

    /// Tells a step.
    pub fn tell(&self, step: Step) {
        if !self.live {
            return;
        }
        match step {
            Step::Purging(done, of) => self.show("purging", done, of),
            Step::Filling(done, of) => self.show("filling", done, of),
            Step::Within(number, progress) => {
                let round = format!("round {number} of {} ", self.plan.max_rounds);
                let line = live::line(&progress, Some(self.plan.round));
                output::tell(&format!("{}\n", paint::dim(&format!("{round:<18}{line}"))));
            }
            Step::Round(number, iops, steadiness) => {
                let rule = if number < 5 { String::new() } else { format!(", {}", steadiness.explain()) };
                output::tell(&format!("round {number}: {}{rule}\n", units::iops(iops)));
            }
        }
    }

    fn show(&self, what: &str, done: u64, of: u64) {
        let mut bar = self.bar.borrow_mut();
        let label = format!("{what} {}", self.target);
        let bar = bar.get_or_insert_with(|| crate::sweep::watch::bytes(of, self.live));
        if bar.length() != Some(of) || bar.message() != label {
            bar.set_length(of);
            bar.set_message(label);
            bar.reset_eta();
        }
        bar.set_position(done);
        if done >= of {
            bar.finish_and_clear();
        }
    }
}

/// What was done, in a line.
pub fn words(done: &Preconditioned) -> String {
    let mut parts = Vec::new();
    if let Some(purge) = &done.purge {
        let bytes = units::bytes(purge.bytes);
        parts.push(match purge.method {
            PurgeMethod::Discard => format!("{bytes} discarded"),
            PurgeMethod::PunchedAndRewritten => {
                format!("{bytes} punched and written again, which is no purge of the drive")
            }
        });
    }
    if let Some(fill) = &done.fill {
        let mut part = format!("{} written in {} passes", units::bytes(fill.written_bytes), fill.passes);
        for drive in &fill.drives {
            part += &format!(", {} counted by {}", units::bytes(drive.bytes), drive.name);
        }
        parts.push(part);
    }
    if let Some(rounds) = &done.rounds {
        let state = if rounds.steadiness.is_steady() { "steady" } else { "not steady" };
        parts.push(format!(
            "{state} after {} rounds of {}: {}",
            rounds.iops.len(),
            units::nanoseconds(rounds.round_ns as f64),
            rounds.steadiness.explain()
        ));
    }
    parts.join("; ")
}
