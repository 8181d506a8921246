//! A results file as [`SweepData`].
//!
//! Reading 100,000 runs must not mean reading 100,000 records. Rows come from the figures' columns; whole records
//! are read only for what rows do not hold, and as few as will do:
//!
//! - latency curves: the kept runs of at most [`CURVES`] points, the recommended ones first;
//! - the machine and the targets: one record for each target;
//! - what limited each point: the verdict on its middle run, which stands in a table of its own;
//! - an example of each warning: one record for each code.

use std::collections::{BTreeMap, BTreeSet};

use measure::limit::Verdict;
use measure::{Histogram, RunRecord, WarningCode};

use crate::analysis::{
    Analysis, AnalysisError, Failure, Fate, MissingRuns, SweepData, SweepMeta, TargetSeen, analyse,
};
use crate::plan::{Order, Protocol};
use crate::recommend::recommend;
use crate::space::Space;
use crate::store::{NOTE_HERE, Store, StoreError};

/// Points whose latencies are read.
pub const CURVES: usize = 32;
/// Kept runs of a point whose latencies are merged; more passes add nothing that a curve shows.
const RUNS_OF_CURVE: usize = 16;

/// Why a results file could not be analysed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It could not be read.
    #[error("the results could not be read")]
    Store(#[from] StoreError),
    /// It contradicts itself.
    #[error("the results contradict themselves")]
    Analysis(#[from] AnalysisError),
}

/// All that a report needs of a results file.
pub fn load(store: &Store) -> Result<SweepData, LoadError> {
    let mut data = rows(store)?;
    let analysis = analyse(&data)?;
    let mut records = Records { store, read: BTreeMap::new() };
    for id in curve_points(&analysis) {
        let mut merged = Histogram::new();
        let kept = analysis.runs.iter().filter(|r| r.run.point == id && r.fate == Fate::Kept);
        for run in kept.take(RUNS_OF_CURVE) {
            merged.merge(&store.record(run.run.id)?.latency());
        }
        data.latencies.insert(id, merged);
    }
    data.verdicts = verdicts(&analysis, store)?;
    data.targets = targets(&data, &mut records)?;
    data.messages = messages(&data, &mut records)?;
    Ok(data)
}

/// Everything but what only records hold.
fn rows(store: &Store) -> Result<SweepData, StoreError> {
    let meta = store.meta()?;
    let part = meta.part().map(|part| format!(" (shard {part})")).unwrap_or_default();
    let order = match meta.order {
        Order::Random if !meta.protocol.is_planned_ahead() => "random within each block",
        Order::Random => "random within each pass",
        Order::Given => "as the dimensions are written, in each pass alike",
    };
    let runs = store.runs()?;
    let started = runs.iter().map(|r| r.started_unix_ns).min();
    let finished = runs.iter().map(|r| r.started_unix_ns.saturating_add(r.interval_ns)).max();
    let failures = store.failures()?.into_iter().map(|failure| Failure {
        point: failure.planned.point,
        pass: failure.planned.pass,
        at_unix_ns: failure.at_unix_ns,
        error: failure.error,
    });
    // Of a shard only what it owes is there to be judged, or to be missed.
    let plan = store.plan()?;
    let members: BTreeSet<u32> = plan.members.iter().copied().collect();
    let mut points = plan.points;
    points.retain(|point| members.contains(&point.id));
    let search = if meta.protocol.is_screened() { store.board()?.summary() } else { None };
    if search.is_some() {
        let run: BTreeSet<u32> = runs.iter().map(|run| run.point).collect();
        points.retain(|point| run.contains(&point.id));
    }
    Ok(SweepData {
        meta: SweepMeta {
            name: meta.name + &part,
            version: meta.version,
            seed: meta.seed,
            order: order.to_owned(),
            protocol: meta.protocol,
            equivalence: meta.equivalence,
            budget_s: meta.budget.map(|budget| budget.as_secs_f64()),
            passes: meta.passes,
            discard_first: meta.discard_first,
            started_unix_ns: started,
            finished_unix_ns: finished,
            baseline: baseline(&meta.space),
            space: meta.space,
            hostname: meta.machine.hostname,
            directory: store.notes()?.remove(NOTE_HERE).unwrap_or_default(),
        },
        points,
        search,
        runs,
        cut: store.cut()?.into_iter().map(|run| (run.point, run.pass)).collect(),
        missing: missing(store, meta.protocol)?,
        controls: store.controls()?,
        voided: store.voided()?,
        failures: failures.collect(),
        host: Some(meta.machine.host),
        ..SweepData::default()
    })
}

/// What a sweep of blocks owes.
fn missing(store: &Store, protocol: Protocol) -> Result<Vec<MissingRuns>, StoreError> {
    if protocol.is_planned_ahead() {
        return Ok(Vec::new());
    }
    let missing = store.board()?.missing().into_iter();
    Ok(missing.map(|(point, passes)| MissingRuns { point, passes }).collect())
}

/// What the space as it was written calls its baseline. It was read without fault when the sweep began.
fn baseline(space: &str) -> BTreeMap<String, String> {
    Space::parse("the space of the sweep", space).map_or_else(|_| BTreeMap::new(), |space| space.baseline)
}

/// The points whose latencies are worth a curve: all of a small sweep; of a large one what is recommended, what is fastest,
/// what they are compared with, and the test types or the first points for the rest.
fn curve_points(analysis: &Analysis) -> Vec<u32> {
    let recommendations = recommend(analysis);
    let named = recommendations.iter().flat_map(|r| {
        let knee = r.knee.iter().flat_map(|k| [k.at.point, k.best.point, k.lowest.point]);
        let over = r.over_cheapest.iter().chain(&r.over_runner_up).map(|gain| gain.over);
        r.point.into_iter().chain(r.fastest).chain(over).chain(knee).collect::<Vec<u32>>()
    });
    let mut chosen = BTreeSet::new();
    for id in named.chain(analysis.points.iter().map(|p| p.point)) {
        if chosen.len() == CURVES {
            break;
        }
        chosen.insert(id);
    }
    chosen.into_iter().collect()
}

/// The verdict on each point's middle run: the kept one whose bandwidth has as many below it as above.
fn verdicts(analysis: &Analysis, store: &Store) -> Result<BTreeMap<u32, Verdict>, StoreError> {
    let mut kept: BTreeMap<u32, Vec<(f64, i64)>> = BTreeMap::new();
    for judged in analysis.runs.iter().filter(|judged| judged.fate == Fate::Kept) {
        let run = &judged.run;
        kept.entry(run.point).or_default().push((run.bandwidth_bytes_per_s, run.id));
    }
    let mut verdicts = BTreeMap::new();
    for (point, mut runs) in kept {
        runs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        if let Some(verdict) = store.verdict(runs[runs.len() / 2].1)? {
            verdicts.insert(point, verdict);
        }
    }
    Ok(verdicts)
}

/// Records read one at a time, each at most once.
struct Records<'a> {
    store: &'a Store,
    read: BTreeMap<i64, RunRecord>,
}

impl Records<'_> {
    fn get(&mut self, run: i64) -> Result<&RunRecord, StoreError> {
        if !self.read.contains_key(&run) {
            let record = self.store.record(run)?;
            self.read.insert(run, record);
        }
        Ok(&self.read[&run])
    }
}

/// Each target as its first run saw it.
fn targets(data: &SweepData, records: &mut Records<'_>) -> Result<Vec<TargetSeen>, StoreError> {
    let spec: BTreeMap<u32, &str> = data.points.iter().map(|p| (p.id, p.target.as_str())).collect();
    let mut first: BTreeMap<&str, (u32, i64)> = BTreeMap::new();
    for run in &data.runs {
        if let Some(target) = spec.get(&run.point) {
            let this = (run.position, run.id);
            first.entry(target).and_modify(|seen| *seen = this.min(*seen)).or_insert(this);
        }
    }
    let mut targets = Vec::with_capacity(first.len());
    for (target, (_, run)) in first {
        let record = records.get(run)?;
        let mut facts = record.target.clone();
        // A scratch file has no name; a descriptor's number tells nobody where it lay.
        if facts.path.as_ref().is_some_and(|path| path.starts_with("/proc/self/fd/")) {
            let folder = if target.starts_with('/') { target } else { &data.meta.directory };
            facts.path = (!folder.is_empty()).then(|| format!("{folder} (a scratch file without a name)"));
            facts.spec = target.to_owned();
        }
        targets.push(TargetSeen {
            target: target.to_owned(),
            facts,
            layout: record.layout.clone(),
            engine: record.engine.clone(),
        });
    }
    Ok(targets)
}

/// For each code, what the first run that carries it says.
fn messages(
    data: &SweepData,
    records: &mut Records<'_>,
) -> Result<BTreeMap<WarningCode, String>, StoreError> {
    let mut first: BTreeMap<WarningCode, (u32, i64)> = BTreeMap::new();
    for run in &data.runs {
        for code in &run.warnings {
            let this = (run.position, run.id);
            first.entry(*code).and_modify(|seen| *seen = this.min(*seen)).or_insert(this);
        }
    }
    let mut messages = BTreeMap::new();
    for (code, (_, run)) in first {
        let record = records.get(run)?;
        if let Some(warning) = record.warnings.iter().find(|w| w.code == code) {
            messages.insert(code, warning.message.clone());
        }
    }
    Ok(messages)
}
