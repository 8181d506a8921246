//! The codes that the records carry, each counted once a run, with meaning and remedy.

use std::collections::{BTreeMap, BTreeSet};

use measure::WarningCode;
use measure::warning::Severity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PointSummary, SweepData};

/// One code over the whole sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WarningSummary {
    /// The code.
    pub code: WarningCode,
    /// What it does to the figure.
    pub severity: Severity,
    /// Runs that carry it.
    pub runs: u64,
    /// Points with such runs, in order.
    pub points: Vec<u32>,
    /// What one of the records says, with its figures.
    pub example: Option<String>,
    /// What it means.
    pub meaning: String,
    /// What to do.
    pub remedy: String,
}

/// Sums the codes of all runs, void ones included; most severe first, then by number of runs.
#[must_use]
pub fn summarise(data: &SweepData, points: &[PointSummary]) -> Vec<WarningSummary> {
    let mut seen: BTreeMap<WarningCode, (u64, BTreeSet<u32>)> = BTreeMap::new();
    for run in &data.runs {
        let codes: BTreeSet<WarningCode> = run.warnings.iter().copied().collect();
        for code in codes {
            let entry = seen.entry(code).or_default();
            entry.0 += 1;
            entry.1.insert(run.point);
        }
    }
    debug_assert!(seen.values().all(|(_, ids)| ids.len() <= points.len()));
    let mut summaries: Vec<WarningSummary> = seen
        .into_iter()
        .map(|(code, (runs, points))| {
            let explanation = code.explain();
            WarningSummary {
                code,
                severity: explanation.severity,
                runs,
                points: points.into_iter().collect(),
                example: data.messages.get(&code).cloned(),
                meaning: explanation.meaning.to_owned(),
                remedy: code.remedy_in_sweep(),
            }
        })
        .collect();
    summaries.sort_by(|a, b| b.severity.cmp(&a.severity).then(b.runs.cmp(&a.runs)).then(a.code.cmp(&b.code)));
    summaries
}

/// Whether any of the codes voids the figure.
#[must_use]
pub fn is_void(codes: &[WarningCode]) -> bool {
    codes.iter().any(|code| code.explain().severity == Severity::Void)
}
