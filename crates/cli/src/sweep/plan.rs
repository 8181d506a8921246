//! `flashwright sweep plan`: what would run, before anything does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use measure::Workload;
use measure::workload::Rw;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sweep::board::Board;
use sweep::contest::Contest;
use sweep::model::Point;
use sweep::plan::{Estimate, OVERHEAD_PER_RUN, Order, Plan, Protocol};
use sweep::space::Space;

use super::args::PlanArgs;
use super::{kinds, prepare, request};
use crate::failure::Failure;
use crate::{output, paint};

/// The name of the format.
pub const SCHEMA: &str = "flashwright.plan/1";

/// Points that are printed; more are counted.
const SHOWN: usize = 60;

/// A sweep before it has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDocument {
    /// `flashwright.plan/1`.
    pub schema: String,
    /// Name of the sweep.
    pub name: String,
    /// What varies, and over which values, in the order written.
    pub dimensions: Vec<PlanDimension>,
    /// The points.
    pub points: Vec<PlanPoint>,
    /// Combinations that are no points.
    pub excluded: u64,
    /// Why they are none.
    #[serde(default)]
    pub left_out: Vec<PlanLeftOut>,
    /// Values that the machine lacks and that were taken out of their dimensions, each with its reason.
    #[serde(default)]
    pub unavailable: Vec<String>,
    /// Why it could not be told what the machine lacks, so that the space is counted as it is written.
    #[serde(default)]
    pub as_written: Option<String>,
    /// How runs are chosen.
    #[serde(default = "Protocol::unnamed")]
    pub protocol: Protocol,
    /// Kinds of work, of which each has its own blocks; one on each construction.
    #[serde(default)]
    pub works: u32,
    /// The longest that blocks are run, seconds; none where `passes` says how often.
    #[serde(default)]
    pub budget_s: Option<f64>,
    /// How often each point runs; 0 for as often as a decision takes.
    pub passes: u32,
    /// Runs: points × passes; of the shard, where one was asked for. 0 where nobody knows.
    pub runs: u32,
    /// The shard, `2/4`; none where the plan is of the whole.
    #[serde(default)]
    pub shard: Option<String>,
    /// Times that something is built: arrays, file systems, data on them.
    #[serde(default)]
    pub constructions: u64,
    /// Times that only settings below the target change.
    #[serde(default)]
    pub cheap_changes: u64,
    /// Further runs of the control point.
    pub controls: u32,
    /// The point that is repeated as a control.
    pub control: Option<u32>,
    /// `random` within each pass or block, or as `given`.
    pub order: String,
    /// Seed of the order; none where it is drawn when the sweep starts.
    pub seed: Option<u64>,
    /// Estimated time for all runs and controls, seconds; without building and laying data.
    pub estimated_s: f64,
    /// Time in which runs measure, seconds: neither ramps, nor controls, nor what lies between runs.
    #[serde(default)]
    pub measuring_s: f64,
    /// What is done to each construction, or target, before its first run: `none`, `fill`, `steady`.
    #[serde(default)]
    pub precondition: String,
    /// Whether it is purged before that.
    #[serde(default)]
    pub purge: bool,
    /// Bytes that filling writes, all passes together; none where nothing is filled, or a whole target is, however
    /// large.
    #[serde(default)]
    pub fill_bytes: Option<u64>,
    /// Time of it in which runs write, seconds: so many GB are written for each GB/s that the target takes.
    #[serde(default)]
    pub writing_s: f64,
    /// Drives that layouts are built of, which lose what is on them.
    #[serde(default)]
    pub destroyed: Vec<String>,
    /// Runs that end with their region, so that nobody can know how long they take.
    pub unbounded: u64,
    /// The points in the order in which they will run, controls included; empty where the seed is not known.
    pub steps: Vec<PlanStep>,
}

/// Something that varies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDimension {
    /// Its name.
    pub name: String,
    /// Its values as they would be typed.
    pub values: Vec<String>,
}

/// Combinations that are no points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanLeftOut {
    /// Why.
    pub reason: String,
    /// How many.
    pub combinations: u64,
}

/// One point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanPoint {
    /// Its number, from 0.
    pub id: u32,
    /// In words.
    pub label: String,
    /// The value of each dimension.
    pub settings: BTreeMap<String, String>,
    /// Device spec of its target.
    pub target: String,
    /// What runs.
    pub workload: Workload,
    /// What is built below it; empty where nothing is.
    #[serde(default)]
    pub layout: BTreeMap<String, String>,
}

/// One run or control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStep {
    /// The point.
    pub point: u32,
    /// Repetition, from 1.
    pub pass: u32,
    /// Whether it is a repetition of the control.
    pub control: bool,
}

/// Prints a plan.
pub fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let (space, as_written) = request::space_planned(args.space.as_deref(), &args.overrides)?;
    if args.json {
        let document = PlanDocument { as_written, ..document(&space) };
        return output::print_document(&document);
    }
    let mut text = text(&space);
    if let Some(why) = as_written {
        text += &format!("{} {why}; the space is counted as it is written\n", paint::warn("note:"));
    }
    output::print(&text)
}

/// The plan. Which seed it is drawn from changes its order and nothing that is counted but cheap changes, and those
/// by little.
fn planned(space: &Space) -> (Plan, Estimate) {
    let plan = space.plan_here(seed(space).unwrap_or(0));
    let mut estimate = plan.estimate(OVERHEAD_PER_RUN);
    if !space.protocol.is_planned_ahead() {
        // The estimate is of one block of each work, without pauses between them.
        estimate.time = space.budget.unwrap_or(estimate.time.saturating_mul(space.passes));
    }
    (plan, estimate)
}

/// Runs that are made for certain.
fn runs(space: &Space, plan: &Plan) -> usize {
    let is_planned = space.protocol.is_planned_ahead();
    if is_planned { plan.runs.len() } else { plan.members.len() * space.passes as usize }
}

/// The kinds of work that are measured here, one on each construction.
fn works(plan: &Plan) -> usize {
    Contest::all(plan.members.iter().map(|id| &plan.points[*id as usize])).len()
}

/// The seed, as far as it is known before the sweep starts.
fn seed(space: &Space) -> Option<u64> {
    if space.shard.is_some() { Some(space.common_seed()) } else { space.seed }
}

fn document(space: &Space) -> PlanDocument {
    let (plan, estimate) = planned(space);
    let changes = plan.changes();
    let steps = plan.steps().into_iter().map(|step| PlanStep {
        point: step.planned.point,
        pass: step.planned.pass,
        control: step.kind == sweep::plan::StepKind::Control,
    });
    PlanDocument {
        schema: SCHEMA.to_owned(),
        name: space.name.clone(),
        dimensions: space
            .dimensions
            .iter()
            .map(|d| PlanDimension { name: d.name.clone(), values: d.values().map(str::to_owned).collect() })
            .collect(),
        points: space
            .points
            .iter()
            .map(|p| PlanPoint {
                id: p.id,
                label: p.label(),
                settings: p.settings.clone(),
                target: p.target.clone(),
                workload: p.workload.clone(),
                layout: p.layout.clone(),
            })
            .collect(),
        excluded: space.excluded,
        left_out: space
            .left_out
            .iter()
            .map(|l| PlanLeftOut { reason: l.reason.clone(), combinations: l.combinations })
            .collect(),
        unavailable: space.unavailable.clone(),
        as_written: None,
        protocol: space.protocol,
        works: count(works(&plan)),
        budget_s: space.budget.map(|budget| budget.as_secs_f64()),
        passes: space.passes,
        runs: count(runs(space, &plan)),
        controls: count(plan.controls.len()),
        control: space.control,
        order: space.order.word().to_owned(),
        seed: seed(space),
        shard: shard(space),
        constructions: changes.constructions as u64,
        cheap_changes: changes.cheap as u64,
        precondition: space.prepare.how.word().to_owned(),
        purge: space.prepare.purge,
        fill_bytes: prepare::planned(space).and_then(|planned| planned.fill_bytes),
        measuring_s: measuring(space, &plan).as_secs_f64(),
        estimated_s: estimate.time.as_secs_f64(),
        writing_s: writing_time(&space.points, space.budget, space.passes).as_secs_f64(),
        destroyed: space.drives().iter().map(ToString::to_string).collect(),
        unbounded: estimate.unbounded as u64,
        steps: if seed(space).is_some() { steps.collect() } else { Vec::new() },
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// `2/4`, where a shard was asked for.
fn shard(space: &Space) -> Option<String> {
    space.shard.map(|shard| format!("{shard}/{}", space.shards))
}

/// Time in which the runs that are made for certain measure.
fn measuring(space: &Space, plan: &Plan) -> Duration {
    if space.protocol.is_planned_ahead() {
        return plan.measuring();
    }
    let members = plan.members.iter().filter_map(|id| plan.points[*id as usize].workload.runtime);
    members.sum::<Duration>().saturating_mul(space.passes)
}

/// Time in which the runs of these points write, of a budget or of so many passes. A mix counts by its share of writes. Of a
/// budget each point has its share; what is decided early leaves its share to the rest, so it may be more or less.
pub fn writing_time(points: &[Point], budget: Option<Duration>, passes: u32) -> Duration {
    let share = |point: &Point| match (point.workload.rw.modifies(), point.workload.rw.reads()) {
        _ if matches!(point.workload.rw, Rw::Trim | Rw::RandTrim) => 0.0,
        (false, _) => 0.0,
        (true, false) => 1.0,
        (true, true) => f64::from(100 - point.workload.rwmixread.min(100)) / 100.0,
    };
    let length = |p: &Point| (p.workload.runtime.unwrap_or_default() + p.workload.ramp_time).as_secs_f64();
    let writing: f64 = points.iter().map(|point| length(point) * share(point)).sum();
    match budget {
        Some(budget) if !points.is_empty() => {
            let all: f64 = points.iter().map(|p| length(p) + OVERHEAD_PER_RUN.as_secs_f64()).sum();
            budget.mul_f64(writing / all)
        }
        _ => Duration::try_from_secs_f64(writing * f64::from(passes)).unwrap_or(Duration::MAX),
    }
}

/// `14 points in 4 kinds of work; blocks of each until it is decided, at most 2 min`.
fn gist_of_blocks(space: &Space) -> String {
    let (plan, estimate) = planned(space);
    let part = shard(space).map(|shard| format!("shard {shard}: ")).unwrap_or_default();
    let works = works(&plan);
    let kinds = if works == 1 { "kind" } else { "kinds" };
    let how = match space.budget {
        _ if space.protocol.is_screened() => screened(&plan),
        Some(budget) => format!("blocks of each until it is decided, at most {}", units::seconds(budget)),
        None => format!(
            "{} blocks of each = {} runs; about {} and the pauses between blocks",
            space.passes,
            grouped(runs(space, &plan)),
            units::seconds(estimate.time)
        ),
    };
    let built = match plan.changes().constructions {
        0 => String::new(),
        n if space.protocol.is_screened() => format!(" of {}", grouped(n)),
        n => format!("; {} constructions", grouped(n)),
    };
    format!(
        "{part}{} points in {} {kinds} of work; {how}{built}",
        grouped(plan.members.len()),
        grouped(works)
    )
}

/// `screened by at most 840 runs on at most 3 of its constructions`.
fn screened(plan: &Plan) -> String {
    let Some(allowance) = Board::new(plan, &[1], None, &[], &BTreeSet::new()).allowance() else {
        return String::new();
    };
    let runs = grouped(allowance.runs as usize);
    match allowance.builds {
        1 => format!("screened by about {runs} runs at most"),
        builds => format!("screened by about {runs} runs at most, on at most {builds} constructions"),
    }
}

/// `14 points × 6 passes = 84 runs and 7 controls; about 59 s, of which 42 s of measuring`.
pub fn gist(space: &Space) -> String {
    if !space.protocol.is_planned_ahead() {
        return gist_of_blocks(space);
    }
    let (plan, estimate) = planned(space);
    let controls = match plan.controls.len() {
        0 => String::new(),
        1 => " and 1 control".to_owned(),
        n => format!(" and {} controls", grouped(n)),
    };
    let time = match estimate.unbounded {
        0 => format!(
            "about {}, of which {} of measuring",
            units::seconds(estimate.time),
            units::seconds(plan.measuring())
        ),
        n => format!("{} and what {n} runs take to their end", units::seconds(estimate.time)),
    };
    let points = plan.runs.len() / plan.rules.passes as usize;
    let part = shard(space).map(|shard| format!("shard {shard}: ")).unwrap_or_default();
    let mut gist = format!(
        "{part}{} points × {} passes = {} runs{controls}; {time}",
        grouped(points),
        plan.rules.passes,
        grouped(plan.runs.len())
    );
    let changes = plan.changes();
    if changes.constructions > 0 {
        gist += &format!(
            "; {} constructions, {} cheap changes",
            grouped(changes.constructions),
            grouped(changes.cheap)
        );
    }
    gist
}

/// `16,800`.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn text(space: &Space) -> String {
    let mut text = format!("{}\n\n", paint::title(&space.name));
    for dimension in &space.dimensions {
        let values: Vec<&str> = dimension.values().collect();
        text += &format!("{}  {}\n", paint::dim(&dimension.name), values.join(", "));
    }
    if let (Some(first), Some(last)) = (space.drives().first(), space.drives().last()) {
        let all = space.drives().len();
        let named = if all > 1 { format!("{all}, {first} to {last}") } else { (*first).to_owned() };
        text += &format!("{}  {named}\n", paint::dim("drives"));
    }
    text.push('\n');
    let several = kinds::targets(&space.points).len() > 1;
    for point in space.points.iter().take(SHOWN) {
        let target = if several { format!("  on {}", point.target) } else { String::new() };
        text += &format!(
            "{:>5}  {:<52}  {}{target}\n",
            point.id,
            point.label(),
            paint::dim(&point.workload.summary())
        );
    }
    if space.points.len() > SHOWN {
        text += &format!("       … and {} more; --json lists all\n", space.points.len() - SHOWN);
    }
    for left_out in &space.left_out {
        let reason = match left_out.reason.as_str() {
            "filters" => " by filters".to_owned(),
            reason => format!(": {reason}"),
        };
        text += &format!("       {} combinations are left out{reason}\n", left_out.combinations);
    }
    for value in &space.unavailable {
        text += &format!("       {} {value}\n", paint::warn("not here:"));
    }
    text += &format!("\n{}\n", paint::title(&gist(space)));
    let is_in_blocks = !space.protocol.is_planned_ahead();
    let control = space.control.and_then(|id| space.points.get(id as usize));
    if let Some(control) = control {
        let when = match space.control_every {
            0 if is_in_blocks => "at the start".to_owned(),
            n if is_in_blocks => format!("at the start, and between blocks after {n} runs"),
            0 => "at the start and after each pass".to_owned(),
            n => format!("at the start, every {n} runs, and after each pass"),
        };
        let when = if space.drives().is_empty() { when } else { format!("{when}, of each construction") };
        text += &format!("control: {}, {when}\n", control.label());
    }
    let within = match space.drives().is_empty() {
        _ if is_in_blocks => "each block",
        true => "each pass",
        false => "each pass of a construction",
    };
    let order = match (space.order, seed(space)) {
        (Order::Given, _) => format!("as given, in {within}"),
        (Order::Random, Some(seed)) => format!("random within {within}, seed {seed}"),
        (Order::Random, None) => {
            format!("random within {within}; the seed is drawn and recorded when it starts")
        }
    };
    text += &format!("order: {order}\n");
    if space.discard_first {
        text += "the first pass is set aside before anything is concluded\n";
    }
    let writing = writing_time(&space.points, space.budget, space.passes);
    if !writing.is_zero() {
        text += &format!(
            "writes for about {}{}: some {} GB for each GB/s that the target takes\n",
            units::seconds(writing),
            if space.budget.is_some() { ", longer if reads are decided first" } else { "" },
            grouped(writing.as_secs_f64().round() as usize)
        );
    }
    if !space.drives().is_empty() {
        text += &format!("{}\n", paint::bad("these drives lose what is on them"));
    }
    text += &prepare::text(space);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use measure::workload::Rw;

    use super::{grouped, writing_time};

    #[test]
    fn only_runs_that_write_count_as_writing() {
        let point = |rw: Rw| {
            let runtime = Some(Duration::from_secs(4));
            let workload = measure::Workload {
                rw,
                rwmixread: 75,
                runtime,
                ramp_time: Duration::ZERO,
                ..Default::default()
            };
            sweep::model::Point {
                id: 0,
                settings: BTreeMap::new(),
                test_type: None,
                target: String::new(),
                workload,
                layout: BTreeMap::new(),
            }
        };
        let points = [Rw::Read, Rw::Write, Rw::RandRw, Rw::RandTrim].map(point);
        assert_eq!(writing_time(&points, None, 3), Duration::from_secs(15));
        // 5 s of 4 times 4.15 s.
        assert_eq!(writing_time(&points, Some(Duration::from_secs(83)), 0), Duration::from_secs(25));
        assert_eq!(writing_time(&[], Some(Duration::from_secs(64)), 2), Duration::ZERO);
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        for (n, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (16_800, "16,800"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(n), text);
        }
    }
}
