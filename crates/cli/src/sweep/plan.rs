//! `flashwright sweep plan`: what would run, before anything does.

use std::collections::BTreeMap;

use measure::Workload;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sweep::plan::{Estimate, OVERHEAD_PER_RUN, Order, Plan};
use sweep::space::Space;

use super::args::PlanArgs;
use super::request;
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
    /// Combinations that filters left out.
    pub excluded: u64,
    /// How often each point runs.
    pub passes: u32,
    /// Runs: points × passes.
    pub runs: u32,
    /// Further runs of the control point.
    pub controls: u32,
    /// The point that is repeated as a control.
    pub control: Option<u32>,
    /// `random` within each pass, or as `given`.
    pub order: String,
    /// Seed of the order; none where it is drawn when the sweep starts.
    pub seed: Option<u64>,
    /// Estimated time for all runs and controls, seconds; without laying scratch files.
    pub estimated_s: f64,
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
    let space = request::space(args.space.as_deref(), &args.overrides)?;
    if args.json {
        let text = serde_json::to_string_pretty(&document(&space)).unwrap_or_default();
        return output::print(&format!("{text}\n"));
    }
    output::print(&text(&space))
}

/// The plan; which seed it is drawn from changes its order and nothing that is counted.
fn planned(space: &Space) -> (Plan, Estimate) {
    let plan = space.plan(space.seed.unwrap_or(0));
    let estimate = plan.estimate(OVERHEAD_PER_RUN);
    (plan, estimate)
}

fn document(space: &Space) -> PlanDocument {
    let (plan, estimate) = planned(space);
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
            })
            .collect(),
        excluded: space.excluded,
        passes: space.passes,
        runs: count(plan.runs.len()),
        controls: count(plan.controls.len()),
        control: space.control,
        order: space.order.word().to_owned(),
        seed: space.seed,
        estimated_s: estimate.time.as_secs_f64(),
        unbounded: estimate.unbounded as u64,
        steps: if space.seed.is_some() { steps.collect() } else { Vec::new() },
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// `14 points × 6 passes = 84 runs, 7 controls; about 59 s`.
pub fn gist(space: &Space) -> String {
    let (plan, estimate) = planned(space);
    let controls = match plan.controls.len() {
        0 => String::new(),
        1 => " and 1 control".to_owned(),
        n => format!(" and {n} controls"),
    };
    let time = match estimate.unbounded {
        0 => format!("about {}", units::seconds(estimate.time)),
        n => format!("{} and what {n} runs take to their end", units::seconds(estimate.time)),
    };
    format!(
        "{} points × {} passes = {} runs{controls}; {time}",
        plan.points.len(),
        plan.rules.passes,
        plan.runs.len()
    )
}

fn text(space: &Space) -> String {
    let mut text = format!("{}\n\n", paint::title(&space.name));
    for dimension in &space.dimensions {
        let values: Vec<&str> = dimension.values().collect();
        text += &format!("{}  {}\n", paint::dim(&dimension.name), values.join(", "));
    }
    text.push('\n');
    let several = request::targets(&space.points).len() > 1;
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
    if space.excluded > 0 {
        text += &format!("       {} combinations are left out by filters\n", space.excluded);
    }
    text += &format!("\n{}\n", paint::title(&gist(space)));
    let control = space.control.and_then(|id| space.points.get(id as usize));
    if let Some(control) = control {
        let when = match space.control_every {
            0 => "at the start and after each pass".to_owned(),
            n => format!("at the start, every {n} runs, and after each pass"),
        };
        text += &format!("control: {}, {when}\n", control.label());
    }
    let order = match (space.order, space.seed) {
        (Order::Given, _) => "as given, in each pass".to_owned(),
        (Order::Random, Some(seed)) => format!("random within each pass, seed {seed}"),
        (Order::Random, None) => {
            "random within each pass; the seed is drawn and recorded when it starts".to_owned()
        }
    };
    text += &format!("order: {order}\n");
    if space.discard_first {
        text += "the first pass is set aside before anything is concluded\n";
    }
    text
}
