//! What an application asks for, as against what whoever tunes may choose.
//!
//! Recommending means comparing settings that do the *same work*. [`Work`] is what the application
//! fixes: the class (sequential or random, read or write), and for small random requests their size, the
//! mix, the durability it needs, the data's compressibility. It also holds the *conditions* that the sweep
//! varies, such as the size of the region: points under different conditions are not alternatives. Which option is a
//! demand, a choice or a condition is declared once, in [`measure::options::OPTIONS`]. The choices (depth, jobs,
//! engine, batch, target, and for sequential work the request size and where each request starts) compete.
//!
//! Large requests are sequential work wherever they start: "random-seeking with 4MB requests still
//! generates sequential accesses" (DASH-IO §3.1). [`LARGE`] is where flashwright draws that line.

use measure::Workload;
use measure::options::{self, OptionClass, WorkloadOption};
use measure::workload::Rw;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Point, SIDE};

/// Random requests of at least this many bytes count as sequential work: 1 MiB.
pub const LARGE: u64 = 1 << 20;

/// How the medium is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// In order, or in pieces so large that their order does not matter.
    Sequential,
    /// Small pieces in any order.
    Random,
}

/// Which way the data go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the medium.
    Read,
    /// To the medium.
    Write,
    /// Both.
    Mixed,
    /// Neither: discards.
    Trim,
}

impl Direction {
    /// `reads`, `writes`, `mixed reads and writes`, `discards`.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Mixed => "mixed reads and writes",
            Self::Trim => "discards",
        }
    }
}

/// One of the classes for which a setting is recommended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Class {
    /// How the medium is walked.
    pub access: Access,
    /// Which way the data go.
    pub direction: Direction,
}

impl Class {
    /// The class of a workload.
    #[must_use]
    pub fn of(workload: &Workload) -> Self {
        let access = if workload.rw.is_random() && workload.min_bs() < LARGE {
            Access::Random
        } else {
            Access::Sequential
        };
        let direction = match workload.rw {
            Rw::Read | Rw::RandRead => Direction::Read,
            Rw::Write | Rw::RandWrite | Rw::TrimWrite | Rw::RandTrimWrite => Direction::Write,
            Rw::Rw | Rw::RandRw => Direction::Mixed,
            Rw::Trim | Rw::RandTrim => Direction::Trim,
        };
        Self { access, direction }
    }

    /// `Random reads`, `Streaming reads`: a stream is what is read in order or in large pieces, which need not be in order.
    #[must_use]
    pub fn label(self) -> String {
        let access = match self.access {
            Access::Sequential => "Streaming",
            Access::Random => "Random",
        };
        format!("{access} {}", self.direction.plural())
    }
}

/// What an application asks for; points with equal work are alternatives to each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    /// The class.
    pub class: Class,
    /// Request size as typed, for random work: `4k`. Sequential work may choose its own.
    pub request: Option<String>,
    /// What else is fixed, as it would be typed: `rwmixread=70`, `fdatasync=1`.
    pub demands: Vec<String>,
    /// The conditions that the sweep varies, as they would be typed: `size=1g`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
}

impl Work {
    /// The work of a point: what its workload demands, under the conditions that the sweep varies.
    #[must_use]
    pub fn of(point: &Point) -> Self {
        let workload = &point.workload;
        let class = Class::of(workload);
        let request = (class.access == Access::Random).then(|| request_word(workload));
        let demands = demands(workload, class);
        // Two sides are compared under each of the settings that they share, so that all of these are conditions.
        let is_paired = point.settings.contains_key(SIDE);
        let is_said = |name: &str| name == "bs" && request.is_some() || name == SIDE;
        let is_condition = |name: &str| match options::find(name) {
            Some(option) if option.class == OptionClass::Condition => true,
            _ => is_paired && !is_said(name),
        };
        let varied = point.settings.iter().filter(|(name, _)| is_condition(name));
        let conditions = varied.map(|(name, value)| format!("{name}={value}"));
        let conditions = conditions.filter(|condition| !demands.contains(condition)).collect();
        Self { class, request, demands, conditions }
    }

    /// `Random reads, 4k`.
    #[must_use]
    pub fn label(&self) -> String {
        let mut label = self.class.label();
        for part in self.request.iter().chain(&self.demands).chain(&self.conditions) {
            label.push_str(", ");
            label.push_str(part);
        }
        label
    }
}

/// The request size as it would be typed: `4k`, or `4k/60:64k/40`.
pub(crate) fn request_word(workload: &Workload) -> String {
    if workload.bssplit.is_empty() {
        return units::bytes_short(workload.bs);
    }
    workload.bssplit.iter().map(ToString::to_string).collect::<Vec<_>>().join(":")
}

/// What is fixed besides class and size. Left out where it is at its default, so that labels stay short.
fn demands(workload: &Workload, class: Class) -> Vec<String> {
    let differing: Vec<&str> = options::differing(workload).map(|option| option.name).collect();
    let is_demanded = |option: &&WorkloadOption| match option.name {
        "rw" => workload.rw.trims_and_writes(),
        // These are the class and the request size.
        "bs" | "bssplit" => false,
        "rwmixread" => class.direction == Direction::Mixed,
        "random_distribution" if class.access != Access::Random => false,
        name => option.class == OptionClass::Demand && differing.contains(&name),
    };
    let demands = options::OPTIONS.iter().filter(is_demanded);
    demands.filter_map(|option| Some(format!("{}={}", option.name, option.text(workload)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SCRATCH;
    use measure::TestType;

    fn work(workload: Workload) -> Work {
        let (settings, layout) = Default::default();
        Work::of(&Point { id: 0, settings, test_type: None, target: SCRATCH.to_owned(), workload, layout })
    }

    #[test]
    fn the_fourteen_test_types_fall_into_the_papers_four_classes() {
        for test_type in TestType::all() {
            let class = Class::of(&test_type.workload(&Workload::default()));
            assert_eq!(class.access == Access::Sequential, test_type.is_sequential());
            assert_eq!(class.direction == Direction::Read, test_type.is_read());
        }
    }

    #[test]
    fn request_size_is_a_demand_of_random_work_only() {
        let work = |rw, bs| work(Workload { rw, bs, ..Workload::default() });
        assert_ne!(work(Rw::RandRead, 4096), work(Rw::RandRead, 8192));
        assert_eq!(work(Rw::Read, 4096), work(Rw::Read, 1 << 20));
        assert_eq!(work(Rw::RandRead, 4096).label(), "Random reads, 4k");
    }

    #[test]
    fn durability_is_a_demand_so_that_it_is_never_tuned_away() {
        let base = Workload { rw: Rw::RandWrite, ..Workload::default() };
        let durable = Workload { fdatasync: 1, ..base.clone() };
        assert_ne!(work(base), work(durable.clone()));
        assert_eq!(work(durable).label(), "Random writes, 4k, fdatasync=1");
    }
}
