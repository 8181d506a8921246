//! A machine's ladder of memory and storage: what each level costs, and how far it is to the next.
//!
//! DASH's Fig. 1 draws the levels from registers to disks with the CPU cycles that an access to each takes, and
//! points at the gap of five orders of magnitude between memory and disks; its Tables 4, 7 and 8 give four figures
//! of a drive, of sixteen drives and of memory as a drive. A [`Ladder`] (`flashwright.ladder/1`) is this machine's
//! own, measured. What is here is the document and all judgement; none of it measures:
//!
//! 1. [`curve`] reads the levels out of a pointer chase's latencies over growing sets: where they stay flat, up to
//!    which set, and whether that is what the kernel says of the caches.
//! 2. [`gaps`] orders levels by latency and says how far it is from each to the next.

pub mod curve;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Warning;
use crate::record::HostFacts;
use crate::stats::Estimate;

/// The name of the format.
pub const SCHEMA: &str = "flashwright.ladder/1";

/// A machine's levels of memory and storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ladder {
    /// `flashwright.ladder/1`.
    pub schema: String,
    /// Whether it was stopped before its end; what is there was measured before.
    pub interrupted: bool,
    /// When it began, nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// The machine.
    pub host: HostFacts,
    /// How it was measured.
    pub method: Method,
    /// Latency over the size of the set.
    pub curve: Vec<CurvePoint>,
    /// The levels, nearest first: by latency; a cache without one after those that are smaller, all else without one last.
    pub levels: Vec<Level>,
    /// From each level to the next.
    pub gaps: Vec<Gap>,
    /// The widest of them.
    pub widest: Option<Gap>,
    /// What was looked for and is not there, or could not be measured.
    pub absent: Vec<Absent>,
    /// What bears on the figures of caches and memory; devices have warnings of their own.
    pub warnings: Vec<Warning>,
}

/// How memory was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Method {
    /// The CPU that chased, read and wrote.
    pub cpu: u32,
    /// Its clock while it did, cycles a second, from chains of dependent operations of one cycle each.
    pub frequency_hz: Option<Estimate>,
    /// Distance of the chase's nodes: a cache line, bytes.
    pub line_bytes: u32,
    /// The pages that the sets lay in.
    pub pages: String,
    /// Vectors of sequential reads and writes, bytes.
    pub vector_bytes: u32,
    /// Rounds that were planned.
    pub rounds: u32,
    /// Length of one measurement of a device, nanoseconds; one of memory is [`MEMORY_SHARE`] of that.
    pub runtime_ns: u64,
}

/// One measurement of memory takes a device's time divided by this.
pub const MEMORY_SHARE: u32 = 40;

/// A point of the chase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// Bytes of the set.
    pub bytes: u64,
    /// Nanoseconds from one load to the next, which depends on it: the median of the rounds.
    pub latency_ns: Estimate,
}

/// What a level is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A cache of the CPU.
    Cache,
    /// Memory of the CPU's own node.
    Memory,
    /// Memory of another NUMA node.
    FarMemory,
    /// Memory of another host.
    RemoteMemory,
    /// A drive that does not turn.
    Flash,
    /// One that does.
    Disk,
    /// A device of which the kernel does not know what stands behind it, or that is made of others.
    Virtual,
}

impl Kind {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Memory => "memory",
            Self::FarMemory => "memory of another node",
            Self::RemoteMemory => "remote memory",
            Self::Flash => "flash",
            Self::Disk => "disk",
            Self::Virtual => "virtual device",
        }
    }

    /// Whether the CPU reaches it with loads and stores.
    #[must_use]
    pub fn is_memory(self) -> bool {
        matches!(self, Self::Cache | Self::Memory | Self::FarMemory)
    }
}

/// A level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// `L1`, `DRAM`, `nvme0n1`, …; unique.
    pub name: String,
    /// What it is made of.
    pub kind: Kind,
    /// More about it: the model of a drive, what a directory stands on, who shares a cache.
    pub about: String,
    /// Its size as the kernel tells it, bytes.
    pub capacity_bytes: Option<u64>,
    /// The largest set that the chase found to be served at this level's latency, bytes; of a cache.
    pub knee_bytes: Option<u64>,
    /// Whether the chase shows what the kernel tells; of a cache.
    pub sighting: Option<curve::Sighting>,
    /// Time of one access, nanoseconds: of memory, a load that depends on the one before; of devices, a random read of
    /// 4 KiB with no other in flight.
    pub latency_ns: Option<Estimate>,
    /// The same in cycles of the CPU.
    pub latency_cycles: Option<Estimate>,
    /// The four figures of DASH's Tables 4, 7 and 8.
    pub figures: FourFigures,
    /// How they were taken.
    pub requests: Requests,
    /// What is to be known about them.
    pub notes: Vec<String>,
    /// The ways in which they may lie.
    pub warnings: Vec<Warning>,
}

/// The papers' four figures. One that could not be had, or would have destroyed data, is not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FourFigures {
    /// Bytes a second.
    pub sequential_write_bytes_per_s: Option<Estimate>,
    /// Bytes a second.
    pub sequential_read_bytes_per_s: Option<Estimate>,
    /// Requests a second.
    pub random_write_iops: Option<Estimate>,
    /// Requests a second.
    pub random_read_iops: Option<Estimate>,
}

/// How the four figures were taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Requests {
    /// Bytes of the set, or of the part of a device, that was read and written.
    pub set_bytes: Option<u64>,
    /// Bytes of a sequential request; of memory the whole set is gone through.
    pub sequential_bytes: Option<u64>,
    /// Sequential requests in flight; none of memory.
    pub sequential_depth: Option<u32>,
    /// Bytes of a random request.
    pub random_bytes: u64,
    /// Random requests in flight; of memory as many as the CPU overlaps.
    pub random_depth: Option<u32>,
}

/// From one level to the next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The level that answers sooner.
    pub nearer: String,
    /// The next one.
    pub farther: String,
    /// Latency of the farther by that of the nearer.
    pub ratio: f64,
    /// The same in orders of magnitude.
    pub orders: f64,
}

impl Gap {
    /// `from DRAM to nvme0n1, 812× (2.9 orders of magnitude)`.
    #[must_use]
    pub fn words(&self) -> String {
        format!(
            "from {} to {}, {}× ({:.1} orders of magnitude)",
            self.nearer,
            self.farther,
            times(self.ratio),
            self.orders
        )
    }
}

/// A ratio with as many digits as it deserves.
#[must_use]
pub fn times(ratio: f64) -> String {
    match ratio {
        r if r < 9.95 => format!("{r:.1}"),
        r if r < 9_999.5 => format!("{r:.0}"),
        r => units::count(r),
    }
}

/// Something that is not on the ladder, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Absent {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// Puts levels into order: by latency; a cache without one after those that are smaller, and all else without one last,
/// as they came.
pub fn sort(levels: &mut Vec<Level>) {
    let latency = |level: &Level| level.latency_ns.map(|e| e.value);
    let smaller = |level: &Level| {
        let caches =
            levels.iter().filter(|l| l.kind == Kind::Cache && l.capacity_bytes < level.capacity_bytes);
        caches.filter_map(latency).fold(0.0, f64::max)
    };
    let place = |level: &Level| match latency(level) {
        Some(ns) => ns,
        None if level.kind == Kind::Cache => smaller(level),
        None => f64::INFINITY,
    };
    let places: Vec<f64> = levels.iter().map(place).collect();
    let mut placed: Vec<(f64, Level)> = places.into_iter().zip(levels.drain(..)).collect();
    placed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    levels.extend(placed.into_iter().map(|(_, level)| level));
}

/// The gaps between neighbours among levels in order. Levels without a latency have none, and one that answers in no
/// time at all (which no clock would say) is no neighbour.
#[must_use]
pub fn gaps(levels: &[Level]) -> Vec<Gap> {
    let known: Vec<(&str, f64)> = levels
        .iter()
        .filter_map(|level| Some((level.name.as_str(), level.latency_ns?.value)))
        .filter(|(_, ns)| ns.is_finite() && *ns > 0.0)
        .collect();
    known
        .windows(2)
        .map(|pair| {
            let ratio = pair[1].1 / pair[0].1;
            Gap { nearer: pair[0].0.to_owned(), farther: pair[1].0.to_owned(), ratio, orders: ratio.log10() }
        })
        .collect()
}

/// The widest of them; of equals the first.
#[must_use]
pub fn widest(gaps: &[Gap]) -> Option<&Gap> {
    gaps.iter().reduce(|widest, gap| if gap.ratio > widest.ratio { gap } else { widest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn level(name: &str, ns: Option<f64>) -> Level {
        Level {
            name: name.to_owned(),
            kind: Kind::Cache,
            about: String::new(),
            capacity_bytes: None,
            knee_bytes: None,
            sighting: None,
            latency_ns: ns.map(|value| Estimate { value, samples: 1, interval: None }),
            latency_cycles: None,
            figures: FourFigures::default(),
            requests: Requests::default(),
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_widest_gap_is_named_with_its_neighbours() {
        let mut levels = vec![
            level("disk", Some(8e6)),
            Level { kind: Kind::Disk, ..level("unknown", None) },
            level("L1", Some(1.6)),
            level("DRAM", Some(80.0)),
            level("flash", Some(8e4)),
        ];
        sort(&mut levels);
        let names: Vec<&str> = levels.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(names, ["L1", "DRAM", "flash", "disk", "unknown"]);
        let gaps = gaps(&levels);
        assert_eq!(gaps.len(), 3);
        assert_eq!(
            widest(&gaps).expect("there are gaps").words(),
            "from DRAM to flash, 1000× (3.0 orders of magnitude)"
        );
    }

    #[test]
    fn a_cache_that_was_not_seen_stands_after_the_smaller_ones() {
        let sized = |name, bytes, ns| Level { capacity_bytes: Some(bytes), ..level(name, ns) };
        let memory = Level { kind: Kind::Memory, ..level("DRAM", Some(100.0)) };
        let mut levels =
            vec![sized("L1", 1, Some(1.0)), sized("L2", 2, Some(4.0)), sized("L3", 3, None), memory];
        sort(&mut levels);
        let names: Vec<&str> = levels.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(names, ["L1", "L2", "L3", "DRAM"]);
    }

    #[test]
    fn few_levels_have_few_gaps() {
        assert_eq!(gaps(&[]), []);
        assert_eq!(gaps(&[level("L1", Some(1.0)), level("x", None)]), []);
        assert!(widest(&[]).is_none());
    }

    proptest! {
        #[test]
        fn gaps_multiply_to_the_whole_ladder(latencies in proptest::collection::vec(1e-1..1e9f64, 2..12)) {
            let mut levels: Vec<Level> =
                latencies.iter().enumerate().map(|(i, ns)| level(&i.to_string(), Some(*ns))).collect();
            sort(&mut levels);
            let gaps = gaps(&levels);
            prop_assert!(gaps.iter().all(|gap| gap.ratio >= 1.0));
            let low = latencies.iter().copied().fold(f64::INFINITY, f64::min);
            let high = latencies.iter().copied().fold(0.0, f64::max);
            let whole: f64 = gaps.iter().map(|gap| gap.orders).sum();
            prop_assert!((whole - (high / low).log10()).abs() < 1e-9);
            let widest = widest(&gaps).expect("two levels have a gap");
            prop_assert!(gaps.iter().all(|gap| gap.ratio <= widest.ratio));
        }
    }
}
