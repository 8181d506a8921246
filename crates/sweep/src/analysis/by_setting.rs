//! Each workload by the values of one setting: Figs. 8, 11 and 12 of the papers.
//!
//! The papers average everything that shares a value, which compares like with like only if every combination
//! was run. Here a bar is the mean over those configurations that exist, and have a figure, with *every* value of the
//! setting; in a full sweep that is all of them, and the figure is the papers'. Where no configuration exists with
//! every value, all are averaged, and [`BySetting::matched`] says so. The interval is from the scatter of the
//! passes within each configuration, so it is about these very configurations.

use std::collections::{BTreeMap, BTreeSet};

use measure::TestType;
use measure::stats::DEFAULT_LEVEL;
use measure::stats::intervals::mean_of_means;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::statistics::interval;
use super::{Estimate, PointSummary};

/// Values of a setting beyond which nobody reads bars beside each other.
const VALUES: usize = 8;
/// Workloads of a figure.
const WORKLOADS: usize = 24;

/// One setting over all workloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BySetting {
    /// The setting: `chunk`.
    pub setting: String,
    /// Its values, in the order in which the space has them.
    pub values: Vec<String>,
    /// Whether each bar of a workload is over the same configurations but for this setting.
    pub matched: bool,
    /// By workload, then value.
    pub bars: Vec<SettingBar>,
}

/// One workload with one value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingBar {
    /// The workload, for people: `4 KiB random read, depth 32`.
    pub workload: String,
    /// The paper's number, where the sweep has test types.
    pub test_type: Option<TestType>,
    /// The value.
    pub value: String,
    /// Bytes per second: the mean over the configurations.
    pub bandwidth: Estimate,
    /// Configurations averaged.
    pub configurations: u64,
}

/// What is run, apart from what it runs on.
type Run = (Option<u8>, String);

/// One figure for each setting with two to eight values; none in a space without test types that has no layout.
#[must_use]
pub fn by_setting(points: &[PointSummary]) -> Vec<BySetting> {
    let usable: Vec<&PointSummary> = points.iter().filter(|p| p.bandwidth.is_some()).collect();
    let typed = !usable.is_empty() && usable.iter().all(|p| p.test_type.is_some());
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for point in &usable {
        for (name, value) in &point.settings {
            let of_layout = point.layout.contains_key(name);
            if !of_layout && (!typed || name == "test_type") {
                continue;
            }
            let known = values.entry(name).or_default();
            if !known.contains(&value.as_str()) && known.len() <= VALUES {
                known.push(value);
            }
        }
    }
    values
        .into_iter()
        .filter(|(_, values)| (2..=VALUES).contains(&values.len()))
        .map(|(name, values)| one(name, &values, &usable))
        .collect()
}

fn one(setting: &str, values: &[&str], points: &[&PointSummary]) -> BySetting {
    let mut runs: BTreeMap<Run, Vec<&PointSummary>> = BTreeMap::new();
    for point in points.iter().filter(|p| p.settings.contains_key(setting)) {
        runs.entry(run_of(point)).or_default().push(point);
    }
    let mut bars = Vec::new();
    let mut matched = true;
    for ((number, workload), members) in runs.into_iter().take(WORKLOADS) {
        let complete = in_complete_blocks(setting, values.len(), &members);
        let members = if complete.is_empty() { &members } else { &complete };
        matched &= !complete.is_empty();
        for value in values {
            let with: Vec<&PointSummary> =
                members.iter().copied().filter(|p| p.settings[setting] == *value).collect();
            let Some(bandwidth) = mean(&with) else { continue };
            bars.push(SettingBar {
                workload: workload.clone(),
                test_type: number.and_then(|n| TestType::try_from(n).ok()),
                value: (*value).to_owned(),
                bandwidth,
                configurations: with.len() as u64,
            });
        }
    }
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    BySetting { setting: setting.to_owned(), values, matched, bars }
}

/// The paper's number where there is one, and what runs, in words.
fn run_of(point: &PointSummary) -> Run {
    let words = match point.test_type {
        Some(test_type) => test_type.label(),
        None if point.numjobs > 1 => {
            format!("{} {}, depth {}×{}", point.rw, point.request, point.iodepth, point.numjobs)
        }
        None => format!("{} {}, depth {}", point.rw, point.request, point.iodepth),
    };
    (point.test_type.map(TestType::number), words)
}

/// Those of `members` that have a counterpart with every other value of the setting.
fn in_complete_blocks<'a>(
    setting: &str,
    values: usize,
    members: &[&'a PointSummary],
) -> Vec<&'a PointSummary> {
    let mut blocks: BTreeMap<Vec<(&str, &str)>, Vec<&'a PointSummary>> = BTreeMap::new();
    for point in members.iter().copied() {
        let others = point.settings.iter().filter(|(name, _)| *name != setting);
        let key = others.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        blocks.entry(key).or_default().push(point);
    }
    let complete = |block: &&Vec<&PointSummary>| {
        block.iter().map(|p| &p.settings[setting]).collect::<BTreeSet<_>>().len() == values
    };
    blocks.values().filter(complete).flatten().copied().collect()
}

/// The mean over some points with its interval; none of no points.
fn mean(points: &[&PointSummary]) -> Option<Estimate> {
    let kept: Vec<&[f64]> = points.iter().map(|p| p.kept.as_slice()).collect();
    let estimate = mean_of_means(&kept, DEFAULT_LEVEL).filter(|_| !kept.is_empty())?;
    Some(Estimate { mean: estimate.value, interval: estimate.interval.map(interval) })
}
