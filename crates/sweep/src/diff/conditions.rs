//! What differs between two sweeps besides their figures.

use std::collections::BTreeMap;

use measure::RunRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Sweep, workload_fields};
use crate::model::Point;
use crate::store::StoreError;

/// One thing that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// What.
    pub what: String,
    /// In the baseline; `–` where there is none.
    pub a: String,
    /// In what is compared with it.
    pub b: String,
}

/// How the runs of a pair of points were made differently.
pub(super) fn of_points(a: &Point, b: &Point) -> Vec<Change> {
    let (of_a, of_b) = (workload_fields(a), workload_fields(b));
    let word = |fields: &serde_json::Map<String, serde_json::Value>, name: &str| match fields.get(name) {
        None | Some(serde_json::Value::Null) => "–".to_owned(),
        Some(value) => value.to_string(),
    };
    super::conditions()
        // The name is made from the settings, and every run draws its own offsets.
        .filter(|name| !matches!(*name, "name" | "randseed"))
        .filter_map(|name| change(name, word(&of_a, name), word(&of_b, name)))
        .collect()
}

/// What differs between the sweeps as a whole.
pub(super) fn of_sweeps(a: &Sweep<'_>, b: &Sweep<'_>) -> Result<Vec<Change>, StoreError> {
    let (of_a, of_b) = (facts(a)?, facts(b)?);
    let names: std::collections::BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    let word = |facts: &BTreeMap<String, String>, name: &str| {
        facts.get(name).cloned().unwrap_or_else(|| "–".to_owned())
    };
    let changes =
        names.into_iter().filter_map(|name| change(name, word(&of_a, name), word(&of_b, name))).collect();
    Ok(changes)
}

fn change(what: &str, a: String, b: String) -> Option<Change> {
    (a != b).then(|| Change { what: what.to_owned(), a, b })
}

/// All that is known about where and how a sweep was measured, by name.
fn facts(sweep: &Sweep<'_>) -> Result<BTreeMap<String, String>, StoreError> {
    let meta = &sweep.meta;
    let host = &meta.machine.host;
    let optional = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".to_owned());
    let mut facts: BTreeMap<String, String> = [
        ("flashwright", meta.version.clone()),
        ("passes", meta.passes.to_string()),
        ("first pass set aside", meta.discard_first.to_string()),
        ("order", meta.order.word().to_owned()),
        ("precondition", meta.prepare.how.word().to_owned()),
        ("purge", meta.prepare.purge.to_string()),
        ("host name", meta.machine.hostname.clone()),
        ("kernel", host.kernel.clone()),
        ("architecture", host.architecture.clone()),
        ("CPU", host.cpu_model.clone()),
        ("CPUs", host.cpus.to_string()),
        ("NUMA nodes", host.numa_nodes.to_string()),
        ("memory", units::bytes(host.memory_bytes)),
        ("governor", optional(&host.governor)),
        ("virtualization", optional(&host.virtualization)),
        ("container", optional(&host.container)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let records = sample_records(sweep)?;
    // Where several targets were measured their facts must not overwrite each other.
    let several = records.len() > 1;
    for (target, record) in &records {
        let prefix = if several { format!("{target}: ") } else { String::new() };
        add_target(&mut facts, &prefix, target, record);
    }
    Ok(facts)
}

/// One record of each target: what it was and which settings were in force around it.
fn sample_records(sweep: &Sweep<'_>) -> Result<BTreeMap<String, RunRecord>, StoreError> {
    let mut records = BTreeMap::new();
    for point in &sweep.points {
        let run = sweep.runs.get(&point.id).and_then(|runs| runs.last());
        if let Some(run) = run.filter(|_| !records.contains_key(&point.target)) {
            records.insert(point.target.clone(), sweep.store.record(run.id)?);
        }
    }
    Ok(records)
}

fn add_target(facts: &mut BTreeMap<String, String>, prefix: &str, spec: &str, record: &RunRecord) {
    let target = &record.target;
    let mut add = |name: &str, value: String| {
        facts.insert(format!("{prefix}{name}"), value);
    };
    add("target", spec.to_owned());
    add("target kind", target.kind.clone());
    add("target size", units::bytes(target.size_bytes));
    add("block devices", target.block_devices.join(" → "));
    add("engine", record.engine.used.clone());
    for (name, value) in [
        ("filesystem", &target.filesystem),
        ("mount options", &target.mount_options),
        ("model", &target.model),
        ("transport", &target.transport),
    ] {
        if let Some(value) = value {
            add(name, value.clone());
        }
    }
    for (name, value) in &record.layout {
        add(name, value.clone());
    }
}
