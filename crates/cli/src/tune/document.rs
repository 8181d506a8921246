//! What `tune show --json` prints (`flashwright.tune/1`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sweep::analysis::Work;
use sweep::recommend::{Recommendation, Setting};
use sweep::report::Report;

use super::tuning::{Tuning, slug};

/// The settings that a sweep recommends.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TuneDocument {
    /// `flashwright.tune/1`.
    schema: &'static str,
    /// The layout, as a spec; null where the sweep had none.
    layout: Option<String>,
    /// Every setting by name, with what is behind it.
    settings: BTreeMap<String, Setting>,
    /// What to use for each kind of work.
    works: Vec<ForWork>,
}

/// The load for one kind of work.
#[derive(Debug, Serialize, JsonSchema)]
struct ForWork {
    /// What `--for` takes.
    name: String,
    /// The work.
    work: Work,
    /// The recommended point as settings, by name.
    settings: BTreeMap<String, Setting>,
    /// The same as flags of `flashwright bench`; null where nothing is recommended.
    flags: Option<String>,
}

impl TuneDocument {
    pub fn new(report: &Report, tuning: &Tuning) -> Self {
        let for_work = |r: &Recommendation| ForWork {
            name: slug(&r.work),
            work: r.work.clone(),
            settings: r.settings.clone(),
            flags: r.flags.clone(),
        };
        Self {
            schema: "flashwright.tune/1",
            layout: tuning.spec.as_ref().map(ToString::to_string),
            settings: tuning.settings.clone(),
            works: report.recommendations.iter().map(for_work).collect(),
        }
    }
}
