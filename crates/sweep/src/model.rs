//! The nouns of a sweep, shared by all that makes, stores, judges or draws one.

use std::collections::BTreeMap;

use measure::warning::Severity;
use measure::workload::full_queues;
use measure::{Limit, TestType, WarningCode, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One configuration with one workload: a value for each dimension of the space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Position in the space, from 0, in the order in which the dimensions are written.
    pub id: u32,
    /// The value of each dimension that varies, by name and as it would be typed: `iodepth` → `32`.
    pub settings: BTreeMap<String, String>,
    /// The paper's number, where the space has the dimension `test_type`.
    pub test_type: Option<TestType>,
    /// Device spec of the target; [`SCRATCH`] for the sweep's own scratch file.
    pub target: String,
    /// What runs there.
    pub workload: Workload,
    /// What is to be built below, by the names of the options (`layout`, `chunk`, `scheduler`, `drives`, …) and as
    /// they would be typed; what is absent is left as it is. Empty where the space builds nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layout: BTreeMap<String, String>,
}

/// The target of a sweep that was given none: a scratch file laid for it.
pub const SCRATCH: &str = "scratch";

/// The target of a point that has a [`Point::layout`]: whatever is built for it.
pub const LAYOUT: &str = "layout";

/// The setting that says which of two alternating spaces a point belongs to ([`crate::space::Space::against`]).
pub const SIDE: &str = "side";

/// The options of a layout whose change means building anew: making an array and a file system, and laying data
/// there. All others are written into files of sysfs.
pub const CONSTRUCTION: [&str; 6] = ["layout", "chunk", "width", "filesystem", "mount_options", "drives"];

/// One finished run, with the figures that analysis needs; the whole record is in the store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRow {
    /// Row in the table it came from.
    pub id: i64,
    /// [`Point::id`].
    pub point: u32,
    /// Repetition, from 1.
    pub pass: u32,
    /// Position in the planned order of the whole sweep, from 0.
    pub position: u32,
    /// When it began, nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// Length of the measured interval, nanoseconds.
    pub interval_ns: u64,
    /// Bytes moved in it.
    pub bytes: u64,
    /// Requests completed in it.
    pub ios: u64,
    /// Derived by [`measure::RunRecord::bandwidth_bytes_per_s`].
    pub bandwidth_bytes_per_s: f64,
    /// Derived by [`measure::RunRecord::iops`].
    pub iops: f64,
    /// Mean latency, nanoseconds.
    pub latency_ns_mean: f64,
    /// Median latency, nanoseconds.
    pub latency_ns_p50: u64,
    /// 99th percentile, nanoseconds.
    pub latency_ns_p99: u64,
    /// 99.9th percentile, nanoseconds.
    pub latency_ns_p99_9: u64,
    /// Largest latency, nanoseconds.
    pub latency_ns_max: u64,
    /// Codes of the record's warnings, each once.
    pub warnings: Vec<WarningCode>,
    /// What limited it, by the record's own verdict; none in results of before there were any.
    #[serde(default)]
    pub limit: Option<Limit>,
}

impl RunRow {
    /// Whether a warning says that the figure does not measure what was asked. Such a run is kept and
    /// shown, and no conclusion is drawn from it.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.warnings.iter().any(|code| code.explain().severity == Severity::Void)
    }
}

impl Point {
    /// What has to be built for this point, in one line: `layout=md-raid0 chunk=64k …`. Points with the same one
    /// differ by settings that are cheap to change. None where nothing is built.
    #[must_use]
    pub fn construction(&self) -> Option<String> {
        if self.layout.is_empty() {
            return None;
        }
        let built = CONSTRUCTION.iter().filter_map(|name| Some((name, self.layout.get(*name)?)));
        Some(built.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
    }

    /// What orders settings by their cost to the machine: requests in flight, jobs, whether a CPU spins, position in
    /// the space.
    #[must_use]
    pub fn cost(&self) -> (u64, u32, bool, u32) {
        let w = &self.workload;
        (full_queues(w.iodepth, w.numjobs, 1), w.numjobs, w.hipri || w.sqthread_poll, self.id)
    }

    /// One line for people: the paper's words for a test type, else the settings as they would be
    /// typed, else the workload.
    #[must_use]
    pub fn label(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.test_type.map(|t| format!("test type {}: {}", t.number(), t.label())));
        let others = self.settings.iter().filter(|(name, _)| name.as_str() != "test_type");
        parts.extend(others.map(|(name, value)| format!("{name}={value}")));
        if parts.is_empty() { self.workload.summary() } else { parts.join(" ") }
    }
}
