//! Targets that a space wants prepared: written throughout, and until they are steady, before their first run.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bench::precondition::{self, Plan, Step, Watch};
use bench::problem::Problem;
use bench::target::BenchTarget;
use measure::precondition::Precondition;
use measure::saturation::{MOST_ROUNDS, ROUND};
use storage::device::DeviceSpec;
use sweep::plan::Preparation;
use sweep::space::Space;

use super::watch::{self, Speaker};
use crate::failure::Failure;
use crate::output;

/// Prepares a target as it was asked for.
///
/// # Errors
/// [`Problem`], which may be an interruption.
pub fn run(
    target: &mut BenchTarget,
    preparation: &Preparation,
    stop: &AtomicBool,
    speaker: &Speaker,
) -> Result<(), Problem> {
    if preparation.lacks_writes {
        speaker.say(&lacks_writes(&preparation.what));
    }
    let plan = Plan { purge: preparation.prepare.purge, how: preparation.prepare.how, ..Plan::default() };
    let bar = watch::preparing(Path::new(&preparation.what), output::is_watched());
    let tell = |step: Step| match step {
        Step::Purging(done, of) | Step::Filling(done, of) => {
            bar.set_length(of);
            bar.set_position(done);
        }
        Step::Within(..) => {}
        Step::Round(number, iops, steadiness) => {
            let rule = if number < 5 { String::new() } else { format!(", {}", steadiness.explain()) };
            speaker.say(&format!("round {number} of {MOST_ROUNDS}: {}{rule}", units::iops(iops)));
        }
    };
    let done = precondition::run(target, &preparation.workload, &plan, Watch { stop, tell: &tell });
    bar.finish_and_clear();
    done.map(drop)
}

/// Refuses, before anything runs, to prepare what cannot be written, or has no state to be brought into.
pub fn try_out(mut target: BenchTarget, spec: &DeviceSpec, preparation: &Preparation) -> Result<(), Failure> {
    let is_memory = |leaf: &&DeviceSpec| matches!(leaf, DeviceSpec::Memory { .. });
    let leaves = spec.leaves();
    if preparation.prepare.purge && leaves.iter().any(is_memory) {
        return Err(Failure::invalid(format!("purge=true: {spec} is memory: there is nothing to purge"))
            .hint("leave purge out of [sweep]"));
    }
    // Memory is made when it is opened.
    if leaves.iter().all(is_memory) {
        return Ok(());
    }
    Ok(target.region_bytes(&preparation.workload).map(drop)?)
}

fn lacks_writes(what: &str) -> String {
    format!("{what}: no point writes, so there is no work to make it steady with; it is filled only")
}

/// What is to be prepared, and the bytes that it takes where all of them are known.
pub struct Planned {
    /// Constructions or targets.
    pub units: usize,
    /// Those of them that nothing writes, where a steady state was asked for.
    pub lacking: Vec<String>,
    /// Bytes that fills write; none where one of them writes a whole target, however large that is.
    pub fill_bytes: Option<u64>,
}

/// What a plan over this space prepares; none where it asks for nothing.
pub fn planned(space: &Space) -> Option<Planned> {
    let preparations = space.plan_here(0).preparations();
    let mut planned = Planned { units: preparations.len(), lacking: Vec::new(), fill_bytes: Some(0) };
    for preparation in &preparations {
        if preparation.lacks_writes {
            planned.lacking.push(preparation.what.clone());
        }
        let passes = if preparation.prepare.how == Precondition::None { 0 } else { precondition::PASSES };
        let bytes = match passes {
            0 => Some(0),
            // Separate devices are taken whole, whatever is used of them; files are no larger than that.
            _ if is_separate(&preparation.what) => None,
            passes => preparation.workload.size.map(|size| size.saturating_mul(u64::from(passes))),
        };
        planned.fill_bytes = planned.fill_bytes.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
    }
    (planned.units > 0).then_some(planned)
}

/// Whether a target is separate devices as they are, without files on them.
fn is_separate(what: &str) -> bool {
    let has = |setting: &str| what.split(' ').any(|word| word == setting);
    let is_raw = has("filesystem=raw") || !what.contains(" filesystem=");
    what.starts_with("separate:") || (has("layout=separate") && is_raw)
}

/// `sweep plan`'s lines on what is prepared; empty where nothing is.
pub fn text(space: &Space) -> String {
    let Some(planned) = planned(space) else { return String::new() };
    let what = match (space.drives().is_empty(), planned.units) {
        (true, 1) => "the target is".to_owned(),
        (true, n) => format!("each of {n} targets is"),
        (false, 1) => "the construction is".to_owned(),
        (false, n) => format!("each of {n} constructions is"),
    };
    let passes = precondition::PASSES;
    let bytes = match planned.fill_bytes {
        Some(bytes) => format!("{} in all", units::bytes(bytes)),
        None => "as large as it is".to_owned(),
    };
    let fill = format!("written {passes} times, {bytes}");
    let mut steps = Vec::new();
    if space.prepare.purge {
        steps.push("purged".to_owned());
    }
    match space.prepare.how {
        Precondition::None => {}
        Precondition::Fill => steps.push(fill),
        Precondition::Steady => {
            steps.push(fill);
            let rounds = format!(
                "then by its first writing point until steady, {MOST_ROUNDS} rounds of {} at most",
                units::seconds(ROUND)
            );
            steps.push(rounds);
        }
    }
    let mut text = format!(
        "prepared: {what} {} before the first run; that is no measuring, and not in the time above\n",
        steps.join(", ")
    );
    for what in &planned.lacking {
        text += &format!("{}\n", lacks_writes(what));
    }
    text
}
