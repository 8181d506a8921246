//! `flashwright sim fit`: a drive's constants from a measured sweep, and what they predict of points held out.

use std::collections::BTreeMap;

use ::sim::fit::{Fitted, Observation, fit as fit_drive};
use measure::Workload;
use measure::workload::full_queues;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sweep::model::{Point, RunRow};
use sweep::store::Store;

use super::args::FitArgs;
use crate::failure::Failure;
use crate::output::{self, Sink};
use crate::paint;

/// The name of the format.
pub const SCHEMA: &str = "flashwright.fit/1";
/// Fewer points than this tell too little.
const LEAST_POINTS: usize = 6;
/// Seed of the simulated runs.
const SEED: u64 = 1;

/// A drive that was fitted, and how well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FitDocument {
    /// `flashwright.fit/1`.
    pub schema: String,
    /// The results.
    pub source: String,
    /// The constants.
    pub constants: Vec<FitConstant>,
    /// The points.
    pub points: Vec<FitPoint>,
    /// Median of the errors, without their sign, of the points that were used.
    pub fit_error_median: f64,
    /// The same of the points that were held out.
    pub held_out_error_median: f64,
    /// Largest error, without its sign, of the points that were held out.
    pub held_out_error_largest: f64,
    /// What the model cannot express of what was measured.
    pub not_expressed: Vec<String>,
}

/// A constant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FitConstant {
    /// Its key in the machine file, under `drive`.
    pub key: String,
    /// Its value, in the key's unit.
    pub value: f64,
    /// Whether the points tell it from a value that is a fifth smaller or larger.
    pub identified: bool,
}

/// A point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FitPoint {
    /// Its settings.
    pub point: String,
    /// Measured requests a second, the median of the passes.
    pub measured_iops: f64,
    /// The median of the passes' distances from it, as a share of it.
    pub spread: f64,
    /// The model's requests a second.
    pub model_iops: f64,
    /// Model by measured, less one.
    pub error: f64,
    /// Not used for the constants.
    pub held_out: bool,
}

/// Fits and prints.
pub fn fit(args: &FitArgs) -> Result<(), Failure> {
    let sink = args.output.as_deref().map(|path| Sink::of(Some(path), args.force)).transpose()?;
    let store = Store::open_read_only(&args.results)?;
    if let Some(sink) = &sink {
        sink.is_none_of([store.path()])?;
    }
    let source = store.path().display().to_string();
    let (observations, left_out) = observations(&store.points()?, &store.runs()?, args.hold_out);
    check(&observations, &source)?;
    let fitted = fit_drive(&observations, SEED);
    let document = document(&source, &observations, &fitted, left_out);
    if let Some(sink) = &sink {
        sink.write(&fitted.machine(&format!("fitted to {}", store.meta()?.name), &source))?;
    }
    if args.json { output::print_document(&document) } else { output::print(&text(&document)) }
}

/// The points that a drive alone can show, with each `hold_out`th of them held out, and how many others there are.
fn observations(points: &[Point], runs: &[RunRow], hold_out: u32) -> (Vec<Observation>, usize) {
    let mut of_point: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for run in runs.iter().filter(|run| !run.is_void()) {
        of_point.entry(run.point).or_default().push(run.iops);
    }
    let mut found = Vec::new();
    for point in points.iter().filter(|point| is_plain(&point.workload)) {
        let Some(iops) = of_point.get(&point.id).filter(|iops| median((*iops).clone()) > 0.0) else {
            continue;
        };
        let typical = median(iops.clone());
        let away = median(iops.iter().map(|one| (one - typical).abs()).collect());
        let workload = &point.workload;
        found.push(Observation {
            label: point.label(),
            read: workload.rw.reads(),
            random: workload.rw.is_random(),
            block_bytes: workload.bs as u32,
            depth: full_queues(workload.iodepth, workload.numjobs, 1) as u32,
            iops: typical,
            spread: away / typical,
            held_out: false,
        });
    }
    let left_out = points.len() - found.len();
    for (index, one) in found.iter_mut().enumerate() {
        one.held_out = index as u32 % hold_out == hold_out / 2;
    }
    (found, left_out)
}

/// Whether a workload is one block size in one direction, as fast as it goes.
fn is_plain(workload: &Workload) -> bool {
    workload.rw.reads() != workload.rw.writes()
        && (workload.rw.reads() || workload.rw.writes())
        && workload.bssplit.is_empty()
        && workload.rate.is_none()
        && workload.rate_iops.is_none()
        && workload.bs.is_multiple_of(512)
        && workload.bs <= 16 << 20
}

fn check(observations: &[Observation], source: &str) -> Result<(), Failure> {
    let used = observations.iter().filter(|one| !one.held_out);
    if used.clone().count() >= LEAST_POINTS && used.clone().any(|one| one.read) {
        return Ok(());
    }
    let why = format!("{source}: {} points can be used, among them reads and no void runs", used.count());
    Err(Failure::invalid(format!("{why}; a fit needs {LEAST_POINTS}"))
        .hint("sweep rw = [\"randread\", \"randwrite\"] over several bs and iodepth"))
}

fn document(source: &str, observations: &[Observation], fitted: &Fitted, left_out: usize) -> FitDocument {
    let points: Vec<FitPoint> = observations.iter().zip(&fitted.iops).map(point).collect();
    let errors = |held_out: bool| -> Vec<f64> {
        points.iter().filter(|one| one.held_out == held_out).map(|one| one.error.abs()).collect()
    };
    FitDocument {
        schema: SCHEMA.to_owned(),
        source: source.to_owned(),
        constants: fitted
            .constants
            .iter()
            .map(|one| FitConstant {
                key: one.key.to_owned(),
                value: one.value,
                identified: one.is_identified(),
            })
            .collect(),
        fit_error_median: median(errors(false)),
        held_out_error_median: median(errors(true)),
        held_out_error_largest: errors(true).into_iter().fold(0.0, f64::max),
        not_expressed: not_expressed(observations, fitted, left_out),
        points,
    }
}

fn point((one, model): (&Observation, &f64)) -> FitPoint {
    FitPoint {
        point: one.label.clone(),
        measured_iops: one.iops,
        spread: one.spread,
        model_iops: *model,
        error: model / one.iops - 1.0,
        held_out: one.held_out,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// What the model cannot express: what the points show, then what it never has.
fn not_expressed(observations: &[Observation], fitted: &Fitted, left_out: usize) -> Vec<String> {
    let mut all = Vec::new();
    let spread = median(observations.iter().map(|one| one.spread).collect());
    if spread > 0.0 {
        all.push(format!(
            "passes lie {:.1} % from the median of their point (median of all points); the model's do not vary",
            spread * 100.0
        ));
    }
    let falls = |one: &&Observation| {
        observations.iter().any(|other| {
            let same =
                (other.read, other.random, other.block_bytes) == (one.read, one.random, one.block_bytes);
            let noise = 2.0 * one.spread.hypot(other.spread) + 0.05;
            same && other.depth < one.depth && one.iops < other.iops * (1.0 - noise)
        })
    };
    let falling: Vec<&str> = observations.iter().filter(falls).map(|one| one.label.as_str()).collect();
    if !falling.is_empty() {
        all.push(format!(
            "the rate falls as the depth grows, which the model's never does: {}",
            falling.join("; ")
        ));
    }
    for one in fitted.constants.iter().filter(|one| !one.is_identified()) {
        let other = if one.key == "page_bytes" { "another size" } else { "a fifth more or less" };
        all.push(format!("the points hardly tell {}: {other} fits about as well", one.key));
    }
    if left_out > 0 {
        let points = if left_out == 1 { "1 point is" } else { &format!("{left_out} points are") };
        all.push(format!("{points} left out: void, mixed, of a rate or of several block sizes"));
    }
    all.push("caches and read-ahead, limits that a provider sets for bursts, heat; garbage collection apart from program_us".into());
    all
}

fn text(document: &FitDocument) -> String {
    let mut text = format!("{}\n", paint::title(&format!("A drive fitted to {}", document.source)));
    for one in &document.constants {
        let mark = if one.identified { "" } else { "  (hardly told by the points)" };
        let value = if one.value >= 1e6 { format!("{:.3e}", one.value) } else { format!("{:.1}", one.value) };
        text += &format!("  {:<18} {value:>10}{mark}\n", one.key);
    }
    text += &format!("\n{:<34} {:>10} {:>8} {:>10} {:>8}\n", "point", "measured", "passes", "model", "error");
    for one in &document.points {
        let mark = if one.held_out { "  held out" } else { "" };
        text += &format!(
            "{:<34} {:>10.0} {:>7.1}% {:>10.0} {:>+7.1}%{mark}\n",
            one.point,
            one.measured_iops,
            one.spread * 100.0,
            one.model_iops,
            one.error * 100.0
        );
    }
    text += &format!(
        "\nmedian error: {:.1} % of the points used, {:.1} % of those held out (largest {:.1} %)\n\n{}\n",
        document.fit_error_median * 100.0,
        document.held_out_error_median * 100.0,
        document.held_out_error_largest * 100.0,
        paint::title("What the model cannot express")
    );
    document.not_expressed.iter().for_each(|one| text += &format!("- {one}\n"));
    text
}
