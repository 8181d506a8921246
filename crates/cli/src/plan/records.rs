//! The papers' four figures, out of what was measured: a sweep, a bench, a level of a ladder, or a drain of `stage`.
//!
//! Of several runs of one kind the fastest counts, as the papers take the best of their sweeps. Void runs do not count.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use measure::ladder::Ladder;
use measure::record::RunRecord;
use measure::stats::Estimate;
use measure::warning::Severity;
use planner::efficiency::{Figure, Performance};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sweep::analysis::{Access, Class, Direction};
use sweep::store::Store;

use super::values::{Amplification, Bandwidth};
use crate::bench::figures::{self, BenchReport};
use crate::failure::Failure;

/// The figures of results; of a ladder those of the level `name`. `flag` begins the message of an error.
pub fn performance(flag: &str, path: &Path, name: &str) -> Result<Performance, Failure> {
    let about = |failure: Failure| failure.about(flag);
    let performance = if path.is_dir() || is_database(path).map_err(about)? {
        of_sweep(path)
    } else {
        of_document(path, name)
    };
    let performance = performance.map_err(about)?;
    if performance == Performance::default() {
        return Err(Failure::invalid(format!("{flag}: holds no figure that counts"))
            .hint("reads or writes are needed, sequential or random, that no warning makes void"));
    }
    Ok(performance)
}

/// A figure that a flag takes from results.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Measured {
    /// The flag.
    flag: &'static str,
    /// The bandwidth, bytes per second, or the write amplification, and how it was taken.
    #[serde(flatten)]
    figure: Figure,
}

/// Notes on where figures are from.
pub fn notes(measured: &[Measured]) -> impl Iterator<Item = String> + '_ {
    measured.iter().map(|Measured { flag, figure: Figure { value, from } }| match *flag {
        AMPLIFICATION => format!("--{flag}: {} from {from}", super::screen::figure(*value)),
        _ => format!("--{flag}: {} from {from}", units::bandwidth(*value)),
    })
}

/// The flag whose figure is no bandwidth.
const AMPLIFICATION: &str = "write-amplification";

/// A write amplification as the flag gives it, or as simulated flash had it, which is added to `measured`: the highest of all runs
/// that count, because it decides how long flash lasts.
pub fn amplification(
    given: Option<&Amplification>,
    measured: &mut Vec<Measured>,
) -> Result<Option<f64>, Failure> {
    let path = match given {
        None => return Ok(None),
        Some(Amplification::Ratio(ratio)) => return Ok(Some(*ratio)),
        Some(Amplification::Results(path)) => path,
    };
    let about = format!("--{AMPLIFICATION}={}", path.display());
    let is_sweep = path.is_dir() || is_database(path).map_err(|failure| failure.about(&about))?;
    let found = if is_sweep { amplifications_of_sweep(path) } else { amplifications_of_document(path) };
    let found = found.map_err(|failure| failure.about(&about))?.into_iter();
    let figure = found.max_by(|a, b| a.value.total_cmp(&b.value)).ok_or_else(|| {
        Failure::invalid(format!("{about}: holds no write amplification"))
            .hint("simulate writes to flash (flashwright sim MACHINE --rw=randwrite --json), or give a ratio such as 2.5")
    })?;
    let value = figure.value;
    measured.push(Measured { flag: AMPLIFICATION, figure });
    Ok(Some(value))
}

/// The last run of each point that writes.
fn amplifications_of_sweep(path: &Path) -> Result<Vec<Figure>, Failure> {
    let store = Store::open_read_only(path)?;
    let points = store.points()?.into_iter().filter(|point| point.workload.rw.writes());
    let labels: BTreeMap<u32, String> = points.map(|point| (point.id, point.label())).collect();
    let runs = store.runs()?.into_iter().filter(|run| !run.is_void() && labels.contains_key(&run.point));
    let last: BTreeMap<u32, i64> = runs.map(|run| (run.point, run.id)).collect();
    let mut found = Vec::new();
    for (point, run) in last {
        let value = store.record(run)?.write_amplification();
        found.extend(value.map(|value| Figure { value, from: format!("simulated: {}", labels[&point]) }));
    }
    Ok(found)
}

fn amplifications_of_document(path: &Path) -> Result<Vec<Figure>, Failure> {
    let figure = |record: RunRecord| {
        let value = record.write_amplification()?;
        Some(Figure { value, from: format!("simulated: {}", record.workload.summary()) })
    };
    Ok(records_of(&parsed(path)?)?.unwrap_or_default().into_iter().filter_map(figure).collect())
}

/// A bandwidth as a flag gives it, or as it was measured, which is added to `measured`: of sequential writes or reads.
pub fn rate(
    flag: &'static str,
    given: Option<&Bandwidth>,
    is_of_writes: bool,
    measured: &mut Vec<Measured>,
) -> Result<Option<f64>, Failure> {
    let path = match given {
        None => return Ok(None),
        Some(Bandwidth::Rate(rate)) => return Ok(Some(*rate)),
        Some(Bandwidth::Results(path)) => path,
    };
    let about = format!("--{flag}={}", path.display());
    let figures = performance(&about, path, "")?;
    let (figure, rw) = match is_of_writes {
        true => (figures.sequential_write, "write"),
        false => (figures.sequential_read, "read"),
    };
    let figure = figure.ok_or_else(|| {
        Failure::invalid(format!("{about}: holds no sequential {rw}s"))
            .hint(format!("measure --rw={rw}, or give a rate such as 2GB/s"))
    })?;
    let value = figure.value;
    measured.push(Measured { flag, figure });
    Ok(Some(value))
}

fn is_database(path: &Path) -> Result<bool, Failure> {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    // What is taken from a pipe cannot be read again.
    if std::fs::metadata(path).is_ok_and(|facts| !facts.is_file()) {
        return Ok(false);
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start));
    read.map_err(|error| {
        Failure::invalid(format!("cannot be read: {error}")).hint("name a sweep's directory or a JSON file")
    })?;
    Ok(start == MAGIC)
}

fn of_sweep(path: &Path) -> Result<Performance, Failure> {
    let store = Store::open_read_only(path)?;
    let made = if crate::sweep::is_simulated(&store)? { "simulated: " } else { "" };
    let report = crate::sweep::loaded(&store)?;
    let mut best = Performance::default();
    for point in &report.points {
        if let Some((bandwidth, iops)) = point.bandwidth.zip(point.iops) {
            take(&mut best, point.class(), bandwidth.mean, iops.mean, &format!("{made}{}", point.label));
        }
    }
    Ok(best)
}

fn of_document(path: &Path, name: &str) -> Result<Performance, Failure> {
    let document = parsed(path)?;
    if let Some(records) = records_of(&document)? {
        return Ok(of_records(records));
    }
    match document["schema"].as_str() {
        Some("flashwright.stage-status/1") => Ok(of_drain(&document)),
        Some(measure::ladder::SCHEMA) => of_ladder(&serde_json::from_value(document).map_err(wrong)?, name),
        _ => Err(Failure::invalid("is no document with figures").hint(DOCUMENTS)),
    }
}

/// What a flag takes figures from.
const DOCUMENTS: &str = "a file of bench, probe --ladder or stage status --json, or a sweep's directory";

fn wrong(error: serde_json::Error) -> Failure {
    Failure::invalid(format!("is no such document: {error}")).hint(DOCUMENTS)
}

fn parsed(path: &Path) -> Result<Value, Failure> {
    serde_json::from_str(&crate::plan::read(path)?).map_err(wrong)
}

/// The runs of a document that count; None of one that holds no runs.
fn records_of(document: &Value) -> Result<Option<Vec<RunRecord>>, Failure> {
    let mut records: Vec<RunRecord> = match document["schema"].as_str() {
        Some(figures::SCHEMA) => {
            let report: BenchReport = serde_json::from_value(document.clone()).map_err(wrong)?;
            report.record.into_iter().chain(report.jobs.into_iter().map(|job| job.record)).collect()
        }
        Some(measure::record::SCHEMA) => vec![serde_json::from_value(document.clone()).map_err(wrong)?],
        _ => return Ok(None),
    };
    let is_void = |record: &RunRecord| {
        record.warnings.iter().any(|warning| warning.code.explain().severity == Severity::Void)
    };
    records.retain(|record| !is_void(record));
    Ok(Some(records))
}

fn of_records(records: Vec<RunRecord>) -> Performance {
    let mut best = Performance::default();
    for record in records {
        let (bandwidth, iops) = (record.bandwidth_bytes_per_s(), record.iops());
        let is_simulated = record.target.transport.as_deref() == Some("simulated");
        let made = match record.target.kind.as_str() {
            _ if is_simulated => "simulated: ",
            "memory" => "memory: ",
            _ => "",
        };
        let from = format!("{made}{}", record.workload.summary());
        take(&mut best, Class::of(&record.workload), bandwidth, iops, &from);
    }
    best
}

/// The rate of the job of `stage` that wrote most to the slow tier and became durable, from when it was accepted; its times
/// are whole seconds. A job inward fills the fast tier, and is not a drain.
fn of_drain(status: &Value) -> Performance {
    let rate = |job: &Value| {
        let seconds = job["durable"].as_f64()? - job["created"].as_f64()?;
        let bytes = job["bytes_written"].as_f64()?;
        let is_drain = job["spec"]["options"]["inward"] != true && seconds > 0.0 && bytes > 0.0;
        is_drain.then_some((bytes, seconds))
    };
    let jobs = status["jobs"].as_array().into_iter().flatten().filter_map(rate);
    let largest = jobs.max_by(|a, b| a.0.total_cmp(&b.0));
    let figure = largest.map(|(bytes, seconds)| Figure {
        value: bytes / seconds,
        from: format!("drain of {} in {seconds:.0} s", units::bytes(bytes as u64)),
    });
    Performance { sequential_write: figure, ..Performance::default() }
}

fn of_ladder(ladder: &Ladder, name: &str) -> Result<Performance, Failure> {
    let Some(level) = ladder.levels.iter().find(|level| level.name == name) else {
        let names: Vec<&str> = ladder.levels.iter().map(|level| level.name.as_str()).collect();
        let names = names.join(", ");
        return Err(match name {
            "" => Failure::invalid("is a ladder, of which a flag cannot name a level")
                .hint(format!("give the rate of one of {names}, such as 2GB/s")),
            name => {
                Failure::invalid(format!("the ladder has no level {name}")).hint(format!("there are {names}"))
            }
        });
    };
    let figure = |estimate: Option<Estimate>| {
        estimate.map(|estimate| Figure { value: estimate.value, from: format!("ladder, {name}") })
    };
    let four = &level.figures;
    Ok(Performance {
        sequential_read: figure(four.sequential_read_bytes_per_s),
        sequential_write: figure(four.sequential_write_bytes_per_s),
        random_read: figure(four.random_read_iops),
        random_write: figure(four.random_write_iops),
    })
}

/// Takes a figure that is better than the one before.
fn take(best: &mut Performance, class: Class, bandwidth: f64, iops: f64, from: &str) {
    let (place, value) = match (class.access, class.direction) {
        (Access::Sequential, Direction::Read) => (&mut best.sequential_read, bandwidth),
        (Access::Sequential, Direction::Write) => (&mut best.sequential_write, bandwidth),
        (Access::Random, Direction::Read) => (&mut best.random_read, iops),
        (Access::Random, Direction::Write) => (&mut best.random_write, iops),
        _ => return,
    };
    if value > place.as_ref().map_or(0.0, |figure| figure.value) {
        *place = Some(Figure { value, from: from.to_owned() });
    }
}
